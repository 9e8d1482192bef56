//! The flags of lost nodes.

use std::time::Duration;

use clap::Args;
use pod_safety_shared::clock::duration;
use pod_safety_shared::controller_loop::Mode;

use super::{Config, Rates};

/// The flags of lost nodes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Node lifecycle")]
#[group(skip)]
pub struct Flags {
    /// How long a kubelet may not report before the conditions of its node become Unknown
    #[arg(long, value_name = "DURATION", default_value = "50s", value_parser = duration::parse, allow_hyphen_values = true, env = "POD_SAFETY_NODE_MONITOR_GRACE_PERIOD")]
    node_monitor_grace_period: Duration,

    /// How long a new node may take to report its first status before its conditions become Unknown
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse, allow_hyphen_values = true, env = "POD_SAFETY_NODE_STARTUP_GRACE_PERIOD")]
    node_startup_grace_period: Duration,

    /// Beside kube-controller-manager: after this time an unreachable node gets no new pods [default: half of --node-monitor-grace-period]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true, env = "POD_SAFETY_NODE_SUSPECT_AFTER")]
    node_suspect_after: Option<Duration>,

    /// How many lost nodes of a zone are tainted NoExecute per second, so that their pods are evicted
    #[arg(
        long,
        value_name = "RATE",
        default_value = "0.1",
        value_parser = rate,
        allow_hyphen_values = true,
        env = "POD_SAFETY_NODE_EVICTION_RATE"
    )]
    node_eviction_rate: f32,

    /// The same for a large zone of which too many nodes are lost
    #[arg(
        long,
        value_name = "RATE",
        default_value = "0.01",
        value_parser = rate,
        allow_hyphen_values = true,
        env = "POD_SAFETY_SECONDARY_NODE_EVICTION_RATE"
    )]
    secondary_node_eviction_rate: f32,

    /// A zone with more nodes than this is large. In a smaller zone no node is tainted NoExecute while too many are lost
    #[arg(
        long,
        value_name = "COUNT",
        default_value = "50",
        value_parser = count,
        allow_hyphen_values = true,
        env = "POD_SAFETY_LARGE_CLUSTER_SIZE_THRESHOLD"
    )]
    large_cluster_size_threshold: usize,

    /// Fraction of lost nodes (minimum 3) at which too many nodes of a zone are lost
    #[arg(
        long,
        value_name = "SHARE",
        default_value = "0.55",
        value_parser = share,
        allow_hyphen_values = true,
        env = "POD_SAFETY_UNHEALTHY_ZONE_THRESHOLD"
    )]
    unhealthy_zone_threshold: f32,
}

impl Flags {
    /// The settings in this mode.
    #[must_use]
    pub fn into_config(self, mode: Mode) -> Config {
        let Self {
            node_monitor_grace_period,
            node_startup_grace_period,
            node_suspect_after,
            node_eviction_rate,
            secondary_node_eviction_rate,
            large_cluster_size_threshold,
            unhealthy_zone_threshold,
        } = self;
        Config {
            mode,
            monitor_grace: node_monitor_grace_period,
            startup_grace: node_startup_grace_period,
            suspect_after: node_suspect_after.unwrap_or(node_monitor_grace_period / 2),
            rates: Rates {
                normal: node_eviction_rate,
                disrupted: secondary_node_eviction_rate,
                large: large_cluster_size_threshold,
                unhealthy: unhealthy_zone_threshold,
            },
            // Leader election sets it.
            led_since: None,
        }
    }
}

fn rate(text: &str) -> Result<f32, String> {
    const ALLOWED: &str = "allowed is 0 to 1000 nodes per second, such as 0.1; 0: none";
    match text.parse::<f32>() {
        Ok(never) if never.abs() < f32::MIN_POSITIVE => Ok(0.0),
        _ => number(text, 1000.0).map_err(|wrong| format!("{wrong}; {ALLOWED}")),
    }
}

fn share(text: &str) -> Result<f32, String> {
    const ALLOWED: &str = "allowed is more than 0 and up to 1, such as 0.55";
    number(text, 1.0).map_err(|wrong| format!("{wrong}; {ALLOWED}"))
}

fn number(text: &str, most: f32) -> Result<f32, &'static str> {
    match text.parse::<f32>() {
        Err(_) => Err("not a number"),
        Ok(number) if number.is_nan() => Err("not a number"),
        Ok(number) if number < 0.0 => Err("it cannot be negative"),
        Ok(number) if number < f32::MIN_POSITIVE => Err("it cannot be zero"),
        Ok(number) if number > most => Err("too large"),
        Ok(number) => Ok(number),
    }
}

fn count(text: &str) -> Result<usize, String> {
    let read = text.parse::<i32>().ok().and_then(|count| usize::try_from(count).ok());
    read.ok_or_else(|| format!("not a count; allowed is 0 to {}", i32::MAX))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        nodes: Flags,
    }

    fn read(args: &[&str]) -> Result<Config, String> {
        let all = ["run"].iter().chain(args);
        let read = Alone::try_parse_from(all).map_err(|error| error.to_string())?;
        Ok(read.nodes.into_config(Mode::Replace))
    }

    #[test]
    fn defaults_equal_those_of_kcm() {
        let config = read(&[]).unwrap();
        let seconds = [config.monitor_grace, config.startup_grace, config.suspect_after];
        assert_eq!(seconds.map(|span| span.as_secs()), [50, 60, 25]);
        assert_eq!(config.rates, Rates { normal: 0.1, disrupted: 0.01, large: 50, unhealthy: 0.55 });
        let shorter = read(&["--node-monitor-grace-period=8s"]).unwrap();
        assert_eq!(shorter.suspect_after.as_secs(), 4, "half of the grace, whatever that is");
    }

    /// As kube-controller-manager's never-limiter.
    #[test]
    fn a_rate_of_zero_never_taints_a_node() {
        for zero in ["0", "-0", "0.0"] {
            let flag = |name: &str| format!("--{name}={zero}");
            let rates = read(&[&flag("node-eviction-rate"), &flag("secondary-node-eviction-rate")]).unwrap().rates;
            assert_eq!((rates.normal, rates.disrupted), (0.0, 0.0));
        }
    }

    #[test]
    fn an_invalid_value_is_refused_with_its_flag_and_the_allowed_range() {
        for (flag, value, says) in [
            ("--node-eviction-rate", "NaN", "not a number; allowed is 0 to 1000"),
            ("--node-eviction-rate", "often", "not a number; allowed is 0 to 1000"),
            ("--node-eviction-rate", "-0.1", "cannot be negative; allowed is 0 to 1000"),
            ("--node-eviction-rate", "inf", "too large; allowed is 0 to 1000 nodes per second"),
            ("--secondary-node-eviction-rate", "-inf", "cannot be negative"),
            ("--unhealthy-zone-threshold", "nan", "not a number; allowed is more than 0 and up to 1"),
            ("--unhealthy-zone-threshold", "0", "cannot be zero; allowed is more than 0 and up to 1"),
            ("--unhealthy-zone-threshold", "55", "too large; allowed is more than 0 and up to 1"),
            ("--large-cluster-size-threshold", "-1", "not a count; allowed is 0 to 2147483647"),
            ("--node-monitor-grace-period", "0", "too short; allowed is 1ms to 24h"),
            ("--node-startup-grace-period", "-1s", "cannot be negative; allowed is 1ms to 24h"),
            ("--node-suspect-after", "25", "not a duration; allowed is 1ms to 24h"),
        ] {
            let message = read(&[&format!("{flag}={value}")]).unwrap_err();
            assert!(
                message.contains(flag) && message.contains(value) && message.contains(says),
                "{flag}={value}: {message}"
            );
        }
    }
}
