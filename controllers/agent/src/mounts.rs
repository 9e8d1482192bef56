//! Mounts of the volumes of pods. The kernel writes to a mounted volume, even when no process is left.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};

/// File systems that write to no volume.
const IN_MEMORY: [&str; 5] = ["tmpfs", "ramfs", "proc", "sysfs", "cgroup2"];

/// A mount of a pod's volume, or of the volume itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The mount point.
    pub path: PathBuf,
    /// The file system: `ext4`, `nfs4` …
    pub kind: String,
}

impl std::fmt::Display for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.path.display(), self.kind)
    }
}

/// The mounts of volumes below the kubelet's folder, deepest first, without those of the pod with the UID `own`.
/// None: they cannot be read.
#[must_use]
pub fn volume_mounts(proc: &Path, kubelet: &Path, own: &str) -> Option<Vec<Mount>> {
    let mut mounts = all_mounts(proc)?;
    let mine = kubelet.join("pods").join(own);
    let guarded = |mount: &Mount| {
        let of_pods = ["pods", "plugins"].iter().any(|folder| mount.path.starts_with(kubelet.join(folder)));
        of_pods && (own.is_empty() || !mount.path.starts_with(&mine)) && !IN_MEMORY.contains(&mount.kind.as_str())
    };
    mounts.retain(guarded);
    mounts.reverse();
    Some(mounts)
}

/// The kubelet's folder, if the volumes of the pod with the UID `own` are mounted in another one than `kubelet`, for
/// instance because that is a link: in `kubelet` no mount would be found.
#[must_use]
pub fn find_other_folder(proc: &Path, kubelet: &Path, own: &str) -> Option<PathBuf> {
    let (mounts, pod) = (all_mounts(proc)?, Path::new("pods").join(own));
    let own_folders = mounts.iter().filter_map(|mount| mount.path.ancestors().find(|folder| folder.ends_with(&pod)));
    let folders: Vec<&Path> = own_folders.filter_map(|folder| folder.ancestors().nth(2)).collect();
    // A folder that is bound to another place has its mounts in both.
    if folders.contains(&kubelet) { None } else { folders.first().map(|folder| folder.to_path_buf()) }
}

/// The mounts of the first process of the host. None: they cannot be read.
fn all_mounts(proc: &Path) -> Option<Vec<Mount>> {
    let table = fs::read(proc.join("1/mountinfo")).ok()?;
    // Pods can choose folder names that are no UTF-8. The parts that are compared are named by the kubelet and the
    // kernel.
    Some(String::from_utf8_lossy(&table).lines().filter_map(parse_line).collect())
}

/// Unmounts them. A mount that is busy or hangs stays, and is found by the proof.
pub fn unmount_all(mounts: &[Mount]) {
    for mount in mounts {
        // Never lazily: a detached mount still writes.
        let _busy = unmount(&mount.path, UnmountFlags::NOFOLLOW);
    }
}

/// A line of mountinfo: the fifth field is the mount point, and after a dash comes the file system.
fn parse_line(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let path = before.split(' ').nth(4)?;
    let kind = after.split(' ').next()?;
    Some(Mount { path: PathBuf::from(unescaped(path)), kind: kind.to_owned() })
}

/// Decodes blanks and other characters, which are written as a backslash and three octal digits.
fn unescaped(path: &str) -> String {
    let mut parts = path.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                text.push(char::from(code));
                text.push_str(part.get(3..).unwrap_or_default());
            }
            None => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = r"22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/sda rw
30 22 0:25 / /var/lib/kubelet/pods/a/volumes/kubernetes.io~projected/token rw shared:9 - tmpfs tmpfs rw
31 22 259:3 / /var/lib/kubelet/plugins/kubernetes.io/csi/x/globalmount rw shared:10 - ext4 /dev/sdb rw
32 22 259:3 / /var/lib/kubelet/pods/a/volumes/kubernetes.io~csi/pv\040one/mount rw shared:10 - ext4 /dev/sdb rw
33 22 0:40 / /var/lib/kubelet/pods/own/volumes/x rw - nfs4 server:/ rw
34 22 0:41 / /var/lib/kubelet2/pods/b rw - nfs4 server:/ rw
";

    #[test]
    fn volumes_are_found_and_in_memory_file_systems_are_not() {
        let proc = tempfile::tempdir().unwrap();
        let kubelet = Path::new("/var/lib/kubelet");
        assert_eq!(volume_mounts(proc.path(), kubelet, ""), None, "unknown is not absent");
        fs::create_dir(proc.path().join("1")).unwrap();
        fs::write(proc.path().join("1/mountinfo"), TABLE).unwrap();
        let mounts: Vec<String> =
            volume_mounts(proc.path(), kubelet, "own").unwrap().iter().map(Mount::to_string).collect();
        assert_eq!(
            mounts,
            [
                "/var/lib/kubelet/pods/a/volumes/kubernetes.io~csi/pv one/mount (ext4)",
                "/var/lib/kubelet/plugins/kubernetes.io/csi/x/globalmount (ext4)",
            ]
        );
        assert_eq!(volume_mounts(proc.path(), kubelet, "").unwrap().len(), 3);
    }

    /// `--kubelet` was a link, or the default where the kubelet has another folder (k0s, MicroK8s): that no mount was
    /// found was a proof.
    #[test]
    fn bug_the_mounts_of_a_kubelet_with_another_folder_were_not_found() {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("1")).unwrap();
        let line = |folder: &str| format!("30 22 0:25 / {folder}/pods/own/volumes/x/token rw - tmpfs tmpfs rw\n");
        let bound = line("/data/kubelet") + &line("/var/lib/kubelet");
        for (table, other) in [
            (line("/data/kubelet"), Some("/data/kubelet")),
            (line("/var/lib/kubelet"), None),
            (bound, None),
            (line("/var/lib/kubelet").replace("own", "another"), None),
        ] {
            fs::write(proc.path().join("1/mountinfo"), &table).unwrap();
            let found = find_other_folder(proc.path(), Path::new("/var/lib/kubelet/"), "own");
            assert_eq!(found.as_deref(), other.map(Path::new), "{table}");
        }
    }

    /// A directory of a tenant's volume, mounted by `subPath`, has a name that is no UTF-8: the kernel shows it
    /// unchanged.
    #[test]
    fn attack_a_folder_name_that_is_no_utf8_hides_no_mounts() {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("1")).unwrap();
        let mut table = TABLE.as_bytes().to_vec();
        table.extend_from_slice(b"40 22 259:1 /var/lib/kubelet/pods/t/volumes/kubernetes.io~empty-dir/v/\xff /var/lib/kubelet/pods/t/volume-subpaths/v/c/0 rw - ext4 /dev/sda rw\n");
        fs::write(proc.path().join("1/mountinfo"), table).unwrap();
        assert!(
            volume_mounts(proc.path(), Path::new("/var/lib/kubelet"), "own").is_some(),
            "one folder of a tenant hides all mounts"
        );
    }
}
