//! `metadata`, and messages of which only the presence matters.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Time;
use super::message::{free_text, messages, null_is_empty};

messages! {
    /// `metadata`, without managed fields.
    ObjectMeta {
        /// The name.
        name: Option<String> = [string, optional, tag = "1"];
        /// The namespace; absent for cluster-scoped kinds.
        namespace: Option<String> = [string, optional, tag = "3"];
        /// The UID.
        uid: Option<String> = [string, optional, tag = "5"];
        /// The resourceVersion.
        resource_version: Option<String> = [string, optional, tag = "6"];
        /// The generation of the spec.
        generation: Option<i64> = [int64, optional, tag = "7"];
        /// When the API server created it.
        creation_timestamp: Option<Time> = [message, optional, tag = "8"];
        /// When its grace period ends, if it was deleted.
        deletion_timestamp: Option<Time> = [message, optional, tag = "9"];
        /// The grace period in effect, in seconds.
        deletion_grace_period_seconds: Option<i64> = [int64, optional, tag = "10"];
        /// The labels.
        labels: BTreeMap<String, String> = [btree_map = "string, string", tag = "11"] serde[deserialize_with = "null_is_empty"];
        /// The keys of the annotations; the values are not read.
        annotations: Vec<MapKey> = [message, repeated, tag = "12"] serde[with = "map_keys"];
        /// The owners.
        owner_references: Vec<OwnerReference> = [message, repeated, tag = "13"] serde[deserialize_with = "null_is_empty"];
        /// The finalizers, which keep the object after its deletion.
        finalizers: Vec<String> = [string, repeated, tag = "14"] serde[deserialize_with = "null_is_empty"];
    }

    /// An owner reference.
    OwnerReference {
        /// The kind.
        kind: Vec<u8> = [bytes = "vec", tag = "1"] serde[with = "free_text"];
        /// The name, in the same namespace.
        name: Vec<u8> = [bytes = "vec", tag = "3"] serde[with = "free_text"];
        /// The UID.
        uid: Vec<u8> = [bytes = "vec", tag = "4"] serde[with = "free_text"];
        /// Group and version.
        api_version: Vec<u8> = [bytes = "vec", tag = "5"] serde[with = "free_text"];
        /// Whether it is the managing owner.
        controller: Option<bool> = [bool, optional, tag = "6"];
    }

    /// The metadata of any object, to identify it when the rest cannot be decoded.
    OnlyMeta {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
    }
}

/// The key of a map entry. In protobuf a map is a list of entries, so an undeclared value (tag 2) is skipped.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct MapKey {
    /// The key.
    #[prost(string, tag = "1")]
    pub key: String,
}

/// A message of which only the presence matters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message, Serialize, Deserialize)]
pub struct Presence {}

/// `metadata` of a list.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListMeta {
    #[prost(string, tag = "2")]
    pub(super) resource_version: String,
    #[prost(string, tag = "3")]
    pub(super) r#continue: String,
}

/// A JSON object of which only the keys are kept.
mod map_keys {
    use super::{BTreeMap, Deserializer, IgnoredAny, MapKey, SerializeMap, Serializer, null_is_empty};

    pub(super) fn serialize<S: Serializer>(keys: &[MapKey], serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(keys.len()))?;
        for entry in keys {
            map.serialize_entry(&entry.key, "")?;
        }
        map.end()
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<MapKey>, D::Error> {
        let map: BTreeMap<String, IgnoredAny> = null_is_empty(deserializer)?;
        Ok(map.into_keys().map(|key| MapKey { key }).collect())
    }
}
