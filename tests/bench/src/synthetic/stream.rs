//! Streaming lists and watches.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use hyper::body::Frame;
use tokio::sync::watch;
use tokio::time::Instant;

use super::messages::{self, END, item, item_size};
use super::world::{Kind, Rendered, World};
use super::writes::{Change, Writes};

/// Capacity for most objects.
const OBJECT: usize = 8 << 10;

/// The API server's interval.
const BOOKMARKS: Duration = Duration::from_secs(60);

type Sent = Result<Frame<Bytes>, Infallible>;

/// The objects in a range of numbers, after this many changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub(crate) kind: Kind,
    pub(crate) changes: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl Page {
    pub(crate) fn stream(self, world: Arc<World>) -> impl Stream<Item = Sent> {
        let Self { kind, changes, from, to } = self;
        // An object that is removed meanwhile stays in the list: the size is sent first.
        let numbers: Vec<_> = (from..to).filter(|number| world.has(kind, *number)).collect();
        let mut made = Rendered::default();
        let sizes = numbers.iter().map(|number| {
            world.make(kind, *number, changes, &mut made);
            item_size(world.template(kind, *number).size(&made))
        });
        let items = sizes.sum();
        let next = if to < world.count(kind) { to.to_string() } else { String::new() };
        let head = messages::list(kind, world.version(changes), &next, items);
        let mut numbers = numbers.into_iter().peekable();
        futures::stream::unfold((Some(head), made), move |(head, mut made)| {
            let piece = head.map(|mut piece| {
                // The API server sends each object in a chunk of its own.
                if let Some(number) = numbers.next() {
                    world.make(kind, number, changes, &mut made);
                    item(world.template(kind, number), &made, &mut piece);
                }
                let more = numbers.peek().map(|_| Vec::with_capacity(OBJECT));
                if more.is_none() {
                    piece.extend_from_slice(END);
                }
                (Ok(Frame::data(Bytes::from(piece))), (more, made))
            });
            std::future::ready(piece)
        })
    }
}

/// A watch from a version on.
pub(crate) struct Watch {
    world: Arc<World>,
    began: Instant,
    kind: Kind,
    /// The number of the last change that was sent.
    sent: usize,
    until: Instant,
    bookmark: Instant,
    writes: Option<watch::Receiver<usize>>,
    made: Rendered,
    object: Vec<u8>,
    wrote: bool,
}

impl Watch {
    pub(crate) fn new(world: Arc<World>, began: Instant, kind: Kind, sent: usize, lasts: Duration) -> Self {
        let now = Instant::now();
        let (made, object, wrote) = Default::default();
        let writes = world.written(kind).map(Writes::follow);
        let (until, bookmark) = (now + lasts, now + BOOKMARKS);
        Self { world, began, kind, sent, until, bookmark, writes, made, object, wrote }
    }

    pub(crate) fn stream(self) -> impl Stream<Item = Sent> {
        futures::stream::unfold(self, async |mut watch| {
            let event = watch.next().await?;
            Some((Ok(Frame::data(Bytes::from(event))), watch))
        })
    }

    async fn next(&mut self) -> Option<Vec<u8>> {
        if std::mem::take(&mut self.wrote) {
            // The API server sends each event separately. hyper flushes when there is nothing more to write for now.
            tokio::task::yield_now().await;
        }
        loop {
            let now = Instant::now();
            if now >= self.until {
                return None;
            }
            let due = if self.kind == Kind::Leases { self.world.beats.due(self.sent + 1) } else { None };
            let due = due.map(|due| self.began + due);
            let mut event = Vec::with_capacity(1 << 10);
            if due.is_some_and(|due| due <= now) {
                self.sent += 1;
                if !self.renewal(&mut event) {
                    continue;
                }
            } else if self.write(&mut event) {
            } else if self.bookmark <= now {
                self.bookmark = now + BOOKMARKS;
                let object = messages::bookmark(self.world.version(self.sent));
                messages::event("BOOKMARK", self.kind, &object, &mut event);
            } else {
                let next = due.into_iter().chain([self.bookmark, self.until]).min().unwrap_or(self.until);
                let written = async {
                    let Some(writes) = &mut self.writes else { return std::future::pending().await };
                    if writes.changed().await.is_err() {
                        std::future::pending().await
                    }
                };
                tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(next) => {}
                    () = written => {}
                }
                continue;
            }
            self.wrote = true;
            return Some(event);
        }
    }

    /// Appends a Lease renewal if one is due.
    fn renewal(&mut self, event: &mut Vec<u8>) -> bool {
        let node = self.world.beats.node(self.sent);
        if !self.world.has(Kind::Leases, node) || self.world.is_stopped(node, self.sent) {
            return false;
        }
        self.world.make(Kind::Leases, node, self.sent, &mut self.made);
        self.append_event("MODIFIED", node, event);
        true
    }

    /// Appends a written object if there is one.
    fn write(&mut self, event: &mut Vec<u8>) -> bool {
        let writes = self.world.written(self.kind);
        let Some(Change { number, removed }) = writes.and_then(|writes| writes.change(self.sent + 1)) else {
            return false;
        };
        self.sent += 1;
        if self.kind == Kind::Pods {
            self.world.make_pod(number, Some(self.sent), &mut self.made);
        } else {
            self.world.make(self.kind, number, 0, &mut self.made);
        }
        self.append_event(if removed { "DELETED" } else { "MODIFIED" }, number, event);
        true
    }

    fn append_event(&mut self, of_type: &str, number: usize, event: &mut Vec<u8>) {
        self.object.clear();
        self.world.template(self.kind, number).write(&self.made, &mut self.object);
        messages::event(of_type, self.kind, &self.object, event);
    }
}
