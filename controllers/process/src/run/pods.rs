//! The flags of pod garbage collection.

use std::time::Duration;

use crate::pod_gc::Config;
use clap::{ArgAction, Args as ClapArgs};

use super::{BadFlags, optional_name};
use crate::duration;

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Pod garbage collection")]
pub(super) struct PodArgs {
    /// Terminated pods above this number are collected, evicted ones first, then the oldest. 0 or less: never
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 12_500,
        value_parser = threshold,
        allow_hyphen_values = true,
        env = "POD_SAFETY_TERMINATED_POD_GC_THRESHOLD"
    )]
    terminated_pod_gc_threshold: i32,

    /// How long a node must be missing, without a report of its kubelet, before its pods are removed
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "40s",
        value_parser = duration::parse,
        allow_hyphen_values = true,
        env = "POD_SAFETY_POD_GC_QUARANTINE"
    )]
    pod_gc_quarantine: Duration,

    /// Accept the taint node.kubernetes.io/out-of-service on a node that is not Ready as proof that it is off,
    /// as kube-controller-manager does. A wrong taint then costs data: two copies of a pod may run
    #[arg(
        long,
        default_value_t = false,
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        require_equals = true,
        env = "POD_SAFETY_TRUST_OUT_OF_SERVICE_TAINT"
    )]
    trust_out_of_service_taint: bool,

    /// Accept reports of pod-safety-agent as proof that a pod has ended whose kubelet does not say so. Its Leases are in this namespace
    #[arg(long, value_name = "NAMESPACE", env = "POD_SAFETY_AGENT_REPORTS_FROM")]
    agent_reports_from: Option<String>,
}

impl PodArgs {
    pub(super) fn into_config(self) -> Result<Config, BadFlags> {
        let Self { terminated_pod_gc_threshold, pod_gc_quarantine, trust_out_of_service_taint, agent_reports_from } =
            self;
        Ok(Config {
            terminated_threshold: usize::try_from(terminated_pod_gc_threshold).ok().filter(|&threshold| threshold > 0),
            quarantine: pod_gc_quarantine,
            trust_out_of_service_taint,
            agent_reports: optional_name("agent-reports-from", agent_reports_from)?,
        })
    }
}

fn threshold(text: &str) -> Result<i32, String> {
    text.parse().map_err(|_not_one| format!("not a count; allowed is {} to {}", i32::MIN, i32::MAX))
}

#[cfg(test)]
mod tests {
    use crate::run::parse_config;

    #[test]
    fn each_flag_sets_its_own_setting_and_zero_means_indefinitely_or_never() {
        for (flags, hours, threshold) in
            [("", Some(2_160), Some(12_500)), ("--fencing-history=0 --terminated-pod-gc-threshold=0", None, None)]
        {
            let config = parse_config(&flags.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).unwrap();
            let kept = config.fencing_history.map(|kept| kept.as_secs() / 3_600);
            assert_eq!((kept, config.pod_gc.terminated_threshold), (hours, threshold), "{flags}");
        }
        let flags = "--leader-elect-lease-duration=31s --leader-elect-renew-deadline=21s --pod-gc-quarantine=41s \
            --leader-elect-retry-period=11s --stale-pod-disruption-timeout=51s --fence-provider-behind=61s";
        let config = parse_config(&flags.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).unwrap();
        let lease = config.lease.unwrap();
        let spans = [lease.lease_duration, lease.renew_deadline, lease.retry_period, config.pod_gc.quarantine];
        assert_eq!(spans.map(|span| span.as_secs()), [31, 21, 11, 41]);
        let spans = [config.volume_guard.quarantine, config.disruption.stale_pod_timeout, config.provider_lag];
        assert_eq!(spans.map(|span| span.as_secs()), [41, 51, 61]);
    }
}
