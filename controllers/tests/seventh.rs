//! A seventh controller, built from public items only: its keys, its holds, its changes and its decisions. No crate
//! below depends on it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pod_safety_shared::authority::{Authority, Claim, ForceDeleteRequest, Intent, Parts, VerifierConfig};
use pod_safety_shared::cache::{Change, FreshnessError, View};
use pod_safety_shared::clock::{Env, Mono};
use pod_safety_shared::controller_loop::{
    Controller, ControllerContext, ControllerLoop, Decision, HoldReason, Holds, LoopHeartbeats, Mode, Subject,
};
use pod_safety_shared::events::{EventType, Recorder};
use pod_safety_shared::lease::Leadership;
use pod_safety_shared::metrics::Metrics;
use pod_safety_shared::model::{Kind, Uid};
use pod_safety_shared::record::Journal;
use pod_safety_shared::testing::objects::pod;
use pod_safety_shared::testing::{World, connection, metrics_text};
use pod_safety_shared::transport::NoTransport;
use serde_json::Value;
use strum::{IntoStaticStr, VariantNames};
use tokio::sync::watch;

/// Why a pod is not removed.
#[derive(Debug, thiserror::Error, IntoStaticStr, VariantNames)]
enum Hold {
    #[error(transparent)]
    #[strum(transparent)]
    Unfresh(#[from] FreshnessError),
    #[error("the pod is not deleted")]
    NotDeleted,
}

impl HoldReason for Hold {
    fn reason(&self) -> &'static str {
        self.into()
    }

    fn event(&self) -> Option<(EventType, &'static str)> {
        None
    }
}

/// Removes deleted pods that were never scheduled, as `pod-gc` does.
struct Toy;

impl Controller for Toy {
    type Key = Uid;
    type Hold = Hold;

    const NAME: &'static str = "toy";
    const KINDS: &'static [Kind] = &[Kind::Pods];

    fn keys_for(&self, change: &Change<'_>, enqueue: &mut dyn FnMut(Uid)) {
        if let Change::Pod { after: Some(pod), .. } = change {
            enqueue(pod.uid().clone());
        }
    }

    fn list_keys(&self, view: &View<'_>, enqueue: &mut dyn FnMut(Uid)) {
        view.all_pods().for_each(|pod| enqueue(pod.uid().clone()));
    }

    fn decide(&self, key: &Uid, view: &View<'_>, now: Mono) -> Decision<Hold> {
        if let Err(unfresh) = view.check_fresh(Kind::Pods, now) {
            return Decision::hold(Subject::Everything, unfresh);
        }
        let Some(pod) = view.pod(key) else { return Decision::default() };
        if pod.deletion.is_none() {
            return Decision::hold(Subject::Pod(pod.key.clone()), Hold::NotDeleted);
        }
        let force =
            ForceDeleteRequest { pod: pod.key.clone(), rv: pod.rv, claim: Claim::NeverScheduled, requested: None };
        Decision { intents: vec![Intent::Force(force)], ..Decision::default() }
    }
}

#[tokio::test(start_paused = true)]
async fn a_seventh_controller_needs_no_change_of_what_is_below_it() {
    let env = Env::real(1);
    let (received, world, metrics) = (Arc::<Mutex<Vec<String>>>::default(), World::listed(), Metrics::new().unwrap());
    let requests = Arc::clone(&received);
    let says = move |method: &str, path: &str, _: &[u8]| -> (u16, Value) {
        requests.lock().push(format!("{method} {}", path.split('?').next().unwrap()));
        (200, pod("gone").terminating().0)
    };
    let journal = Arc::<Journal>::default();
    let events = Recorder::new(env.clone(), metrics.authority.clone());
    let holds = Holds::new(Arc::clone(&journal), events.clone(), metrics.registry()).unwrap();
    let leadership = Leadership::always();
    let authority = Authority::start(Parts {
        connection: connection(&env, Arc::new(says)),
        cache: Arc::clone(world.cache()),
        env: env.clone(),
        config: VerifierConfig {
            quarantine: Duration::from_secs(40),
            trust_out_of_service_taint: false,
            agent_reports: None,
            exclusive_backends: [].into(),
        },
        leadership: Arc::clone(&leadership),
        journal: Arc::clone(&journal),
        events,
        metrics: metrics.authority.clone(),
        transport: Arc::new(NoTransport),
        identity: "this-process".to_owned(),
    });
    let (cache, queues) = (Arc::clone(world.cache()), metrics.queues.clone());
    let around = ControllerContext { cache, authority, env: env.clone(), mode: Mode::Guard, journal, holds, queues };
    around.holds.register("toy", &Hold::reason_names());
    let beat = LoopHeartbeats::default().register("toy", env.now());
    let (stop, stopped) = watch::channel(false);
    env.spawner.spawn("toy", Box::pin(ControllerLoop::new(Toy, around).run(beat, leadership.subscribe(), stopped)));

    world.put(Kind::Pods, pod("stays"), env.now());
    world.put(Kind::Pods, pod("gone").terminating(), env.now());
    tokio::time::sleep(Duration::from_secs(5)).await;

    let path = "/api/v1/namespaces/ns/pods/gone";
    assert_eq!(*received.lock(), [format!("PATCH {path}/status"), format!("DELETE {path}")]);
    let page = metrics_text(metrics.registry());
    for (reason, count) in [("NotDeleted", 1), ("NotSynced", 0), ("Stale", 0)] {
        let line = format!("pod_safety_holds{{controller=\"toy\",reason=\"{reason}\"}} {count}");
        assert!(page.contains(&line), "{line} in\n{page}");
    }
    drop(stop);
}
