//! The CRDs have the names, descriptions and rules of the types.

use super::*;

fn labels(all: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn every_kind_has_a_crd_with_columns_and_a_status() {
    let all = crds();
    let names: Vec<_> = all.iter().map(|crd| crd["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "fencedevices.pod-safety.dev",
            "fencepolicies.pod-safety.dev",
            "nodefences.pod-safety.dev",
            "fenceevidences.pod-safety.dev",
            "podsafetyremediations.pod-safety.dev",
            "podsafetyremediationtemplates.pod-safety.dev"
        ]
    );
    for crd in &all {
        let version = &crd["spec"]["versions"][0];
        assert_eq!(version["name"], VERSION);
        if crd["spec"]["names"]["kind"] == "PodSafetyRemediationTemplate" {
            continue; // It is only copied.
        }
        assert!(version["subresources"]["status"].is_object(), "{crd}");
        assert!(version["additionalPrinterColumns"].as_array().unwrap().len() >= 4, "{crd}");
    }
}

/// `kubectl explain` began with "Auto-generated derived type for …".
#[test]
fn bug_no_kind_had_a_description_of_its_own() {
    for crd in crds() {
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap();
        let description = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"];
        assert!(description.as_str().unwrap().starts_with(&format!("A {kind} ")), "{kind}: {description}");
    }
}

/// An API server refused them: an empty string is no valid name, and it warned of unknown number formats.
#[test]
fn bug_defaults_of_statuses_were_no_valid_values() {
    for crd in crds() {
        let text = crd.to_string();
        assert!(!text.contains("uint32"), "{text}");
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        assert!(!schema["status"].to_string().contains("\"default\":"), "{}", schema["status"]);
        assert!(!schema.to_string().contains("\"default\":{\"name\":"), "{schema}");
    }
    let device = &crds()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert_eq!(device["properties"]["monitorSeconds"]["default"], 300, "those of specs stay");
}

#[test]
fn evidence_cannot_be_changed() {
    let crds = crds();
    let spec = &crds[3]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let rules = spec["x-kubernetes-validations"].as_array().unwrap();
    assert!(rules.iter().any(|rule| rule["rule"] == "self == oldSelf"), "{spec}");
}

#[test]
fn a_selector_requires_all_labels_and_expressions() {
    let selector = NodeSelector {
        match_labels: labels(&[("role", "db")]),
        match_expressions: vec![
            Expression {
                key: "zone".to_owned(),
                operator: ExpressionOperator::In,
                values: vec!["a".to_owned(), "b".to_owned()],
            },
            Expression { key: "spot".to_owned(), operator: ExpressionOperator::DoesNotExist, values: Vec::new() },
        ],
    };
    assert!(selector.matches(&labels(&[("role", "db"), ("zone", "b")])));
    assert!(!selector.matches(&labels(&[("role", "db"), ("zone", "c")])));
    assert!(!selector.matches(&labels(&[("role", "db")])));
    assert!(!selector.matches(&labels(&[("role", "db"), ("zone", "a"), ("spot", "")])));
    assert!(NodeSelector::default().matches(&labels(&[])));
}
