//! Sidecars: init containers that are always restarted, and run beside the main container.
//!
//! As in the kubelet of 1.36: they are stopped after the main container has ended, and the kubelet reports the pod as
//! Running until the last of them has ended (`getPhase` counts those that run; `status_manager` does not let a phase
//! become terminal while containers could run). So where a phase is terminal while a sidecar runs, another client wrote
//! it.

use std::time::Duration;

use serde_json::{Value, json};

use super::worker::{self, ContainerState, has_second};
use super::{Kubelet, path, str_at};

/// The init containers of a pod with a sidecar: a plain one that ends first, and the sidecar.
pub(in crate::world) fn with_sidecar() -> Value {
    json!([
        { "name": "prepare", "image": "hollow" },
        { "name": "sidecar", "image": "hollow", "restartPolicy": "Always" },
    ])
}

fn has_sidecar(pod: &Value) -> bool {
    pod.pointer("/spec/initContainers/1").is_some()
}

/// Whether the API shows that the sidecar of a pod runs.
pub(super) fn is_shown_running(pod: &Value) -> bool {
    pod.pointer("/status/initContainerStatuses/1/state/running").is_some()
}

/// The statuses of the init containers, while the sidecar runs or after it has ended.
pub(super) fn statuses(pod: &Value, runs: bool, now: &str) -> Option<Value> {
    if !has_sidecar(pod) {
        return None;
    }
    let ended = json!({ "terminated": { "exitCode": 0, "finishedAt": now, "startedAt": now } });
    let state = if runs { json!({ "running": { "startedAt": now } }) } else { ended.clone() };
    let status = |name: &str, ready: bool, state: &Value| {
        json!({ "name": name, "image": "hollow", "imageID": "hollow", "ready": ready, "restartCount": 0,
            "started": runs, "state": state })
    };
    Some(json!([status("prepare", true, &ended), status("sidecar", runs, &state)]))
}

impl Kubelet {
    /// The main container has ended, and the sidecar runs for the rest of the grace period.
    pub(super) async fn outlive(&self, uid: &str, pod: &Value, grace: u64) {
        if !has_sidecar(pod) {
            return;
        }
        let now = format!("{:.0}", self.env.clock.wall());
        let mut patch = json!({ "metadata": { "uid": str_at(pod, "/metadata/uid") }, "status": {
            "initContainerStatuses": statuses(pod, true, &now),
            "containerStatuses": [{ "name": "main", "image": "hollow", "imageID": "hollow", "ready": false,
                "restartCount": 0, "state": { "terminated": { "exitCode": 0, "finishedAt": now }, "running": null } }],
        } });
        if has_second(pod) {
            patch["status"]["containerStatuses"] =
                worker::statuses(ContainerState::Terminated, ContainerState::Terminated, &now);
        }
        self.request("PATCH", &format!("{}/status", path(pod)), Some(patch)).await;
        self.world.checker.probe("a sidecar outlived the main container");
        self.env.sleep(Duration::from_secs(self.draw_number(uid, "sidecar", grace / 2 + 1))).await;
    }
}
