//! The baseline "force delete when NotReady": what people run as a cron job so that
//! a StatefulSet gets its pods back.
//!
//! It asks its API server every ten seconds, takes a node whose Lease was not
//! renewed for a while as dead, and deletes its pods by name without grace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::ask::ask;
use super::host::Host;
use super::run::World;
use super::word;

/// The name under which it calls.
pub(super) const CALLER: &str = "script";
/// How often it looks.
const LOOK_EACH: Duration = Duration::from_secs(10);
/// For how long a Lease may go without a renewal before its node counts as dead.
const NOT_READY_AFTER: Duration = Duration::from_secs(40);

/// The script and what it remembers.
pub(crate) struct Script {
    world: Arc<World>,
    /// The last renewal of each Lease, and when it was first seen.
    beats: BTreeMap<String, (String, Duration)>,
}

impl Script {
    pub(crate) fn start(world: &Arc<World>, host: &Arc<Host>) {
        let mut script = Self { world: Arc::clone(world), beats: BTreeMap::new() };
        let env = host.env();
        host.env().spawner.spawn(
            "script",
            Box::pin(async move {
                loop {
                    script.look().await;
                    env.sleep(LOOK_EACH).await;
                }
            }),
        );
    }

    async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Option<(u16, Value)> {
        ask(&self.world.servers.get(0)?, CALLER, method, path, body).await
    }

    async fn list(&self, path: &str) -> Option<Vec<Value>> {
        let (200, mut list) = self.ask("GET", path, None).await? else { return None };
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Some(items),
            _ => Some(Vec::new()),
        }
    }

    async fn look(&mut self) -> Option<()> {
        let leases = self.list("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases").await?;
        let now = self.world.checker.now();
        for lease in &leases {
            let (name, renewed) = (word(lease, "/metadata/name"), word(lease, "/spec/renewTime"));
            if self.beats.get(name).is_none_or(|(known, _)| known != renewed) {
                self.beats.insert(name.to_owned(), (renewed.to_owned(), now));
            }
        }
        let nodes = self.list("/api/v1/nodes").await?;
        let known: BTreeSet<&str> = nodes.iter().map(|node| word(node, "/metadata/name")).collect();
        // A node that is gone has no Lease for long; its pods hang, so they go too.
        let dead = |name: &str| {
            let silent =
                self.beats.get(name).is_none_or(|(_, at)| now.saturating_sub(*at) >= NOT_READY_AFTER);
            silent || !known.contains(name)
        };
        let pods = self.list("/api/v1/pods").await?;
        for pod in &pods {
            let node = word(pod, "/spec/nodeName");
            if !node.is_empty() && dead(node) {
                self.delete(pod).await;
            }
        }
        Some(())
    }

    /// `kubectl delete pod NAME --grace-period=0 --force`.
    async fn delete(&self, pod: &Value) {
        let (namespace, name) = (word(pod, "/metadata/namespace"), word(pod, "/metadata/name"));
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        self.world.checker.intends(CALLER, &path, word(pod, "/metadata/uid"));
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0 });
        self.ask("DELETE", &path, Some(options)).await;
    }
}
