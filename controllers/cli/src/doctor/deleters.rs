//! Components that delete Nodes in this cluster or force delete pods, and which of them the admission policies allow:
//! read with the rights of the user.

use std::collections::BTreeSet;

use anyhow::Context;
use pod_safety_doctor::{
    self as checks, Component, ForeignControllers, Installation, Objects, ObservedComponents, Symptom,
};
use pod_safety_shared::client::ApiError;
use pod_safety_shared::record::error_chain;
use serde_json::Value;

use super::is_renewed;
use crate::cluster::Session;
use crate::explain::OWN_LABEL;

/// The components that the chart knows.
const COMPONENTS: &str = include_str!("../../../../charts/pod-safety/files/node-deleters.yaml");

/// How many Nodes are read: Cluster API annotates all of its own.
const MAX_NODES: usize = 20;

/// Whether every component that deletes Nodes here may delete those that do not report, and which known controllers are
/// denied.
pub(super) async fn check_deleters(session: &Session, installation: &Installation) -> anyhow::Result<Vec<Symptom>> {
    let components: Vec<Component> =
        serde_saphyr::from_str(COMPONENTS).context("reading the components that delete Nodes")?;
    Ok(match read_components(session, &components).await {
        Ok(others) => others.check(&components, installation),
        Err(error) => ForeignControllers::not_checked(&error_chain(&error)),
    })
}

async fn read_components(session: &Session, components: &[Component]) -> Result<ForeignControllers, ApiError> {
    const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
    let policies = list_or_empty(session, &format!("{ADMISSION}/validatingadmissionpolicies?{OWN_LABEL}")).await?;
    let bindings =
        list_or_empty(session, &format!("{ADMISSION}/validatingadmissionpolicybindings?{OWN_LABEL}")).await?;
    let devices = list_or_empty(session, "/apis/pod-safety.dev/v1alpha1/fencedevices").await?;
    let fences = list_or_empty(session, "/apis/pod-safety.dev/v1alpha1/fencepolicies").await?;
    let mut workloads = list_or_empty(session, "/apis/apps/v1/deployments").await?;
    workloads.extend(list_or_empty(session, "/apis/apps/v1/daemonsets").await?);
    let nodes = list_or_empty(session, &format!("/api/v1/nodes?limit={MAX_NODES}")).await?;
    let mut leases = BTreeSet::new();
    for lease in components.iter().filter_map(|component| component.lease.as_deref()) {
        if is_renewed(session, lease).await {
            leases.insert(lease.to_owned());
        }
    }
    let mut objects = Objects::new();
    let seen = ObservedComponents { workloads, leases, nodes };
    for path in checks::paths_to_read(&seen) {
        let answer = session.get_opt(&path).await;
        objects.insert(path, answer.map_err(|error| error_chain(&error)));
    }
    Ok(ForeignControllers { policies, bindings, devices, fences, observed: seen, objects })
}

/// The list of a kind; empty if the cluster does not have the kind.
async fn list_or_empty(session: &Session, path: &str) -> Result<Vec<Value>, ApiError> {
    match session.items(path).await {
        Err(error) if error.code() == Some(404) => Ok(Vec::new()),
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_components_of_the_chart_can_be_parsed_and_found() {
        let components: Vec<Component> = serde_saphyr::from_str(COMPONENTS).unwrap();
        assert!(components.len() >= 5, "{components:?}");
        for component in &components {
            let found_by =
                component.names.len() + usize::from(component.lease.is_some()) + usize::from(component.nodes.is_some());
            assert!(found_by > 0 && !component.users.is_empty(), "{component:?}");
        }
    }
}
