//! Evidence that processes cannot run. It has no public constructor, is not `Clone`, and is consumed by the one act that it
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

/// How long evidence may be used after its reads. A machine takes longer to boot and register its Node; a batch of writes to a
/// healthy API server takes less.
/// docs/assumptions.md: no-boot-in-ten-seconds
pub const VALID_FOR: Duration = Duration::from_secs(2);
/// No machine boots faster. After a status check that reported off, no process runs on the machine for this long.
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

    /// Evidence that no judge verified, for tests of the acts.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub const fn for_act_tests(kind: EvidenceKind, subject: S, expires: Mono) -> Self {
        Self::new(kind, subject, expires)
    }

    /// The kind of evidence.
    #[must_use]
    pub const fn kind(&self) -> &EvidenceKind {
        &self.kind
    }

    pub(crate) fn into_kind(self) -> EvidenceKind {
        self.kind
    }

    /// The pod, incarnation or Lease that the evidence is about.
    #[must_use]
    pub const fn subject(&self) -> &S {
        &self.subject
    }

    /// When the evidence expires. It permits no request from then on.
    #[must_use]
    pub const fn expires(&self) -> Mono {
        self.expires
    }
}

#[cfg(feature = "testing")]
impl<S: Clone> Evidence<S> {
    /// A copy, for a state space search that follows several continuations of one process. It copies only existing evidence.
    #[must_use]
    pub fn copied(&self) -> Self {
        Self { kind: self.kind.clone(), subject: self.subject.clone(), expires: self.expires }
    }
}

/// One pod at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodVersion {
    /// The pod's key.
    pub pod: PodKey,
    /// The pod's resourceVersion.
    pub rv: Rv,
    /// The phase is terminal already: no PATCH is needed.
    pub terminal: bool,
    /// `metadata.generation`, for `observedGeneration`.
    pub generation: i64,
}

/// The Lease of one volume, at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseVersion {
    /// The name of the PersistentVolume, which is the name of the Lease.
    pub volume: Arc<str>,
    /// The UID of the Lease.
    pub uid: Uid,
    /// The resourceVersion of the Lease.
    pub rv: Rv,
}

/// The kinds of evidence. The set is closed, because the names label metrics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::EnumDiscriminants)]
#[strum_discriminants(name(EvidenceName), derive(strum::EnumIter, strum::IntoStaticStr), doc = "The name of a kind.")]
pub enum EvidenceKind {
    /// Two quorum reads, a quarantine apart, did not find the Node, and its kubelet did not report in between.
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
    /// The kubelet reported that every container of the pod terminated.
    /// docs/assumptions.md: ended-when-it-says-so
    #[error("the kubelet reported that every container of the pod terminated")]
    KubeletTerminated,
    /// The agent on the pod's node checked after the kubelet had observed the deletion, and found no process and no mount
    /// of the pod.
    /// docs/assumptions.md: empty-is-ended
    #[error("the agent of node {node} reports that no process and no mount of the pod is left")]
    PodsEnded {
        /// The node's name.
        node: Arc<str>,
    },
    /// The node is not Ready and has an out-of-service taint that others added, and the settings accept this taint as evidence.
    #[error(
        "node {node} is not Ready and has the taint node.kubernetes.io/out-of-service, which --trust-out-of-service-taint accepts as proof"
    )]
    #[strum_discriminants(strum(serialize = "Asserted"))]
    TrustedTaint {
        /// The node's name.
        node: Arc<str>,
    },
    /// Two status checks of the fence devices established the kind of evidence, and the devices confirm it now.
    #[error("node {node} {}: FenceEvidence {proof}, checked again just now", kind.describe())]
    Fenced {
        /// The node's name.
        node: Arc<str>,
        /// The name of the FenceEvidence.
        proof: Arc<str>,
        /// What the devices established.
        kind: FenceEvidenceKind,
    },
    /// The machine has booted since, so the processes of the earlier boot have ended.
    #[error("node {node} has booted since: its boot ID changed")]
    BootChanged {
        /// The node's name.
        node: Arc<str>,
    },
    /// The storage of one volume accepts no more writes from the node. It releases no pod.
    #[error("the storage of volume {volume} accepts no writes from node {node} any more: {how}")]
    StorageFenced {
        /// The PersistentVolume.
        volume: Arc<str>,
        /// The node's name.
        node: Arc<str>,
        /// What keeps the node from the volume.
        how: Barrier,
    },
    /// A person confirmed that the machine is off.
    #[error("{by} confirmed that node {node} is off: FenceEvidence {proof}")]
    Confirmed {
        /// The node's name.
        node: Arc<str>,
        /// The name of the FenceEvidence.
        proof: Arc<str>,
        /// The person's user name.
        by: Arc<str>,
    },
}

/// What keeps a node from writing to a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Barrier {
    /// No VolumeAttachment of the volume names the node, and this driver's storage accepts no writes from a node without one.
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
    /// The name in metrics, Events and the API.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if let Self::Fenced { kind, .. } = self { kind.name() } else { EvidenceName::from(self).into() }
    }

    /// Whether this is evidence of fencing. It permits the release of all pods and volumes of the incarnation, and the
    /// out-of-service taint on its node.
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
