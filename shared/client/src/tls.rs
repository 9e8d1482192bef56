//! Which server certificates are accepted, and which client certificate is sent: the same as in kubectl, as far as rustls can.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{PemObject as _, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, InconsistentKeys, RootCertStore, SignatureScheme,
};
use x509_parser::prelude::{ASN1Time, FromDer as _, X509Certificate};

/// The OID of the curve P-521 in keys and certificates.
const P521: [u8; 7] = [0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23];

/// Which server certificates are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerTrust {
    /// Any certificate. Danger note: this is the effect of `insecure-skip-tls-verify`.
    Any,
    /// Certificates that these authorities issued, or that are among these certificates.
    Certificates(Vec<CertificateDer<'static>>),
}

/// The certificates of a bundle. As in Go, one that cannot be parsed is skipped; a bundle without any is refused.
pub(crate) fn parse_bundle(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = sections(pem);
    let mut good = Vec::new();
    let mut bad = None;
    for der in all.into_iter().filter(|(kind, _)| *kind == SectionKind::Certificate).map(|(_, der)| der) {
        let certificate = CertificateDer::from(der);
        match RootCertStore::empty().add(certificate.clone()) {
            Ok(()) => good.push(certificate),
            Err(error) => bad = bad.or_else(|| Some(super::cause::explain(&error))),
        }
    }
    match bad {
        _ if !good.is_empty() => Ok(good),
        Some(bad) => Err(format!("none of its certificates can be used: {bad}")),
        None => Err("it has no certificate in PEM (-----BEGIN CERTIFICATE-----)".to_owned()),
    }
}

/// The sections of a PEM text that can be parsed.
fn sections(pem: &[u8]) -> Vec<(SectionKind, Vec<u8>)> {
    // Each error consumes a line, so the iteration ends.
    <(SectionKind, Vec<u8>)>::pem_slice_iter(pem).filter_map(Result::ok).collect()
}

/// A client's certificates and its key.
pub(crate) fn parse_identity(certificates: &[u8], key: &[u8]) -> Result<CertifiedKey, String> {
    let chain = sections(certificates).into_iter().filter(|(kind, _)| *kind == SectionKind::Certificate);
    let chain: Vec<_> = chain.map(|(_, der)| CertificateDer::from(der)).collect();
    let Some(first) = chain.first() else {
        return Err("client-certificate: it has no certificate in PEM (-----BEGIN CERTIFICATE-----)".to_owned());
    };
    let of_key = |kind: &SectionKind| {
        matches!(kind, SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey)
    };
    let der = sections(key).into_iter().find(|(kind, _)| of_key(kind)).map(|(_, der)| der);
    let Some(der) = der else {
        let why = if String::from_utf8_lossy(key).contains("ENCRYPTED") {
            "it is encrypted, which kubectl cannot read either; write it in the clear: openssl pkey -in FILE"
        } else {
            "it has no key in PEM (-----BEGIN PRIVATE KEY-----)"
        };
        return Err(format!("client-key: {why}"));
    };
    let is_p521 = contains(&der, &P521);
    let unreadable = |why: &str| Err(format!("client-key: {why}"));
    // As in Go, the label of the PEM section does not matter.
    let Ok(key) = PrivateKeyDer::try_from(der) else {
        return unreadable("it is no key in PKCS8, PKCS1 or SEC1");
    };
    let Ok(key) = ring::default_provider().key_provider.load_private_key(key) else {
        return unreadable(if is_p521 {
            "it is on the curve P-521, which this program does not have; issue a key on P-256 or P-384, of RSA or Ed25519"
        } else {
            "it is of a kind or length that this program does not have; allowed are P-256, P-384, Ed25519, and RSA of 2048 bits and more"
        });
    };
    let parses = X509Certificate::from_der(first).is_ok();
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err("the client key does not belong to the client certificate".to_owned())
        }
        // webpki does not accept X.509 version 1; API servers do.
        Err(_) if !parses => Err("client-certificate: it is no X.509 certificate".to_owned()),
        _ => Ok(certified),
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The client certificate. A login command prints a new one when the first one expires.
#[derive(Debug, Default)]
pub(crate) struct ClientCertificate(RwLock<Option<Arc<CertifiedKey>>>);

impl ClientCertificate {
    pub(crate) fn set(&self, identity: Option<CertifiedKey>) {
        *self.0.write() = identity.map(Arc::new);
    }
}

impl ResolvesClientCert for ClientCertificate {
    fn resolve(&self, _issuers: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.read().clone()
    }

    fn has_certs(&self) -> bool {
        self.0.read().is_some()
    }
}

/// The TLS configuration that accepts the server certificates of `trust`.
pub(crate) fn client_config(trust: &ServerTrust) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let chain = match trust {
        ServerTrust::Any => None,
        ServerTrust::Certificates(certificates) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates.iter().cloned());
            let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
            Some(builder.build().map_err(|error| format!("certificate-authority cannot be used: {error}"))?)
        }
    };
    let verifier = Verifier { trust: trust.clone(), chain, provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

/// The TLS configuration for a route without TLS.
pub(crate) fn config_without_roots() -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

#[derive(Debug)]
struct Verifier {
    trust: ServerTrust,
    chain: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    /// Verifies a pinned certificate: as in Go, only its names and its validity period are checked, even if it is a CA.
    fn verify_pinned(certificate: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
        let unreadable = || Error::InvalidCertificate(CertificateError::BadEncoding);
        let (_, read) = X509Certificate::from_der(certificate).map_err(|_not_one| unreadable())?;
        let seconds = i64::try_from(now.as_secs()).map_err(|_far| unreadable())?;
        let now = ASN1Time::from_timestamp(seconds).map_err(|_far| unreadable())?;
        if now < read.validity().not_before {
            return Err(Error::InvalidCertificate(CertificateError::NotValidYet));
        }
        if now > read.validity().not_after {
            return Err(Error::InvalidCertificate(CertificateError::Expired));
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match (&self.trust, &self.chain) {
            (ServerTrust::Any, _) => Ok(ServerCertVerified::assertion()),
            (ServerTrust::Certificates(certificates), _) if certificates.contains(end_entity) => {
                Self::verify_pinned(end_entity, server_name, now).map(|()| ServerCertVerified::assertion())
            }
            (ServerTrust::Certificates(_), Some(chain)) => {
                chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            (ServerTrust::Certificates(_), None) => Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.trust == ServerTrust::Any {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.trust == ServerTrust::Any {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.provider.signature_verification_algorithms.supported_schemes();
        // If any certificate is accepted, signatures that this program cannot verify are accepted, too.
        if self.trust == ServerTrust::Any {
            schemes.push(SignatureScheme::ECDSA_NISTP521_SHA512);
        }
        schemes
    }
}
