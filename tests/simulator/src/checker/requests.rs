//! How requests must look, and how many are too many.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::leaders::{is_guarded, is_lease_of_ours};
use super::{Checker, Invariant, State};
use crate::api::ApiRequest;
use crate::world::{number_at, str_at};

/// Requests of one process for one path in a minute. Elections and first reads of
/// missing nodes need sixty.
const MANY: u32 = 150;
/// Writes of one process to one object in a minute, when nothing goes wrong.
const MANY_AT_REST: u32 = 10;
/// The same for the numbers of one budget, which follow its pods: people drain and
/// scale when nothing goes wrong too, and each eviction brings three writes. Nine pods that two drains move within a
/// minute bring 54 (seed 9008).
const MANY_OF_A_BUDGET: u32 = 60;
/// For how long after the end of all trouble what failed may be tried again.
const AT_REST_AFTER: Duration = Duration::from_secs(60);
/// No request may stay open for longer: `READ_TIMEOUT` of the client, and a
/// second for the grain of timers.
pub(super) const LONGEST_REQUEST: Duration = Duration::from_secs(31);

/// What a process meant by a write, read before anything could change it.
#[derive(Clone, Debug)]
pub(crate) struct Intention {
    pub(crate) uid: String,
    pub(crate) sent: Duration,
}

/// A request that was neither answered nor given up.
#[derive(Debug)]
struct Open {
    since: Duration,
    /// Its sender first.
    what: String,
    /// Only a leader may send it.
    guarded: bool,
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    /// By process and path.
    intentions: BTreeMap<(String, String), Intention>,
    /// Requests in this minute.
    counts: BTreeMap<(String, String), u32>,
    minute: u64,
    outstanding: BTreeMap<u64, Open>,
    next: u64,
}

/// A request that is under way. Dropped: it was answered or given up.
pub(crate) struct Outstanding {
    checker: Arc<Checker>,
    number: u64,
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.checker.state.lock().requests.outstanding.remove(&self.number);
    }
}

/// The same for an incident of fencing: each of its steps is written before and after. And for an Eviction: the turns of its
/// responders, what ours report, and who requests it.
const MANY_OF_A_FENCE: u32 = 25;

fn is_write_to_pods(method: &http::Method, path: &str) -> bool {
    *method != http::Method::GET && path.contains("/pods/")
}

impl Checker {
    /// A process under test sends a request.
    pub(crate) fn sent(self: &Arc<Self>, caller: &str, method: &http::Method, path: &str, body: &[u8]) -> Outstanding {
        let (now, mut state) = self.now_and_state();
        state.trace(&[&now.as_millis().to_le_bytes(), caller.as_bytes(), path.as_bytes(), body]);
        state.acted(now, caller, method, path, body);
        if is_write_to_pods(method, path) {
            let body: Value = serde_json::from_slice(body).unwrap_or_default();
            let paths = ["/preconditions/uid", "/metadata/uid", "/deleteOptions/preconditions/uid"];
            let uid = paths.map(|path| str_at(&body, path)).concat();
            let intention = Intention { uid, sent: now };
            state.requests.intentions.insert((caller.to_owned(), path.to_owned()), intention);
        }
        state.check_sent(now, caller, method, path, body);
        state.requests.next += 1;
        let number = state.requests.next;
        let guarded = is_guarded(method, path);
        let what = format!("{caller} {method} {path}");
        state.requests.outstanding.insert(number, Open { since: now, what, guarded });
        drop(state);
        Outstanding { checker: Arc::clone(self), number }
    }

    /// What the baseline means by a write, which its requests do not say.
    pub(crate) fn intends(&self, caller: &str, path: &str, uid: &str) {
        let intention = Intention { uid: uid.to_owned(), sent: self.now() };
        self.state.lock().requests.intentions.insert((caller.to_owned(), path.to_owned()), intention);
    }

    /// Requests that nobody gave up in time.
    pub(crate) fn check_outstanding(&self) {
        let (now, mut state) = self.now_and_state();
        let late = |open: &&Open| now.saturating_sub(open.since) > LONGEST_REQUEST;
        let told = |open: &Open| format!("{} is under way since {:?}: it has no deadline", open.what, open.since);
        let late: Vec<_> = state.requests.outstanding.values().filter(late).map(told).collect();
        for what in late {
            state.violated(now, Invariant::Hygiene, what);
        }
    }
}

impl State {
    /// A request of a process under test arrived.
    pub(super) fn requested(&mut self, now: Duration, asked: &ApiRequest) {
        if let Some(what) = bad_manners(asked) {
            self.violated(now, Invariant::Hygiene, format!("{} {} {} {what}", asked.caller, asked.method, asked.path));
        }
        let requests = &mut self.requests;
        let minute = now.as_secs() / 60;
        if requests.minute != minute {
            requests.minute = minute;
            requests.counts.clear();
        }
        let count =
            requests.counts.entry((asked.caller.to_string(), format!("{} {}", asked.method, asked.path))).or_default();
        *count += 1;
        let count = *count;
        let began = Duration::from_secs(minute * 60);
        let at_rest = self.healed.is_some_and(|healed| began >= healed + AT_REST_AFTER);
        let writes = asked.method != http::Method::GET && !is_lease_of_ours(&asked.path);
        // Many objects are created at one path.
        let creates = asked.method == http::Method::POST && !asked.path.contains("/pods/");
        let budget = asked.path.contains("/poddisruptionbudgets/");
        let fence = asked.path.contains("/nodefences/");
        let eviction = asked.path.contains("/lifecycle.k8s.io/");
        let many = match (budget, fence || eviction) {
            (true, _) => MANY_OF_A_BUDGET,
            (false, true) => MANY_OF_A_FENCE,
            (false, false) => MANY_AT_REST,
        };
        if at_rest && writes && !creates && count == many {
            let what = format!("{} sent {} {} {count} times in a quiet minute", asked.caller, asked.method, asked.path);
            self.violated(now, Invariant::HotLoop, what);
        }
        if count == MANY {
            let what = format!("{} sent {} {} {MANY} times within a minute", asked.caller, asked.method, asked.path);
            self.violated(now, Invariant::HotLoop, what);
        }
    }
}

impl Requests {
    /// A write of this process that only a leader may send, neither answered nor given up.
    pub(super) fn is_writing(&self, caller: &str) -> Option<String> {
        let by = |open: &&Open| open.guarded && open.what.split(' ').next() == Some(caller);
        self.outstanding.values().find(by).map(|open| open.what.clone())
    }

    pub(super) fn intention(&self, asked: &ApiRequest) -> Option<Intention> {
        self.intentions.get(&(asked.caller.to_string(), asked.path.clone())).cloned()
    }
}

/// Whether a request leaves a pod's processes time to end.
pub(super) fn meant_gracefully(asked: &ApiRequest) -> bool {
    let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    let options = if asked.method == http::Method::POST { "/deleteOptions" } else { "" };
    number_at(&body, &format!("{options}/gracePeriodSeconds")) != Some(0) && asked.method != http::Method::PATCH
}

/// Whether a path is that of a machine or a remediation of another project.
fn is_of_another_project(path: &str) -> bool {
    ["/machines/", "/nodeclaims/", "/fenceagentsremediations/"].into_iter().any(|plural| path.contains(plural))
}

/// What is wrong with a request, whatever comes of it.
fn bad_manners(asked: &ApiRequest) -> Option<&'static str> {
    if asked.parameter("resourceVersion") == "0" {
        return Some("may be answered from the past");
    }
    if asked.method == http::Method::GET {
        return None;
    }
    let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    let pods = asked.path.contains("/pods/");
    if asked.method == http::Method::DELETE {
        // A controller of another project writes its object all the time: the UID is its identity.
        let version = !is_of_another_project(&asked.path);
        let names = |field: &str| !str_at(&body, &format!("/preconditions/{field}")).is_empty();
        if !names("uid") || version && !names("resourceVersion") {
            return Some("does not name UID and version");
        }
        // Only pods have a grace.
        return match number_at(&body, "/gracePeriodSeconds") {
            Some(0..) => None,
            Some(_) => Some("asks for a grace that there is not"),
            None => pods.then_some("leaves its grace to the server"),
        };
    }
    if asked.path.ends_with("/eviction") {
        let names = |field: &str| !str_at(&body, &format!("/deleteOptions/preconditions/{field}")).is_empty();
        if !names("uid") || !names("resourceVersion") {
            return Some("does not name UID and version");
        }
        return match number_at(&body, "/deleteOptions/gracePeriodSeconds") {
            Some(1..) => None,
            _ => Some("does not leave the pod its grace"),
        };
    }
    if pods && str_at(&body, "/metadata/uid").is_empty() {
        return Some("does not name the UID");
    }
    let creates = asked.method == http::Method::POST;
    (!creates && str_at(&body, "/metadata/resourceVersion").is_empty()).then_some("does not name the version")
}
