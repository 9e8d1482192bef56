//! Bodies of the requests: strategic merge patches, in which list entries are merged by name.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{ConditionChange, ConditionChanges, EvictionRole, EvictionUpdate, OwnerRequest, Report, StatusChange};
use crate::client::{Call, Method, WriteCall as _};
use crate::model::{Kind, PodKey, ResponderState};

/// The label of created objects.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "pod-safety");

/// The maximum length of a name in the API.
const MAX_NAME: usize = 253;

/// The maximum length of a responder's message, in characters.
const MAX_MESSAGE_CHARS: usize = 4_000;

pub(super) fn path(kind: Kind, namespace: &str, name: Option<&str>, subresource: &str) -> String {
    let all = kind.path_in(Some(namespace));
    name.map_or_else(|| all.clone(), |name| format!("{all}/{name}{subresource}"))
}

/// The name of the Eviction of this number: `pod-N-NAME`, truncated if it is too long.
pub(super) fn name(number: u32, pod: &str) -> String {
    let mut name = format!("pod-{number}-{pod}");
    name.truncate(MAX_NAME);
    name.trim_end_matches(['-', '.']).to_owned()
}

fn owner_reference(owner: &OwnerRequest) -> Value {
    json!({ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest", "name": owner.name, "uid": owner.uid })
}

pub(super) fn create(pod: &PodKey, number: u32, owners: &[OwnerRequest], labels: &[(Box<str>, EvictionRole)]) -> Call {
    let mut all: Map<String, Value> = labels.iter().map(|(key, role)| (key.to_string(), json!(role.name()))).collect();
    all.insert(MANAGED_BY.0.to_owned(), json!(MANAGED_BY.1));
    let owners: Vec<Value> = owners.iter().map(owner_reference).collect();
    let body = json!({
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "Eviction",
        "metadata": { "name": name(number, &pod.name), "labels": all, "ownerReferences": owners },
        "spec": { "target": { "pod": { "name": pod.name, "uid": pod.uid } } },
    });
    Call::write(Method::Post, path(Kind::Evictions, &pod.namespace, None, ""), &body)
}

/// Owners are merged by UID, so no owner is removed.
pub(super) fn patch_metadata(
    update: &EvictionUpdate,
    owners: &[OwnerRequest],
    labels: &[(Box<str>, Option<EvictionRole>)],
) -> Call {
    let labels: Map<String, Value> =
        labels.iter().map(|(key, role)| (key.to_string(), json!(role.map(EvictionRole::name)))).collect();
    let mut metadata = json!({ "uid": update.uid, "resourceVersion": update.rv, "labels": labels });
    if !owners.is_empty() {
        metadata["ownerReferences"] = owners.iter().map(owner_reference).collect();
    }
    let path = path(Kind::Evictions, &update.pod.namespace, Some(&update.name), "");
    Call::write(Method::Patch, path, &json!({ "metadata": metadata }))
}

pub(super) fn collect(update: &EvictionUpdate) -> Call {
    let preconditions = json!({ "uid": update.uid, "resourceVersion": update.rv });
    let body = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions });
    Call::write(Method::Delete, path(Kind::Evictions, &update.pod.namespace, Some(&update.name), ""), &body)
}

/// Writes the status of an EvictionRequest or an Eviction.
pub(super) fn status(kind: Kind, update: &EvictionUpdate, status: Value) -> Call {
    let body = json!({ "metadata": { "uid": update.uid, "resourceVersion": update.rv }, "status": status });
    Call::write(Method::Patch, path(kind, &update.pod.namespace, Some(&update.name), "/status"), &body)
}

fn seconds(at: Timestamp) -> String {
    format!("{at:.0}")
}

fn condition(kind: &str, stated: &ConditionChange, now: Timestamp) -> Value {
    let status = if stated.is_true { "True" } else { "False" };
    let mut condition = json!({ "type": kind, "status": status, "reason": stated.reason, "message": stated.message });
    if stated.transition {
        condition["lastTransitionTime"] = json!(seconds(now));
    }
    condition
}

pub(super) fn conditions(changes: &ConditionChanges, now: Timestamp) -> Value {
    json!([condition("Failed", &changes.failed, now), condition("TargetEvicted", &changes.evicted, now)])
}

/// The status as the eviction controller writes it. A new responder's entry has only its name, because only the responder
/// writes the rest.
pub(super) fn controller_status(change: &StatusChange, now: Timestamp) -> Value {
    let StatusChange { observed, responders, states, starts, requesters, dropped, conditions: changes, check: _ } =
        change;
    let mut status = json!({ "observedGeneration": observed });
    let inactive = |name: &str| !states.iter().any(|(changed, _)| **changed == *name);
    let state = |(name, state): &(Box<str>, ResponderState)| {
        let mut entry = json!({ "name": name, "state": state.name() });
        if let Some((_, priority)) = responders.iter().find(|(new, _)| new == name) {
            entry["priority"] = json!(priority);
        }
        entry
    };
    let new = responders.iter().filter(|(name, _)| inactive(name)).map(
        |(name, priority)| json!({ "name": name, "priority": priority, "state": ResponderState::Inactive.name() }),
    );
    let targets: Vec<Value> = states.iter().map(state).chain(new).collect();
    if !targets.is_empty() {
        status["targetResponders"] = json!(targets);
    }
    let start = |name: &str| match starts.as_deref() == Some(name) {
        true => json!({ "name": name, "startTime": seconds(now) }),
        false => json!({ "name": name }),
    };
    let reports: Vec<Value> = match responders.is_empty() {
        true => starts.iter().map(|name| start(name)).collect(),
        false => responders.iter().map(|(name, _)| start(name)).collect(),
    };
    if !reports.is_empty() {
        status["responders"] = json!(reports);
    }
    let requesters_patch = requesters.iter().map(|one| json!({ "name": one.name, "intent": one.intent.name() }));
    let gone = dropped.iter().map(|name| json!({ "$patch": "delete", "name": name }));
    let requesters_patch: Vec<Value> = requesters_patch.chain(gone).collect();
    if !requesters_patch.is_empty() {
        status["requesters"] = json!(requesters_patch);
    }
    if let Some(changes) = changes {
        status["conditions"] = conditions(changes, now);
    }
    status
}

/// The API server refuses a report that expects its end later than in ten years of 365 days (`pkg/apis/lifecycle/validation`,
/// `MaxExpectedCompletionTime`). A day is for its clock.
const MAX_EXPECTED: Duration = Duration::from_hours((365 * 10 - 1) * 24);

/// The status as a responder writes it: only its own entry.
pub(super) fn report(report: &Report, now: Timestamp) -> Value {
    let Report { responder, message, heartbeat, expected, complete, floor } = report;
    // The API server refuses a heartbeat that decreases. By a clock that is at or behind the last one it is a second after
    // that. If it is more than 30 s off then, the API server refuses it, and its own clock is used from then on.
    let at = now.max(Timestamp::from_second(floor.saturating_add(1)).unwrap_or(now));
    let message: String = message.chars().take(MAX_MESSAGE_CHARS).collect();
    let mut entry = json!({ "name": responder, "message": message });
    if *heartbeat {
        entry["heartbeatTime"] = json!(seconds(at));
    }
    if let Some(expected) = expected.and_then(|expected| Timestamp::from_second(expected).ok()) {
        let latest = at.saturating_add(MAX_EXPECTED).unwrap_or(at);
        entry["expectedCompletionTime"] = json!(seconds(expected.clamp(at, latest)));
    }
    if *complete {
        entry["completionTime"] = json!(seconds(at));
    }
    json!({ "responders": [entry] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_names_are_valid_names() {
        for (pod, expected) in [("a", "pod-7-a".to_owned()), ("b.c-d", "pod-7-b.c-d".to_owned())] {
            assert_eq!(name(7, pod), expected);
        }
        let long = format!("{}.{}", "x".repeat(246), "y".repeat(6));
        assert_eq!(name(7, &long), format!("pod-7-{}", "x".repeat(246)), "no name ends with a dot");
        assert!(name(70, &"x".repeat(253)).len() == MAX_NAME);
    }

    #[test]
    fn a_heartbeat_advances_with_any_clock() {
        let now = Timestamp::from_second(100).unwrap();
        for (floor, expected) in [(0, 100), (99, 100), (100, 101), (101, 102), (3_700, 3_701)] {
            let one = Report {
                responder: "r",
                message: String::new(),
                heartbeat: true,
                expected: Some(7),
                complete: true,
                floor,
            };
            let entry = &report(&one, now)["responders"][0];
            let expected = json!(seconds(Timestamp::from_second(expected).unwrap()));
            for field in ["heartbeatTime", "completionTime", "expectedCompletionTime"] {
                assert_eq!(entry[field], expected, "{field} of {floor}");
            }
        }
    }

    /// A tenant's grace period of 63 years: the API server refused each report, and the responder lost its turn.
    #[test]
    fn attack_a_grace_period_of_decades_makes_no_report_invalid() {
        let (message, expected) = (String::new(), Some(2_000_000_000));
        let one = Report { responder: "r", message, heartbeat: true, expected, complete: false, floor: 0 };
        let entry = &report(&one, Timestamp::UNIX_EPOCH)["responders"][0];
        assert_eq!(entry["expectedCompletionTime"], "1979-12-29T00:00:01Z");
    }

    /// The characters take more than one byte each: the API counts characters.
    #[test]
    fn a_message_is_truncated_between_characters() {
        let now = Timestamp::UNIX_EPOCH;
        let message = "\u{e9}".repeat(MAX_MESSAGE_CHARS + 1);
        let one = Report { responder: "r", message, heartbeat: true, expected: None, complete: true, floor: 0 };
        let entry = &report(&one, now)["responders"][0];
        assert_eq!(entry["message"].as_str().unwrap().chars().count(), MAX_MESSAGE_CHARS);
    }
}
