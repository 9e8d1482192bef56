//! How peers (kubelets, workload controllers, people) reach an API server: through the same transports and links as all
//! callers, without a client library.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use tower::Service;

use crate::api::{ApiServer, Transport};

/// How long a peer waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The API servers as callers find them: a server that restarts is a new one under the same number.
#[derive(Default)]
pub(crate) struct Servers(Mutex<Vec<Arc<ApiServer>>>);

impl Servers {
    pub(crate) fn set(&self, index: usize, server: Arc<ApiServer>) {
        let mut servers = self.0.lock();
        match servers.get_mut(index) {
            Some(place) => *place = server,
            None => servers.push(server),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<Arc<ApiServer>> {
        let servers = self.0.lock();
        servers.get(index % servers.len().max(1)).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<ApiServer>> {
        self.0.lock().clone()
    }
}

/// An answer: its code and its body.
pub(crate) type Answer = (u16, Value);

/// Sends a request to a server; `None`: no answer came.
pub(crate) async fn send_request(
    server: &Arc<ApiServer>,
    caller: &str,
    method: &str,
    path: &str,
    body: Option<Value>,
) -> Option<Answer> {
    // A list of operations is a JSON patch, an object is a strategic one.
    let content_type = match &body {
        Some(Value::Array(_)) => "application/json-patch+json",
        _ if method == "PATCH" => "application/strategic-merge-patch+json",
        _ => "application/json",
    };
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).header("accept", "application/json");
    let request = request.header("content-type", content_type).body(Body::from(body)).ok()?;
    let mut door = Transport::new(server, caller);
    let work = async move {
        let response = door.call(request).await.ok()?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.ok()?.to_bytes();
        Some((code, serde_json::from_slice(&bytes).unwrap_or_default()))
    };
    tokio::time::timeout(PATIENCE, work).await.ok().flatten()
}
