//! `--serve`: real `kubectl` in the simulated cluster that is shown.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use pod_safety_simulator::campaign::Plan;
use pod_safety_simulator::serve::{Listener, gate, parse_address};
use pod_safety_simulator::world::LiveRun;

/// The address and kubeconfig of the clusters that are shown, one after another.
#[derive(Debug)]
pub(super) struct Hosting {
    address: Option<SocketAddr>,
    /// The file for its kubeconfig.
    kubeconfig: Option<PathBuf>,
    listener: Option<Listener>,
}

impl Hosting {
    pub(super) const fn new(address: Option<SocketAddr>, kubeconfig: Option<PathBuf>) -> Self {
        Self { address, kubeconfig, listener: None }
    }

    /// Whether a cluster is served.
    pub(super) const fn is_open(&self) -> bool {
        self.address.is_some()
    }

    /// The file with its kubeconfig.
    pub(super) fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref()
    }

    /// The plan as it is run: with all objects that commands need, if a cluster is served.
    pub(super) fn plan(&self, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        plan.with.furnished = self.is_open();
        plan
    }

    /// Serves this run instead of the former one. Returns its address.
    pub(super) fn serve(&mut self, stage: &LiveRun) -> anyhow::Result<Option<String>> {
        let Some(address) = self.address else { return Ok(None) };
        // Dropping the listener frees its port.
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

/// Parses the value of `--serve`.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    parse_address(text).map_err(|error| error.to_string())
}
