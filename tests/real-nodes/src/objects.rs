//! The objects of a cluster here: a StatefulSet, and how its nodes are fenced.

use pod_safety_control_plane::rigs::{PASSWORD, USER};
use serde_json::{Value, json};

use crate::cluster::Extra;
use crate::watch::VOLUMES;

pub(crate) const NAMESPACE: &str = "shop";
/// The last one's volume lets one copy in at a time; those of the others exclude nobody.
pub(crate) const IDENTITIES: [&str; 4] = ["db-0", "db-1", "db-2", ALONE];
pub(crate) const ALONE: &str = "alone-0";

/// The responders of pods, where evictions are served: of lost nodes, and of the application.
pub(crate) const LOST_NODE: &str = "pod-safety.dev/lost-node";
pub(crate) const MOVER: &str = "example.com/move-data";

/// The device of all nodes. What it is opened with is [`secret`].
fn bmc(mut spec: Value) -> Value {
    spec["timeouts"] = json!({ "powerOff": "20s", "powerOn": "20s", "status": "5s" });
    spec["secretParameters"] = json!([{ "parameter": "password", "secret": "bmc", "key": "password" }]);
    json!({
        "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FenceDevice",
        "metadata": { "namespace": "pod-safety", "name": "bmc" }, "spec": spec,
    })
}

/// The power of each node, at the Redfish service there, by the system of this name.
pub(crate) fn device(address: &str, authority: &str, system: &str) -> Value {
    bmc(json!({
        "driver": "Redfish", "identityCheck": "Required",
        "parameters": {
            "address": format!("https://{address}"), "username": USER, "ca": authority,
            "system": format!("/redfish/v1/Systems/{system}"),
        },
    }))
}

/// The same, by the IPMI controller of each node, of which this is the port.
pub(crate) fn device_by_ipmi(ports: &[(String, u16)]) -> Value {
    let ports = ports.iter().map(|(node, port)| (node.clone(), json!({ "ipport": port.to_string() })));
    bmc(json!({
        "driver": "Agent", "agent": "fence_ipmilan",
        "parameters": { "ip": "127.0.0.1", "username": USER, "lanplus": "1", "cipher": "3" },
        "nodeParameters": ports.collect::<serde_json::Map<_, _>>(),
    }))
}

/// g, rho and R of the promise of agents.
pub(crate) const TICK_SECONDS: u32 = 1;
pub(crate) const DRIFT_PPM: u32 = 10_000;
pub(crate) const RESET_SECONDS: u32 = 5;

/// The agents of all nodes, behind each of which is a keeper; on this kernel.
pub(crate) fn device_by_agents(kernel: &str) -> Value {
    json!({
        "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FenceDevice",
        "metadata": { "namespace": "pod-safety", "name": "agents" },
        "spec": {
            "driver": "WatchdogLease", "monitorSeconds": 2, "timeouts": { "powerOff": "60s" },
            "watchdogLease": {
                "classes": ["Hardware"], "drilled": [{ "identity": "keeper", "kernel": kernel }],
                "tickSeconds": TICK_SECONDS, "driftPpm": DRIFT_PPM, "resetSeconds": RESET_SECONDS,
            },
        },
    })
}

/// What the device is opened with.
pub(crate) fn secret() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "namespace": "pod-safety", "name": "bmc", "annotations": { "pod-safety.dev/fence-devices": "bmc" } },
        "stringData": { "password": PASSWORD },
    })
}

/// All nodes are fenced when they are needed, and started again; what the device reports must be borne out by these facts.
pub(crate) fn policy(corroborate: &[&str], devices: &[&str]) -> Value {
    let devices: Vec<_> = devices.iter().map(|name| json!({ "namespace": "pod-safety", "name": name })).collect();
    json!({
        "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FencePolicy", "metadata": { "name": "all" },
        "spec": {
            "unhealthy": { "silentSeconds": 10 },
            "levels": [{ "name": "power", "devices": devices,
                "corroborate": corroborate, "attempts": 1 }],
            "rounds": 2,
            "brakes": { "cooldownSeconds": 0 },
            "recovery": "PowerOn",
        },
    })
}

/// Three identities, rather on three machines, each with a volume that it keeps wherever it runs; and one whose volume
/// excludes others.
pub(crate) fn stateful_sets(extra: Extra) -> [Value; 2] {
    let arguments = ["$(IDENTITY)", "$(UID)", "$(NODE)"];
    let sets = [
        stateful_set("db", IDENTITIES.len() - 1, &arguments),
        stateful_set("alone", 1, &[&["exclusive"][..], &arguments].concat()),
    ];
    if extra == Extra::Evictions { sets.map(with_responders) } else { sets }
}

/// Its pods tolerate a lost node for longer than it takes to request their evictions.
fn with_responders(mut set: Value) -> Value {
    let spec = &mut set["spec"]["template"]["spec"];
    spec["evictionResponders"] =
        json!([{ "name": LOST_NODE, "priority": 20_000 }, { "name": MOVER, "priority": 10_000 }]);
    for toleration in spec["tolerations"].as_array_mut().into_iter().flatten() {
        toleration["tolerationSeconds"] = json!(30);
    }
    set
}

/// The rights of the application's responder.
pub(crate) fn mover_rights() -> [Value; 2] {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    let reads = ["get", "list", "watch"];
    let group = "rbac.authorization.k8s.io";
    [
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": { "name": "move-data" },
            "rules": [
                rule("lifecycle.k8s.io", &["evictions"], &reads), rule("lifecycle.k8s.io", &["evictions/status"], &["patch"]),
                rule("", &["pods"], &reads),
            ],
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": "move-data" },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "move-data" },
            "subjects": [{ "apiGroup": group, "kind": "User", "name": "move-data" }],
        }),
    ]
}

/// A lost node is tolerated for three seconds.
pub(crate) fn tolerations() -> Value {
    let bears = |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3 });
    json!([bears("node.kubernetes.io/unreachable"), bears("node.kubernetes.io/not-ready")])
}

/// Pods with these labels rather run on different nodes.
pub(crate) fn rather_apart(labels: &Value) -> Value {
    json!({ "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "podAffinityTerm": { "labelSelector": { "matchLabels": labels }, "topologyKey": "kubernetes.io/hostname" },
    }] } })
}

fn stateful_set(name: &str, replicas: usize, args: &[&str]) -> Value {
    let labels = json!({ "app": name });
    let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "namespace": NAMESPACE, "name": name },
        "spec": {
            "serviceName": name, "replicas": replicas, "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "terminationGracePeriodSeconds": 5,
                    "dnsPolicy": "Default",
                    "tolerations": tolerations(),
                    "affinity": rather_apart(&labels),
                    "containers": [{
                        "name": "main", "image": "real-nodes.local/workload:1", "imagePullPolicy": "Never",
                        "args": args,
                        "env": [
                            field("IDENTITY", "metadata.name"), field("UID", "metadata.uid"), field("NODE", "spec.nodeName"),
                        ],
                        "volumeMounts": [{ "name": "volume", "mountPath": "/data", "subPathExpr": "$(IDENTITY)" }],
                    }],
                    "volumes": [{ "name": "volume", "hostPath": { "path": VOLUMES } }],
                },
            },
        },
    })
}
