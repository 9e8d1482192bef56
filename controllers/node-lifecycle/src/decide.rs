//! What should be written to a node and its pods. Pure.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{Effect, Intent, NodeUpdate, OurTaint, Update};
use pod_safety_shared::cache::{BREAK, Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::{Mode, NodeUnreadable, Subject};
use pod_safety_shared::model::{
    Kind, NOT_READY_TAINT, Node, Readiness, SUSPECT_TAINT, Says, UNREACHABLE_TAINT,
};

use super::config::Config;
use super::pods;
use super::silence::{Grace, Heard, listen, two_renewals};
use super::zones::{all_lost, next_turn, slower};

/// A node that is not ready is looked at this often: its zone may be in another state.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// While the API server is silent, everything is looked at this often.
const LOOK_AGAIN_STALE: Duration = Duration::from_secs(10);

/// A node whose turn is taken by the one before it looks again so soon: that one's taint is on its way.
const LOOK_AGAIN_NEXT: Duration = Duration::from_secs(1);

/// What is decided about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The node of this name: its conditions, taints and labels.
    Node(Arc<str>),
    /// The conditions of the pods bound to the node of this name.
    Pods(Arc<str>),
}

impl Key {
    /// What must be known to decide about it.
    pub(super) const fn needs(&self) -> &'static [Kind] {
        match self {
            Self::Node(_) => &[Kind::Nodes, Kind::NodeLeases],
            Self::Pods(_) => &[Kind::Pods, Kind::Nodes],
        }
    }
}

/// Decides about one key.
#[must_use]
pub fn decide(key: &Key, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    for kind in key.needs() {
        if let Err(unfresh) = view.fresh(*kind, now) {
            return Decision::hold(Subject::Everything, unfresh).and_recheck_at(now + LOOK_AGAIN_STALE);
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
        Lookup::Unknown(why) => {
            let hold = Hold::from(NodeUnreadable { node: Arc::clone(name), why: why.to_owned() });
            Decision::hold(Subject::Node(Arc::clone(name)), hold)
        }
        Lookup::Absent => Decision::default(),
    }
}

/// In place of KCM.
fn replace(node: &Node, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    let mut wanted = Wanted::new(node);
    let readiness = match node.readiness {
        Readiness::Unknown => Readiness::Unknown,
        known @ (Readiness::Ready | Readiness::NotReady | Readiness::Missing) => {
            let (silent, startup, led_since) = (config.monitor_grace, config.startup_grace, config.led_since);
            let grace = Grace { silent, startup, led_since };
            match listen(node, view, now, grace) {
                Heard::Until(deadline) => {
                    wanted.recheck_at(deadline);
                    known
                }
                Heard::Not(silence) => {
                    wanted.update.silent = Some(silence);
                    Readiness::Unknown
                }
                Heard::Doubtful(hold, again) => {
                    wanted.hold(hold);
                    wanted.recheck_at(again);
                    known
                }
            }
        }
    };
    wanted.says_unreachable(readiness);
    wanted.has_condition_taints(readiness);
    wanted.has_no_suspicion();
    if let Some((silent, of)) = all_lost(view) {
        // Of all that KCM does then: it takes them from every node.
        wanted.ends_no_pods();
        if matches!(readiness, Readiness::NotReady | Readiness::Unknown) {
            wanted.hold(Hold::LargeOutage { silent, of });
        }
    } else {
        give_up(&mut wanted, readiness, view, now, config);
    }
    if readiness != Readiness::Ready {
        wanted.recheck_at(now + LOOK_AGAIN);
    }
    wanted.update.labels = node.stale_labels.to_vec();
    wanted.decision()
}

/// Beside KCM: its conditions, taints and labels are not ours.
fn guard(node: &Node, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    let mut wanted = Wanted::new(node);
    wanted.says_unreachable(node.readiness);
    match node.readiness {
        Readiness::Ready => {
            let (silent, led_since) = (config.suspect_after, config.led_since);
            let grace = Grace { silent, startup: silent, led_since };
            match listen(node, view, now, grace) {
                Heard::Until(deadline) => {
                    wanted.has_no_suspicion();
                    wanted.recheck_at(deadline);
                }
                Heard::Not(_) => wanted.has((SUSPECT_TAINT, Effect::NoSchedule)),
                Heard::Doubtful(hold, again) => {
                    wanted.hold(hold);
                    wanted.recheck_at(again);
                }
            }
        }
        Readiness::NotReady | Readiness::Unknown | Readiness::Missing => wanted.has_no_suspicion(),
    }
    wanted.decision()
}

/// The taint that ends pods, when it is this node's turn.
fn give_up(wanted: &mut Wanted<'_>, readiness: Readiness, view: &View<'_>, now: Mono, config: &Config) {
    let (right, wrong) = match readiness {
        Readiness::Ready => return wanted.ends_no_pods(),
        // It never said how it is, and may yet.
        Readiness::Missing => return,
        Readiness::NotReady => (NOT_READY_TAINT, UNREACHABLE_TAINT),
        Readiness::Unknown => (UNREACHABLE_TAINT, NOT_READY_TAINT),
    };
    let silent = readiness == Readiness::Unknown;
    let (right, wrong) = ((right, Effect::NoExecute), (wrong, Effect::NoExecute));
    if wanted.is_there(right) || wanted.is_there(wrong) {
        wanted.has(right);
        return wanted.has_not(wrong);
    }
    // A silent one waits when its zone knows of it.
    let (zone, Some(ahead)) = (&wanted.node.zone, view.waits_behind(wanted.node)) else { return };
    let missed = two_renewals(config.monitor_grace);
    let pace = match slower(view, zone, now, missed, &config.rates) {
        Ok(pace) => pace,
        Err(_) if config.rates.normal <= 0.0 => return wanted.hold(Hold::EvictionOff),
        Err(count) => {
            let (not_ready, of) = (count.not_ready, count.counted());
            return wanted.hold(Hold::ZoneDisrupted { zone: Arc::clone(zone), not_ready, of });
        }
    };
    let turn = view.last_lost_taint(zone).map_or(now, |last| next_turn(last, pace));
    // Whoever was lost with all others comes back with them, one or two renewals after the first. A bookmark may have
    // ended the silence a little before that. A process that begins knows of no silence.
    let speaks = view.state(Kind::NodeLeases).unbroken_since;
    let speaks = speaks.filter(|since| silent && *since > wanted.node.first_seen + BREAK);
    let turn = speaks.map_or(turn, |since| turn.max(since + BREAK + missed));
    if ahead == 0 && turn <= now {
        return wanted.has(right);
    }
    wanted.recheck_at(turn.max(now + LOOK_AGAIN_NEXT));
    wanted.hold(Hold::EvictionQueued { zone: Arc::clone(zone), ahead, next: turn.since(now) });
}

/// A node, and what it should be.
struct Wanted<'a> {
    node: &'a Node,
    update: NodeUpdate,
    decision: Decision,
}

impl<'a> Wanted<'a> {
    fn new(node: &'a Node) -> Self {
        let update = NodeUpdate {
            node: node.key(),
            rv: node.rv,
            silent: None,
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
        let earlier = &mut self.decision.recheck_at;
        *earlier = Some(earlier.map_or(when, |earlier| earlier.min(when)));
    }

    fn is_there(&self, (key, effect): OurTaint) -> bool {
        match effect {
            Effect::NoSchedule => self.node.turns_away(key),
            Effect::NoExecute => self.node.no_execute.iter().any(|taint| *taint.key == *key),
        }
    }

    fn has(&mut self, taint: OurTaint) {
        if !self.is_there(taint) {
            self.update.add.push(taint);
        }
    }

    fn has_not(&mut self, taint: OurTaint) {
        if self.is_there(taint) {
            self.update.remove.push(taint);
        }
    }

    fn ends_no_pods(&mut self) {
        self.has_not((NOT_READY_TAINT, Effect::NoExecute));
        self.has_not((UNREACHABLE_TAINT, Effect::NoExecute));
    }

    fn has_no_suspicion(&mut self) {
        self.has_not((SUSPECT_TAINT, Effect::NoSchedule));
    }

    /// The taints that say what conditions say. A node that turned silent takes three of its
    /// pressures with it.
    fn has_condition_taints(&mut self, readiness: Readiness) {
        let pressures = self.node.pressures;
        let kubelets = |says: Says| self.update.silent.is_none() && says == Says::True;
        let wanted = [
            (NOT_READY_TAINT, readiness == Readiness::NotReady),
            (UNREACHABLE_TAINT, readiness == Readiness::Unknown),
            ("node.kubernetes.io/memory-pressure", kubelets(pressures.memory)),
            ("node.kubernetes.io/disk-pressure", kubelets(pressures.disk)),
            ("node.kubernetes.io/pid-pressure", kubelets(pressures.pid)),
            ("node.kubernetes.io/network-unavailable", pressures.network == Says::True),
            ("node.kubernetes.io/unschedulable", self.node.unschedulable),
        ];
        for (key, is_wanted) in wanted {
            let taint = (key, Effect::NoSchedule);
            if is_wanted { self.has(taint) } else { self.has_not(taint) }
        }
    }

    /// Our condition. A node that is well and never had it does not get it.
    fn says_unreachable(&mut self, readiness: Readiness) {
        self.update.unreachable = match (readiness, self.node.unreachable) {
            (Readiness::Unknown, Says::False | Says::Unknown | Says::Missing) => Some(true),
            (Readiness::Ready | Readiness::NotReady, Says::True | Says::Unknown) => Some(false),
            (Readiness::Unknown, Says::True)
            | (Readiness::Ready | Readiness::NotReady, Says::False | Says::Missing)
            | (Readiness::Missing, _) => None,
        };
    }

    fn decision(mut self) -> Decision {
        let NodeUpdate { node: _, rv: _, silent, unreachable, add, remove, labels } = &self.update;
        let nothing = silent.is_none()
            && unreachable.is_none()
            && add.is_empty()
            && remove.is_empty()
            && labels.is_empty();
        if !nothing {
            self.decision.intents.push(Intent::Update(Update::Node(Box::new(self.update))));
        }
        self.decision
    }
}
