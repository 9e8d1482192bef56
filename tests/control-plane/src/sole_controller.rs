//! One controller alone: kube-controller-manager's or ours in its place.

use crate::{Component, ControlPlane, Error, PodSafety, Program};

/// Whose controller is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// That of kube-controller-manager.
    Kcm,
    /// That of pod-safety.
    PodSafety,
}

/// It runs, and nothing else of its program does.
pub enum SoleController {
    /// kube-controller-manager.
    Kcm(Component),
    /// pod-safety.
    PodSafety(PodSafety),
}

impl ControlPlane {
    /// Starts the one that keeps the statuses of disruption budgets.
    pub async fn disruption_controller(&self, who: Implementation) -> Result<SoleController, Error> {
        self.sole_controller(who, "disruption-controller", "disruption", &[]).await
    }

    /// Starts the one that ends pods for taints.
    pub async fn taint_eviction_controller(&self, who: Implementation) -> Result<SoleController, Error> {
        // kube-controller-manager's looks pods up in an index that the controllers of nodes and of daemon sets make.
        let kcm = "taint-eviction-controller,daemonset-controller";
        self.sole_controller(who, kcm, "taint-eviction", &[]).await
    }

    /// Starts the one that finds out which nodes are lost, with these flags, which both know.
    pub async fn node_lifecycle_controller(
        &self,
        who: Implementation,
        flags: &[&str],
    ) -> Result<SoleController, Error> {
        self.sole_controller(who, "node-lifecycle-controller", "node-lifecycle", flags).await
    }

    /// It need not wait for its turn: at 20 requests a second, kube-controller-manager's default, tests would measure
    /// its patience.
    async fn sole_controller(
        &self,
        who: Implementation,
        kcm: &str,
        ours: &str,
        flags: &[&str],
    ) -> Result<SoleController, Error> {
        match who {
            Implementation::Kcm => {
                // It looks at nodes each five seconds by default, and is the only one to need that flag.
                let own = ["--kube-api-qps=1000", "--kube-api-burst=1000", "--node-monitor-period=500ms"];
                let args = [own.as_slice(), flags].concat();
                Ok(SoleController::Kcm(self.kube_controller_manager(kcm, &args).await?))
            }
            Implementation::PodSafety => {
                let kubeconfig = self.install_pod_safety().await?;
                let own = [format!("--controllers={ours}"), "--mode=replace".to_owned()];
                let args = own.into_iter().chain(flags.iter().map(|flag| (*flag).to_owned()));
                let mut ours = self.pod_safety("pod-safety", &kubeconfig, args).await?;
                ours.ready().await?;
                ours.is_leader().await?;
                Ok(SoleController::PodSafety(ours))
            }
        }
    }
}

impl SoleController {
    /// Its process.
    pub fn program(&mut self) -> &mut Program {
        match self {
            Self::Kcm(kcm) => kcm,
            Self::PodSafety(ours) => ours,
        }
    }

    /// Its metrics as Prometheus text.
    pub async fn metrics(&self) -> Result<String, Error> {
        match self {
            Self::Kcm(kcm) => kcm.metrics().await,
            Self::PodSafety(ours) => Ok(ours.get("/metrics").await?.body),
        }
    }

    /// Ends it as a rollout would.
    pub async fn end(mut self) -> Result<(), Error> {
        self.program().terminate().await.map(drop)
    }
}
