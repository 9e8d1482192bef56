//! Rows for mutants of the gates that other tests did not catch.

use super::fixture::boot_of;
use super::*;
use crate::holds::Hold;

fn pending() -> Fixture {
    Fixture::at(Phase::Pending, |_| ())
}

/// The closed gates by their holds, without the write that shows them.
fn closed(stage: &Fixture, node: &str) -> Vec<String> {
    stage.describe(node).into_iter().filter(|word| word.starts_with('?')).collect()
}

const NONE: [&str; 0] = [];

/// Two incidents wait for one place; `m` comes before `n` by name. What is changed about `m`, and whether `n` may
/// begin then.
#[test]
fn only_an_incident_that_can_begin_is_ahead_of_others() {
    type Change = fn(&mut Fixture);
    let edit = |stage: &mut Fixture, change: fn(&mut Value)| {
        let name = pod_safety_shared::authority::incident_name(&stage.incarnation("m"));
        let (spec, status) = stage.fences[&name].clone();
        let mut object = json!({
            "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "800" },
            "spec": spec, "status": status,
        });
        change(&mut object);
        stage.world.apply(Kind::NodeFences, &object, stage.mono());
    };
    type Edit = fn(&mut Value);
    let rows: [(&str, Change, Edit, bool); 10] = [
        ("as it is", |_| (), |_| (), false),
        ("it was cancelled", |_| (), |fence| fence["spec"]["cancelled"] = json!(true), true),
        (
            "it is being deleted",
            |_| (),
            |fence| fence["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            true,
        ),
        ("it is a dry run", |_| (), |fence| fence["spec"]["dryRun"] = json!(true), true),
        ("it has no policy", |_| (), |fence| fence["spec"]["policy"] = json!("gone"), true),
        ("it is over", |_| (), |fence| fence["status"]["phase"] = json!("Done"), true),
        (
            "it would cost a pod that its budget needs",
            |stage| {
                stage.ready_pod("ns", "db-0", "m", &json!({ "app": "db" }));
                stage.budget(2, 2);
            },
            |_| (),
            true,
        ),
        ("its kubelet reports again", |stage| stage.reboot("m", boot_of("m")), |_| (), true),
        ("its node is gone", |stage| stage.delete(Kind::Nodes, "m"), |_| (), false),
        (
            "its node cannot be read",
            |stage| {
                let odd = json!({ "metadata": { "name": "m", "uid": "other", "resourceVersion": "x" } });
                stage.world.apply(Kind::Nodes, &odd, stage.mono());
            },
            |_| (),
            true,
        ),
    ];
    for (says, change, of_fence, may) in rows {
        let mut stage = Fixture::new(&["n", "m", "a", "b", "c", "d", "e"]);
        stage.policy(|policy| policy.brakes.max_concurrent = 1);
        ["n", "m"].iter().for_each(|name| stage.lose_node(name));
        stage.advance_to(70);
        stage.fence("n", Trigger::Detected, NodeFenceStatus::default());
        stage.fence("m", Trigger::Detected, NodeFenceStatus::default());
        edit(&mut stage, of_fence);
        change(&mut stage);
        let expected: &[&str] = if may { &NONE } else { &["?Concurrency"] };
        assert_eq!(closed(&stage, "n"), expected, "{says}");
    }
}

#[test]
fn a_higher_priority_goes_first_regardless_of_age() {
    let mut stage = Fixture::new(&["n", "m", "a", "b", "c", "d", "e"]);
    stage.policy(|policy| policy.brakes.max_concurrent = 1);
    stage.another_policy("q", |policy| policy.priority = 5);
    ["n", "m"].iter().for_each(|name| stage.lose_node(name));
    stage.advance_to(70);
    stage.fence("m", Trigger::Detected, NodeFenceStatus::default());
    stage.advance(1);
    stage.fence("n", Trigger::Detected, NodeFenceStatus::default());
    assert_eq!(closed(&stage, "n"), ["?Concurrency"]);
    let name = pod_safety_shared::authority::incident_name(&stage.incarnation("n"));
    let (mut spec, status) = stage.fences[&name].clone();
    spec.policy = "q".to_owned();
    let object = json!({ "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "900" },
        "spec": spec, "status": status });
    stage.world.apply(Kind::NodeFences, &object, stage.mono());
    assert_eq!((closed(&stage, "n"), closed(&stage, "m")), (vec![], vec!["?Concurrency".to_owned()]));
}

/// `fencing` others are being fenced and `waiting` others are ahead; the limit of `maxConcurrent`.
#[test]
fn max_concurrent_counts_incidents_being_fenced_and_those_ahead() {
    for (fencing, waiting, most, may) in [
        (0, 0, 1, true),
        (0, 1, 1, false),
        (1, 0, 1, false),
        (0, 1, 2, true),
        (1, 0, 2, true),
        (1, 1, 2, false),
        (1, 1, 3, true),
        (2, 0, 2, false),
        (0, 2, 2, false),
    ] {
        let mut stage = Fixture::new(&["n", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
        stage.policy(|policy| policy.brakes.max_concurrent = most);
        let others = ["a", "b", "c", "d"];
        ["n"].iter().chain(&others[..fencing + waiting]).for_each(|name| stage.lose_node(name));
        stage.advance_to(70);
        for (number, name) in others[..fencing + waiting].iter().enumerate() {
            let phase = if number < fencing { Phase::Fencing } else { Phase::Pending };
            stage.fence(name, Trigger::Detected, NodeFenceStatus { phase, ..NodeFenceStatus::default() });
        }
        stage.fence("n", Trigger::Detected, NodeFenceStatus::default());
        let expected: &[&str] = if may { &NONE } else { &["?Concurrency"] };
        assert_eq!(closed(&stage, "n"), expected, "{fencing} and {waiting}, {most} may be");
    }
}

/// What another incident must have done for the next one to wait, and until when.
#[test]
fn a_cooldown_follows_an_attempt_of_another_incident_that_has_left_pending() {
    let shot = || vec![Attempt { id: 1, act: DesiredPower::Off, ..Attempt::default() }];
    for (says, phase, attempts, holds) in [
        ("it was shot", Phase::Done, shot(), true),
        ("it is being shot", Phase::Fencing, shot(), true),
        ("nothing was tried", Phase::AwaitingOperator, vec![], false),
        ("it begins anew", Phase::Pending, shot(), false),
        ("it has not begun", Phase::Pending, vec![], false),
    ] {
        let mut stage = pending();
        stage.policy(|policy| policy.brakes.cooldown_seconds = 60);
        stage.fence("m", Trigger::Person, NodeFenceStatus { phase, attempts, ..NodeFenceStatus::default() });
        assert_eq!(closed(&stage, "n").contains(&"?Cooldown".to_owned()), holds, "{says}");
        stage.advance(59);
        assert_eq!(closed(&stage, "n").contains(&"?Cooldown".to_owned()), holds, "{says}");
        stage.advance(1);
        assert!(!closed(&stage, "n").contains(&"?Cooldown".to_owned()), "{says}: a minute later");
    }
}

#[test]
fn a_cooldown_counts_from_the_last_of_several_incidents_that_were_attempted() {
    let attempts = vec![Attempt { id: 1, act: DesiredPower::Off, ..Attempt::default() }];
    let shot = NodeFenceStatus { phase: Phase::Done, attempts, ..NodeFenceStatus::default() };
    for [first, second] in [["m", "k"], ["k", "m"]] {
        let mut stage = pending();
        stage.policy(|policy| policy.brakes.cooldown_seconds = 60);
        stage.fence(first, Trigger::Person, shot.clone());
        stage.advance(50);
        stage.fence(second, Trigger::Person, shot.clone());
        stage.advance(59);
        assert_eq!(closed(&stage, "n"), ["?Cooldown"], "{second} a minute ago, less a second");
        stage.advance(1);
        assert_eq!(closed(&stage, "n"), NONE, "a minute after {second}");
    }
}

#[test]
fn an_unreadable_policy_or_incident_holds_every_incident() {
    for kind in [Kind::FencePolicies, Kind::NodeFences] {
        let stage = pending();
        let spec = match kind {
            Kind::NodeFences => json!(stage.only().0),
            _ => json!(stage.policy),
        };
        let odd =
            json!({ "metadata": { "name": "odd", "uid": "uid-odd", "resourceVersion": "x" }, "spec": spec });
        stage.world.apply(kind, &odd, stage.mono());
        assert_eq!(closed(&stage, "n"), ["?FencingUnreadable"], "{kind:?}");
    }
}

/// The number of control plane nodes, how many others are lost, and whether the node may be fenced.
#[test]
fn more_than_half_of_the_control_plane_must_remain() {
    for (of, others_lost, may) in [
        (1, 0, false),
        (2, 0, false),
        (3, 0, true),
        (3, 1, false),
        (4, 0, true),
        (4, 1, false),
        (5, 0, true),
        (5, 1, true),
        (5, 2, false),
    ] {
        for of_etcd in [false, true] {
            let names = ["n", "m", "k", "l", "o", "w0", "w1", "w2", "w3", "w4"];
            let mut stage = Fixture::new(&names);
            stage.policy(|policy| policy.brakes.max_unhealthy_percent = 100);
            for name in &names[..of] {
                if of_etcd {
                    stage.etcd(&[name]);
                } else {
                    stage.change(name, |node| {
                        node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = json!("")
                    });
                }
            }
            names[..=others_lost].iter().for_each(|name| stage.lose_node(name));
            stage.advance_to(70);
            stage.fence("n", Trigger::Detected, NodeFenceStatus::default());
            let gate = if of_etcd { "?EtcdQuorum" } else { "?ControlPlane" };
            let expected: &[&str] = if may { &NONE } else { &[gate] };
            assert_eq!(closed(&stage, "n"), expected, "{others_lost} others of {of} are lost");
            if !may {
                let sentence = stage.decide("n").holds[0].1.to_string();
                assert!(sentence.contains(&format!("only {} of {of} ", of - 1 - others_lost)), "{sentence}");
            }
        }
    }
}

/// Which pod is a member of etcd, and which members count.
#[test]
fn an_etcd_member_is_a_running_pod_in_kube_system_with_both_labels_and_counts_if_ready() {
    let both = || json!({ "component": "etcd", "tier": "control-plane" });
    for (says, namespace, labels, ended, is_member) in [
        ("one of kubeadm's", "kube-system", both(), false, true),
        ("of another namespace", "default", both(), false, false),
        ("without a tier", "kube-system", json!({ "component": "etcd" }), false, false),
        (
            "of another component",
            "kube-system",
            json!({ "component": "x", "tier": "control-plane" }),
            false,
            false,
        ),
        ("one that has ended", "kube-system", both(), true, false),
    ] {
        let mut stage = pending();
        stage.ready_pod(namespace, "etcd-n", "n", &labels);
        if ended {
            stage.pod("etcd-n", "n", |pod| {
                pod["metadata"]["namespace"] = json!(namespace);
                pod["metadata"]["labels"] = labels.clone();
                pod["status"]["phase"] = json!("Failed");
            });
        }
        // A single member has no quorum without itself.
        let expected: &[&str] = if is_member { &["?EtcdQuorum"] } else { &NONE };
        assert_eq!(closed(&stage, "n"), expected, "{says}");
    }
    let mut stage = pending();
    stage.etcd(&["n", "m", "k"]);
    assert_eq!(closed(&stage, "n"), NONE);
    stage.pod("etcd-m", "m", |pod| {
        pod["metadata"]["namespace"] = json!("kube-system");
        pod["metadata"]["labels"] = both();
    });
    assert_eq!(closed(&stage, "n"), ["?EtcdQuorum"], "one on a node that is well is not Ready itself");
}

#[test]
fn a_budget_can_spare_pods_down_to_its_desired_healthy() {
    for (here, healthy, needed, holds) in
        [(1, 3, 2, false), (1, 2, 2, true), (2, 3, 2, true), (2, 4, 2, false), (3, 4, 2, true)]
    {
        let mut stage = pending();
        for number in 0..here {
            stage.ready_pod("ns", &format!("db-{number}"), "n", &json!({ "app": "db" }));
        }
        stage.budget(healthy, needed);
        let expected: &[&str] = if holds { &["?Collateral"] } else { &NONE };
        assert_eq!(closed(&stage, "n"), expected, "{here} here of {healthy}, {needed} needed");
    }
}

#[test]
fn unreadable_budgets_hold_fencing_until_collateral_seconds_are_over() {
    let mut stage = pending();
    let odd = json!({ "metadata": { "namespace": "ns", "name": "odd", "uid": "uid-odd", "resourceVersion": "x" }, "spec": {} });
    stage.world.apply(Kind::Budgets, &odd, stage.mono());
    assert_eq!(closed(&stage, "n"), ["?Collateral"]);
    let decision = stage.decide("n");
    assert!(matches!(decision.holds[0].1, Hold::BudgetsUnread { .. }), "{decision:?}");
    stage.advance(300);
    assert_eq!(closed(&stage, "n"), NONE);
}

#[test]
fn a_node_marked_ready_counts_as_lost_exactly_when_it_has_not_reported_for_the_policys_time() {
    let mut stage = Fixture::new(&["n", "m"]);
    stage.lose_node("n");
    stage.advance_to(70);
    stage.alive.remove("m");
    stage.fence("n", Trigger::Detected, NodeFenceStatus::default());
    stage.advance_to(129);
    assert_eq!(closed(&stage, "n"), NONE, "one of two is lost");
    stage.advance_to(130);
    assert_eq!(closed(&stage, "n"), ["?LargeOutage"], "nobody is heard");
}

/// The incidents ahead of it are counted only if no other gate holds it.
#[test]
fn incidents_ahead_are_not_counted_while_no_place_is_free_or_another_gate_is_closed() {
    let three = || {
        let mut stage = Fixture::new(&["n", "a", "b", "c", "d", "e", "f", "g", "h", "i"]);
        stage.policy(|policy| policy.brakes.max_concurrent = 1);
        ["n", "a", "b"].iter().for_each(|name| stage.lose_node(name));
        stage.advance_to(70);
        stage.fence("a", Trigger::Detected, NodeFenceStatus::default());
        stage.fence("n", Trigger::Detected, NodeFenceStatus::default());
        stage
    };
    let mut stage = three();
    let fencing = NodeFenceStatus { phase: Phase::Fencing, ..NodeFenceStatus::default() };
    stage.fence("b", Trigger::Detected, fencing);
    assert_eq!(closed(&stage, "n"), ["?Concurrency"]);
    let sentence = stage.hold_message("n");
    assert!(sentence.starts_with("nodes being fenced: 1; ahead of this one: 0"), "{sentence}");
    let mut stage = three();
    stage.change("n", |node| node["metadata"]["annotations"]["pod-safety.dev/pause-fencing"] = json!(""));
    assert_eq!(closed(&stage, "n"), ["?FencingSuspended"]);
}

#[test]
fn the_open_gates_of_the_control_plane_and_of_the_cooldown_show_their_numbers() {
    let mut stage = pending();
    for name in ["n", "m", "k"] {
        stage.change(name, |node| {
            node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = json!("");
        });
    }
    stage.policy(|policy| policy.brakes.cooldown_seconds = 60);
    assert_eq!(stage.act("n"), ["off 1 by bmc"]);
    let (_, status) = stage.only();
    let message_of = |name: &str| status.gates.iter().find(|gate| gate.name == name).unwrap().message.clone();
    assert_eq!(message_of("ControlPlane"), "without it 2 of 3 such nodes are Ready");
    assert_eq!(message_of("Cooldown"), "no other node was fenced in the last 60s");
}
