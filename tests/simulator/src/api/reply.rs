//! The answer to a request, before it is on the wire.

use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc;

use super::watch::Part;

/// The answer to a request.
pub(crate) enum Reply {
    Whole { code: u16, content_type: &'static str, retry_after: Option<u64>, body: Bytes },
    Stream { first: Vec<Bytes>, receiver: mpsc::UnboundedReceiver<Part> },
}

impl Reply {
    pub(super) fn json(code: u16, body: Bytes) -> Self {
        Self::Whole { code, content_type: "application/json", retry_after: None, body }
    }

    /// The body as a stream: first the existing part, then what follows.
    pub(crate) fn into_parts(self) -> (http::response::Builder, futures::stream::BoxStream<'static, Part>) {
        match self {
            Self::Whole { code, content_type, retry_after, body } => {
                let mut head = http::Response::builder().status(code).header("content-type", content_type);
                if let Some(seconds) = retry_after {
                    head = head.header("retry-after", seconds);
                }
                (head, futures::stream::once(async move { Ok(body) }).boxed())
            }
            Self::Stream { first, receiver } => {
                let head = http::Response::builder().status(200).header("content-type", "application/json");
                let first = futures::stream::iter(first.into_iter().map(Ok));
                (head, first.chain(receiver).boxed())
            }
        }
    }
}
