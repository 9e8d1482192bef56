//! Confirmations of people, by `pod-safety confirm-down`: of a machine that is off; and of one that comes back without
//! a boot, so that the confirmation is about the incarnation that is lost next.

use std::time::Duration;

use anyhow::{Result, bail};
use pod_safety_control_plane::{check_that, eventually, observe};

use crate::cluster::{Cluster, ready};
use crate::machine::Machine;
use crate::objects::{IDENTITIES, NAMESPACE};

/// A pod ends and starts elsewhere, a node is lost or comes back: each takes some ten seconds, and longer on a busy
/// machine.
const WITHIN: Duration = Duration::from_secs(120);

impl Cluster {
    /// The machine is drained and cut off, and a person confirms that it is down. It comes back, without a boot, and
    /// has the pod of this identity again; from now on no switch answers.
    pub(crate) async fn confirmed_before(&mut self, victim: Machine, identity: &str) -> Result<()> {
        let node = victim.name();
        self.plane.kubectl(&["cordon", &node]).await?.text()?;
        for on_it in IDENTITIES {
            if self.machine_of(on_it)? == victim {
                observe::delete_pod(&self.plane.admin(), NAMESPACE, on_it, false).await?;
                self.wait_until(&format!("{on_it} left"), async |cluster| {
                    Ok(cluster.served().await?.is_ok() && cluster.machine_of(on_it)? != victim)
                })
                .await?;
            }
        }
        self.switches.pause()?;
        victim.cable(false).await?;
        self.wait_until("it is called lost", async |cluster| Ok(!cluster.is_ready(&node).await?)).await?;
        if !self.ours.is_empty()
            && let Some(refused) = self.confirm(&node, "I took its pods away and pulled its cable").await?
        {
            bail!(refused);
        }
        victim.cable(true).await?;
        self.wait_until("it is back", async |cluster| cluster.is_ready(&node).await).await?;
        self.plane.kubectl(&["uncordon", &node]).await?.text()?;
        self.started_on(victim, identity, async |cluster: &Self| Ok(cluster.served().await?.is_ok())).await?;
        Ok(())
    }

    /// The pod is deleted, and its successor writes on this machine, because no other machine takes pods until then.
    pub(crate) async fn started_on(
        &self,
        victim: Machine,
        identity: &str,
        is_so: impl AsyncFn(&Self) -> Result<bool>,
    ) -> Result<()> {
        let others: Vec<_> = Machine::ALL.into_iter().filter(|other| *other != victim).collect();
        for other in &others {
            self.plane.kubectl(&["cordon", &other.name()]).await?.text()?;
        }
        observe::delete_pod(&self.plane.admin(), NAMESPACE, identity, false).await?;
        let is_there = async |cluster: &Self| Ok(is_so(cluster).await? && cluster.machine_of(identity)? == victim);
        self.wait_until(&format!("{identity} is there again"), is_there).await?;
        for other in &others {
            self.plane.kubectl(&["uncordon", &other.name()]).await?.text()?;
        }
        Ok(())
    }

    async fn wait_until(&self, what: &str, is_so: impl AsyncFn(&Self) -> Result<bool>) -> Result<()> {
        let looked = eventually(what, WITHIN, async || {
            let so = is_so(self).await.map_err(|error| error.to_string())?;
            check_that(so, "not yet".to_owned())
        });
        Ok(looked.await?)
    }

    async fn is_ready(&self, node: &str) -> Result<bool> {
        Ok(self.nodes().await?.iter().any(|one| one.metadata.name.as_deref() == Some(node) && ready(one)))
    }

    /// Returns why the confirmation was refused.
    pub(crate) async fn confirm(&self, node: &str, reason: &str) -> Result<Option<String>> {
        let (reason, confirm) = (format!("--reason={reason}"), format!("--confirm={node} is off"));
        let args = ["confirm-down", node, &reason, &confirm, "--listen=3s", "--power-on"];
        let output = self.plane.start_pod_safety_once(&self.plane.admin_kubeconfig(), &args).await?;
        Ok((!output.status.success()).then(|| format!("confirm-down was refused: {}", output.stderr)))
    }
}
