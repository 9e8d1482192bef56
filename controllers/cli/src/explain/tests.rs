//! Stuck states and their explanations: golden texts in `golden/`. With `POD_SAFETY_WRITE_GOLDEN=1` they are written
//! again; check the diff.

mod history;
mod requested;
mod volume;

use pod_safety_shared::testing::objects::{self, BOOT};
use std::sync::Arc;

use super::*;
use crate::fixture::{self, Fixture};
use crate::invocation::commands;
use pod_safety_explain::{
    Content, Contents, Judgement, Moment, Policies, explain_namespace, explain_node, explain_pod, explain_set,
};
use pod_safety_shared::client::Target;
use pod_safety_shared::controller_loop::Mode;
use pod_safety_shared::model::{Kind, Uid};
use pod_safety_shared::testing::should_rewrite;
use serde_json::json;

impl Fixture {
    fn pod(&self, name: &str) -> Answer {
        self.with_context(|ctx| {
            let pod = ctx.view.pod(&Uid::new(&format!("uid-{name}")).unwrap()).unwrap();
            explain_pod(pod, ctx)
        })
    }

    fn node(&self, name: &str) -> Answer {
        self.with_context(|ctx| explain_node(&Arc::from(name), ctx).unwrap())
    }
}

/// Compares with `golden/NAME.txt`.
fn reads(name: &str, answer: &Answer) {
    is_golden(name, &page(answer, false, Paint::plain()));
}

fn is_golden(name: &str, text: &str) {
    let path = format!("{}/src/explain/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    if should_rewrite("POD_SAFETY_WRITE_GOLDEN") {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(text, golden, "{path}: run it once with POD_SAFETY_WRITE_GOLDEN=1 and look at the difference");
}

#[test]
fn each_state_of_a_pod_has_its_golden_text() {
    type Row = (&'static str, fn() -> Fixture, &'static str, fn(&Fixture));
    let rows: [Row; 6] = [
        ("lost-pod", Fixture::with_lost_node, "orders-1", |_| ()),
        ("earlier-life", Fixture::with_lost_node, "orders-1", |fixture| {
            fixture.add_evidence("Asserted", "b0000000-0000-4000-8000-000000000000");
        }),
        ("out-of-service-unproved", Fixture::with_lost_node, "orders-1", Fixture::out_of_service),
        ("well", Fixture::healthy, "web-0", |fixture| fixture.pod_with("web-0", "worker-a1", fixture::ready)),
        ("kubelet-does-not-end-it", Fixture::healthy, "db-0", |fixture| {
            fixture.pod_with("db-0", "worker-a1", fixture::terminating);
        }),
        ("foreign-finalizer", Fixture::healthy, "db-0", |fixture| {
            fixture.pod_with("db-0", "worker-a1", |pod| {
                pod["metadata"]["finalizers"] = json!(["backup.example.com/hold"]);
                pod["metadata"]["deletionTimestamp"] = json!("2026-11-21T10:20:25Z");
                pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
                pod["status"] = json!({ "phase": "Succeeded" });
            });
        }),
    ];
    for (name, fixture, pod, change) in rows {
        let fixture = fixture();
        change(&fixture);
        reads(name, &fixture.pod(pod));
    }
    reads("lost-node", &Fixture::with_lost_node().node("worker-b1"));
}

#[test]
fn fencing_of_a_lost_node_is_retried_if_its_device_does_not_answer() {
    let fixture = Fixture::with_lost_node();
    fixture.policy("Asserted");
    fixture.fence("Fencing", &[("2026-11-21T10:22:30Z", Some("timeout: no answer from 10.0.8.21"))]);
    reads("lost-node-device-silent", &fixture.node("worker-b1"));
    reads("lost-pod-device-silent", &fixture.pod("orders-1"));
}

/// `explain node` showed the message of an abandoned drill as that of the incident.
#[test]
fn bug_an_abandoned_drill_was_shown_as_the_incident() {
    let fixture = Fixture::with_lost_node();
    fixture.policy("Asserted");
    fixture.fence("Fencing", &[("2026-11-21T10:22:30Z", Some("timeout: no answer from 10.0.8.21"))]);
    let without = fixture.node("worker-b1");
    fixture.dry_run(true);
    let mut with = fixture.node("worker-b1");
    let marked = |one: &Moment| one.what.starts_with("dry run: ");
    assert_eq!(with.history.iter().filter(|one| marked(one)).count(), 1, "{:?}", with.history);
    with.history.retain(|one| !marked(one));
    assert_eq!(with, without);
}

#[test]
fn a_dry_run_incident_is_reported_as_a_dry_run() {
    let fixture = Fixture::with_lost_node();
    fixture.policy("Asserted");
    fixture.dry_run(false);
    let answer = fixture.node("worker-b1");
    assert_eq!((answer.judgement.verdict, answer.judgement.reason), (Verdict::Blocked, "DryRun"));
    reads("dry-run-node", &answer);
    reads("dry-run-pod", &fixture.pod("orders-1"));
}

#[test]
fn a_node_whose_fencing_failed_needs_an_operator() {
    let fixture = Fixture::with_lost_node();
    fixture.policy("Asserted");
    let tries = ["10:15:10", "10:16:10", "10:17:10"].map(|time| format!("2026-11-21T{time}Z"));
    let tries: Vec<_> = tries.iter().map(|at| (at.as_str(), Some("login failed"))).collect();
    fixture.fence("AwaitingOperator", &tries);
    reads("awaits-operator", &fixture.node("worker-b1"));
}

/// A person has no login, and `devices test` no device to test.
#[test]
fn bug_a_person_was_to_be_tested_like_a_fence_device() {
    let fixture = Fixture::with_lost_node();
    fixture.by_hand();
    let commands = |fixture: &Fixture| -> Vec<String> {
        fixture.node("worker-b1").next.iter().map(|next| format!("{}: {}", next.when, next.command)).collect()
    };
    let before = commands(&fixture);
    assert!(before.iter().any(|step| step.starts_with("Record the incident, and ask a person")), "{before:?}");
    fixture.fence("AwaitingOperator", &[]);
    let after = commands(&fixture);
    assert!(!after.iter().any(|step| step.contains("devices test") || step.contains("delete nodefence")), "{after:?}");
}

/// The API server refuses a second NodeFence about one boot: `fence` was offered, and answered with this page.
#[test]
fn bug_an_incident_that_is_over_was_to_be_fenced_again_beside_its_nodefence() {
    let fixture = Fixture::with_lost_node();
    fixture.policy("Asserted");
    fixture.fence("Superseded", &[]);
    let next = fixture.node("worker-b1").next;
    assert!(next.iter().all(|step| !step.command.contains("pod-safety fence")), "{next:?}");
    assert!(next.iter().any(|step| step.command == "kubectl delete nodefence worker-b1-x"), "{next:?}");
}

fn offers(answer: &Answer) -> Option<usize> {
    answer.next.iter().position(|next| next.command.contains("confirm-down"))
}

/// The only sensible step is to start the machine by hand, and `explain` offered to confirm a second time that it is
/// off.
#[test]
fn bug_a_confirmation_was_offered_for_a_machine_that_is_proved_off() {
    let fixture = Fixture::with_lost_node();
    fixture.policy("Asserted");
    fixture.add_evidence("Asserted", BOOT);
    fixture.not_switched_on();
    let answer = fixture.node("worker-b1");
    assert_eq!((answer.judgement.verdict, offers(&answer)), (Verdict::Blocked, None));
    reads("awaits-operator-proved", &answer);
}

/// The advice was to delete the NodeFence: the next one powered the machine off, and its evidence was invalid again.
#[test]
fn bug_the_deletion_of_a_nodefence_was_advised_after_its_evidence_was_withdrawn() {
    let fixture = Fixture::with_lost_node();
    fixture.policy("Asserted");
    fixture.add_confirmation("2026-11-21T10:21:00Z", Some(("2026-11-21T10:22:00Z", "wrong plug")));
    fixture.not_switched_on();
    let answer = fixture.node("worker-b1");
    let advice = "Find out whether the machine runs. It runs: restart its kubelet. It is off: start it. 1 terminating";
    assert!(answer.judgement.message.contains(advice), "{}", answer.judgement.message);
    assert!(answer.next.iter().any(|next| next.when == "If it is off: start it."), "{:?}", answer.next);
    let shown = format!("{answer:?}");
    assert!(!shown.contains("delete its NodeFence") && !shown.contains("kubectl delete nodefence"), "{shown}");
}

/// While fencing proceeds without an operator, nothing is requested of one.
#[test]
fn for_a_node_that_is_fenced_soon_the_advice_is_to_wait() {
    let fixture = Fixture::with_lost_node();
    fixture.policy_after(550, None);
    let (node, pod) = (fixture.node("worker-b1"), fixture.pod("orders-1"));
    assert_eq!((node.judgement.verdict, pod.judgement.verdict), (Verdict::Waiting, Verdict::Waiting));
    assert!(node.next[0].when.starts_with("Wait") && pod.next[0].when.starts_with("Wait"), "{node:?}");
    assert_eq!((offers(&node), offers(&pod)), (Some(node.next.len() - 1), None));
    reads("fenced-soon-node", &node);
    reads("fenced-soon-pod", &pod);
}

#[test]
fn a_lost_node_lists_its_volumes_the_pods_that_proof_would_release_and_how_to_fence_it() {
    let mut fixture = Fixture::with_lost_node();
    fixture.policy_after(550, None);
    fixture.running.without_fencing = true;
    fixture.pod_with("db-0", "worker-b1", fixture::ready);
    fixture.pod_with("web-1", "worker-b1", |pod| {
        fixture::terminating(pod);
        pod["metadata"]["ownerReferences"][0]["kind"] = json!("ReplicaSet");
    });
    fixture.attached("pvc-1", "worker-a1", None);
    fixture.attached("pvc-2", "worker-b1", None);
    let Answer { notes, next, .. } = fixture.node("worker-b1");
    let released = "If it is proved off now: 2 pods are released, 1 with a stable identity.";
    assert!(notes.ends_with(&["Volumes that it holds: pvc-2.".to_owned(), released.to_owned()]), "{notes:?}");
    assert!(next.iter().any(|next| next.command == "pod-safety fence worker-b1 --reason TEXT"), "{next:?}");
}

#[test]
fn a_ready_node_with_the_taint_suspect_is_suspect() {
    let fixture = Fixture::healthy();
    let taints = json!([{ "key": "pod-safety.dev/suspect", "effect": "NoSchedule" }]);
    fixture.put(Kind::Nodes, objects::node("worker-a1").ready("True").set("/spec/taints", taints));
    assert_eq!(fixture.node("worker-a1").judgement.reason, "Suspect");
}

/// A node whose cable was pulled was called Ready by its kubelet until it counted as lost.
#[test]
fn bug_a_kubelet_that_missed_renewals_was_shown_as_reporting() {
    for (renewed, ready, verdict, reason, message, marked) in [
        ("10:22:45", "True", Verdict::Free, "Ready", "Its kubelet reports that the node is Ready.", "✔  Lease"),
        (
            "10:22:44",
            "True",
            Verdict::Waiting,
            "NotReporting",
            "It was Ready at its last report, 21s ago. It counts as lost after 50s.",
            "!  Lease",
        ),
        (
            "10:22:44",
            "False",
            Verdict::Waiting,
            "NotReady",
            "It was not ready at its last report, 21s ago. No pod waits for it.",
            "!  Lease",
        ),
    ] {
        let fixture = Fixture::healthy();
        fixture.put(Kind::Nodes, objects::node("worker-c1").ready(ready));
        let renewed = json!(format!("2026-11-21T{renewed}.000000Z"));
        fixture.put(Kind::NodeLeases, objects::lease("worker-c1", 0).set("/spec/renewTime", renewed));
        let answer = fixture.node("worker-c1");
        let Judgement { verdict: found, reason: why, message: text } = &answer.judgement;
        assert_eq!((*found, *why, text.as_str()), (verdict, reason, message));
        let page = page(&answer, false, Paint::plain());
        assert!(page.contains(marked), "{page}");
        fixture.pod_with("db-0", "worker-c1", fixture::terminating);
        let of_pod = fixture.pod("db-0").judgement.message;
        assert_eq!(
            of_pod.contains("The kubelet of worker-c1 last reported 21s ago"),
            marked.starts_with('!'),
            "{of_pod}"
        );
    }
}

#[test]
fn a_defect_of_the_fencing_setup_is_the_first_next_step() {
    let fixture = Fixture::with_lost_node();
    fixture.policy_after(60, Some("Secret pod-safety/bmc does not exist"));
    for node in ["worker-b1", "worker-a1"] {
        let first = fixture.node(node).next[0].clone();
        let expected = "Fencing cannot switch this node off: device fence/ipmi-b1: Secret pod-safety/bmc does not exist. Correct that, then test it";
        assert_eq!(first.when, expected);
        assert_eq!(first.command, format!("pod-safety devices test --target {node}"));
    }
}

/// Where pod-safety itself may be cut off, a confirmation was the second step on offer.
#[test]
fn bug_a_confirmation_was_offered_first_where_most_nodes_seem_lost() {
    let fixture = Fixture::with_lost_node();
    fixture.policy("Asserted");
    fixture.outage();
    for answer in [fixture.node("worker-b1"), fixture.pod("orders-1")] {
        assert!(answer.next[0].when.contains("Find out first who is cut off"), "{answer:?}");
        assert_eq!(offers(&answer), Some(answer.next.len() - 1), "{answer:?}");
    }
}

/// The last status check is older than what the incident read.
#[test]
fn bug_a_machine_that_the_incident_verified_off_was_shown_as_on() {
    let fixture = Fixture::with_lost_node();
    fixture.policy("Asserted");
    fixture.fence("Fenced", &[("2026-11-21T10:22:50Z", None)]);
    let signals = fixture.node("worker-b1").signals;
    assert!(signals.iter().any(|one| one.detail == "power Off 15s ago"), "{signals:?}");
}

/// `explain` reported about the pod that runs that its node is unreachable, and who may confirm it.
#[test]
fn bug_events_of_the_earlier_pod_were_attributed_to_the_running_pod() {
    for (name, is_ready) in [("starts-again", false), ("runs-again", true)] {
        let mut fixture = Fixture::with_lost_node();
        fixture.set_recovered(is_ready);
        let answer = fixture.pod("orders-1");
        assert!(!answer.judgement.message.contains("unreachable"), "{answer:?}");
        reads(name, &answer);
    }
}

#[test]
fn a_node_that_is_proved_off_releases_its_pods() {
    let fixture = Fixture::with_lost_node();
    fixture.policy("Verified");
    fixture.fence("Fenced", &[("2026-11-21T10:22:30Z", None)]);
    fixture.add_evidence("PowerOff", BOOT);
    let answer = fixture.pod("orders-1");
    assert_eq!((answer.judgement.verdict, answer.judgement.reason), (Verdict::Released, "Proved"));
    reads("fenced-pod", &answer);
    reads("fenced-node", &fixture.node("worker-b1"));
}

/// The policy force-delete requires a reason in an annotation only where the pod's replacement takes over its identity.
#[test]
fn bug_an_annotation_was_advised_for_pods_that_need_none() {
    let fixture = Fixture::with_lost_node();
    for (name, api, kind) in [("pg-1", "postgresql.cnpg.io/v1", "Cluster"), ("web-1", "apps/v1", "ReplicaSet")] {
        fixture.pod_with(name, "worker-b1", |pod| {
            fixture::terminating(pod);
            let owner = &mut pod["metadata"]["ownerReferences"][0];
            (owner["apiVersion"], owner["kind"]) = (json!(api), json!(kind));
        });
    }
    let is_advised =
        |pod: &str| fixture.pod(pod).actors.iter().any(|actor| format!("{actor:?}").contains("break-glass"));
    assert!(is_advised("orders-1") && is_advised("pg-1") && !is_advised("web-1"));
}

#[test]
fn a_confirmation_does_not_suffice_if_the_policy_requires_verified_evidence() {
    let fixture = Fixture::with_lost_node();
    fixture.policy("Verified");
    fixture.add_evidence("Asserted", BOOT);
    let answer = fixture.pod("orders-1");
    assert_eq!(answer.judgement.reason, "NoEvidence", "as pod_gc decides");
    reads("word-not-enough", &answer);
}

#[test]
fn evidence_has_no_effect_in_mode_observe_or_without_a_leader() {
    let mut fixture = Fixture::with_lost_node();
    fixture.add_evidence("Asserted", BOOT);
    fixture.running.mode = Some(Mode::Observe);
    reads("observed-only", &fixture.pod("orders-1"));
    fixture.running = pod_safety_explain::Running::default();
    assert_eq!(fixture.pod("orders-1").judgement.reason, "NoLeader");
}

#[test]
fn evidence_and_its_withdrawal_are_in_the_history() {
    let fixture = Fixture::with_lost_node();
    fixture.add_confirmation("2026-11-21T10:21:00Z", Some(("2026-11-21T10:22:00Z", "wrong plug")));
    let history = fixture.node("worker-b1").history;
    let moments: Vec<String> = history.iter().map(|one| format!("{:.0} {} {}", one.at, one.what, one.detail)).collect();
    let expected = [
        "2026-11-21T10:21:00Z evidence that worker-b1 is off anna@example.com: PDU port 14 off, ticket 8123",
        "2026-11-21T10:22:00Z evidence that worker-b1 is off was invalidated wrong plug",
    ];
    assert_eq!(moments.get(moments.len() - 2..).unwrap(), expected);
}

#[test]
fn a_pause_is_shown_with_its_author_reason_and_end() {
    let mut fixture = Fixture::with_lost_node();
    fixture.paused();
    reads("paused-node", &fixture.node("worker-b2"));
    let by_policy = fixture.node("worker-b1");
    assert!(by_policy.notes.iter().any(|note| note.contains("rack b moves, by anna 20m00s ago")), "{by_policy:?}");
}

#[test]
fn pods_of_a_missing_node_wait_until_its_kubelet_does_not_report() {
    let fixture = Fixture::with_lost_node();
    fixture.node_gone();
    reads("node-gone", &fixture.pod("orders-1"));
    fixture.kubelet_reports();
    reads("node-gone-kubelet-lives", &fixture.node("worker-b1"));
}

#[test]
fn a_pod_is_overdue_a_minute_after_its_grace_period_or_at_once_if_its_node_is_not_ready() {
    for (deadline, ready, reason, part) in [
        ("10:23:06", "True", "Ending", "has 1s left"),
        ("10:22:06", "True", "Ending", "is terminating it"),
        ("10:22:06", "False", "NodeNotReady", "59s ago"),
        ("10:22:05", "True", "TerminationOverdue", "1m00s ago"),
    ] {
        let fixture = Fixture::healthy();
        fixture.put(Kind::Nodes, objects::node("worker-a1").ready(ready));
        fixture.pod_with("db-0", "worker-a1", |pod| {
            fixture::terminating(pod);
            pod["metadata"]["deletionTimestamp"] = json!(format!("2026-11-21T{deadline}Z"));
        });
        let judgement = fixture.pod("db-0").judgement;
        assert!(judgement.reason == reason && judgement.message.contains(part), "{deadline} {ready}: {judgement:?}");
    }
}

#[test]
fn the_last_event_is_the_reason_why_a_pod_does_not_start() {
    let mut fixture = Fixture::healthy();
    for (pod, node) in [("web-0", ""), ("web-1", "worker-a1")] {
        fixture.pod_with(pod, node, |pod| pod["status"] = json!({ "phase": "Pending" }));
        for message in ["the first", "the last"] {
            fixture.add_event(&format!("pod/shop/{pod}"), "FailedScheduling", message);
        }
        let message = fixture.pod(pod).judgement.message;
        assert!(message.ends_with(": the last"), "{message}");
    }
}

#[test]
fn a_volume_held_by_another_node_is_reported_with_that_node() {
    let mut fixture = Fixture::with_lost_node();
    fixture.pod_with("cache-0", "worker-a1", |pod| pod["status"] = json!({ "phase": "Pending" }));
    fixture.add_event(
        "pod/shop/cache-0",
        "FailedAttachVolume",
        "Multi-Attach error for volume \"pvc-1\" Volume is already exclusively attached to one node and can't be attached to another",
    );
    fixture.attached("pvc-1", "worker-b1", None);
    reads("multi-attach", &fixture.pod("cache-0"));
}

#[test]
fn bug_a_pod_waited_for_another_volume_or_for_its_own_node_to_release_it() {
    for (volume, node) in [("pvc", "worker-b1"), ("pvc-10", "worker-b1"), ("pvc-1", "worker-a1")] {
        let mut fixture = Fixture::with_lost_node();
        fixture.pod_with("cache-0", "worker-a1", |pod| pod["status"] = json!({ "phase": "Pending" }));
        let failed = "AttachVolume.Attach failed for volume \"pvc-1\" : rpc error: no space";
        fixture.add_event("pod/shop/cache-0", "FailedAttachVolume", failed);
        fixture.attached(volume, node, None);
        assert_eq!(fixture.pod("cache-0").judgement.reason, "VolumeNotAttached", "{volume} {node}");
    }
}

#[test]
fn a_pod_that_tolerates_the_taint_shows_for_how_long() {
    let fixture = Fixture::with_lost_node();
    fixture.pod_with("web-1", "worker-b1", |pod| {
        pod["spec"]["tolerations"] = json!([{ "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 600 }]);
    });
    let answer = fixture.pod("web-1");
    assert_eq!(answer.judgement.verdict, Verdict::Waiting);
    reads("tolerated", &answer);
}

#[test]
fn a_statefulset_is_explained_by_identity() {
    let fixture = Fixture::with_lost_node();
    fixture.pod_with("orders-0", "worker-a1", fixture::ready);
    let answer = fixture.with_context(|ctx| explain_set(&fixture::set("orders", 3), ctx));
    reads("statefulset", &answer);
    let mut another = fixture::set("orders", 3);
    another["metadata"]["uid"] = json!("uid-another");
    assert_eq!(fixture.with_context(|ctx| explain_set(&another, ctx)).facts[0], "0 of 3 Ready");
}

#[test]
fn a_parallel_statefulset_is_not_explained_in_order_and_begins_with_its_first_ordinal() {
    let fixture = Fixture::with_lost_node();
    fixture.pod_with("orders-2", "worker-a1", |pod| {
        fixture::terminating(pod);
        fixture::ready(pod);
    });
    let mut set = fixture::set("orders", 3);
    (set["spec"]["ordinals"], set["spec"]["podManagementPolicy"]) = (json!({ "start": 1 }), json!("Parallel"));
    let answer = fixture.with_context(|ctx| explain_set(&set, ctx));
    let reasons: Vec<_> = answer.items.iter().map(|item| item.judgement.reason).collect();
    assert_eq!(reasons, ["NoEvidence", "TerminationOverdue", "Missing"]);
    assert_eq!(answer.facts, ["0 of 3 Ready", "Parallel: all at once"]);
}

#[test]
fn a_failing_webhook_is_reported() {
    let mut fixture = Fixture::healthy();
    fixture.add_event(
        "statefulset/shop/orders",
        "FailedCreate",
        "create Pod orders-0 in StatefulSet orders failed error: Internal error occurred: failed calling webhook \"inject.example.com\": connection refused",
    );
    let answer = fixture.with_context(|ctx| explain_set(&fixture::set("orders", 2), ctx));
    assert_eq!(answer.judgement.reason, "PodsRefused");
    reads("webhook-down", &answer);
}

#[test]
fn a_terminal_phase_with_a_running_container_is_not_trusted() {
    let mut fixture = Fixture::healthy();
    fixture.pod_with("job-0", "worker-a1", |pod| {
        pod["status"]["phase"] = json!("Failed");
        pod["status"]["containerStatuses"] = json!([{ "state": { "running": {} } }]);
    });
    fixture.settings.pod_gc.terminated_threshold = Some(1);
    fixture.pod_with("job-1", "worker-a1", |pod| pod["status"] = json!({ "phase": "Succeeded" }));
    reads("terminal-but-running", &fixture.pod("job-0"));
}

#[test]
fn without_the_right_to_read_nodes_the_leaders_event_is_shown() {
    let mut fixture = Fixture::without_nodes(&[Kind::Nodes, Kind::NodeLeases]);
    fixture.pod_with("orders-1", "worker-b1", fixture::terminating);
    fixture.add_event("pod/shop/orders-1", "ForceDeleteHeld", "node worker-b1 is not heard");
    fixture.policies = Policies::Unread;
    let mut answer = fixture.pod("orders-1");
    assert_eq!(answer.judgement.reason, "ForceDeleteHeld");
    answer.missing = vec!["You may not list nodes: it is not known whether nodes are Ready.".to_owned()];
    reads("without-rights", &answer);
    let mut fixture = Fixture::without_nodes(&[Kind::Nodes, Kind::NodeLeases]);
    fixture.set_recovered(true);
    fixture.pod_with("orders-1", "worker-a1", fixture::terminating);
    assert_eq!(fixture.pod("orders-1").judgement.reason, "NotRead", "that Event is about the earlier pod");
}

#[test]
fn a_namespace_lists_what_blocks_its_deletion() {
    let fixture = Fixture::with_lost_node();
    let namespace = json!({ "metadata": { "name": "shop", "deletionTimestamp": "2026-11-19T06:00:00Z" }, "status": { "conditions": [
        { "type": "NamespaceContentRemaining", "status": "True", "message": "Some resources are remaining: pods. has 1 resource instances" }] } });
    let content = |resource: &str, name: &str, finalizers: &[&str]| Content {
        resource: resource.to_owned(),
        name: name.to_owned(),
        finalizers: finalizers.iter().map(|one| (*one).to_owned()).collect(),
        deleting: true,
    };
    let contents = Contents {
        kinds: 61,
        objects: vec![
            content("configmaps", "settings", &[]),
            content("kafkas.kafka.strimzi.io", "events", &["strimzi.io/cleanup"]),
            content("pods", "orders-1", &[]),
        ],
        services: vec![("v1beta1.metrics.example.io".to_owned(), "no endpoints".to_owned())],
        unlisted: Vec::new(),
    };
    let answer = fixture.with_context(|ctx| explain_namespace(&namespace, &contents, false, ctx));
    reads("namespace", &answer);
    let steps = fixture.with_context(|ctx| explain_namespace(&namespace, &contents, true, ctx));
    assert!(steps.next.iter().any(|next| !next.safe && next.command.contains("finalizers")), "{steps:?}");
    assert!(answer.next.iter().all(|next| next.safe));
    reads("resolve-namespace", &steps);
}

/// A command is never wrapped, and colour is not needed to read the page.
#[test]
fn on_forty_columns_only_commands_exceed_the_width() {
    let fixture = Fixture::with_lost_node();
    let text = page(&fixture.pod("orders-1"), false, Paint::plain().with_columns(40, commands()));
    for line in text.lines() {
        let text = line.trim_start().trim_start_matches('(');
        let commands = text.starts_with("pod-safety ") || text.starts_with("kubectl ");
        let words = line.split_whitespace().count();
        assert!(line.chars().count() <= 40 || commands || words <= 2, "{line}");
    }
    assert!(text.contains("    pod-safety confirm-down worker-b1 --reason TEXT\n"), "{text}");
    is_golden("forty-columns", &text);
}

#[test]
fn the_document_has_the_same_content_with_stable_names() {
    let fixture = Fixture::with_lost_node();
    let document = serde_json::to_value(Document::new(&fixture.pod("orders-1"), &Target::default())).unwrap();
    assert_eq!(document["kind"], "PodExplanation");
    assert_eq!((&document["verdict"], &document["reason"]), (&json!("Blocked"), &json!("NoEvidence")));
    assert_eq!(document["evidence"][0]["type"], "KubeletReported");
    assert_eq!(document["next"][3]["command"], "pod-safety confirm-down worker-b1 --reason TEXT");
}

/// The documentation shows the actual output.
#[test]
fn the_documentation_shows_the_golden_texts() {
    let root = env!("CARGO_MANIFEST_DIR");
    let documentation = std::fs::read_to_string(format!("{root}/../../docs/commands.md")).unwrap();
    for name in ["lost-pod", "starts-again", "lost-node-device-silent", "namespace", "volume-multi-attach"] {
        let golden = std::fs::read_to_string(format!("{root}/src/explain/golden/{name}.txt")).unwrap();
        assert!(documentation.contains(&golden), "docs/commands.md does not show golden/{name}.txt");
    }
}
