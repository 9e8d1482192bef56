//! The nodes and pods of the cluster, which nodes are lost, and how the cluster is restored.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::cluster::Cluster;
use crate::etcd::Stored;
use crate::plan::Plan;

/// The etcd prefixes of nodes and of the loader's pods.
const NODES: &str = "/registry/minions/";
const PODS: &str = "/registry/pods/load/";

/// How many nodes are lost at once, besides a single node and a zone.
const MANY: usize = 100;

/// The loader assigns nodes to three zones in turn.
const ZONES: usize = 3;

const TAINT: &str = "bench.pod-safety.dev/out";

pub(super) struct Lost {
    pub(super) what: &'static str,
    pub(super) nodes: Vec<String>,
    numbers: Vec<usize>,
    /// Whether the deletion of their pods is awaited.
    pub(super) with_pods: bool,
}

/// All nodes, with the stored objects of those that will be changed.
pub(super) struct Fixture {
    nodes: usize,
    pods: usize,
    before: Vec<Stored>,
}

impl Lost {
    fn new(what: &'static str, numbers: impl Iterator<Item = usize>, with_pods: bool) -> Self {
        let numbers: Vec<usize> = numbers.collect();
        let nodes = numbers.iter().map(|number| format!("node-{number}")).collect();
        Self { what, nodes, numbers, with_pods }
    }
}

impl Fixture {
    pub(super) async fn read(cluster: &Cluster, plan: &Plan) -> Result<Self> {
        let mut fixture = Self { nodes: plan.nodes, pods: plan.pods, before: cluster.etcd.all(NODES).await? };
        let lost = fixture.losses();
        let all = lost
            .iter()
            .chain([&fixture.tainted(plan.nodes.min(super::TAINTED))])
            .flat_map(|lost| fixture.pods_of(lost))
            .collect::<BTreeSet<_>>();
        for pod in all {
            let key = format!("{PODS}{pod}");
            let stored = cluster.etcd.get(&key).await?.with_context(|| format!("etcd holds no {key}"))?;
            fixture.before.push(stored);
        }
        Ok(fixture)
    }

    /// The first `count` nodes.
    pub(super) fn tainted(&self, count: usize) -> Lost {
        Lost::new("tainted", 0..count.min(self.nodes), true)
    }

    /// The next node, the next hundred (a tenth of a small cluster), and the remaining nodes of the last zone.
    pub(super) fn losses(&self) -> [Lost; 3] {
        let one = super::TAINTED.min(self.nodes.saturating_sub(1));
        let many = one + 1..(one + 1 + MANY.min(self.nodes / 10)).min(self.nodes);
        let rest = many.end..self.nodes;
        [
            Lost::new("one node", one..one + 1, true),
            Lost::new("many nodes", many, true),
            Lost::new("a zone", rest.filter(|number| number % ZONES == ZONES - 1), false),
        ]
    }

    /// The names of the pods of these nodes: the loader assigns pods to nodes in turn.
    pub(super) fn pods_of(&self, lost: &Lost) -> BTreeSet<String> {
        let of = |number: &usize| (*number..self.pods).step_by(self.nodes);
        lost.numbers.iter().flat_map(of).map(|pod| format!("p-{pod}")).collect()
    }

    /// Restores everything that was changed.
    pub(super) async fn restore(&self, cluster: &mut Cluster) -> Result<()> {
        for Stored { key, value } in &self.before {
            cluster.etcd.put(key, value.0.clone()).await?;
        }
        cluster.calm().await
    }
}

/// Adds the taint as an operator would.
pub(super) async fn taint(cluster: &Cluster, node: &str) -> Result<()> {
    let patch = json!({ "spec": { "taints": [{ "key": TAINT, "effect": "NoExecute" }] } });
    let nodes = Api::<Node>::all(cluster.plane.admin());
    let patched = nodes.patch_metadata(node, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).with_context(|| format!("cannot taint {node}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_is_lost_once_and_has_its_own_pods() {
        for (nodes, pods) in [(5_000, 150_000), (50, 1_000)] {
            let fixture = Fixture { nodes, pods, before: Vec::new() };
            let mut all = fixture.tainted(10).nodes;
            all.extend(fixture.losses().into_iter().flat_map(|lost| lost.nodes));
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
            for lost in fixture.losses() {
                assert!(!lost.nodes.is_empty(), "{}", lost.what);
                assert_eq!(fixture.pods_of(&lost).len(), lost.nodes.len() * pods / nodes, "{}", lost.what);
            }
        }
    }
}
