//! The shipped process, as the simulator starts it: the same `instance::run` as
//! `pod-safety run`, with the world's clock, tasks and connection.

use pod_safety::instance::{Config, run_shown};
use pod_safety::pod_gc;
use pod_safety::registry::Name;
use pod_safety_shared::clock::Task;
use pod_safety_shared::drive::Mode;
use pod_safety_shared::lease::LeaseConfig;
use pod_safety_simulator::world::Launched;

pub(super) fn launch(launched: Launched) -> Task {
    let Launched { connection, env, metrics, stop, identity, settings, shown } = launched;
    let lease = settings.lease_duration.map(|lease_duration| LeaseConfig {
        namespace: "kube-system".to_owned(),
        name: "pod-safety".to_owned(),
        identity: identity.clone(),
        lease_duration,
        renew_deadline: settings.renew_deadline,
        retry_period: settings.retry_period,
    });
    let config = Config {
        controllers: Name::ALL.into_iter().filter(|name| name.is_present()).collect(),
        mode: Mode::Guard,
        lease,
        pod_gc: pod_gc::Config {
            terminated_threshold: Some(settings.terminated_threshold),
            quarantine: settings.quarantine,
            trust_out_of_service_taint: false,
        },
        admin: None,
        identity,
    };
    Box::pin(async move {
        let show = |holds: &std::sync::Arc<_>| drop(shown.set(std::sync::Arc::clone(holds)));
        // One that does not start does nothing, which the checker's liveness finds.
        drop(run_shown(config, connection, env, metrics, stop, show).await);
    })
}
