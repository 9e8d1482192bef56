//! The shipped process, as the simulator starts it: the same `instance::run` as `pod-safety run`, with the world's
//! clock, tasks and connection. The simulator's own tests include this very file.

use std::sync::{Arc, LazyLock};

use pod_safety_process::instance::{self, Config};
use pod_safety_process::registry::{Name, Settings};
use pod_safety_process::run::parse_config;
use pod_safety_process::{fencing, node_lifecycle, pod_gc, volume_guard};
use pod_safety_shared::clock::Task;
use pod_safety_shared::lease::LeaseConfig;
use pod_safety_simulator::world::Launched;

/// The user name of the process in the world's API server.
const ACCOUNT: &str = "system:serviceaccount:kube-system:pod-safety";

/// The settings without flags.
static DEFAULTS: LazyLock<Option<Config>> = LazyLock::new(|| parse_config(&[]));

/// Starts a process with the settings of the world.
pub(crate) fn launch(launched: Launched) -> Task {
    let Launched { connection, env, transport, metrics, stop, identity, settings, shown } = launched;
    let lease = settings.lease_duration.map(|lease_duration| LeaseConfig {
        namespace: "kube-system".to_owned(),
        name: "pod-safety".to_owned(),
        identity: identity.clone(),
        lease_duration,
        renew_deadline: settings.renew_deadline,
        retry_period: settings.retry_period,
    });
    let runs = |name: &Name| settings.controllers().any(|controller| controller == name.as_str());
    let configure = |defaults: &Config| Config {
        controllers: Name::ALL.iter().copied().filter(runs).collect(),
        mode: settings.mode(),
        lease,
        settings: Settings {
            pod_gc: pod_gc::Config {
                terminated_threshold: Some(settings.terminated_threshold),
                quarantine: settings.quarantine,
                trust_out_of_service_taint: false,
                agent_reports: settings.agent_reports.map(Into::into),
            },
            node_lifecycle: node_lifecycle::Config { mode: settings.mode(), ..node_lifecycle::Config::kcm_defaults() },
            volume_guard: volume_guard::Config::with_quarantine(settings.quarantine),
            fencing: fencing::Config {
                mode: settings.mode(),
                own_node: None,
                guards_volumes: settings.volumes,
                include_dry_runs: true,
                history: None,
                provider_lag: settings.provider_behind,
            },
            fencing_namespaces: ["kube-system".to_owned()].into(),
            ..defaults.settings.clone()
        },
        traces: None,
        admin: None,
        identity,
        user: Arc::new(ACCOUNT.to_owned().into()),
    };
    let config = DEFAULTS.as_ref().map(configure);
    Box::pin(async move {
        let show = |holds: &Arc<_>| drop(shown.set(Arc::clone(holds)));
        let ended = match config {
            Some(config) => Some(instance::run(config, connection, transport, env, metrics, stop, show).await),
            None => None,
        };
        // A process that does not start does nothing, which the checker's liveness rule reports, too.
        debug_assert!(matches!(ended, Some(Ok(()))), "the process did not start: {ended:?}");
    })
}
