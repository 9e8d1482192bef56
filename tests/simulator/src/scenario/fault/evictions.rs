//! What clients do with requests to evict pods, and who responds to them.

use serde::Deserialize;

use super::{MOST_CLIENTS, MOST_REPLICAS, Reading};
use crate::campaign::{Behavior, Evictions, Fault, Withdrawal};
use crate::scenario::field::{Field, FieldError, Text};

/// What an entry needs a world with the Eviction API for.
pub(super) const KINDS: [&str; 3] = ["request-eviction", "withdraw-request", "switch-gate-off"];

/// How a responder behaves.
const BEHAVIORS: [(&str, Behavior); 6] = [
    ("moves", Behavior::Moves),
    ("hands-over", Behavior::HandsOver),
    ("declines", Behavior::Declines),
    ("stalls", Behavior::Stalls),
    ("lies", Behavior::Lies),
    ("crashes", Behavior::Crashes),
];

/// How a request is withdrawn.
const WITHDRAWALS: [(&str, Withdrawal); 3] =
    [("properly", Withdrawal::Properly), ("delete", Withdrawal::Delete), ("again", Withdrawal::Again)];

/// The field `evictions` of a scenario.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(in super::super) struct EvictionsFile {
    first: Text,
    second: Text,
    lost_node: Text,
}

impl EvictionsFile {
    pub(in super::super) fn read(&self) -> Result<Evictions, FieldError> {
        let behavior = |name, text| Field::new(name, text).map(|field| field.one_of(&BEHAVIORS)).transpose();
        let lost_node = Field::new("evictions.lost-node", &self.lost_node);
        Ok(Evictions {
            first: behavior("evictions.first", &self.first)?.unwrap_or_default(),
            second: behavior("evictions.second", &self.second)?,
            lost_node: lost_node.map_or(Ok(false), |field| field.one_of(&[("true", true), ("false", false)]))?,
            skew: 0,
        })
    }
}

impl Reading<'_> {
    pub(super) fn deed_of_evictions(&mut self) -> Result<Fault, FieldError> {
        Ok(match self.kind {
            "request-eviction" => {
                // Behind those of the StatefulSet are all others.
                let most = self.plan.pods as u64 + MOST_REPLICAS;
                let pod = self.needed("pod")?.number(0, most)?;
                Fault::RequestEviction {
                    pod: usize::try_from(pod).unwrap_or(0),
                    requester: self.client()?,
                    stale: self.truth("stale", false)?,
                }
            }
            "withdraw-request" => Fault::WithdrawRequest {
                requester: self.client()?,
                how: self.field("how").map_or(Ok(Withdrawal::Properly), |field| field.one_of(&WITHDRAWALS))?,
            },
            _ => Fault::SwitchGateOff { seconds: self.lasts()? },
        })
    }

    fn client(&mut self) -> Result<usize, FieldError> {
        let client = self.field("client").map_or(Ok(0), |field| field.number(0, MOST_CLIENTS - 1))?;
        Ok(usize::try_from(client).unwrap_or(0))
    }
}
