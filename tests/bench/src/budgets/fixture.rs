//! Pods in groups of twenty, each group with a ReplicaSet and, if selected, a PDB.

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;

use crate::cluster::Cluster;
use crate::etcd::Stored;
use crate::plan::Plan;
use crate::print_line;

/// The number of pods that the loader gives to one ReplicaSet and one PDB.
pub(super) const PODS: i32 = 20;
const PODS_PER_BUDGET: usize = 20;

const PREFIX: &str = "/registry/poddisruptionbudgets/";

pub(super) struct Group {
    namespace: String,
    number: usize,
    /// The PDB before any controller wrote its status.
    fresh: Stored,
}

impl Group {
    /// `namespace/name` of the PDB.
    pub(super) fn budget(&self) -> String {
        format!("{}/{}", self.namespace, budget_name(self.number))
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name of the `index`-th pod of the group.
    pub(super) fn pod(&self, index: usize) -> String {
        format!("p-{}", self.number * PODS_PER_BUDGET + index)
    }
}

fn budget_name(number: usize) -> String {
    format!("p-app-{number}")
}

/// All groups; neighbours are in different namespaces.
pub(super) struct Fixture {
    namespaces: usize,
    groups: Vec<Group>,
}

impl Fixture {
    /// Fills a cluster with pods, distributed evenly over the namespaces.
    pub(super) async fn create_objects(cluster: &Cluster, plan: &Plan, namespaces: usize) -> Result<Self> {
        let most = plan.budgets.iter().copied().max().unwrap_or(0);
        let (pods, budgets) = (plan.pods.div_ceil(namespaces), most.div_ceil(namespaces));
        print_line(&format!("filling {namespaces} namespaces with {pods} pods and {budgets} budgets each"));
        let (pods, count) = (pods.max(budgets * PODS_PER_BUDGET).to_string(), budgets.to_string());
        let namespace_of = |number: usize| format!("load-{number}");
        for number in 0..namespaces {
            let namespace = namespace_of(number);
            cluster.plane.loader(&["-namespace", &namespace, "-pods", &pods, "-pdbs", &count]).await?;
        }
        let stored = cluster.etcd.all(PREFIX).await?;
        let mut by_key: std::collections::BTreeMap<Vec<u8>, ByteString> =
            stored.into_iter().map(|stored| (stored.key.0, stored.value)).collect();
        let mut groups = Vec::new();
        for number in 0..budgets {
            for space in 0..namespaces {
                let namespace = namespace_of(space);
                let key = format!("{PREFIX}{namespace}/{}", budget_name(number));
                let value = by_key.remove(key.as_bytes()).with_context(|| format!("etcd holds no {key}"))?;
                let fresh = Stored { key: ByteString(key.into_bytes()), value };
                groups.push(Group { namespace, number, fresh });
            }
        }
        Ok(Self { namespaces, groups })
    }

    pub(super) fn namespaces(&self) -> usize {
        self.namespaces
    }

    /// The first `count` groups.
    pub(super) fn groups(&self, count: usize) -> &[Group] {
        self.groups.get(..count).unwrap_or(&self.groups)
    }

    /// Creates `count` PDBs without a status, and removes all others.
    pub(super) async fn set(&self, cluster: &Cluster, count: usize) -> Result<()> {
        for (index, group) in self.groups.iter().enumerate() {
            let Stored { key, value } = &group.fresh;
            if index < count {
                cluster.etcd.put(key, value.0.clone()).await?;
            } else {
                cluster.etcd.delete(key).await?;
            }
        }
        Ok(())
    }
}
