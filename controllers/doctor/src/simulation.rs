//! A simulated cluster, as `pod-safety demo --serve` serves it: what it does not have is no fault of an installation.

use crate::{Symptom, not_checked};

/// Ends the version of a simulated API server.
const SIMULATED: &str = "-simulated";

/// Its time begins on a fixed day, and it evaluates no admission policies.
const DO_NOT_HOLD: [&str; 2] = ["Clocks", "AdmissionPolicies"];

/// What was found, without checks that do not hold for a simulated cluster.
#[must_use]
pub fn adapt_to_simulation(server: &str, mut symptoms: Vec<Symptom>) -> Vec<Symptom> {
    if server.ends_with(SIMULATED) {
        symptoms.retain(|symptom| !DO_NOT_HOLD.contains(&symptom.check));
        let why =
            "clocks and admission policies, because this cluster is simulated (pod-safety demo --serve)";
        symptoms.push(not_checked("Simulation", why));
    }
    symptoms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Health, symptom};

    #[test]
    fn checks_that_do_not_hold_for_a_simulated_cluster_are_left_out_and_said_to_be() {
        let found = |check| symptom(check, Health::Problem, "wrong", "it matters", "do this");
        let symptoms = vec![found("Clocks"), found("Leader"), found("AdmissionPolicies")];
        assert_eq!(adapt_to_simulation("v1.37.2", symptoms.clone()), symptoms);
        let simulated = adapt_to_simulation("v1.37.0-simulated", symptoms.clone());
        assert_eq!((simulated.len(), &simulated[0]), (2, &symptoms[1]));
        assert_eq!((simulated[1].check, simulated[1].health), ("Simulation", Health::Unknown));
    }
}
