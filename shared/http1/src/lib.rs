//! One HTTP/1 connection over a stream that the caller connected: one request at a time, each sent once.
//!
//! It follows no redirect, reads no proxy variable, and retries nothing: a request without a response may have been executed.
//! Deadlines are the caller's: a connection whose `exchange` was dropped must not be used again.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Why there is no whole response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// The connection ended before the head of a response.
    #[error("the connection broke: {0}")]
    Lost(String),
    /// The connection ended within the body.
    #[error("the connection broke: {cause}")]
    Truncated {
        /// The code of the response.
        status: StatusCode,
        /// Why it ended.
        cause: String,
    },
    /// The body is longer than the limit.
    #[error("an answer of more than {limit} bytes")]
    TooLong {
        /// The code of the response.
        status: StatusCode,
        /// In bytes.
        limit: usize,
    },
}

/// hyper's two halves: one takes requests, the other must be polled for anything to be sent or received.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>,
    is_closed: bool,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("is_closed", &self.is_closed).finish_non_exhaustive()
    }
}

impl Connection {
    /// A connection over `stream`. Nothing is sent yet.
    ///
    /// # Errors
    /// [`ExchangeError::Lost`], if the stream ended.
    pub async fn new(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Self, ExchangeError> {
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| lost(&error))?;
        Ok(Self { sender, driver: Box::pin(driver), is_closed: false })
    }

    /// Whether another request can be sent on it, as far as that is known.
    #[must_use]
    pub fn is_usable(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        if !self.is_closed && self.driver.as_mut().poll(&mut context).is_ready() {
            self.is_closed = true;
        }
        !self.is_closed && self.sender.is_ready()
    }

    /// Sends `request` once, and reads the whole response, of at most `limit` bytes.
    ///
    /// # Errors
    /// There is no whole response. Then it is unknown whether the request was executed.
    pub async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        limit: usize,
    ) -> Result<Response<Bytes>, ExchangeError> {
        let Self { sender, driver, is_closed } = self;
        let mut work = std::pin::pin!(async move {
            let response = sender.send_request(request).await.map_err(|error| lost(&error))?;
            let (head, body) = response.into_parts();
            let status = head.status;
            let body =
                Limited::new(body, limit).collect().await.map_err(|error| match error.is::<LengthLimitError>() {
                    true => ExchangeError::TooLong { status, limit },
                    false => ExchangeError::Truncated { status, cause: error_chain(&*error) },
                })?;
            Ok(Response::from_parts(head, body.to_bytes()))
        });
        let mut end = None;
        std::future::poll_fn(|context| {
            if !*is_closed && let Poll::Ready(ended) = driver.as_mut().poll(context) {
                *is_closed = true;
                end = ended.err();
            }
            match work.as_mut().poll(context) {
                // Nothing can come any more.
                Poll::Pending if *is_closed => Poll::Ready(Err(end.as_ref().map_or_else(closed, lost))),
                polled => polled,
            }
        })
        .await
    }
}

fn lost(error: &hyper::Error) -> ExchangeError {
    ExchangeError::Lost(error_chain(error))
}

fn closed() -> ExchangeError {
    ExchangeError::Lost("closed by the service".to_owned())
}

/// hyper has the cause in the sources of its errors.
fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    const LIMIT: usize = 8;

    fn request() -> Request<Full<Bytes>> {
        Request::get("/").header("host", "service").body(Full::default()).unwrap()
    }

    /// Reads one request, and writes these bytes.
    async fn respond(service: &mut DuplexStream, response: &str) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(service.read_u8().await.unwrap());
        }
        service.write_all(response.as_bytes()).await.unwrap();
    }

    /// What becomes of a request to a service that writes these bytes and closes the connection.
    async fn exchanged(response: &str) -> Result<(u16, Bytes), ExchangeError> {
        let (client, mut service) = tokio::io::duplex(1 << 16);
        let mut connection = Connection::new(client).await.unwrap();
        let serve = async {
            respond(&mut service, response).await;
            drop(service);
        };
        let (response, ()) = tokio::join!(connection.exchange(request(), LIMIT), serve);
        response.map(|response| (response.status().as_u16(), response.into_body()))
    }

    #[tokio::test]
    async fn a_response_is_whole_or_an_error() {
        let whole = exchanged("HTTP/1.1 201 Created\r\ncontent-length: 8\r\n\r\n12345678").await;
        assert_eq!(whole, Ok((201, Bytes::from("12345678"))));
        let until_close = exchanged("HTTP/1.1 503 Unavailable\r\n\r\nbusy").await;
        assert_eq!(until_close, Ok((503, Bytes::from("busy"))));
        let status = StatusCode::OK;
        let long = exchanged("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n123456789").await;
        assert_eq!(long, Err(ExchangeError::TooLong { status, limit: LIMIT }));
        let truncated = exchanged("HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n1234").await;
        assert!(matches!(&truncated, Err(ExchangeError::Truncated { status: StatusCode::OK, .. })), "{truncated:?}");
        for none in ["", "HTTP/1.1 200 O", "SSH-2.0-OpenSSH\r\n"] {
            let lost = exchanged(none).await;
            assert!(matches!(&lost, Err(ExchangeError::Lost(_))), "{none:?}: {lost:?}");
        }
    }

    #[tokio::test]
    async fn a_connection_is_used_again_until_the_service_closes_it() {
        let (client, mut service) = tokio::io::duplex(1 << 16);
        let mut connection = Connection::new(client).await.unwrap();
        for _request in 0..2 {
            assert!(connection.is_usable());
            let serve = respond(&mut service, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            let (response, ()) = tokio::join!(connection.exchange(request(), LIMIT), serve);
            assert_eq!(response.unwrap().status(), StatusCode::OK);
        }
        drop(service);
        assert!(!connection.is_usable());
        assert!(matches!(connection.exchange(request(), LIMIT).await, Err(ExchangeError::Lost(_))));
    }
}
