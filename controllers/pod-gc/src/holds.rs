//! Why the controller does not act: typed, with numbers, for Events and for programs.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::cache::{FreshnessError, Inability, ReportKind};
use pod_safety_shared::controller_loop::{self, FORCE_DELETE_HELD, HoldReason, NodeUnreadable};
use pod_safety_shared::events::EventType;
use strum::{IntoStaticStr, VariantNames};

/// What this controller decides about a key.
pub type Decision = controller_loop::Decision<Hold>;

/// A reason not to act now. The names of the variants are values of metrics and of programs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, IntoStaticStr, VariantNames)]
pub enum Hold {
    /// The cache of a kind is not synced, or is stale.
    #[error(transparent)]
    #[strum(transparent)]
    Unfresh(#[from] FreshnessError),
    /// The node exists, or may exist, but cannot be read.
    #[error(transparent)]
    #[strum(transparent)]
    NodeUnreadable(#[from] NodeUnreadable),
    /// The node is missing, but not for long enough.
    #[error("node {node} is missing. It counts as gone in {}s, unless it or its Lease returns", left.as_secs())]
    Quarantine {
        /// The node's name.
        node: Arc<str>,
        /// The rest of the quarantine.
        left: Duration,
    },
    /// The node is missing, and its kubelet was active until then: the pod was deleted gracefully.
    #[error("node {node} does not exist. Its kubelet was active until the Node was deleted, and terminates the pod if it runs. If that kubelet reports nothing, the pod is removed in {}s", left.as_secs())]
    AwaitsKubelet {
        /// The node's name.
        node: Arc<str>,
        /// The time until the pod can be force deleted.
        left: Duration,
    },
    /// The node is missing, and that its kubelet does not report proves nothing about this pod.
    #[error(
        "node {node} does not exist, and its kubelet was active until the Node was deleted. {why}. Its silence is no proof. Restart that kubelet, so that it registers its Node again and ends the pod. If a person saw that the machine is powered off, force delete the pod"
    )]
    KubeletMayNotReport {
        /// The node's name.
        node: Arc<str>,
        /// Why it may not report.
        why: Inability,
    },
    /// The node is missing, but its kubelet is active.
    #[error("node {node} does not exist, but its kubelet still runs: {} {}s ago. Its pods may still run. Stop that kubelet, or restart it, so that it registers its Node again", sign_words(*sign), ago.as_secs())]
    KubeletAlive {
        /// The node's name.
        node: Arc<str>,
        /// The kind of its last report.
        sign: ReportKind,
        /// The time since then.
        ago: Duration,
    },
    /// The out-of-service taint alone is no proof.
    #[error(
        "node {node} has the taint node.kubernetes.io/out-of-service, but there is no evidence that it is off. Fence the node, or start pod-safety with --trust-out-of-service-taint to accept the taint as proof"
    )]
    OutOfServiceWithoutEvidence {
        /// The node's name.
        node: Arc<str>,
    },
    /// The most common hold: the pod was deleted, and it is unknown whether it has terminated.
    #[error(
        "node {node} is unreachable. It may be off, or cut off with this pod still running. The pod is removed when the node reports again or is proved off: by a FencePolicy (kubectl get nodefences shows its progress), or by the confirmation of a person who saw that the machine is powered off (pod-safety confirm-down {node} --reason TEXT)"
    )]
    NoEvidence {
        /// The node's name.
        node: Arc<str>,
    },
    /// The node reports that it is Ready.
    #[error("node {node} has the taint node.kubernetes.io/out-of-service, but is Ready: it is in service")]
    OutOfServiceButReady {
        /// The node's name.
        node: Arc<str>,
    },
    /// The phase is terminal, but a container is reported running.
    #[error(
        "the pod's phase says that it terminated, but its last report shows a running container: the phase was not written by its kubelet"
    )]
    TerminalButRunning,
    /// The phase is an unknown value, which KCM takes for terminated.
    #[error("the pod's phase is empty or unknown: that does not prove that it terminated")]
    PhaseUnreadable,
    /// The evidence states that the node is off, but the node is Ready.
    #[error(
        "the evidence {proof} says that node {node} is off, but it is Ready, so none of its pods is force deleted. Find out which machine was switched off"
    )]
    EvidenceConflictsWithReady {
        /// The node's name.
        node: Arc<str>,
        /// The name of the FenceEvidence.
        proof: Arc<str>,
    },
    /// Only finalizers keep the pod.
    #[error("the pod is deleted and waits for its finalizers: {}", finalizers.join(", "))]
    Finalizers {
        /// Their names.
        finalizers: Vec<String>,
    },
}

impl HoldReason for Hold {
    fn reason(&self) -> &'static str {
        self.into()
    }

    fn event(&self) -> Option<(EventType, &'static str)> {
        match self {
            Self::Unfresh(_) | Self::Quarantine { .. } | Self::AwaitsKubelet { .. } | Self::Finalizers { .. } => None,
            Self::NodeUnreadable(_)
            | Self::KubeletAlive { .. }
            | Self::KubeletMayNotReport { .. }
            | Self::OutOfServiceWithoutEvidence { .. }
            | Self::NoEvidence { .. }
            | Self::OutOfServiceButReady { .. }
            | Self::TerminalButRunning
            | Self::PhaseUnreadable
            | Self::EvidenceConflictsWithReady { .. } => Some((EventType::Warning, FORCE_DELETE_HELD)),
        }
    }
}

const fn sign_words(sign: ReportKind) -> &'static str {
    match sign {
        ReportKind::LeaseRenewed => "its Lease was renewed",
        ReportKind::PodReported => "it reported on a pod",
    }
}
