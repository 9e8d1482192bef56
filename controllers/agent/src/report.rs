//! The report about the pods of the node: which have terminated although they still have a cgroup, and what keeps the
//! others.
//!
//! The agent does not know which pods were deleted. It reports what it finds, and the controller compares that with
//! the pods. It terminates nothing for the report.

use std::path::Path;
use std::time::Duration;

use pod_safety_watchdog::record::{Epoch, PodReport, Record};

use crate::cgroups::{Cgroups, PodCgroups};
use crate::mounts::{self, Mount};
use crate::processes::Process;

/// From one check to the next: reading the state of five hundred processes takes some milliseconds.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// The last check.
#[derive(Clone, Debug, Default)]
pub struct PodReporter {
    pods: Option<(Epoch, Duration, PodReport)>,
    /// Processes that were in state D at that check.
    stuck: Vec<i32>,
}

/// The folders of the host.
#[derive(Clone, Copy, Debug)]
pub struct HostPaths<'a> {
    /// The cgroups.
    pub cgroups: &'a Cgroups,
    /// The processes of the host.
    pub proc: &'a Path,
    /// The folder of the kubelet.
    pub folder: &'a Path,
    /// The UID of the agent's own pod.
    pub own_pod_uid: &'a str,
}

impl PodReporter {
    /// The report for this round. Called after the API server confirmed the round before, and before this one is
    /// sent.
    pub fn update(&mut self, now: Duration, record: &Record, paths: HostPaths<'_>) -> Option<&PodReport> {
        let (epoch, round) = (record.epoch, record.round);
        let fresh =
            self.pods.as_ref().is_some_and(|(of, at, _)| *of == epoch && now < at.saturating_add(CHECK_INTERVAL));
        if !fresh {
            self.pods = self.inspect(paths).map(|pods| (epoch, now, PodReport { checked_round: round, ..pods }));
        }
        self.pods.as_ref().map(|(_, _, pods)| pods)
    }

    /// Checks the pods. None: a state that cannot be read is not reported.
    fn inspect(&mut self, paths: HostPaths<'_>) -> Option<PodReport> {
        let HostPaths { cgroups, proc, folder, own_pod_uid: own } = paths;
        let mounts = mounts::volume_mounts(proc, folder, own)?;
        let (mut report, mut stuck) = (PodReport::default(), Vec::new());
        for pod in cgroups.pods(own)? {
            if cgroups.is_empty(&pod) {
                match mounts.iter().find(|mount| is_of(mount, &pod)) {
                    Some(mount) => report.leftover.push((pod.uid, format!("still mounted: {mount}"))),
                    None => report.terminated.push(pod.uid),
                }
            } else if let Some(process) = self.find_stuck(cgroups.remaining_processes(&pod), &mut stuck) {
                report.leftover.push((pod.uid, process.to_string()));
            }
        }
        self.stuck = stuck;
        Some(report)
    }

    /// A process that was in state D at the last check, too. A process that reads from a disk is in that state for a
    /// moment.
    fn find_stuck(&self, processes: Vec<Process>, stuck: &mut Vec<i32>) -> Option<Process> {
        let asleep: Vec<_> = processes.into_iter().filter(|process| process.state == 'D').collect();
        stuck.extend(asleep.iter().map(|process| process.pid));
        asleep.into_iter().find(|process| self.stuck.contains(&process.pid))
    }
}

/// Whether the pod's UID is a folder of the path: of a volume, or of a block device of the pod.
fn is_of(mount: &Mount, pod: &PodCgroups) -> bool {
    mount.path.iter().any(|folder| folder == pod.uid.as_str())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pod_safety_watchdog::record::{Boot, State};

    use super::*;

    const UID: &str = "3f0b9d2e-1b7e-4d51-9c6e-6d1f2a3b4c5d";
    const OWN: &str = "0aaaaaaa-1b7e-4d51-9c6e-6d1f2a3b4c5d";

    /// A host of version 2 with one pod, and a process of the pod in this state, if there is one.
    struct Host(tempfile::TempDir);

    impl Host {
        fn new() -> Self {
            let host = Self(tempfile::tempdir().unwrap());
            let cgroups = [UID, OWN].map(|uid| format!("cgroup/kubepods/pod{uid}"));
            for folder in cgroups.into_iter().chain(["proc/1".to_owned(), "proc/7".to_owned()]) {
                fs::create_dir_all(host.0.path().join(folder)).unwrap();
            }
            host.write("cgroup/cgroup.controllers", "");
            host.write("proc/1/mountinfo", "");
            host
        }

        fn write(&self, file: &str, text: &str) {
            fs::write(self.0.path().join(file), text).unwrap();
        }

        fn process(&self, state: Option<char>) {
            let pod = format!("cgroup/kubepods/pod{UID}");
            let populated = i32::from(state.is_some());
            self.write(&format!("{pod}/cgroup.events"), &format!("populated {populated}\nfrozen 0\n"));
            self.write(&format!("{pod}/cgroup.procs"), if state.is_some() { "7\n" } else { "" });
            self.write("proc/7/stat", &format!("7 (mysqld) {} 1 7", state.unwrap_or('R')));
        }

        fn check(&self, report: &mut PodReporter, second: u64, round: u64) -> Option<PodReport> {
            self.check_in(1, report, second, round)
        }

        fn check_in(&self, count: u32, report: &mut PodReporter, second: u64, round: u64) -> Option<PodReport> {
            let (root, proc) = (self.0.path().join("cgroup"), self.0.path().join("proc"));
            let cgroups = Cgroups::find(&root, &proc).unwrap();
            let paths = HostPaths { cgroups: &cgroups, proc: &proc, folder: Path::new("/kubelet"), own_pod_uid: OWN };
            let boot = Boot { node: "n".into(), id: "b".into() };
            let epoch = Epoch { process: 1, count };
            let record = Record { state: State::Armed, epoch, round, boot, device: None };
            report.update(Duration::from_secs(second), &record, paths).cloned()
        }
    }

    #[test]
    fn a_pod_has_terminated_when_its_cgroup_is_empty_and_its_mounts_are_gone() {
        let (host, mut report) = (Host::new(), PodReporter::default());
        host.process(Some('S'));
        let runs = PodReport { checked_round: 3, ..PodReport::default() };
        assert_eq!(host.check(&mut report, 0, 3), Some(runs.clone()), "it runs, and that is not reported");
        host.process(None);
        assert_eq!(host.check(&mut report, 14, 10), Some(runs), "the last check is reported with its own round");
        host.write("proc/1/mountinfo", &format!("33 22 0:40 / /kubelet/pods/{UID}/volumes/x rw - nfs4 server:/ rw\n"));
        let leftover = vec![(UID.to_owned(), format!("still mounted: /kubelet/pods/{UID}/volumes/x (nfs4)"))];
        assert_eq!(
            host.check(&mut report, 15, 11),
            Some(PodReport { checked_round: 11, terminated: Vec::new(), leftover })
        );
        host.write("proc/1/mountinfo", "33 22 0:40 / /kubelet/pods/other/volumes/x rw - nfs4 server:/ rw\n");
        let ended = PodReport { checked_round: 20, terminated: vec![UID.to_owned()], leftover: Vec::new() };
        assert_eq!(host.check(&mut report, 30, 20), Some(ended));
    }

    /// Rounds count from one in each epoch: the round of an earlier check would be a future one.
    #[test]
    fn a_new_epoch_checks_again() {
        let (host, mut report) = (Host::new(), PodReporter::default());
        host.process(Some('S'));
        assert_eq!(host.check_in(1, &mut report, 0, 3).unwrap().checked_round, 3);
        assert_eq!(host.check_in(2, &mut report, 1, 1).unwrap().checked_round, 1);
    }

    #[test]
    fn a_process_in_state_d_is_reported_when_it_is_found_twice() {
        let (host, mut report) = (Host::new(), PodReporter::default());
        host.process(Some('D'));
        assert_eq!(host.check(&mut report, 0, 1).unwrap().leftover, []);
        let leftover = [(UID.to_owned(), "process 7 (mysqld) in state D".to_owned())];
        assert_eq!(host.check(&mut report, 15, 2).unwrap().leftover, leftover);
        host.process(Some('S'));
        assert_eq!(host.check(&mut report, 30, 3).unwrap().leftover, []);
        host.process(Some('D'));
        assert_eq!(host.check(&mut report, 45, 4).unwrap().leftover, []);
        fs::create_dir(host.0.path().join("proc/8")).unwrap();
        host.write("proc/8/stat", "8 (mysqld) D 1 8");
        host.write(&format!("cgroup/kubepods/pod{UID}/cgroup.procs"), "8\n");
        assert_eq!(host.check(&mut report, 60, 5).unwrap().leftover, [], "it is another process");
    }

    #[test]
    fn attack_a_pod_with_unreadable_mounts_is_not_reported() {
        let (host, mut report) = (Host::new(), PodReporter::default());
        host.process(None);
        let mounts = host.0.path().join("proc/1/mountinfo");
        fs::rename(&mounts, host.0.path().join("elsewhere")).unwrap();
        assert_eq!(host.check(&mut report, 0, 1), None, "a mount may be there");
        fs::rename(host.0.path().join("elsewhere"), &mounts).unwrap();
        assert!(host.check(&mut report, 1, 2).is_some());
        fs::remove_file(&mounts).unwrap();
        assert_eq!(host.check(&mut report, 16, 3), None, "the last report is old");
    }
}
