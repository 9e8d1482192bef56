//! The rules that clusters use today, checked by the same checker on the same plans.

use std::sync::Arc;

use super::host::Host;
use super::kcm::PodGc;
use super::kcm_budgets::Budgets;
use super::kcm_nodes::Nodes;
use super::run::World;
use super::script::Script;

/// Rules other than pod-safety's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The rules of kube-controller-manager.
    KubeControllerManager,
    /// A cron job that force deletes the pods of a node that is not ready.
    Script,
}

impl Baseline {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::KubeControllerManager, Self::Script];

    pub(crate) fn start(self, world: &Arc<World>, host: &Arc<Host>) {
        // Clusters that run the script have kube-controller-manager's budgets too.
        if world.has_budgets {
            Budgets::start(world, host);
        }
        match self {
            Self::KubeControllerManager => {
                PodGc::start(world, host, 0);
                Nodes::start(world, host);
            }
            Self::Script => Script::start(world, host),
        }
    }
}
