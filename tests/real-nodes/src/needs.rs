//! What this machine must provide, what of it is missing, and how to get that.
//!
//! One function collects the facts, another one decides and is pure. A missing part is a sentence; something that fails
//! in another way than by being missing or refused is an error: a broken setup must not look like a machine without
//! rights.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

const TOP: &str = "/sys/fs/cgroup";
/// The hierarchies of cgroups v1 that containers use; as in scripts/cgroups.sh.
const HIERARCHIES: [&str; 9] = ["cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd"];
/// The controllers of cgroups v2 that a kubelet uses; as in scripts/cgroups.sh.
const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];
/// The file with the limit of inotify instances for each user.
const INOTIFY: &str = "/proc/sys/fs/inotify/max_user_instances";
/// Three worlds use 90 of Linux's 128, and the suites beside them up to 40: a kubelet without an inotify instance exits
/// at its start.
const ENOUGH_INOTIFY: u32 = 512;
/// The programs, each with its package in Debian and Ubuntu.
const PROGRAMS: [(&str, &str); 14] = [
    ("ip", "iproute2"),
    ("ss", "iproute2"),
    ("pgrep", "procps"),
    ("mount", "mount"),
    ("hostname", "hostname"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("flock", "util-linux"),
    ("tar", "tar"),
    ("python3", "python3"),
    ("apt-get", "apt"),
    ("dpkg", "dpkg"),
    ("go", "golang-go"),
];

/// The version of cgroups that machines use. Its name is an argument of scripts/cgroups.sh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cgroups {
    V1,
    V2,
}

impl Cgroups {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        }
    }
}

/// What is at `/sys/fs/cgroup`.
#[derive(Clone, Debug, PartialEq)]
enum Mounted {
    V2 { controllers: Vec<String> },
    V1 { missing: Vec<&'static str> },
    Nothing,
}

/// The result of trying an operation that needs root, on machines that support it.
#[derive(Clone, Debug, PartialEq)]
enum Probe {
    /// Not tried without root.
    Skipped,
    Works,
    /// This machine does not support it, or does not permit it.
    Refused,
    /// It failed in another way.
    Broken(String),
}

/// All collected facts.
#[derive(Clone, Debug)]
struct Host {
    root: bool,
    processor: &'static str,
    mounted: Mounted,
    programs_missing: Vec<(&'static str, &'static str)>,
    machine_id: bool,
    tap: bool,
    inotify: u32,
    cgroup: Probe,
    namespaces: Probe,
    devices: Probe,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    CanRun(Cgroups),
    /// The missing parts, each with how to get it.
    Lacks(Vec<String>),
}

/// Whether real nodes can run here.
pub(crate) fn verdict() -> Result<Verdict> {
    verdict_for(&inspect_host())
}

fn verdict_for(host: &Host) -> Result<Verdict> {
    let mut lacks = Vec::new();
    if !host.root {
        lacks.push("root: run it with sudo".to_owned());
    }
    if !["x86_64", "aarch64"].contains(&host.processor) {
        lacks.push(format!("a processor of x86_64 or aarch64; this is {}", host.processor));
    }
    for (program, package) in &host.programs_missing {
        lacks.push(format!("the program {program}: apt-get install {package}"));
    }
    let cgroups = which(&host.mounted, &mut lacks);
    if !host.machine_id {
        lacks.push("the file /etc/machine-id: touch /etc/machine-id".to_owned());
    }
    if !host.tap {
        lacks.push("TAP devices at /dev/net/tun: modprobe tun (package kmod), or start the container with --device /dev/net/tun".to_owned());
    }
    if host.root && host.inotify < ENOUGH_INOTIFY {
        lacks.push(format!(
            "{ENOUGH_INOTIFY} instances of inotify, {} are allowed and this may not be changed from here: sysctl fs.inotify.max_user_instances={ENOUGH_INOTIFY}",
            host.inotify
        ));
    }
    refusals(host, &mut lacks)?;
    Ok(if lacks.is_empty() { Verdict::CanRun(cgroups) } else { Verdict::Lacks(lacks) })
}

/// The cgroups version that exists, or that should exist.
fn which(mounted: &Mounted, lacks: &mut Vec<String>) -> Cgroups {
    match mounted {
        Mounted::V2 { controllers } => {
            let missing = CONTROLLERS.into_iter().filter(|one| !controllers.iter().any(|has| has == one));
            let missing: Vec<_> = missing.collect();
            if !missing.is_empty() {
                lacks.push(format!(
                    "the controllers {} of cgroup v2, in {TOP}/cgroup.controllers: the kernel, or the runtime of this container, keeps them back",
                    missing.join(", ")
                ));
            }
            Cgroups::V2
        }
        Mounted::V1 { missing } => {
            if !missing.is_empty() {
                lacks.push(format!(
                    "the hierarchies {} of cgroup v1: mount them below {TOP}, or start the machine with cgroup v2",
                    missing.join(", ")
                ));
            }
            Cgroups::V1
        }
        Mounted::Nothing => {
            lacks.push(format!("cgroups: mount -t cgroup2 cgroup2 {TOP}"));
            Cgroups::V2
        }
    }
}

/// The operations that were tried and refused; an error if one failed otherwise.
fn refusals(host: &Host, lacks: &mut Vec<String>) -> Result<()> {
    let tries = [
        (&host.cgroup, "making a cgroup", "the right to make cgroups: start the container with --privileged"),
        (
            &host.namespaces,
            "making namespaces",
            "the right to make namespaces (CAP_SYS_ADMIN): start the container with --privileged",
        ),
        (
            &host.devices,
            "making network devices",
            "network devices of the kinds veth and bridge: modprobe veth bridge (package kmod, and linux-modules-extra where the kernel is split)",
        ),
    ];
    for (tried, what, lack) in tries {
        match tried {
            Probe::Skipped | Probe::Works => {}
            Probe::Refused => lacks.push(lack.to_owned()),
            Probe::Broken(how) => bail!("{what} failed, and not for want of a right: {how}"),
        }
    }
    Ok(())
}

fn inspect_host() -> Host {
    let root = rustix::process::geteuid().is_root();
    let mounted = mounted(Path::new(TOP));
    let programs_missing: Vec<_> = PROGRAMS.into_iter().filter(|(program, _)| !in_path(program)).collect();
    // A missing program is reported once, and what cannot be tried without it is not reported.
    let can_try = root && programs_missing.is_empty();
    let tried = |script| if can_try { try_namespaces(script) } else { Probe::Skipped };
    Host {
        root,
        processor: std::env::consts::ARCH,
        cgroup: if can_try { try_cgroup(&mounted) } else { Probe::Skipped },
        mounted,
        programs_missing,
        machine_id: Path::new("/etc/machine-id").exists(),
        tap: Path::new("/dev/net/tun").exists(),
        inotify: allowed_inotify(),
        namespaces: tried("ip link set lo up"),
        devices: tried("ip link add switch type bridge && ip link add one type veth peer name other"),
    }
}

fn mounted(top: &Path) -> Mounted {
    if let Ok(controllers) = std::fs::read_to_string(top.join("cgroup.controllers")) {
        return Mounted::V2 { controllers: controllers.split_whitespace().map(str::to_owned).collect() };
    }
    let missing = HIERARCHIES.into_iter().filter(|one| !top.join(one).join("cgroup.procs").exists());
    let missing: Vec<_> = missing.collect();
    if missing.len() == HIERARCHIES.len() { Mounted::Nothing } else { Mounted::V1 { missing } }
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The limit, raised to what is enough if that is permitted.
fn allowed_inotify() -> u32 {
    let allowed = || std::fs::read_to_string(INOTIFY).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let before = allowed();
    if before >= ENOUGH_INOTIFY || std::fs::write(INOTIFY, ENOUGH_INOTIFY.to_string()).is_err() {
        return before;
    }
    allowed()
}

/// Creates a cgroup where machines have theirs, and removes it.
fn try_cgroup(mounted: &Mounted) -> Probe {
    let name = format!("pod-safety-nodes-probe-{}", std::process::id());
    let there: Vec<_> = match mounted {
        Mounted::V2 { .. } => vec![Path::new(TOP).to_owned()],
        Mounted::V1 { missing } => {
            let there = HIERARCHIES.into_iter().filter(|one| !missing.contains(one));
            there.map(|one| Path::new(TOP).join(one)).collect()
        }
        Mounted::Nothing => return Probe::Skipped,
    };
    for folder in there {
        let probe = folder.join(&name);
        if let Err(error) = std::fs::create_dir(&probe).and_then(|()| std::fs::remove_dir(&probe)) {
            return match error.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Probe::Refused,
                _ => Probe::Broken(format!("{}: {error}", probe.display())),
            };
        }
    }
    Probe::Works
}

/// Runs a script in namespaces like those of machines.
fn try_namespaces(script: &str) -> Probe {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--mount-proc"]);
    command.args(["sh", "-ec", script]).env("LC_ALL", "C").stdin(Stdio::null());
    match command.output().context("unshare does not start") {
        Ok(output) if output.status.success() => Probe::Works,
        Ok(output) => refused(&String::from_utf8_lossy(&output.stderr)),
        Err(error) => Probe::Broken(format!("{error:#}")),
    }
}

/// The texts in a program's error output which mean that this machine does not support the operation, or does not
/// permit it.
fn refused(stderr: &str) -> Probe {
    let messages = [
        "Operation not permitted",
        "Permission denied",
        "Operation not supported",
        "Unknown device type",
        "No space left on device", // so many namespaces are allowed, and no more: often none
    ];
    if messages.iter().any(|text| stderr.contains(text)) {
        Probe::Refused
    } else {
        Probe::Broken(stderr.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A current machine that has everything.
    fn able() -> Host {
        let controllers = ["cpuset", "cpu", "io", "memory", "hugetlb", "pids"].map(str::to_owned).to_vec();
        Host {
            root: true,
            processor: "x86_64",
            mounted: Mounted::V2 { controllers },
            programs_missing: Vec::new(),
            machine_id: true,
            tap: true,
            inotify: ENOUGH_INOTIFY,
            cgroup: Probe::Works,
            namespaces: Probe::Works,
            devices: Probe::Works,
        }
    }

    fn lacks(host: &Host) -> Vec<String> {
        match verdict_for(host).unwrap() {
            Verdict::Lacks(lacks) => lacks,
            Verdict::CanRun(cgroups) => panic!("it can run with {cgroups:?}"),
        }
    }

    #[test]
    fn both_cgroup_versions_are_accepted() {
        assert_eq!(verdict_for(&able()).unwrap(), Verdict::CanRun(Cgroups::V2));
        let old = Host { mounted: Mounted::V1 { missing: Vec::new() }, ..able() };
        assert_eq!(verdict_for(&old).unwrap(), Verdict::CanRun(Cgroups::V1));
        let arm = Host { processor: "aarch64", ..able() };
        assert_eq!(verdict_for(&arm).unwrap(), Verdict::CanRun(Cgroups::V2));
    }

    #[test]
    fn each_missing_part_is_named_with_its_installation() {
        let no_memory = Mounted::V2 { controllers: ["cpu", "cpuset", "pids"].map(str::to_owned).to_vec() };
        let table = [
            (Host { root: false, ..able() }, "root: run it with sudo"),
            (Host { processor: "riscv64", ..able() }, "a processor of x86_64 or aarch64; this is riscv64"),
            (Host { mounted: no_memory, ..able() }, "the controllers memory of cgroup v2"),
            (
                Host { mounted: Mounted::V1 { missing: vec!["pids"] }, ..able() },
                "the hierarchies pids of cgroup v1: mount them below",
            ),
            (Host { mounted: Mounted::Nothing, ..able() }, "cgroups: mount -t cgroup2"),
            (Host { programs_missing: vec![("ss", "iproute2")], ..able() }, "the program ss: apt-get install iproute2"),
            (Host { machine_id: false, ..able() }, "the file /etc/machine-id: touch"),
            (Host { tap: false, ..able() }, "TAP devices at /dev/net/tun: modprobe tun"),
            (Host { inotify: 128, ..able() }, "512 instances of inotify, 128 are allowed"),
            (Host { cgroup: Probe::Refused, ..able() }, "the right to make cgroups"),
            (Host { namespaces: Probe::Refused, ..able() }, "the right to make namespaces"),
            (Host { devices: Probe::Refused, ..able() }, "network devices of the kinds veth and bridge"),
        ];
        for (found, words) in table {
            let lacks = lacks(&found);
            assert!(lacks.len() == 1 && lacks[0].starts_with(words), "{lacks:?}, not {words}");
        }
    }

    #[test]
    fn all_missing_parts_are_named_at_once() {
        let bare = Host {
            root: false,
            programs_missing: vec![("ip", "iproute2"), ("pgrep", "procps")],
            tap: false,
            cgroup: Probe::Skipped,
            namespaces: Probe::Skipped,
            devices: Probe::Skipped,
            ..able()
        };
        assert_eq!(lacks(&bare).len(), 4);
    }

    #[test]
    fn a_broken_setup_is_an_error_and_not_a_missing_right() {
        let broken = || Probe::Broken("Cannot allocate memory".to_owned());
        let table = [
            (Host { cgroup: broken(), ..able() }, "making a cgroup"),
            (Host { namespaces: broken(), ..able() }, "making namespaces"),
            (Host { devices: broken(), ..able() }, "making network devices"),
            // Though something else is missing, too.
            (Host { cgroup: broken(), tap: false, ..able() }, "making a cgroup"),
        ];
        for (found, what) in table {
            let error = verdict_for(&found).unwrap_err().to_string();
            assert_eq!(error, format!("{what} failed, and not for want of a right: Cannot allocate memory"));
        }
    }

    #[test]
    fn only_permission_errors_count_as_refused() {
        assert_eq!(refused("unshare: unshare failed: Operation not permitted\n"), Probe::Refused);
        assert_eq!(refused("Error: Unknown device type.\n"), Probe::Refused);
        for broken in ["unshare: unrecognized option '--cgroup'", "sh: 1: ip: not found", ""] {
            assert_eq!(refused(broken), Probe::Broken(broken.to_owned()));
        }
    }

    #[test]
    fn cgroup_version_is_detected_by_its_files() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(mounted(folder.path()), Mounted::Nothing);
        for hierarchy in HIERARCHIES.into_iter().filter(|one| *one != "pids") {
            std::fs::create_dir(folder.path().join(hierarchy)).unwrap();
            std::fs::write(folder.path().join(hierarchy).join("cgroup.procs"), "").unwrap();
        }
        // As where v2 is mounted beside v1, without any controller.
        std::fs::create_dir(folder.path().join("unified")).unwrap();
        std::fs::write(folder.path().join("unified/cgroup.controllers"), "hugetlb\n").unwrap();
        assert_eq!(mounted(folder.path()), Mounted::V1 { missing: vec!["pids"] });
        std::fs::write(folder.path().join("cgroup.controllers"), "cpu memory\n").unwrap();
        let controllers = ["cpu", "memory"].map(str::to_owned).to_vec();
        assert_eq!(mounted(folder.path()), Mounted::V2 { controllers });
    }

    #[test]
    fn the_scripts_name_the_same_controllers_and_hierarchies() {
        let script = std::fs::read_to_string(crate::machine::scripts().join("cgroups.sh")).unwrap();
        assert!(script.contains(&format!("hierarchies=\"{}\"", HIERARCHIES.join(" "))));
        assert!(script.contains(&format!("controllers=\"{}\"", CONTROLLERS.map(|one| format!("+{one}")).join(" "))));
    }
}
