//! Objects that are over and old are deleted, except those that something depends on.

use pod_safety_shared::authority::FinishedObject;

use super::*;

const DAY: Duration = Duration::from_hours(24);
const SECOND: Duration = Duration::from_secs(1);
/// The age of an object that was created when 1970 began.
const AGE: Duration = Duration::from_secs(START_SECONDS.unsigned_abs());

/// An incident of `n` that is over, with its evidence, both from 1970; the node has booted since.
fn over() -> Fixture {
    let mut fixture = Fixture::new(&["n", "m"]);
    fixture.config.history = Some(DAY * 90);
    fixture.fence("n", Trigger::Detected, NodeFenceStatus { phase: Phase::Done, ..NodeFenceStatus::default() });
    fixture.evidence("n", "e", FenceEvidenceKind::PowerOff);
    fixture.reboot("n", "b0000000-0000-4000-8000-000000000002");
    fixture.world.set_wall_time(START_SECONDS, fixture.mono());
    fixture
}

fn forgotten(fixture: &Fixture) -> Vec<&'static str> {
    let intents = fixture.decide("n").intents;
    let kinds = intents.iter().filter_map(|intent| match intent {
        Intent::Update(Update::DeleteFinished(FinishedObject { kind, .. })) => Some(kind.resource()),
        _ => None,
    });
    kinds.collect()
}

const BOTH: [&str; 2] = ["nodefences", "fenceevidences"];

#[test]
fn a_finished_incident_and_its_evidence_are_deleted_when_old_and_of_a_former_incarnation() {
    type Change = fn(&mut Fixture);
    let cases: [(&str, &[&str], Change); 15] = [
        ("the machine has booted since", &BOTH, |_| ()),
        ("they are as old as they are kept", &[], |fixture| fixture.config.history = Some(AGE)),
        ("they are a second older", &BOTH, |fixture| fixture.config.history = Some(AGE - SECOND)),
        ("nothing was proved", &["nodefences"], |fixture| fixture.delete(Kind::FenceEvidences, "e")),
        ("only its evidence remains, of the present incarnation", &[], |fixture| {
            let incident = incident_name(&fixture.only().0.node);
            fixture.delete(Kind::NodeFences, &incident);
            fixture.reboot("n", "b0000000-0000-4000-8000-00000000000a");
        }),
        ("its Node is deleted, and no pod is bound to it", &BOTH, |fixture| fixture.delete(Kind::Nodes, "n")),
        ("they are kept indefinitely", &[], |fixture| fixture.config.history = None),
        ("only observed", &[], |fixture| fixture.config.mode = Mode::Observe),
        ("it is the present incarnation", &[], |fixture| fixture.reboot("n", "b0000000-0000-4000-8000-00000000000a")),
        ("no boot ID", &[], |fixture| fixture.change("n", |node| node["status"]["nodeInfo"] = json!({}))),
        ("a pod is bound to the deleted Node", &[], |fixture| {
            fixture.pod("db-0", "n", |_| ());
            fixture.delete(Kind::Nodes, "n");
        }),
        ("the node holds a volume", &[], |fixture| {
            let lease = pod_safety_shared::testing::objects::volume_lease(
                "v",
                Some("n/uid-n/b0000000-0000-4000-8000-00000000000a/-"),
            );
            fixture.world.put(Kind::VolumeLeases, lease, fixture.mono());
        }),
        ("it is tainted", &[], |fixture| fixture.change("n", |node| *node = Obj(node.take()).tainted().0)),
        ("the incident goes on", &[], |fixture| fixture.edit(|_, status| status.phase = Phase::Fenced)),
        ("its last attempt is of yesterday", &[], |fixture| {
            let at = pod_safety_shared::testing::objects::timestamp(-86_400);
            fixture.edit(|_, status| status.attempts.push(Attempt { at, ..Attempt::default() }));
        }),
    ];
    for (sentence, expected, change) in cases {
        let mut fixture = over();
        change(&mut fixture);
        assert_eq!(forgotten(&fixture), expected, "{sentence}");
    }
}

/// A tenant cannot create these objects, but an object that cannot be decoded might be the open incident.
#[test]
fn an_object_that_cannot_be_decoded_prevents_all_deletions() {
    let fixture = over();
    let odd = named("odd").set("/metadata/resourceVersion", json!("x")).set("/spec", json!(fixture.only().0));
    fixture.world.apply(Kind::NodeFences, &odd, fixture.mono());
    assert!(forgotten(&fixture).is_empty());
}

/// The clock jumped ahead while the process ran.
#[test]
fn a_clock_that_jumps_ahead_makes_no_object_old() {
    let fixture = over();
    let young = |at: i64| pod_safety_shared::testing::objects::timestamp(at);
    let (spec, status) = fixture.only();
    let name = incident_name(&spec.node);
    let fence = named(&name).set("/spec", json!(spec)).set("/status", json!(status));
    fixture.world.put(Kind::NodeFences, fence.set("/metadata/creationTimestamp", json!(young(0))), fixture.mono());
    fixture.world.set_wall_time(START_SECONDS + 365 * 86_400, fixture.mono());
    assert!(!forgotten(&fixture).contains(&"nodefences"));
}
