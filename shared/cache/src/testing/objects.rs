//! Objects as the API server sends them: the fixtures for pods, nodes, Leases and other kinds in unit tests.

use std::ops::{Deref, DerefMut};

use serde_json::{Value, json};

use crate::model::Uid;

/// A valid boot ID, and that of the next boot.
pub const BOOT: &str = "b0000000-0000-4000-8000-000000000001";
/// See [`BOOT`].
pub const NEXT_BOOT: &str = "b0000000-0000-4000-8000-000000000002";

/// The start of fixture tests by the wall clock: 2026-01-01T00:00:00Z.
pub const START_SECONDS: i64 = 1_767_225_600;

/// The timestamp so many seconds after [`START_SECONDS`].
pub fn timestamp(second: impl TryInto<i64>) -> String {
    let second = START_SECONDS + second.try_into().ok().unwrap();
    jiff::Timestamp::from_second(second).unwrap().to_string()
}

#[derive(Clone, Debug, PartialEq)]
pub struct Obj(pub Value);

impl Deref for Obj {
    type Target = Value;
    fn deref(&self) -> &Value {
        &self.0
    }
}

impl DerefMut for Obj {
    fn deref_mut(&mut self) -> &mut Value {
        &mut self.0
    }
}

impl From<Obj> for Value {
    fn from(Obj(object): Obj) -> Self {
        object
    }
}

/// A running pod `ns/NAME` with the UID `uid-NAME` at version 10, bound to no node.
pub fn pod(name: &str) -> Obj {
    Obj(json!({
        "metadata": { "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "10",
            "generation": 3, "creationTimestamp": timestamp(0) },
        "spec": {},
        "status": { "phase": "Running" },
    }))
}

/// A node with the UID `uid-NAME` at version 5 that is Unknown, with the kubelet of Kubernetes 1.37.
pub fn node(name: &str) -> Obj {
    let ready = json!([{ "type": "Ready", "status": "Unknown" }]);
    let conditions = json!({ "conditions": ready, "nodeInfo": { "kubeletVersion": "v1.37.2" } });
    named(name).rv(5).set("/metadata/labels", json!({})).set("/status", conditions)
}

/// The Lease of a node with the UID `lease-NAME`, renewed in that second.
pub fn lease(name: &str, renewed: impl TryInto<i64>) -> Obj {
    let renewed = timestamp(renewed).replace('Z', ".000000Z");
    let lease = named(name).uid(&format!("lease-{name}")).in_namespace("kube-node-lease").rv(3);
    lease.set("/spec", json!({ "holderIdentity": name, "renewTime": renewed }))
}

/// The budget `ns/NAME` of generation 2, on the application `app`, without a status.
pub fn budget(name: &str, app: &str, spec: &Value) -> Obj {
    let mut budget = named(name).in_namespace("ns").rv(7).set("/metadata/generation", json!(2));
    budget["spec"] = json!({ "selector": { "matchLabels": { "app": app } } });
    spec.as_object().unwrap().iter().for_each(|(key, value)| budget["spec"][key] = value.clone());
    budget
}

/// A workload `ns/NAME` with this number of replicas.
pub fn workload(name: &str, replicas: i32) -> Obj {
    named(name).in_namespace("ns").rv(3).set("/spec", json!({ "replicas": replicas }))
}

/// Evidence `NAME` about this boot of a node.
pub fn evidence(name: &str, node: &str, boot: &str, kind: &str) -> Obj {
    let incarnation = json!({ "name": node, "uid": format!("uid-{node}"), "bootID": boot });
    named(name).set("/spec", json!({ "node": incarnation, "kind": kind, "by": "somebody" }))
}

/// A volume of the driver `d` with these access modes.
pub fn volume(name: &str, modes: &[&str]) -> Obj {
    let csi = json!({ "driver": "d", "volumeHandle": name });
    named(name).set("/spec", json!({ "accessModes": modes, "csi": csi }))
}

/// A claim `ns/NAME`, bound to this volume.
pub fn claim(name: &str, volume: Option<&str>) -> Obj {
    named(name).in_namespace("ns").set("/spec/volumeName", json!(volume))
}

/// The Lease of a volume with the UID `uid-lease-VOLUME`.
pub fn volume_lease(volume: &str, holder: Option<&str>) -> Obj {
    let lease = named(volume).in_namespace("pod-safety-volumes").uid(&format!("uid-lease-{volume}"));
    lease.set("/spec", json!({ "holderIdentity": holder, "leaseTransitions": 3 }))
}

/// The request `ns/NAME` of this requester to evict the pod `ns/POD`, which has the UID `uid-POD`.
pub fn eviction_request(name: &str, pod: &str, requester: &str) -> Obj {
    let target = json!({ "pod": { "name": pod, "uid": format!("uid-{pod}") } });
    let spec = json!({ "target": target, "requester": requester, "intent": "Eviction" });
    named(name).in_namespace("ns").set("/metadata/generation", json!(1)).set("/spec", spec)
}

/// The Eviction `ns/NAME` of the pod `ns/POD`, not yet initialized by a controller.
pub fn eviction(name: &str, pod: &str) -> Obj {
    let target = json!({ "pod": { "name": pod, "uid": format!("uid-{pod}") } });
    let object = named(name).in_namespace("ns").set("/metadata/generation", json!(1));
    object.set("/spec", json!({ "target": target })).set("/status", json!({}))
}

/// An object of this name at version 1, with the UID `uid-NAME` and an empty spec.
pub fn named(name: &str) -> Obj {
    Obj(json!({ "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1" }, "spec": {} }))
}

/// Sets the field, or list element, at a JSON pointer; the element may be one after the last.
pub fn with(mut object: Value, pointer: &str, to: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match object.pointer_mut(parent).unwrap() {
        Value::Array(all) => match all.get_mut(key.parse::<usize>().unwrap()) {
            Some(field) => *field = to,
            None => all.push(to),
        },
        parent => parent[key.replace("~1", "/")] = to,
    }
    object
}

impl Obj {
    /// Sets the responders of an Eviction: name, priority and state. Those that are not inactive started with the
    /// test.
    pub fn responders(self, all: &[(&str, i32, &str)]) -> Self {
        let target =
            |(name, priority, state): &(&str, i32, &str)| json!({ "name": name, "priority": priority, "state": state });
        let report = |(name, _, state): &(&str, i32, &str)| match *state {
            "Inactive" => json!({ "name": name }),
            _ => json!({ "name": name, "startTime": timestamp(0) }),
        };
        let targets: Value = all.iter().map(target).collect();
        let reports: Value = all.iter().map(report).collect();
        self.set("/status/targetResponders", targets).set("/status/responders", reports)
    }

    /// Adds a condition to a request or an Eviction, true since the test began.
    pub fn verdict(self, kind: &str, status: &str, reason: &str) -> Self {
        let one = json!({ "type": kind, "status": status, "reason": reason, "message": "m", "lastTransitionTime": timestamp(0) });
        let mut all = self.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        all.retain(|other| other["type"] != one["type"]);
        all.push(one);
        let mut object = self;
        if object.get("status").is_none() {
            object["status"] = json!({});
        }
        object.set("/status/conditions", Value::Array(all))
    }

    pub fn set(self, pointer: &str, to: Value) -> Self {
        Self(with(self.0, pointer, to))
    }
    pub fn modify(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.0);
        self
    }
    pub fn in_namespace(self, namespace: &str) -> Self {
        self.set("/metadata/namespace", json!(namespace))
    }
    pub fn on(self, node: &str) -> Self {
        self.set("/spec/nodeName", json!(node))
    }
    pub fn phase(self, phase: &str) -> Self {
        self.set("/status/phase", json!(phase))
    }
    pub fn rv(self, version: u64) -> Self {
        self.set("/metadata/resourceVersion", json!(version.to_string()))
    }
    pub fn uid(self, uid: &str) -> Self {
        self.set("/metadata/uid", json!(uid))
    }
    pub fn labels(self, labels: Value) -> Self {
        self.set("/metadata/labels", labels)
    }
    pub fn owned_by(self, api_version: &str, kind: &str, name: &str) -> Self {
        let owner = json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": format!("uid-{name}"), "controller": true });
        self.set("/metadata/ownerReferences", json!([owner]))
    }
    /// Adds a volume with this claim.
    pub fn using_claim(self, claim: &str) -> Self {
        let volume = json!({ "name": "data", "persistentVolumeClaim": { "claimName": claim } });
        self.set("/spec/volumes", json!([volume]))
    }
    pub fn terminating(self) -> Self {
        self.set("/metadata/deletionTimestamp", json!("2026-01-01T01:00:00Z"))
            .set("/metadata/deletionGracePeriodSeconds", json!(30))
    }
    /// Sets `status.observedGeneration`.
    pub fn observed(self, generation: i64) -> Self {
        self.set("/status/observedGeneration", json!(generation))
    }
    pub fn mirror(self) -> Self {
        self.set("/metadata/annotations", json!({ "kubernetes.io/config.mirror": "x" }))
    }
    pub fn running(self) -> Self {
        self.set("/status/containerStatuses", json!([{ "state": { "running": {} } }]))
    }
    /// Adds a container that is waiting, besides the running one.
    pub fn starting(self) -> Self {
        let reports = json!([{ "state": { "running": {} } }, { "state": { "waiting": {} } }]);
        self.set("/status/containerStatuses", reports)
    }
    /// Sets all containers to terminated.
    pub fn terminated(self) -> Self {
        let over = json!({ "phase": "Succeeded", "containerStatuses": [{ "state": { "terminated": {} } }] });
        self.set("/status", over)
    }
    pub fn ready(self, status: &str) -> Self {
        self.set("/status/conditions", json!([{ "type": "Ready", "status": status }]))
    }
    pub fn boot(self, id: &str) -> Self {
        self.set("/status/nodeInfo/bootID", json!(id))
    }
    pub fn tainted(self) -> Self {
        self.tainted_with("node.kubernetes.io/out-of-service")
    }
    pub fn tainted_with(self, key: &str) -> Self {
        self.set("/spec/taints", json!([{ "key": key, "effect": "NoExecute" }]))
    }
}

pub fn uid(text: &str) -> Uid {
    Uid::new(text).unwrap()
}
