//! Nodes whose kubelets are simulated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use pod_safety_control_plane::objects::{self, NodeExt as _};
use tokio::task::JoinSet;

/// Named nodes have a role in a test. The others keep the lost ones below half.
const NODES: [&str; 12] =
    ["well", "fine", "gone", "lost", "blocked", "paused", "liar", "one", "two", "three", "four", "five"];

/// A separate zone: three of four will be lost.
const ZONE: [&str; 4] = ["zone-1", "zone-2", "zone-3", "zone-4"];

/// Nodes are unreachable after eight seconds without a renewal. Renewed more than twice in that time.
const RENEW_INTERVAL: Duration = Duration::from_secs(2);

pub(crate) struct Kubelets {
    reporting: BTreeMap<&'static str, Arc<AtomicBool>>,
    _tasks: JoinSet<()>,
}

async fn run_kubelet(api: Client, node: &'static str, reporting: Arc<AtomicBool>) {
    loop {
        if reporting.load(Ordering::SeqCst) {
            // A failure is retried, like in a kubelet.
            let status = objects::node(node).status.unwrap_or_default();
            let _again = objects::set_node_status(&api, node, &status).await;
            let _again = objects::renew_lease(&api, node).await;
        }
        tokio::time::sleep(RENEW_INTERVAL).await;
    }
}

impl Kubelets {
    pub(crate) async fn start(api: &Client) -> Self {
        let (mut reporting, mut tasks) = (BTreeMap::new(), JoinSet::new());
        for name in NODES.into_iter().chain(ZONE) {
            let mut node = objects::node(name).with_ready("True");
            if ZONE.contains(&name) {
                node = node.with_label("topology.kubernetes.io/zone", "z");
            }
            objects::create_node(api, &node).await.unwrap();
            let alive = Arc::new(AtomicBool::new(true));
            tasks.spawn(run_kubelet(api.clone(), name, Arc::clone(&alive)));
            reporting.insert(name, alive);
        }
        Self { reporting, _tasks: tasks }
    }

    pub(crate) fn stop_reporting(&self, nodes: &[&str]) {
        nodes.iter().for_each(|node| self.reporting[node].store(false, Ordering::SeqCst));
    }

    pub(crate) fn resume_reporting(&self, nodes: &[&str]) {
        nodes.iter().for_each(|node| self.reporting[node].store(true, Ordering::SeqCst));
    }

    /// The nodes that still exist.
    pub(crate) fn all(&self) -> Vec<&'static str> {
        self.reporting.keys().copied().filter(|node| *node != "gone").collect()
    }
}
