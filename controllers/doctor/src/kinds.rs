//! The kinds of pod-safety, as the cluster has them.

use serde_json::Value;

use super::{Health, Installation, Symptom, healthy, join_first, not_checked, symptom};

/// A CRD of pod-safety, compared with the one in the cluster.
pub fn check_crds(
    expected: &[Value],
    installation: &Installation,
    installed: impl Fn(&str) -> Result<Option<Value>, String>,
) -> Vec<Symptom> {
    let remedy = installation.apply_command("crds.enabled=true");
    let (mut missing, mut other, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for crd in expected {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        match installed(name) {
            Ok(None) => missing.push(name),
            Ok(Some(installed)) if contains(&installed["spec"]["versions"][0], &crd["spec"]["versions"][0]) => {}
            Ok(Some(_)) => other.push(name),
            Err(why) => {
                return vec![not_checked("CustomResourceDefinitions", &format!("{name} could not be read: {why}"))];
            }
        }
    }
    if !missing.is_empty() {
        let what = format!("missing: {}", join_first(&missing));
        all.push(symptom(
            "CustomResourceDefinitions",
            Health::Problem,
            what,
            "without them no node can be fenced or confirmed down",
            &remedy,
        ));
    }
    if !other.is_empty() {
        let what = format!("not of the version of this program: {}", join_first(&other));
        all.push(symptom(
            "CustomResourceDefinitions",
            Health::Problem,
            what,
            "the API server drops fields that this version writes",
            &remedy,
        ));
    }
    if all.is_empty() {
        all.push(healthy(
            "CustomResourceDefinitions",
            format!("all {} of pod-safety.dev are installed", expected.len()),
        ));
    }
    all
}

/// Whether `installed` has all that `expected` has; it may have more.
fn contains(installed: &Value, expected: &Value) -> bool {
    match (installed, expected) {
        (Value::Object(installed), Value::Object(expected)) => {
            expected.iter().all(|(key, value)| installed.get(key).is_some_and(|field| contains(field, value)))
        }
        (Value::Array(installed), Value::Array(expected)) => {
            installed.len() == expected.len()
                && installed.iter().zip(expected).all(|(installed, expected)| contains(installed, expected))
        }
        (Value::Number(installed), Value::Number(expected)) => installed.as_f64() == expected.as_f64(),
        _ => installed == expected,
    }
}
