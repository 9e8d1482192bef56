//! The parameters of a Redfish service.

use std::collections::BTreeMap;

use http::Uri;
use http::uri::Authority;
use pod_safety_transport::{DeviceError, Secret, Value};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

const ADDRESS: &str = "address";
const USERNAME: &str = "username";
const PASSWORD: &str = "password";
const AUTH: &str = "auth";
const SYSTEM: &str = "system";
const CA: &str = "ca";
const INSECURE: &str = "insecure";

/// All parameters, in the order of messages.
const NAMES: [&str; 7] = [ADDRESS, USERNAME, PASSWORD, AUTH, SYSTEM, CA, INSECURE];

/// The root of all resources of a service.
pub(super) const ROOT: &str = "/redfish/v1/";

/// The begin of a placeholder. A value with one is rendered for each node, and is not known when a device is checked.
const TEMPLATE: &str = "{{";

/// A service, and how its certificate is verified.
#[derive(Debug)]
pub(super) struct Parameters {
    pub(super) authority: Authority,
    pub(super) login: Option<Login>,
    pub(super) system: Option<String>,
    pub(super) trust: Trust,
}

/// The login at the service.
#[derive(Debug)]
pub(super) struct Login {
    pub(super) username: String,
    pub(super) password: Secret,
    pub(super) auth: Auth,
}

/// How the login is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Auth {
    /// With every request.
    Basic,
    /// Once, for a token.
    Session,
}

/// Which certificates are trusted.
#[derive(Debug)]
pub(super) enum Trust {
    /// A certificate that is signed by one of these, or is one of these.
    Certificates(Vec<CertificateDer<'static>>),
    /// Any certificate.
    Any,
}

/// Checks these names, and the values that are known.
pub(super) fn check(parameters: &BTreeMap<String, Value>) -> Result<(), DeviceError> {
    let is_plain = |text: &Value| matches!(text, Value::Plain(text) if !text.contains(TEMPLATE));
    check_names(parameters)?;
    for (name, value) in parameters.iter().filter(|(_, value)| is_plain(value)) {
        match name.as_str() {
            ADDRESS => authority(value.reveal()).map(drop)?,
            SYSTEM => system(value.reveal()).map(drop)?,
            AUTH => auth(value.reveal()).map(drop)?,
            INSECURE => insecure(value.reveal()).map(drop)?,
            CA => certificates(value.reveal()).map(drop)?,
            _ => {}
        }
    }
    Ok(())
}

impl Parameters {
    pub(super) fn read(parameters: &BTreeMap<String, Value>) -> Result<Self, DeviceError> {
        check_names(parameters)?;
        let text = |name: &str| parameters.get(name).map(Value::reveal);
        let login = text(USERNAME).zip(text(PASSWORD)).map(|(username, password)| {
            let by = text(AUTH).map_or(Ok(Auth::Basic), auth)?;
            check_username(username, by)?;
            Ok(Login { username: username.to_owned(), password: Secret::new(password.to_owned()), auth: by })
        });
        Ok(Self {
            authority: authority(text(ADDRESS).unwrap_or_default())?,
            login: login.transpose()?,
            system: text(SYSTEM).map(system).transpose()?,
            trust: match (text(CA), text(INSECURE).map(insecure).transpose()?) {
                (None, Some(true)) => Trust::Any,
                (Some(_), Some(true)) => {
                    return Err(refuse(INSECURE, "with it, `ca` would not be used; leave one of them out"));
                }
                (Some(ca), _) => Trust::Certificates(certificates(ca)?),
                (None, _) => return Err(refuse(CA, NO_TRUST)),
            },
        })
    }
}

const NO_TRUST: &str = "the service's certificate cannot be verified without it; set it to the PEM text of the authority that \
                        signed it, or of the certificate itself (or say insecure: \"true\", and any machine can take the \
                        service's place)";

fn check_names(parameters: &BTreeMap<String, Value>) -> Result<(), DeviceError> {
    if let Some(name) = parameters.keys().find(|name| !NAMES.contains(&name.as_str())) {
        return Err(refuse(name, format!("there is no such parameter; there are {}", NAMES.join(", "))));
    }
    let given = |name: &str| parameters.contains_key(name);
    if !given(ADDRESS) {
        return Err(refuse(ADDRESS, "it is required: https://HOST or https://HOST:PORT"));
    }
    if !given(CA) && !given(INSECURE) {
        return Err(refuse(CA, NO_TRUST));
    }
    match (given(USERNAME), given(PASSWORD)) {
        (true, false) => Err(refuse(PASSWORD, "there is a username, but no password")),
        (false, true) => Err(refuse(USERNAME, "there is a password, but no username")),
        (true, true) | (false, false) => Ok(()),
    }
}

fn authority(address: &str) -> Result<Authority, DeviceError> {
    let wrong = || refuse(ADDRESS, "write https://HOST or https://HOST:PORT; the login goes to its own parameters");
    let address: Uri = address.parse().map_err(|_error| wrong())?;
    let authority = address.authority().filter(|authority| !authority.as_str().contains('@'));
    let plain = address.scheme_str() == Some("https") && address.path() == "/" && address.query().is_none();
    authority.filter(|_| plain).cloned().ok_or_else(wrong)
}

fn system(path: &str) -> Result<String, DeviceError> {
    let inside = path.starts_with(ROOT) && !path.contains("..") && !path.contains(['?', '#']);
    let uri = path.parse::<Uri>().is_ok_and(|uri| uri.path() == path);
    if inside && uri {
        return Ok(path.to_owned());
    }
    Err(refuse(SYSTEM, "write the path of one system: /redfish/v1/Systems/…"))
}

fn auth(word: &str) -> Result<Auth, DeviceError> {
    match word {
        "basic" => Ok(Auth::Basic),
        "session" => Ok(Auth::Session),
        _ => Err(refuse(AUTH, "write \"basic\" (the default) or \"session\"")),
    }
}

fn check_username(username: &str, by: Auth) -> Result<(), DeviceError> {
    match by {
        Auth::Basic if username.contains(':') => Err(refuse(
            USERNAME,
            "it contains a colon, which Basic authentication cannot transmit; use auth: \"session\"",
        )),
        Auth::Basic | Auth::Session => Ok(()),
    }
}

fn insecure(word: &str) -> Result<bool, DeviceError> {
    match word {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(refuse(INSECURE, "write \"true\" or \"false\"")),
    }
}

/// Whether a certificate may sign others: `cA` of its basic constraints (RFC 5280, 4.2.1.9).
pub(super) fn is_authority(certificate: &[u8]) -> bool {
    let constraints = |(_, read): (_, X509Certificate<'_>)| {
        read.basic_constraints().ok().flatten().map(|constraints| constraints.value.ca)
    };
    X509Certificate::from_der(certificate).ok().and_then(constraints) == Some(true)
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, DeviceError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let certificates = certificates.map_err(|error| refuse(CA, format!("it is not PEM: {error}")))?;
    if certificates.is_empty() {
        return Err(refuse(CA, "there is no certificate in it; write PEM: -----BEGIN CERTIFICATE-----"));
    }
    // Each would be trusted for each node of the device.
    let of_services = certificates.iter().filter(|one| !is_authority(one)).count();
    if of_services > 1 {
        let why = format!(
            "{of_services} certificates in it are no authority, and each would be accepted for every node; write the authority that signed \
             them, or one Secret with one certificate for each node (secretParameters: secret: \"bmc-{{{{.Node.Name}}}}\")"
        );
        return Err(refuse(CA, why));
    }
    Ok(certificates)
}

pub(super) fn refuse(name: &str, why: impl Into<String>) -> DeviceError {
    DeviceError::Parameter { name: name.to_owned(), why: why.into() }
}

/// There are several systems, and none is named.
pub(super) fn ambiguous_system(paths: &[String]) -> DeviceError {
    let many = match paths.len() {
        1 => "more than one system".to_owned(),
        count => format!("{count} systems"),
    };
    refuse(SYSTEM, format!("the service has {many}; choose the one of this node: {}", paths.join(", ")))
}

/// The resource that `system` names is no system.
pub(super) fn not_a_system(found: &str) -> DeviceError {
    refuse(SYSTEM, format!("it names a {found}, which is not a computer system"))
}
