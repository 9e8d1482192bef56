//! List and watch: one feed for each kind keeps the cache in sync with the API server.
//!
//! kube-runtime's watcher is not used because it reads only JSON. With streaming lists, lean types and
//! `DeserializeGuard` a start with 150,000 pods takes 6.5 times the CPU, 2.8 times the memory and 4.9 times the API
//! server's CPU (docs/benchmarks.md). It also does not report the objects that were removed during a relist.
//!
//! Invariants: lists are consistent reads (no `resourceVersion=0`). A watch continues from the last version seen,
//! bookmarks included. A version that is too old (410), or that the API server has not reached, leads to a new list;
//! objects that it does not contain are removed. After a failure the feed reads at once which version the API server
//! has reached, before the API server can pass the version of the watch: etcd may have been restored, and no watch
//! reports what the restore removed. A stream without events for longer than the bookmark interval is closed, and
//! after two such streams a new list finds missed changes.

mod watch;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use prometheus::{Gauge, IntGauge};

use super::{Cache, WatchProblem};
use crate::clock::{Backoff, Env, EventBatching, Mono, Task};
use crate::metrics::CacheMetrics;
use crate::model::Kind;
use crate::wire::{Raw, WireError};
use pod_safety_client::{ApiError, Call, Connection, ListStream, error_chain, page_path};
#[cfg(test)]
pub(super) use watch::WATCH_IDLE_TIMEOUT;
use watch::{VERSION_AHEAD, WatchEnd};

/// Objects of one page: of pod-safety's own kinds, and of the others once a whole list has failed. A list without a
/// limit is served from the API server's cache and costs it 4 to 7 s of CPU for 150,000 pods; pages may have to come
/// from etcd, at two to three times that. After a failure, pages are the smaller load. Both are read as streams, so
/// this process needs the memory of one object. Of its own kinds there are few objects, unless a client creates many.
const PAGE: usize = 5_000;

/// A list that delivers nothing for this long is aborted.
pub(super) const LIST_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// After this many idle watches in a row the kind is listed again. After a restore of etcd from a backup, a watch
/// waits for versions that do not exist for a long time, without an error. A kind without a change in three minutes
/// is cheap to list.
/// docs/assumptions.md: history-is-kept
const MAX_IDLE_WATCHES: u32 = 2;

/// The pauses after failures. A recovered API server is contacted within the longest one.
const BACKOFF: Backoff = Backoff { initial: Duration::from_millis(250), maximum: Duration::from_secs(8) };

/// A watch that ends sooner than this is not opened again at once, in case a proxy ends every watch or a server has
/// lost its history.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// How often a kind that the API server does not serve is requested again: the API server has to restart to serve it.
const UNSERVED_RETRY: Duration = Duration::from_secs(60);

/// How often a lasting problem is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Starts one feed for each of `kinds`. They run until the process ends.
pub fn start_feeds(kinds: &[Kind], connection: &Connection, cache: &Arc<Cache>, env: &Env, metrics: &CacheMetrics) {
    if kinds.contains(&Kind::Budgets) {
        cache.enable_budgets();
    }
    if kinds.contains(&Kind::NodeFences) {
        cache.enable_fencing();
    }
    if kinds.contains(&Kind::VolumeLeases) {
        cache.enable_volume_guard();
    }
    if kinds.contains(&Kind::Evictions) {
        cache.enable_evictions();
    }
    for kind in kinds {
        // A kind that the API server does not serve must raise no alert.
        if !kind.is_often_unserved() {
            metrics.synced(*kind, false);
        }
        // There may be hundreds of thousands of these.
        let on_own_thread = matches!(kind, Kind::Pods | Kind::Nodes | Kind::NodeLeases);
        let connection = if on_own_thread { connection.isolated() } else { connection.clone() };
        let context = FeedContext { connection, cache: Arc::clone(cache), env: env.clone(), metrics: metrics.clone() };
        let batching = EventBatching::default();
        let task: Task = Box::pin(Feed::new(*kind, context, batching.clone()).run());
        if on_own_thread {
            env.spawner.spawn_on_own_thread(kind.resource(), batching, task);
        } else {
            env.spawner.spawn(kind.resource(), task);
        }
    }
}

/// The dependencies of a feed.
struct FeedContext {
    connection: Connection,
    cache: Arc<Cache>,
    env: Env,
    metrics: CacheMetrics,
}

/// Whether a list may have failed because it was too large, so that the next one is paged. After other errors (no
/// connection, Forbidden) the whole list is requested again.
fn may_be_too_large(error: &ApiError) -> bool {
    match error {
        ApiError::TimedOut { .. } | ApiError::Body(_) | ApiError::Undecodable(_) => true,
        ApiError::Refused { code, .. } => *code == 429 || *code >= 500,
        ApiError::Transport { .. }
        | ApiError::Guard(_)
        | ApiError::ContentType(_)
        | ApiError::Malformed(_)
        | ApiError::BadPath { .. } => false,
    }
}

/// The first page size for this kind.
pub(super) fn first_limit(kind: Kind) -> Option<usize> {
    kind.is_own_crd().then_some(PAGE)
}

/// Reads one page, object by object.
pub async fn read_page(
    connection: &Connection,
    env: &Env,
    path: String,
    each: &mut (dyn FnMut(Raw) + Send),
) -> Result<ListStream, ApiError> {
    let mut page = connection.list(Call::get(path)).await?;
    loop {
        let item = env.timeout_at(env.now() + LIST_IDLE_TIMEOUT, page.next()).await;
        match item.unwrap_or(Err(ApiError::TimedOut { after: LIST_IDLE_TIMEOUT }))? {
            Some(raw) => each(raw),
            None => return Ok(page),
        }
    }
}

struct Feed {
    kind: Kind,
    context: FeedContext,
    /// Whether the thread of this feed may wait to receive several events at once.
    batching: EventBatching,
    /// The version from which the next watch continues; `None` before the first list and after 410.
    version: Option<String>,
    /// When something was last received.
    last_event: Mono,
    /// The last watch failed. The API server may have restarted with older data.
    failed: bool,
    /// How many watches in a row received nothing.
    idle_watches: u32,
    /// The last list failed: the next one is paged.
    paged: bool,
    /// How many lists and watches in a row failed, without an event in between.
    failures: u32,
    logged_at: Option<Mono>,
    /// Whether it was logged that the API server does not serve this kind.
    logged_unserved: bool,
    /// The metrics of this kind, created with the first value.
    contact: Option<Gauge>,
    objects: Option<[IntGauge; 2]>,
}

impl Feed {
    fn new(kind: Kind, context: FeedContext, batching: EventBatching) -> Self {
        Self {
            kind,
            last_event: context.env.now(),
            context,
            batching,
            version: None,
            failed: false,
            idle_watches: 0,
            paged: false,
            failures: 0,
            logged_at: None,
            logged_unserved: false,
            contact: None,
            objects: None,
        }
    }

    async fn run(mut self) {
        loop {
            let Some(version) = self.version.clone() else {
                match self.list().await {
                    Ok(version) => self.on_listed(version),
                    Err(error) => {
                        self.paged = may_be_too_large(&error);
                        self.on_error("list", &error).await;
                    }
                }
                continue;
            };
            let opened = self.context.env.now();
            let end = match self.is_server_behind(&version).await {
                Ok(true) => WatchEnd::Relist(VERSION_AHEAD),
                Ok(false) => self.watch(&version).await,
                Err(error) => WatchEnd::Failed(error),
            };
            let short = self.context.env.now().since(opened) < SHORT_WATCH;
            match end {
                WatchEnd::Closed => {}
                WatchEnd::Relist(why) => {
                    tracing::info!(resource = self.kind.resource(), why, "listing again");
                    self.version = None;
                }
                // Not an error: an API server sends no bookmarks for a kind of which it has seen no change since it
                // started, unless etcd reports its progress.
                WatchEnd::Idle => {
                    self.idle_watches += 1;
                    tracing::debug!(resource = self.kind.resource(), "the watch receives nothing; opening it again");
                    if self.idle_watches >= MAX_IDLE_WATCHES {
                        (self.idle_watches, self.version) = (0, None);
                    }
                }
                WatchEnd::Failed(error) => {
                    self.failed = true;
                    self.on_error("watch", &error).await;
                    continue;
                }
            }
            if short {
                self.back_off().await;
            }
        }
    }

    fn on_listed(&mut self, version: String) {
        self.version = Some(version);
        self.paged = false;
        self.logged_unserved = false;
        let (objects, undecodable) = self.context.cache.read().view().count(self.kind);
        tracing::info!(resource = self.kind.resource(), objects, undecodable, "listed");
        self.context.metrics.listed(self.kind);
        self.context.metrics.synced(self.kind, true);
    }

    /// Logs the problem, at first and then once a minute, and waits.
    async fn on_error(&mut self, verb: &'static str, error: &ApiError) {
        let mut message = error_chain(error);
        if self.kind.is_often_unserved() && error.is_unknown_kind() {
            return self.on_unserved().await;
        }
        if self.kind.is_own_crd() && error.is_unknown_kind() {
            message =
                "the CRDs of pod-safety are not installed, so nothing is fenced: pod-safety manifests prints them"
                    .to_owned();
        }
        self.context.metrics.failed(self.kind, error.category());
        self.context.cache.record_problem(
            self.kind,
            WatchProblem { category: error.category(), message: format!("{verb} {}: {message}", self.kind.resource()) },
        );
        let now = self.context.env.now();
        if self.logged_at.is_none_or(|logged| now.since(logged) >= LOG_INTERVAL) {
            self.logged_at = Some(now);
            tracing::warn!(resource = self.kind.resource(), verb, error = %message, "cannot watch this resource; trying again");
        }
        self.back_off().await;
    }

    /// Handles a kind that the API server does not serve: logged once, and not an error.
    async fn on_unserved(&mut self) {
        let FeedContext { cache, env, .. } = &self.context;
        cache.mark_unserved(self.kind);
        if !std::mem::replace(&mut self.logged_unserved, true) {
            tracing::info!(
                resource = self.kind.resource(),
                "the API server does not serve lifecycle.k8s.io/v1alpha1: nothing is done about evictions until it does"
            );
        }
        self.version = None;
        env.sleep(env.jitter(UNSERVED_RETRY, 0.5)).await;
    }

    async fn back_off(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.context.env.sleep(self.context.env.jitter(BACKOFF.after(self.failures), 0.5)).await;
    }

    /// Only the feed of nodes needs the wall clock, for the `timeAdded` of taints.
    fn record_wall_time(&self, now: Mono, wall: Timestamp) {
        if self.kind == Kind::Nodes {
            self.context.cache.record_wall_time(now, wall);
        }
    }

    /// Records an event, a bookmark, or the end of a list.
    fn record_event(&mut self, now: Mono) {
        self.context.cache.record_event(self.kind, now);
        self.update_contact(now);
    }

    /// Records an answer: an opened watch, a page, or an error. It does not show that the state of every object is
    /// current.
    fn record_contact(&mut self, now: Mono) {
        self.context.cache.record_contact(self.kind, now);
        self.update_contact(now);
    }

    fn update_contact(&mut self, now: Mono) {
        let FeedContext { env, metrics, .. } = &self.context;
        let wall = env.clock.wall();
        self.last_event = now;
        let contact = self.contact.get_or_insert_with(|| metrics.last_contact_of(self.kind));
        contact.set(wall.as_duration().as_secs_f64());
        self.record_wall_time(now, wall);
    }

    fn update_counts(&mut self) {
        let (objects, undecodable) = self.context.cache.read().view().count(self.kind);
        let gauges = self.objects.get_or_insert_with(|| self.context.metrics.objects_of(self.kind));
        for (gauge, count) in gauges.iter().zip([objects, undecodable]) {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Batches the watch of Leases: every node renews, and hardly a renewal changes a decision. Lists are not
    /// batched.
    fn set_batching(&self, watching: bool) {
        self.batching.set(watching && self.kind == Kind::NodeLeases);
    }

    async fn list(&mut self) -> Result<String, ApiError> {
        self.set_batching(false);
        let now = self.context.env.now();
        self.record_wall_time(now, self.context.env.clock.wall());
        self.context.cache.begin_list_of_kind(self.kind);
        let mut token = String::new();
        loop {
            let pages = self.paged || !token.is_empty();
            let limit = first_limit(self.kind).or(pages.then_some(PAGE));
            let page =
                self.apply_page(page_path(&self.context.cache.collection_path(self.kind), limit, &token)).await?;
            if page.resource_version().is_empty() {
                // The response is some other JSON, or has no version: objects that it lacks do not count as removed.
                return Err(ApiError::Undecodable(WireError::Truncated));
            }
            self.record_contact(self.context.env.now());
            self.update_counts();
            if page.continue_token().is_empty() {
                self.context.cache.end_list_of_kind(self.kind, self.context.env.now());
                self.update_counts();
                return Ok(page.resource_version().to_owned());
            }
            page.continue_token().clone_into(&mut token);
        }
    }

    /// Whether the API server has not reached this version. Reads it only after a failure.
    async fn is_server_behind(&mut self, version: &str) -> Result<bool, ApiError> {
        if !self.failed {
            return Ok(false);
        }
        let FeedContext { connection, cache, env, .. } = &self.context;
        let page =
            read_page(connection, env, page_path(&cache.collection_path(self.kind), Some(1), ""), &mut drop).await?;
        self.failed = false;
        // Versions are numbers that only grow (KEP-5504). Where they are not, the check is skipped.
        let reached = page.resource_version().parse::<u64>().ok();
        Ok(reached.zip(version.parse().ok()).is_some_and(|(reached, seen)| reached < seen))
    }

    /// Reads one page into the cache.
    async fn apply_page(&self, path: String) -> Result<ListStream, ApiError> {
        let FeedContext { connection, cache, env, .. } = &self.context;
        read_page(connection, env, path, &mut |raw| drop(cache.apply_wire(self.kind, &raw, env.now()))).await
    }
}
