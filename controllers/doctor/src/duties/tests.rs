//! A missing controller is detected by its missing effects. What is recent, held or the duty of others is no symptom.

use pod_safety_shared::model::Kind;
use pod_safety_shared::testing::objects::{node, pod};
use pod_safety_shared::testing::{World, at};
use serde_json::json;

use super::*;

const WALL: &str = "2026-11-21T10:00:00Z";
const ALL: &[Name] = Name::ALL;

fn wall() -> Timestamp {
    WALL.parse().unwrap()
}

fn with(mode: Mode, check: impl FnOnce(Duties<'_>) -> Option<Symptom>) -> Option<(Health, String, String)> {
    let installation = Installation::default();
    let symptom = check(Duties { mode: Some(mode), controllers: ALL, installation: &installation })?;
    Some((symptom.health, symptom.what, symptom.remedy))
}

/// A kind cluster without node lifecycle scheduled no pod, and no check reported it.
#[test]
fn bug_ready_nodes_that_keep_the_taint_not_ready_passed_the_check() {
    let tainted = |key: &str, effect: &str| json!([{ "key": key, "effect": effect }]);
    let (not_ready, none) = ("node.kubernetes.io/not-ready", json!([]));
    for (ready, since, taints, expected) in [
        ("True", "09:00:00", tainted(not_ready, "NoSchedule"), Some(Health::Problem)),
        ("True", "09:00:00", tainted("node.kubernetes.io/unreachable", "NoExecute"), Some(Health::Problem)),
        ("True", "09:59:30", tainted(not_ready, "NoSchedule"), Some(Health::Fine)),
        ("False", "09:00:00", tainted(not_ready, "NoSchedule"), None),
        ("Unknown", "09:00:00", tainted("node.kubernetes.io/unreachable", "NoExecute"), None),
        ("True", "09:00:00", tainted("node.kubernetes.io/unschedulable", "NoSchedule"), Some(Health::Fine)),
        ("True", "09:00:00", tainted("example.com/gpu", "NoExecute"), Some(Health::Fine)),
        ("True", "09:00:00", none, Some(Health::Fine)),
    ] {
        let world = World::listed();
        let condition =
            json!({ "type": "Ready", "status": ready, "lastTransitionTime": format!("2026-11-21T{since}Z") });
        let one = node("a").set("/status/conditions", json!([condition])).set("/spec/taints", taints.clone());
        world.apply(Kind::Nodes, &one.set("/metadata/creationTimestamp", json!("2026-11-20T10:00:00Z")), at(0));
        let guard = world.read();
        let symptom = with(Mode::Guard, |duties| check_node_lifecycle(&guard.view(), wall(), duties));
        assert_eq!(symptom.as_ref().map(|found| found.0), expected, "{ready} {since} {taints}: {symptom:?}");
        if let Some((Health::Problem, what, remedy)) = symptom {
            assert!(what.contains("1 of 1 Ready node") && what.ends_with(": a"), "{what}");
            assert!(remedy.contains("-node-lifecycle-controller") && remedy.contains("--set mode=replace"), "{remedy}");
        }
    }
}

fn budget(generation: i64, observed: i64, created: &str) -> Value {
    json!({ "metadata": { "namespace": "shop", "name": "api", "generation": generation,
            "creationTimestamp": format!("2026-11-21T{created}Z") },
        "status": { "observedGeneration": observed } })
}

fn entry(manager: &str, subresource: Option<&str>, time: &str) -> Value {
    json!({ "manager": manager, "subresource": subresource, "time": format!("2026-11-21T{time}Z") })
}

#[test]
fn bug_pod_disruption_budgets_without_a_controller_passed_the_check() {
    let changed = |at: &str| {
        let mut changed = budget(2, 1, "08:00:00");
        changed["metadata"]["managedFields"] =
            json!([entry("kubectl", None, at), entry("kube-controller-manager", Some("status"), "09:59:59")]);
        changed
    };
    let mut failing = budget(1, 0, "08:00:00");
    failing["status"]["conditions"] = json!([{ "type": "DisruptionAllowed", "reason": "SyncFailed" }]);
    let mut terminating = budget(1, 0, "08:00:00");
    terminating["metadata"]["deletionTimestamp"] = json!(WALL);
    for (what, one, health) in [
        ("never written", budget(1, 0, "09:00:00"), Health::Problem),
        ("written", budget(1, 1, "09:00:00"), Health::Fine),
        ("young", budget(1, 0, "09:59:30"), Health::Fine),
        ("changed long ago", changed("09:00:00"), Health::Problem),
        ("changed just now", changed("09:59:40"), Health::Fine),
        ("a controller says that it fails", failing, Health::Fine),
        ("deleted", terminating, Health::Fine),
    ] {
        let symptom = with(Mode::Guard, |duties| check_budget_statuses(&[one], None, wall(), duties).pop());
        assert_eq!(symptom.as_ref().map(|found| found.0), Some(health), "{what}: {symptom:?}");
    }
    assert_eq!(with(Mode::Guard, |duties| check_budget_statuses(&[], None, wall(), duties).pop()), None);
}

#[test]
fn a_kube_controller_manager_that_writes_statuses_beside_the_leader_is_reported() {
    let leader = Leader { holder: "p_1".to_owned(), user: None, since: "2026-11-21T09:00:00Z".parse().ok() };
    for (kcm_wrote, mode, health) in [
        ("09:30:00", Mode::Replace, Health::Problem),
        ("09:00:30", Mode::Replace, Health::Fine),
        ("08:00:00", Mode::Replace, Health::Fine),
        ("09:30:00", Mode::Guard, Health::Fine),
    ] {
        let mut one = budget(1, 1, "08:00:00");
        one["metadata"]["managedFields"] = json!([
            entry("pod-safety", Some("status"), "09:59:00"),
            entry("kube-controller-manager", Some("status"), kcm_wrote)
        ]);
        let symptom = with(mode, |duties| check_budget_statuses(&[one], Some(&leader), wall(), duties).pop());
        let (found, what, _) = symptom.unwrap();
        assert_eq!(found, health, "{kcm_wrote} {mode:?}: {what}");
        assert!(what.contains("kube-controller-manager"), "{what}");
    }
}

#[test]
fn pods_overdue_for_eviction_by_taint_are_reported() {
    let tolerates = |seconds: i64| json!([{ "key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds }]);
    let ever = json!([{ "operator": "Exists" }]);
    let (before, after) = ("2026-11-20T10:00:00Z", "2026-11-21T09:58:00Z");
    for (tolerations, created, deleted, health) in [
        (json!([]), before, false, Health::Problem),
        (json!([]), before, true, Health::Fine),
        (json!([]), after, false, Health::Fine),
        (tolerates(300), before, false, Health::Problem),
        (tolerates(3_300), before, false, Health::Fine),
        (tolerates(3_200), before, false, Health::Problem),
        (ever, before, false, Health::Fine),
    ] {
        let world = World::listed();
        let taint = json!({ "key": "k", "effect": "NoExecute", "timeAdded": "2026-11-21T09:00:00Z" });
        let machine = node("a").ready("Unknown").set("/spec/taints", json!([taint]));
        world.apply(Kind::Nodes, &machine, at(0));
        let one = pod("p").on("a").set("/spec/tolerations", tolerations.clone());
        let one = if deleted { one.terminating() } else { one };
        world.apply(Kind::Pods, &one.set("/metadata/creationTimestamp", json!(created)), at(0));
        let guard = world.read();
        let symptom = with(Mode::Replace, |duties| check_taint_eviction(&guard.view(), wall(), duties)).unwrap();
        assert_eq!(symptom.0, health, "{tolerations}: {symptom:?}");
    }
    let world = World::listed();
    world.apply(Kind::Nodes, &node("a").ready("True"), at(0));
    assert_eq!(with(Mode::Guard, |duties| check_taint_eviction(&world.read().view(), wall(), duties)), None);
}

#[test]
fn the_remedy_depends_on_mode_and_controllers() {
    let installation = Installation::default();
    let duties = |mode, controllers| Duties { mode, controllers, installation: &installation };
    for (mode, controllers, expected) in [
        (Some(Mode::Replace), ALL, "kubectl logs --namespace pod-safety"),
        (Some(Mode::Replace), &[Name::PodGc][..], "--set controllers.taintEviction.enabled=true"),
        (Some(Mode::Guard), ALL, "remove -taint-eviction-controller from --controllers"),
        (None, &[], "--set mode=replace"),
    ] {
        let remedy = duties(mode, controllers).remedy(Name::TaintEviction);
        assert!(remedy.contains(expected), "{mode:?} {controllers:?}: {remedy}");
    }
}
