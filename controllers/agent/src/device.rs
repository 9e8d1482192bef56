//! The interface of a watchdog, and a pipe in place of one.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pod_safety_watchdog::record::{Class, Device};

/// A device that resets the machine if it is not petted.
pub trait Watchdog {
    /// Opens the device, which starts it, sets its timeout and reads back what the device reports.
    ///
    /// # Errors
    /// The device cannot be used.
    fn open(&mut self) -> Result<Device, Unusable>;
    /// Restarts the timeout.
    ///
    /// # Errors
    /// The device did not accept it.
    fn pet(&mut self) -> io::Result<()>;
    /// Stops it, if it can be stopped, and closes it.
    ///
    /// # Errors
    /// The device did not accept it.
    fn close(&mut self) -> io::Result<()>;
}

/// Why a device is not used, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable(pub String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unusable {}

/// A pipe to a keeper outside the machine, which cuts its power: for tests. Closing it does not pet it.
#[derive(Debug)]
pub struct Keeper {
    path: PathBuf,
    timeout: Duration,
    kernel: Arc<str>,
    pipe: Option<File>,
}

impl Keeper {
    /// The pipe at `path`, with a keeper that was given this timeout.
    #[must_use]
    pub const fn new(path: PathBuf, timeout: Duration, kernel: Arc<str>) -> Self {
        Self { path, timeout, kernel, pipe: None }
    }

    fn write_byte(&mut self, byte: u8) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the pipe is not open"));
        };
        pipe.write_all(&[byte])
    }
}

impl Watchdog for Keeper {
    fn open(&mut self) -> Result<Device, Unusable> {
        use std::os::unix::fs::OpenOptionsExt as _;
        // Without a keeper the open fails at once, and a keeper that reads nothing blocks no pet.
        let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
        let opened = OpenOptions::new().write(true).custom_flags(flags).open(&self.path);
        let path = self.path.display().to_string();
        let away = |error: io::Error| Unusable(format!("--keeper {path}: {error}: is the keeper running?"));
        self.pipe = Some(opened.map_err(away)?);
        self.write_byte(b'p').map_err(away)?;
        Ok(Device {
            class: Class::Hardware,
            identity: "keeper".into(),
            firmware: 0,
            kernel: Arc::clone(&self.kernel),
            timeout: self.timeout,
            nowayout: true,
            pings_on_close: false,
        })
    }

    fn pet(&mut self) -> io::Result<()> {
        self.write_byte(b'p')
    }

    fn close(&mut self) -> io::Result<()> {
        let result = self.write_byte(b'V');
        self.pipe = None;
        result
    }
}
