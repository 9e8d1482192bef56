//! What deletes Nodes in this cluster, and whom the admission policy lets: read with the rights of a person.

use std::collections::BTreeSet;

use anyhow::Context;
use pod_safety_doctor::{self as checks, Component, Gate, Installation, Seen, Symptom};
use pod_safety_shared::client::ApiError;
use pod_safety_shared::record::error_chain;
use serde_json::Value;

use super::is_renewed;
use crate::cluster::Session;
use crate::explain::OURS;

/// The components that the chart knows.
const KNOWN: &str = include_str!("../../../../charts/pod-safety/files/node-deleters.yaml");

/// So many Nodes are looked at: Cluster API annotates all of its own.
const NODES: usize = 20;

/// Whether every component that deletes Nodes here may delete those that do not report.
pub(super) async fn check(session: &Session, installation: &Installation) -> anyhow::Result<Symptom> {
    let known = known()?;
    Ok(match look(session, &known).await {
        Ok((gate, seen)) => checks::deleters(&known, &gate, &checks::running(&known, &seen), installation),
        Err(error) => checks::not_checked("NodeDeleters", &error_chain(&error)),
    })
}

fn known() -> anyhow::Result<Vec<Component>> {
    serde_saphyr::from_str(KNOWN).context("reading the components that delete Nodes")
}

async fn look(session: &Session, known: &[Component]) -> Result<(Gate, Seen), ApiError> {
    const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    let policies = listed(session, &format!("{POLICIES}?{OURS}")).await?;
    let bindings = listed(session, &format!("{BINDINGS}?{OURS}")).await?;
    let mut workloads = listed(session, "/apis/apps/v1/deployments").await?;
    workloads.extend(listed(session, "/apis/apps/v1/daemonsets").await?);
    let nodes = listed(session, &format!("/api/v1/nodes?limit={NODES}")).await?;
    let mut leases = BTreeSet::new();
    for lease in known.iter().filter_map(|component| component.lease.as_deref()) {
        if is_renewed(session, lease).await {
            leases.insert(lease.to_owned());
        }
    }
    Ok((Gate::of(&policies, &bindings), Seen { workloads, leases, nodes }))
}

/// A cluster that does not have the kind has none of it.
async fn listed(session: &Session, path: &str) -> Result<Vec<Value>, ApiError> {
    match session.items(path).await {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_components_of_the_chart_can_be_read_and_can_be_found() {
        let known = known().unwrap();
        assert!(known.len() >= 5, "{known:?}");
        for component in &known {
            let found_by = component.names.len()
                + usize::from(component.lease.is_some())
                + usize::from(component.nodes.is_some());
            assert!(found_by > 0 && !component.users.is_empty(), "{component:?}");
        }
    }
}
