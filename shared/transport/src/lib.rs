//! Orders to fence devices, and their answers.
//!
//! Duty: the interface between decisions and effects. The writer makes an [`Order`] only after the intent was
//! recorded; a [`FenceTransport`] executes it within its timeout.
//!
//! Invariants: an order names a desired state or a status check, never a pulse (no reboot, no cycle): repeating it
//! changes nothing. An answer is a hint; that a machine is off follows from status checks alone. Nothing that an
//! order started runs on after its timeout. A [`Secret`] has no readable form except for the device itself.

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

/// How a device is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Driver {
    /// An executable of the fence-agents project, by its name: `fence_ipmilan`.
    Agent(Arc<str>),
    /// A Redfish service, for which this program is a client.
    Redfish,
}

impl Driver {
    /// Its name in metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

/// What an order requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Act {
    /// The machine should be off.
    Off,
    /// The machine should be on.
    On,
    /// The power state is read, and the identity of the machine.
    Look,
}

impl Act {
    /// The name in statuses and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A text that only the device may receive: it is not in logs, not in statuses, not in errors.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(zeroize::Zeroizing<String>);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(zeroize::Zeroizing::new(text))
    }

    /// Danger note: for the device's own connection, and for removing the text from what the device prints.
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

/// Parts of the names of parameters whose values are secret. `key` is not among them: it would match other
/// parameters.
const SECRET_NAMES: [&str; 8] = ["passw", "secret", "token", "community", "apikey", "api_key", "private_key", "_kg"];

/// Whether a parameter of this name is a password, a token or a key.
#[must_use]
pub fn is_secret_name(parameter: &str) -> bool {
    let name = parameter.replace('-', "_").to_lowercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// From the device's spec.
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

/// The machine of an order, as the Node describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The node's name.
    pub node: Arc<str>,
    /// `status.nodeInfo.systemUUID`, empty if unknown, or if it is not compared.
    pub system_uuid: Arc<str>,
    /// `spec.providerID`, empty if unknown.
    pub provider_id: Arc<str>,
}

/// One order to a device.
#[derive(Clone, Debug)]
pub struct Order {
    /// How the device is reached.
    pub driver: Driver,
    /// The parameters, rendered for this node and with the values of Secrets.
    pub parameters: BTreeMap<String, Value>,
    /// The machine.
    pub machine: Machine,
    /// The action.
    pub act: Act,
    /// The timeout: afterwards nothing of the order may run.
    pub within: Duration,
}

impl Order {
    /// The longest timeout of a FenceDevice. A Machine of Cluster API may take an hour until it is gone.
    pub const LONGEST: Duration = Duration::from_secs(3_600);
}

/// The power state of a machine.
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
    /// The device reports on.
    On,
    /// The device reports off.
    Off,
    /// The provider reports that this instance was terminated: it never has power again.
    Gone,
    /// The device answers with neither, for instance while the state changes. Also a value that this version does not
    /// know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Power {
    /// Whether the machine has no power, or was terminated.
    #[must_use]
    pub const fn is_off(self) -> bool {
        matches!(self, Self::Off | Self::Gone)
    }

    /// The name in statuses.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Whether the device reaches the node's machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Identity {
    /// The device reports the identity that the Node has.
    Match,
    /// It is another machine. Then `off` and `on` do nothing.
    Mismatch {
        /// The identity that the device reports.
        found: String,
    },
    /// The device, or the Node, reports no identity.
    Unknown,
}

/// The answer of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The power state; after `off` and `on` the one that was last read, if it was.
    pub power: Power,
    /// Whether it is the right machine.
    pub identity: Identity,
    /// The device's message, at most [`MAX_OUTPUT_BYTES`] bytes, without secrets.
    pub said: String,
    /// How long after the order was given the device was queried: the order waited in a queue, or its agent was
    /// starting. The reported state is younger than the order by this time. Zero if it is not known.
    #[serde(default)]
    pub asked_after: Duration,
}

impl Answer {
    /// The answer of a device that was queried at an unknown time after the order.
    #[must_use]
    pub const fn new(power: Power, identity: Identity, said: String) -> Self {
        Self { power, identity, said, asked_after: Duration::ZERO }
    }
}

/// How many bytes of a device's output are kept.
pub const MAX_OUTPUT_BYTES: usize = 1_024;

/// Why a device gave no answer. The order may have been executed all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error, IntoStaticStr)]
pub enum DeviceError {
    /// The fence agent is not installed.
    #[error("there is no fence agent {agent:?} in {searched}; install it, or correct spec.agent")]
    NoAgent {
        /// Its name.
        agent: String,
        /// The folders that were searched.
        searched: String,
    },
    /// The process that runs fence agents does not answer.
    #[error("the process that runs fence agents does not answer on {socket}: {why}")]
    AgentsUnavailable {
        /// Its Unix socket.
        socket: String,
        /// The error, and whether the order may have been executed.
        why: String,
    },
    /// The agent's metadata cannot be used.
    #[error("fence agent {agent:?}: {why}")]
    #[strum(serialize = "BadMetadata")]
    Metadata {
        /// Its name.
        agent: String,
        /// What is wrong, and the remedy.
        why: String,
    },
    /// A parameter that cannot be used.
    #[error("parameter {name:?}: {why}")]
    #[strum(serialize = "BadParameter")]
    Parameter {
        /// Its name.
        name: String,
        /// What is wrong, and the remedy; never the value of a secret.
        why: String,
    },
    /// User name or password are wrong.
    #[error("the device refuses the login: {said}")]
    #[strum(serialize = "LoginDenied")]
    Login {
        /// The device's message.
        said: String,
    },
    /// The credentials have expired.
    #[error("the credentials have expired: {said}")]
    #[strum(serialize = "CredentialsExpired")]
    Expired {
        /// The device's message.
        said: String,
    },
    /// The device gets too many requests, from all its clients.
    #[error("the provider limits the rate of requests, so this one was not carried out: {said}")]
    Throttled {
        /// The device's message.
        said: String,
    },
    /// The provider refused, and the agent prints the same message for several reasons.
    #[error(
        "the provider refused the request: wrong or expired keys, a missing right, or too many requests, for which this agent has the same words: {said}"
    )]
    #[strum(serialize = "RequestRefused")]
    Refused {
        /// The device's message.
        said: String,
    },
    /// The device does not answer.
    #[error("the device cannot be reached: {said}")]
    Unreachable {
        /// The network error.
        said: String,
    },
    /// The TLS connection is not trusted.
    #[error("the device's TLS certificate is not trusted: {said}")]
    #[strum(serialize = "TlsNotTrusted")]
    Tls {
        /// The TLS error.
        said: String,
    },
    /// It did not answer in time; the processes that were started were killed.
    #[error("no answer within {}s; what was started was killed, and may have taken effect anyway", after.as_secs())]
    TimedOut {
        /// The timeout.
        after: Duration,
    },
    /// The device reports a failure.
    #[error("the device failed: {said}")]
    Failed {
        /// The device's message.
        said: String,
    },
    /// The answer cannot be parsed.
    #[error("the device's answer cannot be understood: {said}")]
    Garbage {
        /// The device's message.
        said: String,
    },
}

impl DeviceError {
    /// The category in metrics and conditions, from a closed set.
    #[must_use]
    pub fn category(&self) -> &'static str {
        self.into()
    }
}

/// Executes orders.
pub trait FenceTransport: Send + Sync + 'static {
    /// Checks that a device with this driver and these parameters can be as its spec states: the agent is installed,
    /// has a status action, and knows every parameter. Values are validated too; secrets and templates (`{{`) are
    /// not. Connects to no device.
    fn check<'a>(
        &'a self,
        driver: &'a Driver,
        parameters: &'a BTreeMap<String, Value>,
    ) -> BoxFuture<'a, Result<(), DeviceError>>;

    /// Executes one order. Dropping the future kills what it started: a child process at once, an agent in another
    /// process when that process notices that the connection was closed, and never later than `within`.
    fn carry_out(&self, order: Order) -> BoxFuture<'_, Result<Answer, DeviceError>>;

    /// Whether anything answers a TCP connection, by accepting or resetting it. `Ok(false)`: nothing did within this
    /// time. `Err`: unknown, because no packet left this host.
    fn probe_tcp(&self, address: SocketAddr, within: Duration) -> BoxFuture<'_, Result<bool, DeviceError>> {
        let _ = (address, within);
        Box::pin(std::future::ready(Err(no_transport())))
    }
}

/// The transport of a process without devices: each order is refused.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_with_secrets_are_recognized_by_any_part_of_their_names() {
        for (name, is_secret) in [("snmp-priv-passwd", true), ("Api-Key", true), ("username", false), ("key", false)] {
            assert_eq!(is_secret_name(name), is_secret, "{name}");
        }
    }
}
