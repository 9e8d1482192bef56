//! Nodes: taints are a set of (key, effect), and the fields that identify the machine may be set once.

use serde_json::Value;

use crate::api::failure::Cause;
use crate::api::fields::{list, text};

/// A node is created with the status that its creator wrote: kubelets register so.
pub(super) const fn prepare_create(_node: &mut Value) {}

pub(super) fn validate(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let field = if old.is_some() { "metadata.taints" } else { "spec.taints" };
    let mut causes = taints(new, "spec.taints");
    if let Some(old) = old {
        if field != "spec.taints" {
            causes.extend(taints(new, field));
        }
        let before = text(old, &["spec", "providerID"]);
        if !before.is_empty() && before != text(new, &["spec", "providerID"]) {
            causes.push(Cause::forbidden(
                "spec.providerID",
                "node updates may not change providerID except from \"\" to valid",
            ));
        }
    }
    causes
}

fn taints(node: &Value, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen = Vec::new();
    for (index, taint) in list(node, &["spec", "taints"]).iter().enumerate() {
        let (key, effect) = (text(taint, &["key"]), text(taint, &["effect"]));
        if effect.is_empty() {
            causes.push(Cause::required(format!("{field}[{index}].effect")));
        } else if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            causes.push(Cause::unsupported(format!("{field}[{index}].effect")));
        }
        if seen.contains(&(key, effect)) {
            causes.push(Cause::duplicate(format!("{field}[{index}]")));
        }
        seen.push((key, effect));
    }
    causes
}
