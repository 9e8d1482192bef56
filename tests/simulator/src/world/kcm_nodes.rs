//! The baseline's node lifecycle and taint eviction, as kube-controller-manager 1.36
//! does them: a silent node is tainted after 50 s, and its pods are deleted 300 s
//! later, gracefully and by name (hole H-2).
//!
//! Left out: zones and their rates beyond one node in ten seconds, and the swaps
//! between `not-ready` and `unreachable`, which no kubelet here asks for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::host::Host;
use super::kcm::{CALLER, ask_as_kcm};
use super::run::World;
use super::word;

/// `--node-monitor-period`.
const MONITOR_EACH: Duration = Duration::from_secs(5);
/// `--node-monitor-grace-period`.
const GRACE: Duration = Duration::from_secs(50);
/// `--node-eviction-rate`: one node in so long.
const TAINT_EACH: Duration = Duration::from_secs(10);
/// What `DefaultTolerationSeconds` gives every pod.
const TOLERATED: Duration = Duration::from_secs(300);
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The two controllers with their informers and what they remember.
pub(crate) struct Nodes {
    world: Arc<World>,
    /// Each Lease's last renewal, and when it was seen.
    probes: BTreeMap<String, (String, Duration)>,
    tainted_at: Option<Duration>,
    /// When pods are to be deleted, by namespace and name; the UID is for the referee
    /// only, upstream does not know it any more.
    timers: BTreeMap<(String, String), (Duration, String)>,
}

impl Nodes {
    pub(crate) fn start(world: &Arc<World>, host: &Arc<Host>) {
        let (probes, timers) = (BTreeMap::new(), BTreeMap::new());
        let mut nodes = Self { world: Arc::clone(world), probes, tainted_at: None, timers };
        let env = host.env();
        host.env().spawner.spawn(
            "kcm-nodes",
            Box::pin(async move {
                loop {
                    nodes.monitor().await;
                    nodes.evict().await;
                    env.sleep(MONITOR_EACH).await;
                }
            }),
        );
    }

    async fn monitor(&mut self) {
        let Some(server) = self.world.servers.get(0) else { return };
        let now = self.world.checker.now();
        for lease in server.cached("Lease") {
            let (name, renewed) = (word(&lease, "/metadata/name"), word(&lease, "/spec/renewTime"));
            if self.probes.get(name).is_none_or(|(known, _)| known != renewed) {
                self.probes.insert(name.to_owned(), (renewed.to_owned(), now));
            }
        }
        for node in server.cached("Node") {
            let name = word(&node, "/metadata/name");
            let (_, seen) = self.probes.entry(name.to_owned()).or_insert_with(|| (String::new(), now));
            let silent = now.saturating_sub(*seen) > GRACE;
            let path = format!("/api/v1/nodes/{name}");
            let ready = ready(&node);
            let wanted = if silent { "Unknown" } else { "True" };
            if ready != wanted {
                let reason = if silent { "NodeStatusUnknown" } else { "KubeletReady" };
                let condition = json!({ "type": "Ready", "status": wanted, "reason": reason });
                let status = json!({ "status": { "conditions": [condition] } });
                ask_as_kcm(&self.world, "PATCH", &format!("{path}/status"), Some(status)).await;
            }
            let rested = self.tainted_at.is_none_or(|at| now.saturating_sub(at) >= TAINT_EACH);
            if silent && !is_tainted(&node) && rested {
                self.tainted_at = Some(now);
                self.set_taints(&node, &path, true).await;
                self.world.checker.note(format!("kcm taints {name}"));
            } else if !silent && is_tainted(&node) {
                self.set_taints(&node, &path, false).await;
            }
        }
    }

    /// With the version of what was read, as upstream.
    async fn set_taints(&self, node: &Value, path: &str, tainted: bool) {
        let all = node.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut taints: Vec<Value> =
            all.into_iter().filter(|taint| word(taint, "/key") != UNREACHABLE).collect();
        if tainted {
            taints.push(json!({ "key": UNREACHABLE, "effect": "NoExecute" }));
        }
        let body = json!([
            { "op": "test", "path": "/metadata/resourceVersion", "value": word(node, "/metadata/resourceVersion") },
            { "op": "add", "path": "/spec/taints", "value": taints },
        ]);
        ask_as_kcm(&self.world, "PATCH", path, Some(body)).await;
    }

    /// A timer that runs is left alone; one whose node is well again is not.
    async fn evict(&mut self) {
        let Some(server) = self.world.servers.get(0) else { return };
        let now = self.world.checker.now();
        let tainted = server.cached_that("Node", is_tainted);
        let mut timers = BTreeMap::new();
        for pod in server.cached("Pod") {
            let node = word(&pod, "/spec/nodeName");
            if tainted.iter().any(|tainted| word(tainted, "/metadata/name") == node) {
                let key =
                    (word(&pod, "/metadata/namespace").to_owned(), word(&pod, "/metadata/name").to_owned());
                let timer = self.timers.get(&key).cloned();
                let new = || (now + TOLERATED, word(&pod, "/metadata/uid").to_owned());
                timers.insert(key, timer.unwrap_or_else(new));
            }
        }
        self.timers = timers;
        let due = self.timers.iter_mut().filter(|(_, (due, _))| *due <= now);
        let due: Vec<_> = due
            .map(|((namespace, name), (due, uid))| {
                *due = now + TOLERATED;
                (format!("/api/v1/namespaces/{namespace}/pods/{name}"), uid.clone())
            })
            .collect();
        for (path, uid) in due {
            self.world.checker.intends(CALLER, &path, &uid);
            ask_as_kcm(&self.world, "DELETE", &path, None).await;
            self.world.checker.probe("kcm evicted a pod by its taint");
        }
    }
}

/// What a Node says of itself.
pub(super) fn ready(node: &Value) -> &str {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().find(|one| word(one, "/type") == "Ready").map_or("", |one| word(one, "/status"))
}

fn is_tainted(node: &Value) -> bool {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
    taints.into_iter().any(|taint| word(taint, "/key") == UNREACHABLE)
}
