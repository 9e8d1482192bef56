//! Kills the leader (SIGKILL) right after steps of an incident: machines are lost one after another, and with each the leader is killed
//! after another step. Every incident ends, no machine is switched off twice, and no pod is released without
//! evidence.
//!
//! The agent is fence_dummy with a wrapper script that records its start and end, and waits.

use pod_safety_control_plane::PATIENCE;
use pod_safety_control_plane::objects::{NodeExt as _, PodExt as _};
use tokio::sync::{Mutex, watch};

use super::*;

/// How many machines are lost in the thorough test, which covers all steps.
const THOROUGH: usize = 20;
/// The steps of the short test: between these a machine could be switched off twice, or a pod be released too early. In the simulator a
/// leader dies at every write of an incident.
const SHORT: [&str; 5] =
    ["off is written down", "the agent runs", "the agent ended", "there is evidence", "the taint is there"];
/// How many machines are never lost.
const SPARE_NODES: usize = 3;
const REPLICAS: usize = 3;
/// The time between the losses: about as long as a failover takes.
const KILL_INTERVAL: Duration = Duration::from_secs(4);
/// The time between two polls: no step lasts less than the second of the agent.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The steps after which a process is killed, in order.
const STEPS: [&str; 14] = [
    "the incident is there",
    "its gates are open",
    "off is written down",
    "the agent runs",
    "the agent ended",
    "its outcome is written down",
    "two looks are written down",
    "there is evidence",
    "it is fenced",
    "the taint is there",
    "its pod is gone",
    "on is written down",
    "the machine has power",
    "the machine is back",
];

/// The observable state of one machine.
#[derive(Clone, Default)]
struct MachineView {
    node_fence: Option<Value>,
    proved: bool,
    tainted: bool,
    pod: bool,
    power: bool,
    boot: u32,
    agent: Vec<Run>,
}

/// One run of the agent that switches a machine.
#[derive(Clone, Debug)]
struct Run {
    act: String,
    began: f64,
    ended: Option<f64>,
}

impl MachineView {
    fn attempts(&self, act: &str) -> Vec<&Value> {
        let all = self.node_fence.as_ref().and_then(|fence| fence["status"]["attempts"].as_array());
        all.into_iter().flatten().filter(|attempt| attempt["act"] == act).collect()
    }

    fn phase(&self) -> &str {
        self.node_fence.as_ref().and_then(|fence| fence["status"]["phase"].as_str()).unwrap_or_default()
    }

    /// With a leader that died in between, some steps may be skipped.
    fn has_passed(&self, step: &str) -> bool {
        STEPS.iter().skip_while(|one| **one != step).any(|step| self.shows(step))
    }

    fn shows(&self, step: &str) -> bool {
        let off = self.attempts("off");
        let agent = self.agent.iter().find(|run| run.act == "off");
        match step {
            "the incident is there" => self.node_fence.is_some(),
            "its gates are open" => !matches!(self.phase(), "" | "Pending"),
            "off is written down" => !off.is_empty(),
            "the agent runs" => agent.is_some(),
            "the agent ended" => agent.is_some_and(|run| run.ended.is_some()),
            "its outcome is written down" => off.iter().any(|attempt| attempt["outcome"].is_string()),
            "two looks are written down" => off.iter().any(|attempt| attempt["verified"].is_object()),
            "there is evidence" => self.proved,
            "it is fenced" => self.node_fence.as_ref().is_some_and(|fence| fence["status"]["evidence"].is_string()),
            "the taint is there" => self.tainted,
            "its pod is gone" => !self.pod,
            "on is written down" => !self.attempts("on").is_empty(),
            "the machine has power" => self.boot > 1,
            _ => self.boot > 1 && self.power && !self.tainted,
        }
    }
}

/// A `fence_dummy` for this folder.
fn agent(agents: &Path, folder: &Path) {
    let script = format!(
        r#"#!/bin/sh
input=$(cat)
say() {{ printf '%s\n' "$input" | sed -n "s/^$1=//p" | tail -n 1; }}
file=$(say status_file)
note() {{ echo "$1 $(say action) $(basename "$file") $(date +%s.%N)" >>"{folder}/log"; }}
case $(say action) in
on|off)
    note began
    sleep 0.7
    # A switch switches at once, whenever this is killed.
    cp "$file" "$file.$$"
    printf '%s\n' "$input" | sed "s|^status_file=.*|&.$$|" | "{agents}/fence_dummy"
    code=$?
    mv "$file.$$" "$file"
    sleep 0.3
    note ended
    exit $code ;;
esac
printf '%s\n' "$input" | "{agents}/fence_dummy"
"#,
        agents = agents.display(),
        folder = folder.display(),
    );
    let path = folder.join("fence_dummy");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

/// The log of the agent, by machine.
fn runs(folder: &Path) -> BTreeMap<String, Vec<Run>> {
    let text = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    let mut runs: BTreeMap<String, Vec<Run>> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [what, act, machine, at]: [&str; 4] = words.try_into().unwrap();
        let (at, of) = (at.parse().unwrap(), runs.entry(machine.to_owned()).or_default());
        if what == "began" {
            of.push(Run { act: act.to_owned(), began: at, ended: None });
        } else if let Some(run) = of.iter_mut().rev().find(|run| run.act == act) {
            run.ended = Some(at);
        }
    }
    runs
}

/// An API server that fills its watch cache answers 429.
async fn items(api: &Client, path: &str) -> Vec<Value> {
    loop {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        if let Ok(list) = api.request::<Value>(request).await {
            return list["items"].as_array().cloned().unwrap_or_default();
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Reads everything, indefinitely. Pods are read before evidence: if a pod is missing, its evidence must exist already.
async fn watch_machines(
    api: Client,
    machines: Vec<Arc<Machine>>,
    folder: PathBuf,
    seen: watch::Sender<BTreeMap<String, MachineView>>,
) {
    loop {
        let pods = items(&api, &format!("/api/v1/namespaces/{NAMESPACE}/pods")).await;
        let powers: Vec<_> = machines.iter().map(|machine| machine.has_power()).collect();
        let proofs = items(&api, "/apis/pod-safety.dev/v1alpha1/fenceevidences").await;
        let fences = items(&api, "/apis/pod-safety.dev/v1alpha1/nodefences").await;
        let nodes = items(&api, "/api/v1/nodes").await;
        let mut runs = runs(&folder);
        let of = |list: &[Value], name: &str| list.iter().find(|one| one["spec"]["node"]["name"] == name).cloned();
        let sights = machines.iter().zip(powers).map(|(machine, power)| {
            let name = &machine.name;
            let node = nodes.iter().find(|node| node["metadata"]["name"] == **name);
            let taints = node.and_then(|node| node["spec"]["taints"].as_array()).into_iter().flatten();
            let sight = MachineView {
                node_fence: of(&fences, name),
                proved: of(&proofs, name).is_some(),
                tainted: taints.into_iter().any(|taint| taint["key"] == "node.kubernetes.io/out-of-service"),
                pod: pods.iter().any(|pod| pod["spec"]["nodeName"] == **name),
                power,
                boot: machine.boots(),
                agent: runs.remove(name).unwrap_or_default(),
            };
            (name.clone(), sight)
        });
        seen.send_replace(sights.collect());
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Three pod-safety processes; a killed one is restarted immediately.
struct Replicas {
    plane: Arc<ControlPlane>,
    kubeconfig: PathBuf,
    agents: String,
    all: Vec<PodSafety>,
    kills: Vec<(String, String)>,
}

impl Replicas {
    async fn start(&self, name: &str) -> PodSafety {
        let args = ["--controllers=pod-gc,fencing", &self.agents, "--allow-fence-dummy"];
        let args = args.into_iter().chain(SHORT_LEADER_LEASE);
        self.plane.pod_safety(name, &self.kubeconfig, args).await.unwrap()
    }

    async fn leader(&self) -> Option<usize> {
        for (index, one) in self.all.iter().enumerate() {
            let leads = one.metric("leader_election_master_status", &[("name", "pod-safety")]).await;
            if leads.is_ok_and(|leads| leads == 1.0) {
                return Some(index);
            }
        }
        None
    }

    async fn kill_leader(&mut self, machine: &str, step: &str) {
        let index = wait_until("somebody leads", async || self.leader().await.ok_or("nobody does")).await;
        self.all[index].kill_9().unwrap();
        let name = format!("pod-safety-{}", REPLICAS + self.kills.len());
        self.all[index] = self.start(&name).await;
        self.kills.push((machine.to_owned(), step.to_owned()));
    }
}

pub(super) fn policy(rounds: usize) -> Value {
    json!({
        "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FencePolicy", "metadata": { "name": "all" },
        "spec": {
            "unhealthy": { "silentSeconds": 10 },
            "levels": [{ "name": "power", "devices": [{ "namespace": "pod-safety", "name": "all" }], "attempts": 2 }],
            "brakes": {
                "cooldownSeconds": 0, "maxConcurrent": rounds, "maxUnhealthyPercent": 100, "maxUnhealthyZonePercent": 100,
            },
            "recovery": "PowerOn",
        },
    })
}

pub(super) fn device(folder: &Path) -> Value {
    let spec = json!({
        "driver": "Agent", "agent": "fence_dummy", "monitorSeconds": 0,
        "parameters": { "status_file": format!("{}/{{{{.Node.Name}}}}", folder.display()) },
        "timeouts": { "powerOff": "15s", "powerOn": "15s", "status": "8s" },
    });
    super::device("all", spec)
}

/// A StatefulSet pod is deleted gracefully, on a machine that does not report any more.
async fn lose(api: &Client, machine: &Machine) {
    machine.cut_off().await;
    let pod = format!("db-{}", machine.name);
    observe::delete_pod(api, NAMESPACE, &pod, false).await.unwrap();
    let unreachable = objects::node(&machine.name).with_ready("Unknown").status.unwrap();
    let only = k8s_openapi::api::core::v1::NodeStatus { conditions: unreachable.conditions, ..Default::default() };
    objects::set_node_status(api, &machine.name, &only).await.unwrap();
}

struct Fixture {
    plane: Arc<ControlPlane>,
    /// Owns the files of the power switches.
    _rigs: Rigs,
    machines: Vec<Arc<Machine>>,
    replicas: Mutex<Replicas>,
    views: watch::Receiver<BTreeMap<String, MachineView>>,
    _running: JoinSet<()>,
}

async fn fixture(rounds: usize) -> Fixture {
    let rigs = Rigs::new().await.unwrap();
    let folder = rigs.file("");
    agent(&rigs.agents(), &folder);
    let plane = Arc::new(ControlPlane::start(Options::default()).await.unwrap());
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    plane.namespace(NAMESPACE).await.unwrap();
    let (mut running, mut machines) = (JoinSet::new(), Vec::new());
    for number in 0..rounds + SPARE_NODES {
        let name = format!("m{number}");
        std::fs::write(rigs.file(&name), "on").unwrap();
        let machine = Machine::of_file(&name, rigs.file(&name), "on");
        running.spawn(Arc::clone(&machine).run_kubelet(plane.admin()));
        let pod = objects::pod(NAMESPACE, &format!("db-{name}")).on_node(&name);
        let pod = pod.owned_by_stateful_set("db", "uid-of-db").with_phase("Running");
        objects::create_pod(&plane.admin(), &pod).await.unwrap();
        machines.push(machine);
    }
    apply(&plane, &device(&folder)).await;
    apply(&plane, &policy(rounds)).await;
    let agents = format!("--fence-agents-path={}", folder.display());
    let mut replicas = Replicas { plane: Arc::clone(&plane), kubeconfig, agents, all: Vec::new(), kills: Vec::new() };
    for number in 0..REPLICAS {
        let one = replicas.start(&format!("pod-safety-{number}")).await;
        replicas.all.push(one);
    }
    let (sees, sights) = watch::channel(BTreeMap::new());
    running.spawn(watch_machines(plane.admin(), machines.clone(), folder, sees));
    Fixture { plane, _rigs: rigs, machines, replicas: Mutex::new(replicas), views: sights, _running: running }
}

impl Fixture {
    async fn until_view(&self, machine: &str, what: &str, holds: impl Fn(&MachineView) -> bool) -> MachineView {
        let mut sights = self.views.clone();
        let view = sights.wait_for(|all| all.get(machine).is_some_and(&holds));
        let view = tokio::time::timeout(PATIENCE, view).await.map(|view| view.unwrap()[machine].clone());
        assert!(view.is_ok(), "{machine}, until {what}: {:#?}", self.views.borrow()[machine].node_fence);
        view.unwrap()
    }

    async fn round(&self, number: usize, step: &str) -> MachineView {
        let machine = &self.machines[number];
        tokio::time::sleep(KILL_INTERVAL * u32::try_from(number).unwrap()).await;
        lose(&self.plane.admin(), machine).await;
        self.until_view(&machine.name, step, |sight| sight.has_passed(step)).await;
        self.replicas.lock().await.kill_leader(&machine.name, step).await;
        let ended = |sight: &MachineView| matches!(sight.phase(), "Done" | "AwaitingOperator");
        self.until_view(&machine.name, "its incident ends", ended).await
    }

    /// No pod is gone while its machine still has the power that it had, or without evidence.
    async fn no_pod_is_released_without_evidence(&self) {
        let (mut sights, mut gone) = (self.views.clone(), BTreeSet::new());
        while sights.changed().await.is_ok() {
            for (machine, sight) in sights.borrow_and_update().iter().filter(|(_, sight)| !sight.pod) {
                assert!(sight.proved, "{machine}: its pod went without evidence");
                if gone.insert(machine.clone()) {
                    assert!(!sight.power, "{machine}: its pod went while it ran");
                }
            }
        }
    }
}

/// Each run of the agent belongs to an attempt that was recorded before it, and has ended when the attempt is recorded as ended; there are
/// no more runs than attempts; and no attempt is recorded while the last one may still take effect.
fn each_power_off_was_recorded_and_none_repeated(machine: &str, sight: &MachineView) {
    let seconds = |text: &Value| text.as_str().unwrap().parse::<Timestamp>().unwrap().as_duration().as_secs_f64();
    for act in ["off", "on"] {
        let runs: Vec<_> = sight.agent.iter().filter(|run| run.act == act).collect();
        let attempts = sight.attempts(act);
        let mut windows = Vec::new();
        for attempt in &attempts {
            let at = seconds(&attempt["at"]);
            windows.push((at, at + attempt["withinSeconds"].as_f64().unwrap(), attempt["outcome"].is_string()));
        }
        let say = || format!("{machine}: {runs:?} {attempts:#?}");
        let mut used = BTreeSet::new();
        for run in &runs {
            let fits = |(from, to, _): &(f64, f64, bool)| *from <= run.began && run.ended.unwrap_or(run.began) <= *to;
            let index = windows.iter().rposition(fits);
            assert!(index.is_some_and(|index| used.insert(index)), "a shot of its own each: {}", say());
        }
        for pair in windows.windows(2) {
            assert!(pair[0].2 || pair[0].1 <= pair[1].0, "the last could still land: {}", say());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_or_agent_at_any_step_leaves_one_power_off_and_no_unproved_release() {
    leaders_die(&SHORT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_or_agent_at_any_step_leaves_one_power_off_thorough() {
    let steps: Vec<&str> = STEPS.into_iter().cycle().take(THOROUGH).collect();
    leaders_die(&steps).await;
}

async fn leaders_die(at: &[&str]) {
    let rounds = at.len();
    let fixture = fixture(rounds).await;
    let all = at.iter().enumerate().map(|(number, step)| fixture.round(number, step));
    let all = futures::future::join_all(all);
    let ended = tokio::select! {
        biased;
        ended = all => ended,
        () = fixture.no_pod_is_released_without_evidence() => unreachable!("it looks for ever"),
    };
    let mut phases: BTreeMap<&str, usize> = BTreeMap::new();
    for (machine, sight) in fixture.machines.iter().zip(&ended) {
        each_power_off_was_recorded_and_none_repeated(&machine.name, sight);
        *phases.entry(sight.phase()).or_default() += 1;
    }
    let replicas = fixture.replicas.lock().await;
    assert_eq!(replicas.kills.len(), rounds);
    let killed: BTreeSet<_> = replicas.kills.iter().map(|(_, step)| &**step).collect();
    assert_eq!(killed, at.iter().copied().collect());
    println!("{rounds} leaders killed: {phases:?}");
    assert_eq!(phases.get("Done"), Some(&rounds), "its device works, so none waits for a person: {phases:?}");
}
