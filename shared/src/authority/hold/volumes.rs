//! Why a volume stays where it is, and a pod before the scheduler.

use std::sync::Arc;
use std::time::Duration;

use crate::events::EventType;
use crate::model::Kind;

/// A reason to give a volume to nobody else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeHold {
    /// The heart of it: its holder may still write.
    #[error(
        "volume {volume} was taken by node {node}, which {doubt}, and nobody has proved that it writes no more: nobody else may attach it{}. It is free when the node is heard again and unmounts it, or when the node is proved off: by a FencePolicy (kubectl get nodefences says how far that is), or by you (pod-safety confirm-down {node})",
        detaching(detachable)
    )]
    NoEvidence {
        /// The volume.
        volume: Arc<str>,
        /// Who holds it.
        node: Arc<str>,
        /// What is wrong with the node.
        doubt: Doubt,
        /// It is free, too, when it is detached.
        detachable: bool,
    },
    /// It was detached from a node whose pods are there still: the next attachment may be that node's again.
    #[error(
        "volume {volume} was detached from node {node}, which did not give it back: it is not attached there again while pods that use it are bound to that node"
    )]
    Detached {
        /// The volume.
        volume: Arc<str>,
        /// From whom.
        node: Arc<str>,
    },
    /// Before anybody held it, several nodes used it.
    #[error(
        "volume {volume} may be written to by several nodes at once: {}. None of them is called its owner. Find out which of their pods is right, and end the others", nodes.join(", ")
    )]
    SeveralNodes {
        /// The volume.
        volume: Arc<str>,
        /// The nodes that mounted it, or that it is attached to.
        nodes: Vec<String>,
    },
    /// Somebody wrote what we do not write.
    #[error(
        "the Lease {volume} says that its volume is held by {identity:?}, which is not NODE/NODE-UID/BOOT-ID/POD-UID: nobody is given the volume. If nobody uses it, delete the Lease (kubectl -n pod-safety-volumes delete lease {volume}): it is taken anew by whoever does"
    )]
    LeaseUnreadable {
        /// The volume.
        volume: Arc<str>,
        /// What the Lease says.
        identity: Box<str>,
    },
    /// Nothing uses it any more, but nobody said that it was ended.
    #[error(
        "nothing uses volume {volume} on node {node} any more, but its kubelet did not say that it ended it: free in {}s, if the kubelet is heard until then", left.as_secs()
    )]
    Unconfirmed {
        /// The volume.
        volume: Arc<str>,
        /// Who holds it.
        node: Arc<str>,
        /// How long is left.
        left: Duration,
    },
    /// Not everything about volumes can be read.
    #[error("volume {volume} is left as it is, for {what} cannot be read: {why}; unknown is not absent")]
    Unreadable {
        /// The volume.
        volume: Arc<str>,
        /// What.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// Some objects of a kind have not even names.
    #[error(
        "volume {volume} is left as it is, for {count} of the {} cannot be read: unknown is not absent. Correct or delete them", kind.resource()
    )]
    KindUnreadable {
        /// The volume.
        volume: Arc<str>,
        /// The kind.
        kind: Kind,
        /// How many.
        count: usize,
    },
    /// A pod waits behind the gate.
    #[error("the pod waits for volume {volume}: {why}")]
    Waits {
        /// The volume, or the claim that has none.
        volume: Arc<str>,
        /// Whom it waits for.
        why: String,
    },
}

/// Why the holder of a volume cannot be trusted to have ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// Its Node is not Ready.
    #[error("is not Ready")]
    NotReady,
    /// It bears the out-of-service taint.
    #[error("bears the taint node.kubernetes.io/out-of-service, which proves nothing")]
    OutOfService,
    /// Its Node is gone.
    #[error("has no Node object")]
    Missing,
    /// Its Node cannot be read.
    #[error("cannot be read ({0})")]
    Unreadable(String),
    /// Another Node has its name.
    #[error("was replaced by another Node of that name")]
    Replaced,
}

const fn detaching(detachable: &bool) -> &'static str {
    if *detachable {
        ", but it may be detached, and then it is free: its storage lets nobody write who is not attached"
    } else {
        ", nor may it be detached"
    }
}

impl VolumeHold {
    pub(super) const fn reason(&self) -> &'static str {
        match self {
            Self::NoEvidence { .. } => "VolumeUnproved",
            Self::Detached { .. } => "VolumeDetached",
            Self::SeveralNodes { .. } => "VolumeOnSeveralNodes",
            Self::LeaseUnreadable { .. } => "VolumeLeaseUnreadable",
            Self::Unconfirmed { .. } => "VolumeUnconfirmed",
            Self::Unreadable { .. } | Self::KindUnreadable { .. } => "VolumeUnreadable",
            Self::Waits { .. } => "WaitsForVolume",
        }
    }

    pub(super) const fn event(&self) -> Option<(EventType, &'static str)> {
        match self {
            Self::Detached { .. }
            | Self::Unconfirmed { .. }
            | Self::Unreadable { .. }
            | Self::KindUnreadable { .. } => None,
            Self::NoEvidence { .. } | Self::SeveralNodes { .. } | Self::LeaseUnreadable { .. } => {
                Some((EventType::Warning, "VolumeHeld"))
            }
            Self::Waits { .. } => Some((EventType::Normal, "WaitsForVolume")),
        }
    }
}
