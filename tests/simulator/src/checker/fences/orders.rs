//! S10, at the devices: the orders that reach them, and the power states that they report.

use std::time::Duration;

use pod_safety_shared::transport::{Act, Identity, Power};
use serde_json::Value;

use super::known::StatusCheck;
use crate::api::ApiRequest;
use crate::checker::budgets::{REACTS, RECOVERS};
use crate::checker::{Checker, Invariant, State, Tone};
use crate::world::{str_at, value_at};

/// An order that was decided on an earlier read may reach a device this long after the device was marked as not
/// trusted, or fencing was paused.
const READ_BEFORE: Duration = Duration::from_secs(25);
/// An order travels for a moment, and timers are coarse.
const TRAVELS: Duration = Duration::from_secs(1);

/// Who calls which device, for which node.
#[derive(Clone, Debug)]
pub(crate) struct Touched {
    pub(crate) caller: String,
    pub(crate) device: String,
    pub(crate) node: String,
}

/// A device's answer to a status check, and the true state.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) power: Power,
    pub(crate) identity: Identity,
    /// The node's machine has power.
    pub(crate) is_on: bool,
    /// The device reached the node's machine.
    pub(crate) reached: bool,
    /// The provider's documentation permits this answer. So a release that rests on it is never excused.
    pub(crate) documented: bool,
}

impl Checker {
    /// A device gets an order: off or on.
    pub(crate) fn record_order(&self, touched: &Touched, act: Act) {
        let (now, mut state) = self.now_and_state();
        let Touched { caller, device, node } = touched;
        let message = format!("{caller} tells {device} {} for {node}", act.name());
        let text = format!("pod-safety has {device} power {node} {}", act.name());
        state.announce(now, Tone::Other, message.clone(), text);
        state.probe(&format!("a device was told {}", act.name()));
        if let Some(why) = state.fences.unwritten(now, touched, act) {
            state.violated(now, Invariant::Fence, format!("{message}: {why}"));
        }
        state.check_trust(now, &message, device);
        state.check_pause(now, &message, node);
        let calm = state.budgets.untroubled_since(now, state.healed);
        let calm = calm.is_zero() || now > calm + RECOVERS;
        let waits = |leaving: &&super::known::Leaving| leaving.node == *node && leaving.since + REACTS < now;
        let waits = state.fences.leaving.values().find(waits).map(|leaving| leaving.name.clone());
        if let Some(pod) = waits.filter(|_| act == Act::On && calm) {
            state.violated(now, Invariant::Fence, format!("{message}, and {pod} was not released"));
        }
    }

    /// A device answers a status check.
    pub(crate) fn record_answer(&self, touched: &Touched, answered: &Answered) {
        let (now, mut state) = self.now_and_state();
        let Touched { caller, device, node } = touched;
        let Answered { power, identity, is_on, reached, documented } = answered;
        let untrue = matches!(power, Power::Off | Power::Gone) && *is_on;
        let lied = untrue && !documented;
        if untrue && *documented {
            state.probe("a provider showed an earlier stop of an instance that ran");
        }
        state.check_trust(now, &format!("{caller} looks at {device} for {node}"), device);
        if lied {
            state.probe("a device said off of a machine that was on");
        }
        let check = StatusCheck {
            at: now,
            device: device.clone(),
            power: *power,
            identity: identity.clone(),
            lied,
            reached: *reached,
        };
        state.fences.checks.entry((caller.clone(), node.clone())).or_default().push(check);
    }

    /// A process tries the port of a node's kubelet, and something answers or not.
    pub(crate) fn port_answered(&self, caller: &str, node: &str, answers: bool) {
        let (now, key) = (self.now(), (caller.to_owned(), node.to_owned()));
        let mut state = self.state.lock();
        if answers {
            state.probe("something answered at the port of a kubelet");
        }
        state.fences.ports.entry(key).or_default().push((now, answers));
    }

    /// A person is about to confirm that a machine is off, while it has power (`runs`) or not.
    pub(crate) fn record_confirmation(&self, node: &str, runs: bool) {
        self.state.lock().fences.confirmations.insert(node.to_owned(), runs);
    }

    /// The machines are instances of a provider, whose answers may be stale.
    pub(crate) fn machines_are_instances(&self) {
        self.state.lock().fences.of_provider = true;
    }

    /// The machine of a node never has power again.
    pub(crate) fn instance_is_gone(&self, node: &str) {
        self.state.lock().fences.terminated.insert(node.to_owned());
    }

    /// The controller of another project is about to report that the machine of a node has ended: it has, or not.
    pub(crate) fn controller_ended(&self, node: &str, ended: bool) {
        self.state.lock().fences.reported_ends.insert(node.to_owned(), ended);
    }

    /// The first device of a node fails until `until`.
    pub(crate) fn device_fails(&self, node: &str, until: Duration) {
        let mut state = self.state.lock();
        let failing_until = state.fences.failing.entry(node.to_owned()).or_default();
        *failing_until = until.max(*failing_until);
    }
}

impl super::Fences {
    /// Why the last try of a node's kubelet port by this process is no second fact for what it sends now.
    pub(super) fn port_did_not_answer(&self, caller: &str, node: &str, sent: Duration) -> Result<(), String> {
        let tried = self.ports.get(&(caller.to_owned(), node.to_owned()));
        let last = tried.into_iter().flatten().rev().find(|(at, _)| *at <= sent);
        match last {
            None => Err(format!("{caller} never tried the port of the kubelet of {node}")),
            Some((at, true)) => Err(format!("something answered at the port of the kubelet of {node} at {at:?}")),
            Some((at, false)) if sent.saturating_sub(*at) > super::MINIMUM_BOOT => {
                Err(format!("{caller} tried the port of the kubelet of {node} last at {at:?}"))
            }
            Some((_, false)) => Ok(()),
        }
    }

    /// Why no recorded attempt permits this order to a device; `None`: one does.
    fn unwritten(&self, now: Duration, touched: &Touched, act: Act) -> Option<String> {
        let Touched { device, node, .. } = touched;
        let names = |intent: &&super::known::Intent| {
            intent.node == *node && intent.act == act.name() && intent.devices.contains(device)
        };
        let Some(intent) = self.intents.iter().rev().find(names) else {
            return Some("no attempt of that is written down".to_owned());
        };
        if intent.closed.is_some_and(|closed| closed <= now) {
            return Some(format!("the attempt {} of {} is over", intent.id, intent.fence));
        }
        (now > intent.deadline() + TRAVELS).then(|| format!("the time of the attempt ended at {:?}", intent.deadline()))
    }
}

impl State {
    /// A process under test revokes the promise of an agent.
    pub(super) fn check_revocation(&mut self, now: Duration, asked: &ApiRequest, node: &str) {
        let caller = &*asked.caller;
        let device = format!("agent-{}", node.rsplit('-').next().unwrap_or_default());
        let message = format!("{caller} takes back the promise of the agent of {node}");
        let text = format!("pod-safety revokes the promise of the agent of {node}");
        self.announce(now, Tone::Other, message.clone(), text);
        self.probe("the promise of an agent was taken back");
        let touched = Touched { caller: caller.to_owned(), device: device.clone(), node: node.to_owned() };
        // A request that was sent during the attempt may arrive after it.
        if let Some(why) = self.fences.unwritten(asked.sent.unwrap_or(now), &touched, Act::Off) {
            self.violated(now, Invariant::Fence, format!("{message}: {why}"));
        }
        self.check_trust(now, &message, &device);
    }

    fn check_trust(&mut self, now: Duration, message: &str, device: &str) {
        let since = self.fences.distrusted.get(device).copied();
        if let Some(since) = since.filter(|since| *since + READ_BEFORE < now) {
            self.violated(now, Invariant::Fence, format!("{message}, which is not trusted since {since:?}"));
        }
    }

    pub(super) fn check_pause(&mut self, now: Duration, message: &str, node: &str) {
        let fences = &self.fences;
        let paused = fences.paused.get(node).map(|since| (since, "is paused"));
        let without = fences.without_policy.get(node).map(|since| (since, "has no policy"));
        let closed = paused.into_iter().chain(without).find(|(since, _)| **since + READ_BEFORE < now);
        if let Some((since, what)) = closed {
            let what = format!("{message}, whose fencing {what} since {since:?}");
            self.violated(now, Invariant::Fence, what);
        }
    }

    /// A process under test writes the status of an incident.
    pub(super) fn check_phase(
        &mut self,
        now: Duration,
        caller: &str,
        fence: &str,
        before: Option<&Value>,
        after: &Value,
    ) {
        let phase = |object: &Value| str_at(object, "/status/phase").to_owned();
        let (old, new) = (before.map(phase).unwrap_or_default(), phase(after));
        if old != new && !new.is_empty() {
            self.probe(&format!("an incident became {new}"));
            let (node, message) = (str_at(after, "/spec/node/name"), str_at(after, "/status/message"));
            let exact = format!("{caller}: {fence} is {new}: {message}");
            self.announce(now, Tone::Other, exact, format!("fencing of {node}: {new}: {message}"));
        }
        let (node, uid) = (str_at(after, "/spec/node/name").to_owned(), str_at(after, "/metadata/uid"));
        let attempts = value_at(after, "/status/attempts").and_then(Value::as_array).into_iter().flatten();
        for attempt in attempts {
            let id = crate::world::number_at(attempt, "/id").unwrap_or(0);
            let intent = self.fences.intents.iter().find(|intent| intent.is_of(fence, uid, id));
            let early = match intent {
                Some(intent) => {
                    let looked = intent.closed.is_none() && value_at(attempt, "/outcome").is_none();
                    (looked && value_at(attempt, "/verified").is_some() && now < intent.deadline())
                        .then(|| format!("{caller} looks at attempt {id} of {fence}, which may still land"))
                }
                None => {
                    let open = |other: &&super::known::Intent| {
                        other.node == node && other.closed.is_none() && now < other.deadline()
                    };
                    let open = self.fences.intents.iter().find(open);
                    open.map(|other| {
                        format!(
                            "{caller} begins attempt {id} of {fence}, and {} of {} may land until {:?}",
                            other.id,
                            other.fence,
                            other.deadline()
                        )
                    })
                }
            };
            if let Some(what) = early {
                self.violated(now, Invariant::Fence, what);
            }
        }
    }
}
