//! Own kinds: which evidence is valid for a node, and for a volume that it took.

use crate::testing::objects::NEXT_BOOT;

use super::*;

fn evidence(name: &str, version: u64) -> Value {
    json!({
        "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string() },
        "spec": { "node": { "name": "n", "uid": "uid-n", "bootID": BOOT }, "kind": "PowerOff", "fence": "f", "by": "p",
            "storage": [{ "driver": "d", "className": "c" }] },
    })
}

fn set(mut object: Value, pointer: &str, to: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = to;
    object
}

/// The node `n` of rack 7 with the boot ID `boot`, and other objects.
fn world(boot: &str, objects: &[(Kind, Value)]) -> World {
    let world = World::listed();
    let object =
        node("n").set("/status/nodeInfo", json!({ "bootID": boot })).set("/metadata/labels", json!({ "rack": "7" }));
    world.apply(Kind::Nodes, &object.0, at(1));
    for (kind, object) in objects {
        world.apply(*kind, object, at(1));
    }
    world
}

fn invalid() -> Value {
    json!({ "invalidated": { "at": "t", "reason": "r" } })
}

/// The evidence by which a decision would release the node's pods.
fn counted_evidence(boot: &str, objects: &[(Kind, Value)]) -> Option<String> {
    let world = world(boot, objects);
    let guard = world.read();
    let Lookup::Known(node) = guard.view().node("n") else { panic!("the Node exists") };
    guard.view().evidence_for(node, at(1)).map(|proof| proof.name.to_string())
}

#[test]
fn evidence_is_valid_for_its_incarnation_until_it_is_invalidated() {
    let one = |change: fn(Value) -> Value| [(Kind::FenceEvidences, change(evidence("e", 1)))];
    for (what, boot, objects, expected) in [
        ("of this incarnation", BOOT, one(|proof| proof), Some("e")),
        ("of another boot", NEXT_BOOT, one(|proof| proof), None),
        ("of no boot", "", one(|proof| set(proof, "/spec/node/bootID", json!(""))), None),
        ("of another Node of its name", BOOT, one(|proof| set(proof, "/spec/node/uid", json!("uid-m"))), None),
        ("of another node", BOOT, one(|proof| set(proof, "/spec/node/name", json!("m"))), None),
        ("of storage alone", BOOT, one(|proof| set(proof, "/spec/kind", json!("StorageFenced"))), None),
        ("that was invalidated", BOOT, one(|proof| set(proof, "/status", invalid())), None),
    ] {
        assert_eq!(counted_evidence(boot, &objects).as_deref(), expected, "evidence {what}");
    }
}

/// A policy for nodes of this rack that requires verified evidence.
fn strict_policy(rack: &str) -> (Kind, Value) {
    let selector = json!({ "matchLabels": { "rack": rack } });
    let spec = json!({ "levels": [], "minimumEvidence": "Verified", "nodeSelector": selector });
    (Kind::FencePolicies, objects::named("p").set("/spec", spec).0)
}

/// The node is in another incarnation now.
#[test]
fn evidence_about_a_former_incarnation_is_about_that_of_the_holder_and_meets_the_policy() {
    let holder = |id: &str, boot: &str| Holder { node: "n".into(), node_uid: uid(id), boot_id: boot.into(), pod: None };
    let of_kind = |kind: &str| set(evidence("e", 1), "/spec/kind", json!(kind));
    for (what, proof, rack, holder, expected) in [
        ("of this incarnation", evidence("e", 1), "7", holder("uid-n", BOOT), true),
        ("of another boot", evidence("e", 1), "7", holder("uid-n", NEXT_BOOT), false),
        ("of another Node of its name", evidence("e", 1), "7", holder("uid-m", BOOT), false),
        ("that was invalidated", set(evidence("e", 1), "/status", invalid()), "7", holder("uid-n", BOOT), false),
        ("of storage alone", of_kind("StorageFenced"), "8", holder("uid-n", BOOT), false),
        ("of a person, below the minimum", of_kind("Asserted"), "7", holder("uid-n", BOOT), false),
        ("of a person, with a policy of other nodes", of_kind("Asserted"), "8", holder("uid-n", BOOT), true),
    ] {
        let world = world(NEXT_BOOT, &[(Kind::FenceEvidences, proof), strict_policy(rack)]);
        let guard = world.read();
        assert_eq!(guard.view().evidence_for_former(&holder, at(2)).is_some(), expected, "evidence {what}");
    }
}

#[test]
fn evidence_must_meet_the_minimum_of_the_nodes_policy() {
    let policy = |minimum: &str| {
        (
            Kind::FencePolicies,
            json!({ "metadata": { "name": "p", "uid": "uid-p", "resourceVersion": "1" },
                "spec": { "minimumEvidence": minimum, "levels": [{ "name": "l", "devices": [{ "namespace": "x", "name": "y" }] }] } }),
        )
    };
    let confirmation = (Kind::FenceEvidences, set(evidence("w", 9), "/spec/kind", json!("Asserted")));
    let verified = (Kind::FenceEvidences, evidence("e", 1));
    for (objects, expected) in [
        (vec![confirmation.clone()], Some("w")),
        (vec![policy("Asserted"), confirmation.clone()], Some("w")),
        (vec![policy("Verified"), confirmation.clone()], None),
        (vec![strict_policy("7"), confirmation.clone()], None),
        (vec![strict_policy("8"), confirmation.clone()], Some("w")),
        (vec![policy("Verified"), confirmation.clone(), verified.clone()], Some("e")),
        (vec![confirmation.clone(), verified], Some("e")),
        (
            vec![confirmation.clone(), (Kind::FenceEvidences, set(evidence("x", 10), "/spec/kind", json!("Asserted")))],
            Some("x"),
        ),
    ] {
        assert_eq!(counted_evidence(BOOT, &objects).as_deref(), expected, "{objects:?}");
    }
}

#[test]
fn policies_of_equal_priority_are_ordered_by_name() {
    for (first, second) in [("uid-1", "uid-2"), ("uid-2", "uid-1")] {
        let world = World::listed();
        for (name, namespace, uid) in [("b", "x", second), ("a", "y", first)] {
            let policy = objects::named(name).uid(uid).in_namespace(namespace).set("/spec", json!({ "levels": [] }));
            world.apply(Kind::FencePolicies, &policy.0, at(1));
        }
        let guard = world.read();
        assert_eq!(guard.view().policy_of(&Default::default()).map(|policy| &*policy.name), Some("a"));
    }
}

#[test]
fn storage_evidence_is_valid_for_its_driver_and_incarnation() {
    let of_storage = || set(evidence("s", 1), "/spec/kind", json!("StorageFenced"));
    let holder =
        |uid_of: &str, boot: &str| Holder { node: "n".into(), node_uid: uid(uid_of), boot_id: boot.into(), pod: None };
    let current = || holder("uid-n", BOOT);
    for (what, proof, holder, driver, expected) in [
        ("of this incarnation", of_storage(), current(), "d", true),
        ("of another driver", of_storage(), current(), "e", false),
        ("of another boot", of_storage(), holder("uid-n", "b0000000-0000-4000-8000-000000000000"), "d", false),
        ("of no boot", set(of_storage(), "/spec/node/bootID", json!("")), holder("uid-n", ""), "d", false),
        ("of another Node of its name", of_storage(), holder("uid-m", BOOT), "d", false),
        ("that the machine is off", evidence("s", 1), current(), "d", false),
        ("that was invalidated", set(of_storage(), "/status", invalid()), current(), "d", false),
        (
            "that is being deleted",
            set(of_storage(), "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            current(),
            "d",
            false,
        ),
    ] {
        let world = world(BOOT, &[(Kind::FenceEvidences, proof)]);
        let guard = world.read();
        assert_eq!(guard.view().storage_evidence(&holder, driver, at(2)).is_some(), expected, "evidence {what}");
    }
}

#[test]
fn evidence_that_was_removed_or_names_another_node_is_not_found() {
    let world = world(BOOT, &[(Kind::FenceEvidences, evidence("e", 1))]);
    let about = |node: &str| world.read().view().fence_evidence_of(node).count();
    assert_eq!((about("n"), about("m")), (1, 0));
    world.apply(
        Kind::FenceEvidences,
        &set(set(evidence("e", 2), "/spec/node/name", json!("m")), "/spec/by", json!("q")),
        at(2),
    );
    assert_eq!((about("n"), about("m")), (0, 1));
    world.remove(Kind::FenceEvidences, "uid-e", at(3));
    assert_eq!((about("n"), about("m")), (0, 0));
}

#[test]
fn a_device_is_found_by_its_namespace_and_its_name() {
    let device = |namespace: &str, name: &str| {
        (
            Kind::FenceDevices,
            json!({ "metadata": { "namespace": namespace, "name": name, "uid": format!("{namespace}-{name}"), "resourceVersion": "1" },
                "spec": { "driver": "Redfish" } }),
        )
    };
    let world = world(BOOT, &[device("a", "x"), device("b", "x"), device("a", "y")]);
    let guard = world.read();
    let device_uid =
        |namespace: &str, name: &str| guard.view().device(namespace, name).map(|device| device.uid.to_string());
    assert_eq!(device_uid("b", "x").as_deref(), Some("b-x"));
    assert_eq!(device_uid("a", "y").as_deref(), Some("a-y"));
    assert_eq!(device_uid("b", "y"), None);
}

/// The cache accepts a confirmation under the same conditions as the check before a write.
#[test]
fn a_confirmation_is_valid_until_it_expires_or_the_lease_changes() {
    const NOON: i64 = 1_795_262_400;
    let confirmation = |minutes: i64, renewed: &str| {
        let created = jiff::Timestamp::from_second(NOON - 60 * minutes).unwrap().to_string();
        let proof = set(evidence("e", 1), "/metadata/creationTimestamp", json!(created));
        let spec = json!({
            "node": { "name": "n", "uid": "uid-n", "bootID": BOOT }, "kind": "Asserted", "by": "ada", "reason": "I looked",
            "validSeconds": 3600, "leaseRenewed": renewed,
        });
        (Kind::FenceEvidences, set(proof, "/spec", spec))
    };
    let lease = (Kind::NodeLeases, crate::testing::objects::lease("n", 7).0);
    let renewed = crate::testing::objects::timestamp(7);
    let unreadable = json!({ "metadata": { "name": "p", "uid": "uid-p" }, "spec": { "levels": [] } });
    for (what, objects, expected) in [
        ("59 minutes old", vec![confirmation(59, &renewed)], true),
        ("61 minutes old", vec![confirmation(61, &renewed)], false),
        ("of the last renewal", vec![confirmation(1, &renewed), lease.clone()], true),
        ("of before the last renewal", vec![confirmation(1, "2026-01-01T00:00:06Z"), lease], false),
        ("beside an unreadable policy", vec![confirmation(1, &renewed), (Kind::FencePolicies, unreadable)], false),
    ] {
        let world = world(BOOT, &objects);
        world.set_wall_time(NOON, at(1));
        let guard = world.read();
        let Lookup::Known(node) = guard.view().node("n") else { panic!("the Node exists") };
        assert_eq!(guard.view().evidence_for(node, at(1)).is_some(), expected, "a confirmation {what}");
    }
}

/// The wall clock of this process was set ahead. The check before a write took the confirmation as expired, the cache
/// did not, and the volume guard sent the same refused request again and again, without an Event.
#[test]
fn bug_the_cache_dated_a_confirmation_by_another_clock_reading_than_the_check() {
    const NOON: i64 = 1_795_262_400;
    let created = jiff::Timestamp::from_second(NOON).unwrap().to_string();
    let spec = json!({ "node": { "name": "n", "uid": "uid-n", "bootID": BOOT }, "kind": "Asserted", "by": "ada",
        "reason": "I looked", "validSeconds": 3600 });
    let confirmation = set(set(evidence("e", 1), "/metadata/creationTimestamp", json!(created)), "/spec", spec);
    let world = world(BOOT, &[(Kind::FenceEvidences, confirmation)]);
    let holds = |now| {
        let guard = world.read();
        let Lookup::Known(node) = guard.view().node("n") else { panic!("the Node exists") };
        guard.view().evidence_for(node, now).is_some()
    };
    world.set_wall_time(NOON, at(1));
    assert!(holds(at(1)));
    world.set_wall_time(NOON + 7_200, at(2));
    assert!(!holds(at(2)), "two hours ahead: by the judge's reading it has expired");
    world.set_wall_time(NOON + 3, at(3));
    assert!(holds(at(3)), "set right");
}

/// A user with rights in one namespace could have every node's devices listed, and any node fenced.
#[test]
fn attack_devices_and_remediations_of_a_tenants_namespace_are_ignored() {
    let world = World::listed();
    world.cache().restrict_fencing_to(["pod-safety".to_owned()].into());
    let one = |namespace: &str, spec: Value| {
        let uid = format!("uid-{namespace}");
        let meta = json!({ "namespace": namespace, "name": "n", "uid": uid, "resourceVersion": "1" });
        json!({ "metadata": meta, "spec": spec })
    };
    let agent = || json!({ "driver": "Agent", "agent": "fence_ipmilan" });
    for namespace in ["tenant", "pod-safety"] {
        world.apply(Kind::FenceDevices, &one(namespace, agent()), at(1));
        world.apply(Kind::Remediations, &one(namespace, json!({})), at(1));
    }
    let broken = || Undecodable { namespace: Some("tenant".to_owned()), ..unreadable(Some("b"), Some("n")) };
    world.cache().apply_undecodable::<crate::model::FenceDeviceObject>(broken(), at(1));
    world.cache().apply_undecodable::<crate::model::RemediationObject>(broken(), at(1));
    let guard = world.read();
    let view = guard.view();
    let devices: Vec<_> = view.devices().map(|device| &*device.namespace).collect();
    let remediations: Vec<_> = view.remediations().map(|one| &*one.namespace).collect();
    assert_eq!((devices, remediations), (vec!["pod-safety"], vec!["pod-safety"]));
    let unreadable = (view.count(Kind::FenceDevices).1, view.count(Kind::Remediations).1);
    assert_eq!(unreadable, (0, 0), "what cannot be read there holds nothing up here");
    assert!(view.is_fencing_namespace("pod-safety") && !view.is_fencing_namespace("tenant"));
}

#[test]
fn the_newest_evidence_of_a_node_has_the_highest_version() {
    let other = set(evidence("other", 9), "/spec/node/name", json!("m"));
    let all = [evidence("e", 3), evidence("f", 7), other].map(|proof| (Kind::FenceEvidences, proof));
    let world = world(BOOT, &all);
    let guard = world.read();
    let view = guard.view();
    assert_eq!(view.fence_evidence().count(), 3);
    let newest = view.fence_evidence_of("n").map(|proof| view.newest_evidence(proof).to_string());
    assert_eq!(newest.collect::<Vec<_>>(), ["7", "7"]);
}

#[test]
fn only_listed_namespaces_are_fencing_namespaces() {
    let world = world(BOOT, &[]);
    world.cache().restrict_fencing_to(["ops".to_owned()].into());
    let from = |namespace: &str| world.read().view().is_fencing_namespace(namespace);
    assert_eq!((from("ops"), from("tenant")), (true, false));
}
