//! One connection to a service: requests and answers, each within limits.
//!
//! One connection serves all requests of an order: a handshake takes a small controller a second. Nothing is sent
//! twice: a request whose answer is lost may have been executed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use pod_safety_clock::Env;
use pod_safety_transport::DeviceError;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::handshake;

/// A controller that runs accepts a connection at once; a slow one needs seconds for the handshake.
const CONNECTS_WITHIN: Duration = Duration::from_secs(10);

/// Some controllers query the machine's firmware before they answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// The descriptions of the largest systems have some tens of KiB.
const MAX_ANSWER_BYTES: usize = 1 << 20;

const HTTPS: u16 = 443;

pub(super) struct Connection<'a> {
    route: Route<'a>,
    open: Option<OpenConnection>,
    has_answered: bool,
    /// No request is in progress, or was abandoned.
    is_idle: bool,
}

/// The parameters of a connection.
struct Route<'a> {
    env: &'a Env,
    authority: &'a Authority,
    tls: TlsConnector,
}

/// hyper's two halves: one takes requests, the other must be polled for anything to be sent or received.
struct OpenConnection {
    sender: SendRequest<Full<Bytes>>,
    driver: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_closed: bool,
}

impl<'a> Connection<'a> {
    pub(super) fn new(env: &'a Env, authority: &'a Authority, tls: ClientConfig) -> Self {
        let tls = TlsConnector::from(Arc::new(tls));
        Self { route: Route { env, authority, tls }, open: None, has_answered: false, is_idle: true }
    }

    /// Whether a request was answered.
    pub(super) const fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Whether no request was left without its answer.
    pub(super) const fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Makes the next request use a new connection.
    pub(super) fn reset(&mut self) {
        self.open = None;
    }

    /// Sends `request` once, and reads the whole answer.
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, DeviceError> {
        let env = self.route.env;
        let deadline = env.now() + ANSWERS_WITHIN;
        self.is_idle = false;
        let open = self.ensure_open().await?;
        let answer = env.timeout_at(deadline, open.exchange(request)).await;
        self.is_idle = true;
        match answer {
            Some(Ok(response)) => {
                self.has_answered = true;
                Ok(response)
            }
            Some(Err(ExchangeError::TooLong)) => {
                self.open = None;
                Err(DeviceError::Garbage { said: format!("an answer of more than {MAX_ANSWER_BYTES} bytes") })
            }
            Some(Err(ExchangeError::Lost(error))) => {
                self.open = None;
                Err(DeviceError::Unreachable { said: format!("the connection broke: {error}") })
            }
            None => {
                self.open = None;
                Err(DeviceError::Unreachable { said: format!("no answer within {}s", ANSWERS_WITHIN.as_secs()) })
            }
        }
    }

    /// The connection of the last request if it is still open, else a new one.
    async fn ensure_open(&mut self) -> Result<&mut OpenConnection, DeviceError> {
        let usable = self.open.take_if(|open| !open.is_usable()).is_none() && self.open.is_some();
        if !usable {
            let deadline = self.route.env.now() + CONNECTS_WITHIN;
            let connected = self.route.env.timeout_at(deadline, self.route.connect()).await;
            let said = || format!("no connection within {}s", CONNECTS_WITHIN.as_secs());
            self.open = Some(connected.unwrap_or_else(|| Err(DeviceError::Unreachable { said: said() }))?);
        }
        self.open.as_mut().ok_or_else(|| DeviceError::Unreachable { said: "there is no connection".to_owned() })
    }
}

impl Route<'_> {
    async fn connect(&self) -> Result<OpenConnection, DeviceError> {
        let unreachable = |error: &dyn std::fmt::Display| DeviceError::Unreachable { said: error.to_string() };
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|error| unreachable(&error))?;
        let port = self.authority.port_u16().unwrap_or(HTTPS);
        let stream = TcpStream::connect((host, port)).await.map_err(|error| unreachable(&error))?;
        let stream = self.tls.connect(name, stream).await.map_err(|error| handshake::to_device_error(&error))?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(&error))?;
        // The pending request gets the error.
        let driver = Box::pin(async move { drop(driver.await) });
        Ok(OpenConnection { sender, driver, is_closed: false })
    }
}

enum ExchangeError {
    TooLong,
    Lost(String),
}

impl OpenConnection {
    /// Whether another request can be sent on it, as far as that is known.
    fn is_usable(&mut self) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if !self.is_closed && self.driver.as_mut().poll(&mut context).is_ready() {
            self.is_closed = true;
        }
        !self.is_closed && self.sender.is_ready()
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, ExchangeError> {
        let Self { sender, driver, is_closed: closed } = self;
        let work = async move {
            let response =
                sender.send_request(request).await.map_err(|error| ExchangeError::Lost(error_chain(&error)))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await.map_err(|error| {
                if error.is::<http_body_util::LengthLimitError>() {
                    ExchangeError::TooLong
                } else {
                    ExchangeError::Lost(error_chain(&*error))
                }
            })?;
            Ok(Response::from_parts(head, body.to_bytes()))
        };
        futures::pin_mut!(work);
        std::future::poll_fn(|context| {
            if !*closed && driver.as_mut().poll(context).is_ready() {
                *closed = true;
            }
            match work.as_mut().poll(context) {
                Poll::Ready(answer) => Poll::Ready(answer),
                Poll::Pending if *closed => Poll::Ready(Err(ExchangeError::Lost("closed by the service".to_owned()))),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
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
