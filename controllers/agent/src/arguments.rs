//! The flags, and the rules between them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use pod_safety_watchdog::agent::Times;
use pod_safety_watchdog::record::Class;

/// The time that stopping the kubelet and ending pods takes when nothing hangs.
pub const ENDING: Duration = Duration::from_secs(1);

/// Renews the watchdog Lease of its node, pets the node's watchdog once for each acknowledged grant, and ends the guarded pods when
/// there is none.
#[derive(Debug, Parser)]
#[command(version, name = "pod-safety-agent", arg_required_else_help = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Guard this node. The DaemonSet of the chart runs this.
    Run(Box<Run>),
    /// Wait until a kubelet may start: for ExecStartPre= of the kubelet's unit.
    Gate(Gate),
    /// Say what this machine and its watchdog can promise. Opens nothing and changes nothing.
    Check(Device),
    /// Start the watchdog and never pet it: shows whether it resets this machine, and when. Disks are not synced.
    Drill(Drill),
}

/// The flags of `drill`.
#[derive(Clone, Debug, Args)]
pub struct Drill {
    /// The watchdog.
    #[command(flatten)]
    pub device: Device,
    /// Says that this machine may be reset, with all that runs on it.
    #[arg(long)]
    pub reset_this_machine: bool,
}

/// Which watchdog.
#[derive(Clone, Debug, Args)]
pub struct Device {
    /// The number of the watchdog: 0 is /dev/watchdog0.
    #[arg(long, default_value_t = 0)]
    pub device: u8,
    /// W: the timeout to set, in seconds. What the device reports back counts.
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(4..=600))]
    pub timeout: u16,
    /// What the machine is, if it cannot be found out: Hardware, Virtual or Cloud.
    #[arg(long, value_parser = class)]
    pub class: Option<Class>,
    /// A pipe to a keeper outside of this machine, in place of a watchdog: for tests.
    #[arg(long, value_name = "PATH")]
    pub keeper: Option<PathBuf>,
}

/// The flags of `gate`.
#[derive(Clone, Debug, Args)]
pub struct Gate {
    /// The folder of the agent's marks; it must not outlive the boot.
    #[arg(long, default_value = "/run/pod-safety-agent", value_name = "FOLDER")]
    pub marks: PathBuf,
}

/// The flags of `run`.
#[derive(Clone, Debug, Args)]
pub struct Run {
    /// The watchdog.
    #[command(flatten)]
    pub device: Device,
    /// The marks.
    #[command(flatten)]
    pub gate: Gate,
    /// The folder in which is written down for how long a machine that is to be reset outlives its last pet; it must outlive the boot.
    #[arg(long, default_value = "/var/lib/pod-safety-agent", value_name = "FOLDER")]
    pub record: PathBuf,
    /// The name of this node.
    #[arg(long, env = "NODE_NAME", value_parser = name)]
    pub node: String,
    /// The namespace of the Lease.
    #[arg(long, env = "POD_NAMESPACE", value_parser = name)]
    pub namespace: String,
    /// The UID of the agent's own pod. The agent does not end it, and expects the cgroups of the other pods beside its cgroup.
    #[arg(long, env = "POD_UID", value_parser = name)]
    pub pod_uid: String,
    /// From one grant to the next, in seconds. No request takes longer than this.
    #[arg(long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..))]
    pub interval: u16,
    /// A grant that is older than this ends the pods, in seconds.
    #[arg(long, default_value_t = 6, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..))]
    pub late: u16,
    /// From a grant that follows an end of pods to the start of the kubelet, in seconds.
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(10..))]
    pub settle: u16,
    /// The kubelet's unit has `ExecStartPre=pod-safety-agent gate`, so that a kubelet that is not there does not start.
    #[arg(long)]
    pub gated: bool,
    /// What the kubelet's process is called: k3s-agent of k3s, kubelite of MicroK8s.
    #[arg(long, default_value = "kubelet", value_name = "NAME")]
    pub kubelet_process: String,
    /// End static pods too. Not where they are the control plane: an outage of the API server would end the API server.
    #[arg(long)]
    pub end_static_pods: bool,
    /// The API server.
    #[arg(long, env = "KUBERNETES_SERVICE_HOST", value_name = "ADDRESS")]
    pub server: String,
    /// Its port.
    #[arg(long, env = "KUBERNETES_SERVICE_PORT", default_value_t = 443)]
    pub port: u16,
    /// The folder with token and ca.crt.
    #[arg(long, default_value = "/var/run/secrets/kubernetes.io/serviceaccount", value_name = "FOLDER")]
    pub account: PathBuf,
    /// The kubelet's folder, not a link to it.
    #[arg(long, default_value = "/var/lib/kubelet", value_name = "FOLDER")]
    pub kubelet: PathBuf,
    /// The cgroups of the host.
    #[arg(long, default_value = "/sys/fs/cgroup", value_name = "FOLDER")]
    pub cgroups: PathBuf,
    /// The processes of the host.
    #[arg(long, default_value = "/proc", value_name = "FOLDER")]
    pub proc: PathBuf,
}

fn class(text: &str) -> Result<Class, String> {
    text.parse().map_err(|()| "it is Hardware, Virtual or Cloud".to_owned())
}

/// A name becomes part of an API path, with the prefix `watchdog.`.
fn name(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    if text.is_empty() || text.len() > 244 || !text.bytes().all(fits) {
        return Err("a name of Kubernetes has up to 244 letters, digits, dashes and dots here".to_owned());
    }
    Ok(text.to_owned())
}

impl Device {
    /// W.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(u64::from(self.timeout))
    }
}

impl Run {
    /// The times of the state machine.
    ///
    /// # Errors
    /// A machine that can prove that its pods ended would be reset all the same.
    pub fn times(&self) -> Result<Times, String> {
        let seconds = |seconds: u16| Duration::from_secs(u64::from(seconds));
        let (interval, soft, settle) = (seconds(self.interval), seconds(self.late), seconds(self.settle));
        let (timeout, ending) = (self.device.timeout, ENDING.as_secs());
        if interval >= soft {
            return Err(format!(
                "--late {} must be more than --interval {}: one lost answer would end the pods",
                self.late, self.interval
            ));
        }
        if soft + interval + ENDING > self.device.timeout() {
            let least = (soft + interval + ENDING).as_secs();
            return Err(format!(
                "--timeout {timeout} must be at least {least} (--late {} + --interval {} + {ending} s to end pods): the watchdog would fire before the pods have ended",
                self.late, self.interval
            ));
        }
        if 3 * interval >= self.device.timeout() {
            return Err(format!(
                "--interval {} must be less than a third of --timeout {timeout}: two requests without an answer would reset the machine",
                self.interval
            ));
        }
        Ok(Times { interval, soft, settle })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(flags: &[&str]) -> Result<Run, String> {
        let required = ["x", "run", "--node", "a", "--namespace", "n", "--server", "10.0.0.1"];
        let own = if flags.contains(&"--pod-uid") { &[][..] } else { &["--pod-uid", "u"] };
        let all = required.iter().chain(own).chain(flags);
        match Arguments::try_parse_from(all).map_err(|error| error.to_string())?.command {
            Command::Run(run) => Ok(*run),
            Command::Gate(_) | Command::Check(_) | Command::Drill(_) => Err("another command".to_owned()),
        }
    }

    #[test]
    fn the_defaults_work() {
        let times = run(&[]).unwrap().times().unwrap();
        assert_eq!([times.interval, times.soft, times.settle], [2, 6, 10].map(Duration::from_secs));
    }

    #[test]
    fn conflicting_flags_are_refused_with_flag_value_and_remedy() {
        for (flags, message) in [
            (["--late", "2"].as_slice(), "--late 2 must be more than --interval 2"),
            (&["--timeout", "8"], "--timeout 8 must be at least 9"),
            (
                &["--timeout", "12", "--interval", "4", "--late", "5"],
                "--interval 4 must be less than a third of --timeout 12",
            ),
        ] {
            let refused = run(flags).unwrap().times().unwrap_err();
            assert!(refused.contains(message), "{refused}");
        }
        for (flags, message) in [
            (["--timeout", "3"], "3 is not in 4..=600"),
            (["--pod-uid", "../.."], "a name of Kubernetes"),
            (["--class", "Mainframe"], "it is Hardware, Virtual or Cloud"),
            (["--settle", "9"], "9 is not in 10.."),
        ] {
            let refused = run(&flags).unwrap_err();
            assert!(refused.contains(message) && refused.contains(flags[0]), "{refused}");
        }
    }
}
