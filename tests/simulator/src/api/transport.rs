//! The connection of a `kube::Client` to a server: a tower service.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use kube::client::Body;
use tower::{BoxError, Service};

use super::conduct::{Course, Fate};
use super::reply::Reply;
use super::route::ApiRequest;
use super::server::ApiServer;

/// What the sender receives.
enum Delivery {
    Answer(Reply),
    /// Half of it; then the connection breaks, or the answer ends as if that were all.
    Partial(Reply, bool),
    /// The connection broke.
    Reset,
    /// Nothing, without end.
    Hangs,
}

/// A connection of one caller to one server. Give it to
/// `pod_safety_shared::client::Connection::over` or to `kube::Client::new`.
#[derive(Clone, Debug)]
pub struct Transport {
    server: Arc<ApiServer>,
    caller: Arc<str>,
    stranger: bool,
}

impl Transport {
    /// The connection of `caller` to `server`, by the names of their hosts in the world.
    #[must_use]
    pub fn new(server: &Arc<ApiServer>, caller: &str) -> Self {
        Self { server: Arc::clone(server), caller: caller.into(), stranger: false }
    }

    /// The same for a caller outside of the simulation (see [`ApiRequest::stranger`]).
    #[must_use]
    pub fn for_stranger(server: &Arc<ApiServer>, caller: &str) -> Self {
        Self { stranger: true, ..Self::new(server, caller) }
    }

    /// A client that uses this connection.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// Starts the server's own task for a request.
    fn send(&self, asked: ApiRequest) -> oneshot::Receiver<Delivery> {
        let (sender, receiver) = oneshot::channel();
        let server = Arc::clone(&self.server);
        let task = async move {
            let delivery = deliver(&server, asked).await;
            // The sender may be gone; its request was executed all the same.
            drop(sender.send(delivery));
        };
        self.server.env().spawner.spawn("request", Box::pin(task));
        receiver
    }
}

async fn deliver(server: &Arc<ApiServer>, asked: ApiRequest) -> Delivery {
    let Course { before, after, fate, reset, sent } = server.course(&asked);
    let asked = &ApiRequest { sent, ..asked };
    let lost = if reset { Delivery::Reset } else { Delivery::Hangs };
    if !before.is_zero() {
        server.env().sleep(before).await;
    }
    let heard = match fate {
        Fate::DropBefore => return lost,
        Fate::Error(code) => Delivery::Answer(server.refuse(&super::failure::Failure::injected(code))),
        Fate::Deliver => Delivery::Answer(server.serve(asked).await),
        Fate::CutAnswer => Delivery::Partial(server.serve(asked).await, reset),
        Fate::ApplyThenLoseAnswer => {
            drop(server.serve(asked).await);
            lost
        }
    };
    if !after.is_zero() {
        server.env().sleep(after).await;
    }
    heard
}

impl Service<Request<Body>> for Transport {
    type Response = Response<UnsyncBoxBody<Bytes, BoxError>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let asked = match into_api_request(request, &self.caller) {
            Ok(asked) => ApiRequest { stranger: self.stranger, ..asked },
            Err(error) => return Box::pin(async move { Err(error) }),
        };
        // Sent here and not when the future is polled: a dropped future means a dead client, and its request is on the
        // way.
        let receiver = self.send(asked);
        let server = Arc::clone(&self.server);
        Box::pin(async move {
            match receiver.await {
                Ok(Delivery::Answer(reply)) => {
                    let (head, body) = reply.into_parts();
                    let head = dated(head, server.env().clock.wall());
                    let body = StreamBody::new(body.map(|part| part.map(Frame::data)));
                    Ok(head.body(UnsyncBoxBody::new(body))?)
                }
                Ok(Delivery::Partial(reply, breaks)) => {
                    let (head, body) = reply.into_parts();
                    let half = |bytes: Bytes| bytes.slice(..bytes.len() / 2);
                    let first = body.take(1).map(move |part| part.map(half));
                    let end = breaks.then(|| Err::<Bytes, BoxError>("unexpected end of file".into()));
                    let body = first.chain(futures::stream::iter(end));
                    let body = StreamBody::new(body.map(|part| part.map(Frame::data)));
                    Ok(head.body(UnsyncBoxBody::new(body))?)
                }
                Ok(Delivery::Hangs) => futures::future::pending().await,
                Ok(Delivery::Reset) | Err(oneshot::Canceled) => Err("connection reset by peer".into()),
            }
        })
    }
}

/// Each answer says what the clock of its server shows.
fn dated(head: http::response::Builder, now: jiff::Timestamp) -> http::response::Builder {
    match jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&now) {
        Ok(date) => head.header(http::header::DATE, date),
        Err(_) => head,
    }
}

fn into_api_request(request: Request<Body>, caller: &Arc<str>) -> Result<ApiRequest, BoxError> {
    let (head, body) = request.into_parts();
    let bytes = body.collect_bytes().now_or_never().ok_or("the simulator takes whole bodies only")?;
    let header = |name: http::HeaderName| {
        head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let target = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let mut asked = ApiRequest::new(caller, head.method.clone(), &target);
    asked.content_type = header(http::header::CONTENT_TYPE);
    asked.accept = header(http::header::ACCEPT);
    asked.body = bytes.map_err(|error| -> BoxError { Box::new(error) })?;
    Ok(asked)
}
