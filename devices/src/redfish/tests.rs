//! A service that answers from a list, over TLS.

mod connections;
mod corpus;
mod orders;
mod texts;
mod tls;

use pod_safety_transport::Power;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use parking_lot::Mutex;
use pod_safety_clock::Env;
use pod_safety_transport::{Act, Answer, DeviceError, Driver, Machine, Order, Secret, Value};
use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

pub(super) const PASSWORD: &str = "s3cr'et:w";
pub(super) const SYSTEM: &str = "/redfish/v1/Systems/1";
pub(super) const UUID: &str = "4c4c4544-0051-3610-8052-b4c04f4d3132";

/// In place of a status: there is no answer. 0: the connection is closed.
pub(super) const NO_ANSWER: u16 = 1;

/// The stub's answer to `GET /path`, with all earlier requests: status, further headers, body.
pub(super) type Reply = (u16, &'static str, String);
type Answers = Box<dyn Fn(&str, &[String]) -> Reply + Send + Sync>;

pub(super) struct Stub {
    listener: TcpListener,
    tls: TlsAcceptor,
    /// The value of the parameter `ca`.
    pub(super) certificate: String,
    /// The requests as `GET /path body`, in order.
    pub(super) requests: Mutex<Vec<String>>,
    pub(super) headers: Mutex<Vec<String>>,
    pub(super) connections: Mutex<usize>,
    answers: Answers,
    /// Closes the connection with each answer.
    pub(super) closes: bool,
    /// Sends one byte, and then waits for this time.
    pub(super) drips: Option<Duration>,
}

impl Stub {
    pub(super) async fn new(answers: impl Fn(&str, &[String]) -> Reply + Send + Sync + 'static) -> Self {
        Self::named("127.0.0.1", answers).await
    }

    pub(super) async fn named(name: &str, answers: impl Fn(&str, &[String]) -> Reply + Send + Sync + 'static) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
        Self::with(&certificate, &key, certificate.pem(), answers).await
    }

    /// With a certificate for `name` that is signed by an authority, which is the value of `ca`.
    pub(super) async fn signed(name: &str, answers: impl Fn(&str, &[String]) -> Reply + Send + Sync + 'static) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self::signed_by(name, &authority, answers).await
    }

    /// As [`Self::signed`], by `authority`, which need not be an authority.
    pub(super) async fn signed_by(
        name: &str,
        authority: &CertifiedIssuer<'_, KeyPair>,
        answers: impl Fn(&str, &[String]) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, authority).unwrap();
        Self::with(&certificate, &key, authority.pem(), answers).await
    }

    async fn with(
        certificate: &Certificate,
        key: &KeyPair,
        trusted: String,
        answers: impl Fn(&str, &[String]) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        Self {
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            tls: TlsAcceptor::from(Arc::new(config)),
            certificate: trusted,
            requests: Mutex::default(),
            headers: Mutex::default(),
            connections: Mutex::default(),
            answers: Box::new(answers),
            closes: false,
            drips: None,
        }
    }

    pub(super) fn address(&self) -> String {
        format!("https://{}", self.listener.local_addr().unwrap())
    }

    /// An order to the system of this stub.
    pub(super) fn order(&self, act: Act) -> Order {
        let plain = |text: &str| Value::Plain(text.to_owned());
        let parameters = BTreeMap::from([
            ("address".to_owned(), plain(&self.address())),
            ("username".to_owned(), plain("admin")),
            ("password".to_owned(), Value::Secret(Secret::new(PASSWORD.to_owned()))),
            ("system".to_owned(), plain(SYSTEM)),
            ("ca".to_owned(), plain(&self.certificate)),
        ]);
        let machine = Machine { node: "node-1".into(), system_uuid: UUID.into(), provider_id: "".into() };
        Order { driver: Driver::Redfish, parameters, machine, act, within: Duration::from_secs(20) }
    }

    /// Serves while `order` is executed.
    pub(super) async fn carry_out(&self, order: &Order) -> Result<Answer, DeviceError> {
        let env = Env::real(1);
        let answer = self.serving(super::carry_out(&env, order)).await;
        if let Err(error) = &answer {
            assert!(!error.to_string().contains("s3cr"), "{error}");
        }
        answer
    }

    async fn serving<T>(&self, work: impl Future<Output = T>) -> T {
        let serve = async {
            loop {
                let (stream, _) = self.listener.accept().await.unwrap();
                *self.connections.lock() += 1;
                // A client that does not trust the stub ends the handshake; one that is done ends the connection.
                if let Ok(stream) = self.tls.accept(stream).await {
                    let _ = self.speak(stream).await;
                }
            }
        };
        match select(Box::pin(work), Box::pin(serve)).await {
            Either::Left((answer, _)) => answer,
            Either::Right((never, _)) => never,
        }
    }

    async fn speak(&self, mut stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>) -> io::Result<()> {
        loop {
            let (head, body) = request(&mut stream).await?;
            let line = head.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1").to_owned();
            let (status, more, text) = (self.answers)(&line, &self.requests.lock());
            self.requests.lock().push(format!("{line} {body}").trim_end().to_owned());
            self.headers.lock().push(head);
            if status == 0 {
                return Ok(());
            }
            if status == NO_ANSWER {
                // Until the client closes the connection.
                stream.read_u8().await?;
            }
            let close = if self.closes { "Connection: close\r\n" } else { "" };
            let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n{close}{more}\r\n", text.len());
            for bytes in (head + &text).as_bytes().chunks(if self.drips.is_some() { 1 } else { usize::MAX }) {
                stream.write_all(bytes).await?;
                stream.flush().await?;
                tokio::time::sleep(self.drips.unwrap_or_default()).await;
            }
            if self.closes {
                return stream.shutdown().await;
            }
        }
    }

    pub(super) fn posts(&self) -> Vec<String> {
        self.requests.lock().iter().filter(|line| line.starts_with("POST")).cloned().collect()
    }
}

async fn request(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(String, String)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(stream.read_u8().await?));
    }
    let length =
        head.to_lowercase().split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    Ok((head, String::from_utf8_lossy(&body).into_owned()))
}

pub(super) fn system(power: &str) -> Json {
    json!({
        "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
        "@odata.id": SYSTEM,
        "PowerState": power,
        "UUID": UUID.to_uppercase(),
        "SerialNumber": "ABC123",
        "Actions": { "#ComputerSystem.Reset": {
            "target": format!("{SYSTEM}/Actions/ComputerSystem.Reset"),
            "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "ForceRestart", "PushPowerButton"],
        } },
    })
}

pub(super) fn ok(body: &Json) -> Reply {
    (200, "", body.to_string())
}

/// A system that is in the state `before` until it gets an action, and then in `after`.
pub(super) fn switches(before: &'static str, after: &'static str) -> impl Fn(&str, &[String]) -> Reply {
    move |line, requests| {
        let is_switched = requests.iter().any(|line| line.starts_with("POST"));
        if line.starts_with("POST") {
            (204, "", String::new())
        } else {
            ok(&system(if is_switched { after } else { before }))
        }
    }
}
