//! Which server executes a request, and which part of the answer reaches the sender.

use std::time::Duration;

use kube::client::Body;

use super::*;

/// Every request has the same result.
struct Always(Course);

impl Conduct for Always {
    fn course(&self, _server: &str, _asked: &ApiRequest) -> Course {
        self.0
    }
}

fn node() -> http::Request<Body> {
    let body = json!({ "metadata": { "name": "n" } }).to_string();
    http::Request::post(NODES).header("content-type", "application/json").body(Body::from(body.into_bytes())).unwrap()
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_outlives_its_sender() {
    let second = Duration::from_secs(1);
    let cluster = Cluster::with(Arc::new(Always(Course { before: second, after: second, ..Course::PROMPT })));
    let client = Transport::new(&cluster.server, "t").client();
    let sent = tokio::time::timeout(Duration::from_millis(500), client.send(node())).await;
    assert!(sent.is_err(), "the sender died before the request arrived");
    assert!(cluster.etcd.object("Node", "n").is_none());
    pass(1).await;
    assert!(cluster.etcd.object("Node", "n").is_some());
}

#[tokio::test(start_paused = true)]
async fn answers_and_requests_may_be_lost() {
    for (fate, applied) in [(Fate::ApplyThenLoseAnswer, true), (Fate::DropBefore, false)] {
        for reset in [true, false] {
            let cluster = Cluster::with(Arc::new(Always(Course { fate, reset, ..Course::PROMPT })));
            let client = Transport::new(&cluster.server, "t").client();
            let received = tokio::time::timeout(Duration::from_secs(600), client.send(node())).await;
            assert_eq!(received.is_ok(), reset, "without a reset the sender hears nothing");
            assert!(received.is_err() || received.unwrap().is_err());
            assert_eq!(cluster.etcd.object("Node", "n").is_some(), applied);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_world_is_not_executed() {
    let cluster = Cluster::with(Arc::new(Always(Course { fate: Fate::Error(429), ..Course::PROMPT })));
    let answer = Transport::new(&cluster.server, "t").client().send(node()).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers()["retry-after"].to_str().unwrap()), (429, "1"));
    assert!(cluster.etcd.object("Node", "n").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_server_cut_off_from_etcd_answers_late_and_may_have_written() {
    for (reach, applied) in [(Reach::Cut, false), (Reach::AnswersLost, true)] {
        let cluster = Cluster::new();
        cluster.server.reach(reach);
        let began = tokio::time::Instant::now();
        let answer = Transport::new(&cluster.server, "t").client().send(node()).await.unwrap();
        assert_eq!((answer.status().as_u16(), began.elapsed().as_secs()), (504, 34));
        assert_eq!(cluster.etcd.object("Node", "n").is_some(), applied);
    }
}

#[tokio::test(start_paused = true)]
async fn unimplemented_requests_are_answered_and_counted() {
    let cluster = Cluster::new();
    for (method, target) in [
        (Method::GET, "/api/v1/secrets"),
        (Method::GET, "/api/v1/pods?sharding=1"),
        (Method::POST, "/api/v1/namespaces/default/pods/a/exec"),
    ] {
        assert_eq!(cluster.handle(&ApiRequest::new("t", method, target)).0, 501, "{target}");
    }
    let mut asked = ApiRequest::new("t", Method::GET, PODS);
    asked.accept = "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned();
    assert_eq!(cluster.handle(&asked).0, 501);
    assert_eq!(cluster.etcd.unimplemented().len(), 4);
}

/// The newest list uses the index by node, any other list covers the whole namespace, and each announces another page
/// if more objects are there.
#[test]
fn a_list_by_node_uses_the_index() {
    let cluster = Cluster::new();
    for name in ["a", "b"] {
        cluster.pod(name);
    }
    let other = json!({ "metadata": { "name": "z" }, "spec": { "nodeName": "other", "containers": [{ "name": "c", "image": "i" }] } });
    assert_eq!(cluster.send(Method::POST, PODS, &other).0, 201);
    let more = |query: &str| {
        let (code, list) = cluster.get(&format!("{PODS}?{query}"));
        assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 2), "{query}");
        list["metadata"].get("continue").is_some()
    };
    assert!(!more("fieldSelector=spec.nodeName%3Dn&limit=2"));
    assert!(more("labelSelector=app%3Dx&limit=2"));
    let version = cluster.etcd.revision();
    assert!(more(&format!("fieldSelector=spec.nodeName%3Dn&limit=2&resourceVersion={version}")));
}

/// Half of an answer is no answer, whether the connection breaks or ends properly.
#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_off_was_carried_out_and_cannot_be_read() {
    for reset in [true, false] {
        let cluster = Cluster::with(Arc::new(Always(Course { fate: Fate::CutAnswer, reset, ..Course::PROMPT })));
        let answer = Transport::new(&cluster.server, "t").client().send(node()).await.unwrap();
        assert_eq!(answer.status(), 201);
        let body = answer.into_body().collect_bytes().await;
        assert_eq!(body.is_err(), reset);
        assert!(body.is_err() || serde_json::from_slice::<Value>(&body.unwrap()).is_err());
        assert!(cluster.etcd.object("Node", "n").is_some(), "it was carried out");
    }
}
