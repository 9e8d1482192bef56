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
use super::message::{Reply, Request, WireValue};
use crate::agent::METADATA_WITHIN;
use crate::redact::Redactor;

/// A server answers a hello at once, and on a busy processor within this time.
const HELLO_WITHIN: Duration = Duration::from_secs(3);

/// The wait between two attempts to reach a server again.
const PAUSE: Duration = Duration::from_millis(250);

/// At the deadline the server kills the agent and replies, which takes milliseconds.
const REPLY_ALLOWANCE: Duration = Duration::from_millis(500);

/// Runs agents by a server at a Unix socket.
pub(crate) struct AgentsAtSocket {
    env: Env,
    socket: PathBuf,
}

/// Why there is no reply.
enum ExchangeError {
    /// Nothing was sent.
    NotSent(std::io::Error),
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

    /// Whether a server with our protocol listens.
    pub(crate) async fn check_server(&self) -> Result<(), DeviceError> {
        let request = encoded(&Request::Hello, &BTreeMap::new())?;
        match self.exchange(&request, self.env.now() + HELLO_WITHIN).await {
            Ok(Reply::Hello) => Ok(()),
            Ok(other) => Err(self.unexpected(other)),
            Err(lost) => Err(self.unavailable(lost)),
        }
    }

    /// See [`FenceTransport::check`](pod_safety_transport::FenceTransport::check).
    pub(crate) async fn check(&self, agent: &str, parameters: &BTreeMap<String, Value>) -> Result<(), DeviceError> {
        let request = Request::Check { agent: agent.to_owned(), parameters: WireValue::encode_all(parameters) };
        let request = encoded(&request, parameters)?;
        let reply = match self.exchange(&request, self.env.now() + METADATA_WITHIN + HELLO_WITHIN).await {
            Ok(Reply::Checked(Ok(()))) => return Ok(()),
            Ok(Reply::Checked(Err(error))) => Err(error),
            Ok(other) => Err(self.unexpected(other)),
            Err(lost) => Err(self.unavailable(lost)),
        };
        Redactor::new(parameters).redact_answer(reply).map(drop)
    }

    /// See [`FenceTransport::carry_out`](pod_safety_transport::FenceTransport::carry_out).
    pub(crate) async fn carry_out(&self, agent: &str, order: &Order) -> Result<Answer, DeviceError> {
        let (ends, not_after) = (self.env.now() + order.within, since_boot() + order.within);
        let request = Request::CarryOut {
            agent: agent.to_owned(),
            parameters: WireValue::encode_all(&order.parameters),
            node: order.machine.node.as_ref().to_owned(),
            act: order.act,
            not_after,
        };
        let request = encoded(&request, &order.parameters)?;
        let reply = match self.exchange(&request, ends + REPLY_ALLOWANCE).await {
            Ok(Reply::CarriedOut(Ok(answer))) => Ok(discard_unverified(order.act, answer)),
            Ok(Reply::CarriedOut(Err(DeviceError::TimedOut { .. }))) | Err(ExchangeError::TimedOut) => {
                Err(DeviceError::TimedOut { after: order.within })
            }
            Ok(Reply::CarriedOut(Err(error))) => Err(error),
            Ok(other) => Err(self.unexpected(other)),
            Err(lost) => {
                if matches!(lost, ExchangeError::NoReply(_)) && order.act != Act::Look {
                    self.wait_until_stopped(ends).await;
                }
                Err(self.unavailable(lost))
            }
        };
        Redactor::new(&order.parameters).redact_answer(reply)
    }

    /// After a broken connection: waits until no process of the order can run, because a server listens again or the deadline
    /// has passed.
    async fn wait_until_stopped(&self, ends: Mono) {
        while self.env.now() < ends && self.check_server().await.is_err() {
            self.env.sleep(PAUSE).await;
        }
    }

    async fn exchange(&self, request: &[u8], deadline: Mono) -> Result<Reply, ExchangeError> {
        let exchange = async {
            let mut stream = UnixStream::connect(&self.socket).await.map_err(ExchangeError::NotSent)?;
            stream.write_all(request).await.map_err(|error| ExchangeError::NoReply(FrameError::Ended(error)))?;
            frame::read(&mut stream).await.map_err(ExchangeError::NoReply)
        };
        self.env.timeout_at(deadline, exchange).await.unwrap_or(Err(ExchangeError::TimedOut))
    }

    fn unavailable(&self, lost: ExchangeError) -> DeviceError {
        let why = match lost {
            ExchangeError::NotSent(error) => {
                format!("{error}; check that the container fence-agents is running. No order was sent")
            }
            ExchangeError::NoReply(error) => {
                format!("{error} before the reply came; the order may have been carried out")
            }
            ExchangeError::TimedOut => "no reply in time".to_owned(),
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
        DeviceError::AgentsUnavailable { socket: display_path(&self.socket), why }
    }
}

fn display_path(socket: &Path) -> String {
    socket.display().to_string()
}

/// An agent reads the power of a machine only with a status check, and never its identity.
fn discard_unverified(act: Act, answer: Answer) -> Answer {
    let power = if act == Act::Look { answer.power } else { Power::Unknown };
    Answer { power, identity: Identity::Unknown, ..answer }
}

/// The bytes to send. If the order is too long, the error names its longest parameter.
fn encoded(request: &Request, parameters: &BTreeMap<String, Value>) -> Result<Zeroizing<Vec<u8>>, DeviceError> {
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
