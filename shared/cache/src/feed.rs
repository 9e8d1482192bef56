//! List and watch: one feed per kind keeps the cache as the API server has it.
//!
//! Why not kube-runtime's watcher: it reads JSON alone. With streaming lists, lean types and `DeserializeGuard` a start with
//! 150,000 pods takes 6.5 times the CPU, 2.8 times the memory and 4.9 times the API server's CPU (docs/benchmarks.md). And
//! what vanished during a relist goes unreported.
//!
//! Invariants: lists are consistent reads (no `resourceVersion=0`); a watch goes
//! on from the last version seen, bookmarks included; a version that is too old
//! (410), or that the API server has not reached, means a new list, whose gaps are
//! removals. After a failure the API server is asked which version it has reached,
//! before it passes one that was watched to: etcd may have been restored, and what
//! the restore took away is reported by no watch. A stream that is silent for longer than a bookmark takes is dead, and
//! after two of them a new list says whether anything went by.

mod watch;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use prometheus::{Gauge, IntGauge};

use super::{Cache, WatchProblem};
use crate::clock::{Env, EventBatching, Mono, Task};
use crate::metrics::CacheMetrics;
use crate::model::Kind;
use crate::wire::{Raw, WireError};
use pod_safety_client::{ApiError, Call, Connection, ListStream, error_chain, page_path};
#[cfg(test)]
pub(super) use watch::WATCH_IDLE_TIMEOUT;
use watch::{VERSION_AHEAD, WatchEnd};

/// Objects of one page: of our own kinds, and of the others once a whole list has failed. A list without a limit is
/// served from the API server's cache and costs it 4 to 7 s of CPU for 150,000
/// pods; pages may have to come from etcd, at two to three times that. They are
/// the gentler way when something is wrong. Read as streams, both cost us the
/// memory of one object. Of our own kinds there are few objects, unless somebody makes many.
const PAGE: usize = 5_000;

/// A list of which nothing comes for this long is given up.
pub(super) const LIST_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// After so many silent watches in a row the kind is listed again. After etcd was restored from a backup a watch waits for
/// versions that are long in coming, and nothing says so. A kind without a change in three minutes is cheap to list.
/// docs/assumptions.md: history-is-kept
const MAX_IDLE_WATCHES: u32 = 2;

/// The first pause after a failure, doubled each time up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause: a returning API server is found again within this.
const MAX_PAUSE: Duration = Duration::from_secs(8);

/// A watch that ends sooner than this is not opened again at once: a proxy that
/// ends every watch, or a server that forgets its history, is not hammered.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// How often an API server is asked again for a kind that it does not serve: it has to be started anew to serve it.
const UNSERVED_RETRY: Duration = Duration::from_secs(60);

/// How often a lasting trouble is logged again.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Starts one feed for each of `kinds`. They run until the process ends.
pub fn start_feeds(
    kinds: &[Kind],
    connection: &Connection,
    cache: &Arc<Cache>,
    env: &Env,
    metrics: &CacheMetrics,
) {
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
        // Of what the API server does not serve there is nothing to be alarmed about.
        if !kind.is_often_unserved() {
            metrics.synced(*kind, false);
        }
        // Of these there may be hundreds of thousands.
        let on_own_thread = matches!(kind, Kind::Pods | Kind::Nodes | Kind::NodeLeases);
        let connection = if on_own_thread { connection.isolated() } else { connection.clone() };
        let context =
            FeedContext { connection, cache: Arc::clone(cache), env: env.clone(), metrics: metrics.clone() };
        let batching = EventBatching::default();
        let task: Task = Box::pin(Feed::new(*kind, context, batching.clone()).run());
        if on_own_thread {
            env.spawner.spawn_on_own_thread(kind.resource(), batching, task);
        } else {
            env.spawner.spawn(kind.resource(), task);
        }
    }
}

/// What a feed works with.
struct FeedContext {
    connection: Connection,
    cache: Arc<Cache>,
    env: Env,
    metrics: CacheMetrics,
}

/// Whether a list may have failed because it was too much at once. A server that
/// is not there yet, or that forbids it, is asked for the whole again.
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

/// How many objects of this kind one answer may have at first.
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
    /// Whether what arrives may lie in the socket for a little.
    batching: EventBatching,
    /// Where the next watch goes on; `None` before the first list and after 410.
    version: Option<String>,
    /// When something came last.
    last_event: Mono,
    /// The last watch failed. The API server may have begun anew, with older data.
    failed: bool,
    /// How many watches in a row brought nothing at all.
    idle_watches: u32,
    /// The last list failed: the next one asks for pages.
    paged: bool,
    pause: Duration,
    logged_at: Option<Mono>,
    /// It was said that the API server does not serve this kind.
    logged_unserved: bool,
    /// The metrics of this kind, once there is something to show.
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
            pause: FIRST_PAUSE,
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
                // Nothing to worry anybody: an API server sends no bookmarks for a kind of which
                // it has seen no change since it started, unless etcd reports its progress.
                WatchEnd::Idle => {
                    self.idle_watches += 1;
                    tracing::debug!(
                        resource = self.kind.resource(),
                        "the watch receives nothing; opening it again"
                    );
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

    /// Says what is wrong, once and then once a minute, and waits.
    async fn on_error(&mut self, verb: &'static str, error: &ApiError) {
        let mut message = error_chain(error);
        if self.kind.is_often_unserved() && error.is_unknown_kind() {
            return self.on_unserved().await;
        }
        if self.kind.is_own_crd() && error.is_not_found() {
            message = "the CRDs of pod-safety are not installed, so nothing is fenced: pod-safety manifests prints them".to_owned();
        }
        self.context.metrics.failed(self.kind, error.category());
        self.context.cache.record_problem(
            self.kind,
            WatchProblem {
                category: error.category(),
                message: format!("{verb} {}: {message}", self.kind.resource()),
            },
        );
        let now = self.context.env.now();
        if self.logged_at.is_none_or(|logged| now.since(logged) >= LOG_INTERVAL) {
            self.logged_at = Some(now);
            tracing::warn!(resource = self.kind.resource(), verb, error = %message, "cannot watch this resource; trying again");
        }
        self.back_off().await;
    }

    /// The API server does not serve this kind. That is said once, and is no trouble.
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
        self.context.env.sleep(self.context.env.jitter(self.pause, 0.5)).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
    }

    /// Nodes have taints, which others date.
    fn record_wall_time(&self, now: Mono, wall: Timestamp) {
        if self.kind == Kind::Nodes {
            self.context.cache.record_wall_time(now, wall);
        }
    }

    /// It sent an event, a bookmark, or all of a list.
    fn record_event(&mut self, now: Mono) {
        self.context.cache.record_event(self.kind, now);
        self.update_contact(now);
    }

    /// The API server answered: it opened a watch, or sent a page or an error. That is no news of every object.
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

    /// All nodes renew, and hardly a renewal changes a decision. A list is waited for.
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
            let page = self
                .apply_page(page_path(&self.context.cache.collection_path(self.kind), limit, &token))
                .await?;
            if page.resource_version().is_empty() {
                // Some other JSON, or a list of no moment: its gaps say nothing.
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

    /// Whether the API server has not reached this version. Asked after a failure only.
    async fn is_server_behind(&mut self, version: &str) -> Result<bool, ApiError> {
        if !self.failed {
            return Ok(false);
        }
        let FeedContext { connection, cache, env, .. } = &self.context;
        let one =
            read_page(connection, env, page_path(&cache.collection_path(self.kind), Some(1), ""), &mut drop)
                .await?;
        self.failed = false;
        // Versions are numbers that only grow (KEP-5504). Where they are not, the watch must do.
        let reached = one.resource_version().parse::<u64>().ok();
        Ok(reached.zip(version.parse().ok()).is_some_and(|(reached, seen)| reached < seen))
    }

    /// Reads one page into the cache.
    async fn apply_page(&self, path: String) -> Result<ListStream, ApiError> {
        let FeedContext { connection, cache, env, .. } = &self.context;
        read_page(connection, env, path, &mut |raw| drop(cache.apply_wire(self.kind, &raw, env.now()))).await
    }
}
