//! Whose certificate is believed.
//!
//! Management controllers sign their certificates themselves, often without a name that a browser would accept. So a
//! certificate that was given word for word is believed as it is; any other must be signed by one that was given, and
//! name the host that is asked.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::parameters::Trust;

/// How TLS is spoken under `trust`.
pub(super) fn config(trust: &Trust) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        Verifier { chain: chain(trust, &provider)?, pinned: pinned(trust), provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

fn pinned(trust: &Trust) -> Vec<CertificateDer<'static>> {
    match trust {
        Trust::Certificates(certificates) => certificates.clone(),
        Trust::Anyone => Vec::new(),
    }
}

fn chain(trust: &Trust, provider: &Arc<CryptoProvider>) -> Result<Option<Arc<WebPkiServerVerifier>>, String> {
    let Trust::Certificates(certificates) = trust else { return Ok(None) };
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.clone()).map_err(|error| format!("`ca` cannot be used: {error}"))?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
    verifier.map(Some).map_err(|error| format!("`ca` cannot be used: {error}"))
}

/// Danger note: without a chain it believes anyone, which is what `insecure` says.
#[derive(Debug)]
struct Verifier {
    chain: Option<Arc<WebPkiServerVerifier>>,
    pinned: Vec<CertificateDer<'static>>,
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
        match &self.chain {
            None => Ok(ServerCertVerified::assertion()),
            Some(_) if self.pinned.contains(end_entity) => Ok(ServerCertVerified::assertion()),
            Some(chain) => {
                chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
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
