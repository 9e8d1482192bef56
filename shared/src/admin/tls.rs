//! TLS of the admin port. The files are read again while the process runs, because certificates are renewed before they expire.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fmt, io};

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::clock::Mono;

/// The interval at which the files are read again. Reading and parsing two small files takes less than a millisecond.
const RELOAD_INTERVAL: Duration = Duration::from_secs(60);

/// The two files of a Secret of type `kubernetes.io/tls`, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain: `tls.crt`.
    pub certificate: PathBuf,
    /// The private key: `tls.key`.
    pub key: PathBuf,
}

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// No certificate can be read.
    #[error("--tls-cert-file={}: no certificate in PEM can be read from it", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: pem::Error,
    },
    /// No key can be read.
    #[error("--tls-private-key-file={}: no private key in PEM can be read from it", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: pem::Error,
    },
    /// Certificate and key do not belong together, or TLS does not support them.
    #[error(
        "--tls-cert-file={} and --tls-private-key-file={} cannot be used together",
        files.certificate.display(),
        files.key.display()
    )]
    Pair {
        /// The files.
        files: TlsFiles,
        /// Why.
        #[source]
        source: rustls::Error,
    },
}

/// The certificate and key for new connections.
pub struct Tls {
    files: TlsFiles,
    read_at: Mono,
    acceptor: TlsAcceptor,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).field("read_at", &self.read_at).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// The files cannot be read, or do not belong together.
    pub fn read(files: TlsFiles, now: Mono) -> Result<Self, TlsError> {
        let acceptor = acceptor(&files)?;
        Ok(Self { files, read_at: now, acceptor })
    }

    /// Starts the handshake of one connection, with the certificate that the files had at most a minute ago.
    pub(super) fn accept(&mut self, stream: TcpStream, now: Mono) -> Stream {
        if now.since(self.read_at) >= RELOAD_INTERVAL {
            self.read_at = now;
            match acceptor(&self.files) {
                Ok(renewed) => self.acceptor = renewed,
                // The files may be replaced only in part at this moment. The last certificate that was read stays in use.
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the certificate of the admin port cannot be read again"
                ),
            }
        }
        Stream::Opening(Box::new(self.acceptor.accept(stream)))
    }
}

fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    let TlsFiles { certificate, key } = files;
    let unread = |source| TlsError::Certificate { path: certificate.clone(), source };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(unread)?;
    if chain.is_empty() {
        return Err(unread(pem::Error::NoItemsFound));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::Key { path: key.clone(), source })?;
    // The provider is set here, because rustls panics without an explicit choice if a dependency adds a second provider.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret));
    let config = config.map_err(|source| TlsError::Pair { files: files.clone(), source })?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// A connection with or without TLS. The handshake is part of the first read, so that a client that never completes it
/// blocks no other connection.
pub(super) enum Stream {
    Plain(TcpStream),
    Opening(Box<Accept<TcpStream>>),
    Open(Box<TlsStream<TcpStream>>),
}

impl Stream {
    fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Self::Opening(handshake) = self {
            let stream = ready!(Pin::new(handshake).poll(context))?;
            *self = Self::Open(Box::new(stream));
        }
        Poll::Ready(Ok(()))
    }
}

/// Runs an operation on a stream after its handshake. [`Stream::poll_open`] leaves the stream in one of the first two states.
macro_rules! opened {
    ($this:ident, $context:ident, $stream:ident => $does:expr) => {{
        let this = $this.get_mut();
        ready!(this.poll_open($context))?;
        match this {
            Self::Plain($stream) => $does,
            Self::Open($stream) => $does,
            Self::Opening(_) => Poll::Pending,
        }
    }};
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        opened!(self, context, stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        opened!(self, context, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        opened!(self, context, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        opened!(self, context, stream => Pin::new(stream).poll_shutdown(context))
    }
}

#[cfg(test)]
mod tests;
