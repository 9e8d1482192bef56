//! Recorded responses of a real API server for objects in which every declared field is set (`testdata/wire`): a
//! wrong field number or JSON name shows as a difference between the two encodings, or as a blank field.

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::*;

/// The values of an object, and the JSON pointers of its blank fields: absent, empty, zero or false, which Go writes
/// into protobuf and leaves out of JSON.
#[derive(Debug, Default, PartialEq)]
pub(super) struct DecodedFields {
    values: Vec<(String, String)>,
    pub(super) blank: Vec<String>,
}

impl DecodedFields {
    pub(super) fn collect(&mut self, value: &Value, at: &str) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    self.collect(value, &format!("{at}/{key}"));
                }
            }
            Value::Array(items) if !items.is_empty() => {
                for (number, value) in items.iter().enumerate() {
                    self.collect(value, &format!("{at}/{number}"));
                }
            }
            Value::Null | Value::Array(_) | Value::Bool(false) => self.blank.push(at.to_owned()),
            Value::String(text) if text.is_empty() => self.blank.push(at.to_owned()),
            Value::Number(number) if number.as_i64() == Some(0) => self.blank.push(at.to_owned()),
            Value::String(_) | Value::Number(_) | Value::Bool(true) => {
                self.values.push((at.to_owned(), value.to_string()));
            }
        }
    }
}

/// Decodes both forms of a recorded object, and lists its blank fields.
fn recorded<T: Decode + Serialize>(protobuf: &'static [u8], json: &'static [u8]) -> (T, Vec<String>) {
    let decode = |encoding, bytes| Raw::from_body(encoding, Bytes::from_static(bytes)).unwrap().decode::<T>().unwrap();
    let [protobuf, json] = [decode(Encoding::Protobuf, protobuf), decode(Encoding::Json, json)];
    let decoded_fields = |read: &T| {
        let mut fields = DecodedFields::default();
        fields.collect(&serde_json::to_value(read).unwrap(), "");
        fields
    };
    let mut all = decoded_fields(&protobuf);
    assert_eq!(all, decoded_fields(&json));
    // Of annotations only the keys are kept.
    all.blank.retain(|at| !at.starts_with("/metadata/annotations/"));
    (protobuf, all.blank)
}

macro_rules! recorded {
    ($kind:ty, $name:literal) => {
        recorded::<$kind>(
            include_bytes!(concat!("../../testdata/wire/", $name, ".pb")),
            include_bytes!(concat!("../../testdata/wire/", $name, ".json")),
        )
    };
}

/// The blank fields of an object that is not deleted.
const NOT_DELETED: &str = "/metadata/deletionGracePeriodSeconds /metadata/deletionTimestamp";

/// The blank fields of each recorded object. Every declared field is set in at least one object.
fn blanks() -> [(&'static str, String); 19] {
    let (not_deleted, no_place) = (NOT_DELETED, "/metadata/generation /metadata/namespace");
    let sources = "/spec/volumes/0/ephemeral /spec/volumes/1/persistentVolumeClaim /spec/volumes/2/ephemeral \
        /spec/volumes/2/persistentVolumeClaim";
    // The two that the API server adds for taints of lost nodes.
    let tolerations = "/spec/tolerations/1/value /spec/tolerations/2/value";
    [
        (
            "pod",
            format!(
                "/spec/containers/0/restartPolicy /spec/ephemeralContainers /spec/evictionResponders /spec/schedulingGates \
                 /spec/schedulingGroup {tolerations} {sources} /status/containerStatuses/0/state/terminated /status/ephemeralContainerStatuses/0/state/terminated \
                 /status/initContainerStatuses/0/state/terminated"
            ),
        ),
        (
            "gated",
            format!(
                "{not_deleted} /spec/containers/0/restartPolicy /spec/ephemeralContainers /spec/evictionResponders /spec/nodeName \
                 /spec/schedulingGroup {tolerations} {sources} /status/containerStatuses \
                 /status/ephemeralContainerStatuses /status/initContainerStatuses /status/observedGeneration /status/reason"
            ),
        ),
        (
            "busy",
            format!(
                "{not_deleted} /metadata/finalizers /metadata/ownerReferences /spec/containers/0/restartPolicy \
                 /spec/ephemeralContainers/0/restartPolicy /spec/evictionResponders /spec/initContainers /spec/schedulingGates \
                 /spec/schedulingGroup /spec/tolerations/0/value /spec/tolerations/1/value /spec/volumes /status/conditions/0/reason \
                 /status/containerStatuses/0/state/running /status/ephemeralContainerStatuses \
                 /status/initContainerStatuses /status/observedGeneration /status/reason"
            ),
        ),
        (
            "pod, to a scheduler",
            format!(
                "/spec/containers/0/restartPolicy /spec/evictionResponders /spec/resources /spec/schedulingGroup {tolerations} \
                 /spec/volumes/0/emptyDir /spec/volumes/1/emptyDir /spec/volumes/1/persistentVolumeClaim /spec/volumes/2/persistentVolumeClaim"
            ),
        ),
        ("node", format!("/metadata/deletionGracePeriodSeconds {no_place}")),
        ("node, to a scheduler", format!("/metadata/deletionGracePeriodSeconds {no_place}")),
        ("lease", format!("{not_deleted} /metadata/generation")),
        ("budget", format!("{not_deleted} /spec/maxUnavailable")),
        (
            "most",
            format!(
                "{not_deleted} /spec/minAvailable /spec/selector/matchExpressions /spec/unhealthyPodEvictionPolicy"
            ),
        ),
        ("statefulset", not_deleted.to_owned()),
        ("deployment", not_deleted.to_owned()),
        ("replicaset", not_deleted.to_owned()),
        ("replicationcontroller", not_deleted.to_owned()),
        ("volume", format!("{not_deleted} {no_place}")),
        ("claim", format!("{not_deleted} /metadata/generation")),
        ("attachment", format!("{not_deleted} {no_place}")),
        ("csidriver", String::new()),
        ("status", String::new()),
        ("resources", String::new()),
    ]
}

#[test]
fn recorded_objects_decode_the_same_from_both_encodings_with_every_field() {
    let seen = [
        ("pod", recorded!(Pod, "pod").1),
        ("gated", recorded!(Pod, "gated").1),
        ("busy", recorded!(Pod, "busy").1),
        ("pod, to a scheduler", recorded!(PodNeeds, "pod").1),
        ("node", recorded!(Node, "node").1),
        ("node, to a scheduler", recorded!(NodeAllocatable, "node").1),
        ("lease", recorded!(Lease, "lease").1),
        ("budget", recorded!(Budget, "budget").1),
        ("most", recorded!(Budget, "most").1),
        ("statefulset", recorded!(Workload, "statefulset").1),
        ("deployment", recorded!(Workload, "deployment").1),
        ("replicaset", recorded!(Workload, "replicaset").1),
        ("replicationcontroller", recorded!(Workload, "replicationcontroller").1),
        ("volume", recorded!(PersistentVolume, "volume").1),
        ("claim", recorded!(PersistentVolumeClaim, "claim").1),
        ("attachment", recorded!(VolumeAttachment, "attachment").1),
        ("csidriver", recorded!(CsiDriver, "csidriver").1),
        ("status", recorded!(Status, "status").1),
        ("resources", recorded!(ApiResourceList, "resources").1),
    ];
    let seen = seen.map(|(name, blanks)| (name, blanks.join(" ")));
    assert_eq!(seen, blanks());
}

/// Recorded from an API server with the gates EvictionRequestAPI and GenericWorkload: pods without a status, and both
/// kinds.
#[test]
fn recorded_eviction_objects_decode_the_same_from_both_encodings() {
    let new_pod = |group: &str, responders: &str| {
        format!(
            "{NOT_DELETED} /metadata/finalizers /metadata/ownerReferences /spec/containers/0/restartPolicy /spec/ephemeralContainers \
             {responders}/spec/initContainers /spec/nodeName /spec/schedulingGates {group}/spec/tolerations/0/value \
             /spec/tolerations/1/value /spec/volumes /status/conditions /status/containerStatuses \
             /status/ephemeralContainerStatuses /status/initContainerStatuses /status/observedGeneration /status/reason"
        )
    };
    let deleted = "/metadata/deletionGracePeriodSeconds".to_owned();
    for (seen, blank) in [
        (recorded!(Pod, "evictee").1, new_pod("/spec/schedulingGroup ", "")),
        (recorded!(Pod, "gang").1, new_pod("", "/spec/evictionResponders ")),
        (recorded!(EvictionRequest, "evictionrequest").1, deleted.clone()),
        (recorded!(Eviction, "eviction").1, deleted),
    ] {
        assert_eq!(seen.join(" "), blank);
    }
}

#[test]
fn statuses_of_init_and_debug_containers_are_decoded_separately() {
    let status = recorded!(Pod, "pod").0.status.unwrap();
    let PodStatus { container_statuses, init_container_statuses, ephemeral_container_statuses, .. } = &status;
    for reports in [container_statuses, init_container_statuses, ephemeral_container_statuses] {
        assert!(reports[0].state.as_ref().is_some_and(|state| state.running.is_some()), "{status:?}");
    }
    let spec = recorded!(PodNeeds, "pod").0.spec.unwrap();
    assert_eq!(spec.init_containers[0].restart_policy.as_deref(), Some("Always"), "a sidecar");
}
