//! A control plane, three machines, a StatefulSet of three, a power switch, and who keeps order: one of three ways.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client};
use pod_safety_control_plane::rigs::{Controller, PASSWORD, Rigs};
use pod_safety_control_plane::{
    Balancer, Component, ControlPlane, Program, chart, check_that, eventually, helm, until,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agents::Agents;
use crate::machine::{self, Machine};
use crate::objects::{self, IDENTITIES, NAMESPACE};
use crate::plane;
use crate::pod_safety::Replica;
use crate::slow::Slow;
use crate::watch::{self, Watch};

/// Seconds on an idle machine. Only failures wait so long.
const PATIENCE: Duration = Duration::from_secs(300);
/// Where the power switches listen: pods reach it too.
const SWITCHES: &str = "10.88.0.1:8443";
/// Who writes ten times a second wrote within this.
const FRESH: f64 = 1.5;

/// Who keeps order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize, Deserialize)]
pub(crate) enum Mode {
    /// kube-controller-manager alone.
    Plain,
    /// kube-controller-manager, and pod-safety beside it, with its admission policies in Deny.
    Guard,
    /// pod-safety in place of kube-controller-manager's controllers of the same duties, and its policies in Deny.
    Replace,
}

impl Mode {
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::Guard, Self::Replace];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Guard => "guard",
            Self::Replace => "replace",
        }
    }

    pub(crate) fn kcm_controllers(self) -> &'static str {
        match self {
            Self::Plain | Self::Guard => "*",
            Self::Replace => {
                "*,-pod-garbage-collector-controller,-disruption-controller,-node-lifecycle-controller,-taint-eviction-controller"
            }
        }
    }
}

/// What a cluster has beside the usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    Nothing,
    /// Pods have service accounts.
    ServiceAccounts,
    /// EvictionRequests and Evictions; pods have responders.
    Evictions,
}

pub(crate) struct Cluster {
    pub(crate) mode: Mode,
    pub(crate) extra: Extra,
    // Dropped in this order: who depends on another goes first.
    pub(crate) ours: Vec<Replica>,
    pub(crate) kcm: Option<Component>,
    _scheduler: Component,
    /// By which machines reach an API server.
    pub(crate) ways: BTreeMap<Machine, Balancer>,
    /// Cables that take their time.
    pub(crate) slow: Vec<Slow>,
    pub(crate) plane: ControlPlane,
    /// The power switches, as a Redfish service.
    pub(crate) switches: Program,
    /// The same switches by IPMI, while that is how they are asked.
    controllers: Vec<Controller>,
    pub(crate) rigs: Rigs,
    pub(crate) account: Option<PathBuf>,
    pub(crate) agents: Option<Agents>,
    /// A registry that takes connections and never answers, while an image is pulled from there.
    pub(crate) registry: Option<std::net::TcpListener>,
    pub(crate) watch: Watch,
}

impl Cluster {
    /// All three nodes are Ready, and all three identities write.
    pub(crate) async fn start(way: Mode) -> Result<Self> {
        Self::start_with(way, Extra::Nothing).await
    }

    pub(crate) async fn start_with(way: Mode, extra: Extra) -> Result<Self> {
        let mut cluster = Self::machines(way, extra).await?;
        if way != Mode::Plain {
            cluster.account = Some(install(&cluster.plane, extra).await?);
            for _ in 0..2 {
                cluster.start_pod_safety().await?;
            }
            cluster.ours.first_mut().context("none of ours")?.is_leader().await?;
        }
        cluster.serve().await?;
        Ok(cluster)
    }

    /// All three nodes are Ready, and nothing of ours is there.
    pub(crate) async fn machines(way: Mode, extra: Extra) -> Result<Self> {
        let plane = plane::start(extra).await?;
        let scheduler = plane.kube_scheduler(&[]).await?;
        let kcm = start_kcm(&plane, way).await?;
        let mut ways = BTreeMap::new();
        for machine in Machine::ALL {
            let way = plane.balancer(machine::CONTROL_PLANE).await?;
            machine.off().await?;
            machine.prepare(&plane, &way)?;
            machine.on().await?;
            ways.insert(machine, way);
        }
        let systems = systems(&plane.admin()).await.map_err(|error| error.context(Machine::last_errors()))?;
        let rigs = Rigs::new().await?;
        let switches = switches(&plane, &rigs, &systems)?;
        Ok(Self {
            mode: way,
            extra,
            ours: Vec::new(),
            kcm: Some(kcm),
            _scheduler: scheduler,
            ways,
            slow: Vec::new(),
            plane,
            switches,
            controllers: Vec::new(),
            rigs,
            account: None,
            agents: None,
            registry: None,
            watch: Watch::begin(),
        })
    }

    /// What is to be kept, and how; until all is calm.
    pub(crate) async fn serve(&mut self) -> Result<()> {
        if self.mode != Mode::Plain {
            self.device("{{.Node.Name}}").await?;
            self.apply(&objects::policy(&[], &["bmc"])).await?;
        }
        self.plane.namespace(NAMESPACE).await?;
        for set in objects::stateful_sets(self.extra) {
            self.apply(&set).await?;
        }
        self.until_calm(PATIENCE).await
    }

    pub(crate) async fn start_kcm(&mut self) -> Result<()> {
        if self.kcm.is_none() {
            self.kcm = Some(start_kcm(&self.plane, self.mode).await?);
        }
        Ok(())
    }

    /// The power of each node, by the system of this name.
    pub(crate) async fn device(&mut self, system: &str) -> Result<()> {
        let device = objects::device(SWITCHES, &self.rigs.authority()?, system);
        // One that was found to lie is trusted again only as a new object.
        let delete = ["delete", "fencedevice", "bmc", "-n", "pod-safety", "--ignore-not-found"];
        self.plane.kubectl(&delete).await?.text()?;
        self.apply(&objects::secret()).await?;
        self.controllers.clear();
        self.apply(&device).await
    }

    /// The same power, by IPMI and a fence agent.
    pub(crate) async fn device_by_ipmi(&mut self) -> Result<()> {
        let chassis = machine::scripts().join("chassis.sh");
        let mut ports = Vec::new();
        for machine in Machine::ALL {
            let command = format!("{} {}", chassis.display(), machine.name());
            let controller = self.rigs.ipmi_by(&machine.name(), &command).await?;
            ports.push((machine.name(), controller.port()));
            self.controllers.push(controller);
        }
        let delete = ["delete", "fencedevice", "bmc", "-n", "pod-safety"];
        self.plane.kubectl(&delete).await?.text()?;
        self.apply(&objects::device_by_ipmi(&ports)).await
    }

    pub(crate) async fn apply(&self, object: &Value) -> Result<()> {
        apply(&self.plane, &object.to_string()).await
    }

    pub(crate) async fn pod(&self, name: &str) -> Result<Option<Pod>> {
        Ok(Api::<Pod>::namespaced(self.plane.admin(), NAMESPACE).get_opt(name).await?)
    }

    pub(crate) async fn nodes(&self) -> Result<Vec<Node>> {
        Ok(Api::<Node>::all(self.plane.admin()).list(&ListParams::default()).await?.items)
    }

    /// The machine that this identity was last seen to write on.
    pub(crate) fn machine_of(&self, identity: &str) -> Result<Machine> {
        let line = watch::last_line(identity).context("it never wrote")?;
        Machine::from_name(&line.node)
    }

    /// Whether every identity is served: its pod is Ready on a Ready node and stays, and it is the one that writes; or why not.
    /// An error: it cannot be said.
    pub(crate) async fn served(&self) -> Result<Result<(), String>> {
        let nodes = self.nodes().await?;
        let now = watch::uptime()?;
        for identity in IDENTITIES {
            let pod = self.pod(identity).await?;
            if let Err(why) =
                pod.map_or_else(|| Err(format!("{identity} is not there")), |pod| served(identity, &pod, &nodes, now))
            {
                return Ok(Err(why));
            }
        }
        Ok(Ok(()))
    }

    /// Every identity is served, every node is Ready without a taint, no incident is open.
    pub(crate) async fn calm(&self) -> Result<(), String> {
        self.served().await.map_err(|error| error.to_string())??;
        let nodes = self.nodes().await.map_err(|error| error.to_string())?;
        for node in &nodes {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
            if let Some(taint) = taints.and_then(|taints| taints.first()) {
                return Err(format!(
                    "{} has the taint {}",
                    node.metadata.name.as_deref().unwrap_or_default(),
                    taint.key
                ));
            }
            if !ready(node) {
                return Err(format!("{} is not Ready", node.metadata.name.as_deref().unwrap_or_default()));
            }
        }
        if nodes.len() != Machine::ALL.len() {
            return Err(format!("there are {} nodes", nodes.len()));
        }
        let open = self.incidents().await.map_err(|error| error.to_string())?.into_iter().find(|fence| {
            !["Done", "Cancelled", "Superseded"].contains(&fence["status"]["phase"].as_str().unwrap_or_default())
        });
        open.map_or(Ok(()), |fence| Err(format!("a NodeFence is {}", fence["status"]["phase"])))
    }

    pub(crate) async fn until_calm(&self, within: Duration) -> Result<()> {
        Ok(eventually("all is calm", within, async || self.calm().await).await?)
    }

    /// The NodeFences, if there can be any.
    pub(crate) async fn incidents(&self) -> Result<Vec<Value>> {
        if self.mode == Mode::Plain {
            return Ok(Vec::new());
        }
        let text = self.plane.kubectl(&["get", "nodefences", "-o", "json"]).await?.text()?;
        let list: Value = serde_json::from_str(&text)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// What ours says of an identity that is not released, to who asks too, and of incidents that do not go on.
    pub(crate) async fn pod_safety_messages(&self, identity: &str) -> Result<Vec<String>> {
        let mut said = Vec::new();
        for ours in &self.ours {
            let holds = ours.holds(identity).await.unwrap_or_default();
            said.extend(holds.iter().filter_map(|hold| Some(hold["reason"].as_str()?.to_owned())));
        }
        if !self.ours.is_empty() {
            let explain = ["explain", "pod", identity, "-n", NAMESPACE];
            let explained = self.plane.start_pod_safety_once(&self.plane.admin_kubeconfig(), &explain).await?;
            said.extend(verdict(&explained.stdout));
        }
        for fence in self.incidents().await? {
            let (phase, status) = (fence["status"]["phase"].as_str().unwrap_or_default(), &fence["status"]);
            if ["Done", "Cancelled", "Superseded"].contains(&phase) {
                continue;
            }
            let gates = status["gates"].as_array().into_iter().flatten();
            let held = gates.filter(|gate| gate["holds"] == true).filter_map(|gate| gate["name"].as_str());
            let message = status["message"].as_str().unwrap_or_default();
            said.push(format!("{}: {message}", [vec![phase], held.collect()].concat().join(" ")));
        }
        said.sort();
        said.dedup();
        Ok(said)
    }
}

/// The line of `explain` with its verdict.
pub(crate) fn verdict(explained: &str) -> Option<String> {
    explained.lines().find(|line| line.starts_with(['✔', '!', '✖'])).map(str::to_owned)
}

fn switches(plane: &ControlPlane, rigs: &Rigs, systems: &[(String, String)]) -> Result<Program> {
    let machines = rigs.file("machines");
    let lines: Vec<_> = systems.iter().map(|(name, uuid)| format!("{name} {uuid}\n")).collect();
    std::fs::write(&machines, lines.concat())?;
    let scripts = machine::scripts();
    let service = scripts.join("../../kind/bmc.py");
    let (certificate, key) = rigs.certificate();
    let (address, port) = SWITCHES.split_once(':').context("no port")?;
    let paths = [machines, scripts.join("switch.sh")];
    let args =
        [service.as_os_str(), address.as_ref(), port.as_ref(), certificate.as_ref(), key.as_ref(), PASSWORD.as_ref()];
    let args = args.into_iter().chain(paths.iter().map(|path| path.as_os_str()));
    Ok(plane.program("switches", std::path::Path::new("python3"), args, &[])?)
}

fn served(identity: &str, pod: &Pod, nodes: &[Node], now: f64) -> Result<(), String> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Err(format!("{identity} is to end"));
    }
    if !pod_ready(pod) {
        return Err(format!("{identity} is not Ready"));
    }
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    if !nodes.iter().any(|one| one.metadata.name.as_deref() == Some(node) && ready(one)) {
        return Err(format!("{identity} is on {node}, which is not Ready"));
    }
    let line = watch::last_line(identity).ok_or_else(|| format!("{identity} never wrote"))?;
    if Some(&line.uid) != pod.metadata.uid.as_ref() || now - line.at > FRESH {
        return Err(format!("{identity} does not write"));
    }
    Ok(())
}

async fn start_kcm(plane: &ControlPlane, way: Mode) -> Result<Component> {
    let args = ["--node-monitor-grace-period=8s", "--node-monitor-period=1s"];
    let args = if way == Mode::Replace { &[][..] } else { &args[..] };
    Ok(plane.kube_controller_manager(way.kcm_controllers(), args).await?)
}

/// What is shipped, and the policies of the chart in Deny.
async fn install(plane: &ControlPlane, extra: Extra) -> Result<PathBuf> {
    let account = plane.install_pod_safety().await?;
    let chart = chart();
    let chart = chart.to_string_lossy();
    let evictions = format!("--set=controllers.eviction.enabled={}", extra == Extra::Evictions);
    let deny = "--set=admissionPolicies.action=Deny";
    let args = ["template", "pod-safety", &chart, "--namespace=pod-safety", deny, &evictions];
    let all = helm(&args).await?.text()?;
    // Policies and their bindings.
    let policies: Vec<_> =
        all.split("\n---").filter(|object| object.contains("\nkind: ValidatingAdmissionPolicy")).collect();
    ensure!(!policies.is_empty(), "the chart has no policies");
    apply(plane, &policies.join("\n---")).await?;
    Ok(account)
}

/// A busy machine may not end a TLS handshake in kubectl's ten seconds: it is tried again.
pub(crate) async fn apply(plane: &ControlPlane, objects: &str) -> Result<()> {
    let applied = async || {
        let output = plane.kubectl_with(&["apply", "-f", "-"], objects).await;
        output.and_then(pod_safety_control_plane::Output::text).map_err(|error| error.to_string())
    };
    until("objects are applied", applied).await?;
    Ok(())
}

/// The names of the machines and what their firmware calls them, once all are Ready.
async fn systems(api: &Client) -> Result<Vec<(String, String)>> {
    let nodes = Api::<Node>::all(api.clone());
    let found = eventually("three nodes are Ready", PATIENCE, async || {
        let list = nodes.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let count = list.iter().filter(|node| ready(node)).count();
        check_that(count == Machine::ALL.len(), format!("{count} of {}", list.len())).map(|()| list)
    })
    .await?;
    let named = found.into_iter().filter_map(|node| Some((node.metadata.name?, node.status?.node_info?.system_uuid)));
    Ok(named.collect())
}

pub(crate) fn ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    condition(conditions.into_iter().flatten().map(|one| (&one.type_, &one.status)))
}

pub(crate) fn pod_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    condition(conditions.into_iter().flatten().map(|one| (&one.type_, &one.status)))
}

fn condition<'a>(mut all: impl Iterator<Item = (&'a String, &'a String)>) -> bool {
    all.any(|(kind, status)| kind == "Ready" && status == "True")
}
