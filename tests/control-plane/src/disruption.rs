//! Whoever keeps the statuses of disruption budgets: kube-controller-manager's controller or ours.

use std::time::Duration;

use crate::{Component, ControlPlane, Error, PodSafety, Program};

/// A rollout gives it that long to go, and more.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// Who is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disruption {
    /// kube-controller-manager with nothing but its disruption controller.
    Kcm,
    /// pod-safety with nothing but its own.
    Ours,
}

/// It runs.
pub enum DisruptionController {
    /// kube-controller-manager.
    Kcm(Component),
    /// pod-safety.
    Ours(PodSafety),
}

impl ControlPlane {
    /// Starts one that need not wait for its turn: at 20 requests a second, kube-controller-manager's default, tests
    /// would measure its patience.
    pub async fn disruption_controller(&self, who: Disruption) -> Result<DisruptionController, Error> {
        match who {
            Disruption::Kcm => {
                let args = ["--kube-api-qps=1000", "--kube-api-burst=1000"];
                let kcm = self.kube_controller_manager("disruption-controller", &args).await?;
                Ok(DisruptionController::Kcm(kcm))
            }
            Disruption::Ours => {
                let kubeconfig = self.install_pod_safety().await?;
                let args = ["--controllers=disruption", "--mode=replace"];
                let mut ours = self.pod_safety("pod-safety", &kubeconfig, args).await?;
                ours.ready().await?;
                ours.leads().await?;
                Ok(DisruptionController::Ours(ours))
            }
        }
    }
}

impl DisruptionController {
    /// Its process.
    pub fn program(&mut self) -> &mut Program {
        match self {
            Self::Kcm(kcm) => kcm,
            Self::Ours(ours) => ours,
        }
    }

    /// Ends it as a rollout would.
    pub async fn end(mut self) -> Result<(), Error> {
        self.program().terminate(ENDS_WITHIN).await.map(drop)
    }
}
