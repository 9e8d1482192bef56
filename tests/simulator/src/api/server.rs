//! An API server: it executes requests on turns of its own, follows the log as
//! fast as it is let, and answers watches from what it has followed.
//!
//! Invariant: a request that has arrived is executed whatever becomes of its
//! sender. A controller that dies after sending must find its write applied.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use pod_safety_shared::clock::Env;
use serde_json::Value;

use super::conduct::{Conduct, Course, Disturbance, Following, Reach};
use super::etcd::Etcd;
use super::execute::{Answer, begin_eviction, end_eviction, execute};
use super::failure::Failure;
use super::kinds::Kind;
use super::log::Log;
use super::read::Cached;
use super::reply::Reply;
use super::route::{ApiRequest, Route};
use super::watch::{self, Opening, Watches};
use super::{CONTINUE, discovery};

/// How long a reader waits for a version that this server has not reached.
const WAIT_FOR_VERSION: Duration = Duration::from_secs(3);
/// How long a write waits for etcd (`requestTimeoutUpperBound`).
const WRITE_TIMEOUT: Duration = Duration::from_secs(34);
/// How long a read waits for etcd (`--request-timeout`).
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a quiet watch hears that it is one.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// How long before its end a watch gets its last bookmark.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// `--min-request-timeout`: watches that name no end get one in this or twice this.
const WATCH_AT_LEAST: Duration = Duration::from_secs(1800);

struct State {
    cached: Cached,
    watches: Watches,
    following: Following,
    reach: Reach,
}

/// One API server.
pub struct ApiServer {
    name: String,
    etcd: Arc<Etcd>,
    env: Env,
    conduct: Arc<dyn Conduct>,
    state: Mutex<State>,
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ApiServer {
    /// Starts a server. Its watch cache begins now: watches from before are 410.
    /// `env` is its host's: time stamps are by its wall clock, and its tasks stop
    /// with its spawner.
    #[must_use]
    pub fn start(name: &str, etcd: &Arc<Etcd>, env: Env, conduct: Arc<dyn Conduct>) -> Arc<Self> {
        let cached = {
            let log = etcd.log.lock();
            Cached { applied: log.revision, oldest: log.revision, objects: log.objects.clone() }
        };
        let state = State { cached, watches: Watches::default(), following: Following::AtOnce, reach: Reach::Whole };
        let server =
            Arc::new(Self { name: name.to_owned(), etcd: Arc::clone(etcd), env, conduct, state: Mutex::new(state) });
        etcd.join(&server);
        server
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Up to which revision it has followed the log.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.state.lock().cached.applied
    }

    /// What its watch cache shows of a kind, in the order of names: what a list
    /// with `resourceVersion=0` is made of.
    #[must_use]
    pub fn cached(&self, kind: &str) -> Vec<Arc<Value>> {
        self.cached_that(kind, |_| true)
    }

    /// Those of a kind that are wanted.
    pub(crate) fn cached_that(&self, kind: &str, wanted: impl Fn(&Value) -> bool) -> Vec<Arc<Value>> {
        let index = self.etcd.log.lock().kinds.iter().position(|known| known.kind == kind);
        let Some(index) = index else { return Vec::new() };
        let state = self.state.lock();
        let range = (index, String::new())..(index + 1, String::new());
        let objects = state.cached.objects.range(range).map(|(_, object)| &object.value);
        objects.filter(|object| wanted(object)).cloned().collect()
    }

    /// How many watches are open.
    #[must_use]
    pub fn open_watches(&self) -> usize {
        self.state.lock().watches.len()
    }

    /// Sets how it follows from now on. What it missed it learns at once, unless
    /// it is held.
    pub fn follow(self: &Arc<Self>, following: Following) {
        self.state.lock().following = following;
        if following != Following::Held {
            self.catch_up(u64::MAX);
        }
    }

    /// Sets whether it reaches etcd. Cut off it follows nothing either: hold it too.
    pub fn reach(&self, reach: Reach) {
        self.state.lock().reach = reach;
    }

    /// Whether nothing of what it is asked to write, or to read from etcd, arrives there.
    pub(crate) fn is_cut(&self) -> bool {
        self.state.lock().reach == Reach::Cut
    }

    /// Forgets history up to `revision`: watches that begin before are 410.
    pub fn compact_watch_cache(&self, revision: u64) {
        let cached = &mut self.state.lock().cached;
        cached.oldest = cached.oldest.max(revision.min(cached.applied));
    }

    /// Disturbs the open watches of `caller`.
    pub fn disturb(&self, caller: &str, how: Disturbance) {
        self.state.lock().watches.disturb(caller, None, how);
    }

    /// Those of one kind.
    pub(crate) fn disturb_kind(&self, caller: &str, kind: &str, how: Disturbance) {
        self.state.lock().watches.disturb(caller, Some(kind), how);
    }

    /// The server dies: all watches break. Start another one in its place.
    pub fn crash(&self) {
        self.state.lock().watches.reset_all();
    }

    /// Something was written, by whichever server.
    pub(crate) fn written(self: &Arc<Self>) {
        let following = self.state.lock().following;
        match following {
            Following::AtOnce => self.catch_up(u64::MAX),
            Following::Held => {}
            Following::After(lag) => {
                let (server, revision) = (Arc::clone(self), self.etcd.revision());
                let task = async move {
                    server.env.sleep(lag).await;
                    let held = server.state.lock().following == Following::Held;
                    if !held {
                        server.catch_up(revision);
                    }
                };
                self.env.spawner.spawn("watch cache", Box::pin(task));
            }
        }
    }

    /// Learns of all changes up to `revision`.
    fn catch_up(&self, revision: u64) {
        let log = self.etcd.log.lock();
        let mut state = self.state.lock();
        let State { cached, watches, .. } = &mut *state;
        if cached.applied < log.compacted {
            // etcd cannot tell what was in between: like the real watch cache, list
            // anew and end every watch. Going on would be a stream with a hole in it.
            *cached = Cached { applied: log.revision, oldest: log.revision, objects: log.objects.clone() };
            watches.reset_all();
            return;
        }
        for change in log.changes(cached.applied, revision) {
            match &change.after {
                Some(after) => drop(cached.objects.insert(change.key.clone(), Arc::clone(after))),
                None => drop(cached.objects.remove(&change.key)),
            }
            watches.send_change(change);
        }
        cached.applied = cached.applied.max(revision.min(log.revision));
    }

    /// Executes a request now, without course and waiting.
    pub(crate) fn handle(self: &Arc<Self>, asked: &ApiRequest) -> Reply {
        let whole = self.handle_by(asked, |log, cached, route, now| execute(log, cached, route, asked, now));
        whole.unwrap_or_else(|| self.refuse(&Failure::unimplemented("half of a request")))
    }

    /// Executes a request, or a half of it. `None`: the other half is to come.
    fn handle_by(
        self: &Arc<Self>,
        asked: &ApiRequest,
        how: impl FnOnce(&mut Log, &Cached, &Route, Timestamp) -> Result<Answer, Failure>,
    ) -> Option<Reply> {
        let (answer, before, after) = {
            let mut log = self.etcd.log.lock();
            let before = log.revision;
            let state = self.state.lock();
            let now = self.env.clock.wall();
            let route = Route::parse(&log.kinds, &asked.path).filter(|route| log.serves(&route.kind));
            (route.map(|route| how(&mut log, &state.cached, &route, now)), before, log.revision)
        };
        let Some(answer) = answer else { return Some(self.no_route(asked)) };
        if after != before {
            self.etcd.announce();
        }
        let reply = match answer {
            Ok(Answer::Object { code, text }) => Some(Reply::json(code, text)),
            Ok(Answer::Watch(opening)) => Some(self.open(asked, opening)),
            Ok(Answer::Half) => None,
            Err(failure) => Some(self.refuse_to(asked, &failure)),
        };
        let code = match &reply {
            Some(Reply::Whole { code, .. }) => *code,
            Some(Reply::Stream { .. }) => 200,
            None => CONTINUE,
        };
        self.conduct.executed(&self.name, asked, code, before);
        reply
    }

    /// An eviction: counted now, carried out a moment later.
    async fn evict(self: &Arc<Self>, asked: &ApiRequest, between: Duration) -> Reply {
        let first = self.handle_by(asked, |log, _, route, now| begin_eviction(log, route, asked, now));
        if let Some(reply) = first {
            return reply;
        }
        self.env.sleep(between).await;
        let second = self.handle_by(asked, |log, _, route, now| end_eviction(log, route, asked, now));
        second.unwrap_or_else(|| self.refuse(&Failure::unimplemented("a third half of an eviction")))
    }

    fn no_route(&self, asked: &ApiRequest) -> Reply {
        let found = discovery::find(&self.kinds(), &asked.path, &asked.accept);
        if let Some(found) = found.filter(|_| asked.method == http::Method::GET) {
            return Reply::json(found.status().as_u16(), found.into_body());
        }
        let (code, text) = match asked.path.as_str() {
            "/readyz" | "/livez" | "/healthz" => (200, "ok"),
            // Nobody bound the role by which medik8s' Leases may be taken.
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => (
                201,
                r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","status":{"allowed":false}}"#,
            ),
            // What no server knows is no mistake of the simulator. The group of evictions needs a feature gate.
            path if UNSERVED.iter().any(|group| path.starts_with(group)) || is_of_a_group(path) => {
                (404, "404 page not found\n")
            }
            path => {
                let failure = Failure::unimplemented(format!("{} {path}", asked.method));
                return self.refuse_to(asked, &failure);
            }
        };
        let content_type = if code == 201 { "application/json" } else { "text/plain" };
        Reply::Whole { code, content_type, retry_after: None, body: Bytes::from_static(text.as_bytes()) }
    }

    /// A refusal that is counted if it is the simulator's own fault.
    fn refuse_to(&self, asked: &ApiRequest, failure: &Failure) -> Reply {
        if failure.code == 501 && !asked.stranger {
            self.etcd.count_unimplemented(&failure.message);
        }
        self.refuse(failure)
    }

    pub(crate) fn refuse(&self, failure: &Failure) -> Reply {
        let body = failure.status().to_string().into();
        Reply::Whole { code: failure.code, content_type: "application/json", retry_after: failure.retry_after(), body }
    }

    /// Takes a watch on and starts the task that ends it.
    fn open(self: &Arc<Self>, asked: &ApiRequest, opening: Opening) -> Reply {
        let Opening { first, watch, receiver, seconds } = opening;
        if let Some(watch) = watch {
            let id = {
                let mut state = self.state.lock();
                state.watches.add(watch)
            };
            let end = seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs);
            let end = end.unwrap_or_else(|| self.env.jitter(WATCH_AT_LEAST, 1.0));
            let bookmarks = asked.parameter("allowWatchBookmarks") == "true";
            let server = Arc::clone(self);
            let task = async move { server.attend(id, end, bookmarks).await };
            self.env.spawner.spawn("watch", Box::pin(task));
        }
        Reply::Stream { first, receiver }
    }

    /// Sends bookmarks to a watch until its time is up.
    async fn attend(self: Arc<Self>, id: u64, end: Duration, bookmarks: bool) {
        let began = self.env.now();
        let last = end.saturating_sub(LAST_BOOKMARK);
        let mut next = BOOKMARK_INTERVAL;
        loop {
            let moment = if bookmarks && next < last { next } else { last };
            let passed = self.env.now().since(began);
            self.env.sleep(moment.saturating_sub(passed)).await;
            let there = {
                let mut state = self.state.lock();
                let applied = state.cached.applied;
                state.watches.bookmark(id, applied)
            };
            if !there {
                return;
            }
            if moment == last {
                break;
            }
            next += BOOKMARK_INTERVAL;
        }
        self.env.sleep(end.saturating_sub(last)).await;
        self.state.lock().watches.close(id);
    }

    /// Executes a request when its version is there, or says that it is not.
    pub(crate) async fn serve(self: &Arc<Self>, asked: &ApiRequest) -> Reply {
        let wanted = watch::needs(&self.etcd.log.lock(), asked);
        let cached = asked.watches() || !matches!(asked.parameter("resourceVersion"), "");
        let reach = self.state.lock().reach;
        let reads = asked.method == http::Method::GET;
        if reach != Reach::Whole && !(reads && cached) {
            if reach == Reach::AnswersLost {
                drop(self.handle(asked));
            }
            self.env.sleep(if reads { READ_TIMEOUT } else { WRITE_TIMEOUT }).await;
            return self.refuse(&Failure::timeout("request did not complete within the allotted timeout"));
        }
        let began = self.env.now();
        while self.applied() < wanted {
            if self.env.now().since(began) >= WAIT_FOR_VERSION {
                return self.refuse(&Failure::future_version(wanted, self.applied()));
            }
            self.env.sleep(Duration::from_millis(50)).await;
        }
        if asked.method == http::Method::POST && asked.path.ends_with("/eviction") {
            let between = self.conduct.between(&self.name, asked);
            if !between.is_zero() {
                return self.evict(asked, between).await;
            }
        }
        self.handle(asked)
    }

    /// The kinds that it serves.
    pub(crate) fn kinds(&self) -> Vec<Arc<Kind>> {
        let log = self.etcd.log.lock();
        log.kinds.iter().filter(|kind| log.serves(kind)).cloned().collect()
    }

    pub(crate) const fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn course(&self, asked: &ApiRequest) -> Course {
        self.conduct.course(&self.name, asked)
    }
}

const UNSERVED: [&str; 2] = ["/apis/pod-safety.dev/", "/apis/lifecycle.k8s.io/"];

/// Whether a path asks what a group has: `/apis/GROUP/VERSION`.
fn is_of_a_group(path: &str) -> bool {
    path.starts_with("/apis/") && path.trim_matches('/').split('/').count() == 3
}
