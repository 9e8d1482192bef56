//! A hypervisor to fence with: Debian's libvirtd, whose domains are QEMU processes, reached through Debian's sshd.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{PASSWORD, Rigs};
use crate::port::Port;
use crate::{Error, Program, pki};

/// The SSH user that may switch domains; it is no administrator of the hypervisor.
pub const USER: &str = "fencing";

/// The variable that allows to skip the test where no hypervisor can run: it needs root.
const ALLOWED: &str = "POD_SAFETY_REAL_NODES";

/// A running hypervisor. Dropping it ends it and its domains.
pub struct Hypervisor {
    program: Program,
    port: Port,
    agents: PathBuf,
}

impl Rigs {
    /// A hypervisor with these domains, each a name and a UUID. `None`: it cannot run here, and may be skipped.
    pub async fn hypervisor(&self, machines: &[(&str, &str)]) -> Result<Option<Hypervisor>, Error> {
        if !rustix::process::geteuid().is_root() {
            if std::env::var(ALLOWED).as_deref() == Ok("skip") {
                return Ok(None);
            }
            return Err(Error::Tools(format!(
                "only root can make a hypervisor. To go on without one, set {ALLOWED}=skip"
            )));
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/hypervisor.sh");
        let failed = |error: std::io::Error| Error::Tools(format!("{}: {error}", script.display()));
        let unpacked = tokio::process::Command::new(&script)
            .arg("unpacked")
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .await
            .map_err(failed)?;
        if !unpacked.status.success() {
            return Err(Error::Tools(format!("{} failed ({})", script.display(), unpacked.status)));
        }
        let port = Port::reserve()?;
        let name = format!("hypervisor-{}", port.number());
        let folder = self.file(&name);
        std::fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
        let password = folder.join("password");
        pki::write(&password, PASSWORD)?;
        let mut args: Vec<String> = vec!["run".to_owned()];
        args.push(String::from_utf8_lossy(&unpacked.stdout).trim_end().to_owned());
        args.extend([folder.display().to_string(), password.display().to_string()]);
        args.extend([port.number().to_string(), USER.to_owned()]);
        args.extend(machines.iter().map(|(name, uuid)| format!("{name}={uuid}")));
        let mut program = Program::start(&name, &script, args, [], self.folder.clone())?;
        program.wait_for("listen", async || super::listens(port.number()).await).await?;
        // ssh writes host keys into the home of its user, which must not be that of the user who runs the tests.
        let home = self.file("home");
        std::fs::create_dir_all(&home).map_err(Error::file("create", &home))?;
        let real = self.agents().join("fence_virsh");
        let agents = self.script(
            "virsh-agents",
            "fence_virsh",
            &format!(
                "exec unshare --mount sh -c 'mkdir -p ~/.ssh && mount --bind {} ~/.ssh && exec {}'",
                home.display(),
                real.display()
            ),
        )?;
        Ok(Some(Hypervisor { program, port, agents }))
    }
}

impl Hypervisor {
    /// The folder of its fence_virsh.
    pub fn agents(&self) -> &Path {
        &self.agents
    }

    /// The port of its sshd on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The output of `virsh` as the administrator of the hypervisor.
    pub fn virsh(&self, args: &[&str]) -> Result<String, Error> {
        let failed = |why: String| Error::Tools(format!("virsh {}: {why}", args.join(" ")));
        let pid = self.program.pid();
        let children = PathBuf::from(format!("/proc/{pid}/task/{pid}/children"));
        let first = std::fs::read_to_string(&children).map_err(Error::file("read", &children))?;
        let output = Command::new("nsenter")
            .args(["--mount", "--pid", "--target", first.trim(), "--", "virsh", "--quiet"])
            .args(args)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// Whether the kernel of this machine has a process for a domain with this UUID.
#[must_use]
pub fn runs(uuid: &str) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let arguments = processes.map(|process| std::fs::read(process.path().join("cmdline")).unwrap_or_default());
    arguments.into_iter().any(|text| {
        let mut words = text.split(|byte| *byte == 0);
        words.next().is_some_and(|program| program.starts_with(b"/usr/bin/qemu-system"))
            && words.any(|word| word == uuid.as_bytes())
    })
}
