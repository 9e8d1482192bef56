//! The responder for pods of lost nodes.

use pod_safety_shared::testing::objects::NEXT_BOOT;

use super::*;

/// The pod on node `n`, with its Eviction while the lost-node responder is active.
fn scene(node: Option<Obj>, fences: &[Obj], policies: &[Obj]) -> World {
    let turn = active_eviction(&[(LOST_NODE_RESPONDER, 20_000, "Active"), (EVICTOR, 100, "Inactive")]);
    let world = world(&[(Kind::Pods, pod("p").on("n")), request_object(), (Kind::Evictions, turn)]);
    node.into_iter().for_each(|node| world.apply(Kind::Nodes, &node, at(0)));
    fences.iter().for_each(|fence| world.apply(Kind::NodeFences, fence, at(0)));
    policies.iter().for_each(|policy| world.apply(Kind::FencePolicies, policy, at(0)));
    world
}

fn fence(phase: &str) -> Obj {
    let life = json!({ "name": "n", "uid": "uid-n", "bootID": BOOT });
    let spec = json!({ "node": life, "policy": "p", "trigger": { "kind": "Detected", "reason": "silent" } });
    named("f").set("/spec", spec).set("/status", json!({ "phase": phase, "message": "the step" }))
}

fn says(world: &World, second: u64) -> Option<(String, bool)> {
    let said = describe(&decide_at(world, second)).into_iter().find(|word| word.contains("says"))?;
    let (_, message) = said.split_once(" says ")?;
    Some((message.trim_end_matches(" and is done").trim_matches('"').to_owned(), message.ends_with("and is done")))
}

/// A sentence, the world, the second of the decision, the message, and whether the responder is completed then.
type Case<'a> = (&'a str, World, u64, &'a str, bool);

fn compare(cases: Vec<Case<'_>>) {
    for (sentence, world, second, message, done) in cases {
        assert_eq!(says(&world, second), Some((message.to_owned(), done)), "{sentence}");
    }
}

fn lost() -> Obj {
    node("n").boot(BOOT)
}

#[test]
fn the_responder_reports_the_step_of_the_fence_until_a_person_is_needed() {
    let fenced = |phase: &str| scene(Some(lost()), &[fence(phase)], &[]);
    let held = "node n does not report; NodeFence f is Pending: the step";
    let person = "node n does not report; NodeFence f is AwaitingOperator: the step";
    compare(vec![
        ("fencing", fenced("Fencing"), 1, "node n does not report; NodeFence f is Fencing: the step", false),
        ("fenced", fenced("Fenced"), 1, "node n does not report; NodeFence f is Fenced: the step", false),
        ("held", fenced("Pending"), 599, held, false),
        ("held for ten minutes", fenced("Pending"), 600, held, true),
        ("a person", fenced("AwaitingOperator"), 1, person, true),
    ]);
}

#[test]
fn the_responder_is_completed_when_the_node_reports_or_is_not_fenced() {
    let ready = |status: &str| scene(Some(lost().ready(status)), &[], &[]);
    let policy = named("p").set("/spec", json!({ "levels": [] }));
    let chosen = || scene(Some(lost()), &[], std::slice::from_ref(&policy));
    let unfenced = "node n does not report, and no FencePolicy selects it: a person is needed";
    let late = "node n does not report, and its fencing by FencePolicy p has not begun: a person is needed";
    let gone = "node n does not exist any more: its pods are removed when it is proved that they ended";
    let of_another_boot = scene(Some(node("n").boot(NEXT_BOOT)), &[fence("Fencing")], &[]);
    compare(vec![
        ("it is well", ready("True"), 1, "node n reports", true),
        ("it says that it is not", ready("False"), 1, "node n reports", true),
        ("nothing fences", scene(Some(lost()), &[], &[]), 1, unfenced, true),
        ("soon", chosen(), 599, "node n does not report: FencePolicy p fences it", false),
        ("not soon", chosen(), 600, late, true),
        ("another boot was fenced", of_another_boot, 1, unfenced, true),
        ("its Node is gone", scene(None, &[], &[]), 1, gone, false),
    ]);
}

/// It waited ten minutes for a fence that could not begin, with the message that the policy fences the node.
#[test]
fn bug_the_responder_waited_for_a_policy_that_does_not_fence_the_node() {
    let expected =
        |why: &str| format!("node n does not report, and FencePolicy p does not fence it ({why}): a person is needed");
    for (why, node, mode) in
        [("mode: DryRun", lost(), "DryRun"), ("its boot ID is unknown", lost().boot("12"), "Enforce")]
    {
        let policy = named("p").set("/spec", json!({ "levels": [], "mode": mode }));
        compare(vec![(why, scene(Some(node), &[], &[policy]), 1, &expected(why), true)]);
    }
}

/// A change of the node enqueues it at once.
#[test]
fn the_key_of_a_node_decides_for_its_pods() {
    let world = scene(Some(node("n").boot(BOOT).ready("True")), &[], &[]);
    world.confirm_all(at(1));
    let decision = decide(&Key::Node("n".into()), &world.read().view(), at(1));
    assert!(describe(&decision).iter().any(|word| word.contains("node n reports")), "{decision:?}");
}

#[test]
fn the_responder_reports_no_dry_run_and_no_incident_that_is_over() {
    let policy = named("p").set("/spec", json!({ "levels": [] }));
    let waits = "node n does not report: FencePolicy p fences it";
    for (sentence, fence) in
        [("a dry run", fence("Fencing").set("/spec/dryRun", json!(true))), ("it is over", fence("Done"))]
    {
        let world = scene(Some(lost()), &[fence], std::slice::from_ref(&policy));
        compare(vec![(sentence, world, 1, waits, false)]);
    }
}

/// Its own heartbeats do not extend the ten minutes.
#[test]
fn ten_minutes_without_an_incident_count_from_the_start_of_the_turn() {
    let policy = named("p").set("/spec", json!({ "levels": [] }));
    let reported = || {
        let world = scene(Some(lost()), &[], std::slice::from_ref(&policy));
        let turn = active_eviction(&[(LOST_NODE_RESPONDER, 20_000, "Active"), (EVICTOR, 100, "Inactive")]);
        world.apply(Kind::Evictions, &reports(turn, 0, "heartbeatTime", &json!(timestamp(400))), at(400));
        world
    };
    let waits = "node n does not report: FencePolicy p fences it";
    let late = "node n does not report, and its fencing by FencePolicy p has not begun: a person is needed";
    compare(vec![("in time", reported(), 599, waits, false), ("too late", reported(), 600, late, true)]);
}

/// NodeFences are stale: it is not known whether the node is fenced.
#[test]
fn the_responder_is_completed_when_the_state_of_fencing_is_unknown() {
    let world = scene(Some(lost()), &[fence("Fencing")], &[]);
    let others: Vec<Kind> =
        crate::decide::WATCHED_KINDS.iter().copied().filter(|kind| *kind != Kind::NodeFences).collect();
    world.confirm_kinds(&others, at(200));
    world.set_wall_time(START_SECONDS + 200, at(200));
    let decision = decide(&Key::Target(target()), &world.read().view(), at(200));
    let writes = describe(&decision);
    let expected = "\"node n does not report, and the state of fencing is not known\" and is done";
    assert!(writes.iter().any(|write| write.ends_with(expected)), "{writes:?}");
}

/// The pod is gone, which it is only with evidence: its turn counts as completed, not as interrupted.
#[test]
fn the_responder_is_completed_when_the_pod_is_gone() {
    let world = scene(Some(lost()), &[fence("Fenced")], &[]);
    world.remove(Kind::Pods, "uid-p", at(2));
    compare(vec![("gone", world, 2, "the pod does not exist any more", true)]);
}
