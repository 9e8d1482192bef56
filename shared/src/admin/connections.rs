//! Who is connected to the admin port, how many, and for how long.
//!
//! Any pod of the cluster may connect. Invariants: one address has [`MOST_OF_ONE`] connections, all have [`MOST`]; each ends
//! after [`LASTS`], whether its answer was read or not. So what is open holds at most that many metrics pages in memory, and
//! no address keeps the kubelet and Prometheus from their places.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;

use super::tls::{Stream, Tls};
use crate::clock::{Env, Task};

/// A kubelet's two probes and a scrape, and as many again twice over for people.
const MOST_OF_ONE: usize = 8;
/// Of a metrics page each some 25 MB.
const MOST: usize = 256;
/// Prometheus gives up after ten seconds, and a kubelet's probe before.
const LASTS: Duration = Duration::from_secs(10);

type Open = Arc<Mutex<BTreeMap<IpAddr, usize>>>;

/// From where a request came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

impl Connected<IncomingStream<'_, Connections>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Connections>) -> Self {
        Self(*stream.remote_addr())
    }
}

impl Peer {
    /// Whether it is in the network namespace of this process.
    pub(super) const fn is_of_this_pod(self) -> bool {
        self.0.ip().to_canonical().is_loopback()
    }
}

/// Takes connections on, as far as there is a place.
pub(super) struct Connections {
    listener: TcpListener,
    env: Env,
    open: Open,
    tls: Option<Tls>,
}

impl Connections {
    pub(super) fn new(listener: TcpListener, env: Env, tls: Option<Tls>) -> Self {
        Self { listener, env, open: Open::default(), tls }
    }
}

impl Listener for Connections {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
            // Without a place it is closed.
            if let Some(place) = Place::take(&self.open, address.ip().to_canonical()) {
                let now = self.env.now();
                let ends = self.env.clock.sleep_until(now + LASTS);
                let stream = match &mut self.tls {
                    Some(tls) => tls.accept(stream, now),
                    None => Stream::Plain(stream),
                };
                return (Connection { stream, ends: Mutex::new(ends), _place: place }, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// One of the connections that there may be.
#[derive(Debug)]
struct Place {
    open: Open,
    of: IpAddr,
}

impl Place {
    fn take(open: &Open, of: IpAddr) -> Option<Self> {
        let mut places = open.lock();
        let all: usize = places.values().sum();
        let taken = places.entry(of).or_default();
        if all >= MOST || *taken >= MOST_OF_ONE {
            return None;
        }
        *taken += 1;
        Some(Self { open: Arc::clone(open), of })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.open.lock();
        if let Some(taken) = places.get_mut(&self.of) {
            *taken = taken.saturating_sub(1);
        }
        places.retain(|_, taken| *taken > 0);
    }
}

/// A stream that breaks off when its time is over.
pub(super) struct Connection {
    stream: Stream,
    /// Behind a lock because a task may not be shared, and a connection must be.
    ends: Mutex<Task>,
    _place: Place,
}

impl Connection {
    fn is_over(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.ends.get_mut().as_mut().poll(context) {
            Poll::Ready(()) => Err(io::Error::from(io::ErrorKind::TimedOut)),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.is_over(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_over(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_over(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;
    use crate::clock::Mono;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn attack_one_address_takes_no_places_from_others() {
        let open = Open::default();
        let mine: Vec<_> = (0..100).filter_map(|_| Place::take(&open, address(1))).collect();
        assert_eq!(mine.len(), MOST_OF_ONE);
        let other = Place::take(&open, address(2));
        assert!(other.is_some());
        drop(mine);
        assert!(Place::take(&open, address(1)).is_some(), "a place is given back");
        drop(other);
        assert!(open.lock().is_empty(), "addresses are forgotten");
        let all: Vec<_> = (0..=255)
            .flat_map(|last| [last, last])
            .filter_map(|last| Place::take(&open, address(last)))
            .collect();
        assert_eq!(all.len(), MOST);
    }

    /// Forty requests whose answers were not read took 461 MB, and stayed.
    #[tokio::test]
    async fn attack_a_connection_that_says_nothing_and_reads_nothing_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap();
        let (env, clock) = (Env::real(1), std::time::Duration::from_secs(30));
        let mut connections = Connections::new(listener, env.clone(), None);
        let mut silent = TcpStream::connect(there).await.unwrap();
        let (mut taken, _) = connections.accept().await;
        *taken.ends.get_mut() = env.clock.sleep_until(Mono::default());
        let mut nothing = [0; 8];
        let read = tokio::time::timeout(clock, taken.read(&mut nothing)).await.unwrap();
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let written = tokio::time::timeout(clock, taken.write(b"metrics")).await.unwrap();
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(taken);
        assert_eq!(silent.read(&mut nothing).await.unwrap(), 0, "it is closed");
    }

    /// The ninth connection of one address gets no answer; when one of the eight ends, the next does.
    #[tokio::test]
    async fn attack_of_connections_without_end_eight_are_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap();
        let mut connections = Connections::new(listener, Env::real(1), None);
        let mut theirs = Vec::new();
        let mut taken = Vec::new();
        for _ in 0..MOST_OF_ONE {
            theirs.push(TcpStream::connect(there).await.unwrap());
            taken.push(connections.accept().await.0);
        }
        let mut ninth = TcpStream::connect(there).await.unwrap();
        let mut nothing = [0; 8];
        tokio::select! {
            biased;
            read = ninth.read(&mut nothing) => assert!(matches!(read, Ok(0) | Err(_)), "{read:?}"),
            _ = connections.accept() => panic!("a ninth was taken"),
        }
    }
}
