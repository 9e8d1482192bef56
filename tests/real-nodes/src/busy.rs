//! A kubelet whose worker for a pod waits while a container of the pod runs: for a hook, or for an image. Until then it
//! reports nothing about that pod, not even a deletion (`Kubelet.SyncPod` with `context.WithoutCancel`).

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::machine::{CONTROL_PLANE, Machine};
use crate::objects::NAMESPACE;
use crate::watch;

/// What the worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerBlock {
    /// The hook `postStart` of the container that runs.
    Hook,
    /// The image of a second container, from a registry that takes connections and never answers.
    Image,
}

impl WorkerBlock {
    /// The change of a pod's template.
    fn template(self, registry: &str) -> Value {
        match self {
            Self::Hook => json!({ "containers": [{
                "name": "main", "lifecycle": { "postStart": { "exec": { "command": ["/workload", "pause"] } } },
            }] }),
            Self::Image => json!({ "containers": [
                { "name": "main" }, { "name": "second", "image": format!("{registry}/second:1") },
            ] }),
        }
    }
}

impl Cluster {
    /// The pod is created again on its machine and writes, and its worker waits. Its successors have the earlier
    /// template.
    pub(crate) async fn busy_worker(&mut self, victim: Machine, identity: &str, waits: WorkerBlock) -> Result<()> {
        let (set, _) = identity.rsplit_once('-').context("no ordinal")?;
        // scripts/machine.sh configures containerd with this registry.
        let registry = format!("{CONTROL_PLANE}:5000");
        if waits == WorkerBlock::Image {
            self.registry = Some(std::net::TcpListener::bind(&registry)?);
        }
        let before = self.pod(identity).await?.context("it is not there")?.metadata.uid;
        let kind = ["statefulset", set, "-n", NAMESPACE];
        let template = json!({ "template": { "spec": waits.template(&registry) }, "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } });
        let patch = json!({ "spec": template }).to_string();
        self.plane.kubectl(&[&["patch"][..], &kind, &["--patch", &patch]].concat()).await?.text()?;
        let is_new = async |_: &Self| Ok(watch::last_line(identity).map(|line| line.uid) != before);
        self.started_on(victim, identity, is_new).await?;
        self.plane.kubectl(&[&["rollout", "undo"][..], &kind].concat()).await?.text()?;
        Ok(())
    }
}
