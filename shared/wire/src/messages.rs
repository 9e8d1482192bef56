//! The messages. Tags are the field numbers of `k8s.io/api/*/generated.proto` v0.37.2.

use std::collections::BTreeMap;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Time;
use super::policy::null_is_empty_map;
use super::storage::{PodVolume, SchedulingGate};

/// A message with the serde form that all of them share.
macro_rules! message {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident : $ty:ty = [$($prost:tt)*] $(serde[$($serde:tt)*])?;)* }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name {
            $(
                $(#[$field_doc])*
                #[prost($($prost)*)]
                $(#[serde($($serde)*)])?
                pub $field: $ty,
            )*
        }
    };
}

pub(super) use message;

message! {
    /// `metadata`, without managed fields.
    ObjectMeta {
        /// The name.
        name: Option<String> = [string, optional, tag = "1"];
        /// The namespace; absent for cluster-scoped kinds.
        namespace: Option<String> = [string, optional, tag = "3"];
        /// The identity.
        uid: Option<String> = [string, optional, tag = "5"];
        /// The version.
        resource_version: Option<String> = [string, optional, tag = "6"];
        /// Counts changes of the spec.
        generation: Option<i64> = [int64, optional, tag = "7"];
        /// When the API server created it.
        creation_timestamp: Option<Time> = [message, optional, tag = "8"];
        /// When its grace ends, if deletion was asked for.
        deletion_timestamp: Option<Time> = [message, optional, tag = "9"];
        /// The grace in force, in seconds.
        deletion_grace_period_seconds: Option<i64> = [int64, optional, tag = "10"];
        /// The labels.
        labels: BTreeMap<String, String> = [btree_map = "string, string", tag = "11"] serde[deserialize_with = "null_is_empty_map"];
        /// The keys of the annotations; nobody reads a value.
        annotations: Vec<MapKey> = [message, repeated, tag = "12"] serde[with = "map_keys"];
        /// Whose it is.
        owner_references: Vec<OwnerReference> = [message, repeated, tag = "13"] serde[deserialize_with = "null_is_empty"];
        /// What keeps the object after its deletion.
        finalizers: Vec<String> = [string, repeated, tag = "14"] serde[deserialize_with = "null_is_empty"];
    }
}

message! {
    /// One owner.
    OwnerReference {
        /// The kind.
        kind: Option<String> = [string, optional, tag = "1"];
        /// The name, in the same namespace.
        name: Option<String> = [string, optional, tag = "3"];
        /// The identity.
        uid: Option<String> = [string, optional, tag = "4"];
        /// Group and version.
        api_version: Option<String> = [string, optional, tag = "5"];
        /// Whether it is the one that manages the object.
        controller: Option<bool> = [bool, optional, tag = "6"];
    }
}

message! {
    /// Any object, to learn who it is when the rest cannot be read.
    OnlyMeta {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
    }
}

/// The key of a map entry. As protobuf a map is a list of entries, so leaving
/// the value (tag 2) out skips it.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct MapKey {
    /// The key.
    #[prost(string, tag = "1")]
    pub key: String,
}

/// A message of which only the presence matters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize)]
pub struct Presence {}

message! {
    /// A pod.
    Pod {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// What was asked for.
        spec: Option<PodSpec> = [message, optional, tag = "2"];
        /// What was reported.
        status: Option<PodStatus> = [message, optional, tag = "3"];
    }
}

message! {
    /// `pod.spec`.
    PodSpec {
        /// How long its processes may take to end; the API server sets 30 where nobody says.
        termination_grace_period_seconds: Option<i64> = [int64, optional, tag = "4"];
        /// Its volumes.
        volumes: Vec<PodVolume> = [message, repeated, tag = "1"] serde[deserialize_with = "null_is_empty"];
        /// The node that it is bound to; empty before.
        node_name: Option<String> = [string, optional, tag = "10"];
        /// What keeps it from the scheduler.
        scheduling_gates: Vec<SchedulingGate> = [message, repeated, tag = "38"] serde[deserialize_with = "null_is_empty"];
        /// Taints that it bears.
        tolerations: Vec<Toleration> = [message, repeated, tag = "22"] serde[deserialize_with = "null_is_empty"];
    }
}

message! {
    /// A toleration.
    Toleration {
        /// Of which key; empty: of all.
        key: Option<String> = [string, optional, tag = "1"];
        /// `Exists` or `Equal`, which is the default.
        operator: Option<String> = [string, optional, tag = "2"];
        /// Of which value.
        value: Option<String> = [string, optional, tag = "3"];
        /// Of which effect; empty: of all.
        effect: Option<String> = [string, optional, tag = "4"];
        /// For how long; absent: for ever.
        toleration_seconds: Option<i64> = [int64, optional, tag = "5"];
    }
}

message! {
    /// `pod.status`.
    PodStatus {
        /// The phase.
        phase: Option<String> = [string, optional, tag = "1"];
        /// Its conditions.
        conditions: Vec<PodCondition> = [message, repeated, tag = "2"] serde[deserialize_with = "null_is_empty"];
        /// Why the pod is as it is, in one word.
        reason: Option<String> = [string, optional, tag = "4"];
        /// Reports on the ordinary containers.
        container_statuses: Vec<ContainerStatus> = [message, repeated, tag = "8"] serde[deserialize_with = "null_is_empty"];
        /// Reports on the init and sidecar containers.
        init_container_statuses: Vec<ContainerStatus> = [message, repeated, tag = "10"] serde[deserialize_with = "null_is_empty"];
        /// Reports on the debug containers.
        ephemeral_container_statuses: Vec<ContainerStatus> = [message, repeated, tag = "13"] serde[deserialize_with = "null_is_empty"];
        /// Which `metadata.generation` it is about (KEP-5067).
        observed_generation: Option<i64> = [int64, optional, tag = "17"];
    }
}

message! {
    /// One condition of a pod.
    PodCondition {
        /// Which one.
        r#type: Option<String> = [string, optional, tag = "1"];
        /// `True`, `False` or `Unknown`.
        status: Option<String> = [string, optional, tag = "2"];
        /// When the status last changed.
        last_transition_time: Option<Time> = [message, optional, tag = "4"];
        /// One word.
        reason: Option<String> = [string, optional, tag = "5"];
    }
}

message! {
    /// A report on one container.
    ContainerStatus {
        /// Its state now.
        state: Option<ContainerState> = [message, optional, tag = "2"];
    }
}

message! {
    /// `waiting`, `running` or `terminated`; only one of them is read.
    ContainerState {
        /// Set while the container runs.
        running: Option<Presence> = [message, optional, tag = "2"];
    }
}

message! {
    /// A node.
    Node {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// What was asked for.
        spec: Option<NodeSpec> = [message, optional, tag = "2"];
        /// What was reported.
        status: Option<NodeStatus> = [message, optional, tag = "3"];
    }
}

message! {
    /// `node.spec`.
    NodeSpec {
        /// Which machine it is to its provider.
        provider_id: Option<String> = [string, optional, tag = "3"] serde[rename = "providerID"];
        /// The scheduler takes it for no new pod: it is cordoned.
        unschedulable: bool = [bool, tag = "4"];
        /// Its taints.
        taints: Vec<Taint> = [message, repeated, tag = "5"] serde[deserialize_with = "null_is_empty"];
    }
}

message! {
    /// A taint.
    Taint {
        /// Its key.
        key: Option<String> = [string, optional, tag = "1"];
        /// Its value.
        value: Option<String> = [string, optional, tag = "2"];
        /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
        effect: Option<String> = [string, optional, tag = "3"];
        /// When it was added, by the clock of whoever did, if that says so.
        time_added: Option<Time> = [message, optional, tag = "4"];
    }
}

message! {
    /// `node.status`.
    NodeStatus {
        /// Its conditions.
        conditions: Vec<NodeCondition> = [message, repeated, tag = "4"] serde[deserialize_with = "null_is_empty"];
        /// Where it is reached.
        addresses: Vec<NodeAddress> = [message, repeated, tag = "5"] serde[deserialize_with = "null_is_empty"];
        /// At which port its kubelet listens.
        daemon_endpoints: Option<NodeDaemonEndpoints> = [message, optional, tag = "6"];
        /// What its machine and its boot are.
        node_info: Option<NodeInfo> = [message, optional, tag = "7"];
        /// The attachable volumes that its kubelet has mounted or is about to, by their unique names.
        volumes_in_use: Vec<String> = [string, repeated, tag = "9"] serde[deserialize_with = "null_is_empty"];
    }
}

message! {
    /// One address of a node.
    NodeAddress {
        /// `InternalIP`, `ExternalIP`, `Hostname` …
        r#type: Option<String> = [string, optional, tag = "1"];
        /// The address.
        address: Option<String> = [string, optional, tag = "2"];
    }
}

message! {
    /// `node.status.daemonEndpoints`.
    NodeDaemonEndpoints {
        /// That of the kubelet.
        kubelet_endpoint: Option<DaemonEndpoint> = [message, optional, tag = "1"];
    }
}

message! {
    /// Where a daemon listens.
    DaemonEndpoint {
        /// The port.
        port: Option<i32> = [int32, optional, tag = "1"] serde[rename = "Port"];
    }
}

message! {
    /// `node.status.nodeInfo`.
    NodeInfo {
        /// The machine's own number, by its firmware.
        system_uuid: Option<String> = [string, optional, tag = "2"] serde[rename = "systemUUID"];
        /// It changes whenever the machine boots.
        boot_id: Option<String> = [string, optional, tag = "3"] serde[rename = "bootID"];
    }
}

message! {
    /// One condition of a node.
    NodeCondition {
        /// Which one.
        r#type: Option<String> = [string, optional, tag = "1"];
        /// `True`, `False` or `Unknown`.
        status: Option<String> = [string, optional, tag = "2"];
        /// When its kubelet last looked, by the kubelet's clock.
        last_heartbeat_time: Option<Time> = [message, optional, tag = "3"];
        /// When the status last changed, by the clock of whoever changed it.
        last_transition_time: Option<Time> = [message, optional, tag = "4"];
    }
}

message! {
    /// A Lease.
    Lease {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// Who holds it since when.
        spec: Option<LeaseSpec> = [message, optional, tag = "2"];
    }
}

message! {
    /// `lease.spec`.
    LeaseSpec {
        /// Who holds it; empty when released.
        holder_identity: Option<String> = [string, optional, tag = "1"];
        /// For how long after the last renewal nobody else may take it.
        lease_duration_seconds: Option<i32> = [int32, optional, tag = "2"];
        /// When the holder took it, by the holder's clock.
        acquire_time: Option<Time> = [message, optional, tag = "3"];
        /// When the holder last renewed it, by the holder's clock.
        renew_time: Option<Time> = [message, optional, tag = "4"];
        /// How often it changed hands.
        lease_transitions: Option<i32> = [int32, optional, tag = "5"];
    }
}

message! {
    /// The API server's word on a request that failed.
    Status {
        /// For people.
        message: Option<String> = [string, optional, tag = "3"];
        /// For programs.
        reason: Option<String> = [string, optional, tag = "4"];
        /// More for programs.
        details: Option<StatusDetails> = [message, optional, tag = "5"];
        /// The HTTP code.
        code: Option<i32> = [int32, optional, tag = "6"];
    }
}

message! {
    /// `status.details`.
    StatusDetails {
        /// What exactly was wrong.
        causes: Vec<StatusCause> = [message, repeated, tag = "4"] serde[deserialize_with = "null_is_empty"];
        /// When to come back, in seconds.
        retry_after_seconds: Option<i32> = [int32, optional, tag = "5"];
    }
}

message! {
    /// One thing that was wrong.
    StatusCause {
        /// For programs.
        reason: Option<String> = [string, optional, tag = "1"];
        /// For people.
        message: Option<String> = [string, optional, tag = "2"];
    }
}

/// Lists may be `null` in JSON where Go had a nil slice.
pub(super) fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A JSON object of which only the keys are kept.
mod map_keys {
    use super::{Deserializer, IgnoredAny, MapAccess, MapKey, SerializeMap, Serializer, Visitor};

    pub(super) fn serialize<S: Serializer>(keys: &[MapKey], serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(keys.len()))?;
        for entry in keys {
            map.serialize_entry(&entry.key, "")?;
        }
        map.end()
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<MapKey>, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Vec<MapKey>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object or null")
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Vec::new())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, IgnoredAny)) = map.next_entry()? {
                    keys.push(MapKey { key });
                }
                Ok(keys)
            }
        }
        deserializer.deserialize_any(Keys)
    }
}
