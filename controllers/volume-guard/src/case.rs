//! One volume with its Lease, and what is written of it.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Doubt, Hold, WayOut};
use pod_safety_shared::authority::{Intent, Refused, Seen, Update, VolumeChange, VolumeUpdate};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::Subject;
use pod_safety_shared::model::{Holder, Node, NodeKey, Readiness, Volume, VolumeKey, VolumeLease};

use super::uses::{Use, is_idle, is_kept_out, is_proved_off, uses};

/// What time alone can change is looked at again after this.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// One volume and its Lease.
pub(super) struct Case<'a> {
    pub(super) name: &'a Arc<str>,
    /// The volume, or as it was when its object went: the kubelet that has it mounted goes on to report it. `None`: it is
    /// gone, and this process never saw it.
    pub(super) volume: Option<&'a Volume>,
    /// Its object went: what is said and written is about its Lease.
    pub(super) is_gone: bool,
    /// It should belong to whoever uses it.
    pub(super) wanted: bool,
    /// Its storage lets nobody write who is not attached.
    pub(super) detaches: bool,
    pub(super) lease: Option<&'a VolumeLease>,
}

impl Case<'_> {
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
        let lease = self.lease.map(Seen::of);
        let update = VolumeUpdate { volume: key.name, uid: key.uid, rv, lease, change };
        Decision { intents: vec![Intent::Update(Update::Volume(Box::new(update)))], ..Decision::default() }
    }

    pub(super) fn several(&self, writers: &[&(&Node, Use<'_>)]) -> Hold {
        let nodes = writers.iter().map(|(node, _)| node.name.to_string()).collect();
        Hold::SeveralNodes { volume: Arc::clone(self.name), nodes }
    }

    /// There is no evidence against its holder, which is in doubt.
    pub(super) fn unproved(&self, holder: &Holder, doubt: Doubt, detachable: bool) -> Hold {
        let way_out = WayOut::for_holder(holder, &doubt);
        let (volume, node) = (Arc::clone(self.name), Arc::clone(&holder.node));
        Hold::NoEvidence { volume, node, doubt, detachable, way_out }
    }

    pub(super) fn hold(&self, hold: Hold) -> Decision {
        self.key().map_or_else(Decision::default, |key| Decision::hold(Subject::Volume(key), hold))
    }
}

/// The nodes that use a volume, but for those whose life is over: what they did before is over, and evidence about it
/// was used up by whoever broke the Lease.
pub(super) fn users<'a>(
    case: &Case<'_>,
    view: &View<'a>,
    now: Mono,
) -> Result<Vec<(&'a Node, Use<'a>)>, Hold> {
    let mut users = Vec::new();
    for (name, used) in uses(case.name, case.volume, view) {
        match view.node(&name) {
            Lookup::Known(node) if is_proved_off(node, view, now) => {}
            // By its last report it has the volume mounted.
            Lookup::Known(node) if is_kept_out(case.volume, case.lease, node, view, now) => {
                if node.readiness == Readiness::Ready {
                    users.push((node, Use { writes: false, ..used }));
                }
            }
            // Given back, or broken, it is still attached there until somebody deletes that; its kubelet does not use it.
            Lookup::Known(node) if case.lease.is_some() && is_idle(node, &used, case.volume) => {}
            Lookup::Known(node) => users.push((node, used)),
            Lookup::Absent => {}
            Lookup::Unknown(why) => {
                let (volume, what) = (Arc::clone(case.name), format!("node {name}, which uses it,"));
                return Err(Hold::Unreadable { volume, what, why: why.to_owned() });
            }
        }
    }
    Ok(users)
}

/// Nobody else may have it.
pub(super) fn refuse(
    case: &Case<'_>,
    lease: &VolumeLease,
    hold: Hold,
    detach_from: Option<NodeKey>,
) -> Decision {
    let from = detach_from.as_ref().map(|node| &node.uid);
    let mut decision = if lease.refused_elsewhere && lease.detach_from.as_ref() == from {
        Decision::default()
    } else {
        case.write(VolumeChange::Refuse(Refused { why: hold.to_string(), detach_from }))
    };
    decision.holds = case.hold(hold).holds;
    decision
}
