//! Flags of kube-controller-manager that have no effect here, so that its command line can be reused: those of the
//! controllers that pod-safety replaces, of its client and of its process. Each given flag is logged once at the
//! start.

use clap::{ArgAction, Args as ClapArgs};

/// For each flag: its field, its name, whether its value is optional, and the behaviour here.
macro_rules! carried {
    ($($field:ident, $flag:literal, $switch:literal, $instead:literal;)*) => {
        #[derive(Debug, ClapArgs)]
        pub(super) struct CarriedArgs {
            $(
                #[arg(long = $flag, hide = true, action = ArgAction::Append, num_args = usize::from(!$switch)..=1,
                    default_missing_value = "true", require_equals = $switch, allow_hyphen_values = true)]
                $field: Vec<String>,
            )*
        }

        impl CarriedArgs {
            /// The flags that were given, and the behaviour here.
            pub(super) fn given(&self) -> Vec<(&'static str, &'static str)> {
                let mut given = Vec::new();
                $(if !self.$field.is_empty() {
                    given.push((concat!("--", $flag), $instead));
                })*
                given
            }
        }
    };
}

carried! {
    node_monitor_period, "node-monitor-period", false, "there is no polling: a lost node is found at once";
    concurrent_disruption_syncs, "concurrent-disruption-syncs", false, "the deciding is one task, and statuses have as many writers as the authority";
    kube_api_qps, "kube-api-qps", false, "pod-safety limits requests in flight, not per second; API priority and fairness does the rest";
    kube_api_burst, "kube-api-burst", false, "pod-safety limits requests in flight, not per second; API priority and fairness does the rest";
    kube_api_content_type, "kube-api-content-type", false, "pod-safety requests protobuf, and reads JSON where a resource has nothing else";
    feature_gates, "feature-gates", false, "differences between Kubernetes versions are discovered from the API server";
    controller_start_interval, "controller-start-interval", false, "all controllers read one cache, so they start together";
    controller_shutdown_timeout, "controller-shutdown-timeout", false, "what is in progress when it stops ends with the leader's term";
    min_resync_period, "min-resync-period", false, "the cache needs no resync, and each controller does its own sweeps";
    use_service_account_credentials, "use-service-account-credentials", true, "all controllers use the identity that the process was given";
    profiling, "profiling", true, "there is no profiling over HTTP";
    contention_profiling, "contention-profiling", true, "there is no profiling over HTTP";
    v, "v", false, "--log-level says how much is logged";
    vmodule, "vmodule", false, "--log-level says how much is logged";
    logging_format, "logging-format", false, "--log-format says how logs are written";
    log_flush_frequency, "log-flush-frequency", false, "each line is written at once";
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        carried: CarriedArgs,
    }

    fn given(args: &[&str]) -> Vec<&'static str> {
        let read = Alone::try_parse_from(["run"].iter().chain(args)).unwrap();
        read.carried.given().into_iter().map(|(flag, _)| flag).collect()
    }

    #[test]
    fn ignored_flags_are_parsed_as_kube_controller_manager_does() {
        assert!(given(&[]).is_empty());
        assert_eq!(given(&["--node-monitor-period=5s", "--v", "2"]), ["--node-monitor-period", "--v"]);
        assert_eq!(
            given(&["--profiling", "--feature-gates=A=true", "--feature-gates=B=false"]),
            ["--feature-gates", "--profiling"]
        );
        assert_eq!(given(&["--use-service-account-credentials=false"]), ["--use-service-account-credentials"]);
    }

    #[test]
    fn an_ignored_flag_without_its_required_value_is_refused() {
        let message = Alone::try_parse_from(["run", "--kube-api-qps"]).unwrap_err().to_string();
        assert!(message.contains("--kube-api-qps"), "{message}");
    }
}
