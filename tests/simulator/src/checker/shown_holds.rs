//! The holds that the processes under test show: each names an object that they leave alone, and the reason. A hold
//! excuses one object, and no other that waits for the same reason.

use std::collections::BTreeSet;

use pod_safety_shared::controller_loop::Subject;
use pod_safety_shared::model::Uid;
use serde_json::Value;

use crate::world::str_at;

/// All holds that are shown at one moment: subject and reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown(BTreeSet<(Subject, &'static str)>);

impl Shown {
    pub(crate) fn new(holds: impl IntoIterator<Item = (Subject, &'static str)>) -> Self {
        Self(holds.into_iter().collect())
    }

    /// Why this pod, or all pods of its node, are held.
    pub(super) fn of_pod<'a>(&'a self, pod: &'a Value) -> impl Iterator<Item = &'static str> + 'a {
        let (uid, node) = (Uid::new(str_at(pod, "/metadata/uid")), str_at(pod, "/spec/nodeName"));
        self.0.iter().filter_map(move |(subject, reason)| {
            let is_it = match subject {
                Subject::Pod(pod) => Some(&pod.uid) == uid.as_ref(),
                Subject::Node(name) => **name == *node,
                Subject::Budget(_) | Subject::Fencing { .. } | Subject::Volume(_) | Subject::Everything => false,
            };
            is_it.then_some(*reason)
        })
    }

    pub(super) fn holds_pod(&self, pod: &Value, reason: &str) -> bool {
        self.of_pod(pod).any(|shown| shown == reason)
    }

    /// Whether the volume of this name, which is one of these objects, is held for that reason.
    pub(super) fn holds_volume(&self, name: &str, objects: &[&Value], reason: &str) -> bool {
        self.0.iter().any(|(subject, shown)| {
            let Subject::Volume(volume) = subject else { return false };
            let is_it = |object: &&Value| Some(&volume.uid) == Uid::new(str_at(object, "/metadata/uid")).as_ref();
            *shown == reason && *volume.name == *name && objects.iter().any(is_it)
        })
    }
}
