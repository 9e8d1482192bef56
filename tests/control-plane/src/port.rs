//! Ports on loopback that stay ours while a server on them is stopped.
//!
//! A port found by binding port 0 lies where the system takes the near ends of outgoing connections from:
//! while the API server is down, any client may be given it, and the restart fails. So ports are taken from
//! below that range, and a lock on a file keeps test processes off each other's.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Error;

const FIRST: u32 = 20_000;
/// Linux hands out 32768 and up.
const COUNT: u32 = 12_000;
/// Far more than there are servers on a machine that runs tests.
const ATTEMPTS: u32 = 200;

/// A port and the claim to it.
pub(crate) struct Port {
    number: u16,
    /// The system gives the lock back when the file closes, also when we are killed.
    _claim: File,
}

impl Port {
    pub(crate) fn reserve() -> Result<Self, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let folder =
            std::env::temp_dir().join(format!("pod-safety-ports-{}", rustix::process::getuid().as_raw()));
        std::fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
        // Processes begin at different places, so that they rarely meet.
        let start = std::process::id().wrapping_mul(97);
        for _ in 0..ATTEMPTS {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let Ok(number) = u16::try_from(FIRST + start.wrapping_add(step) % COUNT) else { continue };
            let path = folder.join(number.to_string());
            let claim = File::create(&path).map_err(Error::file("create", &path))?;
            if claim.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Self { number, _claim: claim });
            }
        }
        Err(Error::Ports(ATTEMPTS))
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}:{}", Ipv4Addr::LOCALHOST, self.number)
    }
}
