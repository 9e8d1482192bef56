//! What people use today, judged by the same referee on the same plans.

use std::sync::Arc;

use super::host::Host;
use super::kcm::PodGc;
use super::run::World;
use super::script::Script;

/// Rules that are not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The rules of kube-controller-manager.
    KubeControllerManager,
    /// A cron job of people: force delete the pods of a node that is not ready.
    Script,
}

impl Baseline {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::KubeControllerManager, Self::Script];

    pub(crate) fn start(self, world: &Arc<World>, host: &Arc<Host>) {
        match self {
            Self::KubeControllerManager => PodGc::start(world, host, 0),
            Self::Script => Script::start(world, host),
        }
    }
}
