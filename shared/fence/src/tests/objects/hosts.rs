//! BareMetalHosts of Metal3, whose operator is scripted.

use super::*;
use crate::api::{IdentityMatch, evidence_kind_of};

const MACHINES: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/capi/machines/m";
const HOSTS: &str = "/apis/metal3.io/v1alpha1/namespaces/capi/baremetalhosts";
const HOST: &str = "/apis/metal3.io/v1alpha1/namespaces/capi/baremetalhosts/rack-7";
const HOLD: &str = "reboot.metal3.io/pod-safety";

fn host(name: &str, consumer: &str) -> Value {
    let consumer = json!({ "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine",
        "namespace": "capi", "name": consumer });
    json!({
        "metadata": { "namespace": "capi", "name": name, "uid": format!("uid-{name}"), "annotations": {} },
        "spec": { "online": true, "consumerRef": consumer },
        "status": { "poweredOn": true, "operationalStatus": "OK", "provisioning": { "state": "provisioned" } },
    })
}

fn rack(hosts: &[Value]) -> Store {
    let store = Store::default();
    for (group, version) in [("metal3.io", "v1alpha1"), ("cluster.x-k8s.io", "v1beta2")] {
        let version = json!({ "preferredVersion": { "groupVersion": format!("{group}/{version}") } });
        store.put(&format!("/apis/{group}"), version);
    }
    let machine = json!({
        "metadata": { "namespace": "capi", "name": "m", "uid": "uid-m" },
        "spec": { "providerID": "cloud:///n", "infrastructureRef": { "kind": "Metal3Machine", "name": "m3m-1" } },
        "status": { "nodeRef": { "name": "n" } },
    });
    let near = hosts.iter().filter(|host| host["metadata"]["namespace"] == "capi").collect::<Vec<_>>();
    store.put(MACHINES, machine).put(HOSTS, json!({ "items": near }));
    store.put("/apis/metal3.io/v1alpha1/baremetalhosts", json!({ "items": hosts }));
    for one in hosts {
        let name = one["metadata"]["name"].as_str().unwrap();
        store.put(&format!("/apis/metal3.io/v1alpha1/namespaces/capi/baremetalhosts/{name}"), one.clone());
    }
    store
}

fn two() -> Store {
    rack(&[host("rack-7", "m3m-1"), host("rack-8", "m3m-2")])
}

fn held(store: &Store) -> Option<Value> {
    store.get(HOST).unwrap()["metadata"]["annotations"].get(HOLD).filter(|hold| !hold.is_null()).cloned()
}

fn harness_for(store: &Store) -> Harness {
    with(store, json!({ "spec": { "driver": "BareMetalHost", "identityCheck": "Required" } }))
}

/// The scripted operator switches the host as the annotation requests, after some seconds.
async fn operator(harness: &Harness, store: &Store) {
    while held(store).is_none() {
        harness.env.sleep(Duration::from_secs(1)).await;
    }
    harness.env.sleep(Duration::from_secs(9)).await;
    store.change(HOST, |host| host["status"]["poweredOn"] = json!(false));
}

/// A host that the operator has switched off.
async fn fenced() -> (Store, Harness, crate::api::Attempt) {
    let store = two();
    let harness = harness_for(&store);
    futures::future::join(harness.run_off_attempt(), operator(&harness, &store)).await;
    let attempt = attempted(&harness);
    (store, harness, attempt)
}

#[tokio::test(start_paused = true)]
async fn a_host_has_the_power_off_annotation_until_the_incident_is_over() {
    let (store, harness, attempt) = fenced().await;
    assert_eq!(attempt.objects[0].path, HOST);
    let hold: Value = serde_json::from_str(held(&store).unwrap().as_str().unwrap()).unwrap();
    assert_eq!(hold, json!({ "mode": "hard", "fence": "uid-nf" }), "not softly, and by this incident");
    assert_eq!(store.get(HOST).unwrap()["spec"]["online"], true, "that field is its owner's");
    assert!(attempt.outcome.as_deref().unwrap().contains("poweredOn false"), "{attempt:?}");
    let off = check_power(&harness, attempt.clone()).await;
    assert_eq!((off.power, evidence_kind_of(&off.samples)), (Power::Off, FenceEvidenceKind::PowerOff));
    assert_eq!(off.samples[0].identity, IdentityMatch::Match);

    let done = target(NodeFenceStatus { phase: Phase::Done, ..again(attempt) });
    harness.assert_outcome(Step::Write(done), "written").await;
    assert_eq!(held(&store), None);
    let other = store.get(HOST.replace("7", "8").as_str()).unwrap();
    assert_eq!(other["metadata"]["annotations"], json!({}), "the neighbour's host");
}

/// Its operator was down, and its last read was older than the boot of the host: that was evidence.
#[tokio::test(start_paused = true)]
async fn bug_a_power_state_that_the_operator_did_not_read_again_was_evidence() {
    let store = two();
    store.change(HOST, |host| host["status"]["poweredOn"] = json!(false));
    let harness = harness_for(&store);
    harness.run_off_attempt().await;
    let attempt = attempted(&harness);
    assert!(held(&store).is_some() && attempt.met.is_empty(), "the annotation is there: {attempt:?}");
    let verified = check_power(&harness, attempt).await;
    assert_eq!(verified.power, Power::Unknown);
    assert!(verified.message.contains("was not seen on before"), "{verified:?}");
}

/// It was on when the annotation was written, whether the operator could reach the host or not. So it has read the power
/// since.
#[tokio::test(start_paused = true)]
async fn a_host_that_its_operator_switches_off_after_the_first_attempt_is_proved_off() {
    for operational in ["OK", "error"] {
        let store = two();
        store.change(HOST, |host| host["status"]["operationalStatus"] = json!(operational));
        let harness = harness_for(&store);
        harness.run_off_attempt().await;
        let mut status = tried("off");
        status.attempts.insert(0, attempted(&harness));
        store.change(HOST, |host| {
            (host["status"]["poweredOn"], host["status"]["operationalStatus"]) = (json!(false), json!("OK"));
        });
        harness.assert_outcome(Step::Attempt(target(status)), "written").await;
        let written = harness.written("nodefences")["status"].clone();
        let status: NodeFenceStatus = serde_json::from_value(written).unwrap();
        harness.assert_outcome(Step::Look(target(status)), "written").await;
        assert_eq!(attempted(&harness).verified.unwrap().power, Power::Off, "{operational}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_annotation_of_another_incident_stays() {
    let (store, harness, attempt) = fenced().await;
    let of_another = json!("{\"mode\":\"hard\",\"fence\":\"uid-other\"}");
    store.change(HOST, |host| host["metadata"]["annotations"][HOLD] = of_another.clone());
    let done = target(NodeFenceStatus { phase: Phase::Done, ..again(attempt) });
    harness.assert_outcome(Step::Write(done), "written").await;
    assert_eq!(held(&store), Some(of_another));
}

/// The cases of the operator's documentation in which `poweredOn: false` does not mean that the machine is off and
/// stays off.
#[tokio::test(start_paused = true)]
async fn attack_powered_off_in_a_state_the_operator_does_not_read_is_no_evidence() {
    type Change = fn(&mut Value);
    let rows: [(&str, Change); 9] = [
        ("paused", |host| host["metadata"]["annotations"]["baremetalhost.metal3.io/paused"] = json!("")),
        ("detached", |host| host["metadata"]["annotations"]["baremetalhost.metal3.io/detached"] = json!("true")),
        ("disablePowerOff", |host| host["spec"]["disablePowerOff"] = json!(true)),
        ("\"deprovisioning\"", |host| host["status"]["provisioning"]["state"] = json!("deprovisioning")),
        ("\"error\"", |host| host["status"]["operationalStatus"] = json!("error")),
        ("is missing", |host| host["metadata"]["annotations"] = json!({})),
        ("poweredOn null", |host| host["status"]["poweredOn"] = Value::Null),
        ("poweredOn true", |host| host["status"]["poweredOn"] = json!(true)),
        ("is gone", |host| host["metadata"]["uid"] = json!("another")),
    ];
    for (expected, change) in rows {
        let (store, harness, attempt) = fenced().await;
        store.change(HOST, change);
        let verified = check_power(&harness, attempt).await;
        assert_ne!(verified.power, Power::Off, "{expected}");
        assert!(verified.samples[0].said.contains(expected), "{expected}: {:?}", verified.samples);
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_its_operator_would_not_keep_off_gets_no_order() {
    for (field, value, expected) in [
        ("/spec/disablePowerOff", json!(true), "would reboot it instead"),
        ("/status/provisioning/state", json!("provisioning"), "does not switch it"),
        ("/metadata/annotations", json!({ "baremetalhost.metal3.io/paused": "" }), "does not manage it"),
    ] {
        let store = two();
        store.change(HOST, |host| {
            let (parent, key) = field.rsplit_once('/').unwrap();
            host.pointer_mut(parent).unwrap()[key] = value;
        });
        let harness = harness_for(&store);
        harness.run_off_attempt().await;
        let outcome = attempted(&harness).outcome.unwrap();
        assert!(outcome.contains(expected), "{outcome}");
        assert_eq!(held(&store), None, "{field}");
    }
}

/// The Machine names the node, and the host names the Machine: a kubelet writes neither.
#[tokio::test(start_paused = true)]
async fn attack_a_host_without_one_clear_reference_to_the_node_is_not_switched() {
    let mut foreign = host("rack-7", "m3m-1");
    foreign["spec"]["consumerRef"]["apiVersion"] = json!("evil.example.com/v1");
    for (what, hosts, expected) in [
        ("of another machine", vec![host("rack-7", "m3m-2")], "0 BareMetalHosts are consumed"),
        ("two of them", vec![host("rack-7", "m3m-1"), host("evil", "m3m-1")], "2 BareMetalHosts are consumed"),
        ("of another project", vec![foreign], "0 BareMetalHosts are consumed"),
    ] {
        let store = rack(&hosts);
        let harness = harness_for(&store);
        harness.run_off_attempt().await;
        let outcome = attempted(&harness).outcome.unwrap();
        assert!(outcome.contains(expected), "{what}: {outcome}");
        assert_eq!(held(&store), None, "{what}");
    }
    let store = two();
    store.change(MACHINES, |machine| machine["status"]["nodeRef"]["name"] = json!("m"));
    let harness = harness_for(&store);
    harness.run_off_attempt().await;
    let outcome = attempted(&harness).outcome.unwrap();
    assert!(outcome.contains("does not belong to node n"), "{outcome}");
    assert_eq!(held(&store), None);
}

/// A tenant's host in a namespace of their own names the Machine as its consumer, too: then there were two.
#[tokio::test(start_paused = true)]
async fn attack_a_host_in_a_tenants_namespace_does_not_prevent_fencing() {
    let mut evil = host("evil", "m3m-1");
    evil["metadata"]["namespace"] = json!("tenant");
    let store = rack(&[host("rack-7", "m3m-1"), evil]);
    let harness = harness_for(&store);
    let long_enough = tokio::time::timeout(Duration::from_secs(120), operator(&harness, &store));
    let (_, annotated) = futures::future::join(harness.run_off_attempt(), long_enough).await;
    assert!(annotated.is_ok(), "its operator got no order: {:?}", attempted(&harness).outcome);
}
