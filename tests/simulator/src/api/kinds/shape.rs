//! Decoding, as the API server's Go types do it: unknown fields are dropped,
//! empty optional fields are not stored, times lose what they cannot hold.
//!
//! The Go types are those of `k8s-openapi`, which are generated from the same
//! specification. What that one does not say is which optional fields are
//! pointers in Go and so can be empty and yet there: those are listed here.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Kind, Rules};
use crate::api::fields::at;

/// Strings that are pointers in Go.
const POINTER_STRINGS: [&str; 6] =
    ["holderIdentity", "preferredHolder", "strategy", "storageClassName", "persistentVolumeName", "apiGroup"];

/// Numbers that are no pointers in Go, and optional: zero is the same as missing.
const PLAIN_NUMBERS: [&str; 13] = [
    "observedGeneration",
    "generation",
    "count",
    "readyReplicas",
    "fullyLabeledReplicas",
    "currentReplicas",
    "updatedReplicas",
    "minReadySeconds",
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "hostPort",
    "nodePort",
];

/// Truth values that are no pointers in Go, and optional.
const PLAIN_BOOLS: [&str; 8] =
    ["unschedulable", "hostNetwork", "hostPID", "hostIPC", "readOnly", "stdin", "stdinOnce", "tty"];

/// Objects that are maps in Go: empty is the same as missing. Others are structs
/// or pointers to them, which show even when empty.
const MAPS: [&str; 12] = [
    "labels",
    "annotations",
    "nodeSelector",
    "matchLabels",
    "capacity",
    "allocatable",
    "limits",
    "requests",
    "disruptedPods",
    "attachmentMetadata",
    "volumeAttributes",
    "allocatedResources",
];

/// Brings an object into the form in which it is stored.
pub(crate) fn canonical(kind: &Kind, object: Value) -> Result<Value, serde_json::Error> {
    check_micro_times(kind, &object)?;
    let mut value = match kind.rules {
        Rules::Pod => {
            let mut object = object;
            let responders = super::lifecycle::take_responders(&mut object);
            through::<Pod>(object).map(|mut pod| {
                super::lifecycle::put_responders(&mut pod, responders);
                pod
            })
        }
        Rules::Node => through::<Node>(object),
        Rules::Lease => through::<Lease>(object),
        Rules::Event => through::<Event>(object),
        Rules::Namespace => through::<Namespace>(object),
        Rules::Budget => through::<PodDisruptionBudget>(object),
        Rules::Volume => through::<PersistentVolume>(object),
        Rules::Claim => through::<PersistentVolumeClaim>(object),
        Rules::Attachment => through::<VolumeAttachment>(object),
        Rules::StatefulSet => through::<StatefulSet>(object),
        Rules::ReplicaSet => through::<ReplicaSet>(object),
        Rules::Deployment => through::<Deployment>(object),
        Rules::Replication => through::<ReplicationController>(object),
        Rules::EvictionRequest | Rules::Eviction => {
            let mut object = object;
            drop_empty(&mut object);
            super::lifecycle::decode(kind.rules, object)
        }
        Rules::Custom => custom(kind, object),
    }?;
    let counts: &[&str] = match kind.rules {
        Rules::Deployment => &["replicas", "availableReplicas", "unavailableReplicas"],
        Rules::ReplicaSet | Rules::Replication => &["availableReplicas"],
        _ => &[],
    };
    if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut) {
        // Of these kinds; others show them when they are zero.
        status.retain(|key, count| !(counts.contains(&key.as_str()) && count.as_i64() == Some(0)));
    }
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        // Who owns which field is not kept: nothing of ours reads it.
        metadata.remove("managedFields");
        metadata.remove("selfLink");
    }
    Ok(value)
}

/// Times of microseconds must be written with just six digits of them. Rust's
/// parser would take any number.
fn check_micro_times(kind: &Kind, object: &Value) -> Result<(), serde_json::Error> {
    let times: [&[&str]; 2] = match kind.rules {
        Rules::Lease => [&["spec", "renewTime"], &["spec", "acquireTime"]],
        Rules::Event => [&["eventTime"], &["series", "lastObservedTime"]],
        _ => return Ok(()),
    };
    for path in times {
        let Some(text) = at(object, path).and_then(Value::as_str) else { continue };
        let fraction = text.split_once('.').map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).count());
        if fraction != Some(6) {
            return Err(serde::de::Error::custom(format!(
                "parsing time {text:?} as \"2006-01-02T15:04:05.000000Z07:00\""
            )));
        }
    }
    Ok(())
}

fn through<T: Serialize + DeserializeOwned>(mut object: Value) -> Result<Value, serde_json::Error> {
    drop_empty(&mut object);
    serde_json::to_value(serde_json::from_value::<T>(object)?)
}

fn custom(kind: &Kind, mut object: Value) -> Result<Value, serde_json::Error> {
    if let Some(schema) = &kind.schema {
        super::schema::complete(schema, &mut object);
    }
    if let Some(metadata) = object.get_mut("metadata") {
        *metadata = through::<ObjectMeta>(metadata.take())?;
    }
    Ok(object)
}

fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, field| {
                match field.as_object_mut().filter(|_| MAPS.contains(&key.as_str())) {
                    // What stands in a map is a value even when it is empty: labels often are.
                    Some(entries) => entries.retain(|_, entry| !entry.is_null()),
                    None => drop_empty(field),
                }
                !is_empty(key, field)
            });
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

fn is_empty(key: &str, field: &Value) -> bool {
    match field {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty() && !POINTER_STRINGS.contains(&key),
        Value::Number(number) => number.as_i64() == Some(0) && PLAIN_NUMBERS.contains(&key),
        Value::Bool(truth) => !truth && PLAIN_BOOLS.contains(&key),
        Value::Object(map) => map.is_empty() && MAPS.contains(&key),
    }
}
