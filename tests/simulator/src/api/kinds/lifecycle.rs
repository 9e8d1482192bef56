//! EvictionRequests and Evictions (`lifecycle.k8s.io/v1alpha1`, `pkg/registry/lifecycle` of v1.37.2), and the responders
//! that a pod names. `k8s-openapi` does not have these types.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::eviction_status;
use super::{Kind, Part, Rules};
use crate::api::failure::Cause;
use crate::api::fields::{at, list, number, object_mut, remove, set, text};

/// The API group.
pub(crate) const GROUP: &str = "lifecycle.k8s.io";
/// The most conditions of a request.
const MAX_CONDITIONS: usize = 100;
/// The most responders that a pod names, and the range of their priorities.
const MAX_RESPONDERS: usize = 10;
const PRIORITIES: std::ops::RangeInclusive<i64> = 1_000..=100_000;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object<Spec, Status> {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodRef {
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Target {
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<PodRef>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestSpec {
    #[serde(default)]
    target: Target,
    #[serde(default)]
    requester: String,
    #[serde(default)]
    intent: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_generation: Option<i64>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EvictionSpec {
    #[serde(default)]
    target: Target,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Requester {
    #[serde(default)]
    name: String,
    #[serde(default)]
    intent: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TargetResponder {
    #[serde(default)]
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    #[serde(default)]
    state: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResponderStatus {
    #[serde(default)]
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heartbeat_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_completion_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EvictionStatus {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_generation: Option<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    requesters: Vec<Requester>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    target_responders: Vec<TargetResponder>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    responders: Vec<ResponderStatus>,
}

/// The object as its Go type decodes it.
pub(super) fn decode(rules: Rules, object: Value) -> Result<Value, serde_json::Error> {
    match rules {
        Rules::EvictionRequest => {
            serde_json::to_value(serde_json::from_value::<Object<RequestSpec, RequestStatus>>(object)?)
        }
        _ => serde_json::to_value(serde_json::from_value::<Object<EvictionSpec, EvictionStatus>>(object)?),
    }
}

/// Takes the responders out of a pod, whose type in `k8s-openapi` does not have them.
pub(super) fn take_responders(pod: &mut Value) -> Option<Value> {
    let spec = pod.get_mut("spec")?.as_object_mut()?;
    spec.remove("evictionResponders").filter(|all| all.as_array().is_some_and(|all| !all.is_empty()))
}

pub(super) fn put_responders(pod: &mut Value, responders: Option<Value>) {
    if let Some(responders) = responders {
        set(pod, &["spec"], "evictionResponders", responders);
    }
}

/// A new pod loses its responders where the feature gate is off.
pub(crate) fn drop_responders(pod: &mut Value) {
    remove(pod, &["spec"], "evictionResponders");
}

pub(super) fn validate_responders(pod: &Value) -> Vec<Cause> {
    let responders = list(pod, &["spec", "evictionResponders"]);
    let mut causes = Vec::new();
    if !responders.is_empty() && at(pod, &["spec", "schedulingGroup"]).is_some() {
        causes.push(Cause::forbidden("spec.schedulingGroup", "may not be set when evictionResponders is set"));
    }
    if responders.len() > MAX_RESPONDERS {
        causes.push(Cause::invalid("spec.evictionResponders", "must have at most 10 items"));
    }
    for (index, one) in responders.iter().enumerate() {
        let field = |key: &str| format!("spec.evictionResponders[{index}].{key}");
        let twice = responders.iter().take(index).any(|other| other["name"] == one["name"]);
        if twice {
            causes.push(Cause::duplicate(field("name")));
        }
        if is_reserved(text(one, &["name"])) || !text(one, &["name"]).contains('/') {
            causes.push(Cause::invalid(field("name"), "must include a prefix that is not reserved"));
        }
        if number(one, &["priority"]).is_none_or(|priority| !PRIORITIES.contains(&priority)) {
            causes.push(Cause::invalid(field("priority"), "must be between 1000 and 100000"));
        }
    }
    causes
}

/// Whether the domain of a name is one of Kubernetes.
fn is_reserved(name: &str) -> bool {
    let domain = name.split('/').next().unwrap_or_default();
    ["k8s.io", "kubernetes.io"].iter().any(|own| domain == *own || domain.ends_with(&format!(".{own}")))
}

pub(super) fn prepare_create(object: &mut Value) {
    set(object, &[], "status", serde_json::json!({}));
    set(object, &["metadata"], "generation", 1);
}

/// Of a write of the status nothing but the status is taken, not even labels.
pub(super) fn prepare_status(new: &mut Value, old: &Value) {
    let version = at(new, &["metadata", "resourceVersion"]).cloned();
    let status = new.get("status").cloned();
    *new = old.clone();
    set(new, &[], "status", status.unwrap_or_else(|| serde_json::json!({})));
    if let Some(version) = version {
        set(new, &["metadata"], "resourceVersion", version);
    }
}

fn is_uid(uid: &str) -> bool {
    let parts: Vec<&str> = uid.split('-').collect();
    let hex = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    lengths == [8, 4, 4, 4, 12] && parts.iter().all(hex)
}

fn target(object: &Value) -> Vec<Cause> {
    let Some(pod) = at(object, &["spec", "target", "pod"]) else {
        return vec![Cause::invalid("spec.target", "must specify one of: `pod`")];
    };
    let mut causes = Vec::new();
    if text(pod, &["name"]).is_empty() {
        causes.push(Cause::required("spec.target.pod.name"));
    }
    match text(pod, &["uid"]) {
        "" => causes.push(Cause::required("spec.target.pod.uid")),
        uid if is_uid(uid) => {}
        _ => causes.push(Cause::invalid("spec.target.pod.uid", "must be a lowercase UUID in 8-4-4-4-12 format")),
    }
    causes
}

pub(super) fn validate_create(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = target(object);
    if kind.rules != Rules::EvictionRequest {
        return causes;
    }
    match text(object, &["spec", "requester"]) {
        "" => causes.push(Cause::required("spec.requester")),
        name if !name.contains('/') || !super::metadata::is_qualified(name) => {
            causes.push(Cause::invalid("spec.requester", "must include a prefix (e.g. 'example.com/key')"));
        }
        name if is_reserved(name) => {
            causes.push(Cause::invalid("spec.requester", "domain names *.k8s.io, *.kubernetes.io are reserved"))
        }
        _ => {}
    }
    causes.extend(intent(object));
    causes
}

fn intent(object: &Value) -> Option<Cause> {
    match text(object, &["spec", "intent"]) {
        "" => Some(Cause::required("spec.intent")),
        "Eviction" | "Withdrawn" => None,
        _ => Some(Cause::unsupported("spec.intent")),
    }
}

pub(super) fn validate_update(kind: &Kind, part: Part, new: &Value, old: &Value, now: Timestamp) -> Vec<Cause> {
    let mut causes = Vec::new();
    for key in ["target", "requester"] {
        if at(new, &["spec", key]) != at(old, &["spec", key]) {
            causes.push(Cause::invalid(format!("spec.{key}"), "field is immutable"));
        }
    }
    if kind.rules == Rules::EvictionRequest {
        causes.extend(intent(new));
    }
    if part != Part::Status {
        return causes;
    }
    let status = |object: &Value| object.get("status").cloned().unwrap_or_default();
    let wrong = match kind.rules {
        Rules::EvictionRequest => request_status(&status(new), &status(old)),
        _ => eviction_status::validate(&status(old), &status(new), now.as_second()),
    };
    causes.extend(wrong.err().map(|why| Cause::invalid("status", &why)));
    causes
}

fn request_status(new: &Value, old: &Value) -> Result<(), String> {
    let (before, after) = (number(old, &["observedGeneration"]), number(new, &["observedGeneration"]));
    if after.is_some_and(|after| after < 1) {
        return Err("observedGeneration must be at least 1".to_owned());
    }
    if before.is_some() && after < before {
        return Err("observedGeneration may not be decreased".to_owned());
    }
    let conditions = list(new, &["conditions"]);
    let kinds: std::collections::BTreeSet<&str> = conditions.iter().map(|one| text(one, &["type"])).collect();
    if conditions.len() > MAX_CONDITIONS || kinds.len() != conditions.len() {
        return Err("conditions must be at most 100 of unique types".to_owned());
    }
    let unreasoned = |one: &Value| text(one, &["reason"]).is_empty();
    if conditions.iter().any(unreasoned) {
        return Err("conditions must have a reason".to_owned());
    }
    Ok(())
}

/// What every reader sees, even of a status that nobody wrote.
pub(super) fn complete(object: &mut Value) {
    object_mut(object, &["spec"]);
    object_mut(object, &["status"]);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request() -> Value {
        json!({ "spec": { "target": { "pod": { "name": "p", "uid": "5b0a4f0e-0000-4000-8000-000000000001" } },
            "requester": "example.com/r", "intent": "Eviction" } })
    }

    fn kind(rules: Rules) -> Kind {
        Kind::lifecycle().into_iter().find(|kind| kind.rules == rules).unwrap()
    }

    /// The error texts are those of a kube-apiserver 1.37.2.
    #[test]
    fn requests_are_refused_as_a_kube_apiserver_does() {
        for (path, value, message) in [
            ("/spec/target/pod/uid", json!("A"), "must be a lowercase UUID in 8-4-4-4-12 format"),
            ("/spec/target/pod/name", json!(""), "Required value"),
            ("/spec/target", json!({}), "must specify one of: `pod`"),
            ("/spec/requester", json!("plain"), "must include a prefix (e.g. 'example.com/key')"),
            ("/spec/requester", json!("a.k8s.io/b"), "domain names *.k8s.io, *.kubernetes.io are reserved"),
            ("/spec/intent", json!("Other"), "Unsupported value"),
        ] {
            let mut request = request();
            assert_eq!(validate_create(&kind(Rules::EvictionRequest), &request), []);
            *request.pointer_mut(path).unwrap() = value;
            let causes = validate_create(&kind(Rules::EvictionRequest), &request);
            assert_eq!(causes.iter().map(|cause| cause.message.as_str()).collect::<Vec<_>>(), [message]);
        }
    }

    #[test]
    fn a_target_is_immutable_and_an_observed_generation_only_grows() {
        let kind = kind(Rules::EvictionRequest);
        let now = Timestamp::UNIX_EPOCH;
        let (old, mut new) = (request(), request());
        new["spec"]["intent"] = json!("Withdrawn");
        assert_eq!(validate_update(&kind, Part::Main, &new, &old, now), []);
        new["spec"]["target"]["pod"]["name"] = json!("q");
        assert_eq!(validate_update(&kind, Part::Main, &new, &old, now).len(), 1);
        let observed = |generation: i64| {
            let mut object = request();
            object["status"] = json!({ "observedGeneration": generation });
            object
        };
        for (before, after, accepted) in [(1, 1, true), (1, 9, true), (2, 1, false)] {
            let causes = validate_update(&kind, Part::Status, &observed(after), &observed(before), now);
            assert_eq!(causes.is_empty(), accepted, "{before} to {after}");
        }
    }

    #[test]
    fn a_pod_names_responders_of_applications_alone() {
        let pod = |responders: Value| json!({ "spec": { "evictionResponders": responders } });
        let one = |name: &str, priority: i64| json!({ "name": name, "priority": priority });
        for (responders, accepted) in [
            (json!([one("example.com/a", 1_000), one("example.com/b", 100_000)]), true),
            (json!([one("example.com/a", 999)]), false),
            (json!([one("imperative-eviction.k8s.io/evictor", 1_000)]), false),
            (json!([one("example.com/a", 1_000), one("example.com/a", 2_000)]), false),
        ] {
            assert_eq!(validate_responders(&pod(responders.clone())).is_empty(), accepted, "{responders}");
        }
        let mut gang = pod(json!([one("example.com/a", 1_000)]));
        gang["spec"]["schedulingGroup"] = json!({ "podGroupName": "g" });
        assert_eq!(validate_responders(&gang).len(), 1);
    }
}
