//! A message as bytes: a header of twelve bytes, then JSON.
//!
//! Invariants: memory is allocated only after the length was compared with [`MOST`], all at once, and is wiped, for a message
//! holds passwords.

use std::io::{self, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use zeroize::Zeroizing;

/// The protocol's name, the first bytes of each message.
const NAME: [u8; 6] = *b"agents";

/// To be raised when an older peer would misunderstand a message.
const VERSION: u16 = 1;

/// Name, version, length.
const HEADER: usize = NAME.len() + 2 + 4;

/// The longest message. An order has about twenty parameters of some hundred bytes.
pub(super) const MOST: usize = 64 << 10;

/// Why there is no message.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    #[error("the connection ended")]
    Ended(#[source] io::Error),
    #[error("the other side speaks another protocol")]
    Protocol,
    #[error(
        "the other side speaks version {0} of the protocol, and this one version {ours}; use one version of pod-safety",
        ours = VERSION
    )]
    Version(u16),
    #[error("a message of {0} bytes is longer than the {most} that are allowed", most = MOST)]
    TooLong(usize),
    #[error("the message cannot be understood")]
    Garbled,
}

/// `message` with its header.
pub(super) fn encode(message: &impl Serialize) -> Result<Zeroizing<Vec<u8>>, FrameError> {
    // A vector that grows leaves a copy of its content in memory.
    let mut bytes = Fixed(Zeroizing::new(Vec::with_capacity(HEADER + MOST)));
    bytes.0.extend_from_slice(&[0; HEADER]);
    serde_json::to_writer(&mut bytes, message).map_err(|_full| FrameError::TooLong(MOST + 1))?;
    let Fixed(mut bytes) = bytes;
    let length = bytes.len() - HEADER;
    let counted = u32::try_from(length).map_err(|_more| FrameError::TooLong(length))?;
    let header = [&NAME[..], &VERSION.to_be_bytes(), &counted.to_be_bytes()].concat();
    bytes[..HEADER].copy_from_slice(&header);
    Ok(bytes)
}

/// A buffer that never grows.
struct Fixed(Zeroizing<Vec<u8>>);

impl Write for Fixed {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.0.len() + piece.len() > self.0.capacity() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends a message.
pub(super) async fn write(stream: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> Result<(), FrameError> {
    stream.write_all(&encode(message)?).await.map_err(FrameError::Ended)
}

/// Reads a message, and nothing after it.
pub(super) async fn read<T: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin)) -> Result<T, FrameError> {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header).await.map_err(FrameError::Ended)?;
    let [name @ .., v1, v0, l3, l2, l1, l0] = header;
    if name != NAME {
        return Err(FrameError::Protocol);
    }
    let version = u16::from_be_bytes([v1, v0]);
    if version != VERSION {
        return Err(FrameError::Version(version));
    }
    let length = usize::try_from(u32::from_be_bytes([l3, l2, l1, l0])).unwrap_or(usize::MAX);
    if length > MOST {
        return Err(FrameError::TooLong(length));
    }
    let mut body = Zeroizing::new(vec![0; length]);
    stream.read_exact(&mut body).await.map_err(FrameError::Ended)?;
    serde_json::from_slice(&body).map_err(|_why| FrameError::Garbled)
}
