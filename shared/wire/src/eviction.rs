//! The Eviction API (KEP-4563): EvictionRequests and Evictions.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Time;
use super::codec::Decode;
use super::error::WireError;
use super::message::{messages, null_is_empty};
use super::meta::ObjectMeta;
use super::policy::Condition;

messages! {
    /// An `EvictionRequest` of lifecycle.k8s.io/v1alpha1.
    EvictionRequest {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// The request.
        spec: Option<EvictionRequestSpec> = [message, optional, tag = "2"];
        /// Its result.
        status: Option<EvictionRequestStatus> = [message, optional, tag = "3"];
    }

    /// `evictionRequest.spec`.
    EvictionRequestSpec {
        /// The target.
        target: Option<EvictionTarget> = [message, optional, tag = "1"];
        /// The requester.
        requester: Option<String> = [string, optional, tag = "2"];
        /// `Eviction` or `Withdrawn`.
        intent: Option<String> = [string, optional, tag = "3"];
    }

    /// `spec.target` of both kinds.
    EvictionTarget {
        /// A pod.
        pod: Option<EvictionPod> = [message, optional, tag = "1"];
    }

    /// The pod of a target.
    EvictionPod {
        /// Its name, which is informative.
        name: Option<String> = [string, optional, tag = "1"];
        /// Its UID.
        uid: Option<String> = [string, optional, tag = "2"];
    }

    /// `evictionRequest.status`.
    EvictionRequestStatus {
        /// `Failed` and `TargetEvicted`.
        conditions: Vec<Condition> = [message, repeated, tag = "1"] serde[deserialize_with = "null_is_empty"];
        /// The generation that the conditions reflect.
        observed_generation: Option<i64> = [int64, optional, tag = "2"];
    }

    /// An `Eviction` of lifecycle.k8s.io/v1alpha1, not that of policy/v1.
    Eviction {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// The target.
        spec: Option<EvictionSpec> = [message, optional, tag = "2"];
        /// Its progress.
        status: Option<EvictionStatus> = [message, optional, tag = "3"];
    }

    /// `eviction.spec`.
    EvictionSpec {
        /// The target.
        target: Option<EvictionTarget> = [message, optional, tag = "1"];
    }

    /// `eviction.status`.
    EvictionStatus {
        /// `Failed` and `TargetEvicted`.
        conditions: Vec<Condition> = [message, repeated, tag = "1"] serde[deserialize_with = "null_is_empty"];
        /// The generation that the conditions reflect.
        observed_generation: Option<i64> = [int64, optional, tag = "2"];
        /// The requesters.
        requesters: Vec<EvictionRequester> = [message, repeated, tag = "3"] serde[deserialize_with = "null_is_empty"];
        /// The responders, and whose turn it is.
        target_responders: Vec<TargetResponder> = [message, repeated, tag = "4"] serde[deserialize_with = "null_is_empty"];
        /// The reports of the responders.
        responders: Vec<ResponderStatus> = [message, repeated, tag = "5"] serde[deserialize_with = "null_is_empty"];
    }

    /// An element of `status.requesters`.
    EvictionRequester {
        /// Its name.
        name: Option<String> = [string, optional, tag = "1"];
        /// `Eviction` or `Withdrawn`.
        intent: Option<String> = [string, optional, tag = "2"];
    }

    /// An element of `status.targetResponders`.
    TargetResponder {
        /// Its name.
        name: Option<String> = [string, optional, tag = "1"];
        /// Responders with a higher priority have their turn first.
        priority: Option<i32> = [int32, optional, tag = "2"];
        /// `Inactive`, `Active`, `Interrupted`, `Canceled` or `Completed`.
        state: Option<String> = [string, optional, tag = "3"];
    }

    /// An element of `status.responders`.
    ResponderStatus {
        /// Its name.
        name: Option<String> = [string, optional, tag = "1"];
        /// When its turn began.
        start_time: Option<Time> = [message, optional, tag = "2"];
        /// When it last reported.
        heartbeat_time: Option<Time> = [message, optional, tag = "3"];
        /// When it expects to be done.
        expected_completion_time: Option<Time> = [message, optional, tag = "4"];
        /// When it was done.
        completion_time: Option<Time> = [message, optional, tag = "5"];
        /// Its message about what it does.
        message: Option<String> = [string, optional, tag = "6"];
    }
}

/// An Eviction, and the managers of its states: only for this kind managed fields are read.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedEviction {
    /// The Eviction.
    pub eviction: Eviction,
    /// The field managers of `status.targetResponders`.
    pub managers: Vec<String>,
}

messages! {
    /// The managed fields of an Eviction.
    OnlyManagers {
        /// Its metadata.
        metadata: Option<ManagersMeta> = [message, optional, tag = "1"];
    }

    /// `metadata.managedFields`.
    ManagersMeta {
        /// One entry for each manager.
        managed_fields: Vec<ManagedFields> = [message, repeated, tag = "17"] serde[deserialize_with = "null_is_empty"];
    }

    /// The fields of one manager.
    ManagedFields {
        /// Its name.
        manager: Option<String> = [string, optional, tag = "1"];
        /// The fields.
        fields_v1: Option<FieldsV1> = [message, optional, tag = "7"] serde[rename = "fieldsV1"];
    }
}

/// A set of fields: in protobuf the bytes of its JSON.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct FieldsV1 {
    /// The JSON.
    #[prost(bytes = "vec", optional, tag = "1")]
    pub raw: Option<Vec<u8>>,
}

impl Serialize for FieldsV1 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value: Option<serde_json::Value> = self.raw.as_deref().and_then(|raw| serde_json::from_slice(raw).ok());
        value.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FieldsV1 {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Ok(Self { raw: Some(value.to_string().into_bytes()) })
    }
}

/// Whether this set of fields has `f:status` with `f:targetResponders`.
fn owns_target_responders(fields: &FieldsV1) -> bool {
    let read: Option<serde_json::Value> = fields.raw.as_deref().and_then(|raw| serde_json::from_slice(raw).ok());
    read.is_some_and(|all| all.pointer("/f:status/f:targetResponders").is_some())
}

impl ManagedEviction {
    fn new(eviction: Eviction, managed: OnlyManagers) -> Self {
        let managed = managed.metadata.unwrap_or_default().managed_fields.into_iter();
        let writes = managed.filter(|one| one.fields_v1.as_ref().is_some_and(owns_target_responders));
        let mut managers: Vec<String> = writes.filter_map(|one| one.manager).collect();
        managers.sort_unstable();
        managers.dedup();
        Self { eviction, managers }
    }
}

impl Decode for ManagedEviction {
    fn from_json(bytes: &[u8]) -> Result<Self, WireError> {
        Ok(Self::new(Eviction::from_json(bytes)?, OnlyManagers::from_json(bytes)?))
    }

    fn from_protobuf(bytes: Bytes) -> Result<Self, WireError> {
        Ok(Self::new(Eviction::from_protobuf(bytes.clone())?, OnlyManagers::from_protobuf(bytes)?))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn managers_of_eviction_states_are_read_in_both_encodings() {
        let fields = |path: &str| json!({ "f:status": { path: { "f:x": {} } } });
        let object = json!({ "metadata": { "name": "e", "managedFields": [
            { "manager": "kubelet", "fieldsV1": fields("f:conditions") },
            { "manager": "evictionrequest-controller", "fieldsV1": fields("f:targetResponders") },
            { "manager": "odd", "fieldsV1": "f:targetResponders" }, { "manager": "none" },
        ] } });
        let json = ManagedEviction::from_json(object.to_string().as_bytes()).unwrap();
        assert_eq!(json.managers, ["evictionrequest-controller"]);
        let managed: OnlyManagers = serde_json::from_value(object).unwrap();
        let protobuf = ManagedEviction::from_protobuf(prost::Message::encode_to_vec(&managed).into()).unwrap();
        assert_eq!(protobuf.managers, json.managers);
    }
}
