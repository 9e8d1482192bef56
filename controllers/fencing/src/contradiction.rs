//! Whether a node that was proved off shows a sign of life. Pure.
//!
//! Two cases look the same at first: a machine that was started again, whose kubelet renews its Lease before it
//! writes its new boot ID; and a kubelet that never stopped, because another machine was switched off. In the first
//! case the boot ID follows within seconds: the status update that makes the node Ready contains it. So the sign is
//! first written to the NodeFence, which keeps it through a restart of this process. If no new boot was reported
//! within the grace period, the evidence counts as wrong. No pod is force deleted meanwhile: the verifier reads the
//! Lease before each force delete.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use jiff::Timestamp;
use pod_safety_shared::api::{DesiredPower, Gate, NodeFenceStatus, Phase, Power};
use pod_safety_shared::authority::Step;
use pod_safety_shared::model::{FenceEvidenceObject, Node, Readiness};

use super::incident::{Incident, NodeMatch};

/// How long a kubelet that booted may take to report its new boot ID: it writes its status at start, and retries
/// every ten seconds.
const REBOOT_GRACE: Duration = Duration::from_secs(30);

/// How long a machine that was reported on may take until its kubelet reports: servers with much memory test it
/// first.
pub(super) const MAX_BOOT_TIME: Duration = Duration::from_mins(5);

/// A sign of life that contradicts the evidence, and for how long it may have another cause.
struct SignOfLife {
    message: &'static str,
    grace: Duration,
}

/// The gate in which a sign of life is recorded.
pub(super) const GATE: &str = "SignOfLife";

/// What to do about signs of life; `None`: there are none.
pub(super) fn check_sign_of_life(incident: &Incident<'_>, evidence: &FenceEvidenceObject) -> Option<Decision> {
    let is_recorded = incident.status().gates.iter().any(|gate| gate.name == GATE && gate.holds);
    let Some(sign) = find_sign_of_life(incident, evidence) else {
        return is_recorded.then(|| {
            let message = "the sign of life is gone";
            incident.change_phase(incident.status().phase, message)
        });
    };
    let due = incident.fence.status_seen + sign.grace;
    let left = if is_recorded { due.since(incident.now) } else { sign.grace };
    if is_recorded && left.is_zero() {
        return Some(contradict(incident, sign.message));
    }
    let hold = Hold::SignOfLife { node: Arc::clone(&incident.name), sign: sign.message, left };
    let message = hold.to_string();
    let mut decision = incident.hold(hold);
    if is_recorded {
        return Some(decision.and_requeue_at(due));
    }
    let gate = Gate { name: GATE.to_owned(), holds: true, message: message.clone() };
    let status = NodeFenceStatus { gates: vec![gate], ..incident.status_with(incident.status().phase, message) };
    decision.intents = incident.step(Step::Write, status).intents;
    Some(decision)
}

fn find_sign_of_life(incident: &Incident<'_>, evidence: &FenceEvidenceObject) -> Option<SignOfLife> {
    let sign = |words| Some(SignOfLife { message: words, grace: REBOOT_GRACE });
    let reported = |node: &Node| node.readiness == Readiness::Ready && node.last_report > evidence.first_seen;
    match incident.node_match {
        NodeMatch::SameIncarnation(node) if reported(node) => sign("it reports that it is Ready, and no new boot"),
        NodeMatch::SameBoot => sign("its Node was recreated with the same boot ID"),
        _ if lease_renewed(incident, evidence) => {
            // Where the API server accepts renewals of its Lease but not its status, a kubelet that booted cannot
            // report it.
            let patience = if was_powered_on(incident) { MAX_BOOT_TIME } else { REBOOT_GRACE };
            Some(SignOfLife { message: "its Lease was renewed", grace: patience })
        }
        NodeMatch::SameIncarnation(_) | NodeMatch::Gone | NodeMatch::UnknownBoot(_) | NodeMatch::NewIncarnation(_) => {
            None
        }
    }
}

/// Whether this incident switched the machine on, and its devices reported it on.
fn was_powered_on(incident: &Incident<'_>) -> bool {
    let last = incident.status().attempts.last().filter(|last| last.act == DesiredPower::On);
    last.and_then(|last| last.verified.as_ref()).is_some_and(|verified| verified.power == Power::On)
}

/// Compares two `renewTime`s of one kubelet, never one with the local clock. If the evidence has none, a renewal that
/// this process has observed since counts. A status update of a pod does not count: every client with the right to
/// write `pods/status` can send one.
fn lease_renewed(incident: &Incident<'_>, evidence: &FenceEvidenceObject) -> bool {
    let before = evidence.spec.lease_renewed.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
    match before {
        Some(before) => incident.view.lease(&incident.name).flatten().is_some_and(|renewed| renewed > before),
        None => incident.view.renewal(&incident.name).is_some_and(|renewal| renewal.at > evidence.first_seen),
    }
}

fn contradict(incident: &Incident<'_>, sign: &str) -> Decision {
    let message = format!(
        "the evidence is wrong: {sign}. Another machine was switched off. Its devices are not trusted any more"
    );
    let mut status = incident.status_with(Phase::AwaitingOperator, message);
    status.gates.clear();
    // The taint stays if other evidence about this incarnation is valid: the incident continues with that evidence.
    status.tainted &= incident.adopt_if_not_ready().is_some();
    incident.step(Step::Contradict, status)
}
