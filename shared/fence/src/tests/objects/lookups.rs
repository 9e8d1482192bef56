//! How the object of a node is found, and the addresses by which the node reaches a storage.

use super::*;

const BOOT: &str = "b0000000-0000-4000-8000-000000000001";
const NEXT_BOOT: &str = "b0000000-0000-4000-8000-000000000002";

const MACHINES: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/capi/machines";

fn listed(name: &str, node: &str, uid: &str) -> Value {
    json!({ "metadata": { "name": name, "namespace": "capi", "uid": format!("uid-{name}"), "finalizers": ["f"] },
        "spec": { "providerID": "cloud:///n", "infrastructureRef": aws() },
        "status": { "nodeRef": { "name": node, "uid": uid } } })
}

/// The node runs on this machine, and names no Machine.
fn unnamed(store: &Store, spec: Value) -> Harness {
    let answers = store.clone();
    let mut fixture =
        Fixture { first: Arc::new(move |request| answers.answer(request)), device: Some(spec), ..Fixture::default() };
    fixture.node["spec"]["providerID"] = json!("cloud:///n");
    harness(fixture, |_, _| panic!("no transport is used"))
}

/// The Machine that is found for a node that does not name it.
async fn machine_among(machines: Value) -> Result<String, String> {
    let (store, mut spec) = machine_of("cloud:///n");
    spec["spec"]["namespaces"] = json!(["capi"]);
    // A single list of all Machines of a large cluster exceeded the limit of an answer, and none was found.
    store.put(MACHINES, json!({ "metadata": { "continue": "more" }, "items": [listed("z", "z", "")] }));
    store.put(&format!("{MACHINES}?continue=more"), json!({ "items": machines }));
    let harness = unnamed(&store, spec);
    harness.run_step(Step::Attempt(target(tried("off")))).await;
    let attempt = attempted(&harness);
    match attempt.objects.first() {
        Some(object) => Ok(object.path.rsplit('/').next().unwrap().to_owned()),
        None => Err(attempt.outcome.unwrap_or_default()),
    }
}

#[tokio::test(start_paused = true)]
async fn without_annotations_the_machine_that_references_the_node_is_found() {
    for (what, machines, expected) in [
        ("by name and UID", json!([listed("a", "m", "uid-m"), listed("b", "n", "uid-n")]), Some("b")),
        ("by name alone, where it knows no UID", json!([listed("b", "n", "")]), Some("b")),
        ("not that of an earlier Node of its name", json!([listed("b", "n", "uid-old")]), None),
        ("not that of another node with its UID", json!([listed("b", "m", "uid-n")]), None),
        ("not one of no node", json!([listed("b", "", "")]), None),
    ] {
        let machine = machine_among(machines).await;
        match expected {
            Some(name) => assert_eq!(machine.as_deref(), Ok(name), "{what}"),
            None => assert!(
                machine.as_ref().is_err_and(|message| message.contains("no Machine belongs to node n")),
                "{what}: {machine:?}"
            ),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_remediation_has_its_own_success_condition() {
    for (kind, own, condition, power) in [
        ("FarTemplate", None, "Succeeded", "Off"),
        ("FarTemplate", None, "FencingSucceeded", "Unknown"),
        // `Succeeded` is set after it deleted the pods, which is denied without evidence.
        ("FenceAgentsRemediationTemplate", None, "FenceAgentActionSucceeded", "Off"),
        ("FenceAgentsRemediationTemplate", None, "Succeeded", "Unknown"),
        ("FenceAgentsRemediationTemplate", Some("Succeeded"), "Succeeded", "Off"),
        ("StorageBasedRemediationTemplate", None, "FencingSucceeded", "Off"),
        ("StorageBasedRemediationTemplate", None, "Succeeded", "Unknown"),
        ("StorageBasedRemediationTemplate", Some("Done"), "Done", "Off"),
        ("StorageBasedRemediationTemplate", Some("Done"), "FencingSucceeded", "Unknown"),
    ] {
        let (store, mut spec) = external();
        let made = kind.strip_suffix("Template").unwrap();
        let kinds = json!([{ "name": "fars", "kind": made }, { "name": "fartemplates", "kind": kind }]);
        store.put(FAR, json!({ "resources": kinds }));
        spec["spec"]["external"]["templateRef"]["kind"] = json!(kind);
        if let Some(own) = own {
            spec["spec"]["external"]["successCondition"] = json!(own);
        }
        let harness = with(&store, spec);
        harness.run_step(Step::Attempt(target(tried("off")))).await;
        let attempt = attempted(&harness);
        let conditions = json!([{ "type": condition, "status": "True" }]);
        store.change(MADE, |object| object["status"] = json!({ "conditions": conditions }));
        harness.run_step(Step::Look(target(again(attempt)))).await;
        let reported = attempted(&harness).verified.unwrap().power;
        assert_eq!(reported == Power::Off, power == "Off", "{kind} {own:?} says {condition}: {reported}");
    }
}

/// Its `Succeeded` is set after it deleted the pods, which is denied without evidence.
#[tokio::test(start_paused = true)]
async fn bug_a_self_node_remediation_was_off_only_after_it_had_deleted_the_pods() {
    for (own, phase, power) in [
        (None, "Fencing-Started", "Unknown"),
        (None, "Pre-Reboot-Completed", "Unknown"),
        (None, "Reboot-Completed", "Off"),
        (None, "Fencing-Completed", "Off"),
        (Some("Succeeded"), "Reboot-Completed", "Unknown"),
    ] {
        let (store, mut spec) = external();
        let kinds = json!([{ "name": "fars", "kind": "SelfNodeRemediation" },
            { "name": "fartemplates", "kind": "SelfNodeRemediationTemplate" }]);
        store.put(FAR, json!({ "resources": kinds }));
        spec["spec"]["external"]["templateRef"]["kind"] = json!("SelfNodeRemediationTemplate");
        if let Some(own) = own {
            spec["spec"]["external"]["successCondition"] = json!(own);
        }
        let harness = with(&store, spec);
        harness.run_off_attempt().await;
        let processing = json!([{ "type": "Processing", "status": "True" }]);
        store.change(MADE, |made| made["status"] = json!({ "phase": phase, "conditions": processing }));
        assert_eq!(check_power(&harness, attempted(&harness)).await.power.name(), power, "{own:?} {phase}");
    }
}

const CLIENTS: &str = "/apis/csiaddons.openshift.io/v1alpha1/namespaces/rook-ceph/csiaddonsnodes";

/// A CSIAddonsNode with this address of the node.
fn client(node: &str, class: &str, cidr: &str) -> Value {
    json!({ "spec": { "driver": { "nodeID": node } }, "status": { "networkFenceClientStatus": [
        { "networkFenceClassName": class, "ClientDetails": [{ "cidrs": [cidr] }] }] } })
}

/// The addresses that a check of the device records, and their boot ID.
async fn recorded(ready: &str, client_list: Option<Value>) -> (Value, Value) {
    let (store, spec) = network(&["10.0.0.9/32"]);
    if let Some(client_list) = client_list {
        store.put(CLIENTS, json!({ "metadata": { "continue": "more" }, "items": [client("z", "rbd", "10.0.0.8/32")] }));
        store.put(&format!("{CLIENTS}?continue=more"), json!({ "items": client_list }));
    }
    let answers = store.clone();
    let mut fixture =
        Fixture { first: Arc::new(move |request| answers.answer(request)), device: Some(spec), ..Fixture::default() };
    fixture.node["status"]["conditions"][0]["status"] = json!(ready);
    fixture.node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT);
    let harness = harness(fixture, |_, _| panic!("no transport is used"));
    assert_eq!(harness.run_monitor(&monitor_request(&["n"], true)).await.name(), "written");
    let target = harness.written("/fencedevices/bmc/status")["status"]["targets"][0].clone();
    (target["clients"].clone(), target["bootID"].clone())
}

#[tokio::test(start_paused = true)]
async fn addresses_are_recorded_while_the_node_reports_and_kept_afterwards() {
    let ours = || {
        json!([client("n", "rbd", "10.0.0.1/32"), client("m", "rbd", "10.0.0.2/32"), client("n", "nfs", "10.0.0.3/32")])
    };
    let kept = (json!(["10.0.0.9/32"]), json!(BOOT));
    assert_eq!(recorded("True", Some(ours())).await, (json!(["10.0.0.1/32"]), json!(NEXT_BOOT)));
    for status in ["Unknown", "False"] {
        assert_eq!(recorded(status, Some(ours())).await, kept, "Ready={status}: a storage may name another's by now");
    }
    assert_eq!(recorded("True", Some(json!([client("m", "rbd", "10.0.0.2/32")]))).await, kept, "nobody says");
    assert_eq!(recorded("True", None).await, kept, "nobody can say");
    let whole = json!([client("n", "rbd", "0.0.0.0/0")]);
    assert_eq!(recorded("True", Some(whole)).await, kept, "attack: the storage of everybody");
    let shared = json!([client("n", "rbd", "10.0.0.1/32"), client("m", "rbd", "10.0.0.1/32")]);
    assert_eq!(recorded("True", Some(shared)).await, kept, "attack: the storage of a neighbour");
    for (neighbour, other_spelling) in
        [("fd00::1/128", "FD00::1/128"), ("fd00::1/128", "fd00:0:0::1/128"), ("10.0.0.1/32", "::ffff:10.0.0.1/128")]
    {
        let same = json!([client("n", "rbd", other_spelling), client("m", "rbd", neighbour)]);
        assert_eq!(recorded("True", Some(same)).await, kept, "attack: {other_spelling} is a neighbour's");
        let alone = json!([client("n", "rbd", other_spelling)]);
        let (cidrs, _) = recorded("True", Some(alone)).await;
        assert_eq!(cidrs, json!([neighbour]), "{other_spelling} is kept in one spelling");
    }
}

/// Evidence of this name exists already.
async fn proved(existing: Value) -> (String, Vec<String>) {
    let store = Store::default();
    let path = format!("{PROOFS}/{}", incident_name(&incarnation()));
    store.put(PROOFS, json!({})).put(&path, existing);
    let answers = store.clone();
    let harness =
        harness(Fixture { first: Arc::new(move |request| answers.answer(request)), ..Fixture::default() }, |_, _| None);
    let ended = harness.run_step(Step::Prove(target(checked_status("Off")))).await.name().to_owned();
    (ended, harness.log())
}

#[tokio::test(start_paused = true)]
async fn existing_evidence_is_reused_only_if_it_holds_for_the_same_incarnation() {
    let existing = |kind: &str, boot: &str| {
        json!({ "metadata": { "name": "e", "uid": "uid-e" }, "spec": { "node": { "name": "n", "uid": "uid-n", "bootID": boot },
            "kind": kind, "by": "p", "fence": "n-1" } })
    };
    let mut invalid = existing("PowerOff", BOOT);
    invalid["status"] = json!({ "invalidated": { "at": "t", "reason": "heard" } });
    let created = EVIDENCE.to_owned();
    for (what, existing, ended, writes) in [
        ("the same", existing("PowerOff", BOOT), "written", vec![created.clone(), STATUS.to_owned()]),
        (
            "of another incarnation",
            existing("PowerOff", "b0000000-0000-4000-8000-000000000000"),
            "changed",
            vec![created.clone()],
        ),
        ("of storage alone", existing("StorageFenced", BOOT), "changed", vec![created.clone()]),
        ("that was invalidated", invalid, "changed", vec![created]),
    ] {
        assert_eq!(proved(existing).await, (ended.to_owned(), writes), "evidence {what}");
    }
}

/// A tenant with all verbs in a namespace of their own writes a Machine there that names another node. Its deletion
/// was evidence that the node is off.
#[tokio::test(start_paused = true)]
async fn attack_a_machine_in_a_tenants_namespace_proves_nothing() {
    const THEIRS: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/tenant/machines/evil";
    type Change = fn(&mut Value, &mut Value);
    let rows: [(&str, Change); 5] = [
        ("the annotations of node n name no Machine", |_, _| {}),
        ("no Machine belongs to node n", |spec, _| spec["namespaces"] = json!(["capi"])),
        ("is the machine \"\"", |spec, evil| {
            spec["namespaces"] = json!(["capi", "tenant"]);
            evil["spec"] = json!({});
        }),
        ("is the machine \"cloud:///m\"", |spec, evil| {
            spec["namespaces"] = json!(["tenant"]);
            evil["spec"]["providerID"] = json!("cloud:///m");
        }),
        ("has no finalizer", |spec, evil| {
            spec["namespaces"] = json!(["tenant"]);
            evil["metadata"]["finalizers"] = json!([]);
        }),
    ];
    for (expected, change) in rows {
        let (store, _) = machine_of("cloud:///n");
        let mut evil = listed("evil", "n", "");
        evil["metadata"]["namespace"] = json!("tenant");
        let mut spec = json!({ "driver": "Machine" });
        change(&mut spec, &mut evil);
        store.put(THEIRS, evil.clone()).put(MACHINES, json!({ "items": [] }));
        for namespace in ["", "namespaces/tenant/"] {
            store.put(
                &format!("/apis/cluster.x-k8s.io/v1beta2/{namespace}machines"),
                json!({ "items": [evil.clone()] }),
            );
        }
        let harness = unnamed(&store, json!({ "spec": spec }));
        harness.run_off_attempt().await;
        let attempt = attempted(&harness);
        let outcome = attempt.outcome.clone().unwrap_or_default();
        assert!(outcome.contains(expected) && attempt.objects.is_empty(), "{expected}: {attempt:?}");
        assert!(store.get(THEIRS).unwrap()["metadata"].get("deletionTimestamp").is_none(), "{expected}");
    }
}

/// A kubelet names a Machine in a namespace that the device does not list.
#[tokio::test(start_paused = true)]
async fn attack_a_machine_outside_the_listed_namespaces_is_not_deleted() {
    let (store, mut spec) = machine_of("cloud:///n");
    spec["spec"]["namespaces"] = json!(["other"]);
    let harness = with(&store, spec);
    harness.run_off_attempt().await;
    let outcome = attempted(&harness).outcome.unwrap();
    assert!(outcome.contains("capi is not in spec.namespaces of the FenceDevice"), "{outcome}");
    assert!(store.get(MACHINE).unwrap()["metadata"].get("deletionTimestamp").is_none());
}
