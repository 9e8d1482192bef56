//! Plans that tests of several subjects share, and what they read from a run.

use pod_safety_simulator::campaign::{Extras, Fault, Plan, report};
use pod_safety_simulator::world::{Baseline, Outcome, Subject, run};

use crate::shipped::SHIPPED;

pub(crate) const KCM: Subject = Subject::Baseline(Baseline::KubeControllerManager);

/// A world with nothing extra.
pub(crate) fn plan(faults: Vec<(u64, Fault)>) -> Plan {
    Plan {
        seed: 1,
        servers: 2,
        nodes: 3,
        replicas: 2,
        pods: 4,
        lease_collected_after: 15,
        heal_at: 260,
        with: Extras::default(),
        faults,
    }
}

/// A run that breaks no rule.
#[track_caller]
pub(crate) fn well(plan: &Plan) -> Outcome {
    let outcome = run(plan, SHIPPED);
    assert!(outcome.violations.is_empty(), "{}", report(plan, &outcome));
    outcome
}

/// The seconds of the timeline's lines that contain these texts.
pub(crate) fn seconds_of_lines(outcome: &Outcome, words: &[&str]) -> Vec<u64> {
    let lines = outcome.timeline.iter().filter(|(_, line)| words.iter().all(|word| line.contains(word)));
    lines.map(|(at, _)| at.as_secs()).collect()
}

/// How often a probe was hit.
pub(crate) fn seen(outcome: &Outcome, probe: &str) -> u64 {
    outcome.probes.get(probe).copied().unwrap_or_default()
}
