//! Decisions before the first quorum read, and about volumes that no kubelet reports.

use pod_safety_shared::testing::objects::volume_lease;

use super::*;

fn lost(node: &mut Value) {
    not_ready(node);
    in_use(node);
}

#[test]
fn other_nodes_are_denied_before_the_first_quorum_read_and_the_hold_states_why() {
    let (mut off, mut gone) = (Fixture::new(), Fixture::new());
    off.lease("v", Some(A), false);
    off.node("a", not_ready);
    off.proof("b0000000-0000-4000-8000-000000000001");
    gone.lease("v", Some(A), false);
    gone.world.remove(Kind::Nodes, "uid-a", at(2));
    gone.world.record_absence_read("a", at(3));
    let by_itself = "no pod that uses it is left there and the quarantine is over, when the node reports again";
    for (fixture, why, free) in
        [(off, "which is not Ready.", "the node reports again"), (gone, "which has no Node object.", by_itself)]
    {
        let decision = fixture.decide_volume("v", 3 + QUARANTINE);
        assert_eq!(describe(&decision), ["refuse", "VolumeUnproved"], "{why}");
        let hold = decision.holds[0].1.to_string();
        assert!(hold.contains(why) && hold.contains(&format!("It is free when {free}")), "{hold}");
    }
}

/// Kubelets report a volume by a name that this process does not know, so it may still be mounted.
#[test]
fn the_end_of_a_pod_is_no_report_about_a_volume_that_this_process_never_saw() {
    let mut fixture = Fixture::new();
    fixture.claim("e", Some("x"));
    fixture.lease("x", Some(A), false);
    fixture.pod("p", Some("a"), "e", |pod| {
        terminate(pod);
        *pod = Obj(pod.take()).terminating().set("/metadata/deletionGracePeriodSeconds", json!(30)).0;
    });
    fixture.world.remove(Kind::Pods, "uid-p", at(3));
    assert_eq!(describe(&fixture.decide_volume("x", 3 + 599)), ["VolumeUnconfirmed"]);
    assert_eq!(describe(&fixture.decide_volume("x", 3 + 600)), ["release"]);
}

#[test]
fn a_volume_that_another_node_waits_for_is_detached_only_after_its_holder_stopped_using_it() {
    let mut fixture = Fixture::new();
    fixture.lease("v", Some(A), true);
    fixture.attachment("v", "a", true);
    fixture.pod("q", Some("b"), "c", |pod| pod["status"] = json!({ "phase": "Pending" }));
    assert_eq!(describe(&fixture.decide_volume("v", 1 + 599)), ["WaitsForVolume"]);
    let free = describe(&fixture.decide_volume("v", 1 + 600));
    assert_eq!(free, ["refuse but to detach from a", "WaitsForVolume"]);
}

#[test]
fn a_lost_node_that_writes_is_the_holder_unless_its_lease_was_revoked_or_it_is_barred() {
    for (says, transitions, proved, expected) in [
        ("it is proved off, and was never judged", 0, true, format!("take {A} refused")),
        ("the judge has broken its Lease before", 1, true, "VolumeDetached".to_owned()),
        ("it was detached, and nothing is proved", 0, false, "VolumeDetached".to_owned()),
    ] {
        let mut fixture = Fixture::new();
        let detached = json!({ "pod-safety.dev/held": "true", "pod-safety.dev/detach-from": "uid-a" });
        let lease = volume_lease("v", None).labels(detached).set("/spec/leaseTransitions", json!(transitions));
        fixture.put(Kind::VolumeLeases, lease, at(1));
        fixture.node("a", lost);
        fixture.pod("p", Some("a"), "c", |_| ());
        if proved {
            fixture.proof("b0000000-0000-4000-8000-000000000001");
        }
        assert_eq!(fixture.describe_volume(), [expected], "{says}");
    }
}
