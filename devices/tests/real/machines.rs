//! Machines of a cloud and of hypervisors.

use std::path::Path;

use pod_safety_control_plane::rigs::hypervisor::{self, runs};
use pod_safety_control_plane::rigs::{PASSWORD, Rigs, USER, ec2};
use pod_safety_transport::{Act, DeviceError, Driver, Power, Secret, Value};

use super::{Device, OTHER, UUID};

/// An instance of EC2 as moto simulates it. A terminated one is gone; one that never existed, or that is queried in
/// another region, is not.
#[tokio::test]
async fn fence_aws() {
    let rigs = Rigs::new().await.unwrap();
    let cloud = rigs.ec2().await.unwrap();
    let (mine, neighbour) = (cloud.launch().await.unwrap(), cloud.launch().await.unwrap());
    let device = |id: &str| {
        let driver = Driver::Agent("fence_aws".into());
        let parameters = [("region", ec2::REGION), ("plug", id), ("access_key", USER)];
        let mut device = Device::from_directory(cloud.agents().to_owned(), driver, &parameters);
        let key = Value::Secret(Secret::new("wJalrXUtnFEMI".to_owned()));
        device.parameters.insert("secret_key".to_owned(), key);
        device
    };
    let ours = device(&mine);
    assert_eq!(ours.power().await, Power::On);
    ours.act(Act::Off).await.unwrap();
    assert_eq!(cloud.state(&mine).await.unwrap(), "stopped");
    assert_eq!(ours.power().await, Power::Off);
    assert_eq!(cloud.state(&neighbour).await.unwrap(), "running", "the other one is left alone");
    ours.act(Act::On).await.unwrap();
    assert_eq!(ours.power().await, Power::On);

    ours.act(Act::Off).await.unwrap();
    assert_eq!(ours.act(Act::Off).await.unwrap().said, "Success: Already OFF", "it was stopped before");

    cloud.terminate(&neighbour).await.unwrap();
    let gone = device(&neighbour).act(Act::Look).await.unwrap();
    assert_eq!((gone.power, gone.said), (Power::Gone, format!("instance {neighbour} is terminated")));
    for act in [Act::Off, Act::On] {
        assert_eq!(device(&neighbour).act(act).await.unwrap().power, Power::Gone, "{act:?}");
    }
    let mut elsewhere = device(&neighbour);
    elsewhere.parameters.insert("region".to_owned(), Value::Plain("us-east-1".to_owned()));
    let mut filtered = device("i-0123456789abcdef0");
    filtered.parameters.insert("filter".to_owned(), Value::Plain("instance-state-name=running".to_owned()));
    for (what, device) in
        [("it never was", device("i-0123456789abcdef0")), ("another region", elsewhere), ("a filter", filtered)]
    {
        let answer = device.act(Act::Look).await;
        assert!(
            matches!(&answer, Err(DeviceError::Failed { said }) if said.contains("plug is not available")),
            "{what}: {answer:?}"
        );
    }
    assert_eq!(ours.power().await, Power::Off, "stopped is not terminated");
}

/// Its agent prints one message for all that EC2 refuses, and no such message means off or gone.
#[tokio::test]
async fn fence_aws_of_a_cloud_that_refuses() {
    let rigs = Rigs::new().await.unwrap();
    for (status, code) in [
        ("503 Service Unavailable", "RequestLimitExceeded"),
        ("400 Bad Request", "RequestExpired"),
        ("403 Forbidden", "UnauthorizedOperation"),
    ] {
        let (agents, cloud) = rigs.ec2_refusing(status, code).await.unwrap();
        let driver = Driver::Agent("fence_aws".into());
        let parameters = [("region", ec2::REGION), ("plug", "i-0123456789abcdef0"), ("access_key", USER)];
        let mut device = Device::from_directory(agents, driver, &parameters);
        let key = Value::Secret(Secret::new("wJalrXUtnFEMI".to_owned()));
        device.parameters.insert("secret_key".to_owned(), key);
        for act in [Act::Look, Act::Off] {
            let answer = device.act(act).await;
            assert!(matches!(&answer, Err(DeviceError::Refused { .. })), "{code}, {act:?}: {answer:?}");
        }
        cloud.abort();
    }
}

/// A machine of a vCenter as govmomi's simulator simulates it. Each failure has its own category, and no failure is
/// off.
#[tokio::test]
async fn fence_vmware_soap() {
    let rigs = Rigs::new().await.unwrap();
    let vcenter = rigs.vcenter().await.unwrap();
    let [mine, neighbour, gone] = &vcenter.machines().await.unwrap()[..3] else { panic!("too few machines") };
    let port = vcenter.port().to_string();
    let device = |agents: &Path, plug: &str, password: &str| {
        let driver = Driver::Agent("fence_vmware_soap".into());
        let parameters = [("ip", "127.0.0.1"), ("ipport", &*port), ("plug", plug), ("ssl", "true")];
        Device::from_directory(agents.to_owned(), driver, &parameters).login(password)
    };
    let ours = device(vcenter.agents(), &mine.uuid, PASSWORD);
    let power = async |uuid: &str| vcenter.power(uuid).await.unwrap();
    assert_eq!(ours.power().await, Power::On);
    ours.act(Act::Off).await.unwrap();
    assert_eq!((&*power(&mine.uuid).await, &*power(&neighbour.uuid).await), ("poweredOff", "poweredOn"));
    assert_eq!(ours.power().await, Power::Off);
    assert_eq!(ours.act(Act::Off).await.unwrap().said, "Success: Already OFF");
    ours.act(Act::On).await.unwrap();
    assert_eq!(power(&mine.uuid).await, "poweredOn");

    // It identifies machines by their UUID, in any spelling; one that it does not know is never off.
    assert_eq!(device(vcenter.agents(), &mine.uuid.to_uppercase(), PASSWORD).power().await, Power::On);
    vcenter.change_machine(&gone.uuid, "destroy").await.unwrap();
    for uuid in [&*gone.uuid, OTHER] {
        let answer = device(vcenter.agents(), uuid, PASSWORD).act(Act::Look).await;
        assert!(
            matches!(&answer, Err(DeviceError::Failed { said }) if said.contains("plug is not available")),
            "{answer:?}"
        );
    }

    let class = async |device: &Device, act: Act| match device.act(act).await {
        Err(DeviceError::Login { said }) => format!("login: {said}"),
        Err(DeviceError::Tls { said }) => format!("tls: {said}"),
        Err(DeviceError::Unreachable { said }) => format!("unreachable: {said}"),
        Err(DeviceError::Throttled { said }) => format!("throttled: {said}"),
        Err(DeviceError::Failed { said }) => format!("failed: {said}"),
        other => panic!("{other:?}"),
    };
    let words = class(&device(vcenter.agents(), &mine.uuid, "expired"), Act::Off).await;
    assert!(words.starts_with("login: ") && words.contains("Login failure"), "{words}");
    let words = class(&device(&rigs.agents(), &mine.uuid, PASSWORD), Act::Off).await;
    assert!(words.starts_with("tls: "), "its authority is unknown: {words}");
    for (call, fault, act, class_of, says) in [
        ("Login", "Throttled", Act::Off, "throttled: ", "number of concurrent sessions is exceeded"),
        ("PowerOffVM_Task", "NoPermission", Act::Off, "login: ", "not have the correct privileges"),
        ("RetrievePropertiesEx", "NotAuthenticated", Act::Look, "failed: ", "session is not authenticated"),
    ] {
        vcenter.fails(call, fault).await.unwrap();
        let words = class(&ours, act).await;
        assert!(words.starts_with(class_of) && words.contains(says), "{fault}: {words}");
        vcenter.fails("", "").await.unwrap();
    }
    assert_eq!(power(&mine.uuid).await, "poweredOn", "nothing that failed has switched it");

    // A suspended machine has its processes in memory, and this agent reports it off: so its report needs a second
    // fact.
    vcenter.change_machine(&neighbour.uuid, "suspend").await.unwrap();
    assert_eq!(device(vcenter.agents(), &neighbour.uuid, PASSWORD).power().await, Power::Off);
}

/// A machine of libvirt that is a process of QEMU: off means that there is no such process.
#[tokio::test]
async fn fence_virsh() {
    let rigs = Rigs::new().await.unwrap();
    let machines = [("node-1", UUID), ("node-2", OTHER)];
    let Some(hypervisor) = rigs.hypervisor(&machines).await.unwrap() else { return };
    let port = hypervisor.port().to_string();
    let device = |plug: &str, password: &str| {
        let driver = Driver::Agent("fence_virsh".into());
        let parameters = [("ip", "127.0.0.1"), ("ipport", &*port), ("plug", plug), ("username", hypervisor::USER)];
        let mut device = Device::from_directory(hypervisor.agents().to_owned(), driver, &parameters);
        let password = Value::Secret(Secret::new(password.to_owned()));
        device.parameters.insert("password".to_owned(), password);
        device
    };
    let ours = device(UUID, PASSWORD);
    assert_eq!((ours.power().await, runs(UUID)), (Power::On, true));
    ours.act(Act::Off).await.unwrap();
    assert_eq!((runs(UUID), runs(OTHER)), (false, true), "its process is gone, and no other");
    assert_eq!(ours.power().await, Power::Off);
    assert_eq!(ours.act(Act::Off).await.unwrap().said, "Success: Already OFF");
    ours.act(Act::On).await.unwrap();
    assert_eq!((ours.power().await, runs(UUID)), (Power::On, true));

    let failed = device("99999999-2222-3333-4444-555555555555", PASSWORD).act(Act::Look).await;
    assert!(matches!(&failed, Err(DeviceError::Failed { said }) if said.contains("existing name/UUID")), "{failed:?}");
    let refused = device(UUID, "expired").act(Act::Off).await;
    assert!(matches!(refused, Err(DeviceError::Unreachable { .. } | DeviceError::Login { .. })), "{refused:?}");

    // A paused machine may continue at any time.
    hypervisor.virsh(&["suspend", "node-1"]).unwrap();
    assert_eq!(ours.power().await, Power::On);
    ours.act(Act::Off).await.unwrap();
    assert!(!runs(UUID));

    // A saved machine starts with the memory that it had, and this agent reports it off: so its report needs a second
    // fact.
    hypervisor.virsh(&["managedsave", "node-2"]).unwrap();
    assert_eq!((device(OTHER, PASSWORD).power().await, runs(OTHER)), (Power::Off, false));
}
