//! Lists and watches while they are sent.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use hyper::body::Frame;
use tokio::time::Instant;

use super::messages::{self, END, item, item_size};
use super::world::{Kind, Made, World};

/// A list is sent in pieces of about this size, as Go's `http2` and TLS do.
const PIECE: usize = 64 << 10;

/// The API server's own.
const BOOKMARKS: Duration = Duration::from_secs(60);

type Sent = Result<Frame<Bytes>, Infallible>;

/// The objects from one number to another, as they were after so many renewals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub(crate) kind: Kind,
    pub(crate) renewals: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl Page {
    pub(crate) fn stream(self, world: Arc<World>) -> impl Stream<Item = Sent> {
        let Self { kind, renewals, from, to } = self;
        let mut made = Made::default();
        let sizes = (from..to).map(|number| {
            world.make(kind, number, renewals, &mut made);
            item_size(world.template(kind).size(&made))
        });
        let items = sizes.sum();
        let next = if to < world.count(kind) { to.to_string() } else { String::new() };
        let head = messages::list(kind, world.version(renewals), &next, items);
        futures::stream::unfold((Some(head), from, made), move |(head, mut at, mut made)| {
            let piece = head.map(|mut piece| {
                while at < to && piece.len() < PIECE {
                    world.make(kind, at, renewals, &mut made);
                    item(world.template(kind), &made, &mut piece);
                    at += 1;
                }
                if at == to {
                    piece.extend_from_slice(END);
                }
                let more = (at < to).then(|| Vec::with_capacity(2 * PIECE));
                (Ok(Frame::data(Bytes::from(piece))), (more, at, made))
            });
            std::future::ready(piece)
        })
    }
}

/// A watch, from the version after `renewals` on.
pub(crate) struct Watch {
    pub(crate) world: Arc<World>,
    pub(crate) began: Instant,
    pub(crate) kind: Kind,
    /// The number of the last one that was told of.
    pub(crate) renewals: usize,
    pub(crate) until: Instant,
    pub(crate) bookmark: Instant,
    made: Made,
    object: Vec<u8>,
    wrote: bool,
}

impl Watch {
    pub(crate) fn new(
        world: Arc<World>,
        began: Instant,
        kind: Kind,
        renewals: usize,
        lasts: Duration,
    ) -> Self {
        let now = Instant::now();
        let (made, object, wrote) = Default::default();
        let (until, bookmark) = (now + lasts, now + BOOKMARKS);
        Self { world, began, kind, renewals, until, bookmark, made, object, wrote }
    }

    pub(crate) fn stream(self) -> impl Stream<Item = Sent> {
        futures::stream::unfold(self, async |mut watch| {
            let event = watch.next().await?;
            Some((Ok(Frame::data(Bytes::from(event))), watch))
        })
    }

    async fn next(&mut self) -> Option<Vec<u8>> {
        if std::mem::take(&mut self.wrote) {
            // The API server sends each event by itself. hyper does when there is nothing more to write for now.
            tokio::task::yield_now().await;
        }
        loop {
            let now = Instant::now();
            if now >= self.until {
                return None;
            }
            let due = if self.kind == Kind::Leases { self.world.beats.due(self.renewals + 1) } else { None };
            let due = due.map(|due| self.began + due);
            let mut event = Vec::with_capacity(1 << 10);
            if due.is_some_and(|due| due <= now) {
                self.renewals += 1;
                self.renewal(&mut event);
            } else if self.bookmark <= now {
                self.bookmark = now + BOOKMARKS;
                let renewals = self.world.beats.count(now - self.began);
                let object = messages::bookmark(self.world.version(renewals));
                messages::event("BOOKMARK", self.kind, &object, &mut event);
            } else {
                let next = due.into_iter().chain([self.bookmark, self.until]).min().unwrap_or(self.until);
                tokio::time::sleep_until(next).await;
                continue;
            }
            self.wrote = true;
            return Some(event);
        }
    }

    fn renewal(&mut self, event: &mut Vec<u8>) {
        let node = self.world.beats.node(self.renewals);
        self.world.make(self.kind, node, self.renewals, &mut self.made);
        self.object.clear();
        self.world.template(self.kind).write(&self.made, &mut self.object);
        messages::event("MODIFIED", self.kind, &self.object, event);
    }
}
