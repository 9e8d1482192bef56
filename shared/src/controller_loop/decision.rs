//! The result of deciding about one key.

use std::sync::Arc;

use serde::Serialize;

use super::NodeUnreadable;
use crate::authority::Intent;
use crate::clock::Mono;
use crate::model::{BudgetKey, PodKey, Uid, VolumeKey};

/// What a controller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Mode {
    /// Decides and reports, writes nothing.
    Observe,
    /// Acts with proof, beside kube-controller-manager's own controllers.
    Guard,
    /// Acts with proof, in place of kube-controller-manager's.
    Replace,
}

impl Mode {
    /// The value on the command line and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The object that a hold is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Subject {
    /// One pod.
    Pod(PodKey),
    /// Every pod of a node.
    Node(Arc<str>),
    /// A budget.
    Budget(BudgetKey),
    /// The fencing of one node: its Events are emitted on the Node.
    Fencing {
        /// The node's name.
        node: Arc<str>,
        /// The UID of the Node.
        uid: Uid,
    },
    /// An exclusive volume.
    Volume(VolumeKey),
    /// The controller as a whole.
    Everything,
}

/// What should happen for one key now.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<H> {
    /// The requests to submit.
    pub intents: Vec<Intent>,
    /// What is not done yet, and why.
    pub holds: Vec<(Subject, H)>,
    /// When to decide again even if no event comes.
    pub requeue_at: Option<Mono>,
}

impl<H> Default for Decision<H> {
    fn default() -> Self {
        Self { intents: Vec::new(), holds: Vec::new(), requeue_at: None }
    }
}

impl<H> Decision<H> {
    /// A decision to do nothing, because of `hold`.
    #[must_use]
    pub fn hold(subject: Subject, hold: impl Into<H>) -> Self {
        Self { holds: vec![(subject, hold.into())], ..Self::default() }
    }

    /// A decision to do nothing, because the node exists, or may exist, but cannot be read.
    #[must_use]
    pub fn unreadable_node(node: &Arc<str>, why: impl Into<String>) -> Self
    where
        H: From<NodeUnreadable>,
    {
        let hold = NodeUnreadable { node: Arc::clone(node), why: why.into() };
        Self::hold(Subject::Node(Arc::clone(node)), hold)
    }

    /// Converts the holds.
    #[must_use]
    pub fn map<G>(self, mut to: impl FnMut(H) -> G) -> Decision<G> {
        let Self { intents, holds, requeue_at: recheck_at } = self;
        let holds = holds.into_iter().map(|(subject, hold)| (subject, to(hold))).collect();
        Decision { intents, holds, requeue_at: recheck_at }
    }

    /// Also decides again at `when`, unless an earlier time is set already.
    #[must_use]
    pub fn and_requeue_at(mut self, when: Mono) -> Self {
        self.requeue_at = Some(self.requeue_at.map_or(when, |earlier| earlier.min(when)));
        self
    }
}
