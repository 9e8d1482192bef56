//! Whether a FencePolicy would work: each row is a sentence.

use pod_safety_shared::api::FencePolicyStatus;
use pod_safety_shared::model::Uid;

use super::*;

fn reviewed(stage: &Fixture) -> Option<FencePolicyStatus> {
    reviewed_of(stage, "p")
}

fn reviewed_of(stage: &Fixture, name: &str) -> Option<FencePolicyStatus> {
    let key = Key::Policy(Uid::new(&format!("uid-{name}")).unwrap());
    let decision = decide(&key, &stage.world.read().view(), stage.mono(), &stage.config);
    assert!(decision.requeue_at.is_some(), "nodes are counted again");
    decision.intents.into_iter().next().map(|intent| match intent {
        Intent::Review(review) if *review.name == *name => review.status,
        other => panic!("{other:?}"),
    })
}

fn ready_device(stage: &mut Fixture, change: impl FnOnce(&mut Value)) {
    stage.device("bmc", |device| {
        device["status"]["conditions"] = json!([{ "type": "Ready", "status": "True", "reason": "AllTargetsReachable",
            "message": "3 nodes", "lastTransitionTime": "t" }]);
        change(device);
    });
}

/// Status and reason of Ready, and the number of nodes that have the policy.
fn ready(stage: &Fixture) -> (String, u32) {
    let status = reviewed(stage).unwrap();
    let ready = &status.conditions[0];
    (format!("{} {}", ready.status, ready.reason), status.nodes)
}

#[test]
fn a_policy_is_ready_only_if_it_acts_and_has_nodes() {
    type Change = fn(&mut FencePolicySpec);
    let nothing = |policy: &mut FencePolicySpec| {
        policy.node_selector.match_labels = [("a".to_owned(), "b".to_owned())].into();
    };
    let rows: [(&str, Change, (&str, u32)); 5] = [
        ("its device was ready at its last check", |_| (), ("True DevicesReady", 3)),
        ("it only rehearses", |policy| policy.mode = PolicyMode::DryRun, ("True DryRun", 3)),
        ("it is paused", |policy| policy.paused = Some("rack 7 moves".to_owned()), ("False Paused", 3)),
        ("no node has it", nothing, ("False NoNodes", 0)),
        ("a device is missing", |policy| policy.levels.push(level("pdu", 1)), ("False DeviceUnusable", 3)),
    ];
    for (sentence, change, (expected, nodes)) in rows {
        let mut stage = Fixture::new(&["n", "m", "k"]);
        ready_device(&mut stage, |_| ());
        stage.policy(change);
        assert_eq!(ready(&stage), (expected.to_owned(), nodes), "{sentence}");
    }
}

#[test]
fn an_unknown_device_state_is_not_ready() {
    type Change = fn(&mut Value);
    let rows: [(&str, Change, &str); 5] = [
        (
            "it is not trusted",
            |device| {
                device["status"]["conditions"] = json!([{ "type": "Trusted", "status": "False", "reason": "r",
                    "message": "m", "lastTransitionTime": "t" }]);
            },
            "False DeviceUnusable",
        ),
        (
            "it does not answer",
            |device| device["status"]["conditions"][0]["status"] = json!("False"),
            "False DeviceNotReady",
        ),
        (
            "it was never checked",
            |device| device["status"]["conditions"] = json!([]),
            "Unknown DeviceNotChecked",
        ),
        (
            "it was checked before it was changed",
            |device| device["metadata"]["generation"] = json!(2),
            "Unknown DeviceNotChecked",
        ),
        (
            "it is being deleted",
            |device| device["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            "False DeviceUnusable",
        ),
    ];
    for (sentence, change, expected) in rows {
        let mut stage = Fixture::new(&["n", "m", "k"]);
        ready_device(&mut stage, change);
        assert_eq!(ready(&stage), (expected.to_owned(), 3), "{sentence}");
    }
}

#[test]
fn an_unchanged_status_is_not_written_again() {
    let mut stage = Fixture::new(&["n", "m"]);
    ready_device(&mut stage, |_| ());
    let mut status = reviewed(&stage).unwrap();
    status.conditions[0].last_transition_time = "2026-01-01T00:00:00Z".to_owned();
    stage.policy_status(&status);
    assert_eq!(reviewed(&stage), None);
    ready_device(&mut stage, |device| device["status"]["conditions"][0]["status"] = json!("False"));
    let status = reviewed(&stage).unwrap();
    assert_eq!(status.conditions[0].last_transition_time, "", "it began now");
    stage.put(pod_safety_shared::testing::objects::node("l").ready("True").0);
    stage.policy_status(&status);
    assert_eq!(reviewed(&stage).unwrap().nodes, 3, "a node that joins is counted");
}

/// A policy that another one overrules has no nodes, though its selector matches them all.
#[test]
fn a_policy_that_another_one_overrules_has_no_node() {
    let mut stage = Fixture::new(&["n"]);
    ready_device(&mut stage, |_| ());
    let other = FencePolicySpec { priority: 5, ..stage.policy.clone() };
    stage.other_policy("q", &other);
    let status = reviewed(&stage).unwrap();
    assert_eq!((status.nodes, status.conditions[0].reason.as_str()), (0, "NoNodes"));
    assert_eq!(reviewed_of(&stage, "q").unwrap().nodes, 1);
}
