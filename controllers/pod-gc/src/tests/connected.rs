//! Pods of a missing node whose kubelet was active until its Node was deleted: it may still run them, so they are deleted
//! gracefully first.

use super::super::decide::REGISTRATION_GRACE;
use super::*;

/// The pod `web-0` of a missing node. The cache has no heartbeat of its kubelet. The first quorum read is of second 1.
fn connected() -> World {
    let world = World::listed();
    world.apply(Kind::Nodes, &node("gone"), at(0));
    world.apply(Kind::Pods, &reported(), at(0));
    world.remove(Kind::Nodes, "uid-gone", at(0));
    world.record_absence_read("gone", at(1));
    world.confirm_all(at(100));
    world
}

/// The pod as its kubelet reports it, with the observed generation.
fn reported() -> Obj {
    pod("web-0").on("gone").running().observed(3)
}

/// The pod after its deletion, which is another generation.
fn deleted(grace: i64) -> Obj {
    let dying = reported().terminating().set("/metadata/generation", json!(4));
    dying.set("/metadata/deletionGracePeriodSeconds", json!(grace)).rv(20)
}

const END: &str = "end web-0 because: node gone does not exist any more, and its kubelet may still run: the pod is deleted gracefully";
const REMOVE: &str = "remove web-0 because NodeGone";

#[test]
fn pods_are_deleted_gracefully_at_the_end_of_the_quarantine() {
    let world = connected();
    assert_eq!(hold_reasons(&describe_node(&world, "gone", QUARANTINE)), ["Quarantine"]);
    assert_eq!(describe(&describe_node(&world, "gone", 1 + QUARANTINE)), [END]);
}

/// The kubelet renews a Lease that outlived the Node, and does not register again. Its pods would never have been
/// deleted.
#[test]
fn bug_pods_of_a_kubelet_that_renews_without_a_node_were_never_deleted() {
    let world = connected();
    let renew = |second: u64| {
        world.apply(Kind::NodeLeases, &lease("gone", second), at(second));
        world.confirm_all(at(second));
    };
    renew(10);
    for second in (20..REGISTRATION_GRACE.as_secs()).step_by(10) {
        renew(second);
        let waits = describe_node(&world, "gone", second);
        assert_eq!((describe(&waits), hold_reasons(&waits)), (vec![], vec!["KubeletAlive"]), "at {second}");
    }
    renew(REGISTRATION_GRACE.as_secs());
    assert_eq!(describe(&describe_node(&world, "gone", REGISTRATION_GRACE.as_secs())), [END]);
}

/// The API server removes a terminated pod at once, and its kubelet has not unmounted the volumes yet.
#[test]
fn a_terminated_pod_of_a_kubelet_that_renews_without_a_node_is_not_deleted() {
    let (world, second) = (connected(), REGISTRATION_GRACE.as_secs());
    world.apply(Kind::Pods, &pod("done").on("gone").terminated(), at(0));
    world.apply(Kind::NodeLeases, &lease("gone", second), at(second));
    world.confirm_all(at(second));
    assert_eq!(describe(&describe_node(&world, "gone", second)), [END]);
}

/// Its last report was about a pod, so the Lease that it renewed before was forgotten: a client that writes a pod's
/// status could have its pods deleted at the end of the quarantine.
#[test]
fn bug_a_kubelet_that_renews_and_reports_about_a_pod_did_not_have_five_minutes() {
    for (renews, expected) in [(true, ""), (false, END)] {
        let world = connected();
        if renews {
            world.apply(Kind::NodeLeases, &lease("gone", 35), at(35));
        }
        world.apply(Kind::Pods, &reported().rv(11).ready("True"), at(38));
        let decision = describe_node(&world, "gone", 1 + QUARANTINE);
        assert_eq!(hold_reasons(&decision), ["KubeletAlive"], "renews: {renews}");
        assert_eq!(describe(&decision).concat(), expected, "renews: {renews}");
    }
}

/// 40 s, the graceful delete, 40 s: as fast as a running kubelet of 1.34 could respond, plus a quarantine.
#[test]
fn without_a_response_pods_are_removed_a_quarantine_after_a_first_read_that_follows_the_graceful_delete() {
    let world = connected();
    world.apply(Kind::Pods, &deleted(3_600), at(42));
    let waiting = describe_node(&world, "gone", 42);
    assert_eq!((describe(&waiting), hold_reasons(&waiting)), (vec!["ask for gone".to_owned()], vec!["AwaitsKubelet"]));
    world.record_absence_read("gone", at(43));
    assert_eq!(hold_reasons(&describe_node(&world, "gone", 60)), ["Quarantine"]);
    assert_eq!(describe(&describe_node(&world, "gone", 43 + QUARANTINE)), [REMOVE]);
}

#[test]
fn a_kubelet_that_responds_terminates_the_pods_within_their_grace_period() {
    let world = connected();
    world.apply(Kind::Pods, &deleted(120), at(42));
    world.apply(Kind::Pods, &deleted(120).observed(4).rv(21), at(44));
    let answered = describe_node(&world, "gone", 45);
    assert_eq!((describe(&answered), hold_reasons(&answered)), (vec![], vec!["KubeletAlive"]));
    // It has not reported for a quarantine, and need not: the grace period of the pod is not over.
    assert_eq!(describe(&describe_node(&world, "gone", 44 + QUARANTINE)), ["ask for gone"]);
    world.record_absence_read("gone", at(85));
    world.confirm_all(at(250));
    for now in [125, 161] {
        let waiting = describe_node(&world, "gone", now);
        assert_eq!((describe(&waiting), hold_reasons(&waiting)), (vec![], vec!["AwaitsKubelet"]), "at {now}");
    }
    assert_eq!(describe(&describe_node(&world, "gone", 162)), ["ask for gone"]);
    world.record_absence_read("gone", at(163));
    assert_eq!(describe(&describe_node(&world, "gone", 163 + QUARANTINE)), [REMOVE], "cut off while it ended them");
}

/// Before 1.34 a kubelet does not report the observed generation: it may be terminating the pod until its grace
/// period is over.
#[test]
fn a_kubelet_that_cannot_respond_gets_the_grace_period_of_its_pods() {
    let world = World::listed();
    let old =
        |object: Obj| object.modify(|pod| drop(pod["status"].as_object_mut().unwrap().remove("observedGeneration")));
    world.apply(Kind::Pods, &old(reported()), at(0));
    world.record_absence_read("gone", at(1));
    world.apply(Kind::Pods, &old(deleted(120)), at(42));
    world.confirm_all(at(250));
    assert_eq!(describe(&describe_node(&world, "gone", 161)), [""; 0]);
    assert_eq!(describe(&describe_node(&world, "gone", 162)), ["ask for gone"]);
}

/// The next first read does not wait for the pod with the longest grace period.
#[test]
fn a_pod_is_removed_a_quarantine_after_its_own_grace_period() {
    let world = connected();
    let waits = |dying: Obj| dying.set("/status/observedGeneration", json!(0));
    let other = deleted(300).uid("uid-other").set("/metadata/name", json!("other"));
    world.apply(Kind::Pods, &waits(deleted(30)), at(42));
    world.apply(Kind::Pods, &waits(other), at(42));
    assert_eq!(describe(&describe_node(&world, "gone", 71)), [""; 0]);
    assert_eq!(describe(&describe_node(&world, "gone", 72)), ["ask for gone"]);
    world.record_absence_read("gone", at(73));
    world.confirm_all(at(200));
    assert_eq!(describe(&describe_node(&world, "gone", 73 + QUARANTINE)), [REMOVE]);
}

/// A tenant changes the pod, which makes a generation that its kubelet has not reported about yet.
#[test]
fn a_tenant_that_changes_a_pod_does_not_hide_the_report_of_its_kubelet() {
    let world = connected();
    world.apply(Kind::Pods, &deleted(120), at(42));
    world.apply(Kind::Pods, &deleted(120).observed(4).rv(21), at(44));
    world.apply(Kind::Pods, &deleted(120).observed(4).set("/metadata/generation", json!(5)).rv(22), at(50));
    world.record_absence_read("gone", at(85));
    world.confirm_all(at(140));
    assert_eq!(describe(&describe_node(&world, "gone", 85 + QUARANTINE)), [""; 0]);
}

/// A tenant binds pods to the missing node repeatedly, so that its other pods stay.
#[test]
fn a_tenant_that_binds_pods_to_a_missing_node_does_not_hold_up_the_others() {
    let world = connected();
    world.apply(Kind::Pods, &deleted(30), at(42));
    world.record_absence_read("gone", at(43));
    world.apply(Kind::Pods, &pod("new").on("gone"), at(80));
    let decision = describe_node(&world, "gone", 43 + QUARANTINE);
    let new = END.replace("web-0", "new");
    assert!(describe(&decision).contains(&REMOVE.to_owned()) && describe(&decision).contains(&new), "{decision:?}");
    assert!(!describe(&decision).contains(&"ask for gone".to_owned()), "pods that can be deleted come first");
}

/// A pod that cannot be deleted, because an admission webhook refuses it, delays only itself.
#[test]
fn a_pod_that_cannot_be_deleted_holds_up_the_others_for_ten_seconds() {
    let world = connected();
    world.apply(Kind::Pods, &pod("stubborn").on("gone").observed(3), at(0));
    world.apply(Kind::Pods, &deleted(30), at(42));
    let stubborn = END.replace("web-0", "stubborn");
    assert_eq!(describe(&describe_node(&world, "gone", 51)), [&*stubborn]);
    assert_eq!(describe(&describe_node(&world, "gone", 52)), [&*stubborn, "ask for gone"]);
}

/// Found by the simulator: the new first read for a pod that waited began the next quarantine before the others were
/// deleted gracefully, so each quarantine released one of them. Six pods of a dead machine took six quarantines.
#[test]
fn bug_a_first_read_for_one_pod_held_up_the_graceful_deletes_of_the_others() {
    let world = connected();
    let waits = deleted(30).set("/status/observedGeneration", json!(0));
    world.apply(Kind::Pods, &waits, at(42));
    world.apply(Kind::Pods, &pod("other").on("gone").observed(3), at(42));
    world.record_absence_read("gone", at(43));
    // The kubelet had until second 72 to respond, which is later than the read.
    let other = END.replace("web-0", "other");
    assert_eq!(describe(&describe_node(&world, "gone", 43 + QUARANTINE)), [&*other]);
    assert_eq!(describe(&describe_node(&world, "gone", 43 + QUARANTINE + 9)), [&*other]);
    assert_eq!(describe(&describe_node(&world, "gone", 43 + QUARANTINE + 10)), [&*other, "ask for gone"]);
}

/// The pull of an image and a `postStart` hook have no timeout, and their kubelet reports nothing about the pod
/// meanwhile: two copies ran during that time.
#[test]
fn bug_a_kubelet_with_a_busy_pod_worker_counted_as_gone() {
    let world = connected();
    world.apply(Kind::Pods, &reported().starting(), at(0));
    assert_eq!(describe(&describe_node(&world, "gone", 1 + QUARANTINE)), [END]);
    world.apply(Kind::Pods, &deleted(30).starting(), at(42));
    world.record_absence_read("gone", at(43));
    world.confirm_all(at(10_000));
    let held = describe_node(&world, "gone", 10_000);
    assert_eq!((describe(&held), hold_reasons(&held)), (vec![], vec!["KubeletMayNotReport"]));
    // The kubelet is free, and reports the deletion: the pod has its grace period, and then no report follows.
    world.apply(Kind::Pods, &deleted(30).starting().observed(4).rv(21), at(10_001));
    assert_eq!(hold_reasons(&describe_node(&world, "gone", 10_002)), ["KubeletAlive"]);
    world.record_absence_read("gone", at(10_050));
    world.confirm_all(at(10_100));
    assert_eq!(describe(&describe_node(&world, "gone", 10_050 + QUARANTINE)), [REMOVE]);
}

/// A kubelet that starts watches no pods before it has found its Node. It then receives no deletion, and reports nothing.
#[test]
fn bug_a_kubelet_that_had_just_started_counted_as_gone() {
    for (observed, acts, held) in [(3, vec![], vec!["KubeletMayNotReport"]), (4, vec![REMOVE], vec![])] {
        let world = connected();
        world.apply(Kind::Nodes, &node("gone").uid("uid-again"), at(2));
        [3, 4].into_iter().for_each(|second| world.apply(Kind::NodeLeases, &lease("gone", second), at(second)));
        world.remove(Kind::Nodes, "uid-again", at(4));
        world.apply(Kind::Pods, &deleted(30).observed(observed), at(5));
        world.record_absence_read("gone", at(100));
        world.confirm_all(at(200));
        let decision = describe_node(&world, "gone", 100 + QUARANTINE);
        assert_eq!(describe(&decision), acts, "it reported generation {observed}");
        assert_eq!(hold_reasons(&decision), held, "it reported generation {observed}");
    }
}

/// A static pod has no replacement on another node, and its kubelet never reports that it saw the deletion.
#[test]
fn a_mirror_pod_does_not_wait_for_a_worker_that_may_be_busy() {
    for (mirrors, expected) in [(Obj::mirror as fn(Obj) -> Obj, vec![REMOVE]), (|pod| pod, vec![])] {
        let world = connected();
        world.apply(Kind::Pods, &mirrors(deleted(30).starting()), at(42));
        world.record_absence_read("gone", at(43));
        assert_eq!(describe(&describe_node(&world, "gone", 43 + QUARANTINE)), expected);
    }
}

/// Its report cannot show that it restarts a container whose liveness probe failed. A report about another pod can.
#[test]
fn a_kubelet_that_reports_about_other_pods_only_is_busy_with_this_pod() {
    for (second, held) in [(51, vec![]), (52, vec!["KubeletMayNotReport"])] {
        let world = connected();
        world.apply(Kind::Pods, &pod("other").on("gone").observed(3), at(0));
        world.apply(Kind::Pods, &deleted(30), at(42));
        world.apply(Kind::Pods, &pod("other").on("gone").terminating().observed(4).rv(30), at(second));
        world.remove(Kind::Pods, "uid-other", at(second));
        world.record_absence_read("gone", at(100));
        world.confirm_all(at(200));
        let decision = describe_node(&world, "gone", 100 + QUARANTINE);
        assert_eq!(hold_reasons(&decision), held, "reported at {second}");
        assert_eq!(describe(&decision).is_empty(), !held.is_empty(), "reported at {second}");
    }
}

/// A tenant writes `status.observedGeneration` where the kubelet does not: before Kubernetes 1.34, a kubelet
/// terminates the pod without reporting that it saw the deletion.
#[test]
fn attack_a_tenant_that_writes_observed_generation_shortens_no_grace_period() {
    for (version, removed) in [("v1.37.2", true), ("v1.33.4", false), ("1.34", true), ("", false), ("v1", false)] {
        let world = World::listed();
        let old = node("gone").set("/status/nodeInfo/kubeletVersion", json!(version));
        world.apply(Kind::Nodes, &old, at(0));
        world.apply(Kind::Pods, &reported(), at(0));
        world.remove(Kind::Nodes, "uid-gone", at(0));
        world.apply(Kind::Pods, &deleted(3_600), at(42));
        world.record_absence_read("gone", at(43));
        world.confirm_all(at(100));
        assert_eq!(describe(&describe_node(&world, "gone", 43 + QUARANTINE)) == [REMOVE], removed, "{version}");
    }
}

/// kube-controller-manager's collector is refused half-way: its phase is written, its DELETE is not. A running
/// kubelet terminates the pod within its own grace period, and no more can be requested.
#[test]
fn bug_a_pod_marked_failed_by_others_had_no_grace_period() {
    let world = connected();
    let failed = reported().phase("Failed").set("/spec/terminationGracePeriodSeconds", json!(120));
    world.apply(Kind::Pods, &failed.rv(11), at(20));
    let waits = describe_node(&world, "gone", 1 + QUARANTINE);
    assert_eq!((describe(&waits), hold_reasons(&waits)), (vec![], vec!["AwaitsKubelet"]));
    world.confirm_all(at(300));
    assert!(describe(&describe_node(&world, "gone", 139)).is_empty(), "its own grace is 120 s");
    assert_eq!(describe(&describe_node(&world, "gone", 140)), ["ask for gone"]);
    world.record_absence_read("gone", at(141));
    assert_eq!(describe(&describe_node(&world, "gone", 141 + QUARANTINE)), [REMOVE]);
}

#[test]
fn a_pod_that_was_terminating_when_its_node_was_deleted_is_not_deleted_again() {
    let world = World::listed();
    world.apply(Kind::Pods, &deleted(30), at(0));
    world.record_absence_read("gone", at(1));
    world.confirm_all(at(100));
    // This process did not see when the pod was deleted: its kubelet may know, and be terminating it.
    assert_eq!(describe(&describe_node(&world, "gone", 41)), ["ask for gone"]);
    world.record_absence_read("gone", at(42));
    assert_eq!(describe(&describe_node(&world, "gone", 42 + QUARANTINE)), [REMOVE]);
}

#[test]
fn a_terminated_pod_needs_no_graceful_delete() {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("web-0").on("gone").terminated(), at(0));
    world.record_absence_read("gone", at(1));
    world.confirm_all(at(100));
    assert_eq!(describe(&describe_node(&world, "gone", 1 + QUARANTINE)), [REMOVE]);
}

/// Its Lease was deleted with its Node, and it creates no other: it will not register again by itself, and its pods
/// restart.
#[test]
fn pods_of_a_kubelet_that_only_reports_about_pods_are_deleted_gracefully_after_the_quarantine() {
    let world = connected();
    world.apply(Kind::Pods, &pod("web-0").on("gone").observed(3).rv(11), at(30));
    let early = describe_node(&world, "gone", 39);
    assert_eq!((describe(&early), hold_reasons(&early)), (vec![], vec!["KubeletAlive"]));
    let late = describe_node(&world, "gone", 41);
    assert_eq!((describe(&late), hold_reasons(&late)), (vec![END.to_owned()], vec!["KubeletAlive"]));
}
