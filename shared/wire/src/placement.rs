//! What it takes to say where a pod could go: asked for by people, once in a while.
//! Not part of the messages that the cache reads of every pod.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::message::{message, null_is_empty, null_is_empty_map};
use super::messages::{Taint, Toleration};
use super::meta::{ObjectMeta, Presence};

message! {
    /// A pod as a scheduler sees it.
    PodNeeds {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// What it asks for.
        spec: Option<PodNeedsSpec> = [message, optional, tag = "2"];
    }
}

message! {
    /// `pod.spec`, as far as it says where the pod may go and what is lost with it.
    PodNeedsSpec {
        /// Its volumes.
        volumes: Vec<Volume> = [message, repeated, tag = "1"] serde[deserialize_with = "null_is_empty"];
        /// Its containers.
        containers: Vec<Container> = [message, repeated, tag = "2"] serde[deserialize_with = "null_is_empty"];
        /// How long its processes may take to end.
        termination_grace_period_seconds: Option<i64> = [int64, optional, tag = "4"];
        /// Labels that its node must have.
        node_selector: BTreeMap<String, String> = [btree_map = "string, string", tag = "7"] serde[deserialize_with = "null_is_empty_map"];
        /// Rules about nodes and other pods.
        affinity: Option<Presence> = [message, optional, tag = "18"];
        /// Containers that run before the others, or beside them.
        init_containers: Vec<Container> = [message, repeated, tag = "20"] serde[deserialize_with = "null_is_empty"];
        /// Taints that it bears.
        tolerations: Vec<Toleration> = [message, repeated, tag = "22"] serde[deserialize_with = "null_is_empty"];
        /// What its runtime takes.
        overhead: BTreeMap<String, Quantity> = [btree_map = "string, message", tag = "32"] serde[deserialize_with = "null_is_empty_map"];
        /// Rules about its likes.
        topology_spread_constraints: Vec<Presence> = [message, repeated, tag = "33"] serde[deserialize_with = "null_is_empty"];
        /// It is scheduled with others, as a gang.
        scheduling_group: Option<Presence> = [message, optional, tag = "43"];
        /// Who is asked before it is evicted by an EvictionRequest.
        eviction_responders: Vec<Responder> = [message, repeated, tag = "44"] serde[deserialize_with = "null_is_empty"];
    }
}

message! {
    /// One of `spec.evictionResponders`.
    Responder {
        /// Who.
        name: Option<String> = [string, optional, tag = "1"];
        /// The highest is asked first.
        priority: Option<i32> = [int32, optional, tag = "2"];
    }
}

message! {
    /// A container.
    Container {
        /// What it asks for.
        resources: Option<Resources> = [message, optional, tag = "8"];
        /// `Always` on an init container: it runs beside the others.
        restart_policy: Option<String> = [string, optional, tag = "24"];
    }
}

message! {
    /// `container.resources`.
    Resources {
        /// What must be free on its node.
        requests: BTreeMap<String, Quantity> = [btree_map = "string, message", tag = "2"] serde[deserialize_with = "null_is_empty_map"];
    }
}

message! {
    /// A volume. In JSON its source stands beside its name.
    Volume {
        /// What it is made of.
        source: Option<VolumeSource> = [message, optional, tag = "2"] serde[flatten];
    }
}

message! {
    /// The sources that matter here.
    VolumeSource {
        /// Lives and dies with the pod.
        empty_dir: Option<Presence> = [message, optional, tag = "2"];
        /// Outlives the pod, perhaps in one zone only.
        persistent_volume_claim: Option<Presence> = [message, optional, tag = "10"];
    }
}

message! {
    /// A node as a scheduler sees it.
    NodeAllocatable {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// What was asked for.
        spec: Option<NodeAllocatableSpec> = [message, optional, tag = "2"];
        /// What was reported.
        status: Option<NodeAllocatableStatus> = [message, optional, tag = "3"];
    }
}

message! {
    /// `node.spec`.
    NodeAllocatableSpec {
        /// It is cordoned.
        unschedulable: bool = [bool, tag = "4"];
        /// Its taints.
        taints: Vec<Taint> = [message, repeated, tag = "5"] serde[deserialize_with = "null_is_empty"];
    }
}

message! {
    /// `node.status`.
    NodeAllocatableStatus {
        /// What pods may ask for in all.
        allocatable: BTreeMap<String, Quantity> = [btree_map = "string, message", tag = "2"] serde[deserialize_with = "null_is_empty_map"];
    }
}

/// An amount as people write it: a message of its own as protobuf, text as JSON.
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
    fn a_pod_says_the_same_in_json_and_in_protobuf() {
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
        assert!(spec.affinity.is_some() && spec.topology_spread_constraints.len() == 1);
        assert_eq!(
            (spec.scheduling_group.is_some(), spec.eviction_responders[0].priority),
            (true, Some(10_000))
        );
    }

    #[test]
    fn a_node_says_the_same_in_json_and_in_protobuf() {
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
