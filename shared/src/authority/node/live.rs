//! A node as a quorum read, or the answer to a write, has it.

use jiff::Timestamp;
use pod_safety_fence::witness::nonsense as no_time;
use pod_safety_proof::LeaseRead;
use serde_json::{Map, Value};

use super::{NodeUpdate, Silence};
use crate::cache::{self, Cache, Lookup};
use crate::client::ApiError;
use crate::clock::Mono;
use crate::model::Node;
use crate::wire::{self, Raw};

/// A node with all of its fields: parts of them are written back.
pub(super) struct Live {
    raw: Raw,
    whole: Value,
    version: String,
}

impl Live {
    /// Takes an answer apart.
    pub(super) fn read(raw: Raw) -> Result<Self, ApiError> {
        let whole = raw.whole().map_err(ApiError::Undecodable)?;
        let version = whole.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        let version = version.ok_or_else(|| nonsense("a node without a resourceVersion"))?.to_owned();
        Ok(Self { raw, whole, version })
    }

    pub(super) const fn whole(&self) -> &Value {
        &self.whole
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// A text of its metadata.
    pub(super) fn meta(&self, field: &str) -> Option<&str> {
        self.whole.get("metadata")?.get(field)?.as_str()
    }

    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.whole.pointer("/metadata/labels")?.get(key)?.as_str()
    }

    pub(super) fn taints(&self) -> &[Value] {
        let taints = self.whole.pointer("/spec/taints").and_then(Value::as_array);
        taints.map_or(&[], Vec::as_slice)
    }

    pub(super) fn condition(&self, kind: &str) -> Option<&Map<String, Value>> {
        let conditions = self.whole.pointer("/status/conditions")?.as_array()?;
        conditions.iter().find(|condition| word(condition, "type") == Some(kind))?.as_object()
    }

    /// The status of a condition, if it is there.
    pub(super) fn says(&self, kind: &str) -> Option<&str> {
        self.condition(kind)?.get("status")?.as_str()
    }

    /// Whether its kubelet, or its Lease, said something since the cache heard of them. What cannot be read convicts
    /// nobody.
    pub(super) fn was_heard(&self, silence: &Silence, lease: &LeaseRead) -> Result<bool, ApiError> {
        let ready = self.condition("Ready");
        let beat = ready.and_then(|ready| ready.get("lastHeartbeatTime")).and_then(Value::as_str);
        let beat = beat.map(str::parse::<Timestamp>).transpose();
        let beat = beat.map_err(|_| nonsense("a node with an invalid lastHeartbeatTime"))?;
        let renewed = lease.renewed().map_err(no_time)?;
        let posted = ready.is_some();
        Ok(posted == silence.never_posted || beat != silence.heartbeat || renewed != silence.renewed)
    }

    /// Whether it is what the update was decided from. Kubelets and others write versions that change nothing of
    /// that; what they left is compared with what the cache has at the version of the decision.
    pub(super) fn bears_out(&self, update: &NodeUpdate, cache: &Cache, now: Mono) -> bool {
        if self.version == update.rv.to_string() {
            return true;
        }
        let Ok(wire) = self.raw.decode::<wire::Node>() else { return false };
        let Ok(live) = cache::node(wire, now) else { return false };
        match cache.read().view().node(&update.node.name) {
            Lookup::Known(known) => known.rv == update.rv && same(live, known),
            Lookup::Unknown(_) | Lookup::Absent => false,
        }
    }
}

/// Whether a decision about `live` would be the same. When this process first saw what is none of its facts.
fn same(mut live: Node, known: &Node) -> bool {
    (live.first_seen, live.age, live.readiness_seen) = (known.first_seen, known.age, known.readiness_seen);
    // Fencing looks at that itself.
    live.life.clone_from(&known.life);
    for (taint, known) in live.no_execute.iter_mut().zip(&known.no_execute) {
        (taint.first_seen, taint.age) = (known.first_seen, known.age);
    }
    known.only_beats(&live)
}

/// A text of an object.
pub(super) fn word<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object.get(field)?.as_str()
}

fn nonsense(what: &str) -> ApiError {
    ApiError::Malformed(what.to_owned())
}
