//! Properties for all tolerations: no pod is evicted early, a restart lengthens nothing, and the order of taints does
//! not matter.

use pod_safety_shared::clock::Mono;
use proptest::prelude::*;

use super::*;

const KEYS: [&str; 3] = ["k", "l", "m"];

/// Taints by key, with when they were added; tolerations with for how long.
#[derive(Clone, Debug)]
struct Sketch {
    taints: Vec<(usize, i64)>,
    tolerations: Vec<(usize, Option<i64>)>,
    bound: i64,
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let taints = prop::collection::btree_map(0..KEYS.len(), -400_i64..400, 1..3);
    let tolerations = prop::collection::vec((0..KEYS.len(), prop::option::weighted(0.8, -5_i64..400)), 0..4);
    (taints, tolerations, -400_i64..400).prop_map(|(taints, tolerations, bound)| Sketch {
        taints: taints.into_iter().collect(),
        tolerations,
        bound,
    })
}

impl Sketch {
    fn taints(&self) -> Vec<Value> {
        self.taints.iter().map(|(key, added)| taint(KEYS[*key], Some(*added))).collect()
    }

    fn pod(&self) -> Obj {
        let tolerations: Vec<Value> =
            self.tolerations.iter().map(|(key, seconds)| toleration(KEYS[*key], *seconds)).collect();
        pod("a", &tolerations).set("/metadata/creationTimestamp", json!(timestamp(self.bound)))
    }

    /// When the pod should be evicted, in seconds since the start of the test, by the documentation; `None`: never.
    fn ends(&self) -> Option<i64> {
        let of = |(key, added): &(usize, i64)| {
            let met = (*added).max(self.bound);
            match self.tolerations.iter().find(|(of, _)| of == key) {
                None => Some(met),
                Some((_, None)) => None,
                Some((_, Some(seconds))) => Some(met + (*seconds).max(0)),
            }
        };
        self.taints.iter().filter_map(of).min()
    }

    /// When a process that starts in this second deletes the pod, in seconds since the start of the test.
    fn deleted(&self, starts: i64, taints: &[Value]) -> Option<i64> {
        let world = World::listed();
        world.set_wall_time(START_SECONDS + starts, at(0));
        world.apply(Kind::Pods, &self.pod(), at(0));
        world.apply(Kind::Nodes, &node(taints), at(0));
        let mut now = at(0);
        loop {
            world.confirm_all(now);
            let decision = decide(&Key("n".into()), &world.read().view(), now);
            if !decision.intents.is_empty() {
                return Some(starts + i64::try_from(now.since(Mono::default()).as_secs()).unwrap());
            }
            assert!(decision.holds.iter().all(|(_, hold)| matches!(hold, Hold::Tolerated { .. })));
            now = decision.requeue_at?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_pod_is_deleted_exactly_when_its_period_is_over_in_every_process(
        sketch in sketch(), starts in 400_i64..1_200,
    ) {
        let deleted = sketch.deleted(starts, &sketch.taints());
        prop_assert_eq!(deleted, sketch.ends().map(|ends| ends.max(starts)));
    }

    #[test]
    fn a_restart_lengthens_nothing(sketch in sketch(), starts in 400_i64..800, later in 0_i64..800) {
        let (before, after) = (sketch.deleted(starts, &sketch.taints()), sketch.deleted(starts + later, &sketch.taints()));
        prop_assert_eq!(after, before.map(|deleted| deleted.max(starts + later)));
    }

    #[test]
    fn the_order_of_taints_does_not_matter(sketch in sketch(), starts in 400_i64..800) {
        let mut reversed = sketch.taints();
        reversed.reverse();
        prop_assert_eq!(sketch.deleted(starts, &sketch.taints()), sketch.deleted(starts, &reversed));
    }

    /// Whatever the wall clock shows while the process runs: no pod is evicted before its toleration period has
    /// passed since the taint was seen, less the true age of the taint.
    #[test]
    fn no_clock_that_jumps_deletes_early(
        sketch in sketch(), jumps in prop::collection::vec((1_u64..60, -9_999_i64..9_999), 0..4), seen in 400_u64..500,
    ) {
        let world = World::listed();
        world.set_wall_time(START_SECONDS, at(0));
        world.apply(Kind::Pods, &sketch.pod(), at(0));
        for (second, jump) in &jumps {
            world.set_wall_time(START_SECONDS + i64::try_from(*second).unwrap() + jump, at(*second));
        }
        world.apply(Kind::Nodes, &node(&sketch.taints()), at(seen));
        if let Some(ends) = sketch.ends().filter(|ends| *ends > i64::try_from(seen).unwrap()) {
            let before = at(u64::try_from(ends).unwrap() - 1);
            world.confirm_all(before);
            let decision = decide(&Key("n".into()), &world.read().view(), before);
            prop_assert!(decision.intents.is_empty(), "{decision:?}");
        }
    }
}
