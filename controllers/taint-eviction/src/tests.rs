//! Sentences about decisions: which pods are evicted when, and which stay.

mod edges;
mod events;
mod properties;

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{DeleteOutcome, GracefulDeleteRequest, Intent, RequestError};
use pod_safety_shared::cache::Change;
use pod_safety_shared::controller_loop::{Controller, HoldReason as _, Mode, Subject};
use pod_safety_shared::model::{Kind, Phase, Pod, Uid};
use pod_safety_shared::testing::objects::{self, Obj, START_SECONDS, timestamp};
use pod_safety_shared::testing::{World, at, metrics_text};
use serde_json::{Value, json};

use super::*;

/// A taint `KEY:NoExecute`, added in this second, if there is one.
fn taint(key: &str, added: Option<i64>) -> Value {
    json!({ "key": key, "effect": "NoExecute", "timeAdded": added.map(timestamp) })
}

fn node(taints: &[Value]) -> Obj {
    objects::node("n").ready("True").set("/spec/taints", json!(taints))
}

/// A toleration of this key with this `tolerationSeconds`.
fn toleration(key: &str, seconds: Option<i64>) -> Value {
    json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds })
}

/// A running pod `ns/NAME` with the UID `uid-NAME` on the node `n`, older than all taints.
fn pod(name: &str, tolerations: &[Value]) -> Obj {
    let pod = objects::pod(name).on("n").set("/spec/tolerations", json!(tolerations));
    pod.set("/metadata/generation", json!(4)).set("/metadata/creationTimestamp", json!(timestamp(-10_000)))
}

/// A world whose wall clock is right, with this node and these pods from second 0 on.
fn world(taints: &[Value], pods: &[Obj]) -> World {
    let world = World::listed();
    world.set_wall_time(START_SECONDS, at(0));
    pods.iter().for_each(|pod| world.apply(Kind::Pods, pod, at(0)));
    world.apply(Kind::Nodes, &node(taints), at(0));
    world
}

fn decide_at(world: &World, seconds: u64) -> Decision {
    world.confirm_all(at(seconds));
    decide(&Key("n".into()), &world.read().view(), at(seconds))
}

/// A decision as text: `-a` deletes a, `a 30` holds it for 30 seconds.
fn describe(decision: &Decision) -> Vec<String> {
    let wants = decision.intents.iter().map(|intent| match intent {
        Intent::Delete(GracefulDeleteRequest { pod, .. }) => format!("-{}", pod.name),
        other => format!("{other:?}"),
    });
    let holds = decision.holds.iter().map(|(subject, hold)| {
        let name = match subject {
            Subject::Pod(pod) => pod.name.to_string(),
            other => format!("{other:?}"),
        };
        match hold {
            Hold::Tolerated { left, .. } => {
                format!("{name} {}", left.as_secs())
            }
            other => format!("{name} {}", other.reason()),
        }
    });
    wants.chain(holds).collect()
}

/// A sentence, the node's taints, the pod's tolerations, the second, and the expected decision.
type Case = (&'static str, Vec<Value>, Vec<Value>, u64, &'static [&'static str]);

/// On real nodes: the leader's clock was an hour behind, and pods bound in that hour tolerated a taint of that leader
/// for up to an hour more.
#[test]
fn a_taint_stamped_by_a_slow_clock_is_tolerated_no_longer_than_from_when_it_was_seen() {
    let bound = pod("a", &[toleration("k", Some(300))]).set("/metadata/creationTimestamp", json!(timestamp(-60)));
    let world = World::listed();
    world.set_wall_time(START_SECONDS - 3_600, at(0));
    world.apply(Kind::Pods, &bound, at(0));
    world.apply(Kind::Nodes, &node(&[]), at(0));
    world.apply(Kind::Nodes, &node(&[taint("k", Some(-3_590))]), at(10));
    assert_eq!(describe(&decide_at(&world, 309)), ["a 1"]);
    assert_eq!(describe(&decide_at(&world, 310)), ["-a"]);
}

#[test]
fn a_pod_stays_as_long_as_it_tolerates_every_taint() {
    let (k, l) = (|added| taint("k", Some(added)), |added| taint("l", Some(added)));
    let both = || vec![toleration("k", Some(300)), toleration("l", Some(60))];
    let cases: [Case; 15] = [
        ("no taint", vec![], vec![], 0, &[]),
        ("another effect", vec![json!({ "key": "k", "effect": "NoSchedule" })], vec![], 0, &[]),
        ("no toleration", vec![k(0)], vec![], 0, &["-a"]),
        ("indefinitely", vec![k(0)], vec![toleration("k", None)], 9_999, &[]),
        ("for a time", vec![k(0)], vec![toleration("k", Some(300))], 100, &["a 200"]),
        ("just not any more", vec![k(0)], vec![toleration("k", Some(300))], 300, &["-a"]),
        ("not even for a moment", vec![k(0)], vec![toleration("k", Some(0))], 0, &["-a"]),
        ("of another key", vec![k(0)], vec![toleration("l", None)], 0, &["-a"]),
        ("added long ago", vec![k(-250)], vec![toleration("k", Some(300))], 0, &["a 50"]),
        ("added too long ago", vec![k(-301)], vec![toleration("k", Some(300))], 0, &["-a"]),
        ("added in the future", vec![k(500)], vec![toleration("k", Some(300))], 100, &["a 200"]),
        ("without timeAdded", vec![taint("k", None)], vec![toleration("k", Some(300))], 100, &["a 200"]),
        ("of several the shortest counts", vec![k(0), l(0)], both(), 0, &["a 60"]),
        ("each from its own time", vec![k(-280), l(0)], both(), 0, &["a 20"]),
        ("one of them not at all", vec![k(0), l(0)], vec![toleration("k", None)], 0, &["-a"]),
    ];
    for (sentence, taints, tolerations, seconds, wants) in cases {
        let world = world(&taints, &[pod("a", &tolerations)]);
        assert_eq!(describe(&decide_at(&world, seconds)), wants, "{sentence}");
    }
}

#[test]
fn all_pods_are_evicted_as_documented_except_terminating_and_terminated_ones() {
    let a = || pod("a", &[]);
    let cases: [(&str, Obj, &[&str]); 9] = [
        ("it runs", a(), &["-a"]),
        ("it has not begun", a().phase("Pending"), &["-a"]),
        ("its kubelet cannot be asked", a().phase("Unknown"), &["-a"]),
        ("of a DaemonSet, without its tolerations", a().owned_by("apps/v1", "DaemonSet", "d"), &["-a"]),
        ("a mirror pod without its toleration", a().mirror(), &["-a"]),
        ("W-TE7: it ended well", a().phase("Succeeded"), &[]),
        ("W-TE7: it ended badly", a().phase("Failed"), &[]),
        ("it ends already", a().terminating(), &[]),
        ("it is on no node", a().set("/spec", json!({})), &[]),
    ];
    for (sentence, pod, wants) in cases {
        let world = world(&[taint("k", Some(0))], &[pod]);
        assert_eq!(describe(&decide_at(&world, 0)), wants, "{sentence}");
    }
}

#[test]
fn a_held_pod_names_its_taint_and_remaining_time() {
    let world = world(&[taint("k", Some(-100))], &[pod("a", &[toleration("k", Some(300))])]);
    let held = decide_at(&world, 0);
    let message = held.holds[0].1.to_string();
    assert_eq!(message, "the pod tolerates the taint k:NoExecute of node n for another 200s; then it is deleted");
    assert_eq!(held.requeue_at, Some(at(10)), "the numbers stay true");
    assert_eq!(decide_at(&world, 195).requeue_at, Some(at(200)));
    let due = decide_at(&world, 230);
    let [Intent::Delete(delete)] = due.intents.as_slice() else { panic!("{due:?}") };
    assert_eq!((delete.due, delete.rv.to_string().as_str(), delete.generation), (at(200), "10", 4));
    assert!(delete.cause.to_string().contains("k:NoExecute"), "{}", delete.cause);
    assert_eq!(due.requeue_at, None, "the executor retries");
}

/// Pods are deleted in the order in which their toleration periods end.
#[test]
fn pods_are_deleted_in_the_order_of_their_periods() {
    let pods = [("a", 30), ("b", 10), ("c", 20), ("d", 10)];
    let pods = pods.map(|(name, seconds)| pod(name, &[toleration("k", Some(seconds))]));
    let world = world(&[taint("k", Some(0))], &pods);
    assert_eq!(describe(&decide_at(&world, 25)), ["-b", "-d", "-c", "a 5"]);
}

/// A pod that is bound to a node that was tainted before has its whole period there: otherwise its controller and
/// this one would replace and delete it without end.
#[test]
fn a_pod_bound_later_has_its_whole_toleration_period() {
    let since = |second| json!([{ "type": "PodScheduled", "status": "True", "lastTransitionTime": timestamp(second) }]);
    let later = pod("a", &[toleration("k", Some(300))]).set("/status/conditions", since(1_000));
    for added in [Some(-5_000), None] {
        let world = world(&[taint("k", added)], &[pod("a", &[]).set("/spec", json!({}))]);
        world.apply(Kind::Pods, &later, at(1_000));
        assert_eq!(describe(&decide_at(&world, 1_100)), ["a 200"], "{added:?}");
        assert_eq!(describe(&decide_at(&world, 1_300)), ["-a"], "{added:?}");
    }
    // A process that starts in the middle does not lengthen it.
    let world = World::listed();
    world.set_wall_time(START_SECONDS + 1_100, at(0));
    world.apply(Kind::Pods, &later, at(0));
    world.apply(Kind::Nodes, &node(&[taint("k", Some(-5_000))]), at(0));
    assert_eq!(describe(&decide_at(&world, 0)), ["a 200"]);
}

#[test]
fn a_restart_does_not_lengthen_the_toleration_period() {
    for restarted in [0, 100, 299, 300, 5_000] {
        let world = World::listed();
        world.set_wall_time(START_SECONDS + i64::try_from(restarted).unwrap(), at(0));
        world.apply(Kind::Pods, &pod("a", &[toleration("k", Some(300))]), at(0));
        world.apply(Kind::Nodes, &node(&[taint("k", Some(0))]), at(0));
        let left = 300_u64.saturating_sub(restarted);
        let wants = if left == 0 { "-a".to_owned() } else { format!("a {left}") };
        assert_eq!(describe(&decide_at(&world, 0)), [wants], "after {restarted}s");
        assert_eq!(describe(&decide_at(&world, left)), ["-a"], "after {restarted}s");
    }
}

#[test]
fn a_jump_of_the_wall_clock_deletes_no_pod_early() {
    for jump in [-100_000, 100_000] {
        let world = world(&[], &[pod("a", &[toleration("k", Some(300))])]);
        world.set_wall_time(START_SECONDS + 50 + jump, at(50));
        world.apply(Kind::Nodes, &node(&[taint("k", Some(50))]), at(50));
        assert_eq!(describe(&decide_at(&world, 349)), ["a 1"], "by {jump}s, before the taint was seen");
        world.set_wall_time(START_SECONDS + 100 - jump, at(100));
        world.apply(Kind::Nodes, &node(&[taint("k", Some(50))]).rv(6), at(100));
        assert_eq!(describe(&decide_at(&world, 349)), ["a 1"], "by {jump}s, after");
        assert_eq!(describe(&decide_at(&world, 350)), ["-a"], "by {jump}s");
    }
}

#[test]
fn changed_tolerations_and_taints_count_at_once() {
    let world = world(&[taint("k", Some(0))], &[pod("a", &[toleration("k", Some(300))])]);
    let now_bears = |tolerations: &[Value], now| world.apply(Kind::Pods, &pod("a", tolerations), at(now));
    assert_eq!(describe(&decide_at(&world, 100)), ["a 200"]);
    now_bears(&[toleration("k", Some(900))], 110);
    assert_eq!(describe(&decide_at(&world, 110)), ["a 790"], "longer");
    now_bears(&[toleration("k", Some(120))], 115);
    assert_eq!(describe(&decide_at(&world, 115)), ["a 5"], "shorter");
    now_bears(&[toleration("k", Some(60))], 116);
    assert_eq!(describe(&decide_at(&world, 116)), ["-a"], "so short that it is over");
    now_bears(&[toleration("k", Some(60)), toleration("", None)], 117);
    assert_eq!(describe(&decide_at(&world, 117)), ["-a"], "the first that matches counts");
    now_bears(&[toleration("", None)], 118);
    assert!(describe(&decide_at(&world, 118)).is_empty(), "for ever");
    now_bears(&[toleration("k", Some(300)), toleration("l", Some(60))], 119);
    world.apply(Kind::Nodes, &node(&[taint("k", Some(0)), taint("l", Some(119))]), at(119));
    assert_eq!(describe(&decide_at(&world, 119)), ["a 60"], "a second taint, for a shorter time");
    world.apply(Kind::Nodes, &node(&[taint("k", Some(0))]), at(120));
    assert_eq!(describe(&decide_at(&world, 120)), ["a 180"], "the second taint is gone, and its time with it");
    world.apply(Kind::Nodes, &node(&[]), at(121));
    assert!(describe(&decide_at(&world, 9_999)).is_empty(), "all taints are gone");
}

#[test]
fn a_taint_that_is_added_again_starts_a_new_period() {
    let world = world(&[taint("k", Some(0))], &[pod("a", &[toleration("k", Some(300))])]);
    world.apply(Kind::Nodes, &node(&[]), at(200));
    world.apply(Kind::Nodes, &node(&[taint("k", Some(250))]), at(250));
    assert_eq!(describe(&decide_at(&world, 300)), ["a 250"]);
}

/// KCM's timers are keyed by name.
#[test]
fn the_successor_of_a_pod_is_another_pod() {
    let world = world(&[taint("k", Some(0))], &[pod("a", &[])]);
    world.remove(Kind::Pods, "uid-a", at(1));
    world.apply(Kind::Pods, &pod("a", &[]).uid("new").on("other"), at(2));
    assert!(describe(&decide_at(&world, 2)).is_empty());
}

#[test]
fn a_toleration_with_an_unknown_operator_matches_nothing_and_its_pod_is_held() {
    let near = |operator: &str| json!({ "key": "k", "operator": operator, "value": "5" });
    for operator in ["Lt", "Gt", "Near"] {
        let world = world(&[taint("k", Some(0))], &[pod("a", &[near(operator)])]);
        let decision = decide_at(&world, 1);
        assert_eq!(describe(&decision), ["a TolerationUnreadable"]);
        let message = decision.holds[0].1.to_string();
        assert!(message.contains(operator) && message.contains("k:NoExecute"), "{message}");
    }
    let cases: [(&str, Vec<Value>, &[&str]); 3] = [
        ("another one matches", vec![near("Lt"), toleration("k", None), toleration("l", None)], &[]),
        ("another taint is not tolerated", vec![near("Lt")], &["-a"]),
        (
            "another taint is tolerated for a time",
            vec![near("Lt"), toleration("l", Some(9))],
            &["a 9", "a TolerationUnreadable"],
        ),
    ];
    for (sentence, tolerations, wants) in cases {
        let world = world(&[taint("k", Some(0)), taint("l", Some(0))], &[pod("a", &tolerations)]);
        assert_eq!(describe(&decide_at(&world, 0)), wants, "{sentence}");
    }
}

#[test]
fn unsynced_or_stale_caches_hold() {
    let world = world(&[taint("k", Some(0))], &[pod("a", &[])]);
    let unreadable = node(&[taint("k", Some(0))]).set("/metadata/resourceVersion", json!("x"));
    world.apply(Kind::Nodes, &unreadable, at(1));
    let held = decide_at(&world, 1);
    assert_eq!((held.intents.len(), held.holds[0].1.reason()), (0, "NodeUnreadable"));
    world.remove(Kind::Nodes, "uid-n", at(2));
    assert_eq!(decide_at(&world, 2), Decision::default(), "the pods of a node that is gone are not its business");
    world.apply(Kind::Nodes, &node(&[taint("k", Some(0))]), at(3));
    let silent = decide(&Key("n".into()), &world.read().view(), at(500));
    assert_eq!((silent.intents.len(), silent.holds[0].1.reason()), (0, "Stale"));
}

#[test]
fn the_controller_acts_only_in_place_of_kcm_and_relevant_changes_enqueue_keys() {
    let controller = TaintEviction::new(&prometheus::Registry::new()).unwrap();
    let acts = [Mode::Observe, Mode::Guard, Mode::Replace].map(|mode| controller.acts_in(mode));
    assert_eq!(acts, [false, false, true]);
    let world = world(&[taint("k", Some(0))], &[pod("a", &[toleration("k", None)])]);
    let guard = world.read();
    let cached = guard.view().pod(&Uid::new("uid-a").unwrap()).unwrap();
    let marked = |change: &Change<'_>| {
        let mut keys = Vec::new();
        controller.keys_for(change, &mut |key| keys.push(key));
        keys.len()
    };
    let noise = Pod { ready: true, ..cached.clone() };
    let other = Pod { tolerations: Default::default(), phase: Phase::Failed, ..cached.clone() };
    assert_eq!(marked(&Change::Pod { before: Some(cached), after: Some(&noise) }), 0);
    assert_eq!(marked(&Change::Pod { before: Some(cached), after: Some(&other) }), 2);
    assert_eq!(marked(&Change::Pod { before: None, after: Some(cached) }), 1);
    let changed = |change: fn(&mut Pod)| {
        let mut pod = cached.clone();
        change(&mut pod);
        marked(&Change::Pod { before: Some(cached), after: Some(&pod) })
    };
    assert_eq!(changed(|pod| pod.tolerations = Default::default()), 2);
    assert_eq!(changed(|pod| pod.bound_at += 1), 2);
    assert_eq!(changed(|pod| pod.node = None), 1, "the node that it left");
    let name: Arc<str> = "n".into();
    assert_eq!(marked(&Change::Node { name: &name, taints: true, readiness: false }), 1);
    assert_eq!(marked(&Change::Node { name: &name, taints: false, readiness: true }), 0);
    let mut all = Vec::new();
    controller.list_keys(&guard.view(), &mut |key| all.push(key));
    assert_eq!(all, [Key(name)]);
}

#[test]
fn deletions_are_counted_in_seconds_since_they_were_due() {
    let registry = prometheus::Registry::new();
    let controller = TaintEviction::new(&registry).unwrap();
    let world = world(&[taint("k", Some(0))], &[pod("a", &[toleration("k", Some(10))])]);
    let decision = decide_at(&world, 12);
    let [Intent::Delete(delete)] = decision.intents.as_slice() else { panic!("{decision:?}") };
    for outcome in [
        DeleteOutcome::Ending,
        RequestError::Changed.into(),
        RequestError::Gone.into(),
        DeleteOutcome::Withdrawn,
        RequestError::NotLeader.into(),
    ] {
        controller.delete_completed(delete, &outcome, at(10) + Duration::from_millis(2_500));
    }
    let page = metrics_text(&registry);
    for line in [
        "taint_eviction_controller_pod_deletions_total 1",
        "taint_eviction_controller_pod_deletion_duration_seconds_sum 2.5",
        "taint_eviction_controller_pod_deletion_duration_seconds_count 1",
        "taint_eviction_controller_pod_deletion_duration_seconds_bucket{le=\"0.005\"} 0",
        "taint_eviction_controller_pod_deletion_duration_seconds_bucket{le=\"240\"} 1",
    ] {
        assert!(page.lines().any(|one| one == line), "no {line} in {page}");
    }
}
