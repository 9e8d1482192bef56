//! A route to the API server that a test can block: for one client only, for one kind of request, in the middle of it. Delayed requests
//! arrive in the end, as on a real network.
//!
//! `kubectl proxy` terminates TLS, so requests can be read here.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::port::Port;
use crate::{ControlPlane, Error, Program, access, tool};

#[derive(Clone, Debug, Default)]
struct Rules {
    /// Requests with these prefixes wait.
    held: Vec<String>,
    /// Nothing is forwarded.
    cut: bool,
}

impl Rules {
    fn may_pass(&self, chunk: &[u8]) -> bool {
        !self.cut && !self.held.iter().any(|start| chunk.starts_with(start.as_bytes()))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    waiting_now: usize,
    waited_total: usize,
}

/// The route of one client. Dropping it closes all its connections; waiting requests are lost.
pub struct Relay {
    kubeconfig: PathBuf,
    rules: Arc<watch::Sender<Rules>>,
    /// The number of waiting requests, now and in total.
    waiting: Arc<watch::Sender<Held>>,
    accepting: JoinHandle<()>,
    _proxy: Program,
}

impl ControlPlane {
    /// Opens a route for the client with `kubeconfig`. `name` names its log.
    pub async fn relay(&self, name: &str, kubeconfig: &Path) -> Result<Relay, Error> {
        let port = Port::reserve()?;
        let kubectl = tool("kubectl").await?;
        let failed = |source| Error::Process { act: "listen for", program: name.to_owned(), source };
        let args =
            ["proxy".to_owned(), format!("--kubeconfig={}", kubeconfig.display()), format!("--port={}", port.number())];
        let mut proxy = self.program(name, &kubectl, args, &[])?;
        let number = port.number();
        proxy
            .wait_for("listen", async || {
                let connect = TcpStream::connect((Ipv4Addr::LOCALHOST, number)).await;
                connect.map(drop).map_err(|error| error.to_string())
            })
            .await?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let failed = |source| Error::Process { act: "listen for", program: name.to_owned(), source };
        let own = listener.local_addr().map_err(failed)?;
        let kubeconfig = access::open_kubeconfig(&self.folder.access(), &format!("http://{own}"), own.port())?;
        let (rules, waiting) = (Arc::new(watch::Sender::default()), Arc::new(watch::Sender::default()));
        let accepting = tokio::spawn(accept(listener, port, Arc::clone(&rules), Arc::clone(&waiting)));
        Ok(Relay { kubeconfig, rules, waiting, accepting, _proxy: proxy })
    }
}

impl Relay {
    /// The kubeconfig for the client: it has the rights of the kubeconfig that the route was opened for.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// From now on requests with this prefix wait, for example `"DELETE /api/v1/namespaces/a/pods/b"`.
    pub fn hold(&self, request: &str) {
        self.rules.send_modify(|rules| rules.held.push(request.to_owned()));
    }

    /// How many requests wait now.
    pub fn waiting(&self) -> usize {
        self.waiting.borrow().waiting_now
    }

    /// How many requests have had to wait in total.
    pub fn held(&self) -> usize {
        self.waiting.borrow().waited_total
    }

    /// From now on nothing is forwarded in either direction.
    pub fn cut_connections(&self) {
        self.rules.send_modify(|rules| rules.cut = true);
    }

    /// Forwards everything, first of all the waiting requests.
    pub fn open(&self) {
        self.rules.send_replace(Rules::default());
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    upstream: Port,
    rules: Arc<watch::Sender<Rules>>,
    waiting: Arc<watch::Sender<Held>>,
) {
    // The connections end with this task.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (rules, waiting, number) = (rules.subscribe(), Arc::clone(&waiting), upstream.number());
        connections.spawn(async move {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, number)).await else { return };
            let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
            let there = forward(from_client, to_server, rules.clone(), Some(waiting));
            let back = forward(from_server, to_client, rules, None);
            tokio::select! {
                biased;
                () = there => {}
                () = back => {}
            }
        });
    }
}

/// Forwards one direction of a connection until it ends. API clients send the next request only after the last answer, so each request
/// starts a chunk.
async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut rules: watch::Receiver<Rules>,
    waiting: Option<Arc<watch::Sender<Held>>>,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let chunk = &buffer[..length];
        // Only a cut holds an answer.
        let pass = |rules: &Rules| if waiting.is_some() { rules.may_pass(chunk) } else { !rules.cut };
        if !pass(&rules.borrow()) {
            let count = waiting.as_ref().inspect(|count| {
                count.send_modify(|held| {
                    *held = Held { waiting_now: held.waiting_now + 1, waited_total: held.waited_total + 1 }
                });
            });
            let open = rules.wait_for(pass).await.is_ok();
            if let Some(count) = count {
                count.send_modify(|held| held.waiting_now -= 1);
            }
            if !open {
                return;
            }
        }
        if to.write_all(chunk).await.is_err() {
            return;
        }
    }
}
