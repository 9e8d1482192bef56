//! Property: after any sequence of events every index agrees with a scan of all objects.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
struct PodSketch {
    id: u8,
    node: Option<u8>,
    phase: &'static str,
    evicted: bool,
    terminating: bool,
    created: u8,
    rv: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Pod(PodSketch),
    PodUnreadable(u8),
    PodGone(u8),
    PodsBegin,
    PodsEnd,
    /// Incarnation and name.
    Node(u8, u8, u64),
    NodeUnreadable(u8, u8),
    NodeUnidentified,
    NodeGone(u8),
    NodesBegin,
    NodesEnd,
}

fn any_pod() -> impl Strategy<Value = PodSketch> {
    let phase = prop::sample::select(vec!["Pending", "Running", "Succeeded", "Failed", "Unknown", "", "Odd"]);
    (0_u8..6, prop::option::of(0_u8..3), phase, any::<bool>(), any::<bool>(), 0_u8..3, 1_u64..99).prop_map(
        |(id, node, phase, evicted, terminating, created, rv)| PodSketch {
            id,
            node,
            phase,
            evicted,
            terminating,
            created,
            rv,
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any_pod().prop_map(Step::Pod),
        1 => (0_u8..6).prop_map(Step::PodUnreadable),
        2 => (0_u8..6).prop_map(Step::PodGone),
        1 => Just(Step::PodsBegin),
        1 => Just(Step::PodsEnd),
        4 => (0_u8..4, 1_u64..99).prop_map(|(id, rv)| Step::Node(id, id % 3, rv)),
        1 => (0_u8..4).prop_map(|id| Step::NodeUnreadable(id, id % 3)),
        1 => Just(Step::NodeUnidentified),
        2 => (0_u8..4).prop_map(Step::NodeGone),
        1 => Just(Step::NodesBegin),
        1 => Just(Step::NodesEnd),
    ]
}

/// The state of the API server in a simple form.
#[derive(Default)]
struct Model {
    pods: BTreeMap<u8, Option<PodSketch>>,
    pods_named: BTreeSet<u8>,
    /// By incarnation: the name, and the version if it could be read.
    nodes: BTreeMap<u8, (u8, Option<u64>)>,
    nodes_named: BTreeSet<u8>,
    nodes_listed: bool,
    unidentified: (usize, usize),
    missing_since: BTreeMap<u8, Mono>,
}

fn pod_id(id: u8) -> String {
    format!("pod-{id}")
}

fn node_name(name: u8) -> String {
    format!("node-{name}")
}

fn node_id(id: u8) -> String {
    format!("node-uid-{id}")
}

fn object(sketch: &PodSketch) -> Obj {
    let mut object = pod("same-name")
        .uid(&pod_id(sketch.id))
        .rv(sketch.rv)
        .phase(sketch.phase)
        .set("/metadata/creationTimestamp", json!(format!("2026-01-01T00:00:{:02}Z", sketch.created)));
    if let Some(node) = sketch.node {
        object = object.on(&node_name(node));
    }
    if sketch.evicted {
        object = object.set("/status/reason", json!("Evicted"));
    }
    if sketch.terminating { object.terminating() } else { object }
}

impl Model {
    fn apply(&mut self, step: &Step, cache: &Cache, now: Mono) {
        match step {
            Step::Pod(sketch) => {
                self.pods.insert(sketch.id, Some(sketch.clone()));
                self.pods_named.insert(sketch.id);
                apply::<Pod>(cache, &object(sketch), now);
            }
            Step::PodUnreadable(id) => {
                self.pods.insert(*id, None);
                self.pods_named.insert(*id);
                cache.apply_undecodable::<Pod>(unreadable(Some(&pod_id(*id)), None), now);
            }
            Step::PodGone(id) => {
                self.pods.remove(id);
                cache.remove::<Pod>(&uid(&pod_id(*id)), now);
            }
            Step::PodsBegin => {
                self.pods_named.clear();
                cache.begin_list::<Pod>();
            }
            Step::PodsEnd => {
                self.pods.retain(|id, _| self.pods_named.contains(id));
                cache.end_list::<Pod>(now);
            }
            Step::Node(id, name, rv) => {
                self.nodes.insert(*id, (*name, Some(*rv)));
                self.nodes_named.insert(*id);
                apply::<Node>(cache, &node(&node_name(*name)).uid(&node_id(*id)).rv(*rv), now);
            }
            Step::NodeUnreadable(id, name) => {
                self.nodes.insert(*id, (*name, None));
                self.nodes_named.insert(*id);
                cache.apply_undecodable::<Node>(unreadable(Some(&node_id(*id)), Some(&node_name(*name))), now);
            }
            Step::NodeUnidentified => {
                self.unidentified.1 += 1;
                cache.apply_undecodable::<Node>(unreadable(None, Some("x")), now);
            }
            Step::NodeGone(id) => {
                self.nodes.remove(id);
                cache.remove::<Node>(&uid(&node_id(*id)), now);
            }
            Step::NodesBegin => {
                self.nodes_named.clear();
                self.unidentified = (self.unidentified.0.max(self.unidentified.1), 0);
                cache.begin_list::<Node>();
            }
            Step::NodesEnd => {
                self.nodes.retain(|id, _| self.nodes_named.contains(id));
                self.unidentified.0 = 0;
                self.nodes_listed = true;
                cache.end_list::<Node>(now);
            }
        }
    }

    fn readable(&self) -> impl Iterator<Item = &PodSketch> {
        self.pods.values().flatten()
    }

    fn ids(mut pods: Vec<&PodSketch>, key: impl Fn(&PodSketch) -> (bool, u8, u8)) -> Vec<Uid> {
        pods.sort_by_key(|sketch| key(sketch));
        pods.iter().map(|sketch| uid(&pod_id(sketch.id))).collect()
    }

    fn lookup(&self, name: u8) -> String {
        let incarnations: Vec<_> = self.nodes.iter().filter(|(_, (named, _))| *named == name).collect();
        if incarnations.iter().any(|(_, (_, rv))| rv.is_none()) {
            return "unknown".to_owned();
        }
        match incarnations.iter().filter_map(|(_, (_, rv))| *rv).max() {
            Some(rv) => format!("known at {rv}"),
            None if self.unidentified != (0, 0) || !self.nodes_listed => "unknown".to_owned(),
            None => "absent".to_owned(),
        }
    }

    fn check(&mut self, cache: &Cache, now: Mono) -> Result<(), TestCaseError> {
        let guard = cache.read();
        let view = guard.view();
        let by_id = |sketch: &PodSketch| (false, 0, sketch.id);
        prop_assert_eq!(uids(view.all_pods()), Self::ids(self.readable().collect(), by_id));
        let terminated = self.readable().filter(|pod| matches!(pod.phase, "Succeeded" | "Failed" | "" | "Odd"));
        let terminated = Self::ids(terminated.collect(), |pod| (!pod.evicted, pod.created, pod.id));
        prop_assert_eq!(view.terminated_count(), terminated.len());
        prop_assert_eq!(uids(view.terminated()), terminated);
        let unscheduled = self.readable().filter(|pod| pod.terminating && pod.node.is_none());
        prop_assert_eq!(uids(view.terminating_unscheduled()), Self::ids(unscheduled.collect(), by_id));
        let named: BTreeSet<u8> = self.readable().filter_map(|pod| pod.node).collect();
        let names: Vec<String> = view.nodes_named_by_pods().map(|name| name.to_string()).collect();
        prop_assert_eq!(names, named.iter().map(|name| node_name(*name)).collect::<Vec<_>>());
        for name in 0..3 {
            let on = self.readable().filter(|pod| pod.node == Some(name)).collect();
            prop_assert_eq!(uids(view.pods_on(&node_name(name))), Self::ids(on, by_id));
            let entry = match view.node(&node_name(name)) {
                Lookup::Known(node) => format!("known at {}", node.rv),
                Lookup::Unknown(_) => "unknown".to_owned(),
                Lookup::Absent => "absent".to_owned(),
            };
            prop_assert_eq!(entry, self.lookup(name));
            let missing =
                self.nodes_listed && named.contains(&name) && !self.nodes.values().any(|(named, _)| *named == name);
            if missing {
                self.missing_since.entry(name).or_insert(now);
            } else {
                self.missing_since.remove(&name);
            }
            let since = view.absence(&node_name(name)).map(|absence| absence.since);
            prop_assert_eq!(since, self.missing_since.get(&name).copied());
        }
        prop_assert_eq!(view.absences().count(), self.missing_since.len());
        let unreadable = self.pods.values().filter(|pod| pod.is_none()).count();
        prop_assert_eq!(view.count(Kind::Pods), (self.pods.len(), unreadable));
        Ok(())
    }
}

proptest! {
    #[test]
    fn every_index_answers_as_a_scan_of_all_objects(steps in prop::collection::vec(any_step(), 1..60)) {
        let (cache, mut model) = (Cache::default(), Model::default());
        for (second, step) in steps.iter().enumerate() {
            let now = Mono::from_start(Duration::from_secs(second as u64));
            model.apply(step, &cache, now);
            model.check(&cache, now)?;
        }
    }
}

#[test]
fn an_interned_name_is_shared_and_dropped_with_its_last_user() {
    let cache = listed();
    list::<Pod>(&cache, &[pod("a").on("n"), pod("b").on("n")], Mono::default());
    let guard = cache.read();
    let names: Vec<_> = guard.view().pods_on("n").map(|pod| Arc::clone(pod.node.as_ref().unwrap())).collect();
    assert!(Arc::ptr_eq(names.first().unwrap(), names.last().unwrap()));
    drop((guard, names));
    list::<Pod>(&cache, &[], Mono::default());
    assert!(cache.inner.read().interner.is_empty());
}
