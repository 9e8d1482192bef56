//! What an agent started, found and killed.
//!
//! A process group is killed as one, and agents stay in theirs. What leaves it (`setsid`, a daemon) is found by a mark
//! that everything inherits: one variable of its environment, made anew for each run. A process that also wipes its
//! environment, or runs as another user, is out of reach; agents are programs of the distribution and do neither.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, pidfd_send_signal, waitid,
};

/// The variable that marks the processes of one run.
pub(super) const MARK: &str = "POD_SAFETY_FENCE_RUN";

/// The processes of one run.
pub(super) struct Remains {
    group: Pid,
    /// `NAME=value`, as it stands in an environment.
    mark: String,
    /// Those found outside of the group's leader, by handles that mean this very process and never a later one of
    /// the same number.
    found: BTreeMap<i32, OwnedFd>,
}

impl Remains {
    pub(super) fn new(group: Pid, mark: &str) -> Self {
        Self { group, mark: format!("{MARK}={mark}"), found: BTreeMap::new() }
    }

    /// Kills the group and everything with the mark; says how many processes with the mark were seen beside the
    /// leader. Zero means that nothing is left. May be called while the leader is not reaped yet, and only then:
    /// afterwards its number can be a stranger's.
    pub(super) fn kill(&mut self) -> usize {
        let seen = self.look();
        // It fails when the group is empty, which is what is wanted.
        let _ = kill_process_group(self.group, Signal::KILL);
        for handle in self.found.values() {
            // It fails when the process is gone.
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
        self.reap();
        seen
    }

    /// Whether all that were found have ended, each after at most `wait`. One that was killed runs no more, but takes a
    /// moment to let go of its files.
    pub(super) fn ended(&self, wait: Timespec) -> bool {
        self.found.values().all(|handle| has_ended(handle, wait))
    }

    /// Takes the exit states of those that became our children when their parents died: as the first process of a
    /// container we are everybody's last parent, and nobody else would.
    fn reap(&self) {
        for handle in self.found.values() {
            // It fails for those that are not our children.
            let _ = waitid(WaitId::PidFd(handle.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
    }

    fn look(&mut self) -> usize {
        let mut seen = 0;
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = number.and_then(Pid::from_raw) else { continue };
            if pid == self.group || !self.marked(&entry.path()) {
                continue;
            }
            seen += 1;
            // The handle first, then the mark once more: between the two looks the number may have passed on.
            if let Ok(handle) = pidfd_open(pid, PidfdFlags::empty())
                && self.marked(&entry.path())
            {
                self.found.insert(pid.as_raw_nonzero().get(), handle);
            }
        }
        seen
    }

    fn marked(&self, process: &Path) -> bool {
        // Gone, or not ours to read: not one of these.
        let environment = std::fs::read(process.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == self.mark.as_bytes())
    }
}

/// Whether a process has ended, after at most `wait`.
pub(super) fn has_ended(process: &OwnedFd, wait: Timespec) -> bool {
    let mut processes = [PollFd::new(process, PollFlags::IN)];
    poll(&mut processes, Some(&wait)).is_ok_and(|ready| ready > 0)
}
