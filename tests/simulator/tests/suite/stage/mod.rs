//! A small simulation in a thread of its own, in which a pacing loop advances time, and which real clients reach over
//! HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use http::{Method, Request};
use kube::client::Body;
use pod_safety_shared::clock::Env;
use pod_safety_simulator::api::{ApiRequest, ApiServer, Conduct, Course, Etcd, Kind, Transport};
use pod_safety_simulator::chance::Chance;
use pod_safety_simulator::serve::{self, Listener};
use serde_json::{Value, json};

use crate::paused;

/// The simulated time of each turn of the loop.
const STEP: Duration = Duration::from_millis(500);
/// The pause of the loop between two turns.
const REST: Duration = Duration::from_millis(2);

/// Every request takes some milliseconds.
struct Slow;

impl Conduct for Slow {
    fn course(&self, _server: &str, _asked: &ApiRequest) -> Course {
        let leg = Duration::from_millis(3);
        Course { before: leg, after: leg, ..Course::PROMPT }
    }
}

/// A running simulation and its listener.
pub(crate) struct Stage {
    pub(crate) listener: Listener,
    pub(crate) etcd: Arc<Etcd>,
    pub(crate) server: Arc<ApiServer>,
    stands: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stage {
    /// A node, its Lease, the pod `web-0` on it with an Event, and a kubelet that ends the pods that are deleted.
    pub(crate) fn start() -> Self {
        let (gate, visitors) = serve::gate();
        let listener = Listener::start("127.0.0.1:0".parse().unwrap(), gate).unwrap();
        let (stands, ends): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
        let (sender, tell) = std::sync::mpsc::channel();
        let (own_stands, own_ends) = (Arc::clone(&stands), Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            let begin = async {
                let env = paused::env(1);
                let etcd = Etcd::new(Chance::new(7), &Kind::custom_resources(), env.clock.wall());
                let server = ApiServer::start("api", &etcd, env.clone(), Arc::new(Slow));
                furnish(&server).await;
                env.spawner.spawn("kubelet", Box::pin(end_pods(Arc::clone(&server), env.clone())));
                let servers = vec![Arc::clone(&server)];
                let visitors = serve::attend(visitors, move || servers.clone(), Vec::new, env.clone());
                env.spawner.spawn("visitors", Box::pin(visitors));
                (etcd, server)
            };
            sender.send(runtime.block_on(begin)).unwrap();
            while !own_ends.load(Ordering::SeqCst) {
                if !own_stands.load(Ordering::SeqCst) {
                    runtime.block_on(async { tokio::time::sleep(STEP).await });
                }
                std::thread::sleep(REST);
            }
        });
        let (etcd, server) = tell.recv().unwrap();
        Self { listener, etcd, server, stands, ends, thread: Some(thread) }
    }

    /// Stops time, or lets it go on.
    pub(crate) fn stand(&self, still: bool) {
        self.stands.store(still, Ordering::SeqCst);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the simulation panicked");
    }
}

/// The API server's answer to a client inside the simulation.
async fn ask(server: &Arc<ApiServer>, method: Method, path: &str, body: &Value) -> Value {
    let media = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let client = Transport::new(server, "inside").client();
    let answer = client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
    let code = answer.status();
    let bytes = answer.into_body().collect_bytes().await.unwrap();
    assert!(code.is_success() || code == 404, "{path}: {code} {bytes:?}");
    serde_json::from_slice(&bytes).unwrap()
}

async fn furnish(server: &Arc<ApiServer>) {
    let node = json!({ "metadata": { "name": "node-1", "labels": { "node-role.kubernetes.io/worker": "" } },
        "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }],
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
            "nodeInfo": { "bootID": "b0000000-0000-4000-8000-000000000001", "architecture": "amd64", "containerRuntimeVersion": "hollow",
                "kernelVersion": "6", "kubeProxyVersion": "", "kubeletVersion": "v1.37.2", "machineID": "m",
                "operatingSystem": "linux", "osImage": "hollow", "systemUUID": "s" } } });
    ask(server, Method::POST, "/api/v1/nodes", &node).await;
    let lease = json!({ "metadata": { "name": "node-1" },
        "spec": { "holderIdentity": "node-1", "leaseDurationSeconds": 40 } });
    ask(server, Method::POST, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", &lease).await;
    let pods = "/api/v1/namespaces/default/pods";
    let mut uid = Value::Null;
    for name in ["web-0", "web-1"] {
        let pod = json!({ "metadata": { "name": name, "labels": { "app": "web" } },
            "spec": { "nodeName": "node-1", "containers": [{ "name": "c", "image": "i" }] } });
        ask(server, Method::POST, pods, &pod).await;
        let runs = json!({ "status": { "phase": "Running", "podIP": "10.1.0.1", "containerStatuses": [{
            "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "state": { "running": {} } }] } });
        uid = ask(server, Method::PATCH, &format!("{pods}/{name}/status"), &runs).await["metadata"]["uid"].take();
    }
    let event = json!({ "metadata": { "name": "web-1.1" }, "type": "Warning", "reason": "Held",
        "message": "no proof that its processes ended", "count": 1,
        "firstTimestamp": "2027-01-15T08:00:00Z", "lastTimestamp": "2027-01-15T08:00:00Z",
        "source": { "component": "pod-safety" }, "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "web-1", "uid": uid } });
    ask(server, Method::POST, "/api/v1/namespaces/default/events", &event).await;
}

/// A minimal kubelet: pods that are deleted end within a few seconds.
async fn end_pods(server: Arc<ApiServer>, env: Env) {
    loop {
        env.sleep(Duration::from_secs(4)).await;
        let pods = ask(&server, Method::GET, "/api/v1/namespaces/default/pods", &Value::Null).await;
        for pod in pods["items"].as_array().unwrap() {
            if pod["metadata"]["deletionTimestamp"].is_string() {
                let path = format!("/api/v1/namespaces/default/pods/{}", pod["metadata"]["name"].as_str().unwrap());
                ask(&server, Method::DELETE, &path, &json!({ "gracePeriodSeconds": 0 })).await;
            }
        }
    }
}
