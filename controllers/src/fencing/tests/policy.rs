//! Whether a FencePolicy would work: each row is a sentence.

use pod_safety_shared::api::FencePolicyStatus;
use pod_safety_shared::model::Uid;

use super::*;

fn reviewed(stage: &Stage) -> Option<FencePolicyStatus> {
    let key = Key::Policy(Uid::new("uid-p").unwrap());
    let decision = decide(&key, &stage.world.read().view(), stage.mono(), &stage.config);
    assert!(decision.recheck_at.is_some(), "nodes are counted again");
    decision.intents.into_iter().next().map(|intent| match intent {
        Intent::Review(review) => review.status,
        other => panic!("{other:?}"),
    })
}

fn ready_device(stage: &mut Stage, change: impl FnOnce(&mut Value)) {
    stage.device("bmc", |device| {
        device["status"]["conditions"] = json!([{ "type": "Ready", "status": "True", "reason": "AllTargetsReachable",
            "message": "3 nodes", "lastTransitionTime": "t" }]);
        change(device);
    });
}

#[test]
fn a_policy_is_ready_only_if_all_that_it_needs_is_known_to_be() {
    type Change = fn(&mut Stage);
    let rows: [(&str, Change, &str); 10] = [
        ("its device was ready at its last check", |_| (), "True DevicesReady"),
        (
            "it fences in rehearsal alone",
            |stage| stage.policy(|p| p.mode = PolicyMode::DryRun),
            "True DryRun",
        ),
        (
            "it is paused",
            |stage| stage.policy(|p| p.paused = Some("rack 7 is moved".to_owned())),
            "False Paused",
        ),
        (
            "no node has it",
            |stage| {
                stage.policy(|p| p.node_selector.match_labels = [("a".to_owned(), "b".to_owned())].into())
            },
            "False NoNodes",
        ),
        (
            "a device is not there",
            |stage| stage.policy(|p| p.levels.push(level("pdu", 1))),
            "False DeviceUnusable",
        ),
        (
            "a device is not trusted",
            |stage| {
                ready_device(stage, |device| {
                    device["status"]["conditions"] = json!([{ "type": "Trusted", "status": "False", "reason": "r",
                        "message": "m", "lastTransitionTime": "t" }]);
                });
            },
            "False DeviceUnusable",
        ),
        (
            "a device does not answer",
            |stage| {
                ready_device(stage, |device| device["status"]["conditions"][0]["status"] = json!("False"))
            },
            "False DeviceNotReady",
        ),
        (
            "a device was never checked",
            |stage| ready_device(stage, |device| device["status"]["conditions"] = json!([])),
            "Unknown DeviceNotChecked",
        ),
        (
            "a device was checked before it was changed",
            |stage| ready_device(stage, |device| device["metadata"]["generation"] = json!(2)),
            "Unknown DeviceNotChecked",
        ),
        (
            "a device is being deleted",
            |stage| {
                ready_device(stage, |device| {
                    device["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                    device["metadata"]["finalizers"] = json!(["x/y"]);
                });
            },
            "False DeviceUnusable",
        ),
    ];
    for (sentence, change, expected) in rows {
        let mut stage = Stage::new(&["n", "m", "k"]);
        ready_device(&mut stage, |_| ());
        change(&mut stage);
        let status = reviewed(&stage).unwrap();
        let ready = &status.conditions[0];
        assert_eq!(format!("{} {}", ready.status, ready.reason), expected, "{sentence}: {}", ready.message);
        assert_eq!(status.nodes, if expected.ends_with("NoNodes") { 0 } else { 3 }, "{sentence}");
    }
}

#[test]
fn what_is_written_already_is_not_written_again() {
    let mut stage = Stage::new(&["n", "m"]);
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

/// A policy that another one overrules has no node, though its selector chooses them all.
#[test]
fn a_policy_that_another_one_overrules_has_no_node() {
    let mut stage = Stage::new(&["n"]);
    ready_device(&mut stage, |_| ());
    let other = FencePolicySpec { priority: 5, ..stage.policy.clone() };
    stage.other_policy("q", &other);
    let status = reviewed(&stage).unwrap();
    assert_eq!((status.nodes, status.conditions[0].reason.as_str()), (0, "NoNodes"));
}
