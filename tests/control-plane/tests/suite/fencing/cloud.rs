//! Cloud instances: one FenceDevice for all nodes, which finds each instance by the providerID of its Node.

use pod_safety_control_plane::rigs::ec2::{Ec2, REGION};

use super::*;

/// A node of another cloud, with an instance ID that this cloud does not have.
const ELSEWHERE: &str = "elsewhere";

struct Fixture {
    plane: ControlPlane,
    cloud: Arc<Ec2>,
    nodes: Vec<(Arc<Machine>, String)>,
    _pod_safety: PodSafety,
    _kubelets: JoinSet<()>,
}

/// The device of docs/quickstart-cloud.md.
fn device() -> Value {
    let spec = json!({
        "driver": "Agent", "agent": "fence_aws",
        "parameters": { "region": "{{.Instance.Region}}", "plug": "{{.Instance.ID}}", "access_key": "AKIAIOSFODNN7EXAMPLE" },
        "secretParameters": [{ "parameter": "secret_key", "secret": "aws", "key": "password" }],
        "timeouts": { "powerOff": "60s", "powerOn": "60s", "status": "20s" },
    });
    super::device("aws", spec)
}

/// One policy for all nodes.
pub(super) fn policy_of_all(device: &str) -> Value {
    let mut policy = super::policy(device, "w1", device);
    policy["spec"]["nodeSelector"] = json!({});
    // On a busy machine a fence agent, a Python program, may not have started within its timeout.
    policy["spec"]["rounds"] = json!(20);
    policy
}

/// A machine that has power while its instance runs.
async fn instance(cloud: &Arc<Ec2>, name: &str, kubelets: &mut JoinSet<()>) -> (Arc<Machine>, String) {
    let id = cloud.launch().await.unwrap();
    let runs = Arc::new(AtomicBool::new(true));
    let (looks, looked, of) = (Arc::clone(cloud), Arc::clone(&runs), id.clone());
    kubelets.spawn(async move {
        loop {
            if let Ok(state) = looks.state(&of).await {
                looked.store(state == "running", Ordering::SeqCst);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    let machine = Machine::in_cloud(name, &format!("aws:///{REGION}a/{id}"), move || runs.load(Ordering::SeqCst));
    (machine, id)
}

async fn fixture() -> Fixture {
    let rigs = Rigs::new().await.unwrap();
    let cloud = Arc::new(rigs.ec2().await.unwrap());
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    let mut kubelets = JoinSet::new();
    let mut nodes = Vec::new();
    for name in ["w1", "w2", "w3", "w4"] {
        nodes.push(instance(&cloud, name, &mut kubelets).await);
    }
    let elsewhere = Machine::in_cloud(ELSEWHERE, "gce://shop/europe-west1-b/w1", || true);
    for machine in nodes.iter().map(|(machine, _)| machine).chain([&elsewhere]) {
        kubelets.spawn(Arc::clone(machine).run_kubelet(plane.admin()));
    }
    plane.namespace(NAMESPACE).await.unwrap();
    for object in [secret("aws", "wJalrXUtnFEMI"), device(), policy_of_all("aws")] {
        apply(&plane, &object).await;
    }
    let agents = format!("--fence-agents-path={}", cloud.agents().display());
    // The instances have booted just now.
    let behind = "--fence-provider-behind=1s";
    let pod_safety = leader(&plane, &kubeconfig, &[&agents, behind]).await;
    Fixture { plane, cloud, nodes, _pod_safety: pod_safety, _kubelets: kubelets }
}

/// The entry of a node in the device's status, once it exists.
pub(super) async fn target(plane: &ControlPlane, node: &str) -> Value {
    wait_until(&format!("the device has looked at {node}"), async || {
        let devices = plane.list("fencedevices").await.unwrap();
        let targets = devices[0]["status"]["targets"].as_array().ok_or("no status")?;
        targets.iter().find(|target| target["node"] == node).cloned().ok_or_else(|| format!("{targets:?}"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cloud_instance_is_selected_by_provider_id() {
    let fixture = fixture().await;
    let Fixture { plane, cloud, nodes, .. } = &fixture;
    for (machine, id) in nodes {
        let target = target(plane, &machine.name).await;
        assert_eq!((&target["power"], &target["problem"]), (&json!("On"), &Value::Null), "{id}: {target}");
    }
    let refused = target(plane, ELSEWHERE).await;
    let words = refused.to_string();
    assert_eq!(refused["problem"], "AnotherMachine", "{words}");
    assert!(words.contains("is an instance of gce") && words.contains("switches instances of aws"), "{words}");

    let (lost, id) = &nodes[0];
    stateful_pod(plane, "db", &lost.name).await;
    lost.cut_off().await;
    let begun = Instant::now();
    until_released(plane, "db-0").await;
    println!("EC2: released {:.1} s after the loss", begun.elapsed().as_secs_f64());
    wait_until("its instance is started again", async || {
        let state = cloud.state(id).await.map_err(|error| error.to_string())?;
        check_that(lost.boots() == 2 && state == "running", format!("{state}, {} boots", lost.boots()))
    })
    .await;
    for (machine, id) in &nodes[1..] {
        assert_eq!((cloud.state(id).await.unwrap().as_str(), machine.boots()), ("running", 1), "{id}");
    }
    assert_eq!(evidence(plane, &lost.name).await, ("InstanceStopped".to_owned(), json!(id)));
    a_terminated_instance(&fixture).await;
}

/// The kind of the evidence about a node, and the instance that it names.
async fn evidence(plane: &ControlPlane, node: &str) -> (String, Value) {
    let all = plane.list("fenceevidences").await.unwrap();
    let spec = &all.iter().find(|one| one["spec"]["node"]["name"] == node).unwrap()["spec"];
    (spec["kind"].as_str().unwrap().to_owned(), spec["samples"][0]["instance"].clone())
}

/// An instance is terminated, and its Node is not deleted: its pods are released, and no instance is started.
async fn a_terminated_instance(fixture: &Fixture) {
    let Fixture { plane, cloud, nodes, .. } = fixture;
    let (lost, id) = &nodes[1];
    stateful_pod(plane, "web", &lost.name).await;
    cloud.terminate(id).await.unwrap();
    let begun = Instant::now();
    until_released(plane, "web-0").await;
    println!("EC2, terminated: released {:.1} s after the loss", begun.elapsed().as_secs_f64());
    assert_eq!(evidence(plane, &lost.name).await, ("InstanceGone".to_owned(), json!(id)));
    plane.kubectl(&["delete", "node", &lost.name]).await.unwrap().text().unwrap();
    let fence = until_phase(plane, &lost.name, "Done").await;
    let attempts = fence["status"]["attempts"].as_array().unwrap();
    assert!(attempts.iter().all(|attempt| attempt["act"] == "off"), "what is gone is not started: {attempts:?}");
    let outcome = attempts.last().unwrap()["outcome"].as_str().unwrap();
    assert!(outcome.contains(&format!("instance {id} is terminated")), "{outcome}");
}
