//! List and watch: one feed per kind keeps the cache as the API server has it.
//!
//! Why not kube's watcher: it speaks JSON only, and listing 150,000 pods costs
//! the API server twice as much as JSON; it fails a whole page for one
//! undecodable object; and what vanished during a relist goes unreported.
//!
//! Invariants: lists are consistent reads (no `resourceVersion=0`); a watch goes
//! on from the last version seen, bookmarks included; a version that is too old
//! (410), or that the API server has not reached, means a new list, whose gaps are
//! removals; a stream that is silent for longer than a bookmark takes is dead, and
//! after two of them a new list says whether anything went by.

use std::sync::Arc;
use std::time::Duration;

use super::kinds::of_kind;
use super::object::Object;
use super::{Cache, Trouble};
use crate::client::{ApiError, Call, Connection, ListStream, page_path};
use crate::clock::{Env, Mono, Task};
use crate::metrics::CacheMetrics;
use crate::model::{Kind, Uid};
use crate::record::error_chain;
use crate::wire::{Event, OnlyMeta, Raw, WireError};

/// Objects of one page: of our own kinds, and of the others once a whole list has failed. A list without a limit is
/// served from the API server's cache and costs it 4 to 7 s of CPU for 150,000
/// pods; pages may have to come from etcd, at two to three times that. They are
/// the gentler way when something is wrong. Read as streams, both cost us the
/// memory of one object. Of our own kinds there are few objects, unless somebody makes many.
const PAGE: usize = 5_000;

/// A list of which nothing comes for this long is given up.
pub(super) const LIST_SILENCE: Duration = Duration::from_secs(30);

/// A watch asks to be ended after this long, and up to as long again, so that
/// watches spread over API servers that come back (client-go does the same).
const WATCH_AT_LEAST: Duration = Duration::from_secs(300);

/// Bookmarks come each minute; half a minute more is not chance.
pub(super) const WATCH_SILENCE: Duration = Duration::from_secs(90);

/// After so many silent watches in a row the kind is listed again. After etcd was restored from a backup a watch waits for
/// versions that are long in coming, and nothing says so. A kind without a change in three minutes is cheap to list.
const SILENT_WATCHES: u32 = 2;

/// The first pause after a failure, doubled each time up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause: a returning API server is found again within this.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// A watch that ends sooner than this is not opened again at once: a proxy that
/// ends every watch, or a server that forgets its history, is not hammered.
const SHORT: Duration = Duration::from_secs(1);

/// How often a lasting trouble is logged again.
const LOG_AGAIN: Duration = Duration::from_secs(60);

/// Starts one feed for each of `kinds`. They run until the process ends.
pub fn follow(
    kinds: &[Kind],
    connection: &Connection,
    cache: &Arc<Cache>,
    env: &Env,
    metrics: &CacheMetrics,
) {
    if kinds.contains(&Kind::Budgets) {
        cache.select();
    }
    if kinds.contains(&Kind::NodeFences) {
        cache.fence();
    }
    if kinds.contains(&Kind::VolumeLeases) {
        cache.guard();
    }
    for kind in kinds {
        metrics.synced(*kind, false);
        let (connection, cache) = (connection.clone(), Arc::clone(cache));
        env.spawner.spawn(kind.resource(), feed(*kind, connection, cache, env.clone(), metrics.clone()));
    }
}

/// The endless task that follows `kind`.
fn feed(kind: Kind, connection: Connection, cache: Arc<Cache>, env: Env, metrics: CacheMetrics) -> Task {
    of_kind!(kind, T => Box::pin(Feed::<T>::new(connection, cache, env, metrics).run()))
}

/// Whether a list may have failed because it was too much at once. A server that
/// is not there yet, or that forbids it, is asked for the whole again.
fn too_much(error: &ApiError) -> bool {
    match error {
        ApiError::TimedOut { .. } | ApiError::Body(_) | ApiError::Undecodable(_) => true,
        ApiError::Refused { code, .. } => *code == 429 || *code >= 500,
        ApiError::Transport(_) | ApiError::Guard(_) | ApiError::ContentType(_) | ApiError::BadPath { .. } => {
            false
        }
    }
}

/// Whether the API server has not reached the version that it was asked for: as after etcd was restored (client-go's
/// `IsTooLargeResourceVersion` reads the same words of servers that name no cause).
fn is_of_the_future(error: &ApiError) -> bool {
    matches!(error, ApiError::Refused { code: 504, message, .. } if message.contains("Too large resource version"))
}

const AHEAD: &str = "the API server has not reached the version: its data may have been restored";

/// Why a watch ended.
enum End {
    /// In good order, or its time was up.
    Over,
    /// It must be listed again, for the history is gone or unreadable.
    Relist(&'static str),
    /// Something failed; the watch can be opened again where it stopped.
    Failed(ApiError),
    /// Nothing came for longer than a bookmark takes.
    Silent,
}

/// How many objects of this kind one answer may have at first.
pub(super) fn first_limit(kind: Kind) -> Option<usize> {
    kind.is_ours().then_some(PAGE)
}

/// Reads one page, object by object.
pub(crate) async fn page(
    connection: &Connection,
    env: &Env,
    path: String,
    each: &mut (dyn FnMut(Raw) + Send),
) -> Result<ListStream, ApiError> {
    let mut page = connection.list(Call::get(path)).await?;
    loop {
        let item = env.until(env.now() + LIST_SILENCE, page.next()).await;
        match item.unwrap_or(Err(ApiError::TimedOut { after: LIST_SILENCE }))? {
            Some(raw) => each(raw),
            None => return Ok(page),
        }
    }
}

struct Feed<T> {
    connection: Connection,
    cache: Arc<Cache>,
    env: Env,
    metrics: CacheMetrics,
    /// Where the next watch goes on; `None` before the first list and after 410.
    version: Option<String>,
    /// How many watches in a row brought nothing at all.
    silent: u32,
    /// The last list failed: the next one asks for pages.
    paged: bool,
    pause: Duration,
    logged: Option<Mono>,
    kind: std::marker::PhantomData<fn() -> T>,
}

impl<T: Object> Feed<T> {
    fn new(connection: Connection, cache: Arc<Cache>, env: Env, metrics: CacheMetrics) -> Self {
        let kind = std::marker::PhantomData;
        Self {
            connection,
            cache,
            env,
            metrics,
            version: None,
            silent: 0,
            paged: false,
            pause: FIRST_PAUSE,
            logged: None,
            kind,
        }
    }

    async fn run(mut self) {
        loop {
            let Some(version) = self.version.clone() else {
                match self.list().await {
                    Ok(version) => self.recovered(version),
                    Err(error) => {
                        self.paged = too_much(&error);
                        self.trouble("list", &error).await;
                    }
                }
                continue;
            };
            let opened = self.env.now();
            let end = self.watch(&version).await;
            let short = self.env.now().since(opened) < SHORT;
            match end {
                End::Over => {}
                End::Relist(why) => {
                    tracing::info!(resource = T::KIND.resource(), why, "listing again");
                    self.version = None;
                }
                // Nothing to worry anybody: an API server sends no bookmarks for a kind of which
                // it has seen no change since it started, unless etcd reports its progress.
                End::Silent => {
                    self.silent += 1;
                    tracing::debug!(
                        resource = T::KIND.resource(),
                        "the watch receives nothing; opening it again"
                    );
                    if self.silent >= SILENT_WATCHES {
                        (self.silent, self.version) = (0, None);
                    }
                }
                End::Failed(error) => {
                    self.trouble("watch", &error).await;
                    continue;
                }
            }
            if short {
                self.back_off().await;
            }
        }
    }

    fn recovered(&mut self, version: String) {
        self.version = Some(version);
        self.paged = false;
        let (objects, undecodable) = self.cache.read().view().count(T::KIND);
        tracing::info!(resource = T::KIND.resource(), objects, undecodable, "listed");
        self.metrics.listed(T::KIND);
        self.metrics.synced(T::KIND, true);
    }

    /// Says what is wrong, once and then once a minute, and waits.
    async fn trouble(&mut self, verb: &'static str, error: &ApiError) {
        let mut message = error_chain(error);
        if T::KIND.is_ours() && error.is_not_found() {
            message = "the CRDs of pod-safety are not installed, so nothing is fenced: pod-safety manifests prints them".to_owned();
        }
        self.metrics.failed(T::KIND, error.category());
        self.cache.troubled(
            T::KIND,
            Trouble {
                category: error.category(),
                message: format!("{verb} {}: {message}", T::KIND.resource()),
            },
        );
        let now = self.env.now();
        if self.logged.is_none_or(|logged| now.since(logged) >= LOG_AGAIN) {
            self.logged = Some(now);
            tracing::warn!(resource = T::KIND.resource(), verb, error = %message, "cannot watch this resource; trying again");
        }
        self.back_off().await;
    }

    async fn back_off(&mut self) {
        self.env.sleep(self.env.jitter(self.pause, 0.5)).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Nodes have taints, which others date.
    fn read_wall(&self) {
        if T::KIND == Kind::Nodes {
            self.cache.read_wall(self.env.now(), self.env.clock.wall());
        }
    }

    fn heard(&mut self) {
        self.read_wall();
        self.cache.heard(T::KIND, self.env.now());
        self.metrics.heard(T::KIND, self.env.clock.wall());
    }

    fn count(&self) {
        let (objects, undecodable) = self.cache.read().view().count(T::KIND);
        self.metrics.counted(T::KIND, objects, undecodable);
    }

    async fn list(&mut self) -> Result<String, ApiError> {
        self.read_wall();
        self.cache.begin_list::<T>();
        let mut token = String::new();
        loop {
            let pages = self.paged || !token.is_empty();
            let limit = first_limit(T::KIND).or(pages.then_some(PAGE));
            let page = self.page(page_path(&self.cache.path(T::KIND), limit, &token)).await?;
            if page.resource_version().is_empty() {
                // Some other JSON, or a list of no moment: its gaps say nothing.
                return Err(ApiError::Undecodable(WireError::BrokenOff));
            }
            self.heard();
            self.count();
            if page.continue_token().is_empty() {
                self.cache.end_list::<T>(self.env.now());
                self.count();
                return Ok(page.resource_version().to_owned());
            }
            page.continue_token().clone_into(&mut token);
        }
    }

    /// Reads one page into the cache.
    async fn page(&self, path: String) -> Result<ListStream, ApiError> {
        page(&self.connection, &self.env, path, &mut |raw| drop(self.apply(&raw))).await
    }

    async fn watch(&mut self, version: &str) -> End {
        let seconds = self.env.jitter(WATCH_AT_LEAST, 1.0).as_secs();
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}",
            self.cache.path(T::KIND)
        );
        let mut stream = match self.connection.watch(Call::get(path)).await {
            Ok(stream) => stream,
            Err(error) if error.code() == Some(410) => return End::Relist("the version is too old"),
            Err(error) if is_of_the_future(&error) => return End::Relist(AHEAD),
            Err(error) => return End::Failed(error),
        };
        self.heard();
        loop {
            let event = match self.env.until(self.env.now() + WATCH_SILENCE, stream.next()).await {
                None => return End::Silent,
                Some(Ok(None)) => return End::Over,
                // After a broken frame nothing behind it can be told apart.
                Some(Err(ApiError::Undecodable(_))) => return End::Relist("the watch became unreadable"),
                Some(Err(error)) => return End::Failed(error),
                Some(Ok(Some(event))) => event,
            };
            self.heard();
            self.silent = 0;
            if let Some(end) = self.take(event) {
                return end;
            }
            // Only an event shows that all is well again: a list may be followed
            // by a watch that fails each time.
            self.pause = FIRST_PAUSE;
            self.logged = None;
        }
    }

    fn take(&mut self, event: Event) -> Option<End> {
        match event {
            Event::Applied(raw) => {
                if let Some(version) = self.apply(&raw) {
                    self.version = Some(version);
                }
                self.count();
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
                    return Some(End::Relist("a removal does not name its object"));
                };
                self.cache.remove::<T>(&uid, self.env.now());
                self.count();
                self.version = meta.resource_version.or(self.version.take());
                None
            }
            Event::Error(status) if status.code == Some(410) => Some(End::Relist("the history is gone")),
            Event::Error(status) => {
                let code = status.code.and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
                let (reason, message) =
                    (status.reason.unwrap_or_default(), status.message.unwrap_or_default());
                let causes = Vec::new();
                let error = ApiError::Refused { code, reason, message, causes, retry_after: None };
                Some(if is_of_the_future(&error) { End::Relist(AHEAD) } else { End::Failed(error) })
            }
        }
    }

    /// Puts the object into the cache; gives back its version.
    fn apply(&self, raw: &Raw) -> Option<String> {
        self.cache.put_raw::<T>(raw, self.env.now())
    }
}
