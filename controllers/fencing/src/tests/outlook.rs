//! What `explain` shows about a node that awaits a person, and about one that does not.

use pod_safety_shared::cache::Lookup;

use super::*;

/// `confirm-down` was advised where the machine was proved off and could not be switched on, and where the
/// confirmation had been withdrawn.
#[test]
fn bug_a_second_confirmation_was_advised_where_the_machine_is_proved_off() {
    let mut fixture = Fixture::at(Phase::AwaitingOperator, |status| status.message = "why".to_owned());
    let says = |fixture: &Fixture, words: &str| {
        let sentence = fixture.hold_message("n");
        assert!(sentence.starts_with("node n needs a person: why. ") && sentence.contains(words), "{sentence}");
        sentence.contains("confirm-down")
    };
    assert!(says(&fixture, "Only if you or a person you spoke to saw that the machine is powered off"));
    fixture.evidence("n", "e", FenceEvidenceKind::OperatorConfirmed);
    fixture.edit(|_, status| status.evidence = Some("e".to_owned()));
    assert!(!says(&fixture, "It is proved off and needs no confirmation. Start it by hand"));
    fixture.invalidate("e");
    assert!(!says(&fixture, "Find out whether the machine runs"));
}

fn outlook_of_node(fixture: &Fixture) -> Option<Outlook> {
    let guard = fixture.world.read();
    let Lookup::Known(node) = guard.view().node("n") else { panic!("no node") };
    outlook(node, &guard.view(), fixture.mono(), &fixture.config)
}

#[test]
fn the_outlook_states_when_a_lost_node_is_switched_off_or_which_hold_prevents_it() {
    let mut fixture = Fixture::new(&["n", "m", "k", "l", "o"]);
    assert_eq!(outlook_of_node(&fixture), None, "it is well");
    fixture.lose_node("n");
    fixture.advance_to(55);
    let Some(Outlook::SwitchesOff { at, policy }) = outlook_of_node(&fixture) else {
        panic!("{:?}", outlook_of_node(&fixture))
    };
    let began = fixture.now;
    while fixture.describe("n") != ["open by p"] {
        fixture.advance(1);
        assert!(fixture.now < began + 60, "{:?}", fixture.describe("n"));
    }
    assert_eq!((at, &*policy), (fixture.mono(), "p"), "as it is decided then");
    fixture.policy(|policy| policy.paused = Some("rack 7 moves".to_owned()));
    let outlook = outlook_of_node(&fixture);
    assert!(matches!(outlook, Some(Outlook::Held(Hold::Paused { .. }))), "{outlook:?}");
    fixture.policy(|policy| (policy.paused, policy.mode) = (None, PolicyMode::DryRun));
    assert_eq!(outlook_of_node(&fixture), None, "it only rehearses");
    fixture.policy(|policy| (policy.mode, policy.when) = (PolicyMode::Enforce, When::Manual));
    assert_eq!(outlook_of_node(&fixture), None, "a person begins it");
}

#[test]
fn a_policy_can_fence_no_node_when_its_devices_report_a_problem_for_all() {
    let lacking = |fixture: &Fixture| {
        let guard = fixture.world.read();
        let policy = guard.view().policies().next().unwrap();
        Unfenceable::find(policy, &guard.view()).describe()
    };
    let not_ready = |device: &mut serde_json::Value| {
        device["status"]["conditions"] = json!([{ "type": "Ready", "status": "False", "reason": "TargetsUnreachable",
            "message": "Secret fencing/bmc does not exist", "lastTransitionTime": "t" }]);
        device["status"]["observedGeneration"] = json!(1);
    };
    let mut fixture = Fixture::new(&["n", "m"]);
    assert_eq!(lacking(&fixture), None);
    fixture.device("bmc", not_ready);
    let why = "device fencing/bmc: Secret fencing/bmc does not exist";
    assert_eq!(lacking(&fixture), Some(format!("It can fence no node: {why}")));
    // Broken fencing of one node of several was reported as fine.
    for (count, expected) in [
        (2, format!("It can fence 1 of 2 nodes, and not n ({why})")),
        (6, format!("It can fence 1 of 6 nodes, and not a ({why}), b ({why}), c ({why}) and 2 more")),
    ] {
        let names = ["m", "n", "a", "b", "c", "d"];
        let mut fixture = Fixture::new(&names[..count]);
        fixture.device("bmc", |device| {
            not_ready(device);
            device["status"]["targets"] = json!([{ "node": "m", "power": "On" }]);
        });
        assert_eq!(lacking(&fixture), Some(expected));
    }
}
