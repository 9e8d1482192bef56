//! Whose certificate is believed.
//!
//! Management controllers sign their certificates themselves, often without a name that a browser would accept. So a
//! certificate that was given word for word is believed as it is; any other must be signed by an authority that was given,
//! and name the host that is asked.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::parameters::Trust;

/// How TLS is spoken under `trust`.
pub(super) fn config(trust: &Trust) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let believes = match trust {
        Trust::Anyone => Believes::Anyone,
        Trust::Certificates(given) => {
            Believes::These { pinned: given.clone(), chain: chain(given, &provider)? }
        }
    };
    let verifier = Verifier { believes, provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

/// The certificates that may sign others; webpki asks no root whether it may. `None`: there are none.
fn chain(
    given: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<WebPkiServerVerifier>>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in given {
        // Also one that signs nothing must be one: what is wrong with it is told before the first order.
        let mut alone = RootCertStore::empty();
        alone.add(certificate.clone()).map_err(|error| format!("`ca` cannot be used: {error}"))?;
        if is_authority(certificate) {
            roots.roots.append(&mut alone.roots);
        }
    }
    if roots.is_empty() {
        return Ok(None);
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
    verifier.map(Some).map_err(|error| format!("`ca` cannot be used: {error}"))
}

/// The tag and the content of the first element of DER, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The elements of a sequence, as far as they can be read.
fn elements(mut der: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, content, rest) = element(der)?;
        der = rest;
        Some((tag, content))
    })
}

/// Whether a certificate says that it may sign others: `cA` of its basic constraints (RFC 5280, 4.2.1.9).
pub(super) fn is_authority(certificate: &[u8]) -> bool {
    const EXTENSIONS: u8 = 0xa3;
    const BASIC_CONSTRAINTS: (u8, &[u8]) = (0x06, &[0x55, 0x1d, 0x13]);
    const TRUE: (u8, &[u8]) = (0x01, &[0xff]);
    let constraints = || {
        let (_, certificate, _) = element(certificate)?;
        let (_, to_be_signed, _) = element(certificate)?;
        let (_, extensions) = elements(to_be_signed).find(|&(tag, _)| tag == EXTENSIONS)?;
        let (_, extensions, _) = element(extensions)?;
        let (_, found) =
            elements(extensions).find(|&(_, one)| elements(one).next() == Some(BASIC_CONSTRAINTS))?;
        let (_, value) = elements(found).last()?;
        let (_, constraints, _) = element(value)?;
        Some(elements(constraints).next() == Some(TRUE))
    };
    constraints() == Some(true)
}

/// Whose certificate is believed.
#[derive(Debug)]
enum Believes {
    /// Danger note: that is what `insecure` says.
    Anyone,
    /// These as they are, and those that the chain leads to.
    These { pinned: Vec<CertificateDer<'static>>, chain: Option<Arc<WebPkiServerVerifier>> },
}

#[derive(Debug)]
struct Verifier {
    believes: Believes,
    provider: Arc<CryptoProvider>,
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
        match &self.believes {
            Believes::Anyone => Ok(ServerCertVerified::assertion()),
            Believes::These { pinned, .. } if pinned.contains(end_entity) => {
                Ok(ServerCertVerified::assertion())
            }
            Believes::These { chain: Some(chain), .. } => {
                chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            Believes::These { chain: None, .. } => {
                Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
            }
        }
    }

    // Whoever shows a certificate must have its key, also where any certificate would do.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
