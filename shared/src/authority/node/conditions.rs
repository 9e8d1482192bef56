//! The conditions of a node whose kubelet stopped reporting, or reports again.
//!
//! They are written by a strategic merge patch. Conditions of other controllers stay unchanged, and so do fields that the
//! patch does not name, such as the time of the last heartbeat. `NetworkUnavailable` is set by the network plugin, not by
//! the kubelet: it stays.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::live::Live;
use super::{NodeUpdate, NotReporting};
use crate::clock::Mono;
use crate::model::NODE_UNREACHABLE_CONDITION;

/// The conditions that kubelets report; [`READY`] comes first.
const KUBELET_CONDITIONS: [&str; 4] = [READY, "MemoryPressure", "DiskPressure", "PIDPressure"];
const READY: &str = "Ready";
pub(super) const UNKNOWN: &str = "Unknown";

/// The reasons and messages of kube-controller-manager.
const NEVER_POSTED: (&str, &str) = ("NodeStatusNeverUpdated", "Kubelet never posted node status.");
const STOPPED: (&str, &str) = ("NodeStatusUnknown", "Kubelet stopped posting node status.");

/// The conditions to write.
#[derive(Default)]
pub(super) struct Change {
    pub(super) conditions: Vec<Value>,
    /// The conditions of the kubelet become Unknown.
    pub(super) sets_unknown: bool,
    /// Ready was True before this change.
    pub(super) turned_not_ready: bool,
    /// The new status of the condition [`NODE_UNREACHABLE_CONDITION`].
    pub(super) unreachable: Option<bool>,
}

/// The changes of `update` that the conditions of `live` do not have yet.
pub(super) fn change(update: &NodeUpdate, live: &Live, now: Mono, wall: Timestamp) -> Change {
    let mut change = Change::default();
    // As in kube-controller-manager: the other conditions change together with Ready, and stay unchanged if Ready is
    // Unknown already.
    if update.not_reporting.is_some() && live.condition_status(READY) != Some(UNKNOWN) {
        change.sets_unknown = true;
        change.turned_not_ready = live.condition_status(READY) == Some("True");
        change.conditions.extend(KUBELET_CONDITIONS.iter().filter_map(|kind| unknown(kind, live, wall)));
    }
    let status = match live.condition_status(NODE_UNREACHABLE_CONDITION) {
        Some("True") => Some(true),
        Some("False") => Some(false),
        Some(_) | None => None,
    };
    if let Some(desired) = update.unreachable.filter(|desired| status != Some(*desired)) {
        change.unreachable = Some(desired);
        change.conditions.push(unreachable(desired, update.not_reporting.as_ref(), live, now, wall));
    }
    change
}

fn unknown(kind: &str, live: &Live, wall: Timestamp) -> Option<Value> {
    let (reason, message) = match live.condition_status(kind) {
        Some(UNKNOWN) => return None,
        Some(_) => STOPPED,
        None => NEVER_POSTED,
    };
    let mut condition = json!({
        "type": kind,
        "status": UNKNOWN,
        "reason": reason,
        "message": message,
        "lastTransitionTime": format!("{wall:.0}"),
    });
    if live.condition(kind).is_none() {
        condition["lastHeartbeatTime"] = json!(live.meta("creationTimestamp"));
    }
    Some(condition)
}

/// The condition [`NODE_UNREACHABLE_CONDITION`], for operators.
fn unreachable(desired: bool, not_reporting: Option<&NotReporting>, live: &Live, now: Mono, wall: Timestamp) -> Value {
    let (status, reason, message) = if desired {
        let since = since(not_reporting, live, now, wall);
        let message = format!(
            "its kubelet has not reported since {since}, so it is not known whether its pods still run. Terminating pods are removed when it reports again, when the node is fenced with proof, or when its Node object is deleted after someone has made sure that the machine is off"
        );
        ("True", "KubeletNotReporting", message)
    } else {
        ("False", "KubeletReporting", format!("its kubelet reports again, at the latest since {wall:.0}"))
    };
    json!({
        "type": NODE_UNREACHABLE_CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": format!("{wall:.0}"),
        "lastTransitionTime": format!("{wall:.0}"),
    })
}

/// Since when the kubelet has not reported: by this process's clock, or by the time at which Ready became Unknown.
fn since(not_reporting: Option<&NotReporting>, live: &Live, now: Mono, wall: Timestamp) -> String {
    if let Some(not_reporting) = not_reporting {
        return format!("{:.0}", wall.checked_sub(now.since(not_reporting.last_report)).unwrap_or(wall));
    }
    let unknown = live.condition(READY).and_then(|ready| ready.get("lastTransitionTime")?.as_str());
    unknown.map_or_else(|| format!("{wall:.0}"), str::to_owned)
}
