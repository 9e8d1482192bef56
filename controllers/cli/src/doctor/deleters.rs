//! What deletes Nodes in this cluster, what force deletes pods, and whom the admission policies let: read with the rights of a person.

use std::collections::BTreeSet;

use anyhow::Context;
use pod_safety_doctor::{self as checks, Component, Installation, Objects, Others, Seen, Symptom};
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

/// Whether every component that deletes Nodes here may delete those that do not report, and which known controllers are refused.
pub(super) async fn check(session: &Session, installation: &Installation) -> anyhow::Result<Vec<Symptom>> {
    let known: Vec<Component> =
        serde_saphyr::from_str(KNOWN).context("reading the components that delete Nodes")?;
    Ok(match look(session, &known).await {
        Ok(others) => others.symptoms(&known, installation),
        Err(error) => Others::not_checked(&error_chain(&error)),
    })
}

async fn look(session: &Session, known: &[Component]) -> Result<Others, ApiError> {
    const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
    let policies = listed(session, &format!("{ADMISSION}/validatingadmissionpolicies?{OURS}")).await?;
    let bindings = listed(session, &format!("{ADMISSION}/validatingadmissionpolicybindings?{OURS}")).await?;
    let devices = listed(session, "/apis/pod-safety.dev/v1alpha1/fencedevices").await?;
    let fences = listed(session, "/apis/pod-safety.dev/v1alpha1/fencepolicies").await?;
    let mut workloads = listed(session, "/apis/apps/v1/deployments").await?;
    workloads.extend(listed(session, "/apis/apps/v1/daemonsets").await?);
    let nodes = listed(session, &format!("/api/v1/nodes?limit={NODES}")).await?;
    let mut leases = BTreeSet::new();
    for lease in known.iter().filter_map(|component| component.lease.as_deref()) {
        if is_renewed(session, lease).await {
            leases.insert(lease.to_owned());
        }
    }
    let mut objects = Objects::new();
    let seen = Seen { workloads, leases, nodes };
    for path in checks::to_read(&seen) {
        let answer = session.get_opt(&path).await;
        objects.insert(path, answer.map_err(|error| error_chain(&error)));
    }
    Ok(Others { policies, bindings, devices, fences, seen, objects })
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
        let known: Vec<Component> = serde_saphyr::from_str(KNOWN).unwrap();
        assert!(known.len() >= 5, "{known:?}");
        for component in &known {
            let found_by = component.names.len()
                + usize::from(component.lease.is_some())
                + usize::from(component.nodes.is_some());
            assert!(found_by > 0 && !component.users.is_empty(), "{component:?}");
        }
    }
}
