//! Volumes on a node: a kubelet says which it uses before it uses them, and waits
//! until they are attached.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::attach::attachment;
use super::super::guarded::volume_of;
use super::{Kubelet, is_ended};

impl Kubelet {
    /// What it uses or is about to use (`GetVolumesInUse`).
    pub(super) fn volumes(&self) -> Vec<String> {
        let used = self
            .world
            .checker
            .processes_on(&self.node)
            .into_iter()
            .filter_map(|(_, process)| self.world.checker.volume_of(&process.identity));
        let pods = self.pods.lock();
        let stays =
            |pod: &&Arc<Value>| pod.pointer("/metadata/deletionTimestamp").is_none() && !is_ended(pod);
        let wanted = pods.iter().flat_map(|pods| pods.values()).filter(stays);
        let wanted = wanted.filter_map(|pod| volume_of(pod));
        let mut volumes: Vec<String> = used.chain(wanted).map(|volume| self.world.reported(volume)).collect();
        volumes.sort();
        volumes.dedup();
        volumes
    }

    /// Says what it uses, unless that is known.
    pub(super) async fn report_volumes(&self) -> bool {
        let volumes = self.volumes();
        if self.reported.lock().as_ref() == Some(&volumes) {
            return true;
        }
        let patch = json!({ "status": { "volumesInUse": volumes } });
        let path = format!("/api/v1/nodes/{}/status", self.node);
        let told = matches!(self.ask("PATCH", &path, Some(patch)).await, Some((200, _)));
        // Who got no answer does not know what was written.
        *self.reported.lock() = told.then_some(volumes);
        told
    }

    /// Whether the pod has what it needs to start.
    pub(super) async fn is_mounted(&self, pod: &Value) -> bool {
        let Some(name) = volume_of(pod).filter(|_| self.world.with.attached_volumes) else { return true };
        if !self.report_volumes().await {
            return false;
        }
        let others = self.world.checker.processes_on(&self.node).into_iter();
        let has_it = |identity: &str| self.world.checker.volume_of(identity).as_ref() == Some(&name);
        // What is for one pod alone it mounts for one.
        let taken = self.world.one_pod() && others.into_iter().any(|(_, process)| has_it(&process.identity));
        if taken || !self.world.may_start_with(&name) {
            return false;
        }
        let read = self.ask("GET", &attachment(&name, &self.node), None).await;
        read.is_some_and(|(_, read)| read.pointer("/status/attached") == Some(&Value::Bool(true)))
    }
}
