//! Properties that hold for every cluster.

use super::super::{Config, PodGc};
use pod_safety_shared::authority::Claim;
use pod_safety_shared::controller_loop::Controller;
use pod_safety_shared::testing::objects::{node, pod};
use proptest::prelude::*;

use super::*;

proptest! {
    /// Whatever the cluster looks like, the collector requests nothing that its own rules do not cover.
    #[test]
    fn every_claim_fits_its_pod(
        phases in prop::collection::vec((0_usize..6, any::<bool>(), 0_usize..3, 0_usize..3), 0..12),
        witnessed in any::<bool>(), silent in any::<bool>(), now in 0_u64..120, trust in any::<bool>(),
    ) {
        let world = World::listed();
        world.apply(Kind::Nodes, &node("there").tainted(), at(0));
        for (at_index, (phase, deleted, running, place)) in phases.iter().enumerate() {
            let word = ["Pending", "Running", "Succeeded", "Failed", "Unknown", ""][*phase];
            let mut made = pod(&format!("p{at_index}")).on(["", "there", "gone"][*place]).phase(word);
            made = [made.clone(), made.clone().running(), made.starting()][*running].clone();
            if *deleted { made = made.terminating(); }
            world.apply(Kind::Pods, &made, at(0));
        }
        if silent { world.set_unreachable_before_node_deleted("gone"); }
        if witnessed { world.record_absence_read("gone", at(1)); }
        world.confirm_all(at(now));
        let config = Config { trust_out_of_service_taint: trust, ..config() };
        let guard = world.read();
        let view = guard.view();
        let mut keys = Vec::new();
        let collector = PodGc::new(config.clone(), &prometheus::Registry::new()).unwrap();
        collector.list_keys(&view, &mut |key| keys.push(key));
        for key in keys {
            let decision = decide(&key, &view, at(now), &config);
            prop_assert_eq!(&decision, &decide(&key, &view, at(now), &config), "pure");
            for intent in &decision.intents {
                if let Intent::Delete(delete) = intent {
                    let pod = view.pod(&delete.pod.uid).unwrap();
                    prop_assert!(pod.deletion.is_none() && pod.node.as_deref() == Some("gone") && !silent);
                }
                let Intent::Force(force) = intent else { continue };
                let pod = view.pod(&force.pod.uid).unwrap();
                prop_assert_eq!(force.rv, pod.rv);
                match &force.claim {
                    Claim::NodeGone { node } => {
                        prop_assert!(pod.node.as_ref() == Some(node) && &**node == "gone");
                        prop_assert!(witnessed && now > QUARANTINE);
                        let is_due = pod.report_due_at(false).is_some_and(|from| from <= at(1));
                        prop_assert!(silent || is_due && !pod.worker_may_be_busy || pod.has_terminated());
                    }
                    Claim::OutOfService { node } => prop_assert!(trust && pod.deletion.is_some() && &**node == "there"),
                    Claim::Fenced { node, .. } => prop_assert!(pod.deletion.is_some() && &**node == "there"),
                    Claim::PodsEnded { .. } => prop_assert!(false, "reports of agents are not accepted"),
                    Claim::NeverScheduled => prop_assert!(pod.node.is_none() && pod.deletion.is_some()),
                    Claim::KubeletTerminated => prop_assert!(pod.phase.is_terminal() && pod.running_containers == 0),
                }
            }
        }
    }
}
