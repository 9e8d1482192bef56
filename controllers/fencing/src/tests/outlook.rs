//! What `explain` shows about a node that awaits a person, and about one that does not.

use pod_safety_shared::cache::Lookup;

use super::*;

/// `confirm-down` was advised where the machine was proved off and could not be switched on, and where the
/// confirmation had been withdrawn.
#[test]
fn bug_a_second_confirmation_was_advised_where_the_machine_is_proved_off() {
    let mut stage = Fixture::at(Phase::AwaitingOperator, |status| status.message = "why".to_owned());
    let says = |stage: &Fixture, words: &str| {
        let sentence = stage.hold_message("n");
        assert!(
            sentence.starts_with("node n needs a person: why. ") && sentence.contains(words),
            "{sentence}"
        );
        sentence.contains("confirm-down")
    };
    assert!(says(&stage, "Only if you or a person you spoke to saw that the machine is powered off"));
    stage.evidence("n", "e", FenceEvidenceKind::OperatorConfirmed);
    stage.edit(|_, status| status.evidence = Some("e".to_owned()));
    assert!(!says(&stage, "It is proved off and needs no confirmation. Start it by hand"));
    stage.invalidate("e");
    assert!(!says(&stage, "Find out whether the machine runs"));
}

fn of(stage: &Fixture) -> Option<Outlook> {
    let guard = stage.world.read();
    let Lookup::Known(node) = guard.view().node("n") else { panic!("no node") };
    outlook(node, &guard.view(), stage.mono(), &stage.config)
}

#[test]
fn the_outlook_states_when_a_lost_node_is_switched_off_or_which_hold_prevents_it() {
    let mut stage = Fixture::new(&["n", "m", "k", "l", "o"]);
    assert_eq!(of(&stage), None, "it is well");
    stage.lose_node("n");
    stage.advance_to(55);
    let Some(Outlook::SwitchesOff { at, policy }) = of(&stage) else { panic!("{:?}", of(&stage)) };
    let began = stage.now;
    while stage.describe("n") != ["open by p"] {
        stage.advance(1);
        assert!(stage.now < began + 60, "{:?}", stage.describe("n"));
    }
    assert_eq!((at, &*policy), (stage.mono(), "p"), "as it is decided then");
    stage.policy(|policy| policy.paused = Some("rack 7 moves".to_owned()));
    assert!(matches!(of(&stage), Some(Outlook::Held(Hold::Paused { .. }))), "{:?}", of(&stage));
    stage.policy(|policy| (policy.paused, policy.mode) = (None, PolicyMode::DryRun));
    assert_eq!(of(&stage), None, "it only rehearses");
    stage.policy(|policy| (policy.mode, policy.when) = (PolicyMode::Enforce, When::Manual));
    assert_eq!(of(&stage), None, "a person begins it");
}

#[test]
fn a_policy_can_fence_no_node_when_its_devices_report_a_problem_for_all() {
    let lacking = |stage: &Fixture| {
        let guard = stage.world.read();
        let policy = guard.view().policies().next().unwrap();
        why_none_fenceable(policy, &guard.view())
    };
    let not_ready = |device: &mut serde_json::Value| {
        device["status"]["conditions"] = json!([{ "type": "Ready", "status": "False", "reason": "TargetsUnreachable",
            "message": "Secret fencing/bmc does not exist", "lastTransitionTime": "t" }]);
        device["status"]["observedGeneration"] = json!(1);
    };
    let mut stage = Fixture::new(&["n", "m"]);
    assert_eq!(lacking(&stage), None);
    stage.device("bmc", not_ready);
    assert_eq!(lacking(&stage).as_deref(), Some("device fencing/bmc: Secret fencing/bmc does not exist"));
    stage.device("bmc", |device| {
        not_ready(device);
        device["status"]["targets"] = json!([{ "node": "m", "power": "On" }]);
    });
    assert_eq!(lacking(&stage), None, "one can be fenced");
}
