//! Pods in groups of twenty, each with its ReplicaSet and, if it is its turn, a budget.

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;

use crate::cluster::Cluster;
use crate::etcd::Stored;
use crate::plan::Plan;
use crate::print_line;

/// How many pods the loader gives one ReplicaSet and one budget.
pub(super) const PODS: i32 = 20;
const PODS_PER_BUDGET: usize = 20;

const PREFIX: &str = "/registry/poddisruptionbudgets/";

pub(super) struct Group {
    namespace: String,
    number: usize,
    /// As it was before any controller saw it.
    fresh: Stored,
}

impl Group {
    /// `namespace/name` of the budget.
    pub(super) fn budget(&self) -> String {
        format!("{}/{}", self.namespace, budget_name(self.number))
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name of the `index`-th of its pods.
    pub(super) fn pod(&self, index: usize) -> String {
        format!("p-{}", self.number * PODS_PER_BUDGET + index)
    }
}

fn budget_name(number: usize) -> String {
    format!("p-app-{number}")
}

/// All groups, neighbours in different namespaces.
pub(super) struct Fixture {
    namespaces: usize,
    groups: Vec<Group>,
}

impl Fixture {
    /// Fills a cluster with pods, as evenly over so many namespaces as can be.
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

    /// The first so many.
    pub(super) fn groups(&self, count: usize) -> &[Group] {
        self.groups.get(..count).unwrap_or(&self.groups)
    }

    /// From now on there are so many budgets, and no controller has seen any of them.
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
