//! Advice has the predicted effect when it is followed, and the parts of an explanation agree.

use pod_safety_disruption::{Config, DELETION_TIMEOUT, Decision, Key, decide};
use pod_safety_shared::authority::{Intent, Update};
use pod_safety_shared::controller_loop::HoldReason as _;
use pod_safety_shared::model::{Amount, BudgetLimit, BudgetStatus};
use pod_safety_shared::testing::objects::Obj;
use proptest::prelude::*;

use super::*;

/// The controller of the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Controller {
    StatefulSet,
    /// A custom resource whose scale counts pods, or pairs of them.
    Fleet,
    Pairs,
    /// A custom resource without a scale.
    Unscaled,
    Nobody,
}

/// A generated pod: whether the budget selects it, and its state.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    selected: bool,
    ready: bool,
    terminated: bool,
    terminating: bool,
}

impl Drawn {
    const HEALTHY: Self = Self { selected: true, ready: true, terminated: false, terminating: false };
}

#[derive(Clone, Debug)]
struct Fixture {
    controller: Controller,
    replicas: i32,
    pods: Vec<Drawn>,
    limit: BudgetLimit,
}

impl Fixture {
    fn pod(&self, index: usize, drawn: Drawn) -> Obj {
        let pod = pod(if drawn.selected { "db" } else { "replica" }, &format!("db-{index}"));
        let pod = match self.controller {
            Controller::StatefulSet => pod.owned_by("apps/v1", "StatefulSet", "db"),
            Controller::Fleet | Controller::Pairs | Controller::Unscaled => {
                pod.owned_by("example.com/v1", "Fleet", "db")
            }
            Controller::Nobody => pod,
        };
        let pod = if drawn.terminating { pod.terminating() } else { pod };
        match (drawn.terminated, drawn.ready) {
            (true, _) => not_ready(pod).set("/status", json!({ "phase": "Succeeded" })),
            (false, true) => pod,
            (false, false) => not_ready(pod),
        }
    }

    fn world(&self, status: &BudgetStatus) -> World {
        let world = World::listed();
        for (index, drawn) in self.pods.iter().enumerate() {
            world.apply(Kind::Pods, &self.pod(index, *drawn), at(0));
            let replicas = match self.controller {
                Controller::Fleet | Controller::Pairs => Scale::Replicas(self.replicas),
                Controller::StatefulSet | Controller::Unscaled | Controller::Nobody => Scale::None,
            };
            if self.controller != Controller::Nobody && self.controller != Controller::StatefulSet {
                world.set_scale(&format!("uid-db-{index}"), Ok(replicas), at(60));
            }
        }
        if self.controller == Controller::StatefulSet {
            stateful_set(&world, "db", self.replicas);
        }
        let of = |amount: &Amount| match amount {
            Amount::Pods(pods) => json!(pods),
            Amount::Percent(_) => json!(amount.to_string()),
        };
        let spec = match &self.limit {
            BudgetLimit::MaxUnavailable(amount) => json!({ "maxUnavailable": of(amount) }),
            BudgetLimit::MinAvailable(amount) => json!({ "minAvailable": of(amount) }),
            BudgetLimit::Unset | BudgetLimit::Unreadable(..) => json!({}),
        };
        let numbers =
            [2, status.current_healthy, status.desired_healthy, status.expected_pods, status.disruptions_allowed];
        world.apply(Kind::Budgets, &budget("b", "db", &spec, numbers.map(i64::from)), at(0));
        world.confirm_all(at(60));
        world
    }

    /// The same when every pod that its controller should have exists and is Ready.
    fn all_healthy(&self) -> Self {
        let mut well = self.clone();
        // Such a controller may replace a pod that terminates.
        let replaces = self.controller == Controller::Unscaled;
        well.pods.retain(|pod| replaces || pod.terminated || !pod.terminating);
        well.pods.iter_mut().for_each(|pod| (pod.ready, pod.terminating) = (true, false));
        let live = well.pods.iter().filter(|pod| !pod.terminated).count();
        let is_scaled = matches!(self.controller, Controller::StatefulSet | Controller::Fleet | Controller::Pairs);
        let expected_pods = if is_scaled { usize::try_from(self.replicas).unwrap() } else { 0 };
        well.pods.extend(std::iter::repeat_n(Drawn::HEALTHY, expected_pods.saturating_sub(live)));
        well
    }

    fn decide(&self, status: &BudgetStatus) -> Decision {
        let world = self.world(status);
        let guard = world.read();
        decide(&Key::Budget(uid("uid-b")), &guard.view(), at(60), &Config { stale_pod_timeout: DELETION_TIMEOUT })
    }

    /// The status that the controller writes.
    fn status(&self) -> BudgetStatus {
        let never = BudgetStatus { observed_generation: -1, ..BudgetStatus::default() };
        let written = |intent: Intent| match intent {
            Intent::Update(Update::Budget(update)) => Some(update.status),
            _ => None,
        };
        let initial = BudgetStatus { current_healthy: 99, ..never };
        self.decide(&initial).intents.into_iter().find_map(written).unwrap()
    }
}

fn amounts() -> impl Strategy<Value = Amount> {
    prop_oneof![(0..5).prop_map(Amount::Pods), prop::sample::select(vec![0, 30, 50, 67, 100]).prop_map(Amount::Percent)]
}

fn fixtures() -> impl Strategy<Value = Fixture> {
    let behind = prop::sample::select(vec![
        Controller::StatefulSet,
        Controller::Fleet,
        Controller::Pairs,
        Controller::Unscaled,
        Controller::Nobody,
    ]);
    let limit =
        prop_oneof![amounts().prop_map(BudgetLimit::MinAvailable), amounts().prop_map(BudgetLimit::MaxUnavailable)];
    let drawn = [0.7, 0.7, 0.15, 0.15].map(prop::bool::weighted);
    let drawn =
        drawn.prop_map(|[selected, ready, terminated, terminating]| Drawn { selected, ready, terminated, terminating });
    (behind, 0..5, prop::collection::vec(drawn, 1..6), limit).prop_map(|(behind, replicas, mut pods, limit)| {
        pods[0].selected = true;
        // A controller that counts pods has no more pods than replicas.
        match behind {
            Controller::StatefulSet | Controller::Fleet => pods.truncate(usize::try_from(replicas).unwrap().max(1)),
            Controller::Pairs | Controller::Unscaled | Controller::Nobody => {}
        }
        Fixture { controller: behind, replicas, pods, limit }
    })
}

proptest! {
    #[test]
    fn a_followed_remediation_allows_the_predicted_evictions(fixture in fixtures()) {
        let status = fixture.status();
        let world = fixture.world(&status);
        let guard = world.read();
        let view = guard.view();
        let explained = explain_budget(budget_of(&view, "b"), &view, at(60));
        let ceiling = explained.arithmetic.ceiling.unwrap();
        prop_assert!(status.disruptions_allowed <= ceiling, "now {} at best {ceiling}", status.disruptions_allowed);
        prop_assert_eq!(fixture.all_healthy().status().disruptions_allowed, ceiling, "at best");
        let held = fixture.decide(&status).holds.iter().any(|(_, hold)| hold.reason() == "DisruptionsNeverAllowed");
        prop_assert_eq!(held, explained.verdict == BudgetVerdict::Never, "{:?}", explained.verdict);
        for remediation in &explained.remediations {
            let (followed, promised) = match &remediation.allows {
                None => continue,
                Some(PredictedAllowance::Spec(limit, promised)) => {
                    (Fixture { limit: limit.clone(), ..fixture.clone() }, promised)
                }
                Some(PredictedAllowance::Scale(replicas, promised)) => (Fixture { replicas: *replicas, ..fixture.clone() }, promised),
            };
            let allowed = followed.all_healthy().status().disruptions_allowed;
            prop_assert!(*promised > 0 && allowed == *promised, "{remediation:?}: {allowed}");
        }
    }
}

/// One primary of three pods: the budget selects one pod, and another pod does not replace it.
#[test]
fn bug_a_budget_that_selects_one_of_three_pods_had_a_ceiling_of_two() {
    let drawn = |selected| Drawn { selected, ..Drawn::HEALTHY };
    let fixture = |limit| Fixture {
        controller: Controller::StatefulSet,
        replicas: 3,
        pods: vec![drawn(true), drawn(false), drawn(false)],
        limit,
    };
    let primary = fixture(BudgetLimit::MinAvailable(Amount::Pods(1)));
    let world = primary.world(&primary.status());
    let (verdict, sum, _, remediations) = summarize(&world, "b");
    assert_eq!((&*verdict, &*sum), ("Never", "1 healthy - 1 needed = 0"));
    assert_eq!(
        remediations,
        [
            "have what sets its labels choose a pod of another node, of the 3 there should be => the pods that it no longer selects can go",
            "minAvailable: 0 in place of minAvailable: 1 => 1 at a time, and none runs meanwhile",
            "unhealthyPodEvictionPolicy: AlwaysAllow => nothing now: every pod that it blocks is healthy",
        ]
    );
    let guard = world.read();
    let explained = explain_budget(budget_of(&guard.view(), "b"), &guard.view(), at(60));
    assert_eq!(explained.limit(), "it selects 1 of 3 pods");
}

/// The advice was an amount that needs a scale, and then another such amount.
#[test]
fn bug_the_remediation_for_a_pod_without_a_scale_never_allowed_an_eviction() {
    let limit = BudgetLimit::MinAvailable(Amount::Pods(1));
    let fixture = Fixture { controller: Controller::Unscaled, replicas: 0, pods: vec![Drawn::HEALTHY], limit };
    let (verdict, _, _, remediations) = summarize(&fixture.world(&fixture.status()), "b");
    assert_eq!(
        (&*verdict, &*remediations[0]),
        ("Never", "minAvailable: 0 in place of minAvailable: 1 => 1 at a time, and none runs meanwhile")
    );
}
