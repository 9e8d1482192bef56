//! Devices that are objects of the cluster, and medik8s' Leases, against a scripted API server.

mod hosts;
mod lookups;
mod paths;
mod refused;
mod remediation_objects;
mod watchdogs;

use super::*;
use crate::api::{DeviceDriver, FenceEvidenceKind, ReachedBy, Sample, TargetObject, evidence_kind_of};
use crate::objects::{Reach, reach};
use crate::storage_evidence_name;

/// Objects by their paths; writes change them. A collection returns what was posted, and a Status refuses a read.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<BTreeMap<String, Value>>>);

impl Store {
    fn put(&self, path: &str, object: Value) -> &Self {
        self.0.lock().insert(path.to_owned(), object);
        self
    }

    fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().get(path).cloned()
    }

    fn change(&self, path: &str, change: impl FnOnce(&mut Value)) {
        change(self.0.lock().get_mut(path).unwrap());
    }

    fn answer(&self, request: &Received) -> Option<ApiAnswer> {
        let path = request.path.as_str();
        let mut all = self.0.lock();
        if request.method == "GET" {
            // A list of two pages: the second has the first one's token.
            let page = request.parameter("continue").map(|token| format!("{path}?continue={token}"));
            let fixture = all.get(page.as_deref().unwrap_or(path))?;
            let refused = fixture["code"].as_u64().and_then(|code| u16::try_from(code).ok());
            return Some(refused.map_or_else(|| ApiAnswer::json(fixture), |code| ApiAnswer::with_code(code, fixture)));
        }
        if request.method == "POST" && all.contains_key(path) {
            let mut object = request.json();
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            if all.contains_key(&format!("{path}/{name}")) {
                return Some(ApiAnswer::with_code(409, &json!({ "reason": "AlreadyExists" })));
            }
            object["metadata"]["uid"] = json!(format!("uid-{name}"));
            object["metadata"]["resourceVersion"] = json!("1");
            let answer = ApiAnswer::with_code(201, &object);
            all.insert(format!("{path}/{name}"), object);
            return Some(answer);
        }
        let fixture = all.get_mut(path)?;
        match request.method.as_str() {
            "PATCH" => {
                merge(fixture, &request.json());
                if path.contains("/leases/") {
                    fixture["metadata"]["resourceVersion"] = json!("18");
                }
                Some(ApiAnswer::json(fixture))
            }
            "DELETE" => {
                let uid = &request.json()["preconditions"]["uid"];
                assert_eq!(*uid, fixture["metadata"]["uid"], "by UID");
                match fixture["metadata"]["finalizers"].is_array() {
                    true => fixture["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
                    false => drop(all.remove(path)),
                }
                Some(ApiAnswer::json(&json!({ "metadata": {} })))
            }
            _ => None,
        }
    }
}

fn merge(into: &mut Value, patch: &Value) {
    match (into.as_object_mut(), patch.as_object()) {
        (Some(fields), Some(changes)) => {
            for (key, change) in changes {
                merge(fields.entry(key.clone()).or_insert(Value::Null), change);
            }
        }
        _ => *into = patch.clone(),
    }
}

fn with(store: &Store, spec: Value) -> Harness {
    let answers = store.clone();
    let mut fixture = Fixture { first: Arc::new(move |request| answers.answer(request)), ..Fixture::default() };
    fixture.node["spec"]["providerID"] = json!("cloud:///n");
    fixture.node["metadata"]["annotations"] =
        json!({ "cluster.x-k8s.io/machine": "m", "cluster.x-k8s.io/cluster-namespace": "capi" });
    fixture.device = Some(spec);
    harness(fixture, |_, _| panic!("no transport is used"))
}

const FAR: &str = "/apis/far.medik8s.io/v1";
const MADE: &str = "/apis/far.medik8s.io/v1/namespaces/fencing/fars/n";

fn external() -> (Store, Value) {
    let store = Store::default();
    let kinds = json!([{ "name": "fars", "kind": "Far" }, { "name": "fartemplates", "kind": "FarTemplate" }]);
    store
        .put(FAR, json!({ "resources": kinds }))
        .put(
            "/apis/far.medik8s.io/v1/namespaces/fencing/fartemplates/t",
            json!({ "metadata": {}, "spec": { "template": { "spec": { "agent": "a" } } } }),
        )
        .put("/apis/far.medik8s.io/v1/namespaces/fencing/fars", json!({}));
    let template = json!({ "apiVersion": "far.medik8s.io/v1", "kind": "FarTemplate", "name": "t" });
    let spec = json!({ "driver": "External", "external": { "templateRef": template } });
    (store, json!({ "spec": spec }))
}

fn attempted(harness: &Harness) -> crate::api::Attempt {
    let status = harness.written("nodefences")["status"].clone();
    serde_json::from_value::<NodeFenceStatus>(status).unwrap().attempts.pop().unwrap()
}

fn again(attempt: crate::api::Attempt) -> NodeFenceStatus {
    NodeFenceStatus { phase: Phase::Fencing, attempts: vec![attempt], ..NodeFenceStatus::default() }
}

/// The samples of a status check of this attempt.
async fn check_power(harness: &Harness, attempt: crate::api::Attempt) -> Verified {
    harness.run_step(Step::Look(target(again(attempt)))).await;
    attempted(harness).verified.unwrap()
}

impl Harness {
    /// Runs a first attempt, with any result.
    async fn run_off_attempt(&self) {
        self.run_step(Step::Attempt(target(tried("off")))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_of_another_remediator_is_created_from_its_template_and_success_is_off() {
    let (store, spec) = external();
    let harness = with(&store, spec);
    let remote_store = store.clone();
    let far = async {
        // The other remediator.
        while store.get(MADE).is_none() {
            harness.env.sleep(Duration::from_secs(1)).await;
        }
        harness.env.sleep(Duration::from_secs(9)).await;
        let done = json!([{ "type": "Succeeded", "status": "True" }]);
        remote_store.change(MADE, |object| object["status"] = json!({ "conditions": done }));
    };
    let (outcome, ()) = futures::future::join(harness.run_step(Step::Attempt(target(tried("off")))), far).await;
    assert_eq!(outcome.name(), "written");
    let made = store.get(MADE).unwrap();
    assert_eq!(made["spec"], json!({ "agent": "a" }));
    assert_eq!(made["metadata"]["annotations"]["remediation.medik8s.io/node-name"], "n");
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "uid-nf");
    let attempt = attempted(&harness);
    assert_eq!((attempt.objects[0].path.as_str(), attempt.objects[0].uid.as_str()), (MADE, "uid-nf"));
    assert!(attempt.outcome.as_deref().unwrap().contains("Succeeded=True"), "{attempt:?}");
    assert_eq!(harness.log()[0], STATUS, "which object it is stands there before it is made");
    let verified = check_power(&harness, attempt).await;
    assert_eq!(verified.power, Power::Off);
    assert_eq!(evidence_kind_of(&verified.samples), FenceEvidenceKind::Remediated);
    let connection = harness.api.connection();
    let checker = StatusChecker::new(&connection, harness.world.cache(), &harness.env, &harness.devices);
    let (kind, _) = checker.confirm_all_off(&incarnation(), &verified.samples, &[]).await.unwrap();
    assert_eq!(kind, FenceEvidenceKind::Remediated);
    store.change(MADE, |object| object["status"] = json!({}));
    assert!(checker.confirm_all_off(&incarnation(), &verified.samples, &[]).await.is_err(), "not any more");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_timed_out_is_marked_recreated_and_deleted_at_the_end() {
    let (store, spec) = external();
    let harness = with(&store, spec);
    harness.run_off_attempt().await;
    let attempt = attempted(&harness);
    assert!(attempt.outcome.as_deref().unwrap().contains("no answer within 60s"), "{attempt:?}");
    let annotations = store.get(MADE).unwrap()["metadata"]["annotations"].clone();
    assert!(annotations["remediation.medik8s.io/nhc-timed-out"].is_string(), "{annotations}");
    // The next attempt deletes it, the one after creates another.
    harness.run_off_attempt().await;
    assert_eq!(store.get(MADE), None);
    harness.run_off_attempt().await;
    assert!(store.get(MADE).is_some());
    let done = NodeFenceStatus { phase: Phase::Done, ..again(attempt.clone()) };
    harness.assert_outcome(Step::Write(target(done.clone())), "written").await;
    assert_eq!(store.get(MADE), None);
    store.put(MADE, json!({ "metadata": { "uid": "other" } }));
    harness.run_step(Step::Write(target(done))).await;
    assert!(store.get(MADE).is_some(), "somebody else's is left alone");
    harness.run_off_attempt().await;
    let outcome = attempted(&harness).outcome.unwrap();
    assert!(outcome.contains("belongs to another owner"), "{outcome}");
    assert_eq!(store.get(MADE), Some(json!({ "metadata": { "uid": "other" } })), "and is told nothing");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_with_a_kind_that_is_not_served_is_recorded_with_the_reason() {
    let (_, spec) = external();
    let harness = with(&Store::default(), spec);
    harness.run_off_attempt().await;
    let outcome = attempted(&harness).outcome.unwrap();
    assert!(outcome.contains("does not serve FarTemplate of far.medik8s.io/v1"), "{outcome}");
    assert_eq!(harness.log(), [STATUS], "nothing was made");
}

const MACHINE: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/capi/machines/m";

/// A provider that waits until the instance has terminated.
fn aws() -> Value {
    json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSMachine", "name": "m" })
}

fn machine_of(provider: &str) -> (Store, Value) {
    let store = Store::default();
    let version = json!({ "preferredVersion": { "groupVersion": "cluster.x-k8s.io/v1beta2" } });
    store.put("/apis/cluster.x-k8s.io", version).put(
        MACHINE,
        json!({
            "metadata": { "uid": "uid-m", "finalizers": ["f"] },
            "spec": { "providerID": provider, "infrastructureRef": aws() },
            "status": { "nodeRef": { "name": "n" } },
        }),
    );
    (store, json!({ "spec": { "driver": "Machine", "identityCheck": "Required" } }))
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_off_when_its_object_is_gone_and_not_while_terminating() {
    let (store, spec) = machine_of("cloud:///n");
    let harness = with(&store, spec);
    harness.run_off_attempt().await;
    assert!(store.get(MACHINE).unwrap()["metadata"]["deletionTimestamp"].is_string());
    let attempt = attempted(&harness);
    assert_eq!(check_power(&harness, attempt.clone()).await.power, Power::Unknown, "its provider may still have it");
    store.change(MACHINE, |machine| drop(machine["metadata"].as_object_mut().unwrap().remove("deletionTimestamp")));
    assert_eq!(check_power(&harness, attempt.clone()).await.power, Power::On, "it is not being deleted");
    store.0.lock().remove(MACHINE);
    let gone = check_power(&harness, attempt.clone()).await;
    assert_eq!((gone.power, evidence_kind_of(&gone.samples)), (Power::Off, FenceEvidenceKind::Decommissioned));
    // Another object of the same name is a different one; the recorded one is checked again.
    store.put(MACHINE, json!({ "metadata": { "uid": "uid-m2" }, "spec": { "providerID": "cloud:///n" } }));
    assert_eq!(check_power(&harness, attempt).await.power, Power::Off);
}

#[tokio::test(start_paused = true)]
async fn the_machine_of_another_node_is_not_deleted() {
    let (store, spec) = machine_of("cloud:///other");
    let harness = with(&store, spec);
    harness.run_off_attempt().await;
    let outcome = attempted(&harness).outcome.unwrap();
    assert!(outcome.contains("cloud:///other") && outcome.contains("cloud:///n"), "{outcome}");
    assert_eq!(store.get(MACHINE).unwrap()["metadata"].get("deletionTimestamp"), None);
}

fn network(clients: &[&str]) -> (Store, Value) {
    let store = Store::default();
    store.put("/apis/csiaddons.openshift.io/v1alpha1/networkfences", json!({}));
    let class = "/apis/csiaddons.openshift.io/v1alpha1/networkfenceclasses/rbd";
    store.put(class, json!({ "metadata": {}, "spec": { "provisioner": "rbd.csi.ceph.com" } }));
    let target = json!({ "node": "n", "power": "On", "identity": "Unknown", "looked": "t", "clients": clients,
        "bootID": "b0000000-0000-4000-8000-000000000001" });
    let mut neighbour = target.clone();
    (neighbour["node"], neighbour["clients"]) = (json!("m"), json!(["10.0.0.7/32"]));
    let spec = json!({ "driver": "NetworkFence", "networkFence": { "className": "rbd", "namespace": "rook-ceph" } });
    (store, json!({ "spec": spec, "status": { "targets": [neighbour, target] } }))
}

#[tokio::test(start_paused = true)]
async fn a_network_fence_has_the_recorded_addresses_and_is_lifted_before_its_deletion() {
    let (store, spec) = network(&["10.0.0.1/32"]);
    let harness = with(&store, spec);
    harness.run_off_attempt().await;
    let attempt = attempted(&harness);
    let path = attempt.objects[0].path.clone();
    let made = store.get(&path).unwrap();
    assert_eq!(
        made["spec"],
        json!({ "networkFenceClassName": "rbd", "fenceState": "Fenced", "cidrs": ["10.0.0.1/32"] })
    );
    let set_status = |message: &str| {
        let status = json!({ "result": "Succeeded", "message": message });
        store.change(&path, |object| object["status"] = status);
    };
    set_status("fencing operation successful");
    assert_eq!(check_power(&harness, attempt.clone()).await.power, Power::Off);
    let done = target(NodeFenceStatus { phase: Phase::Done, ..again(attempt) });
    assert_eq!(harness.run_step(Step::Write(done.clone())).await.name(), "not_ready", "it is not lifted yet");
    assert_eq!(store.get(&path).unwrap()["spec"]["fenceState"], "Unfenced");
    assert_eq!(harness.run_step(Step::Write(done.clone())).await.name(), "not_ready", "an old success is none");
    set_status("unfencing operation successful");
    harness.assert_outcome(Step::Write(done), "written").await;
    assert_eq!(store.get(&path), None);
}

const PROOFS: &str = "/apis/pod-safety.dev/v1alpha1/fenceevidences";

/// A node whose storage is fenced and was checked, and the recorded attempt.
async fn fenced(store: &Store, spec: Value) -> (Harness, crate::api::Attempt) {
    store.put(PROOFS, json!({}));
    let harness = with(store, spec);
    harness.run_off_attempt().await;
    let attempt = attempted(&harness);
    let status = json!({ "result": "Succeeded", "message": "fencing operation successful" });
    store.change(&attempt.objects[0].path, |object| object["status"] = status);
    harness.run_step(Step::Look(target(again(attempt)))).await;
    let mut attempt = attempted(&harness);
    attempt.evidence = Some(storage_evidence_name(&incarnation(), &Uid::new("uid-nf").unwrap(), attempt.id));
    (harness, attempt)
}

#[tokio::test(start_paused = true)]
async fn fenced_storage_alone_is_evidence_about_volumes_until_it_is_lifted() {
    let (store, spec) = network(&["10.0.0.1/32"]);
    let (harness, attempt) = fenced(&store, spec).await;
    assert!(attempt.has_fenced_storage());
    harness.assert_outcome(Step::ProveStorage(target(again(attempt.clone()))), "written").await;
    let path = format!("{PROOFS}/{}", attempt.evidence.clone().unwrap());
    let proof = store.get(&path).unwrap()["spec"].clone();
    assert_eq!(proof["kind"], "StorageFenced");
    assert_eq!(proof["storage"], json!([{ "driver": "rbd.csi.ceph.com", "className": "rbd" }]));
    assert_eq!(proof["node"]["bootID"], "b0000000-0000-4000-8000-000000000001");
    let status = harness.written("nodefences")["status"].clone();
    assert_eq!((&status["phase"], status.get("evidence")), (&json!("Fencing"), None), "of pods nothing is proved");
    // A fence that is lifted proves nothing: the evidence is invalidated first.
    let done = target(NodeFenceStatus { phase: Phase::Cancelled, ..again(attempt.clone()) });
    harness.run_step(Step::Write(done)).await;
    let reason = harness.written("fenceevidences")["status"]["invalidated"]["reason"].clone();
    assert_eq!(reason, "the fence of its storage is lifted");
    assert_eq!(store.get(&attempt.objects[0].path).unwrap()["spec"]["fenceState"], "Unfenced");
    let order = |path: &str| {
        harness.api.requests().iter().position(|request| request.method == "PATCH" && request.path.contains(path))
    };
    assert!(order("fenceevidences").is_some_and(|first| Some(first) < order("networkfences")));
}

/// Terminating pods of the earlier boot may use volumes that another node holds by then.
#[tokio::test(start_paused = true)]
async fn bug_a_network_fence_was_lifted_while_pods_of_the_earlier_boot_remained() {
    for (phase, state) in [
        (Phase::Fenced, "Fenced"),
        (Phase::Recovering, "Fenced"),
        (Phase::AwaitingOperator, "Fenced"),
        (Phase::Done, "Unfenced"),
    ] {
        let (store, spec) = network(&["10.0.0.1/32"]);
        let (harness, attempt) = fenced(&store, spec).await;
        let path = attempt.objects[0].path.clone();
        harness.run_step(Step::Untaint(target(NodeFenceStatus { phase, ..again(attempt) }))).await;
        assert_eq!(store.get(&path).unwrap()["spec"]["fenceState"], state, "{phase:?}");
    }
}

/// The mutants: a provisioner that the class does not name is guessed, and addresses of another boot are used.
#[tokio::test(start_paused = true)]
async fn storage_alone_is_not_fenced_if_the_covered_volumes_are_unknown() {
    let class = "/apis/csiaddons.openshift.io/v1alpha1/networkfenceclasses/rbd";
    let (store, spec) = network(&["10.0.0.1/32"]);
    store.put(class, json!({ "metadata": {}, "spec": {} }));
    let (other, mut of_another_life) = network(&["10.0.0.1/32"]);
    of_another_life["status"]["targets"][1]["bootID"] = json!("b0000000-0000-4000-8000-000000000000");
    for (store, spec) in [(store, spec), (other, of_another_life)] {
        let harness = with(&store, spec);
        harness.run_off_attempt().await;
        let outcome = attempted(&harness).outcome.unwrap();
        assert!(outcome.contains("it is not known which volumes it covers"), "{outcome}");
        assert_eq!(harness.log(), [STATUS], "it is not begun");
    }
}

/// The mutant: evidence about storage ends the incarnation.
#[tokio::test(start_paused = true)]
async fn fenced_storage_never_proves_that_a_machine_is_off() {
    let (store, spec) = network(&["10.0.0.1/32"]);
    let (harness, attempt) = fenced(&store, spec).await;
    let status = NodeFenceStatus { evidence: Some("e".to_owned()), ..again(attempt) };
    harness.assert_outcome(Step::Prove(target(status)), "changed").await;
    assert!(store.0.lock().keys().all(|path| !path.starts_with(&format!("{PROOFS}/"))));
}

#[tokio::test(start_paused = true)]
async fn without_addresses_recorded_before_the_loss_storage_is_not_fenced() {
    let (store, spec) = network(&[]);
    let harness = with(&store, spec);
    harness.run_off_attempt().await;
    let outcome = attempted(&harness).outcome.unwrap();
    assert!(outcome.contains("no addresses of n were recorded"), "{outcome}");
    assert_eq!(harness.log(), [STATUS]);
}

#[test]
fn the_kind_of_evidence_is_that_of_its_weakest_device_without_storage() {
    use DeviceDriver::{Agent, External, Machine, NetworkFence, Redfish};
    let of = |drivers: &[DeviceDriver]| {
        let sample = |driver: &DeviceDriver| Sample { driver: Some(*driver), ..Sample::default() };
        evidence_kind_of(&drivers.iter().map(sample).collect::<Vec<_>>())
    };
    assert_eq!(of(&[Agent, Redfish]), FenceEvidenceKind::PowerOff);
    assert_eq!(of(&[Redfish, External]), FenceEvidenceKind::Remediated);
    assert_eq!(of(&[Machine, NetworkFence]), FenceEvidenceKind::Decommissioned);
    assert_eq!(of(&[Machine, Redfish]), FenceEvidenceKind::PowerOff);
    assert_eq!(of(&[NetworkFence, NetworkFence]), FenceEvidenceKind::StorageFenced);
    assert_eq!(evidence_kind_of(&[Sample::default()]), FenceEvidenceKind::PowerOff, "written by an older version");
}

#[test]
fn each_driver_is_registered_as_its_properties_state() {
    for driver in DeviceDriver::ALL {
        let registered = match reach(*driver) {
            Reach::Transport(_) => (ReachedBy::Parameters, true),
            Reach::Object(object) => (ReachedBy::Object, object.why_no_power_on().is_none()),
            Reach::Operator => (ReachedBy::Operator, false),
        };
        let properties = driver.properties();
        assert_eq!((properties.reached_by, properties.can_power_on), registered, "{driver:?}");
    }
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases/node-n";

/// A cluster where pod-safety may write medik8s' Leases.
fn with_medik8s_leases(store: &Store, trigger: Trigger) -> (Harness, Target) {
    let answers = store.clone();
    let first = move |request: &Received| {
        let review = request.path.ends_with("selfsubjectaccessreviews");
        let allowed = || ApiAnswer::with_code(201, &json!({ "status": { "allowed": true } }));
        if review { Some(allowed()) } else { answers.answer(request) }
    };
    let harness = harness(Fixture { first: Arc::new(first), ..Fixture::default() }, |_, _| answer_with(Power::Off));
    let mut target = target(tried("off"));
    target.spec.trigger.kind = trigger;
    (harness, target)
}

fn held_by(holder: &str, renewed: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "node-n", "uid": "uid-lease", "resourceVersion": "4" },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 600, "renewTime": renewed },
    })
}

#[tokio::test(start_paused = true)]
async fn another_holder_of_the_lease_is_a_gate_unless_it_requested_the_fencing() {
    let store = Store::default();
    store.put(LEASE, held_by("node-maintenance", "2999-01-01T00:00:00.000000Z"));
    let (harness, fence_target) = with_medik8s_leases(&store, Trigger::Detected);
    harness.assert_outcome(Step::Attempt(fence_target), "changed").await;
    assert!(harness.devices.orders.lock().is_empty(), "nobody was shot");
    let status = harness.written("nodefences")["status"].clone();
    assert_eq!(status["phase"], "Pending");
    assert_eq!(status["gates"][0]["name"], "LeaseHeld");
    assert!(status["message"].as_str().unwrap().starts_with("node-maintenance has the node"), "{status}");
    let (harness, fence_target) = with_medik8s_leases(&store, Trigger::External);
    harness.assert_outcome(Step::Attempt(fence_target), "written").await;
    assert_eq!(store.get(LEASE).unwrap()["spec"]["holderIdentity"], "node-maintenance");
    // It is noon, and a Lease lasts ten minutes.
    for (holder, renewed, outcome) in [
        ("another", "11:50:01", "changed"),
        ("another", "11:50:00", "written"),
        ("pod-safety", "11:59:00", "written"),
        ("", "11:59:00", "written"),
    ] {
        store.put(LEASE, held_by(holder, &format!("2026-11-21T{renewed}.000000Z")));
        let (harness, fence_target) = with_medik8s_leases(&store, Trigger::Detected);
        assert_eq!(harness.run_step(Step::Attempt(fence_target)).await.name(), outcome, "{holder:?} {renewed}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_medik8s_lease_is_acquired_before_off_and_released_at_the_end() {
    let store = Store::default();
    store.put(LEASES, json!({}));
    let (harness, fence_target) = with_medik8s_leases(&store, Trigger::Detected);
    harness.assert_outcome(Step::Attempt(fence_target.clone()), "written").await;
    assert_eq!(store.get(LEASE).unwrap()["spec"]["holderIdentity"], "pod-safety");
    let done = NodeFenceStatus { phase: Phase::Done, ..tried("off") };
    let done = Target { status: Box::new(done), ..fence_target.clone() };
    harness.assert_outcome(Step::Write(done.clone()), "written").await;
    assert_eq!(store.get(LEASE), None);
    store.put(LEASE, held_by("another", "2000-01-01T00:00:00.000000Z"));
    assert_eq!(harness.run_step(Step::Attempt(fence_target)).await.name(), "written", "it was over");
    store.change(LEASE, |lease| lease["spec"]["holderIdentity"] = json!("another"));
    harness.run_step(Step::Write(done)).await;
    assert!(store.get(LEASE).is_some(), "somebody else's is left alone");
}

#[tokio::test(start_paused = true)]
async fn our_finalizer_is_added_and_removed_without_changing_others() {
    use crate::{RemediationRequest, RemediationUpdate};
    let store = Store::default();
    let path = "/apis/pod-safety.dev/v1alpha1/namespaces/ops/podsafetyremediations/n";
    let meta = json!({ "name": "n", "uid": "uid-r", "resourceVersion": "7", "finalizers": ["theirs"] });
    store.put(path, json!({ "metadata": meta, "spec": {} }));
    let harness = with(&store, json!({ "spec": { "driver": "Manual" } }));
    let monitor_request = |reply| RemediationRequest {
        namespace: "ops".into(),
        name: "n".into(),
        uid: Uid::new("uid-r").unwrap(),
        rv: "7".parse().unwrap(),
        node: None,
        update: reply,
    };
    for (reply, expected) in [
        (RemediationUpdate::AddFinalizer, json!(["theirs", crate::api::REMEDIATION_FINALIZER])),
        (RemediationUpdate::RemoveFinalizer, json!(["theirs"])),
    ] {
        let connection = harness.api.connection();
        let answered =
            super::super::update_remediation(&harness.step_context(&connection), &monitor_request(reply)).await;
        assert_eq!(answered.name(), "written");
        assert_eq!(store.get(path).unwrap()["metadata"]["finalizers"], expected);
    }
}

#[test]
fn a_target_object_of_an_older_version_is_decoded() {
    let old = json!({ "device": { "namespace": "a", "name": "b" }, "driver": "Machine", "path": "/p", "uid": "u" });
    let read: TargetObject = serde_json::from_value(old).unwrap();
    assert!(!read.matched && read.cidrs.is_empty());
}

/// The annotations and the providerID of a node named a neighbour's Machine, which was deleted, as `Matched`.
#[tokio::test(start_paused = true)]
async fn attack_a_machine_is_not_deleted_because_another_node_names_it() {
    for reference in [json!({ "name": "other" }), json!({ "name": "n", "uid": "uid-other" }), json!({})] {
        let (store, spec) = machine_of("cloud:///n");
        store.change(MACHINE, |machine| machine["status"]["nodeRef"] = reference.clone());
        let harness = with(&store, spec);
        harness.run_off_attempt().await;
        let outcome = attempted(&harness).outcome.unwrap();
        assert!(outcome.contains("does not belong to node n: its status.nodeRef names"), "{reference}: {outcome}");
        assert_eq!(store.get(MACHINE).unwrap()["metadata"].get("deletionTimestamp"), None, "{reference}");
    }
}

/// `0.0.0.0/0` in a CSIAddonsNode cut the whole cluster off from the storage. The status may be forged as well.
#[tokio::test(start_paused = true)]
async fn attack_only_single_hosts_are_fenced_from_their_storage() {
    let many: Vec<String> = (0..33).map(|last| format!("10.0.0.{last}/32")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (clients, fenced) in [
        (&["0.0.0.0/0"][..], false),
        (&["10.0.0.1/32", "10.0.0.0/31"], false),
        (&["10.0.0.1"], false),
        (&["0.0.0.0/32"], false),
        (&["127.0.0.1/32"], false),
        (&["::/0"], false),
        (&["nonsense"], false),
        (&many, false),
        (&many[..32], true),
        (&["fd00::1/128"], true),
    ] {
        let (store, spec) = network(clients);
        let harness = with(&store, spec);
        harness.run_off_attempt().await;
        let made = store.0.lock().keys().any(|path| path.contains("/networkfences/"));
        assert_eq!(made, fenced, "{clients:?}: {:?}", attempted(&harness).outcome);
    }
}

/// One device is off; no object was recorded for the other.
#[tokio::test(start_paused = true)]
async fn the_object_of_one_device_is_not_checked_for_another() {
    let (store, spec) = external();
    let mut other = device();
    other["spec"] = spec["spec"].clone();
    store.put("/apis/pod-safety.dev/v1alpha1/namespaces/fencing/fencedevices/psu", other);
    let harness = with(&store, spec);
    harness.run_off_attempt().await;
    let done = json!([{ "type": "Succeeded", "status": "True" }]);
    store.change(MADE, |object| object["status"] = json!({ "conditions": done }));
    let mut attempt = attempted(&harness);
    assert_eq!(check_power(&harness, attempt.clone()).await.power, Power::Off);
    attempt.devices.push(DeviceRef { name: "psu".to_owned(), ..bmc() });
    assert_eq!(check_power(&harness, attempt).await.power, Power::Unknown);
}
