//! Devices that are the same for every node, and the labels by which they select one.

use super::*;

const HOSTNAME: &str = "kubernetes.io/hostname";
const BMC: &str = "node-restriction.kubernetes.io/bmc";

fn labels(key: &str) -> Value {
    json!({ "matchLabels": { key: "w3" } })
}

/// A device with one address; `change` adds to it.
fn fixed(selector: &Value, change: Value) -> Value {
    let mut device = device();
    let spec = device["spec"].as_object_mut().unwrap();
    spec.insert("parameters".to_owned(), json!({ "ip": "192.0.2.3" }));
    spec.insert("nodeSelector".to_owned(), selector.clone());
    spec.extend(change.as_object().unwrap().clone());
    device
}

/// The result of an attempt at node `n`, which has the value `w3` for each label that a selector of this file uses.
async fn outcome(device: Value, uuid: &str) -> (usize, String) {
    let mut fixture = Fixture { device: Some(device), ..Fixture::default() };
    let all = [HOSTNAME, BMC, "rack", "example.com/rack", "kubelet.kubernetes.io/a", "a.node.kubernetes.io/b"];
    let all = all.into_iter().chain(["topology.kubernetes.io/zone", "node-role.kubernetes.io/db"]);
    fixture.node["metadata"]["labels"] = all.map(|key| (key.to_owned(), json!("w3"))).collect();
    fixture.node["status"]["nodeInfo"]["systemUUID"] = json!(uuid);
    let harness = harness(fixture, |_, _| answer_with(Power::Off));
    harness.assert_outcome(Step::Attempt(target(tried("off"))), "written").await;
    let outcome = harness.written("nodefences")["status"]["attempts"][0]["outcome"].clone();
    let sent = harness.devices.orders.lock().iter().filter(|order| order.act == Act::Off).count();
    (sent, outcome.as_str().unwrap().to_owned())
}

/// A kubelet wrote `kubernetes.io/hostname: w3` on its own node, and the machine of w3 was switched off in its place.
#[tokio::test(start_paused = true)]
async fn attack_a_node_with_the_label_of_another_does_not_switch_its_machine() {
    let exists = json!({ "matchExpressions": [{ "key": "rack", "operator": "Exists" }] });
    let mixed = json!({ "matchLabels": { BMC: "w3", HOSTNAME: "w3" } });
    let of = |node: &str| json!({ "nodeParameters": { node: { "ip": "192.0.2.4" } } });
    let template = json!({ "parameters": { "ip": "{{.Node.Name}}.bmc" } });
    let none = json!({});
    for (selector, change, refused) in [
        (labels(HOSTNAME), none.clone(), Some(HOSTNAME)),
        (labels("rack"), none.clone(), Some("rack")),
        (labels("example.com/rack"), none.clone(), Some("example.com/rack")),
        (labels("kubelet.kubernetes.io/a"), none.clone(), Some("kubelet.kubernetes.io/a")),
        (labels("a.node.kubernetes.io/b"), none.clone(), Some("a.node.kubernetes.io/b")),
        (labels("topology.kubernetes.io/zone"), none.clone(), Some("topology.kubernetes.io/zone")),
        (exists, none.clone(), Some("rack")),
        (mixed, none.clone(), Some(HOSTNAME)),
        (labels(HOSTNAME), of("m"), Some(HOSTNAME)),
        (labels(HOSTNAME), of("n"), None),
        (labels(HOSTNAME), template, None),
        (labels(BMC), none.clone(), None),
        (labels("node-role.kubernetes.io/db"), none.clone(), None),
        (json!({}), none, None),
    ] {
        let (sent, message) = outcome(fixed(&selector, change.clone()), "uuid-1").await;
        assert_eq!(sent, usize::from(refused.is_none()), "{selector} {change}: {message}");
        if let Some(key) = refused {
            let ways_out = message.contains("nodeParameters") && message.contains("node-restriction.kubernetes.io/");
            assert!(message.contains(&format!("{key:?}")) && ways_out, "{message}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_parameters_of_a_node_replace_those_for_all_nodes_and_each_act_has_its_own_timeout() {
    let timeouts = json!({ "powerOff": "11s", "powerOn": "12s", "status": "13s" });
    let own = json!({ "nodeParameters": { "n": { "ip": "192.0.2.4" } }, "timeouts": timeouts });
    let device = Some(fixed(&json!({}), own));
    let harness = harness(Fixture { device, ..Fixture::default() }, |_, _| answer_with(Power::Off));
    harness.run_step(Step::Attempt(target(tried("off")))).await;
    harness.run_step(Step::Attempt(target(tried("on")))).await;
    harness.run_step(Step::Look(target(tried("off")))).await;
    let orders = harness.devices.orders.lock();
    for (act, seconds) in [(Act::Off, 11), (Act::On, 12), (Act::Look, 13)] {
        let order = orders.iter().find(|order| order.act == act).unwrap();
        let sent = (order.within, order.parameters["ip"].reveal());
        assert_eq!(sent, (Duration::from_secs(seconds), "192.0.2.4"), "{act:?}");
    }
}

/// A device that reports which machine it reaches, and whose identity check is required, switches no neighbour's.
#[tokio::test(start_paused = true)]
async fn a_device_that_requires_the_machine_identity_may_select_by_any_label() {
    const UUID: &str = "4c4c4544-0051-3610-8052-b4c04f4d3132";
    for (driver, check, uuid, used) in [
        ("Redfish", "Required", UUID, true),
        ("Redfish", "Required", "03000200-0400-0500-0006-000700080009", false),
        ("Redfish", "Required", "", false),
        ("Redfish", "BestEffort", UUID, false),
        ("Agent", "Required", UUID, false),
    ] {
        let device = fixed(&labels(HOSTNAME), json!({ "driver": driver, "identityCheck": check }));
        let (sent, message) = outcome(device, uuid).await;
        assert_eq!(sent, usize::from(used), "{driver} {check} {uuid:?}: {message}");
    }
}

/// The labels of a node whose object is gone are unknown, although it had them when the incident began.
#[tokio::test(start_paused = true)]
async fn attack_a_label_of_another_node_is_refused_after_the_node_is_gone() {
    let first: First = Arc::new(|request| (request.path == "/api/v1/nodes/n").then(ApiAnswer::not_found));
    let device = Some(fixed(&labels(HOSTNAME), json!({})));
    let harness = harness(Fixture { device, first, ..Fixture::default() }, |_, _| answer_with(Power::Off));
    harness.run_step(Step::Attempt(target(tried("off")))).await;
    assert!(harness.devices.orders.lock().is_empty());
}
