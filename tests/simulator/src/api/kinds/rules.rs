//! The rules of pod-safety's definitions, which the API server evaluates as CEL, each in Rust. The differential suite
//! compares both with the real server (`differential`).

use serde_json::Value;

/// A rule about a change: of the new object, and the old one.
type OfChange = fn(&Value, &Value) -> bool;
/// A rule about an object.
type OfObject = fn(&Value) -> bool;

/// Whether the key is there, as `has()` checks.
fn has_key(object: &Value, key: &str) -> bool {
    object.get(key).is_some_and(|field| !field.is_null())
}

fn equals(object: &Value, key: &str, value: &str) -> bool {
    object.get(key).and_then(Value::as_str) == Some(value)
}

/// Whether a parameter is named like one that is kept in a Secret.
fn names_a_secret(parameters: &Value) -> bool {
    let named = |name: &String| {
        let name = name.to_lowercase().replace('-', "_");
        ["passw", "secret", "token", "community", "apikey", "api_key", "private_key", "_kg"]
            .iter()
            .any(|word| name.contains(word))
    };
    parameters.as_object().into_iter().flatten().any(|(name, _)| named(name))
}

/// Rules that refer to the old object are not evaluated for a new one.
const ABOUT_CHANGES: [(&str, OfChange); 5] = [
    ("self == oldSelf", |new, old| new == old),
    ("self.node == oldSelf.node && self.policy == oldSelf.policy && self.trigger == oldSelf.trigger", |new, old| {
        ["node", "policy", "trigger"].iter().all(|key| new.get(*key) == old.get(*key))
    }),
    ("!(has(oldSelf.cancelled) && oldSelf.cancelled) || (has(self.cancelled) && self.cancelled)", |new, old| {
        old["cancelled"] != true || new["cancelled"] == true
    }),
    ("!(has(oldSelf.dryRun) && oldSelf.dryRun) || (has(self.dryRun) && self.dryRun)", |new, old| {
        old["dryRun"] != true || new["dryRun"] == true
    }),
    (
        "!has(oldSelf.status) || !has(oldSelf.status.invalidated) || (has(self.status) && has(self.status.invalidated))",
        |new, old| !has_key(&old["status"], "invalidated") || has_key(&new["status"], "invalidated"),
    ),
];

const ABOUT_OBJECTS: [(&str, OfObject); 15] = [
    ("!(self.type in ['Ready', 'pod-safety.dev/NodeUnreachable'])", |it| {
        !equals(it, "type", "Ready") && !equals(it, "type", "pod-safety.dev/NodeUnreachable")
    }),
    ("(self.driver == 'Agent') == has(self.agent)", |it| equals(it, "driver", "Agent") == has_key(it, "agent")),
    ("(self.driver == 'NetworkFence') == has(self.networkFence)", |it| {
        equals(it, "driver", "NetworkFence") == has_key(it, "networkFence")
    }),
    ("(self.driver == 'WatchdogLease') == has(self.watchdogLease)", |it| {
        equals(it, "driver", "WatchdogLease") == has_key(it, "watchdogLease")
    }),
    ("!('Virtual' in self.classes) || self.pauseSeconds > 0", |it| {
        let is_virtual = it["classes"].as_array().into_iter().flatten().any(|class| class == "Virtual");
        !is_virtual || it["pauseSeconds"].as_u64().is_some_and(|seconds| seconds > 0)
    }),
    ("(self.driver == 'External') == has(self.external)", |it| {
        equals(it, "driver", "External") == has_key(it, "external")
    }),
    ("self.driver in ['Machine', 'OpenShiftMachine', 'BareMetalHost'] || !has(self.namespaces)", |it| {
        ["Machine", "OpenShiftMachine", "BareMetalHost"].iter().any(|driver| equals(it, "driver", driver))
            || !has_key(it, "namespaces")
    }),
    (
        "self.driver in ['Agent', 'Redfish'] || !(has(self.parameters) || has(self.nodeParameters) || has(self.secretParameters))",
        |it| {
            ["Agent", "Redfish"].iter().any(|driver| equals(it, "driver", driver))
                || !["parameters", "nodeParameters", "secretParameters"].iter().any(|key| has_key(it, key))
        },
    ),
    (
        "!has(self.parameters) || !('action' in self.parameters || 'option' in self.parameters || 'method' in self.parameters)",
        |it| !["action", "option", "method"].iter().any(|key| it["parameters"].get(*key).is_some()),
    ),
    (
        "!has(self.parameters) || !self.parameters.exists(name, name.matches('(?i)passw|secret|token|community|api[-_]?key|private[-_]key|[-_]kg'))",
        |it| !names_a_secret(&it["parameters"]),
    ),
    (
        "!has(self.nodeParameters) || !self.nodeParameters.exists(node, self.nodeParameters[node].exists(name, name.matches('(?i)passw|secret|token|community|api[-_]?key|private[-_]key|[-_]kg')))",
        |it| !it["nodeParameters"].as_object().into_iter().flatten().any(|(_, all)| names_a_secret(all)),
    ),
    ("(self.kind != 'Asserted') == has(self.fence)", |it| equals(it, "kind", "Asserted") != has_key(it, "fence")),
    ("(self.kind == 'Asserted') == has(self.reason)", |it| equals(it, "kind", "Asserted") == has_key(it, "reason")),
    ("(self.kind == 'StorageFenced') == has(self.storage)", |it| {
        equals(it, "kind", "StorageFenced") == has_key(it, "storage")
    }),
    ("self.kind == 'Asserted' || !has(self.validSeconds)", |it| {
        equals(it, "kind", "Asserted") || !has_key(it, "validSeconds")
    }),
];

/// Whether a rule holds. An unknown rule does not hold, so that a rule missing here is noticed at the first write.
pub(super) fn holds(rule: &str, new: &Value, old: Option<&Value>) -> bool {
    if let Some((_, holds)) = ABOUT_CHANGES.iter().find(|(text, _)| *text == rule) {
        return old.is_none_or(|old| holds(new, old));
    }
    ABOUT_OBJECTS.iter().any(|(text, holds)| *text == rule && holds(new))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::schema::KEYWORDS;
    use super::*;

    fn walk(schema: &Value, rules: &mut BTreeSet<String>, keywords: &mut BTreeSet<String>) {
        keywords.extend(schema.as_object().into_iter().flatten().map(|(key, _)| key.clone()));
        let here = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
        rules.extend(here.filter_map(|rule| rule["rule"].as_str()).map(str::to_owned));
        let fields = schema["properties"].as_object().into_iter().flatten().map(|(_, field)| field);
        let others = [schema.get("items"), schema.get("additionalProperties")];
        fields.chain(others.into_iter().flatten()).for_each(|inner| walk(inner, rules, keywords));
    }

    #[test]
    fn exactly_the_rules_and_keywords_of_our_crds_are_modelled() {
        let (mut rules, mut keywords) = (BTreeSet::new(), BTreeSet::new());
        for crd in pod_safety_shared::api::crds() {
            walk(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], &mut rules, &mut keywords);
        }
        let modelled = ABOUT_CHANGES.iter().map(|(text, _)| *text);
        let modelled: BTreeSet<_> = modelled.chain(ABOUT_OBJECTS.iter().map(|(text, _)| *text)).collect();
        assert_eq!(rules.iter().map(String::as_str).collect::<BTreeSet<_>>(), modelled);
        assert_eq!(keywords.iter().map(String::as_str).collect::<BTreeSet<_>>(), KEYWORDS.into());
    }
}
