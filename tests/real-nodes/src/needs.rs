//! What this machine must allow. Where something of this list is missing, nothing is run, and one line says so: `real nodes:
//! NOT RUN: needs …`. That is a failure but for `make test`, which goes on and repeats the line at its end.

use std::path::Path;
use std::process::{Command, Stdio};

/// The first thing that is missing.
pub(crate) fn missing() -> Option<String> {
    if !is_root() {
        return Some("root".to_owned());
    }
    for hierarchy in ["cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd"]
    {
        let folder = Path::new("/sys/fs/cgroup").join(hierarchy);
        if !folder.join("cgroup.procs").exists() {
            return Some(format!("cgroup v1 with the hierarchy {hierarchy} at {}", folder.display()));
        }
        let probe = folder.join(format!("pod-safety-nodes-probe-{}", std::process::id()));
        if std::fs::create_dir(&probe).and_then(|()| std::fs::remove_dir(&probe)).is_err() {
            return Some(format!("the right to make cgroups in {}", folder.display()));
        }
    }
    for program in ["ip", "ss", "nsenter", "pgrep", "setpriv", "flock", "go", "apt-get", "python3"] {
        if !succeeds("which", &[program]) {
            return Some(format!("the program {program}"));
        }
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("TAP devices, by /dev/net/tun".to_owned());
    }
    let namespaces = [
        "--net",
        "--mount",
        "--pid",
        "--uts",
        "--ipc",
        "--cgroup",
        "--fork",
        "--mount-proc",
        "ip",
        "link",
        "set",
        "lo",
        "up",
    ];
    if !succeeds("unshare", &namespaces) {
        return Some("the right to make namespaces".to_owned());
    }
    None
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn succeeds(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
