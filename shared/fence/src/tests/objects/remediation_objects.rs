//! Machines of OpenShift, and NodeClaims of Karpenter.

use super::*;
use crate::api::evidence_kind_of;

const OPENSHIFT: &str = "/apis/machine.openshift.io/v1beta1/namespaces/openshift-machine-api/machines/m";
const CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";
const CLAIM: &str = "/apis/karpenter.sh/v1/nodeclaims/default-x7";

fn served(store: &Store, group: &str, version: &str) {
    let version = json!({ "preferredVersion": { "groupVersion": format!("{group}/{version}") } });
    store.put(&format!("/apis/{group}"), version);
}

fn openshift() -> Store {
    let store = Store::default();
    served(&store, "machine.openshift.io", "v1beta1");
    let machine = json!({
        "metadata": { "uid": "uid-m", "finalizers": ["machine.machine.openshift.io"] },
        "spec": { "providerID": "cloud:///n", "providerSpec": { "value": {
            "apiVersion": "machine.openshift.io/v1beta1", "kind": "AWSMachineProviderConfig" } } },
        "status": { "nodeRef": { "name": "n", "uid": "uid-n" } },
    });
    store.put(OPENSHIFT, machine);
    store
}

/// A NodeClaim of Karpenter.
fn claim(name: &str, node: &str, provider: &str) -> Value {
    json!({
        "metadata": { "name": name, "uid": format!("uid-{name}"), "finalizers": ["karpenter.sh/termination"] },
        "spec": { "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" } },
        "status": { "nodeName": node, "providerID": provider },
    })
}

/// The list of all NodeClaims.
fn karpenter(claims: &[Value]) -> Store {
    let store = Store::default();
    served(&store, "karpenter.sh", "v1");
    store.put(CLAIMS, json!({ "items": claims }));
    for one in claims {
        store.put(&format!("{CLAIMS}/{}", text(one, "/metadata/name")), one.clone());
    }
    store
}

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn harness_for(store: &Store, driver: &str) -> Harness {
    let mut fixture = Fixture { device: Some(json!({ "spec": { "driver": driver } })), ..Fixture::default() };
    let answers = store.clone();
    fixture.first = Arc::new(move |request| answers.answer(request));
    fixture.node["spec"]["providerID"] = json!("cloud:///n");
    fixture.node["metadata"]["annotations"] = json!({ "machine.openshift.io/machine": "openshift-machine-api/m" });
    harness(fixture, |_, _| panic!("no transport is used"))
}

#[tokio::test(start_paused = true)]
async fn a_machine_or_node_claim_is_off_when_gone_and_not_while_terminating() {
    let claims = [claim("default-x7", "n", "cloud:///n"), claim("default-y8", "m", "cloud:///m")];
    for (driver, path, store) in
        [("OpenShiftMachine", OPENSHIFT, openshift()), ("NodeClaim", CLAIM, karpenter(&claims))]
    {
        let harness = harness_for(&store, driver);
        harness.run_off_attempt().await;
        assert!(store.get(path).unwrap()["metadata"]["deletionTimestamp"].is_string(), "{driver}");
        let attempt = attempted(&harness);
        assert_eq!(attempt.objects[0].path, path);
        assert_eq!(check_power(&harness, attempt.clone()).await.power, Power::Unknown, "{driver}: it may still run");
        store.0.lock().remove(path);
        let gone = check_power(&harness, attempt).await;
        let kind = evidence_kind_of(&gone.samples);
        assert_eq!((gone.power, kind), (Power::Off, FenceEvidenceKind::Decommissioned), "{driver}");
    }
    assert!(karpenter(&claims).get(&format!("{CLAIMS}/default-y8")).is_some());
}

/// A user who can write a Machine can write the UID of any Node into it.
#[tokio::test(start_paused = true)]
async fn a_machine_without_a_provider_id_belongs_to_no_node() {
    let store = openshift();
    store.change(OPENSHIFT, |machine| machine["spec"]["providerID"] = json!(""));
    let harness = harness_for(&store, "OpenShiftMachine");
    harness.run_off_attempt().await;
    let outcome = attempted(&harness).outcome.unwrap();
    assert!(outcome.contains("is the machine \"\", and node n runs on \"cloud:///n\""), "{outcome}");
    assert!(store.get(OPENSHIFT).unwrap()["metadata"].get("deletionTimestamp").is_none());
}

/// Karpenter, or an operator, deletes it: the deletion is waited for, and not repeated.
#[tokio::test(start_paused = true)]
async fn an_object_that_is_terminating_already_is_not_deleted_again() {
    let store = karpenter(&[claim("default-x7", "n", "cloud:///n")]);
    store.change(CLAIM, |claim| claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    let harness = harness_for(&store, "NodeClaim");
    let goes = async {
        harness.env.sleep(Duration::from_secs(20)).await;
        store.0.lock().remove(CLAIM);
    };
    futures::future::join(harness.run_off_attempt(), goes).await;
    let attempt = attempted(&harness);
    assert!(attempt.outcome.as_deref().unwrap().contains("is gone"), "{attempt:?}");
    assert!(!harness.api.requests().iter().any(|request| request.method == "DELETE"));
    assert_eq!(check_power(&harness, attempt).await.power, Power::Off);
}

#[tokio::test(start_paused = true)]
async fn attack_an_object_without_one_clear_reference_to_the_node_is_not_deleted() {
    for (what, claims, expected) in [
        ("of another node", vec![claim("default-x7", "m", "cloud:///n")], "no NodeClaim belongs to node n"),
        ("another instance", vec![claim("default-x7", "n", "cloud:///m")], "is the machine \"cloud:///m\""),
        ("no instance yet", vec![claim("default-x7", "n", "")], "is the machine"),
        (
            "a tenant wrote one more",
            vec![claim("default-x7", "n", "cloud:///n"), claim("evil", "n", "cloud:///m")],
            "several objects of kind NodeClaim name node n: default-x7, evil",
        ),
    ] {
        let store = karpenter(&claims);
        let harness = harness_for(&store, "NodeClaim");
        harness.run_off_attempt().await;
        let outcome = attempted(&harness).outcome.unwrap();
        assert!(outcome.contains(expected), "{what}: {outcome}");
        assert!(!harness.api.requests().iter().any(|request| request.method == "DELETE"), "{what}");
    }
    let store = openshift();
    store.change(OPENSHIFT, |machine| machine["status"]["nodeRef"]["name"] = json!("m"));
    let harness = harness_for(&store, "OpenShiftMachine");
    harness.run_off_attempt().await;
    let outcome = attempted(&harness).outcome.unwrap();
    assert!(outcome.contains("does not belong to node n: its status.nodeRef names \"m\""), "{outcome}");
    assert!(!harness.api.requests().iter().any(|request| request.method == "DELETE"));
}

/// A bring-your-own provider removes its finalizer while the host runs on. The Machine's end was evidence.
#[tokio::test(start_paused = true)]
async fn bug_a_machine_of_a_provider_that_powers_nothing_off_was_off_when_gone() {
    let (capi, remote) = machine_of("cloud:///n");
    capi.change(MACHINE, |machine| machine["spec"]["infrastructureRef"]["kind"] = json!("RemoteMachine"));
    let (unknown, _) = machine_of("cloud:///n");
    unknown.change(MACHINE, |machine| machine["spec"]["infrastructureRef"]["kind"] = json!("AcmeMachine"));
    let bare = openshift();
    let spec = json!("BareMetalMachineProviderSpec");
    bare.change(OPENSHIFT, |machine| machine["spec"]["providerSpec"]["value"]["kind"] = spec);
    let kwok = karpenter(&[claim("default-x7", "n", "cloud:///n")]);
    let class = json!({ "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass" });
    kwok.change(CLAIMS, |all| all["items"][0]["spec"]["nodeClassRef"] = class);
    for (harness, expected) in [
        (with(&capi, remote.clone()), "its provider is RemoteMachine: its controller forgets the machine"),
        (with(&unknown, remote), "its provider is AcmeMachine of \"infrastructure.cluster.x-k8s.io\""),
        (harness_for(&bare, "OpenShiftMachine"), "Use the driver BareMetalHost"),
        (harness_for(&kwok, "NodeClaim"), "KWOKNodeClass"),
    ] {
        harness.run_off_attempt().await;
        let attempt = attempted(&harness);
        let outcome = attempt.outcome.unwrap();
        assert!(outcome.contains(expected) && outcome.contains("proves nothing"), "{outcome}");
        assert!(attempt.objects.is_empty(), "it is not looked for afterwards");
        assert!(!harness.api.requests().iter().any(|request| request.method == "DELETE"), "{expected}");
    }
}

/// An attempt of an older version recorded it.
#[tokio::test(start_paused = true)]
async fn a_recorded_machine_whose_provider_changed_is_not_deleted() {
    let (store, spec) = machine_of("cloud:///n");
    let harness = with(&store, spec);
    harness.run_off_attempt().await;
    let first = attempted(&harness);
    store.change(MACHINE, |machine| {
        machine["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
        machine["spec"]["infrastructureRef"]["kind"] = json!("ByoMachine");
    });
    let mut status = again(first.clone());
    status.attempts.push(crate::api::Attempt { objects: Vec::new(), outcome: None, verified: None, ..first });
    harness.run_step(Step::Attempt(target(status))).await;
    let outcome = attempted(&harness).outcome.unwrap();
    assert!(outcome.contains("its provider is ByoMachine"), "{outcome}");
    assert!(store.get(MACHINE).unwrap()["metadata"].get("deletionTimestamp").is_none());
}
