//! The simulated cluster over HTTP, as any client of Kubernetes uses it.

use std::time::Duration;

use futures::{AsyncBufReadExt, StreamExt};
use http::{Method, Request};
use kube::client::Body;
use serde_json::{Value, json};
use stage::Stage;

use crate::stage;

const TABLE: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Far more than any answer takes.
const LONG: Duration = Duration::from_secs(60);

fn request(method: Method, path: &str, accept: &str, body: &Value) -> Request<Body> {
    let media = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("accept", accept);
    request.header("content-type", media).body(Body::from(body)).unwrap()
}

/// A client of the present runtime, over HTTP.
fn client(stage: &Stage) -> kube::Client {
    let mut config = kube::Config::new(stage.listener.url().parse().unwrap());
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

async fn ask(stage: &Stage, method: Method, path: &str, accept: &str, body: &Value) -> (u16, Value) {
    let work = async {
        let answer = client(stage).send(request(method, path, accept, body)).await.unwrap();
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect_bytes().await.unwrap();
        (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into()))
    };
    tokio::time::timeout(LONG, work).await.unwrap()
}

async fn get(stage: &Stage, path: &str, accept: &str) -> (u16, Value) {
    ask(stage, Method::GET, path, accept, &Value::Null).await
}

/// The lines of a watch, as they come.
async fn watch(stage: &Stage, path: &str, accept: &str) -> impl futures::Stream<Item = Value> + use<> {
    let request = request(Method::GET, path, accept, &Value::Null).map(|_body| Vec::new());
    let lines = client(stage).request_stream(request).await.unwrap().lines();
    lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap())
}

async fn next(lines: &mut (impl futures::Stream<Item = Value> + Unpin)) -> Value {
    tokio::time::timeout(LONG, lines.next()).await.unwrap().unwrap()
}

fn cells(table: &Value) -> Vec<Vec<&str>> {
    let rows = table["rows"].as_array().unwrap().iter();
    rows.map(|row| row["cells"].as_array().unwrap().iter().map(|cell| cell.as_str().unwrap()).collect()).collect()
}

fn names(objects: &Value, key: &str) -> Vec<String> {
    objects.as_array().unwrap().iter().map(|one| one[key].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn discovery_lists_the_kinds() {
    let stage = Stage::start();
    let json = "application/json";
    assert_eq!(get(&stage, "/version", json).await.1["minor"], "37");
    assert_eq!(get(&stage, "/api", json).await.1["versions"], json!(["v1"]));
    let groups = get(&stage, "/apis", json).await.1;
    let expected = ["apps", "coordination.k8s.io", "pod-safety.dev", "policy", "storage.k8s.io"];
    assert_eq!(names(&groups["groups"], "name"), expected);
    assert_eq!(get(&stage, "/apis/apps", json).await.1["preferredVersion"]["groupVersion"], "apps/v1");
    let core = get(&stage, "/api/v1", json).await.1;
    let resources = names(&core["resources"], "name");
    for wanted in ["pods", "pods/status", "pods/eviction", "nodes", "events", "namespaces/finalize"] {
        assert!(resources.contains(&wanted.to_owned()), "{wanted} is not in {resources:?}");
    }
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let all = get(&stage, "/apis", aggregated).await.1;
    assert_eq!(all["items"].as_array().unwrap().len(), expected.len());
    let core = get(&stage, "/api", aggregated).await.1;
    let pods = &core["items"][0]["versions"][0]["resources"][0];
    assert_eq!(
        (&pods["resource"], &pods["scope"], &pods["shortNames"]),
        (&json!("pods"), &json!("Namespaced"), &json!(["po"]))
    );
}

#[tokio::test]
async fn an_unknown_path_is_a_status_and_does_not_fail_the_run() {
    let stage = Stage::start();
    for (method, path, accept, code) in [
        (Method::GET, "/", "", 404),
        (Method::GET, "/openapi/v3", "", 404),
        (Method::GET, "/api/v2", "", 404),
        (Method::GET, "/apis/batch/v1", "", 404),
        (Method::GET, "/api/v1/namespaces/default/secrets", "", 404),
        (Method::GET, "/api/v1/namespaces/default/pods/nobody", "", 404),
        (Method::GET, "/api/v1/namespaces/default/pods/nobody", TABLE, 404),
        (Method::GET, "/api/v1/pods", "application/yaml", 406),
        (Method::GET, "/api/v1/namespaces/default/pods/web-0/log", "", 501),
        (Method::POST, "/version", "", 404),
        (Method::PATCH, "/api/v1/pods", "", 501),
    ] {
        let (answered, body) = ask(&stage, method, path, accept, &Value::Null).await;
        assert_eq!(
            (answered, body["kind"].as_str(), body["code"].as_u64()),
            (code, Some("Status"), Some(code.into())),
            "{path}: {body}"
        );
    }
    assert!(stage.etcd.unimplemented().is_empty(), "{:?}", stage.etcd.unimplemented());
}

#[tokio::test]
async fn lists_and_objects_come_as_tables() {
    let stage = Stage::start();
    let (code, table) = get(&stage, &format!("{PODS}?limit=500&includeObject=Object"), TABLE).await;
    assert_eq!((code, &table["kind"], &table["apiVersion"]), (200, &json!("Table"), &json!("meta.k8s.io/v1")));
    assert!(table["metadata"]["resourceVersion"].is_string());
    let heads = names(&table["columnDefinitions"], "name");
    assert_eq!(heads[..5], ["Name", "Ready", "Status", "Restarts", "Age"]);
    let rows = cells(&table);
    assert_eq!(rows[0][..4], ["web-0", "1/1", "Running", "0"]);
    assert_eq!(rows[0][5..7], ["10.1.0.1", "node-1"]);
    assert_eq!((rows.len(), &table["rows"][0]["object"]["kind"]), (2, &json!("Pod")));
    let (_, one) = get(&stage, &format!("{PODS}/web-1"), TABLE).await;
    assert_eq!(cells(&one)[0][0], "web-1");
    assert_eq!(one["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let some = format!("{PODS}?fieldSelector=metadata.name%3Dweb-1&labelSelector=app%3Dweb");
    assert_eq!(cells(&get(&stage, &some, TABLE).await.1).len(), 1);
    let nodes = get(&stage, "/api/v1/nodes", TABLE).await.1;
    assert_eq!(cells(&nodes)[0][..3], ["node-1", "Ready", "worker"]);
    let leases = get(&stage, "/apis/coordination.k8s.io/v1/leases", TABLE).await.1;
    assert_eq!(cells(&leases)[0][..2], ["node-1", "node-1"]);
    let events = get(&stage, "/api/v1/events?fieldSelector=involvedObject.kind%3DPod", TABLE).await.1;
    assert_eq!(cells(&events)[0][1..4], ["Warning", "Held", "pod/web-1"]);
    let claims = get(&stage, "/api/v1/persistentvolumeclaims", TABLE).await.1;
    assert_eq!(
        (names(&claims["columnDefinitions"], "name"), cells(&claims).len()),
        (vec!["Name".to_owned(), "Age".to_owned()], 0)
    );
}

#[tokio::test]
async fn a_watch_shows_a_deletion_row_by_row() {
    let stage = Stage::start();
    let (_, pod) = get(&stage, &format!("{PODS}/web-0"), "").await;
    let from = pod["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{PODS}?watch=true&fieldSelector=metadata.name%3Dweb-0&resourceVersion={from}");
    let mut rows = watch(&stage, &path, TABLE).await;
    let mut objects = watch(&stage, &path, "application/json").await;
    let (code, marked) = ask(&stage, Method::DELETE, &format!("{PODS}/web-0"), "", &Value::Null).await;
    assert_eq!((code, &marked["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(30)));
    let first = next(&mut rows).await;
    assert_eq!((&first["type"], &first["object"]["kind"]), (&json!("MODIFIED"), &json!("Table")));
    assert_eq!(cells(&first["object"])[0][..3], ["web-0", "1/1", "Terminating"]);
    assert!(!first["object"]["columnDefinitions"].as_array().unwrap().is_empty());
    let mut last = next(&mut rows).await;
    while last["type"] != "DELETED" {
        last = next(&mut rows).await;
    }
    assert_eq!(last["object"]["columnDefinitions"], json!([]), "the columns are told once");
    assert_eq!(next(&mut objects).await["object"]["kind"], "Pod");
    assert_eq!(get(&stage, &format!("{PODS}/web-0"), "").await.0, 404);
    let force = json!({ "gracePeriodSeconds": 0 });
    assert_eq!(ask(&stage, Method::DELETE, &format!("{PODS}/web-1"), "", &force).await.0, 200);
    assert!(stage.etcd.object("Pod", "default/web-1").is_none(), "by force it is gone at once");
}

#[tokio::test]
async fn a_table_watch_older_than_the_window_gets_410_gone() {
    let stage = Stage::start();
    stage.server.compact_watch_cache(stage.etcd.revision());
    let mut rows = watch(&stage, &format!("{PODS}?watch=true&resourceVersion=1"), TABLE).await;
    let error = next(&mut rows).await;
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
}

#[tokio::test]
async fn requests_wait_while_the_simulation_stands_still() {
    let stage = Stage::start();
    stage.stand(true);
    // The loop may be in the middle of its last turn.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let path = format!("{PODS}/web-0");
    let waits = get(&stage, &path, "");
    futures::pin_mut!(waits);
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut waits).await.is_err());
    stage.stand(false);
    assert_eq!(waits.await.0, 200);
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_watch() {
    let stage = Stage::start();
    let from = stage.etcd.revision();
    let path = format!("{PODS}?watch=true&allowWatchBookmarks=true&resourceVersion={from}");
    let rows = watch(&stage, &path, "").await;
    let more = watch(&stage, &path, "").await;
    assert_eq!(stage.server.open_watches(), 2);
    drop(rows);
    // A server notices a lost client when it sends something: at the next bookmark.
    let began = std::time::Instant::now();
    while stage.server.open_watches() > 1 && began.elapsed() < LONG {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let label = json!({ "metadata": { "labels": { "at": began.elapsed().as_millis().to_string() } } });
        ask(&stage, Method::PATCH, &format!("{PODS}/web-0"), "", &label).await;
    }
    assert_eq!(stage.server.open_watches(), 1);
    drop(more);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let stage = Stage::start();
    let large = json!({ "metadata": { "name": "x".repeat(3 << 20) } });
    let (code, body) = ask(&stage, Method::POST, PODS, "", &large).await;
    assert_eq!((code, &body["kind"]), (413, &json!("Status")));
}
