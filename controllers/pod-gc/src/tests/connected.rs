//! Pods of a missing node whose kubelet was active until its Node was deleted: it may still run them, so they are deleted
//! gracefully first.

use super::super::decide::REGISTRATION_GRACE;
use super::*;

/// The pod `web-0` of a missing node. The cache has no heartbeat of its kubelet. The first quorum read is of second 1.
fn connected() -> World {
    let world = World::listed();
    world.apply(Kind::Nodes, &node("gone"), at(0));
    world.apply(Kind::Pods, &alive(), at(0));
    world.remove(Kind::Nodes, "uid-gone", at(0));
    world.record_absence_read("gone", at(1));
    world.confirm_all(at(100));
    world
}

/// As its kubelet reported it: it says which generation it has seen.
fn alive() -> Obj {
    pod("web-0").on("gone").running().observed(3)
}

/// As it is once it was deleted, which is another generation.
fn dying(grace: i64) -> Obj {
    let dying = alive().terminating().set("/metadata/generation", json!(4));
    dying.set("/metadata/deletionGracePeriodSeconds", json!(grace)).rv(20)
}

const END: &str = "end web-0 because: node gone does not exist any more, and its kubelet may still run: the pod is deleted gracefully";
const REMOVE: &str = "remove web-0 because NodeGone";

#[test]
fn at_the_end_of_the_quarantine_they_are_deleted_gracefully() {
    let world = connected();
    assert_eq!(hold_reasons(&describe_node(&world, "gone", QUARANTINE)), ["Quarantine"]);
    assert_eq!(describe(&describe_node(&world, "gone", 1 + QUARANTINE)), [END]);
}

/// C7: the kubelet renews a Lease that outlived the Node, and does not register again. Nothing would ever have ended its
/// pods.
#[test]
fn bug_the_pods_of_a_kubelet_that_renews_without_a_node_waited_for_ever() {
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

/// Its last sign was a report on a pod, so the Lease that it renewed before was forgotten: anybody who writes a pod's status could
/// have its pods deleted at the end of the quarantine.
#[test]
fn bug_a_kubelet_that_renews_and_reports_on_a_pod_had_no_five_minutes() {
    for (renews, expected) in [(true, ""), (false, END)] {
        let world = connected();
        if renews {
            world.apply(Kind::NodeLeases, &lease("gone", 35), at(35));
        }
        world.apply(Kind::Pods, &alive().rv(11).ready("True"), at(38));
        let decision = describe_node(&world, "gone", 1 + QUARANTINE);
        assert_eq!(hold_reasons(&decision), ["KubeletAlive"], "renews: {renews}");
        assert_eq!(describe(&decision).concat(), expected, "renews: {renews}");
    }
}

/// 40 s, a signal, 40 s: as fast as a kubelet of 1.34 that lives could answer, plus a quarantine.
#[test]
fn without_an_answer_they_are_removed_a_quarantine_after_a_first_read_that_follows_the_signal() {
    let world = connected();
    world.apply(Kind::Pods, &dying(3_600), at(42));
    let waiting = describe_node(&world, "gone", 42);
    assert_eq!(
        (describe(&waiting), hold_reasons(&waiting)),
        (vec!["ask for gone".to_owned()], vec!["AwaitsKubelet"])
    );
    world.record_absence_read("gone", at(43));
    assert_eq!(hold_reasons(&describe_node(&world, "gone", 60)), ["Quarantine"]);
    assert_eq!(describe(&describe_node(&world, "gone", 43 + QUARANTINE)), [REMOVE]);
}

#[test]
fn a_kubelet_that_answers_ends_them_itself_and_gets_their_grace_for_it() {
    let world = connected();
    world.apply(Kind::Pods, &dying(120), at(42));
    world.apply(Kind::Pods, &dying(120).observed(4).rv(21), at(44));
    let answered = describe_node(&world, "gone", 45);
    assert_eq!((describe(&answered), hold_reasons(&answered)), (vec![], vec!["KubeletAlive"]));
    // It has said nothing for a quarantine, and need not: the grace of the pod is not over.
    assert_eq!(describe(&describe_node(&world, "gone", 44 + QUARANTINE)), ["ask for gone"]);
    world.record_absence_read("gone", at(85));
    world.confirm_all(at(250));
    for now in [125, 161] {
        let waiting = describe_node(&world, "gone", now);
        assert_eq!((describe(&waiting), hold_reasons(&waiting)), (vec![], vec!["AwaitsKubelet"]), "at {now}");
    }
    assert_eq!(describe(&describe_node(&world, "gone", 162)), ["ask for gone"]);
    world.record_absence_read("gone", at(163));
    assert_eq!(
        describe(&describe_node(&world, "gone", 163 + QUARANTINE)),
        [REMOVE],
        "it was cut off while it ended them"
    );
}

/// Before 1.34 a kubelet does not say what it has seen: it may be ending the pod until its grace is over.
#[test]
fn a_kubelet_that_cannot_answer_gets_the_grace_of_its_pods() {
    let world = World::listed();
    let old = |object: Obj| {
        object.modify(|pod| drop(pod["status"].as_object_mut().unwrap().remove("observedGeneration")))
    };
    world.apply(Kind::Pods, &old(alive()), at(0));
    world.record_absence_read("gone", at(1));
    world.apply(Kind::Pods, &old(dying(120)), at(42));
    world.confirm_all(at(250));
    assert_eq!(describe(&describe_node(&world, "gone", 161)), [""; 0]);
    assert_eq!(describe(&describe_node(&world, "gone", 162)), ["ask for gone"]);
}

/// An attack: a tenant changes the pod, which makes a generation that its kubelet has not reported about yet.
#[test]
fn a_tenant_who_changes_a_pod_does_not_make_its_kubelet_unheard() {
    let world = connected();
    world.apply(Kind::Pods, &dying(120), at(42));
    world.apply(Kind::Pods, &dying(120).observed(4).rv(21), at(44));
    world.apply(Kind::Pods, &dying(120).observed(4).set("/metadata/generation", json!(5)).rv(22), at(50));
    world.record_absence_read("gone", at(85));
    world.confirm_all(at(140));
    assert_eq!(describe(&describe_node(&world, "gone", 85 + QUARANTINE)), [""; 0]);
}

/// An attack: pods that are bound to the missing node for ever, so that its other pods stay.
#[test]
fn a_tenant_who_binds_pods_to_a_missing_node_does_not_hold_the_others_up() {
    let world = connected();
    world.apply(Kind::Pods, &dying(30), at(42));
    world.record_absence_read("gone", at(43));
    world.apply(Kind::Pods, &pod("new").on("gone"), at(80));
    let decision = describe_node(&world, "gone", 43 + QUARANTINE);
    let new = END.replace("web-0", "new");
    assert!(
        describe(&decision).contains(&REMOVE.to_owned()) && describe(&decision).contains(&new),
        "{decision:?}"
    );
    assert!(!describe(&decision).contains(&"ask for gone".to_owned()), "those who can go go first");
}

/// A pod that cannot be deleted, because an admission webhook refuses it, delays only itself.
#[test]
fn a_pod_that_cannot_be_asked_holds_the_others_up_for_ten_seconds() {
    let world = connected();
    world.apply(Kind::Pods, &pod("stubborn").on("gone").observed(3), at(0));
    world.apply(Kind::Pods, &dying(30), at(42));
    let stubborn = END.replace("web-0", "stubborn");
    assert_eq!(describe(&describe_node(&world, "gone", 51)), [&*stubborn]);
    assert_eq!(describe(&describe_node(&world, "gone", 52)), [&*stubborn, "ask for gone"]);
}

/// The simulator found it: the new first read of a pod that waited began the next quarantine before the others were
/// signalled, so each quarantine let one of them go. Six pods of a dead machine took six quarantines.
#[test]
fn bug_a_first_read_for_one_pod_held_up_the_signals_of_the_others() {
    let world = connected();
    let waits = dying(30).set("/status/observedGeneration", json!(0));
    world.apply(Kind::Pods, &waits, at(42));
    world.apply(Kind::Pods, &pod("other").on("gone").observed(3), at(42));
    world.record_absence_read("gone", at(43));
    // It had until second 72 to respond, which is later than the read.
    let other = END.replace("web-0", "other");
    assert_eq!(describe(&describe_node(&world, "gone", 43 + QUARANTINE)), [&*other]);
    assert_eq!(describe(&describe_node(&world, "gone", 43 + QUARANTINE + 9)), [&*other]);
    assert_eq!(describe(&describe_node(&world, "gone", 43 + QUARANTINE + 10)), [&*other, "ask for gone"]);
}

/// The pull of an image and a hook `postStart` have no timeout, and their kubelet reports nothing of the pod meanwhile: two copies
/// ran for as long as it took.
#[test]
fn bug_a_kubelet_whose_worker_was_busy_was_taken_for_one_that_is_gone() {
    let world = connected();
    world.apply(Kind::Pods, &alive().starting(), at(0));
    assert_eq!(describe(&describe_node(&world, "gone", 1 + QUARANTINE)), [END]);
    world.apply(Kind::Pods, &dying(30).starting(), at(42));
    world.record_absence_read("gone", at(43));
    world.confirm_all(at(10_000));
    let held = describe_node(&world, "gone", 10_000);
    assert_eq!((describe(&held), hold_reasons(&held)), (vec![], vec!["WorkerMayBeBusy"]));
    // It is free, and reports the deletion: the pod has its grace, and what follows is silence.
    world.apply(Kind::Pods, &dying(30).starting().observed(4).rv(21), at(10_001));
    assert_eq!(hold_reasons(&describe_node(&world, "gone", 10_002)), ["KubeletAlive"]);
    world.record_absence_read("gone", at(10_050));
    world.confirm_all(at(10_100));
    assert_eq!(describe(&describe_node(&world, "gone", 10_050 + QUARANTINE)), [REMOVE]);
}

/// What it has reported cannot show that it restarts a container whose liveness probe failed. That it reports on another pod does.
#[test]
fn a_kubelet_that_reports_on_others_is_busy_with_a_pod_that_it_does_not_report_on() {
    for (second, held) in [(51, vec![]), (52, vec!["WorkerMayBeBusy"])] {
        let world = connected();
        world.apply(Kind::Pods, &pod("other").on("gone").observed(3), at(0));
        world.apply(Kind::Pods, &dying(30), at(42));
        world.apply(Kind::Pods, &pod("other").on("gone").terminating().observed(4).rv(30), at(second));
        world.remove(Kind::Pods, "uid-other", at(second));
        world.record_absence_read("gone", at(100));
        world.confirm_all(at(200));
        let decision = describe_node(&world, "gone", 100 + QUARANTINE);
        assert_eq!(hold_reasons(&decision), held, "reported at {second}");
        assert_eq!(describe(&decision).is_empty(), !held.is_empty(), "reported at {second}");
    }
}

/// A tenant writes `status.observedGeneration` where the kubelet does not: before Kubernetes 1.34, a kubelet ends the pod unheard.
#[test]
fn attack_a_tenant_who_writes_observed_generation_shortens_no_grace() {
    for (version, removed) in
        [("v1.37.2", true), ("v1.33.4", false), ("1.34", true), ("", false), ("v1", false)]
    {
        let world = World::listed();
        let old = node("gone").set("/status/nodeInfo/kubeletVersion", json!(version));
        world.apply(Kind::Nodes, &old, at(0));
        world.apply(Kind::Pods, &alive(), at(0));
        world.remove(Kind::Nodes, "uid-gone", at(0));
        world.apply(Kind::Pods, &dying(3_600), at(42));
        world.record_absence_read("gone", at(43));
        world.confirm_all(at(100));
        assert_eq!(
            describe(&describe_node(&world, "gone", 43 + QUARANTINE)) == [REMOVE],
            removed,
            "{version}"
        );
    }
}

/// Half of kube-controller-manager's collector is refused: its phase lands, its DELETE does not. A kubelet that lives ends the pod
/// within the pod's own grace, and cannot be asked more.
#[test]
fn bug_a_pod_that_others_called_failed_had_no_grace() {
    let world = connected();
    let failed = alive().phase("Failed").set("/spec/terminationGracePeriodSeconds", json!(120));
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
fn a_pod_that_was_terminating_when_its_node_went_is_not_asked_again() {
    let world = World::listed();
    world.apply(Kind::Pods, &dying(30), at(0));
    world.record_absence_read("gone", at(1));
    world.confirm_all(at(100));
    // This process did not see when it was deleted: its kubelet may know, and be ending it.
    assert_eq!(describe(&describe_node(&world, "gone", 41)), ["ask for gone"]);
    world.record_absence_read("gone", at(42));
    assert_eq!(describe(&describe_node(&world, "gone", 42 + QUARANTINE)), [REMOVE]);
}

#[test]
fn a_pod_that_has_ended_needs_no_signal() {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("web-0").on("gone").terminated(), at(0));
    world.record_absence_read("gone", at(1));
    world.confirm_all(at(100));
    assert_eq!(describe(&describe_node(&world, "gone", 1 + QUARANTINE)), [REMOVE]);
}

/// Its Lease is collected with its Node, and it makes no other: it will not register again by itself, and its pods restart.
#[test]
fn a_kubelet_that_only_reports_on_its_pods_is_asked_to_end_them_after_the_quarantine() {
    let world = connected();
    world.apply(Kind::Pods, &pod("web-0").on("gone").observed(3).rv(11), at(30));
    let early = describe_node(&world, "gone", 39);
    assert_eq!((describe(&early), hold_reasons(&early)), (vec![], vec!["KubeletAlive"]));
    let late = describe_node(&world, "gone", 41);
    assert_eq!((describe(&late), hold_reasons(&late)), (vec![END.to_owned()], vec!["KubeletAlive"]));
}

#[test]
fn one_that_renews_its_lease_may_register_again_and_is_left_alone() {
    let world = connected();
    world.apply(Kind::NodeLeases, &lease("gone", 0), at(35));
    let alive = describe_node(&world, "gone", 60);
    assert_eq!((describe(&alive), hold_reasons(&alive)), (vec![], vec!["KubeletAlive"]));
}
