//! Why a request or a configuration failed, as text for users: libraries show names of their own types, and repeat each other.

use std::error::Error;
use std::io;
use std::time::Duration;

use kube::client::RustlsTlsError;
use kube::config::InClusterError;
use rustls::{AlertDescription, CertificateError};

use super::proxy::Proxy;

/// Why there are no credentials for the API server.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct LoginError(pub(crate) String);

/// The proxy on the route failed.
#[derive(Debug, thiserror::Error)]
#[error("{proxy}")]
pub(crate) struct ProxyFailed {
    pub(crate) proxy: Proxy,
    #[source]
    pub(crate) source: Box<dyn Error + Send + Sync>,
}

/// The server's certificate is of an unknown authority, where the kubeconfig names none.
#[derive(Debug, thiserror::Error)]
#[error(
    "its certificate is not signed by a certificate authority that this machine trusts, and the kubeconfig names none: set certificate-authority-data (the ca.crt of the API server, in base64) or certificate-authority (the path of that file) of its cluster. With insecure-skip-tls-verify your credentials are sent to any server that answers"
)]
pub(crate) struct UnknownAuthority;

impl UnknownAuthority {
    /// This error in place of TLS' own.
    pub(crate) fn or(error: Box<dyn Error + Send + Sync>) -> Box<dyn Error + Send + Sync> {
        let unknown = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let mut causes = std::iter::successors(Some(&*error as &(dyn Error + 'static)), |&at| deeper(at));
        let is_unknown = causes.any(|cause| cause.downcast_ref::<rustls::Error>() == Some(&unknown));
        if is_unknown { Box::new(Self) } else { error }
    }
}

/// The cause of an error. The error that an input error wraps is not among its sources.
fn deeper<'e>(at: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    let wrapped = at.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    wrapped.map(|inner| inner as &(dyn Error + 'static)).or_else(|| at.source())
}

/// The text for the deepest cause that is known: the errors above it only state that something failed.
pub(crate) fn explain(error: &(dyn Error + 'static)) -> String {
    let mut at = error;
    loop {
        let explained = at
            .downcast_ref::<rustls::Error>()
            .map(explain_tls)
            .or_else(|| at.downcast_ref::<LoginError>().map(ToString::to_string))
            .or_else(|| at.downcast_ref::<ProxyFailed>().map(explain_proxy))
            .or_else(|| at.downcast_ref::<RustlsTlsError>().and_then(explain_identity))
            .or_else(|| at.downcast_ref::<InClusterError>().and_then(explain_in_cluster))
            .or_else(|| at.downcast_ref::<io::Error>().filter(|io| io.get_ref().is_none()).map(explain_io));
        if let Some(text) = explained {
            return text;
        }
        match deeper(at) {
            Some(cause) => at = cause,
            None => return explain_text(&in_one_line(&at.to_string())),
        }
    }
}

/// Explains errors that a library gives only as text.
fn explain_text(text: &str) -> String {
    match text.split_once("failed to lookup address information: ") {
        Some((_, why)) => {
            format!("no address is known for this name ({why}); check server of the kubeconfig, and the name server")
        }
        None if text.contains("without sending TLS close_notify") => {
            "the API server, or a proxy before it, ended the connection in the middle".to_owned()
        }
        None => text.to_owned(),
    }
}

/// Removes line breaks: parsers draw the position below their first line.
pub(crate) fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Why the server does not answer, and what to check.
fn explain_io(error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::ConnectionRefused => "; does it run, and is this its address?",
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "; check address, route, VPN and firewall"
        }
        _ => "",
    };
    format!("{}{hint}", io_message(error))
}

/// The message of an error of the operating system, without its number.
pub(crate) fn io_message(error: &io::Error) -> String {
    let text = error.to_string();
    let message = text.split_once(" (os error").map_or(&*text, |(before, _)| before);
    let mut letters = message.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn explain_tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(why) => explain_certificate(why),
        rustls::Error::AlertReceived(alert) => explain_alert(*alert),
        rustls::Error::InvalidMessage(_) => {
            "what answers there does not speak TLS: the address may need http:// or another port".to_owned()
        }
        rustls::Error::InconsistentKeys(_) => "the client key does not belong to the client certificate".to_owned(),
        rustls::Error::General(text) => in_one_line(text),
        other => format!("TLS failed: {}", split_words(variant_name(&format!("{other:?}")))),
    }
}

/// Why the server ended the handshake.
fn explain_alert(alert: AlertDescription) -> String {
    let why = split_words(variant_name(&format!("{alert:?}")));
    let hint = match alert {
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
            "; its certificate may be on the curve P-521, or it may speak only TLS 1.1 or ciphers without forward secrecy, which this program does not have"
        }
        AlertDescription::CertificateRequired
        | AlertDescription::BadCertificate
        | AlertDescription::UnknownCA
        | AlertDescription::CertificateExpired => "; check client-certificate and client-key of the kubeconfig",
        AlertDescription::ProtocolVersion => "; it speaks no TLS 1.2 or 1.3",
        AlertDescription::UnrecognisedName => "; check the address, or tls-server-name",
        _ => "",
    };
    format!("the API server ended the TLS connection: {why}{hint}")
}

fn explain_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => {
            "its certificate was not issued by the certificate-authority that the kubeconfig names; is it another cluster's, or was it renewed? Take the kubeconfig anew from the cluster".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired, or the clock of this machine is wrong; renew it (kubeadm certs renew apiserver, or as your distribution does)".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet, or the clock of this machine is wrong; compare the clocks".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate was not issued for this address: use another address, or tls-server-name"
                .to_owned()
        }
        CertificateError::Other(other) if other.0.to_string().contains("CaUsedAsEndEntity") => {
            "the API server shows the certificate of an authority (CA:TRUE); issue one for the server with basicConstraints=CA:FALSE, or put this one itself into certificate-authority".to_owned()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its certificate, or that of its authority, is signed in a way that this program does not have, such as SHA-1, or the curve P-521; issue it anew with P-256, P-384, Ed25519 or RSA of 2048 bits and SHA-256".to_owned()
        }
        CertificateError::Other(other) if other.0.to_string().contains("UnsupportedCertVersion") => {
            "a certificate is X.509 version 1, which has no extensions; issue it anew as version 3, such as by openssl x509 -req -extfile FILE with extendedKeyUsage=clientAuth in FILE".to_owned()
        }
        CertificateError::Other(other) => {
            format!("a certificate cannot be used: {}", split_words(&other.0.to_string()))
        }
        other => format!("a certificate cannot be used: {}", split_words(variant_name(&format!("{other:?}")))),
    }
}

/// The name of a variant in its `Debug` output, without its fields.
fn variant_name(debug: &str) -> &str {
    debug.split(|letter: char| !letter.is_ascii_alphanumeric()).next().unwrap_or_default()
}

/// `UnknownCA` as `unknown ca`.
fn split_words(name: &str) -> String {
    let mut words = String::new();
    let mut before_was_small = false;
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && before_was_small {
            words.push(' ');
        }
        before_was_small = !letter.is_ascii_uppercase();
        words.push(letter.to_ascii_lowercase());
    }
    words
}

/// Explains why a proxy cannot be reached, or refuses.
fn explain_proxy(error: &ProxyFailed) -> String {
    let why = explain(&*error.source);
    let why = match &*why {
        "tunnel error: unsuccessful" => {
            "it refuses to connect to this address; ask whoever runs it, or name the address in NO_PROXY"
        }
        "tunnel error: proxy authorization required" => "it asks for a login: give http://USER:PASSWORD@PROXY",
        "tunnel error: unexpected end of file" => "it ended the connection",
        other => other,
    };
    format!("the proxy {}: {why}", error.proxy)
}

/// Explains what is wrong with the certificate authorities of this machine.
fn explain_identity(error: &RustlsTlsError) -> Option<String> {
    Some(match error {
        RustlsTlsError::AddRootCertificate(why) => {
            format!(
                "the certificate authorities of this machine cannot be read, and the kubeconfig names none: {}",
                explain(&**why)
            )
        }
        _ => return None,
    })
}

/// The first line of a parser's message: the lines below draw the position.
pub(crate) fn first_line(text: &str) -> String {
    let line = in_one_line(text.lines().next().unwrap_or_default()).replace('"', "'");
    line.strip_prefix("error: ").map_or(line.clone(), str::to_owned)
}

/// The duration rounded to seconds or milliseconds, for messages.
pub(crate) const fn in_words(after: Duration) -> Duration {
    if after.as_secs() == 0 {
        Duration::from_millis(after.as_millis() as u64)
    } else {
        Duration::from_secs(after.as_secs())
    }
}

/// Code, reason and message without repetitions: an answer that is not from the API server has no reason, and many messages
/// repeat code or reason.
pub(crate) fn of_answer(code: u16, reason: &str, message: &str) -> String {
    let head = if reason.is_empty() { code.to_string() } else { format!("{code} {reason}") };
    let mut rest = message.trim();
    for prefix in [&*code.to_string(), reason] {
        rest = strip_repeated(rest, prefix);
    }
    let hint = match (code, rest.contains("HTTP request to an HTTPS server")) {
        (400, true) => "; write https:// before the server of the kubeconfig",
        (401, _) => {
            "; it does not accept this login: log in anew, or look at the user of the kubeconfig (in a pod: at its service account)"
        }
        _ => "",
    };
    let rest = if hint.is_empty() { rest } else { rest.trim_end_matches('.') };
    if rest.is_empty() { format!("{head}{hint}") } else { format!("{head}: {rest}{hint}") }
}

/// The text for a 403 of a proxy or of a login page: it is not about rights.
pub(crate) fn of_stranger(place: &str, page: &str) -> String {
    let page = if page.starts_with('<') { "an HTML page".to_owned() } else { in_one_line(page) };
    format!(
        "what answers at {place} is no API server, but a proxy or a login page: 403, {page}; check server and proxy-url of the kubeconfig, HTTPS_PROXY, and whether this network asks for a login"
    )
}

/// `text` without `prefix` at its beginning.
fn strip_repeated<'t>(text: &'t str, prefix: &str) -> &'t str {
    let Some((first, rest)) = text.split_at_checked(prefix.len()) else { return text };
    let ends = rest.is_empty() || rest.starts_with([':', ' ']);
    if prefix.is_empty() || !first.eq_ignore_ascii_case(prefix) || !ends {
        return text;
    }
    // A prefix within a sentence is no repetition: `Forbidden pods`.
    match rest.strip_prefix(':') {
        Some(rest) => rest.trim_start(),
        None if rest.is_empty() || prefix.bytes().all(|byte| byte.is_ascii_digit()) => rest.trim_start(),
        None => text,
    }
}

/// Whether the request was not sent, because there are no credentials.
pub(crate) fn is_login(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |&error| error.source()).any(|error| error.is::<LoginError>())
}

fn explain_in_cluster(error: &InClusterError) -> Option<String> {
    Some(match error {
        InClusterError::ReadDefaultNamespace(why) | InClusterError::ReadCertificateBundle(why) => io_message(why),
        InClusterError::ReadEnvironmentVariable(why) => {
            format!("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT: {why}")
        }
        InClusterError::ParseClusterPort(why) => format!("KUBERNETES_SERVICE_PORT: {why}"),
        InClusterError::ParseClusterUrl(why) => format!("KUBERNETES_SERVICE_HOST: {why}"),
        InClusterError::ParseCertificates(_) => "ca.crt is not PEM".to_owned(),
    })
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
