//! The fields that decide where a pod could be scheduled: read on an operator's request only. They are not part of
//! the messages that the cache reads of every pod.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::message::{messages, null_is_empty};
use super::messages::{EvictionResponder, Taint, Toleration};
use super::meta::{ObjectMeta, Presence};

messages! {
    /// The fields of a pod that a scheduler uses.
    PodNeeds {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// Its spec.
        spec: Option<PodNeedsSpec> = [message, optional, tag = "2"];
    }

    /// `pod.spec`: the fields that restrict where the pod may run, and its data.
    PodNeedsSpec {
        /// Its volumes.
        volumes: Vec<Volume> = [message, repeated, tag = "1"] serde[deserialize_with = "null_is_empty"];
        /// Its containers.
        containers: Vec<Container> = [message, repeated, tag = "2"] serde[deserialize_with = "null_is_empty"];
        /// The grace period of its processes.
        termination_grace_period_seconds: Option<i64> = [int64, optional, tag = "4"];
        /// Labels that its node must have.
        node_selector: BTreeMap<String, String> = [btree_map = "string, string", tag = "7"] serde[deserialize_with = "null_is_empty"];
        /// Set if it has rules about nodes and other pods.
        affinity: Option<Presence> = [message, optional, tag = "18"];
        /// Containers that run before the others, or beside them.
        init_containers: Vec<Container> = [message, repeated, tag = "20"] serde[deserialize_with = "null_is_empty"];
        /// Taints that it tolerates.
        tolerations: Vec<Toleration> = [message, repeated, tag = "22"] serde[deserialize_with = "null_is_empty"];
        /// The resources that its runtime needs.
        overhead: BTreeMap<String, Quantity> = [btree_map = "string, message", tag = "32"] serde[deserialize_with = "null_is_empty"];
        /// Rules about the spread of similar pods.
        topology_spread_constraints: Vec<Presence> = [message, repeated, tag = "33"] serde[deserialize_with = "null_is_empty"];
        /// The resources of the pod as a whole.
        resources: Option<Resources> = [message, optional, tag = "40"];
        /// Set if it is scheduled as part of a group.
        scheduling_group: Option<Presence> = [message, optional, tag = "43"];
        /// The responders of an EvictionRequest before the API server's own evictor.
        eviction_responders: Vec<EvictionResponder> = [message, repeated, tag = "44"] serde[deserialize_with = "null_is_empty"];
    }

    /// A container.
    Container {
        /// Its resources.
        resources: Option<Resources> = [message, optional, tag = "8"];
        /// `Always` on an init container: it runs beside the others.
        restart_policy: Option<String> = [string, optional, tag = "24"];
    }

    /// `resources` of a container or a pod.
    Resources {
        /// The resources that must be free on its node.
        requests: BTreeMap<String, Quantity> = [btree_map = "string, message", tag = "2"] serde[deserialize_with = "null_is_empty"];
    }

    /// A volume. In JSON its source is on the level of its name.
    Volume {
        /// Its source.
        source: Option<VolumeSource> = [message, optional, tag = "2"] serde[flatten];
    }

    /// The sources that matter for placement.
    VolumeSource {
        /// Deleted with the pod.
        empty_dir: Option<Presence> = [message, optional, tag = "2"];
        /// Kept after the pod, perhaps in one zone only.
        persistent_volume_claim: Option<Presence> = [message, optional, tag = "10"];
    }

    /// The fields of a node that a scheduler uses.
    NodeAllocatable {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// The desired state.
        spec: Option<NodeAllocatableSpec> = [message, optional, tag = "2"];
        /// The observed state.
        status: Option<NodeAllocatableStatus> = [message, optional, tag = "3"];
    }

    /// `node.spec`.
    NodeAllocatableSpec {
        /// Whether it is cordoned.
        unschedulable: bool = [bool, tag = "4"];
        /// Its taints.
        taints: Vec<Taint> = [message, repeated, tag = "5"] serde[deserialize_with = "null_is_empty"];
    }

    /// `node.status`.
    NodeAllocatableStatus {
        /// The resources that all pods together may request.
        allocatable: BTreeMap<String, Quantity> = [btree_map = "string, message", tag = "2"] serde[deserialize_with = "null_is_empty"];
    }
}

/// A quantity: a message in protobuf, text in JSON.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Quantity {
    /// Such as `500m` or `2Gi`.
    #[prost(string, optional, tag = "1")]
    pub text: Option<String>,
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text.as_deref().unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a quantity")]
        enum Either {
            Text(String),
            Number(serde_json::Number),
        }
        Ok(match Either::deserialize(deserializer)? {
            Either::Text(text) => Self { text: Some(text) },
            Either::Number(number) => Self { text: Some(number.to_string()) },
        })
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_needs_of_a_pod_decode_the_same_from_json_and_protobuf() {
        let object = json!({
            "metadata": { "name": "a" },
            "spec": {
                "volumes": [{ "name": "scratch", "emptyDir": {} }, { "name": "data", "persistentVolumeClaim": { "claimName": "c" } }, { "name": "x", "configMap": {} }],
                "containers": [{ "name": "main", "resources": { "requests": { "cpu": "500m", "memory": "1Gi", "n": 1 }, "limits": {} } }],
                "initContainers": [{ "name": "side", "restartPolicy": "Always" }],
                "terminationGracePeriodSeconds": 60,
                "nodeSelector": { "disk": "ssd" },
                "affinity": { "nodeAffinity": {} },
                "tolerations": [{ "key": "k", "operator": "Exists", "effect": "NoSchedule" }],
                "overhead": { "cpu": "1" },
                "topologySpreadConstraints": [{ "maxSkew": 1 }],
                "resources": { "requests": { "cpu": "6" } },
                "schedulingGroup": { "podGroupName": "g" },
                "evictionResponders": [{ "name": "example.com/move", "priority": 10000 }],
            },
        });
        let read: PodNeeds = serde_json::from_value(object).unwrap();
        assert_eq!(PodNeeds::decode(read.encode_to_vec().as_slice()).unwrap(), read);
        let spec = read.spec.unwrap();
        let empty = |volume: &Volume| volume.source.as_ref().is_some_and(|source| source.empty_dir.is_some());
        assert_eq!(spec.volumes.iter().map(empty).collect::<Vec<_>>(), [true, false, false]);
        let requests = &spec.containers[0].resources.as_ref().unwrap().requests;
        let texts: Vec<_> = requests.values().map(|one| one.text.as_deref().unwrap()).collect();
        assert_eq!(texts, ["500m", "1Gi", "1"]);
        assert_eq!(spec.resources.unwrap().requests["cpu"].text.as_deref(), Some("6"));
        assert!(spec.affinity.is_some() && spec.topology_spread_constraints.len() == 1);
        assert_eq!((spec.scheduling_group.is_some(), spec.eviction_responders[0].priority), (true, Some(10_000)));
    }

    #[test]
    fn the_allocatable_of_a_node_decodes_the_same_from_json_and_protobuf() {
        let object = json!({
            "metadata": { "name": "n", "labels": { "disk": "ssd" } },
            "spec": { "unschedulable": true, "taints": [{ "key": "k", "value": "v", "effect": "NoSchedule" }] },
            "status": { "allocatable": { "cpu": "8", "memory": "32Gi", "pods": "110" } },
        });
        let read: NodeAllocatable = serde_json::from_value(object).unwrap();
        assert_eq!(NodeAllocatable::decode(read.encode_to_vec().as_slice()).unwrap(), read);
        assert_eq!(read.status.unwrap().allocatable["pods"].text.as_deref(), Some("110"));
        assert_eq!(read.spec.unwrap().taints[0].effect.as_deref(), Some("NoSchedule"));
    }
}
