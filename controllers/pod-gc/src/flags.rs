//! The flags of pod garbage collection.

use std::time::Duration;

use clap::{ArgAction, Args};
use pod_safety_shared::clock::duration;
use pod_safety_shared::model::{BadName, parse_optional_name};

use super::Config;

/// The flags of pod garbage collection.
#[derive(Debug, Args)]
#[command(next_help_heading = "Pod garbage collection")]
#[group(skip)]
pub struct Flags {
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

impl Flags {
    /// The settings.
    ///
    /// # Errors
    /// A name that the API does not accept.
    pub fn into_config(self) -> Result<Config, BadName> {
        let Self { terminated_pod_gc_threshold, pod_gc_quarantine, trust_out_of_service_taint, agent_reports_from } =
            self;
        Ok(Config {
            terminated_threshold: usize::try_from(terminated_pod_gc_threshold).ok().filter(|&threshold| threshold > 0),
            quarantine: pod_gc_quarantine,
            trust_out_of_service_taint,
            agent_reports: parse_optional_name("agent-reports-from", agent_reports_from)?,
        })
    }
}

fn threshold(text: &str) -> Result<i32, String> {
    text.parse().map_err(|_not_one| format!("not a count; allowed is {} to {}", i32::MIN, i32::MAX))
}
