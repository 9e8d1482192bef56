//! Which incidents occupy a place of `maxConcurrent`.

use super::*;

fn held_in_fencing(hold: fn(&mut Fixture)) -> Fixture {
    let mut fixture = Fixture::new(&["n", "m", "a", "b", "c", "d", "e"]);
    fixture.policy(|policy| policy.brakes.max_concurrent = 1);
    fixture.lose_node("m");
    fixture.advance_to(70);
    let failed = Attempt {
        act: DesiredPower::Off,
        id: 1,
        devices: vec![],
        within_seconds: 60,
        outcome: Some("no answer".to_owned()),
        verified: Some(Verified { power: Power::Unknown, message: "no answer".to_owned(), ..Verified::default() }),
        ..Attempt::default()
    };
    let status = NodeFenceStatus { phase: Phase::Fencing, attempts: vec![failed], ..NodeFenceStatus::default() };
    fixture.fence("m", Trigger::Detected, status);
    hold(&mut fixture);
    fixture.lose_node("n");
    fixture.advance_to(200);
    fixture.fence("n", Trigger::Detected, NodeFenceStatus::default());
    fixture.advance_to(8_000);
    fixture
}

#[test]
fn bug_a_held_incident_in_fencing_occupied_a_concurrency_slot() {
    type Row = (&'static str, fn(&mut Fixture));
    let rows: [Row; 2] = [
        ("its node is paused by a person", |fixture| fixture.exclude_from_remediation("m")),
        ("its policy was deleted or renamed", |fixture| {
            let name = pod_safety_shared::authority::incident_name(&fixture.incarnation("m"));
            let (mut spec, status) = fixture.fences[&name].clone();
            spec.policy = "old-name".to_owned();
            let object = json!({ "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "900" },
                "spec": spec, "status": status });
            fixture.world.apply(Kind::NodeFences, &object, fixture.mono());
        }),
    ];
    let mut wrong = Vec::new();
    for (what, hold) in rows {
        let fixture = held_in_fencing(hold);
        if fixture.describe("n").contains(&"?Concurrency".to_owned()) {
            wrong.push(what);
        }
    }
    assert!(wrong.is_empty(), "node n is not fenced after two hours: {wrong:?}");
}
