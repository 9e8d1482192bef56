//! A simulated cluster, as `pod-safety demo --serve` serves it: what it does not have is no defect of an installation.

use crate::{Symptom, not_checked};

/// The suffix of the version of a simulated API server.
const SIMULATED: &str = "-simulated";

/// Checks that do not apply: a simulated cluster starts on a fixed day, and evaluates no admission policies.
const INAPPLICABLE: [&str; 2] = ["Clocks", "AdmissionPolicies"];

/// The symptoms without those of checks that do not apply to a simulated cluster.
#[must_use]
pub fn adapt_to_simulation(server: &str, mut symptoms: Vec<Symptom>) -> Vec<Symptom> {
    if server.ends_with(SIMULATED) {
        symptoms.retain(|symptom| !INAPPLICABLE.contains(&symptom.check));
        let why = "clocks and admission policies, because this cluster is simulated (pod-safety demo --serve)";
        symptoms.push(not_checked("Simulation", why));
    }
    symptoms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Health, symptom};

    #[test]
    fn inapplicable_checks_are_left_out_for_a_simulated_cluster() {
        let problem = |check| symptom(check, Health::Problem, "wrong", "it matters", "do this");
        let symptoms = vec![problem("Clocks"), problem("Leader"), problem("AdmissionPolicies")];
        assert_eq!(adapt_to_simulation("v1.37.2", symptoms.clone()), symptoms);
        let simulated = adapt_to_simulation("v1.37.0-simulated", symptoms.clone());
        assert_eq!((simulated.len(), &simulated[0]), (2, &symptoms[1]));
        assert_eq!((simulated[1].check, simulated[1].health), ("Simulation", Health::Unknown));
    }
}
