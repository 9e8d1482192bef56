//! The flags of fencing.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use pod_safety_shared::clock::duration;
use pod_safety_shared::controller_loop::Mode;
use pod_safety_shared::model::{BadName, parse_names, parse_optional_name};

use super::Config;

/// The flags of fencing.
#[derive(Debug, Args)]
#[command(next_help_heading = "Fencing")]
#[group(skip)]
pub struct Flags {
    /// Namespaces in which FenceDevices and PodSafetyRemediations are watched. A user who may write one of them there
    /// can switch machines off
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "pod-safety",
        env = "POD_SAFETY_FENCING_NAMESPACES"
    )]
    fencing_namespaces: Vec<String>,

    /// How long incidents and evidence are kept after nothing depends on them any more. 0: indefinitely
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "2160h",
        value_parser = duration::history,
        allow_hyphen_values = true,
        env = "POD_SAFETY_FENCING_HISTORY"
    )]
    fencing_history: Duration,

    /// How old an answer of a cloud's API may be. That an instance is stopped proves nothing before its boot, or the incident,
    /// has been known for longer
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse, env = "POD_SAFETY_FENCE_PROVIDER_BEHIND")]
    fence_provider_behind: Duration,

    /// The node that this process runs on, which it never fences. In a pod: from spec.nodeName
    #[arg(long, value_name = "NAME", env = "POD_SAFETY_NODE_NAME")]
    node_name: Option<String>,
}

impl Flags {
    /// The settings in this mode, with or without the volume guard, and the namespaces to watch.
    ///
    /// # Errors
    /// A name that the API does not accept.
    pub fn into_config(self, mode: Mode, guards_volumes: bool) -> Result<(Config, BTreeSet<String>), BadName> {
        let Self { fencing_namespaces, fencing_history, fence_provider_behind, node_name } = self;
        let config = Config {
            mode,
            own_node: parse_optional_name("node-name", node_name)?,
            guards_volumes,
            include_dry_runs: true,
            history: Some(fencing_history).filter(|kept| !kept.is_zero()),
            provider_lag: fence_provider_behind,
        };
        Ok((config, parse_names("fencing-namespaces", fencing_namespaces)?))
    }
}
