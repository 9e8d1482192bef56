//! Sentences about budgets; those of `disruption_test.go` (v1.37.2) among them.

use pod_safety_shared::model::{BadSelector, BudgetKey, Requirement, Selector, UnhealthyPolicy};
use pod_safety_shared::testing::at;
use proptest::prelude::*;

use super::*;

fn budget(limit: BudgetLimit) -> Budget {
    Budget {
        key: BudgetKey { namespace: "ns".into(), name: "budget".into(), uid: Uid::new("b").unwrap() },
        rv: "1".parse().unwrap(),
        generation: 3,
        selector: Ok(Some(Selector::default())),
        limit,
        unhealthy_policy: UnhealthyPolicy::default(),
        status: BudgetStatus::default(),
    }
}

fn min(amount: Amount) -> Budget {
    budget(BudgetLimit::MinAvailable(amount))
}

fn max(amount: Amount) -> Budget {
    budget(BudgetLimit::MaxUnavailable(amount))
}

fn scaled_by(owner: &str, replicas: i32) -> Owner {
    Owner::Scaled(Uid::new(owner).unwrap(), replicas)
}

fn member(name: &str, owner: Owner) -> Member {
    let uid = Uid::new(name).unwrap();
    Member { name: name.into(), uid, created: 0, ready: true, terminating: false, owner }
}

/// This many ready pods of one controller with this many replicas.
fn ready(count: usize, replicas: i32) -> Vec<Member> {
    (0..count).map(|number| member(&format!("p{number}"), scaled_by("rs", replicas))).collect()
}

fn numbers(budget: &Budget, members: &[Member]) -> [i32; 4] {
    let BudgetStatus { expected_pods, desired_healthy, current_healthy, disruptions_allowed, .. } =
        calculate(budget, members, at(1_000)).unwrap().status;
    [expected_pods, desired_healthy, current_healthy, disruptions_allowed]
}

#[test]
fn expected_desired_healthy_and_allowed_are_those_of_kcm() {
    let (pods, percent) = (Amount::Pods, Amount::Percent);
    let naked = |count: usize| (0..count).map(|number| member(&format!("n{number}"), Owner::NoController)).collect();
    let two_owners = || [ready(3, 4), vec![member("q", scaled_by("other", 6))]].concat();
    let cases: Vec<(&str, Budget, Vec<Member>, [i32; 4])> = vec![
        ("nothing wanted", budget(BudgetLimit::Unset), ready(3, 3), [0, 0, 3, 0]),
        ("no pods", min(pods(1)), vec![], [0, 1, 0, 0]),
        ("an integer counts naked pods", min(pods(1)), naked(2), [2, 1, 2, 1]),
        ("an integer above what is there", min(pods(5)), ready(3, 3), [3, 5, 3, 0]),
        ("percent of one controller", min(percent(30)), ready(10, 10), [10, 3, 10, 7]),
        ("percent is rounded up", min(percent(50)), ready(3, 3), [3, 2, 3, 1]),
        ("percent of what is wanted, not of what is there", min(percent(50)), ready(2, 10), [10, 5, 2, 0]),
        ("one may be missing", max(pods(1)), ready(3, 3), [3, 2, 3, 1]),
        ("one may be missing and is", max(pods(1)), ready(2, 3), [3, 2, 2, 0]),
        ("more may be missing than there are", max(pods(9)), ready(3, 3), [3, 0, 3, 3]),
        ("a missing percentage is rounded up", max(percent(30)), ready(10, 10), [10, 7, 10, 3]),
        ("a third of three is one", max(percent(30)), ready(3, 3), [3, 2, 3, 1]),
        ("a controller counts once", max(pods(2)), two_owners(), [10, 8, 4, 0]),
        ("naked pods are healthy but not expected", max(pods(1)), naked(3), [0, 0, 3, 0]),
        ("scaled to nothing", max(pods(1)), ready(2, 0), [0, 0, 2, 0]),
    ];
    for (sentence, budget, members, expected) in cases {
        assert_eq!(numbers(&budget, &members), expected, "{sentence}");
    }
}

#[test]
fn a_pod_is_healthy_if_it_is_ready_and_not_terminating() {
    let mut members = ready(5, 5);
    members[0].ready = false;
    members[1].terminating = true;
    assert_eq!(numbers(&max(Amount::Pods(3)), &members), [5, 2, 3, 1]);
}

#[test]
fn the_condition_states_whether_evictions_are_allowed() {
    let reported = |budget: &Budget| calculate(budget, &ready(3, 3), at(0)).unwrap().status.allowed_condition.unwrap();
    let yes = reported(&max(Amount::Pods(1)));
    assert_eq!((&*yes.status, &*yes.reason, &*yes.message, yes.observed_generation), ("True", "SufficientPods", "", 3));
    let status = calculate(&max(Amount::Pods(1)), &ready(3, 3), at(0)).unwrap().status;
    assert_eq!(status.observed_generation, 3, "the eviction API denies evictions by a status of an earlier generation");
    let no = reported(&max(Amount::Pods(0)));
    assert_eq!((&*no.status, &*no.reason), ("False", "InsufficientPods"));
}

/// The eviction of this pod was allowed; this process saw it in that second.
fn evicted(mut budget: Budget, name: &str, seen: u64, pod: Option<&str>) -> Budget {
    let pod = pod.map(|uid| Uid::new(uid).unwrap());
    budget.status.disrupted.insert(name.into(), DisruptedPod { at: 1_000, first_seen: at(seen), pod });
    budget
}

#[test]
fn a_pod_whose_eviction_was_allowed_counts_as_gone_for_two_minutes() {
    let budget = evicted(max(Amount::Pods(1)), "p0", 1_000, None);
    let then = |now| calculate(&budget, &ready(3, 3), at(now)).unwrap();
    let soon = then(1_120);
    assert_eq!((soon.status.current_healthy, soon.status.disruptions_allowed), (2, 0));
    assert_eq!((soon.recheck_at, soon.status.disrupted.len()), (Some(at(1_120)), 1));
    let late = then(1_121);
    assert_eq!((late.status.current_healthy, late.status.disruptions_allowed), (3, 1));
    assert_eq!((late.recheck_at, late.not_deleted.len(), late.status.disrupted.len()), (None, 1, 0));
    let two = evicted(evicted(max(Amount::Pods(2)), "p0", 1_050, None), "p1", 1_000, None);
    let result = calculate(&two, &ready(3, 3), at(1_060)).unwrap();
    assert_eq!(result.recheck_at, Some(at(1_120)), "the first of them expires then");
}

#[test]
fn the_two_minutes_are_by_our_clock_whatever_the_api_servers_clock_shows() {
    for clock in [i64::MIN, 0, 1_000, i64::MAX] {
        let mut budget = evicted(max(Amount::Pods(1)), "p0", 1_000, Some("p0"));
        budget.status.disrupted.values_mut().for_each(|entry| entry.at = clock);
        let allowed = |now| calculate(&budget, &ready(3, 3), at(now)).unwrap().status.disruptions_allowed;
        assert_eq!((allowed(1_000), allowed(1_120), allowed(1_121)), (0, 0, 1), "{clock}");
    }
}

#[test]
fn an_entry_is_removed_with_its_pod() {
    let budget = evicted(evicted(max(Amount::Pods(2)), "gone", 1_000, Some("gone")), "p0", 1_000, Some("p0"));
    let mut members = ready(3, 3);
    members[0].terminating = true;
    let result = calculate(&budget, &members, at(1_001)).unwrap();
    assert!(result.status.disrupted.is_empty() && result.not_deleted.is_empty());
    assert_eq!(result.status.current_healthy, 2);
}

#[test]
fn the_successor_of_an_evicted_pod_counts() {
    let allowed = |budget: &Budget, members: &[Member]| {
        let result = calculate(budget, members, at(1_002)).unwrap();
        (result.status.disruptions_allowed, result.status.disrupted.len())
    };
    let mut members = ready(3, 3);
    let seen = evicted(max(Amount::Pods(1)), "p0", 1_000, Some("p0"));
    assert_eq!(allowed(&seen, &members), (0, 1), "the same pod");
    members[0].uid = Uid::new("another").unwrap();
    assert_eq!(allowed(&seen, &members), (1, 0), "another pod of that name");
    let not_seen = evicted(max(Amount::Pods(1)), "p0", 1_000, None);
    members[0].created = 1_000;
    assert_eq!(allowed(&not_seen, &members), (0, 1), "made before, for all that is known");
    members[0].created = 1_001;
    assert_eq!(allowed(&not_seen, &members), (1, 0), "made after");
}

#[test]
fn one_pod_without_a_scale_does_not_fail_a_budget() {
    let mut members = ready(3, 3);
    members.push(member("job-pod", Owner::Unscaled("Job/j".into())));
    for budget in [max(Amount::Pods(1)), min(Amount::Percent(60))] {
        let result = calculate(&budget, &members, at(0)).unwrap();
        assert_eq!((result.status.expected_pods, result.status.current_healthy), (3, 3));
        assert_eq!(result.unscaled_pods, [("job-pod".into(), "Job/j".into())]);
    }
    assert_eq!(numbers(&min(Amount::Pods(1)), &members), [4, 1, 4, 3], "an integer asks for no owner");
}

#[test]
fn a_budget_that_cannot_be_calculated_allows_nothing_and_states_why() {
    let bad = Requirement::expression("k", "Near", &[]).unwrap_err();
    assert!(matches!(bad, BadSelector::Operator { .. }));
    let mut unreadable = budget(BudgetLimit::Unset);
    unreadable.selector = Err(bad);
    let amount = BudgetLimit::Unreadable("maxUnavailable", Amount::parse("many").unwrap_err());
    let unknown = [member("p", Owner::Unknown("GET scale: timed out".into()))];
    let three = [member("p", scaled_by("set", 3))];
    let cases: [(Budget, &[Member], &str); 5] = [
        (unreadable, &[], "spec.selector: matchExpressions of key \"k\": operator \"Near\""),
        (budget(amount), &[], "spec.maxUnavailable: \"many\" is neither a number nor a percentage"),
        (budget(BudgetLimit::MinAvailable(Amount::Pods(-2))), &[], "spec.minAvailable: it comes to -2 of 0 pods"),
        (
            budget(BudgetLimit::MinAvailable(Amount::Percent(-99))),
            &three,
            "spec.minAvailable: it comes to -2 of 3 pods",
        ),
        (max(Amount::Pods(1)), &unknown, "the controller of pod p: GET scale: timed out; it is retried"),
    ];
    for (mut budget, members, says) in cases {
        budget.status.current_healthy = 7;
        budget.status.observed_generation = 1;
        budget.generation = 2;
        budget.status.disruptions_allowed = 2;
        let why = calculate(&budget, members, at(0)).unwrap_err();
        let status = fail_safe_status(&budget, &why);
        let allowed = status.allowed_condition.unwrap();
        assert!(allowed.message.starts_with(says), "{}", allowed.message);
        assert_eq!((&*allowed.status, &*allowed.reason), ("False", "SyncFailed"));
        assert_eq!((status.disruptions_allowed, status.current_healthy), (0, 7));
        assert_eq!((status.observed_generation, allowed.observed_generation), (1, 1), "as KCM's failSafe");
    }
}

fn any_member() -> impl Strategy<Value = Member> {
    let owner = prop_oneof![
        Just(Owner::NoController),
        (0..3_u8, 0..9_i32).prop_map(|(uid, replicas)| scaled_by(&format!("o{uid}"), replicas)),
        Just(Owner::Unscaled("Job/j".into())),
    ];
    ("[a-e]", 0..400_i64, any::<bool>(), any::<bool>(), owner).prop_map(|(name, created, ready, terminating, owner)| {
        Member {
            uid: Uid::new(&format!("{name}{created}")).unwrap(),
            name: name.into(),
            created,
            ready,
            terminating,
            owner,
        }
    })
}

fn any_budget() -> impl Strategy<Value = Budget> {
    let amount = prop_oneof![(0..9_i32).prop_map(Amount::Pods), (0..=100_i32).prop_map(Amount::Percent)];
    let limit = (any::<bool>(), amount).prop_map(|(min, amount)| {
        if min { BudgetLimit::MinAvailable(amount) } else { BudgetLimit::MaxUnavailable(amount) }
    });
    let entry = (0..400_i64, 0..400_u64, any::<Option<bool>>()).prop_map(|(time, seen, pod)| DisruptedPod {
        at: time,
        first_seen: at(seen),
        pod: pod.map(|first| Uid::new(if first { "a1" } else { "b2" }).unwrap()),
    });
    let disrupted = proptest::collection::btree_map("[a-e]".prop_map(Box::from), entry, 0..4);
    (limit, disrupted).prop_map(|(limit, disrupted)| {
        let mut budget = budget(limit);
        budget.status.disrupted = disrupted;
        budget
    })
}

proptest! {
    /// Whatever is allowed, as many healthy pods remain as the budget requires.
    #[test]
    fn allowed_evictions_leave_the_desired_healthy_pods(budget in any_budget(), members in proptest::collection::vec(any_member(), 0..8), now in 0..600_u64) {
        let BudgetStatus { current_healthy, desired_healthy, disruptions_allowed, expected_pods, .. } =
            calculate(&budget, &members, at(now)).unwrap().status;
        prop_assert!(disruptions_allowed >= 0);
        prop_assert!(disruptions_allowed == 0 || current_healthy - disruptions_allowed >= desired_healthy);
        prop_assert!(disruptions_allowed == 0 || expected_pods > 0);
    }

    /// A status that was written is not written again.
    #[test]
    fn a_second_calculation_changes_nothing(budget in any_budget(), members in proptest::collection::vec(any_member(), 0..8), now in 0..600_u64) {
        let first = calculate(&budget, &members, at(now)).unwrap();
        let again = calculate(&Budget { status: first.status.clone(), ..budget }, &members, at(now)).unwrap();
        prop_assert_eq!(first.status, again.status);
    }
}
