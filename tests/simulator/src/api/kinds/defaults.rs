//! What the server fills in: the defaults of the types, and what the admission
//! plugins that are on by default add.

use serde_json::{Value, json};

use super::{Kind, Rules};
use crate::api::fields::{at, list, number, object_mut, set, set_default, text};

/// The defaults of the types, applied to whatever is decoded.
pub(crate) fn apply(kind: &Kind, object: &mut Value) {
    set(object, &[], "apiVersion", kind.api_version());
    set(object, &[], "kind", kind.kind.clone());
    match kind.rules {
        Rules::Pod => {
            pod_spec(object, &["spec"]);
            set_default(object, &["spec"], "enableServiceLinks", true);
            object_mut(object, &["status"]);
            condition_times(object, &["lastProbeTime", "lastTransitionTime"]);
        }
        Rules::Node => node(object),
        Rules::Namespace => {
            condition_times(object, &["lastTransitionTime"]);
            object_mut(object, &["spec"]);
            set_default(object, &["status"], "phase", "Active");
            let name = text(object, &["metadata", "name"]).to_owned();
            if !name.is_empty() {
                set(object, &["metadata", "labels"], "kubernetes.io/metadata.name", name);
            }
        }
        Rules::Budget => {
            object_mut(object, &["spec"]);
            for key in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
                set_default(object, &["status"], key, 0);
            }
        }
        Rules::Volume => {
            set_default(object, &["spec"], "persistentVolumeReclaimPolicy", "Retain");
            set_default(object, &["spec"], "volumeMode", "Filesystem");
            set_default(object, &["status"], "phase", "Pending");
        }
        Rules::Claim => {
            set_default(object, &["spec"], "volumeMode", "Filesystem");
            object_mut(object, &["spec", "resources"]);
            condition_times(object, &["lastProbeTime", "lastTransitionTime"]);
            set_default(object, &["status"], "phase", "Pending");
        }
        Rules::Attachment => {
            object_mut(object, &["spec", "source"]);
            set_default(object, &["status"], "attached", false);
        }
        Rules::StatefulSet => stateful_set(object),
        Rules::ReplicaSet => {
            workload(object);
            set_default(object, &["status"], "replicas", 0);
        }
        Rules::Deployment => deployment(object),
        Rules::Replication => replication(object),
        Rules::Lease => drop(object_mut(object, &["spec"])),
        Rules::Event => event(object),
        Rules::EvictionRequest | Rules::Eviction => super::lifecycle::complete(object),
        Rules::Custom => {}
    }
}

fn event(object: &mut Value) {
    object_mut(object, &["involvedObject"]);
    object_mut(object, &["source"]);
    for key in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        set_default(object, &[], key, Value::Null);
    }
    for key in ["reportingComponent", "reportingInstance"] {
        set_default(object, &[], key, "");
    }
}

/// Times of conditions are shown even when they are not set.
fn condition_times(object: &mut Value, keys: &[&str]) {
    let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) else {
        return;
    };
    for condition in conditions {
        for key in keys {
            set_default(condition, &[], key, Value::Null);
        }
    }
}

fn node(object: &mut Value) {
    condition_times(object, &["lastHeartbeatTime", "lastTransitionTime"]);
    object_mut(object, &["spec"]);
    set_default(object, &["status", "daemonEndpoints", "kubeletEndpoint"], "Port", 0);
    if at(object, &["status", "allocatable"]).is_none()
        && let Some(capacity) = at(object, &["status", "capacity"]).cloned()
    {
        set(object, &["status"], "allocatable", capacity);
    }
    for key in [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ] {
        set_default(object, &["status", "nodeInfo"], key, "");
    }
}

/// What all that make pods from a template have in common.
fn workload(object: &mut Value) {
    condition_times(object, &["lastTransitionTime"]);
    pod_spec(object, &["spec", "template", "spec"]);
    set_default(object, &["spec"], "replicas", 1);
}

fn deployment(object: &mut Value) {
    workload(object);
    condition_times(object, &["lastUpdateTime"]);
    set_default(object, &["spec"], "revisionHistoryLimit", 10);
    set_default(object, &["spec"], "progressDeadlineSeconds", 600);
    set_default(object, &["spec", "strategy"], "type", "RollingUpdate");
    if text(object, &["spec", "strategy", "type"]) == "RollingUpdate" {
        for key in ["maxUnavailable", "maxSurge"] {
            set_default(object, &["spec", "strategy", "rollingUpdate"], key, "25%");
        }
    }
    object_mut(object, &["status"]);
}

/// One without labels or selector takes them from its template.
fn replication(object: &mut Value) {
    workload(object);
    if let Some(labels) = at(object, &["spec", "template", "metadata", "labels"]).cloned() {
        set_default(object, &["spec"], "selector", labels.clone());
        set_default(object, &["metadata"], "labels", labels);
    }
    set_default(object, &["status"], "replicas", 0);
}

fn stateful_set(object: &mut Value) {
    workload(object);
    set_default(object, &["spec"], "podManagementPolicy", "OrderedReady");
    set_default(object, &["spec"], "revisionHistoryLimit", 10);
    set_default(object, &["spec", "updateStrategy"], "type", "RollingUpdate");
    if text(object, &["spec", "updateStrategy", "type"]) == "RollingUpdate" {
        set_default(object, &["spec", "updateStrategy", "rollingUpdate"], "partition", 0);
        set_default(object, &["spec", "updateStrategy", "rollingUpdate"], "maxUnavailable", 1);
    }
    for key in ["whenDeleted", "whenScaled"] {
        set_default(object, &["spec", "persistentVolumeClaimRetentionPolicy"], key, "Retain");
    }
    set_default(object, &["status"], "replicas", 0);
    set_default(object, &["status"], "availableReplicas", 0);
}

fn pod_spec(object: &mut Value, path: &[&str]) {
    set_default(object, path, "restartPolicy", "Always");
    set_default(object, path, "dnsPolicy", "ClusterFirst");
    set_default(object, path, "schedulerName", "default-scheduler");
    set_default(object, path, "terminationGracePeriodSeconds", 30);
    set_default(object, path, "securityContext", json!({}));
    for key in ["initContainers", "containers"] {
        let Some(containers) = object_mut(object, path).get_mut(key).and_then(Value::as_array_mut) else {
            continue;
        };
        containers.iter_mut().for_each(container);
    }
}

fn container(container: &mut Value) {
    let image = text(container, &["image"]).to_owned();
    let name = image.rsplit('/').next().unwrap_or_default();
    let latest = !name.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    object_mut(container, &["resources"]);
    set_default(container, &[], "terminationMessagePath", "/dev/termination-log");
    set_default(container, &[], "terminationMessagePolicy", "File");
    set_default(container, &[], "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" });
    let Some(ports) = container.get_mut("ports").and_then(Value::as_array_mut) else { return };
    for port in ports {
        set_default(port, &[], "protocol", "TCP");
    }
}

/// What the admission plugins that change objects do, in their order.
pub(crate) fn admit(kind: &Kind, new: &mut Value, old: Option<&Value>) {
    match kind.rules {
        Rules::Pod => {
            tolerate_lost_nodes(new);
            prioritise(new, old);
        }
        // TaintNodesByCondition: a node that reports nothing yet gets no pods.
        Rules::Node if old.is_none() => {
            let key = "node.kubernetes.io/not-ready";
            let mut taints = list(new, &["spec", "taints"]).to_vec();
            let there =
                taints.iter().any(|taint| text(taint, &["key"]) == key && text(taint, &["effect"]) == "NoSchedule");
            if !there {
                taints.push(json!({ "key": key, "effect": "NoSchedule" }));
                set(new, &["spec"], "taints", taints);
            }
        }
        // StorageObjectInUseProtection.
        Rules::Volume if old.is_none() => protect(new, "kubernetes.io/pv-protection"),
        Rules::Claim if old.is_none() => protect(new, "kubernetes.io/pvc-protection"),
        _ => {}
    }
}

fn protect(object: &mut Value, finalizer: &str) {
    let mut finalizers = list(object, &["metadata", "finalizers"]).to_vec();
    if !finalizers.iter().any(|known| known == finalizer) {
        finalizers.push(finalizer.into());
        set(object, &["metadata"], "finalizers", finalizers);
    }
}

/// `DefaultTolerationSeconds`.
fn tolerate_lost_nodes(pod: &mut Value) {
    let mut tolerations = list(pod, &["spec", "tolerations"]).to_vec();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = tolerations.iter().any(|toleration| {
            let (its_key, effect) = (text(toleration, &["key"]), text(toleration, &["effect"]));
            (its_key == key || its_key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !tolerated {
            tolerations
                .push(json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }));
        }
    }
    set(pod, &["spec"], "tolerations", tolerations);
}

/// Priority, with the two classes that every cluster has.
fn prioritise(pod: &mut Value, old: Option<&Value>) {
    if let Some(old) = old {
        for key in ["priority", "preemptionPolicy"] {
            if let Some(value) = at(old, &["spec", key]).cloned() {
                set_default(pod, &["spec"], key, value);
            }
        }
        return;
    }
    let priority = match text(pod, &["spec", "priorityClassName"]) {
        "system-node-critical" => 2_000_001_000,
        "system-cluster-critical" => 2_000_000_000,
        _ => number(pod, &["spec", "priority"]).unwrap_or(0),
    };
    set(pod, &["spec"], "priority", priority);
    set_default(pod, &["spec"], "preemptionPolicy", "PreemptLowerPriority");
}
