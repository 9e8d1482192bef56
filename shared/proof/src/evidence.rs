//! Evidence: that processes cannot run. It has no public constructor, cannot be cloned, and is consumed by the one act that it
//! permits:
//!
//! ```compile_fail,E0451
//! use pod_safety_proof::{Evidence, EvidenceKind, PodVersion};
//! fn forged(subject: PodVersion, expires: pod_safety_model::Mono) -> Evidence<PodVersion> {
//!     Evidence { kind: EvidenceKind::NeverScheduled, subject, expires }
//! }
//! ```
//!
//! ```compile_fail,E0599
//! fn twice(evidence: pod_safety_proof::Evidence<pod_safety_proof::PodVersion>) {
//!     let second = evidence.clone();
//! }
//! ```

use std::sync::Arc;
use std::time::Duration;

use pod_safety_model::{FenceEvidenceKind, Mono, PodKey, Rv, Uid};

/// For how long after its reads evidence may be used. A machine that boots needs longer to register, and a batch of writes to a
/// healthy API server needs less.
/// docs/assumptions.md: no-boot-in-ten-seconds
pub const VALID_FOR: Duration = Duration::from_secs(2);
/// No machine boots faster: for so long after a status check that reported off nothing can run on it.
/// docs/assumptions.md: no-boot-in-ten-seconds
pub const MINIMUM_BOOT: Duration = Duration::from_secs(10);

/// Evidence about a subject: a [`PodVersion`], an incarnation of a node, or a [`LeaseVersion`] of a volume.
#[derive(Debug)]
pub struct Evidence<S> {
    kind: EvidenceKind,
    subject: S,
    expires: Mono,
}

impl<S> Evidence<S> {
    pub(crate) const fn new(kind: EvidenceKind, subject: S, expires: Mono) -> Self {
        Self { kind, subject, expires }
    }

    /// Evidence that no judge ever made, for tests of the acts.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub const fn for_act_tests(kind: EvidenceKind, subject: S, expires: Mono) -> Self {
        Self::new(kind, subject, expires)
    }

    /// What it rests on.
    #[must_use]
    pub const fn kind(&self) -> &EvidenceKind {
        &self.kind
    }

    pub(crate) fn into_kind(self) -> EvidenceKind {
        self.kind
    }

    /// What it is about.
    #[must_use]
    pub const fn subject(&self) -> &S {
        &self.subject
    }

    /// From then on it proves nothing.
    #[must_use]
    pub const fn expires(&self) -> Mono {
        self.expires
    }
}

#[cfg(feature = "testing")]
impl<S: Clone> Evidence<S> {
    /// The same once more, for a search that follows several futures of one process. What was never made cannot be copied.
    #[must_use]
    pub fn copied(&self) -> Self {
        Self { kind: self.kind.clone(), subject: self.subject.clone(), expires: self.expires }
    }
}

/// One pod at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodVersion {
    /// The pod.
    pub pod: PodKey,
    /// The version.
    pub rv: Rv,
    /// The phase is terminal already: no PATCH is needed.
    pub terminal: bool,
    /// `metadata.generation`, for `observedGeneration`.
    pub generation: i64,
}

/// The Lease of one volume, at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseVersion {
    /// The PersistentVolume, which the Lease is named for.
    pub volume: Arc<str>,
    /// The UID of the Lease.
    pub uid: Uid,
    /// Its version.
    pub rv: Rv,
}

/// The kinds of evidence. Closed: it labels metrics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
pub enum EvidenceKind {
    /// Two quorum reads, a quarantine apart, did not find the node, and its
    /// kubelet gave no sign of life in between.
    #[error("node {node} does not exist: two quorum reads {}s apart did not find it, and its Lease was not renewed since", apart.as_secs())]
    NodeGone {
        /// The node's name.
        node: Arc<str>,
        /// The time between the reads.
        apart: Duration,
    },
    /// The pod was never bound to a node.
    #[error("no node ever took the pod")]
    NeverScheduled,
    /// The kubelet reported the end of every container.
    #[error("the kubelet reported that every container of the pod terminated")]
    KubeletTerminated,
    /// The agent of its node looked after the kubelet had seen the deletion, and found neither a process nor a mount of it.
    #[error("the agent of node {node} reports that no process and no mount of the pod is left")]
    PodsEnded {
        /// The node's name.
        node: Arc<str>,
    },
    /// A person or a program vouches by taint, and our policy takes their word.
    #[error(
        "node {node} is not Ready and has the taint node.kubernetes.io/out-of-service, which --trust-out-of-service-taint accepts as proof"
    )]
    #[strum(serialize = "Asserted")]
    TrustedTaint {
        /// The node's name.
        node: Arc<str>,
    },
    /// What devices showed in two looks of the machine, and show now.
    #[error("node {node} {}: FenceEvidence {proof}, checked again just now", kind.describe())]
    Fenced {
        /// The node's name.
        node: Arc<str>,
        /// The name of the FenceEvidence.
        proof: Arc<str>,
        /// What they showed.
        kind: FenceEvidenceKind,
    },
    /// The machine has booted since: what ran before has ended.
    #[error("node {node} has booted since: its boot ID changed")]
    BootChanged {
        /// The node's name.
        node: Arc<str>,
    },
    /// Of one volume alone: its storage takes nothing from the node any more. It releases no pod.
    #[error("the storage of volume {volume} accepts no writes from node {node} any more: {how}")]
    StorageFenced {
        /// The PersistentVolume.
        volume: Arc<str>,
        /// The node's name.
        node: Arc<str>,
        /// How that was found.
        how: Barrier,
    },
    /// A person confirmed that it is off.
    #[error("{by} confirmed that node {node} is off: FenceEvidence {proof}")]
    Confirmed {
        /// The node's name.
        node: Arc<str>,
        /// The name of the FenceEvidence.
        proof: Arc<str>,
        /// Who.
        by: Arc<str>,
    },
}

/// What keeps a node from a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Barrier {
    /// No VolumeAttachment of it is left for the node, and this driver's storage lets nobody write who is not attached.
    #[error("it was detached, and {driver} accepts no writes from a detached node (--exclusive-backends)")]
    Detached {
        /// The CSI driver.
        driver: Arc<str>,
    },
    /// A NetworkFence is in force.
    #[error("FenceEvidence {proof}, checked again just now")]
    Network {
        /// The name of the FenceEvidence.
        proof: Arc<str>,
    },
}

impl EvidenceKind {
    /// Its name in metrics, Events and programs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if let Self::Fenced { kind, .. } = self { kind.name() } else { self.into() }
    }

    /// Whether an incarnation was fenced: all of its pods and volumes may be released, and its node declared out of service.
    #[must_use]
    pub const fn is_fencing(&self) -> bool {
        match self {
            Self::Fenced { .. } | Self::Confirmed { .. } => true,
            Self::NodeGone { .. }
            | Self::NeverScheduled
            | Self::KubeletTerminated
            | Self::PodsEnded { .. }
            | Self::TrustedTaint { .. }
            | Self::BootChanged { .. }
            | Self::StorageFenced { .. } => false,
        }
    }
}
