//! Requests and replies.
//!
//! Invariants: a request has no `Debug`, for it holds passwords. A secret is Base64 in the JSON: serde_json copies a string
//! with escapes into a buffer that is not wiped.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pod_safety_transport::{Act, Answer, DeviceError, Secret, Value};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

/// What a client sends.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Request {
    /// Checks that a server listens.
    Hello,
    /// Checks that this agent accepts these parameters.
    Check { agent: String, parameters: Parameters },
    /// One order.
    CarryOut {
        agent: String,
        parameters: Parameters,
        /// The node's name.
        node: String,
        act: Act,
        /// The deadline, on the host's clock.
        not_after: Duration,
    },
}

/// What a server sends.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Reply {
    Hello,
    Checked(Result<(), DeviceError>),
    CarriedOut(Result<Answer, DeviceError>),
    /// The request was not accepted, and why.
    Refused(String),
}

/// The parameters of an agent.
pub(super) type Parameters = BTreeMap<String, WireValue>;

/// The value of a parameter.
#[derive(Serialize, Deserialize)]
pub(super) enum WireValue {
    Plain(String),
    Secret(EncodedSecret),
}

impl WireValue {
    pub(super) fn encode_all(parameters: &BTreeMap<String, Value>) -> Parameters {
        let carried = |value: &Value| match value {
            Value::Plain(text) => Self::Plain(text.clone()),
            Value::Secret(secret) => Self::Secret(EncodedSecret(secret.clone())),
        };
        parameters.iter().map(|(name, value)| (name.clone(), carried(value))).collect()
    }

    pub(super) fn decode_all(parameters: Parameters) -> BTreeMap<String, Value> {
        let value = |carried| match carried {
            Self::Plain(text) => Value::Plain(text),
            Self::Secret(EncodedSecret(secret)) => Value::Secret(secret),
        };
        parameters.into_iter().map(|(name, carried)| (name, value(carried))).collect()
    }
}

/// A secret, as Base64.
pub(super) struct EncodedSecret(Secret);

impl Serialize for EncodedSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = Zeroizing::new(BASE64.encode(self.0.reveal()));
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for EncodedSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Decode;
        impl Visitor<'_> for Decode {
            type Value = EncodedSecret;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("Base64")
            }

            // No error shows the text.
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<EncodedSecret, E> {
                let bytes = BASE64.decode(text).map_err(|_why| E::custom("not Base64"))?;
                match String::from_utf8(bytes) {
                    Ok(text) => Ok(EncodedSecret(Secret::new(text))),
                    Err(error) => {
                        drop(Zeroizing::new(error.into_bytes()));
                        Err(E::custom("not UTF-8"))
                    }
                }
            }
        }
        deserializer.deserialize_str(Decode)
    }
}
