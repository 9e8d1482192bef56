//! Which packages are requested on which release, and the message where something is missing: the real scripts with
//! simulated machines around them, whose programs answer as those of other releases do.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

/// The packages in the lists of a release, out of those that may be requested; and virtual package names there.
struct Release {
    name: &'static str,
    known: &'static str,
    provided: &'static str,
    /// The packages that are then chosen for the fence agents, as far as they differ.
    fence_agents: &'static [&'static str],
    /// The same for a Docker daemon.
    docker: &'static [&'static str],
}

const EVERYWHERE: &str = "ipmitool openipmi libfreeipmi17 libncurses6 containerd runc tini libseccomp2 libfaketime \
    containernetworking-plugins docker.io libdevmapper1.02.1 debootstrap iptables libip4tc2 libip6tc2 libxtables12 libmnl0 \
    libnftnl11 libnfnetlink0 libnetfilter-conntrack3 ca-certificates python3-pip iproute2";

const RELEASES: [Release; 3] = [
    Release {
        name: "Debian 12",
        known: "fence-agents libopenipmi0 libsnmp40 libpopt0 libreadline8 chromium",
        provided: "",
        fence_agents: &["fence-agents", "libopenipmi0", "libsnmp40", "libpopt0", "libreadline8"],
        docker: &["docker.io"],
    },
    Release {
        name: "Debian 13",
        known: "fence-agents fence-agents-common fence-agents-ipmilan fence-agents-redfish libopenipmi0t64 libsnmp40t64 libpopt0 \
            libreadline8t64 docker-cli chromium",
        provided: "libopenipmi0 libsnmp40 libreadline8",
        fence_agents: &[
            "fence-agents-common",
            "fence-agents-ipmilan",
            "fence-agents-redfish",
            "libopenipmi0t64",
            "libsnmp40t64",
            "libpopt0",
            "libreadline8t64",
        ],
        docker: &["docker.io", "docker-cli"],
    },
    Release {
        name: "Ubuntu 24.04",
        known: "fence-agents fence-agents-common fence-agents-base fence-agents-extra libopenipmi0t64 libsnmp40t64 libpopt0t64 \
            libreadline8t64 chromium-browser",
        provided: "libopenipmi0 libsnmp40 libpopt0 libreadline8",
        fence_agents: &[
            "fence-agents-base",
            "fence-agents-common",
            "fence-agents-extra",
            "libopenipmi0t64",
            "libsnmp40t64",
            "libpopt0t64",
            "libreadline8t64",
        ],
        docker: &["docker.io"],
    },
];

const APT_CACHE: &str = r#"#!/bin/bash
command=$1; shift
case $command in
    policy)
        for name in "$@"; do
            case " $KNOWN " in *" $name "*) printf '%s:\n  Installed: (none)\n  Candidate: 1.2-3\n  Version table:\n' "$name"; continue ;; esac
            case " $PROVIDED " in *" $name "*) printf '%s:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n' "$name" ;; esac
        done ;;
    search)
        for name in $KNOWN; do [[ $name =~ $2 ]] && printf '%s - of a test\n' "$name"; done
        true ;;
esac
"#;

/// A folder of programs, the only ones that exist for the script.
struct Machine {
    programs: TempDir,
    known: String,
    provided: &'static str,
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

impl Machine {
    fn new(packages: &str, provided: &'static str) -> Result<Self> {
        let machine = Self {
            programs: tempfile::tempdir()?,
            known: [EVERYWHERE, packages].join(" ").split_whitespace().collect::<Vec<_>>().join(" "),
            provided,
        };
        machine.answers("apt-cache", APT_CACHE)?;
        machine.answers("uname", "#!/bin/bash\necho x86_64\n")?;
        machine.with_programs("bash env awk cut dirname grep sort tr head cat mktemp rm mkdir cmp install sha256sum")
    }

    /// Adds programs of this machine, if it has them: a missing one is found when it is needed.
    fn with_programs(self, programs: &str) -> Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        for program in programs.split(' ') {
            let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|one| one.is_file());
            if let Some(found) = found {
                symlink(found, self.programs.path().join(program))?;
            }
        }
        Ok(self)
    }

    fn answers(&self, program: &str, script: &str) -> Result<()> {
        let path = self.programs.path().join(program);
        // A file is not written through a link of `has`.
        if path.is_symlink() {
            fs::remove_file(&path)?;
        }
        fs::write(&path, script)?;
        Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
    }

    fn bash(&self, args: &[&str]) -> Result<Output> {
        let mut command = Command::new(self.programs.path().join("bash"));
        command.args(args).env_clear().env("PATH", self.programs.path());
        command.env("KNOWN", &self.known).env("PROVIDED", self.provided).current_dir(tests());
        command.output().context("bash does not start")
    }

    /// The chosen packages for this purpose.
    fn selected(&self, purpose: &str) -> Result<Vec<String>> {
        let script = "set -euo pipefail; source packages.sh; mapfile -t all < <(packages_of \"$0\"); resolved_packages \"${all[@]}\"";
        let output = self.bash(&["-c", script, purpose])?;
        assert!(output.status.success(), "{purpose}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
    }

    /// The message of install.sh where it ends before it begins.
    fn refusal(&self) -> Result<String> {
        let output = self.bash(&["install.sh"])?;
        assert!(!output.status.success(), "it went on");
        Ok(String::from_utf8(output.stderr)?)
    }
}

#[test]
fn each_release_uses_its_own_package_names() -> Result<()> {
    for release in RELEASES {
        let machine = Machine::new(release.known, release.provided)?;
        for (purpose, expected) in [("fence-agents", release.fence_agents), ("docker", release.docker)] {
            let mut chosen = machine.selected(purpose)?;
            chosen.retain(|name| name == "docker.io" || !EVERYWHERE.split(' ').any(|everywhere| everywhere == name));
            assert_eq!(chosen, expected, "{purpose} on {}", release.name);
        }
        let machines = machine.selected("machine")?;
        assert!(machines.contains(&"containerd".to_owned()) && machines.len() == 14, "{machines:?}");
    }
    Ok(())
}

#[test]
fn an_unavailable_package_is_named() -> Result<()> {
    let machine = Machine::new("libopenipmi0", "libsnmp40")?;
    let script =
        "set -euo pipefail; source packages.sh; resolved_packages libopenipmi0 'libsnmp40t64|libsnmp40'; echo went on";
    let output = machine.bash(&["-c", script])?;
    let (stdout, stderr) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    assert!(!output.status.success() && !stdout.contains("went on"), "{stdout}");
    assert!(stderr.contains("no package of this machine's lists is libsnmp40t64|libsnmp40"), "{stderr}");
    Ok(())
}

#[test]
fn without_root_all_missing_parts_are_named_before_any_change() -> Result<()> {
    let machine = Machine::new("", "")?.with_programs("git make gcc tar chroot xargs")?;
    machine.answers("id", "#!/bin/bash\necho 1000\n")?;
    machine.answers("apt-get", "#!/bin/bash\necho apt-get was called >&2\n")?;
    let message = machine.refusal()?;
    for package in ["python3", "python3-pip", "util-linux", "bsdutils", "iproute2", "procps", "kmod", "chromium"] {
        assert!(message.contains(&format!(" {package}")), "{package}: {message}");
    }
    assert!(message.contains("there is no sudo. As root, type: apt-get update && apt-get install"), "{message}");
    assert!(!message.contains("was called"), "{message}");
    Ok(())
}

#[test]
fn an_unsupported_architecture_is_reported() -> Result<()> {
    let machine = Machine::new("", "")?;
    machine.answers("uname", "#!/bin/bash\necho riscv64\n")?;
    let message = machine.refusal()?;
    assert!(message.contains("x86_64 or aarch64, and this is riscv64"), "{message}");
    Ok(())
}

/// All programs that install.sh checks for, as far as they do not matter here.
fn complete() -> Result<Machine> {
    let machine = Machine::new("", "")?;
    let all = "git make cc python3 pip3 flock setpriv unshare nsenter script mount ip ss pgrep modprobe hostname openssl ssh ssh-keygen chroot \
        xargs tar wget z3 cargo go";
    for program in all.split_whitespace() {
        machine.answers(program, "#!/bin/bash\nexit 0\n")?;
    }
    machine.answers("id", "#!/bin/bash\necho 0\n")?;
    machine.answers("apt-get", "#!/bin/bash\nexit 0\n")?;
    Ok(machine)
}

#[test]
fn a_browser_stub_is_not_a_browser() -> Result<()> {
    let machine = complete()?;
    machine
        .answers("chromium-browser", "#!/bin/bash\necho requires the chromium snap to be installed >&2\nexit 1\n")?;
    let message = machine.refusal()?;
    assert!(message.contains("put chromium or google-chrome"), "{message}");
    Ok(())
}

#[test]
fn a_go_older_than_kubernetes_needs_is_refused() -> Result<()> {
    let machine = complete()?;
    machine.answers("google-chrome", "#!/bin/bash\necho Google Chrome 150\n")?;
    let module = fs::read_to_string(tests().join("control-plane/tools/kubernetes/go.mod"))?;
    let needed = module.lines().find_map(|line| line.strip_prefix("go ")).context("go.mod names no Go")?;
    machine.answers("go", "#!/bin/bash\necho go1.19.8\n")?;
    let message = machine.refusal()?;
    assert!(message.contains(&format!("Kubernetes needs Go {needed}, and this is 1.19.8")), "{message}");
    fs::remove_file(machine.programs.path().join("go"))?;
    let message = machine.refusal()?;
    assert!(message.contains("there is no go in PATH"), "{message}");
    Ok(())
}
