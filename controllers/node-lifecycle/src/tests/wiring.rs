//! Which changes enqueue a decision, and which Events and metrics it produces.

use std::sync::Arc;

use pod_safety_shared::authority::{RequestError, UpdateOutcome};
use pod_safety_shared::cache::Change;
use pod_safety_shared::controller_loop::{Controller, HoldReason as _};
use pod_safety_shared::lease::Leadership;
use pod_safety_shared::model::{ConditionState, Pod, Uid};

use super::*;

fn page(registry: &prometheus::Registry) -> Vec<String> {
    let mut page = Vec::new();
    prometheus::Encoder::encode(&prometheus::TextEncoder::new(), &registry.gather(), &mut page).unwrap();
    String::from_utf8(page).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn relevant_changes_enqueue_keys_and_a_heartbeat_only_a_waiting_node() {
    let controller = NodeLifecycle::new(config(), Leadership::always(), &prometheus::Registry::new()).unwrap();
    let marked = |change: &Change<'_>| {
        let mut keys = Vec::new();
        controller.keys_for(change, &mut |key| keys.push(key));
        keys
    };
    let name: Arc<str> = "n".into();
    let (node, pods) = (Key::Node("n".into()), Key::Pods("n".into()));
    assert!(marked(&Change::Heartbeat { name: &name, relevant: false }).is_empty());
    assert_eq!(marked(&Change::Heartbeat { name: &name, relevant: true }), std::slice::from_ref(&node));
    assert_eq!(marked(&Change::Node { name: &name, taints: true, readiness: false }), std::slice::from_ref(&node));
    let both = [node.clone(), pods.clone()];
    assert_eq!(marked(&Change::Node { name: &name, taints: false, readiness: true }), both);

    let fixture = Fixture::new(config(), &["n"]);
    let pod = json!({ "metadata": { "namespace": "ns", "name": "p", "uid": "uid-p", "resourceVersion": "7" },
        "spec": { "nodeName": "n" }, "status": { "phase": "Running" } });
    fixture.world.apply(Kind::Pods, &pod, fixture.mono());
    let guard = fixture.world.read();
    let cached = guard.view().pod(&Uid::new("uid-p").unwrap()).unwrap();
    let other = |change: fn(&mut Pod)| {
        let mut pod = cached.clone();
        change(&mut pod);
        marked(&Change::Pod { before: Some(cached), after: Some(&pod) }).len()
    };
    assert_eq!(other(|pod| pod.running_containers = 1), 0, "noise");
    assert_eq!(other(|pod| pod.ready = true), 1);
    assert_eq!(other(|pod| pod.unreachable = ConditionState::True), 1);
    assert_eq!(other(|pod| pod.node = Some("m".into())), 1);
    assert_eq!(marked(&Change::Pod { before: None, after: Some(cached) }), std::slice::from_ref(&pods));
    assert!(marked(&Change::Pod { before: Some(cached), after: None }).is_empty());
    let mut all = Vec::new();
    controller.list_keys(&guard.view(), &mut |key| all.push(key));
    assert_eq!(all, [node, pods]);
}

#[test]
fn the_controller_acts_beside_kcm_and_in_its_place_but_not_in_observe_mode() {
    let controller = NodeLifecycle::new(config(), Leadership::always(), &prometheus::Registry::new()).unwrap();
    let acts = [Mode::Observe, Mode::Guard, Mode::Replace].map(|mode| controller.acts_in(mode));
    assert_eq!(acts, [false, true, true]);
    for reason in
        ["LargeOutage", "ZoneDisrupted", "EvictionOff", "EvictionQueued", "NodeUnreadable", "NotSynced", "Stale"]
    {
        assert!(Hold::reason_names().contains(&reason));
    }
}

#[test]
fn the_metrics_are_those_of_kcm_and_the_delay_until_a_node_is_found_lost() {
    let registry = prometheus::Registry::new();
    let controller = NodeLifecycle::new(config(), Leadership::always(), &registry).unwrap();
    let mut fixture = Fixture::new(config(), &["n", "m", "k"]);
    for name in ["n", "m", "k"] {
        fixture.change(name, |node| Fixture::in_zone(node, "z"));
    }
    fixture.alive.remove("n");
    fixture.advance_to(50);
    let decide = |fixture: &Fixture, name: &str| {
        let guard = fixture.world.read();
        let decision = controller.decide(&Key::Node(name.into()), &guard.view(), fixture.mono());
        Update::Node(Box::new(update(&decision).unwrap().clone()))
    };
    let lost = decide(&fixture, "n");
    controller.update_completed(&lost, &RequestError::Changed.into(), at(51));
    let lost = decide(&fixture, "n");
    controller.update_completed(&lost, &UpdateOutcome::Written, at(50) + std::time::Duration::from_millis(125));
    fixture.act("n");
    let given_up = decide(&fixture, "n");
    controller.update_completed(&given_up, &UpdateOutcome::Written, at(51));
    fixture.world.remove(Kind::Nodes, "uid-m", fixture.mono());
    fixture.world.remove(Kind::Nodes, "uid-k", fixture.mono());
    controller.list_keys(&fixture.world.read().view(), &mut |_| {});
    fixture.world.remove(Kind::Nodes, "uid-n", fixture.mono());
    let before = page(&registry);
    controller.list_keys(&fixture.world.read().view(), &mut |_| {});
    let after = page(&registry);
    let has = |page: &[String], lines: &[&str]| {
        for line in lines {
            assert!(page.iter().any(|one| one.replace('\0', "") == *line), "no {line} in {page:#?}");
        }
    };
    has(
        &before,
        &[
            "node_collector_evictions_total{zone=\"::z\"} 1",
            "node_collector_unhealthy_nodes_in_zone{zone=\"::z\"} 1",
            "node_collector_update_node_health_duration_seconds_count 2",
            "node_collector_update_node_health_duration_seconds_bucket{le=\"16.384\"} 2",
            "node_collector_zone_health{zone=\"::z\"} 0",
            "node_collector_zone_size{zone=\"::z\"} 1",
            "pod_safety_node_detection_lag_seconds_bucket{le=\"0.2\"} 1",
            "pod_safety_node_detection_lag_seconds_count 1",
            "pod_safety_node_detection_lag_seconds_sum 0.125",
        ],
    );
    has(
        &after,
        &[
            "node_collector_unhealthy_nodes_in_zone{zone=\"::z\"} 0",
            "node_collector_zone_health{zone=\"::z\"} 100",
            "node_collector_zone_size{zone=\"::z\"} 0",
        ],
    );
}

/// A kubelet may write the zone of its own Node, again and again.
#[test]
fn attack_a_node_that_changes_its_zone_repeatedly_makes_bounded_metrics() {
    let registry = prometheus::Registry::new();
    let controller = NodeLifecycle::new(config(), Leadership::always(), &registry).unwrap();
    let mut fixture = Fixture::new(config(), &["n", "m", "k"]);
    for turn in 0..1_000 {
        fixture.change("n", |node| Fixture::in_zone(node, &format!("z{turn}")));
        let guard = fixture.world.read();
        let _ = controller.decide(&Key::Node("n".into()), &guard.view(), fixture.mono());
        drop(guard);
    }
    controller.list_keys(&fixture.world.read().view(), &mut |_| {});
    let page = page(&registry);
    let series = page.iter().filter(|line| line.contains("zone=")).count();
    assert!(series < 1_100, "{series} series after 1,000 changes of one label of one node");
}

#[test]
fn a_process_that_does_not_lead_now_finds_no_node_lost_by_bookmarks() {
    let mut fixture = Fixture::new(config(), &["n0", "n1", "n2", "n3"]);
    fixture.alive.clear();
    fixture.advance_without_events(55);
    fixture.world.confirm_all(fixture.mono());
    fixture.advance_without_events(90);
    for (leadership, wants) in [(Leadership::none(), "LargeOutage 4/4"), (Leadership::always(), "not reporting")] {
        let controller = NodeLifecycle::new(config(), leadership, &prometheus::Registry::new()).unwrap();
        let guard = fixture.world.read();
        let decision = controller.decide(&Key::Node("n0".into()), &guard.view(), fixture.mono());
        assert_eq!(describe(&decision)[0], wants);
    }
}
