//! Volumes as decisions see them: what there is, who asks for it, where it is, and whose it is.

use std::sync::Arc;

use super::{BootId, Incarnation, Mono, Node, Rv, Uid};

/// The namespace of the Leases that say whose a volume is. Each is called after its PersistentVolume.
pub const VOLUME_LEASE_NAMESPACE: &str = "pod-safety-volumes";

/// The scheduling gate that keeps a pod from every node until its exclusive volumes are free.
pub const VOLUME_GATE: &str = "pod-safety.dev/volume-guard";

/// The label of a Lease by which admission refuses that its volume is attached elsewhere, or detached.
pub const HELD_LABEL: &str = "pod-safety.dev/held";

/// The label of a Lease whose volume may be detached from the node of this UID, and is not attached there any more. Its
/// annotation of the same key has the node's name, for admission.
pub const DETACH_LABEL: &str = "pod-safety.dev/detach-from";

/// The label of a Lease that says which PersistentVolume of that name it is about.
pub const VOLUME_UID_LABEL: &str = "pod-safety.dev/volume-uid";

/// How many may write to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharing {
    /// `ReadWriteOncePod`: one pod.
    OnePod,
    /// `ReadWriteOnce`: the pods of one node.
    OneNode,
    /// Several nodes, or nobody says.
    Many,
}

impl Sharing {
    /// As Kubernetes reads access modes: one that lets several nodes in makes the volume shared
    /// (`IsMultiAttachAllowed`); so does none at all.
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

/// Which PersistentVolume: a name may be used again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeKey {
    /// Its name.
    pub name: Arc<str>,
    /// Its identity; that of its Lease if it is gone.
    pub uid: Uid,
}

/// A PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: Arc<str>,
    /// Its identity.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// How many may write to it.
    pub sharing: Sharing,
    /// Its class, empty if it has none.
    pub class: Arc<str>,
    /// The CSI driver, if it is of one.
    pub driver: Option<Arc<str>>,
    /// Its unique name, as kubelets report it in `volumesInUse`; of CSI volumes only.
    pub unique_name: Option<Box<str>>,
    /// The claim that it is bound to, or kept for.
    pub claim: Option<BoundClaim>,
}

/// `claimRef` of a PersistentVolume, which only those who may write PersistentVolumes set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundClaim {
    /// The claim's namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its identity. `None`: the volume is kept for whichever claim of that name comes.
    pub uid: Option<Uid>,
}

impl Volume {
    /// Whether it is another claim's: then no kubelet mounts it for this one, whatever the claim names.
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
    /// Its identity.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// The volume that it names. It may be another claim's: tenants write this field ([`Volume::is_bound_to_another`]).
    pub volume: Option<Arc<str>>,
}

/// A VolumeAttachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its name.
    pub name: Arc<str>,
    /// Its identity.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// The volume; `None`: one without an object of its own.
    pub volume: Option<Arc<str>>,
    /// The node.
    pub node: Arc<str>,
    /// The driver says that it is done.
    pub attached: bool,
}

/// Whose a volume is: the life of a node in which it may be written to, and the pod for which it was taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The node's name.
    pub node: Arc<str>,
    /// Which one of that name.
    pub node_uid: Uid,
    /// Which life of its machine.
    pub boot_id: BootId,
    /// The pod for which it was taken; `None`: it was attached there before any was seen.
    pub pod: Option<Uid>,
}

impl Node {
    /// Whether its kubelet says that it has this volume mounted, or is about to.
    #[must_use]
    pub fn reports_in_use(&self, volume: Option<&Volume>) -> bool {
        let unique = volume.and_then(|volume| volume.unique_name.as_ref());
        unique.is_some_and(|unique| self.volumes_in_use.binary_search(unique).is_ok())
    }

    /// Whether its kubelet says that it has volumes of the same CSI driver mounted: it reports those of that driver.
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
    /// Whether it took its volume in this life.
    #[must_use]
    pub fn matches_incarnation(&self, incarnation: &Incarnation) -> bool {
        self.boot_id.is_known_same(incarnation.boot()) && self.node_uid.to_string() == incarnation.uid
    }

    /// The life in which a node is.
    #[must_use]
    pub fn for_node(node: &Node, pod: Option<Uid>) -> Self {
        let boot_id = node.boot();
        Self { node: Arc::clone(&node.name), node_uid: node.uid.clone(), boot_id, pod }
    }
}

/// No pod, in a holder's identity.
const NO_POD: &str = "-";

impl Holder {
    /// Reads `spec.holderIdentity`: NODE/NODE-UID/BOOT-ID/POD-UID. `None`: it is not ours.
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

/// Who holds a volume, as its Lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseHolder {
    /// Nobody.
    Free,
    /// This life of a node.
    By(Holder),
    /// Somebody wrote what we do not write. Unknown is not absent.
    Unreadable(Box<str>),
}

impl LeaseHolder {
    /// Reads `spec.holderIdentity`.
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
    /// Its name, which is the volume's.
    pub name: Arc<str>,
    /// Its own identity.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// Who holds it.
    pub holder: LeaseHolder,
    /// How often it was broken: what storage that fences compares.
    pub generation: i32,
    /// When this process first saw it held so.
    pub holder_since: Mono,
    /// It has the label [`HELD_LABEL`]: admission lets nobody attach the volume elsewhere, nor detach it.
    pub attach_refused_elsewhere: bool,
    /// What [`DETACH_LABEL`] says: it was attached to that node when it was written.
    pub detach_from: Option<Uid>,
}

impl VolumeLease {
    /// Whether it is this holder's, and says that the volume was attached to it when the doubt began.
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
    fn an_identity_that_is_not_ours_is_none() {
        for identity in ["", "n", "n/u/b", "/u/b/p", "n//b/p", "n/u/b/", "n/u/b/p/x"] {
            assert_eq!(Holder::parse(identity), None, "{identity}");
        }
    }

    proptest! {
        #[test]
        fn an_identity_is_read_as_it_was_written(node in "[a-z0-9.-]{1,60}", uid in "[a-f0-9-]{1,36}", boot in "[a-f0-9]{8}-0000-4000-8000-[a-f0-9]{12}|", pod in prop::option::of("[a-f0-9]{1,36}")) {
            let holder = Holder { node: node.into(), node_uid: Uid::new(&uid).unwrap(), boot_id: (*boot).into(), pod: pod.and_then(|pod| Uid::new(&pod)) };
            prop_assert_eq!(Holder::parse(&holder.to_string()), Some(holder));
        }
    }
}
