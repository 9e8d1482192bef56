//! One connection to a service: requests and answers, each within limits.
//!
//! One connection serves all requests of an order: a handshake takes a small controller a second. Nothing is sent
//! twice: a request whose answer is lost may have been executed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{Request, Response};
use http_body_util::Full;
use pod_safety_clock::Env;
use pod_safety_http1::{self as http1, ExchangeError};
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
    open: Option<http1::Connection>,
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
        let answer = env.timeout_at(deadline, open.exchange(request, MAX_ANSWER_BYTES)).await;
        self.is_idle = true;
        match answer {
            Some(Ok(response)) => {
                self.has_answered = true;
                Ok(response)
            }
            Some(Err(error)) => {
                self.open = None;
                Err(match &error {
                    ExchangeError::TooLong { .. } => DeviceError::Garbage { said: error.to_string() },
                    ExchangeError::Lost(_) | ExchangeError::Truncated { .. } => unreachable(&error),
                })
            }
            None => {
                self.open = None;
                Err(DeviceError::Unreachable { said: format!("no answer within {}s", ANSWERS_WITHIN.as_secs()) })
            }
        }
    }

    /// The connection of the last request if it is still open, else a new one.
    async fn ensure_open(&mut self) -> Result<&mut http1::Connection, DeviceError> {
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

fn unreachable(error: &dyn std::fmt::Display) -> DeviceError {
    DeviceError::Unreachable { said: error.to_string() }
}

impl Route<'_> {
    async fn connect(&self) -> Result<http1::Connection, DeviceError> {
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|error| unreachable(&error))?;
        let port = self.authority.port_u16().unwrap_or(HTTPS);
        let stream = TcpStream::connect((host, port)).await.map_err(|error| unreachable(&error))?;
        let stream = self.tls.connect(name, stream).await.map_err(|error| handshake::to_device_error(&error))?;
        http1::Connection::new(stream).await.map_err(|error| unreachable(&error))
    }
}
