//! Property: the indexes agree with a full search.

use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;
use crate::model::{ConditionState, NOT_READY_TAINT, Pressures, UNREACHABLE_TAINT};
use crate::testing::at;

fn uid(number: u8) -> Uid {
    Uid::new(&format!("n{number}")).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Update(Box<Node>, u64),
    Report(u8, u64),
    Remove(u8),
}

fn taint(key: &str, first_seen: u64, age: u64) -> Taint {
    let (first_seen, age) = (at(first_seen), Duration::from_secs(age));
    Taint { key: key.into(), value: "".into(), time_added: None, first_seen, age }
}

fn node() -> impl Strategy<Value = Node> {
    let readiness = prop_oneof![
        Just(Readiness::Ready),
        Just(Readiness::NotReady),
        Just(Readiness::Unknown),
        Just(Readiness::Missing)
    ];
    let key = prop_oneof![Just(NOT_READY_TAINT), Just(UNREACHABLE_TAINT), Just("example.com/other")];
    let taints = prop::collection::vec((key, 0..50_u64, 0..99_u64), 0..3);
    let since = prop::option::of(0..4_i64);
    (0..6_u8, 0..3_u8, readiness, any::<bool>(), since, taints).prop_map(
        |(number, zone, readiness, excluded, ready_since, taints)| Node {
            name: format!("n{number}").into(),
            uid: uid(number),
            rv: "1".parse().unwrap(),
            readiness,
            out_of_service: false,
            no_execute: taints.into_iter().map(|(key, seen, age)| taint(key, seen, age)).collect(),
            no_schedule: Box::default(),
            ready_since,
            heartbeat: None,
            pressures: Pressures::default(),
            unreachable: ConditionState::Missing,
            unschedulable: false,
            zone: format!("z{zone}").into(),
            excluded,
            stale_labels: Box::default(),
            created: 0,
            first_seen: at(0),
            age: Duration::ZERO,
            last_report: at(0),
            readiness_since: at(0),
            details: None,
            volumes_in_use: Box::default(),
            reports_deletions: true,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (node(), 0..100_u64).prop_map(|(node, last_report)| Step::Update(Box::new(node), last_report)),
        2 => (0..6_u8, 0..100_u64).prop_map(|(number, last_report)| Step::Report(number, last_report)),
        1 => (0..6_u8).prop_map(Step::Remove),
    ]
}

/// Nodes with their last report, and the last lost taint of each zone that has nodes.
#[derive(Default)]
struct Model {
    nodes: BTreeMap<Uid, (Node, Mono)>,
    marks: BTreeMap<Arc<str>, SignedDuration>,
}

impl Model {
    fn apply(&mut self, step: &Step, index: &mut Zones) {
        match step {
            Step::Update(node, last_report) => {
                index.update(node, at(*last_report));
                let before = self.nodes.insert(node.uid.clone(), ((**node).clone(), at(*last_report)));
                let continues =
                    before.is_some_and(|(before, _)| before.zone == node.zone && before.lost_taints().next().is_some());
                if let Some(mark) = node.lost_taints().map(Taint::since).max().filter(|_| !continues) {
                    let latest = self.marks.entry(Arc::clone(&node.zone)).or_insert(mark);
                    *latest = (*latest).max(mark);
                }
            }
            Step::Report(number, last_report) => {
                let suspect = index.record_report(&uid(*number), at(*last_report));
                let entry = self.nodes.get_mut(&uid(*number));
                assert_eq!(suspect, entry.as_ref().is_some_and(|(node, _)| node.is_suspect()));
                if let Some((_, stored)) = entry {
                    *stored = at(*last_report);
                }
            }
            Step::Remove(number) => {
                index.remove(&uid(*number));
                self.nodes.remove(&uid(*number));
            }
        }
        let nodes = &self.nodes;
        self.marks.retain(|zone, _| nodes.values().any(|(node, _)| node.zone == *zone));
    }

    fn of_zone(&self, zone: &str) -> impl Iterator<Item = &Node> {
        self.nodes.values().map(|(node, _)| node).filter(move |node| *node.zone == *zone)
    }

    /// The nodes that wait to be tainted as lost, in order.
    fn waiting(&self, zone: &str) -> Vec<&Node> {
        let lost = |node: &&Node| {
            matches!(node.readiness, Readiness::NotReady | Readiness::Unknown) && node.lost_taints().next().is_none()
        };
        let mut waiting: Vec<&Node> = self.of_zone(zone).filter(lost).collect();
        waiting.sort_by_key(|node| (node.ready_since.is_none(), node.ready_since, Arc::clone(&node.name)));
        waiting
    }

    fn check(&self, index: &Zones) -> Result<(), TestCaseError> {
        let zones: BTreeSet<Arc<str>> = self.nodes.values().map(|(node, _)| Arc::clone(&node.zone)).collect();
        prop_assert_eq!(index.counts().map(|(zone, _)| Arc::clone(zone)).collect::<BTreeSet<_>>(), zones.clone());
        for zone in ["z0", "z1", "z2", "nowhere"] {
            let count = |is: fn(&Node) -> bool| self.of_zone(zone).filter(|node| is(node)).count();
            let expected = ZoneCount {
                ready: count(|node| !node.excluded && node.readiness == Readiness::Ready),
                not_ready: count(|node| !node.excluded && node.readiness != Readiness::Ready),
                excluded: count(|node| node.excluded),
            };
            prop_assert_eq!(index.count(zone), expected);
            let uids = index.zones.get(zone).into_iter().flat_map(|zone| &zone.nodes).map(|(_, uid)| uid);
            let uids: BTreeSet<&Uid> = uids.collect();
            prop_assert_eq!(uids, self.of_zone(zone).map(|node| &node.uid).collect::<BTreeSet<_>>());
            for longer_than in [0, 30, 99].map(Duration::from_secs) {
                let unreachable = self.nodes.values().filter(|(node, last_report)| {
                    *node.zone == *zone
                        && !node.excluded
                        && node.readiness == Readiness::Ready
                        && at(99).since(*last_report) > longer_than
                });
                prop_assert_eq!(index.unreachable_in(zone, longer_than, at(99)), unreachable.count());
            }
            for (place, node) in self.waiting(zone).into_iter().enumerate() {
                prop_assert_eq!(index.nodes_ahead_of(node), Some(place));
            }
            prop_assert_eq!(index.last_marked(zone).map(Taint::since), self.marks.get(zone).copied());
        }
        let waiting = self.nodes.values().filter(|(node, _)| index.nodes_ahead_of(node).is_some()).count();
        prop_assert_eq!(waiting, zones.iter().map(|zone| self.waiting(zone).len()).sum::<usize>());
        let ready = self.nodes.values().filter(|(node, _)| node.readiness == Readiness::Ready);
        let mut reports: Vec<Mono> = ready.map(|(_, last_report)| *last_report).collect();
        reports.sort();
        prop_assert_eq!(index.last_reports_of_ready_nodes().collect::<Vec<_>>(), reports);
        Ok(())
    }
}

proptest! {
    #[test]
    fn zone_indexes_agree_with_a_full_search(steps in prop::collection::vec(step(), 0..40)) {
        let (mut model, mut index) = (Model::default(), Zones::default());
        for step in &steps {
            model.apply(step, &mut index);
            model.check(&index)?;
        }
        (0..6).for_each(|number| model.apply(&Step::Remove(number), &mut index));
        prop_assert!(index.zones.is_empty() && index.entries.is_empty() && index.last_reports.is_empty());
    }
}
