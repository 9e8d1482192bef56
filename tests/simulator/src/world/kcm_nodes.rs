//! The baseline's node lifecycle, as kube-controller-manager 1.36 does it: a node that does not report is set to
//! Unknown and tainted after 50 s, one that reports that it is not ready is tainted for that. Its taint eviction
//! (`kcm_taints`) runs with it, or pod-safety's replaces it (`--controllers=*,-taint-eviction-controller`).
//!
//! Left out: zones and their rates beyond one node in ten seconds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::host::Host;
use super::kcm::{self, request_as};
use super::kcm_taints::Taints;
use super::run::World;
use super::{stamp, str_at, value_at};
use crate::checker::Tone;

/// `--node-monitor-period`.
const MONITOR_INTERVAL: Duration = Duration::from_secs(5);
/// `--node-monitor-grace-period`.
const GRACE: Duration = Duration::from_secs(50);
/// `--node-eviction-rate`: the time from one node to the next.
const TAINT_INTERVAL: Duration = Duration::from_secs(10);
/// Its name as a caller when it runs beside processes under test: the checker ignores it.
const BESIDE_OURS: &str = "node-lifecycle";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The controller with its informers and its state.
pub(crate) struct Nodes {
    world: Arc<World>,
    /// Each Lease's last renewal, and when the controller saw it.
    probes: BTreeMap<String, (String, Duration)>,
    tainted_at: Option<Duration>,
    caller: &'static str,
}

impl Nodes {
    /// Starts it with its own taint eviction.
    pub(crate) fn start(world: &Arc<World>, host: &Arc<Host>) {
        Self::start_with(world, host, kcm::CALLER, Some(Taints::new(world)));
    }

    /// Starts it without taint eviction: another controller evicts.
    pub(crate) fn start_alone(world: &Arc<World>, host: &Arc<Host>) {
        Self::start_with(world, host, BESIDE_OURS, None);
    }

    fn start_with(world: &Arc<World>, host: &Arc<Host>, caller: &'static str, mut taints: Option<Taints>) {
        let mut nodes = Self { world: Arc::clone(world), probes: BTreeMap::new(), tainted_at: None, caller };
        let env = host.env();
        host.start_task("kcm-nodes", async move {
            loop {
                nodes.monitor().await;
                if let Some(taints) = &mut taints {
                    taints.evict().await;
                }
                env.sleep(MONITOR_INTERVAL).await;
            }
        });
    }

    async fn monitor(&mut self) {
        let Some(server) = self.world.servers.get(0) else { return };
        let now = self.world.checker.now();
        let nodes = server.cached("Node");
        note_heartbeats(&mut self.probes, &server.cached("Lease"), &nodes, now);
        for node in nodes {
            let name = str_at(&node, "/metadata/name");
            let (_, seen) = self.probes.entry(name.to_owned()).or_insert_with(|| (String::new(), now));
            let unreachable = now.saturating_sub(*seen) > GRACE;
            let path = format!("/api/v1/nodes/{name}");
            let ready = ready(&node);
            // A condition that the kubelet wrote stays; in these worlds few kubelets write it again after they come
            // back.
            let desired = match (unreachable, ready) {
                (true, _) => "Unknown",
                (false, "False") => "False",
                (false, _) => "True",
            };
            if ready != desired {
                let reason = if unreachable { "NodeStatusUnknown" } else { "KubeletReady" };
                let condition = json!({ "type": "Ready", "status": desired, "reason": reason });
                let status = json!({ "status": { "conditions": [condition] } });
                request_as(&self.world, self.caller, "PATCH", &format!("{path}/status"), Some(status)).await;
            }
            let key = match desired {
                "Unknown" => Some(UNREACHABLE),
                "False" => Some(NOT_READY),
                _ => None,
            };
            let rested = self.tainted_at.is_none_or(|at| now.saturating_sub(at) >= TAINT_INTERVAL);
            match (key, tainted_with(&node)) {
                (Some(key), None) if rested => {
                    self.tainted_at = Some(now);
                    self.set_taints(&node, &path, Some(key)).await;
                    let caller = self.caller;
                    self.world.checker.announce_with_detail(
                        Tone::Loss,
                        format!("{caller} taints {name}"),
                        format!("kube-controller-manager taints {name} NoExecute: its pods are to be deleted"),
                    );
                }
                // `SwapNodeControllerTaint`: no pod gets more time by that.
                (Some(key), Some(other)) if key != other => self.set_taints(&node, &path, Some(key)).await,
                (None, Some(_)) => self.set_taints(&node, &path, None).await,
                (Some(_), _) | (None, None) => {}
            }
        }
    }

    /// Names the resourceVersion that was read, as upstream.
    async fn set_taints(&self, node: &Value, path: &str, key: Option<&str>) {
        let all = node.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut taints: Vec<Value> = all.into_iter().filter(|taint| !is_of_loss(taint)).collect();
        if let Some(key) = key {
            let added = stamp(self.world.checker.now());
            taints.push(json!({ "key": key, "effect": "NoExecute", "timeAdded": added }));
        }
        let body = json!([
            { "op": "test", "path": "/metadata/resourceVersion", "value": str_at(node, "/metadata/resourceVersion") },
            { "op": "add", "path": "/spec/taints", "value": taints },
        ]);
        request_as(&self.world, self.caller, "PATCH", path, Some(body)).await;
    }
}

/// Records when each node's heartbeat last changed: the renewal of its Lease, or its status (`tryUpdateNodeHealth`).
pub(super) fn note_heartbeats(
    known: &mut BTreeMap<String, (String, Duration)>,
    leases: &[Arc<Value>],
    nodes: &[Arc<Value>],
    now: Duration,
) {
    let renewals = leases.iter().map(|lease| (str_at(lease, "/metadata/name"), str_at(lease, "/spec/renewTime")));
    let mut heartbeats: BTreeMap<&str, String> = renewals.map(|(name, at)| (name, at.to_owned())).collect();
    for node in nodes {
        let reported = value_at(node, "/status/conditions").and_then(Value::as_array).into_iter().flatten();
        let reported = reported.into_iter().find(|one| str_at(one, "/type") == "Ready");
        let reported = reported.map_or("", |one| str_at(one, "/lastHeartbeatTime"));
        heartbeats.entry(str_at(node, "/metadata/name")).or_default().push_str(reported);
    }
    for (name, beat) in heartbeats {
        // A Lease that was garbage collected leaves only the status, which is no new heartbeat.
        if !beat.is_empty() && known.get(name).is_none_or(|(before, _)| !before.ends_with(&beat)) {
            known.insert(name.to_owned(), (beat, now));
        }
    }
}

/// The status of the Ready condition.
pub(crate) fn ready(node: &Value) -> &str {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().find(|one| str_at(one, "/type") == "Ready").map_or("", |one| str_at(one, "/status"))
}

/// Whether this is one of the taints by which the pods of a lost node are evicted.
fn is_of_loss(taint: &Value) -> bool {
    matches!(str_at(taint, "/key"), UNREACHABLE | NOT_READY) && str_at(taint, "/effect") == "NoExecute"
}

/// Which of the two taints a node has.
fn tainted_with(node: &Value) -> Option<&'static str> {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
    let of_loss = taints.filter(|taint| is_of_loss(taint)).map(|taint| str_at(taint, "/key"));
    of_loss.map(|key| if key == NOT_READY { NOT_READY } else { UNREACHABLE }).next()
}

pub(super) fn is_tainted(node: &Value) -> bool {
    tainted_with(node).is_some()
}
