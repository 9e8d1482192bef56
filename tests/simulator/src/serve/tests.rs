//! The gate without a socket, and the socket without a simulation.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use pod_safety_shared::clock::Env;

use super::{Listener, attend, gate, parse_address};
use crate::api::{ApiServer, Conduct, Etcd, Fate, Prompt};
use crate::chance::Chance;
use crate::differential::{Generator, Session, Side};
use crate::paused;

fn get_request(target: &str) -> Request<Bytes> {
    Request::get(target).body(Bytes::new()).unwrap()
}

async fn text(response: Response<Body>) -> (u16, String) {
    let code = response.status().as_u16();
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (code, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn excess_requests_are_refused_until_others_leave() {
    let (gate, _visitors) = gate();
    let places = gate.free_places();
    let mut waiting: Vec<_> = (0..places).map(|_| Box::pin(gate.forward(get_request("/api/v1/pods")))).collect();
    assert!(waiting.iter_mut().all(|one| one.now_or_never().is_none()));
    let (code, body) = text(gate.forward(get_request("/api/v1/pods")).await).await;
    assert!(code == 429 && body.contains("TooManyRequests"), "{code} {body}");
    drop(waiting);
    assert_eq!(gate.free_places(), places);
}

#[tokio::test]
async fn a_request_after_the_end_of_the_simulation_is_answered() {
    let (gate, visitors) = gate();
    let waits = gate.forward(get_request("/api/v1/pods"));
    futures::pin_mut!(waits);
    assert!(waits.as_mut().now_or_never().is_none());
    drop(visitors);
    for response in [waits.await, gate.forward(get_request("/api/v1/pods")).await] {
        let (code, body) = text(response).await;
        assert!(code == 503 && body.contains("the simulation has ended"), "{code} {body}");
    }
}

/// A server that loses every request, with or without an error for the client.
struct Lost(bool);

impl Conduct for Lost {
    fn course(&self, _server: &str, _asked: &crate::api::ApiRequest) -> crate::api::Course {
        crate::api::Course { fate: Fate::DropBefore, reset: self.0, ..crate::api::Course::PROMPT }
    }
}

/// Servers of one cluster: one for each conduct. Their timestamps use the test's clock: two runs are compared, and a
/// second of the calendar may begin between them.
fn servers(conducts: Vec<Arc<dyn Conduct>>) -> (Arc<Etcd>, Vec<Arc<ApiServer>>) {
    let env = paused::env(1);
    let etcd = Etcd::new(Chance::new(1), &[], jiff::Timestamp::UNIX_EPOCH);
    let start = |conduct| ApiServer::start("api", &etcd, env.clone(), conduct);
    let servers = conducts.into_iter().map(start).collect();
    (etcd, servers)
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_is_retried_at_the_next_server_and_a_write_is_not() {
    for reset in [true, false] {
        let (_etcd, servers) = servers(vec![Arc::new(Lost(reset)), Arc::new(Prompt)]);
        let (gate, visitors) = gate();
        let env = Env::real(1);
        env.spawner.spawn("visitors", Box::pin(attend(visitors, move || servers.clone(), Vec::new, env.clone())));
        assert_eq!(text(gate.forward(get_request("/api/v1/pods")).await).await.0, 200);
        let delete = Request::delete("/api/v1/namespaces/default/pods/a").body(Bytes::new()).unwrap();
        let (code, body) = text(gate.forward(delete).await).await;
        assert!(code == 504 && body.contains("may have been done"), "{code} {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn bug_ages_were_measured_against_the_calendar_and_not_the_time_of_the_simulation() {
    let (_etcd, servers) = servers(vec![Arc::new(Prompt)]);
    let (gate, visitors) = gate();
    let env = Env::real(1).with_wall_offset(jiff::SignedDuration::from_hours(-24 * 62));
    env.spawner.spawn("visitors", Box::pin(attend(visitors, move || servers.clone(), Vec::new, env.clone())));
    for target in ["/version", "/api/v1/pods", "/apis/nosuch"] {
        let answer = gate.forward(get_request(target)).await;
        let date = answer.headers().get(http::header::DATE).unwrap().to_str().unwrap();
        let date = jiff::fmt::rfc2822::parse(date).unwrap().timestamp();
        assert!(env.clock.wall().duration_since(date).abs().as_secs() < 60, "{target}: {date}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_an_answering_server_the_answer_is_a_status() {
    for servers in [Vec::new(), servers(vec![Arc::new(Lost(true))]).1] {
        let (gate, visitors) = gate();
        let env = Env::real(1);
        env.spawner.spawn("visitors", Box::pin(attend(visitors, move || servers.clone(), Vec::new, env.clone())));
        let (code, body) = text(gate.forward(get_request("/api/v1/pods")).await).await;
        assert!(code == 503 && body.contains("Status"), "{code} {body}");
    }
}

/// All answers of a seeded run, and when it ended.
async fn run(attended: bool) -> (Vec<Bytes>, Duration) {
    let (_etcd, servers) = servers(vec![Arc::new(Prompt)]);
    let clock = Env::real(1);
    let began = clock.now();
    let side = Side::new(crate::api::Transport::new(&servers[0], "test").client(), false);
    let (gate, visitors) = gate();
    if attended {
        let env = Env::real(1);
        env.spawner.spawn("visitors", Box::pin(attend(visitors, move || servers.clone(), Vec::new, env.clone())));
    }
    let mut generator = Generator::new(Chance::new(1), 3);
    let operations = generator.operations();
    let mut session = Session::new(&side, generator.sequence());
    for operation in &operations {
        session.step(operation).await;
    }
    drop(gate);
    (session.end().replies.into_iter().map(|reply| reply.raw).collect(), clock.now().since(began))
}

#[tokio::test(start_paused = true)]
async fn an_unused_gate_changes_nothing() {
    let with = run(true).await;
    assert!(with.0.len() > 10);
    let stamped = String::from_utf8_lossy(&with.0[0]).contains("2027-01-01T00:00:00Z");
    assert!(stamped, "by the clock of the test");
    assert_eq!(run(false).await, with);
}

/// A page of another site whose name resolves to this machine could have done in the simulated cluster what a person
/// does with kubectl.
#[tokio::test]
async fn attack_a_page_of_another_origin_reaches_no_simulated_cluster() {
    for (host, wanted) in [("127.0.0.1:8001", 503), ("localhost", 503), ("evil.example:8001", 421), ("", 421)] {
        let (gate, visitors) = gate();
        drop(visitors);
        let request = Request::get("/api/v1/pods").header("host", host).body(Body::empty()).unwrap();
        let (code, body) = text(super::listen::forward(axum::extract::State(gate), request).await).await;
        assert_eq!(code, wanted, "{host}: {body}");
    }
}

/// Such a page may also name this machine `localhost`: its form deleted pods.
#[tokio::test]
async fn attack_a_form_of_another_site_changes_no_simulated_cluster() {
    for (site, wanted) in [
        (Some("cross-site"), 403),
        (Some("same-site"), 403),
        (Some("same-origin"), 503),
        (Some("none"), 503),
        (None, 503),
    ] {
        let (gate, visitors) = gate();
        drop(visitors);
        let mut request = Request::post("/api/v1/namespaces/a/pods").header("host", "localhost:8001");
        if let Some(site) = site {
            request = request.header("sec-fetch-site", site);
        }
        let request = request.body(Body::empty()).unwrap();
        let (code, body) = text(super::listen::forward(axum::extract::State(gate), request).await).await;
        assert_eq!(code, wanted, "{site:?}: {body}");
    }
}

#[test]
fn a_wrong_address_is_one_clear_line() {
    for (address, expected) in [
        ("8001", "\"8001\" is no address; write one such as 127.0.0.1:8001"),
        (
            "0.0.0.0:8001",
            "0.0.0.0:8001 can be reached from elsewhere, and nobody is asked who they are; use 127.0.0.1:8001",
        ),
    ] {
        assert_eq!(parse_address(address).unwrap_err().to_string(), expected);
    }
    assert_eq!(parse_address("localhost:8001").unwrap(), parse_address("127.0.0.1:8001").unwrap());
}

#[test]
fn a_taken_address_is_one_clear_line() {
    let first = Listener::start("127.0.0.1:0".parse().unwrap(), gate().0).unwrap();
    let address = first.address();
    let error = Listener::start(address, gate().0).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot listen on {address}: ")) && !error.contains('\n'), "{error}");
    let config: serde_json::Value = serde_json::from_str(&first.kubeconfig()).unwrap();
    assert_eq!(config["clusters"][0]["cluster"]["server"], first.url());
    drop(first);
    assert!(Listener::start(address, gate().0).is_ok(), "a listener that is gone gives its address back");
}
