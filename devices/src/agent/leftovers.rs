//! Finds and kills the processes that an agent started.
//!
//! A process group is killed as a whole, and agents stay in theirs. A process that leaves it (`setsid`, a daemon) is
//! found by a mark that all children inherit: one environment variable, with a new value for each run. A process that
//! leaves the group and clears its environment is not found, nor one that runs as another user; agents are programs
//! of the distribution and do neither.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, pidfd_send_signal, waitid,
};

/// The variable that marks the processes of one run.
pub(super) const MARK: &str = "POD_SAFETY_FENCE_RUN";

/// The processes of one run, or of all runs of an owner.
pub(super) struct LeftoverProcesses {
    /// `None` for all runs of an owner.
    group: Option<Pid>,
    /// The beginning of `NAME=value` in an environment.
    mark: String,
    /// The processes that were found besides the group's leader, by pidfds: a pidfd never refers to a later process
    /// with the same PID.
    handles: BTreeMap<i32, OwnedFd>,
}

impl LeftoverProcesses {
    pub(super) fn new(group: Pid, mark: &str) -> Self {
        Self { group: Some(group), mark: format!("{MARK}={mark}"), handles: BTreeMap::new() }
    }

    /// The processes of all runs whose mark begins with `owner`.
    pub(super) fn for_owner(owner: &str) -> Self {
        Self { group: None, mark: format!("{MARK}={owner}"), handles: BTreeMap::new() }
    }

    /// Kills the group and every process with the mark; returns how many processes were found besides the leader:
    /// zero means that none is left. Only to be called while the leader is not reaped: afterwards its PID can belong
    /// to another process.
    pub(super) fn kill(&mut self) -> usize {
        let count = self.scan();
        if let Some(group) = self.group {
            // It fails when the group is empty, which is the goal.
            let _ = kill_process_group(group, Signal::KILL);
        }
        for handle in self.handles.values() {
            // It fails when the process is gone.
            let _ = pidfd_send_signal(handle, Signal::KILL);
        }
        count
    }

    /// Whether all processes that were found have ended, each after at most `wait`. A killed process runs no more,
    /// but closes its files a moment later.
    pub(super) fn all_ended(&self, wait: Timespec) -> bool {
        self.handles.values().all(|handle| has_ended(handle, wait))
    }

    /// Reaps the processes that became our children when their parents ended: as the first process of a container, this one
    /// inherits all orphans. To be called when all have ended.
    pub(super) fn reap(&self) {
        for handle in self.handles.values() {
            // It fails for processes that are not our children.
            let _ = waitid(WaitId::PidFd(handle.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
    }

    fn scan(&mut self) -> usize {
        let mut seen = 0;
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = number.and_then(Pid::from_raw) else { continue };
            if Some(pid) == self.group || !self.is_part_of_run(&entry.path()) {
                continue;
            }
            seen += 1;
            // The pidfd first, then the check again: between the two the PID may have been reused.
            if let Ok(handle) = pidfd_open(pid, PidfdFlags::empty())
                && self.is_part_of_run(&entry.path())
            {
                self.handles.insert(pid.as_raw_nonzero().get(), handle);
            }
        }
        seen
    }

    fn is_part_of_run(&self, process: &Path) -> bool {
        // Gone, or not readable for us: not one of these.
        let environment = std::fs::read(process.join("environ")).unwrap_or_default();
        let marked = environment.split(|byte| *byte == 0).any(|entry| entry.starts_with(self.mark.as_bytes()));
        marked || self.in_group(process).unwrap_or_default()
    }

    /// Whether it is alive and in the group: in `stat`, the state and the group are the first and the third field
    /// after its name, which is in parentheses and may contain any characters.
    fn in_group(&self, process: &Path) -> Option<bool> {
        let own_group = self.group?.as_raw_nonzero().get();
        let stat = std::fs::read_to_string(process.join("stat")).ok()?;
        let mut words = stat.rsplit_once(')')?.1.split_whitespace();
        let (state, group) = (words.next()?, words.nth(1)?);
        Some(!["Z", "X"].contains(&state) && group.parse() == Ok(own_group))
    }
}

/// Whether a process has ended, after at most `wait`.
pub(super) fn has_ended(process: &OwnedFd, wait: Timespec) -> bool {
    let mut processes = [PollFd::new(process, PollFlags::IN)];
    poll(&mut processes, Some(&wait)).is_ok_and(|ready| ready > 0)
}
