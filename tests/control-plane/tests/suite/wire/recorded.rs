//! The current API server still sends what `shared/testdata/wire` has recorded from an earlier one, for objects with all fields that pod-safety
//! reads. `POD_SAFETY_WRITE_WIRE=1` records them again: review the difference before you commit it.

use std::path::PathBuf;

use http::Method;
use pod_safety_shared::wire::{Decode, Encoding, Raw};
use serde::Serialize;
use serde_json::json;

use super::*;
use crate::versions;

const AT: &str = "2026-01-02T03:04:05Z";

/// An object, its status, and whether it is deleted then, which a finalizer survives.
struct RecordedObject {
    name: &'static str,
    path: &'static str,
    object: Value,
    status: Value,
    deleted: bool,
}

fn metadata(name: &str) -> Value {
    let owner = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": true,
        "uid": "0aa0c0de-0000-4000-8000-000000000001", "blockOwnerDeletion": true });
    json!({ "name": name, "labels": { "app": "db" }, "annotations": { "kubernetes.io/config.mirror": "x" },
        "finalizers": ["example.com/kept"], "ownerReferences": [owner] })
}

fn pod() -> RecordedObject {
    let container = |name: &str| json!({ "name": name, "image": "i", "resources": { "requests": { "cpu": "500m", "memory": "1Gi" } } });
    let mut sidecar = container("side");
    sidecar["restartPolicy"] = json!("Always");
    let claim =
        json!({ "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    let report = |name: &str| json!([{ "name": name, "ready": false, "restartCount": 1, "image": "i", "imageID": "", "state": { "running": { "startedAt": AT } } }]);
    RecordedObject {
        name: "pod",
        path: "/api/v1/namespaces/default/pods",
        object: json!({ "metadata": metadata("db-0"), "spec": {
            "nodeName": "node-a", "terminationGracePeriodSeconds": 45, "runtimeClassName": "slow", "overhead": { "cpu": "250m" },
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data-db-0" } },
                { "name": "scratch", "ephemeral": { "volumeClaimTemplate": claim } }, { "name": "tmp", "emptyDir": {} }],
            "containers": [container("c")], "initContainers": [sidecar],
            "nodeSelector": { "disk": "ssd" }, "affinity": { "nodeAffinity": {} },
            "tolerations": [{ "key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 300 }],
            "topologySpreadConstraints": [{ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": { "matchLabels": { "app": "db" } } }],
        } }),
        status: json!({ "phase": "Running", "reason": "Evicted", "message": "m", "observedGeneration": 2,
            "conditions": [{ "type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "m", "lastTransitionTime": AT }],
            "containerStatuses": report("c"), "initContainerStatuses": report("side"), "ephemeralContainerStatuses": report("debug") }),
        deleted: true,
    }
}

/// One of its containers has terminated, and a debug container was added.
fn busy() -> RecordedObject {
    let ended = json!({ "terminated": { "exitCode": 0, "startedAt": AT, "finishedAt": AT } });
    let report = json!({ "name": "c", "ready": false, "restartCount": 1, "image": "i", "imageID": "", "state": ended });
    let conditions = json!([{ "type": "PodResizeInProgress", "status": "True", "lastTransitionTime": AT }]);
    RecordedObject {
        name: "busy",
        path: "/api/v1/namespaces/default/pods",
        object: json!({ "metadata": { "name": "busy" }, "spec": { "nodeName": "node-a", "containers": [{ "name": "c", "image": "i" }] } }),
        status: json!({ "phase": "Running", "conditions": conditions, "containerStatuses": [report] }),
        deleted: false,
    }
}

fn node() -> RecordedObject {
    RecordedObject {
        name: "node",
        path: NODES,
        object: json!({ "metadata": metadata("node-a"), "spec": { "providerID": "cloud:///node-a", "unschedulable": true,
            "taints": [{ "key": "k", "value": "v", "effect": "NoExecute", "timeAdded": AT }] } }),
        status: json!({ "addresses": [{ "type": "InternalIP", "address": "192.0.2.7" }, { "type": "Hostname", "address": "node-a" }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": 10_250 } }, "allocatable": { "cpu": "8", "memory": "32Gi", "pods": "110" },
            "conditions": [{ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "m",
                "lastHeartbeatTime": AT, "lastTransitionTime": "2026-01-02T03:04:06Z" }],
            "nodeInfo": { "systemUUID": "uuid-1", "bootID": "b0000000-0000-4000-8000-000000000001", "machineID": "m", "kernelVersion": "k", "osImage": "o",
                "containerRuntimeVersion": "c", "kubeletVersion": "v", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64" },
            "volumesInUse": ["kubernetes.io/csi/d^h"] }),
        deleted: true,
    }
}

fn lease() -> RecordedObject {
    RecordedObject {
        name: "lease",
        path: "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        object: json!({ "metadata": metadata("lease"), "spec": { "holderIdentity": "h", "leaseDurationSeconds": 40,
            "acquireTime": "2026-01-02T03:04:05.000001Z", "renewTime": "2026-01-02T03:04:06.000002Z", "leaseTransitions": 3 } }),
        status: Value::Null,
        deleted: false,
    }
}

fn volume() -> RecordedObject {
    let claim = json!({ "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default", "name": "data-db-0",
        "uid": "0aa0c0de-0000-4000-8000-000000000002" });
    RecordedObject {
        name: "volume",
        path: "/api/v1/persistentvolumes",
        object: json!({ "metadata": metadata("vol"), "spec": { "capacity": { "storage": "1Gi" }, "claimRef": claim,
            "accessModes": ["ReadWriteOncePod"], "storageClassName": "fast", "csi": { "driver": "d", "volumeHandle": "h" } } }),
        status: Value::Null,
        deleted: false,
    }
}

/// The recording, adapted to the selected version of Kubernetes.
fn of_the_version(mut recorded: Value) -> Value {
    let later = [
        (versions::is_1_32(), "metadata", "generation"),
        (!versions::generations_are_reported(), "status", "observedGeneration"),
    ];
    for (_, part, field) in later.into_iter().filter(|(is_absent, ..)| *is_absent) {
        if let Some(part) = recorded.get_mut(part).and_then(Value::as_object_mut) {
            part.remove(field);
        }
    }
    recorded
}

/// The fields of an object that do not depend on when it was created.
fn without_volatile_fields(mut value: Value) -> Value {
    if let Some(metadata) = value.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        for made in ["uid", "resourceVersion", "namespace", "creationTimestamp", "deletionTimestamp"] {
            metadata.remove(made);
        }
    }
    // The API server accepts only the current time here.
    for report in value.pointer_mut("/status/responders").and_then(Value::as_array_mut).into_iter().flatten() {
        for (field, time) in report.as_object_mut().into_iter().flatten() {
            if field.ends_with("Time") {
                *time = json!(AT);
            }
        }
    }
    value
}

fn decoded<T: Decode + Serialize>(encoding: Encoding, bytes: bytes::Bytes) -> Value {
    let read = Raw::from_body(encoding, bytes).unwrap().decode::<T>().unwrap();
    without_blanks(serde_json::to_value(read).unwrap())
}

/// The current object equals the recorded one, in both encodings.
async fn compare<T: Decode + Serialize>(api: &Client, thing: &RecordedObject) {
    let name = thing.object["metadata"]["name"].as_str().unwrap();
    let path = format!("{}/{name}", thing.path);
    let mut seen = Vec::new();
    for (accept, ending) in [(JSON, "json"), (PROTOBUF, "pb")] {
        let (encoding, bytes) = body(api, &path, accept).await;
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../shared/testdata/wire")
            .join(format!("{}.{ending}", thing.name));
        if std::env::var("POD_SAFETY_WRITE_WIRE").as_deref() == Ok("1") {
            assert!(std::env::var_os("CI").is_none(), "POD_SAFETY_WRITE_WIRE is set, and so is CI");
            std::fs::write(&file, &bytes).unwrap();
        }
        let recorded = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        seen.push(decoded::<T>(encoding, bytes));
        let recorded = of_the_version(decoded::<T>(encoding, recorded.into()));
        assert_eq!(
            without_volatile_fields(seen.last().unwrap().clone()),
            without_volatile_fields(recorded),
            "{path} as {ending}"
        );
    }
    assert_eq!(seen[0], seen[1], "{path}");
}

async fn send(api: &Client, method: Method, path: &str, kind: &str, body: &Value) -> Value {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    api.request(request.body(body).unwrap()).await.unwrap_or_else(|error| panic!("{path}: {error}"))
}

async fn make(api: &Client, things: &[RecordedObject]) {
    for RecordedObject { path, object, status, deleted, .. } in things {
        send(api, Method::POST, path, JSON, object).await;
        let one = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
        if !status.is_null() {
            let body = json!({ "status": status });
            send(api, Method::PATCH, &format!("{one}/status"), "application/merge-patch+json", &body).await;
        }
        if *deleted {
            send(api, Method::DELETE, &one, JSON, &Value::Null).await;
        }
    }
}

/// The kinds of the Eviction API, and the related fields of pods.
fn evictions() -> [RecordedObject; 4] {
    let base = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default";
    let target = json!({ "pod": { "name": "evictee", "uid": "0aa0c0de-0000-4000-8000-000000000003" } });
    let now = format!("{:.0}", k8s_openapi::jiff::Timestamp::now());
    let condition = json!([{ "type": "Failed", "status": "False", "reason": "AwaitingEviction", "message": "m", "observedGeneration": 1, "lastTransitionTime": AT }]);
    let responder = json!({ "name": "example.com/a", "startTime": now, "heartbeatTime": now, "expectedCompletionTime": now, "completionTime": now, "message": "m" });
    let whole = |name: &'static str, plural: &str, spec: Value, status: Value| RecordedObject {
        name,
        path: Box::leak(format!("{base}/{plural}").into_boxed_str()),
        object: json!({ "metadata": metadata(name), "spec": spec }),
        status,
        deleted: true,
    };
    let pod = |name: &'static str, field: &str, value: Value| RecordedObject {
        name,
        path: "/api/v1/namespaces/default/pods",
        object: json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "c", "image": "i" }], field: value } }),
        status: Value::Null,
        deleted: false,
    };
    [
        whole(
            "evictionrequest",
            "evictionrequests",
            json!({ "target": target, "requester": "example.com/r", "intent": "Eviction" }),
            json!({ "observedGeneration": 1, "conditions": condition }),
        ),
        whole(
            "eviction",
            "evictions",
            json!({ "target": target }),
            json!({ "observedGeneration": 1, "conditions": condition,
            "requesters": [{ "name": "example.com/r", "intent": "Eviction" }], "responders": [responder],
            "targetResponders": [{ "name": "example.com/a", "priority": 10_000, "state": "Active" }] }),
        ),
        pod("evictee", "evictionResponders", json!([{ "name": "example.com/a", "priority": 10_000 }])),
        pod("gang", "schedulingGroup", json!({ "podGroupName": "g" })),
    ]
}

#[tokio::test]
async fn evictions_with_all_fields_are_sent_as_recorded() {
    if !versions::can_serve_evictions() {
        return;
    }
    let plane = ControlPlane::start(crate::eviction_requests::gates()).await.unwrap();
    let (api, things) = (&plane.admin(), evictions());
    make(api, &things).await;
    let [request, eviction, evictee, gang] = &things;
    compare::<wire::EvictionRequest>(api, request).await;
    compare::<wire::Eviction>(api, eviction).await;
    compare::<wire::Pod>(api, evictee).await;
    compare::<wire::Pod>(api, gang).await;
}

#[tokio::test]
async fn objects_with_all_fields_are_served_as_recorded() {
    // The taint that it adds to new nodes is not tested here.
    let apiserver_args = vec!["--disable-admission-plugins=TaintNodesByCondition".to_owned()];
    let plane = ControlPlane::start(Options { apiserver_args, ..Options::default() }).await.unwrap();
    let api = &plane.admin();
    let send = async |method, path: &str, kind: &str, body: &Value| send(api, method, path, kind, body).await;
    let class =
        json!({ "metadata": { "name": "slow" }, "handler": "slow", "overhead": { "podFixed": { "cpu": "250m" } } });
    send(Method::POST, "/apis/node.k8s.io/v1/runtimeclasses", JSON, &class).await;
    let things = [node(), pod(), lease(), volume(), busy()];
    make(api, &things).await;
    let debug = json!({ "spec": { "ephemeralContainers": [{ "name": "debug", "image": "i" }] } });
    let path = "/api/v1/namespaces/default/pods/busy/ephemeralcontainers";
    send(Method::PATCH, path, "application/strategic-merge-patch+json", &debug).await;
    let [node, pod, lease, volume, busy] = &things;
    compare::<wire::Pod>(api, pod).await;
    compare::<wire::Pod>(api, busy).await;
    compare::<wire::PodNeeds>(api, pod).await;
    compare::<wire::Node>(api, node).await;
    compare::<wire::NodeAllocatable>(api, node).await;
    compare::<wire::Lease>(api, lease).await;
    compare::<wire::PersistentVolume>(api, volume).await;
}
