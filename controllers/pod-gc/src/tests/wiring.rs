//! Which changes enqueue a decision.

use super::super::run::PodGc;
use pod_safety_shared::cache::Change;
use pod_safety_shared::controller_loop::Controller as _;
use pod_safety_shared::model::{Pod, Uid};

use super::*;

fn marked(change: &Change<'_>) -> (bool, Vec<Key>) {
    let controller = PodGc::new(config(), &prometheus::Registry::new()).unwrap();
    let mut keys = Vec::new();
    controller.keys_for(change, &mut |key| keys.push(key));
    (controller.affects_all(change), keys)
}

/// A policy that requires less than before was noticed at the next event of the pod, which may never come.
#[test]
fn evidence_enqueues_its_node_and_a_policy_enqueues_everything() {
    let (name, node): (Arc<str>, Key) = ("n".into(), Key::Node("n".into()));
    assert_eq!(marked(&Change::Fencing { node: Some(&name) }), (false, vec![node.clone(), Key::Terminated]));
    assert_eq!(marked(&Change::Node { name: &name, taints: false, readiness: true }), (false, vec![node]));
    assert_eq!(marked(&Change::Fencing { node: None }), (true, Vec::new()));
    assert_eq!(marked(&Change::Heartbeat { name: &name, relevant: true }), (false, Vec::new()));
}

/// Found by the simulator: pods of Jobs had terminated on a node whose Node was deleted. It registered again, and the
/// pods above the threshold stayed until the next full resync, five minutes later.
#[test]
fn bug_pods_that_terminated_on_a_node_that_registered_again_were_not_counted_again() {
    let name: Arc<str> = "n".into();
    let appears = Change::Node { name: &name, taints: true, readiness: true };
    assert_eq!(marked(&appears), (false, vec![Key::Node("n".into()), Key::Terminated]));
    let world = World::listed();
    for ended in ["job-3", "job-4"] {
        world.apply(Kind::Pods, &pod(ended).on("n").phase("Succeeded"), at(0));
    }
    let config = Config { terminated_threshold: Some(1), ..config() };
    let removed = || decide(&Key::Terminated, &world.read().view(), at(1), &config).intents.len();
    assert_eq!(removed(), 0, "they are orphans");
    world.apply(Kind::Nodes, &node("n"), at(1));
    assert_eq!(removed(), 1);
}

#[test]
fn a_pod_enqueues_its_node_when_created_terminated_or_removed_and_not_on_other_updates() {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("lives").on("n"), at(0));
    world.apply(Kind::Pods, &pod("ends").on("n").terminating(), at(0));
    world.apply(Kind::Pods, &pod("unbound").terminating(), at(0));
    world.apply(Kind::Pods, &pod("over").on("n").phase("Failed"), at(0));
    let guard = world.read();
    let of = |name: &str| guard.view().pod(&Uid::new(&format!("uid-{name}")).unwrap()).unwrap();
    let (lives, ends, unbound, over) = (of("lives"), of("ends"), of("unbound"), of("over"));
    let node = || Key::Node("n".into());
    let rows: [(Option<&Pod>, Option<&Pod>, Vec<Key>); 6] = [
        (None, Some(lives), vec![node()]),
        (Some(lives), None, vec![node()]),
        (Some(lives), Some(lives), Vec::new()),
        (Some(lives), Some(ends), vec![node(), node()]),
        (None, Some(unbound), vec![Key::Unscheduled(uid("uid-unbound"))]),
        (None, Some(over), vec![node(), Key::Terminated]),
    ];
    for (before, after, expected) in rows {
        let change = Change::Pod { before, after };
        assert_eq!(marked(&change), (false, expected), "{change:?}");
    }
}
