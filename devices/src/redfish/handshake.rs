//! Why a TLS handshake failed: the cause, and the remedy.
//!
//! This program supports TLS 1.3, and TLS 1.2 with an ephemeral key exchange. Older management controllers do not:
//! agents use the libraries of the distribution, which may support older versions.

use std::io;

use pod_safety_transport::DeviceError;
use rustls::{AlertDescription, CertificateError, Error};

const AGENTS: &str = "Use the driver Agent with fence_redfish, or fence_ipmilan";

/// A failed handshake as an error with its cause.
pub(super) fn to_device_error(error: &io::Error) -> DeviceError {
    match error.get_ref().and_then(|cause| cause.downcast_ref::<Error>()) {
        Some(cause) => match remedy(cause) {
            Some(remedy) => DeviceError::Tls { said: format!("{cause}. {remedy}") },
            None => DeviceError::Unreachable { said: format!("TLS: {cause}") },
        },
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            let said = format!(
                "the service ended the TLS handshake without a word, as those do that speak older TLS only. {AGENTS}"
            );
            DeviceError::Tls { said }
        }
        None => DeviceError::Unreachable { said: format!("TLS: {error}") },
    }
}

/// The remedy; `None`: the cause is neither a missing common version nor missing trust.
fn remedy(cause: &Error) -> Option<String> {
    use AlertDescription::{HandshakeFailure, IllegalParameter, InsufficientSecurity, InternalError, ProtocolVersion};
    match cause {
        Error::AlertReceived(
            HandshakeFailure | InsufficientSecurity | ProtocolVersion | IllegalParameter | InternalError,
        )
        | Error::PeerIncompatible(_)
        | Error::PeerMisbehaved(_)
        | Error::InvalidMessage(_) => Some(format!(
            "The service offers neither TLS 1.3 nor TLS 1.2 with an ephemeral key exchange (ECDHE) that is known here. {AGENTS}"
        )),
        Error::InvalidCertificate(wrong) => Some(certificate_remedy(wrong)),
        Error::NoCertificatesPresented => Some(format!("The service shows no certificate. {AGENTS}")),
        _ => None,
    }
}

fn certificate_remedy(wrong: &CertificateError) -> String {
    let error = format!("{wrong:?}");
    if error.contains("CaUsedAsEndEntity") {
        "The certificate of the service is that of an authority: put this certificate itself into `ca`".to_owned()
    } else if error.contains("UnsupportedCertVersion") || matches!(wrong, CertificateError::BadEncoding) {
        format!("The certificate of the service is not X.509 version 3: renew it. {AGENTS}")
    } else if error.contains("UnsupportedSignatureAlgorithm") {
        format!("The certificate of the service is signed by an algorithm that is not accepted: renew it. {AGENTS}")
    } else if matches!(wrong, CertificateError::BadSignature) {
        // ring verifies no signature by an RSA key of less than 2048 bits, whatever certificate is trusted.
        format!(
            "An RSA key is shorter than 2048 bits: renew the certificate. Or `ca` is an older certificate of the same \
             name: put the present one into `ca`. {AGENTS}"
        )
    } else {
        "Put the certificate of the service, or of the authority that signed it, into `ca`".to_owned()
    }
}
