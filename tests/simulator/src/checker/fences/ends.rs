//! L2 and L3: evidence is used at once, an incident comes to its end, pods of a fenced node are released, and a
//! contradiction is recorded. Checked where devices work and pod-safety is not disturbed.

use std::time::Duration;

use super::known::{Evidence, Incident};
use crate::checker::budgets::{REACTS, RECOVERS};
use crate::checker::{Checker, Invariant, State};

/// The longest time from one phase to the next, where the device works: an order of 20 s, its margin, two status checks
/// of 10 s, the time between them, and the longest backoff before.
const FENCING_TAKES: Duration = Duration::from_secs(20 + 3 + 10 + 5 + 10 + 60 + 60);
/// The time until the promise of an agent is fulfilled: 3 (10 + 1) x 1.01 + 5 s after its last report, and an order of
/// a minute.
const PROMISE_TAKES: Duration = Duration::from_secs(60 + 40);
/// How long a provider may report the state of an earlier boot: docs/proof.md.
const PROVIDER_IS_BEHIND: Duration = Duration::from_secs(300);
/// The time for a step that is requested every five seconds, and its write.
const PENDING_TAKES: Duration = Duration::from_secs(60);
/// A release is retried after at most a minute.
const RELEASE_TAKES: Duration = Duration::from_secs(75);
/// The time from evidence, or a pod's graceful deletion, to its release: a status check of each device, which takes at
/// most 10 s and waits for other status checks of the same device; then a few requests.
const USED_WITHIN: Duration = Duration::from_secs(10 + 5);
/// The machine is switched on, boots, and registers; that may be tried three times. A machine that went off again gets
/// one more order after five minutes.
const RECOVERY_TAKES: Duration = Duration::from_secs(180 + 300);
/// A report of the kubelet that is not explained within half a minute contradicts the evidence.
const DOUBT_TAKES: Duration = Duration::from_secs(30 + 10);
/// For how long a machine that was switched on may boot (docs/fencing.md).
const BOOT_TAKES: Duration = Duration::from_secs(300);
/// A kubelet reports every ten seconds.
const REPORT_SEEN_AFTER: Duration = Duration::from_secs(15);

impl Checker {
    /// Checks that every incident makes progress.
    pub(crate) fn check_fences(&self, recovers: bool) {
        let (now, mut state) = self.now_and_state();
        let calm = state.budgets.untroubled_since(now, state.healed);
        let calm = if calm.is_zero() { calm } else { calm + RECOVERS };
        let led = state.acts.led_since().unwrap_or(now) + REACTS * 2;
        let from = calm.max(led);
        let incidents: Vec<(String, Incident)> =
            state.fences.incidents.iter().map(|(name, one)| (name.clone(), one.clone())).collect();
        let mut late = Vec::new();
        for (name, incident) in &incidents {
            late.extend(state.stays(now, from, incident, recovers).map(|why| format!("{name} {why}")));
        }
        late.extend(state.unchallenged(now, from));
        late.extend(state.waits_for_the_held(now, from));
        let late = late.into_iter().map(|what| (Invariant::Ended, what));
        let kept = state.keeps_taint(now, from).into_iter().map(|what| (Invariant::Recovered, what));
        let unused = state.unused(now, from).into_iter().map(|what| (Invariant::Released, what));
        for (rule, what) in late.chain(unused).chain(kept).collect::<Vec<_>>() {
            let key = what.split(" (").next().unwrap_or_default().to_owned();
            if state.fences.report_once(key) {
                state.violated(now, rule, what);
            }
        }
    }
}

impl State {
    /// Why an incident should have left its phase; `None`: it may stay.
    pub(super) fn stays(&self, now: Duration, from: Duration, incident: &Incident, recovers: bool) -> Option<String> {
        let fences = &self.fences;
        let (node, devices) = (&incident.incarnation.0, ["bmc", "ec2", "psu", "pdu", "agent"]);
        let number = node.rsplit('-').next().unwrap_or_default();
        let doubted = devices.iter().any(|kind| {
            let name = format!("{kind}-{number}");
            fences.distrusted.contains_key(&name) || fences.required.contains(&name)
        });
        let working = fences.failing.values().copied().max().unwrap_or_default();
        let since = from.max(incident.since).max(working);
        let there = fences.nodes.get(node).filter(|there| there.incarnation == incident.incarnation);
        // Another actor may switch the machine on; its state is unknown until its kubelet reports.
        let behind = match () {
            () if fences.of_provider => PROVIDER_IS_BEHIND,
            () if !fences.agents.is_empty() => PROMISE_TAKES,
            () => Duration::ZERO,
        };
        let is_gone = fences.terminated.contains(node);
        let off = !fences.was_reported_on(node, incident.since);
        let late = |takes: Duration| now > since + takes;
        let message = |what: String| Some(format!("{what} (in {} since {:?})", incident.phase, incident.since));
        match incident.phase.as_str() {
            "Pending" if !incident.held && !doubted && late(PENDING_TAKES) => {
                message("is not begun, and no gate is closed".to_owned())
            }
            "Fencing" if !incident.held && !doubted && late(FENCING_TAKES + behind) => {
                message("is neither proved nor given up".to_owned())
            }
            "Fenced"
                if off && there.is_some_and(|there| !there.ready) && self.is_proved(&incident.incarnation, now) =>
            {
                let waits = |leaving: &&super::known::Leaving| {
                    leaving.node == *node && now > since.max(leaving.since) + RELEASE_TAKES
                };
                let pod = fences.leaving.values().find(waits);
                let rests = fences.leaving.values().all(|leaving| leaving.node != *node);
                match pod {
                    Some(pod) => message(format!("is fenced, and {} is not released", pod.name)),
                    // Its watchdog resets it: no device switches it on.
                    None if self.is_promised(&incident.incarnation) => None,
                    None if recovers && rests && !is_gone && !doubted && late(RELEASE_TAKES + behind) => {
                        message("is fenced, all is released, and it is not switched on".to_owned())
                    }
                    None => None,
                }
            }
            "Recovering" if !doubted && !is_gone && there.is_some() && late(RECOVERY_TAKES) => {
                message("was switched on, and is not back".to_owned())
            }
            _ => None,
        }
    }

    /// Incidents that wait for the place of others, and none of the others goes on: each is paused, or has no policy.
    fn waits_for_the_held(&self, now: Duration, from: Duration) -> Vec<String> {
        let fences = &self.fences;
        let stands = |node: &String| {
            let closed = fences.paused.get(node).max(fences.without_policy.get(node));
            let sent = fences.intents.iter().any(|intent| intent.node == *node && intent.closed.is_none());
            !sent && closed.is_some_and(|since| *since + PENDING_TAKES < now)
        };
        let live = |one: &&Incident| ["Pending", "Fencing"].contains(&&*one.phase);
        let waits = |one: &&Incident| {
            let since = one.waits_for_others.filter(|since| now > from.max(*since) + PENDING_TAKES);
            let mut others =
                fences.incidents.values().filter(live).filter(|other| other.incarnation != one.incarnation);
            one.phase == "Pending" && since.is_some() && others.all(|other| stands(&other.incarnation.0))
        };
        let waiting = fences.incidents.values().filter(waits);
        waiting.map(|one| format!("{} waits for incidents that are held", one.incarnation.0)).collect()
    }

    /// Nodes that are Ready in an incarnation about which there is no evidence, and still have our taint by which
    /// kube-controller-manager would end their pods.
    fn keeps_taint(&self, now: Duration, from: Duration) -> Vec<String> {
        let fences = &self.fences;
        let late = |(name, node): &(&String, &super::known::Node)| {
            let fenced = node.taint.as_ref().and_then(|value| fences.incidents.get(value));
            let back = node.ready && fenced.is_some_and(|incident| incident.incarnation != node.incarnation);
            let orders = fences.intents.iter().filter(|intent| intent.node == **name);
            let lands = orders.map(super::known::Intent::deadline).max().unwrap_or_default();
            let since = fences.called_since.get(*name).copied().unwrap_or_default();
            back && now > from.max(since).max(lands) + PENDING_TAKES
        };
        let kept = fences.nodes.iter().filter(late);
        kept.map(|(name, _)| format!("{name} is Ready with another boot, and keeps our out-of-service taint")).collect()
    }

    /// Pods that wait on a node whose incarnation was proved off, for longer than a release takes without a retry.
    pub(super) fn unused(&self, now: Duration, from: Duration) -> Vec<String> {
        let fences = &self.fences;
        let mut late = Vec::new();
        // For a clock that jumped, a confirmation may have expired.
        let counts = |proof: &&Evidence| proof.by_status_checks || proof.confirmation.is_some() && !self.clocks_jumped;
        for proof in fences.evidence.values().filter(counts).filter(|proof| self.is_uncontradicted(proof, now)) {
            let node = &proof.incarnation.0;
            let there =
                fences.nodes.get(node).is_some_and(|there| there.incarnation == proof.incarnation && !there.ready);
            // A confirmation needs no device.
            let working = fences.failing.get(node).copied().filter(|_| proof.by_status_checks).unwrap_or_default();
            let trusted = proof.devices.iter().all(|device| !fences.distrusted.contains_key(device));
            if !there || !trusted || fences.was_reported_on(node, proof.created) {
                continue;
            }
            // A node that is fenced right after it came back stays Ready until its grace is over, and pods of a Ready
            // node are not released.
            let lost = fences.called_since.get(node).copied().unwrap_or_default();
            for leaving in fences.leaving.values().filter(|leaving| leaving.node == *node) {
                // A status check that failed is retried after at most a minute.
                let again = if working > proof.created { working + RELEASE_TAKES } else { Duration::ZERO };
                let owed = from.max(proof.created).max(leaving.since).max(lost) + USED_WITHIN;
                let owed = owed.max(again);
                if now > owed {
                    late.push(format!("{node} is proved off, and {} is there still (owed at {owed:?})", leaving.name));
                }
            }
        }
        late
    }

    /// Whether there is valid evidence about this incarnation, and the kubelet has not reported since.
    pub(super) fn is_proved(&self, life: &super::known::Incarnation, now: Duration) -> bool {
        self.fences.evidence_of(life).any(|proof| self.is_uncontradicted(proof, now))
    }

    /// Whether the evidence about this incarnation rests on agents alone.
    fn is_promised(&self, life: &super::known::Incarnation) -> bool {
        let by_agents = |proof: &Evidence| !proof.devices.is_empty() && proof.devices.is_subset(&self.fences.agents);
        self.fences.evidence_of(life).any(by_agents)
    }

    fn is_uncontradicted(&self, proof: &Evidence, now: Duration) -> bool {
        proof.is_valid(now) && !self.has_reported_since_evidence(proof)
    }

    /// Whether the kubelet has written another `renewTime` than that of the evidence since then: a later one, or one of
    /// a clock that was set back.
    fn has_reported_since_evidence(&self, proof: &Evidence) -> bool {
        let renewals = self.fences.renewals.get(&proof.incarnation.0).map(Vec::as_slice).unwrap_or_default();
        renewals.iter().any(|(at, lease)| *at > proof.created && lease.is_some() && *lease != proof.lease)
    }

    /// When the kubelet reported first after the node had been proved off.
    fn first_report_since(&self, proof: &Evidence) -> Option<Duration> {
        let renewals = self.fences.renewals.get(&proof.incarnation.0)?;
        let renewed = |(at, lease): &&(Duration, Option<jiff::Timestamp>)| {
            *at > proof.created && lease.is_some() && *lease > proof.lease
        };
        renewals.iter().find(renewed).map(|(at, _)| *at)
    }

    /// Nodes that were proved off and report in the same incarnation, while their evidence is not marked as
    /// contradicted.
    fn unchallenged(&self, now: Duration, from: Duration) -> Vec<String> {
        let mut late = Vec::new();
        for proof in self.fences.evidence.values().filter(|proof| proof.by_status_checks && proof.invalid.is_none()) {
            let same =
                self.fences.nodes.get(&proof.incarnation.0).is_some_and(|node| node.incarnation == proof.incarnation);
            let incident = self.fences.incidents.values().find(|incident| incident.incarnation == proof.incarnation);
            let live =
                incident.filter(|one| matches!(one.phase.as_str(), "Fenced" | "Recovering" | "AwaitingOperator"));
            let (Some(heard), Some(incident)) = (self.first_report_since(proof), live) else { continue };
            let last = self.fences.renewals.get(&proof.incarnation.0).and_then(|beats| beats.last()).map(|(at, _)| *at);
            let is_reporting = last.is_some_and(|last| now.saturating_sub(last) < REPORT_SEEN_AFTER);
            // The contradiction counts only after the deadline of the last order to a device: that order may have
            // started the machine.
            let last_deadline = self.fences.intents.iter().filter(|intent| intent.node == proof.incarnation.0);
            let last_deadline = last_deadline.map(super::known::Intent::deadline).max().unwrap_or_default();
            // A machine that was seen on may renew its Lease while its status is not accepted yet, for as long as a
            // boot may take.
            let boots = self.fences.was_reported_on(&proof.incarnation.0, proof.created);
            let patience = if boots { BOOT_TAKES + DOUBT_TAKES } else { DOUBT_TAKES };
            if same && is_reporting && now > heard.max(from).max(incident.since).max(last_deadline) + patience {
                late.push(format!("{} is heard again, and its evidence stands (since {heard:?})", proof.incarnation.0));
            }
        }
        late
    }
}
