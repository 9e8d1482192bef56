//! The agents' side: runs an agent for each order, and kills it when the order is done, cancelled or past its deadline.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pod_safety_clock::{Env, since_boot};
use pod_safety_transport::{Answer, DeviceError, Driver, Machine, Order};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::ReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::frame;
use super::message::{Reply, Request, WireValue};
use crate::AgentOptions;
use crate::agent::Agents;

/// A client sends its request as soon as it is connected.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);

/// A client waits for the reply, so it reads it at once.
const REPLY_WITHIN: Duration = Duration::from_secs(5);

/// Open connections. A controller has at most 124 orders in progress (8 status checks of devices, 16 steps, 100
/// attempts), and each connection holds at most one message in memory.
const CONNECTIONS: usize = 256;

/// The wait after `accept` failed, for instance because no file descriptor was left.
const PAUSE: Duration = Duration::from_millis(100);

/// A killed agent ends within milliseconds. One that waits for hardware may never end, and a pod's grace period is short.
const STOPS_WITHIN: Duration = Duration::from_secs(5);

/// Owner and group may connect. The containers of a pod share the group `fsGroup`.
const MODE: u32 = 0o660;

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another server has the socket.
    #[error("another process listens at {0}; stop it, or choose another socket")]
    Taken(PathBuf),
    /// The path is some other file.
    #[error("{0} exists and is no socket; remove it, or choose another path")]
    NoSocket(PathBuf),
    /// The socket cannot be created.
    #[error("listening at {socket}")]
    Listen {
        /// Its path.
        socket: PathBuf,
        /// The error.
        #[source]
        source: std::io::Error,
    },
    /// An agent of an earlier server could still switch a machine.
    #[error("{0} processes of earlier fence agents cannot be killed")]
    Survivors(usize),
}

/// Runs fence agents for the controllers.
#[derive(Debug)]
pub struct AgentServer {
    env: Env,
    socket: PathBuf,
    agents: Agents,
    listener: UnixListener,
    client_uid: Option<u32>,
    connections: Arc<Semaphore>,
    agent_slots: Semaphore,
    at_once: usize,
}

impl AgentServer {
    /// Kills the agents that an earlier server of this socket left behind, then listens. Only the user `client_uid` may send
    /// orders. At most `at_once` agents run at a time; other orders wait.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub async fn bind(
        env: Env,
        socket: &Path,
        options: AgentOptions,
        client_uid: Option<u32>,
        at_once: usize,
    ) -> Result<Arc<Self>, ServeError> {
        let listen = |source| ServeError::Listen { socket: socket.to_owned(), source };
        match std::fs::symlink_metadata(socket) {
            Ok(there) if !there.file_type().is_socket() => {
                return Err(ServeError::NoSocket(socket.to_owned()));
            }
            Ok(_) if UnixStream::connect(socket).await.is_ok() => {
                return Err(ServeError::Taken(socket.to_owned()));
            }
            Ok(_) => std::fs::remove_file(socket).map_err(listen)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(listen(error)),
        }
        let agents = Agents::new(env.clone(), options, &format!("{}:", socket.display()));
        // Before the socket exists: clients rely on this order.
        agents.end_earlier().await.map_err(ServeError::Survivors)?;
        let listener = UnixListener::bind(socket).map_err(listen)?;
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(MODE)).map_err(listen)?;
        let (connections, places) = (Arc::new(Semaphore::new(CONNECTIONS)), Semaphore::new(at_once));
        let socket = socket.to_owned();
        Ok(Arc::new(Self { env, socket, agents, listener, client_uid, connections, agent_slots: places, at_once }))
    }

    /// Serves orders permanently.
    pub async fn serve(self: Arc<Self>) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    // Beyond the limit the connection is closed, which the client reports.
                    if let Ok(place) = Arc::clone(&self.connections).try_acquire_owned() {
                        let server = Arc::clone(&self);
                        let served = async move {
                            server.serve_connection(stream).await;
                            drop(place);
                        };
                        self.env.spawner.spawn("fence agents", Box::pin(served));
                    }
                }
                Err(_) => self.env.sleep(PAUSE).await,
            }
        }
    }

    /// Kills all running agents and starts no more. Call it after [`Self::serve`] was dropped.
    pub async fn stop(&self) {
        // If it remains, a client gets `connection refused`, with the same meaning.
        let _gone = std::fs::remove_file(&self.socket);
        let stopped = async {
            // The semaphore is fair: an order that requests a permit from now on waits behind this.
            let all = self.agent_slots.acquire_many(u32::try_from(self.at_once).unwrap_or(u32::MAX));
            futures::pin_mut!(all);
            loop {
                self.agents.kill();
                if self.env.timeout_at(self.env.now() + PAUSE, all.as_mut()).await.is_some() {
                    return;
                }
            }
        };
        let _what_cannot_be_killed = self.env.timeout_at(self.env.now() + STOPS_WITHIN, stopped).await;
    }

    async fn serve_connection(&self, mut stream: UnixStream) {
        let request = self.env.timeout_at(self.env.now() + REQUEST_WITHIN, frame::read(&mut stream)).await;
        let reply = match (self.refuse_peer(&stream), request) {
            (Some(why), _) => Reply::Refused(why),
            (None, None) => Reply::Refused(format!("no request within {}s", REQUEST_WITHIN.as_secs())),
            (None, Some(Err(error))) => Reply::Refused(error.to_string()),
            (None, Some(Ok(request))) => {
                let (mut reader, _writer) = stream.split();
                let reply = tokio::select! {
                    biased;
                    // First: a cancelled order starts no agent.
                    () = wait_for_cancel(&mut reader) => None,
                    reply = self.reply(request) => Some(reply),
                };
                // Both futures are dropped by now, so the agent is dead before the connection closes.
                let Some(reply) = reply else { return };
                reply
            }
        };
        let replied = frame::write(&mut stream, &reply);
        // A client that does not read finds the connection closed.
        let _unread = self.env.timeout_at(self.env.now() + REPLY_WITHIN, replied).await;
    }

    /// Why this peer may not send orders.
    fn refuse_peer(&self, stream: &UnixStream) -> Option<String> {
        let allowed = self.client_uid?;
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == allowed => None,
            Ok(peer) => {
                Some(format!("user {} may not send orders, only user {allowed} may (--client-uid)", peer.uid()))
            }
            Err(error) => Some(format!("the user of the peer cannot be read: {error}")),
        }
    }

    pub(super) async fn reply(&self, request: Request) -> Reply {
        match request {
            Request::Hello => Reply::Hello,
            Request::Check { agent, parameters } => {
                let _place = self.agent_slots.acquire().await;
                Reply::Checked(self.agents.check(&agent, &WireValue::decode_all(parameters)).await)
            }
            Request::CarryOut { agent, parameters, node, act, not_after } => {
                let within = remaining(not_after);
                let driver = Driver::Agent(agent.as_str().into());
                let machine = Machine { node: node.into(), ..Machine::default() };
                let parameters = WireValue::decode_all(parameters);
                let order = Order { driver, parameters, machine, act, within };
                Reply::CarriedOut(self.carry_out(&agent, order, not_after).await)
            }
        }
    }

    async fn carry_out(&self, agent: &str, order: Order, not_after: Duration) -> Result<Answer, DeviceError> {
        if order.within.is_zero() {
            return Err(DeviceError::TimedOut { after: order.within });
        }
        let began = self.env.now();
        let place = self.env.timeout_at(began + order.within, self.agent_slots.acquire());
        let _place = place.await.ok_or_else(|| self.no_slot_error())?;
        let waited = self.env.now().since(began);
        // Less than before the wait.
        let within = remaining(not_after);
        let answer = self.agents.carry_out(agent, &Order { within, ..order }).await?;
        Ok(Answer { asked_after: answer.asked_after + waited, ..answer })
    }

    fn no_slot_error(&self) -> DeviceError {
        let why = format!(
            "the agent did not start: {} others ran until the deadline of this order; raise --at-once and the memory limit",
            self.at_once
        );
        DeviceError::Failed { said: why }
    }
}

/// The time until a moment of the host's clock. A client that names one later than any order may have is wrong, or
/// malicious.
pub(super) fn remaining(not_after: Duration) -> Duration {
    not_after.saturating_sub(since_boot()).min(Order::LONGEST)
}

/// Ends when the client closes the connection, or sends more than its request.
async fn wait_for_cancel(reader: &mut ReadHalf<'_>) {
    let mut byte = [0];
    let _ended_or_said_more = reader.read(&mut byte).await;
}
