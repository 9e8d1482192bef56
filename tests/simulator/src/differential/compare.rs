//! The differences between two transcripts, and those that are accepted.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::normal::Normaliser;
use super::run::{Transcript, WatchRun};

/// A difference that is known and harmless.
#[derive(Clone, Copy, Debug)]
pub struct Divergence {
    /// What differs.
    pub what: &'static str,
    /// Why it cannot hide a violation.
    pub why: &'static str,
}

/// Everything that is deliberately left out of the comparison. The rules hold for all requests: none names a request.
pub const DIVERGENCES: [Divergence; 9] = [
    Divergence {
        what: "metadata.managedFields",
        why: "nothing of ours reads or writes field ownership; a write that changes nothing else is one in the real server and none here",
    },
    Divergence {
        what: "whether a list of the whole cluster has a next page",
        why: "sequences run side by side on the real server; inside namespaces it is compared",
    },
    Divergence {
        what: "the words of messages",
        why: "code, reason, causes and retryAfterSeconds are compared; nobody decides by words",
    },
    Divergence {
        what: "the order of details.causes, and how often one is named",
        why: "Go finds some of them by walking maps, so the real server's own order changes from call to call; some are found by two of its checks, and Kubernetes 1.37 drops most of these repetitions",
    },
    Divergence {
        what: "the resourceVersion of lists",
        why: "it may lie anywhere between two writes; the watches that begin at versions seen are compared",
    },
    Divergence { what: "bookmarks but the one that ends the initial events", why: "their moments are not promised" },
    Divergence {
        what: "by which events a watch from version 0 comes to the present",
        why: "by the API's own word it begins with any state of the past (the real server's does under load); the present that it comes to is compared",
    },
    Divergence {
        what: "which other resources a group has, and their short names",
        why: "the simulator has the kinds that somebody asks for; whoever asks for another is told loudly",
    },
    Divergence { what: "seconds of times, by 3", why: "the two servers are asked at different moments" },
];

/// One difference.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Which answer; `None` for a watch.
    pub answer: Option<usize>,
    /// Which watch, and the place in it.
    pub place: String,
    /// The value of the first side.
    pub left: Value,
    /// The value of the second side.
    pub right: Value,
}

/// The version from which a watch begins with any state that the server has.
const ANY_VERSION: &str = "0";

/// How far the times of two servers may lie apart, in seconds.
const SECONDS: i64 = 3;

/// All differences of two transcripts of the same sequence, whose sides began at
/// these times.
#[must_use]
pub fn compare(left: (&Transcript, Timestamp), right: (&Transcript, Timestamp)) -> Vec<Difference> {
    let normal = |(transcript, began): (&Transcript, Timestamp)| {
        Normaliser::new(&transcript.sequence, began, transcript.versions())
    };
    let (mut here, mut there) = (normal(left), normal(right));
    let mut differences = Vec::new();
    for (index, (one, other)) in left.0.replies.iter().zip(&right.0.replies).enumerate() {
        let message = one.body["message"].as_str().unwrap_or_default().to_owned();
        let (one, other) = (here.reply(one), there.reply(other));
        if let Some((path, left, right)) = first(&one, &other, "") {
            differences.push(Difference { answer: Some(index), place: format!("{path} {message}"), left, right });
        }
    }
    for (one, other) in left.0.watches.iter().zip(&right.0.watches) {
        let place = format!("watch {} from {}", one.target, here.version(&one.version));
        let (one, other) = (events(&mut here, one), events(&mut there, other));
        if let Some((path, left, right)) = first(&one, &other, "") {
            differences.push(Difference { answer: None, place: format!("{place}: {path}"), left, right });
        }
    }
    differences
}

fn events(normaliser: &mut Normaliser, watch: &WatchRun) -> Value {
    if let Some((code, body)) = &watch.refused {
        return serde_json::json!([code, body["reason"]]);
    }
    if watch.version == ANY_VERSION {
        return present(normaliser, watch);
    }
    let mut seen = Vec::new();
    for (kind, object) in &watch.events {
        match kind.as_str() {
            "BOOKMARK" if ends_initial_events(object) => seen.push(serde_json::json!("initial events end")),
            "BOOKMARK" => {}
            "ERROR" => seen.push(serde_json::json!(["ERROR", object["code"], object["reason"]])),
            _ if normaliser.is_own(object) => {
                seen.push(serde_json::json!([kind, normaliser.body(object)]));
            }
            _ => {}
        }
    }
    Value::Array(seen)
}

fn ends_initial_events(bookmark: &Value) -> bool {
    bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"].is_string()
}

/// The state after a watch that may begin anywhere in the past.
fn present(normaliser: &mut Normaliser, watch: &WatchRun) -> Value {
    let (mut objects, mut ended, mut errors) = (BTreeMap::new(), false, Vec::new());
    for (kind, object) in &watch.events {
        let name = (object["metadata"]["namespace"].as_str(), object["metadata"]["name"].as_str());
        match kind.as_str() {
            "BOOKMARK" => ended |= ends_initial_events(object),
            "ERROR" => errors.push(serde_json::json!([object["code"], object["reason"]])),
            _ if !normaliser.is_own(object) => {}
            "DELETED" => drop(objects.remove(&name)),
            _ => drop(objects.insert(name, object)),
        }
    }
    let objects: Vec<Value> = objects.into_values().map(|object| normaliser.body(object)).collect();
    serde_json::json!({ "objects": objects, "initial events end": ended, "errors": errors })
}

/// The first place where the two differ, and both values. Times a few seconds apart count as equal: the same thing
/// happened at different moments.
fn first(left: &Value, right: &Value, path: &str) -> Option<(String, Value, Value)> {
    let difference = || Some((path.to_owned(), left.clone(), right.clone()));
    match (left, right) {
        (Value::String(one), Value::String(other)) => {
            let time = |text: &str| text.strip_prefix("t:").and_then(|text| text.parse::<i64>().ok());
            let same = match (time(one), time(other)) {
                (Some(one), Some(other)) => (one - other).abs() <= SECONDS,
                _ => one == other,
            };
            if same { None } else { difference() }
        }
        (Value::Array(one), Value::Array(other)) => {
            let inner = one.iter().zip(other).enumerate();
            let mut found = inner.filter_map(|(index, (one, other))| first(one, other, &format!("{path}/{index}")));
            found.next().or_else(|| if one.len() == other.len() { None } else { difference() })
        }
        (Value::Object(one), Value::Object(other)) => {
            let keys: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            let mut found = keys.into_iter().filter_map(|key| match (one.get(key), other.get(key)) {
                (Some(one), Some(other)) => first(one, other, &format!("{path}/{key}")),
                (one, other) => {
                    let shown = |value: Option<&Value>| value.cloned().unwrap_or_else(|| "(missing)".into());
                    Some((format!("{path}/{key}"), shown(one), shown(other)))
                }
            });
            found.next()
        }
        _ if left == right => None,
        _ => difference(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many differences there are between two watches of one sequence from `version`.
    fn differences(version: &str, left: &[(&str, u64)], right: &[(&str, u64)]) -> usize {
        let side = |events: &[(&str, u64)]| {
            let pod = |at: u64| serde_json::json!({ "metadata": { "namespace": "s1-a", "name": "s1-a", "resourceVersion": at.to_string() } });
            let events = events.iter().map(|(kind, at)| ((*kind).to_owned(), pod(*at))).collect();
            let watch = WatchRun { target: "/x?".to_owned(), version: version.to_owned(), events, refused: None };
            Transcript { sequence: "s1".to_owned(), replies: Vec::new(), watches: vec![watch] }
        };
        let began = Timestamp::UNIX_EPOCH;
        compare((&side(left), began), (&side(right), began)).len()
    }

    /// The real server under load: in 200,000 requests three watches from version 0 began with a pod as it had been.
    #[test]
    fn bug_a_caught_up_watch_from_any_version_was_reported_different() {
        assert_eq!(differences("0", &[("ADDED", 1), ("MODIFIED", 3)], &[("ADDED", 3)]), 0);
        assert_eq!(differences("0", &[("ADDED", 1), ("DELETED", 3)], &[]), 0);
        assert_eq!(differences("0", &[("ADDED", 3)], &[("ADDED", 3)]), 0);
    }

    #[test]
    fn a_watch_with_another_final_state_or_other_events_is_different() {
        assert_eq!(differences("0", &[("ADDED", 1)], &[]), 1);
        assert_eq!(differences("0", &[("ADDED", 1), ("DELETED", 3)], &[("ADDED", 1)]), 1);
        assert_eq!(differences("", &[("ADDED", 1), ("MODIFIED", 3)], &[("ADDED", 3)]), 1);
        assert_eq!(differences("2", &[("MODIFIED", 3)], &[("ADDED", 3)]), 1);
    }
}
