//! Rows for mutants of the gates that other tests did not catch.

use super::fixture::boot_of;

use super::*;

fn pending() -> Fixture {
    Fixture::at(Phase::Pending, |_| ())
}

/// The closed gates by their holds, without the write that shows them.
fn closed(fixture: &Fixture, node: &str) -> Vec<String> {
    fixture.describe(node).into_iter().filter(|word| word.starts_with('?')).collect()
}

const NONE: [&str; 0] = [];

/// Two incidents wait for one place; `m` comes before `n` by name. What is changed about `m`, and whether `n` may
/// begin then.
#[test]
fn only_an_incident_that_can_begin_is_ahead_of_others() {
    type Change = fn(&mut Fixture);
    let edit = |fixture: &mut Fixture, change: fn(&mut Value)| {
        let name = pod_safety_shared::authority::incident_name(&fixture.incarnation("m"));
        let (spec, status) = fixture.fences[&name].clone();
        let mut object = json!({
            "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "800" },
            "spec": spec, "status": status,
        });
        change(&mut object);
        fixture.world.apply(Kind::NodeFences, &object, fixture.mono());
    };
    type Edit = fn(&mut Value);
    let rows: [(&str, bool, Change, Edit); 10] = [
        ("as it is", false, |_| (), |_| ()),
        ("it was cancelled", true, |_| (), |fence| fence["spec"]["cancelled"] = json!(true)),
        (
            "it is being deleted",
            true,
            |_| (),
            |fence| fence["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
        ),
        ("it is a dry run", true, |_| (), |fence| fence["spec"]["dryRun"] = json!(true)),
        ("it has no policy", true, |_| (), |fence| fence["spec"]["policy"] = json!("gone")),
        ("it is over", true, |_| (), |fence| fence["status"]["phase"] = json!("Done")),
        (
            "it would cost a pod that its budget needs",
            true,
            |fixture| {
                fixture.ready_pod("ns", "db-0", "m", &json!({ "app": "db" }));
                fixture.budget(2, 2);
            },
            |_| (),
        ),
        ("its kubelet reports again", true, |fixture| fixture.reboot("m", boot_of("m")), |_| ()),
        ("its node is deleted", false, |fixture| fixture.delete(Kind::Nodes, "m"), |_| ()),
        (
            "its node cannot be read",
            true,
            |fixture| {
                let odd = json!({ "metadata": { "name": "m", "uid": "other", "resourceVersion": "x" } });
                fixture.world.apply(Kind::Nodes, &odd, fixture.mono());
            },
            |_| (),
        ),
    ];
    for (says, may, change, of_fence) in rows {
        let mut fixture = Fixture::new(&["n", "m", "a", "b", "c", "d", "e"]);
        fixture.policy(|policy| policy.brakes.max_concurrent = 1);
        ["n", "m"].iter().for_each(|name| fixture.lose_node(name));
        fixture.advance_to(70);
        fixture.fence("n", Trigger::Detected, NodeFenceStatus::default());
        fixture.fence("m", Trigger::Detected, NodeFenceStatus::default());
        edit(&mut fixture, of_fence);
        change(&mut fixture);
        let expected: &[&str] = if may { &NONE } else { &["?Concurrency"] };
        assert_eq!(closed(&fixture, "n"), expected, "{says}");
    }
}

#[test]
fn a_higher_priority_goes_first_regardless_of_age() {
    let mut fixture = Fixture::new(&["n", "m", "a", "b", "c", "d", "e"]);
    fixture.policy(|policy| policy.brakes.max_concurrent = 1);
    fixture.another_policy("q", |policy| policy.priority = 5);
    ["n", "m"].iter().for_each(|name| fixture.lose_node(name));
    fixture.advance_to(70);
    fixture.fence("m", Trigger::Detected, NodeFenceStatus::default());
    fixture.advance(1);
    fixture.fence("n", Trigger::Detected, NodeFenceStatus::default());
    assert_eq!(closed(&fixture, "n"), ["?Concurrency"]);
    let name = pod_safety_shared::authority::incident_name(&fixture.incarnation("n"));
    let (mut spec, status) = fixture.fences[&name].clone();
    spec.policy = "q".to_owned();
    let object = json!({ "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "900" },
        "spec": spec, "status": status });
    fixture.world.apply(Kind::NodeFences, &object, fixture.mono());
    assert_eq!((closed(&fixture, "n"), closed(&fixture, "m")), (vec![], vec!["?Concurrency".to_owned()]));
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
        let mut fixture = Fixture::new(&["n", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
        fixture.policy(|policy| policy.brakes.max_concurrent = most);
        let others = ["a", "b", "c", "d"];
        ["n"].iter().chain(&others[..fencing + waiting]).for_each(|name| fixture.lose_node(name));
        fixture.advance_to(70);
        for (number, name) in others[..fencing + waiting].iter().enumerate() {
            let phase = if number < fencing { Phase::Fencing } else { Phase::Pending };
            fixture.fence(name, Trigger::Detected, NodeFenceStatus { phase, ..NodeFenceStatus::default() });
        }
        fixture.fence("n", Trigger::Detected, NodeFenceStatus::default());
        let expected: &[&str] = if may { &NONE } else { &["?Concurrency"] };
        assert_eq!(closed(&fixture, "n"), expected, "{fencing} and {waiting}, {most} may be");
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
        ("it was reopened", Phase::Pending, shot(), false),
        ("it has not begun", Phase::Pending, vec![], false),
    ] {
        let mut fixture = pending();
        fixture.policy(|policy| policy.brakes.cooldown_seconds = 60);
        fixture.fence("m", Trigger::Person, NodeFenceStatus { phase, attempts, ..NodeFenceStatus::default() });
        assert_eq!(closed(&fixture, "n").contains(&"?Cooldown".to_owned()), holds, "{says}");
        fixture.advance(59);
        assert_eq!(closed(&fixture, "n").contains(&"?Cooldown".to_owned()), holds, "{says}");
        fixture.advance(1);
        assert!(!closed(&fixture, "n").contains(&"?Cooldown".to_owned()), "{says}: a minute later");
    }
}

#[test]
fn a_cooldown_counts_from_the_last_of_several_incidents_that_were_attempted() {
    let attempts = vec![Attempt { id: 1, act: DesiredPower::Off, ..Attempt::default() }];
    let shot = NodeFenceStatus { phase: Phase::Done, attempts, ..NodeFenceStatus::default() };
    for [first, second] in [["m", "k"], ["k", "m"]] {
        let mut fixture = pending();
        fixture.policy(|policy| policy.brakes.cooldown_seconds = 60);
        fixture.fence(first, Trigger::Person, shot.clone());
        fixture.advance(50);
        fixture.fence(second, Trigger::Person, shot.clone());
        fixture.advance(59);
        assert_eq!(closed(&fixture, "n"), ["?Cooldown"], "{second} a minute ago, less a second");
        fixture.advance(1);
        assert_eq!(closed(&fixture, "n"), NONE, "a minute after {second}");
    }
}

#[test]
fn an_unreadable_policy_or_incident_holds_every_incident() {
    for kind in [Kind::FencePolicies, Kind::NodeFences] {
        let fixture = pending();
        let spec = match kind {
            Kind::NodeFences => json!(fixture.only().0),
            _ => json!(fixture.policy),
        };
        let odd = json!({ "metadata": { "name": "odd", "uid": "uid-odd", "resourceVersion": "x" }, "spec": spec });
        fixture.world.apply(kind, &odd, fixture.mono());
        assert_eq!(closed(&fixture, "n"), ["?FencingUnreadable"], "{kind:?}");
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
            let mut fixture = Fixture::new(&names);
            fixture.policy(|policy| policy.brakes.max_unhealthy_percent = 100);
            for name in &names[..of] {
                if of_etcd {
                    fixture.etcd(&[name]);
                } else {
                    fixture.change(name, |node| {
                        node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = json!("")
                    });
                }
            }
            names[..=others_lost].iter().for_each(|name| fixture.lose_node(name));
            fixture.advance_to(70);
            fixture.fence("n", Trigger::Detected, NodeFenceStatus::default());
            let gate = if of_etcd { "?EtcdQuorum" } else { "?ControlPlane" };
            let expected: &[&str] = if may { &NONE } else { &[gate] };
            assert_eq!(closed(&fixture, "n"), expected, "{others_lost} others of {of} are lost");
            if !may {
                let sentence = fixture.decide("n").holds[0].1.to_string();
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
        ("of another component", "kube-system", json!({ "component": "x", "tier": "control-plane" }), false, false),
        ("one that has ended", "kube-system", both(), true, false),
    ] {
        let mut fixture = pending();
        fixture.ready_pod(namespace, "etcd-n", "n", &labels);
        if ended {
            fixture.pod("etcd-n", "n", |pod| {
                pod["metadata"]["namespace"] = json!(namespace);
                pod["metadata"]["labels"] = labels.clone();
                pod["status"]["phase"] = json!("Failed");
            });
        }
        // A single member has no quorum without itself.
        let expected: &[&str] = if is_member { &["?EtcdQuorum"] } else { &NONE };
        assert_eq!(closed(&fixture, "n"), expected, "{says}");
    }
    let mut fixture = pending();
    fixture.etcd(&["n", "m", "k"]);
    assert_eq!(closed(&fixture, "n"), NONE);
    fixture.pod("etcd-m", "m", |pod| {
        pod["metadata"]["namespace"] = json!("kube-system");
        pod["metadata"]["labels"] = both();
    });
    assert_eq!(closed(&fixture, "n"), ["?EtcdQuorum"], "one on a node that is well is not Ready itself");
}

#[test]
fn a_budget_can_spare_pods_down_to_its_desired_healthy() {
    for (here, healthy, needed, holds) in
        [(1, 3, 2, false), (1, 2, 2, true), (2, 3, 2, true), (2, 4, 2, false), (3, 4, 2, true)]
    {
        let mut fixture = pending();
        for number in 0..here {
            fixture.ready_pod("ns", &format!("db-{number}"), "n", &json!({ "app": "db" }));
        }
        fixture.budget(healthy, needed);
        let expected: &[&str] = if holds { &["?Collateral"] } else { &NONE };
        assert_eq!(closed(&fixture, "n"), expected, "{here} here of {healthy}, {needed} needed");
    }
}

#[test]
fn unreadable_budgets_hold_fencing_until_collateral_seconds_are_over() {
    let mut fixture = pending();
    let odd = json!({ "metadata": { "namespace": "ns", "name": "odd", "uid": "uid-odd", "resourceVersion": "x" }, "spec": {} });
    fixture.world.apply(Kind::Budgets, &odd, fixture.mono());
    assert_eq!(closed(&fixture, "n"), ["?Collateral"]);
    let decision = fixture.decide("n");
    assert!(matches!(decision.holds[0].1, Hold::BudgetsUnread { .. }), "{decision:?}");
    fixture.advance(300);
    assert_eq!(closed(&fixture, "n"), NONE);
}

/// The incidents ahead of it are counted only if no other gate holds it.
#[test]
fn incidents_ahead_are_not_counted_while_no_place_is_free_or_another_gate_is_closed() {
    let three = || {
        let mut fixture = Fixture::new(&["n", "a", "b", "c", "d", "e", "f", "g", "h", "i"]);
        fixture.policy(|policy| policy.brakes.max_concurrent = 1);
        ["n", "a", "b"].iter().for_each(|name| fixture.lose_node(name));
        fixture.advance_to(70);
        fixture.fence("a", Trigger::Detected, NodeFenceStatus::default());
        fixture.fence("n", Trigger::Detected, NodeFenceStatus::default());
        fixture
    };
    let mut fixture = three();
    let fencing = NodeFenceStatus { phase: Phase::Fencing, ..NodeFenceStatus::default() };
    fixture.fence("b", Trigger::Detected, fencing);
    assert_eq!(closed(&fixture, "n"), ["?Concurrency"]);
    let sentence = fixture.hold_message("n");
    assert!(sentence.starts_with("nodes being fenced: 1; ahead of this one: 0"), "{sentence}");
    let mut fixture = three();
    fixture.change("n", |node| node["metadata"]["annotations"]["pod-safety.dev/pause-fencing"] = json!(""));
    assert_eq!(closed(&fixture, "n"), ["?FencingSuspended"]);
}
