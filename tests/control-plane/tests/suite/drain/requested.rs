//! `pod-safety drain` as a requester of Kubernetes' Eviction API, against the real API server with its feature gate. This program acts as the
//! kubelets, and as the eviction controllers where there are any.

use http::{Method, Request};
use pod_safety_control_plane::binary;

use super::*;
use crate::eviction_requests::{entry, gates};

const GROUP: &str = "/apis/lifecycle.k8s.io/v1alpha1";
const RESPONDER: &str = "example.com/move";

async fn send(plane: &ControlPlane, method: Method, path: &str, body: Value) -> Result<Value, String> {
    let text = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", kind).body(text).unwrap();
    plane.admin().request(request).await.map_err(|error| error.to_string())
}

async fn requests(plane: &ControlPlane) -> Vec<Value> {
    let list = send(plane, Method::GET, &format!("{GROUP}/evictionrequests"), Value::Null).await.unwrap();
    list["items"].as_array().cloned().unwrap()
}

fn status_of(request: &Value) -> String {
    let meta = &request["metadata"];
    format!("{GROUP}/namespaces/{NS}/evictionrequests/{}/status", meta["name"].as_str().unwrap())
}

fn condition(kind: &str, reason: &str) -> Value {
    json!([{ "type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": "2026-11-21T10:00:00Z" }])
}

/// Simplified eviction controllers: each request is observed; for names in `goes` the pod is deleted and recorded as evicted; a withdrawn
/// request is recorded as canceled.
struct Controllers {
    stop: AtomicBool,
    goes: &'static str,
}

impl Controllers {
    async fn run(&self, plane: &ControlPlane) {
        while !self.stop.load(Ordering::SeqCst) {
            for request in requests(plane).await {
                let pod = request["spec"]["target"]["pod"]["name"].as_str().unwrap();
                let path = format!("/api/v1/namespaces/{NS}/pods/{pod}");
                let there = send(plane, Method::GET, &path, Value::Null).await;
                let is_gone = there
                    .as_ref()
                    .map_or(true, |one| one["metadata"]["uid"] != request["spec"]["target"]["pod"]["uid"]);
                let mut status = json!({ "observedGeneration": request["metadata"]["generation"] });
                if is_gone {
                    status["conditions"] = condition("TargetEvicted", "PodDeleted");
                } else if request["spec"]["intent"] == "Withdrawn" {
                    status["conditions"] = condition("Failed", "CanceledDueToNoRequesters");
                } else if pod.starts_with(self.goes) {
                    // Another client may have deleted it first.
                    drop(send(plane, Method::DELETE, &path, Value::Null).await);
                }
                // The requester may have deleted it meanwhile.
                drop(send(plane, Method::PATCH, &status_of(&request), json!({ "status": status })).await);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

async fn pods(plane: &ControlPlane, node: &str, names: &[&str], responders: Value) {
    for name in names {
        let object = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": NS, "name": name },
            "spec": { "nodeName": node, "terminationGracePeriodSeconds": 5, "evictionResponders": responders,
                "containers": [{ "name": "main", "image": "registry.example/main:1" }] } });
        apply(plane, &object).await;
    }
    wait_until("they run", async || {
        let list = send(plane, Method::GET, &format!("/api/v1/namespaces/{NS}/pods"), Value::Null).await?;
        let all = list["items"].as_array().cloned().unwrap_or_default();
        let runs = |name: &&&str| {
            all.iter().any(|pod| pod["metadata"]["name"] == **name && pod["status"]["phase"] == "Running")
        };
        check_that(names.iter().filter(runs).count() == names.len(), "not yet".to_owned())
    })
    .await;
}

#[tokio::test]
async fn drain_uses_requests_with_a_responder_and_evicts_directly_without() {
    if !crate::versions::can_serve_evictions() {
        return;
    }
    let plane = ControlPlane::start(gates()).await.unwrap();
    plane.namespace(NS).await.unwrap();
    for node in ["a", "b"] {
        objects::create_node(&plane.admin(), &objects::node(node).with_ready("True")).await.unwrap();
    }
    let kubelets = Kubelets::default();
    let scenario = async {
        pods(&plane, "a", &["web-0", "web-1"], json!([])).await;
        pods(
            &plane,
            "a",
            &["db-0"],
            json!([{ "name": RESPONDER, "priority": 10000 }, { "name": "example.com/first", "priority": 20000 }]),
        )
        .await;
        documented_commands_work(&plane).await;
        planned(&plane).await;
        without_responder(&plane).await;
        with_responder(&plane).await;
        kubelets.stop.store(true, Ordering::SeqCst);
    };
    tokio::join!(kubelets.run(&plane), scenario);
}

const DRAIN: [&str; 4] = ["drain", "a", "--evict-unmanaged", "--apply"];

/// The plan shows the responder that each pod waits for, with its limit; nothing was requested.
async fn planned(plane: &ControlPlane) {
    let plan = ends_with(plane, 0, &["drain", "a", "--evict-unmanaged"]).await;
    let waits =
        "  pod/shop/db-0 waits for example.com/first, then example.com/move: at most 40m00s while they are silent\n";
    assert!(plan.contains(waits), "{plan}");
    assert!(plan.contains("Evictions are requested (EvictionRequest)"), "{plan}");
    let json: Value =
        serde_json::from_str(&ends_with(plane, 0, &["drain", "a", "--evict-unmanaged", "-o", "json"]).await).unwrap();
    let of = |name: &str| {
        json["pods"].as_array().unwrap().iter().find(|pod| pod["name"] == name).unwrap()["request"].clone()
    };
    assert_eq!(of("web-0"), json!({ "by": "EvictionRequest", "worstWaitSeconds": 0 }));
    let responders = json!(["example.com/first", RESPONDER]);
    assert_eq!(of("db-0"), json!({ "by": "EvictionRequest", "responders": responders, "worstWaitSeconds": 2_400 }));
    let direct = ends_with(plane, 0, &["drain", "a", "--evict-unmanaged", "--requests=never"]).await;
    assert!(!direct.contains("EvictionRequest"), "{direct}");
    assert_eq!(requests(plane).await, Vec::<Value>::new());
}

/// kube-controller-manager 1.37 has no controller for requests: they stay Pending indefinitely.
async fn without_responder(plane: &ControlPlane) {
    let log = ends_with(plane, 0, &[&DRAIN[..], &["--skip", "shop/db-0"]].concat()).await;
    for expected in [
        "pod/shop/web-0 eviction requested",
        "no controller answers EvictionRequests within 10s: they are withdrawn, and pods are evicted directly",
        "pod/shop/web-0 evicted, terminates within 5s",
        "node/a drained: 2 gone",
    ] {
        assert!(log.contains(expected), "{expected}: not in\n{log}");
    }
    assert_eq!(requests(plane).await, Vec::<Value>::new(), "nothing is left to be answered later");
}

async fn with_responder(plane: &ControlPlane) {
    plane.kubectl(&["uncordon", "a"]).await.unwrap().text().unwrap();
    pods(plane, "a", &["web-0", "api-0"], json!([])).await;
    let controllers = Controllers { stop: AtomicBool::new(false), goes: "web" };
    let scenario = async {
        ctrl_c_leaves_the_requests(plane).await;
        explained(plane).await;
        withdrawn(plane).await;
        plane.kubectl(&["uncordon", "a"]).await.unwrap().text().unwrap();
        pods(plane, "a", &["web-2"], json!([])).await;
        let skips = ["--skip", "shop/db-0", "--skip", "shop/api-0", "--requests=always"];
        let log = ends_with(plane, 0, &[&DRAIN[..], &skips].concat()).await;
        assert!(log.contains("pod/shop/web-2 eviction requested") && log.contains("pod/shop/web-2 gone"), "{log}");
        assert!(!log.contains("evicted, terminates"), "{log}");
        assert_eq!(requests(plane).await, Vec::<Value>::new(), "what is done is deleted");
        controllers.stop.store(true, Ordering::SeqCst);
    };
    tokio::join!(controllers.run(plane), scenario);
}

/// Two pods are evicted; `db-0` and `api-0` are pending. The drain continues without the command.
async fn ctrl_c_leaves_the_requests(plane: &ControlPlane) {
    let kubeconfig = plane.admin_kubeconfig();
    let args = [&DRAIN[..], &["--kubeconfig", kubeconfig.to_str().unwrap()]].concat();
    let mut drain = plane.program("drain", &binary().await.unwrap(), args, &[]).unwrap();
    wait_until("the first pod is gone", async || {
        check_that(drain.log_text().contains("pod/shop/web-0 gone"), drain.log_text())
    })
    .await;
    let ended = drain.interrupt().await.unwrap();
    let log = drain.log_text();
    assert_eq!(ended.code(), Some(1), "{log}");
    let last = log.lines().last().unwrap();
    assert!(
        last.contains("to withdraw it: pod-safety --kubeconfig ") && last.ends_with(" drain a --withdraw"),
        "{log}"
    );
    let remaining: BTreeMap<String, Value> = requests(plane)
        .await
        .into_iter()
        .map(|one| (one["spec"]["target"]["pod"]["name"].as_str().unwrap().to_owned(), one))
        .collect();
    for name in ["db-0", "api-0"] {
        let request = &remaining[name];
        let uid = request["spec"]["target"]["pod"]["uid"].as_str().unwrap();
        assert_eq!(request["metadata"]["name"], format!("pod-safety-drain-{uid}"));
        assert_eq!(request["metadata"]["labels"], json!({ "pod-safety.dev/node": "a" }));
        assert_eq!(request["spec"]["requester"], "pod-safety.dev/drain");
    }
}

/// By the name of the request and of the pod.
async fn explained(plane: &ControlPlane) {
    let all = requests(plane).await;
    let of_api = all.iter().find(|one| one["spec"]["target"]["pod"]["name"] == "api-0").unwrap();
    let name = of_api["metadata"]["name"].as_str().unwrap();
    for args in
        [&["explain", "eviction", &format!("{NS}/{name}")][..], &["explain", "evictionrequest", "api-0", "-n", NS]]
    {
        let answer = pod_safety(plane, args).await;
        let page = answer.stdout.as_str();
        assert!(page.contains(&format!("evictionrequest/{NS}/{name}")), "{answer:?}");
        assert!(
            page.contains("requested by pod-safety.dev/drain") && page.contains("pod-safety drain a --withdraw"),
            "{page}"
        );
    }
    let none = pod_safety(plane, &["explain", "eviction", "shop/none"]).await;
    assert!(none.stderr.contains("there is no Eviction or EvictionRequest none in namespace shop"), "{none:?}");
}

async fn withdrawn(plane: &ControlPlane) {
    let output = ends_with(plane, 0, &["drain", "a", "--withdraw"]).await;
    assert!(output.contains("withdrawn and deleted: shop/api-0 shop/db-0"), "{output}");
    assert_eq!(requests(plane).await, Vec::<Value>::new());
    let none = ends_with(plane, 0, &["drain", "a", "--withdraw"]).await;
    assert!(none.contains("node/a has no EvictionRequest of a drain"), "{none}");
    assert!(on_node(plane, "a").await.contains(&"api-0".to_owned()), "it stays");
}

/// The manifests in docs/eviction.md are accepted with the feature gate.
async fn documented_commands_work(plane: &ControlPlane) {
    let mut blocks = pod_safety_locks::documents::blocks().unwrap();
    blocks.retain(|block| block.is_yaml() && block.file.ends_with("docs/eviction.md"));
    assert_eq!(blocks.len(), 2, "a request, and a template with responders");
    for block in blocks {
        let created =
            plane.kubectl_with(&["create", "--dry-run=server", "-o", "yaml", "-f", "-"], &block.text).await.unwrap();
        let made = created.text().unwrap();
        assert!(made.contains("intent: Eviction") || made.contains("name: pod-safety.dev/lost-node"), "{made}");
    }
}

/// An application that migrates its data first: it reports progress twice, and then completion.
async fn moves_its_data(plane: &ControlPlane, stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        let all = send(plane, Method::GET, &format!("{GROUP}/evictions"), Value::Null).await.unwrap();
        for eviction in all["items"].as_array().unwrap() {
            if entry(eviction, "targetResponders", RESPONDER)["state"] != "Active" {
                continue;
            }
            let now = format!("{:.0}", k8s_openapi::jiff::Timestamp::now());
            let mut report = json!({ "name": RESPONDER, "heartbeatTime": now, "message": "moves data" });
            if entry(eviction, "responders", RESPONDER)["message"] == "moves data" {
                report["completionTime"] = json!(now);
            }
            let name = eviction["metadata"]["name"].as_str().unwrap();
            let patch = json!({ "status": { "responders": [report] } }).to_string();
            let args = ["patch", "eviction.lifecycle.k8s.io", "-n", NS, name, "--subresource=status", "-p", &patch];
            // Another client may have changed it first.
            drop(plane.kubectl(&args).await.unwrap());
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
}

/// With the shipped rights and policies.
#[tokio::test]
async fn pod_safety_controllers_carry_out_requested_evictions() {
    if !crate::versions::can_serve_evictions() {
        return;
    }
    let plane = ControlPlane::start(gates()).await.unwrap();
    plane.namespace(NS).await.unwrap();
    for node in ["a", "b"] {
        objects::create_node(&plane.admin(), &objects::node(node).with_ready("True")).await.unwrap();
    }
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    let args = ["--mode=replace", "--controllers=disruption,eviction"];
    let _pod_safety = plane.leading_pod_safety(&kubeconfig, args).await.unwrap();
    let kubelets = Kubelets::default();
    let scenario = async {
        pods(&plane, "a", &["web-0"], json!([])).await;
        pods(&plane, "a", &["db-0"], json!([{ "name": RESPONDER, "priority": 10000 }])).await;
        let log = ends_with(&plane, 0, &[&DRAIN[..], &["--requests=always"]].concat()).await;
        for expected in [
            "pod/shop/db-0 eviction requested",
            "pod/shop/db-0 waits for responder example.com/move: moves data",
            "pod/shop/db-0 gone",
            "pod/shop/web-0 gone",
            "node/a drained: 2 gone",
        ] {
            assert!(log.contains(expected), "{expected}: not in\n{log}");
        }
        assert_eq!(requests(&plane).await, Vec::<Value>::new(), "what is done is deleted");
        let page = pod_safety(&plane, &["explain", "eviction", "shop/pod-1-db-0"]).await.stdout;
        assert!(page.contains("Free (Evicted)") && page.contains("example.com/move is done"), "{page}");
        maintain_requests_evictions(&plane).await;
        kubelets.stop.store(true, Ordering::SeqCst);
    };
    tokio::join!(kubelets.run(&plane), moves_its_data(&plane, &kubelets.stop), scenario);
}

/// As drain does, in the name of the maintenance.
async fn maintain_requests_evictions(plane: &ControlPlane) {
    pods(plane, "b", &["db-1"], json!([{ "name": RESPONDER, "priority": 10000 }])).await;
    let args = ["maintain", "b", "--timeout=60s", "--reason=r", "--evict-unmanaged", "--requests=always"];
    let Output { stdout, stderr, status, .. } = pod_safety(plane, &args).await;
    assert!(status.success(), "{stdout}\n{stderr}");
    for expected in ["pod/shop/db-1 waits for responder example.com/move: moves data", "pod/shop/db-1 gone"] {
        assert!(stdout.contains(expected) || stderr.contains(expected), "{expected}: not in\n{stdout}\n{stderr}");
    }
    let eviction = plane.find("evictions.lifecycle.k8s.io", NS, "pod-1-db-1").await.unwrap().unwrap();
    assert_eq!(eviction["status"]["requesters"][0]["name"], "pod-safety.dev/maintain", "{eviction}");
}

/// Without the feature gate nothing changes; with `--requests=always` there is an error.
#[tokio::test]
async fn without_the_eviction_request_api_drain_evicts_directly() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    objects::create_node(&plane.admin(), &objects::node("a").with_ready("True")).await.unwrap();
    let always = pod_safety(&plane, &["drain", "a", "--apply", "--requests=always"]).await;
    assert_eq!(always.status.code(), Some(1), "{always:?}");
    assert!(always.stderr.contains("--requests=always: this API server has no EvictionRequests"), "{always:?}");
    for args in [&["drain", "a", "--withdraw"][..], &["drain", "a", "--apply"]] {
        ends_with(&plane, 0, args).await;
    }
    let explain = pod_safety(&plane, &["explain", "eviction", "shop/x"]).await;
    assert!(explain.stderr.contains("this API server has no Evictions"), "{explain:?}");
}
