//! The objects in sequences: small, but each with the special features of its kind.

use serde_json::{Value, json};

use super::own::Own;
use crate::chance::Draws;

/// The kinds of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Pod,
    Node,
    Lease,
    Budget,
    Volume,
    Claim,
    Attachment,
    StatefulSet,
    ReplicaSet,
    Deployment,
    Replication,
    Event,
    Ours(Own),
}

impl Target {
    /// Each kind as often as it matters.
    pub(super) const WEIGHTED: [Self; 27] = [
        Self::Pod,
        Self::Pod,
        Self::Pod,
        Self::Pod,
        Self::Pod,
        Self::Pod,
        Self::Pod,
        Self::Pod,
        Self::Node,
        Self::Node,
        Self::Lease,
        Self::Lease,
        Self::Budget,
        Self::Budget,
        Self::Volume,
        Self::Claim,
        Self::Attachment,
        Self::StatefulSet,
        Self::ReplicaSet,
        Self::Deployment,
        Self::Replication,
        Self::Event,
        Self::Ours(Own::Device),
        Self::Ours(Own::Policy),
        Self::Ours(Own::Fence),
        Self::Ours(Own::Evidence),
        Self::Ours(Own::Remediation),
    ];

    /// The kinds that pod-safety caches, besides pods, nodes and Leases.
    pub(super) const FOLLOWED: [Self; 13] = [
        Self::Budget,
        Self::Volume,
        Self::Claim,
        Self::Attachment,
        Self::StatefulSet,
        Self::ReplicaSet,
        Self::Deployment,
        Self::Replication,
        Self::Ours(Own::Device),
        Self::Ours(Own::Policy),
        Self::Ours(Own::Fence),
        Self::Ours(Own::Evidence),
        Self::Ours(Own::Remediation),
    ];

    /// Whether it has a scale: a desired number of pods.
    pub(super) const fn has_scale(self) -> bool {
        matches!(self, Self::StatefulSet | Self::ReplicaSet | Self::Deployment | Self::Replication)
    }

    /// The path of the collection in the whole cluster.
    pub(super) fn everywhere(self) -> String {
        self.collection("").replace("/namespaces/", "")
    }

    pub(super) const fn namespaced(self) -> bool {
        match self {
            Self::Node | Self::Volume | Self::Attachment => false,
            Self::Ours(own) => own.namespaced(),
            _ => true,
        }
    }

    pub(super) const fn has_status(self) -> bool {
        !matches!(self, Self::Lease | Self::Event)
    }

    /// The path of the collection, in a namespace or of the cluster.
    pub(super) fn collection(self, namespace: &str) -> String {
        let (version, _, plural) = self.resource();
        let prefix = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
        if self.namespaced() {
            format!("{prefix}/namespaces/{namespace}/{plural}")
        } else {
            format!("{prefix}/{plural}")
        }
    }

    /// A new object of this kind.
    pub(super) fn object(self, name: &str, sequence: &str, namespace: &str, draws: &mut Draws) -> Value {
        let mut metadata = json!({ "name": name, "labels": { "seq": sequence } });
        if draws.percent(60) {
            metadata["labels"]["app"] = "x".into();
        }
        if draws.percent(20) {
            metadata["finalizers"] = json!(["example.com/hold"]);
        }
        if draws.percent(15) {
            metadata["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "owner-1", "controller": true }]);
        }
        let mut object = self.body(sequence, namespace, draws);
        let (version, kind, _) = self.resource();
        object["apiVersion"] = version.into();
        object["kind"] = kind.into();
        object["metadata"] = metadata;
        object
    }

    /// Its API version, its kind, and its name in paths.
    const fn resource(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Pod => ("v1", "Pod", "pods"),
            Self::Node => ("v1", "Node", "nodes"),
            Self::Lease => ("coordination.k8s.io/v1", "Lease", "leases"),
            Self::Budget => ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
            Self::Volume => ("v1", "PersistentVolume", "persistentvolumes"),
            Self::Claim => ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
            Self::Attachment => ("storage.k8s.io/v1", "VolumeAttachment", "volumeattachments"),
            Self::StatefulSet => ("apps/v1", "StatefulSet", "statefulsets"),
            Self::ReplicaSet => ("apps/v1", "ReplicaSet", "replicasets"),
            Self::Deployment => ("apps/v1", "Deployment", "deployments"),
            Self::Replication => ("v1", "ReplicationController", "replicationcontrollers"),
            Self::Event => ("v1", "Event", "events"),
            Self::Ours(own) => ("pod-safety.dev/v1alpha1", own.kind(), own.plural()),
        }
    }

    fn body(self, sequence: &str, namespace: &str, draws: &mut Draws) -> Value {
        let node = format!("{sequence}-a");
        match self {
            Self::Pod => pod(&node, draws),
            Self::Node => node_body(draws),
            Self::Lease => {
                let seconds = if draws.percent(10) { 0 } else { 15 };
                json!({ "spec": { "holderIdentity": "h", "leaseDurationSeconds": seconds, "renewTime": "2026-01-01T00:00:00.123456Z" } })
            }
            Self::Budget => {
                let selector = if draws.percent(80) { json!({ "matchLabels": { "app": "x" } }) } else { json!({}) };
                let mut budget = json!({ "spec": { "minAvailable": 1, "selector": selector } });
                if draws.percent(20) {
                    budget["spec"]["unhealthyPodEvictionPolicy"] = "AlwaysAllow".into();
                }
                budget
            }
            Self::Volume => {
                json!({ "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                "csi": { "driver": "d.example.com", "volumeHandle": "h" } } })
            }
            Self::Claim => {
                json!({ "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } })
            }
            Self::Attachment => {
                json!({ "spec": { "attacher": "d.example.com", "nodeName": node, "source": { "persistentVolumeName": "v" } } })
            }
            Self::ReplicaSet | Self::Deployment => workload(draws),
            Self::Replication => {
                let mut set = workload(draws);
                set["spec"]["selector"] = if draws.percent(50) { json!({ "app": "x" }) } else { Value::Null };
                set
            }
            Self::StatefulSet => {
                json!({ "spec": { "replicas": 2, "serviceName": "s", "selector": { "matchLabels": { "app": "x" } },
                "template": { "metadata": { "labels": { "app": "x" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } } } })
            }
            Self::Event => {
                json!({ "involvedObject": { "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "p" },
                "type": "Normal", "reason": "R", "message": "m", "action": "R", "count": 1,
                "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "eventTime": "2026-01-01T00:00:00.000001Z",
                "source": { "component": "c" }, "reportingComponent": "c", "reportingInstance": "i" })
            }
            Self::Ours(own) => own.body(&node, draws),
        }
    }

    /// The content of a status write.
    pub(super) fn status(self, draws: &mut Draws) -> Value {
        match self {
            Self::Pod => {
                let phase = draws
                    .choose(&["Running", "Running", "Running", "Failed", "Succeeded", "Pending", "Unknown"])
                    .copied();
                let ready = draws.choose(&["True", "False"]).copied();
                let kind = draws.choose(&["Ready", "DisruptionTarget", "example.com/x"]).copied();
                json!({ "phase": phase, "observedGeneration": 1 + draws.below(2), "conditions": [
                    { "type": kind, "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z" }] })
            }
            Self::Node => {
                let kind = draws.choose(&["Ready", "MemoryPressure"]).copied();
                json!({ "conditions": [{ "type": kind, "status": draws.choose(&["True", "Unknown"]).copied(), "reason": "R",
                    "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
                    "nodeInfo": { "bootID": format!("b-{}", draws.below(2)) } })
            }
            Self::Budget => {
                let mut status = json!({ "observedGeneration": 1 + draws.below(2), "disruptionsAllowed": draws.below(3), "currentHealthy": draws.below(3),
                "desiredHealthy": draws.below(3), "expectedPods": 2 });
                // As a controller writes it: entries that have expired, and its own condition.
                if draws.percent(50) {
                    let entry = [Value::Null, "2026-01-01T00:00:00Z".into()];
                    status["disruptedPods"] = json!({ "p": draws.choose(&entry).cloned(), "q": Value::Null });
                }
                if draws.percent(50) {
                    let status_ = draws.choose(&["True", "False"]).copied();
                    status["conditions"] = json!([{ "type": "DisruptionAllowed", "status": status_, "reason": "R", "message": "",
                        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
                }
                status
            }
            Self::Volume | Self::Claim => {
                json!({ "phase": draws.choose(&["Bound", "Released", "Pending", "Lost"]).copied() })
            }
            Self::Attachment => json!({ "attached": draws.percent(50), "attachmentMetadata": { "k": "v" } }),
            Self::StatefulSet | Self::ReplicaSet | Self::Deployment | Self::Replication => {
                json!({ "replicas": draws.below(3), "readyReplicas": draws.below(3), "observedGeneration": 1 })
            }
            Self::Ours(own) => own.status(draws),
            Self::Lease | Self::Event => Value::Null,
        }
    }

    /// A change of the spec, small enough to be allowed now and then.
    pub(super) fn spec_change(self, draws: &mut Draws) -> Value {
        match self {
            Self::Pod => match draws.below(6) {
                0 => json!({ "nodeName": "elsewhere" }),
                1 => json!({ "terminationGracePeriodSeconds": 5 }),
                2 => json!({ "activeDeadlineSeconds": 100 + draws.below(100) }),
                3 => json!({ "containers": [{ "name": "c", "image": format!("i:{}", draws.below(3)) }] }),
                4 => json!({ "containers": [{ "name": "d", "image": "i" }] }),
                // With the tolerations that admission would add: by adding them to a request it makes the real server
                // write again, whatever is stored (see the divergences).
                _ => json!({ "tolerations": [
                    { "key": "k", "operator": "Exists", "effect": "NoExecute" },
                    { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
                    { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
                ] }),
            },
            Self::Node => match draws.below(3) {
                0 => json!({ "unschedulable": draws.percent(50) }),
                1 => {
                    json!({ "taints": [{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute", "value": "nodeshutdown" }] })
                }
                _ => json!({ "taints": null }),
            },
            Self::Lease => {
                json!({ "holderIdentity": draws.choose(&["h", "g", ""]).copied(), "leaseTransitions": draws.below(3),
                "renewTime": draws.choose(&["2026-01-01T00:00:01.500000Z", "2026-01-01T00:00:02.000000Z", "2026-01-01T00:00:02.000000Z", "2026-01-01T00:00:01.5Z"]).copied() })
            }
            Self::Budget => match draws.below(2) {
                0 => json!({ "minAvailable": draws.below(3) }),
                _ => json!({ "selector": { "matchLabels": { "tier": "db" } } }),
            },
            Self::Volume => json!({ "persistentVolumeReclaimPolicy": draws.choose(&["Retain", "Delete"]).copied() }),
            Self::Claim => json!({ "volumeName": format!("v{}", draws.below(2)) }),
            Self::Attachment => json!({ "nodeName": format!("n{}", draws.below(2)) }),
            Self::ReplicaSet | Self::Deployment => match draws.below(3) {
                0 => json!({ "replicas": draws.below(4) }),
                1 => json!({ "minReadySeconds": draws.below(3) }),
                _ => json!({ "selector": { "matchLabels": { "tier": "db" } } }),
            },
            Self::Replication => json!({ "replicas": draws.below(4) }),
            Self::StatefulSet => match draws.below(2) {
                0 => json!({ "replicas": draws.below(4) }),
                _ => json!({ "serviceName": "t" }),
            },
            Self::Ours(own) => own.spec_change(draws),
            Self::Event => Value::Null,
        }
    }
}

fn workload(draws: &mut Draws) -> Value {
    let label = if draws.percent(90) { "x" } else { "y" };
    let mut set = json!({ "spec": { "selector": { "matchLabels": { "app": "x" } }, "template": {
        "metadata": { "labels": { "app": label } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } } } });
    if draws.percent(80) {
        set["spec"]["replicas"] = draws.below(4).into();
    }
    set
}

fn pod(node: &str, draws: &mut Draws) -> Value {
    let mut pod = json!({ "spec": { "containers": [{ "name": "c", "image": "i:1" }] } });
    if draws.percent(70) {
        pod["spec"]["nodeName"] = node.into();
    }
    if draws.percent(30) {
        let grace = [0, 1, 30, 60];
        pod["spec"]["terminationGracePeriodSeconds"] = draws.choose(&grace).copied().into();
    }
    if draws.percent(10) {
        pod["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
    }
    pod
}

fn node_body(draws: &mut Draws) -> Value {
    let mut node = json!({ "spec": {} });
    if draws.percent(40) {
        node["spec"]["taints"] = json!([{ "key": "example.com/t", "effect": "NoExecute", "value": "v" }]);
    }
    if draws.percent(50) {
        node["status"] = json!({ "capacity": { "cpu": "8" }, "nodeInfo": { "bootID": "b-1" },
            "conditions": [{ "type": "Ready", "status": "True" }] });
    }
    node
}
