//! Plans in which two processes of one identity must not run: the record of processes shows it, whatever the checker
//! excuses.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use pod_safety_simulator::campaign::{Entry, Plan, report};
use pod_safety_simulator::world::{Outcome, run};

use crate::shipped::SHIPPED;

/// For how long two processes of one identity ran at once, by the record of processes: when and where each started, and
/// when it ended.
fn both_ran(outcome: &Outcome) -> BTreeMap<String, Duration> {
    let mut running: BTreeMap<(String, String), Duration> = BTreeMap::new();
    let mut both = BTreeMap::new();
    for (at, line) in &outcome.timeline {
        let Some(words) = line.strip_prefix("process of ") else { continue };
        let words: Vec<&str> = words.split_whitespace().collect();
        let [identity, uid, what, ..] = words.as_slice() else { panic!("{line}") };
        let key = ((*identity).to_owned(), (*uid).to_owned());
        if *what == "starts" {
            running.insert(key, *at);
            continue;
        }
        let Some(began) = running.remove(&key) else { panic!("{line}: it never started") };
        let others = running.iter().filter(|((other, _), _)| other == identity);
        let together = others.map(|(_, other)| *at - (*other).max(began)).max();
        if let Some(together) = together {
            let longest: &mut Duration = both.entry((*identity).to_owned()).or_default();
            *longest = together.max(*longest);
        }
    }
    both
}

/// The plan of the corpus with that name, and its outcome.
fn known(name: &str) -> (Plan, Outcome) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let entry: Entry = serde_json::from_slice(&std::fs::read(corpus.join(format!("{name}.json"))).unwrap()).unwrap();
    let outcome = run(&entry.plan, SHIPPED);
    (entry.plan, outcome)
}

#[test]
fn bug_two_processes_ran_when_the_node_of_a_running_kubelet_was_deleted() {
    let (plan, outcome) = known("bug-node-of-a-living-kubelet");
    assert!(both_ran(&outcome).is_empty(), "{}", report(&plan, &outcome));
    assert!(outcome.probes.contains_key("kubelet completed a deletion"), "{:?}", outcome.probes);
}

#[test]
fn bug_two_processes_ran_when_a_device_of_a_sick_node_that_renews_reached_another_machine() {
    let (plan, outcome) = known("bug-wrong-device-of-a-sick-node");
    assert!(both_ran(&outcome).is_empty(), "{}", report(&plan, &outcome));
}

/// Neither the start of a container nor a deletion interrupts the other: the kubelet reports when its worker is free.
#[test]
fn bug_two_processes_ran_when_the_worker_of_a_pod_was_busy_as_its_node_was_deleted() {
    for name in ["bug-busy-pod-worker", "bug-busy-pod-worker-restart"] {
        let (plan, outcome) = known(name);
        assert!(both_ran(&outcome).is_empty(), "{name}: {}", report(&plan, &outcome));
        assert!(outcome.violations.is_empty(), "{name}: {}", report(&plan, &outcome));
    }
}
