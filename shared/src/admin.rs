//! The admin server: `/livez`, `/readyz`, `/metrics`, `/debug/cache` and `/debug/decisions`.
//!
//! Invariants: no route changes anything; `/debug` names objects of all namespaces, so it answers only requests from this
//! pod, which is where those of `kubectl port-forward` come from; however many connections other pods open, memory is
//! bounded (see `connections`).

mod connections;
mod tls;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::rejection::ExtensionRejection;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use connections::{Connections, Peer};
use pod_safety_screen::{is_cross_site, is_for_this_machine};
use serde::Serialize;
pub use tls::{Tls, TlsError, TlsFiles};

use crate::cache::Cache;
use crate::clock::Env;
use crate::controller_loop::{CurrentHold, Holds, LoopHeartbeats};
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::model::Kind;
use crate::record::{Journal, Record};

/// Where the admin server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address and port.
    pub address: SocketAddr,
    /// The files of its certificate; `None`: HTTP.
    pub tls: Option<TlsFiles>,
    /// Whether `/debug` is served.
    pub debug: bool,
}

/// Why the admin server does not run.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address is in use, or is no address of this host.
    #[error("listening on --admin-address={address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The state that the admin server shows.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The clock.
    pub env: Env,
    /// The kinds that this process watches.
    pub kinds: Vec<Kind>,
    /// The cache.
    pub cache: Arc<Cache>,
    /// The metrics.
    pub metrics: Metrics,
    /// The journal of decisions and their outcomes.
    pub journal: Arc<Journal>,
    /// The objects that are on hold.
    pub holds: Arc<Holds>,
    /// Whether this process is the leader.
    pub leadership: Arc<Leadership>,
    /// The heartbeats of the control loops.
    pub heartbeats: LoopHeartbeats,
    /// Whether `/debug` is served.
    pub debug: bool,
}

impl Admin {
    /// Binds `address`.
    ///
    /// # Errors
    /// The address is in use, or is no address of this host.
    pub async fn bind(address: SocketAddr) -> Result<tokio::net::TcpListener, AdminError> {
        tokio::net::TcpListener::bind(address).await.map_err(|source| AdminError::Listen { address, source })
    }

    /// Serves requests on `listener` until the process ends; by HTTPS if there is a certificate.
    pub async fn serve(self, listener: tokio::net::TcpListener, tls: Option<Tls>) {
        let connections = Connections::new(listener, self.env.clone(), tls);
        let service = self.router().into_make_service_with_connect_info::<Peer>();
        if let Err(error) = axum::serve(connections, service).await {
            tracing::error!(%error, "the admin server ended");
        }
    }

    /// The routes.
    pub fn router(self) -> Router {
        Router::new()
            .route("/debug/cache", get(debug_cache))
            .route("/debug/decisions", get(debug_decisions))
            .route_layer(from_fn_with_state(self.debug, require_local_peer))
            .route("/livez", get(livez))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .fallback(|| async {
                (StatusCode::NOT_FOUND, "try /livez /readyz /metrics /debug/cache /debug/decisions\n")
            })
            .layer(from_fn(close_after_answer))
            .with_state(self)
    }
}

/// Closes the connection after one request: a connection that stays open would use a slot that others need.
async fn close_after_answer(request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// Refuses requests to `/debug` from other pods. A request from an unknown peer counts as one from another pod.
async fn require_local_peer(
    State(debug): State<bool>,
    peer: Result<ConnectInfo<Peer>, ExtensionRejection>,
    request: Request,
    next: Next,
) -> Response {
    if !debug {
        let hint = "/debug is off: --serve-debug=true (serveDebug of the chart) turns it on\n";
        return (StatusCode::FORBIDDEN, hint).into_response();
    }
    let of_this_pod = peer.is_ok_and(|ConnectInfo(peer)| peer.is_loopback());
    if of_this_pod && !comes_from_a_web_page(request.headers()) {
        return next.run(request).await;
    }
    let hint = "/debug names objects of all namespaces, so it answers only requests from this pod: kubectl port-forward pod/POD 8080, then localhost:8080\n";
    (StatusCode::FORBIDDEN, hint).into_response()
}

/// Behind `kubectl port-forward`, requests of web pages in the operator's browser come from this pod, too. A page can reach
/// this port by its own host name (DNS rebinding), or by a cross-site script.
fn comes_from_a_web_page(headers: &HeaderMap) -> bool {
    !is_for_this_machine(headers) || headers.contains_key(header::ORIGIN) || is_cross_site(headers) == Some(true)
}

async fn livez(State(admin): State<Admin>) -> (StatusCode, String) {
    let stuck = admin.heartbeats.stuck(admin.env.now());
    if stuck.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    let lines = stuck.iter().map(|(name, age)| format!("[-]{name} has not run its loop for {}s\n", age.as_secs()));
    (StatusCode::INTERNAL_SERVER_ERROR, lines.collect())
}

/// Ready: every kind was listed and its watch is current. A standby can be ready. Custom resources of pod-safety may not be
/// installed, and the kinds of the Eviction API may not be served: the controllers of these kinds are then idle, and the
/// process is still ready.
async fn readyz(State(admin): State<Admin>) -> (StatusCode, String) {
    let now = admin.env.now();
    let guard = admin.cache.read();
    let view = guard.view();
    let mut code = StatusCode::OK;
    let mut body = String::new();
    for kind in &admin.kinds {
        match view.check_fresh(*kind, now) {
            Ok(()) => body.push_str(&format!("[+]{} ok\n", kind.resource())),
            Err(_) if view.state(*kind).unserved => {
                body.push_str(&format!("[+]{}: the API server does not serve them\n", kind.resource()));
            }
            Err(unfresh) => {
                if !kind.is_optional() {
                    code = StatusCode::SERVICE_UNAVAILABLE;
                }
                let trouble = view.state(*kind).problem.as_ref().map(|trouble| format!(" ({})", trouble.message));
                body.push_str(&format!("[-]{}: {unfresh}{}\n", kind.resource(), trouble.unwrap_or_default()));
            }
        }
    }
    // The pod stays ready: the controllers and devices without agents work.
    if !admin.metrics.has_fence_agents() {
        body.push_str("[-]fence-agents: no answer on --fence-agents-socket\n");
    }
    (code, body)
}

async fn metrics(State(admin): State<Admin>) -> Response {
    match admin.metrics.encode() {
        Ok(page) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], page).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CacheDump {
    leads: bool,
    kinds: BTreeMap<&'static str, KindDump>,
    missing_nodes: Vec<MissingNode>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct KindDump {
    synced: bool,
    objects: usize,
    undecodable: usize,
    last_contact_seconds_ago: Option<u64>,
    trouble: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MissingNode {
    node: Arc<str>,
    missing_for_seconds: u64,
    first_quorum_read_seconds_ago: Option<u64>,
    pods: usize,
}

async fn debug_cache(State(admin): State<Admin>) -> Json<CacheDump> {
    let now = admin.env.now();
    let guard = admin.cache.read();
    let view = guard.view();
    let kinds = admin.kinds.iter().map(|kind| {
        let (state, (objects, undecodable)) = (view.state(*kind), view.count(*kind));
        let dump = KindDump {
            synced: state.synced,
            objects,
            undecodable,
            last_contact_seconds_ago: state.last_contact.map(|at| now.since(at).as_secs()),
            trouble: state.problem.as_ref().map(|trouble| trouble.message.clone()),
        };
        (kind.resource(), dump)
    });
    let missing_nodes = view.absences().map(|(node, absence)| MissingNode {
        node: Arc::clone(node),
        missing_for_seconds: now.since(absence.since).as_secs(),
        first_quorum_read_seconds_ago: absence.first_read.as_ref().map(|read| now.since(read.answered_at()).as_secs()),
        pods: view.pods_on(node).count(),
    });
    Json(CacheDump {
        leads: admin.leadership.term(now).is_some(),
        kinds: kinds.collect(),
        missing_nodes: missing_nodes.collect(),
    })
}

/// How many holds are written out. After a large outage there are tens of thousands of them, each some hundred bytes long.
const MAX_HOLDS: usize = 2_000;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DecisionDump {
    holds: Vec<CurrentHold>,
    #[serde(skip_serializing_if = "is_zero")]
    more_holds: usize,
    records: Vec<Record>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

async fn debug_decisions(State(admin): State<Admin>) -> Json<DecisionDump> {
    let mut holds = admin.holds.current();
    let more_holds = holds.len().saturating_sub(MAX_HOLDS);
    holds.truncate(MAX_HOLDS);
    Json(DecisionDump { holds, more_holds, records: admin.journal.records() })
}

#[cfg(test)]
mod tests;
