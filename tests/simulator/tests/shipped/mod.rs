//! The shipped process as the simulator starts it.

use pod_safety::instance::{Config, run_shown};
use pod_safety::pod_gc;
use pod_safety::registry::Name;
use pod_safety_shared::clock::Task;
use pod_safety_shared::drive::Mode;
use pod_safety_shared::lease::LeaseConfig;
use pod_safety_simulator::world::Launched;

/// Runs `pod_safety::instance::run_shown` with the settings of the world.
pub(crate) fn launch(launched: Launched) -> Task {
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
        controllers: vec![Name::PodGc],
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
        let ended = run_shown(config, connection, env, metrics, stop, show).await;
        assert!(ended.is_ok(), "the process did not start: {ended:?}");
    })
}
