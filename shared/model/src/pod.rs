//! A Pod: the fields that decisions read.

use std::sync::Arc;
use std::time::Duration;

use super::{ConditionState, Labels, Mono, PodKey, Rv, Tolerations, Uid};

/// The annotation by which a kubelet marks the API's copy of a static pod.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// `status.phase`. `Other` has KCM's meaning: a phase that is neither Pending, Running nor Unknown counts as
/// terminated for its collector, but proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumString)]
pub enum Phase {
    /// Not all containers were started yet.
    Pending,
    /// At least one container runs or restarts.
    Running,
    /// All containers terminated successfully.
    Succeeded,
    /// All containers terminated, at least one with a failure; or a client wrote this phase.
    Failed,
    /// The kubelet could not be reached.
    Unknown,
    /// Empty, or a value that this version does not know.
    Other,
}

impl Phase {
    /// Parses the API's value.
    #[must_use]
    pub fn parse(phase: &str) -> Self {
        phase.parse().unwrap_or(Self::Other)
    }

    /// Whether a default DELETE removes a pod of this phase at once (`podStrategy.CheckGracefulDelete`).
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// KCM's `isPodTerminated`: whether the pod counts toward the threshold.
    #[must_use]
    pub const fn counts_as_terminated(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Other)
    }
}

/// The deletion of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// `deletionTimestamp`, seconds of the API server's clock.
    pub at: i64,
    /// `deletionGracePeriodSeconds`. Zero: only finalizers keep the object.
    pub grace: Option<i64>,
    /// When this process first saw it with these values.
    pub first_seen: Mono,
    /// Whether its kubelet may know of the deletion, so that it need not report it again: it has reported about this
    /// generation, or this process never saw the pod before it was deleted.
    pub kubelet_may_know: bool,
}

/// The default grace period of the API server, in seconds.
pub const DEFAULT_GRACE: i64 = 30;

/// The controller of an object: the owner reference that manages it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Controller {
    /// Group and version.
    pub api_version: Box<str>,
    /// The kind.
    pub kind: Box<str>,
    /// The name, in the same namespace.
    pub name: Box<str>,
    /// The UID.
    pub uid: Uid,
}

impl Controller {
    /// The API group; empty: the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether it is a DaemonSet of the group `apps`.
    #[must_use]
    pub fn is_daemon_set(&self) -> bool {
        self.group() == "apps" && &*self.kind == "DaemonSet"
    }
}

/// The API groups of Kubernetes' own controllers of pods.
const KUBERNETES_GROUPS: [&str; 4] = ["", "apps", "batch", "extensions"];

/// The condition that a pod is about to be terminated, or was, by a disruption (KEP-3329).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisruptionTarget {
    /// `lastTransitionTime`, in seconds of the writer's clock.
    pub since: i64,
    /// Its reason, if it is one of [`DISRUPTION_REASONS`]; else empty.
    pub reason: &'static str,
    /// When this process first saw it.
    pub first_seen: Mono,
}

/// The reasons of the condition `DisruptionTarget` that Kubernetes and pod-safety write, without the kubelet's own.
pub const DISRUPTION_REASONS: [&str; 5] = [
    "PreemptionByScheduler",
    "DeletionByTaintManager",
    "EvictionByEvictionAPI",
    "DeletionByPodGC",
    "FencedByPodSafety",
];

/// Fields that few pods have. They have a separate allocation, because the cache holds 150,000 pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uncommon {
    /// The deletion, if the pod was deleted.
    pub deletion: Option<Deletion>,
    /// The condition `DisruptionTarget`, if it is `True` and another component than the kubelet set it.
    pub disruption_target: Option<DisruptionTarget>,
    /// The claims in its namespace whose volumes it uses. Kept where volumes are guarded.
    pub claims: Vec<Arc<str>>,
    /// `terminationGracePeriodSeconds`, where it is not [`DEFAULT_GRACE`] and the pod has claims or
    /// `terminal_while_running_since`.
    pub spec_grace_seconds: Option<i64>,
    /// When this process first saw it with a terminal phase and a container that is reported running.
    pub terminal_while_running_since: Option<Mono>,
    /// The finalizers, which keep the object after its deletion.
    pub finalizers: Vec<Box<str>>,
    /// `spec.evictionResponders`: names and priorities. Kept where evictions are followed.
    pub eviction_responders: Vec<(Box<str>, i32)>,
    /// Whether `spec.schedulingGroup` is set: it is not evicted alone. Kept where evictions are followed.
    pub in_group: bool,
}

impl Uncommon {
    /// The value for a pod that has none of these fields.
    pub const NONE: Self = Self {
        deletion: None,
        disruption_target: None,
        claims: Vec::new(),
        spec_grace_seconds: None,
        terminal_while_running_since: None,
        finalizers: Vec::new(),
        eviction_responders: Vec::new(),
        in_group: false,
    };
}

/// A pod as decisions see it, some two hundred bytes with its name. It dereferences to [`Uncommon`], so those fields
/// read as its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Namespace, name and UID.
    pub key: PodKey,
    /// The version that was read.
    pub rv: Rv,
    /// `metadata.generation`, to compare with `observedGeneration`.
    pub generation: i64,
    /// `creationTimestamp`, seconds of the API server's clock.
    pub created: i64,
    /// The node to which it is bound.
    pub node: Option<Arc<str>>,
    /// When it was bound, in seconds of the API server's clock; its creation if the condition is missing. Meaningless
    /// while it is not bound.
    pub bound_at: i64,
    /// Its phase.
    pub phase: Phase,
    /// Whether `status.reason` is `Evicted`: the kubelet evicted it.
    pub evicted: bool,
    /// `status.observedGeneration`: the generation about which its kubelet has reported. Zero: the kubelet does not
    /// write it (before Kubernetes 1.34), or has not reported yet.
    pub observed_generation: i64,
    /// How many of its containers run, by their last statuses.
    pub running_containers: u16,
    /// The state and the restart count of each of its containers, by their last statuses, as one number. Two
    /// different reports give two numbers. Zero: there was no report.
    pub container_states: u32,
    /// Whether the kubelet's worker for it may be starting or changing a container, by its last report; until that is
    /// done it reports nothing.
    pub worker_may_be_busy: bool,
    /// Whether it is a mirror pod: the API's copy of a static pod.
    pub mirror: bool,
    /// Whether its condition `Ready` is `True`.
    pub ready: bool,
    /// The condition `NODE_UNREACHABLE_CONDITION`.
    pub unreachable: ConditionState,
    /// Its labels, shared with the pods that have the same.
    pub labels: Labels,
    /// Its tolerations of NoExecute taints, shared with the pods that have the same.
    pub tolerations: Tolerations,
    /// Whether it has the scheduling gate [`super::VOLUME_GATE`], so that it is not scheduled.
    pub gated: bool,
    /// Whether the scheduler reported it as unschedulable.
    pub unschedulable: bool,
    /// Its controller, shared with the other pods of that controller.
    pub controller: Option<Arc<Controller>>,
    /// Fields that few pods have: see [`Pod::set_uncommon`].
    pub uncommon: Option<Box<Uncommon>>,
    /// When this process first saw this incarnation.
    pub first_seen: Mono,
    /// When this process first saw it in its current place: on its node, or unbound.
    pub placed_at: Mono,
    /// When this process last saw it become Ready, which only a running kubelet reports. `None`: it was Ready when it
    /// was first seen, or is not Ready.
    pub became_ready: Option<Mono>,
}

impl std::ops::Deref for Pod {
    type Target = Uncommon;
    fn deref(&self) -> &Uncommon {
        static NONE: Uncommon = Uncommon::NONE;
        self.uncommon.as_deref().unwrap_or(&NONE)
    }
}

impl Pod {
    /// Takes its times from its timestamps, in seconds. A process that has not watched it knows no better.
    pub fn apply_timestamps(&mut self, time_of: &impl Fn(i64) -> Mono) {
        (self.first_seen, self.placed_at) = (time_of(self.created), time_of(self.bound_at));
        let Some(uncommon) = &mut self.uncommon else { return };
        if let Some(deletion) = &mut uncommon.deletion {
            // The API server adds the grace period to the time of the request.
            deletion.first_seen = time_of(deletion.at.saturating_sub(deletion.grace.unwrap_or_default()));
        }
        if let Some(target) = &mut uncommon.disruption_target {
            target.first_seen = time_of(target.since);
        }
    }

    /// Stores these fields. Empty ones take no memory, and pods with equal fields are equal.
    pub fn set_uncommon(&mut self, uncommon: Uncommon) {
        self.uncommon = (uncommon != Uncommon::NONE).then(|| Box::new(uncommon));
    }

    /// The UID.
    #[must_use]
    pub const fn uid(&self) -> &Uid {
        &self.key.uid
    }

    /// Whether its replacement takes over its name or its volumes, and so can start only when it has terminated: a
    /// pod of a StatefulSet, or of a custom kind with which database operators do the same (CloudNativePG's Cluster,
    /// StrimziPodSet).
    #[must_use]
    pub fn keeps_identity(&self) -> bool {
        let Some(controller) = &self.controller else { return false };
        let group = controller.api_version.split_once('/').map_or("", |(group, _)| group);
        &*controller.kind == "StatefulSet" || !KUBERNETES_GROUPS.contains(&group)
    }

    /// Whether nothing of it runs any more: its kubelet reported the termination of all containers.
    #[must_use]
    pub const fn has_terminated(&self) -> bool {
        self.phase.is_terminal() && self.running_containers == 0
    }

    /// Whether its volumes may be mounted: it may run, or its kubelet has not removed it yet. A kubelet removes a
    /// deleted pod after it has unmounted its volumes; for a pod that was not deleted it does not report the unmount.
    #[must_use]
    pub fn may_mount_volumes(&self) -> bool {
        !self.has_terminated() || self.deletion.is_some() && !self.waits_for_finalizers()
    }

    /// From when on missing reports show that its kubelet is gone. A kubelet that `reports_deletions` reports at once
    /// that it has seen the deletion, and after that nothing before the pod's grace period is over. A phase that
    /// another client made terminal makes the kubelet terminate the pod, too. `None`: it was not deleted.
    #[must_use]
    pub fn report_due_at(&self, reports_deletions: bool) -> Option<Mono> {
        let at_once =
            |deletion: &Deletion| reports_deletions && self.observed_generation > 0 && !deletion.kubelet_may_know;
        match &self.deletion {
            Some(deletion) if at_once(deletion) => Some(deletion.first_seen),
            Some(Deletion { grace, .. }) if *grace != Some(0) => self.grace_ends_at(),
            _ => self
                .grace_ends_at()
                .max(self.terminal_while_running_since.map(|since| since + grace_period(self.spec_grace_seconds))),
        }
    }

    /// When its grace period ends, counted from when this process first saw the deletion. `None`: it was not deleted.
    #[must_use]
    pub fn grace_ends_at(&self) -> Option<Mono> {
        let deletion = self.deletion?;
        Some(deletion.first_seen + grace_period(deletion.grace))
    }

    /// Whether its kubelet has reported that it saw the last change of the pod, such as its deletion.
    #[must_use]
    pub const fn has_answered(&self) -> bool {
        self.observed_generation > 0 && self.observed_generation >= self.generation
    }

    /// When its processes have terminated at the latest, if its kubelet sees the removal now. A kubelet that has not
    /// reported that it saw the deletion gives them the whole grace period of the pod from here. `None`: its worker
    /// may be busy, and terminates them only after that.
    #[must_use]
    pub fn terminates_at_if_removed(&self, now: Mono) -> Option<Mono> {
        let full_grace_ends_at = now + grace_period(self.spec_grace_seconds);
        let ends = match self.grace_ends_at() {
            Some(ends) if self.has_answered() => ends,
            Some(ends) => ends.max(full_grace_ends_at),
            None => full_grace_ends_at,
        };
        (!self.worker_may_be_busy).then_some(ends)
    }

    /// Whether the pod's kubelet wrote this change. No other client reports on containers (waiting, running,
    /// terminated or restarted), makes a pod Ready or reports about a newer generation, except clients that set the
    /// phase Failed in place of the kubelet. The policy `pod-report` denies the same to others.
    #[must_use]
    pub fn was_updated_by_kubelet(&self, before: &Self) -> bool {
        let observed = self.observed_generation > before.observed_generation && self.phase != Phase::Failed;
        self.node == before.node
            && (observed || self.container_states != before.container_states || (self.ready && !before.ready))
    }

    /// Whether it has ended and is removed except for its finalizers. A grace period of 0 alone shows no end: that is what
    /// any client that deletes it with 0 writes, while its containers run (`pkg/registry/core/pod/strategy.go:CheckGracefulDelete`).
    #[must_use]
    pub fn waits_for_finalizers(&self) -> bool {
        let is_due = self.deletion.is_some_and(|deletion| deletion.grace == Some(0));
        is_due && self.phase.is_terminal() && !self.finalizers.is_empty()
    }
}

/// A grace period, with the default for a missing one.
fn grace_period(grace: Option<i64>) -> Duration {
    Duration::from_secs(u64::try_from(grace.unwrap_or(DEFAULT_GRACE)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    /// A pod grew from 192 to 328 bytes with its place in the cache: 114 MiB after a cold start with 150,000 pods,
    /// from 69.
    #[test]
    fn bug_every_pod_took_memory_for_uncommon_fields() {
        assert!(size_of::<super::Pod>() <= 184, "{}", size_of::<super::Pod>());
    }
}
