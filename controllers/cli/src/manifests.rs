//! `pod-safety manifests`: the same files that the chart ships.

use clap::Args as ClapArgs;

/// The service account and its rights. The control-plane suite runs the binary with exactly these, and proves that none
/// can be left out.
pub(crate) const RBAC: &str = include_str!("../../../charts/pod-safety/files/rbac.yaml");

/// The policies on the kinds of pod-safety and on its account, with the names of [`RBAC`]: without them, a user who may
/// create a FenceEvidence can release pods in another user's name. A test of the control-plane suite generates the file
/// from the chart's templates.
const POLICIES: &str = include_str!("../../../charts/pod-safety/files/policies.yaml");

/// The kinds of pod-safety, generated from the types: the test below writes the file.
const CRDS: &str = include_str!("../../../charts/pod-safety/files/crds.yaml");

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("manifests"))]
pub struct Args {}

impl Args {
    pub(crate) fn main(&self) -> std::io::Result<()> {
        super::print_raw(format!("{CRDS}---\n{RBAC}---\n{POLICIES}").as_bytes())
    }
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use super::*;

    /// The page and the file are written by the same run.
    #[test]
    fn the_reference_matches_the_types() {
        let expected = reference::page(&pod_safety_shared::api::crds());
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/custom-resources.md");
        if pod_safety_shared::testing::should_rewrite("POD_SAFETY_WRITE_CRDS") {
            std::fs::write(path, &expected).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), expected, "run it once with POD_SAFETY_WRITE_CRDS=1");
    }

    #[test]
    fn a_field_is_listed_with_bounds_default_and_values() {
        let crd = serde_json::json!({ "spec": {
            "names": { "kind": "Thing", "shortNames": ["t"] },
            "scope": "Cluster",
            "versions": [{
                "additionalPrinterColumns": [{ "name": "Age" }],
                "schema": { "openAPIV3Schema": { "properties": { "spec": {
                    "description": "A\nthing.",
                    "required": ["grade"],
                    "properties": {
                        "grade": { "type": "string", "enum": ["Low", "High"], "default": "Low", "description": "a | b <c>" },
                        "parts": { "type": "array", "maxItems": 8, "items": { "type": "object", "properties": {
                            "size": { "type": "integer", "minimum": 1.0, "maximum": 9.0 } } } },
                        "labels": { "type": "object", "additionalProperties": { "type": "string" } },
                        "nodeSelector": { "type": "object", "properties": { "matchLabels": {} } },
                        "whole": { "type": "object", "properties": { "size": { "type": "integer", "minimum": 1.0, "maximum": 9.0 } } },
                    },
                    "x-kubernetes-validations": [{ "message": "grade is not both", "rule": "true" }],
                }, "status": { "properties": { "phase": { "type": "string" } } } } } },
            }],
        } });
        let page = reference::page(&[crd]);
        let (_, section) = page.split_once("## ").unwrap();
        let expected = "Thing

A thing.

Cluster. Short name: `t`. Columns of `kubectl get`: Age.

- `spec.grade` (string, required): a | b &lt;c> One of `Low`, `High`. Default: `Low`.
- `spec.labels` (map of string)
- `spec.nodeSelector` (object)
- `spec.parts` (list of object): At most 8.
- `spec.parts[].size` (integer): 1 to 9.
- `spec.whole` (object): Fields as in `spec.parts[]`.

The API server also checks:

- grade is not both
";
        assert_eq!(section, expected);
    }

    /// With `POD_SAFETY_WRITE_CRDS=1` it writes the file again.
    #[test]
    fn the_shipped_crds_match_the_types() {
        let head = "# Made from the types in shared/crds by a test of controllers/cli/src/manifests.rs. Do not edit.\n";
        let all = pod_safety_shared::api::crds();
        let documents: Vec<_> = all.iter().map(|crd| serde_saphyr::to_string(crd).unwrap()).collect();
        let expected = format!("{head}{}", documents.join("---\n"));
        if pod_safety_shared::testing::should_rewrite("POD_SAFETY_WRITE_CRDS") {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/pod-safety/files/crds.yaml");
            std::fs::write(path, &expected).unwrap();
        }
        assert_eq!(CRDS, expected, "run it once with POD_SAFETY_WRITE_CRDS=1");
    }
}
