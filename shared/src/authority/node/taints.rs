//! The taints and labels of a node.
//!
//! `spec.taints` is one atomic value to the API server (`+listType=atomic`): a client that changes one taint writes all of
//! them at the version at which it read them, as kube-controller-manager does. So the other taints are written back
//! unchanged, unknown fields included.
//!
//! Danger note: the taint `node.kubernetes.io/out-of-service` states that no process of the node runs any more. When it is
//! added, kube-controller-manager removes the pods and detaches the volumes. So the guard refuses every list of taints that
//! contains it. If the node has the taint already, the kernel permits a list that keeps it: the version in the same request
//! ensures that it is still there.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::live::{Live, text_field};
use super::{ManagedTaint, NodeUpdate};

/// The changes to write.
pub(super) struct Change {
    /// Labels to set.
    pub(super) labels: Map<String, Value>,
    pub(super) taints: Option<Vec<Value>>,
    pub(super) added: Vec<ManagedTaint>,
    pub(super) removed: Vec<ManagedTaint>,
}

/// The changes of `update` that the taints and labels of `live` do not have yet.
pub(super) fn change(update: &NodeUpdate, live: &Live, wall: Timestamp) -> Option<Change> {
    let before = live.taints();
    let exists = |taint: &ManagedTaint| before.iter().any(|other| is_taint(other, *taint));
    let removed: Vec<_> = update.remove.iter().copied().filter(exists).collect();
    let added: Vec<_> = update.add.iter().copied().filter(|taint| !exists(taint)).collect();
    let differs = |(key, value): &&(&'static str, Arc<str>)| live.label(key).is_none_or(|now| now != &**value);
    let labels: Map<_, _> = update.labels.iter().filter(differs).map(|(key, value)| (*key, value)).fold(
        Map::new(),
        |mut labels, (key, value)| {
            labels.insert(key.to_owned(), json!(**value));
            labels
        },
    );
    let taints = (!added.is_empty() || !removed.is_empty()).then(|| {
        let kept = before.iter().filter(|taint| !removed.iter().any(|other| is_taint(taint, *other)));
        let new = added
            .iter()
            .map(|(key, effect)| json!({ "key": key, "effect": effect.name(), "timeAdded": format!("{wall:.0}") }));
        kept.cloned().chain(new).collect()
    });
    if taints.is_none() && labels.is_empty() {
        return None;
    }
    Some(Change { labels, taints, added, removed })
}

/// Whether the taint has this key and effect, which identify a taint in the API.
fn is_taint(taint: &Value, (key, effect): ManagedTaint) -> bool {
    text_field(taint, "key") == Some(key) && text_field(taint, "effect") == Some(effect.name())
}
