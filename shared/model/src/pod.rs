//! A pod as decisions see it.

use std::sync::Arc;
use std::time::Duration;

use super::{ConditionState, Labels, Mono, PodKey, Rv, Tolerations, Uid};

/// The annotation by which a kubelet marks the API's copy of a static pod.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// `status.phase`. `Other` keeps KCM's reading: what is neither Pending, Running
/// nor Unknown counts as terminated for its collector, but proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not all containers were started yet.
    Pending,
    /// At least one container runs or restarts.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, one badly; or somebody wrote so.
    Failed,
    /// The kubelet could not be asked.
    Unknown,
    /// Empty, or a word that this version does not know.
    Other,
}

impl Phase {
    /// Reads the API's word.
    #[must_use]
    pub fn parse(word: &str) -> Self {
        match word {
            "Pending" => Self::Pending,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            "Unknown" => Self::Unknown,
            _ => Self::Other,
        }
    }

    /// Whether a default DELETE removes a pod of this phase at once
    /// (`podStrategy.CheckGracefulDelete`).
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// KCM's `isPodTerminated`, which counts toward the threshold.
    #[must_use]
    pub const fn counts_as_terminated(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Other)
    }
}

/// That somebody asked the pod to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// `deletionTimestamp`, seconds of the API server's clock.
    pub at: i64,
    /// `deletionGracePeriodSeconds`. Zero: only finalizers keep the object.
    pub grace: Option<i64>,
    /// When this process first saw it so.
    pub first_seen: Mono,
    /// Its kubelet may know, and may have said so before: it has reported about this generation, or this process never
    /// saw the pod before it was deleted.
    pub kubelet_may_know: bool,
}

/// A pod's grace in seconds where nobody says, as the API server sets it.
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
    /// The identity.
    pub uid: Uid,
}

impl Controller {
    /// The API group; empty: the core's.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether it is a DaemonSet of Kubernetes, and none of another group.
    #[must_use]
    pub fn is_daemon_set(&self) -> bool {
        self.group() == "apps" && &*self.kind == "DaemonSet"
    }
}

/// The API groups of Kubernetes' own controllers of pods.
const KUBERNETES_GROUPS: [&str; 4] = ["", "apps", "batch", "extensions"];

/// That somebody is about to end a pod, or was (KEP-3329).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisruptionTarget {
    /// Since when, in seconds of that somebody's clock.
    pub since: i64,
    /// When this process first saw it.
    pub first_seen: Mono,
}

/// What few pods have. A pod is one of 150,000, so the others do not take room for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uncommon {
    /// Set when deletion was asked for.
    pub deletion: Option<Deletion>,
    /// Its condition `DisruptionTarget` is `True` by another's hand than its kubelet's.
    pub disruption_target: Option<DisruptionTarget>,
    /// The claims of its namespace whose volumes it uses. Kept where volumes are guarded.
    pub claims: Vec<Arc<str>>,
    /// `terminationGracePeriodSeconds`, where that is not [`DEFAULT_GRACE`] and the pod has claims or `called_ended`.
    pub spec_grace_seconds: Option<i64>,
    /// When this process first saw it with a terminal phase and a container that is reported running.
    pub terminal_while_running_since: Option<Mono>,
    /// What keeps the object after its deletion.
    pub finalizers: Vec<Box<str>>,
    /// `spec.evictionResponders`: names and priorities. Kept where evictions are followed.
    pub eviction_responders: Vec<(Box<str>, i32)>,
    /// `spec.schedulingGroup` is set: it is not evicted alone. Kept where evictions are followed.
    pub in_group: bool,
}

impl Uncommon {
    /// What a pod has that has none of it.
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

/// A pod as decisions see it, some two hundred bytes with its name. It reads as if the fields of [`Uncommon`] were its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Where and who.
    pub key: PodKey,
    /// The version that was read.
    pub rv: Rv,
    /// `metadata.generation`, for `observedGeneration`.
    pub generation: i64,
    /// `creationTimestamp`, seconds of the API server's clock.
    pub created: i64,
    /// The node that it is bound to.
    pub node: Option<Arc<str>>,
    /// Since when, in seconds of the API server's clock; its creation where nobody
    /// says. Of no meaning while it is not bound.
    pub bound_at: i64,
    /// Its phase.
    pub phase: Phase,
    /// `status.reason` is `Evicted`: the kubelet threw it out.
    pub evicted: bool,
    /// `status.observedGeneration`: the generation that its kubelet has reported about. Zero: the kubelet does not say
    /// (before Kubernetes 1.34), or has not reported yet.
    pub observed_generation: i64,
    /// How many of its containers run, by their last report.
    pub running_containers: u16,
    /// The state of each of its containers and how often it was restarted, by their last report, as one number. Two reports that
    /// differ give two numbers. Zero: there was no report.
    pub container_states: u32,
    /// By its last report, the kubelet's worker for it may be starting or changing a container, and reports nothing before that
    /// is done.
    pub worker_may_be_busy: bool,
    /// The API's copy of a static pod.
    pub mirror: bool,
    /// Its condition `Ready` is `True`.
    pub ready: bool,
    /// Our condition `NODE_UNREACHABLE_CONDITION`.
    pub unreachable: ConditionState,
    /// Its labels, shared with the pods that have the same.
    pub labels: Labels,
    /// What it tolerates of the taints that end pods, shared with the pods that
    /// tolerate the same.
    pub tolerations: Tolerations,
    /// It bears our gate [`super::VOLUME_GATE`]: no scheduler takes it.
    pub gated: bool,
    /// The scheduler found no node for it as it is.
    pub unschedulable: bool,
    /// Who manages it, shared with the others that it manages.
    pub controller: Option<Arc<Controller>>,
    /// What few pods have: see `Pod::set`.
    pub uncommon: Option<Box<Uncommon>>,
    /// When this process first saw this incarnation.
    pub first_seen: Mono,
    /// When it first saw it where it is now: on its node, or on none.
    pub placed_at: Mono,
    /// When it last saw it turn ready, which only a kubelet that lives makes it. `None`: it was ready when it was
    /// first seen, or is not.
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
    /// Has it keep this. What is empty takes no memory, and pods that say the same are equal.
    pub fn set_uncommon(&mut self, uncommon: Uncommon) {
        self.uncommon = (uncommon != Uncommon::NONE).then(|| Box::new(uncommon));
    }

    /// The identity.
    #[must_use]
    pub const fn uid(&self) -> &Uid {
        &self.key.uid
    }

    /// Its replacement takes over its name or its volumes, and so can start only when it has ended: of a StatefulSet, or
    /// of a kind that Kubernetes does not have, by which operators of databases do the same (CloudNativePG's Cluster,
    /// StrimziPodSet).
    #[must_use]
    pub fn keeps_identity(&self) -> bool {
        let Some(controller) = &self.controller else { return false };
        let group = controller.api_version.split_once('/').map_or("", |(group, _)| group);
        &*controller.kind == "StatefulSet" || !KUBERNETES_GROUPS.contains(&group)
    }

    /// Nothing of it runs any more: its kubelet reported the end of all that ran.
    #[must_use]
    pub const fn has_terminated(&self) -> bool {
        self.phase.is_terminal() && self.running_containers == 0
    }

    /// Its volumes may be mounted for it: it may run, or its kubelet has not removed it yet. A kubelet removes a pod that
    /// was deleted after it has unmounted its volumes; of one that nobody deleted it does not say when it has.
    #[must_use]
    pub fn may_mount_volumes(&self) -> bool {
        !self.has_terminated() || self.deletion.is_some() && !self.waits_for_finalizers()
    }

    /// From when on the silence of its kubelet means that there is none: a kubelet that `reports_deletions` reports at once that it
    /// has seen the deletion, and then nothing before the pod's grace is over. A phase that another client made terminal has it end
    /// the pod, too. `None`: it was not deleted.
    #[must_use]
    pub fn report_due_at(&self, reports_deletions: bool) -> Option<Mono> {
        let at_once = |deletion: &Deletion| {
            reports_deletions && self.observed_generation > 0 && !deletion.kubelet_may_know
        };
        match &self.deletion {
            Some(deletion) if at_once(deletion) => Some(deletion.first_seen),
            Some(Deletion { grace, .. }) if *grace != Some(0) => self.grace_ends_at(),
            _ => self.grace_ends_at().max(
                self.terminal_while_running_since.map(|since| since + grace_period(self.spec_grace_seconds)),
            ),
        }
    }

    /// When its grace period is over, counted from when this process first saw the deletion. `None`: it was not deleted.
    #[must_use]
    pub fn grace_ends_at(&self) -> Option<Mono> {
        let deletion = self.deletion?;
        Some(deletion.first_seen + grace_period(deletion.grace))
    }

    /// When its processes have terminated at the latest, if its kubelet sees the removal now. A kubelet that has not reported that it
    /// saw the deletion gives them the whole grace of the pod from here. `None`: its worker may be busy, and ends them only after.
    #[must_use]
    pub fn terminates_at_if_removed(&self, now: Mono) -> Option<Mono> {
        let full_grace_ends_at = now + grace_period(self.spec_grace_seconds);
        let ends = match self.grace_ends_at() {
            Some(ends) if self.observed_generation >= self.generation.max(1) => ends,
            Some(ends) => ends.max(full_grace_ends_at),
            None => full_grace_ends_at,
        };
        (!self.worker_may_be_busy).then_some(ends)
    }

    /// Whether this change was written by the pod's kubelet. Nobody else reports on containers (that one waits, runs, has terminated
    /// or was restarted), turns a pod ready or reports about a newer generation, but for those that call a pod Failed in the
    /// kubelet's place. The policy `pod-report` denies the same to others.
    #[must_use]
    pub fn was_updated_by_kubelet(&self, before: &Self) -> bool {
        let observed = self.observed_generation > before.observed_generation && self.phase != Phase::Failed;
        self.node == before.node
            && (observed || self.container_states != before.container_states || (self.ready && !before.ready))
    }

    /// Removed as far as anybody but the owners of its finalizers is concerned.
    #[must_use]
    pub fn waits_for_finalizers(&self) -> bool {
        !self.finalizers.is_empty() && self.deletion.is_some_and(|deletion| deletion.grace == Some(0))
    }
}

/// A grace period.
fn grace_period(grace: Option<i64>) -> Duration {
    Duration::from_secs(u64::try_from(grace.unwrap_or(DEFAULT_GRACE)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    /// It grew from 192 to 328 bytes with its place in the cache: 114 MiB after a cold start with 150,000 pods, from 69.
    #[test]
    fn bug_a_pod_takes_no_room_for_what_few_pods_have() {
        assert!(size_of::<super::Pod>() <= 184, "{}", size_of::<super::Pod>());
    }
}
