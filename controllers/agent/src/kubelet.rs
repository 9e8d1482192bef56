//! Stops the kubelet, so that it starts no pod, and ends it, so that another one starts.
//!
//! A stopped kubelet is never continued: it would start from memory the pods that were ended, whether or not the
//! objects still exist.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::processes::{Process, signal};

/// What the process of a kubelet is called: everywhere, in k3s, and in MicroK8s.
const KUBELETS: [&str; 4] = ["kubelet", "k3s-agent", "k3s-server", "kubelite"];

/// The kubelet of this host.
#[derive(Clone, Debug)]
pub struct Kubelet {
    proc: PathBuf,
    cgroup: PathBuf,
    /// The name of its process.
    name: String,
    /// Whether `pod-safety-agent gate` prevents one from starting.
    gated: bool,
}

impl Kubelet {
    /// The kubelet, found in `/proc`, and frozen by its cgroup of version 2.
    #[must_use]
    pub fn new(proc: &Path, cgroup: &Path, name: &str, gated: bool) -> Self {
        Self { proc: proc.to_owned(), cgroup: cgroup.to_owned(), name: name.to_owned(), gated }
    }

    /// The running processes of the kubelet. None: the processes of the host cannot be read.
    fn running_processes(&self) -> Option<Vec<Process>> {
        let mut all = Process::list(&self.proc)?;
        all.retain(|process| process.name == self.name && process.state != 'Z');
        Some(all)
    }

    /// The kubelet's cgroup in version 2, if it has one of its own.
    fn cgroup_of(&self, process: &Process) -> Option<PathBuf> {
        let text = fs::read_to_string(self.proc.join(process.pid.to_string()).join("cgroup")).ok()?;
        let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let own = !path.is_empty() && !path.contains("..") && !path.starts_with("kubepods");
        let folder = self.cgroup.join(path);
        (own && folder.join("cgroup.freeze").exists()).then_some(folder)
    }

    /// Kills the kubelet if the gate prevents the next one from starting: any process could continue a stopped one.
    /// Without the gate its cgroup is frozen and its processes are stopped, because a killed kubelet would be
    /// restarted at once.
    pub fn stop(&self) {
        if self.gated {
            return self.kill();
        }
        for process in self.running_processes().unwrap_or_default() {
            if let Some(folder) = self.cgroup_of(&process) {
                let _seen_by_the_proof = fs::write(folder.join("cgroup.freeze"), "1");
            }
            signal(process.pid, Signal::STOP);
        }
    }

    /// Why the kubelet does not count as stopped. None: it is stopped or absent, and starts nothing.
    #[must_use]
    pub fn why_not_stopped(&self) -> Option<String> {
        let Some(all) = self.running_processes() else {
            return Some(format!("the processes of the host cannot be read in {}", self.proc.display()));
        };
        if all.is_empty() && !self.gated {
            return Some("there is no kubelet to stop, and nothing keeps one from starting (--gated)".to_owned());
        }
        all.iter().find(|process| !self.is_frozen(process)).map(|process| format!("the kubelet: {process}"))
    }

    fn is_frozen(&self, process: &Process) -> bool {
        let frozen = |folder: PathBuf| {
            let events = fs::read_to_string(folder.join("cgroup.events")).unwrap_or_default();
            events.lines().any(|line| line == "frozen 1")
        };
        matches!(process.state, 'T' | 't') || self.cgroup_of(process).is_some_and(frozen)
    }

    /// Whether a stopped kubelet is there: an earlier process of the agent stopped it.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let all = self.running_processes().unwrap_or_default();
        !all.is_empty() && all.iter().all(|process| self.is_frozen(process))
    }

    /// A kubelet of another name, if none has the given one: with the gate, that no process has that name is a proof.
    #[must_use]
    pub fn find_misnamed(&self) -> Option<Process> {
        let all = Process::list(&self.proc)?;
        let called = |name: &str| all.iter().find(|process| process.name == name);
        if called(&self.name).is_some() { None } else { KUBELETS.into_iter().find_map(called).cloned() }
    }

    /// Kills the kubelet. Its service manager starts another.
    pub fn kill(&self) {
        for process in self.running_processes().unwrap_or_default() {
            let folder = self.cgroup_of(&process);
            signal(process.pid, Signal::KILL);
            if let Some(folder) = folder {
                let _gone = fs::write(folder.join("cgroup.kill"), "1");
                let _gone = fs::write(folder.join("cgroup.freeze"), "0");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_stat(proc: &Path, pid: i32, stat: &str) {
        let folder = proc.join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("stat"), stat).unwrap();
    }

    #[test]
    fn attack_a_running_or_missing_kubelet_is_no_proof() {
        let proc = tempfile::tempdir().unwrap();
        let kubelet = |gated| Kubelet::new(proc.path(), Path::new("/nowhere"), "kubelet", gated);
        assert!(kubelet(false).why_not_stopped().unwrap().contains("--gated"));
        assert_eq!(kubelet(true).why_not_stopped(), None);
        assert!(!kubelet(true).is_stopped(), "there is none that could be continued");
        write_stat(proc.path(), 7, "7 (kubelet) Z 1 7");
        assert_eq!(kubelet(true).why_not_stopped(), None, "it has ended, and its parent has not read that yet");
        write_stat(proc.path(), 7, "7 (kubelet) S 1 7");
        assert!(kubelet(true).why_not_stopped().unwrap().contains("process 7 (kubelet) in state S"));
        assert!(!kubelet(true).is_stopped());
        write_stat(proc.path(), 7, "7 (kubelet) T 1 7");
        assert_eq!(kubelet(false).why_not_stopped(), None);
        write_stat(proc.path(), 8, "8 (kubelet) R 1 7");
        assert!(kubelet(false).why_not_stopped().is_some(), "a second one was started");
        assert!(!kubelet(false).is_stopped());
    }

    /// In k3s with the default flags and the gate: that no process was called kubelet was a proof, and k3s started the
    /// pods again.
    #[test]
    fn bug_a_kubelet_of_another_name_counted_as_none() {
        let proc = tempfile::tempdir().unwrap();
        write_stat(proc.path(), 7, "7 (k3s-agent) S 1 7");
        let misnamed = |name| Kubelet::new(proc.path(), Path::new("/nowhere"), name, true).find_misnamed();
        assert_eq!(misnamed("k3s-agent"), None);
        assert_eq!(misnamed("kubelet").map(|process| process.pid), Some(7));
        write_stat(proc.path(), 8, "8 (kubelet) S 1 8");
        assert_eq!(misnamed("kubelet"), None, "a pod may call its process k3s-agent");
    }

    /// Unreadable processes counted as no kubelet, and with the gate that was a proof.
    #[test]
    fn bug_unreadable_processes_counted_as_none() {
        let kubelet = Kubelet::new(Path::new("/nowhere"), Path::new("/nowhere"), "kubelet", true);
        assert!(kubelet.why_not_stopped().unwrap().contains("cannot be read in /nowhere"));
    }

    /// A kubelet that was only stopped started from memory the pods that were ended, when another process continued
    /// it.
    #[test]
    fn bug_a_gated_kubelet_was_stopped_and_could_be_continued() {
        use std::os::unix::fs::symlink;
        use std::os::unix::process::ExitStatusExt as _;
        let folder = tempfile::tempdir().unwrap();
        for (name, gated) in [("kubelet-gated", true), ("kubelet-open", false)] {
            let program = folder.path().join(name);
            symlink("/bin/sleep", &program).unwrap();
            let mut child = std::process::Command::new(&program).arg("600").spawn().unwrap();
            let kubelet = Kubelet::new(Path::new("/proc"), Path::new("/nowhere"), name, gated);
            assert!(kubelet.why_not_stopped().unwrap().contains(name));
            kubelet.stop();
            let pid = i32::try_from(child.id()).unwrap();
            if !gated {
                while kubelet.why_not_stopped().is_some() {
                    std::thread::yield_now();
                }
                signal(pid, Signal::KILL);
            }
            assert_eq!(child.wait().unwrap().signal(), Some(9));
            assert_eq!(kubelet.why_not_stopped().is_none(), gated, "without the gate, none that runs is no proof");
        }
    }

    /// With the cgroups of a real kernel, in a virtual machine: `tests/watchdog/qemu.sh` starts it there.
    #[test]
    fn real_cgroups_of_version_2_are_frozen_and_killed() {
        let root = Path::new("/sys/fs/cgroup");
        if std::env::var_os("POD_SAFETY_REAL_CGROUPS").is_none() {
            return;
        }
        let cgroups = crate::cgroups::Cgroups::find(root, Path::new("/proc")).unwrap();
        assert_eq!(cgroups.version(), 2);
        let started = |program: &str, cgroup: &Path| {
            fs::create_dir_all(cgroup).unwrap();
            let child = std::process::Command::new(program).arg("600").spawn().unwrap();
            fs::write(cgroup.join("cgroup.procs"), child.id().to_string()).unwrap();
            child
        };
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        // The names of the processes are those of the files: one by busybox, the other by the kernel.
        symlink("/bin/busybox", "/bin/sleep").unwrap();
        fs::write("/bin/kubelet", "#!/bin/busybox sh\nsleep 600\n").unwrap();
        fs::set_permissions("/bin/kubelet", fs::Permissions::from_mode(0o755)).unwrap();
        let pod = root.join("kubepods.slice/kubepods-pod3f0b9d2e_1b7e_4d51_9c6e_6d1f2a3b4c5d.slice");
        let mut process = started("sleep", &pod.join("container"));
        let mut fake = started("kubelet", &root.join("system.slice/kubelet.service"));
        let kubelet = Kubelet::new(Path::new("/proc"), root, "kubelet", false);
        assert!(kubelet.why_not_stopped().is_some());
        kubelet.stop();
        let soon = |what: &dyn Fn() -> bool| (0..1_000_000).any(|_| what());
        assert!(
            soon(&|| kubelet.why_not_stopped().is_none() && kubelet.is_stopped()),
            "{:?}",
            kubelet.why_not_stopped()
        );
        let own = "0aaaaaaa-1b7e-4d51-9c6e-6d1f2a3b4c5d";
        fs::create_dir_all(root.join("kubepods.slice/kubepods-pod0aaaaaaa_1b7e_4d51_9c6e_6d1f2a3b4c5d.slice")).unwrap();
        let pod_cgroups = cgroups.pods(own).unwrap().remove(0);
        assert!(!cgroups.is_empty(&pod_cgroups));
        cgroups.kill(&pod_cgroups);
        process.wait().unwrap();
        assert!(soon(&|| cgroups.is_empty(&pod_cgroups)));
        kubelet.kill();
        use std::os::unix::process::ExitStatusExt as _;
        assert_eq!(fake.wait().unwrap().signal(), Some(9), "ended, and never continued");
        let frozen = fs::read_to_string(root.join("system.slice/kubelet.service/cgroup.freeze")).unwrap();
        assert_eq!(frozen.trim(), "0", "the next one may run");
    }
}
