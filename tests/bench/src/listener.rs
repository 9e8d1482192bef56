//! Watches every object of a kind with a separate watch, which costs the API server the same for each contender.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

/// Watches until it is dropped.
pub(crate) struct Listener<M> {
    sender: UnboundedSender<M>,
    received: UnboundedReceiver<M>,
    tasks: JoinSet<Result<()>>,
}

impl<M: Send + 'static> Listener<M> {
    /// Without a watch yet.
    pub(crate) fn new() -> Self {
        let (sender, received) = unbounded_channel();
        Self { sender, received, tasks: JoinSet::new() }
    }

    /// Watches every `T` that is written from now on, mapped by `tell`.
    pub(crate) async fn watch_kind<T>(&mut self, client: Client, tell: fn(&T, Instant) -> M) -> Result<()>
    where
        T: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let objects = Api::<T>::all(client);
        let list = objects.list_metadata(&ListParams::default().limit(1)).await;
        let version = list.context("cannot list what to watch")?.metadata.resource_version;
        self.tasks.spawn(listen(objects, version.unwrap_or_default(), self.sender.clone(), tell));
        Ok(())
    }

    /// The next change; `None` if there is none within this time.
    pub(crate) async fn next(&mut self, within: Duration) -> Result<Option<M>> {
        let Ok(received) = tokio::time::timeout(within, self.received.recv()).await else {
            return match self.tasks.try_join_next() {
                Some(ended) => ended?.map(|()| None),
                None => Ok(None),
            };
        };
        Ok(received)
    }
}

async fn listen<T, M>(
    objects: Api<T>,
    mut version: String,
    sender: UnboundedSender<M>,
    tell: fn(&T, Instant) -> M,
) -> Result<()>
where
    T: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    loop {
        // The server ends each watch after a few minutes.
        let watch = objects.watch(&WatchParams::default(), &version).await;
        let mut events = Box::pin(watch.context("cannot watch what is measured")?);
        while let Some(event) = events.next().await {
            match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    version = object.resource_version().unwrap_or_default();
                    if sender.send(tell(&object, Instant::now())).is_err() {
                        return Ok(());
                    }
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Deleted(_) => {}
                WatchEvent::Error(status) => bail!("a watch ended: {status:?}"),
            }
        }
    }
}
