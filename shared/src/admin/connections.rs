//! The connections of the admin port: their number, their addresses, and their lifetime.
//!
//! Any pod of the cluster may connect. Invariants: one address has at most [`MAX_PER_ADDRESS`] connections, and all
//! addresses together have at most [`MAX_CONNECTIONS`]; each connection ends after [`MAX_LIFETIME`], whether or not its
//! answer was read. So at most [`MAX_CONNECTIONS`] metrics pages are in memory at once. A new connection is always
//! accepted: if there is no slot, the oldest connection of the address with the most connections is closed. So the kubelet
//! and Prometheus always get an answer, from however many addresses other clients connect.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
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
use tokio::sync::oneshot;

use super::tls::{Stream, Tls};
use crate::clock::{Env, Task};

/// Two probes of the kubelet and one scrape of Prometheus, and room for operators.
const MAX_PER_ADDRESS: usize = 8;
/// For each there may be a metrics page of some 25 MB in memory.
const MAX_CONNECTIONS: usize = 256;
/// Prometheus stops waiting after ten seconds, and a kubelet's probe before that.
const MAX_LIFETIME: Duration = Duration::from_secs(10);

type OpenConnections = Arc<Mutex<ConnectionSlots>>;

/// The remote address of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

impl Connected<IncomingStream<'_, Connections>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Connections>) -> Self {
        Self(*stream.remote_addr())
    }
}

impl Peer {
    /// Whether the peer is in the network namespace of this process.
    pub(super) const fn is_loopback(self) -> bool {
        self.0.ip().to_canonical().is_loopback()
    }
}

/// Accepts connections.
pub(super) struct Connections {
    listener: TcpListener,
    env: Env,
    open: OpenConnections,
    tls: Option<Tls>,
}

impl Connections {
    pub(super) fn new(listener: TcpListener, env: Env, tls: Option<Tls>) -> Self {
        Self { listener, env, open: OpenConnections::default(), tls }
    }
}

impl Listener for Connections {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let (place, displaced) = ConnectionSlot::acquire(&self.open, address.ip().to_canonical());
        let now = self.env.now();
        let over = self.env.clock.sleep_until(now + MAX_LIFETIME);
        let ends: Task = Box::pin(async move {
            tokio::select! { biased; _ = displaced => (), () = over => () }
        });
        let stream = match &mut self.tls {
            Some(tls) => tls.accept(stream, now),
            None => Stream::Plain(stream),
        };
        (Connection { stream, expires: Mutex::new(ends), _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The open connections.
#[derive(Debug, Default)]
struct ConnectionSlots {
    /// Counts the connections; older ones have smaller numbers.
    taken: u64,
    /// The connections of each address, oldest first. A connection is closed when its sender is dropped.
    by_address: BTreeMap<IpAddr, VecDeque<(u64, oneshot::Sender<()>)>>,
}

impl ConnectionSlots {
    /// The address whose oldest connection is closed to make room for one of `newcomer`; `None`: there is room.
    fn address_to_displace(&self, newcomer: IpAddr) -> Option<IpAddr> {
        if self.by_address.get(&newcomer).is_some_and(|own| own.len() >= MAX_PER_ADDRESS) {
            return Some(newcomer);
        }
        if self.by_address.values().map(VecDeque::len).sum::<usize>() < MAX_CONNECTIONS {
            return None;
        }
        let oldest = |own: &VecDeque<_>| own.front().map(|(number, _)| *number);
        self.by_address.iter().max_by_key(|(_, own)| (own.len(), Reverse(oldest(own)))).map(|(address, _)| *address)
    }

    fn end_oldest(&mut self, address: IpAddr) {
        if let Some(own) = self.by_address.get_mut(&address) {
            own.pop_front();
        }
    }

    fn remove(&mut self, address: IpAddr, number: u64) {
        if let Some(own) = self.by_address.get_mut(&address) {
            own.retain(|(other, _)| *other != number);
        }
        self.by_address.retain(|_, own| !own.is_empty());
    }
}

/// The slot of one open connection.
#[derive(Debug)]
struct ConnectionSlot {
    open: OpenConnections,
    address: IpAddr,
    number: u64,
}

impl ConnectionSlot {
    /// Acquires a slot. The receiver resolves when the slot is needed for another connection.
    fn acquire(open: &OpenConnections, address: IpAddr) -> (Self, oneshot::Receiver<()>) {
        let mut places = open.lock();
        if let Some(crowded) = places.address_to_displace(address) {
            places.end_oldest(crowded);
        }
        places.taken += 1;
        let number = places.taken;
        let (stays, displaced) = oneshot::channel();
        places.by_address.entry(address).or_default().push_back((number, stays));
        drop(places);
        (Self { open: Arc::clone(open), address, number }, displaced)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.open.lock().remove(self.address, self.number);
    }
}

/// A stream that fails when its lifetime is over.
pub(super) struct Connection {
    stream: Stream,
    /// In a mutex, because a task is not `Sync` and a connection must be.
    expires: Mutex<Task>,
    _place: ConnectionSlot,
}

impl Connection {
    fn is_over(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.expires.get_mut().as_mut().poll(context) {
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
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
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

    /// The addresses of the connections that stay open, in the order in which they connected.
    fn staying(open: &OpenConnections) -> Vec<IpAddr> {
        let places = open.lock();
        let all = places.by_address.iter().flat_map(|(address, own)| own.iter().map(|(number, _)| (*number, *address)));
        all.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    #[test]
    fn attack_one_address_takes_no_slots_from_others() {
        let open = OpenConnections::default();
        let (other, mut others_end) = ConnectionSlot::acquire(&open, address(2));
        let mut mine: Vec<_> = (0..100).map(|_| ConnectionSlot::acquire(&open, address(1))).collect();
        assert_eq!(staying(&open).len(), 1 + MAX_PER_ADDRESS);
        assert!(others_end.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty));
        let ended =
            mine.iter_mut().map(|(_, displaced)| displaced.try_recv() == Err(oneshot::error::TryRecvError::Closed));
        assert_eq!(ended.collect::<Vec<_>>(), [vec![true; 92], vec![false; 8]].concat(), "the oldest end");
        drop((mine, other));
        assert!(staying(&open).is_empty(), "addresses are forgotten");
    }

    /// 32 addresses with eight connections each used all slots. The kubelet's probe was refused, and the container was
    /// restarted.
    #[test]
    fn attack_the_kubelet_gets_a_connection_when_many_addresses_use_all_slots() {
        let open = OpenConnections::default();
        let theirs: Vec<_> = (1..=32)
            .flat_map(|last| (0..8).map(move |_| last))
            .map(|last| ConnectionSlot::acquire(&open, address(last)))
            .collect();
        assert_eq!(staying(&open).len(), MAX_CONNECTIONS);
        let (kubelet, mut displaced) = ConnectionSlot::acquire(&open, address(100));
        let stay = staying(&open);
        assert_eq!((stay.len(), stay.last()), (MAX_CONNECTIONS, Some(&address(100))));
        assert_eq!(stay.iter().filter(|of| **of == address(1)).count(), 7, "of those with most, the oldest ended");
        let more: Vec<_> = (101..=200).map(|last| ConnectionSlot::acquire(&open, address(last))).collect();
        assert!(
            displaced.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty),
            "an address with one stays"
        );
        assert_eq!(staying(&open).len(), MAX_CONNECTIONS);
        drop((theirs, kubelet, more));
    }

    /// Forty requests whose answers were not read used 461 MB for good.
    #[tokio::test]
    async fn attack_an_idle_connection_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap();
        let (env, clock) = (Env::real(1), std::time::Duration::from_secs(30));
        let mut connections = Connections::new(listener, env.clone(), None);
        let mut silent = TcpStream::connect(there).await.unwrap();
        let (mut taken, _) = connections.accept().await;
        *taken.expires.get_mut() = env.clock.sleep_until(Mono::default());
        let mut nothing = [0; 8];
        let read = tokio::time::timeout(clock, taken.read(&mut nothing)).await.unwrap();
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let written = tokio::time::timeout(clock, taken.write(b"metrics")).await.unwrap();
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(taken);
        assert_eq!(silent.read(&mut nothing).await.unwrap(), 0, "it is closed");
    }

    /// The first of eight connections is closed when the ninth is opened.
    #[tokio::test]
    async fn attack_one_address_keeps_at_most_eight_open_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap();
        let mut connections = Connections::new(listener, Env::real(1), None);
        let mut theirs = Vec::new();
        let mut taken = Vec::new();
        for _ in 0..=MAX_PER_ADDRESS {
            theirs.push(TcpStream::connect(there).await.unwrap());
            taken.push(connections.accept().await.0);
        }
        let mut nothing = [0; 8];
        let read = taken[0].read(&mut nothing).await;
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::TimedOut, "the oldest ends");
        theirs[1].write_all(b"metrics").await.unwrap();
        assert_eq!(taken[1].read(&mut nothing).await.unwrap(), 7, "the others stay");
    }
}
