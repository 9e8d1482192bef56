//! Requests to evict pods and what becomes of them (KEP-4563, lifecycle.k8s.io/v1alpha1), as decisions see them.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use super::{Mono, PodKey, Rv, Uid};

/// The API's own responder, which asks `pods/eviction`. It is the last one of every Eviction.
pub const IMPERATIVE_EVICTOR: &str = "imperative-eviction.k8s.io/evictor";
/// Its priority; all others have 1,000 or more.
pub const IMPERATIVE_EVICTOR_PRIORITY: i32 = 100;

/// An active responder that is silent for so long loses its turn (`heartbeatDeadline` of the API's validation).
pub const RESPONDER_HEARTBEAT_DEADLINE: Duration = Duration::from_secs(1_200);

/// Our responder for pods of lost nodes. A pod has it if it names it in `spec.evictionResponders`.
pub const LOST_NODE_RESPONDER: &str = "pod-safety.dev/lost-node";

/// `Failed=True` with it is final for a request, too.
pub const EVICTION_INVALID: &str = "EvictionInvalid";
/// Nobody asks any more.
pub const CANCELED: &str = "CanceledDueToNoRequesters";
/// Every responder had its turn, and the pod is there.
pub const NO_FURTHER_RESPONDER: &str = "NoFurtherResponder";

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
pub enum EvictionIntent {
    /// That the pod is evicted.
    Eviction,
    /// Nothing any more.
    Withdrawn,
    /// A word that this version does not know.
    Other,
}

impl EvictionIntent {
    /// Reads the API's word.
    #[must_use]
    pub fn parse(word: &str) -> Self {
        match word {
            "Eviction" => Self::Eviction,
            "Withdrawn" => Self::Withdrawn,
            _ => Self::Other,
        }
    }

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A condition that is about the end of a request or an Eviction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionCondition {
    /// It is `True`.
    pub is_true: bool,
    /// One word.
    pub reason: Box<str>,
    /// A sentence.
    pub message: Box<str>,
    /// `lastTransitionTime`, in seconds of the clock of whoever wrote it.
    pub since: i64,
}

/// Both conditions; `None`: nobody wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionConditions {
    /// `Failed`.
    pub failed: Option<EvictionCondition>,
    /// `TargetEvicted`.
    pub evicted: Option<EvictionCondition>,
}

impl EvictionConditions {
    /// `Failed` is `True`: for this reason.
    #[must_use]
    pub fn failure_reason(&self) -> Option<&str> {
        self.failed.as_ref().filter(|failed| failed.is_true).map(|failed| &*failed.reason)
    }

    /// `TargetEvicted` is `True`. That the pod's processes ended does not follow: a phase is what somebody wrote.
    #[must_use]
    pub fn is_evicted(&self) -> bool {
        self.evicted.as_ref().is_some_and(|evicted| evicted.is_true)
    }
}

/// A request to evict a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionRequest {
    /// Its name, in the namespace of its pod.
    pub name: Box<str>,
    /// The identity.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// Counts changes of its spec.
    pub generation: i64,
    /// `creationTimestamp`, seconds of the API server's clock.
    pub created: i64,
    /// Somebody asked for its deletion.
    pub deleting: bool,
    /// Which pod. The name is informative: the UID counts.
    pub pod: PodKey,
    /// Who asks.
    pub requester: Box<str>,
    /// For what.
    pub intent: EvictionIntent,
    /// `status.observedGeneration`; zero: nobody looked yet.
    pub observed_generation: i64,
    /// How it ended, if it did.
    pub conditions: EvictionConditions,
    /// When this process first saw it.
    pub first_seen: Mono,
}

impl EvictionRequest {
    /// It asks for the eviction, and was not deleted; a finalizer changes nothing.
    #[must_use]
    pub fn is_effective(&self) -> bool {
        self.intent == EvictionIntent::Eviction && !self.deleting
    }

    /// Nothing but its observed generation changes any more: its pod was evicted, or it was invalid.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.conditions.is_evicted() || self.conditions.failure_reason() == Some(EVICTION_INVALID)
    }
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
pub enum ResponderState {
    /// Its turn has not come.
    Inactive,
    /// It is its turn.
    Active,
    /// It was silent for too long, or the pod went before it reported.
    Interrupted,
    /// Nobody asked any more.
    Canceled,
    /// It reported that it was done.
    Completed,
    /// A word that this version does not know.
    Other,
}

impl ResponderState {
    /// Reads the API's word.
    #[must_use]
    pub fn parse(word: &str) -> Self {
        match word {
            "Inactive" => Self::Inactive,
            "Active" => Self::Active,
            "Interrupted" => Self::Interrupted,
            "Canceled" => Self::Canceled,
            "Completed" => Self::Completed,
            _ => Self::Other,
        }
    }

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A responder of an Eviction: what the controller says of it and what it says itself. Times are seconds of its clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Responder {
    /// Its name.
    pub name: Box<str>,
    /// The highest comes first.
    pub priority: i32,
    /// Whose turn it is.
    pub state: ResponderState,
    /// Since when it is its turn.
    pub started: Option<i64>,
    /// When it last reported.
    pub heartbeat: Option<i64>,
    /// When it expects to be done.
    pub expected: Option<i64>,
    /// When it was done.
    pub completed: Option<i64>,
    /// What it does.
    pub message: Box<str>,
    /// When this process first saw its start or its last report.
    pub last_report: Mono,
}

impl Responder {
    /// When it last gave a sign of life.
    #[must_use]
    pub fn last_heartbeat(&self) -> Option<i64> {
        self.heartbeat.or(self.started)
    }

    /// The order of turns: see [`compare_turns`].
    #[must_use]
    pub fn compare_turn(&self, other: &Self) -> Ordering {
        compare_turns((&self.name, self.priority), (&other.name, other.priority))
    }
}

/// The order in which responders have their turns: the highest priority first; of equals by the labels of their domains
/// from the right, then by the rest (`SortTargetResponders` of `pkg/apis/lifecycle/validation`, v1.37.2).
#[must_use]
pub fn compare_turns(one: (&str, i32), other: (&str, i32)) -> Ordering {
    let ((one, first), (other, second)) = (one, other);
    let parts = |name: &'_ str| -> (Vec<String>, String) {
        let (domain, key) = name.split_once('/').unwrap_or((name, ""));
        (domain.rsplit('.').map(str::to_owned).collect(), key.to_owned())
    };
    second.cmp(&first).then_with(|| parts(one).cmp(&parts(other)))
}

/// Who asked for an Eviction, and whether still.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requester {
    /// The name.
    pub name: Box<str>,
    /// For what.
    pub intent: EvictionIntent,
}

/// The value of a label by which responders and requesters find their Evictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum EvictionRole {
    /// It asks.
    Requester,
    /// It evicts.
    Responder,
    /// Both.
    RequesterResponder,
}

impl EvictionRole {
    /// Reads the value of a label.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "requester" => Some(Self::Requester),
            "responder" => Some(Self::Responder),
            "requester-responder" => Some(Self::RequesterResponder),
            _ => None,
        }
    }

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// An Eviction of lifecycle.k8s.io: one try to evict a pod, on behalf of all who ask for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Its name, in the namespace of its pod.
    pub name: Box<str>,
    /// The identity.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// Counts changes of its spec.
    pub generation: i64,
    /// `creationTimestamp`, seconds of the API server's clock.
    pub created: i64,
    /// Somebody asked for its deletion.
    pub deleting: bool,
    /// Which pod. The name is informative: the UID counts.
    pub pod: PodKey,
    /// The label `app.kubernetes.io/managed-by` says that we created it.
    pub managed_by_us: bool,
    /// The requests that own it, by UID.
    pub owners: Vec<Uid>,
    /// Its labels that name requesters and responders.
    pub labels: Vec<(Box<str>, EvictionRole)>,
    /// `status.observedGeneration`; zero: nobody looked yet.
    pub observed_generation: i64,
    /// Who asked for it.
    pub requesters: Vec<Requester>,
    /// Who evicts, in the order of their turns. Empty: it is not initialized.
    pub responders: Vec<Responder>,
    /// How it ended, if it did.
    pub conditions: EvictionConditions,
    /// The field managers of its states.
    pub managers: Vec<Box<str>>,
    /// When this process first saw it.
    pub first_seen: Mono,
}

/// How far an Eviction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EvictionPhase {
    /// Its pod was evicted.
    Succeeded,
    /// It goes on.
    Active,
    /// It failed.
    Failed,
}

impl Eviction {
    /// How far it is. `TargetEvicted` wins where both conditions are true.
    #[must_use]
    pub fn phase(&self) -> EvictionPhase {
        match (self.conditions.is_evicted(), self.conditions.failure_reason()) {
            (true, _) => EvictionPhase::Succeeded,
            (false, Some(_)) => EvictionPhase::Failed,
            (false, None) => EvictionPhase::Active,
        }
    }

    /// Whose turn it is.
    #[must_use]
    pub fn active(&self) -> Option<&Responder> {
        self.responders.iter().find(|responder| responder.state == ResponderState::Active)
    }

    /// The responder of this name.
    #[must_use]
    pub fn responder(&self, name: &str) -> Option<&Responder> {
        self.responders.iter().find(|responder| *responder.name == *name)
    }

    /// When it ended, in seconds of the clock of whoever wrote that.
    #[must_use]
    pub fn ended_at(&self) -> Option<i64> {
        let EvictionConditions { failed, evicted } = &self.conditions;
        let met = [evicted, failed].into_iter().flatten().filter(|verdict| verdict.is_true);
        met.map(|verdict| verdict.since).next()
    }

    /// Of the Evictions of one pod the one that counts: one that succeeded, the latest first; else the oldest active one;
    /// else the one that failed last; of equals the first by name.
    #[must_use]
    pub fn most_relevant<'a>(all: impl Iterator<Item = &'a Self>) -> Option<&'a Self> {
        all.min_by_key(|one| {
            let phase = one.phase();
            let time = match phase {
                EvictionPhase::Active => one.created,
                EvictionPhase::Succeeded | EvictionPhase::Failed => -one.ended_at().unwrap_or(0),
            };
            (phase, time, &one.name)
        })
    }
}

/// The pod that responders of requests are about: in which namespace, with which UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EvictionTarget {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The UID of the pod.
    pub uid: Uid,
}

impl EvictionTarget {
    /// That of this pod.
    #[must_use]
    pub fn from_pod(pod: &PodKey) -> Self {
        Self { namespace: Arc::clone(&pod.namespace), uid: pod.uid.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `TestSortTargetResponders` of Kubernetes 1.37.2.
    #[test]
    fn responders_have_their_turns_by_priority_then_by_domain_from_the_right() {
        let expected = [
            ("a.example.com/high", 100_000),
            ("responder-x.example.com/bar", 16),
            ("responder-c.fooexample.com/bar", 16),
            ("example.com/bar", 15),
            ("example.com/baz", 15),
            ("responder-y.example.com/bar", 15),
            ("responder-y.example.com/baz", 15),
            ("responder-z.example.com/bar", 15),
            ("responder-z.example.com/baz", 15),
            ("fooexample.com/bar", 15),
            ("responder-a.fooexample.com/bar", 15),
            ("responder-b.fooexample.com/bar", 15),
            ("responder-b.fooexample.com/baz", 15),
            ("responder-b.barexample.io/bar", 15),
            ("responder-b.fooexample.io/bar", 15),
            ("responder-b.fooexample.io/baz", 15),
            ("responder-k.kubernetes.io/y", 14),
            ("responder-k.kubernetes.io/z", 14),
            ("responder-k.kubernetes.io/x", 13),
            ("example.com/low", -1_000),
        ];
        let mut sorted = expected;
        sorted.reverse();
        sorted.sort_by(|one, other| compare_turns(*one, *other));
        assert_eq!(sorted, expected);
    }
}
