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

use super::{Cache, Trouble};
use crate::clock::{Collects, Env, Mono, Task};
use crate::metrics::CacheMetrics;
use crate::model::Kind;
use crate::wire::{Raw, WireError};
use pod_safety_client::{ApiError, Call, Connection, ListStream, error_chain, page_path};
#[cfg(test)]
pub(super) use watch::WATCH_SILENCE;
use watch::{AHEAD, End};

/// Objects of one page: of our own kinds, and of the others once a whole list has failed. A list without a limit is
/// served from the API server's cache and costs it 4 to 7 s of CPU for 150,000
/// pods; pages may have to come from etcd, at two to three times that. They are
/// the gentler way when something is wrong. Read as streams, both cost us the
/// memory of one object. Of our own kinds there are few objects, unless somebody makes many.
const PAGE: usize = 5_000;

/// A list of which nothing comes for this long is given up.
pub(super) const LIST_SILENCE: Duration = Duration::from_secs(30);

/// After so many silent watches in a row the kind is listed again. After etcd was restored from a backup a watch waits for
/// versions that are long in coming, and nothing says so. A kind without a change in three minutes is cheap to list.
/// docs/assumptions.md: history-is-kept
const SILENT_WATCHES: u32 = 2;

/// The first pause after a failure, doubled each time up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause: a returning API server is found again within this.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// A watch that ends sooner than this is not opened again at once: a proxy that
/// ends every watch, or a server that forgets its history, is not hammered.
const SHORT: Duration = Duration::from_secs(1);

/// How often an API server is asked again for a kind that it does not serve: it has to be started anew to serve it.
const UNSERVED_AGAIN: Duration = Duration::from_secs(60);

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
    if kinds.contains(&Kind::Evictions) {
        cache.evict();
    }
    for kind in kinds {
        // Of what the API server does not serve there is nothing to be alarmed about.
        if !kind.is_often_unserved() {
            metrics.synced(*kind, false);
        }
        // Of these there may be hundreds of thousands.
        let apart = matches!(kind, Kind::Pods | Kind::Nodes | Kind::NodeLeases);
        let connection = if apart { connection.apart() } else { connection.clone() };
        let around =
            Around { connection, cache: Arc::clone(cache), env: env.clone(), metrics: metrics.clone() };
        let collects = Collects::default();
        let task: Task = Box::pin(Feed::new(*kind, around, collects.clone()).run());
        if apart {
            env.spawner.spawn_apart(kind.resource(), collects, task);
        } else {
            env.spawner.spawn(kind.resource(), task);
        }
    }
}

/// What a feed works with.
struct Around {
    connection: Connection,
    cache: Arc<Cache>,
    env: Env,
    metrics: CacheMetrics,
}

/// Whether a list may have failed because it was too much at once. A server that
/// is not there yet, or that forbids it, is asked for the whole again.
fn too_much(error: &ApiError) -> bool {
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
    kind.is_ours().then_some(PAGE)
}

/// Reads one page, object by object.
pub async fn page(
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

struct Feed {
    kind: Kind,
    around: Around,
    /// Whether what arrives may lie in the socket for a little.
    collects: Collects,
    /// Where the next watch goes on; `None` before the first list and after 410.
    version: Option<String>,
    /// When something came last.
    heard: Mono,
    /// The last watch failed. The API server may have begun anew, with older data.
    failed: bool,
    /// How many watches in a row brought nothing at all.
    silent: u32,
    /// The last list failed: the next one asks for pages.
    paged: bool,
    pause: Duration,
    logged: Option<Mono>,
    /// It was said that the API server does not serve this kind.
    told_unserved: bool,
    /// The metrics of this kind, once there is something to show.
    contact: Option<Gauge>,
    objects: Option<[IntGauge; 2]>,
}

impl Feed {
    fn new(kind: Kind, around: Around, collects: Collects) -> Self {
        Self {
            kind,
            heard: around.env.now(),
            around,
            collects,
            version: None,
            failed: false,
            silent: 0,
            paged: false,
            pause: FIRST_PAUSE,
            logged: None,
            told_unserved: false,
            contact: None,
            objects: None,
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
            let opened = self.around.env.now();
            let end = match self.is_ahead(&version).await {
                Ok(true) => End::Relist(AHEAD),
                Ok(false) => self.watch(&version).await,
                Err(error) => End::Failed(error),
            };
            let short = self.around.env.now().since(opened) < SHORT;
            match end {
                End::Over => {}
                End::Relist(why) => {
                    tracing::info!(resource = self.kind.resource(), why, "listing again");
                    self.version = None;
                }
                // Nothing to worry anybody: an API server sends no bookmarks for a kind of which
                // it has seen no change since it started, unless etcd reports its progress.
                End::Silent => {
                    self.silent += 1;
                    tracing::debug!(
                        resource = self.kind.resource(),
                        "the watch receives nothing; opening it again"
                    );
                    if self.silent >= SILENT_WATCHES {
                        (self.silent, self.version) = (0, None);
                    }
                }
                End::Failed(error) => {
                    self.failed = true;
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
        self.told_unserved = false;
        let (objects, undecodable) = self.around.cache.read().view().count(self.kind);
        tracing::info!(resource = self.kind.resource(), objects, undecodable, "listed");
        self.around.metrics.listed(self.kind);
        self.around.metrics.synced(self.kind, true);
    }

    /// Says what is wrong, once and then once a minute, and waits.
    async fn trouble(&mut self, verb: &'static str, error: &ApiError) {
        let mut message = error_chain(error);
        if self.kind.is_often_unserved() && error.is_unknown_kind() {
            return self.unserved().await;
        }
        if self.kind.is_ours() && error.is_not_found() {
            message = "the CRDs of pod-safety are not installed, so nothing is fenced: pod-safety manifests prints them".to_owned();
        }
        self.around.metrics.failed(self.kind, error.category());
        self.around.cache.troubled(
            self.kind,
            Trouble {
                category: error.category(),
                message: format!("{verb} {}: {message}", self.kind.resource()),
            },
        );
        let now = self.around.env.now();
        if self.logged.is_none_or(|logged| now.since(logged) >= LOG_AGAIN) {
            self.logged = Some(now);
            tracing::warn!(resource = self.kind.resource(), verb, error = %message, "cannot watch this resource; trying again");
        }
        self.back_off().await;
    }

    /// The API server does not serve this kind. That is said once, and is no trouble.
    async fn unserved(&mut self) {
        let Around { cache, env, .. } = &self.around;
        cache.unserved(self.kind);
        if !std::mem::replace(&mut self.told_unserved, true) {
            tracing::info!(
                resource = self.kind.resource(),
                "the API server does not serve lifecycle.k8s.io/v1alpha1: nothing is done about evictions until it does"
            );
        }
        self.version = None;
        env.sleep(env.jitter(UNSERVED_AGAIN, 0.5)).await;
    }

    async fn back_off(&mut self) {
        self.around.env.sleep(self.around.env.jitter(self.pause, 0.5)).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Nodes have taints, which others date.
    fn read_wall(&self, now: Mono, wall: Timestamp) {
        if self.kind == Kind::Nodes {
            self.around.cache.read_wall(now, wall);
        }
    }

    /// It sent an event, a bookmark, or all of a list.
    fn heard(&mut self, now: Mono) {
        self.around.cache.heard(self.kind, now);
        self.contacted(now);
    }

    /// The API server answered: it opened a watch, or sent a page or an error. That is no news of every object.
    fn reached(&mut self, now: Mono) {
        self.around.cache.reached(self.kind, now);
        self.contacted(now);
    }

    fn contacted(&mut self, now: Mono) {
        let Around { env, metrics, .. } = &self.around;
        let wall = env.clock.wall();
        self.heard = now;
        let contact = self.contact.get_or_insert_with(|| metrics.last_contact_of(self.kind));
        contact.set(wall.as_duration().as_secs_f64());
        self.read_wall(now, wall);
    }

    fn count(&mut self) {
        let (objects, undecodable) = self.around.cache.read().view().count(self.kind);
        let gauges = self.objects.get_or_insert_with(|| self.around.metrics.objects_of(self.kind));
        for (gauge, count) in gauges.iter().zip([objects, undecodable]) {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// All nodes renew, and hardly a renewal changes a decision. A list is waited for.
    fn collect(&self, watching: bool) {
        self.collects.set(watching && self.kind == Kind::NodeLeases);
    }

    async fn list(&mut self) -> Result<String, ApiError> {
        self.collect(false);
        let now = self.around.env.now();
        self.read_wall(now, self.around.env.clock.wall());
        self.around.cache.begin_list_of(self.kind);
        let mut token = String::new();
        loop {
            let pages = self.paged || !token.is_empty();
            let limit = first_limit(self.kind).or(pages.then_some(PAGE));
            let page = self.page(page_path(&self.around.cache.path(self.kind), limit, &token)).await?;
            if page.resource_version().is_empty() {
                // Some other JSON, or a list of no moment: its gaps say nothing.
                return Err(ApiError::Undecodable(WireError::BrokenOff));
            }
            self.reached(self.around.env.now());
            self.count();
            if page.continue_token().is_empty() {
                self.around.cache.end_list_of(self.kind, self.around.env.now());
                self.count();
                return Ok(page.resource_version().to_owned());
            }
            page.continue_token().clone_into(&mut token);
        }
    }

    /// Whether the API server has not reached this version. Asked after a failure only.
    async fn is_ahead(&mut self, version: &str) -> Result<bool, ApiError> {
        if !self.failed {
            return Ok(false);
        }
        let Around { connection, cache, env, .. } = &self.around;
        let one = page(connection, env, page_path(&cache.path(self.kind), Some(1), ""), &mut drop).await?;
        self.failed = false;
        // Versions are numbers that only grow (KEP-5504). Where they are not, the watch must do.
        let reached = one.resource_version().parse::<u64>().ok();
        Ok(reached.zip(version.parse().ok()).is_some_and(|(reached, seen)| reached < seen))
    }

    /// Reads one page into the cache.
    async fn page(&self, path: String) -> Result<ListStream, ApiError> {
        let Around { connection, cache, env, .. } = &self.around;
        page(connection, env, path, &mut |raw| drop(cache.receive(self.kind, &raw, env.now()))).await
    }
}
