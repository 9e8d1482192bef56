//! One watch: its events, and how it ends.

use std::time::Duration;

use super::Feed;
use crate::clock::Mono;
use crate::model::Uid;
use crate::wire::{Event, OnlyMeta};
use pod_safety_client::{ApiError, Call, WatchStream};

/// A watch requests a timeout of this, plus a random part of up to as much, so that watches spread over API servers
/// that come back (client-go does the same).
const WATCH_AT_LEAST: Duration = Duration::from_secs(300);

/// Bookmarks come each minute; half a minute more is no coincidence.
/// docs/assumptions.md: bookmarks-each-minute
pub(crate) const WATCH_IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Whether the API server has not reached the requested version, as after a restore of etcd (client-go's
/// `IsTooLargeResourceVersion` matches the same message of servers that send no cause).
fn is_version_ahead(error: &ApiError) -> bool {
    matches!(error, ApiError::Refused { code: 504, message, .. } if message.contains("Too large resource version"))
}

pub(super) const VERSION_AHEAD: &str = "the API server has not reached the version: its data may have been restored";

/// Why a watch ended.
pub(super) enum WatchEnd {
    /// The server closed it in good order, or its timeout passed.
    Closed,
    /// The kind must be listed again, because the history is gone or unreadable.
    Relist(&'static str),
    /// Something failed; the watch can be opened again where it stopped.
    Failed(ApiError),
    /// Nothing was received for longer than the bookmark interval.
    Idle,
}

impl Feed {
    pub(super) async fn watch(&mut self, version: &str) -> WatchEnd {
        let seconds = self.context.env.jitter(WATCH_AT_LEAST, 1.0).as_secs();
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}",
            self.context.cache.collection_path(self.kind)
        );
        let mut stream = match self.context.connection.watch(Call::get(path)).await {
            Ok(stream) => stream,
            Err(error) if error.code() == Some(410) => return WatchEnd::Relist("the version is too old"),
            Err(error) if is_version_ahead(&error) => return WatchEnd::Relist(VERSION_AHEAD),
            Err(error) => return WatchEnd::Failed(error),
        };
        self.record_contact(self.context.env.now());
        self.set_batching(true);
        let env = self.context.env.clone();
        loop {
            let last_event = self.last_event;
            if let Some(end) = env.timeout_at(last_event + WATCH_IDLE_TIMEOUT, self.read_events(&mut stream)).await {
                return end;
            }
            if self.last_event == last_event {
                return WatchEnd::Idle;
            }
        }
    }

    /// Applies events until the watch ends. May be dropped while it waits for one.
    async fn read_events(&mut self, stream: &mut WatchStream) -> WatchEnd {
        loop {
            let event = match stream.next().await {
                Ok(None) => return WatchEnd::Closed,
                // After a broken frame the rest of the stream cannot be decoded.
                Err(ApiError::Undecodable(_)) => return WatchEnd::Relist("the watch became unreadable"),
                Err(error) => return WatchEnd::Failed(error),
                Ok(Some(event)) => event,
            };
            let now = self.context.env.now();
            match event {
                Event::Error(_) => self.record_contact(now),
                Event::Applied(_) | Event::Bookmark(_) | Event::Deleted(_) => self.record_event(now),
            }
            self.idle_watches = 0;
            if let Some(end) = self.apply(event, now) {
                return end;
            }
            // Only an event resets the back-off: each list may succeed and be followed by a watch that fails.
            self.failures = 0;
            self.logged_at = None;
        }
    }

    fn apply(&mut self, event: Event, now: Mono) -> Option<WatchEnd> {
        match event {
            Event::Applied(raw) => {
                if let Some(version) = self.context.cache.apply_partial_of_kind(self.kind, &raw, now) {
                    version.clone_into(self.version.get_or_insert_default());
                    return None;
                }
                if let Some(version) = self.context.cache.apply_wire(self.kind, &raw, now) {
                    self.version = Some(version);
                }
                self.update_counts();
                None
            }
            Event::Bookmark(raw) => {
                if let Ok(OnlyMeta { metadata: Some(meta) }) = raw.decode() {
                    self.version = meta.resource_version.or(self.version.take());
                }
                None
            }
            Event::Deleted(raw) => {
                let meta = raw.decode::<OnlyMeta>().ok().and_then(|only| only.metadata).unwrap_or_default();
                let Some(uid) = meta.uid.as_deref().and_then(Uid::new) else {
                    return Some(WatchEnd::Relist("a removal does not name its object"));
                };
                self.context.cache.remove_of_kind(self.kind, &uid, now);
                self.update_counts();
                self.version = meta.resource_version.or(self.version.take());
                None
            }
            Event::Error(status) if status.code == Some(410) => Some(WatchEnd::Relist("the history is gone")),
            Event::Error(status) => {
                let code = status.code.and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
                let (reason, message) = (status.reason.unwrap_or_default(), status.message.unwrap_or_default());
                let causes = Vec::new();
                let error = ApiError::Refused { code, reason, message, causes, retry_after: None };
                Some(if is_version_ahead(&error) { WatchEnd::Relist(VERSION_AHEAD) } else { WatchEnd::Failed(error) })
            }
        }
    }
}
