//! The taints and labels of a node.
//!
//! `spec.taints` is one value to the API server (`+listType=atomic`): whoever changes one of them writes all of them,
//! at the version at which he read them, as KCM does. So the others go back as they came, unknown fields included.
//!
//! Danger note: the taint `node.kubernetes.io/out-of-service` says that nothing of the node runs any more. Whoever
//! adds it has KCM remove the pods and detach the volumes, so the guard lets no list pass that has it. Where it is there
//! already, the kernel permits the list that keeps it: the version in the same request makes sure that it is there.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::live::{Live, text_field};
use super::{ManagedTaint, NodeUpdate};

/// What changes, and how it is written.
pub(super) struct Change {
    /// Fields of the patch beside its identity.
    pub(super) labels: Map<String, Value>,
    pub(super) taints: Option<Vec<Value>>,
    pub(super) added: Vec<ManagedTaint>,
    pub(super) removed: Vec<ManagedTaint>,
}

/// What of `update` the taints and labels of `live` lack.
pub(super) fn change(update: &NodeUpdate, live: &Live, wall: Timestamp) -> Option<Change> {
    let before = live.taints();
    let exists = |taint: &ManagedTaint| before.iter().any(|other| is_taint(other, *taint));
    let removed: Vec<_> = update.remove.iter().copied().filter(exists).collect();
    let added: Vec<_> = update.add.iter().copied().filter(|taint| !exists(taint)).collect();
    let differs =
        |(key, value): &&(&'static str, Arc<str>)| live.label(key).is_none_or(|now| now != &**value);
    let labels: Map<_, _> = update.labels.iter().filter(differs).map(|(key, value)| (*key, value)).fold(
        Map::new(),
        |mut labels, (key, value)| {
            labels.insert(key.to_owned(), json!(**value));
            labels
        },
    );
    let taints = (!added.is_empty() || !removed.is_empty()).then(|| {
        let kept = before.iter().filter(|taint| !removed.iter().any(|other| is_taint(taint, *other)));
        let new = added.iter().map(
            |(key, effect)| json!({ "key": key, "effect": effect.name(), "timeAdded": format!("{wall:.0}") }),
        );
        kept.cloned().chain(new).collect()
    });
    if taints.is_none() && labels.is_empty() {
        return None;
    }
    Some(Change { labels, taints, added, removed })
}

/// The API knows taints apart by key and effect.
fn is_taint(taint: &Value, (key, effect): ManagedTaint) -> bool {
    text_field(taint, "key") == Some(key) && text_field(taint, "effect") == Some(effect.name())
}
