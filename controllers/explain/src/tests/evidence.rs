//! Findings about evidence: each piece with its defect, and why a force delete was refused.

use pod_safety_shared::authority::VerifyError;
use pod_safety_shared::testing::objects::BOOT;
use pod_safety_shared::testing::objects::{self, Obj, START_SECONDS, evidence, lease, named, node, timestamp, uid};

use super::*;

/// The explanation of the pod `ns/web-0`, or of the lost node `n` or the missing node `gone`, at that second.
fn explained(world: &World, second: u64, events: &[EventRecord]) -> Answer {
    world.confirm_all(at(second));
    let guard = world.read();
    let view = guard.view();
    let (settings, leader) = (Settings::default(), Some("pod-safety-x".to_owned()));
    let running = Running { leader, ..Running::default() };
    let wall = jiff::Timestamp::from_second(START_SECONDS + i64::try_from(second).unwrap()).unwrap();
    let ctx = ExplainContext {
        view,
        now: at(second),
        wall,
        settings: &settings,
        running: &running,
        policies: Policies::Deny,
        events,
        attachments: &[],
        successors: &[],
        pauses: &[],
        unread: &[],
    };
    explain_pod(view.pod(&uid("uid-web-0")).unwrap(), &ctx)
}

fn findings_of(answer: &Answer, kind: &str) -> Vec<(Option<bool>, String)> {
    let matching = answer.evidence.iter().filter(|one| one.r#type == kind);
    matching.map(|one| (one.met, one.detail.clone())).collect()
}

fn no(detail: &str) -> (Option<bool>, String) {
    (Some(false), detail.to_owned())
}

fn yes(detail: &str) -> (Option<bool>, String) {
    (Some(true), detail.to_owned())
}

fn doomed() -> Obj {
    objects::pod("web-0").running().observed(3)
}

/// The pod of the missing node `gone`, deleted gracefully.
fn deleted() -> Obj {
    doomed().on("gone").terminating().set("/metadata/generation", json!(4)).rv(20)
}

/// A missing Node was called proof, also where the kubelet was active until its Node was deleted.
#[test]
fn bug_the_absence_of_a_node_was_called_proof_before_its_kubelet_could_respond() {
    type Change = fn(&World);
    let unreachable: Change = |world| world.set_unreachable_before_node_deleted("gone");
    let active: Change = |_| ();
    let reporting: Change = |world| world.apply(Kind::NodeLeases, &lease("gone", 30), at(30));
    let read_again: Change = |world| world.record_absence_read("gone", at(60));
    let proof = "it does not exist, and its kubelet has not reported for 40s";
    let soon = "it does not exist. That is proof after 40s without a sign of life of its kubelet";
    let first = "it does not exist. If its kubelet was active until then, the pod is deleted gracefully first, and its kubelet terminates it. Otherwise 40s without a sign of life of that kubelet are proof";
    // The first read is at second 1. The pod was deleted before that, or in second 42, and has a grace period of 30 s.
    let busy = "it does not exist, and its kubelet was active until then. By its last report it may be starting or changing a container of this pod, and reports nothing until that is done. Its silence is no proof";
    let starting: Change = |world| {
        world.apply(Kind::Pods, &deleted().starting().rv(21), at(50));
        world.record_absence_read("gone", at(60));
    };
    for (what, deleted_at, change, second, expected) in [
        ("it was active, and starts a container", 42, starting, 100, no(busy)),
        ("it was unreachable before, in quarantine", 0, unreachable, 20, no(soon)),
        ("it was unreachable before, after the quarantine", 0, unreachable, 41, yes(proof)),
        ("it was unreachable before, whenever the pod was deleted", 42, unreachable, 43, yes(proof)),
        ("it was active", 42, active, 42, no(soon)),
        ("it was active, and the first read is older than the deletion", 42, active, 60, no(soon)),
        ("it was active, read again, in quarantine", 42, read_again, 99, no(soon)),
        ("it was active, read again, after the quarantine", 42, read_again, 100, yes(proof)),
        ("it renews its Lease", 0, reporting, 41, no("it does not exist, but its kubelet still runs")),
    ] {
        let world = World::listed();
        let before = if deleted_at == 0 { deleted() } else { doomed().on("gone") };
        world.apply(Kind::Nodes, &node("gone"), at(0));
        world.apply(Kind::Pods, &before, at(0));
        world.remove(Kind::Nodes, "uid-gone", at(0));
        world.record_absence_read("gone", at(1));
        if deleted_at > 0 {
            world.apply(Kind::Pods, &deleted(), at(deleted_at));
        }
        change(&world);
        assert_eq!(findings_of(&explained(&world, second, &[]), "NodeGone"), [expected], "{what}");
    }
    // An older kubelet reports nothing before the grace period ends.
    let world = World::listed();
    world.apply(Kind::Pods, &deleted().observed(0), at(0));
    world.record_absence_read("gone", at(1));
    for (second, expected) in [(29, no(first)), (30, no(soon)), (41, no(soon))] {
        assert_eq!(findings_of(&explained(&world, second, &[]), "NodeGone"), [expected], "at {second}");
    }
}

/// A command makes no first read of a missing node, and reported that the pod is removed after 40 s.
#[test]
fn bug_a_pod_of_a_running_kubelet_without_a_node_was_reported_to_wait() {
    let record = |message: &str| EventRecord { reason: "ForceDeleteHeld".to_owned(), ..refused(message, 90) };
    for (renewed, event, verdict, reason) in [
        (None, None, Verdict::Waiting, "Quarantine"),
        (Some(70), None, Verdict::Blocked, "KubeletAlive"),
        (Some(50), None, Verdict::Waiting, "Quarantine"),
        (None, Some("KubeletMayNotReport: node gone does not exist"), Verdict::Blocked, "KubeletMayNotReport"),
        (None, Some("KubeletAlive: node gone does not exist"), Verdict::Blocked, "KubeletAlive"),
        (None, Some("NoEvidence: node gone is unreachable"), Verdict::Waiting, "Quarantine"),
    ] {
        let world = World::listed();
        world.set_wall_time(START_SECONDS, at(0));
        world.apply(Kind::Pods, &deleted(), at(0));
        renewed.into_iter().for_each(|second| world.apply(Kind::NodeLeases, &lease("gone", second), at(second)));
        let events: Vec<_> = event.into_iter().map(record).collect();
        let judgement = explained(&world, 100, &events).judgement;
        assert_eq!((judgement.verdict, judgement.reason), (verdict, reason), "{renewed:?}, {event:?}");
    }
}

/// The lost node `n` in its first boot, and its pod `web-0`, which is being deleted.
fn lost() -> World {
    let world = World::listed();
    world.set_wall_time(START_SECONDS, at(0));
    world.apply(Kind::Nodes, &node("n").boot(BOOT), at(0));
    world.apply(Kind::Pods, &doomed().on("n").terminating(), at(0));
    world.apply(Kind::NodeLeases, &lease("n", 5), at(5));
    world
}

/// Evidence of this kind about the node `n`, written in that second, with its Lease last renewed in second 5.
fn proof(name: &str, kind: &str, written: u64) -> Obj {
    let proof = evidence(name, "n", BOOT, kind).rv(100 + written);
    let proof = proof.set("/metadata/creationTimestamp", json!(timestamp(written)));
    proof.set("/spec/leaseRenewed", json!(timestamp(5)))
}

/// Evidence by the device `fence/bmc`, which answered at that time.
fn by_device(name: &str, written: u64) -> Obj {
    let device = json!({ "namespace": "fence", "name": "bmc" });
    let sample = json!({ "device": device, "at": timestamp(written), "power": "Off", "identity": "Unknown" });
    proof(name, "PowerOff", written).set("/spec/samples", json!([sample]))
}

fn by_person(name: &str, written: u64) -> Obj {
    proof(name, "Asserted", written).set("/spec/reason", json!("pulled its plug"))
}

/// The device reports this power state in that second.
fn set_device_power(world: &World, power: &str, second: u64) {
    let target = json!({ "node": "n", "power": power, "identity": "Unknown", "looked": timestamp(second), "message": "no answer" });
    let device = named("bmc")
        .in_namespace("fence")
        .set("/spec", json!({ "driver": "Agent", "agent": "fence_ipmilan", "nodeSelector": {} }));
    world.apply(Kind::FenceDevices, &device.set("/status", json!({ "targets": [target] })), at(second));
}

/// The confirmation was hidden behind evidence whose device does not answer any more, and that evidence was shown
/// without a defect.
#[test]
fn bug_evidence_whose_device_does_not_answer_any_more_was_shown_as_valid() {
    let world = lost();
    set_device_power(&world, "Unknown", 50);
    world.apply(Kind::FenceEvidences, &by_device("e", 60), at(60));
    let held = "e (PowerOff, found by somebody)";
    assert_eq!(findings_of(&explained(&world, 65, &[]), "FenceConfirmed"), [yes(held)], "its check is older");
    set_device_power(&world, "Off", 70);
    assert_eq!(findings_of(&explained(&world, 80, &[]), "FenceConfirmed"), [yes(held)]);
    set_device_power(&world, "Unknown", 90);
    world.apply(Kind::FenceEvidences, &by_person("w", 100), at(100));
    let answer = explained(&world, 120, &[]);
    let lacks = format!("{held}, but fence/bmc no longer reports off (Unknown 30s ago: no answer)");
    let policy = "no FencePolicy selects this node";
    assert_eq!(findings_of(&answer, "FenceConfirmed"), [no(&lacks), no(policy)]);
    assert_eq!(findings_of(&answer, "PersonConfirmed"), [yes("w (somebody: pulled its plug)")]);
}

/// docs/proof.md: `explain` shows the defect of each piece of evidence. It showed only one.
#[test]
fn bug_old_evidence_hid_a_newer_confirmation_and_the_current_incident() {
    let world = lost();
    world.apply(Kind::FenceEvidences, &by_person("w-old", 10), at(10));
    world.apply(Kind::FenceEvidences, &by_device("e-old", 11), at(11));
    world.apply(
        Kind::FenceEvidences,
        &evidence("e-before", "n", "b0000000-0000-4000-8000-000000000000", "PowerOff"),
        at(11),
    );
    // The node came back, in the same boot, and was lost again.
    world.apply(Kind::NodeLeases, &lease("n", 20).rv(4), at(20));
    let incarnation = json!({ "name": "n", "uid": "uid-n", "bootID": BOOT });
    let incident = json!({ "node": incarnation, "policy": "p", "trigger": { "kind": "Detected", "reason": "silent" } });
    let incident = named("n-2").set("/spec", incident).set("/status", json!({ "phase": "Fencing" }));
    world.apply(Kind::NodeFences, &incident, at(90));
    let answer = explained(&world, 100, &[]);
    let renewed = "but the node's kubelet renewed its Lease since";
    let device = format!("e-old (PowerOff, found by somebody), {renewed}");
    let old = format!("w-old (somebody: pulled its plug), {renewed}");
    assert_eq!(findings_of(&answer, "FenceConfirmed"), [no(&device), no("Fencing: no attempt yet")]);
    assert_eq!(findings_of(&answer, "PersonConfirmed"), [no(&old)]);
    let new_confirmation = by_person("w-new", 110).set("/spec/leaseRenewed", json!(timestamp(20)));
    world.apply(Kind::FenceEvidences, &new_confirmation, at(110));
    let confirmations = findings_of(&explained(&world, 120, &[]), "PersonConfirmed");
    assert_eq!(confirmations, [no(&old), yes("w-new (somebody: pulled its plug)")]);
}

/// The Event that its force delete was refused in that second.
fn refused(message: &str, second: u64) -> EventRecord {
    let at = timestamp(second).parse().unwrap();
    let (object, reason) = ("pod/ns/web-0".to_owned(), "ForceDeleteRefused".to_owned());
    let (message, by) = (message.to_owned(), "pod-safety".to_owned());
    let (uid, node, requested) = (String::new(), String::new(), None);
    EventRecord { at, first: at, count: 1, object, uid, node, requested, reason, message, by, warning: true }
}

const MAY_BE_ON: &str = "PowerStateUnconfirmed: the machine may be on again: fence/bmc: no answer";

fn verdict_of(answer: &Answer) -> (Verdict, &'static str) {
    (answer.judgement.verdict, answer.judgement.reason)
}

fn offers_confirmation(answer: &Answer) -> bool {
    answer.next.iter().any(|next| next.command.contains("confirm-down n"))
}

/// "Removed as soon as live reads bear that out" was shown all the time, while live reads refused it each time.
#[test]
fn bug_explain_did_not_report_a_refused_force_delete() {
    let world = lost();
    world.apply(Kind::FenceEvidences, &by_device("e", 60), at(60));
    let before = explained(&world, 100, &[]);
    assert_eq!((verdict_of(&before), offers_confirmation(&before)), ((Verdict::Released, "Proved"), false));
    let answer = explained(&world, 100, &[refused("PowerStateUnconfirmed: an older one", 70), refused(MAY_BE_ON, 90)]);
    assert_eq!((verdict_of(&answer), offers_confirmation(&answer)), ((Verdict::Blocked, "Refused"), true));
    let message = "The evidence e says that node n is off, but the force delete was refused 10s ago: PowerStateUnconfirmed: the machine may be \
        on again: fence/bmc: no answer. It is tried again.";
    assert_eq!(answer.judgement.message, message);
    let own_actor = answer.actors.iter().find(|actor| actor.who == "pod-safety").unwrap();
    assert_eq!(own_actor.may, "yes, with proof, and never without");
    // A pod of the same name was refused before this one was created.
    let replacement = doomed().on("n").terminating().set("/metadata/creationTimestamp", json!(timestamp(95))).rv(30);
    world.apply(Kind::Pods, &replacement, at(95));
    assert_eq!(verdict_of(&explained(&world, 100, &[refused(MAY_BE_ON, 90)])).1, "Proved");
}

/// Two pieces of evidence, and the Event of a refusal from before the second, or from after it.
#[test]
fn a_confirmation_that_is_newer_than_the_refusal_releases_the_pod() {
    let world = lost();
    world.apply(Kind::FenceEvidences, &by_device("e", 60), at(60));
    world.apply(Kind::FenceEvidences, &by_person("w", 95), at(95));
    let released = explained(&world, 100, &[refused(MAY_BE_ON, 90)]);
    assert_eq!((verdict_of(&released), offers_confirmation(&released)), ((Verdict::Released, "Proved"), false));
    let held = explained(&world, 100, &[refused("ReadFailed: a live read failed: timeout", 99)]);
    assert_eq!(verdict_of(&held), (Verdict::Blocked, "Refused"));
    let held = explained(&world, 100, &[refused(MAY_BE_ON, 99)]);
    assert!(!offers_confirmation(&held), "there is one that holds: {held:?}");
}

#[test]
fn a_confirmation_is_offered_only_if_the_kubelet_does_not_report() {
    let world = lost();
    world.apply(Kind::FenceEvidences, &by_device("e", 60), at(60));
    let verdicts = VerifyError::reasons().into_iter().map(|code| {
        let answer = explained(&world, 100, &[refused(&format!("{code}: words"), 90)]);
        (code, answer.judgement.verdict, offers_confirmation(&answer))
    });
    let blocked = [
        "HeartbeatsUnseen",
        "TaintNotTrusted",
        "EvidenceInvalid",
        "PodsNotEnded",
        "PowerStateUnconfirmed",
        "ReadFailed",
        "ReadsTooSlow",
    ];
    for (code, verdict, offers) in verdicts {
        let expected = if blocked.contains(&code) { Verdict::Blocked } else { Verdict::Waiting };
        assert_eq!(verdict, expected, "{code}");
        assert_eq!(offers, ["EvidenceInvalid", "PowerStateUnconfirmed"].contains(&code), "{code}");
    }
    let policy = named("p").set("/spec", json!({ "levels": [], "minimumEvidence": "Verified" }));
    world.apply(Kind::FencePolicies, &policy, at(100));
    let answer = explained(&world, 100, &[refused(MAY_BE_ON, 90)]);
    assert!(!offers_confirmation(&answer), "its policy takes none");
}
