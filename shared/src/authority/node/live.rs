//! A node as a quorum read, or the answer to a write, returned it.

use jiff::Timestamp;
use pod_safety_fence::quorum_read::invalid_renew_time as no_time;
use pod_safety_proof::LeaseRead;
use serde_json::{Map, Value};

use super::{NodeUpdate, NotReporting};
use crate::cache::{self, Cache, Lookup};
use crate::client::ApiError;
use crate::clock::Mono;
use crate::model::Node;
use crate::wire::{self, Raw};

/// A node with all of its fields, because parts of them are written back.
pub(super) struct Live {
    raw: Raw,
    whole: Value,
    version: String,
}

impl Live {
    /// Decodes an answer.
    pub(super) fn read(raw: Raw) -> Result<Self, ApiError> {
        let whole = raw.to_json().map_err(ApiError::Undecodable)?;
        let version = whole.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        let version = version.ok_or_else(|| malformed("a node without a resourceVersion"))?.to_owned();
        Ok(Self { raw, whole, version })
    }

    pub(super) const fn whole(&self) -> &Value {
        &self.whole
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// A string field of the metadata.
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
        conditions.iter().find(|condition| text_field(condition, "type") == Some(kind))?.as_object()
    }

    /// The status of a condition, if the node has it.
    pub(super) fn condition_status(&self, kind: &str) -> Option<&str> {
        self.condition(kind)?.get("status")?.as_str()
    }

    /// Whether the kubelet wrote the Ready condition or the Lease since the cache saw them. A value that cannot be decoded
    /// is an error, and never counts as a missing report.
    pub(super) fn has_reported(&self, not_reporting: &NotReporting, lease: &LeaseRead) -> Result<bool, ApiError> {
        let ready = self.condition("Ready");
        let heartbeat = ready.and_then(|ready| ready.get("lastHeartbeatTime")).and_then(Value::as_str);
        let heartbeat = heartbeat.map(str::parse::<Timestamp>).transpose();
        let heartbeat = heartbeat.map_err(|_| malformed("a node with an invalid lastHeartbeatTime"))?;
        let renewed = lease.renewed().map_err(no_time)?;
        let posted = ready.is_some();
        Ok(posted == not_reporting.never_posted
            || heartbeat != not_reporting.heartbeat
            || renewed != not_reporting.renewed)
    }

    /// Whether the node is as the decision found it. Kubelets and other clients write new versions that do not change what
    /// the decision rests on; the live node is then compared with the cached node at the version of the decision.
    pub(super) fn confirms(&self, update: &NodeUpdate, cache: &Cache, now: Mono) -> bool {
        if self.version == update.rv.to_string() {
            return true;
        }
        let Ok(wire) = self.raw.decode::<wire::Node>() else { return false };
        let Ok(live) = cache::node_from_wire(wire, now) else { return false };
        match cache.read().view().node(&update.node.name) {
            Lookup::Known(cached) => cached.rv == update.rv && decides_same(live, cached),
            Lookup::Unknown(_) | Lookup::Absent => false,
        }
    }
}

/// Whether a decision about `live` would be the same. The times at which this process first saw something do not count.
fn decides_same(mut live: Node, cached: &Node) -> bool {
    (live.first_seen, live.age, live.readiness_since) = (cached.first_seen, cached.age, cached.readiness_since);
    // Fencing checks these details itself.
    live.details.clone_from(&cached.details);
    for (taint, cached_taint) in live.no_execute.iter_mut().zip(&cached.no_execute) {
        (taint.first_seen, taint.age) = (cached_taint.first_seen, cached_taint.age);
    }
    cached.differs_only_in_heartbeat(&live)
}

/// A string field of an object.
pub(super) fn text_field<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object.get(field)?.as_str()
}

fn malformed(what: &str) -> ApiError {
    ApiError::Malformed(what.to_owned())
}
