//! Conditions of pods whose node is not ready.

use super::*;

/// A running pod `ns/p` on node `n` whose Ready condition has this status since that second.
fn pod(ready: &str, since: Option<u64>) -> Value {
    json!({
        "metadata": { "namespace": "ns", "name": "p", "uid": "uid-p", "resourceVersion": "7", "generation": 4 },
        "spec": { "nodeName": "n" },
        "status": { "phase": "Running", "conditions": [
            { "type": "Ready", "status": ready, "lastTransitionTime": since.map(fixture::timestamp) }] },
    })
}

fn terminating(pod: Value) -> Value {
    let pod = with(pod, "/metadata/deletionTimestamp", json!(fixture::timestamp(30)));
    with(pod, "/metadata/deletionGracePeriodSeconds", json!(30))
}

fn unreachable(pod: Value, status: &str) -> Value {
    with(pod, "/status/conditions/1", json!({ "type": "pod-safety.dev/NodeUnreachable", "status": status }))
}

/// The decision about the pod while its node has this readiness since second 100.
fn decided(config: &Config, ready: Option<&str>, pod: &Value) -> Vec<&'static str> {
    let mut fixture = Fixture::new(config.clone(), &["other"]);
    let conditions: Vec<Value> = ready.map(|ready| condition("Ready", ready, 100)).into_iter().collect();
    fixture.put(with(Fixture::node("n", "", 0), "/status/conditions", json!(conditions)));
    fixture.world.apply(Kind::Pods, pod, fixture.mono());
    let decision = decide(&Key::Pods("n".into()), &fixture.world.read().view(), fixture.mono(), config);
    assert!(decision.holds.is_empty() && decision.intents.len() < 2);
    let word = |intent: &Intent| {
        let Intent::Update(Update::PodOfLostNode(update)) = intent else { panic!("{intent:?}") };
        let LostNodePodUpdate { pod, rv, generation, not_ready, unreachable } = update;
        assert_eq!((pod.to_string(), rv.to_string(), *generation), ("ns/p".into(), "7".into(), 4));
        match (not_ready, unreachable) {
            (true, None) => "not ready",
            (true, Some(true)) => "not ready, cut off",
            (false, Some(true)) => "cut off",
            (false, Some(false)) => "back",
            other => panic!("{other:?}"),
        }
    };
    decision.intents.iter().map(word).collect()
}

#[test]
fn ready_pods_of_an_unreachable_node_become_not_ready() {
    let cases: [(&str, Option<&str>, Value, &[&str]); 11] = [
        ("all is well", Some("True"), pod("True", Some(50)), &[]),
        ("it is unknown", Some("Unknown"), pod("True", Some(50)), &["not ready"]),
        ("whenever it became ready", Some("Unknown"), pod("True", Some(150)), &["not ready"]),
        ("it is not ready", Some("Unknown"), pod("False", Some(50)), &[]),
        ("it has no conditions", Some("Unknown"), with(pod("True", None), "/status/conditions", json!(null)), &[]),
        ("its kubelet reports the node NotReady, and its pods itself", Some("False"), pod("True", Some(50)), &[]),
        ("the node never said how it is", None, pod("True", Some(50)), &[]),
        ("it ends", Some("Unknown"), terminating(pod("True", Some(50))), &["not ready, cut off"]),
        (
            "a mirror pod",
            Some("Unknown"),
            with(pod("True", Some(50)), "/metadata/annotations", json!({ "kubernetes.io/config.mirror": "x" })),
            &["not ready"],
        ),
        (
            "of a DaemonSet",
            Some("Unknown"),
            with(
                pod("True", Some(50)),
                "/metadata/ownerReferences",
                json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true }]),
            ),
            &["not ready"],
        ),
        ("bound to another node", Some("Unknown"), with(pod("True", Some(50)), "/spec/nodeName", json!("other")), &[]),
    ];
    for (sentence, ready, pod, wants) in cases {
        assert_eq!(decided(&config(), ready, &pod), wants, "{sentence}");
    }
    assert_eq!(decided(&guard(), Some("Unknown"), &pod("True", Some(50))), [] as [&str; 0], "KCM does that");
}

#[test]
fn a_deleted_pod_on_an_unreachable_node_gets_our_condition_in_both_modes() {
    let ends = || terminating(pod("False", Some(50)));
    let over = |pod: Value| with(pod, "/status/phase", json!("Failed"));
    let removed = |pod: Value| {
        let pod = with(pod, "/metadata/deletionGracePeriodSeconds", json!(0));
        with(pod, "/metadata/finalizers", json!(["example.com/x"]))
    };
    let cases: [(&str, Option<&str>, Value, &[&str]); 12] = [
        ("it is unknown whether it runs", Some("Unknown"), ends(), &["cut off"]),
        ("it has the condition", Some("Unknown"), unreachable(ends(), "True"), &[]),
        ("it was cut off before", Some("Unknown"), unreachable(ends(), "False"), &["cut off"]),
        ("it is not deleted", Some("Unknown"), pod("False", Some(50)), &[]),
        ("it has ended", Some("Unknown"), over(ends()), &[]),
        (
            "bug: it was deleted without a grace period, and has a finalizer",
            Some("Unknown"),
            removed(ends()),
            &["cut off"],
        ),
        ("its kubelet reports", Some("False"), ends(), &[]),
        ("its kubelet is back", Some("True"), unreachable(ends(), "True"), &["back"]),
        ("back, though its node is not ready", Some("False"), unreachable(ends(), "True"), &["back"]),
        ("back, and the condition is False", Some("True"), unreachable(ends(), "False"), &[]),
        ("the node never said how it is", None, unreachable(ends(), "True"), &[]),
        ("all is well", Some("True"), ends(), &[]),
    ];
    for (sentence, ready, pod, wants) in cases {
        for config in [config(), guard()] {
            assert_eq!(decided(&config, ready, &pod), wants, "{sentence}");
        }
    }
}

#[test]
fn a_restarted_process_marks_pods_that_the_former_one_left_ready() {
    let mut fixture = Fixture::new(config(), &["n", "other"]);
    fixture.report("n", "Unknown");
    fixture.restart();
    fixture.world.apply(Kind::Pods, &pod("True", Some(0)), fixture.mono());
    let decision = decide(&Key::Pods("n".into()), &fixture.world.read().view(), fixture.mono(), &fixture.config);
    assert_eq!(decision.intents.len(), 1, "the state counts, and no transition");
}

/// The first writes of a kubelet that is back are about its pods; its node follows seconds later. Until then each pod
/// was set to not ready once a second.
#[test]
fn bug_a_kubelet_that_reported_its_pods_ready_before_its_node_was_contradicted() {
    let mut fixture = Fixture::new(config(), &["n", "other"]);
    fixture.report("n", "Unknown");
    let mut rv = 7;
    let mut says = |fixture: &Fixture, ready: &str| {
        rv += 1;
        let pod = with(pod(ready, Some(0)), "/metadata/resourceVersion", json!(rv.to_string()));
        fixture.world.apply(Kind::Pods, &pod, fixture.mono());
        let decision = decide(&Key::Pods("n".into()), &fixture.world.read().view(), fixture.mono(), &fixture.config);
        (decision.intents.len(), decision.requeue_at)
    };
    assert_eq!(says(&fixture, "True"), (1, None), "it was ready before: no later report");
    assert_eq!(says(&fixture, "False"), (0, None), "as we called it");
    fixture.advance_to(fixture.now + 30);
    let spoken_for_until = fixture.mono() + fixture.config.monitor_grace;
    assert_eq!(says(&fixture, "True"), (0, Some(spoken_for_until)), "its kubelet lives");
    fixture.advance_to(fixture.now + 49);
    assert_eq!(says(&fixture, "True"), (0, Some(spoken_for_until)), "and has its time to report its node");
    fixture.advance_to(fixture.now + 1);
    assert_eq!(says(&fixture, "True"), (1, None), "it stopped reporting again");
}

#[test]
fn pods_of_a_deleted_or_unreadable_node_are_left_alone() {
    let fixture = Fixture::new(config(), &["other"]);
    fixture.world.apply(Kind::Pods, &pod("True", Some(0)), fixture.mono());
    let decided =
        |key: &str| decide(&Key::Pods(key.into()), &fixture.world.read().view(), fixture.mono(), &fixture.config);
    assert_eq!(decided("n"), Decision::default());
    let broken = with(Fixture::node("n", "Unknown", 0), "/metadata/resourceVersion", json!("x"));
    fixture.world.apply(Kind::Nodes, &broken, fixture.mono());
    assert_eq!(describe(&decided("n")), ["NodeUnreadable"]);
    fixture.world.remove(Kind::Pods, "uid-p", fixture.mono());
    assert_eq!(decided("n"), Decision::default());
}
