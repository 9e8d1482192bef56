//! Processes of the host, as `/proc` shows them.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The PID.
    pub pid: i32,
    /// The name of its command, as the kernel truncates it.
    pub name: String,
    /// The state: `R`, `S`, `D`, `T`, `Z` …
    pub state: char,
}

impl Process {
    /// Reads `/proc/PID/stat`. None: it is gone.
    #[must_use]
    pub fn read(proc: &Path, pid: i32) -> Option<Self> {
        let stat = fs::read(proc.join(pid.to_string()).join("stat")).ok()?;
        // A process sets its own name: it may contain blanks, brackets, line ends, and bytes that are no UTF-8.
        let stat = String::from_utf8_lossy(&stat);
        let (before, after) = stat.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        let name = name.replace(char::is_control, " ");
        Some(Self { pid, name, state: after.trim_start().chars().next()? })
    }

    /// All processes. None: an existing one cannot be read.
    #[must_use]
    pub fn list(proc: &Path) -> Option<Vec<Self>> {
        let entries: Vec<_> = fs::read_dir(proc).ok()?.collect::<Result<_, _>>().ok()?;
        let mut all = Vec::new();
        for pid in entries.iter().filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            match Self::read(proc, pid) {
                Some(process) => all.push(process),
                None if matches!(proc.join(pid.to_string()).try_exists(), Ok(false)) => {}
                None => return None,
            }
        }
        Some(all)
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} ({}) in state {}", self.pid, self.name, self.state)
    }
}

/// Sends a signal. A process that is gone is ignored.
pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid).filter(|pid| !pid.is_init()) {
        let _gone = kill_process(pid, signal);
    }
}

/// The process that has one of these files open, for messages.
#[must_use]
pub fn find_holder(proc: &Path, paths: &[&str]) -> Option<String> {
    let holds = |process: &Process| {
        let open = fs::read_dir(proc.join(process.pid.to_string()).join("fd")).into_iter().flatten().flatten();
        open.filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|to| paths.iter().any(|path| to == Path::new(path)))
    };
    let mut all = Process::list(proc)?.into_iter();
    all.find(holds).map(|process| format!("process {} ({})", process.pid, process.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_brackets_and_blanks_is_parsed() {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("17")).unwrap();
        fs::write(proc.path().join("17/stat"), "17 (a) R (b) D 1 17 17 0\n").unwrap();
        let process = Process::read(proc.path(), 17).unwrap();
        assert_eq!(process.to_string(), "process 17 (a) R (b) in state D");
        assert_eq!(Process::list(proc.path()).unwrap(), [process]);
        assert_eq!(Process::read(proc.path(), 18), None);
        fs::create_dir(proc.path().join("18")).unwrap();
        assert_eq!(Process::list(proc.path()), None, "unknown is not absent");
    }

    /// A thread of any pod can set its name to bytes that are no UTF-8 (prctl PR_SET_NAME).
    #[test]
    fn attack_a_process_name_that_is_no_utf8_hides_no_kubelet() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, stat) in [(7, &b"7 (kubelet) S 1 7 7 0\n"[..]), (8, &b"8 (\xff\xfe) S 1 8 8 0\n"[..])] {
            fs::create_dir(proc.path().join(pid.to_string())).unwrap();
            fs::write(proc.path().join(pid.to_string()).join("stat"), stat).unwrap();
        }
        assert!(Process::list(proc.path()).is_some(), "one process of a tenant hides all others");
    }

    #[test]
    fn this_process_is_listed() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(Process::list(Path::new("/proc")).unwrap().iter().any(|process| process.pid == own));
    }
}
