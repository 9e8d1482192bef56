//! Fence targets without hardware: real fence agents, and management controllers for them to switch.
//!
//! ```no_run
//! # async fn example() -> Result<(), pod_safety_control_plane::Error> {
//! use pod_safety_control_plane::rigs::Rigs;
//! let rigs = Rigs::new().await?;
//! let bmc = rigs.ipmi("node-1").await?;
//! let parameters = [("ip", "127.0.0.1".to_owned()), ("ipport", bmc.port().to_string())];
//! assert!(bmc.is_on()?);
//! # Ok(()) }
//! ```
//!
//! They come from `tools/fence-agents.sh`, which unpacks them on the first call.

pub mod ec2;
pub mod hypervisor;
pub mod vcenter;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use crate::folder::Folder;
use crate::pki::{self, Pki};
use crate::port::Port;
use crate::{Error, Program};

/// The user of the controllers of these rigs.
pub const USER: &str = "admin";

/// The password: it needs different quoting in a shell, a URL and a string.
pub const PASSWORD: &str = "s3cr'et$w";

/// bcrypt of [`PASSWORD`], at its lowest cost.
const PASSWORD_HASH: &str = "$2a$04$YIIDAQQP1JQ2P40JHn/njOPl0JU2nnVyfbdnGkRcbL1HUTRGCPELG";

/// Fence agents, and a folder in which their controllers run.
pub struct Rigs {
    tools: PathBuf,
    folder: Arc<Folder>,
    pki: Pki,
}

impl Rigs {
    /// Installs what is missing, which takes a minute on a new machine.
    pub async fn new() -> Result<Self, Error> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/fence-agents.sh");
        let output = tokio::process::Command::new(&script)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .await
            .map_err(|error| Error::Tools(format!("cannot run {}: {error}", script.display())))?;
        if !output.status.success() {
            return Err(Error::Tools(format!("{} failed ({})", script.display(), output.status)));
        }
        let tools = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end());
        let folder = Folder::create(false, false)?;
        let pki = Pki::create(folder.pki())?;
        Ok(Self { tools, folder: Arc::new(folder), pki })
    }

    /// The folder of the agents.
    pub fn agents(&self) -> PathBuf {
        self.tools.join("agents")
    }

    /// A folder with only this agent, which is started with these variables.
    fn wrapped(&self, folder: &str, agent: &str, variables: &str) -> Result<PathBuf, Error> {
        let real = self.agents().join(agent);
        self.script(folder, agent, &format!("export {variables}\nexec {} \"$@\"", real.display()))
    }

    /// A folder with only this script.
    fn script(&self, folder: &str, name: &str, script: &str) -> Result<PathBuf, Error> {
        let folder = self.file(folder);
        std::fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
        let path = folder.join(name);
        pki::write(&path, &format!("#!/bin/sh\n{script}\n"))?;
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, executable).map_err(Error::file("make executable", &path))?;
        Ok(folder)
    }

    /// A file of this rig: what fence_dummy switches, for instance.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The authority that signed the certificates of these controllers, as PEM.
    pub fn authority(&self) -> Result<String, Error> {
        let path = self.pki.authority_file();
        std::fs::read_to_string(&path).map_err(Error::file("read", &path))
    }

    /// The certificate of these controllers and its key, for another server on 127.0.0.1.
    pub fn certificate(&self) -> (PathBuf, PathBuf) {
        (self.pki.server_certificate_file(), self.pki.server_key_file())
    }

    /// A Redfish service with these systems, all of them on; each has its name and UUID. Switching takes some seconds, as on hardware. With a
    /// URL `tells`, each change is sent there as JSON with PUT, and the service waits for the answer: once when the order arrived
    /// (`pending_power`), and once when the system has switched (`"pending_power": null`).
    pub async fn redfish(&self, systems: &[(&str, &str)], tells: Option<&str>) -> Result<Redfish, Error> {
        let port = Port::reserve()?;
        let state = self.file(&format!("redfish-{}", port.number()));
        std::fs::create_dir_all(&state).map_err(Error::file("create", &state))?;
        let logins = state.join("htpasswd");
        pki::write(&logins, &format!("{USER}:{PASSWORD_HASH}\n"))?;
        let config = state.join("emulator.conf");
        pki::write(&config, &emulator_config(systems, tells, &state, &logins))?;
        let args = [
            "--fake".to_owned(),
            format!("--config={}", config.display()),
            "--interface=127.0.0.1".to_owned(),
            format!("--port={}", port.number()),
            format!("--ssl-certificate={}", self.pki.server_certificate_file().display()),
            format!("--ssl-key={}", self.pki.server_key_file().display()),
        ];
        let name = format!("redfish-{}", port.number());
        let path = self.tools.join("bin/sushy-emulator");
        let mut program = Program::start(&name, &path, args, [], self.folder.clone())?;
        program.wait_for("listen", async || listens(port.number()).await).await?;
        Ok(Redfish { _program: program, port })
    }

    /// A management controller with IPMI over UDP, for one machine, which is on.
    pub async fn ipmi(&self, node: &str) -> Result<Ipmi, Error> {
        let state = self.file(&format!("ipmi-{node}"));
        std::fs::create_dir_all(&state).map_err(Error::file("create", &state))?;
        let (power, switch) = (state.join("power"), state.join("switch"));
        pki::write(&power, "1\n")?;
        pki::write(&switch, SWITCH)?;
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&switch, executable).map_err(Error::file("make executable", &switch))?;
        let controller = self.ipmi_by(node, &switch.display().to_string()).await?;
        Ok(Ipmi { controller, power })
    }

    /// The same, for a machine with an external power state. The command reads and switches it: `… 0x20 get power`, which prints
    /// `power:1` or `power:0`, and `… 0x20 set power 0`.
    pub async fn ipmi_by(&self, node: &str, command: &str) -> Result<Controller, Error> {
        let port = Port::reserve()?;
        let state = self.file(&format!("ipmi-{node}-{}", port.number()));
        std::fs::create_dir_all(&state).map_err(Error::file("create", &state))?;
        pki::write(&state.join("lan.conf"), &lan_config(command, port.number()))?;
        pki::write(&state.join("machine.emu"), MACHINE)?;
        let argument = |flag: &str, name: &str| [flag.to_owned(), state.join(name).display().to_string()];
        let args = [argument("-c", "lan.conf"), argument("-f", "machine.emu"), argument("-s", "state")];
        let args = args.into_iter().flatten().chain(["-n".to_owned()]);
        let name = format!("ipmi-{node}-{}", port.number());
        let path = self.tools.join("bin/ipmi_sim");
        let mut program = Program::start(&name, &path, args, [], self.folder.clone())?;
        let ready = async || self.ipmi_answers(port.number()).await;
        program.wait_for("answer", ready).await?;
        Ok(Controller { _program: program, port })
    }

    async fn ipmi_answers(&self, port: u16) -> Result<(), String> {
        let output = tokio::process::Command::new(self.tools.join("bin/ipmitool"))
            .args(["-I", "lanplus", "-C", "3", "-R", "1", "-H", "127.0.0.1", "-p", &port.to_string()])
            .args(["-U", USER, "-P", PASSWORD, "chassis", "power", "status"])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }
}

/// A running Redfish service. Dropping it ends it.
pub struct Redfish {
    _program: Program,
    port: Port,
}

impl Redfish {
    /// The parameter `address` of a device.
    pub fn address(&self) -> String {
        self.port.url("https")
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }
}

/// A running IPMI controller. Dropping it ends it.
pub struct Controller {
    _program: Program,
    port: Port,
}

impl Controller {
    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }
}

/// An IPMI controller and a file that is the power state of its machine.
pub struct Ipmi {
    controller: Controller,
    power: PathBuf,
}

impl Ipmi {
    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.controller.port()
    }

    /// The file that contains 1 while the machine is on: a test can watch it as the machine.
    pub fn power(&self) -> &Path {
        &self.power
    }

    /// Whether the machine is on.
    pub fn is_on(&self) -> Result<bool, Error> {
        let power = std::fs::read_to_string(&self.power).map_err(Error::file("read", &self.power))?;
        Ok(power.trim() == "1")
    }

    /// Switches the machine, like its power button.
    pub fn set(&self, on: bool) -> Result<(), Error> {
        pki::write(&self.power, if on { "1\n" } else { "0\n" })
    }
}

async fn listens(port: u16) -> Result<(), String> {
    let address = (std::net::Ipv4Addr::LOCALHOST, port);
    tokio::net::TcpStream::connect(address).await.map(drop).map_err(|error| error.to_string())
}

/// Python reads the result.
fn emulator_config(systems: &[(&str, &str)], tells: Option<&str>, state: &Path, logins: &Path) -> String {
    let notifier = if tells.is_some() { "True" } else { "False" };
    let systems: Vec<_> = systems
        .iter()
        .map(|(name, uuid)| {
            format!(
                "{{'uuid': '{uuid}', 'name': '{name}', 'power_state': 'On', 'external_notifier': {notifier}, 'nics': []}}"
            )
        })
        .collect();
    format!(
        "SUSHY_EMULATOR_FAKE_SYSTEMS = [{}]\nEXTERNAL_NOTIFICATION_URL = '{}'\nSUSHY_EMULATOR_STATE_DIR = '{}'\n\
         SUSHY_EMULATOR_AUTH_FILE = '{}'\nSUSHY_EMULATOR_FEATURE_SET = 'minimum'\n",
        systems.join(", "),
        tells.unwrap_or_default(),
        state.display(),
        logins.display(),
    )
}

/// The command of ipmi_sim for reading and switching: `switch 0x20 get power`, `switch 0x20 set power 0`.
const SWITCH: &str = "#!/bin/sh
power=${0%/*}/power
shift
case $1 in
get) echo \"power:$(cat \"$power\")\" ;;
set) shift; while [ $# -ge 2 ]; do [ \"$1\" = power ] && echo \"$2\" >\"$power\"; shift 2; done ;;
esac
exit 0
";

const MACHINE: &str = "mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02
mc_enable 0x20
";

fn lan_config(switch: &str, port: u16) -> String {
    format!(
        "name \"rig\"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {port}
    priv_limit admin
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control \"{switch} 0x20\"
  user 1 true \"\" \"test\" user 10 none md2 md5 straight
  user 2 true \"{USER}\" \"{PASSWORD}\" admin 10 none md2 md5 straight
"
    )
}
