//! What becomes of a volume that somebody holds.

use pod_safety_shared::model::{DEFAULT_GRACE, Kind};
use pod_safety_shared::testing::at;
use pod_safety_shared::testing::objects::Obj;
use pod_safety_shared::testing::objects::{BOOT, NEXT_BOOT};
use serde_json::{Value, json};

use super::super::decide::{NO_REPORT_GRACE, UNMOUNT_GRACE, UNUSED_GRACE};
use super::fixture::{Fixture, QUARANTINE, classes, describe, ended, in_use, not_ready};

pub(super) const A: &str = "a/uid-a/b0000000-0000-4000-8000-000000000001/uid-p";

/// Node `a` holds `v` for the pod `p`.
pub(super) fn held() -> Fixture {
    let mut stage = Fixture::new();
    stage.lease("v", Some(A), false);
    stage.pod("p", Some("a"), "c", |_| ());
    stage
}

#[test]
fn who_is_well_and_uses_it_keeps_it_and_nothing_is_written() {
    assert!(held().describe_volume().is_empty());
}

#[test]
fn it_is_given_back_when_the_kubelet_has_reported_the_end() {
    let mut stage = held();
    stage.pod("p", Some("a"), "c", ended);
    stage.attachment("v", "a", true);
    assert!(stage.describe_volume().is_empty(), "it is attached still");
    stage.world.remove(Kind::Attachments, "uid-v.a", at(2));
    assert_eq!(stage.describe_volume(), ["release"]);
}

/// A5: a kubelet reports the end of the containers before it unmounts, and removes the pod after it. Nothing is attached
/// of NFS and iSCSI, so nothing else says that the file system is unmounted.
#[test]
fn bug_a_volume_without_attachments_was_given_back_while_it_was_mounted() {
    let mut stage = held();
    let dying = |pod: &mut Value| {
        ended(pod);
        *pod = Obj(pod.take()).terminating().set("/metadata/deletionGracePeriodSeconds", json!(30)).0;
    };
    stage.pod("p", Some("a"), "c", dying);
    assert!(stage.describe_volume().is_empty(), "its kubelet has not removed it");
    stage.world.remove(Kind::Pods, "uid-p", at(3));
    assert_eq!(stage.describe_volume(), ["release"]);
}

/// The same pod, kept by the finalizer of another controller: its kubelet has done its part.
#[test]
fn a_pod_that_its_kubelet_removed_and_a_finalizer_keeps_uses_nothing() {
    let mut stage = held();
    stage.pod("p", Some("a"), "c", |pod| {
        ended(pod);
        let kept = Obj(pod.take())
            .terminating()
            .set("/metadata/finalizers", json!(["batch.kubernetes.io/job-tracking"]));
        *pod = kept.set("/metadata/deletionGracePeriodSeconds", json!(30)).0;
    });
    assert!(stage.describe_volume().is_empty());
    stage.pod("p", Some("a"), "c", |pod| {
        ended(pod);
        let kept = Obj(pod.take())
            .terminating()
            .set("/metadata/finalizers", json!(["batch.kubernetes.io/job-tracking"]));
        *pod = kept.set("/metadata/deletionGracePeriodSeconds", json!(0)).0;
    });
    assert_eq!(stage.describe_volume(), ["release"]);
}

/// A5: nobody deletes the pod of a Job that has ended, so nothing says when its volume is unmounted.
#[test]
fn a_volume_without_attachments_of_a_pod_that_has_ended_is_given_back_when_no_unmount_lasts_so_long() {
    let mut stage = held();
    stage.pod("p", Some("a"), "c", ended);
    let later = 1 + UNMOUNT_GRACE.as_secs();
    assert_eq!(stage.describe_volume(), ["VolumeUnconfirmed"]);
    assert_eq!(describe(&stage.decide_volume("v", later - 1)), ["VolumeUnconfirmed"]);
    assert_eq!(describe(&stage.decide_volume("v", later)), ["release"]);
    stage.world.remove(Kind::Pods, "uid-p", at(later - 2));
    assert_eq!(
        describe(&stage.decide_volume("v", later)),
        ["release"],
        "who removes it later changes nothing"
    );
}

#[test]
fn it_is_given_back_when_the_kubelet_has_unmounted_it() {
    let mut stage = held();
    stage.node("a", in_use);
    stage.pod("p", Some("a"), "c", ended);
    stage.world.remove(Kind::Pods, "uid-p", at(2));
    assert!(stage.describe_volume().is_empty(), "it is mounted still");
    stage.node("a", |_| ());
    assert_eq!(stage.describe_volume(), ["release"]);
}

/// Seed 26635: a person removed a running pod by force, and later typed out-of-service on its node, which was well. The
/// Lease was marked only then, and attach/detach was quicker.
#[test]
fn bug_a_volume_that_was_mounted_for_a_pod_removed_by_force_was_not_held() {
    let mut stage = held();
    stage.node("a", in_use);
    stage.attachment("v", "a", true);
    stage.world.remove(Kind::Pods, "uid-p", at(2));
    assert_eq!(stage.describe_volume(), ["refuse", "WaitsForVolume"]);
    stage.config.backends = classes(&["d"]);
    assert!(stage.describe_volume().is_empty(), "who detaches it there ends what the node writes");
    stage.config.backends = classes(&[]);
    stage.lease("v", Some(A), true);
    assert_eq!(stage.describe_volume(), ["WaitsForVolume"], "it is written once");
    stage.pod("q", Some("a"), "c", |_| ());
    assert_eq!(stage.describe_volume(), ["allow"], "a pod uses it there again");
    stage.world.remove(Kind::Pods, "uid-q", at(3));
    assert_eq!(stage.describe_volume(), ["WaitsForVolume"]);
    stage.node("a", |_| ());
    assert_eq!(stage.describe_volume(), ["allow"], "it is unmounted: it may be detached");
    stage.world.remove(Kind::Attachments, "uid-v.a", at(4));
    assert_eq!(stage.describe_volume(), ["release"]);
}

/// The same where we were away when the pod went: nobody knows what its kubelet said.
#[test]
fn a_volume_that_is_mounted_without_a_pod_is_held_after_a_restart() {
    let mut stage = Fixture::new();
    stage.lease("v", Some(A), false);
    stage.node("a", in_use);
    assert_eq!(stage.describe_volume(), ["refuse", "WaitsForVolume"]);
    stage.node("a", |_| ());
    assert_eq!(stage.describe_volume(), ["release"]);
}

/// A planted bug: the lock goes with the pod object, without the kubelet's word.
#[test]
fn a_pod_that_is_removed_while_it_runs_gives_nothing_back() {
    let stage = held();
    stage.world.remove(Kind::Pods, "uid-p", at(2));
    assert_eq!(stage.describe_volume(), ["VolumeUnconfirmed"]);
    let later = 2 + NO_REPORT_GRACE.as_secs();
    assert_eq!(describe(&stage.decide_volume("v", later - 1)), ["VolumeUnconfirmed"]);
    assert_eq!(
        describe(&stage.decide_volume("v", later)),
        ["release"],
        "a kubelet that is well ends what it is told to end"
    );
}

/// A kubelet that reports others of the driver, and not this one, has unmounted it: what is older than that was heard by
/// then. Whatever is not quite that is waited for as ever.
#[test]
fn what_a_kubelet_says_to_use_is_its_word_of_what_it_does_not() {
    let soon = 2 + UNUSED_GRACE.as_secs();
    let said_with = |in_use: serde_json::Value, at_last: u64| {
        let mut stage = held();
        stage.node("a", |node| node["status"]["volumesInUse"] = in_use);
        stage.world.remove(Kind::Pods, "uid-p", at(2));
        describe(&stage.decide_volume("v", at_last))
    };
    let other = "kubernetes.io/csi/d^other";
    assert_eq!(said_with(json!([other]), soon), ["release"]);
    for (why, in_use, when) in [
        ("too soon: the report may be on its way", json!([other]), soon - 1),
        ("nobody says that volumes of this driver are reported", json!(["kubernetes.io/csi/dd^other"]), soon),
        ("a volume of no CSI driver", json!(["kubernetes.io/nfs/d^other"]), soon),
        ("a kubelet that has just begun says nothing yet", json!([]), soon),
    ] {
        assert_eq!(said_with(in_use, when), ["VolumeUnconfirmed"], "{why}");
    }
    let both = said_with(json!([other, "kubernetes.io/csi/d^v"]), soon);
    assert_eq!(both, ["refuse", "WaitsForVolume"], "it is mounted still");
}

/// The same while it is attached, while a pod is there, and while its node is not heard.
#[test]
fn a_kubelets_word_of_others_is_not_enough_where_it_may_mount_again() {
    let soon = 2 + UNUSED_GRACE.as_secs();
    let others = |node: &mut serde_json::Value| {
        node["status"]["volumesInUse"] = json!(["kubernetes.io/csi/d^other"]);
    };
    let mut stage = held();
    stage.node("a", others);
    assert!(describe(&stage.decide_volume("v", soon)).is_empty(), "its pod is there");
    stage.world.remove(Kind::Pods, "uid-p", at(2));
    stage.attachment("v", "a", true);
    assert!(describe(&stage.decide_volume("v", soon)).is_empty(), "it is attached");
    stage.world.remove(Kind::Attachments, "uid-v.a", at(3));
    assert_eq!(describe(&stage.decide_volume("v", soon)), ["VolumeUnconfirmed"], "detached just now");
    stage.node("a", |node| {
        others(node);
        not_ready(node);
    });
    assert_eq!(describe(&stage.decide_volume("v", soon + 1)), ["refuse", "VolumeUnproved"]);
}

/// Of two pods that leave, one without a word is enough.
#[test]
fn of_two_pods_both_must_be_reported() {
    let mut stage = held();
    stage.pod("q", Some("a"), "c", |_| ());
    stage.world.remove(Kind::Pods, "uid-p", at(2));
    stage.pod("q", Some("a"), "c", ended);
    stage.world.remove(Kind::Pods, "uid-q", at(2));
    assert_eq!(stage.describe_volume(), ["VolumeUnconfirmed"]);
}

#[test]
fn whoever_is_in_doubt_keeps_it_and_admission_refuses_all_others() {
    let doubts: [fn(&mut serde_json::Value); 3] = [
        not_ready,
        |node| node["status"]["conditions"][0]["status"] = json!("False"),
        |node| {
            node["spec"]["taints"] =
                json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }])
        },
    ];
    for doubt in doubts {
        let mut stage = held();
        stage.node("a", doubt);
        assert_eq!(stage.describe_volume(), ["refuse", "VolumeUnproved"]);
        stage.lease("v", Some(A), true);
        assert_eq!(stage.describe_volume(), ["VolumeUnproved"], "written once");
        stage.world.remove(Kind::Pods, "uid-p", at(2));
        stage.pod("q", Some("b"), "c", |pod| pod["status"] = json!({ "phase": "Pending" }));
        let said = stage.describe_volume();
        assert_eq!(said[..2], ["VolumeUnproved", "WaitsForVolume"], "the removal of the pod proves nothing");
        stage.node("a", |_| ());
        stage.pod("p", Some("a"), "c", |_| ());
        assert_eq!(stage.describe_volume(), ["allow"]);
    }
}

/// A planted bug: a name in place of an identity.
#[test]
fn another_node_of_that_name_is_not_the_holder() {
    let mut stage = held();
    stage.world.remove(Kind::Nodes, "uid-a", at(2));
    stage.node("a", |node| {
        node["metadata"]["uid"] = json!("uid-other");
        node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT);
    });
    assert_eq!(stage.describe_volume(), ["refuse", "VolumeUnproved"]);
}

#[test]
fn the_same_machine_registered_anew_goes_on() {
    let mut stage = held();
    stage.world.remove(Kind::Nodes, "uid-a", at(2));
    stage.node("a", |node| node["metadata"]["uid"] = json!("uid-other"));
    assert_eq!(stage.describe_volume(), ["take a/uid-other/b0000000-0000-4000-8000-000000000001/uid-p"]);
}

/// No Node says that it is attached, so a restarted attach/detach controller attached it to a second node beside the first.
#[test]
fn bug_a_volume_of_a_node_registered_anew_was_attached_to_a_second_node() {
    let registered = |attached: bool, elsewhere: bool| {
        let mut stage = held();
        stage.world.remove(Kind::Nodes, "uid-a", at(2));
        stage.node("a", |node| node["metadata"]["uid"] = json!("uid-other"));
        if attached {
            stage.attachment("v", "a", true);
        }
        if elsewhere {
            stage.pod("q", Some("b"), "c", |pod| pod["status"] = json!({ "phase": "Pending" }));
        }
        stage
    };
    let anew = "a/uid-other/b0000000-0000-4000-8000-000000000001/uid-p";
    for (attached, elsewhere, refused) in
        [(true, true, " refused"), (true, false, ""), (false, true, ""), (false, false, "")]
    {
        let stage = registered(attached, elsewhere);
        assert_eq!(
            stage.describe_volume(),
            [format!("take {anew}{refused}")],
            "attached {attached}, wanted {elsewhere}"
        );
    }
    let mut stage = registered(true, true);
    stage.lease("v", Some(anew), true);
    assert_eq!(stage.describe_volume(), ["WaitsForVolume"], "the refusal stays until it is detached");
}

#[test]
fn the_quarantine_of_a_missing_holder_counts_from_the_first_read_where_the_grace_ended_before_it() {
    let mut stage = held();
    stage.world.remove(Kind::Pods, "uid-p", at(2));
    stage.world.remove(Kind::Nodes, "uid-a", at(2));
    stage.lease("v", Some(A), true);
    stage.world.record_absence_read("a", at(60));
    assert_eq!(describe(&stage.decide_volume("v", 60 + QUARANTINE - 1)), ["VolumeUnproved"]);
    assert_eq!(describe(&stage.decide_volume("v", 60 + QUARANTINE)), ["break: node gone"]);
}

#[test]
fn the_next_boot_of_a_holder_is_the_owner_only_on_the_same_node() {
    let mut stage = held();
    stage.node("a", |node| node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT));
    stage.world.remove(Kind::Pods, "uid-p", at(2));
    stage.pod("q", Some("b"), "c", |_| ());
    assert_eq!(stage.describe_volume(), ["break: rebooted"]);
}

/// A pod that is force deleted between two writes would leave its writer without a Lease.
#[test]
fn bug_a_volume_had_no_holder_between_two_boots_of_its_node() {
    let mut stage = held();
    stage.node("a", |node| node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT));
    assert_eq!(
        stage.describe_volume(),
        ["break: rebooted, to a/uid-a/b0000000-0000-4000-8000-000000000002/uid-p"]
    );
    stage.world.remove(Kind::Pods, "uid-p", at(2));
    assert_eq!(stage.describe_volume(), ["break: rebooted"]);
}

#[test]
fn evidence_about_the_life_in_which_it_was_taken_breaks_it() {
    let mut stage = held();
    stage.node("a", not_ready);
    stage.proof("b0000000-0000-4000-8000-000000000000");
    assert_eq!(stage.describe_volume(), ["refuse", "VolumeUnproved"], "about another life");
    let mut stage = held();
    stage.node("a", not_ready);
    stage.proof(BOOT);
    assert_eq!(
        stage.describe_volume(),
        ["refuse", "VolumeUnproved"],
        "A4: the judge may refuse, and until it has not, other nodes are refused"
    );
    stage.lease("v", Some(A), true);
    assert_eq!(stage.describe_volume(), ["break by proof"]);
    stage.lease("v", Some(A), false);
    stage.node("a", |_| ());
    assert!(stage.describe_volume().is_empty(), "it is Ready, whatever is said of it");
}

#[test]
fn a_node_that_is_gone_is_asked_for_twice_a_quarantine_apart() {
    let mut stage = held();
    stage.world.remove(Kind::Pods, "uid-p", at(2));
    stage.world.remove(Kind::Nodes, "uid-a", at(2));
    assert_eq!(
        stage.describe_volume(),
        ["refuse", "witness a", "VolumeUnproved"],
        "though no pod names the node any more"
    );
    stage.world.record_absence_read("a", at(3));
    assert_eq!(describe(&stage.decide_volume("v", 2 + QUARANTINE)), ["refuse", "VolumeUnproved"]);
    stage.lease("v", Some(A), true);
    let ends = 2 + DEFAULT_GRACE.unsigned_abs();
    assert_eq!(
        describe(&stage.decide_volume("v", ends + QUARANTINE - 1)),
        ["VolumeUnproved"],
        "the pod was removed without a word"
    );
    assert_eq!(describe(&stage.decide_volume("v", ends + QUARANTINE)), ["break: node gone"]);
}

#[test]
fn a_lease_that_was_edited_by_hand_is_nobodys_and_is_said() {
    let mut stage = held();
    stage.lease("v", Some("somebody"), false);
    let decision = stage.decide_volume("v", 2);
    assert_eq!(describe(&decision), ["refuse", "VolumeLeaseUnreadable"]);
    let sentence = decision.holds[0].1.to_string();
    assert!(sentence.contains("\"somebody\"") && sentence.contains("delete lease v"), "{sentence}");
}

/// The attach/detach controller attaches as soon as a pod is bound; the guard may have known of another pod first.
#[test]
fn bug_of_two_nodes_that_want_it_the_one_that_writes_is_the_owner() {
    let mut stage = held();
    stage.pod("q", Some("b"), "c", |_| ());
    stage.attachment("v", "b", true);
    assert_eq!(
        stage.describe_volume(),
        ["take b/uid-b/b0000000-0000-4000-8000-000000000001/uid-q"],
        "a has not attached it"
    );
    stage.attachment("v", "a", true);
    assert_eq!(stage.describe_volume(), ["VolumeOnSeveralNodes"]);
    stage.world.remove(Kind::Attachments, "uid-v.b", at(2));
    assert!(stage.describe_volume().is_empty());
}

/// Found by the simulator: under a taint that nobody takes away a Ready node gave back what it had unmounted never.
#[test]
fn bug_what_a_tainted_node_has_unmounted_is_given_back() {
    let tainted = |node: &mut serde_json::Value| {
        node["spec"]["taints"] =
            json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute", "value": "x" }]);
    };
    let mut stage = held();
    stage.lease("v", Some(A), true);
    stage.attachment("v", "a", true);
    stage.node("a", |node| {
        tainted(node);
        in_use(node);
    });
    stage.world.remove(Kind::Pods, "uid-p", at(2));
    assert_eq!(stage.describe_volume(), ["VolumeUnproved"], "it is mounted still");
    stage.node("a", tainted);
    assert_eq!(stage.describe_volume(), ["allow"]);
    stage.lease("v", Some(A), false);
    assert!(stage.describe_volume().is_empty(), "it is attached still");
    stage.world.remove(Kind::Attachments, "uid-v.a", at(2));
    assert_eq!(stage.describe_volume(), ["release"]);
}

/// What a node that was proved off left attached does not make it the owner again.
#[test]
fn bug_the_next_owner_is_not_relieved_of_it_for_what_the_last_one_left() {
    let mut stage = Fixture::new();
    stage.lease("v", Some("b/uid-b/b0000000-0000-4000-8000-000000000001/uid-q"), false);
    stage.pod("q", Some("b"), "c", |_| ());
    stage.attachment("v", "a", true);
    stage.node("a", not_ready);
    stage.proof(BOOT);
    assert!(stage.describe_volume().is_empty());
}

/// Found by the simulator (seed 326): attach/detach takes the attachment of a pod whose containers were never called
/// running; what the kubelet said of their end afterwards was not counted.
#[test]
fn bug_an_attachment_that_goes_before_its_pod_does_not_silence_the_kubelet() {
    let mut stage = held();
    stage.attachment("v", "a", true);
    stage.world.remove(Kind::Attachments, "uid-v.a", at(2));
    assert!(stage.describe_volume().is_empty(), "the pod is there still");
    stage.pod("p", Some("a"), "c", ended);
    stage.world.remove(Kind::Pods, "uid-p", at(2));
    assert_eq!(stage.describe_volume(), ["release"]);
}

/// Found by the simulator (seed 38): broken for a reboot, a volume was taken at once by the next life of that node, which
/// had nothing of it but the attachment that nobody had deleted yet; and nobody could give it back.
#[test]
fn bug_an_attachment_alone_makes_no_owner_of_a_node_that_is_heard() {
    let mut stage = Fixture::new();
    stage.lease("v", None, false);
    stage.attachment("v", "a", true);
    assert!(stage.describe_volume().is_empty());
    stage.node("a", in_use);
    assert_eq!(stage.describe_volume(), ["take a/uid-a/b0000000-0000-4000-8000-000000000001/-"]);
    stage.node("a", not_ready);
    assert_eq!(
        stage.describe_volume(),
        ["take a/uid-a/b0000000-0000-4000-8000-000000000001/- refused"],
        "who is not heard may be about to use it"
    );
}

/// Nobody was there to hear the kubelet's word: under the taint, too, it is waited for as ever.
#[test]
fn bug_a_tainted_node_that_gave_no_word_is_believed_in_time() {
    let mut stage = held();
    stage.node("a", |node| {
        node["spec"]["taints"] =
            json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]);
    });
    stage.lease("v", Some(A), true);
    stage.world.remove(Kind::Pods, "uid-p", at(2));
    assert_eq!(stage.describe_volume(), ["VolumeUnproved", "VolumeUnconfirmed"]);
    assert_eq!(describe(&stage.decide_volume("v", 2 + NO_REPORT_GRACE.as_secs())), ["release"]);
}

/// Found by the simulator (seed 146): a kubelet that waited for the volume counted as a second writer, so its holder, which
/// was well again, was never called so, and nobody could attach it.
#[test]
fn bug_who_waits_for_an_attachment_does_not_write() {
    let mut stage = held();
    stage.lease("v", Some(A), true);
    stage.attachment("v", "a", true);
    stage.pod("q", Some("b"), "c", |pod| pod["status"] = json!({ "phase": "Pending" }));
    stage.node("b", in_use);
    assert_eq!(stage.describe_volume(), ["WaitsForVolume"], "it waits for its turn: there is one writer");
    stage.attachment("v", "b", true);
    assert_eq!(stage.describe_volume(), ["VolumeOnSeveralNodes"]);
}

/// Found by a drawn world: a person deleted the claim by force, its finalizer too, while the kubelet of a deleted Node ended
/// the pod. Nothing led from the volume to the pod any more, and the volume was free while the pod wrote to it.
#[test]
fn bug_the_volume_of_a_deleted_node_was_free_when_somebody_deleted_the_claim_of_its_running_pod() {
    let mut stage = held();
    stage.lease("v", Some(A), true);
    stage.world.remove(Kind::Nodes, "uid-a", at(2));
    stage.world.record_absence_read("a", at(3));
    let over = 3 + QUARANTINE;
    assert_eq!(describe(&stage.decide_volume("v", over)), ["VolumeUnproved"], "its pod is there");
    stage.world.remove(Kind::Claims, "uid-c", at(4));
    assert_eq!(describe(&stage.decide_volume("v", over)), ["VolumeUnproved"]);
    stage.world.remove(Kind::Pods, "uid-p", at(5));
    let free = 5 + DEFAULT_GRACE.unsigned_abs() + QUARANTINE;
    assert_eq!(
        describe(&stage.decide_volume("v", free - 1)),
        ["VolumeUnproved"],
        "its kubelet may just see that"
    );
    assert_eq!(describe(&stage.decide_volume("v", free)), ["break: node gone"]);
}

/// Seed 11910: the refusal had made attach/detach uncertain of the first attachment, so it attached the volume to a second
/// node for a pod that waited there, beside the next pod of the first.
#[test]
fn bug_a_pod_that_waited_elsewhere_got_a_volume_that_is_attached_to_its_holder() {
    let mut stage = held();
    stage.lease("v", Some(A), true);
    stage.attachment("v", "a", true);
    stage.pod("q", Some("b"), "c", |_| ());
    assert_eq!(stage.describe_volume(), ["WaitsForVolume"], "it stays refused while its holder uses it");
    stage.pod("p", Some("a"), "c", ended);
    assert_eq!(
        stage.describe_volume(),
        ["refuse but to detach from a", "WaitsForVolume"],
        "it is used no more: it may be detached"
    );
    stage.world.remove(Kind::Pods, "uid-q", at(4));
    assert_eq!(stage.describe_volume(), ["allow"], "no pod waits elsewhere");
    stage.pod("q", Some("b"), "c", |_| ());
    stage.world.remove(Kind::Attachments, "uid-v.a", at(5));
    assert_eq!(stage.describe_volume(), ["release"]);
}

/// Seed 11910, too: a lost node says that it uses what it only waited for, and got it beside the next pod of its holder.
#[test]
fn bug_a_lost_node_that_waited_for_a_volume_took_it_from_the_node_that_has_it_attached() {
    let mut stage = held();
    stage.lease("v", Some(A), true);
    stage.attachment("v", "a", true);
    stage.pod("p", Some("a"), "c", ended);
    stage.pod("q", Some("b"), "c", |pod| pod["status"] = json!({ "phase": "Pending" }));
    stage.node("b", |node| {
        in_use(node);
        not_ready(node);
    });
    assert_eq!(stage.describe_volume(), ["refuse but to detach from a", "WaitsForVolume"]);
    stage.world.remove(Kind::Attachments, "uid-v.a", at(5));
    assert!(stage.describe_volume()[0].starts_with("take b/"), "{:?}", stage.describe_volume());
}
