//! Whether a FencePolicy would work: each row is a sentence.

use pod_safety_shared::api::FencePolicyStatus;

use super::*;

fn reviewed(fixture: &Fixture) -> Option<FencePolicyStatus> {
    reviewed_of(fixture, "p")
}

fn reviewed_of(fixture: &Fixture, name: &str) -> Option<FencePolicyStatus> {
    let key = Key::Policy(Uid::new(&format!("uid-{name}")).unwrap());
    let decision = decide(&key, &fixture.world.read().view(), fixture.mono(), &fixture.config);
    assert!(decision.requeue_at.is_some(), "nodes are counted again");
    decision.intents.into_iter().next().map(|intent| match intent {
        Intent::Review(review) if *review.name == *name => review.status,
        other => panic!("{other:?}"),
    })
}

fn ready_device(fixture: &mut Fixture, change: impl FnOnce(&mut Value)) {
    fixture.device("bmc", |device| {
        device["status"]["conditions"] = json!([{ "type": "Ready", "status": "True", "reason": "AllTargetsReachable",
            "message": "3 nodes", "lastTransitionTime": "t" }]);
        change(device);
    });
}

/// Status and reason of Ready, and the number of nodes that have the policy.
fn ready(fixture: &Fixture) -> (String, u32) {
    let status = reviewed(fixture).unwrap();
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
        let mut fixture = Fixture::new(&["n", "m", "k"]);
        ready_device(&mut fixture, |_| ());
        fixture.policy(change);
        assert_eq!(ready(&fixture), (expected.to_owned(), nodes), "{sentence}");
    }
}

#[test]
fn an_unknown_device_state_is_not_ready() {
    type Change = fn(&mut Value);
    let rows: [(&str, &str, Change); 5] = [
        ("it is not trusted", "False DeviceUnusable", |device| {
            device["status"]["conditions"] = json!([{ "type": "Trusted", "status": "False", "reason": "r",
                    "message": "m", "lastTransitionTime": "t" }]);
        }),
        ("it does not answer", "False DeviceNotReady", |device| {
            device["status"]["conditions"][0]["status"] = json!("False")
        }),
        ("it was never checked", "Unknown DeviceNotChecked", |device| device["status"]["conditions"] = json!([])),
        ("it was checked before it was changed", "Unknown DeviceNotChecked", |device| {
            device["metadata"]["generation"] = json!(2)
        }),
        ("it is being deleted", "False DeviceUnusable", |device| {
            device["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")
        }),
    ];
    for (sentence, expected, change) in rows {
        let mut fixture = Fixture::new(&["n", "m", "k"]);
        ready_device(&mut fixture, change);
        assert_eq!(ready(&fixture), (expected.to_owned(), 3), "{sentence}");
    }
}

#[test]
fn an_unchanged_status_is_not_written_again() {
    let mut fixture = Fixture::new(&["n", "m"]);
    ready_device(&mut fixture, |_| ());
    let mut status = reviewed(&fixture).unwrap();
    status.conditions[0].last_transition_time = "2026-01-01T00:00:00Z".to_owned();
    fixture.policy_status(&status);
    assert_eq!(reviewed(&fixture), None);
    ready_device(&mut fixture, |device| device["status"]["conditions"][0]["status"] = json!("False"));
    let status = reviewed(&fixture).unwrap();
    assert_eq!(status.conditions[0].last_transition_time, "", "it began now");
    fixture.put(pod_safety_shared::testing::objects::node("l").ready("True").0);
    fixture.policy_status(&status);
    assert_eq!(reviewed(&fixture).unwrap().nodes, 3, "a node that joins is counted");
}

/// A policy that another one overrules has no nodes, though its selector matches them all.
#[test]
fn a_policy_that_another_one_overrules_has_no_node() {
    let mut fixture = Fixture::new(&["n"]);
    ready_device(&mut fixture, |_| ());
    let other = FencePolicySpec { priority: 5, ..fixture.policy.clone() };
    fixture.other_policy("q", &other);
    let status = reviewed(&fixture).unwrap();
    assert_eq!((status.nodes, status.conditions[0].reason.as_str()), (0, "NoNodes"));
    assert_eq!(reviewed_of(&fixture, "q").unwrap().nodes, 1);
}
