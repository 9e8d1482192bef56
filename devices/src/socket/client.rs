//! The controllers' side: sends an order, waits for the reply, and limits what a reply can mean.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pod_safety_clock::{Env, Mono, since_boot};
use pod_safety_transport::{Act, Answer, DeviceError, Identity, Order, Power, Value};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use zeroize::Zeroizing;

use super::frame::{self, FrameError};
use super::message::{Carried, Reply, Request};
use crate::agent::METADATA_WITHIN;
use crate::said::Redactor;

/// A server answers a hello at once, and on a busy processor within this time.
const HELLO_WITHIN: Duration = Duration::from_secs(3);

/// The wait between two attempts to reach a server again.
const PAUSE: Duration = Duration::from_millis(250);

/// At the deadline the server kills the agent and replies, which takes milliseconds.
const ANSWERS_AFTER: Duration = Duration::from_millis(500);

/// Runs agents by a server at a Unix socket.
pub(crate) struct AgentsAtSocket {
    env: Env,
    socket: PathBuf,
}

/// Why there is no reply.
enum Lost {
    /// Nothing was sent.
    NotAsked(std::io::Error),
    /// The request may have arrived.
    NoReply(FrameError),
    /// The deadline passed.
    TimedOut,
}

impl std::fmt::Debug for AgentsAtSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentsAtSocket").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl AgentsAtSocket {
    pub(crate) const fn new(env: Env, socket: PathBuf) -> Self {
        Self { env, socket }
    }

    /// Whether a server listens that speaks our protocol.
    pub(crate) async fn answer(&self) -> Result<(), DeviceError> {
        let request = encoded(&Request::Hello, &BTreeMap::new())?;
        match self.exchange(&request, self.env.now() + HELLO_WITHIN).await {
            Ok(Reply::Hello) => Ok(()),
            Ok(other) => Err(self.unexpected(other)),
            Err(lost) => Err(self.unavailable(lost)),
        }
    }

    /// See [`FenceTransport::check`](pod_safety_transport::FenceTransport::check).
    pub(crate) async fn check(
        &self,
        agent: &str,
        parameters: &BTreeMap<String, Value>,
    ) -> Result<(), DeviceError> {
        let request = Request::Check { agent: agent.to_owned(), parameters: Carried::all(parameters) };
        let request = encoded(&request, parameters)?;
        let reply = match self.exchange(&request, self.env.now() + METADATA_WITHIN + HELLO_WITHIN).await {
            Ok(Reply::Checked(Ok(()))) => return Ok(()),
            Ok(Reply::Checked(Err(error))) => Err(error),
            Ok(other) => Err(self.unexpected(other)),
            Err(lost) => Err(self.unavailable(lost)),
        };
        Redactor::new(parameters).answer(reply).map(drop)
    }

    /// See [`FenceTransport::carry_out`](pod_safety_transport::FenceTransport::carry_out).
    pub(crate) async fn carry_out(&self, agent: &str, order: &Order) -> Result<Answer, DeviceError> {
        let (ends, not_after) = (self.env.now() + order.within, since_boot() + order.within);
        let request = Request::CarryOut {
            agent: agent.to_owned(),
            parameters: Carried::all(&order.parameters),
            node: order.machine.node.as_ref().to_owned(),
            act: order.act,
            not_after,
        };
        let request = encoded(&request, &order.parameters)?;
        let reply = match self.exchange(&request, ends + ANSWERS_AFTER).await {
            Ok(Reply::CarriedOut(Ok(answer))) => Ok(believed(order.act, answer)),
            Ok(Reply::CarriedOut(Err(DeviceError::TimedOut { .. }))) | Err(Lost::TimedOut) => {
                Err(DeviceError::TimedOut { after: order.within })
            }
            Ok(Reply::CarriedOut(Err(error))) => Err(error),
            Ok(other) => Err(self.unexpected(other)),
            Err(lost) => {
                if matches!(lost, Lost::NoReply(_)) && order.act != Act::Look {
                    self.nothing_runs(ends).await;
                }
                Err(self.unavailable(lost))
            }
        };
        Redactor::new(&order.parameters).answer(reply)
    }

    /// After a broken connection: waits until no process of the order can run, because a server listens again or the deadline
    /// has passed.
    async fn nothing_runs(&self, ends: Mono) {
        while self.env.now() < ends && self.answer().await.is_err() {
            self.env.sleep(PAUSE).await;
        }
    }

    async fn exchange(&self, request: &[u8], deadline: Mono) -> Result<Reply, Lost> {
        let exchange = async {
            let mut stream = UnixStream::connect(&self.socket).await.map_err(Lost::NotAsked)?;
            stream.write_all(request).await.map_err(|error| Lost::NoReply(FrameError::Ended(error)))?;
            frame::read(&mut stream).await.map_err(Lost::NoReply)
        };
        self.env.until(deadline, exchange).await.unwrap_or(Err(Lost::TimedOut))
    }

    fn unavailable(&self, lost: Lost) -> DeviceError {
        let why = match lost {
            Lost::NotAsked(error) => {
                format!("{error}; check that the container fence-agents is running. No order was sent")
            }
            Lost::NoReply(error) => {
                format!("{error} before the reply came; the order may have been carried out")
            }
            Lost::TimedOut => "no reply in time".to_owned(),
        };
        self.error(why)
    }

    fn unexpected(&self, reply: Reply) -> DeviceError {
        match reply {
            Reply::Refused(why) => self.error(format!("it refuses the request: {why}")),
            Reply::Hello | Reply::Checked(_) | Reply::CarriedOut(_) => {
                self.error("its reply does not fit the request".to_owned())
            }
        }
    }

    fn error(&self, why: String) -> DeviceError {
        DeviceError::AgentsUnavailable { socket: shown(&self.socket), why }
    }
}

fn shown(socket: &Path) -> String {
    socket.display().to_string()
}

/// An agent knows the power of a machine after a look only, and never its identity.
fn believed(act: Act, answer: Answer) -> Answer {
    let power = if act == Act::Look { answer.power } else { Power::Unknown };
    Answer { power, identity: Identity::Unknown, ..answer }
}

/// The bytes to send. If the order is too long, the error names its longest parameter.
fn encoded(
    request: &Request,
    parameters: &BTreeMap<String, Value>,
) -> Result<Zeroizing<Vec<u8>>, DeviceError> {
    frame::encode(request).map_err(|_longer| {
        let longest = parameters.iter().max_by_key(|(_, value)| value.reveal().len());
        let name = longest.map_or_else(String::new, |(name, _)| name.clone());
        let most = frame::MOST >> 10;
        DeviceError::Parameter {
            name,
            why: format!("all parameters together are longer than {most} KiB, and this one is the longest"),
        }
    })
}
