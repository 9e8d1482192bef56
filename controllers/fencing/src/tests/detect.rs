//! When an incident begins.

use super::*;

#[test]
fn a_node_is_lost_exactly_when_it_has_not_reported_for_the_policys_time() {
    let mut fixture = Fixture::new(&["n", "m", "k"]);
    fixture.advance_to(20);
    fixture.lose_node("n");
    fixture.advance_to(79);
    let early = fixture.decide("n");
    assert_eq!((describe(&early), early.requeue_at), (vec![], Some(pod_safety_shared::testing::at(80))));
    fixture.advance_to(80);
    assert_eq!(fixture.describe("n"), ["open by p"]);
    let decision = fixture.decide("n");
    let Some(Step::Open(spec)) = step(&decision) else { panic!("{decision:?}") };
    assert_eq!(spec.node, fixture.incarnation("n"));
    assert_eq!(spec.trigger.reason, "its kubelet has not reported for 60 s (unhealthy.silentSeconds: 60)");
    assert!(fixture.describe("m").is_empty() && fixture.decide("m").requeue_at.is_none(), "the others are well");
}

#[test]
fn a_node_marked_ready_is_not_lost_even_if_it_does_not_report() {
    let mut fixture = Fixture::new(&["n", "m", "k"]);
    fixture.alive.remove("n");
    fixture.advance_to(200);
    assert_eq!(fixture.decide("n"), Decision::default());
}

#[test]
fn a_not_ready_node_is_lost_only_after_not_ready_seconds_of_its_policy() {
    let mut fixture = Fixture::new(&["n", "m", "k"]);
    fixture.set_ready("n", "False");
    fixture.advance_to(100);
    assert!(fixture.describe("n").is_empty(), "its kubelet reports");
    fixture.policy(|policy| policy.unhealthy.not_ready_seconds = Some(120));
    assert!(fixture.describe("n").is_empty());
    fixture.advance_to(120);
    assert_eq!(fixture.describe("n"), ["open by p"]);
    fixture.set_ready("n", "Unknown");
    assert!(fixture.describe("n").is_empty(), "Ready is not False: that is no reason");
    fixture.advance_to(300);
    assert!(fixture.describe("n").is_empty(), "nor is it after as long");
}

#[test]
fn the_field_when_decides_whether_a_lost_node_is_fenced() {
    let pods = |fixture: &mut Fixture, change: fn(&mut Value)| fixture.pod("db-0", "n", change);
    let stateless: fn(&mut Value) = |pod| {
        Fixture::terminating(pod);
        pod["metadata"]["ownerReferences"][0]["kind"] = json!("ReplicaSet");
    };
    let forced: fn(&mut Value) = |pod| {
        Fixture::finalized(pod);
        pod["status"]["phase"] = json!("Running");
    };
    for (when, change, expected, says) in [
        (When::Always, None, "open by p", "always"),
        (When::Manual, Some(Fixture::terminating as fn(&mut Value)), "", "a person asks"),
        (When::Needed, None, "?FenceNotNeeded", "no pod waits"),
        (When::Needed, Some(|_: &mut Value| {}), "?FenceNotNeeded", "its pod was not asked to end"),
        (When::Needed, Some(stateless), "?FenceNotNeeded", "a ReplicaSet replaces its pods anyway"),
        (When::Needed, Some(Fixture::finalized), "?FenceNotNeeded", "a pod that waits for finalizers has terminated"),
        (
            When::Needed,
            Some(forced),
            "open by p",
            "bug: it was deleted without a grace period, has a finalizer, and runs",
        ),
        (When::Needed, Some(Fixture::terminating), "open by p", "a StatefulSet waits"),
    ] {
        let mut fixture = Fixture::lost_with(|fixture| change.into_iter().for_each(|change| pods(fixture, change)));
        fixture.policy(|policy| policy.when = when);
        assert_eq!(fixture.describe("n").join(" "), expected, "{when:?}: {says}");
    }
}

/// A tenant binds a pod to an unreachable node, and deletes it: the machine was powered off, with the pods of all
/// tenants.
#[test]
fn attack_a_pod_bound_after_the_loss_does_not_cause_fencing() {
    for (after, expected) in [(0, "open by p"), (30, "open by p"), (70, "?FenceNotNeeded")] {
        let mut fixture = Fixture::new(&["n", "m", "k", "l", "o"]);
        fixture.policy(|policy| policy.when = When::Needed);
        fixture.lose_node("n");
        fixture.advance_to(after);
        fixture.pod("late-0", "n", Fixture::terminating);
        fixture.advance_to(70);
        assert_eq!(fixture.describe("n").join(" "), expected, "bound after {after} s");
    }
}

/// A policy can name further kinds whose pods must terminate before they are replaced.
#[test]
fn needed_by_kinds_adds_kinds_whose_pods_cause_fencing() {
    for (kinds, expected) in [(&["Job", "ReplicaSet"][..], "open by p"), (&["Job"], "?FenceNotNeeded")] {
        let mut fixture = Fixture::lost_with(|fixture| {
            fixture.pod("web-1", "n", |pod| {
                Fixture::terminating(pod);
                pod["metadata"]["ownerReferences"][0]["kind"] = json!("ReplicaSet");
            });
        });
        fixture.policy(|policy| {
            policy.when = When::Needed;
            policy.needed_by_kinds = kinds.iter().map(|&kind| kind.to_owned()).collect();
        });
        assert_eq!(fixture.describe("n").join(" "), expected, "{kinds:?}");
    }
}

/// The volume guard holds the volume until the node is proved off, so the pod's replacement waits for that.
#[test]
fn bug_a_node_that_held_the_volume_of_a_deployments_pod_was_never_fenced() {
    for (holder, expected) in [
        ("n/uid-n/b0000000-0000-4000-8000-00000000000a/-", "open by p"),
        ("m/uid-m/b0000000-0000-4000-8000-00000000000b/-", "?FenceNotNeeded"),
    ] {
        let mut fixture = Fixture::lost_with(|fixture| {
            fixture.volume_of_another("web-1");
            let lease = pod_safety_shared::testing::objects::volume_lease("v", Some(holder));
            fixture.world.put(Kind::VolumeLeases, lease, fixture.mono());
            fixture.pod("web-1", "n", |pod| {
                Fixture::terminating(pod);
                pod["metadata"]["ownerReferences"][0]["kind"] = json!("ReplicaSet");
                *pod = pod_safety_shared::testing::objects::Obj(pod.take()).using_claim("c").0;
            });
        });
        fixture.policy(|policy| policy.when = When::Needed);
        assert_eq!(fixture.describe("n").join(" "), expected, "held by {holder}");
    }
}

#[test]
fn a_dry_run_policy_opens_a_dry_run_incident() {
    let mut fixture = Fixture::lost();
    fixture.policy(|policy| policy.mode = PolicyMode::DryRun);
    assert_eq!(fixture.act("n"), ["open by p, dry"]);
}

#[test]
fn the_policy_with_the_highest_priority_applies() {
    let mut fixture = Fixture::lost();
    fixture.another_policy("q", |policy| {
        policy.priority = 1;
        policy.when = When::Manual;
    });
    assert!(fixture.describe("n").is_empty());
}

#[test]
fn a_node_without_a_uuid_as_boot_id_is_not_fenced() {
    for info in [json!({}), json!({ "bootID": "5" })] {
        let mut fixture = Fixture::lost();
        fixture.change("n", |node| node["status"]["nodeInfo"] = info);
        assert_eq!(fixture.describe("n"), ["?NoBootId"]);
    }
}

#[test]
fn observe_mode_reports_the_incident_that_would_be_opened() {
    let mut fixture = Fixture::lost();
    fixture.config.mode = Mode::Observe;
    assert_eq!(fixture.describe("n"), ["?WouldFence"]);
    let message = fixture.hold_message("n");
    assert!(message.contains("It would be fenced by the FencePolicy p"), "{message}");
}

#[test]
fn a_cancelled_incident_is_reopened_when_the_node_is_lost_again_unless_a_person_cancelled_it() {
    let mut fixture = Fixture::at(Phase::Cancelled, |status| status.rounds = 2);
    assert_eq!(fixture.describe("n"), ["write Pending"]);
    fixture.act("n");
    let (_, status) = fixture.only();
    assert_eq!((status.rounds, status.message.contains("lost again")), (0, true), "{status:?}");

    let mut fixture = Fixture::at(Phase::Cancelled, |_| ());
    fixture.edit(|spec, _| spec.cancelled = true);
    assert_eq!(fixture.describe("n"), ["?FenceOver"]);
    fixture.policy(|policy| policy.when = When::Needed);
    assert_eq!(fixture.describe("n"), ["?FenceOver"], "bug: it was reported to be fenced when a pod needs it");
    let fixture = Fixture::at(Phase::Superseded, |_| ());
    assert_eq!(fixture.describe("n"), ["?FenceOver"]);
}

/// A virtual machine that was on when an earlier order failed, and was suspended after its node reported again, was
/// proved off.
#[test]
fn bug_what_an_order_met_counted_after_the_node_had_reported_again() {
    let met = level("bmc", 1).devices;
    let attempt = Attempt { act: DesiredPower::Off, met, outcome: Some("failed".to_owned()), ..Attempt::default() };
    let mut fixture = Fixture::at(Phase::Cancelled, |status| status.attempts.push(attempt));
    fixture.act("n");
    let (_, status) = fixture.only();
    assert!(status.attempts.len() == 1 && status.attempts[0].met.is_empty(), "{status:?}");
}

#[test]
fn no_incident_is_opened_while_own_objects_cannot_be_decoded() {
    let fixture = Fixture::lost();
    let odd = named("odd").set("/metadata/resourceVersion", json!("x")).set("/spec", json!(fixture.policy));
    fixture.world.apply(Kind::FencePolicies, &odd, fixture.mono());
    assert_eq!(fixture.describe("n"), ["?FencingUnreadable"]);
    let message = fixture.hold_message("n");
    assert!(message.starts_with("1 of the fencepolicies cannot be read"), "{message}");
}

#[test]
fn stale_or_unsynced_caches_hold_decisions_only_where_fencing_is_used() {
    let fixture = Fixture::lost();
    let late = fixture.mono() + pod_safety_shared::cache::STALE_AFTER + std::time::Duration::from_secs(1);
    let key = Key::Node("n".into());
    let stale = decide(&key, &fixture.world.read().view(), late, &fixture.config);
    assert_eq!(describe(&stale), ["?Stale"]);

    let world = pod_safety_shared::testing::World::default();
    let nobody = decide(&key, &world.read().view(), late, &fixture.config);
    assert_eq!(nobody, Decision::default());
    world.put(Kind::FencePolicies, named("p").set("/spec", json!(fixture.policy)), fixture.mono());
    assert_eq!(describe(&decide(&key, &world.read().view(), late, &fixture.config)), ["?NotSynced"]);
}

#[test]
fn a_node_that_cannot_be_decoded_is_not_treated_as_deleted() {
    let fixture = Fixture::at(Phase::Pending, |_| ());
    let odd = named("n").uid("other").set("/metadata/resourceVersion", json!("x"));
    fixture.world.apply(Kind::Nodes, &odd, fixture.mono());
    assert_eq!(fixture.describe("n"), ["?NodeUnreadable"]);
}
