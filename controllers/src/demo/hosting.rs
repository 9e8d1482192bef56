//! `--serve`: real `kubectl` in the simulated cluster that is shown.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use pod_safety_simulator::campaign::Plan;
use pod_safety_simulator::serve::{Listener, gate, parse_address};
use pod_safety_simulator::world::LiveRun;

/// Where the clusters that are shown, one after another, can be reached.
#[derive(Debug)]
pub(super) struct Hosting {
    address: Option<SocketAddr>,
    /// Where its kubeconfig is written.
    kubeconfig: Option<PathBuf>,
    listener: Option<Listener>,
}

impl Hosting {
    pub(super) const fn new(address: Option<SocketAddr>, kubeconfig: Option<PathBuf>) -> Self {
        Self { address, kubeconfig, listener: None }
    }

    /// Whether anybody may come.
    pub(super) const fn is_open(&self) -> bool {
        self.address.is_some()
    }

    /// The file with its kubeconfig.
    pub(super) fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref()
    }

    /// The plan as it is run: where commands come, what they ask for is there.
    pub(super) fn plan(&self, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        plan.with.furnished = self.is_open();
        plan
    }

    /// From now on this run is reached there, and no other. Gives back where.
    pub(super) fn serve(&mut self, stage: &LiveRun) -> anyhow::Result<Option<String>> {
        let Some(address) = self.address else { return Ok(None) };
        // Its port is free again when it has ended.
        drop(self.listener.take());
        let (gate, visitors) = gate();
        let listener = Listener::start(address, gate).context("--serve")?;
        stage.serve(visitors);
        // A port that the system chose stays the same for the next run.
        self.address = Some(listener.address());
        let url = listener.url();
        if let Some(file) = &self.kubeconfig {
            std::fs::write(file, listener.kubeconfig()).with_context(|| file.display().to_string())?;
        }
        self.listener = Some(listener);
        Ok(Some(url))
    }
}

/// Reads the value of `--serve`.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    parse_address(text).map_err(|error| error.to_string())
}
