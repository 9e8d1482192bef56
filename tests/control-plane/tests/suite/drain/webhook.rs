//! An admission webhook for evictions: depending on the path of its URL it allows, denies with a code, fails, or is too slow.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pod_safety_control_plane::ControlPlane;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::commands::apply;

/// Its name in error messages.
pub(super) const NAME: &str = "evictions.example.com";

/// Its behaviour for the evictions of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    None,
    /// It denies with this code.
    Denies(u16),
    /// It answers the API server with 500: for the first eviction, or for each.
    FailsOnce,
    Fails,
    /// It takes longer than the timeout of the API server.
    Slow,
}

/// Serves until it is dropped.
pub(super) struct Webhook {
    url: String,
    authority: String,
    serving: JoinHandle<()>,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Webhook {
    pub(super) async fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let failed = Arc::new(Mutex::new(BTreeSet::new()));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, failed) = (acceptor.clone(), Arc::clone(&failed));
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let Some((path, review)) = request(&mut stream).await else { return };
                    let answer = answer(&path, &review, &failed).await;
                    drop(stream.write_all(answer.as_bytes()).await);
                    drop(stream.shutdown().await);
                });
            }
        });
        Self { url, authority: made.cert.pem(), serving }
    }

    /// Registers it for the evictions of this namespace.
    pub(super) async fn guard(&self, plane: &ControlPlane, namespace: &str, hook: Hook) {
        let path = match hook {
            Hook::None => return,
            Hook::Denies(code) => format!("denies/{code}"),
            Hook::FailsOnce => "once".to_owned(),
            Hook::Fails => "fails".to_owned(),
            Hook::Slow => "slow".to_owned(),
        };
        let authority = json!(k8s_openapi::ByteString(self.authority.clone().into_bytes()));
        let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"] });
        let webhook = json!({ "name": NAME, "rules": [rule], "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 1,
            "admissionReviewVersions": ["v1"], "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
            "clientConfig": { "url": format!("{}/{path}", self.url), "caBundle": authority } });
        let configuration = json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": namespace }, "webhooks": [webhook] });
        apply(plane, &configuration).await;
    }
}

/// The path of a request, without its query, and its body.
async fn request(stream: &mut (impl AsyncRead + Unpin)) -> Option<(String, Value)> {
    let mut read = Vec::new();
    loop {
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&read);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        })?;
        if body.len() >= length {
            let path = head.split(' ').nth(1)?.split('?').next()?.to_owned();
            return Some((path, serde_json::from_str(body).ok()?));
        }
    }
}

async fn answer(path: &str, review: &Value, failed: &Mutex<BTreeSet<String>>) -> String {
    let uid = &review["request"]["uid"];
    let pod = format!("{}/{}", review["request"]["namespace"], review["request"]["name"]);
    let mut response = json!({ "uid": uid, "allowed": true });
    match path {
        "/fails" => return http("500 Internal Server Error", "no"),
        "/once" if failed.lock().unwrap().insert(pod) => return http("500 Internal Server Error", "no"),
        "/slow" => tokio::time::sleep(Duration::from_secs(3)).await,
        _ => {}
    }
    if let Some(code) = path.strip_prefix("/denies/") {
        let code: u16 = code.parse().unwrap();
        response["allowed"] = json!(false);
        response["status"] = json!({ "code": code, "message": "not now" });
        // Like the common libraries for webhooks.
        if code == 404 {
            response["status"]["reason"] = json!("NotFound");
        }
    }
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
    http("200 OK", &review.to_string())
}

fn http(status: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}
