//! The cgroups of pods, in both versions: ends their processes, and proves that none is left.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::processes::{Process, signal};

/// The hierarchies of version 1 that can have pods. A process in any of them counts.
const OF_VERSION_1: [&str; 4] = ["freezer", "pids", "memory", "systemd"];

/// The hierarchies of this host.
#[derive(Clone, Debug)]
pub struct Cgroups {
    /// One root for version 2, several for version 1.
    roots: Vec<PathBuf>,
    unified: bool,
    proc: PathBuf,
}

/// The cgroups of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodCgroups {
    /// The UID of the pod, as in its object.
    pub uid: String,
    /// One folder in each hierarchy.
    pub folders: Vec<PathBuf>,
}

impl PodCgroups {
    /// Whether the kubelet reads the pod from a file: then the cgroup has a hash without dashes in place of a UID.
    #[must_use]
    pub fn is_static(&self) -> bool {
        !self.uid.contains('-')
    }
}

impl Cgroups {
    /// The cgroups below `/sys/fs/cgroup`. None: there are none.
    #[must_use]
    pub fn find(root: &Path, proc: &Path) -> Option<Self> {
        let unified = root.join("cgroup.controllers").exists();
        let roots = if unified {
            vec![root.to_owned()]
        } else {
            let found = OF_VERSION_1.iter().map(|name| root.join(name));
            found.filter(|folder| folder.join("cgroup.procs").exists()).collect()
        };
        (!roots.is_empty()).then_some(Self { roots, unified, proc: proc.to_owned() })
    }

    /// The version of cgroups: 1 or 2.
    #[must_use]
    pub const fn version(&self) -> u8 {
        if self.unified { 2 } else { 1 }
    }

    /// The pods that have cgroups, without the agent's own. None: a folder could not be read, or the agent's own pod
    /// is not among them, for instance because the kubelet has its pods elsewhere (`--cgroup-root`). So there may be
    /// other pods.
    #[must_use]
    pub fn pods(&self, own: &str) -> Option<Vec<PodCgroups>> {
        let mut pods: Vec<PodCgroups> = Vec::new();
        for root in &self.roots {
            let top = folders(root)?.into_iter().filter(|folder| name(folder).starts_with("kubepods"));
            for folder in top {
                collect_pods(&folder, 0, &mut pods)?;
            }
        }
        let place = pods.iter().position(|pod| pod.uid == own)?;
        pods.swap_remove(place);
        Some(pods)
    }

    /// Kills the processes in the cgroups of a pod.
    pub fn kill(&self, pod: &PodCgroups) {
        for folder in &pod.folders {
            // Since Linux 5.14: kills all processes in it, also those that are being forked.
            if self.unified && fs::write(folder.join("cgroup.kill"), "1").is_ok() {
                continue;
            }
            pids(folder).unwrap_or_default().into_iter().for_each(|pid| signal(pid, Signal::KILL));
        }
    }

    /// The processes that still run in it. A cgroup that is gone has none.
    #[must_use]
    pub fn remaining_processes(&self, pod: &PodCgroups) -> Vec<Process> {
        pod.folders.iter().flat_map(|folder| self.running(folder)).collect()
    }

    /// Whether no process is left, by the kernel's count.
    #[must_use]
    pub fn is_empty(&self, pod: &PodCgroups) -> bool {
        let empty = |folder: &PathBuf| {
            if is_gone(folder) {
                return true;
            }
            if self.unified {
                let events = fs::read_to_string(folder.join("cgroup.events")).unwrap_or_default();
                return events.lines().any(|line| line == "populated 0");
            }
            pids(folder).is_some_and(|pids| pids.is_empty())
        };
        pod.folders.iter().all(empty)
    }

    fn running(&self, folder: &Path) -> Vec<Process> {
        let pids = pids(folder).unwrap_or_default();
        pids.into_iter().filter_map(|pid| Process::read(&self.proc, pid)).collect()
    }
}

/// The processes of a cgroup and of all cgroups below it. None: one could not be read, so it may have processes.
fn pids(folder: &Path) -> Option<Vec<i32>> {
    let own = match fs::read_to_string(folder.join("cgroup.procs")) {
        Ok(text) => text,
        // It was removed meanwhile, so it is empty.
        Err(_) if is_gone(folder) => return Some(Vec::new()),
        Err(_) => return None,
    };
    let mut all: Vec<i32> = own.lines().filter_map(|line| line.parse().ok()).collect();
    for below in folders(folder)? {
        all.extend(pids(&below)?);
    }
    Some(all)
}

/// Collects the pods below a folder. None: one of the folders could not be read.
fn collect_pods(folder: &Path, depth: usize, pods: &mut Vec<PodCgroups>) -> Option<()> {
    for below in folders(folder)? {
        if let Some(uid) = pod_uid_of(name(&below)) {
            match pods.iter_mut().find(|pod| pod.uid == uid) {
                Some(pod) => pod.folders.push(below),
                None => pods.push(PodCgroups { uid, folders: vec![below] }),
            }
        } else if depth < 2 {
            collect_pods(&below, depth + 1, pods)?;
        }
    }
    Some(())
}

/// The UID in the name of a pod's cgroup: `podUID` of cgroupfs, `kubepods-burstable-podUID.slice` of systemd, which has
/// underscores in place of dashes.
fn pod_uid_of(name: &str) -> Option<String> {
    let name = name.strip_suffix(".slice").unwrap_or(name);
    let (before, uid) = name.rsplit_once("pod")?;
    let is_pod_name = before.is_empty() || before.starts_with("kubepods") && before.ends_with('-');
    (is_pod_name && uid.len() >= 32).then(|| uid.replace('_', "-"))
}

/// Whether the folder certainly does not exist.
fn is_gone(folder: &Path) -> bool {
    matches!(folder.try_exists(), Ok(false))
}

/// The folders in a folder; one that was removed meanwhile has none. None: it could not be read.
fn folders(folder: &Path) -> Option<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(_) if is_gone(folder) => return Some(Vec::new()),
        Err(_) => return None,
    };
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry.ok()?;
        if entry.file_type().ok()?.is_dir() {
            all.push(entry.path());
        }
    }
    Some(all)
}

fn name(folder: &Path) -> &str {
    folder.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "3f0b9d2e-1b7e-4d51-9c6e-6d1f2a3b4c5d";
    const OWN: &str = "0aaaaaaa-1b7e-4d51-9c6e-6d1f2a3b4c5d";
    const OTHER: &str = "aaaaaaaa-1b7e-4d51-9c6e-6d1f2a3b4c5d";

    fn make(folder: &Path, procs: &str) {
        fs::create_dir_all(folder).unwrap();
        for above in folder.ancestors().take(6) {
            let file = above.join("cgroup.procs");
            if !file.exists() {
                fs::write(file, "").unwrap();
            }
        }
        fs::write(folder.join("cgroup.procs"), procs).unwrap();
    }

    #[test]
    fn pods_are_found_by_both_drivers_in_both_versions() {
        let root = tempfile::tempdir().unwrap();
        let (systemd, uid) = (root.path().join("freezer"), ONE.replace('-', "_"));
        make(
            &systemd.join(format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/cri-1")),
            "",
        );
        let cgroupfs = root.path().join("pids");
        make(&cgroupfs.join(format!("kubepods/pod{OTHER}/c")), "");
        make(&cgroupfs.join(format!("kubepods/burstable/pod{ONE}")), "");
        make(&cgroupfs.join("kubepods/besteffort/podium"), "");
        make(&cgroupfs.join(format!("kubepods/pod{OWN}")), "");
        let cgroups = Cgroups::find(root.path(), Path::new("/proc")).unwrap();
        assert_eq!(cgroups.version(), 1);
        let found = cgroups.pods(OWN).unwrap();
        let of = |uid: &str| found.iter().find(|pod| pod.uid == uid).unwrap().folders.len();
        assert_eq!((found.len(), of(ONE), of(OTHER)), (2, 2, 1));
        assert_eq!(cgroups.pods(ONE).unwrap().len(), 2, "the agent does not end itself");
    }

    #[test]
    fn a_static_pod_is_recognized_by_its_hash() {
        let pod = |uid: &str| PodCgroups { uid: uid.to_owned(), folders: Vec::new() };
        assert!(!pod(ONE).is_static() && pod("0c55fafebd0f6b1d9f1d2a4f0f8a2b3c").is_static());
        assert_eq!(
            pod_uid_of("kubepods-burstable-pod0c55fafebd0f6b1d9f1d2a4f0f8a2b3c.slice").as_deref(),
            Some("0c55fafebd0f6b1d9f1d2a4f0f8a2b3c")
        );
    }

    #[test]
    fn attack_a_cgroup_that_cannot_be_read_is_not_empty() {
        let root = tempfile::tempdir().unwrap();
        let pod = root.path().join(format!("kubepods/pod{ONE}"));
        make(&pod, "");
        make(&root.path().join(format!("kubepods/pod{OWN}")), "");
        fs::write(root.path().join("cgroup.controllers"), "").unwrap();
        let cgroups = Cgroups::find(root.path(), Path::new("/proc")).unwrap();
        let pod_cgroups = cgroups.pods(OWN).unwrap().remove(0);
        assert!(!cgroups.is_empty(&pod_cgroups), "no cgroup.events");
        fs::write(pod.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        assert!(!cgroups.is_empty(&pod_cgroups));
        fs::write(pod.join("cgroup.events"), "populated 0\nfrozen 0\n").unwrap();
        assert!(cgroups.is_empty(&pod_cgroups));
        fs::remove_dir_all(&pod).unwrap();
        assert!(cgroups.is_empty(&pod_cgroups), "it is gone");
    }

    /// A process in any hierarchy counts.
    #[test]
    fn in_version_1_a_pod_is_empty_if_all_its_cgroups_are_readable_and_empty() {
        let root = tempfile::tempdir().unwrap();
        let [freezer, pids] = ["freezer", "pids"].map(|name| root.path().join(format!("{name}/kubepods/pod{ONE}")));
        for folder in [&freezer, &pids] {
            make(folder, "");
        }
        make(&root.path().join(format!("pids/kubepods/pod{OWN}")), "");
        let cgroups = Cgroups::find(root.path(), Path::new("/proc")).unwrap();
        let pod_cgroups = cgroups.pods(OWN).unwrap().remove(0);
        assert!(cgroups.is_empty(&pod_cgroups));
        for folder in [&freezer, &pids] {
            fs::write(folder.join("cgroup.procs"), "7\n").unwrap();
            assert!(!cgroups.is_empty(&pod_cgroups), "{}", folder.display());
            fs::write(folder.join("cgroup.procs"), "").unwrap();
        }
        // Permissions do not stop root; a folder in place of a file cannot be read by any user.
        fs::remove_file(pids.join("cgroup.procs")).unwrap();
        fs::create_dir(pids.join("cgroup.procs")).unwrap();
        assert!(!cgroups.is_empty(&pod_cgroups), "it cannot be read");
    }

    /// A folder that could not be read counted as one without pods, and "no pods are left" was a proof.
    #[test]
    fn bug_an_unreadable_folder_counted_as_one_without_pods() {
        let root = tempfile::tempdir().unwrap();
        make(&root.path().join(format!("pids/kubepods/pod{ONE}")), "");
        make(&root.path().join(format!("pids/kubepods/pod{OWN}")), "");
        let mut cgroups = Cgroups::find(root.path(), Path::new("/proc")).unwrap();
        assert_eq!(cgroups.pods(OWN).map(|pods| pods.len()), Some(1));
        // Permissions do not stop root; a file in place of a folder cannot be read by any user.
        cgroups.roots.push(root.path().join("pids/cgroup.procs"));
        assert_eq!(cgroups.pods(OWN), None);
    }

    /// With a kubelet that has its pods below another cgroup no pod was found, and "no pods are left" was a proof.
    /// kind is configured so.
    #[test]
    fn bug_pods_below_another_cgroup_root_were_not_found() {
        let root = tempfile::tempdir().unwrap();
        let below = root.path().join("pids/kubelet.slice/kubelet-kubepods.slice");
        for uid in [ONE, OWN] {
            make(&below.join(format!("kubelet-kubepods-pod{}.slice", uid.replace('-', "_"))), "");
        }
        let cgroups = Cgroups::find(root.path(), Path::new("/proc")).unwrap();
        assert_eq!(cgroups.pods(OWN), None);
    }

    #[test]
    fn a_real_process_is_killed_and_named() {
        let root = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pids = root.path().join("pids");
        make(&pids.join(format!("kubepods/pod{ONE}/c")), &format!("{}\n", child.id()));
        make(&pids.join(format!("kubepods/pod{OWN}")), "");
        let cgroups = Cgroups::find(root.path(), Path::new("/proc")).unwrap();
        let pod = cgroups.pods(OWN).unwrap().remove(0);
        assert!(!cgroups.is_empty(&pod));
        assert!(cgroups.remaining_processes(&pod)[0].to_string().contains("(sleep) in state"));
        cgroups.kill(&pod);
        use std::os::unix::process::ExitStatusExt as _;
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
