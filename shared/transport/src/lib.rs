//! What is asked of a fence device, and what it answers.
//!
//! Duty: the seam between those who decide and what touches the world. The authority makes an [`Order`] only after
//! the intent to carry it out is written down; a [`FenceTransport`] carries it out, within its time.
//!
//! Invariants: an order names a goal or a look, never a pulse (no reboot, no cycle): whoever repeats it changes
//! nothing. An answer is a hint; that a machine is off follows from looks alone. Nothing that an order started runs on
//! after its time. A [`Secret`] has no readable form but for the device itself.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

mod off;
mod uuid;

pub use off::off_ambiguity;
pub use uuid::MachineUuid;

/// By which means a device is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Driver {
    /// An executable of the fence-agents project, by its name: `fence_ipmilan`.
    Agent(Arc<str>),
    /// A Redfish service, spoken to by this program itself.
    Redfish,
}

impl Driver {
    /// Its name in metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

/// What is wanted of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Act {
    /// It should be off.
    Off,
    /// It should be on.
    On,
    /// Is it on? And is it the machine that it is taken for?
    Look,
}

impl Act {
    /// Its word in statuses and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A text that nobody may read but the device: not in logs, not in statuses, not in errors.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(zeroize::Zeroizing<String>);

impl Secret {
    /// Wraps it.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(zeroize::Zeroizing::new(text))
    }

    /// Danger note: for the device's own connection, and for taking it out of what the device says.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Parts of the names of parameters whose values are secret. `key` is not among them: `plug` maps and the like would go.
const SECRET_NAMES: [&str; 8] =
    ["passw", "secret", "token", "community", "apikey", "api_key", "private_key", "_kg"];

/// Whether a parameter of this name is a password, a token or a key.
#[must_use]
pub fn is_secret_name(parameter: &str) -> bool {
    let name = parameter.replace('-', "_").to_lowercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Written in the device's spec.
    Plain(String),
    /// From a Secret.
    Secret(Secret),
}

impl Value {
    /// Danger note: as [`Secret::reveal`].
    #[must_use]
    pub fn reveal(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::Secret(secret) => secret.reveal(),
        }
    }
}

/// Whom an order is about: what the Node object says of its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The node's name.
    pub node: Arc<str>,
    /// `status.nodeInfo.systemUUID`, empty if unknown, or if the device is to be believed without it.
    pub system_uuid: Arc<str>,
    /// `spec.providerID`, empty if unknown.
    pub provider_id: Arc<str>,
}

/// One question or demand.
#[derive(Clone, Debug)]
pub struct Order {
    /// By which means.
    pub driver: Driver,
    /// With which parameters: rendered for this node, Secrets read.
    pub parameters: BTreeMap<String, Value>,
    /// Of which machine.
    pub machine: Machine,
    /// What.
    pub act: Act,
    /// After this nothing of it may run any more.
    pub within: Duration,
}

impl Order {
    /// No FenceDevice lets an act take longer. A machine of Cluster API may take an hour to be gone.
    pub const LONGEST: Duration = Duration::from_secs(3_600);
}

/// Whether a machine has power.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    IntoStaticStr,
    Display,
    EnumString,
)]
pub enum Power {
    /// The device says on.
    On,
    /// The device says off.
    Off,
    /// The provider says that this very machine was terminated: it never has power again.
    Gone,
    /// The device answers, and says neither: on its way, for instance. So does a word that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Power {
    /// Whether the machine has no power, or never has it again.
    #[must_use]
    pub const fn is_off(self) -> bool {
        matches!(self, Self::Off | Self::Gone)
    }

    /// Its word in statuses.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Whether the device reaches the machine that it is taken for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Identity {
    /// What the device says of itself is what the Node says.
    Match,
    /// It is another machine. Then `off` and `on` do nothing: nobody meant a stranger.
    Mismatch {
        /// What the device says.
        found: String,
    },
    /// The device, or the Node, does not say.
    Unknown,
}

/// What a device answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What it read; after `off` and `on` what it read last, if it did.
    pub power: Power,
    /// Whether it is the right machine.
    pub identity: Identity,
    /// What else it said, at most [`MAX_OUTPUT_BYTES`] bytes, without secrets.
    pub said: String,
    /// For so long after the order was given the device had not been asked: the order waited for its turn, or its agent started. So
    /// what the device reported is younger than the order by this. Zero if it is not known.
    #[serde(default)]
    pub asked_after: Duration,
}

impl Answer {
    /// Of a device that was asked at an unknown time after the order.
    #[must_use]
    pub const fn new(power: Power, identity: Identity, said: String) -> Self {
        Self { power, identity, said, asked_after: Duration::ZERO }
    }
}

/// More than this of what a device says is not kept.
pub const MAX_OUTPUT_BYTES: usize = 1_024;

/// Why a device gave no answer. What it was asked may have been done all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum DeviceError {
    /// There is no such program.
    #[error("there is no fence agent {agent:?} in {searched}; install it, or correct spec.agent")]
    NoAgent {
        /// Its name.
        agent: String,
        /// Where it was looked for.
        searched: String,
    },
    /// The process that runs fence agents does not answer.
    #[error("the process that runs fence agents does not answer on {socket}: {why}")]
    AgentsUnavailable {
        /// Its Unix socket.
        socket: String,
        /// What happened, and whether the order may have been carried out.
        why: String,
    },
    /// What the agent says of itself cannot be used.
    #[error("fence agent {agent:?}: {why}")]
    Metadata {
        /// Its name.
        agent: String,
        /// What is wrong, and the way out.
        why: String,
    },
    /// A parameter that cannot be used.
    #[error("parameter {name:?}: {why}")]
    Parameter {
        /// Its name.
        name: String,
        /// What is wrong, and the way out; never its value if that is a secret.
        why: String,
    },
    /// Name or password are wrong.
    #[error("the device refuses the login: {said}")]
    Login {
        /// What it said.
        said: String,
    },
    /// They were right once.
    #[error("the credentials have expired: {said}")]
    Expired {
        /// What it said.
        said: String,
    },
    /// It is asked too often, by whomever.
    #[error("the provider limits the rate of requests, so this one was not carried out: {said}")]
    Throttled {
        /// What it said.
        said: String,
    },
    /// The provider refused, and the agent has one sentence for all reasons.
    #[error(
        "the provider refused the request: wrong or expired keys, a missing right, or too many requests, for which this agent has the same words: {said}"
    )]
    Refused {
        /// What it said.
        said: String,
    },
    /// Nobody is there.
    #[error("the device cannot be reached: {said}")]
    Unreachable {
        /// What was seen.
        said: String,
    },
    /// The connection is not safe.
    #[error("the device's TLS certificate is not trusted: {said}")]
    Tls {
        /// What is wrong with it.
        said: String,
    },
    /// It did not answer in time; what it started was killed.
    #[error("no answer within {}s; what was started was killed, and may have taken effect anyway", after.as_secs())]
    TimedOut {
        /// After which time.
        after: Duration,
    },
    /// It says that it failed.
    #[error("the device failed: {said}")]
    Failed {
        /// What it said.
        said: String,
    },
    /// It said what cannot be understood.
    #[error("the device's answer cannot be understood: {said}")]
    Garbage {
        /// What it said.
        said: String,
    },
}

impl DeviceError {
    /// Its word in metrics and conditions: closed.
    #[must_use]
    pub const fn category(&self) -> &'static str {
        match self {
            Self::NoAgent { .. } => "NoAgent",
            Self::AgentsUnavailable { .. } => "AgentsUnavailable",
            Self::Metadata { .. } => "BadMetadata",
            Self::Parameter { .. } => "BadParameter",
            Self::Login { .. } => "LoginDenied",
            Self::Expired { .. } => "CredentialsExpired",
            Self::Throttled { .. } => "Throttled",
            Self::Refused { .. } => "RequestRefused",
            Self::Unreachable { .. } => "Unreachable",
            Self::Tls { .. } => "TlsNotTrusted",
            Self::TimedOut { .. } => "TimedOut",
            Self::Failed { .. } => "Failed",
            Self::Garbage { .. } => "Garbage",
        }
    }
}

/// Carries orders out.
pub trait FenceTransport: Send + Sync + 'static {
    /// Whether a device with this driver and these names of parameters can be what its spec says: the agent is there,
    /// can look, and knows every parameter. Values that are there are looked at too; secrets and templates (`{{`) are
    /// not. Reaches no device.
    fn check<'a>(
        &'a self,
        driver: &'a Driver,
        parameters: &'a BTreeMap<String, Value>,
    ) -> BoxFuture<'a, Result<(), DeviceError>>;

    /// Carries one order out. Dropping the future kills what it started: a child at once, an agent of another process as
    /// soon as that process sees the connection close, and never later than `within`.
    fn carry_out(&self, order: Order) -> BoxFuture<'_, Result<Answer, DeviceError>>;

    /// Whether anything answers to a TCP connection: accepts it, or resets it. `Ok(false)`: for so long nothing did. `Err`: that is
    /// not known, because no packet left this host.
    fn probe_tcp(&self, address: SocketAddr, within: Duration) -> BoxFuture<'_, Result<bool, DeviceError>> {
        let _ = (address, within);
        Box::pin(std::future::ready(Err(no_transport())))
    }
}

/// Where there is no transport, nothing can be fenced by itself: each order is refused.
#[derive(Clone, Copy, Debug)]
pub struct NoTransport;

impl FenceTransport for NoTransport {
    fn check<'a>(
        &'a self,
        _driver: &'a Driver,
        _parameters: &'a BTreeMap<String, Value>,
    ) -> BoxFuture<'a, Result<(), DeviceError>> {
        Box::pin(std::future::ready(Err(no_transport())))
    }

    fn carry_out(&self, _order: Order) -> BoxFuture<'_, Result<Answer, DeviceError>> {
        Box::pin(std::future::ready(Err(no_transport())))
    }
}

fn no_transport() -> DeviceError {
    DeviceError::Unreachable { said: "this process was started without devices".to_owned() }
}
