//! The admin port with a certificate: what a client is shown, when the certificate is renewed, and common mistakes.

use std::path::Path;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsConnector;

use super::*;

/// Writes a certificate for `localhost` and its key in the layout of a mounted Secret.
fn renew(folder: &Path) -> rcgen::CertifiedKey<rcgen::KeyPair> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    made
}

fn files(folder: &Path) -> TlsFiles {
    TlsFiles { certificate: folder.join("tls.crt"), key: folder.join("tls.key") }
}

/// Sends a line to a port with this TLS as a client that trusts one certificate, and returns the reply in capitals.
async fn shouted(tls: &mut Tls, now: Mono, trusted: &CertificateDer<'static>) -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = listener.local_addr().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let connector = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
    let client = async {
        let stream = TcpStream::connect(there).await?;
        let mut stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await?;
        stream.write_all(b"ready?").await?;
        let mut answer = vec![0; 6];
        stream.read_exact(&mut answer).await?;
        Ok(String::from_utf8(answer).unwrap())
    };
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = tls.accept(stream, now);
        let mut asked = vec![0; 6];
        if stream.read_exact(&mut asked).await.is_ok() {
            stream.write_all(&asked.to_ascii_uppercase()).await.unwrap();
            stream.flush().await.unwrap();
        }
    };
    futures::future::join(client, server).await.0
}

#[tokio::test]
async fn a_renewed_certificate_is_used_within_a_minute_and_a_broken_file_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let first = renew(folder.path());
    let (begin, minute) = (Mono::default(), Mono::default() + RELOAD_INTERVAL);
    let mut tls = Tls::read(files(folder.path()), begin).unwrap();
    assert_eq!(shouted(&mut tls, begin, first.cert.der()).await.unwrap(), "READY?");
    let second = renew(folder.path());
    assert_eq!(shouted(&mut tls, begin, first.cert.der()).await.unwrap(), "READY?", "it is read each minute");
    assert!(shouted(&mut tls, minute, first.cert.der()).await.is_err(), "the first is not shown any more");
    assert_eq!(shouted(&mut tls, minute, second.cert.der()).await.unwrap(), "READY?");
    std::fs::write(folder.path().join("tls.crt"), "-----BEGIN CERT").unwrap();
    assert_eq!(shouted(&mut tls, minute + RELOAD_INTERVAL, second.cert.der()).await.unwrap(), "READY?");
}

#[tokio::test]
async fn attack_a_client_without_tls_closes_only_its_own_connection() {
    let folder = TempDir::new().unwrap();
    renew(folder.path());
    let mut tls = Tls::read(files(folder.path()), Mono::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").await.unwrap();
    let mut stream = tls.accept(listener.accept().await.unwrap().0, Mono::default());
    let error = stream.read_exact(&mut [0; 4]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_its_flag() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    renew(folder.path());
    std::fs::write(path("empty"), "").unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    std::fs::write(path("other.key"), key.serialize_pem()).unwrap();
    for (certificate, key, flags) in [
        ("missing", "tls.key", "--tls-cert-file="),
        ("empty", "tls.key", "--tls-cert-file="),
        ("tls.key", "tls.key", "--tls-cert-file="),
        ("tls.crt", "missing", "--tls-private-key-file="),
        ("tls.crt", "tls.crt", "--tls-private-key-file="),
        ("tls.crt", "other.key", "cannot be used together"),
    ] {
        let files = TlsFiles { certificate: path(certificate), key: path(key) };
        let error = Tls::read(files, Mono::default()).unwrap_err().to_string();
        assert!(error.contains(flags), "{certificate}, {key}: {error}");
    }
}
