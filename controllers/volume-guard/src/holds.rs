//! Why a volume stays with its holder, and a pod behind its gate: typed, with numbers, for Events and for programs.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::cache::FreshnessError;
use pod_safety_shared::controller_loop::{self, HoldReason};
use pod_safety_shared::events::EventType;
use pod_safety_shared::model::{BootId, Holder, Kind, Uid};
use strum::{IntoStaticStr, VariantNames};

/// What this controller decides about a key.
pub type Decision = controller_loop::Decision<Hold>;

/// A reason to let no other node attach a volume. The names of the variants are values of metrics and of programs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, IntoStaticStr, VariantNames)]
pub enum Hold {
    /// The cache of a kind is not synced, or is stale.
    #[error(transparent)]
    #[strum(transparent)]
    Unfresh(#[from] FreshnessError),
    /// The central hold: the holder may still write.
    #[error(
        "volume {volume} was taken by node {node}, which {doubt}. There is no evidence that it no longer writes, so no other node may attach it{}. It is free when {}{}",
        detaching(detachable),
        by_itself(doubt),
        remedy.condition(node, volume)
    )]
    #[strum(serialize = "VolumeUnproved")]
    NoEvidence {
        /// The volume.
        volume: Arc<str>,
        /// The holder.
        node: Arc<str>,
        /// Why the node is in doubt.
        doubt: Doubt,
        /// The volume is also free when it is detached.
        detachable: bool,
        /// What frees it for certain.
        remedy: Remedy,
    },
    /// The volume was detached from a node whose pods still exist: the next attachment may be that node's again.
    #[error(
        "volume {volume} was detached from node {node}, which had not unmounted it. It is not attached there again while pods that use it are bound to that node"
    )]
    #[strum(serialize = "VolumeDetached")]
    Detached {
        /// The volume.
        volume: Arc<str>,
        /// The node from which it was detached.
        node: Arc<str>,
    },
    /// Several nodes used the volume before there was a holder.
    #[error(
        "several nodes may write to volume {volume} at once: {}. None of them is recorded as its owner. Decide which node keeps the volume, and delete the pods that use it on the others", nodes.join(", ")
    )]
    #[strum(serialize = "VolumeOnSeveralNodes")]
    SeveralNodes {
        /// The volume.
        volume: Arc<str>,
        /// The nodes that mounted it, or that it is attached to.
        nodes: Vec<String>,
    },
    /// The Lease has a holder that this controller does not write.
    #[error(
        "the Lease {volume} says that its volume is held by {identity:?}, which is not NODE/NODE-UID/BOOT-ID/POD-UID, so no node gets the volume. If nothing uses it, delete the Lease (kubectl -n pod-safety-volumes delete lease {volume}). The next user then takes it"
    )]
    #[strum(serialize = "VolumeLeaseUnreadable")]
    LeaseUnreadable {
        /// The volume.
        volume: Arc<str>,
        /// The holder identity in the Lease.
        identity: Box<str>,
    },
    /// Nothing uses the volume any more, but no report confirms that.
    #[error(
        "nothing uses volume {volume} on node {node} any more, but its kubelet has not confirmed that. It is free in {}s, if the kubelet reports until then", left.as_secs()
    )]
    #[strum(serialize = "VolumeUnconfirmed")]
    Unconfirmed {
        /// The volume.
        volume: Arc<str>,
        /// The holder.
        node: Arc<str>,
        /// The time until it is free.
        left: Duration,
    },
    /// An object about the volume cannot be read.
    #[error("volume {volume} is left as it is, because {what} cannot be read: {why}")]
    #[strum(serialize = "VolumeUnreadable")]
    Unreadable {
        /// The volume.
        volume: Arc<str>,
        /// The object.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// Some objects of a kind cannot be decoded, not even their names.
    #[error(
        "volume {volume} is left as it is, because {count} of the {} cannot be read. Correct or delete them", kind.resource()
    )]
    #[strum(serialize = "VolumeUnreadable")]
    KindUnreadable {
        /// The volume.
        volume: Arc<str>,
        /// The kind.
        kind: Kind,
        /// How many.
        count: usize,
    },
    /// A pod waits behind the scheduling gate.
    #[error("the pod waits for volume {volume}: {why}")]
    #[strum(serialize = "WaitsForVolume")]
    Waits {
        /// The volume, or the claim that has none.
        volume: Arc<str>,
        /// What it waits for.
        why: String,
    },
}

/// Why the holder of a volume may still write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// Its Node is not Ready.
    #[error("is not Ready")]
    NotReady,
    /// Its Node has the out-of-service taint.
    #[error("has the taint node.kubernetes.io/out-of-service, which proves nothing")]
    OutOfService,
    /// Its Node was deleted.
    #[error("has no Node object")]
    Missing,
    /// Its Node cannot be read.
    #[error("cannot be read ({0})")]
    Unreadable(String),
    /// Another Node has its name.
    #[error("was replaced by another Node of that name")]
    Replaced {
        /// That Node reports another boot than the one that acquired the volume.
        booted: bool,
    },
}

/// What frees a volume whose holder may still write. The Event and the annotation of the Lease are written once: so
/// the advice for an existing node names commands that also work once another Node has its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    uid: Uid,
    /// Unknown: no evidence can name the boot of its holder.
    boot_id: BootId,
    /// Whether another Node has its name, and then whether that Node reports another boot.
    replaced: Option<bool>,
    /// The node reports, and has the out-of-service taint: a confirmation about a Ready node is refused.
    is_tainted: bool,
}

impl Remedy {
    pub(crate) fn for_holder(holder: &Holder, doubt: &Doubt) -> Self {
        let replaced = match doubt {
            Doubt::Replaced { booted } => Some(*booted),
            Doubt::NotReady | Doubt::OutOfService | Doubt::Missing | Doubt::Unreadable(_) => None,
        };
        let is_tainted = *doubt == Doubt::OutOfService;
        Self { uid: holder.node_uid.clone(), boot_id: holder.boot_id, replaced, is_tainted }
    }

    /// The text that follows "It is free when".
    fn condition(&self, node: &str, volume: &str) -> String {
        let Self { uid, boot_id, replaced, is_tainted } = self;
        // The command is for a person who saw the machine powered off; each sentence below states that.
        let former = format!("pod-safety confirm-down {node} --uid {uid} --boot {boot_id} --reason TEXT");
        let delete = format!("kubectl -n pod-safety-volumes delete lease {volume}");
        let unmounts = if *is_tainted {
            format!(
                "its kubelet, which reports, has unmounted it (if the node is in service, remove the taint: kubectl taint node {node} node.kubernetes.io/out-of-service-)"
            )
        } else {
            "the node reports again and unmounts it".to_owned()
        };
        match (replaced, boot_id.is_unknown()) {
            (None, false) => format!(
                "{unmounts}, or when the node is proved off: by a FencePolicy (kubectl get nodefences shows its progress), or by the confirmation of a person who saw that the machine is powered off (pod-safety confirm-down {node} --reason TEXT; once another Node has its name, {former})"
            ),
            (None, true) => format!(
                "{unmounts}. The volume was taken without a boot ID that is a UUID, so no evidence can be about that boot. Only if you saw that the machine is powered off, delete its Node (kubectl delete node {node}), and the volume is free after the quarantine; once another Node has its name, delete the Lease ({delete})"
            ),
            (Some(true), _) => format!(
                "there is evidence that the former boot of the node has ended: of a fence device, or by the confirmation of a person who saw that the old machine is powered off, or has booted since ({former})"
            ),
            (Some(false), _) => format!(
                "a person deletes its Lease: the old or the new Node has no boot ID that is a UUID, so no evidence can tell one from the other. Only if you saw that the old machine is powered off, or has booted since: {delete}"
            ),
        }
    }
}

const fn detaching(detachable: &bool) -> &'static str {
    if *detachable {
        ", but it may be detached, and then it is free, because its storage accepts writes only from attached nodes"
    } else {
        ", nor may it be detached"
    }
}

/// What frees it without evidence about a machine.
const fn by_itself(doubt: &Doubt) -> &'static str {
    match doubt {
        Doubt::Missing => "no pod that uses it is left there and the quarantine is over, when ",
        Doubt::NotReady | Doubt::OutOfService | Doubt::Unreadable(_) | Doubt::Replaced { .. } => "",
    }
}

impl HoldReason for Hold {
    fn reason(&self) -> &'static str {
        self.into()
    }

    fn event(&self) -> Option<(EventType, &'static str)> {
        match self {
            Self::Unfresh(_)
            | Self::Detached { .. }
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
