//! Properties of any history: no node is tainted out of turn, healthy nodes are left alone, and a restarted process
//! repeats nothing.

use proptest::prelude::*;

use super::*;

/// Four nodes in each of three zones; the last of each is never changed.
const ZONES: [&str; 3] = ["a", "b", "c"];
const OF_A_ZONE: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    /// A kubelet stops reporting.
    Dies(usize, usize),
    /// A kubelet runs again, and reports its node's readiness.
    Reports(usize, usize, bool),
    /// A node is cordoned.
    Cordons(usize, usize),
    /// Another process starts.
    Begins,
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let node = || (0..ZONES.len(), 0..OF_A_ZONE - 1);
    let step = prop_oneof![
        4 => node().prop_map(|(zone, node)| Step::Dies(zone, node)),
        4 => (node(), any::<bool>()).prop_map(|((zone, node), ready)| Step::Reports(zone, node, ready)),
        1 => node().prop_map(|(zone, node)| Step::Cordons(zone, node)),
        1 => Just(Step::Begins),
    ];
    (0..25_u64, step)
}

fn name(zone: usize, node: usize) -> String {
    format!("{}{node}", ZONES[zone])
}

fn cluster() -> Fixture {
    let mut fixture = Fixture::new(config(), &[]);
    for (zone, of) in ZONES.iter().enumerate() {
        for node in 0..OF_A_ZONE {
            let name = name(zone, node);
            fixture.put(Fixture::in_zone(Fixture::node(&name, "True", 0), of));
            fixture.heartbeat(&name);
            fixture.alive.insert(name);
        }
    }
    fixture
}

/// A history, and what was observed in it.
struct History {
    fixture: Fixture,
    /// When a node of a zone was last tainted, and which.
    given_up: BTreeMap<char, (u64, String)>,
}

impl History {
    fn apply_step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let now = self.fixture.now;
        match step {
            Step::Dies(zone, node) => drop(self.fixture.alive.remove(&name(*zone, *node))),
            Step::Reports(zone, node, ready) => {
                let name = name(*zone, *node);
                self.fixture.report(&name, if *ready { "True" } else { "False" });
                self.fixture.heartbeat(&name);
                self.fixture.alive.insert(name);
            }
            Step::Cordons(zone, node) => {
                self.fixture.change(&name(*zone, *node), |node| with(node, "/spec/unschedulable", json!(true)));
            }
            Step::Begins => {
                let settled = self.settled();
                self.fixture.restart();
                for (name, before) in settled {
                    let after = self.fixture.describe(&name);
                    prop_assert!(
                        without_turns(&before) == without_turns(&after),
                        "{name} at {now}: {before:?}, {after:?}"
                    );
                }
                // The turn of a node that came back is forgotten.
                let fixture = &self.fixture;
                self.given_up
                    .retain(|zone, (_, name)| name.starts_with(*zone) && !fixture.no_execute_taints(name).is_empty());
            }
        }
        Ok(())
    }

    /// The decisions about the nodes whose state is recorded in the API.
    fn settled(&self) -> Vec<(String, Vec<String>)> {
        let lost = |node: &Value| node["status"]["conditions"][0]["status"] == "Unknown";
        let names = self.fixture.nodes.iter().filter(|(_, node)| lost(node)).map(|(name, _)| name.clone());
        names.map(|name| (name.clone(), self.fixture.describe(&name))).collect()
    }

    fn second(&mut self) -> Result<(), TestCaseError> {
        let second = self.fixture.now + 1;
        self.fixture.advance_to(second);
        let names: Vec<String> = self.fixture.nodes.keys().cloned().collect();
        for name in names {
            let was = self.fixture.no_execute_taints(&name);
            // The state of the zone of a node that was just found lost comes with the next version of the node.
            let words = [self.fixture.act(&name), self.fixture.act(&name)].concat();
            let is = self.fixture.no_execute_taints(&name);
            if name.ends_with('3') {
                prop_assert!(words.is_empty(), "{name} is well, and {words:?}");
            }
            if was.is_empty() && !is.is_empty() {
                let zone = name.chars().next().unwrap();
                let last = self.given_up.insert(zone, (second, name.clone()));
                let early = last.as_ref().is_some_and(|(last, _)| second - last < 10);
                prop_assert!(!early, "{name} at {second} after {last:?}");
            }
            let again = self.fixture.describe(&name);
            prop_assert!(!again.iter().any(|word| word.contains(['+', '-'])), "{name}: {words:?}, then {again:?}");
        }
        Ok(())
    }
}

/// A turn may come a second later, because timestamps have no fractions, or at once, because a removed taint is
/// forgotten, and so is which nodes of the zone had not reported for a while.
fn without_turns(words: &[String]) -> Vec<&String> {
    let of_turns = |word: &str| {
        word.starts_with("EvictionQueued") || word.starts_with("ZoneDisrupted") || word.ends_with(":NoExecute")
    };
    words.iter().filter(|word| !of_turns(word)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn over_any_history_turns_are_kept_and_healthy_nodes_are_left_alone(steps in prop::collection::vec(step(), 1..20)) {
        let mut history = History { fixture: cluster(), given_up: BTreeMap::new() };
        for (pause, step) in &steps {
            for _ in 0..*pause {
                history.second()?;
            }
            history.apply_step(step)?;
        }
        // Every node gets its turn in the end, because each zone keeps one healthy node.
        for _ in 0..150 {
            history.second()?;
        }
        for zone in 0..ZONES.len() {
            let lost = |name: &String| history.fixture.nodes[name]["status"]["conditions"][0]["status"] != "True";
            let names: Vec<String> = (0..OF_A_ZONE).map(|node| name(zone, node)).collect();
            let disrupted = names.iter().filter(|name| lost(name)).count() >= 3;
            for name in &names {
                let ends = history.fixture.no_execute_taints(name);
                prop_assert!(ends.is_empty() || lost(name), "{name} is well, and {ends:?}");
                prop_assert!(!ends.is_empty() || !lost(name) || disrupted, "{name} waits without end");
                prop_assert!(ends.len() < 2, "{name} has {ends:?}");
            }
        }
    }
}
