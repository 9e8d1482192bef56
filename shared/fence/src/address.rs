//! The address of the device that switches a machine, for operators: from its parameters for this node. Pure.

use crate::api::{FenceDeviceSpec, ReachedBy};
use crate::model::Node;
use crate::transport::Machine;

use super::render::{NodeFacts, render};

/// The parameters that contain a device's address.
const HOSTS: [&str; 2] = ["address", "ip"];

/// The parameters that name the machine at the device.
const PLUGS: [&str; 4] = ["plug", "port", "system", "systems_uri"];

/// `10.0.8.21`, or `pdu-7.example.com, plug 14`. `None`: its driver reaches no host, or its parameters cannot be rendered for
/// this node.
#[must_use]
pub fn device_address(spec: &FenceDeviceSpec, node: &Node) -> Option<String> {
    if spec.driver.properties().reached_by != ReachedBy::Parameters {
        return None;
    }
    let incarnation = node.details.as_ref()?;
    let machine = Machine {
        node: node.name.clone(),
        system_uuid: (&*incarnation.system_uuid).into(),
        provider_id: (&*incarnation.provider_id).into(),
    };
    let facts = NodeFacts { machine, labels: Some(incarnation.labels.clone()), ..NodeFacts::default() };
    let value = |name: &&'static str| {
        let name = *name;
        let own = spec.node_parameters.get(&*node.name).and_then(|own| own.get(name));
        let template = own.or_else(|| spec.parameters.get(name))?;
        render(template, &facts).ok().map(|value| (name, value))
    };
    let (_, host) = HOSTS.iter().find_map(value)?;
    Some(match PLUGS.iter().find_map(value) {
        Some((name, plug)) => format!("{host}, {name} {plug}"),
        None => host,
    })
}

#[cfg(test)]
mod tests {
    use pod_safety_cache::testing::{World, at, objects};
    use serde_json::json;

    use super::*;
    use crate::cache::Lookup;
    use crate::model::Kind;

    #[test]
    fn the_address_of_a_device_is_rendered_for_the_node() {
        let world = World::listed();
        world.apply(Kind::Nodes, &objects::node("n").boot("b0000000-0000-4000-8000-000000000001"), at(0));
        let guard = world.read();
        let Lookup::Known(node) = guard.view().node("n") else { panic!("no node") };
        let agent = |parameters: serde_json::Value| json!({ "driver": "Agent", "agent": "fence_ipmilan", "parameters": parameters });
        let of_it = json!({ "driver": "Redfish", "parameters": { "address": "https://10.0.0.1" },
            "nodeParameters": { "n": { "address": "https://10.0.0.7" } } });
        for (spec, says) in [
            (agent(json!({ "ip": "bmc-{{.Node.Name}}.example.com" })), Some("bmc-n.example.com")),
            (agent(json!({ "ip": "pdu-7", "plug": "14" })), Some("pdu-7, plug 14")),
            (of_it, Some("https://10.0.0.7")),
            (agent(json!({ "ip": "{{.Node.SystemUUID}}" })), None),
            (agent(json!({ "region": "eu-1" })), None),
            (json!({ "driver": "Manual" }), None),
        ] {
            let spec: FenceDeviceSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(device_address(&spec, node).as_deref(), says, "{spec:?}");
        }
    }
}
