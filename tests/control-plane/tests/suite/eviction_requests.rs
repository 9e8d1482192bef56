//! The Eviction API (KEP-4563) on a real API server, with the controllers of pod-safety: the behaviours of the integration tests of
//! kubernetes#137133 and #137396, and attacks by tenants.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]

mod attacks;
mod differential;
mod errors;
mod gate;
mod others;
mod process;
mod tenant;

use http::Method;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use pod_safety_control_plane::{ControlPlane, Options, check_that, scenarios, wait_until};
use serde_json::{Value, json};
use tenant::Tenant;

pub(crate) use tenant::entry;

use attacks::{a_forged_report_stops_the_chain, a_thousand_requests_do_not_starve_another_namespace};
use differential::ported_validation_agrees_with_the_api_server;
use errors::refusals_have_the_recorded_texts;
use others::{
    an_eviction_goes_with_its_last_request, an_eviction_of_another_client_is_adopted,
    another_controller_is_left_to_its_namespace,
};
use process::*;

const EVICTOR: &str = "imperative-eviction.k8s.io/evictor";

/// An API server with both feature gates and the API group.
pub(crate) fn gates() -> Options {
    let args = [
        "--feature-gates=EvictionRequestAPI=true,GenericWorkload=true",
        "--runtime-config=lifecycle.k8s.io/v1alpha1=true",
    ];
    Options { apiserver_args: args.map(str::to_owned).to_vec(), ..Options::default() }
}

/// Twice what it has without requests.
const MAX_MEMORY: f64 = 128.0 * 1_048_576.0;

const CONTROLLERS: [&str; 2] = ["--controllers=disruption,eviction", "--mode=replace"];

/// So many seconds from now.
fn time(offset: i64) -> String {
    format!("{:.0}", Timestamp::from_second(Timestamp::now().as_second() + offset).unwrap())
}

/// The second in which this responder's turn began.
fn start_of(eviction: &Value, responder: &str) -> i64 {
    let start: Timestamp = entry(eviction, "responders", responder)["startTime"].as_str().unwrap().parse().unwrap();
    start.as_second()
}

/// Writes another `startTime` of this responder in etcd: the API server accepts none of the past.
async fn move_start(plane: &ControlPlane, namespace: &str, eviction: &Value, responder: &str, to: i64) {
    // The field startTime, the length of a time, its field seconds, and a number of five groups of seven bits.
    let stored = |second: i64| {
        let group = |at: u32| u8::try_from((second >> (7 * at)) & 0x7f).unwrap() | if at < 4 { 0x80 } else { 0 };
        [0x12, 8, 8].into_iter().chain((0..5).map(group)).collect::<Vec<u8>>()
    };
    let key = format!("/registry/evictions/{namespace}/{}", eviction["metadata"]["name"].as_str().unwrap());
    plane.corrupt_object(&key, &stored(start_of(eviction, responder)), &stored(to)).await.unwrap();
}

async fn send(api: &Client, method: Method, path: &str, kind: &str, body: &Value) -> kube::Result<Value> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    api.request(request.body(body).unwrap()).await
}

#[tokio::test]
async fn requested_evictions_are_carried_out() {
    if !crate::versions::can_serve_evictions() {
        return;
    }
    let plane = ControlPlane::start(gates()).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    // Before any controller runs.
    let (forged, adopted) = (attacks::forged(&plane).await, others::create_early(&plane).await);
    let _collector = plane.kube_controller_manager("garbage-collector-controller", &[]).await.unwrap();
    let mut pod_safety = plane.leading_pod_safety(&kubeconfig, CONTROLLERS).await.unwrap();
    pod_safety.ready().await.unwrap();
    scenarios![
        requests_are_validated(&plane),
        a_pod_that_terminates_ends_its_eviction(&plane),
        a_pod_is_evicted_by_the_api_server(&plane),
        a_withdrawn_eviction_is_canceled_and_requested_again(&plane),
        responders_have_their_turns_and_the_next_eviction_follows(&plane),
        a_budget_stalls_an_eviction_until_it_opens(&plane),
        an_eviction_of_another_client_is_adopted(&adopted),
        an_eviction_goes_with_its_last_request(&plane),
        another_controller_is_left_to_its_namespace(&plane, &pod_safety),
        a_forged_report_stops_the_chain(&pod_safety, &forged),
        a_thousand_requests_do_not_starve_another_namespace(&plane),
    ];
    let ended = pod_safety.metric("pod_safety_evictions_ended_total", &[]).await.unwrap();
    assert!(ended >= 4.0, "{ended}");
    // A thousand requests of one tenant, and it has kept what it needs of them.
    let memory = pod_safety.metric("process_resident_memory_bytes", &[]).await.unwrap();
    assert!(memory < MAX_MEMORY, "{memory} bytes");
}

#[tokio::test]
async fn the_validation_of_the_model_check_is_that_of_the_api_server() {
    if crate::versions::can_serve_evictions() {
        let plane = ControlPlane::start(gates()).await.unwrap();
        scenarios![refusals_have_the_recorded_texts(&plane), ported_validation_agrees_with_the_api_server(&plane),];
    }
}

#[tokio::test]
async fn without_the_api_group_one_log_line_and_no_action() {
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    let mut pod_safety = plane.leading_pod_safety(&kubeconfig, ["--controllers=pod-gc,eviction"]).await.unwrap();
    pod_safety.ready().await.unwrap();
    let ready = pod_safety.get("/readyz").await.unwrap().body;
    assert!(ready.contains("[+]evictions: the API server does not serve them"), "{ready}");
    assert_eq!(pod_safety.metric("pod_safety_holds", &[("controller", "eviction")]).await.unwrap(), 0.0);
    assert_eq!(
        pod_safety.metric("pod_safety_cache_watch_failures_total", &[("resource", "evictions")]).await.unwrap(),
        0.0
    );
    let log = pod_safety.log_text();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("lifecycle.k8s.io")).collect();
    assert_eq!(lines.len(), 2, "one of each kind: {lines:#?}");
    assert!(lines.iter().all(|line| line.contains("INFO")), "{lines:#?}");
}

#[tokio::test]
async fn requests_are_kept_while_the_gate_is_off_and_go_on_when_it_is_back() {
    if !crate::versions::can_serve_evictions() {
        return;
    }
    let mut plane = ControlPlane::start(gates()).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    let mut pod_safety = plane.leading_pod_safety(&kubeconfig, CONTROLLERS).await.unwrap();
    let tenant = gate::begin(&plane).await;
    let start = gate::switch_off(&mut plane, &tenant, &pod_safety).await;
    pod_safety.terminate().await.unwrap();
    plane.restart_apiserver_with(&gates().apiserver_args).await.unwrap();
    let _pod_safety = plane.leading_pod_safety(&kubeconfig, CONTROLLERS).await.unwrap();
    gate::continue_requests(&tenant, start).await;
}
