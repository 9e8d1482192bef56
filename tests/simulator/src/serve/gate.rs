//! The channel from the thread of real time into that of simulated time.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tower::BoxError;

use crate::api::Failure;

/// How many requests may be open, watches among them. A person with a dozen terminals needs a few dozen; a program in a
/// loop gets 429.
const PLACES: usize = 256;

/// A piece of an answer's body, or the break of its connection.
pub(super) type Part = Result<Bytes, BoxError>;

/// One request, and the sender of its answer. The receiver is dropped when the client disconnects.
pub(super) struct PendingRequest {
    pub(super) request: Request<Bytes>,
    pub(super) answer: oneshot::Sender<Response<mpsc::Receiver<Part>>>,
}

/// The outer side: takes requests from any thread.
#[derive(Clone, Debug)]
pub struct Gate {
    visits: mpsc::Sender<PendingRequest>,
    places: Arc<Semaphore>,
}

/// The inner side, for [`super::attend`].
#[derive(Debug)]
pub struct Visitors(mpsc::Receiver<PendingRequest>);

/// A gate and its inner side.
#[must_use]
pub fn gate() -> (Gate, Visitors) {
    let (visits, visitors) = mpsc::channel(PLACES);
    (Gate { visits, places: Arc::new(Semaphore::new(PLACES)) }, Visitors(visitors))
}

impl Visitors {
    /// The next request; `None`: every gate is gone.
    pub(super) async fn next(&mut self) -> Option<PendingRequest> {
        self.0.recv().await
    }
}

impl Gate {
    /// Passes a request in and its answer out, however long the simulation stands still meanwhile.
    pub(super) async fn forward(&self, request: Request<Bytes>) -> Response<Body> {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return refusal(&Failure::injected(429)).map(Body::from);
        };
        let (answer, answered) = oneshot::channel();
        if self.visits.send(PendingRequest { request, answer }).await.is_ok()
            && let Ok(response) = answered.await
        {
            return response.map(|mut parts| {
                // The place is free when the body is done, or dropped with its client.
                let stream = futures::stream::poll_fn(move |context| {
                    let _place = &place;
                    parts.poll_recv(context)
                });
                Body::from_stream(stream)
            });
        }
        let ended = Failure::plain(503, "ServiceUnavailable", "the simulation has ended");
        refusal(&ended).map(Body::from)
    }

    /// How many more requests may come.
    #[cfg(test)]
    pub(super) fn free_places(&self) -> usize {
        self.places.available_permits()
    }
}

/// A refusal as an answer: a `Status` object.
pub(super) fn refusal(failure: &Failure) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(failure.status().to_string()));
    *response.status_mut() =
        http::StatusCode::from_u16(failure.code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    if let Some(seconds) = failure.retry_after() {
        headers.insert(http::header::RETRY_AFTER, seconds.into());
    }
    response
}
