//! One controller alone: of kube-controller-manager or of pod-safety in its place.

use crate::{Component, ControlPlane, Error, PodSafety, Program};

/// The implementation of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// The controller of kube-controller-manager.
    Kcm,
    /// The controller of pod-safety.
    PodSafety,
}

/// The controller's process, in which no other controller runs.
pub enum SoleController {
    /// kube-controller-manager.
    Kcm(Component),
    /// pod-safety.
    PodSafety(PodSafety),
}

impl ControlPlane {
    /// Starts the controller that writes the statuses of PodDisruptionBudgets.
    pub async fn disruption_controller(&self, implementation: Implementation) -> Result<SoleController, Error> {
        self.sole_controller(implementation, "disruption-controller", "disruption", &[]).await
    }

    /// Starts the controller that evicts pods for NoExecute taints.
    pub async fn taint_eviction_controller(&self, implementation: Implementation) -> Result<SoleController, Error> {
        // kube-controller-manager's implementation looks pods up in an index that the node and DaemonSet controllers create.
        let kcm = "taint-eviction-controller,daemonset-controller";
        self.sole_controller(implementation, kcm, "taint-eviction", &[]).await
    }

    /// Starts the controller that marks lost nodes, with these flags, which both implementations accept.
    pub async fn node_lifecycle_controller(
        &self,
        implementation: Implementation,
        flags: &[&str],
    ) -> Result<SoleController, Error> {
        self.sole_controller(implementation, "node-lifecycle-controller", "node-lifecycle", flags).await
    }

    /// The rate limit of requests is raised: with kube-controller-manager's default of 20 per second, tests would measure its queue.
    async fn sole_controller(
        &self,
        implementation: Implementation,
        kcm: &str,
        pod_safety: &str,
        flags: &[&str],
    ) -> Result<SoleController, Error> {
        match implementation {
            Implementation::Kcm => {
                // By default it checks nodes every five seconds, and only this implementation needs that flag.
                let own = ["--kube-api-qps=1000", "--kube-api-burst=1000", "--node-monitor-period=500ms"];
                let args = [own.as_slice(), flags].concat();
                Ok(SoleController::Kcm(self.kube_controller_manager(kcm, &args).await?))
            }
            Implementation::PodSafety => {
                let kubeconfig = self.install_pod_safety().await?;
                let own = [format!("--controllers={pod_safety}"), "--mode=replace".to_owned()];
                let args = own.into_iter().chain(flags.iter().map(|flag| (*flag).to_owned()));
                let mut pod_safety = self.pod_safety("pod-safety", &kubeconfig, args).await?;
                pod_safety.ready().await?;
                pod_safety.is_leader().await?;
                Ok(SoleController::PodSafety(pod_safety))
            }
        }
    }
}

impl SoleController {
    /// Its process.
    pub fn program(&mut self) -> &mut Program {
        match self {
            Self::Kcm(kcm) => kcm,
            Self::PodSafety(pod_safety) => pod_safety,
        }
    }

    /// Its metrics as Prometheus text.
    pub async fn metrics(&self) -> Result<String, Error> {
        match self {
            Self::Kcm(kcm) => kcm.metrics().await,
            Self::PodSafety(pod_safety) => Ok(pod_safety.get("/metrics").await?.body),
        }
    }

    /// Stops it like a rollout.
    pub async fn end(mut self) -> Result<(), Error> {
        self.program().terminate().await.map(drop)
    }
}
