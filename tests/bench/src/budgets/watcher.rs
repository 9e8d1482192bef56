//! Hears of every status of a budget that is written, by a watch of its own: it costs the API server the same
//! whoever writes.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::error::Error;

/// A status.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    pub(super) healthy: i32,
    pub(super) expected: i32,
    /// Whether it is about the present spec.
    pub(super) up_to_date: bool,
}

/// What was heard, and when.
pub(super) struct Told {
    /// `namespace/name`.
    pub(super) budget: String,
    pub(super) status: Status,
    pub(super) at: Instant,
}

/// Listens until it is dropped.
pub(super) struct Watcher {
    told: UnboundedReceiver<Told>,
    task: JoinSet<Result<(), Error>>,
}

impl Watcher {
    /// Listens to what is written from now on.
    pub(super) async fn start(client: Client) -> Result<Self, Error> {
        let budgets = Api::<PodDisruptionBudget>::all(client);
        let list = budgets.list_metadata(&ListParams::default().limit(1)).await;
        let version = list.map_err(Error::request("list the budgets"))?.metadata.resource_version;
        let (sender, told) = unbounded_channel();
        let mut task = JoinSet::new();
        task.spawn(listen(budgets, version.unwrap_or_default(), sender));
        Ok(Self { told, task })
    }

    /// What is heard next; `None` if that is nothing for so long.
    pub(super) async fn next(&mut self, within: Duration) -> Result<Option<Told>, Error> {
        match tokio::time::timeout(within, self.told.recv()).await {
            Ok(Some(told)) => Ok(Some(told)),
            Err(_) => Ok(None),
            Ok(None) => match self.task.join_next().await {
                Some(ended) => ended?.map(|()| None),
                None => Ok(None),
            },
        }
    }
}

async fn listen(
    budgets: Api<PodDisruptionBudget>,
    mut version: String,
    sender: UnboundedSender<Told>,
) -> Result<(), Error> {
    loop {
        // The server ends a watch every few minutes.
        let watch = budgets.watch(&WatchParams::default(), &version).await;
        let mut events = Box::pin(watch.map_err(Error::request("watch the budgets"))?);
        while let Some(event) = events.next().await {
            match event.map_err(Error::request("watch the budgets"))? {
                WatchEvent::Added(budget) | WatchEvent::Modified(budget) => {
                    version = budget.resource_version().unwrap_or_default();
                    if sender.send(told(&budget)).is_err() {
                        return Ok(());
                    }
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Deleted(_) => {}
                WatchEvent::Error(status) => {
                    let source = kube::Error::Api(status);
                    return Err(Error::request("watch the budgets")(source));
                }
            }
        }
    }
}

fn told(budget: &PodDisruptionBudget) -> Told {
    let at = Instant::now();
    let status = budget.status.as_ref();
    let number = |value: Option<Option<i32>>| value.flatten().unwrap_or(0);
    let generation = budget.metadata.generation.unwrap_or(0);
    Told {
        budget: format!("{}/{}", budget.namespace().unwrap_or_default(), budget.name_any()),
        status: Status {
            healthy: number(status.map(|status| status.current_healthy)),
            expected: number(status.map(|status| status.expected_pods)),
            up_to_date: status.is_some_and(|status| status.observed_generation == Some(generation)),
        },
        at,
    }
}
