//! NodeRestriction: what a kubelet may not do, its own Node gone in particular.

use super::*;

const NODE_LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

fn by(cluster: &Cluster, node: &str, method: Method, target: &str, body: &Value) -> (u16, Value) {
    cluster.handle(&ApiRequest::new(node, method, target).with_body("application/json", body.to_string()))
}

fn mirror(node: &str, uid: &str) -> Value {
    json!({
        "metadata": {
            "name": format!("static-{node}"), "annotations": { "kubernetes.io/config.mirror": "a" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": true }],
        },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
    })
}

fn node(cluster: &Cluster, name: &str) -> String {
    let (code, node) = by(cluster, name, Method::POST, NODES, &json!({ "metadata": { "name": name } }));
    assert_eq!(code, 201);
    node["metadata"]["uid"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_mirror_pod_needs_the_node_that_it_names_with_its_uid() {
    let cluster = Cluster::new();
    let before = node(&cluster, "node-1");
    assert_eq!(by(&cluster, "node-1", Method::POST, PODS, &mirror("node-1", &before)).0, 201);
    cluster.delete(&format!("{PODS}/static-node-1"), &json!({ "gracePeriodSeconds": 0 }));

    cluster.delete(&format!("{NODES}/node-1"), &Value::Null);
    let gone = by(&cluster, "node-1", Method::POST, PODS, &mirror("node-1", &before));
    assert_eq!(reason(&gone), (404, "NotFound"), "the Node is gone");

    let after = node(&cluster, "node-1");
    let old = by(&cluster, "node-1", Method::POST, PODS, &mirror("node-1", &before));
    assert_eq!(reason(&old), (403, "Forbidden"), "the UID is that of another life");
    assert_eq!(by(&cluster, "node-1", Method::POST, PODS, &mirror("node-1", &after)).0, 201);
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_creates_mirror_pods_alone_and_writes_its_own_objects_alone() {
    let cluster = Cluster::new();
    let uid = node(&cluster, "node-1");
    node(&cluster, "node-2");
    let mut ordinary = mirror("node-1", &uid);
    ordinary["metadata"]["annotations"] = Value::Null;
    let refused = |node: &str, method: Method, target: &str, body: &Value| {
        assert_eq!(reason(&by(&cluster, node, method, target, body)), (403, "Forbidden"), "{target} {body}");
    };
    refused("node-1", Method::POST, PODS, &ordinary);
    refused("node-2", Method::POST, PODS, &mirror("node-1", &uid));
    refused("node-2", Method::POST, NODES, &json!({ "metadata": { "name": "node-3" } }));
    refused("node-1", Method::POST, LEASES, &json!({ "metadata": { "name": "node-1" }, "spec": {} }));
    refused("node-1", Method::POST, NODE_LEASES, &json!({ "metadata": { "name": "node-2" }, "spec": {} }));
    let own =
        by(&cluster, "node-1", Method::POST, NODE_LEASES, &json!({ "metadata": { "name": "node-1" }, "spec": {} }));
    assert_eq!(own.0, 201);

    assert_eq!(by(&cluster, "node-1", Method::POST, PODS, &mirror("node-1", &uid)).0, 201);
    refused("node-2", Method::DELETE, &format!("{PODS}/static-node-1"), &Value::Null);
    let phase = json!({ "status": { "phase": "Failed" } });
    let status = format!("{PODS}/static-node-1/status");
    let patch =
        |node: &str| cluster.handle(&ApiRequest::new(node, Method::PATCH, &status).with_body(MERGE, phase.to_string()));
    assert_eq!(reason(&patch("node-2")), (403, "Forbidden"));
    assert_eq!(patch("node-1").0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_without_its_node_still_renews_and_reports() {
    let cluster = Cluster::new();
    node(&cluster, "node-1");
    let lease = json!({ "metadata": { "name": "node-1" }, "spec": { "holderIdentity": "node-1" } });
    by(&cluster, "node-1", Method::POST, NODE_LEASES, &lease);
    let pod = json!({ "metadata": { "name": "a" }, "spec": { "nodeName": "node-1",
        "containers": [{ "name": "c", "image": "i" }] } });
    cluster.send(Method::POST, PODS, &pod);
    cluster.delete(&format!("{NODES}/node-1"), &Value::Null);
    let patch = |target: String, body: Value| {
        cluster.handle(&ApiRequest::new("node-1", Method::PATCH, &target).with_body(MERGE, body.to_string())).0
    };
    let renewed = json!({ "spec": { "renewTime": "2027-01-15T08:00:00.000000Z" } });
    assert_eq!(patch(format!("{NODE_LEASES}/node-1"), renewed), 200);
    assert_eq!(patch(format!("{PODS}/a/status"), json!({ "status": { "phase": "Running" } })), 200);
    let options = json!({ "gracePeriodSeconds": 0 });
    assert_eq!(by(&cluster, "node-1", Method::DELETE, &format!("{PODS}/a"), &options).0, 200);
}
