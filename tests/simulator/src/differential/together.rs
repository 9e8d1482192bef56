//! Four clients at once on few keys: all their answers must fit one order.
//!
//! The search for such an order, which linearizability needs in general, is not needed here: a write answers with its
//! resourceVersion, and a compare-and-swap names the one before it. So the writes of a key must be a chain, and reads
//! and refusals must fit it, each within the time between its request and its answer.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::run::Side;
use crate::chance::{Chance, Draws};

/// How many clients there are.
const CLIENTS: u64 = 4;
/// How many keys they share.
const KEYS: u64 = 2;
/// How many requests each of them sends.
const REQUESTS: u64 = 40;

/// The state on which a write was based.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    /// The object did not exist.
    Nothing,
    /// This version; with another one the write must be refused.
    Version(u64),
    /// Any version.
    Anything,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    /// It read a version.
    Read(u64),
    /// It made a version.
    Wrote(Base, u64),
    /// It was refused because of its base.
    Refused(Base),
}

/// One request on one key, and when it was sent and answered.
#[derive(Clone, Debug)]
pub struct TimedRequest {
    key: u64,
    /// The value that was written or read.
    value: String,
    sent: u64,
    answered: u64,
    done: Done,
}

/// Four clients work on the same keys of `namespace`, which must exist. Returns their requests, or an answer that no
/// client should get.
///
/// # Errors
/// An answer that is none of success, conflict and "already exists".
pub async fn together(side: &Side, namespace: &str, chance: Chance) -> Result<Vec<TimedRequest>, String> {
    let ticks = AtomicU64::new(0);
    let clients = (0..CLIENTS).map(|client| {
        let draws = Draws::new(chance.part("client", client));
        run_client(Client { side, namespace, client, ticks: &ticks, draws, known: Vec::new() })
    });
    let seen = futures::future::join_all(clients).await;
    Ok(seen.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
}

struct Client<'a> {
    side: &'a Side,
    namespace: &'a str,
    client: u64,
    ticks: &'a AtomicU64,
    draws: Draws,
    /// The versions that it has seen, with their keys.
    known: Vec<(u64, u64)>,
}

async fn run_client(mut client: Client<'_>) -> Result<Vec<TimedRequest>, String> {
    let mut all = Vec::new();
    for number in 0..REQUESTS {
        // At first all of them create all keys.
        let key = if number < KEYS { number } else { client.draws.below(KEYS) };
        let seen = client.request(key, number).await?;
        if let Done::Read(version) | Done::Wrote(_, version) = seen.done {
            client.known.push((key, version));
        }
        all.push(seen);
    }
    Ok(all)
}

impl Client<'_> {
    async fn request(&mut self, key: u64, number: u64) -> Result<TimedRequest, String> {
        let collection = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace);
        let (name, value) = (format!("k{key}"), format!("{}-{number}", self.client));
        let path = format!("{collection}/{name}");
        let mut lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name },
            "spec": { "holderIdentity": value } });
        let versions: Vec<u64> = self.known.iter().filter(|(of, _)| *of == key).map(|(_, at)| *at).collect();
        // The last version that the client knows, and sometimes an older one.
        let newest = if self.draws.percent(20) { versions.first() } else { versions.last() }.copied();
        let (method, target, body, base) = match (self.draws.below(10), newest) {
            _ if number < KEYS => ("POST", &collection, lease, Some(Base::Nothing)),
            (4..9, Some(version)) => {
                lease["metadata"]["resourceVersion"] = version.to_string().into();
                ("PUT", &path, lease, Some(Base::Version(version)))
            }
            (9, _) => ("PATCH", &path, json!({ "spec": { "holderIdentity": value } }), Some(Base::Anything)),
            _ => ("GET", &path, Value::Null, None),
        };
        let sent = self.ticks.fetch_add(1, Ordering::SeqCst);
        let reply = self.side.request(method, target, &body).await;
        let answered = self.ticks.fetch_add(1, Ordering::SeqCst);
        let version = reply.body["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        let (done, value) = match (reply.code, base, version) {
            (200, None, Some(version)) => {
                let read = reply.body["spec"]["holderIdentity"].as_str().unwrap_or_default();
                (Done::Read(version), read.to_owned())
            }
            (200 | 201, Some(base), Some(version)) => (Done::Wrote(base, version), value),
            (409, Some(base), _) => (Done::Refused(base), value),
            _ => return Err(format!("{method} {target} was answered {} {}", reply.code, reply.body)),
        };
        Ok(TimedRequest { key, value, sent, answered, done })
    }
}

/// Whether a request was refused, and another one succeeded after a write of another client: a history without both
/// shows nothing.
#[must_use]
pub fn met_each_other(history: &[TimedRequest]) -> bool {
    let refused = history.iter().any(|seen| matches!(seen.done, Done::Refused(Base::Version(_))));
    let swapped = history.iter().any(|seen| matches!(seen.done, Done::Wrote(Base::Version(_), _)));
    refused && swapped
}

/// The answers that do not fit one order.
#[must_use]
pub fn disorder(history: &[TimedRequest]) -> Vec<String> {
    let mut wrong = Vec::new();
    for key in 0..KEYS {
        let of_key: Vec<&TimedRequest> = history.iter().filter(|seen| seen.key == key).collect();
        let mut writes: Vec<(u64, Base, &TimedRequest)> = Vec::new();
        for seen in &of_key {
            if let Done::Wrote(base, version) = seen.done {
                writes.push((version, base, seen));
            }
        }
        writes.sort_by_key(|(version, ..)| *version);
        chain(&writes, &mut wrong);
        times(&of_key, &mut wrong);
        for seen in &of_key {
            match seen.done {
                Done::Read(version) => check_read(seen, version, &writes, &mut wrong),
                Done::Refused(base) => refused(seen, base, &writes, &mut wrong),
                Done::Wrote(..) => {}
            }
        }
    }
    wrong
}

/// Each write follows the write whose version it names.
fn chain(writes: &[(u64, Base, &TimedRequest)], wrong: &mut Vec<String>) {
    let mut before: Option<(u64, &TimedRequest)> = None;
    for (version, base, seen) in writes {
        let fits = match (base, before) {
            (Base::Nothing, None) => true,
            (Base::Version(named), Some((last, _))) => *named == last,
            (Base::Anything, Some((last, _))) => last < *version,
            _ => false,
        };
        if !fits {
            wrong.push(format!("{seen:?} does not follow {before:?}"));
        }
        before = Some((*version, seen));
    }
}

/// No answer shows an older state than one that was answered, to any client, before the request was sent.
fn times(of_key: &[&TimedRequest], wrong: &mut Vec<String>) {
    let shown = |seen: &TimedRequest| match seen.done {
        Done::Read(version) | Done::Wrote(_, version) => Some(version),
        Done::Refused(_) => None,
    };
    for later in of_key {
        let earlier = of_key.iter().find(|seen| seen.answered < later.sent && shown(later) < shown(seen));
        if let Some(earlier) = earlier.filter(|_| shown(later).is_some()) {
            wrong.push(format!("{later:?} is older than {earlier:?}, which was answered before it was sent"));
        }
    }
}

/// A read shows a write that had begun.
fn check_read(seen: &TimedRequest, version: u64, writes: &[(u64, Base, &TimedRequest)], wrong: &mut Vec<String>) {
    match writes.iter().find(|(made, ..)| *made == version) {
        Some((_, _, write)) if write.sent < seen.answered && write.value == seen.value => {}
        source => wrong.push(format!("{seen:?} shows {source:?}")),
    }
}

/// A refusal has a cause: another client had written, or may have.
fn refused(seen: &TimedRequest, base: Base, writes: &[(u64, Base, &TimedRequest)], wrong: &mut Vec<String>) {
    let since = match base {
        Base::Nothing => 0,
        Base::Version(version) => version,
        Base::Anything => return wrong.push(format!("{seen:?} was based on nothing that could change")),
    };
    if !writes.iter().any(|(made, _, write)| *made > since && write.sent < seen.answered) {
        wrong.push(format!("{seen:?} was refused without a cause"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed_request(sent: u64, answered: u64, value: &str, done: Done) -> TimedRequest {
        TimedRequest { key: 0, value: value.to_owned(), sent, answered, done }
    }

    fn history() -> Vec<TimedRequest> {
        vec![
            timed_request(0, 1, "a", Done::Wrote(Base::Nothing, 10)),
            timed_request(2, 5, "b", Done::Wrote(Base::Version(10), 11)),
            timed_request(3, 6, "c", Done::Refused(Base::Version(10))),
            timed_request(4, 7, "a", Done::Read(10)),
            timed_request(8, 9, "b", Done::Read(11)),
            timed_request(10, 11, "d", Done::Wrote(Base::Anything, 12)),
        ]
    }

    #[test]
    fn linearizable_histories_pass_and_others_are_reported() {
        assert_eq!(disorder(&history()), Vec::<String>::new());
        assert!(met_each_other(&history()));
        for (what, at, other) in [
            ("a second swap of one version", 2, Done::Wrote(Base::Version(10), 13)),
            ("a read of what was overwritten before", 4, Done::Read(10)),
            ("a read of what nobody wrote", 3, Done::Read(7)),
            ("a read of what is written later", 4, Done::Read(12)),
            ("a refusal of the newest version", 2, Done::Refused(Base::Version(12))),
            ("a refusal of a write that asks for nothing", 5, Done::Refused(Base::Anything)),
            ("a key that is made twice", 5, Done::Wrote(Base::Nothing, 12)),
        ] {
            let mut history = history();
            history[at].done = other;
            assert!(!disorder(&history).is_empty(), "{what}");
        }
    }

    #[test]
    fn a_write_based_on_one_sent_after_its_answer_is_out_of_order() {
        let mut history = history();
        (history[5].sent, history[5].answered) = (0, 1);
        history[0].sent = 2;
        history[0].answered = 2;
        assert!(!disorder(&history).is_empty());
    }
}
