//! The rights that the service account should have: those of the file that the chart and `manifests` ship.

use std::collections::BTreeSet;

use pod_safety_process::registry::Name;
use pod_safety_shared::authority::AccessRight;
use pod_safety_shared::controller_loop::Mode;
use serde::Deserialize;

use crate::manifests::RBAC;

/// The annotation of a role that states what the role is needed for.
const NEEDED_FOR: &str = "pod-safety.dev/needed-for";

/// Its value for the rights about the Lease.
const ELECTION: &str = "election";

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

/// The rights that a process in this mode with these controllers needs. `lease`: the namespace and the name of its
/// Lease, if it elects a leader; in the mode observe it does not.
pub(super) fn required_rights(mode: Mode, controllers: &[Name], lease: Option<(&str, &str)>) -> Vec<AccessRight> {
    let all = documents();
    let bound = |role: &Document| {
        let by = |one: &Document| {
            let of = one.role_ref.as_ref();
            of.is_some_and(|of| of.kind == role.kind && of.name == role.metadata.name)
                && one.metadata.namespace == role.metadata.namespace
        };
        all.iter().any(by)
    };
    let needed_for = |role: &Document| role.metadata.annotations.get(NEEDED_FOR).cloned().unwrap_or_default();
    let is_required = |role: &&Document| match &*needed_for(role) {
        "replace" => mode == Mode::Replace && controllers.contains(&Name::Disruption),
        // Without it, traces lack the force deletes of the last leader; nothing else is affected.
        "tracing" => false,
        ELECTION => mode != Mode::Observe && lease.is_some(),
        // The installation decides about the namespace of devices and their Secrets.
        needed_for => {
            let named = Name::ALL.iter().find(|name| name.as_str() == needed_for);
            named.is_none_or(|name| controllers.contains(name))
        }
    };
    let mut rights = BTreeSet::new();
    for role in
        all.iter().filter(|role| bound(role)).filter(is_required).filter(|role| role.metadata.namespace != "pod-safety")
    {
        let lease = lease.filter(|_| needed_for(role) == ELECTION);
        for right in role.rules.iter().flat_map(|rule| rights_of_rule(rule, &role.metadata.namespace)) {
            rights.insert(match lease {
                Some(lease) => about_lease(right, lease),
                None => right,
            });
        }
    }
    let reads = |right: &AccessRight| matches!(right.verb.as_str(), "get" | "list" | "watch");
    rights.into_iter().filter(|right| mode != Mode::Observe || reads(right)).collect()
}

/// The right about the Lease that the flags name.
fn about_lease(right: AccessRight, (namespace, name): (&str, &str)) -> AccessRight {
    let name = if right.name.is_empty() { "" } else { name };
    AccessRight { namespace: namespace.to_owned(), name: name.to_owned(), ..right }
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
            let lease = Some(("kube-system", "pod-safety"));
            required_rights(mode, controllers, lease).iter().map(ToString::to_string).collect()
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

    /// A healthy installation had a problem, and the printed remedy gave the account rights that it does not need.
    #[test]
    fn bug_rights_were_required_that_the_process_does_not_use() {
        const USUAL: Option<(&str, &str)> = Some(("kube-system", "pod-safety"));
        const OTHER: Option<(&str, &str)> = Some(("foo", "ours"));
        for (mode, lease, right, is_required) in [
            (Mode::Guard, USUAL, "create events", true),
            (Mode::Observe, USUAL, "create events", false),
            (Mode::Guard, USUAL, "patch leases.coordination.k8s.io pod-safety in kube-system", true),
            (Mode::Observe, USUAL, "get leases.coordination.k8s.io pod-safety in kube-system", false),
            (Mode::Guard, OTHER, "patch leases.coordination.k8s.io ours in foo", true),
            (Mode::Guard, OTHER, "create leases.coordination.k8s.io in foo", true),
            (Mode::Guard, OTHER, "create leases.coordination.k8s.io in kube-system", false),
            (Mode::Guard, None, "create leases.coordination.k8s.io in kube-system", false),
        ] {
            let all = required_rights(mode, Name::ALL, lease);
            let found = all.iter().any(|one| one.to_string() == right);
            assert_eq!(found, is_required, "{mode:?} {lease:?} {right}: {all:?}");
        }
    }
}
