//! The API server's answers to writes that it refuses, whole, except for times: `golden/evictions/errors.json`, which
//! `POD_SAFETY_WRITE_GOLDEN=1` writes. Each must contain the text that clients and the port of the validation rely on.

use std::path::Path;

use pod_safety_control_plane::{compare_golden, pinned_kubernetes, selected_kubernetes};
use serde_json::Map;

use super::differential::new_request;
use super::tenant::responders;
use super::*;

const UID: &str = "11111111-2222-4333-8444-555555555555";
const GROUP: &str = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/refused";

/// A change of a status.
type Change = fn(&mut Value);

/// The first status of an Eviction: a name, a text of the answer, and what differs from a valid one.
const FIRST: [(&str, &str, Change); 6] = [
    ("first: twelve responders", "must have at most 11 items", |status| {
        let names = || (0..12).map(|number| format!("example.com/r{number}"));
        let target = |name: String| json!({ "name": name, "priority": 5_000, "state": "Inactive" });
        status["targetResponders"] = names().map(target).collect();
        status["responders"] = names().map(|name| json!({ "name": name })).collect();
    }),
    ("first: a reserved priority", "priorities 0-999 are reserved", |status| {
        status["targetResponders"][1]["priority"] = json!(999);
    }),
    ("first: another priority of the evictor", "is expected to have priority: 100", |status| {
        status["targetResponders"][2]["priority"] = json!(1_000);
    }),
    ("first: a responder without an entry", "has to be tracked in status.responders first", |status| {
        status["responders"].as_array_mut().unwrap().remove(1);
    }),
    ("first: active without a start", "is required for an active responder", |status| {
        status["responders"][0].as_object_mut().unwrap().remove("startTime");
    }),
    ("first: an old start", "must be set to the present time", |status| {
        status["responders"][0]["startTime"] = json!(time(-40));
    }),
];

/// The next status, while the first responder is active.
const NEXT: [(&str, &str, Change); 12] = [
    ("next: no observedGeneration", "cannot be cleared once set", |status| {
        status.as_object_mut().unwrap().remove("observedGeneration");
    }),
    ("next: a lower observedGeneration", "may not be decreased", |status| {
        status["observedGeneration"] = json!(1);
    }),
    ("next: one responder less", "must preserve the same length and the same keys", |status| {
        for list in ["targetResponders", "responders"] {
            status[list].as_array_mut().unwrap().remove(1);
        }
    }),
    ("next: another priority", "cannot be modified once set", |status| {
        status["targetResponders"][0]["priority"] = json!(20_000);
    }),
    ("next: completed without a report", "cannot become Completed because the responder didn't report", |status| {
        status["targetResponders"][0]["state"] = json!("Completed");
        begin_second(status);
    }),
    ("next: interrupted early", "must stay Active because the responder is in progress", |status| {
        status["targetResponders"][0]["state"] = json!("Interrupted");
        begin_second(status);
    }),
    ("next: a final condition beside an active responder", "the eviction request has finished processing", fail),
    ("next: a report before its turn", "field is immutable", |status| {
        status["responders"][1]["message"] = json!("moves data");
    }),
    ("next: an earlier heartbeat", "cannot be decreased", |status| {
        let last: Timestamp = status["responders"][0]["heartbeatTime"].as_str().unwrap().parse().unwrap();
        let earlier = Timestamp::from_second(last.as_second() - 1).unwrap();
        status["responders"][0]["heartbeatTime"] = json!(format!("{earlier:.0}"));
    }),
    ("next: no heartbeat", "is required once set", |status| {
        status["responders"][0].as_object_mut().unwrap().remove("heartbeatTime");
    }),
    ("next: a future heartbeat", "must be set to the present time", |status| {
        status["responders"][0]["heartbeatTime"] = json!(time(40));
    }),
    ("next: an expectation before the start", "must occur after status.responders[0].startTime", |status| {
        status["responders"][0]["expectedCompletionTime"] = json!(time(-40));
    }),
];

/// The status after the end.
const ENDED: [(&str, &str, Change); 2] = [
    ("ended: active again", "final state is immutable", |status| {
        status["targetResponders"][0]["state"] = json!("Active");
    }),
    ("ended: not failed any more", "condition status cannot be reverted", |status| {
        status["conditions"][0]["status"] = json!("False");
    }),
];

fn begin_second(status: &mut Value) {
    status["targetResponders"][1]["state"] = json!("Active");
    status["responders"][1]["startTime"] = json!(time(0));
}

fn fail(status: &mut Value) {
    let failed = json!({ "type": "Failed", "status": "True", "reason": "EvictionInvalid", "message": "", "lastTransitionTime": time(0) });
    status["conditions"] = json!([failed]);
}

/// Creations, by POST: a name, a text of the answer, the path, and the object.
fn creations() -> Vec<(&'static str, &'static str, String, Value)> {
    let target = json!({ "pod": { "name": "p", "uid": UID } });
    let request = |change: Value| {
        let mut spec = json!({ "target": target, "requester": "example.com/asks", "intent": "Eviction" });
        for (field, value) in change.as_object().unwrap() {
            spec[field] = value.clone();
        }
        json!({ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest", "metadata": { "name": "r" }, "spec": spec })
    };
    let requests = || format!("{GROUP}/evictionrequests");
    let mut gang = responders(&[("example.com/app", 10_000)]);
    gang["schedulingGroup"] = json!({ "podGroupName": "g" });
    gang["containers"] = json!([{ "name": "main", "image": "registry.example/main:1" }]);
    let gang = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "gang" }, "spec": gang });
    let eviction = json!({ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "Eviction", "metadata": { "name": "p" }, "spec": { "target": target } });
    let pods = "/api/v1/namespaces/refused/pods";
    let with_uid = |uid: &str| request(json!({ "target": { "pod": { "name": "p", "uid": uid } } }));
    let by = |requester: &str| request(json!({ "requester": requester }));
    vec![
        ("request: no target", "must specify one of: `pod`", requests(), request(json!({ "target": {} }))),
        ("request: no UUID", "must be a lowercase UUID in 8-4-4-4-12 format", requests(), with_uid("1")),
        ("request: no prefix", "must include a prefix (e.g. 'example.com/key')", requests(), by("asks")),
        ("request: reserved", "domain names *.k8s.io, *.kubernetes.io are reserved", requests(), by("a.k8s.io/asks")),
        ("pod: of a gang", "may not be set when evictionResponders is set", pods.to_owned(), gang),
        ("pod: evicted by the wrong kind", "unknown conversion", format!("{pods}/p/eviction"), eviction),
    ]
}

/// The message without its times.
fn without_times(message: &str) -> String {
    let is_time = |part: &[u8]| {
        let mut pairs = part.iter().zip(b"0000-00-00T00:00:00Z");
        pairs.all(|(byte, form)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form })
    };
    let (mut text, mut rest) = (String::new(), message);
    while let Some(at) = rest.as_bytes().windows(20).position(is_time) {
        text.push_str(&rest[..at]);
        text.push_str("TIME");
        rest = &rest[at + 20..];
    }
    text + rest
}

/// The answers so far, by the names of the writes.
struct Answers(Map<String, Value>);

impl Answers {
    fn add(&mut self, name: &str, text: &str, answer: kube::Result<Value>) {
        let status = match answer {
            Err(kube::Error::Api(status)) => status,
            other => panic!("{name}: {other:?}"),
        };
        assert!(status.message.contains(text), "{name}: {}", status.message);
        let answer = format!("{} {}", status.code, without_times(&status.message));
        assert!(self.0.insert(name.to_owned(), json!(answer)).is_none(), "{name} twice");
    }
}

async fn write_status(tenant: &Tenant, status: &Value) -> kube::Result<Value> {
    let mut object = tenant.get("evictions", "e").await.unwrap();
    object["status"] = status.clone();
    send(&tenant.api, Method::PUT, &format!("{GROUP}/evictions/e/status"), "application/json", &object).await
}

/// Each of these changes of a valid status is refused.
async fn refuse(tenant: &Tenant, valid: &Value, changes: &[(&str, &str, Change)], answers: &mut Answers) {
    for (name, text, change) in changes {
        let mut status = valid.clone();
        change(&mut status);
        answers.add(name, text, write_status(tenant, &status).await);
    }
}

pub(super) async fn refusals_have_the_recorded_texts(plane: &ControlPlane) {
    let tenant = Tenant::new(plane, "refused").await;
    let mut answers = Answers(Map::new());
    for (name, text, path, object) in creations() {
        answers.add(name, text, send(&tenant.api, Method::POST, &path, "application/json", &object).await);
    }
    tenant.request_eviction("kept", "p", UID, "example.com/asks").await;
    let other = json!({ "spec": { "target": { "pod": { "name": "q" } } } });
    let answer = tenant.patch(&format!("{GROUP}/evictionrequests/kept"), &other).await;
    answers.add("request: another target", "field is immutable", answer);

    tenant.create_eviction("e", "p", UID).await;
    refuse(&tenant, &new_request(), &FIRST, &mut answers).await;
    // The API server accepts a start of the last half minute.
    let mut status = new_request();
    status["observedGeneration"] = json!(2);
    status["responders"][0]["heartbeatTime"] = status["responders"][0]["startTime"].clone();
    write_status(&tenant, &status).await.unwrap();
    refuse(&tenant, &status, &NEXT, &mut answers).await;
    fail(&mut status);
    status["targetResponders"][0]["state"] = json!("Canceled");
    write_status(&tenant, &status).await.unwrap();
    refuse(&tenant, &status, &ENDED, &mut answers).await;

    // Another version may word its answers differently.
    if selected_kubernetes().is_some() {
        return;
    }
    let recorded = json!({ "kubernetes": pinned_kubernetes().unwrap(), "answers": answers.0 });
    let text = serde_json::to_string_pretty(&recorded).unwrap() + "\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/evictions/errors.json");
    compare_golden(&file, &text, "POD_SAFETY_WRITE_GOLDEN").unwrap();
}
