//! S9: who may write when. What only the leader may write is judged twice.
//!
//! **When it is sent.** Its sender's own term must last, and nobody else's may. A term lasts a renew
//! deadline from when the renewal was *sent* that succeeded, and ends when its holder sends the write
//! that gives the Lease back: from then on another may lead at any moment, whatever becomes of that write.
//!
//! **When it is applied**, if its sender's term is over by then, or another's began. That alone is
//! nobody's mistake: a client gives each call up when the term ends, but cannot call back what is on the
//! wire, and an API server may be slow. What protects then is compare-and-swap. So such a write is a
//! violation unless both are so:
//! * its bytes are those that its process sent within its term: nothing beneath the process may send it
//!   again later, or aim it anew, for what it names then is what nobody decided on;
//! * it names the version of what it changes (S12 asks for its UID, too), and that is the version that is
//!   there; or it creates an object by a name that nobody bears. Then nothing has happened to that object
//!   since its sender's term, and the write is the one that the next leader would have found done.
//!
//! How late a write may be applied is not judged: that is up to the network and the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::twins::sum;
use super::{Checker, Invariant, State};
use crate::api::{ApiRequest, ObservedChange};
use crate::world::str_at;

#[derive(Debug, Default)]
pub(super) struct Leaders {
    /// Until when each process may write, by the renewals that it knows to be applied.
    terms: BTreeMap<String, Duration>,
    /// What each process sent within its term, as a number.
    sent: BTreeSet<(String, u64)>,
}

impl Leaders {
    fn term_end(&self, caller: &str) -> Option<Duration> {
        self.terms.get(caller).copied()
    }

    /// The term of somebody else that lasts.
    fn other_term(&self, now: Duration, caller: &str) -> Option<(&str, Duration)> {
        let mut others = self.terms.iter().filter(|(other, ends)| *other != caller && now < **ends);
        others.next().map(|(other, ends)| (other.as_str(), *ends))
    }
}

/// They are in the namespace of the FenceDevice, which is ours here.
const LEASES_OF_AGENTS: &str = "/leases/watchdog.";

pub(super) fn is_lease_of_ours(path: &str) -> bool {
    path.starts_with("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases") && !path.contains(LEASES_OF_AGENTS)
}

/// What only the leader may write: pods, nodes, the numbers of budgets, what is fenced, whose volumes are,
/// where they are attached, requests to evict pods, and that the promise of an agent is taken back.
pub(crate) fn is_guarded(method: &Method, path: &str) -> bool {
    let guarded = [
        "/pods/",
        "/nodes/",
        "/poddisruptionbudgets/",
        "/pod-safety.dev/",
        "/pod-safety-volumes/",
        "/volumeattachments",
        "/lifecycle.k8s.io/",
        LEASES_OF_AGENTS,
    ];
    *method != Method::GET && guarded.into_iter().any(|part| path.contains(part))
}

/// Whether a write of the Lease leaves it without a holder.
pub(crate) fn gives_back(method: &Method, path: &str, body: &[u8]) -> bool {
    *method != Method::GET && is_lease_of_ours(path) && {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        str_at(&body, "/spec/holderIdentity").is_empty()
    }
}

fn number(method: &Method, path: &str, body: &[u8]) -> u64 {
    sum(&[method.as_str().as_bytes(), path.as_bytes(), body])
}

impl Checker {
    /// A write of the Lease was answered: a renewal extends the term from when it was sent.
    pub(crate) fn renewed(&self, caller: &str, method: &Method, path: &str, body: &[u8], sent: Duration, code: u16) {
        if *method == Method::GET || !is_lease_of_ours(path) {
            return;
        }
        let mut state = self.state.lock();
        if !(200..300).contains(&code) {
            state.probe("renewal of leadership failed");
        } else if !gives_back(method, path, body) {
            let ends = sent + self.promise.renew_deadline;
            state.leaders.terms.insert(caller.to_owned(), ends);
        }
    }
}

impl State {
    /// A process sends a write.
    pub(super) fn check_sent(&mut self, now: Duration, caller: &str, method: &Method, path: &str, body: &[u8]) {
        if gives_back(method, path, body) {
            self.leaders.terms.entry(caller.to_owned()).and_modify(|ends| *ends = now.min(*ends));
            if let Some(what) = self.requests.is_writing(caller) {
                let what = format!("{caller} gives the Lease back, and {what} is under way");
                self.violated(now, Invariant::Term, what);
            }
            return;
        }
        if !is_guarded(method, path) {
            return;
        }
        let ends = self.leaders.term_end(caller);
        if ends.is_none_or(|ends| now >= ends) {
            let what = format!("{caller} sent {method} {path} outside of its term, which ended at {ends:?}");
            self.violated(now, Invariant::Term, what);
        } else {
            self.leaders.sent.insert((caller.to_owned(), number(method, path, body)));
        }
        if let Some((other, ends)) = self.leaders.other_term(now, caller) {
            let what = format!("{caller} sent {method} {path} in the term of {other}, which ends at {ends:?}");
            self.violated(now, Invariant::Term, what);
        }
    }

    /// A write is applied: late, it is bound to what its sender knew in its term.
    pub(super) fn check_late(&mut self, now: Duration, asked: &ApiRequest, changes: &[ObservedChange]) {
        let Some(change) = changes.first() else { return };
        // Who never led was not to send it, and is charged with that.
        let lasts = self.leaders.term_end(&asked.caller).is_none_or(|ends| now < ends);
        let other = self.leaders.other_term(now, &asked.caller).map(|(other, _)| other.to_owned());
        if !is_guarded(&asked.method, &asked.path) || (lasts && other.is_none()) {
            return;
        }
        let known = (asked.caller.to_string(), number(&asked.method, &asked.path, &asked.body));
        let wrong = if !self.leaders.sent.contains(&known) {
            Some("which it did not send like that within its term")
        } else {
            lacks_precondition(asked, change).then_some("which names no version of what is there")
        };
        match wrong {
            Some(why) => {
                let when = other.map_or("after its term".to_owned(), |other| format!("in the term of {other}"));
                let what = format!("{} {} of {} is applied {when}, {why}", asked.method, asked.path, asked.caller);
                self.violated(now, Invariant::Term, what);
            }
            None => self.probe("a write was applied after its sender's term, bound to what that knew"),
        }
    }
}

fn lacks_precondition(asked: &ApiRequest, change: &ObservedChange) -> bool {
    let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    if asked.path.ends_with("/eviction") {
        // The API server deletes the pod by these alone, whatever it counted before.
        let names = |field: &str| !str_at(&body, &format!("/deleteOptions/preconditions/{field}")).is_empty();
        return !names("uid") || !names("resourceVersion");
    }
    let named = |field: &str| {
        let of = |object: &str| str_at(&body, &format!("/{object}/{field}")).to_owned();
        of("preconditions") + &of("metadata")
    };
    match &change.before {
        Some(before) => named("resourceVersion") != str_at(before, "/metadata/resourceVersion"),
        None => named("name").is_empty(),
    }
}

#[cfg(test)]
mod tests;
