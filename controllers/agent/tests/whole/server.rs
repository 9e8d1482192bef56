//! One Lease behind TLS, compared and written as an API server does.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The content of the server, and its faults.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) lease: Option<Value>,
    pub(crate) revision: u64,
    /// It answers nothing.
    pub(crate) away: bool,
    /// It executes the next writes, and does not answer.
    pub(crate) loses: u32,
    pub(crate) writes: Vec<Value>,
}

impl Store {
    pub(crate) fn annotation(&self, field: &str) -> String {
        let name = format!("watchdog.pod-safety.dev/{field}");
        let lease = self.lease.clone().unwrap_or_default();
        lease["metadata"]["annotations"][name].as_str().unwrap_or_default().to_owned()
    }

    /// Writes at the current version, as another client.
    pub(crate) fn set(&mut self, field: &str, value: &str) {
        self.revision += 1;
        let revision = self.revision.to_string();
        if let Some(lease) = &mut self.lease {
            lease["metadata"]["annotations"][format!("watchdog.pod-safety.dev/{field}")] = json!(value);
            lease["metadata"]["resourceVersion"] = json!(revision);
        }
    }

    fn answer(&mut self, method: &str, body: &[u8]) -> (u16, Value) {
        let has = self.lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
        if method == "GET" {
            return self.lease.clone().map_or((404, json!({ "kind": "Status" })), |lease| (200, lease));
        }
        let mut lease: Value = serde_json::from_slice(body).unwrap();
        let names = lease["metadata"].get("resourceVersion").cloned();
        if has != names {
            return (409, json!({ "kind": "Status", "reason": "Conflict" }));
        }
        self.revision += 1;
        lease["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.writes.push(lease.clone());
        self.lease = Some(lease.clone());
        (200, lease)
    }
}

pub(crate) struct Server {
    pub(crate) store: Arc<Mutex<Store>>,
    pub(crate) address: SocketAddr,
    /// The certificate of the authority.
    pub(crate) authority: String,
    listener: TcpListener,
    tls: TlsAcceptor,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let own = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&own, &issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(own.serialize_der().into()))
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let store = Arc::default();
        Self { store, address, authority, listener, tls: TlsAcceptor::from(Arc::new(tls)) }
    }

    /// The agent has one connection at a time.
    pub(crate) async fn serve(&self) {
        loop {
            let (stream, _from) = self.listener.accept().await.unwrap();
            if let Ok(stream) = self.tls.accept(stream).await {
                let _closed = self.connection(stream).await;
            }
        }
    }

    async fn connection(&self, mut stream: TlsStream<TcpStream>) -> std::io::Result<()> {
        let mut read = Vec::new();
        loop {
            let mut piece = [0; 4096];
            let length = stream.read(&mut piece).await?;
            if length == 0 {
                return Ok(());
            }
            read.extend_from_slice(&piece[..length]);
            let text = String::from_utf8_lossy(&read).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let named = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let expected_length: usize = named.map_or(0, |length| length.trim().parse().unwrap());
            if body.len() < expected_length {
                continue;
            }
            let method = head.split(' ').next().unwrap_or_default().to_owned();
            let answer = {
                let mut store = self.store.lock().unwrap();
                if store.away {
                    return Ok(());
                }
                let answer = store.answer(&method, body.as_bytes());
                if method != "GET" && store.loses > 0 {
                    store.loses -= 1;
                    return Ok(());
                }
                answer
            };
            let (code, body) = (answer.0, answer.1.to_string());
            let head = format!("HTTP/1.1 {code} X\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await?;
            stream.flush().await?;
            read.clear();
        }
    }
}
