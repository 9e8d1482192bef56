//! `pod-safety simulate FILE`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use pod_safety_simulator::scenario::parse;

use super::hosting::Hosting;
use super::{BadUse, plain, speed};
use pod_safety_cli::print;

/// The maximum file size: a plan of thousands of faults.
const MOST_BYTES: u64 = 1024 * 1024;

/// Exit code 0: as expected (without `expect`: no rule was broken); 1: not so; 2: the file is wrong.
#[derive(Debug, ClapArgs)]
pub(crate) struct SimulateArgs {
    /// A scenario as YAML; docs/simulator.md explains how to write one, docs/scenarios has examples
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Simulated seconds per real second. Default: as fast as possible
    #[arg(long, value_name = "FACTOR", value_parser = speed, allow_hyphen_values = true)]
    speed: Option<f64>,
}

impl SimulateArgs {
    /// Returns whether the result is as expected.
    pub(crate) fn main(self) -> anyhow::Result<bool> {
        let Self { file, speed } = self;
        let name = file.display().to_string();
        let unreadable = |error| BadUse::Unreadable(name.clone(), error);
        let size = std::fs::metadata(&file).map_err(unreadable)?.len();
        if size > MOST_BYTES {
            let error = std::io::Error::other(format!("{size} bytes; at most {MOST_BYTES} are allowed"));
            return Err(unreadable(error).into());
        }
        let text = std::fs::read_to_string(&file).map_err(unreadable)?;
        let scenario = parse(&name, &text).map_err(BadUse::from)?;
        let outcome = plain::run_scenario(&scenario, scenario.subject, speed, Hosting::new(None, None))?;
        print(&plain::verdict(scenario.subject, &outcome, true))?;
        for stuck in &outcome.stuck {
            let reason = stuck.reason.as_deref().unwrap_or("no reason is given");
            print(&format!("stuck: {} {}; {reason}\n", stuck.identity, stuck.how))?;
        }
        let missed = scenario.expect.missed(&outcome);
        for line in &missed {
            print(&format!("not as expected: {line}\n"))?;
        }
        Ok(missed.is_empty())
    }
}
