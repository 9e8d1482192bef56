//! What a decision is.

use std::sync::Arc;

use serde::Serialize;

use crate::authority::Intent;
use crate::clock::Mono;
use crate::model::{BudgetKey, PodKey, Uid, VolumeKey};

/// How far a controller goes.
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
    /// Its word on the command line and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What a hold is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Subject {
    /// One pod.
    Pod(PodKey),
    /// Every pod of a node.
    Node(Arc<str>),
    /// A budget.
    Budget(BudgetKey),
    /// The fencing of one node: people hear of it at that node.
    Fencing {
        /// Its name.
        node: Arc<str>,
        /// Which one of that name.
        uid: Uid,
    },
    /// An exclusive volume.
    Volume(VolumeKey),
    /// The controller as a whole.
    Everything,
}

/// What should happen about one key, now.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<H> {
    /// What to do.
    pub intents: Vec<Intent>,
    /// What not to do, and why.
    pub holds: Vec<(Subject, H)>,
    /// When to decide again even if nothing happens.
    pub requeue_at: Option<Mono>,
}

impl<H> Default for Decision<H> {
    fn default() -> Self {
        Self { intents: Vec::new(), holds: Vec::new(), requeue_at: None }
    }
}

impl<H> Decision<H> {
    /// A decision to do nothing because of `hold`.
    #[must_use]
    pub fn hold(subject: Subject, hold: impl Into<H>) -> Self {
        Self { holds: vec![(subject, hold.into())], ..Self::default() }
    }

    /// The same, with its holds as something else.
    #[must_use]
    pub fn map<G>(self, mut to: impl FnMut(H) -> G) -> Decision<G> {
        let Self { intents, holds, requeue_at: recheck_at } = self;
        let holds = holds.into_iter().map(|(subject, hold)| (subject, to(hold))).collect();
        Decision { intents, holds, requeue_at: recheck_at }
    }

    /// Also decides again at `when`, or at an earlier moment already set.
    #[must_use]
    pub fn and_requeue_at(mut self, when: Mono) -> Self {
        self.requeue_at = Some(self.requeue_at.map_or(when, |earlier| earlier.min(when)));
        self
    }
}
