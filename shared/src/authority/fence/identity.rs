//! By which identity a device knows the machine of a node. Pure.
//!
//! Danger note: a kubelet says its systemUUID and providerID itself. One that says those of another machine would have that
//! one switched off in its place. So where a parameter contains them, what a Node said first counts for as long as it is that
//! Node, and nobody says what another node said before.

use super::render::{Facts, asks_for};
use crate::api::{FenceDeviceSpec, TargetStatus};

/// Which of them the parameters of a device contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    system_uuid: bool,
    provider_id: bool,
}

impl Asked {
    pub(super) fn by(spec: &FenceDeviceSpec) -> Self {
        let own = spec.node_parameters.values().flat_map(std::collections::BTreeMap::values);
        let secrets = spec.secret_parameters.iter().map(|one| &one.secret);
        let templates: Vec<&String> = spec.parameters.values().chain(own).chain(secrets).collect();
        let any = |what| templates.iter().any(|template| asks_for(template, what));
        Self { system_uuid: any(".Node.SystemUUID"), provider_id: any(".Node.ProviderID") }
    }
}

/// Why a node is not known by what it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum IdentityError {
    #[error(
        "node {node} said {field}={before:?} when it was first looked at, and says {now:?}: if its machine was replaced, delete the Node or create the FenceDevice anew"
    )]
    Changed { node: String, field: &'static str, before: String, now: String },
    #[error("nodes {node} and {other} both say {field}={value:?}: which machine that is cannot be told")]
    Shared { node: String, other: String, field: &'static str, value: String },
}

const SYSTEM_UUID: &str = "status.nodeInfo.systemUUID";
const PROVIDER_ID: &str = "spec.providerID";

/// Whether the node is the one that was looked at before.
pub(super) fn check(asked: Asked, facts: &Facts, targets: &[TargetStatus]) -> Result<(), IdentityError> {
    let Facts { machine, uid, .. } = facts;
    let node = || machine.node.to_string();
    let own = targets.iter().find(|target| *target.node == *machine.node && target.node_uid == *uid);
    type Of = fn(&TargetStatus) -> &str;
    let rows: [(bool, &'static str, &str, Of); 2] = [
        (asked.system_uuid, SYSTEM_UUID, &machine.system_uuid, |target| &target.system_uuid),
        (asked.provider_id, PROVIDER_ID, &machine.provider_id, |target| &target.provider_id),
    ];
    for (_, field, now, of) in rows.into_iter().filter(|(asked, _, now, _)| *asked && !now.is_empty()) {
        if let Some(before) = own.map(of).filter(|before| !before.is_empty() && *before != now) {
            let (before, now) = (before.to_owned(), now.to_owned());
            return Err(IdentityError::Changed { node: node(), field, before, now });
        }
        // Whether it was looked at before or not: in one turn both may have been looked at first.
        let same =
            |other: &&TargetStatus| *other.node != *machine.node && of(other).eq_ignore_ascii_case(now);
        if let Some(other) = targets.iter().find(same) {
            let (other, value) = (other.node.clone(), now.to_owned());
            return Err(IdentityError::Shared { node: node(), other, field, value });
        }
    }
    Ok(())
}

/// What the status keeps of a node from its first look on: these fields, and no others. `known`: what it kept before.
pub(super) fn kept(asked: Asked, facts: &Facts, known: Option<&TargetStatus>, is_sure: bool) -> TargetStatus {
    let known = known.filter(|known| known.node_uid == facts.uid).cloned().unwrap_or_default();
    let keep = |asked: bool, before: String, now: &str| match asked && is_sure && before.is_empty() {
        true => now.to_owned(),
        false => before,
    };
    let system_uuid = keep(asked.system_uuid, known.system_uuid, &facts.machine.system_uuid);
    let provider_id = keep(asked.provider_id, known.provider_id, &facts.machine.provider_id);
    let is_kept = !(system_uuid.is_empty() && provider_id.is_empty());
    let node_uid = if is_kept { facts.uid.clone() } else { String::new() };
    TargetStatus { node_uid, system_uuid, provider_id, ..TargetStatus::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::transport::Machine;

    fn facts(node: &str, uid: &str, uuid: &str) -> Facts {
        let machine = Machine { node: node.into(), system_uuid: uuid.into(), provider_id: "p".into() };
        Facts { machine, labels: None, uid: uid.to_owned() }
    }

    fn target(node: &str, uid: &str, uuid: &str) -> TargetStatus {
        TargetStatus {
            node: node.to_owned(),
            node_uid: uid.to_owned(),
            system_uuid: uuid.to_owned(),
            provider_id: if uuid.is_empty() { String::new() } else { "p".to_owned() },
            ..TargetStatus::default()
        }
    }

    const BY_UUID: Asked = Asked { system_uuid: true, provider_id: false };

    /// Finding 3c of the security review: a kubelet that says another machine's systemUUID has that one switched off.
    #[test]
    fn attack_a_node_that_says_to_be_another_machine_is_not_switched_by_that() {
        let known = [target("w1", "u1", "A"), target("w2", "u2", "B")];
        for (what, said, fine) in [
            ("what it said before", facts("w1", "u1", "A"), true),
            ("a neighbour's", facts("w1", "u1", "B"), false),
            ("something new", facts("w1", "u1", "C"), false),
            ("nothing", facts("w1", "u1", ""), true),
            ("another, and its Node is another", facts("w1", "u9", "C"), true),
            ("a neighbour's, and its Node is another", facts("w1", "u9", "b"), false),
            ("a neighbour's, and it is new", facts("w3", "u3", "B"), false),
            ("its own, and it is new", facts("w3", "u3", "D"), true),
        ] {
            let judged = check(BY_UUID, &said, &known);
            assert_eq!(judged.is_ok(), fine, "{what}: {judged:?}");
            assert_eq!(check(Asked::default(), &said, &known), Ok(()), "no parameter contains it: {what}");
        }
    }

    /// In the first look through a device none of them is known yet, and both were kept: a neighbour was switched off.
    #[test]
    fn attack_two_nodes_that_said_the_same_at_the_first_look_are_both_refused() {
        let known = [target("w1", "u1", "A"), target("w2", "u2", "A"), target("w3", "u3", "C")];
        for (node, uid, uuid, fine) in
            [("w1", "u1", "A", false), ("w2", "u2", "A", false), ("w3", "u3", "C", true)]
        {
            assert_eq!(check(BY_UUID, &facts(node, uid, uuid), &known).is_ok(), fine, "{node}");
        }
    }

    #[test]
    fn a_device_asks_for_what_its_parameters_its_nodes_and_the_name_of_its_secret_contain() {
        let by = |spec: Value| Asked::by(&serde_json::from_value(spec).unwrap());
        let spec = |more: Value| {
            let mut spec = json!({ "driver": "Agent", "agent": "a" });
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            by(spec)
        };
        let secret = |name: &str| json!([{ "parameter": "password", "secret": name, "key": "k" }]);
        assert_eq!(spec(json!({ "parameters": { "plug": "{{.Node.Name}}" } })), Asked::default());
        for more in [
            json!({ "parameters": { "uuid": "{{.Node.SystemUUID}}" } }),
            json!({ "nodeParameters": { "w1": { "uuid": "x-{{.Node.SystemUUID}}" } } }),
            json!({ "secretParameters": secret("bmc-{{.Node.SystemUUID}}") }),
        ] {
            assert_eq!(spec(more.clone()), BY_UUID, "{more}");
        }
        let provider = json!({ "parameters": { "plug": "{{.Node.ProviderID}}" } });
        assert_eq!(spec(provider), Asked { system_uuid: false, provider_id: true });
    }

    #[test]
    fn the_first_that_was_sure_is_kept_for_as_long_as_it_is_that_node() {
        let kept_of = |known: Option<&TargetStatus>, uid: &str, uuid: &str, sure: bool| {
            kept(BY_UUID, &facts("w1", uid, uuid), known, sure).system_uuid
        };
        let known = target("w1", "u1", "A");
        assert_eq!(kept_of(None, "u1", "A", true), "A");
        assert_eq!(kept_of(None, "u1", "A", false), "", "another node says so, too");
        assert_eq!(kept_of(Some(&known), "u1", "B", false), "A");
        assert_eq!(kept_of(Some(&known), "u2", "B", true), "B");
        let by_both = Asked { provider_id: true, ..BY_UUID };
        let by_provider = Asked { provider_id: true, ..Asked::default() };
        for (asked, [node_uid, system_uuid, provider_id]) in
            [(BY_UUID, ["u1", "A", ""]), (by_both, ["u1", "A", "p"]), (by_provider, ["u1", "", "p"])]
        {
            let found = kept(asked, &facts("w1", "u1", "A"), None, true);
            let all = TargetStatus { node_uid: node_uid.to_owned(), ..TargetStatus::default() };
            let (system_uuid, provider_id) = (system_uuid.to_owned(), provider_id.to_owned());
            assert_eq!(found, TargetStatus { system_uuid, provider_id, ..all }, "{asked:?}");
        }
        assert_eq!(
            kept(Asked::default(), &facts("w1", "u1", "A"), None, true).node_uid,
            "",
            "the device does not ask for it"
        );
    }
}
