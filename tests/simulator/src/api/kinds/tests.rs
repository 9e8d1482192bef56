//! Which parts of a sent object are stored.

use serde_json::json;

use super::*;

fn stored(plural: &str, object: Value) -> Value {
    let kind = Kind::built_in().into_iter().find(|kind| kind.plural == plural).unwrap();
    let mut value = shape::canonical(&kind, object).unwrap();
    defaults::apply(&kind, &mut value);
    value
}

#[test]
fn unknown_and_empty_fields_are_not_stored() {
    let pod = stored(
        "pods",
        json!({ "metadata": { "name": "a", "labels": {}, "what": 1 }, "spec": { "nodeName": "", "containers": [] } }),
    );
    assert_eq!(pod["metadata"], json!({ "name": "a" }));
    assert!(pod["spec"].get("nodeName").is_none());
}

#[test]
fn an_empty_holder_is_a_holder() {
    let lease = stored("leases", json!({ "spec": { "holderIdentity": "", "leaseTransitions": 0 } }));
    assert_eq!(lease["spec"], json!({ "holderIdentity": "", "leaseTransitions": 0 }));
}

#[test]
fn a_lease_needs_six_digits_of_its_second() {
    let kind = Kind::built_in().into_iter().find(|kind| kind.plural == "leases").unwrap();
    for (time, good) in
        [("2026-01-01T00:00:00.000000Z", true), ("2026-01-01T00:00:00.5Z", false), ("2026-01-01T00:00:00Z", false)]
    {
        assert_eq!(shape::canonical(&kind, json!({ "spec": { "renewTime": time } })).is_ok(), good, "{time}");
    }
}
