//! Ports on loopback that remain reserved while a server on them is stopped.
//!
//! A port found by binding port 0 is in the range of ephemeral ports: while the API server is down, any client connection may get it, and the
//! restart fails. So ports are taken from below that range. Tests run in many processes at once; an abstract socket with the port in its
//! name prevents that two of them use the same. Abstract names belong to the network namespace, like ports: they do not depend on the user or
//! the folder of the tests, and the system releases them when a process is killed.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Error;

const FIRST: u32 = 20_000;
/// Linux uses 32768 and higher for ephemeral ports.
const COUNT: u32 = 12_000;
/// Far more than the servers on a test machine.
const ATTEMPTS: u32 = 200;

/// A port and its reservation.
pub struct Port {
    number: u16,
    _claim: UnixListener,
}

impl Port {
    /// Reserves a free port.
    pub fn reserve() -> Result<Self, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Processes start at different numbers, so that conflicts are rare.
        let start = std::process::id().wrapping_mul(97);
        for _ in 0..ATTEMPTS {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let Ok(number) = u16::try_from(FIRST + start.wrapping_add(step) % COUNT) else { continue };
            let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok();
            if let Some(claim) = claim(number).filter(|_| free()) {
                return Ok(Self { number, _claim: claim });
            }
        }
        Err(Error::Ports(ATTEMPTS))
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}:{}", Ipv4Addr::LOCALHOST, self.number)
    }
}

fn claim(number: u16) -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("pod-safety-port-{number}")).ok()?;
    UnixListener::bind_addr(&name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_reserved_until_it_is_released() {
        let port = Port::reserve().unwrap();
        assert!(claim(port.number()).is_none(), "somebody else would get it, too");
        let number = port.number();
        drop(port);
        assert!(claim(number).is_some());
    }
}
