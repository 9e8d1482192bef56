//! Watches every status of a PDB.

use std::time::Instant;

use anyhow::Result;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Client, ResourceExt as _};

use crate::listener::Listener;

#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    pub(super) healthy: i32,
    pub(super) expected: i32,
    /// Whether `observedGeneration` is current.
    pub(super) up_to_date: bool,
}

pub(super) struct StatusChange {
    /// `namespace/name`.
    pub(super) budget: String,
    pub(super) status: Status,
    pub(super) at: Instant,
}

pub(super) type Watcher = Listener<StatusChange>;

/// Watches statuses from now on.
pub(super) async fn watch(client: Client) -> Result<Watcher> {
    let mut watcher = Watcher::new();
    watcher.watch_kind(client, status_change).await?;
    Ok(watcher)
}

fn status_change(budget: &PodDisruptionBudget, at: Instant) -> StatusChange {
    let status = budget.status.as_ref();
    let number = |value: Option<Option<i32>>| value.flatten().unwrap_or(0);
    let generation = budget.metadata.generation.unwrap_or(0);
    StatusChange {
        budget: format!("{}/{}", budget.namespace().unwrap_or_default(), budget.name_any()),
        status: Status {
            healthy: number(status.map(|status| status.current_healthy)),
            expected: number(status.map(|status| status.expected_pods)),
            up_to_date: status.is_some_and(|status| status.observed_generation == Some(generation)),
        },
        at,
    }
}
