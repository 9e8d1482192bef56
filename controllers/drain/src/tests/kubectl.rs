//! Parity with `kubectl drain`: owners that do not exist, pods that come back, objects that cannot be read.

use super::*;

fn place(plan: &Plan, name: &str) -> (Option<Place>, bool) {
    let row = &plan.rows[index(plan, name)];
    (row.place.clone(), row.may_come_back)
}

#[test]
fn bug_a_pod_whose_daemon_set_does_not_exist_was_reported_as_recreated() {
    let cases = [
        ("apps/v1", DaemonSet::Exists, "Stay d: DaemonSet/log would recreate it at once"),
        (
            "apps/v1",
            DaemonSet::Absent,
            "Blocked d: DaemonSet/log does not exist, so it would not come back: --evict-unmanaged or --skip",
        ),
        (
            "apps/v1",
            DaemonSet::Unread("you may not get daemonsets".to_owned()),
            "Stay d: whether DaemonSet/log would recreate it is not known: you may not get daemonsets",
        ),
        ("acme.example/v9", DaemonSet::Absent, "Evict 1 d: no PodDisruptionBudget"),
        ("v1", DaemonSet::Absent, "Evict 1 d: no PodDisruptionBudget"),
    ];
    for (group, daemon_set, line) in cases {
        let mut fixture = fixture();
        fixture.pod(&pod("a", "d").owned_by(group, "DaemonSet", "log"));
        fixture.daemon_sets.insert(Uid::new("uid-log").unwrap(), daemon_set.clone());
        assert_lines(&fixture.plan(), &[line]);
        if daemon_set == DaemonSet::Absent && group == "apps/v1" {
            assert!(fixture.plan().must_not_start(true), "a person must agree");
            let plan = fixture.plan_with(&Consent { evict_unmanaged: true, ..Consent::default() });
            assert_lines(&plan, &["Evict 1 d: no PodDisruptionBudget"]);
            assert_eq!(plan.rows[0].place, Some(Place::NotRecreated));
        }
    }
}

#[test]
fn bug_the_plan_did_not_report_a_pod_that_returns_to_the_node() {
    let everything = json!([{ "operator": "Exists" }]);
    let cordon = json!([{ "key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule" }]);
    let other = json!([{ "key": "gpu", "operator": "Exists" }]);
    let (here, elsewhere) = (json!({ "disk": "ssd" }), json!({ "disk": "hdd" }));
    let mut fixture = fixture();
    fixture.node(&node("n").set("/metadata/labels", here.clone()));
    fixture.capacities.remove(0);
    let mut pod = |name: &str, tolerates: &Value, selects: &Value| {
        fixture.pod(
            &replica("a", name).set("/spec/tolerations", tolerates.clone()).set("/spec/nodeSelector", selects.clone()),
        );
    };
    pod("a-0", &everything, &here);
    pod("a-1", &cordon, &here);
    pod("a-2", &other, &here);
    pod("a-3", &everything, &elsewhere);
    let plan = fixture.plan();
    let nowhere = Some(Place::Nowhere("there is no other node".to_owned()));
    assert_eq!(place(&plan, "a-0"), (Some(Place::SameNode), true));
    assert_eq!(place(&plan, "a-1"), (Some(Place::SameNode), true));
    assert_eq!(place(&plan, "a-2"), (nowhere.clone(), false));
    assert_eq!(place(&plan, "a-3"), (nowhere, false));
    assert_eq!(plan.summarize(), Summary { nowhere: 2, back: 2, ..Summary::default() });
    fixture.node(&node("m").set("/metadata/labels", here));
    let plan = fixture.plan();
    assert!(matches!(place(&plan, "a-0"), (Some(Place::Node { .. }), true)), "it may go to either");
    assert!(!plan.is_clear() && !plan.must_not_start(false));
}

#[test]
fn a_plan_is_clear_if_each_pod_can_be_read_and_fits_on_another_node() {
    let mut fixture = fixture();
    fixture.pod(&replica("a", "a-0").set("/spec/tolerations", json!([{ "operator": "Exists" }])));
    assert!(!fixture.plan().is_clear(), "its replacement comes back");
    fixture.node(&node("m"));
    assert!(fixture.plan().is_clear());
    fixture.world.apply(Kind::Pods, &pod("a", "x").set("/metadata/resourceVersion", json!(null)), at(0));
    assert!(!fixture.plan().is_clear(), "a pod cannot be read");
}

#[test]
fn bug_a_drain_did_not_start_although_its_blockers_may_change() {
    let mut fixture = fixture();
    fixture.application("never", 1, &json!({ "minAvailable": 1 }), [2, 1, 1, 1, 0]);
    assert!(!fixture.plan().must_not_start(false) && !fixture.plan().is_clear());
    fixture.pod(&pod("a", "lies").phase("Failed").owned_by("apps/v1", "StatefulSet", "a"));
    let plan = fixture.plan();
    assert!(!plan.must_not_start(false) && plan.is_unsafe(), "the other pod is tried");
    let skip = [("ns".to_owned(), "lies".to_owned())].into();
    assert!(!fixture.plan_with(&Consent { skip, ..Consent::default() }).is_unsafe());
}

#[test]
fn a_drain_does_not_start_if_no_pod_may_be_evicted_or_a_pod_is_unreadable() {
    let mut unsafe_ = fixture();
    unsafe_.pod(&pod("a", "lies").phase("Failed"));
    let unreadable = fixture();
    let bad = pod("a", "x").set("/metadata/resourceVersion", json!(null));
    unreadable.world.apply(Kind::Pods, &bad, at(0));
    let mut without_consent = fixture();
    without_consent.pod(&pod("a", "naked"));
    for (fixture, must_not_try) in [(unsafe_, false), (unreadable, false), (without_consent, true)] {
        let plan = fixture.plan();
        assert_eq!((plan.must_not_start(false), plan.must_not_start(true)), (true, must_not_try), "{:?}", lines(&plan));
    }
    assert!(!fixture().plan().must_not_start(false));
}

#[test]
fn unreadable_budgets_are_reported_as_unknown() {
    let mut fixture = fixture();
    fixture.replica("a", "a-0");
    fixture.budgets_unread = true;
    assert_lines(&fixture.plan(), &["Evict 1 a-0: which PodDisruptionBudgets select it is not known"]);
}
