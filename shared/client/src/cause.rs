//! Why a request or a configuration failed, in words for people: libraries name their own types, and repeat one another.

use std::error::Error;
use std::io;

use kube::client::{AuthError, RustlsTlsError};
use kube::config::{InClusterError, KubeconfigError, LoadDataError};
use rustls::CertificateError;

/// The words for the deepest cause that says something: what lies above it says only that something failed.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> String {
    let mut at = error;
    loop {
        let known = at
            .downcast_ref::<rustls::Error>()
            .map(of_tls)
            .or_else(|| at.downcast_ref::<AuthError>().and_then(of_login))
            .or_else(|| at.downcast_ref::<RustlsTlsError>().and_then(of_identity))
            .or_else(|| at.downcast_ref::<KubeconfigError>().and_then(of_kubeconfig))
            .or_else(|| at.downcast_ref::<LoadDataError>().and_then(of_data))
            .or_else(|| at.downcast_ref::<InClusterError>().and_then(of_pod))
            .or_else(|| at.downcast_ref::<io::Error>().filter(|io| io.get_ref().is_none()).map(of_io));
        if let Some(known) = known {
            return known;
        }
        // What an input error wraps is not among its sources.
        let wrapped = at.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match wrapped.map(|inner| inner as &(dyn Error + 'static)).or_else(|| at.source()) {
            Some(deeper) => at = deeper,
            None => return in_one_line(&at.to_string()),
        }
    }
}

/// Parsers draw below their first lines where they stopped.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// An error of the system, without its number.
fn of_io(error: &io::Error) -> String {
    let text = error.to_string();
    let words = text.split_once(" (os error").map_or(&*text, |(words, _)| words);
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn of_tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(why) => of_certificate(why),
        rustls::Error::AlertReceived(alert) => {
            format!("the API server ended the TLS connection: {}", as_words(&format!("{alert:?}")))
        }
        rustls::Error::InvalidMessage(_) => {
            "what answers there does not speak TLS: the address may need http:// or another port".to_owned()
        }
        rustls::Error::InconsistentKeys(_) => {
            "the client key does not belong to the client certificate".to_owned()
        }
        rustls::Error::General(text) => in_one_line(text),
        other => format!("TLS failed: {}", as_words(name_of(&format!("{other:?}")))),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => {
            "its certificate was not issued by the certificate-authority that the kubeconfig names".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired, or the clock of this machine is wrong".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet, or the clock of this machine is wrong".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate was not issued for this address: use another address, or tls-server-name"
                .to_owned()
        }
        CertificateError::Other(other) if other.0.to_string().contains("UnsupportedCertVersion") => {
            "a certificate is X.509 version 1, which has no extensions; issue it anew as version 3, such as by openssl x509 -req -extfile FILE with extendedKeyUsage=clientAuth in FILE".to_owned()
        }
        CertificateError::Other(other) => {
            format!("a certificate cannot be used: {}", as_words(&other.0.to_string()))
        }
        other => format!("a certificate cannot be used: {}", as_words(name_of(&format!("{other:?}")))),
    }
}

/// The name of a variant, without what it holds.
fn name_of(debug: &str) -> &str {
    debug.split(|letter: char| !letter.is_ascii_alphanumeric()).next().unwrap_or_default()
}

/// `UnknownCA` as `unknown ca`.
fn as_words(name: &str) -> String {
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

fn of_login(error: &AuthError) -> Option<String> {
    Some(match error {
        AuthError::AuthExecStart(why) => {
            format!("the login command of the kubeconfig cannot be started: {}", of_io(why))
        }
        AuthError::AuthExecRun { cmd, out } => {
            let said = String::from_utf8_lossy(&out.stderr);
            let said = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing");
            format!("the login command {cmd} of the kubeconfig failed ({}): {said}", out.status)
        }
        AuthError::ReadTokenFile(why, file) => {
            format!("the token file {} cannot be read: {}", file.display(), of_io(why))
        }
        _ => return None,
    })
}

fn of_identity(error: &RustlsTlsError) -> Option<String> {
    Some(match error {
        RustlsTlsError::InvalidPrivateKey(why) => {
            format!("the client certificate is refused: {}", of_tls(why))
        }
        RustlsTlsError::MissingPrivateKey => {
            "the client key is missing; allowed is a key as PKCS8, or of RSA as PKCS1".to_owned()
        }
        RustlsTlsError::MissingCertificate => "the client certificate is missing".to_owned(),
        RustlsTlsError::InvalidIdentityPem(_) => "the client certificate or its key is not PEM".to_owned(),
        RustlsTlsError::AddRootCertificate(why) => {
            format!("certificate-authority cannot be used: {}", as_words(name_of(&format!("{why:?}"))))
        }
        _ => return None,
    })
}

fn of_kubeconfig(error: &KubeconfigError) -> Option<String> {
    let data = |field: &str, why: &LoadDataError| {
        format!("{field}: {}", of_data(why).unwrap_or_else(|| in_one_line(&why.to_string())))
    };
    Some(match error {
        KubeconfigError::CurrentContextNotSet => "it has no current-context; give --context".to_owned(),
        KubeconfigError::LoadContext(name) => format!("it has no context {name}"),
        KubeconfigError::LoadClusterOfContext(name) => {
            format!("its context names the cluster {name}, which it does not have")
        }
        KubeconfigError::FindPath => "there is no home folder to look in; give --kubeconfig".to_owned(),
        KubeconfigError::ReadConfig(why, _) => of_io(why),
        KubeconfigError::Parse(why) => {
            format!("it is not the YAML of a kubeconfig: {}", unquoted(&why.to_string()))
        }
        KubeconfigError::MissingClusterUrl => "its cluster has no server".to_owned(),
        KubeconfigError::ParseClusterUrl(why) => format!("server of its cluster is no address: {why}"),
        KubeconfigError::ParseProxyUrl(why) => format!("proxy-url is no address: {why}"),
        KubeconfigError::LoadCertificateAuthority(why) => data("certificate-authority", why),
        KubeconfigError::LoadClientCertificate(why) => data("client-certificate", why),
        KubeconfigError::LoadClientKey(why) => data("client-key", why),
        KubeconfigError::ParseCertificates(_) => "certificate-authority is not PEM".to_owned(),
        _ => return None,
    })
}

/// The first sentence of a parser: below it the place is drawn.
fn unquoted(text: &str) -> String {
    in_one_line(text.lines().next().unwrap_or_default()).replace('"', "'")
}

fn of_data(error: &LoadDataError) -> Option<String> {
    Some(match error {
        LoadDataError::DecodeBase64(why) => format!("its data is not base64: {why}"),
        LoadDataError::ReadFile(why, file) => {
            format!("the file {} cannot be read: {}", file.display(), of_io(why))
        }
        LoadDataError::NoBase64DataOrFile => "it has neither data nor a file".to_owned(),
    })
}

fn of_pod(error: &InClusterError) -> Option<String> {
    Some(match error {
        InClusterError::ReadDefaultNamespace(why) | InClusterError::ReadCertificateBundle(why) => of_io(why),
        InClusterError::ReadEnvironmentVariable(why) => {
            format!("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT: {why}")
        }
        InClusterError::ParseClusterPort(why) => format!("KUBERNETES_SERVICE_PORT: {why}"),
        InClusterError::ParseClusterUrl(why) => format!("KUBERNETES_SERVICE_HOST: {why}"),
        InClusterError::ParseCertificates(_) => "ca.crt is not PEM".to_owned(),
    })
}

#[cfg(test)]
mod tests;
