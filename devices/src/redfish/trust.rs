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

use super::parameters::{Trust, is_authority};

/// How TLS is spoken under `trust`.
pub(super) fn config(trust: &Trust) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let policy = match trust {
        Trust::Any => TrustPolicy::Any,
        Trust::Certificates(given) => {
            TrustPolicy::Pinned { pinned: given.clone(), chain: chain(given, &provider)? }
        }
    };
    let verifier = Verifier { policy, provider: Arc::clone(&provider) };
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

/// Whose certificate is believed.
#[derive(Debug)]
enum TrustPolicy {
    /// Danger note: that is what `insecure` says.
    Any,
    /// These as they are, and those that the chain leads to.
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
            TrustPolicy::Pinned { pinned, .. } if pinned.contains(end_entity) => {
                Ok(ServerCertVerified::assertion())
            }
            TrustPolicy::Pinned { chain: Some(chain), .. } => {
                chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            TrustPolicy::Pinned { chain: None, .. } => {
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
