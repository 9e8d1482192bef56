//! Fuzz target: flags of any form, as `explain` and `doctor` find them in the Deployment of another process.

use clap::CommandFactory as _;
use pod_safety_fuzz::fuzz;
use pod_safety_shared::model::is_kubernetes_name;

use super::*;

const WORDS: &[&str] = &[
    "=",
    ",",
    "-",
    "*",
    "pod-gc",
    "disruption",
    "node-lifecycle",
    "fencing",
    "volume-guard",
    "observe",
    "guard",
    "replace",
    "true",
    "false",
    "0",
    "1",
    "0.5",
    "15s",
    "1h",
    "-1s",
    "1000h",
    "NaN",
    "inf",
    "0.0.0.0:8080",
    "[::1]:0",
    "kube-system",
    "Kube",
    "/",
    "run",
];

/// Accepted settings can work: a leader stops before others begin, no time is negative, and names are valid.
#[test]
fn flags_of_any_form_are_refused_or_give_settings_that_can_work() {
    fuzz!(2_000, |draw| {
        let command = ArgsOnly::command();
        let flags: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        let arguments: Vec<String> = (0..draw.below(5))
            .flat_map(|_| match draw.below(8) {
                0 => vec![draw.text(WORDS)],
                1 => vec![format!("--{}", draw.word(&flags)), draw.text(WORDS)],
                2 | 3 => vec![format!("--{}={}", draw.word(&flags), draw.text(WORDS))],
                _ => vec![format!("--{}={}", draw.word(&flags), draw.word(WORDS))],
            })
            .collect();
        let Some(config) = parse_config(&arguments) else { return };
        if let Some(lease) = &config.lease {
            let LeaseConfig { lease_duration, renew_deadline, retry_period, .. } = lease;
            assert!(lease_duration > renew_deadline && renew_deadline > retry_period, "{arguments:?}: {lease:?}");
            assert!(is_kubernetes_name(&lease.name) && is_kubernetes_name(&lease.namespace), "{lease:?}");
        }
        let nodes = &config.settings.node_lifecycle;
        for rate in [nodes.rates.normal, nodes.rates.disrupted] {
            assert!((0.0..=1000.0).contains(&rate), "{arguments:?}: {rate}");
        }
        assert!(nodes.rates.unhealthy > 0.0 && nodes.rates.unhealthy <= 1.0, "{arguments:?}");
        assert!(config.settings.fencing_namespaces.iter().all(|name| is_kubernetes_name(name)), "{arguments:?}");
        let twice =
            registry::parse_list(&config.controllers.iter().map(|name| name.as_str().to_owned()).collect::<Vec<_>>());
        assert_eq!(twice.unwrap(), config.controllers, "{arguments:?}");
    });
}
