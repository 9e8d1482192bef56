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

/// The lines of a watch, as they come.
async fn watch(stage: &Stage, path: &str, accept: &str) -> impl futures::Stream<Item = Value> + use<> {
    let request = request(Method::GET, path, accept, &Value::Null).map(|_body| Vec::new());
    let lines = client(stage).request_stream(request).await.unwrap().lines();
    lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap())
}

async fn next(lines: &mut (impl futures::Stream<Item = Value> + Unpin)) -> Value {
    tokio::time::timeout(LONG, lines.next()).await.unwrap().unwrap()
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
        assert_eq!((answered, &body["kind"], &body["code"]), (code, &json!("Status"), &json!(code)), "{path}: {body}");
    }
    assert!(stage.etcd.unimplemented().is_empty(), "{:?}", stage.etcd.unimplemented());
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
