//! `/dev/watchdog`.
//!
//! The device's attributes are read from sysfs before it is opened, because opening starts it. After that only the
//! values that it reports back count: drivers round.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pod_safety_watchdog::record::{Class, Device};
use watchdog_device::OptionFlags;

use crate::device::{Unusable, Watchdog};
use crate::processes;

/// `WDIOF_ALARMONLY`: the device only reports, and resets nothing.
const ALARM_ONLY: u32 = 0x0400;

/// The watchdog with this number.
pub struct Linux {
    number: u8,
    timeout: Duration,
    /// The class of the machine. A timer of the kernel has a weaker one.
    class: Class,
    kernel: Arc<str>,
    sysfs: PathBuf,
    proc: PathBuf,
    open: Option<watchdog_device::Watchdog>,
}

impl std::fmt::Debug for Linux {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Linux").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The attributes of a watchdog in sysfs. None: the kernel does not show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SysfsAttributes {
    /// The name of its driver.
    pub identity: Option<String>,
    /// Whether closing it cannot stop it.
    pub nowayout: Option<bool>,
    /// Its option bits.
    pub options: Option<u32>,
    /// Its timeout in seconds.
    pub timeout: Option<u64>,
    /// Whether it runs.
    pub active: Option<bool>,
}

impl SysfsAttributes {
    /// Reads `/sys/class/watchdog/watchdogN`.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
        let options = read("options").and_then(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok());
        Self {
            identity: read("identity"),
            nowayout: read("nowayout").map(|text| text == "1"),
            options,
            timeout: read("timeout").and_then(|text| text.parse().ok()),
            active: read("state").map(|text| text == "active"),
        }
    }
}

impl Linux {
    /// The device `/dev/watchdogN`, with the timeout to request.
    #[must_use]
    pub fn new(number: u8, timeout: Duration, class: Class, kernel: Arc<str>) -> Self {
        let (sysfs, proc) = (PathBuf::from("/sys/class/watchdog"), PathBuf::from("/proc"));
        Self { number, timeout, class, kernel, sysfs, proc, open: None }
    }

    /// Its attributes in sysfs.
    #[must_use]
    pub fn sysfs_attributes(&self) -> SysfsAttributes {
        SysfsAttributes::read(&self.sysfs.join(format!("watchdog{}", self.number)))
    }

    fn path(&self) -> String {
        format!("/dev/watchdog{}", self.number)
    }

    /// The process that has it open, for messages.
    #[must_use]
    pub fn holder(&self) -> Option<String> {
        processes::find_holder(&self.proc, &[&self.path(), "/dev/watchdog"])
    }

    fn unusable(&self, why: impl std::fmt::Display) -> Unusable {
        Unusable(format!("--device {}: {why}", self.path()))
    }

    fn not_opened(&self, error: &io::Error) -> Unusable {
        if error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) {
            let holder = self.holder().unwrap_or_else(|| "another process".to_owned());
            return self.unusable(format_args!(
                "{holder} has it open, and only one can: of systemd set RuntimeWatchdogSec=0, or name another device"
            ));
        }
        self.unusable(format_args!("{error}: is its module loaded, and is /dev mounted into this container?"))
    }

    /// Sets the timeout, and accepts any that the device reports: a longer one only makes the controller wait longer.
    fn set_and_read(&self, device: &watchdog_device::Watchdog, nowayout: bool) -> Result<Device, Unusable> {
        let failed = |what: &str, error: &dyn std::fmt::Display| self.unusable(format_args!("{what}: {error}"));
        if device.is_option_supported(&OptionFlags::AlarmOnly).map_err(|error| failed("GETSUPPORT", &error))? {
            return Err(self.unusable("it is ALARMONLY, so it resets nothing: name another device"));
        }
        let requested = i32::try_from(self.timeout.as_secs()).unwrap_or(i32::MAX);
        // A device that cannot be set keeps its own timeout, which is read back like any other.
        let _kept = device.set_timeout(requested);
        // A pretimeout would make the kernel panic before the device fires, and dump its memory for minutes.
        let _none = device.set_pretimeout(0);
        let timeout = device.get_timeout().map_err(|error| failed("GETTIMEOUT", &error))?;
        let seconds = u64::try_from(timeout).ok().filter(|seconds| *seconds > 0);
        let seconds =
            seconds.ok_or_else(|| self.unusable(format_args!("its timeout is {timeout} s: name another device")))?;
        let identity = device.get_driver_identity().map_err(|error| failed("GETSUPPORT", &error))?;
        let identity: Arc<str> = identity.trim_end_matches('\0').into();
        Ok(Device {
            class: class(self.class, &identity),
            identity,
            firmware: device.get_firmware_version().unwrap_or_default(),
            kernel: Arc::clone(&self.kernel),
            timeout: Duration::from_secs(seconds),
            nowayout,
            pings_on_close: true,
        })
    }

    fn check_supported(&self, attributes: &SysfsAttributes) -> Result<bool, Unusable> {
        if attributes.options.is_some_and(|options| options & ALARM_ONLY != 0) {
            return Err(self.unusable("it is ALARMONLY, so it resets nothing: name another device"));
        }
        attributes.nowayout.ok_or_else(|| {
            self.unusable("sysfs does not say nowayout: this needs a kernel with CONFIG_WATCHDOG_SYSFS, and /sys in this container")
        })
    }
}

impl Watchdog for Linux {
    fn open(&mut self) -> Result<Device, Unusable> {
        let attributes = self.sysfs_attributes();
        let nowayout = self.check_supported(&attributes)?;
        // After a failed pet it is open still, and the kernel opens it once. Closing it pets it, as opening does.
        self.open = None;
        let opened = watchdog_device::Watchdog::new_by_id(self.number);
        let mut device = opened.map_err(|error| self.not_opened(&error))?;
        // It runs now, whatever it reports: a device that cannot be used is stopped, if it can be.
        let read = self.set_and_read(&device, nowayout);
        if read.is_ok() {
            self.open = Some(device);
        } else {
            let _runs_on = device.magic_close();
        }
        read
    }

    fn pet(&mut self) -> io::Result<()> {
        let Some(device) = &mut self.open else {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the device is not open"));
        };
        device.keep_alive().map_err(|error| io::Error::from_raw_os_error(error as i32))
    }

    fn close(&mut self) -> io::Result<()> {
        self.open.take().map_or(Ok(()), |mut device| device.magic_close())
    }
}

/// The class of a device: softdog is a timer of the kernel. In a virtual machine any device is the hypervisor's.
fn class(machine: Class, identity: &str) -> Class {
    match machine {
        Class::Hardware | Class::Software if identity == "Software Watchdog" => Class::Software,
        machine => machine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(sysfs: &Path) -> Linux {
        let new = Linux::new(0, Duration::from_secs(10), Class::Hardware, "6.1".into());
        Linux { sysfs: sysfs.to_owned(), ..new }
    }

    #[test]
    fn attack_a_device_that_resets_nothing_is_refused_before_it_is_opened() {
        let sysfs = tempfile::tempdir().unwrap();
        let folder = sysfs.path().join("watchdog0");
        fs::create_dir(&folder).unwrap();
        let mut linux = device(sysfs.path());
        assert!(linux.open().unwrap_err().0.contains("nowayout"), "what is not known is no promise");
        for (text, nowayout) in [("0\n", false), ("1\n", true)] {
            fs::write(folder.join("nowayout"), text).unwrap();
            assert_eq!(linux.sysfs_attributes().nowayout, Some(nowayout));
        }
        fs::write(folder.join("options"), "0x8580\n").unwrap();
        let message = linux.open().unwrap_err().to_string();
        assert!(
            message.contains("--device /dev/watchdog0")
                && message.contains("ALARMONLY")
                && message.contains("name another"),
            "{message}"
        );
    }

    /// With a watchdog of a real kernel, which runs on, in a virtual machine: `tests/watchdog/qemu.sh` starts it there.
    #[test]
    fn bug_a_real_watchdog_whose_pet_failed_was_busy_when_it_was_opened_again() {
        if std::env::var_os("POD_SAFETY_REAL_CGROUPS").is_none() {
            return;
        }
        let mut linux = Linux::new(0, Duration::from_secs(10), Class::Hardware, "6.1".into());
        for _ in 0..2 {
            assert_eq!(linux.open().unwrap().timeout, Duration::from_secs(10));
            linux.pet().unwrap();
        }
    }

    #[test]
    fn softdog_is_not_of_class_hardware() {
        assert_eq!(class(Class::Hardware, "Software Watchdog"), Class::Software);
        assert_eq!(class(Class::Hardware, "iTCO_wdt"), Class::Hardware);
        assert_eq!(class(Class::Virtual, "Software Watchdog"), Class::Virtual);
        assert_eq!(class(Class::Cloud, "i6300ESB timer"), Class::Cloud);
    }
}
