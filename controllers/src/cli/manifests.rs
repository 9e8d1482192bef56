//! `pod-safety manifests`: the same files that the chart ships.

use clap::Args as ClapArgs;

/// The service account and its rights. The control-plane suite runs the binary
/// with exactly these, and proves that none can be left out.
const RBAC: &str = include_str!("../../../charts/pod-safety/files/rbac.yaml");

#[derive(Debug, ClapArgs)]
pub(super) struct Args {}

impl Args {
    pub(super) fn main(&self) -> std::io::Result<()> {
        super::print(RBAC.as_bytes())
    }
}
