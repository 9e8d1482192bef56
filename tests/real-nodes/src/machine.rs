//! One machine, by `scripts/machine.sh`: its power, its cable, its services, and its pods.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use pod_safety_control_plane::{Balancer, ControlPlane};
use serde_json::Value;

/// The address of the control plane, seen from machines.
pub(crate) const CONTROL_PLANE: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);

/// The folder of this crate's scripts.
pub(crate) fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

/// A program of a machine that can fail by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Kubelet,
    Containerd,
    /// pod-safety's agent, where there are agents.
    Agent,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::Containerd => "containerd",
            Self::Agent => "agent",
        }
    }
}

/// The direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketDirection {
    /// From the machine.
    Out,
    /// To the machine.
    In,
}

/// A machine, on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Machine(pub(crate) u8);

impl Machine {
    pub(crate) const ALL: [Self; 3] = [Self(1), Self(2), Self(3)];

    pub(crate) fn name(self) -> String {
        format!("n{}", self.0)
    }

    pub(crate) fn from_name(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name).with_context(|| format!("no machine {name}"))
    }

    pub(crate) fn address(self) -> String {
        format!("10.88.0.1{}", self.0)
    }

    /// The addresses of its pods.
    pub(crate) fn pods(self) -> String {
        format!("10.89.{}.0/24", self.0)
    }

    /// Whether a pod with this address runs on it.
    pub(crate) fn has_pod(self, address: std::net::Ipv4Addr) -> bool {
        address.octets()[2] == self.0
    }

    /// Imports an image into its containerd.
    pub(crate) async fn import(self, archive: &Path) -> Result<()> {
        self.script("import", &[&archive.to_string_lossy()]).await.map(drop)
    }

    /// Writes the files that its kubelet needs before the first start, with the load balancer through which it reaches
    /// an API server.
    pub(crate) fn prepare(self, plane: &ControlPlane, way: &Balancer) -> Result<()> {
        let folder = Path::new("/run/machines").join(self.name());
        std::fs::create_dir_all(&folder)?;
        let user = format!("system:node:{}", self.name());
        let mine = std::fs::read_to_string(plane.user_kubeconfig(&user, &["system:nodes"])?)?;
        let mut config: Value = serde_json::from_str(&mine)?;
        let cluster = &mut config["clusters"][0]["cluster"];
        // The server's certificate has the names that all other clients use.
        cluster["server"] = way.url().into();
        cluster["tls-server-name"] = "localhost".into();
        let authority = cluster["certificate-authority"].as_str().context("no authority")?;
        std::fs::copy(authority, folder.join("authority"))?;
        std::fs::write(folder.join("kubeconfig"), config.to_string())?;
        // The pods' requests to the Service of the API server go there, too.
        let url = way.url();
        let address = url.strip_prefix("https://").context("its way is not by TLS")?;
        Ok(std::fs::write(folder.join("service"), address)?)
    }

    /// The last errors in the log of each machine's kubelet.
    pub(crate) fn last_errors() -> String {
        let last = |machine: Self| {
            let log = Path::new("/run/machines").join(machine.name()).join("log/kubelet");
            let log = std::fs::read_to_string(log).unwrap_or_default();
            let line = log.lines().rfind(|line| line.starts_with(['E', 'F'])).unwrap_or("no error");
            format!("the kubelet of {}: {line}", machine.name())
        };
        Self::ALL.map(last).join("; ")
    }

    pub(crate) async fn on(self) -> Result<()> {
        self.script("on", &[]).await.map(drop)
    }

    /// All of its processes end at once.
    pub(crate) async fn off(self) -> Result<()> {
        self.script("off", &[]).await.map(drop)
    }

    pub(crate) async fn is_on(self) -> Result<bool> {
        Ok(self.script("status", &[]).await?.trim() == "on")
    }

    /// All of its processes are frozen, as those of a paused virtual machine.
    pub(crate) async fn freeze(self) -> Result<()> {
        self.script("freeze", &[]).await.map(drop)
    }

    pub(crate) async fn thaw(self) -> Result<()> {
        self.script("thaw", &[]).await.map(drop)
    }

    /// It gets a hundredth of a processor.
    pub(crate) async fn starve(self) -> Result<()> {
        self.script("starve", &[]).await.map(drop)
    }

    pub(crate) async fn feed(self) -> Result<()> {
        self.script("feed", &[]).await.map(drop)
    }

    pub(crate) async fn start(self, service: Service) -> Result<()> {
        self.script("start", &[service.name()]).await.map(drop)
    }

    pub(crate) async fn kill(self, service: Service) -> Result<()> {
        self.script("kill", &[service.name()]).await.map(drop)
    }

    pub(crate) async fn stop(self, service: Service) -> Result<()> {
        self.script("stop", &[service.name()]).await.map(drop)
    }

    pub(crate) async fn go_on(self, service: Service) -> Result<()> {
        self.script("continue", &[service.name()]).await.map(drop)
    }

    /// Starts the service if it is dead, continues it if it was stopped.
    pub(crate) async fn repair(self, service: Service) -> Result<()> {
        self.script("repair", &[service.name()]).await.map(drop)
    }

    /// Its cable is pulled, or plugged in. A machine that is off has none, and gets one that is plugged in.
    pub(crate) async fn cable(self, plugged: bool) -> Result<()> {
        let state = if plugged { "up" } else { "down" };
        let set = run("ip", &["link", "set", &format!("to-{}", self.name()), state]).await;
        if set.is_err() && !self.is_on().await? {
            return Ok(());
        }
        set.map(drop)
    }

    /// `percent` of the packets to or from the control plane are dropped without an error.
    pub(crate) async fn lose(self, way: PacketDirection, percent: u8) -> Result<()> {
        let (chain, end) = match way {
            PacketDirection::Out => ("OUTPUT", "-d"),
            PacketDirection::In => ("INPUT", "-s"),
        };
        let (share, control_plane) = (format!("{:.2}", f64::from(percent) / 100.0), CONTROL_PLANE.to_string());
        let rule = [
            "-A",
            chain,
            end,
            &control_plane,
            "-m",
            "statistic",
            "--mode",
            "random",
            "--probability",
            &share,
            "-j",
            "DROP",
        ];
        self.script("network", &rule).await.map(drop)
    }

    /// Packets between this machine and another one are dropped.
    pub(crate) async fn lose_peer(self, other: Self) -> Result<()> {
        self.script("network", &["-A", "INPUT", "-s", &other.address(), "-j", "DROP"]).await.map(drop)
    }

    /// Ends all packet loss.
    pub(crate) async fn lose_nothing(self) -> Result<()> {
        self.script("network", &["-F"]).await.map(drop)
    }

    /// All its connections to the control plane are closed in between.
    pub(crate) async fn reset(self) -> Result<()> {
        run("ss", &["--kill", "--tcp", "dst", &self.address()]).await.map(drop)
    }

    async fn script(self, command: &str, args: &[&str]) -> Result<String> {
        let number = self.0.to_string();
        let all = [&[command, &number], args].concat();
        let script = scripts().join("machine.sh");
        run(&script.to_string_lossy(), &all).await
    }
}

/// Runs a command to its end; it must succeed.
pub(crate) async fn run(program: &str, args: &[&str]) -> Result<String> {
    let output = tokio::process::Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("starting {program}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {} failed ({}): {stderr}", args.join(" "), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
