//! The complete flow with the real StatefulSet controller and scheduler: if the machine of a pod is proved off, the pod is recreated on
//! another node; if not, the pod stays.
//!
//! Four machines are lost at once. One is switched by the Redfish driver, over TLS, one by `fence_redfish`, one by
//! `fence_dummy`, and one has no device.

use std::sync::Mutex;

use pod_safety_control_plane::rigs::Redfish;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// How long a permanently waiting pod is watched: the others were released within a fraction of that.
const NO_TIMEOUT: Duration = Duration::from_secs(20);

/// The power of its systems, as reported by the Redfish service, by name.
#[derive(Clone, Default)]
struct Switchboard(Arc<Mutex<BTreeMap<String, Arc<AtomicBool>>>>);

impl Switchboard {
    fn system(&self, name: &str) -> Arc<AtomicBool> {
        let mut systems = self.0.lock().unwrap();
        Arc::clone(systems.entry(name.to_owned()).or_insert_with(|| Arc::new(AtomicBool::new(true))))
    }

    /// Each message is answered, because the service waits for that.
    async fn serve(self, listener: TcpListener) {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut message = Vec::new();
            while !message.ends_with(b"}") && stream.read_buf(&mut message).await.unwrap() > 0 {}
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await.unwrap();
            let text = String::from_utf8_lossy(&message);
            let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
            let change: Value = serde_json::from_str(body).unwrap_or_default();
            if let (Some(name), Some(power)) = (change["name"].as_str(), change["power_state"].as_str()) {
                self.system(name).store(power == "On", Ordering::SeqCst);
            }
        }
    }
}

struct Fixture {
    plane: ControlPlane,
    audit: AuditLog,
    pod_safety: PodSafety,
    machines: BTreeMap<&'static str, Arc<Machine>>,
    _redfish: Redfish,
    _components: [Component; 2],
    _running: JoinSet<()>,
}

fn policy_of(node: &str) -> Value {
    let mut policy = policy(node, node, &format!("of-{node}"));
    policy["spec"]["brakes"] = json!({ "cooldownSeconds": 0, "maxConcurrent": 4, "maxUnhealthyPercent": 60 });
    policy
}

/// A StatefulSet of one pod that prefers this node.
fn database(node: &str) -> Value {
    let mut set = workloads::stateful_set_near(NAMESPACE, &format!("db-{node}"), node);
    set["spec"]["template"]["spec"]["tolerations"] = workloads::brief_tolerations();
    set
}

async fn machines(rigs: &Rigs, switchboard: &Switchboard) -> BTreeMap<&'static str, Arc<Machine>> {
    let file = rigs.file("agent.power");
    std::fs::write(&file, "on").unwrap();
    let mut machines = BTreeMap::from([("agent", Machine::of_file("agent", file, "on"))]);
    for name in ["native", "redfish"] {
        let system = switchboard.system(name);
        machines.insert(name, Machine::new(name, move || system.load(Ordering::SeqCst)));
    }
    for name in ["nobody", "spare-1", "spare-2", "spare-3", "spare-4"] {
        machines.insert(name, Machine::new(name, || true));
    }
    machines
}

async fn fixture() -> Fixture {
    let (rigs, switchboard) = (Rigs::new().await.unwrap(), Switchboard::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tells = format!("http://{}", listener.local_addr().unwrap());
    let machines = machines(&rigs, &switchboard).await;
    let uuid = |name: &str| machines[name].uuid.clone();
    let (native, redfish) = (uuid("native"), uuid("redfish"));
    let mut running = JoinSet::new();
    running.spawn(switchboard.serve(listener));
    let service = rigs.redfish(&[("native", &native), ("redfish", &redfish)], Some(&tells)).await.unwrap();

    let (audit, plane) = ControlPlane::audited(ACCOUNT).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    plane.namespace(NAMESPACE).await.unwrap();
    for machine in machines.values() {
        running.spawn(Arc::clone(machine).run_kubelet(plane.admin()));
    }
    let password = json!([{ "parameter": "password", "secret": "bmc", "key": "password" }]);
    let system = |uuid: &str| format!("/redfish/v1/Systems/{uuid}");
    apply(&plane, &secret("bmc", PASSWORD)).await;
    let parameters = json!({
        "address": service.address(), "username": USER, "ca": rigs.authority().unwrap(), "system": system(&native),
    });
    let spec = json!({ "driver": "Redfish", "identityCheck": "Required", "parameters": parameters, "secretParameters": password });
    apply(&plane, &device_of("of-native", "native", spec)).await;
    let of_redfish = json!({
        "ip": "127.0.0.1", "ipport": service.port().to_string(), "username": USER, "systems_uri": system(&redfish),
        "ssl_insecure": "true",
    });
    let spec = json!({ "driver": "Agent", "agent": "fence_redfish", "nodeParameters": { "redfish": of_redfish }, "secretParameters": password });
    apply(&plane, &device_of("of-redfish", "redfish", spec)).await;
    let of_agent = json!({ "status_file": rigs.file("agent.power").to_str().unwrap() });
    let spec = json!({ "driver": "Agent", "agent": "fence_dummy", "nodeParameters": { "agent": of_agent } });
    apply(&plane, &device_of("of-agent", "agent", spec)).await;
    for node in ["native", "redfish", "agent", "nobody"] {
        apply(&plane, &policy_of(node)).await;
    }

    let (components, pod_safety) = leader_beside(&plane, &kubeconfig, "statefulset-controller", &rigs).await;
    Fixture { plane, audit, pod_safety, machines, _redfish: service, _components: components, _running: running }
}

async fn pod_of(fixture: &Fixture, node: &str) -> Option<Pod> {
    observe::find_pod(&fixture.plane.admin(), NAMESPACE, &format!("db-{node}-0")).await.unwrap()
}

async fn until_at_home(fixture: &Fixture, node: &'static str) -> String {
    apply(&fixture.plane, &database(node)).await;
    wait_until(&format!("the database of {node} runs there"), async || {
        match pod_of(fixture, node).await.as_ref().and_then(observe::is_running) {
            Some((at, uid)) if at == node => Ok(uid),
            Some(other) => {
                // On a busy machine its node may have been not Ready for a moment, so the scheduler chose another one.
                let pod = format!("db-{node}-0");
                observe::delete_pod(&fixture.plane.admin(), NAMESPACE, &pod, false).await.unwrap();
                Err(format!("{other:?}"))
            }
            None => Err("it does not run".to_owned()),
        }
    })
    .await
}

/// From the evidence until a pod with another UID runs on another machine.
async fn until_elsewhere(fixture: &Fixture, node: &'static str, uid: &str) -> Duration {
    let machine = &fixture.machines[node];
    let proved = wait_until(&format!("{node} is proved off"), async || {
        let gone = pod_of(fixture, node).await.is_none_or(|pod| pod.metadata.uid.as_deref() != Some(uid));
        let proofs = fixture.plane.list("fenceevidences").await.unwrap();
        let proved = proofs.iter().any(|proof| proof["spec"]["node"]["name"] == node);
        assert!(proved || !gone, "{node}: its pod went without evidence");
        let fence = node_fence_of(&fixture.plane, node).await.map(|fence| fence["status"].clone());
        if proved { Ok(Instant::now()) } else { Err(format!("{fence:#?}")) }
    })
    .await;
    assert!(!machine.has_power(), "evidence says off, and it is");
    let (at, new) = wait_until(&format!("the database of {node} runs elsewhere"), async || {
        match pod_of(fixture, node).await.as_ref().and_then(observe::is_running) {
            Some((at, new)) if new != uid => Ok((at, new)),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let took = proved.elapsed();
    let pod = format!("db-{node}-0");
    fixture.audit.was_soon_after_evidence(node, |entry| entry.matches("delete", "pods", &pod)).unwrap();
    assert!(at != node && new != uid && !machine.has_power(), "{node} is off, and it runs on {at}");
    took
}

async fn the_pod_stays_and_each_view_names_the_cause(fixture: &Fixture, node: &'static str, uid: &str) {
    let until = Instant::now() + NO_TIMEOUT;
    while Instant::now() < until {
        let pod = pod_of(fixture, node).await.unwrap();
        assert_eq!(pod.metadata.uid.as_deref(), Some(uid), "nobody proved {node} off");
        assert!(pod.metadata.deletion_timestamp.is_some(), "it was asked to end");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let why = format!("pod-safety/of-{node}");
    let (plane, api) = (&fixture.plane, fixture.plane.admin());
    let fence = node_fence_of(plane, node).await.unwrap();
    assert_eq!(fence["status"]["phase"], "Pending", "{fence:#}");
    let gates = fence["status"]["gates"].as_array().unwrap();
    let gate = gates.iter().find(|gate| gate["name"] == "NoDevices").unwrap();
    assert!(gate["holds"] == true && gate["message"].as_str().unwrap().contains(&why), "{gates:#?}");
    let message = observe::event(&api, "default", node, "FencingHeld").await.unwrap();
    assert!(message.contains(&why), "{message}");
    let holds = fixture.pod_safety.holds(&format!("db-{node}-0")).await.unwrap();
    assert!(!holds.is_empty(), "its pod is held with a reason");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_move_from_machines_proved_off_and_stay_on_others() {
    let fixture = fixture().await;
    let mut databases = BTreeMap::new();
    for node in ["native", "redfish", "agent", "nobody"] {
        databases.insert(node, until_at_home(&fixture, node).await);
    }
    for node in databases.keys() {
        fixture.machines[node].cut_off().await;
    }
    let fenced = ["native", "redfish", "agent"].map(|node| until_elsewhere(&fixture, node, &databases[node]));
    let took = futures::future::join_all(fenced).await;
    println!("from the evidence to Running elsewhere: {took:?}");
    for node in ["native", "redfish", "agent"] {
        let fence = until_phase(&fixture.plane, node, "Done").await;
        let attempts = fence["status"]["attempts"].as_array().unwrap();
        let acts: Vec<_> = attempts.iter().map(|attempt| attempt["act"].as_str().unwrap()).collect();
        assert_eq!(acts, ["off", "on"], "one shot each: {fence:#}");
    }
    the_pod_stays_and_each_view_names_the_cause(&fixture, "nobody", &databases["nobody"]).await;
}
