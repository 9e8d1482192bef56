//! The gate: a pod goes to the scheduler when each of its exclusive volumes is free, or is where it is sent.
//!
//! A claim that is not bound yet passes: what is provisioned for the pod belongs to nobody. A claim that is missing,
//! and a volume that is missing, do not: nobody can say whose they will be.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{Intent, Update};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::Subject;
use pod_safety_shared::model::{Held, Node, Pod, Readiness, Sharing, Volume, VolumeLease};

use super::case::{Case, LOOK_AGAIN, users};
use super::config::Config;
use super::free::removed_on_missing;
use super::standing::{Holding, Standing};
use super::uses::{is_kept_out, is_proved_off};

/// Where a pod may go for one of its volumes.
enum Way<'a> {
    Anywhere,
    To(&'a Node),
}

/// Decides about one pod.
pub(super) fn decide(pod: &Pod, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    if !pod.gated || pod.deletion.is_some() || pod.node.is_some() {
        return Decision::default();
    }
    let mut nodes: BTreeSet<&str> = BTreeSet::new();
    for claim in &pod.claims {
        match way(pod, claim, view, now, config) {
            Ok(Way::Anywhere) => {}
            Ok(Way::To(node)) => drop(nodes.insert(host_of(node))),
            Err(hold) => {
                let subject = Subject::Pod(pod.key.clone());
                return Decision::hold(subject, hold).and_recheck_at(now + LOOK_AGAIN);
            }
        }
    }
    if nodes.len() > 1 {
        let why =
            format!("its volumes are on several nodes: {}", nodes.into_iter().collect::<Vec<_>>().join(", "));
        let volume = pod.claims.first().cloned().unwrap_or_else(|| "".into());
        return Decision::hold(Subject::Pod(pod.key.clone()), Hold::Waits { volume, why });
    }
    let pin = nodes.pop_first().map(Arc::from);
    let update = Update::Ungate { pod: pod.key.clone(), rv: pod.rv, pin };
    Decision { intents: vec![Intent::Update(update)], ..Decision::default() }
}

/// The label by which a pod can be sent to a node.
fn host_of(node: &Node) -> &str {
    let labels = node.life.as_ref().map(|life| &life.labels);
    labels.and_then(|labels| labels.get("kubernetes.io/hostname")).map_or(&*node.name, String::as_str)
}

fn way<'a>(
    pod: &Pod,
    claim: &Arc<str>,
    view: &View<'a>,
    now: Mono,
    config: &Config,
) -> Result<Way<'a>, Hold> {
    let waits = |volume: &Arc<str>, why: String| Hold::Waits { volume: Arc::clone(volume), why };
    let known = match view.claim(&pod.key.namespace, claim) {
        Lookup::Known(known) => known,
        Lookup::Absent => return Err(waits(claim, "there is no claim of that name".to_owned())),
        Lookup::Unknown(why) => return Err(waits(claim, format!("the claim cannot be read: {why}"))),
    };
    let Some(name) = &known.volume else { return Ok(Way::Anywhere) };
    if view.volume_of(known).is_none() {
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
        return Ok(Way::Anywhere);
    }
    let lease = view.volume_lease(name);
    match lease.map(|lease| &lease.held) {
        None | Some(Held::Free) => {
            let case =
                Case { name, volume: Some(volume), is_gone: false, wanted: true, detaches: false, lease };
            // Its Lease will say so in a moment, or when it can be written.
            if let Some((node, _)) = users(&case, view, now)?.iter().find(|(_, used)| used.writes) {
                return Err(waits(name, format!("node {} has it, and is about to be its owner", node.name)));
            }
            if let Some(node) = mounted_untold(volume, lease, view, now) {
                return Err(waits(name, format!("node {} reports that it has it mounted", node.name)));
            }
            match removed_on_missing(name, view, now, config.quarantine) {
                Some((why, _)) => Err(waits(name, why)),
                None => first_of_free(pod, volume, view, now),
            }
        }
        Some(Held::Unreadable(_)) => Err(waits(name, "its Lease cannot be read".to_owned())),
        Some(Held::By(holder)) => {
            let holding = Holding { holder, volume: name, quarantine: config.quarantine };
            match holding.standing(view, now) {
                Standing::Well(node) | Standing::Registered(node) => beside(pod, volume, node, view),
                Standing::Over(_) => {
                    Err(waits(name, format!("node {} took it, and its Lease is being released", holder.node)))
                }
                Standing::Tainted(_) | Standing::Doubted(_) | Standing::Missing { .. } => Err(waits(
                    name,
                    format!(
                        "node {} took it, and there is no evidence that it no longer writes",
                        holder.node
                    ),
                )),
            }
        }
    }
}

/// The node that has mounted a volume that no Lease ever named, though nothing else in the API says so: its pod was removed
/// by force, and its attachment by a person. Every node is asked, once in the life of a volume.
fn mounted_untold<'a>(
    volume: &Volume,
    lease: Option<&VolumeLease>,
    view: &View<'a>,
    now: Mono,
) -> Option<&'a Node> {
    if lease.is_some() {
        return None;
    }
    view.nodes().find(|node| node.mounts(Some(volume)) && !is_proved_off(node, view, now))
}

/// Nobody's. Of all that want it, the first goes; the next knows where that went.
fn first_of_free<'a>(pod: &Pod, volume: &Volume, view: &View<'a>, now: Mono) -> Result<Way<'a>, Hold> {
    let waits = |other: &Pod| Hold::Waits {
        volume: Arc::clone(&volume.name),
        why: format!("pod {} is about to use it", other.key),
    };
    let order = |pod: &Pod| (pod.created, pod.uid().clone());
    let lease = view.volume_lease(&volume.name);
    // Whoever is on a node from which it was detached does not have it, and does not get it.
    let lost = |other: &Pod| match other.node.as_ref().map(|node| view.node(node)) {
        Some(Lookup::Known(node)) => {
            node.readiness != Readiness::Ready && is_kept_out(Some(volume), lease, node, view, now)
        }
        Some(Lookup::Absent | Lookup::Unknown(_)) | None => false,
    };
    let others = view.users_of(&volume.name).filter(|other| other.uid() != pod.uid() && other.has_volumes());
    // Nothing runs of a pod that no node takes as it is, and nothing will before another change; where both should find a
    // node at last, attaching arbitrates. A rollout that mends such a pod would wait for it for ever.
    let nowhere = |other: &Pod| other.unschedulable && other.node.is_none() && volume.unique_name.is_some();
    for other in others.filter(|other| !lost(other) && !nowhere(other)) {
        let behind_us = other.deletion.is_some() || order(other) > order(pod);
        if !(other.gated && other.node.is_none() && behind_us) {
            return Err(waits(other));
        }
    }
    Ok(Way::Anywhere)
}

/// That node's, which is well: a pod that may share it is sent there; else it waits. Never to a node that takes no new pods:
/// the selector cannot be taken from the pod again.
fn beside<'a>(pod: &Pod, volume: &Volume, node: &'a Node, view: &View<'a>) -> Result<Way<'a>, Hold> {
    let sharers = view.users_of(&volume.name).any(|other| {
        other.uid() != pod.uid()
            && !other.is_over()
            && other.deletion.is_none()
            && other.node.as_deref() == Some(&*node.name)
    });
    if sharers && volume.sharing == Sharing::OneNode && !node.unschedulable {
        return Ok(Way::To(node));
    }
    let why = format!("node {} has it until its kubelet has unmounted it", node.name);
    Err(Hold::Waits { volume: Arc::clone(&volume.name), why })
}
