//! The scheduling gate: it is removed from a pod when each of its exclusive volumes is free, or is on the node where
//! the pod is sent.
//!
//! A claim that is not bound yet does not hold the pod: a volume provisioned for the pod has no other user. A missing
//! claim or a missing volume holds it: it is unknown which node will have them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{Intent, UngateUpdate, Update};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Subject;
use pod_safety_shared::model::{Holder, LeaseHolder, Node, Pod, Readiness, Sharing, Volume, VolumeLease};

use super::config::Config;
use super::context::{RECHECK_AFTER, VolumeContext, find_users};
use super::free::removed_on_missing_node;
use super::holder_state::{HolderCheck, HolderState};
use super::uses::{find_uses, is_idle, is_kept_out, is_proved_off};

/// The NoSchedule taints of a node that Karpenter or the cluster autoscaler is about to delete: they do not cordon it.
const AUTOSCALER_TAINTS: [&str; 2] = ["karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"];

/// Where a pod may be placed for one of its volumes.
enum Placement<'a> {
    Anywhere,
    OnNode(&'a Node),
}

/// Decides about one pod.
pub(super) fn decide(pod: &Pod, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    if !pod.gated || pod.deletion.is_some() || pod.node.is_some() {
        return Decision::default();
    }
    let mut nodes: BTreeSet<&str> = BTreeSet::new();
    for claim in &pod.claims {
        match find_placement(pod, claim, view, now, config) {
            Ok(Placement::Anywhere) => {}
            Ok(Placement::OnNode(node)) => drop(nodes.insert(host_of(node))),
            Err(hold) => {
                let subject = Subject::Pod(pod.key.clone());
                return Decision::hold(subject, hold).and_requeue_at(now + RECHECK_AFTER);
            }
        }
    }
    if nodes.len() > 1 {
        let why = format!("its volumes are on several nodes: {}", nodes.into_iter().collect::<Vec<_>>().join(", "));
        let volume = pod.claims.first().cloned().unwrap_or_else(|| "".into());
        return Decision::hold(Subject::Pod(pod.key.clone()), Hold::Waits { volume, why });
    }
    let pin = nodes.pop_first().map(Arc::from);
    let update = Update::Ungate(UngateUpdate { pod: pod.key.clone(), rv: pod.rv, pin });
    Decision { intents: vec![Intent::Update(update)], ..Decision::default() }
}

/// The value of the label by which a pod is pinned to a node.
fn host_of(node: &Node) -> &str {
    let labels = node.details.as_ref().map(|details| &details.labels);
    labels.and_then(|labels| labels.get("kubernetes.io/hostname")).map_or(&*node.name, String::as_str)
}

fn find_placement<'a>(
    pod: &Pod,
    claim: &Arc<str>,
    view: &View<'a>,
    now: Mono,
    config: &Config,
) -> Result<Placement<'a>, Hold> {
    let waits = |volume: &Arc<str>, why: String| Hold::Waits { volume: Arc::clone(volume), why };
    let bound_claim = match view.claim(&pod.key.namespace, claim) {
        Lookup::Known(claim) => claim,
        Lookup::Absent => return Err(waits(claim, "there is no claim of that name".to_owned())),
        Lookup::Unknown(why) => return Err(waits(claim, format!("the claim cannot be read: {why}"))),
    };
    let Some(name) = &bound_claim.volume else { return Ok(Placement::Anywhere) };
    if view.volume_of(bound_claim).is_none() {
        return Err(waits(name, format!("claim {claim} names it, and it is bound to another claim")));
    }
    let volume = match view.volume(name) {
        Lookup::Known(volume) => volume,
        Lookup::Absent => {
            return Err(waits(name, "its claim is bound to it, but it does not exist".to_owned()));
        }
        Lookup::Unknown(why) => return Err(waits(name, format!("it cannot be read: {why}"))),
    };
    if !config.guards(volume) {
        return Ok(Placement::Anywhere);
    }
    let lease = view.volume_lease(name);
    match lease.map(|lease| &lease.holder) {
        None | Some(LeaseHolder::Free) => {
            let ctx = VolumeContext {
                name,
                volume: Some(volume),
                is_gone: false,
                is_guarded: true,
                can_detach: false,
                lease,
            };
            // Its Lease will name that node in a moment, or when it can be written.
            if let Some((node, _)) = find_users(&ctx, view, now)?.iter().find(|(_, used)| used.writes) {
                return Err(waits(name, format!("node {} has it, and is about to be its owner", node.name)));
            }
            if let Some(node) = mounted_unrecorded(volume, lease, view, now) {
                return Err(waits(name, format!("node {} reports that it has it mounted", node.name)));
            }
            match removed_on_missing_node(name, view, now, config.quarantine) {
                Some((why, _)) => Err(waits(name, why)),
                None => place_on_free(pod, volume, view, now),
            }
        }
        Some(LeaseHolder::Unreadable(_)) => Err(waits(name, "its Lease cannot be read".to_owned())),
        Some(LeaseHolder::By(holder)) => place_beside_holder(pod, volume, holder, view, now, config),
    }
}

/// A volume whose Lease names a holder: its pods may only be placed on that node, while it is healthy.
fn place_beside_holder<'a>(
    pod: &Pod,
    volume: &Volume,
    holder: &Holder,
    view: &View<'a>,
    now: Mono,
    config: &Config,
) -> Result<Placement<'a>, Hold> {
    let waits = |why: String| Err(Hold::Waits { volume: Arc::clone(&volume.name), why });
    let check = HolderCheck { holder, volume: &volume.name, quarantine: config.quarantine };
    match check.state(view, now) {
        HolderState::Healthy(node) | HolderState::Reregistered(node) => place_beside(pod, volume, node, view),
        HolderState::Ended(_) => waits(format!("node {} took it, and its Lease is being released", holder.node)),
        HolderState::Tainted(_) | HolderState::Doubted(_) | HolderState::Missing { .. } => {
            waits(format!("node {} took it, and there is no evidence that it no longer writes", holder.node))
        }
    }
}

/// The node that has mounted a volume for which there never was a Lease, though nothing else in the API shows it: its
/// pod was force deleted, and its attachment was deleted by a person. Every node is searched, once in the lifetime of
/// a volume.
fn mounted_unrecorded<'a>(
    volume: &Volume,
    lease: Option<&VolumeLease>,
    view: &View<'a>,
    now: Mono,
) -> Option<&'a Node> {
    if lease.is_some() {
        return None;
    }
    view.nodes().find(|node| node.reports_in_use(Some(volume)) && !is_proved_off(node, view, now))
}

/// A free volume. Of all pods that want it, the first one goes; the next one sees where that is.
fn place_on_free<'a>(pod: &Pod, volume: &Volume, view: &View<'a>, now: Mono) -> Result<Placement<'a>, Hold> {
    let waits = |other: &Pod| Hold::Waits {
        volume: Arc::clone(&volume.name),
        why: format!("pod {} is about to use it", other.key),
    };
    let order = |pod: &Pod| (pod.created, pod.uid().clone());
    let lease = view.volume_lease(&volume.name);
    // A pod on a lost node from which the volume was detached does not have it, and does not get it.
    let lost = |other: &Pod| match other.node.as_ref().map(|node| view.node(node)) {
        Some(Lookup::Known(node)) => {
            node.readiness != Readiness::Ready && is_kept_out(Some(volume), lease, node, view, now)
        }
        Some(Lookup::Absent | Lookup::Unknown(_)) | None => false,
    };
    let others = view.pods_using(&volume.name).filter(|other| other.uid() != pod.uid() && other.may_mount_volumes());
    // An unschedulable pod runs nowhere, and will not before something changes; if both pods get a node at last,
    // attaching arbitrates. A rollout that corrects such a pod would otherwise wait for it without end.
    let nowhere = |other: &Pod| other.unschedulable && other.node.is_none() && volume.unique_name.is_some();
    for other in others.filter(|other| !lost(other) && !nowhere(other)) {
        let is_behind = other.deletion.is_some() || order(other) > order(pod);
        if !(other.gated && other.node.is_none() && is_behind) {
            return Err(waits(other));
        }
    }
    Ok(Placement::Anywhere)
}

/// The volume of a healthy node: a pod that may share it is sent there; otherwise the pod waits. It is never sent to
/// a node that is being drained: the node selector cannot be removed from the pod again.
fn place_beside<'a>(pod: &Pod, volume: &Volume, node: &'a Node, view: &View<'a>) -> Result<Placement<'a>, Hold> {
    let sharers = view.pods_using(&volume.name).any(|other| {
        other.uid() != pod.uid()
            && !other.has_terminated()
            && other.deletion.is_none()
            && other.node.as_deref() == Some(&*node.name)
    });
    let is_deleted_soon = AUTOSCALER_TAINTS.iter().any(|key| node.has_no_schedule_taint(key));
    if sharers && volume.sharing == Sharing::OneNode && !node.unschedulable && !is_deleted_soon {
        return Ok(Placement::OnNode(node));
    }
    let used = find_uses(&volume.name, Some(volume), view).remove(&node.name).unwrap_or_default();
    let why = if used.attachment && is_idle(node, &used, Some(volume)) {
        format!("node {} has unmounted it, and it is not detached yet (kubectl get volumeattachments)", node.name)
    } else {
        format!("node {} has it until its kubelet has unmounted it", node.name)
    };
    Err(Hold::Waits { volume: Arc::clone(&volume.name), why })
}
