//! Virtual machines of a vCenter: one FenceDevice for all nodes, which finds each machine by the providerID of its Node.

use pod_safety_control_plane::rigs::vcenter::Vcenter;

use super::*;

/// The device of docs/quickstart-cloud.md.
fn device(vcenter: &Vcenter) -> Value {
    let spec = json!({
        "driver": "Agent", "agent": "fence_vmware_soap",
        "parameters": { "plug": "{{.Instance.ID}}", "ip": "127.0.0.1", "ipport": vcenter.port().to_string(), "username": "admin", "ssl": "true" },
        "secretParameters": [{ "parameter": "password", "secret": "vsphere", "key": "password" }],
        "timeouts": { "powerOff": "60s", "powerOn": "60s", "status": "20s" },
    });
    super::device("vsphere", spec)
}

/// A machine that has power while vSphere reports so.
fn machine(vcenter: &Arc<Vcenter>, name: &str, uuid: &str, kubelets: &mut JoinSet<()>) -> Arc<Machine> {
    let runs = Arc::new(AtomicBool::new(true));
    let (looks, looked, of) = (Arc::clone(vcenter), Arc::clone(&runs), uuid.to_owned());
    kubelets.spawn(async move {
        loop {
            if let Ok(power) = looks.power(&of).await {
                looked.store(power == "poweredOn", Ordering::SeqCst);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    Machine::in_cloud(name, &format!("vsphere://{uuid}"), move || runs.load(Ordering::SeqCst))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vsphere_machine_is_selected_by_provider_id() {
    let rigs = Rigs::new().await.unwrap();
    let vcenter = Arc::new(rigs.vcenter().await.unwrap());
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    let mut kubelets = JoinSet::new();
    let [one, two, ..] = &vcenter.machines().await.unwrap()[..] else { panic!("too few machines") };
    let (lost, neighbour) =
        (machine(&vcenter, "w1", &one.uuid, &mut kubelets), machine(&vcenter, "w2", &two.uuid, &mut kubelets));
    let unknown = Machine::in_cloud("w3", "vsphere://11111111-2222-3333-4444-555555555555", || true);
    let elsewhere = Machine::in_cloud("elsewhere", &format!("openstack:///{}", two.uuid), || true);
    for machine in [&lost, &neighbour, &unknown, &elsewhere] {
        kubelets.spawn(Arc::clone(machine).run_kubelet(plane.admin()));
    }
    plane.namespace(NAMESPACE).await.unwrap();
    let login = secret("vsphere", pod_safety_control_plane::rigs::PASSWORD);
    for object in [login, device(&vcenter), policy_of_all("vsphere")] {
        apply(&plane, &object).await;
    }
    let agents = format!("--fence-agents-path={}", vcenter.agents().display());
    let _pod_safety = leader(&plane, &kubeconfig, &[&agents]).await;
    for machine in [&lost, &neighbour] {
        let target = target(&plane, &machine.name).await;
        assert_eq!((&target["power"], &target["problem"]), (&json!("On"), &Value::Null), "{target}");
    }
    for (node, problem, expected) in
        [("w3", "Failed", "plug is not available"), ("elsewhere", "AnotherMachine", "is an instance of openstack")]
    {
        let target = target(&plane, node).await;
        assert!(target["problem"] == problem && target.to_string().contains(expected), "{node}: {target}");
    }

    stateful_pod(&plane, "db", "w1").await;
    lost.cut_off().await;
    let begun = Instant::now();
    until_released(&plane, "db-0").await;
    println!("vSphere: released {:.1} s after the loss", begun.elapsed().as_secs_f64());
    wait_until("its machine is started again", async || {
        let power = vcenter.power(&one.uuid).await.map_err(|error| error.to_string())?;
        check_that(lost.boots() == 2 && power == "poweredOn", format!("{power}, {} boots", lost.boots()))
    })
    .await;
    assert_eq!((vcenter.power(&two.uuid).await.unwrap().as_str(), neighbour.boots()), ("poweredOn", 1));
}
