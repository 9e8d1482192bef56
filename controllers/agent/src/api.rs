//! Requests to the API server: one connection, kept open, and one request at a time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use pod_safety_http1::Connection;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// An object may have 256 KiB of annotations. An agent writes at most 16 KiB about pods, which may be longer as JSON.
const MAX_ANSWER_BYTES: usize = 256 << 10;

/// The address of the API server, and the authorities that it is trusted by.
#[derive(Clone)]
pub struct Server {
    /// Its address.
    pub host: String,
    /// Its port.
    pub port: u16,
    tls: Arc<rustls::ClientConfig>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Server {
    /// The server at this address, whose certificate one of these authorities signed.
    ///
    /// # Errors
    /// If there is no authority among them.
    pub fn new(host: String, port: u16, authorities: &[u8]) -> Result<Self, String> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authorities) {
            let certificate = certificate.map_err(|error| format!("ca.crt: {error:?}"))?;
            roots.add(certificate).map_err(|error| format!("ca.crt: {error}"))?;
        }
        if roots.is_empty() {
            return Err("ca.crt holds no certificate: is the token of the service account mounted?".to_owned());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS: {error}"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { host, port, tls: Arc::new(tls) })
    }
}

/// Sends requests, each within a timeout.
pub struct Api {
    server: Server,
    within: Duration,
    open: Option<Connection>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Api {
    /// A client that has sent nothing yet. No request takes longer than `within`.
    #[must_use]
    pub const fn new(server: Server, within: Duration) -> Self {
        Self { server, within, open: None }
    }

    /// Sends a request, once.
    ///
    /// # Errors
    /// There is no answer. Then it is unknown whether the request arrived.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        token: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Bytes), String> {
        let host = format!("{}:{}", self.server.host, self.server.port);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &host)
            .header(AUTHORIZATION, format!("Bearer {}", token.trim()))
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("pod-safety-agent/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())?;
        // Whatever the result is, a connection with an unanswered request is not used again.
        let open = self.open.take();
        let sent = tokio::time::timeout(self.within, exchange(&self.server, open, request)).await;
        let (answer, connection) = sent.map_err(|_late| format!("no answer within {:?}", self.within))??;
        self.open = Some(connection);
        Ok(answer)
    }
}

async fn exchange(
    server: &Server,
    open: Option<Connection>,
    request: Request<Full<Bytes>>,
) -> Result<((StatusCode, Bytes), Connection), String> {
    let mut open = open;
    open.take_if(|connection| !connection.is_usable());
    let mut connection = match open {
        Some(connection) => connection,
        None => connect(server).await?,
    };
    let response = connection.exchange(request, MAX_ANSWER_BYTES).await.map_err(|error| error.to_string())?;
    Ok(((response.status(), response.into_body()), connection))
}

async fn connect(server: &Server) -> Result<Connection, String> {
    let stream = TcpStream::connect((server.host.as_str(), server.port)).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let name = ServerName::try_from(server.host.clone()).map_err(|error| error.to_string())?;
    let tls = TlsConnector::from(Arc::clone(&server.tls));
    let stream = tls.connect(name, stream).await.map_err(|error| error.to_string())?;
    Connection::new(stream).await.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_an_authority_is_refused() {
        let message = Server::new("10.0.0.1".to_owned(), 443, b"").unwrap_err();
        assert!(message.contains("ca.crt") && message.contains("mounted"), "{message}");
    }
}
