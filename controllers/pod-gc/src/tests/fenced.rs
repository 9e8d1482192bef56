//! Pods of a node with evidence about its incarnation.

use pod_safety_shared::testing::objects::{evidence, named};

use super::*;

/// The node `n` in its first boot, with `web-0` being deleted and `web-1` not, and evidence of this kind about this
/// boot.
fn proved(ready: &str, boot: &str, kind: &str, change: impl FnOnce(&mut Value)) -> World {
    let world = World::listed();
    world.apply(Kind::Nodes, &node("n").ready(ready).boot(BOOT), at(0));
    world.apply(Kind::Pods, &pod("web-0").on("n").running().terminating(), at(0));
    world.apply(Kind::Pods, &pod("web-1").on("n").running(), at(0));
    world.apply(Kind::FenceEvidences, &evidence("e", "n", boot, kind).modify(change), at(0));
    world
}

fn invalidated(proof: &mut Value) {
    proof["status"]["invalidated"] = json!({ "at": "2026-01-01T00:00:00Z", "reason": "wrong" });
}

#[test]
fn evidence_about_this_incarnation_releases_only_terminating_pods() {
    let another: fn(&mut Value) = |proof| proof["spec"]["node"]["uid"] = json!("uid-of-before");
    for (ready, boot, change, expected, says) in [
        ("Unknown", BOOT, (|_| {}) as fn(&mut Value), "remove web-0 because Fenced", "it is off"),
        ("False", BOOT, |_| {}, "remove web-0 because Fenced", "its last report is old"),
        ("True", BOOT, |_| {}, "?EvidenceConflictsWithReady", "the node reports Ready"),
        ("Unknown", NEXT_BOOT, |_| {}, "?NoEvidence", "it is about another boot"),
        ("Unknown", BOOT, another, "?NoEvidence", "it is about another Node"),
        ("Unknown", BOOT, invalidated, "?NoEvidence", "it is not believed"),
    ] {
        let decision = describe_node(&proved(ready, boot, "PowerOff", change), "n", 1);
        let mut words = describe(&decision);
        words.extend(hold_reasons(&decision).iter().map(|reason| format!("?{reason}")));
        assert_eq!(words.join(" "), expected, "{ready} {boot}: {says}");
    }
}

#[test]
fn a_confirmation_counts_if_the_policy_of_the_node_accepts_it() {
    let world = proved("Unknown", BOOT, "Asserted", |_| {});
    assert_eq!(describe(&describe_node(&world, "n", 1)), ["remove web-0 because Fenced"]);
    let policy = named("p").set("/spec", json!({ "levels": [], "minimumEvidence": "Verified" }));
    world.apply(Kind::FencePolicies, &policy, at(0));
    assert!(describe(&describe_node(&world, "n", 1)).is_empty());
}

#[test]
fn evidence_and_policies_must_both_be_fresh() {
    let late = at(0) + STALE_AFTER + Duration::from_secs(1);
    let kinds = [Kind::FenceEvidences, Kind::FencePolicies];
    for stale in kinds {
        let world = proved("Unknown", BOOT, "PowerOff", |_| {});
        for kind in kinds.into_iter().chain([Kind::Pods, Kind::Nodes, Kind::NodeLeases]) {
            if kind != stale {
                world.mark_listed(kind, late);
            }
        }
        let decision = decide_at(&world, &node_key("n"), late, &config());
        assert!(decision.intents.is_empty(), "{stale:?} are stale: {decision:?}");
    }
}

#[test]
fn without_our_own_kinds_there_is_no_evidence_and_other_rules_work() {
    let listed = proved("Unknown", BOOT, "PowerOff", |_| {});
    let late = at(0) + STALE_AFTER + Duration::from_secs(1);
    for kind in [Kind::Pods, Kind::Nodes, Kind::NodeLeases] {
        listed.mark_listed(kind, late);
    }
    let decision = decide_at(&listed, &node_key("n"), late, &config());
    assert!(decision.intents.is_empty(), "a stale cache releases no pod: {decision:?}");
    assert_eq!(hold_reasons(&decision), ["NoEvidence"]);

    let world = World::default();
    for kind in [Kind::Pods, Kind::Nodes, Kind::NodeLeases] {
        world.mark_listed(kind, at(0));
    }
    world.apply(Kind::Nodes, &node("n").tainted(), at(0));
    world.apply(Kind::Pods, &pod("web-0").on("n").running().terminating(), at(0));
    let trusting = Config { trust_out_of_service_taint: true, ..config() };
    assert_eq!(describe(&decide_at(&world, &node_key("n"), at(1), &trusting)), ["remove web-0 because OutOfService"]);
}

/// Evidence was withdrawn, but the taint that had been added for it went on releasing pods.
#[test]
fn bug_a_trusted_taint_of_ours_released_pods_after_its_evidence_was_withdrawn() {
    let world = proved("Unknown", BOOT, "PowerOff", invalidated);
    let machine = node("n").boot(BOOT).tainted().set("/spec/taints/0/value", json!("n-1"));
    world.put(Kind::Nodes, machine, at(0));
    let trusting = Config { trust_out_of_service_taint: true, ..config() };
    let decided = |world: &World| describe(&decide_at(world, &node_key("n"), at(1), &trusting));
    assert_eq!(decided(&world), ["remove web-0 because OutOfService"], "a foreign taint is trusted");
    let life = json!({ "name": "n", "uid": "uid-n", "bootID": BOOT });
    let trigger = json!({ "kind": "Detected", "reason": "r" });
    let fence = named("n-1").set("/spec", json!({ "node": life, "policy": "p", "trigger": trigger }));
    world.apply(Kind::NodeFences, &fence, at(0));
    assert!(decided(&world).is_empty(), "our taint counts only with its evidence");
    let held = decide_at(&world, &node_key("n"), at(1), &config());
    assert_eq!(hold_reasons(&held), ["NoEvidence"], "no flag makes a proof of our taint: none is advised");
}

#[test]
fn fenced_storage_releases_no_pod() {
    let covers = |proof: &mut Value| proof["spec"]["storage"] = json!([{ "driver": "d", "className": "c" }]);
    let decision = describe_node(&proved("Unknown", BOOT, "StorageFenced", covers), "n", 1);
    assert!(describe(&decision).is_empty(), "{decision:?}");
}
