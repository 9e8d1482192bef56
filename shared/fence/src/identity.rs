//! The identity by which a device knows the machine of a node. Pure.
//!
//! Danger note: a kubelet writes its own systemUUID and providerID. A kubelet that writes those of another machine would have
//! that machine switched off in place of its own. So where a parameter contains them, or the driver compares the machine with
//! them, the first values that a Node had count for as long as it is that Node, and no other node may have the same ones.

use super::instance::{self, InstanceError};
use super::render::{NodeFacts, placeholders};
use crate::api::{FenceDeviceSpec, TargetStatus};
use crate::transport::MachineUuid;

/// Which identities of a node a device uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IdentitySources {
    /// A parameter contains the systemUUID.
    system_uuid: bool,
    /// The driver compares the machine's UUID with the systemUUID.
    compared: bool,
    /// A parameter contains the providerID or a part of it.
    provider_id: bool,
}

impl IdentitySources {
    pub(super) fn from_spec(spec: &FenceDeviceSpec) -> Self {
        let any = |is: fn(&str) -> bool| templates(spec).any(|template| placeholders(template).any(is));
        Self {
            system_uuid: any(|what| what == ".Node.SystemUUID"),
            compared: spec.driver.properties().compares_identity,
            provider_id: any(|what| what == ".Node.ProviderID" || instance::is_part(what)),
        }
    }

    /// Whether this systemUUID distinguishes a node from others. A driver that compares treats one that many machines
    /// have as missing.
    fn uses_system_uuid(self, system_uuid: &str) -> bool {
        self.system_uuid || self.compared && MachineUuid::parse_unique(system_uuid).is_some()
    }
}

fn templates(spec: &FenceDeviceSpec) -> impl Iterator<Item = &String> {
    let own = spec.node_parameters.values().flat_map(std::collections::BTreeMap::values);
    let secrets = spec.secret_parameters.iter().map(|one| &one.secret);
    spec.parameters.values().chain(own).chain(secrets)
}

/// Checks that the device's agent may switch this node by a part of its instance, if a parameter contains one.
pub(super) fn check_instance(spec: &FenceDeviceSpec, facts: &NodeFacts) -> Result<(), InstanceError> {
    let by_instance = templates(spec).any(|template| placeholders(template).any(instance::is_part));
    match &spec.agent {
        Some(agent) if by_instance => instance::check_provider(agent, &facts.machine.provider_id, &facts.machine.node),
        _ => Ok(()),
    }
}

/// The instance of a provider that a device queries, if the node's providerID alone names it.
pub(super) fn named_instance<'a>(spec: &FenceDeviceSpec, facts: &'a NodeFacts) -> Option<&'a str> {
    let own = spec.node_parameters.get(&*facts.machine.node);
    let template = |parameter: &str| {
        let own = own.and_then(|own| own.get(parameter));
        own.or_else(|| spec.parameters.get(parameter)).map(String::as_str)
    };
    instance::named_instance(spec.agent.as_deref()?, &facts.machine.provider_id, template)
}

/// Whether a device switches only a machine whose identity matches that of this Node.
pub(super) fn requires_match(spec: &FenceDeviceSpec, facts: &NodeFacts) -> bool {
    spec.requires_machine_identity() && MachineUuid::parse_unique(&facts.machine.system_uuid).is_some()
}

/// Why a node's identity is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum IdentityError {
    #[error(
        "node {node} had {field}={before:?} at the first status check, and has {now:?} now. If its machine was replaced, delete the Node or recreate the FenceDevice"
    )]
    Changed { node: String, field: &'static str, before: String, now: String },
    #[error("nodes {node} and {other} both have {field}={value:?}, so it is not known which machine that is")]
    Shared { node: String, other: String, field: &'static str, value: String },
}

const SYSTEM_UUID: &str = "status.nodeInfo.systemUUID";
const PROVIDER_ID: &str = "spec.providerID";

/// Whether two texts are the same UUID, in whichever spelling.
fn same_uuid(one: &str, other: &str) -> bool {
    MachineUuid::parse(one).zip(MachineUuid::parse(other)).is_some_and(|(one, other)| one.is_same(other))
}

/// One of the two identities of a node, and whether the device uses it.
struct IdentityRow<'a> {
    counts: bool,
    field: &'static str,
    now: &'a str,
    /// Reads the value that the status of the device has recorded for a node.
    of: fn(&TargetStatus) -> &str,
}

/// Checks that the node has the identity that was recorded at the first status check, and that no other node has it.
pub(super) fn check(
    sources: IdentitySources,
    facts: &NodeFacts,
    targets: &[TargetStatus],
) -> Result<(), IdentityError> {
    let NodeFacts { machine, uid, .. } = facts;
    let node = || machine.node.to_string();
    let own = targets.iter().find(|target| *target.node == *machine.node && target.node_uid == *uid);
    let is_another = |before: &str, now: &str| !before.is_empty() && before != now && !same_uuid(before, now);
    let rows = [
        IdentityRow {
            counts: sources.uses_system_uuid(&machine.system_uuid),
            field: SYSTEM_UUID,
            now: &machine.system_uuid,
            of: |target| &target.system_uuid,
        },
        IdentityRow {
            counts: sources.provider_id,
            field: PROVIDER_ID,
            now: &machine.provider_id,
            of: |target| &target.provider_id,
        },
    ];
    for IdentityRow { field, now, of, .. } in rows.into_iter().filter(|row| row.counts && !row.now.is_empty()) {
        if let Some(before) = own.map(of).filter(|before| is_another(before, now)) {
            let (before, now) = (before.to_owned(), now.to_owned());
            return Err(IdentityError::Changed { node: node(), field, before, now });
        }
        // Whether or not this node was checked before: the first checks of both nodes may be of the same round.
        let same = |other: &str| other.trim().eq_ignore_ascii_case(now.trim()) || same_uuid(other, now);
        let mut others = targets.iter().filter(|other| *other.node != *machine.node);
        if let Some(other) = others.find(|other| same(of(other))) {
            let (other, value) = (other.node.clone(), now.to_owned());
            return Err(IdentityError::Shared { node: node(), other, field, value });
        }
    }
    Ok(())
}

/// The identity to record in the status of the device at the first status check of a node: only the fields that the
/// device uses. `previous`: what is recorded already. `is_sure`: no other node has this identity.
pub(super) fn recorded_identity(
    sources: IdentitySources,
    facts: &NodeFacts,
    previous: Option<&TargetStatus>,
    is_sure: bool,
) -> TargetStatus {
    let previous = previous.filter(|recorded| recorded.node_uid == facts.uid).cloned().unwrap_or_default();
    let keep = |used: bool, before: String, now: &str| match used && is_sure && before.is_empty() {
        true => now.to_owned(),
        false => before,
    };
    let reported_uuid = &facts.machine.system_uuid;
    let spelled = MachineUuid::parse(reported_uuid).map_or_else(|| reported_uuid.to_string(), |uuid| uuid.to_string());
    let system_uuid = keep(sources.uses_system_uuid(reported_uuid), previous.system_uuid, &spelled);
    let provider_id = keep(sources.provider_id, previous.provider_id, &facts.machine.provider_id);
    let is_kept = !(system_uuid.is_empty() && provider_id.is_empty());
    let node_uid = if is_kept { facts.uid.clone() } else { String::new() };
    TargetStatus { node_uid, system_uuid, provider_id, ..TargetStatus::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::Incarnation;
    use crate::transport::Machine;

    fn facts(node: &str, uid: &str, uuid: &str) -> NodeFacts {
        let machine = Machine { node: node.into(), system_uuid: uuid.into(), provider_id: "p".into() };
        NodeFacts { machine, labels: None, uid: uid.to_owned(), incarnation: Incarnation::default() }
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

    const BY_UUID: IdentitySources = IdentitySources { system_uuid: true, compared: false, provider_id: false };

    /// A kubelet that wrote another machine's systemUUID had that machine switched off.
    #[test]
    fn attack_a_node_with_the_identity_of_another_machine_is_refused() {
        const OWN: &str = "4c4c4544-0051-3610-8052-b4c04f4d3132";
        const NEXT: &str = "4c4c4544-0052-3610-8052-b4c04f4d3132";
        let recorded = [
            target("w1", "u1", "A"),
            target("w2", "u2", "B"),
            target("w4", "u4", OWN),
            target("w5", "u5", &NEXT.to_uppercase()),
        ];
        for (what, facts, fine) in [
            ("the same as before", facts("w1", "u1", "A"), true),
            ("a neighbour's", facts("w1", "u1", "B"), false),
            ("something new", facts("w1", "u1", "C"), false),
            ("nothing", facts("w1", "u1", ""), true),
            ("another, and its Node is another", facts("w1", "u9", "C"), true),
            ("a neighbour's, and its Node is another", facts("w1", "u9", "b"), false),
            ("a neighbour's, and it is new", facts("w3", "u3", "B"), false),
            ("its own, and it is new", facts("w3", "u3", "D"), true),
            ("a neighbour's without dashes", facts("w3", "u3", "4c4c4544005236108052b4c04f4d3132"), false),
            ("a neighbour's with dashes elsewhere", facts("w3", "u3", "4c4c454400523610-8052b4c04f4d3132"), false),
            ("a neighbour's, turned", facts("w3", "u3", "44454c4c-5200-1036-8052-b4c04f4d3132"), false),
            ("a neighbour's, and its Node was known", facts("w4", "u4", NEXT), false),
            ("its own, turned by a new kernel", facts("w4", "u4", "44454C4C-5100-1036-8052-B4C04F4D3132"), true),
        ] {
            let result = check(BY_UUID, &facts, &recorded);
            assert_eq!(result.is_ok(), fine, "{what}: {result:?}");
            assert_eq!(
                check(IdentitySources::default(), &facts, &recorded),
                Ok(()),
                "no parameter contains it: {what}"
            );
        }
    }

    /// At the first check of a device no identity was recorded, and that of both nodes was kept: a neighbour was
    /// switched off.
    #[test]
    fn attack_two_nodes_with_the_same_identity_at_the_first_check_are_both_refused() {
        let recorded = [target("w1", "u1", "A"), target("w2", "u2", "A"), target("w3", "u3", "C")];
        for (node, uid, uuid, fine) in [("w1", "u1", "A", false), ("w2", "u2", "A", false), ("w3", "u3", "C", true)] {
            assert_eq!(check(BY_UUID, &facts(node, uid, uuid), &recorded).is_ok(), fine, "{node}");
        }
    }

    #[test]
    fn identity_sources_come_from_parameters_node_parameters_and_secret_names() {
        let by = |spec: Value| IdentitySources::from_spec(&serde_json::from_value(spec).unwrap());
        let spec = |more: Value| {
            let mut spec = json!({ "driver": "Agent", "agent": "a" });
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            by(spec)
        };
        let secret = |name: &str| json!([{ "parameter": "password", "secret": name, "key": "k" }]);
        assert_eq!(spec(json!({ "parameters": { "plug": "{{.Node.Name}}" } })), IdentitySources::default());
        for more in [
            json!({ "parameters": { "uuid": "{{.Node.SystemUUID}}" } }),
            json!({ "nodeParameters": { "w1": { "uuid": "x-{{.Node.SystemUUID}}" } } }),
            json!({ "secretParameters": secret("bmc-{{.Node.SystemUUID}}") }),
        ] {
            assert_eq!(spec(more.clone()), BY_UUID, "{more}");
        }
        let provider = json!({ "parameters": { "plug": "{{.Node.ProviderID}}" } });
        assert_eq!(spec(provider), IdentitySources { provider_id: true, ..IdentitySources::default() });
        let instance = json!({ "parameters": { "plug": "{{ .Instance.ID }}" } });
        assert_eq!(
            spec(instance),
            IdentitySources { provider_id: true, ..IdentitySources::default() },
            "it is a part of it"
        );
    }

    /// The driver Redfish compares the machine with the current systemUUID of the Node. A kubelet that wrote a
    /// neighbour's had that machine switched off by a device that has the neighbour's address.
    #[test]
    fn attack_redfish_refuses_a_node_with_the_system_uuid_of_another() {
        let redfish = IdentitySources::from_spec(&serde_json::from_value(json!({ "driver": "Redfish" })).unwrap());
        let own = "4c4c4544-0051-3610-8052-b4c04f4d3132";
        let first = recorded_identity(redfish, &facts("w1", "u1", own), None, true);
        assert_eq!((first.node_uid.as_str(), first.system_uuid.as_str()), ("u1", own));
        let recorded = [TargetStatus { node: "w1".to_owned(), ..first }];
        assert!(check(redfish, &facts("w2", "u2", own), &recorded).is_err(), "a neighbour's");
        assert!(check(redfish, &facts("w1", "u1", "4c4c4544-0052-3610-8052-b4c04f4d3132"), &recorded).is_err());
        // Makers ship many machines with this UUID, which a Redfish device does not treat as an identity.
        let everyone = "03000200-0400-0500-0006-000700080009";
        let first = recorded_identity(redfish, &facts("w1", "u1", everyone), None, true);
        assert_eq!(first.system_uuid, "");
        let recorded = [target("w2", "u2", everyone)];
        assert_eq!(check(redfish, &facts("w1", "u1", everyone), &recorded), Ok(()));
        assert!(check(BY_UUID, &facts("w1", "u1", everyone), &recorded).is_err(), "a parameter contains it");
    }

    #[test]
    fn the_first_unambiguous_identity_is_kept_until_the_node_is_recreated() {
        let kept_of = |recorded: Option<&TargetStatus>, uid: &str, uuid: &str, sure: bool| {
            recorded_identity(BY_UUID, &facts("w1", uid, uuid), recorded, sure).system_uuid
        };
        let recorded = target("w1", "u1", "A");
        assert_eq!(kept_of(None, "u1", "A", true), "A");
        assert_eq!(kept_of(None, "u1", "A", false), "", "another node says so, too");
        assert_eq!(kept_of(Some(&recorded), "u1", "B", false), "A");
        assert_eq!(kept_of(Some(&recorded), "u2", "B", true), "B");
        let by_both = IdentitySources { provider_id: true, ..BY_UUID };
        let by_provider = IdentitySources { provider_id: true, ..IdentitySources::default() };
        for (sources, [node_uid, system_uuid, provider_id]) in
            [(BY_UUID, ["u1", "A", ""]), (by_both, ["u1", "A", "p"]), (by_provider, ["u1", "", "p"])]
        {
            let identity = recorded_identity(sources, &facts("w1", "u1", "A"), None, true);
            let all = TargetStatus { node_uid: node_uid.to_owned(), ..TargetStatus::default() };
            let (system_uuid, provider_id) = (system_uuid.to_owned(), provider_id.to_owned());
            assert_eq!(identity, TargetStatus { system_uuid, provider_id, ..all }, "{sources:?}");
        }
        assert_eq!(
            recorded_identity(IdentitySources::default(), &facts("w1", "u1", "A"), None, true).node_uid,
            "",
            "the device does not ask for it"
        );
    }
}
