//! `pod-safety manifests`: the same files that the chart ships.

use clap::Args as ClapArgs;

/// The service account and its rights. The control-plane suite runs the binary
/// with exactly these, and proves that none can be left out.
pub(super) const RBAC: &str = include_str!("../../../charts/pod-safety/files/rbac.yaml");

/// The policies on our own kinds and on our own account, with the names of [`RBAC`]: without them whoever may create a FenceEvidence has pods
/// released in anybody's name. A test of the control-plane suite makes the file from the chart's templates.
const POLICIES: &str = include_str!("../../../charts/pod-safety/files/policies.yaml");

/// Our own kinds, as the types have them: the test below writes the file.
const CRDS: &str = include_str!("../../../charts/pod-safety/files/crds.yaml");

#[derive(Debug, ClapArgs)]
pub(super) struct Args {}

impl Args {
    pub(super) fn main(&self) -> std::io::Result<()> {
        super::print_as_it_is(format!("{CRDS}---\n{RBAC}---\n{POLICIES}").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `POD_SAFETY_WRITE_CRDS=1` it writes the file anew.
    #[test]
    fn the_crds_that_are_shipped_are_what_the_types_say() {
        let head = "# Made from the types in shared/crds by a test of controllers/src/cli/manifests.rs. Do not edit.\n";
        let all = pod_safety_shared::api::crds();
        let documents: Vec<_> = all.iter().map(|crd| serde_saphyr::to_string(crd).unwrap()).collect();
        let wanted = format!("{head}{}", documents.join("---\n"));
        if pod_safety_shared::testing::writes_anew("POD_SAFETY_WRITE_CRDS") {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/pod-safety/files/crds.yaml");
            std::fs::write(path, &wanted).unwrap();
        }
        assert_eq!(CRDS, wanted, "run it once with POD_SAFETY_WRITE_CRDS=1");
    }
}
