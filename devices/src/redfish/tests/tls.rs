//! Services with which the TLS handshake fails: the error names the cause, and an agent that works.

use super::super::handshake;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::ParsedCertificate;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// X.509 version 1, as older controllers create it.
const VERSION_1: &str = "-----BEGIN CERTIFICATE-----
MIIBJDCBywIUXpZRhRXrnw+P1Vug4nm+U3ToadowCgYIKoZIzj0EAwIwFDESMBAG
A1UEAwwJMTI3LjAuMC4xMCAXDTI2MTEyOTEyNTczN1oYDzIxMjYxMTA1MTI1NzM3
WjAUMRIwEAYDVQQDDAkxMjcuMC4wLjEwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AATOpnSYaKuW/zW0oHjeirjOtJX9EqE6e+Qlw4HRWam/kG55W3HBqSy/CwV1OHy0
GcU3PMUSJ93EN7L7VODa6iShMAoGCCqGSM49BAMCA0gAMEUCIHecHsGPafS2Tg1y
2gLxIiiiX/WjMTmVyFuE4C+JAHtnAiEAzRop83W73hJ5fEjXop6iHi0GX8yrTSg/
d06UpVJhkjQ=
-----END CERTIFICATE-----
";

/// The result of an order if a service answers the first message of a handshake with these bytes, and closes.
async fn answered(bytes: &'static [u8]) -> DeviceError {
    let stub = Stub::new(switches("On", "Off")).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut order = stub.order(Act::Off);
    let address = format!("https://{}", listener.local_addr().unwrap());
    order.parameters.insert("address".to_owned(), Value::Plain(address));
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = [0; 64];
        stream.read_exact(&mut hello).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        // Unread bytes would reset the connection.
        stream.shutdown().await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    };
    let env = Env::real(1);
    let (answer, ()) = futures::future::join(super::super::carry_out(&env, &order), serve).await;
    answer.unwrap_err()
}

/// Static RSA, and TLS before 1.2: such a service was reported as unreachable, and the remedy was to check route and
/// firewall.
#[tokio::test]
async fn bug_a_service_of_older_tls_was_unreachable() {
    for (what, bytes) in [
        ("no common cipher", &[21, 3, 3, 0, 2, 2, 40][..]),
        ("no common version", &[21, 3, 1, 0, 2, 2, 70]),
        ("not enough security", &[21, 3, 3, 0, 2, 2, 71]),
        ("no word", &[]),
        ("no TLS", b"HTTP/1.0 400 Bad Request\r\n\r\n"),
    ] {
        let error = answered(bytes).await;
        let text = error.to_string();
        assert!(matches!(error, DeviceError::Tls { .. }), "{what}: {text}");
        assert!(text.contains("fence_redfish, or fence_ipmilan"), "{what}: {text}");
    }
}

#[tokio::test]
async fn an_authority_as_service_certificate_is_accepted_only_if_configured_itself() {
    let authority = || {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    let root = CertifiedIssuer::self_signed(authority(), KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let shown = authority().signed_by(&key, &root).unwrap();
    let stub = Stub::with(&shown, &key, root.pem(), switches("On", "Off")).await;
    let error = stub.carry_out(&stub.order(Act::Look)).await.unwrap_err().to_string();
    assert!(error.contains("put this certificate itself into `ca`"), "{error}");
    let stub = Stub::with(&shown, &key, shown.pem(), switches("On", "Off")).await;
    assert_eq!(stub.carry_out(&stub.order(Act::Look)).await.unwrap().power, Power::On);
}

/// The certificate was in `ca`, and the remedy was to put it there.
#[test]
fn bug_a_short_rsa_key_got_the_remedy_of_a_missing_trust() {
    let error = rustls::Error::InvalidCertificate(rustls::CertificateError::BadSignature);
    let failed = handshake::to_device_error(&std::io::Error::other(error)).to_string();
    assert!(failed.contains("2048 bits: renew the certificate") && failed.contains("fence_redfish"), "{failed}");
}

#[test]
fn a_certificate_of_version_1_is_refused_with_a_remedy() {
    let certificate = CertificateDer::from_pem_slice(VERSION_1.as_bytes()).unwrap();
    let error = ParsedCertificate::try_from(&certificate).map(drop).unwrap_err();
    let failed = handshake::to_device_error(&std::io::Error::other(error)).to_string();
    assert!(failed.contains("not X.509 version 3") && failed.contains("fence_redfish"), "{failed}");
}
