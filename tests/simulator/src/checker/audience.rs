//! What happens, in words for people who watch. The timeline itself is for whoever works on the simulator: it has UIDs, callers
//! and kinds of evidence.

use std::time::Duration;

use super::{Checker, Invariant, State};
use crate::world::is_shipped;

/// What a line is about: it chooses a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A rule was broken.
    Broken,
    /// Something goes wrong, or a person does something.
    Fault,
    /// A node counts as lost, or its pods must go.
    Loss,
    /// A pod is released with proof.
    Release,
    /// Anything else.
    Other,
}

/// A line for people who watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// When, since the start of the run.
    pub at: Duration,
    /// What it is about.
    pub tone: Tone,
    /// A sentence.
    pub text: String,
}

/// Who sent a request, as people call it.
pub(super) fn caller_name(caller: &str) -> &str {
    match caller {
        "kcm" => "kube-controller-manager",
        "script" => "the script",
        other if is_shipped(other) => "pod-safety",
        other => other,
    }
}

/// The name of a pod without the namespace that all of them are in.
pub(super) fn pod(identity: &str) -> &str {
    identity.strip_prefix("default/").unwrap_or(identity)
}

/// What proves that the processes of a pod have ended, in the words of this kind of evidence.
pub(super) fn proof(kind: &str) -> &'static str {
    match kind {
        "NodeGone" => "its Node is gone, and its kubelet has not reported since",
        "PowerOff" => "its machine is proved off",
        "PodsEnded" => "the agent of its node reported that it ended",
        "KubeletTerminated" => "its kubelet reported that it ended",
        "NeverScheduled" => "it never had a node",
        _ => "it is proved that it ended",
    }
}

impl Checker {
    /// As [`Checker::note`], for people too.
    pub(crate) fn announce(&self, tone: Tone, text: impl Into<String>) {
        let text = text.into();
        self.announce_with_detail(tone, text.clone(), text);
    }

    /// As [`Checker::note`], with other words for people.
    pub(crate) fn announce_with_detail(&self, tone: Tone, exact: impl Into<String>, text: impl Into<String>) {
        let now = self.now();
        self.state.lock().announce(now, tone, exact.into(), text.into());
    }

    /// What happened after the first `known` lines for people.
    pub(crate) fn news(&self, known: usize) -> Vec<News> {
        self.state.lock().news.get(known..).unwrap_or_default().to_vec()
    }
}

impl State {
    pub(super) fn announce(&mut self, now: Duration, tone: Tone, exact: String, text: String) {
        self.note(now, exact);
        self.news.push(News { at: now, tone, text });
    }

    /// Once for each rule and object: what is checked again and again is no news.
    pub(super) fn announce_violation(&mut self, at: Duration, text: &str) {
        if self.announced_violations.insert(text.to_owned()) {
            self.news.push(News { at, tone: Tone::Broken, text: format!("RULE BROKEN: {text}") });
        }
    }
}

impl Invariant {
    /// What it means for people that it was broken; without a `subject`, of an object of its kind.
    pub(super) fn broken(self, subject: Option<&str>) -> String {
        let (any, what) = match self {
            Self::AtMostOne => ("a pod", "runs twice at the same time"),
            Self::Evidence => ("a pod", "was removed without proof that its processes ended"),
            Self::Identity => ("a pod", "was changed in place of another one of that name"),
            Self::Grace => ("a pod", "was given another grace period than its own"),
            Self::Graceful => ("a pod", "was removed at once, and not gracefully"),
            Self::Budget => ("a PodDisruptionBudget", "was exceeded"),
            Self::Storage => ("a volume", "is written by two nodes at the same time"),
            Self::Term => ("pod-safety", "wrote without being the leader"),
            Self::Fence => ("fencing", "acted without a recorded intent or without proof"),
            Self::Truth => ("a pod", "has a status that is not true"),
            Self::Hygiene => ("pod-safety", "sent a malformed request"),
            Self::NoPanic => ("pod-safety", "panicked"),
            Self::HotLoop => ("pod-safety", "sends too many requests"),
            Self::Tolerance => ("a pod", "was evicted for a taint that it tolerates"),
            Self::Heard => ("a node", "was called lost although it reports"),
            Self::Kept => ("a node", "was called healthy although it does not report"),
            Self::Owner => ("a volume", "changed its owner while the old one could write"),
            Self::Connected => ("a pod", "was released while its kubelet is connected"),
            Self::Renewing => ("a pod", "was released while its kubelet renews its Lease"),
            Self::Verdict => ("a request to evict a pod", "says what is not true"),
            Self::Turn => ("an eviction", "did not keep to the turns of its responders"),
            Self::Liveness => ("a pod", "is proved gone, and was not removed in time"),
            Self::Released => ("a pod", "waits although its machine is proved off"),
            Self::Ended => ("an incident", "makes no progress"),
            Self::Rest => ("a pod", "does not run although everything is healthy"),
            Self::Refused => ("an eviction", "was refused although the PodDisruptionBudget allows it"),
            Self::Recovered => ("a node", "reports again and is still tainted"),
            Self::Stuck => ("a pod", "waits, and no reason is shown"),
            Self::Failover => ("the leader", "was not replaced in time"),
            Self::Reported => ("a pod", "waits for proof, and nothing says so"),
            Self::Evicted => ("a pod", "was not evicted in time"),
            Self::Lost => ("a node", "does not report, and was not called lost in time"),
            Self::Free => ("a volume", "is held without a reason"),
            Self::Answered => ("a request to evict a pod", "waits, and no reason is shown"),
            Self::Simulator => ("the simulator", "does not know what to do"),
        };
        format!("{} {what}", subject.map_or(any, pod))
    }
}
