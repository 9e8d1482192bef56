//! Taints of the effect `NoExecute`: which clients add and remove them, and what the pods of a world tolerate.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::host::Host;
use super::request::send_request;
use super::run::World;
use super::{stamp, str_at};

/// The taints that plans name, by their number. The last one is the node lifecycle controller's own.
pub const TROUBLES: [&str; 3] = ["example.com/trouble-0", "example.com/trouble-1", "node.kubernetes.io/unreachable"];
/// How often a client tries to change an object that others change too.
const TRIES: usize = 5;

/// How a pod tolerates one taint.
#[derive(Clone, Copy)]
enum Toleration {
    /// It has no toleration of its own: none at all, or the 300 s that `DefaultTolerationSeconds` adds.
    Unspecified,
    /// For so many seconds.
    For(u64),
    /// Without limit.
    Ever,
}

/// The tolerations of [`TROUBLES`] of `data-0`, `data-1` and so on; then the list begins again.
const MEMBERS: [[Toleration; 3]; 5] = [
    [Toleration::For(20), Toleration::Ever, Toleration::For(20)],
    [Toleration::For(0), Toleration::Ever, Toleration::For(0)],
    [Toleration::Ever, Toleration::For(30), Toleration::Ever],
    [Toleration::For(150), Toleration::For(150), Toleration::Unspecified],
    [Toleration::Unspecified, Toleration::Unspecified, Toleration::For(300)],
];

fn toleration(key: &str, bears: Toleration) -> Option<Value> {
    let all = json!({ "key": key, "operator": "Exists", "effect": "NoExecute" });
    match bears {
        Toleration::Unspecified => None,
        Toleration::Ever => Some(all),
        Toleration::For(seconds) => {
            let mut one = all;
            one["tolerationSeconds"] = seconds.into();
            Some(one)
        }
    }
}

/// The seconds between two checks of pods that wait without evidence.
const STUCK_INTERVAL: u64 = 5;

/// Lets the checker verify every second that every pod that must be evicted was deleted, and every lost node is marked.
pub(super) fn watch(world: &Arc<World>, host: &Arc<Host>) {
    let (world, env) = (Arc::clone(world), host.env());
    host.start_task("taints", async move {
        for second in 1_u64.. {
            env.sleep(Duration::from_secs(1)).await;
            if second.is_multiple_of(STUCK_INTERVAL) {
                world.check_stuck();
            }
            if world.with.taints {
                world.checker.check_taints();
            }
            world.checker.check_nodes();
            if let Some(fencing) = world.with.fencing {
                world.checker.check_fences(fencing.switches_on());
            }
        }
    });
}

impl World {
    /// What a new pod of this name tolerates.
    pub(super) fn tolerations(&self, name: &str) -> Vec<Value> {
        let ordinal = name.strip_prefix("data-").and_then(|ordinal| ordinal.parse::<usize>().ok());
        let Some(ordinal) = ordinal.filter(|_| self.with.taints) else { return Vec::new() };
        let bears = MEMBERS.get(ordinal % MEMBERS.len()).into_iter().flatten();
        TROUBLES.iter().zip(bears).filter_map(|(key, bears)| toleration(key, *bears)).collect()
    }

    pub(super) async fn add_taint(&self, node: usize, key: usize, stamped: bool) {
        let Some(key) = TROUBLES.get(key) else { return };
        let added = stamp(self.checker.now());
        self.change_taints(node, |taints| {
            if taints.iter().all(|taint| str_at(taint, "/key") != *key) {
                let mut taint = json!({ "key": key, "effect": "NoExecute" });
                if stamped {
                    taint["timeAdded"] = added.clone().into();
                }
                taints.push(taint);
            }
        })
        .await;
    }

    pub(super) async fn lift_taint(&self, node: usize, key: usize) {
        let Some(key) = TROUBLES.get(key) else { return };
        self.change_taints(node, |taints| taints.retain(|taint| str_at(taint, "/key") != *key)).await;
    }

    /// Names the resourceVersion that was read, as every client must that changes a list.
    async fn change_taints(&self, node: usize, change: impl Fn(&mut Vec<Value>)) {
        let path = format!("/api/v1/nodes/{}", self.node(node));
        for _ in 0..TRIES {
            let Some(node) = self.etcd.object("Node", &self.node(node)) else { return };
            let mut taints = node.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
            change(&mut taints);
            let version = str_at(&node, "/metadata/resourceVersion");
            let body = json!([
                { "op": "test", "path": "/metadata/resourceVersion", "value": version },
                { "op": "add", "path": "/spec/taints", "value": taints },
            ]);
            if self.changed_by_person(&path, body).await {
                return;
            }
        }
    }

    /// An existing toleration may get another time, and may not be removed.
    pub(super) async fn tolerate(&self, pod: usize, key: usize, seconds: Option<u64>) {
        let Some(key) = TROUBLES.get(key) else { return };
        let path = format!("/api/v1/namespaces/default/pods/data-{pod}");
        for _ in 0..TRIES {
            let Some(pod) = self.etcd.object("Pod", &format!("default/data-{pod}")) else { return };
            let mut all = pod.pointer("/spec/tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
            all.retain(|one| str_at(one, "/key") != *key);
            all.extend(toleration(key, seconds.map_or(Toleration::Ever, Toleration::For)));
            let meta = |field: &str| str_at(&pod, &format!("/metadata/{field}")).to_owned();
            let body = json!({ "metadata": { "uid": meta("uid"), "resourceVersion": meta("resourceVersion") },
                "spec": { "tolerations": all } });
            if self.changed_by_person(&path, body).await {
                return;
            }
        }
    }

    /// Whether no other try is needed: it was changed, or cannot be.
    async fn changed_by_person(&self, path: &str, body: Value) -> bool {
        let Some(server) = self.servers.get(0) else { return true };
        let code = send_request(&server, "person", "PATCH", path, Some(body)).await.map_or(0, |(code, _)| code);
        self.checker.note(format!("a person changes {path}: {code}"));
        // A test of a JSON patch that fails is a 422.
        if code == 200 {
            return true;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        false
    }
}
