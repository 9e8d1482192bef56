//! S10, L2, L3, and the part of S2 that concerns pods released by fencing: which machine is switched off, on the basis
//! of which recorded attempt, and what follows from it. Checked in worlds in which nodes are fenced.
//!
//! | broken | when |
//! |---|---|
//! | S10 | a device gets an order (off or on), and no open attempt that names the device is recorded |
//! | S10 | a device gets an order after the attempt's time, or although it is marked as not trusted |
//! | S10 | an attempt begins, or its result is checked, while an earlier order for that node may still take effect |
//! | S10 | a machine is switched on while pods that were deleted gracefully wait there |
//! | S10 | evidence is written without two status checks of each device, 5 s apart, that both reported off; or the device belongs to another machine, or does not report its identity where that is required; or the Lease was renewed since, or was not read after all status checks |
//! | S10 | evidence names an agent whose promise was not revoked, or in whose boot a process runs; a promise is revoked without an open attempt that names the agent |
//! | S10 | the out-of-service taint is added without valid evidence about that incarnation, or to a node that is Ready |
//! | S10 | pod-safety removes an out-of-service taint that it did not add; or removes it while the node is not back in another incarnation and the evidence was not contradicted |
//! | S2 | a pod is released without such evidence, or after the evidence was declared invalid, or without a last status check and a read of the Lease after it, or although the Lease was renewed since |
//! | S2 | a process of the released pod runs, and no false report excuses that |
//! | S2 | a pod is released by an expired confirmation, or although the Lease was renewed since, or the Lease was not read |
//! | L2 | a pod that waits on a node that is proved off is still there fifteen seconds later, where no request needs a retry |
//! | L3 | an incident stays in its phase and no gate holds it; pods of a fenced node stay |
//! | L3 | an incident waits for the places of others, and each of the others is paused or has no policy |
//! | L3 | the kubelet reports in the incarnation that was proved off, and the evidence is not marked as contradicted |
//! | L6 | a node is Ready in another incarnation than that of its evidence, and keeps pod-safety's out-of-service taint |
//!
//! **The false report that cannot be detected.** A device reports off for a machine that runs, at both status checks
//! and at the last one, and the machine's kubelet does not report during that time. The API server and the device then
//! show exactly what they would show for a machine that is off. So such a release is excused and counted (`limit: a
//! device lied …`) if *each* status check that it rests on was such a false report and no renewal of the Lease could be
//! read. If the kubelet renewed shortly before and shortly after, it was reachable: that is S19 (`alive`). A device
//! that reaches another machine is no such excuse where `identityCheck` is `Required`. As soon as the kubelet reports,
//! everything that docs/fencing.md promises applies again: no further release, the evidence invalid, the device not
//! trusted.

mod ends;
mod known;
mod orders;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use pod_safety_shared::transport::{Identity, Power};
use serde_json::Value;

pub(super) use self::known::Fences;
use self::known::{Confirmation, Evidence, Node, StatusCheck, is_new};
pub(crate) use self::orders::{Answered, Touched};
use super::audience::{self, Tone};
use super::processes::Process;
use super::{Invariant, State};
use crate::api::{ApiRequest, ObservedChange};
use crate::world::{boot_id, is_shipped, str_at};

/// The least time between two status checks of a device.
const APART: Duration = Duration::from_secs(5);
/// The least time between two status checks where a provider's answer may be stale. A status check takes a moment, and
/// the first may take longer than the second.
const INSTANCES_APART: Duration = Duration::from_secs(13);
/// The longest time between the status checks of a step and the write that rests on them: a step of fencing checks
/// twice and writes, the next one reads and writes.
const CHECK_VALID_FOR: Duration = Duration::from_secs(120);
/// The longest time from the read of the Lease to the write of the evidence: one request lies between them, which may
/// be as slow as requests are here.
const WRITTEN_WITHIN: Duration = Duration::from_secs(31);
/// The shortest boot of a machine, and so the longest time from the last status check to a release.
const MINIMUM_BOOT: Duration = Duration::from_secs(10);
/// How long after its reads evidence about a node may be used.
const VALID_FOR: Duration = Duration::from_secs(2);

impl State {
    /// Checks an executed request against the rules of fencing, then records what it changed.
    pub(super) fn judge_fences(&mut self, now: Duration, asked: &ApiRequest, changes: &[ObservedChange]) {
        let is_ours = is_shipped(&asked.caller);
        for change in changes {
            if is_ours {
                self.check_fence_change(now, asked, change);
            }
            self.fences.observe(now, change);
        }
    }

    fn check_fence_change(&mut self, now: Duration, asked: &ApiRequest, change: &ObservedChange) {
        if let Some(proof) = is_new(change, "FenceEvidence") {
            let message = format!("{} writes the evidence {}", asked.caller, change.name);
            match self.evidence_defect(now, &asked.caller, &proof) {
                Some(why) => self.violated(now, Invariant::Fence, format!("{message}: {why}")),
                None => {
                    self.probe("evidence was written by two looks");
                    let node = str_at(&proof, "/spec/node/name");
                    let text = format!("pod-safety records the evidence that {node} is off");
                    self.announce(now, Tone::Release, message.clone(), text);
                    if self.were_false_reports(node, &devices_of(&proof)) {
                        self.doubt_device(now, node, message);
                    }
                }
            }
        }
        match (change.kind.as_str(), &change.before, &change.after) {
            ("Node", Some(before), Some(after)) => {
                let (before, after) = (Node::from_object(before), Node::from_object(after));
                if before.taint != after.taint {
                    self.check_taint(now, &asked.caller, &before, &after);
                }
            }
            ("Lease", before, Some(after)) => {
                let is_revoked = |lease: &Value| known::agent_field(lease, "state") == "Revoked";
                let revokes = is_revoked(after) && !before.as_deref().is_some_and(is_revoked);
                if let Some(node) = known::watchdog(&change.name).filter(|_| revokes) {
                    self.check_revocation(now, asked, node);
                }
            }
            ("NodeFence", before, Some(after)) => {
                self.check_phase(now, &asked.caller, &change.name, before.as_deref(), after);
            }
            _ => {}
        }
    }

    /// Why status checks do not support this evidence; `None`: they do.
    fn evidence_defect(&self, now: Duration, caller: &str, object: &Value) -> Option<String> {
        let about = object.pointer("/spec/node").map(known::incarnation_of).unwrap_or_default();
        let devices = devices_of(object);
        let kind = str_at(object, "/spec/kind");
        let by_controller = known::is_by_controller(kind);
        if !known::is_by_status_checks(kind) && !by_controller || devices.is_empty() {
            return Some("it names no device".to_owned());
        }
        // The Lease must be read after all status checks: a renewal between the read and a later check would be missed.
        let Some(read) = self.acts.lease_read(caller, &about.0, now) else {
            return Some(format!("{caller} never read the Lease of {}", about.0));
        };
        if now.saturating_sub(read) > WRITTEN_WITHIN {
            return Some(format!("{caller} read the Lease of {} at {read:?} only", about.0));
        }
        // The status checks may have been made by an earlier leader: their result is in the status.
        let callers = self.fences.checks.keys().filter(|(_, node)| *node == about.0);
        let callers: Vec<String> = callers.map(|(caller, _)| caller.clone()).collect();
        if by_controller && !self.fences.reported_ends.contains_key(&about.0) {
            return Some(format!("no controller reported the end of the machine of {}", about.0));
        }
        for device in devices.into_iter().filter(|_| !by_controller) {
            if self.fences.agents.contains(device) {
                if let Some(why) = self.promise_defect(&about) {
                    return Some(why);
                }
                continue;
            }
            let apart = if kind == "PowerOff" { APART } else { INSTANCES_APART };
            let twice = callers.iter().any(|caller| self.was_off_twice(caller, &about.0, (device, apart), read));
            if !twice {
                return Some(format!(
                    "{device} did not say off of {} in two looks {apart:?} apart, before the Lease was read at {read:?}",
                    about.0
                ));
            }
        }
        let lease = known::time_of(str_at(object, "/spec/leaseRenewed"));
        // A Lease that was garbage collected with its Node was not renewed.
        let renewed = self.fences.lease_at(&about.0, read) != lease && self.acts.leases.contains(&about.0);
        renewed.then(|| format!("the Lease that {caller} read at {read:?} is not that of the looks, {lease:?}"))
    }

    /// Why the promise of a node's agent is not fulfilled: a guarded process runs, or the promise was not revoked.
    fn promise_defect(&self, (node, _, boot): &known::Incarnation) -> Option<String> {
        if self.fences.revoked.get(node) != Some(boot) {
            return Some(format!("the promise of the agent of {node} for boot {boot} was not taken back"));
        }
        let runs = |process: &&Process| *process.node == **node && boot_id(node, process.boot) == *boot;
        let process = self.processes.running().find(runs)?;
        Some(format!("a process of {} runs in boot {boot}, whose agent promised its end", process.identity))
    }

    /// Whether one of these devices reported off while the machine ran.
    fn were_false_reports(&self, node: &str, devices: &BTreeSet<&str>) -> bool {
        let checks = self.fences.checks.iter().filter(|((_, of), _)| of == node);
        let lied = |device: &&str| {
            let mut last = checks.clone().filter_map(|(_, checks)| checks.iter().rfind(|look| look.device == *device));
            last.any(|look| look.lied)
        };
        devices.iter().any(lied)
    }

    fn was_off_twice(&self, caller: &str, node: &str, (device, apart): (&str, Duration), now: Duration) -> bool {
        let strict = self.fences.required.contains(device);
        let checks: Vec<&StatusCheck> = self.fences.checks_of(caller, node, device, now).collect();
        let recent = |look: &&&StatusCheck| now.saturating_sub(look.at) <= CHECK_VALID_FOR;
        checks.iter().rev().filter(recent).any(|last| {
            let before = |first: &&StatusCheck| first.at + apart <= last.at && first.at + CHECK_VALID_FOR > last.at;
            is_off(last, strict) && checks.iter().any(|first| before(first) && is_off(first, strict))
        })
    }

    fn check_taint(&mut self, now: Duration, caller: &str, before: &Node, after: &Node) {
        let name = &after.incarnation.0;
        let message = |what: &str| format!("{caller} {what} {name}");
        if let Some(value) = &after.taint {
            let message = message("adds the out-of-service taint to");
            let read = self.acts.lease_read(caller, name, now).unwrap_or_default();
            let lease = self.fences.lease_at(name, read);
            let holds = |proof: &Evidence| {
                let over = proof.is_over(now.saturating_sub(VALID_FOR)) && !self.clocks_jumped;
                let unmoved = lease.is_none() || lease == proof.lease;
                !over && unmoved && proof.invalid.is_none_or(|at| now < at + VALID_FOR)
            };
            let holds = self.fences.evidence_of(&after.incarnation).any(holds);
            let is_ours = self.fences.incidents.get(value).is_some_and(|one| one.incarnation == after.incarnation);
            match (holds, is_ours, before.ready) {
                (true, true, false) => {
                    self.probe("the out-of-service taint was added by proof");
                    let text = format!("pod-safety adds the taint out-of-service to {name}");
                    self.announce(now, Tone::Other, message, text);
                }
                (false, ..) => {
                    self.violated(now, Invariant::Fence, format!("{message}, without evidence that holds"));
                }
                (_, false, _) => {
                    self.violated(now, Invariant::Fence, format!("{message} for {value}, which is not about it"));
                }
                (.., true) => self.violated(now, Invariant::Fence, format!("{message}, which is Ready")),
            }
        }
        let Some(value) = before.taint.as_ref().filter(|_| after.taint.is_none()) else { return };
        let message = message("takes the out-of-service taint from");
        let Some(incident) = self.fences.incidents.get(value) else {
            return self.violated(now, Invariant::Fence, format!("{message}: {value} is not ours"));
        };
        // For a process whose clock jumped, a confirmation may expire sooner.
        let over = |proof: &Evidence| proof.confirmation.is_some() && self.clocks_jumped;
        // The evidence was written within a second, and its age is counted in whole seconds.
        let untrue = !self.is_proved(&incident.incarnation, now + Duration::from_secs(1))
            || self.fences.evidence_of(&incident.incarnation).any(over);
        let back = incident.incarnation != after.incarnation && after.ready;
        if untrue || back {
            self.probe(if back { "our taint went when the node was back" } else { "our taint was contradicted" });
            let text = format!("pod-safety removes the taint out-of-service from {name}");
            self.announce(now, Tone::Other, message, text);
        } else {
            self.violated(now, Invariant::Fence, format!("{message}, which is not back in another life"));
        }
    }

    /// Why fencing is no valid evidence for the release of this pod; `None`: no fencing is involved, or the evidence is
    /// valid.
    pub(super) fn check_release(&mut self, caller: &str, pod: &Value, sent: Duration) -> Result<(), String> {
        let (node, uid) = (str_at(pod, "/spec/nodeName"), str_at(pod, "/metadata/uid"));
        let there = self.fences.nodes.get(node).map(|node| node.incarnation.clone());
        let life = there.or_else(|| self.fences.gone_lately(node, sent)).unwrap_or_default();
        let proofs: Vec<Evidence> = self.fences.evidence_of(&life).cloned().collect();
        let mut why = format!("there is no evidence about the life of {node}");
        for proof in proofs {
            match self.released_by_evidence(&proof, caller, (node, uid), sent) {
                Ok(()) => return Ok(()),
                Err(lacks) => why = lacks,
            }
        }
        Err(why)
    }

    fn released_by_evidence(
        &mut self,
        proof: &Evidence,
        caller: &str,
        (node, uid): (&str, &str),
        sent: Duration,
    ) -> Result<(), String> {
        if let Some(at) = proof.invalid.filter(|at| *at + VALID_FOR < sent) {
            return Err(format!("the evidence about {node} was declared invalid at {at:?}"));
        }
        if let Some(word) = proof.confirmation {
            return self.released_by_confirmation(proof, word, caller, (node, uid), sent);
        }
        if proof.by_controller {
            return self.released_by_controller(proof, caller, (node, uid), sent);
        }
        let (checks, read) = self.last_checks(caller, node, proof, sent)?;
        let renewed = self.fences.lease_at(node, read);
        if renewed.is_some() && renewed != proof.lease {
            return Err(format!("the Lease of {node} was renewed, and {caller} read that at {read:?}"));
        }
        if proof.corroborated {
            self.fences.port_did_not_answer(caller, node, sent)?;
            self.probe("released on a second fact, too");
        }
        let runs = self.processes.of_uid(uid).next().is_some();
        if !runs {
            return Ok(());
        }
        if proof.devices.iter().any(|device| self.fences.agents.contains(device)) {
            if self.runs_unreported_in_the_next_boot(proof, uid, sent) {
                self.probe("limit: a kubelet that could not write started pods in the boot after a promise");
                self.excuse_processes(uid);
                return Ok(());
            }
            return Err("a process of it runs, and an agent promised its end".to_owned());
        }
        if let Some(look) = checks.iter().find(|look| !look.lied) {
            return Err(format!("a process of it runs, and {} did not lie", look.device));
        }
        let strict = |look: &&StatusCheck| self.fences.required.contains(&look.device) && !look.reached;
        if let Some(look) = checks.iter().find(strict) {
            return Err(format!("a process of it runs: {} is Required to say what it reaches", look.device));
        }
        self.record_deception(sent, uid, node);
        Ok(())
    }

    /// Checks a release on what the controller of another project reported.
    /// docs/assumptions.md: machine-goes-with-its-object, remediator-is-right
    fn released_by_controller(
        &mut self,
        proof: &Evidence,
        caller: &str,
        (node, uid): (&str, &str),
        sent: Duration,
    ) -> Result<(), String> {
        let read = self.acts.lease_read(caller, node, sent);
        let renewed =
            self.fences.lease_at(node, read.ok_or_else(|| format!("{caller} never read the Lease of {node}"))?);
        if renewed.is_some() && renewed != proof.lease {
            return Err(format!("the Lease of {node} was renewed, and {caller} read that at {read:?}"));
        }
        let ended = self.fences.reported_ends.get(node).copied();
        let runs = self.processes.of_uid(uid).next().is_some();
        match (runs, ended) {
            (_, None) => Err(format!("no controller reported the end of the machine of {node}")),
            (false, Some(_)) => {
                self.probe("released on the report of another project's controller");
                Ok(())
            }
            (true, Some(true)) => Err("a process of it runs, and its machine had ended".to_owned()),
            (true, Some(false)) => {
                if self.excuse_processes(uid) {
                    self.probe("limit: a controller of another project reported the end of a machine that ran");
                }
                Ok(())
            }
        }
    }

    /// Whether the processes of a pod were started by a kubelet whose writes did not arrive, in a boot after the one
    /// that an agent promised to end or that a confirmation names: no gate of an agent held it.
    /// docs/assumptions.md: writes-before-it-starts
    fn runs_unreported_in_the_next_boot(&self, proof: &Evidence, uid: &str, now: Duration) -> bool {
        let (node, _, promised) = &proof.incarnation;
        let mut processes = self.processes.running().filter(|process| process.uid == uid);
        processes.all(|process| {
            let unreported = self.unreported_between(node, process.started, now)
                || !self.has_reported_since(node, process.started, now);
            boot_id(node, process.boot) != *promised && unreported
        })
    }

    /// Checks a release by a confirmation. No device verifies a confirmation: it is trusted until it expires, as long
    /// as the kubelet does not report.
    /// docs/assumptions.md: people-are-right
    fn released_by_confirmation(
        &mut self,
        proof: &Evidence,
        word: Confirmation,
        caller: &str,
        (node, uid): (&str, &str),
        sent: Duration,
    ) -> Result<(), String> {
        // The process compares the expiry with its own wall clock: after a jump of a clock the expiry is not checked
        // (docs/fencing.md).
        if word.until + VALID_FOR < sent && !self.clocks_jumped {
            return Err(format!("what a person said of {node} had expired at {:?}", word.until));
        }
        let read = self.acts.lease_read(caller, node, sent);
        let read = read.ok_or_else(|| format!("{caller} never read the Lease of {node}"))?;
        let renewed = self.fences.lease_at(node, read);
        if renewed.is_some() && renewed != proof.lease {
            return Err(format!("the Lease of {node} was renewed, and {caller} read that at {read:?}"));
        }
        if self.processes.of_uid(uid).next().is_none() {
            self.probe("released by a person's word");
            return Ok(());
        }
        if !word.wrong {
            if self.runs_unreported_in_the_next_boot(proof, uid, sent) {
                self.probe("limit: a kubelet that could not write started pods in the boot after a person's word");
                self.excuse_processes(uid);
                return Ok(());
            }
            return Err("a process of it runs, and the person was right about another".to_owned());
        }
        self.processes.of_uid(uid).for_each(|process| process.vouched_for = true);
        if self.fences.deceived.insert(uid.to_owned()) {
            self.probe("limit: a person was wrong about a machine that ran, and its kubelet was not heard");
            let message = format!("a person was wrong about {node}: pod {uid:.8} is released while it runs");
            self.announce_deceived(sent, uid, message, format!("a person was wrong about {node}"));
        }
        Ok(())
    }

    /// The status checks on which a release rests, and the read of the Lease after them: a renewal before the status
    /// checks were done must be noticed. Neither may be older than the shortest time for which a machine is off.
    fn last_checks(
        &self,
        caller: &str,
        node: &str,
        proof: &Evidence,
        sent: Duration,
    ) -> Result<(Vec<StatusCheck>, Duration), String> {
        let read = self.acts.lease_read(caller, node, sent);
        let read = read.ok_or_else(|| format!("{caller} never read the Lease of {node}"))?;
        let mut checks = Vec::new();
        for device in proof.devices.iter().filter(|device| !self.fences.agents.contains(*device)) {
            // A step of fencing may have made another status check since; that one counts as well.
            let last = self.fences.checks_of(caller, node, device, read).next_back();
            let last = last.ok_or_else(|| {
                format!("{caller} did not look at {device} for {node} before it read the Lease at {read:?}")
            })?;
            // The device takes a moment after the status check began.
            if sent.saturating_sub(last.at) > MINIMUM_BOOT {
                return Err(format!("the last look at {device} for {node} was at {:?}", last.at));
            }
            let newest = self.fences.checks_of(caller, node, device, sent).next_back().unwrap_or(last);
            for look in [last, newest] {
                if !matches!(look.power, Power::Off | Power::Gone) || matches!(look.identity, Identity::Mismatch { .. })
                {
                    return Err(format!("{device} said {:?} of {node} at {:?}", look.power, look.at));
                }
            }
            checks.push(last.clone());
        }
        Ok((checks, read))
    }

    /// Records a false report that could not be detected: the pod's process goes on, and its successor may start.
    /// docs/assumptions.md: device-is-the-nodes
    fn record_deception(&mut self, now: Duration, uid: &str, node: &str) {
        if self.excuse_processes(uid) {
            self.probe("limit: a device lied of a machine that ran, and nobody heard its kubelet");
            let message = format!("a device lies of {node}: pod {uid:.8} is released while it runs");
            self.announce_deceived(now, uid, message.clone(), format!("the fence device of {node} lied"));
            self.doubt_device(now, node, message);
        }
    }

    /// Excuses the pod's running processes: its successor may start although they run. Returns whether that is new.
    fn excuse_processes(&mut self, uid: &str) -> bool {
        self.processes.of_uid(uid).for_each(|process| process.vouched_for = true);
        self.fences.deceived.insert(uid.to_owned())
    }

    fn announce_deceived(&mut self, now: Duration, uid: &str, exact: String, cause: String) {
        let process = self.processes.of_uid(uid).next();
        let pod = process.map_or_else(|| "a pod".to_owned(), |one| audience::pod(&one.identity).to_owned());
        self.announce(now, Tone::Broken, exact, format!("{cause}: {pod} is released while it runs"));
    }
}

/// Whether a status check reported off for the node's own machine.
fn is_off(check: &StatusCheck, strict: bool) -> bool {
    let is_it = match check.identity {
        Identity::Match => true,
        Identity::Unknown => !strict,
        Identity::Mismatch { .. } => false,
    };
    matches!(check.power, Power::Off | Power::Gone) && is_it
}

/// The devices that evidence names.
fn devices_of(evidence: &Value) -> BTreeSet<&str> {
    let samples = evidence.pointer("/spec/samples").and_then(Value::as_array);
    samples.into_iter().flatten().map(|sample| str_at(sample, "/device/name")).collect()
}
