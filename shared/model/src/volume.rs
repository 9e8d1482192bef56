//! Volumes as decisions see them: PersistentVolumes, claims, attachments, and the Leases of their holders.

use std::sync::Arc;

use super::{BootId, Incarnation, Mono, Node, Rv, Uid};

/// The namespace of the Leases that record the holder of each volume. Each has the name of its PersistentVolume.
pub const VOLUME_LEASE_NAMESPACE: &str = "pod-safety-volumes";

/// The scheduling gate that keeps a pod from every node until its exclusive volumes are free.
pub const VOLUME_GATE: &str = "pod-safety.dev/volume-guard";

/// The label of a Lease by which admission denies that its volume is attached elsewhere, or detached.
pub const HELD_LABEL: &str = "pod-safety.dev/held";

/// The label of a Lease whose volume may be detached from the node of this UID, and must not be attached there again.
/// Its annotation of the same key has the node's name, for admission.
pub const DETACH_LABEL: &str = "pod-safety.dev/detach-from";

/// The label of a Lease with the UID of its PersistentVolume.
pub const VOLUME_UID_LABEL: &str = "pod-safety.dev/volume-uid";

/// Where a volume may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharing {
    /// `ReadWriteOncePod`: by one pod.
    OnePod,
    /// `ReadWriteOnce`: by the pods of one node.
    OneNode,
    /// On several nodes, or without access modes.
    Many,
}

impl Sharing {
    /// The sharing by access modes, as in Kubernetes: one mode that allows several nodes makes the volume shared
    /// (`IsMultiAttachAllowed`); so does an empty list.
    #[must_use]
    pub fn from_access_modes<'a>(modes: impl Iterator<Item = &'a str>) -> Self {
        modes
            .fold(None, |widest: Option<Self>, mode| {
                let this = match mode {
                    "ReadWriteOncePod" => Self::OnePod,
                    "ReadWriteOnce" => Self::OneNode,
                    _ => Self::Many,
                };
                Some(widest.map_or(this, |found| found.max(this)))
            })
            .unwrap_or(Self::Many)
    }
}

/// The identity of a PersistentVolume: names can be used again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeKey {
    /// Its name.
    pub name: Arc<str>,
    /// The UID; that of its Lease if the volume was removed.
    pub uid: Uid,
}

/// A PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: Arc<str>,
    /// The UID.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// Where it may be written to.
    pub sharing: Sharing,
    /// Its class, empty if it has none.
    pub class: Arc<str>,
    /// The CSI driver, if it has one.
    pub driver: Option<Arc<str>>,
    /// Its unique name, as kubelets report it in `volumesInUse`; only of CSI volumes.
    pub unique_name: Option<Box<str>>,
    /// The claim to which it is bound, or for which it is reserved.
    pub claim: Option<BoundClaim>,
}

/// `claimRef` of a PersistentVolume; only clients that may write PersistentVolumes set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundClaim {
    /// The claim's namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The UID. `None`: the volume is reserved for any claim of that name.
    pub uid: Option<Uid>,
}

impl Volume {
    /// Whether it is bound to another claim: then no kubelet mounts it for this one, whatever the claim names.
    #[must_use]
    pub fn is_bound_to_another(&self, claim: (&str, &str), uid: Option<&Uid>) -> bool {
        self.claim.as_ref().is_some_and(|bound| {
            (&*bound.namespace, &*bound.name) != claim || bound.uid.is_some() && bound.uid.as_ref() != uid
        })
    }
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeClaim {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The UID.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// The volume that it names. That may be bound to another claim, because tenants write this field
    /// ([`Volume::is_bound_to_another`]).
    pub volume: Option<Arc<str>>,
}

/// A VolumeAttachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its name.
    pub name: Arc<str>,
    /// The UID.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// The volume; `None`: one without a PersistentVolume.
    pub volume: Option<Arc<str>>,
    /// The node.
    pub node: Arc<str>,
    /// Whether the driver reports it as attached.
    pub attached: bool,
}

/// The holder of a volume: the incarnation of a node in which it may be written to, and the pod for which it was
/// taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The node's name.
    pub node: Arc<str>,
    /// The UID of the Node.
    pub node_uid: Uid,
    /// The boot ID of its machine.
    pub boot_id: BootId,
    /// The pod for which it was taken; `None`: it was attached there before a pod was seen.
    pub pod: Option<Uid>,
}

impl Node {
    /// Whether its kubelet reports this volume as mounted, or about to be.
    #[must_use]
    pub fn reports_in_use(&self, volume: Option<&Volume>) -> bool {
        let unique = volume.and_then(|volume| volume.unique_name.as_ref());
        unique.is_some_and(|unique| self.volumes_in_use.binary_search(unique).is_ok())
    }

    /// Whether its kubelet reports other volumes of the same CSI driver: then it reports those of that driver at all.
    #[must_use]
    pub fn reports_others_of_driver(&self, volume: Option<&Volume>) -> bool {
        let Some((volume, driver)) = volume.and_then(|volume| Some((volume, volume.driver.as_ref()?))) else {
            return false;
        };
        let is_of_driver = |one: &str| {
            let csi = one.strip_prefix("kubernetes.io/csi/").and_then(|rest| rest.split_once('^'));
            csi.is_some_and(|(of, _)| *of == **driver)
        };
        self.volumes_in_use.iter().any(|one| Some(one) != volume.unique_name.as_ref() && is_of_driver(one))
    }
}

impl Holder {
    /// Whether it took its volume in this incarnation.
    #[must_use]
    pub fn matches_incarnation(&self, incarnation: &Incarnation) -> bool {
        self.boot_id.is_known_same(incarnation.boot()) && self.node_uid.to_string() == incarnation.uid
    }

    /// The holder for the current incarnation of a node.
    #[must_use]
    pub fn for_node(node: &Node, pod: Option<Uid>) -> Self {
        let boot_id = node.boot();
        Self { node: Arc::clone(&node.name), node_uid: node.uid.clone(), boot_id, pod }
    }
}

/// Stands for a missing pod in a holder's identity.
const NO_POD: &str = "-";

impl Holder {
    /// Parses `spec.holderIdentity`: NODE/NODE-UID/BOOT-ID/POD-UID. `None`: pod-safety did not write it.
    #[must_use]
    pub fn parse(identity: &str) -> Option<Self> {
        let mut parts = identity.split('/');
        let mut next = || parts.next();
        let (node, node_uid, boot_id, pod) = (next()?, next()?, next()?, next()?);
        if node.is_empty() || next().is_some() {
            return None;
        }
        let pod = if pod == NO_POD { None } else { Some(Uid::new(pod)?) };
        Some(Self { node: node.into(), node_uid: Uid::new(node_uid)?, boot_id: boot_id.into(), pod })
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { node, node_uid, boot_id, pod } = self;
        match pod {
            Some(pod) => write!(f, "{node}/{node_uid}/{boot_id}/{pod}"),
            None => write!(f, "{node}/{node_uid}/{boot_id}/{NO_POD}"),
        }
    }
}

/// The holder of a volume, by its Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseHolder {
    /// None.
    Free,
    /// This incarnation of a node.
    By(Holder),
    /// Another client wrote an identity that cannot be parsed. Unknown is not absent.
    Unreadable(Box<str>),
}

impl LeaseHolder {
    /// Parses `spec.holderIdentity`.
    #[must_use]
    pub fn parse(identity: &str) -> Self {
        match Holder::parse(identity) {
            Some(holder) => Self::By(holder),
            None if identity.is_empty() => Self::Free,
            None => Self::Unreadable(identity.into()),
        }
    }
}

/// The Lease of an exclusive volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeLease {
    /// The name of the Lease, which is also the volume's.
    pub name: Arc<str>,
    /// The UID of the Lease.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// The holder.
    pub holder: LeaseHolder,
    /// How often it was revoked.
    pub generation: i32,
    /// When this process first saw it with this holder.
    pub holder_since: Mono,
    /// Whether it has the label [`HELD_LABEL`]: admission allows no client to attach the volume elsewhere, nor to
    /// detach it.
    pub attach_and_detach_denied: bool,
    /// The value of [`DETACH_LABEL`]: the UID of the node to which the volume was attached when the label was
    /// written.
    pub detach_from: Option<Uid>,
}

impl VolumeLease {
    /// Whether the volume was attached to this holder when [`DETACH_LABEL`] was written.
    #[must_use]
    pub fn was_attached_to_holder(&self, holder: &Holder) -> bool {
        self.detach_from.as_ref() == Some(&holder.node_uid)
            && matches!(&self.holder, LeaseHolder::By(by) if by == holder)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_mode_for_several_nodes_makes_a_volume_shared() {
        for (modes, sharing) in [
            (&["ReadWriteOnce"][..], Sharing::OneNode),
            (&["ReadWriteOncePod"], Sharing::OnePod),
            (&["ReadWriteOnce", "ReadWriteOncePod"], Sharing::OneNode),
            (&["ReadWriteOnce", "ReadOnlyMany"], Sharing::Many),
            (&["ReadWriteMany"], Sharing::Many),
            (&["SomethingNew"], Sharing::Many),
            (&[], Sharing::Many),
        ] {
            assert_eq!(Sharing::from_access_modes(modes.iter().copied()), sharing, "{modes:?}");
        }
    }

    #[test]
    fn a_foreign_holder_identity_is_rejected() {
        for identity in ["", "n", "n/u/b", "/u/b/p", "n//b/p", "n/u/b/", "n/u/b/p/x"] {
            assert_eq!(Holder::parse(identity), None, "{identity}");
        }
    }

    proptest! {
        #[test]
        fn a_holder_identity_is_parsed_as_it_was_written(node in "[a-z0-9.-]{1,60}", uid in "[a-f0-9-]{1,36}", boot in "[a-f0-9]{8}-0000-4000-8000-[a-f0-9]{12}|", pod in prop::option::of("[a-f0-9]{1,36}")) {
            let holder = Holder { node: node.into(), node_uid: Uid::new(&uid).unwrap(), boot_id: (*boot).into(), pod: pod.and_then(|pod| Uid::new(&pod)) };
            prop_assert_eq!(Holder::parse(&holder.to_string()), Some(holder));
        }
    }
}
