//! Volumes on a node: a kubelet reports which it uses before it uses them, and waits until they are attached.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::attach::{attachment, said_of};
use super::super::guarded::volumes_of;
use super::{Kubelet, is_ended};

impl Kubelet {
    /// The volumes that it uses or is about to use (`GetVolumesInUse`).
    pub(super) fn volumes(&self) -> Vec<String> {
        let used = self
            .world
            .checker
            .processes_on(&self.node)
            .into_iter()
            .flat_map(|(_, process)| self.world.checker.volumes_of(&process.identity));
        let pods = self.pods.lock();
        let stays = |pod: &&Arc<Value>| pod.pointer("/metadata/deletionTimestamp").is_none() && !is_ended(pod);
        let desired = pods.iter().flat_map(|pods| pods.values()).filter(stays);
        let desired = desired.flat_map(|pod| volumes_of(pod));
        let mut volumes: Vec<String> = used.chain(desired).map(|volume| self.world.reported(volume)).collect();
        volumes.sort();
        volumes.dedup();
        volumes
    }

    /// Reports the volumes that it uses, unless that was reported.
    pub(super) async fn report_volumes(&self) -> bool {
        let volumes = self.volumes();
        if self.reported.lock().as_ref() == Some(&volumes) {
            return true;
        }
        let patch = json!({ "status": { "volumesInUse": volumes } });
        let path = format!("/api/v1/nodes/{}/status", self.node);
        let told = matches!(self.request("PATCH", &path, Some(patch)).await, Some((200, _)));
        // Without an answer it is unknown whether the write was applied.
        *self.reported.lock() = told.then_some(volumes);
        told
    }

    /// Whether the pod has what it needs to start.
    pub(super) async fn is_mounted(&self, pod: &Value) -> bool {
        let volumes = volumes_of(pod);
        if volumes.is_empty() || !self.world.with.attached_volumes {
            return true;
        }
        if !self.report_volumes().await {
            return false;
        }
        let attached = self.attached().await;
        for volume in &volumes {
            if attached.as_ref().is_some_and(|attached| !attached.contains(volume))
                || !self.is_attached_here(volume).await
            {
                return false;
            }
        }
        true
    }

    /// The volumes that its Node lists as attached (`VerifyControllerAttachedVolume`). A Node that is gone lists none;
    /// a volume whose detachment failed is not listed until it is attached again. `None`: in this world no Node lists
    /// them.
    async fn attached(&self) -> Option<BTreeSet<String>> {
        self.world.with.guarded_volumes?;
        let read = self.request("GET", &format!("/api/v1/nodes/{}", self.node), None).await;
        Some(read.map_or_else(BTreeSet::new, |(_, node)| said_of(&node)))
    }

    /// Whether a volume is attached here, and the pod that needs it may have it.
    async fn is_attached_here(&self, volume: &str) -> bool {
        let others = self.world.checker.processes_on(&self.node).into_iter();
        let has_it = |identity: &str| self.world.checker.volumes_of(identity).iter().any(|one| one == volume);
        // A ReadWriteOncePod volume is mounted for one pod only.
        let taken = self.world.one_pod() && others.into_iter().any(|(_, process)| has_it(&process.identity));
        if taken || !self.world.may_start_with(volume) {
            return false;
        }
        let read = self.request("GET", &attachment(volume, &self.node), None).await;
        read.is_some_and(|(_, read)| read.pointer("/status/attached") == Some(&Value::Bool(true)))
    }
}
