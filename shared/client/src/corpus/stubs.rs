//! API servers and proxies that record the requests that reach them.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use pod_safety_clock::Env;

pub(super) fn pki() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/pki")
}

/// The behaviour of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Api,
    /// Answers this many requests with 401 first.
    Refuses(usize),
    Proxy,
    ProxyWithLogin,
    ProxyThatRefuses,
    Socks,
}

/// Name, certificate (empty: no TLS) and behaviour of each server.
const ALL: [(&str, &str, Behaviour); 15] = [
    ("api", "server", Behaviour::Api),
    ("http", "", Behaviour::Api),
    ("api-self", "self", Behaviour::Api),
    ("api-ca", "server-ca", Behaviour::Api),
    ("api-expired", "expired", Behaviour::Api),
    ("api-elsewhere", "elsewhere", Behaviour::Api),
    ("api-p521", "server-of-p521", Behaviour::Api),
    ("api-401", "server", Behaviour::Refuses(usize::MAX)),
    ("api-401-once", "server", Behaviour::Refuses(1)),
    ("proxy", "", Behaviour::Proxy),
    ("proxy-tls", "server", Behaviour::Proxy),
    ("proxy-login", "", Behaviour::ProxyWithLogin),
    ("proxy-refuses", "", Behaviour::ProxyThatRefuses),
    ("socks", "", Behaviour::Socks),
    ("closed", "", Behaviour::Api),
];

/// All servers, and the requests that reached them.
pub(super) struct Stubs {
    seen: Arc<Mutex<Vec<String>>>,
    /// Names and ports.
    ports: Vec<(&'static str, u16)>,
}

impl Stubs {
    pub(super) async fn start(env: &Env) -> Self {
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let mut ports = Vec::new();
        for (name, certificate, behaviour) in ALL {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            ports.push((name, listener.local_addr().unwrap().port()));
            if name == "closed" {
                continue;
            }
            let tls = (!certificate.is_empty()).then(|| TlsAcceptor::from(Arc::new(tls(certificate))));
            let stub = Stub { name, behaviour, seen: Arc::clone(&seen), request_count: Arc::default() };
            let inner = env.clone();
            let accepts = async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let (tls, stub) = (tls.clone(), stub.clone());
                    inner.spawner.spawn("stub", Box::pin(async move { stub.secured(stream, tls).await }));
                }
            };
            env.spawner.spawn("stub", Box::pin(accepts));
        }
        Self { seen, ports }
    }

    /// Replaces `{name}` by the port of that server.
    pub(super) fn placed(&self, text: &str) -> String {
        self.ports
            .iter()
            .fold(text.to_owned(), |text, (name, port)| text.replace(&format!("{{{name}}}"), &port.to_string()))
    }

    /// Replaces ports by `{name}`, for records.
    pub(super) fn unplaced(&self, text: &str) -> String {
        self.ports
            .iter()
            .fold(text.to_owned(), |text, (name, port)| text.replace(&format!(":{port}"), &format!(":{{{name}}}")))
    }

    /// The requests since the last call.
    pub(super) fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock())
    }
}

fn tls(name: &str) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = CertificateDer::pem_file_iter(pki().join(format!("{name}.crt"))).unwrap();
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(pki().join(format!("{name}.key"))).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(pki().join("ca.crt")).unwrap()).unwrap();
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let verifier = Arc::new(AcceptAnyCertificate(builder.allow_unauthenticated().build().unwrap()));
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    config.with_client_cert_verifier(verifier).with_single_cert(chain, key).unwrap()
}

/// Requests a client certificate and accepts any: API servers accept algorithms that webpki does not have.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<dyn rustls::server::danger::ClientCertVerifier>);

impl rustls::server::danger::ClientCertVerifier for AcceptAnyCertificate {
    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: rustls::pki_types::UnixTime,
    ) -> Result<rustls::server::danger::ClientCertVerified, rustls::Error> {
        Ok(rustls::server::danger::ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        let mut schemes = self.0.supported_verify_schemes();
        schemes.push(rustls::SignatureScheme::ECDSA_NISTP521_SHA512);
        schemes
    }
}

#[derive(Clone)]
struct Stub {
    name: &'static str,
    behaviour: Behaviour,
    seen: Arc<Mutex<Vec<String>>>,
    request_count: Arc<Mutex<usize>>,
}

impl Stub {
    async fn secured(self, stream: TcpStream, tls: Option<TlsAcceptor>) {
        let mut first = [0];
        if self.behaviour != Behaviour::Socks
            && stream.peek(&mut first).await.is_ok()
            && (first == [0x16]) != tls.is_some()
        {
            return drop(Self::misunderstands(stream).await);
        }
        let Some(tls) = tls else { return drop(self.speak(stream, String::new()).await) };
        let Ok(stream) = tls.accept(stream).await else { return };
        let (_, session) = stream.get_ref();
        let mut about = String::new();
        if let Some(name) = session.server_name() {
            about += &format!(" name={name}");
        }
        if let Some(shown) = session.peer_certificates() {
            about += &format!(" certificate={} of {}", named(&shown[0]), shown.len());
        }
        drop(self.speak(stream, about).await);
    }

    /// Answers as Go's server does to a TLS client on a port without TLS, and the reverse.
    async fn misunderstands(mut stream: TcpStream) -> std::io::Result<()> {
        let mut head = [0; 1024];
        let _some = stream.read(&mut head).await?;
        let said = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
        stream.write_all(said.as_bytes()).await?;
        stream.shutdown().await
    }

    async fn speak<S>(&self, mut stream: S, about: String) -> std::io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        if self.behaviour == Behaviour::Socks {
            return self.socks(stream).await;
        }
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut lines = head.lines();
        let request = lines.next().unwrap_or_default().trim_end_matches(" HTTP/1.1").to_owned();
        let headers = |line: &&str| {
            let line = line.to_ascii_lowercase();
            ["authorization:", "impersonate-", "proxy-authorization:"].iter().any(|name| line.starts_with(name))
        };
        let mut headers: Vec<String> = lines
            .filter(headers)
            .map(|line| {
                let (name, value) = line.split_once(':').unwrap_or_default();
                format!("{}={}", name.to_ascii_lowercase(), value.trim())
            })
            .collect();
        headers.sort_unstable();
        let headers = headers.iter().map(|headers| format!(" {headers}")).collect::<String>();
        self.seen.lock().push(format!("{}: {request}{headers}{about}", self.name));
        let request_count = {
            let mut request_count = self.request_count.lock();
            *request_count += 1;
            *request_count
        };
        let code = match self.behaviour {
            Behaviour::ProxyThatRefuses => "403 Forbidden",
            Behaviour::ProxyWithLogin if !headers.contains("proxy-authorization") => {
                "407 Proxy Authentication Required"
            }
            Behaviour::Refuses(times) if request_count <= times => "401 Unauthorized",
            _ => "200 OK",
        };
        let tunnel = request.strip_prefix("CONNECT ").filter(|_| code == "200 OK");
        if let Some(to) = tunnel {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            return joined(stream, to.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0)).await;
        }
        let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
        let body = if code.starts_with("401") { status } else { r#"{"gitVersion":"v1.37.2"}"# };
        let answer = format!(
            "HTTP/1.1 {code}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    }

    async fn socks<S>(&self, mut stream: S) -> std::io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let _version = stream.read_u8().await?;
        let count = stream.read_u8().await?;
        let mut methods = vec![0; count.into()];
        stream.read_exact(&mut methods).await?;
        let mut login = String::new();
        if methods.contains(&2) {
            stream.write_all(&[5, 2]).await?;
            let _version = stream.read_u8().await?;
            for _part in 0..2 {
                let mut part = vec![0; stream.read_u8().await?.into()];
                stream.read_exact(&mut part).await?;
                login += &format!(" {}", String::from_utf8_lossy(&part));
            }
            stream.write_all(&[1, 0]).await?;
        } else {
            stream.write_all(&[5, 0]).await?;
        }
        let mut request = [0; 4];
        stream.read_exact(&mut request).await?;
        let length = match request[3] {
            1 => 4,
            4 => 16,
            _ => stream.read_u8().await?,
        };
        let mut host = vec![0; length.into()];
        stream.read_exact(&mut host).await?;
        let host = if request[3] == 3 { String::from_utf8_lossy(&host).into_owned() } else { format!("{host:?}") };
        let port = stream.read_u16().await?;
        self.seen.lock().push(format!("{}: {host}:{port}{login}", self.name));
        stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
        joined(stream, port).await
    }
}

/// Connects to the port on this machine, whatever host was named.
async fn joined<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, port: u16) -> std::io::Result<()> {
    let mut to = TcpStream::connect(("127.0.0.1", port)).await?;
    tokio::io::copy_bidirectional(&mut stream, &mut to).await.map(drop)
}

/// The name of the file with this certificate.
fn named(certificate: &CertificateDer<'_>) -> String {
    let files = std::fs::read_dir(pki()).unwrap().map(|file| file.unwrap().path());
    let is_it = |path: &PathBuf| CertificateDer::from_pem_file(path).is_ok_and(|one| one == *certificate);
    let mut files = files.filter(|path| path.extension().is_some_and(|end| end == "crt"));
    files.find(is_it).map_or("?".to_owned(), |path| path.file_stem().unwrap().to_string_lossy().into_owned())
}
