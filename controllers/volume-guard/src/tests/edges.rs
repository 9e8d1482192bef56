//! Rows for mutants of the decisions that other tests did not catch.

use super::*;

/// Node `a` holds `v` for the pod `p`, with this holder in the Lease.
fn held_as(holder: &str) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.lease("v", Some(holder), false);
    fixture.pod("p", Some("a"), "c", |_| ());
    fixture
}

fn without_boot(node: &mut Value) {
    node["status"]["nodeInfo"] = json!({});
}

/// An unreported boot ID is not another boot: otherwise the Lease of a volume that is written to would be revoked.
#[test]
fn an_unreported_boot_is_not_another_boot() {
    let mut fixture = held_as("a/uid-a//uid-p");
    assert!(fixture.describe_volume().is_empty(), "the Lease has no boot ID, and the node has one");
    fixture.node("a", not_ready);
    assert_eq!(fixture.describe_volume(), ["refuse", "VolumeUnproved"]);
    let mut fixture = held_as(A);
    fixture.node("a", without_boot);
    assert!(fixture.describe_volume().is_empty(), "the Lease has a boot ID, and the node has none");
    fixture.node("a", |node| {
        not_ready(node);
        without_boot(node);
    });
    assert_eq!(fixture.describe_volume(), ["refuse", "VolumeUnproved"]);
}

/// Nor is it the same boot: two machines without boot IDs are not one. Windows reports a number of boots, which
/// counts as unreported.
#[test]
fn bug_a_node_without_a_uuid_as_boot_id_counted_as_its_predecessor() {
    for (holder, node_says) in
        [("a/uid-a//uid-p", ""), ("a/uid-a/5/uid-p", "5"), ("a/uid-a/5/uid-p", "6"), (A, ""), ("a/uid-a//uid-p", BOOT)]
    {
        let mut fixture = held_as(holder);
        fixture.world.remove(Kind::Nodes, "uid-a", at(2));
        fixture.node("a", |node| {
            node["metadata"]["uid"] = json!("uid-other");
            node["status"]["nodeInfo"] = json!({ "bootID": node_says });
        });
        assert_eq!(fixture.describe_volume(), ["refuse", "VolumeUnproved"], "{holder} {node_says}");
    }
}

/// A Lease of the deleted node `a`, with this version.
fn apply_lease(fixture: &mut Fixture, second: u64) {
    let lease = json!({ "metadata": { "name": "a", "namespace": "kube-node-lease", "uid": "lease-a" },
        "spec": { "holderIdentity": "a", "renewTime": format!("2026-01-01T00:00:{second:02}Z") } });
    fixture.put(Kind::NodeLeases, lease, at(second));
}

#[test]
fn a_report_while_the_node_is_deleted_starts_the_quarantine_again() {
    let mut fixture = held_as(A);
    [1, 11, 21, 31, 41].into_iter().for_each(|second| apply_lease(&mut fixture, second));
    fixture.world.remove(Kind::Nodes, "uid-a", at(50));
    fixture.world.record_absence_read("a", at(51));
    apply_lease(&mut fixture, 51);
    let again = |fixture: &Fixture, second: u64| {
        (describe(&fixture.decide_volume("v", second)), fixture.decide_volume("v", second).requeue_at)
    };
    let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let due = 51 + QUARANTINE;
    let again_at = due + QUARANTINE;
    assert_eq!(again(&fixture, due - 1), (words(&["refuse", "VolumeUnproved"]), Some(at(due))), "not asked yet");
    assert_eq!(again(&fixture, due), (words(&["refuse", "witness a", "VolumeUnproved"]), Some(at(due + 1))));
    fixture.world.record_absence_read("a", at(due));
    assert_eq!(again(&fixture, again_at - 1), (words(&["refuse", "VolumeUnproved"]), Some(at(again_at))));
    fixture.lease("v", Some(A), true);
    let after = due + QUARANTINE;
    assert_eq!(describe(&fixture.decide_volume("v", after)), ["VolumeUnproved"], "its pod was not asked to end yet");
    fixture.world.remove(Kind::Pods, "uid-p", at(after));
    let free = after + DEFAULT_GRACE.unsigned_abs() + QUARANTINE;
    assert_eq!(again(&fixture, free - 1), (words(&["VolumeUnproved"]), Some(at(free))), "its kubelet just saw it");
    assert_eq!(describe(&fixture.decide_volume("v", free)), ["break: node gone"]);
}

#[test]
fn an_unreadable_node_is_neither_missing_nor_idle() {
    let odd = json!({ "metadata": { "name": "b", "uid": "uid-b", "resourceVersion": "x" } });
    let mut fixture = held_as(A);
    fixture.attachment("v", "b", true);
    fixture.world.apply(Kind::Nodes, &odd, at(2));
    assert_eq!(fixture.describe_volume(), ["VolumeUnreadable"], "it may use what another holds");
    fixture.lease("v", None, false);
    assert_eq!(fixture.describe_volume(), ["VolumeUnreadable"], "also without a holder");
    fixture.lease("v", Some(B), false);
    assert_eq!(fixture.describe_volume(), ["refuse", "VolumeUnproved"], "and keeps what it holds");
}

#[test]
fn an_unreadable_volume_keeps_its_lease_and_one_that_is_not_exclusive_has_no_hold() {
    let fixture = held_as(A);
    let odd = json!({ "metadata": { "name": "v", "uid": "uid-v", "resourceVersion": "x" }, "spec": {} });
    fixture.world.apply(Kind::Volumes, &odd, at(2));
    assert_eq!(fixture.describe_volume(), ["VolumeUnreadable"]);
    let mut fixture = Fixture::new();
    fixture.volume("v", &["ReadWriteMany"]);
    let broken = json!({ "metadata": { "name": "x", "uid": "uid-x" }, "spec": { "source": {} } });
    fixture.put(Kind::Attachments, broken, at(1));
    assert!(fixture.describe_volume().is_empty());
}

/// Each of these objects may be about any volume.
#[test]
fn an_unreadable_lease_attachment_or_claim_holds_every_volume() {
    for (kind, object) in [
        (Kind::Attachments, json!({ "metadata": { "name": "x", "uid": "uid-x" }, "spec": { "source": {} } })),
        (
            Kind::VolumeLeases,
            json!({ "metadata": { "name": "x", "namespace": "pod-safety-volumes", "uid": "uid-x", "resourceVersion": "x" } }),
        ),
        (
            Kind::Claims,
            json!({ "metadata": { "name": "x", "namespace": "ns", "uid": "uid-x", "resourceVersion": "x" } }),
        ),
    ] {
        let mut fixture = held_as(A);
        fixture.node("a", |node| node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT));
        assert_eq!(fixture.describe_volume(), [format!("break: rebooted, to a/uid-a/{NEXT_BOOT}/uid-p")]);
        fixture.world.apply(kind, &object, at(2));
        assert_eq!(fixture.describe_volume(), ["VolumeUnreadable"], "{kind:?}");
    }
}

/// A Ready node is not relieved, whatever evidence there is about its storage: it would use the volume again at once.
#[test]
fn a_ready_node_with_the_taint_is_not_relieved_by_evidence_about_its_storage() {
    let mut fixture = held_as(A);
    fixture.lease("v", Some(A), true);
    fixture.attachment("v", "a", true);
    fixture.node("a", |node| {
        in_use(node);
        node["spec"]["taints"] = json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]);
    });
    let proof = json!({
        "metadata": { "name": "proof", "uid": "uid-proof" },
        "spec": { "node": { "name": "a", "uid": "uid-a", "bootID": BOOT }, "kind": "StorageFenced", "fence": "f", "by": "x",
            "storage": [{ "driver": "d", "className": "rbd" }] },
    });
    fixture.put(Kind::FenceEvidences, proof, at(1));
    assert_eq!(fixture.describe_volume(), ["VolumeUnproved"]);
}

/// Which pods wait, of those that use a volume whose holder may still write.
#[test]
fn only_pods_of_other_nodes_that_do_not_run_yet_are_held_as_waiting() {
    let mut fixture = held_as(A);
    fixture.lease("v", Some(A), true);
    fixture.node("a", not_ready);
    let starts = |pod: &mut Value| pod["status"] = json!({ "phase": "Pending" });
    fixture.pod("waits", Some("b"), "c", starts);
    fixture.pod("beside", Some("a"), "c", starts);
    fixture.pod("runs", Some("b"), "c", |_| ());
    fixture.pod("over", Some("b"), "c", terminate);
    fixture.pod("nowhere", None, "c", |_| ());
    fixture.pod("of-another", Some("b"), "d", starts);
    let decision = fixture.decide_volume("v", 2);
    let waiting: Vec<_> = decision
        .holds
        .iter()
        .filter_map(|(subject, hold)| match (subject, hold) {
            (Subject::Pod(pod), Hold::Waits { .. }) => Some(pod.name.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(waiting, ["waits"]);
}

/// With the taint the attach/detach controller takes the volume at once: other nodes must be denied it meanwhile.
#[test]
fn a_free_volume_used_on_a_ready_node_with_the_taint_is_acquired_and_denied_in_one_write() {
    let mut fixture = Fixture::new();
    fixture.pod("p", Some("a"), "c", |_| ());
    assert_eq!(fixture.describe_volume(), [format!("take {A}")]);
    fixture.node("a", |node| {
        node["spec"]["taints"] = json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]);
    });
    assert_eq!(fixture.describe_volume(), [format!("take {A} refused")]);
}

/// An unchanged denial is not written again, and a changed one is.
#[test]
fn a_denial_is_written_again_when_it_names_another_node_or_none() {
    let mut fixture = held_as(A);
    fixture.config.backends = super::fixture::classes(&["d"]);
    fixture.attachment("v", "a", true);
    fixture.node("a", not_ready);
    for (lease, expected) in [
        ("none", &["refuse but to detach from a", "VolumeUnproved"][..]),
        ("held", &["refuse but to detach from a", "VolumeUnproved"]),
        ("from b", &["refuse but to detach from a", "VolumeUnproved"]),
        ("from a", &["VolumeUnproved"]),
    ] {
        match lease {
            "none" => fixture.lease("v", Some(A), false),
            "held" => fixture.lease("v", Some(A), true),
            "from b" => fixture.lease_to_detach("v", Some(A), "b"),
            _ => fixture.lease_to_detach("v", Some(A), "a"),
        }
        assert_eq!(fixture.describe_volume(), expected, "{lease}");
    }
}

/// Which of several nodes becomes the holder of a free volume.
#[test]
fn of_several_nodes_one_with_an_attachment_comes_first_then_the_first_bound_pod_then_the_name() {
    let mut fixture = Fixture::new();
    let bound = |second: u32| {
        move |pod: &mut Value| {
            pod["status"]["phase"] = json!("Pending");
            pod["status"]["containerStatuses"] = json!([]);
            pod["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": "True",
                "lastTransitionTime": format!("2026-01-01T00:00:0{second}Z") }]);
        }
    };
    fixture.pod("p", Some("a"), "c", bound(5));
    fixture.pod("q", Some("b"), "c", bound(5));
    assert_eq!(fixture.describe_volume(), [format!("take {A}")], "of two at once the first by its UID");
    fixture.pod("q", Some("b"), "c", bound(4));
    assert_eq!(fixture.describe_volume(), [format!("take {B}")], "who was bound first");
    fixture.attachment("v", "a", false);
    assert_eq!(fixture.describe_volume(), [format!("take {A}")], "who is being attached");
    fixture.attachment("v", "b", true);
    assert_eq!(fixture.describe_volume(), [format!("take {B}")], "who is attached");
    fixture.pod("r", Some("b"), "c", bound(3));
    assert_eq!(fixture.describe_volume(), [format!("take b/uid-b/{BOOT}/uid-r")], "for the first of its pods");
}

/// The decision about a pod with the gate whose only volume is this one.
fn gate(fixture: &Fixture, pod: &str) -> Vec<String> {
    describe(&fixture.decide_pod(pod, 2))
}

fn gated(fixture: &mut Fixture, name: &str, created: u32, change: impl FnOnce(&mut Value)) {
    fixture.pod(name, None, "c", |pod| {
        pod["spec"]["schedulingGates"] = json!([{ "name": "pod-safety.dev/volume-guard" }]);
        pod["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:00:{created:02}Z"));
        change(pod);
    });
}

#[test]
fn a_bound_pod_is_behind_no_gate_any_more() {
    let mut fixture = Fixture::new();
    gated(&mut fixture, "q", 1, |pod| pod["spec"]["nodeName"] = json!("a"));
    assert!(gate(&fixture, "q").is_empty());
    assert!(gate(&fixture, "nobody").is_empty());
}

#[test]
fn pods_that_want_a_free_volume_do_not_wait_for_terminating_or_younger_ones() {
    let ends = |pod: &mut Value| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
    for (says, other, passes, change) in [
        ("it is older", 1, false, (|_| ()) as fn(&mut Value)),
        ("it is younger", 9, true, |_| ()),
        ("it is older, and ends", 1, true, ends),
        ("it is younger, and its gate is open", 9, false, |pod| pod["spec"]["schedulingGates"] = json!([])),
        ("it is younger, and bound", 9, false, |pod| pod["spec"]["nodeName"] = json!("a")),
        ("it is older, and over", 1, true, terminate),
        ("it ends and is over, and its kubelet has not unmounted its volumes", 9, false, |pod| {
            terminate(pod);
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
            pod["spec"]["nodeName"] = json!("a");
        }),
        ("it ends, and is bound", 9, false, |pod| {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
            pod["spec"]["nodeName"] = json!("a");
        }),
    ] {
        let mut fixture = Fixture::new();
        gated(&mut fixture, "q", 5, |_| ());
        gated(&mut fixture, "other", other, change);
        let expected = if passes { "ungate q" } else { "WaitsForVolume" };
        assert_eq!(gate(&fixture, "q"), [expected], "{says}");
    }
}

#[test]
fn a_pod_that_lost_the_volume_is_waited_for_again_when_its_node_reports() {
    let mut fixture = Fixture::new();
    fixture.lease_to_detach("v", None, "a");
    fixture.pod("p", Some("a"), "c", |_| ());
    gated(&mut fixture, "q", 5, |_| ());
    assert_eq!(gate(&fixture, "q"), ["WaitsForVolume"], "it is Ready");
    fixture.node("a", not_ready);
    assert_eq!(gate(&fixture, "q"), ["ungate q"]);
    fixture.lease("v", None, false);
    assert_eq!(gate(&fixture, "q"), ["WaitsForVolume"], "it lost nothing");
    fixture.world.remove(Kind::Nodes, "uid-a", at(2));
    assert_eq!(gate(&fixture, "q"), ["WaitsForVolume"], "and is gone");
}

#[test]
fn a_volume_is_shared_only_with_a_pod_that_stays_on_its_node() {
    let ends = |pod: &mut Value| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
    for (says, node, shares, change) in [
        ("it stays", "a", true, (|_| ()) as fn(&mut Value)),
        ("it ends", "a", false, ends),
        ("it is over", "a", false, terminate),
        ("it is elsewhere", "b", false, |_| ()),
    ] {
        let mut fixture = Fixture::new();
        fixture.lease("v", Some(A), false);
        fixture.pod("p", Some(node), "c", change);
        gated(&mut fixture, "q", 5, |_| ());
        let expected = if shares { "ungate q to host-a" } else { "WaitsForVolume" };
        assert_eq!(gate(&fixture, "q"), [expected], "{says}");
    }
}

#[test]
fn a_node_without_a_hostname_label_is_named_by_its_name_and_two_volumes_on_one_node_are_one_place() {
    let mut fixture = Fixture::new();
    for (volume, claim) in [("v", "c"), ("w", "d")] {
        fixture.lease(volume, Some(A), false);
        fixture.pod(&format!("on-{volume}"), Some("a"), claim, |_| ());
    }
    fixture.pod("q", None, "c", |pod| {
        pod["spec"]["schedulingGates"] = json!([{ "name": "pod-safety.dev/volume-guard" }]);
        pod["spec"]["volumes"] = json!([
            { "name": "x", "persistentVolumeClaim": { "claimName": "c" } }, { "name": "y", "persistentVolumeClaim": { "claimName": "d" } },
        ]);
    });
    assert_eq!(gate(&fixture, "q"), ["ungate q to host-a"]);
    fixture.node("a", |node| node["metadata"]["labels"] = json!({}));
    assert_eq!(gate(&fixture, "q"), ["ungate q to a"]);
}

/// A kubelet reports a volume in use before it is attached; then it only waits for it.
#[test]
fn a_node_waits_for_a_volume_or_writes_to_it() {
    let starts = |pod: &mut Value| pod["status"] = json!({ "phase": "Pending" });
    // Node `a` writes; whether `b` does, too.
    for (sentence, attached, is_ready, pods, writes) in [
        ("a pod of its starts", false, true, &[false][..], false),
        ("a pod of its runs", false, true, &[true], true),
        ("one of two runs", false, true, &[false, true], true),
        ("an attachment is wanted", true, true, &[false], true),
        ("it does not report", false, false, &[false], true),
        ("it has no pod of it any more, and is attached to be", true, true, &[], true),
    ] {
        let mut fixture = Fixture::new();
        fixture.attachment("v", "a", true);
        fixture.node("b", |node| {
            in_use(node);
            if !is_ready {
                not_ready(node);
            }
        });
        for (number, runs) in pods.iter().enumerate() {
            fixture.pod(&format!("q{number}"), Some("b"), "c", |pod| {
                if !runs {
                    starts(pod);
                }
            });
        }
        if attached {
            fixture.attachment("v", "b", false);
        }
        let expected = if writes { "VolumeOnSeveralNodes".to_owned() } else { format!("take a/uid-a/{BOOT}/-") };
        assert_eq!(fixture.describe_volume(), [expected], "{sentence}");
    }
}
