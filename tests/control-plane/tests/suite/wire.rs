//! Objects of a real API server are equal in JSON and in protobuf.
#![expect(clippy::disallowed_methods, reason = "bytes as they are sent: no client of ours decodes them")]

mod recorded;

use kube::Client;
use kube::client::Body;
use pod_safety_control_plane::objects::{self, NodeExt as _, PodExt as _};
use pod_safety_control_plane::{ControlPlane, Options, observe};
use pod_safety_shared::wire::{self, Encoding, Event, Frames, List, Raw};
use serde_json::Value;
use tokio::sync::Barrier;

/// How many seconds changes are watched; they are made as soon as all watches have started.
const WATCHED: u32 = 10;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PODS: &str = "/api/v1/pods";
const NODES: &str = "/api/v1/nodes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

async fn body(api: &Client, path: &str, accept: &str) -> (Encoding, bytes::Bytes) {
    let request = http::Request::get(path).header("accept", accept).body(Body::empty()).unwrap();
    let response = api.send(request).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
    assert!(kind.starts_with(accept), "{kind}");
    (Encoding::from_content_type(&kind).unwrap(), response.into_body().collect_bytes().await.unwrap())
}

/// Fields that JSON omits are explicit in protobuf: empty strings and lists, and zeros.
fn without_blanks(value: Value) -> Value {
    let blank = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Bool(_) | Value::Object(_) => false,
    };
    match value {
        Value::Object(fields) => {
            // Only the keys of annotations are kept; their values are empty in both.
            let fields = fields.into_iter().map(|(key, value)| match key.as_str() {
                "annotations" => (key, value),
                _ => (key, without_blanks(value)),
            });
            Value::Object(fields.filter(|(_, value)| !blank(value)).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_blanks).collect()),
        other => other,
    }
}

fn decode(path: &str, raw: &Raw) -> Value {
    let value = match path.split('?').next().unwrap_or_default() {
        PODS => serde_json::to_value(raw.decode::<wire::Pod>().unwrap()),
        NODES => serde_json::to_value(raw.decode::<wire::Node>().unwrap()),
        _ => serde_json::to_value(raw.decode::<wire::Lease>().unwrap()),
    };
    without_blanks(value.unwrap())
}

async fn list(api: &Client, path: &str, accept: &str) -> Vec<Value> {
    let (encoding, bytes) = body(api, path, accept).await;
    let mut list = List::new(encoding);
    let mut items = Vec::new();
    // In pieces, like from a network.
    for piece in bytes.chunks(1500) {
        list.push(piece);
        while let Some(raw) = list.next_item().unwrap() {
            items.push(decode(path, &raw));
        }
    }
    list.end();
    while let Some(raw) = list.next_item().unwrap() {
        items.push(decode(path, &raw));
    }
    assert!(!list.resource_version().is_empty());
    items
}

/// From the beginning until the server ends it.
async fn watch(api: &Client, path: &str, accept: &str, begun: &Barrier) -> Vec<(&'static str, Value)> {
    let url = format!("{path}?watch=true&timeoutSeconds={WATCHED}");
    let accept = if accept == PROTOBUF { "application/vnd.kubernetes.protobuf;stream=watch" } else { accept };
    let request = http::Request::get(url).header("accept", accept).body(Body::empty()).unwrap();
    let response = api.send(request).await.unwrap();
    begun.wait().await;
    let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
    let mut frames = Frames::new(Encoding::from_content_type(&kind).unwrap());
    let bytes = response.into_body().collect_bytes().await.unwrap();
    let mut events = Vec::new();
    for piece in bytes.chunks(700) {
        frames.push(piece);
        while let Some(event) = frames.next_event().unwrap() {
            events.push(match event {
                Event::Applied(raw) => ("applied", decode(path, &raw)),
                Event::Deleted(raw) => ("deleted", decode(path, &raw)),
                other => ("other", Value::String(format!("{other:?}"))),
            });
        }
    }
    events
}

#[tokio::test]
async fn lists_and_watches_are_equal_in_json_and_protobuf() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    plane.loader(&["-nodes", "20", "-pods", "300", "-orphans", "7", "-terminated", "9"]).await.unwrap();
    let api = &plane.admin();
    objects::create_node(api, &objects::node("odd").with_ready("Unknown")).await.unwrap();
    objects::renew_lease(api, "odd").await.unwrap();
    objects::renew_lease(api, "odd").await.unwrap();
    let odd = objects::pod("default", "odd")
        .with_finalizer("example.com/a")
        .with_annotation("example.com/b", "ü")
        .on_node("node-0");
    objects::create_pod(api, &odd.mirror().with_phase("Failed")).await.unwrap();
    observe::delete_pod(api, "default", "odd", false).await.unwrap();

    for (path, at_least) in [(PODS, 310), (NODES, 21), (LEASES, 1)] {
        let (json, protobuf) = (list(api, path, JSON).await, list(api, path, PROTOBUF).await);
        assert!(json.len() >= at_least, "{path}: {}", json.len());
        assert_eq!(json, protobuf, "{path}");
    }
    let text = serde_json::to_string(&list(api, PODS, PROTOBUF).await).unwrap();
    for field in ["deletionTimestamp", "finalizers", "config.mirror", "nodeName", "\"phase\":\"Failed\""] {
        assert!(text.contains(field), "nothing has {field}");
    }

    let begun = &Barrier::new(7);
    let changes = async {
        begun.wait().await;
        observe::delete_pod(api, "load", "p-0", true).await.unwrap();
        objects::renew_lease(api, "odd").await.unwrap();
        observe::delete_node(api, "odd").await.unwrap();
    };
    let watches = async {
        let pods = futures::future::join(watch(api, PODS, JSON, begun), watch(api, PODS, PROTOBUF, begun));
        let nodes = futures::future::join(watch(api, NODES, JSON, begun), watch(api, NODES, PROTOBUF, begun));
        let leases = futures::future::join(watch(api, LEASES, JSON, begun), watch(api, LEASES, PROTOBUF, begun));
        futures::future::join3(pods, nodes, leases).await
    };
    let (seen, ()) = futures::future::join(watches, changes).await;
    let (pods, nodes, leases) = seen;
    for (name, (mut json, mut protobuf)) in [("pods", pods), ("nodes", nodes), ("leases", leases)] {
        // The first events show existing objects, in no particular order.
        for events in [&mut json, &mut protobuf] {
            events.sort_by_key(|(kind, value)| format!("{kind}{value}"));
        }
        let deleted = json.iter().filter(|(kind, _)| *kind == "deleted").count();
        assert_eq!(deleted, usize::from(name != "leases"), "{name}");
        assert!(json.len() > 1, "{name}");
        assert_eq!(json, protobuf, "{name}");
    }
}
