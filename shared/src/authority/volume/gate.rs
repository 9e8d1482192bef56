//! The scheduling gate of a pod that waits for exclusive volumes.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::json;

use super::super::status_write::{StatusWrite, UpdateTurn, WriteTarget, Written, send};
use crate::client::{Call, Method, WriteCall as _};
use crate::model::{PodKey, Rv, VOLUME_GATE};
use crate::record::LogEvent;

/// pod-safety's scheduling gate is removed from a pod, and the pod is pinned to the node that has its volume, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UngateUpdate {
    /// The pod.
    pub pod: PodKey,
    /// The version that the controller saw.
    pub rv: Rv,
    /// The host name of the node to which the pod is pinned, because its volume is there.
    pub pin: Option<Arc<str>>,
}

impl StatusWrite for UngateUpdate {
    fn target(&self) -> WriteTarget<'_> {
        WriteTarget { uid: &self.pod.uid, rv: self.rv, flow: &self.pod.namespace }
    }

    fn write<'a>(&'a self, turn: UpdateTurn<'a, '_>) -> BoxFuture<'a, Written> {
        let Self { pod, rv, pin } = self;
        let mut spec = json!({ "schedulingGates": [{ "$patch": "delete", "name": VOLUME_GATE }] });
        if let Some(host) = pin {
            spec["nodeSelector"] = json!({ "kubernetes.io/hostname": host });
        }
        let body = json!({ "metadata": { "uid": pod.uid, "resourceVersion": rv }, "spec": spec });
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        send(turn, *rv, Call::write(Method::Patch, path, &body))
    }

    fn log_written(&self, controller: &'static str) {
        let (pod, pin) = (&self.pod, self.pin.as_deref());
        tracing::info!(event = LogEvent::PodUngated.name(), controller, uid = %pod.uid, %pod, pin, "the pod's exclusive volumes are free: it may be scheduled");
    }
}
