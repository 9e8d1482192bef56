//! The socket, and the thread that runs in real time.

use std::net::SocketAddr;
use std::thread::JoinHandle;

use axum::Router;
use axum::extract::State;
use bytes::Bytes;
use http::{Request, Response};
use pod_safety_shared::screen::{is_cross_site, is_for_this_machine};
use serde_json::json;
use tokio::sync::oneshot;

use super::ServeError;
use super::gate::{Gate, refusal};
use crate::api::Failure;

/// The largest request body that an API server accepts (`MaxRequestBodyBytes`).
const LARGEST_BODY: usize = 3 << 20;

/// Answers HTTP until it is dropped.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Parses an address such as `127.0.0.1:8001`, for flags.
///
/// # Errors
/// It is no address, or not on loopback.
pub fn parse_address(text: &str) -> Result<SocketAddr, ServeError> {
    let text = text.trim();
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let address: SocketAddr =
        numeric.as_deref().unwrap_or(text).parse().map_err(|_error| ServeError::Address(text.to_owned()))?;
    if address.ip().is_loopback() { Ok(address) } else { Err(ServeError::NotLoopback(address)) }
}

impl Listener {
    /// Listens on `address` (port 0: any free one) and passes requests to `gate`.
    ///
    /// # Errors
    /// The address is taken, not one of this machine or not on loopback.
    pub fn start(address: SocketAddr, gate: Gate) -> Result<Self, ServeError> {
        if !address.ip().is_loopback() {
            return Err(ServeError::NotLoopback(address));
        }
        let failed = |source| ServeError::Listen { address, source };
        let socket = std::net::TcpListener::bind(address).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(ServeError::Start)?;
        let socket = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(socket).map_err(failed)?
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let work = async move {
            let app = Router::new().fallback(forward).with_state(gate);
            tokio::select! {
                biased;
                _ = stopped => {}
                // It never ends by itself: an error of a connection ends only that connection.
                _ = axum::serve(socket, app) => {}
            }
        };
        let thread = in_real_time(move || runtime.block_on(work)).map_err(ServeError::Start)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// The address on which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// For `kubectl --server`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A kubeconfig for this cluster. It is JSON, which is YAML.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        let name = "pod-safety-demo";
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{ "name": name, "cluster": { "server": self.url() } }],
            "users": [{ "name": name, "user": {} }],
            "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
        });
        format!("{config:#}\n")
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has already reported it.
            drop(thread.join());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "sockets belong to a thread where time is real")]
fn in_real_time(work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("serve".to_owned()).spawn(work)
}

pub(super) async fn forward(
    State(gate): State<Gate>,
    request: Request<axum::body::Body>,
) -> Response<axum::body::Body> {
    let (head, body) = request.into_parts();
    if !is_for_this_machine(&head.headers) {
        let why = "ask for localhost: a page of a stranger may have asked, by a name that leads here";
        return refusal(&Failure::plain(421, "Misdirected", why)).map(axum::body::Body::from);
    }
    // A form of another site does harm without reading an answer. kubectl and curl send no such headers.
    if is_cross_site(&head.headers) == Some(true) {
        let why = "a page of another site has sent this; use kubectl, or open the address yourself";
        return refusal(&Failure::plain(403, "Forbidden", why)).map(axum::body::Body::from);
    }
    let bytes: Result<Bytes, _> = axum::body::to_bytes(body, LARGEST_BODY).await;
    match bytes {
        Ok(bytes) => gate.forward(Request::from_parts(head, bytes)).await,
        Err(error) => {
            let why = format!("the body of the request cannot be read: {error}");
            refusal(&Failure::plain(413, "RequestEntityTooLarge", why)).map(axum::body::Body::from)
        }
    }
}
