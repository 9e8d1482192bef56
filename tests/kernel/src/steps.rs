//! Steps of the process: it reads, calls the kernel, and sends the requests that the kernel permits.

use jiff::Timestamp;
use pod_safety_model::{FenceEvidenceKind, Grade, Mono, Pod};
use pod_safety_proof::{
    Claim, DeviceCheck, EvidenceKind, EvidenceRead, ForceDelete, ForceDeleteRequest, Next, Permit, PodVersion,
    QuorumRead, Refusal, Request, Verb, check,
};
use pod_safety_wire::{ObjectMeta, Raw};
use serde_json::Value;

use crate::faulty_cache::view;
use crate::objects::{self, NODE};
use crate::process::{self, FirstRead, Held, PendingDelete, Reads};
use crate::search::{Axiom, Plant, Scope};
use crate::world::{KernelError, Lease, Node, Power, Released, Sent, World};

/// Which of two reads is answered first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOrder {
    /// The read of the Node.
    NodeFirst,
    /// The read of the Lease.
    LeaseFirst,
}

impl ReadOrder {
    pub(crate) const ALL: [Self; 2] = [Self::NodeFirst, Self::LeaseFirst];
}

/// What is claimed. The kernel must refuse false claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The node is gone.
    NodeGone,
    /// The node was fenced.
    Fenced,
    /// The kubelet terminated the pod.
    KubeletTerminated,
    /// It was never scheduled.
    NeverScheduled,
}

impl Claimed {
    pub(crate) const ALL: [Self; 4] = [Self::NodeGone, Self::Fenced, Self::KubeletTerminated, Self::NeverScheduled];

    fn claim(self) -> Claim {
        match self {
            Self::NodeGone => Claim::NodeGone { node: NODE.into() },
            Self::Fenced => Claim::Fenced { node: NODE.into(), proof: "e".into(), newest: Default::default() },
            Self::KubeletTerminated => Claim::KubeletTerminated,
            Self::NeverScheduled => Claim::NeverScheduled,
        }
    }
}

/// Starts the reads: for a first read, to confirm one, or to check evidence. One of the two is answered immediately: if it had been
/// sent earlier, its evidence would expire sooner.
pub(crate) fn begin_reads(world: &mut World, ask: ReadOrder, scope: &Scope) -> Option<()> {
    if world.process.reads.is_some() {
        return None;
    }
    let now = scope.mono(world.now);
    let first = if world.evidence.is_some() { None } else { first(world, now, scope)? };
    let (node, lease) = match ask {
        ReadOrder::NodeFirst => (Some(world.node), None),
        ReadOrder::LeaseFirst => (None, Some(world.lease)),
    };
    let claims = first.is_some() || world.evidence.is_some();
    let claimed = world.process.pod.filter(|_| claims).map(|cached| (cached.object.uid, cached.object.version));
    world.process.reads = Some(Reads { sent_at: world.now, node, lease, first, claimed });
    Some(())
}

/// `Some(None)`: a first read is due. `None`: it is too early.
fn first(world: &mut World, now: Mono, scope: &Scope) -> Option<Option<FirstRead>> {
    let witness = world.process.absence?.first;
    let quarantine = if scope.has_plant(Plant::NoQuarantine) { std::time::Duration::ZERO } else { scope.quarantine() };
    let checked = pod_safety_proof::check_quarantine(NODE, quarantine, &view(world, scope), now);
    match checked {
        Ok(_) => Some(witness),
        Err(Refusal::NoWitness) => Some(None),
        Err(refusal) => {
            if refusal.refutes_absence() {
                refute(world);
                return Some(None);
            }
            None
        }
    }
}

fn refute(world: &mut World) {
    if let Some(absence) = &mut world.process.absence {
        absence.first = None;
    }
}

/// The second read is answered.
pub(crate) fn answer_read(world: &mut World) -> Option<()> {
    let (node, lease) = (world.node, world.lease);
    let reads = world.process.reads.as_mut().filter(|reads| reads.node.is_none() || reads.lease.is_none())?;
    reads.node.get_or_insert(node);
    reads.lease.get_or_insert(lease);
    Some(())
}

/// The device reports off for the machine that it is wired to.
pub(crate) fn check_device(world: &mut World) -> Option<()> {
    let evidence = world.evidence.filter(|evidence| !evidence.by_person)?;
    let off = world.machine.power == Power::Off || world.machine.device_miswired;
    let idle = world.process.reads.is_none() && world.process.verified.is_none();
    let due = world.process.checked_off_at != Some(world.now) && idle;
    (off && due && evidence.node > 0).then_some(())?;
    world.process.checked_off_at = Some(world.now);
    Some(())
}

/// The kernel checks what was read. Verified facts are kept; refused ones are dropped.
pub(crate) fn verify(world: &mut World, scope: &Scope) -> Option<()> {
    let Reads { sent_at: asked, node, lease, first, claimed } = world.process.reads?;
    let (node, lease) = (node?, lease?);
    let now = scope.mono(world.now);
    let raws = answers(world, node, lease, scope);
    let quorum_read = QuorumRead::decode(NODE, (scope.mono(asked), now), raws.0.as_ref(), raws.1.as_ref()).ok()?;
    world.process.reads = None;
    if claimed.is_some() {
        (world.process.verified, world.process.claimed) = (None, claimed);
    }
    if world.evidence.is_some() {
        return verify_fenced(world, &quorum_read, scope);
    }
    let Some(first) = first else {
        if node.is_some() {
            return Some(());
        }
        let first = FirstRead { sent_at: asked, answered_at: world.now, lease };
        return process::first_read_of(&mut world.process, first).or(Some(()));
    };
    let quarantine = if scope.has_plant(Plant::NoQuarantine) { std::time::Duration::ZERO } else { scope.quarantine() };
    let judged = scope.first_read(&first).map(|first| {
        pod_safety_proof::verify_node_gone(&NODE.into(), &first, &quorum_read, quarantine, &view(world, scope), now)
    });
    match judged? {
        Ok(verified) => world.process.verified = Some(Held::new(verified)),
        Err(refusal) if refusal.refutes_absence() => refute(world),
        Err(_) => {}
    }
    Some(())
}

fn answers(world: &World, node: Option<Node>, lease: Option<Lease>, scope: &Scope) -> (Option<Raw>, Option<Raw>) {
    let mut node = node;
    let mut lease = lease;
    if scope.has_plant(Plant::NoBootId)
        && let (Some(node), Some(evidence)) = (&mut node, world.evidence)
    {
        (node.boot, node.ready) = (evidence.boot, false);
    }
    if scope.has_plant(Plant::NoLease) {
        lease = None;
        node = node.map(|node| Node { ready: false, ..node });
    }
    (node.and_then(|node| objects::node(&node)), lease.and_then(|lease| objects::lease(&lease, scope.lease_seconds)))
}

/// The kind of evidence that the device reports, if it reports off.
const fn evidence_kind(world: &World, scope: &Scope) -> FenceEvidenceKind {
    match (scope.of_provider, world.budget.boots) {
        (false, _) => FenceEvidenceKind::PowerOff,
        (true, 0) => FenceEvidenceKind::InstanceGone,
        (true, _) => FenceEvidenceKind::InstanceStopped,
    }
}

fn verify_fenced(world: &mut World, quorum_read: &QuorumRead, scope: &Scope) -> Option<()> {
    let evidence = world.evidence?;
    let wall = Timestamp::UNIX_EPOCH;
    let read = EvidenceRead::decode("e", &objects::evidence(&evidence, scope.of_provider)?, wall).ok()?;
    let shown = world.process.checked_off_at.take();
    let kind = evidence_kind(world, scope);
    let shown = shown.map(|tick| DeviceCheck { kind, requested_at: scope.mono(tick) });
    let judged = pod_safety_proof::verify_fenced(&read, shown, quorum_read, Grade::Asserted, &view(world, scope));
    world.process.verified = judged.ok().map(Held::new);
    Some(())
}

/// The kernel checks the pod as cached. If there is evidence, the first request of the force delete is sent.
pub(crate) fn release(world: &mut World, claimed: Claimed, scope: &Scope) -> Option<()> {
    if world.process.pending_delete.is_some() || world.sent.len() >= usize::from(world.budget.sent) {
        return None;
    }
    let cached = world.process.pod?;
    let claims = matches!(claimed, Claimed::NodeGone | Claimed::Fenced);
    let as_claimed = world.process.claimed == Some((cached.object.uid, cached.object.version));
    let reused = scope.has_plant(Plant::NoExpiry) || scope.breaks(Axiom::ClaimsBeforeItReads);
    if claims && !as_claimed && !reused {
        return None;
    }
    let mut pod = objects::pod(&cached.object, cached.seen, scope.tick, u64::from(scope.grace) * scope.tick);
    if scope.has_plant(Plant::NodeOfTheClaim) {
        pod.node = claimed.claim().node().cloned();
    }
    if scope.has_plant(Plant::NeverBusy) {
        pod.worker_may_be_busy = false;
    }
    if scope.has_plant(Plant::PhaseAlone) {
        pod.running_containers = 0;
    }
    let now = scope.mono(world.now);
    let now = match &world.process.verified {
        Some(verified) if scope.has_plant(Plant::NoExpiry) => {
            verified.0.expires().saturating_sub(std::time::Duration::from_nanos(1))
        }
        _ => now,
    };
    let force = ForceDeleteRequest::new(&pod, claimed.claim());
    let verified = world.process.verified.as_ref().map(|verified| &*verified.0);
    let evidence = pod_safety_proof::verify_pod(&force, Some(&pod), verified, &view(world, scope), now).ok()?;
    let held = Held::new(evidence.copied());
    let force = ForceDelete::new(evidence);
    send(world, &force, &pod, &held, scope)
}

/// Sends the next request; after a PATCH the process waits for its answer.
fn send(world: &mut World, force: &ForceDelete, pod: &Pod, held: &Held<PodVersion>, scope: &Scope) -> Option<()> {
    if scope.mono(world.now) >= force.expires() && !scope.has_plant(Plant::NoExpiry) {
        return None;
    }
    let sent = send_request(world, force.request(Timestamp::UNIX_EPOCH), pod, scope);
    world.process.pending_delete = (!sent.removes).then(|| PendingDelete { evidence: held.clone(), answer: None });
    if sent.removes {
        world.released = Some(released_by(held.0.kind()));
    }
    world.sent.push(sent);
    world.sent.sort_unstable();
    Some(())
}

const fn released_by(kind: &EvidenceKind) -> Released {
    match kind {
        EvidenceKind::NodeGone { .. } => Released::NodeGone,
        EvidenceKind::NeverScheduled => Released::NeverScheduled,
        EvidenceKind::Confirmed { .. } => Released::Confirmed,
        EvidenceKind::KubeletTerminated => Released::KubeletTerminated,
        EvidenceKind::Fenced { .. }
        // `agents` is the model of this kind.
        | EvidenceKind::PodsEnded { .. }
        | EvidenceKind::TrustedTaint { .. }
        | EvidenceKind::BootChanged { .. }
        | EvidenceKind::StorageFenced { .. } => Released::PowerOff,
    }
}

/// The bytes of the request pass the guard, and are decoded as the API server decodes them.
fn send_request(world: &mut World, request: Request, pod: &Pod, scope: &Scope) -> Sent {
    let (verb, path, mut body, permit) = request.into_parts();
    let method = if verb == Verb::Delete { "DELETE" } else { "PATCH" };
    let place = if verb == Verb::Delete { "preconditions" } else { "metadata" };
    if scope.has_plant(Plant::OtherPermit) {
        body[place]["uid"] = "pod-2".into();
    }
    let bytes = body.to_string();
    if check(method, &path, None, Some(bytes.as_bytes()), Some(&permit)).is_err() {
        world.error = Some(KernelError::GuardRefused);
    }
    if !bypasses_guard(method, &path, &body, &permit) {
        world.error = Some(KernelError::GuardFooled);
    }
    let same = body[place]["uid"] == pod.key.uid.to_string();
    if !same || !path.starts_with("/api/v1/namespaces/ns/pods/db-0") {
        world.error = Some(KernelError::OtherSubject);
    }
    if scope.has_plant(Plant::NoVersion) || scope.has_plant(Plant::NoIdentity) {
        body[place]["resourceVersion"] = Value::Null;
    }
    if scope.has_plant(Plant::NoIdentity) {
        body[place]["uid"] = Value::Null;
    }
    let number = |value: &Value| value.as_str().and_then(|text| text.trim_start_matches("pod-").parse::<u32>().ok());
    let version = number(&body[place]["resourceVersion"]).map_or(0, |version| version % 100);
    let uid = number(&body[place]["uid"]).unwrap_or_default();
    let small = |number: u32| u8::try_from(number).unwrap_or_default();
    Sent { removes: verb == Verb::Delete, uid: small(uid), version: small(version) }
}

/// Whether the guard accepts the request with another UID, version or path, or without a permit.
fn bypasses_guard(method: &str, path: &str, body: &Value, permit: &Permit) -> bool {
    let place = if method == "DELETE" { "preconditions" } else { "metadata" };
    let with = |key: &str, text: &str| {
        let mut body = body.clone();
        body[place][key] = text.into();
        check(method, path, None, Some(body.to_string().as_bytes()), Some(permit)).is_err()
    };
    let bytes = body.to_string();
    let other_path = path.replace("db-0", "db-1");
    with("uid", "pod-9")
        && with("resourceVersion", "9")
        && check(method, &other_path, None, Some(bytes.as_bytes()), Some(permit)).is_err()
        && check(method, path, None, Some(bytes.as_bytes()), None).is_err()
}

/// Sends the DELETE, if the PATCH was answered and the evidence has not expired.
pub(crate) fn remove(world: &mut World, scope: &Scope) -> Option<()> {
    if world.sent.len() >= usize::from(world.budget.sent) {
        return None;
    }
    let PendingDelete { evidence, answer } = world.process.pending_delete.clone()?;
    let pod = world.process.pod?;
    let pod = objects::pod(&pod.object, pod.seen, scope.tick, 1);
    let text = (u32::from(answer?) + 100 * (number_of(&pod))).to_string();
    let meta = ObjectMeta { resource_version: Some(text), ..ObjectMeta::default() };
    let Ok(Next::Delete(force)) = ForceDelete::new(evidence.0.copied()).advance(&meta) else { return None };
    send(world, &force, &pod, &evidence, scope)
}

fn number_of(pod: &Pod) -> u32 {
    pod.key.uid.to_string().trim_start_matches("pod-").parse().unwrap_or_default()
}

/// A request arrives at the API server.
pub(crate) fn arrive(world: &mut World, which: u8, lost: bool) -> Option<()> {
    let sent = world.sent.remove(usize::from(which));
    if lost && (sent.removes || world.process.pending_delete.is_none()) {
        return None;
    }
    let answer = world.carry_out(sent);
    if !sent.removes {
        let answer = answer.filter(|_| !lost);
        match &mut world.process.pending_delete {
            Some(act) if act.answer.is_none() => {
                act.answer = answer;
                if answer.is_none() {
                    world.process.pending_delete = None;
                }
            }
            _ => {}
        }
    }
    Some(())
}

/// Drops state that can no longer matter, so that equivalent states are equal: expired facts, and heartbeats older than every read that
/// they could refute.
pub(crate) fn normalize(world: &mut World, scope: &Scope) {
    let (now, process) = (world.now, &mut world.process);
    if !scope.has_plant(Plant::NoExpiry) {
        let now = scope.mono(now);
        process.verified = process.verified.take().filter(|verified| verified.0.expires() > now);
        process.claimed = process.claimed.filter(|_| process.verified.is_some());
        process.pending_delete = process.pending_delete.take().filter(|act| act.evidence.0.expires() > now);
        process.checked_off_at =
            process.checked_off_at.filter(|at| scope.mono(*at) + pod_safety_proof::MINIMUM_BOOT > now);
    }
    if scope.follows_heartbeats() {
        return;
    }
    let first_read = process.absence.and_then(|absence| absence.first).map(|first| first.sent_at);
    let first = process.reads.and_then(|reads| reads.first).map(|first| first.sent_at);
    let reads_sent = process.reads.map(|reads| reads.sent_at);
    let oldest = first_read.into_iter().chain(first).chain(reads_sent).min();
    let counts = |at: &u8| match scope.budget.evidence {
        0 => oldest.is_some_and(|oldest| *at >= oldest),
        _ => u64::from(now - at) * scope.tick <= 15 || oldest.is_some_and(|oldest| *at >= oldest),
    };
    process.renewed_at = process.renewed_at.filter(counts);
    process.reported_at = process.reported_at.filter(counts);
}
