//! Volumes, claims and attachments: their specs do not change.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Part, Rules};
use crate::api::failure::Cause;
use crate::api::fields::{at, copy, list, remove, set, text};

pub(super) fn prepare_create(rules: Rules, object: &mut Value, now: Timestamp) {
    let status = match rules {
        Rules::Volume => json!({ "phase": "Pending", "lastPhaseTransitionTime": format!("{now:.0}") }),
        Rules::Claim => json!({ "phase": "Pending" }),
        _ => json!({ "attached": false }),
    };
    set(object, &[], "status", status);
}

pub(super) fn prepare_update(rules: Rules, part: Part, new: &mut Value, old: &Value, now: Timestamp) {
    if part == Part::Main {
        copy(new, old, &[], "status");
        return;
    }
    copy(new, old, &[], "spec");
    match rules {
        Rules::Attachment => {
            for key in ["deletionTimestamp", "generation", "labels", "annotations", "finalizers", "ownerReferences"] {
                copy(new, old, &["metadata"], key);
            }
        }
        Rules::Volume => {
            let time = |volume| at(volume, &["status", "lastPhaseTransitionTime"]);
            let unset = time(new).is_none() || time(new) == time(old);
            if unset && text(new, &["status", "phase"]) != text(old, &["status", "phase"]) {
                set(new, &["status"], "lastPhaseTransitionTime", format!("{now:.0}"));
            }
        }
        _ => {}
    }
}

pub(super) fn validate_create(rules: Rules, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut required = |missing: bool, field: &str| {
        if missing {
            causes.push(Cause::required(field));
        }
    };
    match rules {
        Rules::Attachment => {
            required(text(object, &["spec", "attacher"]).is_empty(), "spec.attacher");
            required(
                at(object, &["spec", "source"]).and_then(Value::as_object).is_none_or(serde_json::Map::is_empty),
                "spec.source",
            );
            required(text(object, &["spec", "nodeName"]).is_empty(), "spec.nodeName");
        }
        Rules::Volume => {
            required(list(object, &["spec", "accessModes"]).is_empty(), "spec.accessModes");
            required(at(object, &["spec", "capacity"]).is_none(), "spec.capacity");
        }
        _ => {
            required(list(object, &["spec", "accessModes"]).is_empty(), "spec.accessModes");
            required(at(object, &["spec", "resources", "requests", "storage"]).is_none(), "spec.resources[storage]");
        }
    }
    causes
}

pub(super) fn validate_update(rules: Rules, part: Part, new: &Value, old: &Value) -> Vec<Cause> {
    if part != Part::Main {
        return Vec::new();
    }
    let mut causes = Vec::new();
    match rules {
        Rules::Attachment => {
            causes.extend(validate_create(rules, new));
            if new.get("spec") != old.get("spec") {
                causes.push(Cause::invalid("spec", "field is immutable"));
            }
        }
        Rules::Volume => {
            if at(new, &["spec", "csi"]) != at(old, &["spec", "csi"]) {
                causes.push(Cause::forbidden("spec.persistentvolumesource", "is immutable after creation"));
            }
        }
        _ => {
            let mut after = new.clone();
            if text(old, &["spec", "volumeName"]).is_empty() {
                // Binding: once.
                remove(&mut after, &["spec"], "volumeName");
            }
            if after.get("spec") != old.get("spec") {
                causes.push(Cause::forbidden("spec", "spec is immutable after creation"));
            }
        }
    }
    causes
}
