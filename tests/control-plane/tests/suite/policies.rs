//! The chart's admission policies on a real API server: which users are denied what, which are not, and attempts to bypass that.

mod admission;
mod bypasses;
mod deleters;
mod own_account;
mod own_kinds;
mod requested;
mod volumes;

use admission::{
    ADMIN, ALL_VERBS, CLOUD, DELETER, DEV, EXEMPT, Fixture, KARPENTER, KUBELET, OPERATOR, OTHER_KUBELET, POD_GC,
    POD_SAFETY, REASON, STATEFUL_SETS, fixture, until_they_hold,
};
use pod_safety_control_plane::{check_that, observe, wait_until};
use serde_json::{Value, json};

#[tokio::test]
async fn force_deletes_are_denied_without_evidence_or_breakglass() {
    let fixture = fixture("admissionPolicies.action=Deny,admissionPolicies.statefulSetGrace=Deny").await;
    until_they_hold(&fixture).await;
    deletions(&fixture).await;
    terminated_pods_and_collections(&fixture).await;
    phases(&fixture).await;
    evictions(&fixture).await;
    taints_and_deletions_of_nodes(&fixture).await;
    deleters::an_account_that_checks_the_machine_may_taint_an_unreachable_node(&fixture).await;
    deleters::a_node_is_deleted_with_its_last_finalizer_and_not_before(&fixture).await;
    deleters::a_scale_down_of_healthy_nodes_is_not_delayed(&fixture).await;
    volumes::attachments(&fixture).await;
    volumes::held_volumes(&fixture).await;
    stateful_sets(&fixture).await;
    own_kinds::evidence(&fixture).await;
    own_kinds::fences(&fixture).await;
    own_kinds::attack_statuses_are_forged(&fixture).await;
    own_kinds::a_login_that_begins_with_a_dash_is_no_parameter(&fixture).await;
    bypasses::attack_a_node_is_marked_ready_or_registered_with_the_taint(&fixture).await;
    bypasses::attack_what_a_denial_depends_on_is_removed(&fixture).await;
    bypasses::attack_a_pod_is_taken_from_its_controller(&fixture).await;
    bypasses::attack_a_tenant_writes_as_the_kubelet_of_a_node(&fixture).await;
    bypasses::attack_leader_election_of_another_component_takes_the_pod_safety_lease(&fixture).await;
    bypasses::attack_a_kubelet_pauses_the_fencing_of_its_own_node(&fixture).await;
    own_account::attack_the_token_of_pod_safety_is_stolen(&fixture).await;
    deleters::bug_the_doctor_prints_the_value_that_allows_a_component(&fixture).await;
    deleters::bug_the_doctor_names_the_denied_account_and_the_value_to_set(&fixture).await;
}

const FORCE: &[&str] = &["--force", "--grace-period=0", "--wait=false"];

/// User; whether of a StatefulSet; its grace period; a reason on it; the method; the denying policy.
type Deletion = (&'static str, bool, i64, Option<&'static str>, &'static [&'static str], Option<&'static str>);

async fn deletions(fixture: &Fixture) {
    let refused = Some("force-delete");
    let rows: [Deletion; 24] = [
        (DEV, true, 30, None, FORCE, refused),
        (DEV, false, 30, None, FORCE, refused),
        (DEV, true, 30, Some("a reason without the right"), FORCE, refused),
        // "*" on pods does not include the break-glass verbs.
        (ALL_VERBS, true, 30, Some("."), FORCE, refused),
        (ALL_VERBS, false, 30, Some("."), FORCE, refused),
        (DEV, true, 30, None, &["--now", "--wait=false"], None),
        (DEV, true, 30, None, &["--wait=false"], None),
        (DEV, true, 0, None, &["--wait=false"], refused),
        (DEV, true, 0, None, &["--grace-period=1", "--wait=false"], None),
        (DEV, false, 0, None, &["--wait=false"], None),
        (OPERATOR, false, 30, None, FORCE, None),
        (OPERATOR, true, 30, None, FORCE, refused),
        (OPERATOR, true, 30, Some("  "), FORCE, refused),
        (OPERATOR, true, 30, Some("the rack burnt down"), FORCE, None),
        (ADMIN, true, 30, None, FORCE, refused),
        (ADMIN, true, 30, Some("the rack burnt down"), FORCE, None),
        (EXEMPT, true, 30, None, FORCE, None),
        // Only in the way of its code: see own_account.
        (POD_SAFETY, true, 30, None, FORCE, Some("own-account")),
        (POD_GC, true, 30, None, FORCE, refused),
        (STATEFUL_SETS, true, 30, None, FORCE, refused),
        (KUBELET, true, 30, None, FORCE, None),
        (OTHER_KUBELET, true, 30, None, FORCE, refused),
        (DELETER, true, 30, None, FORCE, refused),
        // karpenter#3032: pods of a node that is repaired, before its instance is terminated.
        (KARPENTER, true, 30, None, FORCE, refused),
    ];
    for (number, (user, stateful, grace, reason, how, refusal)) in rows.into_iter().enumerate() {
        let name = format!("force-{number}");
        fixture.pod(&name, stateful, grace, reason).await;
        let output = fixture.run(user, &[&["delete", "pod", &name][..], how].concat(), &Value::Null).await;
        Fixture::check_answer(
            &format!("deletion {number}: {user} {how:?}, {stateful} {grace} {reason:?}"),
            &output,
            refusal,
        );
    }
    let why = fixture.run(DEV, &[&["delete", "pod", "force-0"][..], FORCE].concat(), &Value::Null).await.stderr;
    for words in [
        "node w1 has not reported that its containers terminated",
        "StatefulSet db would start another force-0",
        "pod-safety confirm-down w1",
        REASON,
    ] {
        assert!(why.contains(words), "no {words:?} in {why}");
    }
}

/// A terminal phase is accepted unless other fields contradict it; a deletecollection is checked pod by pod.
async fn terminated_pods_and_collections(fixture: &Fixture) {
    let ended = json!({ "phase": "Failed" });
    let lies = json!({ "phase": "Failed", "containerStatuses": [{ "name": "main", "image": "i", "imageID": "i", "ready": true,
        "restartCount": 0, "state": { "running": {} } }] });
    for (name, status, user, refusal) in [
        ("ended", &ended, DEV, None),
        ("lies", &lies, DEV, Some("force-delete")),
        ("lies-to-its-set", &lies, STATEFUL_SETS, Some("force-delete")),
    ] {
        fixture.pod(name, true, 30, None).await;
        fixture.status(KUBELET, &["pod", name], status).await.text().unwrap();
        // The request has no grace period: the phase makes it 0.
        let output = fixture.run(user, &["delete", "pod", name, "--wait=false"], &Value::Null).await;
        Fixture::check_answer(name, &output, refusal);
    }
    let path = "/api/v1/namespaces/default/pods?gracePeriodSeconds=0";
    let output = fixture.run(DEV, &["delete", "--raw", path], &Value::Null).await;
    Fixture::check_answer("a collection", &output, Some("force-delete"));
    let unbound = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "unbound", "namespace": "default" },
        "spec": { "containers": [{ "name": "main", "image": "main" }] } });
    fixture.make(&unbound).await;
    let output = fixture.run(DEV, &[&["delete", "pod", "unbound"][..], FORCE].concat(), &Value::Null).await;
    Fixture::check_answer("a pod without a node", &output, None);
}

async fn phases(fixture: &Fixture) {
    let refused = Some("terminal-phase");
    for (number, (user, phase, reason, refusal)) in (0..).zip([
        (DEV, "Failed", None, refused),
        (DEV, "Succeeded", None, refused),
        (DEV, "Pending", None, None),
        (POD_GC, "Failed", None, refused),
        (OTHER_KUBELET, "Failed", None, refused),
        (KUBELET, "Failed", None, None),
        (POD_SAFETY, "Failed", None, Some("own-account")),
        (EXEMPT, "Failed", None, None),
        (DEV, "Failed", Some("a reason without the right"), refused),
        (OPERATOR, "Failed", None, refused),
        (OPERATOR, "Failed", Some("the rack burnt down"), None),
        (ADMIN, "Failed", None, refused),
    ]) {
        let name = format!("phase-{number}");
        fixture.pod(&name, true, 30, reason).await;
        let output = fixture.status(user, &["pod", &name], &json!({ "phase": phase })).await;
        Fixture::check_answer(&format!("phase {number}: {user} {phase} {reason:?}"), &output, refusal);
    }
}

async fn evictions(fixture: &Fixture) {
    for (number, (user, grace, reason, refusal)) in (0..).zip([
        (DEV, Some(0), None, Some("eviction")),
        (DEV, Some(1), None, None),
        (DEV, None, None, None),
        (DEV, Some(0), Some("a reason without the right"), Some("eviction")),
        (OPERATOR, Some(0), None, Some("eviction")),
        (OPERATOR, Some(0), Some("the rack burnt down"), None),
        (EXEMPT, Some(0), None, None),
        (POD_SAFETY, Some(0), None, Some("own-account")),
    ]) {
        let name = format!("evicted-{number}");
        fixture.pod(&name, true, 30, None).await;
        let mut eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name, "namespace": "default" } });
        if let Some(grace) = grace {
            eviction["deleteOptions"] = json!({ "gracePeriodSeconds": grace });
        }
        if let Some(reason) = reason {
            eviction["metadata"]["annotations"] = json!({ REASON: reason });
        }
        let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
        let output = fixture.run(user, &["create", "--raw", &path, "-f", "-"], &eviction).await;
        Fixture::check_answer(&format!("eviction {number}: {user} {grace:?} {reason:?}"), &output, refusal);
    }
}

const TAINT: &str = "node.kubernetes.io/out-of-service=operator:NoExecute";
const FINALIZER: &str = r#"{"metadata":{"finalizers":["karpenter.sh/termination"]}}"#;

async fn taints_and_deletions_of_nodes(fixture: &Fixture) {
    let refused = Some("node");
    for (number, (user, ready, tainted, reason, act, refusal)) in (0..).zip([
        (DEV, Some("Unknown"), false, None, "taint", refused),
        (DEV, Some("Unknown"), false, Some("a reason without the right"), "taint", refused),
        (OPERATOR, Some("Unknown"), false, None, "taint", refused),
        (OPERATOR, Some("Unknown"), false, Some("I pulled its plug"), "taint", None),
        (EXEMPT, Some("Unknown"), false, None, "taint", None),
        (POD_SAFETY, Some("Unknown"), false, None, "taint", None),
        (DELETER, Some("Unknown"), false, None, "taint", refused),
        (DEV, Some("Unknown"), true, None, "label", None),
        (DEV, Some("Unknown"), false, None, "label", None),
        (DEV, None, false, None, "label", None),
        (DEV, Some("Unknown"), false, None, "delete", refused),
        (DEV, Some("False"), false, None, "delete", refused),
        (ALL_VERBS, Some("Unknown"), false, Some("."), "delete", refused),
        // Its kubelet runs, and cannot report that without its Node.
        (DEV, Some("True"), false, None, "delete", refused),
        (DEV, Some("True"), false, None, "cordon and delete", None),
        (DEV, Some("Unknown"), false, None, "cordon and delete", refused),
        (OPERATOR, Some("True"), false, None, "delete", refused),
        (OPERATOR, Some("True"), false, Some("sold"), "delete", None),
        (DELETER, Some("True"), false, None, "delete", refused),
        (CLOUD, Some("True"), false, None, "delete", refused),
        (CLOUD, Some("Unknown"), false, None, "delete", None),
        (KARPENTER, Some("Unknown"), false, None, "delete", None),
        (KARPENTER, Some("True"), false, None, "delete", refused),
        (KARPENTER, Some("True"), false, None, "finalizer and delete", None),
        (DEV, Some("True"), false, None, "finalizer and delete", refused),
        (DEV, None, false, None, "delete", None),
        (DEV, Some("Unknown"), true, None, "delete", None),
        (DEV, Some("True"), true, None, "delete", None),
        (OPERATOR, Some("Unknown"), false, None, "delete", refused),
        (OPERATOR, Some("Unknown"), false, Some("sold"), "delete", None),
        (ADMIN, Some("Unknown"), false, None, "delete", refused),
        (DELETER, Some("Unknown"), false, None, "delete", None),
        (EXEMPT, Some("Unknown"), false, None, "delete", None),
    ]) {
        let name = format!("node-{number}");
        fixture.node(&name, ready, reason).await;
        let before: [(bool, &str, &[&str]); 3] = [
            (tainted, EXEMPT, &["taint", "node", &name, TAINT]),
            (act.starts_with("cordon"), DEV, &["cordon", &name]),
            (act.starts_with("finalizer"), DEV, &["patch", "node", &name, "-p", FINALIZER]),
        ];
        for (_, user, args) in before.into_iter().filter(|(applies, ..)| *applies) {
            fixture.run(user, args, &Value::Null).await.text().unwrap();
        }
        let args: &[&str] = match act {
            "taint" => &["taint", "node", &name, TAINT],
            "label" => &["label", "node", &name, "rack=a"],
            _ => &["delete", "node", &name, "--wait=false"],
        };
        let output = fixture.run(user, args, &Value::Null).await;
        Fixture::check_answer(&format!("node {number}: {user} {act} {ready:?} {tainted} {reason:?}"), &output, refusal);
    }
}

fn stateful_set(name: &str, grace: i64, reason: Option<&str>) -> Value {
    let annotations = reason.map_or_else(|| json!({}), |reason| json!({ REASON: reason }));
    json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": name, "namespace": "default", "annotations": annotations },
        "spec": { "serviceName": name, "replicas": 1, "selector": { "matchLabels": { "app": name } }, "template": {
            "metadata": { "labels": { "app": name } },
            "spec": { "terminationGracePeriodSeconds": grace, "containers": [{ "name": "main", "image": "main" }] } } } })
}

async fn stateful_sets(fixture: &Fixture) {
    for (number, (user, grace, reason, refusal)) in (0..).zip([
        (DEV, 0, None, Some("stateful-set-grace")),
        (DEV, 1, None, None),
        (DEV, 0, Some("it keeps nothing"), None),
        (EXEMPT, 0, None, None),
    ]) {
        let object = stateful_set(&format!("set-{number}"), grace, reason);
        let output = fixture.run(user, &["create", "-f", "-"], &object).await;
        Fixture::check_answer(&format!("StatefulSet {number}: {user} {grace} {reason:?}"), &output, refusal);
    }
    // An existing StatefulSet can be scaled, and a valid one cannot be made worse.
    let zero = json!({ "spec": { "template": { "spec": { "terminationGracePeriodSeconds": 0 } } } }).to_string();
    let scaled =
        fixture.run(DEV, &["patch", "statefulset", "set-3", "-p", r#"{"spec":{"replicas":2}}"#], &Value::Null).await;
    Fixture::check_answer("scaling", &scaled, None);
    let worse = fixture.run(DEV, &["patch", "statefulset", "set-1", "-p", &zero], &Value::Null).await;
    Fixture::check_answer("taking the grace", &worse, Some("stateful-set-grace"));
}

/// The default: only impersonation of others is denied, and every user gets warnings.
#[tokio::test]
async fn in_audit_mode_it_warns_and_allows() {
    let fixture = fixture("replicaCount=2").await;
    fixture.pod("probe", true, 30, None).await;
    wait_until("who asks is warned", async || {
        let force = ["delete", "pod", "probe", "--force", "--grace-period=0", "--dry-run=server"];
        let output = fixture.run(DEV, &force, &Value::Null).await;
        let warned =
            output.stderr.contains("Validation failed for ValidatingAdmissionPolicy 'pod-safety-force-delete'");
        check_that(warned && output.status.success(), format!("{output:?}"))
    })
    .await;
    let output = fixture.run(DEV, &[&["delete", "pod", "probe"][..], FORCE].concat(), &Value::Null).await;
    Fixture::check_answer("a warning", &output, None);
    assert!(observe::find_pod(&fixture.plane.admin(), "default", "probe").await.unwrap().is_none());
    let other = json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FenceEvidence", "metadata": { "name": "forged-xxxxx" },
        "spec": { "node": { "name": "w1", "uid": "u", "bootID": "b" }, "kind": "Asserted", "by": "operator", "reason": "r" } });
    Fixture::check_answer("forged", &fixture.run(DEV, &["create", "-f", "-"], &other).await, Some("evidence"));
}

/// kube-controller-manager's pod garbage collector, with its own account: it trusts the taint and is denied; pod-safety does the same with
/// evidence.
#[tokio::test]
async fn kcm_pod_gc_removes_nothing_without_evidence() {
    let fixture = fixture("admissionPolicies.action=Deny").await;
    until_they_hold(&fixture).await;
    fixture.node("w1", Some("Unknown"), None).await;
    // From before the policies, or by an allowed user.
    let taint = ["taint", "node", "w1", "node.kubernetes.io/out-of-service=x:NoExecute"];
    fixture.run(POD_SAFETY, &taint, &Value::Null).await.text().unwrap();
    fixture.pod("db-0", true, 30, None).await;
    fixture.run(DEV, &["delete", "pod", "db-0", "--wait=false"], &Value::Null).await.text().unwrap();
    let accounts = ["--use-service-account-credentials=true"];
    let controllers = "pod-garbage-collector-controller,serviceaccount-token-controller,serviceaccount-controller";
    let kcm = fixture.plane.kube_controller_manager(controllers, &accounts).await.unwrap();
    wait_until("it tries, and is refused", async || {
        let page = kcm.metrics().await.map_err(|error| error.to_string())?;
        let failed = page.lines().find(|line| {
            line.starts_with("pod_gc_collector_force_delete_pod_errors_total")
                && line.contains("out-of-service")
                && !line.ends_with(" 0")
        });
        check_that(failed.is_some(), kcm.log_text().lines().rev().take(5).collect::<Vec<_>>().join("\n"))
    })
    .await;
    assert!(kcm.log_text().contains("'pod-safety-terminal-phase'"), "refused for another reason");
    let pod = observe::find_pod(&fixture.plane.admin(), "default", "db-0").await.unwrap().unwrap();
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Running"));
}
