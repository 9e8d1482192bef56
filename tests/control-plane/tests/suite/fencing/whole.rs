//! From a dead node to a released pod and a recovered node; a node that cannot be fenced; a device that switches another machine; and the
//! status and Events of each.

use super::*;

/// Secrets that must appear nowhere.
const SECRETS: [&str; 2] = [PASSWORD, "not-the-password"];

/// The management controller of one node.
pub(super) fn device(name: &str, node: &str, port: u16, secret: &str) -> Value {
    let spec = json!({
        "driver": "Agent", "agent": "fence_ipmilan",
        "nodeParameters": { node: { "ip": "127.0.0.1", "ipport": port.to_string(), "username": USER, "lanplus": "1", "cipher": "3" } },
        "secretParameters": [{ "parameter": "password", "secret": secret, "key": "password" }],
        "timeouts": { "powerOff": "20s", "powerOn": "20s", "status": "10s" },
    });
    device_of(name, node, spec)
}

struct Fixture {
    plane: ControlPlane,
    kubeconfig: std::path::PathBuf,
    audit: AuditLog,
    pod_safety: PodSafety,
    agents: Program,
    ipmi: Arc<Ipmi>,
    /// The machine that the device of w3 is wired to.
    _other: Ipmi,
    nodes: Vec<Arc<Machine>>,
    _kubelets: JoinSet<()>,
}

async fn fixture() -> Fixture {
    let rigs = Rigs::new().await.unwrap();
    let ipmi = Arc::new(rigs.ipmi("w1").await.unwrap());
    let other = rigs.ipmi("other").await.unwrap();
    let (audit, plane) = ControlPlane::audited(ACCOUNT).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    let switch = Arc::clone(&ipmi);
    let nodes = vec![
        Machine::new("w1", move || switch.is_on().unwrap_or(false)),
        Machine::new("w2", || true),
        Machine::new("w3", || true),
        Machine::new("w4", || true),
    ];
    let kubelets = kubelets(&plane, &nodes);
    apply(&plane, &secret("bmc", PASSWORD)).await;
    apply(&plane, &secret("wrong", "not-the-password")).await;
    apply(&plane, &device("bmc-w1", "w1", ipmi.port(), "bmc")).await;
    apply(&plane, &device("bmc-w2", "w2", ipmi.port(), "wrong")).await;
    apply(&plane, &policy("w1", "w1", "bmc-w1")).await;
    apply(&plane, &policy("w2", "w2", "bmc-w2")).await;
    apply(&plane, &device("bmc-w3", "w3", other.port(), "bmc")).await;
    let mut always = policy("w3", "w3", "bmc-w3");
    (always["spec"]["when"], always["spec"]["recovery"]) = (json!("Always"), json!("Hold"));
    apply(&plane, &always).await;
    // As in the chart: agents run in a separate process.
    let socket = rigs.file("agents.sock");
    let runs = plane.fence_agents("fence-agents", &rigs.agents(), &socket).await.unwrap();
    let socket = format!("--fence-agents-socket={}", socket.display());
    let pod_safety = leader(&plane, &kubeconfig, &[&socket]).await;
    Fixture { plane, kubeconfig, audit, pod_safety, agents: runs, ipmi, _other: other, nodes, _kubelets: kubelets }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_node_is_fenced_and_an_unfenceable_one_has_a_reason() {
    let mut fixture = fixture().await;
    fixture.plane.namespace(NAMESPACE).await.unwrap();
    device_status_shows_usability(&fixture).await;
    policy_status_shows_usability(&fixture).await;
    operators_test_devices_and_run_dry_runs(&fixture).await;
    a_dead_node_is_proved_off_released_and_recovered(&fixture).await;
    an_unfenceable_node_is_released_by_an_operator_confirmation(&fixture).await;
    a_device_wired_to_another_machine_is_detected(&fixture).await;
    no_secret_is_in_logs_events_or_status(&fixture).await;
    a_missing_agent_runner_is_reported(&mut fixture).await;
    old_finished_objects_are_deleted_and_others_kept(&mut fixture).await;
    each_right_that_was_granted_was_used(&fixture).await;
}

async fn device_status_shows_usability(fixture: &Fixture) {
    for (name, expected, words) in [("bmc-w1", "True", ""), ("bmc-w2", "False", "node w2: the device failed")] {
        wait_until(&format!("{name} is Ready {expected}"), async || {
            let devices = fixture.plane.list("fencedevices").await.unwrap();
            let device = devices.iter().find(|device| device["metadata"]["name"] == name).ok_or("none")?;
            let conditions = device["status"]["conditions"].as_array().ok_or("no status")?;
            let ready = conditions.iter().find(|one| one["type"] == "Ready").ok_or("not Ready")?;
            let fits = ready["status"] == expected && ready["message"].as_str().unwrap_or_default().contains(words);
            check_that(fits, ready.to_string())
        })
        .await;
    }
}

/// The condition that `kubectl get fencepolicies` and `kubectl wait --for=condition=Ready` use.
async fn policy_status_shows_usability(fixture: &Fixture) {
    for (name, expected, reason) in [("w1", "True", "DevicesReady"), ("w2", "False", "DeviceNotReady")] {
        wait_until(&format!("the policy {name} is Ready {expected}"), async || {
            let policies = fixture.plane.list("fencepolicies").await.unwrap();
            let policy = policies.iter().find(|policy| policy["metadata"]["name"] == name).ok_or("none")?;
            let status = &policy["status"];
            let ready = &status["conditions"][0];
            check_that(
                ready["status"] == expected && ready["reason"] == reason && status["nodes"] == 1,
                status.to_string(),
            )
        })
        .await;
    }
}

/// From an operator's shell, with the status checks of the controller; nothing is switched, and no object remains.
async fn operators_test_devices_and_run_dry_runs(fixture: &Fixture) {
    let (plane, kubeconfig) = (&fixture.plane, fixture.plane.admin_kubeconfig());
    let tested = plane.start_pod_safety_once(&kubeconfig, &["devices", "test"]).await.unwrap();
    assert_eq!(tested.status.code(), Some(3), "{tested:?}");
    for expected_text in ["bmc-w1", "bmc-w2", "password"] {
        assert!(tested.stdout.contains(expected_text), "{expected_text}: not in\n{}", tested.stdout);
    }
    let drill = ["drill", "w1", "--reason=before the holidays"];
    let drilled = plane.start_pod_safety_once(&kubeconfig, &drill).await.unwrap();
    assert!(drilled.stdout.contains("bmc-w1"), "{drilled:?}");
    assert!(fixture.ipmi.is_on().unwrap(), "nothing is switched");
    assert_eq!(plane.list("nodefences").await.unwrap(), Vec::<Value>::new(), "nothing is left lying");
}

async fn a_dead_node_is_proved_off_released_and_recovered(fixture: &Fixture) {
    let (plane, api) = (&fixture.plane, fixture.plane.admin());
    stateful_pod(plane, "db", "w1").await;
    // The kubelet dies; the machine has power.
    fixture.nodes[0].cut_off().await;
    wait_until("there is evidence", async || {
        let all = plane.list("fenceevidences").await.unwrap();
        let holds = node_fence_of(plane, "w1").await.map(|fence| fence["status"].clone());
        check_that(all.iter().any(|one| one["spec"]["node"]["name"] == "w1"), format!("{holds:#?}"))
    })
    .await;
    assert!(!fixture.ipmi.is_on().unwrap(), "evidence says off, and it is");
    until_released(plane, "db-0").await;
    fixture.audit.was_soon_after_evidence("w1", |entry| entry.matches("delete", "pods", "db-0")).unwrap();
    let message = observe::event(&api, NAMESPACE, "db-0", "ForceDeleted").await.unwrap();
    assert!(message.starts_with("Node w1 was switched off: FenceEvidence w1-"), "{message}");
    // The pod release and the node's taint use the same evidence, and neither waits for the other.
    wait_until("the node is marked", async || {
        let node = Api::<Node>::all(api.clone()).get("w1").await.map_err(|error| error.to_string())?;
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let marked = taints.iter().any(|taint| taint.key == "node.kubernetes.io/out-of-service");
        check_that(marked, format!("{taints:?}"))
    })
    .await;
    // After the release it is switched on; the machine boots with its kubelet.
    wait_until("it has power", async || check_that(fixture.ipmi.is_on().unwrap(), "not yet".to_owned())).await;
    let fence = until_phase(plane, "w1", "Done").await;
    let acts: Vec<_> = fence["status"]["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| attempt["act"].as_str().unwrap())
        .collect();
    assert_eq!(acts, ["off", "on"], "one shot each: {fence:#}");
    let node = Api::<Node>::all(api).get("w1").await.unwrap();
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    assert!(!taints.iter().any(|taint| taint.key == "node.kubernetes.io/out-of-service"), "{taints:?}");
    assert!(
        fixture.pod_safety.metric("pod_safety_force_deletes_total", &[("evidence", "PowerOff")]).await.unwrap() >= 1.0
    );
}

async fn an_unfenceable_node_is_released_by_an_operator_confirmation(fixture: &Fixture) {
    let (plane, api) = (&fixture.plane, fixture.plane.admin());
    stateful_pod(plane, "queue", "w2").await;
    let kubeconfig = plane.admin_kubeconfig();
    let confirm = ["confirm-down", "w2", "--reason=I pulled its plug", "--confirm=w2 is off", "--listen=3s"];
    // While the kubelet reports, no confirmation is accepted.
    let refused = plane.start_pod_safety_once(&kubeconfig, &confirm).await.unwrap();
    assert_eq!(refused.status.code(), Some(4), "{}", refused.stderr);
    fixture.nodes[1].cut_off().await;
    // Its device rejects the password.
    let fence = until_phase(plane, "w2", "AwaitingOperator").await;
    let message = fence["status"]["message"].as_str().unwrap();
    assert!(message.contains("level power: fencing") || message.contains("bmc-w2"), "{message}");
    let pod = observe::find_pod(&api, NAMESPACE, "queue-0").await.unwrap().unwrap();
    assert!(pod.metadata.deletion_timestamp.is_some(), "it waits");
    let wrong = ["confirm-down", "w2", "--reason=r", "--confirm=w3 is off", "--listen=1s"];
    assert_eq!(plane.start_pod_safety_once(&kubeconfig, &wrong).await.unwrap().status.code(), Some(4));
    plane.start_pod_safety_once(&kubeconfig, &confirm).await.unwrap().text().unwrap();
    until_released(plane, "queue-0").await;
    let message = observe::event(&api, NAMESPACE, "queue-0", "ForceDeleted").await.unwrap();
    assert!(message.contains("confirmed that node w2 is off"), "{message}");
    // The machine is repaired and started.
    fixture.nodes[1].reboot();
    fixture.nodes[1].connect();
    until_phase(plane, "w2", "Done").await;
}

async fn a_device_wired_to_another_machine_is_detected(fixture: &Fixture) {
    let plane = &fixture.plane;
    fixture.nodes[2].cut_off().await;
    until_phase(plane, "w3", "Fenced").await;
    // It was never off, and reports again in the same boot.
    fixture.nodes[2].connect();
    let fence = until_phase(plane, "w3", "AwaitingOperator").await;
    let message = fence["status"]["message"].as_str().unwrap();
    assert!(message.contains("the evidence is wrong"), "{message}");
    let proofs = plane.list("fenceevidences").await.unwrap();
    let proof = proofs.iter().find(|proof| proof["spec"]["node"]["name"] == "w3").unwrap();
    assert!(proof["status"]["invalidated"]["reason"].is_string(), "{proof:#}");
    let devices = plane.list("fencedevices").await.unwrap();
    let device = devices.iter().find(|device| device["metadata"]["name"] == "bmc-w3").unwrap();
    let conditions = device["status"]["conditions"].as_array().unwrap();
    let trusted = conditions.iter().find(|one| one["type"] == "Trusted").unwrap();
    assert_eq!(trusted["status"], "False", "{conditions:?}");
    wait_until("it is said of the device", async || {
        let events = plane.list("events").await.unwrap();
        let recorded = events
            .iter()
            .any(|event| event["involvedObject"]["name"] == "bmc-w3" && event["reason"] == "EvidenceContradicted");
        check_that(recorded, format!("{} events", events.len()))
    })
    .await;
    let node = Api::<Node>::all(plane.admin()).get("w3").await.unwrap();
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    assert!(!taints.iter().any(|taint| taint.key == "node.kubernetes.io/out-of-service"), "{taints:?}");
}

async fn a_missing_agent_runner_is_reported(fixture: &mut Fixture) {
    let available = async |fixture: &Fixture| {
        fixture.pod_safety.metric("pod_safety_fence_agents_available", &[]).await.map_err(|error| error.to_string())
    };
    assert_eq!(available(fixture).await, Ok(1.0));
    fixture.agents.kill_9().unwrap();
    wait_until("metric and /readyz say so", async || {
        let ready = fixture.pod_safety.get("/readyz").await.map_err(|error| error.to_string())?;
        let expected_text = ready.body.contains("[-]fence-agents") && ready.code == 200;
        check_that(expected_text && available(fixture).await? == 0.0, ready.body)
    })
    .await;
    let kubeconfig = fixture.plane.admin_kubeconfig();
    let test = ["devices", "test", "--output=json"];
    let tested = fixture.plane.start_pod_safety_once(&kubeconfig, &test).await.unwrap();
    assert!(tested.stdout.contains("AgentsUnavailable"), "{tested:?}");
}

/// The incident of w1 is closed, and its machine has booted since; that of w3 waits for an operator.
async fn old_finished_objects_are_deleted_and_others_kept(fixture: &mut Fixture) {
    let args = ["--mode=replace", CONTROLLERS, "--node-monitor-grace-period=8s", "--fencing-history=1s"];
    fixture.pod_safety = fixture.plane.pod_safety("next", &fixture.kubeconfig, args).await.unwrap();
    fixture.pod_safety.is_leader().await.unwrap();
    let about = async |kind: &str, node: &str| {
        let all = fixture.plane.list(kind).await.unwrap();
        all.iter().filter(|one| one["spec"]["node"]["name"] == node).count()
    };
    wait_until("what was known of the former life of w1 is deleted", async || {
        let remaining = (about("nodefences", "w1").await, about("fenceevidences", "w1").await);
        check_that(remaining == (0, 0), format!("{remaining:?}"))
    })
    .await;
    assert_eq!(about("nodefences", "w3").await, 1, "it is not over");
    assert!(about("fenceevidences", "w3").await > 0, "what was invalidated is about the life of now");
    let log = fixture.pod_safety.log_text();
    assert!(log.contains("nothing depends on it"), "each is said: {log}");
}

async fn each_right_that_was_granted_was_used(fixture: &Fixture) {
    let roles: [&[&str]; 2] =
        [&["clusterrole", "pod-safety-fencing"], &["role", "-n", "pod-safety", "pod-safety-fencing"]];
    let (granted, used) = granted_and_used(&fixture.plane, &fixture.audit, &roles).await;
    assert_eq!(used, granted);
}

async fn no_secret_is_in_logs_events_or_status(fixture: &Fixture) {
    let mut recorded = fixture.pod_safety.log_text() + &fixture.agents.log_text();
    for kind in ["nodefences", "fencedevices", "fenceevidences", "events"] {
        recorded += &serde_json::to_string(&fixture.plane.list(kind).await.unwrap()).unwrap();
    }
    recorded += &fixture.pod_safety.get("/debug/decisions").await.unwrap().body;
    recorded += &fixture.pod_safety.get("/metrics").await.unwrap().body;
    assert!(recorded.contains("fence_ipmilan"), "there is something to look through");
    for secret in SECRETS {
        assert!(!recorded.contains(secret), "{secret} is said");
    }
}
