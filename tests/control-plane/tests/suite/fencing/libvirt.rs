//! Nodes that are libvirt domains: QEMU processes, which exist or not.

use pod_safety_control_plane::rigs::hypervisor;
use pod_safety_control_plane::rigs::hypervisor::Hypervisor;

use super::*;

const ONE: &str = "5a0f3a52-0c7e-4cb2-9c0e-6d9f0b1f3c01";
const TWO: &str = "5a0f3a52-0c7e-4cb2-9c0e-6d9f0b1f3c02";
const NONE: &str = "5a0f3a52-0c7e-4cb2-9c0e-6d9f0b1f3c03";

/// The device of docs/quickstart-cloud.md.
fn device(hypervisor: &Hypervisor) -> Value {
    let spec = json!({
        "driver": "Agent", "agent": "fence_virsh",
        "parameters": { "plug": "{{.Instance.ID}}", "ip": "127.0.0.1", "ipport": hypervisor.port().to_string(), "username": hypervisor::USER },
        "secretParameters": [{ "parameter": "password", "secret": "kvm-1", "key": "password" }],
        "timeouts": { "powerOff": "60s", "powerOn": "60s", "status": "20s" },
    });
    super::device("kvm-1", spec)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_released_when_libvirt_reports_its_domain_off() {
    let rigs = Rigs::new().await.unwrap();
    let machines = [("w1", ONE), ("w2", TWO)];
    let Some(hypervisor) = rigs.hypervisor(&machines).await.unwrap() else { return };
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    let machine = |name, uuid| Machine::in_cloud(name, &format!("libvirt:///{uuid}"), move || hypervisor::runs(uuid));
    let (lost, neighbour) = (machine("w1", ONE), machine("w2", TWO));
    let unknown = Machine::in_cloud("w3", &format!("libvirt:///{NONE}"), || true);
    let _kubelets = kubelets(&plane, [&lost, &neighbour, &unknown]);
    plane.namespace(NAMESPACE).await.unwrap();
    for object in [secret("kvm-1", PASSWORD), device(&hypervisor), policy_of_all("kvm-1")] {
        apply(&plane, &object).await;
    }
    let agents = format!("--fence-agents-path={}", hypervisor.agents().display());
    let _pod_safety = leader(&plane, &kubeconfig, &[&agents]).await;
    for name in ["w1", "w2"] {
        let target = target(&plane, name).await;
        assert_eq!((&target["power"], &target["problem"]), (&json!("On"), &Value::Null), "{target}");
    }
    let refused = target(&plane, "w3").await;
    assert!(refused["problem"] == "Failed" && refused.to_string().contains("existing name/UUID"), "{refused}");

    stateful_pod(&plane, "db", "w1").await;
    lost.cut_off().await;
    let begun = Instant::now();
    // Its kubelet does not report any more, and its process runs: the pod stays until the process is gone.
    wait_until("the process of its machine is gone", async || check_that(!hypervisor::runs(ONE), "it runs")).await;
    until_released(&plane, "db-0").await;
    println!("libvirt: released {:.1} s after the loss", begun.elapsed().as_secs_f64());
    wait_until("its machine is started again", async || {
        check_that(lost.boots() == 2 && hypervisor::runs(ONE), format!("{} boots", lost.boots()))
    })
    .await;
    assert_eq!((hypervisor::runs(TWO), neighbour.boots()), (true, 1));
}
