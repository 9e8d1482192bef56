//! Decisions about a volume with a holder.

use super::super::decide::UNUSED_GRACE;

use super::*;

/// Node `a` holds `v` for the pod `p`.
pub(super) fn held() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.lease("v", Some(A), false);
    fixture.pod("p", Some("a"), "c", |_| ());
    fixture
}

#[test]
fn a_healthy_holder_that_uses_the_volume_keeps_it_without_a_write() {
    assert!(held().describe_volume().is_empty());
}

#[test]
fn a_volume_is_released_when_the_kubelet_has_reported_the_end() {
    let mut fixture = held();
    fixture.pod("p", Some("a"), "c", terminate);
    fixture.attachment("v", "a", true);
    assert!(fixture.describe_volume().is_empty(), "it is attached still");
    fixture.world.remove(Kind::Attachments, "uid-v.a", at(2));
    assert_eq!(fixture.describe_volume(), ["release"]);
}

/// A kubelet reports the end of the containers before it unmounts, and removes the pod after it. NFS and iSCSI
/// volumes have no attachment, so nothing else shows that the file system is unmounted.
#[test]
fn bug_a_volume_without_attachments_was_released_while_it_was_mounted() {
    let mut fixture = held();
    let dying = |pod: &mut Value| {
        terminate(pod);
        *pod = Obj(pod.take()).terminating().set("/metadata/deletionGracePeriodSeconds", json!(30)).0;
    };
    fixture.pod("p", Some("a"), "c", dying);
    assert!(fixture.describe_volume().is_empty(), "its kubelet has not removed it");
    fixture.world.remove(Kind::Pods, "uid-p", at(3));
    assert_eq!(fixture.describe_volume(), ["release"]);
}

/// The same pod, kept by the finalizer of another controller: its kubelet has finished with it.
#[test]
fn a_pod_that_its_kubelet_removed_and_a_finalizer_keeps_uses_nothing() {
    let mut fixture = held();
    fixture.pod("p", Some("a"), "c", |pod| {
        terminate(pod);
        let kept =
            Obj(pod.take()).terminating().set("/metadata/finalizers", json!(["batch.kubernetes.io/job-tracking"]));
        *pod = kept.set("/metadata/deletionGracePeriodSeconds", json!(30)).0;
    });
    assert!(fixture.describe_volume().is_empty());
    fixture.pod("p", Some("a"), "c", |pod| {
        terminate(pod);
        let kept =
            Obj(pod.take()).terminating().set("/metadata/finalizers", json!(["batch.kubernetes.io/job-tracking"]));
        *pod = kept.set("/metadata/deletionGracePeriodSeconds", json!(0)).0;
    });
    assert_eq!(fixture.describe_volume(), ["release"]);
}

/// The pod of a completed Job is not deleted, so nothing shows when its volume is unmounted.
#[test]
fn a_volume_without_attachments_of_a_terminated_pod_is_released_after_the_unmount_grace() {
    let mut fixture = held();
    fixture.pod("p", Some("a"), "c", terminate);
    let later = 1 + UNMOUNT_GRACE.as_secs();
    assert_eq!(fixture.describe_volume(), ["VolumeUnconfirmed"]);
    assert_eq!(describe(&fixture.decide_volume("v", later - 1)), ["VolumeUnconfirmed"]);
    assert_eq!(describe(&fixture.decide_volume("v", later)), ["release"]);
    fixture.world.remove(Kind::Pods, "uid-p", at(later - 2));
    assert_eq!(describe(&fixture.decide_volume("v", later)), ["release"], "a later removal changes nothing");
}

#[test]
fn a_volume_is_released_when_the_kubelet_has_unmounted_it() {
    let mut fixture = held();
    fixture.node("a", in_use);
    fixture.pod("p", Some("a"), "c", terminate);
    fixture.world.remove(Kind::Pods, "uid-p", at(2));
    assert!(fixture.describe_volume().is_empty(), "it is mounted still");
    fixture.node("a", |_| ());
    assert_eq!(fixture.describe_volume(), ["release"]);
}

/// A person force deleted a running pod, and later added the out-of-service taint to its node, which was healthy. The
/// Lease was marked only then, and the attach/detach controller was faster.
#[test]
fn bug_a_volume_mounted_for_a_force_deleted_pod_was_not_held() {
    let mut fixture = held();
    fixture.node("a", in_use);
    fixture.attachment("v", "a", true);
    fixture.world.remove(Kind::Pods, "uid-p", at(2));
    assert_eq!(fixture.describe_volume(), ["refuse", "WaitsForVolume"]);
    fixture.config.backends = classes(&["d"]);
    assert!(fixture.describe_volume().is_empty(), "detaching ends the node's writes");
    fixture.config.backends = classes(&[]);
    fixture.lease("v", Some(A), true);
    assert_eq!(fixture.describe_volume(), ["WaitsForVolume"], "it is written once");
    fixture.pod("q", Some("a"), "c", |_| ());
    assert_eq!(fixture.describe_volume(), ["allow"], "a pod uses it there again");
    fixture.world.remove(Kind::Pods, "uid-q", at(3));
    assert_eq!(fixture.describe_volume(), ["WaitsForVolume"]);
    fixture.node("a", |_| ());
    assert_eq!(fixture.describe_volume(), ["allow"], "it is unmounted: it may be detached");
    fixture.world.remove(Kind::Attachments, "uid-v.a", at(4));
    assert_eq!(fixture.describe_volume(), ["release"]);
}

/// The same if this process did not run when the pod was removed: earlier reports of its kubelet are unknown.
#[test]
fn a_volume_that_is_mounted_without_a_pod_is_held_after_a_restart() {
    let mut fixture = Fixture::new();
    fixture.lease("v", Some(A), false);
    fixture.node("a", in_use);
    assert_eq!(fixture.describe_volume(), ["refuse", "WaitsForVolume"]);
    fixture.node("a", |_| ());
    assert_eq!(fixture.describe_volume(), ["release"]);
}

/// A kubelet that reports other volumes of the driver, and not this one, has unmounted it: older states were received
/// by then. In every other case the long grace applies.
#[test]
fn volumes_in_use_of_the_same_driver_show_that_this_one_is_not_used() {
    let soon = 2 + UNUSED_GRACE.as_secs();
    let said_with = |in_use: serde_json::Value, at_last: u64| {
        let mut fixture = held();
        fixture.node("a", |node| node["status"]["volumesInUse"] = in_use);
        fixture.world.remove(Kind::Pods, "uid-p", at(2));
        describe(&fixture.decide_volume("v", at_last))
    };
    let other = "kubernetes.io/csi/d^other";
    assert_eq!(said_with(json!([other]), soon), ["release"]);
    for (why, in_use, when) in [
        ("too soon: the report may be on its way", json!([other]), soon - 1),
        ("no other volume of this driver is reported", json!(["kubernetes.io/csi/dd^other"]), soon),
        ("a volume of no CSI driver", json!(["kubernetes.io/nfs/d^other"]), soon),
        ("a kubelet that just started reports nothing yet", json!([]), soon),
    ] {
        assert_eq!(said_with(in_use, when), ["VolumeUnconfirmed"], "{why}");
    }
    let both = said_with(json!([other, "kubernetes.io/csi/d^v"]), soon);
    assert_eq!(both, ["refuse", "WaitsForVolume"], "it is mounted still");
}

/// The same while it is attached, while a pod exists, and while its node does not report.
#[test]
fn volumes_in_use_of_the_same_driver_are_not_enough_if_this_one_may_be_mounted_again() {
    let soon = 2 + UNUSED_GRACE.as_secs();
    let others = |node: &mut serde_json::Value| {
        node["status"]["volumesInUse"] = json!(["kubernetes.io/csi/d^other"]);
    };
    let mut fixture = held();
    fixture.node("a", others);
    assert!(describe(&fixture.decide_volume("v", soon)).is_empty(), "its pod is there");
    fixture.world.remove(Kind::Pods, "uid-p", at(2));
    fixture.attachment("v", "a", true);
    assert!(describe(&fixture.decide_volume("v", soon)).is_empty(), "it is attached");
    fixture.world.remove(Kind::Attachments, "uid-v.a", at(3));
    assert_eq!(describe(&fixture.decide_volume("v", soon)), ["VolumeUnconfirmed"], "detached just now");
    fixture.node("a", |node| {
        others(node);
        not_ready(node);
    });
    assert_eq!(describe(&fixture.decide_volume("v", soon + 1)), ["refuse", "VolumeUnproved"]);
}

/// If two pods are removed, one without a report is enough to wait.
#[test]
fn the_end_of_both_of_two_pods_must_be_reported() {
    let mut fixture = held();
    fixture.pod("q", Some("a"), "c", |_| ());
    fixture.world.remove(Kind::Pods, "uid-p", at(2));
    fixture.pod("q", Some("a"), "c", terminate);
    fixture.world.remove(Kind::Pods, "uid-q", at(2));
    assert_eq!(fixture.describe_volume(), ["VolumeUnconfirmed"]);
}

#[test]
fn a_holder_that_may_still_write_keeps_it_and_admission_denies_all_others() {
    let doubts: [fn(&mut serde_json::Value); 3] = [
        not_ready,
        |node| node["status"]["conditions"][0]["status"] = json!("False"),
        |node| node["spec"]["taints"] = json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]),
    ];
    for doubt in doubts {
        let mut fixture = held();
        fixture.node("a", doubt);
        assert_eq!(fixture.describe_volume(), ["refuse", "VolumeUnproved"]);
        fixture.lease("v", Some(A), true);
        assert_eq!(fixture.describe_volume(), ["VolumeUnproved"], "written once");
        fixture.world.remove(Kind::Pods, "uid-p", at(2));
        fixture.pod("q", Some("b"), "c", |pod| pod["status"] = json!({ "phase": "Pending" }));
        let decision = fixture.describe_volume();
        assert_eq!(decision[..2], ["VolumeUnproved", "WaitsForVolume"], "the removal of the pod proves nothing");
        fixture.node("a", |_| ());
        fixture.pod("p", Some("a"), "c", |_| ());
        assert_eq!(fixture.describe_volume(), ["allow"]);
    }
}

#[test]
fn the_same_boot_registered_again_remains_the_holder() {
    let mut fixture = held();
    fixture.world.remove(Kind::Nodes, "uid-a", at(2));
    fixture.node("a", |node| node["metadata"]["uid"] = json!("uid-other"));
    assert_eq!(fixture.describe_volume(), ["take a/uid-other/b0000000-0000-4000-8000-000000000001/uid-p"]);
}

/// No Node lists it as attached, so a restarted attach/detach controller attached it to a second node beside the
/// first.
#[test]
fn bug_a_volume_of_a_node_registered_again_was_attached_to_a_second_node() {
    let registered = |attached: bool, elsewhere: bool| {
        let mut fixture = held();
        fixture.world.remove(Kind::Nodes, "uid-a", at(2));
        fixture.node("a", |node| node["metadata"]["uid"] = json!("uid-other"));
        if attached {
            fixture.attachment("v", "a", true);
        }
        if elsewhere {
            fixture.pod("q", Some("b"), "c", |pod| pod["status"] = json!({ "phase": "Pending" }));
        }
        fixture
    };
    let anew = "a/uid-other/b0000000-0000-4000-8000-000000000001/uid-p";
    for (attached, elsewhere, refused) in
        [(true, true, " refused"), (true, false, ""), (false, true, ""), (false, false, "")]
    {
        let fixture = registered(attached, elsewhere);
        assert_eq!(fixture.describe_volume(), [format!("take {anew}{refused}")], "{attached} {elsewhere}");
    }
    let mut fixture = registered(true, true);
    fixture.lease("v", Some(anew), true);
    assert_eq!(fixture.describe_volume(), ["WaitsForVolume"], "the refusal stays until it is detached");
}

#[test]
fn the_quarantine_of_a_missing_holder_counts_from_the_first_read_where_the_grace_ended_before_it() {
    let mut fixture = held();
    fixture.world.remove(Kind::Pods, "uid-p", at(2));
    fixture.world.remove(Kind::Nodes, "uid-a", at(2));
    fixture.lease("v", Some(A), true);
    fixture.world.record_absence_read("a", at(60));
    assert_eq!(describe(&fixture.decide_volume("v", 60 + QUARANTINE - 1)), ["VolumeUnproved"]);
    assert_eq!(describe(&fixture.decide_volume("v", 60 + QUARANTINE)), ["break: node gone"]);
}

/// A pod that is force deleted between two writes would leave its writer without a Lease.
#[test]
fn bug_a_volume_had_no_holder_between_two_boots_of_its_node() {
    let mut fixture = held();
    fixture.node("a", |node| node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT));
    assert_eq!(fixture.describe_volume(), ["break: rebooted, to a/uid-a/b0000000-0000-4000-8000-000000000002/uid-p"]);
    fixture.world.remove(Kind::Pods, "uid-p", at(2));
    fixture.pod("q", Some("b"), "c", |_| ());
    assert_eq!(fixture.describe_volume(), ["break: rebooted"], "only the same node becomes the next holder");
}

#[test]
fn evidence_about_the_holders_incarnation_revokes_the_lease() {
    let mut fixture = held();
    fixture.node("a", not_ready);
    fixture.proof("b0000000-0000-4000-8000-000000000000");
    assert_eq!(fixture.describe_volume(), ["refuse", "VolumeUnproved"], "about another incarnation");
    let mut fixture = held();
    fixture.node("a", not_ready);
    fixture.proof(BOOT);
    assert_eq!(
        fixture.describe_volume(),
        ["refuse", "VolumeUnproved"],
        "A4: the judge may refuse, and until it has not, other nodes are refused"
    );
    fixture.lease("v", Some(A), true);
    assert_eq!(fixture.describe_volume(), ["break by proof"]);
    fixture.lease("v", Some(A), false);
    fixture.node("a", |_| ());
    assert!(fixture.describe_volume().is_empty(), "it is Ready, despite the evidence");
}

#[test]
fn a_deleted_node_is_read_twice_a_quarantine_apart() {
    let mut fixture = held();
    fixture.world.remove(Kind::Pods, "uid-p", at(2));
    fixture.world.remove(Kind::Nodes, "uid-a", at(2));
    assert_eq!(fixture.describe_volume(), ["refuse", "witness a", "VolumeUnproved"], "no pod names the node any more");
    fixture.world.record_absence_read("a", at(3));
    assert_eq!(describe(&fixture.decide_volume("v", 2 + QUARANTINE)), ["refuse", "VolumeUnproved"]);
    fixture.lease("v", Some(A), true);
    let ends = 2 + DEFAULT_GRACE.unsigned_abs();
    assert_eq!(
        describe(&fixture.decide_volume("v", ends + QUARANTINE - 1)),
        ["VolumeUnproved"],
        "removed, not reported"
    );
    assert_eq!(describe(&fixture.decide_volume("v", ends + QUARANTINE)), ["break: node gone"]);
}

#[test]
fn a_lease_with_an_invalid_holder_is_held_and_reported() {
    let mut fixture = held();
    fixture.lease("v", Some("somebody"), false);
    let decision = fixture.decide_volume("v", 2);
    assert_eq!(describe(&decision), ["refuse", "VolumeLeaseUnreadable"]);
    let sentence = decision.holds[0].1.to_string();
    assert!(sentence.contains("\"somebody\"") && sentence.contains("delete lease v"), "{sentence}");
}

/// The attach/detach controller attaches as soon as a pod is bound; the guard may have known of another pod first.
#[test]
fn bug_of_two_nodes_the_one_that_writes_was_not_the_holder() {
    let mut fixture = held();
    fixture.pod("q", Some("b"), "c", |_| ());
    fixture.attachment("v", "b", true);
    assert_eq!(fixture.describe_volume(), [format!("take {B}")], "a has not attached it");
    fixture.attachment("v", "a", true);
    assert_eq!(fixture.describe_volume(), ["VolumeOnSeveralNodes"]);
    fixture.world.remove(Kind::Attachments, "uid-v.b", at(2));
    assert!(fixture.describe_volume().is_empty());
}

/// Found by the simulator: with a taint that was never removed a Ready node never released what it had unmounted.
#[test]
fn bug_a_volume_unmounted_by_a_tainted_node_was_never_released() {
    let tainted = |node: &mut serde_json::Value| {
        node["spec"]["taints"] =
            json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute", "value": "x" }]);
    };
    let mut fixture = held();
    fixture.lease("v", Some(A), true);
    fixture.attachment("v", "a", true);
    fixture.node("a", |node| {
        tainted(node);
        in_use(node);
    });
    fixture.world.remove(Kind::Pods, "uid-p", at(2));
    assert_eq!(fixture.describe_volume(), ["VolumeUnproved"], "it is mounted still");
    fixture.node("a", tainted);
    assert_eq!(fixture.describe_volume(), ["allow"]);
    fixture.lease("v", Some(A), false);
    assert!(fixture.describe_volume().is_empty(), "it is attached still");
    fixture.world.remove(Kind::Attachments, "uid-v.a", at(2));
    assert_eq!(fixture.describe_volume(), ["release"]);
}

/// An attachment left by a node that was proved off does not make it the holder again.
#[test]
fn bug_the_next_holder_lost_the_volume_to_a_leftover_attachment() {
    let mut fixture = Fixture::new();
    fixture.lease("v", Some(B), false);
    fixture.pod("q", Some("b"), "c", |_| ());
    fixture.attachment("v", "a", true);
    fixture.node("a", not_ready);
    fixture.proof(BOOT);
    assert!(fixture.describe_volume().is_empty());
}

/// Found by the simulator: the attach/detach controller deletes the attachment of a pod whose containers were never
/// reported running; the kubelet's later report of their end was not counted.
#[test]
fn bug_an_attachment_deleted_before_its_pod_hid_the_kubelets_report() {
    let mut fixture = held();
    fixture.attachment("v", "a", true);
    fixture.world.remove(Kind::Attachments, "uid-v.a", at(2));
    assert!(fixture.describe_volume().is_empty(), "the pod is there still");
    fixture.pod("p", Some("a"), "c", terminate);
    fixture.world.remove(Kind::Pods, "uid-p", at(2));
    assert_eq!(fixture.describe_volume(), ["release"]);
}

/// Found by the simulator: after a revocation because of a reboot, the next incarnation of the node acquired the
/// volume at once, though it had only the attachment that was not deleted yet; and then it could not be released.
#[test]
fn bug_an_attachment_alone_made_a_reporting_node_the_holder() {
    let mut fixture = Fixture::new();
    fixture.lease("v", None, false);
    fixture.attachment("v", "a", true);
    assert!(fixture.describe_volume().is_empty());
    fixture.node("a", in_use);
    assert_eq!(fixture.describe_volume(), ["take a/uid-a/b0000000-0000-4000-8000-000000000001/-"]);
    fixture.node("a", not_ready);
    assert_eq!(fixture.describe_volume(), [format!("take a/uid-a/{BOOT}/- refused")], "it may be about to use it");
}

/// No process was there to receive the kubelet's report: with the taint, too, the long grace applies.
#[test]
fn bug_the_volume_of_a_tainted_node_without_a_report_was_never_released() {
    let mut fixture = held();
    fixture.node("a", |node| {
        node["spec"]["taints"] = json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]);
    });
    fixture.lease("v", Some(A), true);
    fixture.world.remove(Kind::Pods, "uid-p", at(2));
    assert_eq!(fixture.describe_volume(), ["VolumeUnproved", "VolumeUnconfirmed"]);
    assert_eq!(describe(&fixture.decide_volume("v", 2 + NO_REPORT_GRACE.as_secs())), ["release"]);
}

/// Found by the simulator: a kubelet that waited for the volume counted as a second writer, so its holder, which was
/// healthy again, was never treated as such, and no node could attach the volume.
#[test]
fn bug_a_kubelet_that_waits_for_an_attachment_counted_as_a_writer() {
    let mut fixture = held();
    fixture.lease("v", Some(A), true);
    fixture.attachment("v", "a", true);
    fixture.pod("q", Some("b"), "c", |pod| pod["status"] = json!({ "phase": "Pending" }));
    fixture.node("b", in_use);
    assert_eq!(fixture.describe_volume(), ["WaitsForVolume"], "it waits for its turn: there is one writer");
    fixture.attachment("v", "b", true);
    assert_eq!(fixture.describe_volume(), ["VolumeOnSeveralNodes"]);
}

/// Found in a generated world: a person force deleted the claim, with its finalizer, while the kubelet of a deleted
/// Node terminated the pod. Nothing led from the volume to the pod any more, and the volume was free while the pod
/// wrote to it.
#[test]
fn bug_the_volume_of_a_deleted_node_was_free_when_the_claim_of_its_running_pod_was_deleted() {
    let mut fixture = held();
    fixture.lease("v", Some(A), true);
    fixture.world.remove(Kind::Nodes, "uid-a", at(2));
    fixture.world.record_absence_read("a", at(3));
    let over = 3 + QUARANTINE;
    assert_eq!(describe(&fixture.decide_volume("v", over)), ["VolumeUnproved"], "its pod is there");
    fixture.world.remove(Kind::Claims, "uid-c", at(4));
    assert_eq!(describe(&fixture.decide_volume("v", over)), ["VolumeUnproved"]);
    fixture.world.remove(Kind::Pods, "uid-p", at(5));
    let free = 5 + DEFAULT_GRACE.unsigned_abs() + QUARANTINE;
    assert_eq!(describe(&fixture.decide_volume("v", free - 1)), ["VolumeUnproved"], "its kubelet may just see that");
    assert_eq!(describe(&fixture.decide_volume("v", free)), ["break: node gone"]);
}

/// The denial had made the attach/detach controller uncertain of the first attachment, so it attached the volume to a
/// second node for a pod that waited there, beside the next pod of the first.
#[test]
fn bug_a_pod_that_waited_elsewhere_got_a_volume_that_is_attached_to_its_holder() {
    let mut fixture = held();
    fixture.lease("v", Some(A), true);
    fixture.attachment("v", "a", true);
    fixture.pod("q", Some("b"), "c", |_| ());
    assert_eq!(fixture.describe_volume(), ["WaitsForVolume"], "it stays refused while its holder uses it");
    fixture.pod("p", Some("a"), "c", terminate);
    assert_eq!(fixture.describe_volume(), ["refuse but to detach from a", "WaitsForVolume"], "it may be detached");
    fixture.world.remove(Kind::Pods, "uid-q", at(4));
    assert_eq!(fixture.describe_volume(), ["allow"], "no pod waits elsewhere");
    fixture.pod("q", Some("b"), "c", |_| ());
    fixture.world.remove(Kind::Attachments, "uid-v.a", at(5));
    assert_eq!(fixture.describe_volume(), ["release"]);
}

/// A lost node reports a volume in use for which it only waited, and got it beside the next pod of its holder.
#[test]
fn bug_a_lost_node_that_waited_for_a_volume_took_it_from_the_node_that_has_it_attached() {
    let mut fixture = held();
    fixture.lease("v", Some(A), true);
    fixture.attachment("v", "a", true);
    fixture.pod("p", Some("a"), "c", terminate);
    fixture.pod("q", Some("b"), "c", |pod| pod["status"] = json!({ "phase": "Pending" }));
    fixture.node("b", |node| {
        in_use(node);
        not_ready(node);
    });
    assert_eq!(fixture.describe_volume(), ["refuse but to detach from a", "WaitsForVolume"]);
    fixture.world.remove(Kind::Attachments, "uid-v.a", at(5));
    assert!(fixture.describe_volume()[0].starts_with("take b/"), "{:?}", fixture.describe_volume());
}
