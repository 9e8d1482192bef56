//! The rules in the CRDs of FenceEvidence and NodeFence: withdrawn, cancelled and dry-run objects stay so.

use kube_cel::Validator;
use serde_json::{Value, json};

use crate::engine::patched;
use crate::schema;

/// The API server's messages about a change.
fn messages(plural: &str, old: &Value, change: Value) -> Vec<String> {
    let new = patched(old.clone(), change);
    let errors = Validator::new().validate(&schema(plural), &new, Some(old));
    errors.iter().map(|error| error.message.clone()).collect()
}

/// The rule was attached to `status`, and a rule is evaluated only if its field exists: withdrawn evidence became
/// valid again when its whole status was removed.
#[test]
fn attack_withdrawn_evidence_comes_back() {
    let spec = json!({ "node": { "name": "w1", "uid": "u", "bootID": "b" }, "kind": "Asserted", "by": "dev", "reason": "off" });
    let valid = json!({ "spec": spec });
    let withdrawn = json!({ "at": "2026-01-01T00:00:00Z", "reason": "it runs" });
    let invalid = patched(valid.clone(), json!({ "status": { "invalidated": withdrawn } }));
    let none: Vec<String> = Vec::new();
    let stays = vec!["what is invalid stays so".to_owned()];
    for (old, change, expected) in [
        (&valid, json!({ "status": { "invalidated": withdrawn } }), &none),
        (&valid, json!({ "status": {} }), &none),
        (&patched(valid.clone(), json!({ "status": {} })), json!({ "status": null }), &none),
        (&invalid, json!({ "metadata": { "labels": { "a": "b" } } }), &none),
        (&invalid, json!({ "status": { "invalidated": { "reason": "it runs, I saw it" } } }), &none),
        (&invalid, json!({ "status": { "invalidated": null } }), &stays),
        (&invalid, json!({ "status": null }), &stays),
    ] {
        assert_eq!(&messages("fenceevidences", old, change.clone()), expected, "{old}, changed by {change}");
    }
}

/// A user with the right to change NodeFences had a machine switched off in the name of a person who had requested
/// only a dry run.
#[test]
fn attack_a_dry_run_of_another_user_is_executed() {
    let fence = |dry: bool| {
        json!({ "spec": { "node": { "name": "w1", "uid": "u", "bootID": "b" }, "policy": "p", "dryRun": dry, "cancelled": false,
            "trigger": { "kind": "Person", "reason": "r", "by": "dev" } } })
    };
    let refused = |dry: bool, change: Value| !messages("nodefences", &fence(dry), json!({ "spec": change })).is_empty();
    assert!(refused(true, json!({ "dryRun": false })), "a rehearsal is carried out");
    assert!(refused(true, json!({ "dryRun": null })), "a rehearsal is carried out, by the default");
    assert!(!refused(true, json!({ "cancelled": true })));
    assert!(!refused(false, json!({ "dryRun": true })), "less than before");
    assert!(!refused(false, json!({ "cancelled": true })));
}
