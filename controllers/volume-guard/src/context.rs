//! One volume with its Lease, and the writes about it.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Doubt, Hold, Remedy};
use pod_safety_shared::authority::{AttachDenial, Intent, Update, VolumeChange, VolumeLeaseRef, VolumeUpdate};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Subject;
use pod_safety_shared::model::{Holder, Node, NodeKey, Readiness, Volume, VolumeKey, VolumeLease};

use super::uses::{Use, find_uses, is_idle, is_kept_out, is_proved_off};

/// Whatever time alone can change is checked again after this.
pub(super) const RECHECK_AFTER: Duration = Duration::from_secs(60);

/// One volume and its Lease.
pub(super) struct VolumeContext<'a> {
    pub(super) name: &'a Arc<str>,
    /// The volume, or its last state before it was deleted: the kubelet that has it mounted goes on to report it.
    /// `None`: it was deleted, and this process never saw it.
    pub(super) volume: Option<&'a Volume>,
    /// The volume was deleted: holds and writes are about its Lease.
    pub(super) is_gone: bool,
    /// The volume is exclusive: the node that uses it should be its holder.
    pub(super) is_guarded: bool,
    /// Its storage accepts writes only from nodes to which the volume is attached.
    pub(super) can_detach: bool,
    pub(super) lease: Option<&'a VolumeLease>,
}

impl VolumeContext<'_> {
    fn key(&self) -> Option<VolumeKey> {
        let volume = self.volume.filter(|_| !self.is_gone).map(|volume| &volume.uid);
        let uid = volume.or(self.lease.map(|lease| &lease.uid))?;
        Some(VolumeKey { name: Arc::clone(self.name), uid: uid.clone() })
    }

    pub(super) fn write(&self, change: VolumeChange) -> Decision {
        let (Some(key), Some(rv)) =
            (self.key(), self.lease.map(|lease| lease.rv).or(self.volume.map(|volume| volume.rv)))
        else {
            return Decision::default();
        };
        let lease = self.lease.map(VolumeLeaseRef::from_lease);
        let update = VolumeUpdate { volume: key.name, uid: key.uid, rv, lease, change };
        Decision { intents: vec![Intent::Update(Update::Volume(Box::new(update)))], ..Decision::default() }
    }

    pub(super) fn hold_several_nodes(&self, writers: &[&(&Node, Use<'_>)]) -> Hold {
        let nodes = writers.iter().map(|(node, _)| node.name.to_string()).collect();
        Hold::SeveralNodes { volume: Arc::clone(self.name), nodes }
    }

    /// The hold when its holder may still write, and there is no evidence against it.
    pub(super) fn hold_no_evidence(&self, holder: &Holder, doubt: Doubt, detachable: bool) -> Hold {
        let remedy = Remedy::for_holder(holder, &doubt);
        let (volume, node) = (Arc::clone(self.name), Arc::clone(&holder.node));
        Hold::NoEvidence { volume, node, doubt, detachable, remedy }
    }

    pub(super) fn hold(&self, hold: Hold) -> Decision {
        self.key().map_or_else(Decision::default, |key| Decision::hold(Subject::Volume(key), hold))
    }
}

/// The nodes that use a volume, except those that are proved off: their use is over, and the evidence was used when
/// the Lease was revoked.
pub(super) fn find_users<'a>(
    ctx: &VolumeContext<'_>,
    view: &View<'a>,
    now: Mono,
) -> Result<Vec<(&'a Node, Use<'a>)>, Hold> {
    let mut users = Vec::new();
    for (name, used) in find_uses(ctx.name, ctx.volume, view) {
        match view.node(&name) {
            Lookup::Known(node) if is_proved_off(node, view, now) => {}
            // By its last report the node has the volume mounted.
            Lookup::Known(node) if is_kept_out(ctx.volume, ctx.lease, node, view, now) => {
                if node.readiness == Readiness::Ready {
                    users.push((node, Use { writes: false, ..used }));
                }
            }
            // Released or revoked, the volume is still attached there until the attachment is deleted; the kubelet
            // does not use it.
            Lookup::Known(node) if ctx.lease.is_some() && is_idle(node, &used, ctx.volume) => {}
            Lookup::Known(node) => users.push((node, used)),
            Lookup::Absent => {}
            Lookup::Unknown(why) => {
                let (volume, what) = (Arc::clone(ctx.name), format!("node {name}, which uses it,"));
                return Err(Hold::Unreadable { volume, what, why: why.to_owned() });
            }
        }
    }
    Ok(users)
}

/// Denies other nodes the volume.
pub(super) fn refuse(
    ctx: &VolumeContext<'_>,
    lease: &VolumeLease,
    hold: Hold,
    detach_from: Option<NodeKey>,
) -> Decision {
    let from = detach_from.as_ref().map(|node| &node.uid);
    let mut decision = if lease.attach_and_detach_denied && lease.detach_from.as_ref() == from {
        Decision::default()
    } else {
        ctx.write(VolumeChange::DenyAttach(AttachDenial { why: hold.to_string(), detach_from }))
    };
    decision.holds = ctx.hold(hold).holds;
    decision
}
