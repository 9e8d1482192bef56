use std::path::PathBuf;
use std::sync::Arc;

use super::*;
use crate::{ApiError, Call, ClientMetrics, ConfigError, ConnectOptions, Connection, Target};
use pod_safety_clock::Env;
use prometheus::Registry;
use rustls::{AlertDescription, InvalidMessage, OtherError};

fn target() -> Target {
    let context = Some("prod".to_owned());
    Target { context, server: "https://127.0.0.1:16999".to_owned(), user: None }
}

fn refused() -> io::Error {
    io::Error::from_raw_os_error(111)
}

/// An error that only its own crate can construct, simulated by its names.
#[derive(Debug)]
struct Named(&'static str);

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Named {}

fn certificate(why: CertificateError) -> rustls::Error {
    rustls::Error::InvalidCertificate(why)
}

fn other(why: &'static str) -> rustls::Error {
    certificate(CertificateError::Other(OtherError(Arc::new(Named(why)))))
}

/// The error as hyper wraps it: an input error contains the TLS error.
fn service(error: impl Error + Send + Sync + 'static) -> kube::Error {
    kube::Error::Service(Box::new(io::Error::other(error)))
}

/// Asserts that a text for users has no names of types, no quotes of Debug, and no cause twice.
fn is_for_people(text: &str) {
    for odd in ["Error(", "Other(", "ServiceError", "\"\\\"", "'\"", "os error", "rustls", "{ ", "Some("] {
        assert!(!text.contains(odd), "{odd}: in {text}");
    }
    assert!(!text.contains('\n') && !text.ends_with(": "), "{text}");
}

#[test]
fn bug_connection_errors_showed_type_names_and_no_address() {
    let rows: [(kube::Error, &str); 15] = [
        (service(refused()), "the connection to https://127.0.0.1:16999 (context prod) broke: connection refused"),
        (service(io::Error::from(io::ErrorKind::TimedOut)), "broke: timed out"),
        (
            service(Named("failed to lookup address information: Name or service not known")),
            "Name or service not known",
        ),
        (
            service(certificate(CertificateError::UnknownIssuer)),
            "not issued by the certificate-authority that the kubeconfig names",
        ),
        (service(certificate(CertificateError::Expired)), "has expired, or the clock of this machine"),
        (service(certificate(CertificateError::NotValidYet)), "is not valid yet"),
        (service(certificate(CertificateError::NotValidForName)), "was not issued for this address"),
        (service(certificate(CertificateError::BadSignature)), "cannot be used: bad signature"),
        (service(other("UnsupportedCertVersion")), "X.509 version 1"),
        (service(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)), "certificate required"),
        (service(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)), "does not speak TLS"),
        (service(rustls::Error::AlertReceived(AlertDescription::HandshakeFailure)), "the curve P-521"),
        (service(other("CaUsedAsEndEntity")), "CA:TRUE"),
        (
            service(Named("peer closed connection without sending TLS close_notify: https://docs.rs/rustls")),
            "broke: the API server, or a proxy before it, ended the connection in the middle",
        ),
        (
            kube::Error::Service(Box::new(LoginError("the login command aws failed".to_owned()))),
            "logging in to https://127.0.0.1:16999 (context prod): the login command aws failed",
        ),
    ];
    for (error, expected) in rows {
        let text = crate::error_chain(&ApiError::from_kube(error, &target()));
        assert!(
            text.contains(expected) && text.contains("https://127.0.0.1:16999 (context prod)"),
            "{expected}: {text}"
        );
        is_for_people(&text);
    }
}

async fn opened(path: PathBuf, context: Option<&str>) -> Result<Connection, ConfigError> {
    let context = context.map(str::to_owned);
    let options = ConnectOptions { kubeconfig: Some(path), context, ..ConnectOptions::default() };
    Connection::open(&options, Env::real(1), ClientMetrics::register(&Registry::new()).unwrap()).await
}

/// A kubeconfig with this cluster and this user, and the current context `prod`.
fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "clusters: [{{ name: c, cluster: {{ {cluster} }} }}]\n\
         contexts: [{{ name: prod, context: {{ cluster: c, user: u }} }}, {{ name: stage, context: {{ cluster: d, user: u }} }}]\n\
         users: [{{ name: u, user: {{ {user} }} }}]\ncurrent-context: prod\n"
    )
}

/// The texts were `reading the kubeconfig nofile: failed to read kubeconfig from '"nofile"'`, and `failed to load current
/// context: staging`.
#[tokio::test]
async fn bug_errors_named_the_kubeconfig_twice_and_no_contexts() {
    let folder = tempfile::tempdir().unwrap();
    let server = "server: 'https://10.0.0.1:6443'";
    let rows: [(Option<String>, Option<&str>, &str); 10] = [
        (None, None, "cannot be used: no such file"),
        (Some("a: [".to_owned()), None, "it is not the YAML of a kubeconfig"),
        (Some("{}".to_owned()), None, "it has no current-context; give --context; it has no contexts"),
        (
            Some(kubeconfig(server, "token: t")),
            Some("staging"),
            "it has no context staging; its contexts are prod, stage",
        ),
        (Some(kubeconfig(server, "token: t")), Some("stage"), "names the cluster d, which it does not have"),
        (Some(kubeconfig("", "token: t")), None, "clusters[c]: it has no server"),
        (
            Some(kubeconfig("server: ':::'", "token: t")),
            None,
            "clusters[c]: server \":::\" is not the address of an API server",
        ),
        (
            Some(kubeconfig("server: 'https://a', certificate-authority: /no/ca.crt", "token: t")),
            None,
            "certificate-authority: the file /no/ca.crt cannot be read: no such file or directory",
        ),
        (
            Some(kubeconfig("server: 'https://a', certificate-authority-data: '%'", "token: t")),
            None,
            "clusters[c]: certificate-authority-data is not base64",
        ),
        (Some(kubeconfig(server, "client-certificate: /no/a.crt, client-key: /no/a.key")), None, "/no/a."),
    ];
    for (index, (text, context, expected)) in rows.into_iter().enumerate() {
        let path = folder.path().join(format!("config-{index}"));
        if let Some(text) = &text {
            std::fs::write(&path, text).unwrap();
        }
        let text = crate::error_chain(&opened(path.clone(), context).await.unwrap_err());
        assert!(text.contains(expected), "{expected}: {text}");
        is_for_people(&text);
        assert!(text.matches(path.to_str().unwrap()).count() <= 1, "{text}");
    }
}

/// A socket that was just closed: the port refuses connections.
#[tokio::test]
async fn an_error_names_the_api_server_and_the_context() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", socket.local_addr().unwrap());
    drop(socket);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    std::fs::write(&path, kubeconfig(&format!("server: '{server}'"), "token: t")).unwrap();
    let error = opened(path, None).await.unwrap().send(Call::get("/version")).await.unwrap_err();
    assert_eq!(
        crate::error_chain(&error),
        format!("cannot reach {server} (context prod): connection refused; does it run, and is this its address?")
    );
}
