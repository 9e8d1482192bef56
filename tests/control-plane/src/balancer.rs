//! A load balancer in front of several API servers: it routes to the first server that reports ready, and away from it when it is not
//! ready any more.
//!
//! It forwards connections without reading them. A client that is moved loses its connections and opens new ones.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::port::Port;
use crate::{Error, apiserver};

/// How often each server is probed, and how long it may take to answer.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Which servers are ready, shared by all balancers. Dropping it ends the probes.
pub(crate) struct ReadinessProbes {
    ready: watch::Receiver<Vec<bool>>,
    ports: Arc<[u16]>,
    probes: JoinSet<()>,
}

impl ReadinessProbes {
    /// Until the first probe, all are assumed to be ready.
    pub(crate) fn begin(servers: impl Iterator<Item = (u16, Client)>) -> Self {
        let servers: Vec<_> = servers.collect();
        let (ready_sender, ready) = watch::channel(vec![true; servers.len()]);
        let (ready_sender, ports) = (Arc::new(ready_sender), servers.iter().map(|(port, _)| *port).collect());
        let mut probes = JoinSet::new();
        for (at, (_, client)) in servers.into_iter().enumerate() {
            probes.spawn(probe_readiness(at, client, Arc::clone(&ready_sender)));
        }
        Self { ready, ports, probes }
    }
}

impl Drop for ReadinessProbes {
    fn drop(&mut self) {
        self.probes.abort_all();
    }
}

async fn probe_readiness(at: usize, client: Client, ready_sender: Arc<watch::Sender<Vec<bool>>>) {
    loop {
        let probed = tokio::time::timeout(PROBE_TIMEOUT, apiserver::healthy(&client, "/readyz")).await;
        let now = matches!(probed, Ok(Ok(())));
        ready_sender.send_if_modified(|ready| ready.get_mut(at).is_some_and(|was| std::mem::replace(was, now) != now));
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
}

/// The route of one client, or of many. Dropping it closes all its connections.
pub struct Balancer {
    port: Port,
    address: Ipv4Addr,
    pinned: watch::Sender<Option<usize>>,
    serving: JoinHandle<()>,
}

impl Balancer {
    pub(crate) async fn open(looks: &ReadinessProbes, address: Ipv4Addr) -> Result<Self, Error> {
        let port = Port::reserve()?;
        let failed = |source| Error::Process { act: "listen for", program: "a balancer".to_owned(), source };
        let listener = TcpListener::bind((address, port.number())).await.map_err(failed)?;
        let (pinned, pin) = watch::channel(None);
        let serving = tokio::spawn(serve(listener, Arc::clone(&looks.ports), looks.ready.clone(), pin));
        Ok(Self { port, address, pinned, serving })
    }

    /// The URL at which it listens.
    pub fn url(&self) -> String {
        format!("https://{}:{}", self.address, self.port.number())
    }

    /// From now on it routes to this server, ready or not, like a balancer without probes.
    pub fn pin(&self, server: usize) {
        self.pinned.send_replace(Some(server));
    }

    /// It chooses by readiness again.
    pub fn unpin(&self) {
        self.pinned.send_replace(None);
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The chosen server; when none is ready, the current one.
fn choose(ready: &[bool], pinned: Option<usize>, now: usize) -> usize {
    pinned.or_else(|| ready.iter().position(|ready| *ready)).unwrap_or(now)
}

async fn serve(
    listener: TcpListener,
    ports: Arc<[u16]>,
    mut ready: watch::Receiver<Vec<bool>>,
    mut pin: watch::Receiver<Option<usize>>,
) {
    let (mut connections, mut now) = (JoinSet::new(), 0);
    loop {
        let chosen = choose(&ready.borrow_and_update(), *pin.borrow_and_update(), now);
        if chosen != now {
            connections.abort_all();
            now = chosen;
        }
        tokio::select! {
            biased;
            // New connections go to the new target.
            Ok(()) = pin.changed() => {}
            Ok(()) = ready.changed() => {}
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                if let (Ok((client, _)), Some(port)) = (accepted, ports.get(now)) {
                    connections.spawn(proxy(client, *port));
                }
            }
        }
    }
}

async fn proxy(mut client: TcpStream, port: u16) {
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { return };
    // If either side fails, both are closed.
    let _ended = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[test]
    fn chooses_the_first_ready_server_unless_pinned_and_stays_if_none_is_ready() {
        assert_eq!(choose(&[true, true], None, 1), 0);
        assert_eq!(choose(&[false, true], None, 0), 1);
        assert_eq!(choose(&[false, true], Some(0), 1), 0);
        assert_eq!(choose(&[false, false], None, 1), 1);
    }

    /// A server that sends its number to each client, and keeps the connection open.
    async fn server(number: u8) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let mut kept = Vec::new();
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                client.write_all(&[number]).await.unwrap();
                kept.push(client);
            }
        });
        port
    }

    async fn client(balancer: &Balancer) -> (TcpStream, u8) {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, balancer.port.number())).await.unwrap();
        let number = stream.read_u8().await.unwrap();
        (stream, number)
    }

    #[tokio::test]
    async fn closes_connections_to_a_server_that_is_no_longer_ready_unless_pinned() {
        let (ready_sender, ready) = watch::channel(vec![true; 2]);
        let ports = Arc::new([server(0).await, server(1).await]);
        let looks = ReadinessProbes { ready, ports, probes: JoinSet::new() };
        let free = Balancer::open(&looks, Ipv4Addr::LOCALHOST).await.unwrap();
        let pinned = Balancer::open(&looks, Ipv4Addr::LOCALHOST).await.unwrap();
        pinned.pin(0);
        let ((mut moved, from), (mut stays, at)) = (client(&free).await, client(&pinned).await);
        assert_eq!((from, at), (0, 0));
        ready_sender.send_replace(vec![false, true]);
        assert!(!matches!(moved.read(&mut [0]).await, Ok(1..)), "its connection is closed");
        assert_eq!((client(&free).await.1, client(&pinned).await.1), (1, 0));
        pinned.unpin();
        assert!(!matches!(stays.read(&mut [0]).await, Ok(1..)), "so is that one now");
        assert_eq!(client(&pinned).await.1, 1);
    }
}
