//! Volumes detached from an unreachable node, where the storage accepts writes only from nodes to which it is
//! attached.

use super::*;

/// `v` is attached to `a`, which is unreachable; `d` is a driver with exclusive storage.
fn lost() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.config.backends = classes(&["d"]);
    fixture.lease("v", Some(A), false);
    fixture.pod("p", Some("a"), "c", |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z"));
    fixture.attachment("v", "a", true);
    fixture.node("a", |node| {
        not_ready(node);
        in_use(node);
    });
    fixture
}

fn waits(fixture: &mut Fixture) {
    fixture.pod("q", Some("b"), "c", |pod| pod["status"] = json!({ "phase": "Pending" }));
}

/// The node was lost, and the volume was detached by some client.
fn detached() -> Fixture {
    let mut fixture = lost();
    fixture.lease_to_detach("v", Some(A), "a");
    fixture.world.remove(Kind::Attachments, "uid-v.a", at(2));
    fixture
}

#[test]
fn a_volume_is_held_until_it_is_detached_and_may_be_detached() {
    let mut fixture = lost();
    assert_eq!(fixture.describe_volume(), ["refuse but to detach from a", "VolumeUnproved"]);
    fixture.lease_to_detach("v", Some(A), "a");
    let decision = fixture.decide_volume("v", 2);
    assert_eq!(describe(&decision), ["VolumeUnproved"], "written once");
    let sentence = decision.holds[0].1.to_string();
    assert!(sentence.contains("it may be detached, and then it is free"), "{sentence}");
    fixture.attachment("v", "a", false);
    assert_eq!(fixture.describe_volume(), ["VolumeUnproved"], "it is being detached");
    fixture.world.remove(Kind::Attachments, "uid-v.a", at(2));
    assert_eq!(fixture.describe_volume()[0], "break: detached refused but to detach from a");
    fixture.world.remove(Kind::Pods, "uid-p", at(2));
    assert_eq!(fixture.describe_volume()[0], "break: detached", "no pod would have it attached there again");
}

/// Planted bug: a volume without attachment counts as detached.
#[test]
fn a_volume_that_was_never_attached_never_counts_as_detached() {
    let mut fixture = lost();
    fixture.world.remove(Kind::Attachments, "uid-v.a", at(2));
    assert_eq!(fixture.describe_volume(), ["refuse", "VolumeUnproved"]);
    fixture.lease("v", Some(A), true);
    assert_eq!(fixture.describe_volume(), ["VolumeUnproved"]);
    fixture.attachment("v", "a", false);
    assert_eq!(fixture.describe_volume(), ["refuse but to detach from a", "VolumeUnproved"], "attached after all");
}

/// Planted bugs: a volume of any driver, a denial of any node, an attachment of any incarnation counts.
#[test]
fn only_a_recorded_detachment_of_this_holder_counts() {
    let mut fixture = detached();
    fixture.config.backends = classes(&["another"]);
    assert_eq!(fixture.describe_volume(), ["refuse", "VolumeUnproved"], "the label goes");
    let mut fixture = detached();
    fixture.lease_to_detach("v", Some(A), "b");
    assert_eq!(fixture.describe_volume(), ["refuse", "VolumeUnproved"], "the denial is about b");
    let mut fixture = detached();
    fixture.lease_to_detach("v", Some("a/uid-other/b0000000-0000-4000-8000-000000000001/uid-p"), "a");
    assert_eq!(fixture.describe_volume()[0], format!("take {A} refused"), "the same machine under another UID");
}

#[test]
fn pods_of_the_former_holder_do_not_get_the_volume_back_and_the_next_holder_does() {
    let mut fixture = detached();
    fixture.lease_to_detach("v", None, "a");
    assert_eq!(fixture.describe_volume(), ["VolumeDetached"], "its last report has it mounted: that is no use");
    waits(&mut fixture);
    assert_eq!(fixture.describe_volume(), [format!("take {B} refused but to detach from a")]);
    fixture.lease_to_detach("v", Some(B), "a");
    assert_eq!(fixture.describe_volume(), ["VolumeDetached"], "attach/detach would give it to the pod on a, too");
    fixture.attachment("v", "b", true);
    assert_eq!(fixture.describe_volume(), ["VolumeDetached"]);
    // The node reports again: the volume that it reports as mounted has no disk behind it.
    fixture.node("a", in_use);
    assert_eq!(fixture.describe_volume(), ["VolumeDetached"]);
    fixture.pod("p", Some("a"), "c", terminate);
    fixture.world.remove(Kind::Pods, "uid-p", at(2));
    assert_eq!(fixture.describe_volume(), ["allow"]);
}

#[test]
fn after_the_detachment_reports_attachments_and_pods_decide_whose_it_is() {
    let mut reports = detached();
    reports.node("a", in_use);
    assert_eq!(reports.describe_volume(), ["allow"], "the holder reports again before the Lease is revoked");
    let mut next = detached();
    next.lease_to_detach("v", Some(B), "a");
    next.pod("q", Some("b"), "c", |_| ());
    next.pod("q", Some("b"), "c", terminate);
    next.world.remove(Kind::Pods, "uid-q", at(2));
    assert_eq!(next.describe_volume(), ["release refused but to detach from a"], "the first one is still barred");
    let mut again = detached();
    again.lease_to_detach("v", None, "a");
    again.attachment("v", "a", true);
    assert_eq!(
        again.describe_volume(),
        [format!("take {A} refused but to detach from a")],
        "attached there by another"
    );
    let mut unused = detached();
    unused.lease_to_detach("v", None, "a");
    unused.world.remove(Kind::Pods, "uid-p", at(2));
    assert_eq!(unused.describe_volume(), ["allow"], "no pod of the node uses it");
}

#[test]
fn a_pod_behind_the_gate_does_not_wait_for_one_that_lost_its_volume() {
    let mut fixture = detached();
    fixture.gated("q", "c");
    assert_eq!(describe(&fixture.decide_pod("q", 2)), ["WaitsForVolume"], "not broken yet");
    fixture.lease_to_detach("v", None, "a");
    assert_eq!(describe(&fixture.decide_pod("q", 2)), ["ungate q"]);
    fixture.lease("v", None, false);
    assert_eq!(describe(&fixture.decide_pod("q", 2)), ["WaitsForVolume"], "the pod on a may get it");
}

#[test]
fn a_tainted_or_deleted_node_is_relieved_in_the_same_way() {
    let mut fixture = detached();
    fixture.node("a", |node| {
        node["spec"]["taints"] = json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]);
        in_use(node);
    });
    assert_eq!(fixture.describe_volume()[0], "break: detached refused but to detach from a");
    fixture.world.remove(Kind::Nodes, "uid-a", at(2));
    assert_eq!(fixture.describe_volume()[0], "break: detached");
}

#[test]
fn a_volume_detached_from_one_node_is_not_lost_to_another() {
    let mut fixture = Fixture::new();
    fixture.config.backends = classes(&["d"]);
    fixture.lease_to_detach("v", None, "a");
    fixture.node("b", not_ready);
    fixture.pod("q", Some("b"), "c", |_| ());
    assert_eq!(fixture.describe_volume(), [format!("take {B} refused")]);
}
