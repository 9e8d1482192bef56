//! The Eviction API (KEP-4563) on a real API server, with the controllers of pod-safety: the behaviours of the integration tests of
//! kubernetes#137133 and #137396, and attacks by tenants.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "scenarios may fail as loudly as the test that runs them")]

mod attacks;
mod differential;
mod process;
mod tenant;

use http::Method;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use pod_safety_control_plane::{ControlPlane, Options, check_that, scenarios, until};
use serde_json::{Value, json};
use tenant::Tenant;

pub(crate) use tenant::entry;

use attacks::{a_forged_report_stops_the_chain, a_thousand_requests_do_not_starve_another_namespace};
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
    let forged = attacks::forged(&plane).await;
    let args = ["--controllers=disruption,eviction", "--mode=replace"];
    let mut pod_safety = plane.leading_pod_safety(&kubeconfig, args).await.unwrap();
    pod_safety.ready().await.unwrap();
    scenarios![
        requests_are_validated(&plane),
        a_pod_that_terminates_ends_its_eviction(&plane),
        a_pod_is_evicted_by_the_api_server(&plane),
        a_withdrawn_eviction_is_canceled_and_requested_again(&plane),
        responders_have_their_turns_and_the_next_eviction_follows(&plane),
        a_budget_stalls_an_eviction_until_it_opens(&plane),
        a_forged_report_stops_the_chain(&pod_safety, &forged),
        a_thousand_requests_do_not_starve_another_namespace(&plane),
    ];
    let ended = pod_safety.metric("pod_safety_evictions_ended_total", &[]).await.unwrap();
    assert!(ended >= 4.0, "{ended}");
}

#[tokio::test]
async fn the_validation_of_the_model_check_is_that_of_the_api_server() {
    if crate::versions::can_serve_evictions() {
        let plane = ControlPlane::start(gates()).await.unwrap();
        differential::ported_validation_agrees_with_the_api_server(&plane).await;
    }
}

#[tokio::test]
async fn without_the_api_group_one_log_line_and_no_action() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
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
