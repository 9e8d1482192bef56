//! A real drill: a canary node loses power, is proved off, and recovers; and the nodes that a drill refuses.

use super::whole::device;

use super::*;

/// A node that may be switched off, and one that may not.
const CANARY: &str = "canary";
const OTHER: &str = "other";

struct Fixture {
    plane: ControlPlane,
    _pod_safety: PodSafety,
    ipmi: Arc<Ipmi>,
    canary: Arc<Machine>,
    _kubelets: JoinSet<()>,
}

async fn fixture() -> Fixture {
    let rigs = Rigs::new().await.unwrap();
    let ipmi = Arc::new(rigs.ipmi(CANARY).await.unwrap());
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    let switch = Arc::clone(&ipmi);
    let canary = Machine::new(CANARY, move || switch.is_on().unwrap_or(false));
    let others = [OTHER, "third"].map(|name| Machine::new(name, || true));
    let kubelets = kubelets(&plane, others.iter().chain([&canary]));
    plane.namespace(NAMESPACE).await.unwrap();
    apply(&plane, &secret("bmc", PASSWORD)).await;
    for node in [CANARY, OTHER] {
        apply(&plane, &device(node, node, ipmi.port(), "bmc")).await;
        apply(&plane, &policy(node, node, node)).await;
    }
    let agents = format!("--fence-agents-path={}", rigs.agents().display());
    let pod_safety = leader(&plane, &kubeconfig, &[&agents]).await;
    Fixture { plane, _pod_safety: pod_safety, ipmi, canary, _kubelets: kubelets }
}

impl Fixture {
    async fn drill(&self, node: &str, words: &str) -> Output {
        let confirm = format!("--confirm={words}");
        let args = ["drill", node, "--really", &confirm, "--reason=before the holidays", "--timeout=3m"];
        self.plane.start_pod_safety_once(&self.plane.admin_kubeconfig(), &args).await.unwrap()
    }

    async fn kubectl(&self, args: &[&str]) {
        self.plane.kubectl(args).await.unwrap().text().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drill_fences_and_recovers_the_canary_and_no_other_node() {
    let fixture = fixture().await;
    stateful_pod(&fixture.plane, "db", CANARY).await;
    refuses_nodes_that_may_not_be_switched_off(&fixture).await;
    the_canary_goes_down_and_comes_back(&fixture).await;
    drill_reports_the_state_of_the_device(&fixture).await;
}

/// Each has its own reason, and no incident is opened.
async fn refuses_nodes_that_may_not_be_switched_off(fixture: &Fixture) {
    let refused = async |node: &str, words: &str, expected: &str| {
        let output = fixture.drill(node, words).await;
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        assert!(output.stderr.contains(expected), "{expected}: not in {output:?}");
    };
    refused(OTHER, "switch off other", "kubectl label node other pod-safety.dev/canary=true").await;
    fixture.kubectl(&["label", "node", CANARY, "pod-safety.dev/canary=true"]).await;
    let busy = "node canary is not cordoned and empty (1 pod would be terminated)";
    refused(CANARY, "switch off canary", busy).await;
    fixture.kubectl(&["cordon", CANARY]).await;
    refused(CANARY, "switch off canary", busy).await;
    fixture.kubectl(&["delete", "pod", "-n", NAMESPACE, "db-0"]).await;
    refused(CANARY, "switch off other", "the confirmation did not match").await;
    assert_eq!(fixture.plane.list("nodefences").await.unwrap(), Vec::<Value>::new(), "nothing is begun");
    assert_eq!((fixture.canary.boots(), fixture.ipmi.is_on().unwrap()), (1, true), "nothing is switched");
}

async fn the_canary_goes_down_and_comes_back(fixture: &Fixture) {
    let output = fixture.drill(CANARY, "switch off canary").await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines: Vec<_> = output.stdout.lines().collect();
    assert_eq!(lines.last(), Some(&"It is back and still cordoned: kubectl uncordon canary"), "{lines:#?}");
    let line_of_phase = |phase: &str| lines.iter().position(|line| line.contains(&format!("s  {phase}: ")));
    let phases = ["Fencing", "Fenced", "Recovering", "Done"];
    let order: Vec<_> = phases.into_iter().filter_map(line_of_phase).collect();
    assert_eq!(order.len(), phases.len(), "not all are told: {lines:#?}");
    assert!(order.is_sorted(), "{lines:#?}");

    // The machine was off once, and there is evidence.
    assert_eq!((fixture.canary.boots(), fixture.ipmi.is_on().unwrap()), (2, true));
    let fence = node_fence_of(&fixture.plane, CANARY).await.unwrap();
    let trigger = &fence["spec"]["trigger"];
    assert_eq!((&trigger["kind"], &trigger["reason"]), (&json!("Person"), &json!("before the holidays")));
    let attempts = fence["status"]["attempts"].as_array().unwrap();
    let acts: Vec<_> = attempts.iter().map(|attempt| attempt["act"].as_str().unwrap()).collect();
    assert_eq!(acts, ["off", "on"], "{fence:#}");
    let proofs = fixture.plane.list("fenceevidences").await.unwrap();
    let proof = proofs.iter().find(|proof| proof["metadata"]["name"] == fence["status"]["evidence"]).unwrap();
    assert_eq!((&proof["spec"]["kind"], proofs.len()), (&json!("PowerOff"), 1), "{proofs:#?}");
    let boot = &proof["spec"]["node"]["bootID"];
    assert_eq!(boot, &pod_safety_control_plane::objects::boot_id(CANARY, 1), "of the life that ended");
    let node = Api::<Node>::all(fixture.plane.admin()).get(CANARY).await.unwrap();
    let spec = node.spec.unwrap();
    let taints = spec.taints.unwrap_or_default();
    assert_eq!(spec.unschedulable, Some(true), "it stays cordoned");
    assert!(!taints.iter().any(|taint| taint.key == "node.kubernetes.io/out-of-service"), "{taints:?}");
}

/// In the device's status, as `kubectl describe` shows it.
async fn drill_reports_the_state_of_the_device(fixture: &Fixture) {
    let until_reason = async |word: &str| {
        wait_until(&format!("{word} is said of the device"), async || {
            let events = fixture.plane.list("events").await.unwrap();
            let of_it = events.iter().filter(|event| {
                let about = &event["involvedObject"];
                about["kind"] == "FenceDevice" && about["name"] == CANARY
            });
            let reasons: Vec<_> = of_it.map(|event| event["reason"].as_str().unwrap_or_default()).collect();
            let times = reasons.iter().filter(|reason| **reason == word).count();
            check_that(times == 1, format!("{reasons:?}"))
        })
        .await;
    };
    until_reason("AllTargetsReachable").await;
    // The password changes and the device is checked; then it is corrected.
    let test = async |secret: &Value, number: &str| {
        apply(&fixture.plane, secret).await;
        let note = format!("pod-safety.dev/test={number}");
        fixture.kubectl(&["annotate", "--overwrite", "fencedevice", "-n", "pod-safety", CANARY, &note]).await;
    };
    test(&secret("bmc", "not-the-password"), "1").await;
    // fence_ipmilan does not report that the password was wrong.
    until_reason("Failed").await;
    test(&secret("bmc", PASSWORD), "2").await;
    until_reason("DeviceReachable").await;
}
