//! The rights that the service account should have: those of the file that the chart and `manifests` ship.

use std::collections::BTreeSet;

use pod_safety_process::registry::Name;
use pod_safety_shared::authority::AccessRight;
use pod_safety_shared::controller_loop::Mode;
use serde::Deserialize;

use crate::manifests::RBAC;

/// The annotation of a role that states what the role is needed for.
const NEEDED_FOR: &str = "pod-safety.dev/needed-for";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    role_ref: Option<RoleRef>,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct RoleRef {
    name: String,
    kind: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
    verbs: Vec<String>,
}

fn documents() -> Vec<Document> {
    // One document each: the file is part of pod-safety, and a test parses all of it.
    RBAC.split("\n---\n").filter_map(|text| serde_saphyr::from_str(text).ok()).collect()
}

/// The rights that a process in this mode with these controllers needs.
pub(super) fn required_rights(mode: Mode, controllers: &[Name]) -> Vec<AccessRight> {
    let all = documents();
    let bound = |role: &Document| {
        let by = |one: &Document| {
            let of = one.role_ref.as_ref();
            of.is_some_and(|of| of.kind == role.kind && of.name == role.metadata.name)
                && one.metadata.namespace == role.metadata.namespace
        };
        all.iter().any(by)
    };
    let is_required = |role: &&Document| match role.metadata.annotations.get(NEEDED_FOR).map(String::as_str) {
        Some("replace") => mode == Mode::Replace && controllers.contains(&Name::Disruption),
        // Without it, traces lack the force deletes of the last leader; nothing else is affected.
        Some("tracing") => false,
        // The installation decides about the namespace of devices and their Secrets, and the Lease may have another
        // name.
        needed_for => {
            let named = Name::ALL.iter().find(|name| Some(name.as_str()) == needed_for);
            named.is_none_or(|name| controllers.contains(name))
        }
    };
    let mut rights = BTreeSet::new();
    for role in
        all.iter().filter(|role| bound(role)).filter(is_required).filter(|role| role.metadata.namespace != "pod-safety")
    {
        for rule in &role.rules {
            rights.extend(rights_of_rule(rule, &role.metadata.namespace));
        }
    }
    let reads =
        |right: &AccessRight| matches!(right.verb.as_str(), "get" | "list" | "watch") || right.resource == "events";
    rights.into_iter().filter(|right| mode != Mode::Observe || reads(right)).collect()
}

fn rights_of_rule<'a>(rule: &'a Rule, namespace: &'a str) -> impl Iterator<Item = AccessRight> + 'a {
    let names = if rule.resource_names.is_empty() { vec![String::new()] } else { rule.resource_names.clone() };
    let resources =
        rule.api_groups.iter().flat_map(|group| rule.resources.iter().map(move |resource| (group, resource)));
    resources.flat_map(move |(group, resource)| {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (names, namespace) = (names.clone(), namespace.to_owned());
        rule.verbs.iter().flat_map(move |verb| {
            let right = AccessRight {
                verb: verb.clone(),
                group: group.clone(),
                resource: resource.to_owned(),
                subresource: subresource.to_owned(),
                namespace: namespace.clone(),
                name: String::new(),
            };
            names.clone().into_iter().map(move |name| AccessRight { name, ..right.clone() })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_of_the_rbac_file_is_parsed() {
        assert_eq!(documents().len(), RBAC.matches("\nkind:").count());
    }

    #[test]
    fn required_rights_depend_on_mode_and_controllers() {
        let words = |mode, controllers: &[Name]| -> Vec<String> {
            required_rights(mode, controllers).iter().map(ToString::to_string).collect()
        };
        let all = words(Mode::Replace, Name::ALL);
        for right in [
            "delete pods",
            "patch pods/status",
            "patch poddisruptionbudgets.policy/status",
            "create nodefences.pod-safety.dev",
        ] {
            assert!(all.iter().any(|one| one == right), "{right}: not in {all:?}");
        }
        assert!(all.iter().any(|one| one == "get leases.coordination.k8s.io pod-safety in kube-system"), "{all:?}");
        let guard = words(Mode::Guard, &[Name::PodGc]);
        for other in ["poddisruptionbudgets.policy/status", "nodefences", "pod-safety-volumes"] {
            assert!(!guard.iter().any(|one| one.contains(other)), "{other} is of a controller that is off: {guard:?}");
        }
        assert!(all.iter().any(|one| one.contains("pod-safety-volumes")), "{all:?}");
        let observe = words(Mode::Observe, Name::ALL);
        assert!(!observe.iter().any(|one| one.starts_with("delete") || one.starts_with("patch")), "{observe:?}");
    }
}
