//! EvictionRequests and Evictions (KEP-4563, lifecycle.k8s.io/v1alpha1), as decisions see them.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use super::{Mono, PodKey, Rv, Uid};

/// The API's own responder, which uses `pods/eviction`. It is the last one of every Eviction.
pub const IMPERATIVE_EVICTOR: &str = "imperative-eviction.k8s.io/evictor";
/// Its priority; all others have 1,000 or more.
pub const IMPERATIVE_EVICTOR_PRIORITY: i32 = 100;

/// An active responder that does not report for this long loses its turn (`heartbeatDeadline` of the API's
/// validation).
pub const RESPONDER_HEARTBEAT_DEADLINE: Duration = Duration::from_secs(1_200);

/// pod-safety's responder for pods of lost nodes. A pod has it if `spec.evictionResponders` names it.
pub const LOST_NODE_RESPONDER: &str = "pod-safety.dev/lost-node";

/// `Failed=True` with this reason is final for a request, too.
pub const EVICTION_INVALID: &str = "EvictionInvalid";
/// The reason of an Eviction without an effective request.
pub const CANCELED: &str = "CanceledDueToNoRequesters";
/// The reason of an Eviction whose responders all had their turn while the pod still exists.
pub const NO_FURTHER_RESPONDER: &str = "NoFurtherResponder";

/// The intent of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::EnumString)]
pub enum EvictionIntent {
    /// Evict the pod.
    Eviction,
    /// The request is withdrawn.
    Withdrawn,
    /// A value that this version does not know.
    Other,
}

impl EvictionIntent {
    /// Parses the API's value.
    #[must_use]
    pub fn parse(value: &str) -> Self {
        value.parse().unwrap_or(Self::Other)
    }

    /// The value in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A condition that reports the end of a request or an Eviction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionCondition {
    /// Whether its status is `True`.
    pub is_true: bool,
    /// The reason, in CamelCase.
    pub reason: Box<str>,
    /// The message.
    pub message: Box<str>,
    /// `lastTransitionTime`, in seconds of the writer's clock.
    pub since: i64,
}

/// Both conditions; `None`: not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionConditions {
    /// `Failed`.
    pub failed: Option<EvictionCondition>,
    /// `TargetEvicted`.
    pub evicted: Option<EvictionCondition>,
}

impl EvictionConditions {
    /// The reason of `Failed`, if that is `True`.
    #[must_use]
    pub fn failure_reason(&self) -> Option<&str> {
        self.failed.as_ref().filter(|failed| failed.is_true).map(|failed| &*failed.reason)
    }

    /// Whether `TargetEvicted` is `True`. That does not show that the pod's processes ended: any client with the
    /// right to can write a phase.
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
    /// The UID.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// The generation of the spec.
    pub generation: i64,
    /// `creationTimestamp`, seconds of the API server's clock.
    pub created: i64,
    /// Whether it has a `deletionTimestamp`.
    pub deleting: bool,
    /// The pod. The name is informative: the UID decides.
    pub pod: PodKey,
    /// The name of the requester.
    pub requester: Box<str>,
    /// Its intent.
    pub intent: EvictionIntent,
    /// `status.observedGeneration`; zero: no controller has written it yet.
    pub observed_generation: i64,
    /// How it ended, if it did.
    pub conditions: EvictionConditions,
    /// When this process first saw it.
    pub first_seen: Mono,
}

impl EvictionRequest {
    /// Whether it still requests the eviction: it is not withdrawn and not deleted, even if a finalizer keeps it.
    #[must_use]
    pub fn is_effective(&self) -> bool {
        self.intent == EvictionIntent::Eviction && !self.deleting
    }

    /// Whether nothing but its observed generation changes any more: its pod was evicted, or it was invalid.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.conditions.is_evicted() || self.conditions.failure_reason() == Some(EVICTION_INVALID)
    }
}

/// The state of a responder's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::EnumString)]
pub enum ResponderState {
    /// Its turn has not come.
    Inactive,
    /// It is its turn.
    Active,
    /// It did not report for too long, or the pod was removed before it reported.
    Interrupted,
    /// No effective request was left.
    Canceled,
    /// It reported completion.
    Completed,
    /// A value that this version does not know.
    Other,
}

impl ResponderState {
    /// Parses the API's value.
    #[must_use]
    pub fn parse(value: &str) -> Self {
        value.parse().unwrap_or(Self::Other)
    }

    /// The value in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A responder of an Eviction: its state, which the controller writes, and its own report. Times are seconds of the
/// writer's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Responder {
    /// Its name.
    pub name: Box<str>,
    /// Responders with a higher priority have their turn first.
    pub priority: i32,
    /// The state of its turn.
    pub state: ResponderState,
    /// When its turn began.
    pub started: Option<i64>,
    /// When it last reported.
    pub heartbeat: Option<i64>,
    /// When it expects to be done.
    pub expected: Option<i64>,
    /// When it was done.
    pub completed: Option<i64>,
    /// Its message about what it does.
    pub message: Box<str>,
    /// When this process first saw these values.
    pub seen: ResponderSeen,
}

/// When this process first saw the values of a [`Responder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderSeen {
    /// Its start.
    pub start: Mono,
    /// Its last heartbeat, or its start.
    pub heartbeat: Mono,
    /// Its message.
    pub message: Mono,
}

impl Responder {
    /// The time of its last report, or of its start.
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

/// The order in which responders have their turns: the highest priority first; equal ones by the labels of their
/// domains from the right, then by the rest (`SortTargetResponders` of `pkg/apis/lifecycle/validation`, v1.37.2).
#[must_use]
pub fn compare_turns(one: (&str, i32), other: (&str, i32)) -> Ordering {
    let ((one, first), (other, second)) = (one, other);
    let parts = |name: &'_ str| -> (Vec<String>, String) {
        let (domain, key) = name.split_once('/').unwrap_or((name, ""));
        (domain.rsplit('.').map(str::to_owned).collect(), key.to_owned())
    };
    second.cmp(&first).then_with(|| parts(one).cmp(&parts(other)))
}

/// A requester of an Eviction, and its intent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requester {
    /// The name.
    pub name: Box<str>,
    /// Its intent.
    pub intent: EvictionIntent,
}

/// The value of a label by which responders and requesters find their Evictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum EvictionRole {
    /// A requester.
    Requester,
    /// A responder.
    Responder,
    /// Both.
    RequesterResponder,
}

impl EvictionRole {
    /// Parses the value of a label.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        value.parse().ok()
    }

    /// The value of the label.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// An Eviction of lifecycle.k8s.io: one attempt to evict a pod, on behalf of all requesters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Its name, in the namespace of its pod.
    pub name: Box<str>,
    /// The UID.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// The generation of the spec.
    pub generation: i64,
    /// `creationTimestamp`, seconds of the API server's clock.
    pub created: i64,
    /// Whether it has a `deletionTimestamp`.
    pub deleting: bool,
    /// The pod. The name is informative: the UID decides.
    pub pod: PodKey,
    /// Whether the label `app.kubernetes.io/managed-by` names pod-safety.
    pub managed_by_us: bool,
    /// The requests that own it, by UID.
    pub owners: Vec<Uid>,
    /// Its labels that name requesters and responders.
    pub labels: Vec<(Box<str>, EvictionRole)>,
    /// `status.observedGeneration`; zero: no controller has written it yet.
    pub observed_generation: i64,
    /// The requesters.
    pub requesters: Vec<Requester>,
    /// The responders, in the order of their turns. Empty: it is not initialized.
    pub responders: Vec<Responder>,
    /// How it ended, if it did.
    pub conditions: EvictionConditions,
    /// The field managers of the states in its status.
    pub managers: Vec<Box<str>>,
    /// When this process first saw it.
    pub first_seen: Mono,
    /// When this process first saw how it ended.
    pub ended_seen: Mono,
}

/// The phase of an Eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EvictionPhase {
    /// Its pod was evicted.
    Succeeded,
    /// It is in progress.
    Active,
    /// It failed.
    Failed,
}

impl Eviction {
    /// Its phase. `TargetEvicted` wins where both conditions are true.
    #[must_use]
    pub fn phase(&self) -> EvictionPhase {
        match (self.conditions.is_evicted(), self.conditions.failure_reason()) {
            (true, _) => EvictionPhase::Succeeded,
            (false, Some(_)) => EvictionPhase::Failed,
            (false, None) => EvictionPhase::Active,
        }
    }

    /// The responder whose turn it is.
    #[must_use]
    pub fn active(&self) -> Option<&Responder> {
        self.responders.iter().find(|responder| responder.state == ResponderState::Active)
    }

    /// The responder of this name.
    #[must_use]
    pub fn responder(&self, name: &str) -> Option<&Responder> {
        self.responders.iter().find(|responder| *responder.name == *name)
    }

    /// When it ended, in seconds of the writer's clock.
    #[must_use]
    pub fn ended_at(&self) -> Option<i64> {
        let EvictionConditions { failed, evicted } = &self.conditions;
        let met = [evicted, failed].into_iter().flatten().filter(|condition| condition.is_true);
        met.map(|condition| condition.since).next()
    }

    /// The Eviction of a pod that decides its outcome: the one that succeeded last; else the oldest active one; else
    /// the one that failed last; of equal ones the first by name.
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

/// The pod of an eviction: its namespace and UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EvictionTarget {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The UID of the pod.
    pub uid: Uid,
}

impl EvictionTarget {
    /// The target for this pod.
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
    fn responders_are_ordered_by_priority_then_by_domain_from_the_right() {
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
