//! Devices that are the same for every node, and the labels by which they choose one.

use super::*;

const HOSTNAME: &str = "kubernetes.io/hostname";
const BMC: &str = "node-restriction.kubernetes.io/bmc";

fn labels(key: &str) -> Value {
    json!({ "matchLabels": { key: "w3" } })
}

/// A device with one address; `change` makes more of it.
fn fixed(selector: &Value, change: Value) -> Value {
    let mut device = device();
    let spec = device["spec"].as_object_mut().unwrap();
    spec.insert("parameters".to_owned(), json!({ "ip": "192.0.2.3" }));
    spec.insert("nodeSelector".to_owned(), selector.clone());
    spec.extend(change.as_object().unwrap().clone());
    device
}

/// What an attempt at node `n` comes to, which calls itself `w3` by each label that any selector of this file has.
async fn outcome(device: Value, uuid: &str) -> (usize, String) {
    let mut there = There { device: Some(device), ..There::default() };
    let all =
        [HOSTNAME, BMC, "rack", "example.com/rack", "kubelet.kubernetes.io/a", "a.node.kubernetes.io/b"];
    let all = all.into_iter().chain(["topology.kubernetes.io/zone", "node-role.kubernetes.io/db"]);
    there.node["metadata"]["labels"] = all.map(|key| (key.to_owned(), json!("w3"))).collect();
    there.node["status"]["nodeInfo"]["systemUUID"] = json!(uuid);
    let scene = scene(there, |_, _| answer_with(Power::Off));
    scene.ends(Step::Attempt(target(tried("off"))), "written").await;
    let outcome = scene.written("nodefences")["status"]["attempts"][0]["outcome"].clone();
    let asked = scene.devices.asked.lock().iter().filter(|order| order.act == Act::Off).count();
    (asked, outcome.as_str().unwrap().to_owned())
}

/// Finding 3c of the security review: a kubelet wrote `kubernetes.io/hostname: w3` on its own node, and the machine of w3 was
/// switched off in its place.
#[tokio::test(start_paused = true)]
async fn attack_a_node_that_takes_the_label_of_a_neighbour_does_not_have_its_machine_switched() {
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
        let (asked, said) = outcome(fixed(&selector, change.clone()), "uuid-1").await;
        assert_eq!(asked, usize::from(refused.is_none()), "{selector} {change}: {said}");
        if let Some(key) = refused {
            let ways_out =
                said.contains("nodeParameters") && said.contains("node-restriction.kubernetes.io/");
            assert!(said.contains(&format!("{key:?}")) && ways_out, "{said}");
        }
    }
}

/// A device that says which machine it reaches, and must, switches no neighbour's.
#[tokio::test(start_paused = true)]
async fn a_device_that_must_say_which_machine_it_is_may_choose_by_any_label() {
    const UUID: &str = "4c4c4544-0051-3610-8052-b4c04f4d3132";
    for (driver, check, uuid, used) in [
        ("Redfish", "Required", UUID, true),
        ("Redfish", "Required", "03000200-0400-0500-0006-000700080009", false),
        ("Redfish", "Required", "", false),
        ("Redfish", "BestEffort", UUID, false),
        ("Agent", "Required", UUID, false),
    ] {
        let device = fixed(&labels(HOSTNAME), json!({ "driver": driver, "identityCheck": check }));
        let (asked, said) = outcome(device, uuid).await;
        assert_eq!(asked, usize::from(used), "{driver} {check} {uuid:?}: {said}");
    }
}

/// Of a node whose object is gone nobody knows the labels, and it had them when the incident began.
#[tokio::test(start_paused = true)]
async fn attack_the_label_of_a_neighbour_is_refused_after_the_node_is_gone() {
    let first: First = Arc::new(|asked| (asked.path == "/api/v1/nodes/n").then(Says::not_found));
    let device = Some(fixed(&labels(HOSTNAME), json!({})));
    let scene = scene(There { device, first, ..There::default() }, |_, _| answer_with(Power::Off));
    scene.run_step(Step::Attempt(target(tried("off")))).await;
    assert!(scene.devices.asked.lock().is_empty());
}
