//! The baseline "force delete when NotReady": a cron job by which operators get the pods of a StatefulSet back.
//!
//! It reads its API server every ten seconds, treats a node whose Lease was not renewed for a while as dead, and force
//! deletes its pods by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::host::Host;
use super::request::send_request;
use super::run::World;
use super::str_at;

/// Its name as a caller.
pub(super) const CALLER: &str = "script";
/// How often it polls.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// For how long a Lease may go without a renewal before its node counts as dead.
const NOT_READY_AFTER: Duration = Duration::from_secs(40);

/// The script and its state.
pub(crate) struct Script {
    world: Arc<World>,
    /// The last renewal of each Lease, and when it was first seen.
    renewals: BTreeMap<String, (String, Duration)>,
}

impl Script {
    pub(crate) fn start(world: &Arc<World>, host: &Arc<Host>) {
        let mut script = Self { world: Arc::clone(world), renewals: BTreeMap::new() };
        let env = host.env();
        host.start_task("script", async move {
            loop {
                script.poll().await;
                env.sleep(POLL_INTERVAL).await;
            }
        });
    }

    async fn request(&self, method: &str, path: &str, body: Option<Value>) -> Option<(u16, Value)> {
        send_request(&self.world.servers.get(0)?, CALLER, method, path, body).await
    }

    async fn list(&self, path: &str) -> Option<Vec<Value>> {
        let (200, mut list) = self.request("GET", path, None).await? else { return None };
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Some(items),
            _ => Some(Vec::new()),
        }
    }

    async fn poll(&mut self) -> Option<()> {
        let leases = self.list("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases").await?;
        let now = self.world.checker.now();
        for lease in &leases {
            let (name, renewed) = (str_at(lease, "/metadata/name"), str_at(lease, "/spec/renewTime"));
            if self.renewals.get(name).is_none_or(|(known, _)| known != renewed) {
                self.renewals.insert(name.to_owned(), (renewed.to_owned(), now));
            }
        }
        let nodes = self.list("/api/v1/nodes").await?;
        let node_names: BTreeSet<&str> = nodes.iter().map(|node| str_at(node, "/metadata/name")).collect();
        // The Lease of a node that is gone does not stay long; the node's pods hang, so the script deletes them too.
        let dead = |name: &str| {
            let unreachable = self.renewals.get(name).is_none_or(|(_, at)| now.saturating_sub(*at) >= NOT_READY_AFTER);
            unreachable || !node_names.contains(name)
        };
        let pods = self.list("/api/v1/pods").await?;
        for pod in &pods {
            let node = str_at(pod, "/spec/nodeName");
            if !node.is_empty() && dead(node) {
                self.delete(pod).await;
            }
        }
        Some(())
    }

    /// `kubectl delete pod NAME --grace-period=0 --force`.
    async fn delete(&self, pod: &Value) {
        let (namespace, name) = (str_at(pod, "/metadata/namespace"), str_at(pod, "/metadata/name"));
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        self.world.checker.intends(CALLER, &path, str_at(pod, "/metadata/uid"));
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0 });
        self.request("DELETE", &path, Some(options)).await;
    }
}
