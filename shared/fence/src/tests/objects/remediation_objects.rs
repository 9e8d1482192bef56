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

/// A NodeClaim as Karpenter has it.
fn claim(name: &str, node: &str, provider: &str) -> Value {
    json!({
        "metadata": { "name": name, "uid": format!("uid-{name}"), "finalizers": ["karpenter.sh/termination"] },
        "spec": { "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" } },
        "status": { "nodeName": node, "providerID": provider },
    })
}

/// These are all.
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

fn scene_of(store: &Store, driver: &str) -> Scene {
    let mut there = There { device: Some(json!({ "spec": { "driver": driver } })), ..There::default() };
    let answers = store.clone();
    there.first = Arc::new(move |asked| answers.answer(asked));
    there.node["spec"]["providerID"] = json!("cloud:///n");
    there.node["metadata"]["annotations"] =
        json!({ "machine.openshift.io/machine": "openshift-machine-api/m" });
    scene(there, |_, _| panic!("no transport is asked"))
}

#[tokio::test(start_paused = true)]
async fn a_machine_or_a_claim_is_evidence_when_it_is_gone_and_not_while_it_is_being_deleted() {
    let claims = [claim("default-x7", "n", "cloud:///n"), claim("default-y8", "m", "cloud:///m")];
    for (driver, path, store) in
        [("OpenShiftMachine", OPENSHIFT, openshift()), ("NodeClaim", CLAIM, karpenter(&claims))]
    {
        let scene = scene_of(&store, driver);
        scene.tries().await;
        assert!(store.get(path).unwrap()["metadata"]["deletionTimestamp"].is_string(), "{driver}");
        let attempt = attempted(&scene);
        assert_eq!(attempt.objects[0].path, path);
        assert_eq!(
            check_power(&scene, attempt.clone()).await.power,
            Power::Unknown,
            "{driver}: it may still run"
        );
        store.0.lock().remove(path);
        let gone = check_power(&scene, attempt).await;
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
    let scene = scene_of(&store, "OpenShiftMachine");
    scene.tries().await;
    let outcome = attempted(&scene).outcome.unwrap();
    assert!(outcome.contains("is the machine \"\", and node n runs on \"cloud:///n\""), "{outcome}");
    assert!(store.get(OPENSHIFT).unwrap()["metadata"].get("deletionTimestamp").is_none());
}

/// Karpenter, or a person, deletes it: that is waited for, and not asked again.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_others_began_is_waited_for_and_not_begun_again() {
    let store = karpenter(&[claim("default-x7", "n", "cloud:///n")]);
    store.change(CLAIM, |claim| claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    let scene = scene_of(&store, "NodeClaim");
    let goes = async {
        scene.env.sleep(Duration::from_secs(20)).await;
        store.0.lock().remove(CLAIM);
    };
    futures::future::join(scene.tries(), goes).await;
    let attempt = attempted(&scene);
    assert!(attempt.outcome.as_deref().unwrap().contains("is gone"), "{attempt:?}");
    assert!(!scene.api.requests().iter().any(|asked| asked.method == "DELETE"));
    assert_eq!(check_power(&scene, attempt).await.power, Power::Off);
}

#[tokio::test(start_paused = true)]
async fn attack_an_object_that_is_not_plainly_this_nodes_is_not_deleted() {
    for (what, claims, says) in [
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
        let scene = scene_of(&store, "NodeClaim");
        scene.tries().await;
        let outcome = attempted(&scene).outcome.unwrap();
        assert!(outcome.contains(says), "{what}: {outcome}");
        assert!(!scene.api.requests().iter().any(|asked| asked.method == "DELETE"), "{what}");
    }
    let store = openshift();
    store.change(OPENSHIFT, |machine| machine["status"]["nodeRef"]["name"] = json!("m"));
    let scene = scene_of(&store, "OpenShiftMachine");
    scene.tries().await;
    let outcome = attempted(&scene).outcome.unwrap();
    assert!(outcome.contains("does not belong to node n: its status.nodeRef names \"m\""), "{outcome}");
    assert!(!scene.api.requests().iter().any(|asked| asked.method == "DELETE"));
}

/// A bring-your-own provider lets go of the Machine while its host runs on. Its end was evidence.
#[tokio::test(start_paused = true)]
async fn bug_a_machine_that_its_provider_only_forgets_was_off_when_it_was_gone() {
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
    for (scene, says) in [
        (with(&capi, remote.clone()), "its provider is RemoteMachine: its controller forgets the machine"),
        (with(&unknown, remote), "its provider is AcmeMachine of \"infrastructure.cluster.x-k8s.io\""),
        (scene_of(&bare, "OpenShiftMachine"), "Use the driver BareMetalHost"),
        (scene_of(&kwok, "NodeClaim"), "KWOKNodeClass"),
    ] {
        scene.tries().await;
        let attempt = attempted(&scene);
        let outcome = attempt.outcome.unwrap();
        assert!(outcome.contains(says) && outcome.contains("proves nothing"), "{outcome}");
        assert!(attempt.objects.is_empty(), "it is not looked for afterwards");
        assert!(!scene.api.requests().iter().any(|asked| asked.method == "DELETE"), "{says}");
    }
}

/// An attempt of an older version has it written down.
#[tokio::test(start_paused = true)]
async fn a_machine_that_became_another_providers_is_not_deleted_again() {
    let (store, spec) = machine_of("cloud:///n");
    let scene = with(&store, spec);
    scene.tries().await;
    let first = attempted(&scene);
    store.change(MACHINE, |machine| {
        machine["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
        machine["spec"]["infrastructureRef"]["kind"] = json!("ByoMachine");
    });
    let mut status = again(first.clone());
    status.attempts.push(crate::api::Attempt { objects: Vec::new(), outcome: None, verified: None, ..first });
    scene.run_step(Step::Attempt(target(status))).await;
    let outcome = attempted(&scene).outcome.unwrap();
    assert!(outcome.contains("its provider is ByoMachine"), "{outcome}");
    assert!(store.get(MACHINE).unwrap()["metadata"].get("deletionTimestamp").is_none());
}
