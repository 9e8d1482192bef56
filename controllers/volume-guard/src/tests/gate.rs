//! Which pods pass the scheduling gate.

use super::*;

fn gate(fixture: &Fixture, pod: &str) -> Vec<String> {
    describe(&fixture.decide_pod(pod, 2))
}

#[test]
fn a_pod_with_a_free_a_shared_or_no_volume_passes_the_gate() {
    let mut fixture = Fixture::new();
    fixture.gated("q", "c");
    assert_eq!(gate(&fixture, "q"), ["ungate q"]);
    fixture.volume("v", &["ReadWriteMany"]);
    fixture.lease("v", Some(A), true);
    assert_eq!(gate(&fixture, "q"), ["ungate q"]);
    fixture.claim("c", None);
    assert_eq!(gate(&fixture, "q"), ["ungate q"], "a volume provisioned for it has no other user");
}

#[test]
fn a_pod_waits_while_the_holder_may_still_write() {
    let mut fixture = Fixture::new();
    fixture.gated("q", "c");
    fixture.lease("v", Some(A), false);
    fixture.node("a", not_ready);
    let decision = fixture.decide_pod("q", 2);
    assert_eq!(describe(&decision), ["WaitsForVolume"]);
    assert_eq!(
        decision.holds[0].1.to_string(),
        "the pod waits for volume v: node a took it, and there is no evidence that it no longer writes"
    );
}

#[test]
fn a_pod_that_may_share_the_volume_is_pinned_to_its_node() {
    let mut fixture = Fixture::new();
    fixture.gated("q", "c");
    fixture.lease("v", Some(A), false);
    fixture.pod("p", Some("a"), "c", |_| ());
    assert_eq!(gate(&fixture, "q"), ["ungate q to host-a"]);
    fixture.volume("v", &["ReadWriteOncePod"]);
    assert_eq!(gate(&fixture, "q"), ["WaitsForVolume"], "one pod at a time");
}

#[test]
fn of_two_pods_that_want_a_free_volume_the_older_passes_first() {
    let mut fixture = Fixture::new();
    fixture.gated("r", "c");
    fixture.gated("q", "c");
    assert_eq!((gate(&fixture, "q"), gate(&fixture, "r")), (vec!["ungate q".into()], vec!["WaitsForVolume".into()]));
    fixture.pod("q", None, "c", |_| ());
    assert_eq!(gate(&fixture, "r"), ["WaitsForVolume"], "the other passed the gate, and has no node yet");
    fixture.pod("q", Some("a"), "c", |_| ());
    assert_eq!(gate(&fixture, "r"), ["WaitsForVolume"], "its Lease is not written yet");
    fixture.pod("q", Some("a"), "c", terminate);
    assert_eq!(gate(&fixture, "r"), ["ungate r"]);
}

#[test]
fn a_pod_waits_for_a_missing_claim_or_volume() {
    let mut fixture = Fixture::new();
    fixture.gated("q", "nosuch");
    assert_eq!(gate(&fixture, "q"), ["WaitsForVolume"]);
    fixture.claim("nosuch", Some("gone"));
    assert_eq!(gate(&fixture, "q"), ["WaitsForVolume"]);
}

#[test]
fn a_pod_with_volumes_on_two_nodes_is_held() {
    let mut fixture = Fixture::new();
    fixture.pod("q", None, "c", |pod| {
        pod["spec"]["schedulingGates"] = json!([{ "name": "pod-safety.dev/volume-guard" }]);
        pod["spec"]["volumes"] = json!([
            { "name": "x", "persistentVolumeClaim": { "claimName": "c" } }, { "name": "y", "persistentVolumeClaim": { "claimName": "d" } },
        ]);
    });
    for (volume, claim, node) in [("v", "c", "a"), ("w", "d", "b")] {
        fixture.lease(volume, Some(&format!("{node}/uid-{node}/b0000000-0000-4000-8000-000000000001/-")), false);
        fixture.pod(&format!("user-{node}"), Some(node), claim, |_| ());
    }
    let decision = fixture.decide_pod("q", 2);
    assert_eq!(describe(&decision), ["WaitsForVolume"]);
    assert!(decision.holds[0].1.to_string().ends_with("its volumes are on several nodes: host-a, host-b"));
}

#[test]
fn a_terminating_pod_or_one_without_our_gate_is_left_alone() {
    let mut fixture = Fixture::new();
    fixture.pod("q", None, "c", |_| ());
    assert!(gate(&fixture, "q").is_empty());
    fixture.gated("q", "c");
    fixture.pod("q", None, "c", |pod| {
        pod["spec"]["schedulingGates"] = json!([{ "name": "pod-safety.dev/volume-guard" }]);
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    assert!(gate(&fixture, "q").is_empty());
}

/// The rollout that would have corrected a pod waited for that pod.
#[test]
fn an_unschedulable_pod_does_not_hold_back_the_next_pod_of_an_attachable_volume() {
    let conditions = |status: &'static str, reason: &'static str| {
        move |pod: &mut serde_json::Value| {
            pod["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": status, "reason": reason }]);
        }
    };
    for (what, change, expected) in [
        ("for which there is no node", conditions("False", "Unschedulable"), "ungate q"),
        ("that is behind another's gate", conditions("False", "SchedulingGated"), "WaitsForVolume"),
        ("that the scheduler has not seen", conditions("Unknown", ""), "WaitsForVolume"),
    ] {
        let mut fixture = Fixture::new();
        fixture.pod("p", None, "c", change);
        fixture.gated("q", "c");
        assert_eq!(gate(&fixture, "q"), [expected], "a pod {what}");
    }
}

/// The volume is not attachable, so nothing arbitrates between two nodes.
#[test]
fn an_unschedulable_pod_holds_back_the_next_pod_of_a_volume_that_is_not_attached() {
    let mut fixture = Fixture::new();
    let nfs = objects::volume("v", &["ReadWriteOnce"]).modify(|volume| {
        volume["spec"] = json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "nfs": { "server": "s", "path": "/" } });
    });
    fixture.put(Kind::Volumes, nfs, at(1));
    fixture.pod("p", None, "c", |pod| {
        let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" });
        pod["status"]["conditions"] = json!([condition]);
    });
    fixture.gated("q", "c");
    assert_eq!(gate(&fixture, "q"), ["WaitsForVolume"]);
}

/// Found by the simulator: the Lease could not be written for 19 s, the running pod was force deleted, and the next
/// one passed the gate to a volume that a node had attached and mounted.
#[test]
fn bug_a_volume_without_a_lease_was_free_though_a_node_had_it_attached() {
    let mut fixture = Fixture::new();
    fixture.gated("q", "c");
    fixture.attachment("v", "a", true);
    let decision = fixture.decide_pod("q", 2);
    assert_eq!(describe(&decision), ["WaitsForVolume"]);
    let why = "the pod waits for volume v: node a has it, and is about to be its owner";
    assert_eq!(decision.holds[0].1.to_string(), why);
    assert_eq!(fixture.describe_volume(), [format!("take a/uid-a/{BOOT}/-")], "the hold names the node");
    fixture.node("a", not_ready);
    assert_eq!(gate(&fixture, "q"), ["WaitsForVolume"], "lost, too");
    fixture.proof("b0000000-0000-4000-8000-000000000001");
    fixture.lease("v", None, false);
    assert_eq!(gate(&fixture, "q"), ["ungate q"], "a node proved off has nothing");
}

/// The same, and then a person deleted the attachment, too: only the kubelet's report remained.
#[test]
fn bug_a_volume_without_a_lease_was_free_though_a_kubelet_reported_it_mounted() {
    let mut fixture = Fixture::new();
    fixture.gated("q", "c");
    fixture.node("a", in_use);
    let decision = fixture.decide_pod("q", 2);
    assert_eq!(describe(&decision), ["WaitsForVolume"]);
    let why = "the pod waits for volume v: node a reports that it has it mounted";
    assert_eq!(decision.holds[0].1.to_string(), why);
    fixture.node("a", |_| ());
    assert_eq!(gate(&fixture, "q"), ["ungate q"], "its kubelet has unmounted it");
    fixture.node("a", |node| {
        in_use(node);
        not_ready(node);
    });
    assert_eq!(gate(&fixture, "q"), ["WaitsForVolume"]);
    fixture.proof("b0000000-0000-4000-8000-000000000001");
    assert_eq!(gate(&fixture, "q"), ["ungate q"], "it is proved off");
}

/// The node is being drained: nothing is scheduled there, and the node selector cannot be removed from the pod again.
/// Karpenter and the cluster autoscaler taint it, and do not cordon it.
#[test]
fn bug_a_pod_was_pinned_to_a_node_that_is_being_drained() {
    let tainted = |key: &str| json!({ "taints": [{ "key": key, "effect": "NoSchedule" }] });
    for (spec, expected) in [
        (json!({ "unschedulable": true }), "WaitsForVolume"),
        (tainted("karpenter.sh/disrupted"), "WaitsForVolume"),
        (tainted("ToBeDeletedByClusterAutoscaler"), "WaitsForVolume"),
        (tainted("dedicated"), "ungate q to host-a"),
    ] {
        let mut fixture = Fixture::new();
        fixture.lease("v", Some(A), false);
        fixture.node("a", |node| node["spec"] = spec.clone());
        fixture.pod("p", Some("a"), "c", |_| ());
        fixture.gated("q", "c");
        assert_eq!(gate(&fixture, "q"), [expected], "{spec}");
    }
}

/// The hold named the kubelet, which had unmounted the volume; the CSI driver had not detached it.
#[test]
fn bug_a_pod_that_waits_for_a_detachment_was_held_for_the_kubelet() {
    let mut fixture = Fixture::new();
    fixture.gated("q", "c");
    fixture.lease("v", Some(A), false);
    fixture.attachment("v", "a", true);
    let hold = |fixture: &Fixture| fixture.decide_pod("q", 2).holds[0].1.to_string();
    assert!(hold(&fixture).contains("node a has unmounted it, and it is not detached yet"), "{}", hold(&fixture));
    fixture.node("a", in_use);
    assert!(hold(&fixture).ends_with("node a has it until its kubelet has unmounted it"), "{}", hold(&fixture));
}
