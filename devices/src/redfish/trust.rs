//! Which certificates are trusted.
//!
//! Management controllers have self-signed certificates, often without a valid host name. So a certificate that is
//! configured itself is trusted as it is; any other must be signed by a configured authority, and name the host of
//! the address.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::parameters::{Trust, is_authority};

/// The TLS configuration for `trust`.
pub(super) fn config(trust: &Trust) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let policy = match trust {
        Trust::Any => TrustPolicy::Any,
        Trust::Certificates(configured) => {
            TrustPolicy::Pinned { pinned: configured.clone(), chain: chain(configured, &provider)? }
        }
    };
    let verifier = Verifier { policy, provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

/// A verifier with the certificates that may sign others; webpki does not check whether a root may. `None`: there are
/// none.
fn chain(
    configured: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<WebPkiServerVerifier>>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in configured {
        // A certificate that signs nothing must be valid, too: its error is reported before the first order.
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

/// Which certificates are trusted.
#[derive(Debug)]
enum TrustPolicy {
    /// Danger note: requested by `insecure`.
    Any,
    /// These as they are, and those with a chain to an authority among them.
    Pinned { pinned: Vec<CertificateDer<'static>>, chain: Option<Arc<WebPkiServerVerifier>> },
}

#[derive(Debug)]
struct Verifier {
    policy: TrustPolicy,
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
        match &self.policy {
            TrustPolicy::Any => Ok(ServerCertVerified::assertion()),
            TrustPolicy::Pinned { pinned, .. } if pinned.contains(end_entity) => Ok(ServerCertVerified::assertion()),
            TrustPolicy::Pinned { chain: Some(chain), .. } => {
                chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            TrustPolicy::Pinned { chain: None, .. } => Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        }
    }

    // The peer must have the key of its certificate, also where any certificate is trusted.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
