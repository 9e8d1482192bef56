//! What to write to a node and to the conditions of its pods. Pure.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{Effect, Intent, ManagedTaint, NodeUpdate, Update};
use pod_safety_shared::cache::{Lookup, View, WATCH_GAP};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::{Mode, Subject};
use pod_safety_shared::model::{
    ConditionState, Kind, NOT_READY_TAINT, Node, Readiness, SUSPECT_TAINT, UNREACHABLE_TAINT,
};

use super::config::Config;
use super::heartbeat::{Grace, HeartbeatState, check_heartbeat, two_renewals};
use super::pods;
use super::zones::{count_if_all_lost, next_taint_at, slower_interval};

/// A node that is not ready is checked this often: the state of its zone may change.
const RECHECK_AFTER: Duration = Duration::from_secs(5);

/// While the API server does not answer, everything is checked this often.
const RECHECK_STALE: Duration = Duration::from_secs(10);

/// A node behind another one in the queue of its zone is checked again this soon: the other one's taint is being
/// written.
const RECHECK_QUEUED: Duration = Duration::from_secs(1);

/// The key of a decision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The node of this name: its conditions, taints and labels.
    Node(Arc<str>),
    /// The conditions of the pods bound to the node of this name.
    Pods(Arc<str>),
}

impl Key {
    /// The kinds whose caches must be synced and fresh to decide about the key.
    pub(super) const fn required_kinds(&self) -> &'static [Kind] {
        match self {
            Self::Node(_) => &[Kind::Nodes, Kind::NodeLeases],
            Self::Pods(_) => &[Kind::Pods, Kind::Nodes],
        }
    }
}

/// Decides about one key.
#[must_use]
pub fn decide(key: &Key, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    for kind in key.required_kinds() {
        if let Err(unfresh) = view.check_fresh(*kind, now) {
            return Decision::hold(Subject::Everything, unfresh).and_requeue_at(now + RECHECK_STALE);
        }
    }
    let name = match key {
        Key::Pods(name) => return pods::decide(name, view, now, config),
        Key::Node(name) => name,
    };
    match view.node(name) {
        Lookup::Known(node) => match config.mode {
            Mode::Replace => replace(node, view, now, config),
            Mode::Guard | Mode::Observe => guard(node, view, now, config),
        },
        Lookup::Unknown(why) => Decision::unreadable_node(name, why),
        Lookup::Absent => Decision::default(),
    }
}

/// In place of KCM.
fn replace(node: &Node, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    let mut plan = NodePlan::new(node);
    let readiness = match node.readiness {
        Readiness::Unknown => Readiness::Unknown,
        reported @ (Readiness::Ready | Readiness::NotReady | Readiness::Missing) => {
            let (unreachable_after, startup, led_since) =
                (config.monitor_grace, config.startup_grace, config.led_since);
            let grace = Grace { unreachable_after, startup, led_since };
            match check_heartbeat(node, view, now, grace) {
                HeartbeatState::Reporting(deadline) => {
                    plan.recheck_at(deadline);
                    reported
                }
                HeartbeatState::NotReporting(not_reporting) => {
                    plan.update.not_reporting = Some(not_reporting);
                    Readiness::Unknown
                }
                HeartbeatState::Uncertain(hold, again) => {
                    plan.hold(hold);
                    plan.recheck_at(again);
                    reported
                }
            }
        }
    };
    plan.set_unreachable_condition(readiness);
    plan.set_condition_taints(readiness);
    plan.clear_suspect();
    if let Some((lost, of)) = count_if_all_lost(view) {
        // KCM does more then; this is the part that counts: it removes these taints from every node.
        plan.clear_no_execute();
        if matches!(readiness, Readiness::NotReady | Readiness::Unknown) {
            plan.hold(Hold::LargeOutage { lost, of });
        }
    } else {
        taint_lost(&mut plan, readiness, view, now, config);
    }
    if readiness != Readiness::Ready {
        plan.recheck_at(now + RECHECK_AFTER);
    }
    plan.update.labels = node.stale_labels.to_vec();
    plan.into_decision()
}

/// Beside KCM: conditions, taints and labels that KCM manages are left alone.
fn guard(node: &Node, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    let mut plan = NodePlan::new(node);
    plan.set_unreachable_condition(node.readiness);
    match node.readiness {
        Readiness::Ready => {
            let (unreachable_after, led_since) = (config.suspect_after, config.led_since);
            let grace = Grace { unreachable_after, startup: unreachable_after, led_since };
            match check_heartbeat(node, view, now, grace) {
                HeartbeatState::Reporting(deadline) => {
                    plan.clear_suspect();
                    plan.recheck_at(deadline);
                }
                HeartbeatState::NotReporting(_) => plan.ensure((SUSPECT_TAINT, Effect::NoSchedule)),
                HeartbeatState::Uncertain(hold, again) => {
                    plan.hold(hold);
                    plan.recheck_at(again);
                }
            }
        }
        Readiness::NotReady | Readiness::Unknown | Readiness::Missing => plan.clear_suspect(),
    }
    plan.into_decision()
}

/// Adds the `NoExecute` taint, when it is this node's turn.
fn taint_lost(plan: &mut NodePlan<'_>, readiness: Readiness, view: &View<'_>, now: Mono, config: &Config) {
    let (right, wrong) = match readiness {
        Readiness::Ready => return plan.clear_no_execute(),
        // It never reported its conditions, and may still do so.
        Readiness::Missing => return,
        Readiness::NotReady => (NOT_READY_TAINT, UNREACHABLE_TAINT),
        Readiness::Unknown => (UNREACHABLE_TAINT, NOT_READY_TAINT),
    };
    let is_unreachable = readiness == Readiness::Unknown;
    let (right, wrong) = ((right, Effect::NoExecute), (wrong, Effect::NoExecute));
    if plan.has_taint(right) || plan.has_taint(wrong) {
        plan.ensure(right);
        return plan.ensure_absent(wrong);
    }
    // An unreachable node waits until it is counted in its zone.
    let (zone, Some(ahead)) = (&plan.node.zone, view.nodes_ahead_of(plan.node)) else { return };
    let missed = two_renewals(config.monitor_grace);
    let pace = match slower_interval(view, zone, now, missed, &config.rates) {
        Ok(pace) => pace,
        Err(_) if config.rates.normal <= 0.0 => return plan.hold(Hold::EvictionOff),
        Err(count) => {
            let (not_ready, of) = (count.not_ready, count.counted());
            return plan.hold(Hold::ZoneDisrupted { zone: Arc::clone(zone), not_ready, of });
        }
    };
    let due = view.last_lost_taint(zone).map_or(now, |last| next_taint_at(last, pace));
    // Nodes that were lost together with all others come back with them, one or two renewals after the first. A
    // bookmark may have ended the break of the watch a little before that. A process that just started knows of no
    // break.
    let unbroken_since = view.state(Kind::NodeLeases).watched_since;
    let unbroken_since = unbroken_since.filter(|since| is_unreachable && *since > plan.node.first_seen + WATCH_GAP);
    let due = unbroken_since.map_or(due, |since| due.max(since + WATCH_GAP + missed));
    if ahead == 0 && due <= now {
        return plan.ensure(right);
    }
    plan.recheck_at(due.max(now + RECHECK_QUEUED));
    plan.hold(Hold::EvictionQueued { zone: Arc::clone(zone), ahead, next: due.since(now) });
}

/// A node, and the changes that it needs.
struct NodePlan<'a> {
    node: &'a Node,
    update: NodeUpdate,
    decision: Decision,
}

impl<'a> NodePlan<'a> {
    fn new(node: &'a Node) -> Self {
        let update = NodeUpdate {
            node: node.key(),
            rv: node.rv,
            not_reporting: None,
            unreachable: None,
            add: Vec::new(),
            remove: Vec::new(),
            labels: Vec::new(),
        };
        Self { node, update, decision: Decision::default() }
    }

    fn hold(&mut self, hold: Hold) {
        self.decision.holds.push((Subject::Node(Arc::clone(&self.node.name)), hold));
    }

    fn recheck_at(&mut self, when: Mono) {
        let earlier = &mut self.decision.requeue_at;
        *earlier = Some(earlier.map_or(when, |earlier| earlier.min(when)));
    }

    fn has_taint(&self, (key, effect): ManagedTaint) -> bool {
        match effect {
            Effect::NoSchedule => self.node.has_no_schedule_taint(key),
            Effect::NoExecute => self.node.no_execute.iter().any(|taint| *taint.key == *key),
        }
    }

    fn ensure(&mut self, taint: ManagedTaint) {
        if !self.has_taint(taint) {
            self.update.add.push(taint);
        }
    }

    fn ensure_absent(&mut self, taint: ManagedTaint) {
        if self.has_taint(taint) {
            self.update.remove.push(taint);
        }
    }

    fn clear_no_execute(&mut self) {
        self.ensure_absent((NOT_READY_TAINT, Effect::NoExecute));
        self.ensure_absent((UNREACHABLE_TAINT, Effect::NoExecute));
    }

    fn clear_suspect(&mut self) {
        self.ensure_absent((SUSPECT_TAINT, Effect::NoSchedule));
    }

    /// The taints that represent conditions. The pressures of a node that is just found unreachable become Unknown,
    /// so three of its taints are removed.
    fn set_condition_taints(&mut self, readiness: Readiness) {
        let pressures = self.node.pressures;
        let reported = |state: ConditionState| self.update.not_reporting.is_none() && state == ConditionState::True;
        let desired = [
            (NOT_READY_TAINT, readiness == Readiness::NotReady),
            (UNREACHABLE_TAINT, readiness == Readiness::Unknown),
            ("node.kubernetes.io/memory-pressure", reported(pressures.memory)),
            ("node.kubernetes.io/disk-pressure", reported(pressures.disk)),
            ("node.kubernetes.io/pid-pressure", reported(pressures.pid)),
            ("node.kubernetes.io/network-unavailable", pressures.network == ConditionState::True),
            ("node.kubernetes.io/unschedulable", self.node.unschedulable),
        ];
        for (key, is_desired) in desired {
            let taint = (key, Effect::NoSchedule);
            if is_desired { self.ensure(taint) } else { self.ensure_absent(taint) }
        }
    }

    /// Our condition. A healthy node that never had it does not get it.
    fn set_unreachable_condition(&mut self, readiness: Readiness) {
        self.update.unreachable = match (readiness, self.node.unreachable) {
            (Readiness::Unknown, ConditionState::False | ConditionState::Unknown | ConditionState::Missing) => {
                Some(true)
            }
            (Readiness::Ready | Readiness::NotReady, ConditionState::True | ConditionState::Unknown) => Some(false),
            (Readiness::Unknown, ConditionState::True)
            | (Readiness::Ready | Readiness::NotReady, ConditionState::False | ConditionState::Missing)
            | (Readiness::Missing, _) => None,
        };
    }

    fn into_decision(mut self) -> Decision {
        let NodeUpdate { node: _, rv: _, not_reporting, unreachable, add, remove, labels } = &self.update;
        let is_noop = not_reporting.is_none()
            && unreachable.is_none()
            && add.is_empty()
            && remove.is_empty()
            && labels.is_empty();
        if !is_noop {
            self.decision.intents.push(Intent::Update(Update::Node(Box::new(self.update))));
        }
        self.decision
    }
}
