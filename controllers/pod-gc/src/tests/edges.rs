//! Rows for mutants of `decide` that other tests did not catch.

use super::*;

const TAINT: &str = "node.kubernetes.io/out-of-service";

/// A pod that was deleted without a grace period, and has a finalizer.
fn finalized(pod: &mut Value) {
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    pod["metadata"]["finalizers"] = json!(["example.com/a"]);
}

#[test]
fn an_unreadable_node_is_held_only_if_it_has_pods() {
    let world = World::listed();
    let odd = json!({ "metadata": { "name": "n", "uid": "u", "resourceVersion": "x" } });
    world.apply(Kind::Nodes, &odd, at(0));
    assert_eq!(decide_at(&world, &node_key("n"), at(1), &config()), Decision::default());
    world.apply(Kind::Pods, &pod("web-0").on("n"), at(0));
    assert_eq!(hold_reasons(&decide_at(&world, &node_key("n"), at(1), &config())), ["NodeUnreadable"]);
}

#[test]
fn a_pod_on_an_unreachable_node_that_waits_for_finalizers_has_no_other_hold() {
    let world = World::listed();
    world.apply(Kind::Nodes, &node("n"), at(0));
    world.apply(Kind::Pods, &pod("web-0").on("n").terminated().modify(finalized), at(0));
    assert_eq!(decide_at(&world, &node_key("n"), at(1), &config()), Decision::default());
}

/// A person who forces a deletion, and a Job's pod without a grace period, leave it so while the containers run.
#[test]
fn bug_a_pod_with_a_finalizer_and_no_grace_period_counted_as_terminated() {
    let world = World::listed();
    world.apply(Kind::Nodes, &node("n"), at(0));
    world.apply(Kind::Pods, &pod("web-0").on("n").running().modify(finalized), at(0));
    assert_eq!(hold_reasons(&decide_at(&world, &node_key("n"), at(1), &config())), ["NoEvidence"]);
}

/// A pod that the rules about nodes decide on is left to them: otherwise it would be requested twice, for two
/// reasons.
#[test]
fn a_terminated_pod_is_left_to_the_node_rules_if_its_node_is_out_of_service_proved_off_or_unreadable() {
    let proof = evidence("e", "n", "b0000000-0000-4000-8000-000000000001", "PowerOff");
    let mine = ["remove web-0 because KubeletTerminated"];
    for (says, taint, is_proved, ends, collected) in [
        ("a node like others", None, false, true, true),
        ("tainted, and it ends", Some(TAINT), false, true, false),
        ("tainted, and the pod is not deleted", Some(TAINT), false, false, true),
        ("proved off, and it ends", None, true, true, false),
        ("proved off, and the pod is not deleted", None, true, false, true),
        ("both, and it ends", Some(TAINT), true, true, false),
    ] {
        let world = World::listed();
        let machine = node("n").boot("b0000000-0000-4000-8000-000000000001");
        let machine = taint.map_or(machine.clone(), |taint| machine.tainted_with(taint));
        world.apply(Kind::Nodes, &machine, at(0));
        let made = pod("web-0").on("n").terminated();
        world.apply(Kind::Pods, &*if ends { made.terminating() } else { made }, at(0));
        if is_proved {
            world.apply(Kind::FenceEvidences, &proof, at(0));
        }
        let all = Config { terminated_threshold: Some(0), ..config() };
        let expected: &[&str] = if collected { &mine } else { &[] };
        assert_eq!(describe(&decide_at(&world, &Key::Terminated, at(1), &all)), expected, "{says}");
    }
    let world = World::listed();
    world.apply(Kind::Nodes, &json!({ "metadata": { "name": "n", "uid": "u", "resourceVersion": "x" } }), at(0));
    world.apply(Kind::Pods, &pod("web-0").on("n").terminated(), at(0));
    let all = Config { terminated_threshold: Some(0), ..config() };
    assert_eq!(decide_at(&world, &Key::Terminated, at(1), &all), Decision::default(), "not to be read");
}

#[test]
fn at_most_a_hundred_pods_that_wait_for_finalizers_are_shown() {
    let world = World::listed();
    for number in 0..110 {
        let kept = pod(&format!("web-{number}")).on("gone").terminated().modify(finalized);
        world.apply(Kind::Pods, &kept, at(0));
    }
    world.record_absence_read("gone", at(1));
    world.confirm_all(at(50));
    let decision = decide_at(&world, &node_key("gone"), at(50), &config());
    assert_eq!((decision.intents.len(), decision.holds.len()), (0, 100));
}

#[test]
fn each_rule_requires_only_the_kinds_that_it_reads() {
    let lists = [
        (node_key("gone"), &[Kind::Pods, Kind::Nodes, Kind::NodeLeases][..]),
        (Key::Terminated, &[Kind::Pods, Kind::Nodes]),
        (Key::Unscheduled(pod_safety_shared::model::Uid::new("uid-web-0").unwrap()), &[Kind::Pods]),
    ];
    for (key, needs) in lists {
        for left_out in needs {
            let world = World::default();
            needs.iter().filter(|kind| *kind != left_out).for_each(|kind| world.mark_listed(*kind, at(0)));
            assert_eq!(hold_reasons(&decide_at(&world, &key, at(1), &config())), ["NotSynced"], "{key:?} {left_out:?}");
        }
        let world = World::default();
        needs.iter().for_each(|kind| world.mark_listed(*kind, at(0)));
        assert!(!hold_reasons(&decide_at(&world, &key, at(1), &config())).contains(&"NotSynced"), "{key:?}");
    }
}

#[test]
fn a_missing_node_without_pods_is_not_read() {
    let world = orphan();
    assert_eq!(decide_at(&world, &node_key("another"), at(50), &config()), Decision::default());
}
