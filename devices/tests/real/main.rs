//! Fence agents as Debian ships them, and the controllers that they were written for.
#![expect(clippy::unwrap_used, reason = "tests: a failure should be loud, also in what they share")]

mod machines;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use pod_safety_clock::Env;
use pod_safety_control_plane::rigs::{PASSWORD, Rigs, USER};
use pod_safety_devices::{AgentLocation, AgentOptions, Devices};
use pod_safety_locks::documents::blocks;
use pod_safety_transport::{
    Act, Answer, DeviceError, Driver, FenceTransport as _, Identity, Machine, Order, Power, Secret, Value,
};
use serde_json::Value as Json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const UUID: &str = "27946b59-9e44-4fa7-8e91-f3527a1ef094";
const OTHER: &str = "11111111-2222-3333-4444-555555555555";

/// One device of one node.
struct Device {
    devices: Devices,
    driver: Driver,
    parameters: BTreeMap<String, Value>,
    system_uuid: &'static str,
}

impl Device {
    fn new(rigs: &Rigs, driver: Driver, parameters: &[(&str, &str)]) -> Self {
        Self::from_directory(rigs.agents(), driver, parameters)
    }

    fn from_directory(agents: PathBuf, driver: Driver, parameters: &[(&str, &str)]) -> Self {
        let options = AgentOptions { directories: vec![agents], fence_dummy: true };
        let devices = Devices::new(Env::real(1), AgentLocation::Local(options));
        let value = |(name, value): &(&str, &str)| ((*name).to_owned(), Value::Plain((*value).to_owned()));
        Self { devices, driver, parameters: parameters.iter().map(value).collect(), system_uuid: "" }
    }

    fn agent(rigs: &Rigs, name: &str, parameters: &[(&str, &str)]) -> Self {
        Self::new(rigs, Driver::Agent(name.into()), parameters)
    }

    fn login(mut self, password: &str) -> Self {
        self.parameters.insert("username".to_owned(), Value::Plain(USER.to_owned()));
        self.parameters.insert("password".to_owned(), Value::Secret(Secret::new(password.to_owned())));
        self
    }

    async fn carry_out_within(&self, act: Act, within: Duration) -> Result<Answer, DeviceError> {
        self.devices.check(&self.driver, &self.parameters).await?;
        let machine = Machine { node: "node-1".into(), system_uuid: self.system_uuid.into(), ..Machine::default() };
        let (driver, parameters) = (self.driver.clone(), self.parameters.clone());
        let answer = self.devices.carry_out(Order { driver, parameters, machine, act, within }).await;
        assert!(!format!("{answer:?}").contains(PASSWORD), "{answer:?}");
        answer
    }

    async fn act(&self, act: Act) -> Result<Answer, DeviceError> {
        self.carry_out_within(act, Duration::from_secs(60)).await
    }

    async fn power(&self) -> Power {
        self.act(Act::Look).await.unwrap().power
    }
}

#[tokio::test]
async fn fence_dummy() {
    let rigs = Rigs::new().await.unwrap();
    let file = rigs.file("node-1.power");
    let dummy = Device::agent(&rigs, "fence_dummy", &[("status_file", file.to_str().unwrap())]);
    // The trap that makes this agent one for tests alone: a missing file is off.
    assert_eq!(dummy.power().await, Power::Off);
    dummy.act(Act::On).await.unwrap();
    assert_eq!(dummy.power().await, Power::On);
    let answer = dummy.act(Act::Off).await.unwrap();
    assert_eq!((answer.power, answer.said.as_str()), (Power::Unknown, "Success: Powered OFF"));
    assert_eq!(dummy.power().await, Power::Off);
    assert_eq!(dummy.act(Act::Off).await.unwrap().said, "Success: Already OFF");
}

#[tokio::test]
async fn fence_dummy_gets_no_unknown_parameter() {
    let rigs = Rigs::new().await.unwrap();
    let bad = Device::agent(&rigs, "fence_dummy", &[("status_file", "/x"), ("plug", "1")]);
    assert!(matches!(bad.act(Act::Off).await, Err(DeviceError::Parameter { name, .. }) if name == "plug"));
    let none = Device::agent(&rigs, "fence_dummy", &[]);
    assert!(matches!(none.act(Act::Off).await, Err(DeviceError::Parameter { name, .. }) if name == "status_file"));
}

#[tokio::test]
async fn fence_dummy_that_sleeps_is_killed_at_the_deadline() {
    let rigs = Rigs::new().await.unwrap();
    let file = rigs.file("node-1.power");
    let fail = [("status_file", file.to_str().unwrap()), ("delay", "600")];
    let slow = Device::agent(&rigs, "fence_dummy", &fail);
    let within = Duration::from_secs(3);
    let answer = slow.carry_out_within(Act::Off, within).await;
    assert_eq!(answer, Err(DeviceError::TimedOut { after: within }));
}

/// The agents' own reader trims, unquotes and drops; it reads every accepted value unchanged.
#[tokio::test]
async fn unusual_values_reach_the_agent_unchanged() {
    let rigs = Rigs::new().await.unwrap();
    for name in ["a  b", "a=b=", "#a", "\"a", "a\"", "\"a\"b", "'a'", "\\a", "%41", "$a", "é", "a\tb"] {
        let file = rigs.file(name);
        let dummy = Device::agent(&rigs, "fence_dummy", &[("status_file", file.to_str().unwrap())]);
        dummy.act(Act::On).await.unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "on", "{name}");
    }
}

/// Agents whose library is missing report that; agents that read no power are refused by their own metadata.
#[tokio::test]
async fn agents_of_the_distribution_are_accepted_by_their_metadata() {
    let rigs = Rigs::new().await.unwrap();
    for name in
        ["fence_kdump", "fence_sbd", "fence_scsi", "fence_brocade", "fence_rcd_serial", "fence_zvmip", "fence_ovh"]
    {
        let refused = Device::agent(&rigs, name, &[]).act(Act::Look).await;
        assert!(matches!(refused, Err(DeviceError::Metadata { .. })), "{name}: {refused:?}");
    }
    for name in ["fence_apc", "fence_aws", "fence_ilo4", "fence_idrac", "fence_virsh", "fence_vmware_rest"] {
        let refused = Device::agent(&rigs, name, &[("passwrd", "x")]).act(Act::Look).await;
        assert!(matches!(refused, Err(DeviceError::Parameter { .. })), "{name}: {refused:?}");
    }
}

#[tokio::test]
async fn fence_ipmilan() {
    let rigs = Rigs::new().await.unwrap();
    let bmc = rigs.ipmi("node-1").await.unwrap();
    let port = bmc.port().to_string();
    // The default cipher is one that this controller refuses after 14 s.
    let parameters = [("ip", "127.0.0.1"), ("ipport", &*port), ("lanplus", "true"), ("cipher", "3")];
    let device = Device::agent(&rigs, "fence_ipmilan", &parameters).login(PASSWORD);
    assert_eq!(device.power().await, Power::On);
    device.act(Act::Off).await.unwrap();
    assert!(!bmc.is_on().unwrap());
    assert_eq!(device.power().await, Power::Off);
    device.act(Act::On).await.unwrap();
    assert!(bmc.is_on().unwrap());

    let stranger = Device::agent(&rigs, "fence_ipmilan", &parameters).login("wrong");
    let error = stranger.act(Act::Off).await.unwrap_err();
    assert!(matches!(error, DeviceError::Unreachable { .. } | DeviceError::Failed { .. }), "{error}");
    assert!(bmc.is_on().unwrap());
}

/// The agent waits for ipmitool, and ipmitool for a controller that does not exist: for 20 s without the deadline.
#[tokio::test]
async fn the_ipmitool_of_an_agent_is_killed_with_it() {
    let rigs = Rigs::new().await.unwrap();
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = nobody.local_addr().unwrap().port().to_string();
    let parameters = [("ip", "127.0.0.1"), ("ipport", &*port), ("lanplus", "true"), ("cipher", "3")];
    let device = Device::agent(&rigs, "fence_ipmilan", &parameters).login(PASSWORD);
    let within = Duration::from_secs(6);
    let seen = async {
        let mut seen = 0;
        for _ in 0..250 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            seen = running(&port).max(seen);
        }
        seen
    };
    let (answer, seen) = tokio::join!(device.carry_out_within(Act::Off, within), seen);
    assert_eq!(answer, Err(DeviceError::TimedOut { after: within }));
    assert!(seen > 0, "there was no ipmitool to end");
    assert_eq!(running(&port), 0);
}

/// How many processes have this word among their arguments.
fn running(name: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let arguments = processes.map(|process| std::fs::read(process.path().join("cmdline")).unwrap_or_default());
    arguments.filter(|text| text.split(|byte| *byte == 0).any(|argument| argument == name.as_bytes())).count()
}

#[tokio::test]
async fn redfish_natively() {
    let rigs = Rigs::new().await.unwrap();
    let service = rigs.redfish(&[("node-1", UUID), ("node-2", OTHER)], None).await.unwrap();
    let (address, ca) = (service.address(), rigs.authority().unwrap());
    let system = format!("/redfish/v1/Systems/{UUID}");
    let parameters = [("address", &*address), ("ca", &ca), ("system", &system)];
    let mut device = Device::new(&rigs, Driver::Redfish, &parameters).login(PASSWORD);
    device.system_uuid = UUID;
    let look = device.act(Act::Look).await.unwrap();
    assert_eq!((look.power, look.identity), (Power::On, Identity::Match));
    assert_eq!(device.act(Act::Off).await.unwrap().power, Power::Off);
    assert_eq!(device.act(Act::On).await.unwrap().power, Power::On);

    // The same with the wrong machine, the wrong password, no trusted certificate, and no system.
    device.system_uuid = OTHER;
    let stranger = device.act(Act::Off).await.unwrap();
    assert_eq!(stranger.identity, Identity::Mismatch { found: UUID.to_owned() });
    device.system_uuid = UUID;
    assert_eq!(device.power().await, Power::On);
    let refused = Device::new(&rigs, Driver::Redfish, &parameters).login("wrong").act(Act::Off).await;
    assert!(matches!(refused, Err(DeviceError::Login { .. })), "{refused:?}");
    let other = Rigs::new().await.unwrap().authority().unwrap();
    let strange = [("address", &*address), ("ca", &other), ("system", &system)];
    let refused = Device::new(&rigs, Driver::Redfish, &strange).login(PASSWORD).act(Act::Off).await;
    assert!(matches!(refused, Err(DeviceError::Tls { .. })), "{refused:?}");
    let which = Device::new(&rigs, Driver::Redfish, &parameters[..2]).login(PASSWORD).act(Act::Look).await;
    assert!(matches!(&which, Err(DeviceError::Parameter { name, .. }) if name == "system"), "{which:?}");
}

#[tokio::test]
async fn fence_redfish() {
    let rigs = Rigs::new().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let service = rigs.redfish(&[("node-1", UUID), ("node-2", OTHER)], Some(&url)).await.unwrap();
    let (port, system) = (service.port().to_string(), format!("/redfish/v1/Systems/{UUID}"));
    let trusting = [("ip", "127.0.0.1"), ("ipport", &*port), ("systems_uri", &system), ("ssl_insecure", "true")];
    let device = Device::agent(&rigs, "fence_redfish", &trusting).login(PASSWORD);
    assert_eq!(device.power().await, Power::On);
    let (off, output) = tokio::join!(device.act(Act::Off), wait_for_message(&listener, "\"pending_power\": null"));
    off.unwrap();
    assert!(output.contains(UUID) && output.contains("\"power_state\": \"Off\""), "{output}");
    assert_eq!(device.power().await, Power::Off);

    // The flag that is false is left out: the agent would treat its mere presence as set.
    let verifying = [("ip", "127.0.0.1"), ("ipport", &*port), ("systems_uri", &system), ("ssl_insecure", "false")];
    let refused = Device::agent(&rigs, "fence_redfish", &verifying).login(PASSWORD).act(Act::On).await;
    assert!(matches!(refused, Err(DeviceError::Tls { .. })), "{refused:?}");
    let nameless = Device::agent(&rigs, "fence_redfish", &[trusting[0], trusting[1], trusting[3]]).login(PASSWORD);
    let refused = nameless.act(Act::Off).await;
    assert!(matches!(&refused, Err(DeviceError::Parameter { name, .. }) if name == "systems_uri"), "{refused:?}");
}

/// Each FenceDevice that the docs show for an agent has parameters that this agent accepts; nothing is sent.
#[tokio::test]
async fn agents_accept_the_parameters_in_the_docs() {
    let rigs = Rigs::new().await.unwrap();
    let mut agents = BTreeSet::new();
    for block in blocks().unwrap().iter().filter(|block| block.is_yaml()) {
        for spec in fence_devices(&block.text) {
            let Some(agent) = spec["agent"].as_str() else { continue };
            let mut device = Device::agent(&rigs, agent, &[]);
            let own = spec["nodeParameters"].as_object().and_then(|nodes| nodes.values().next());
            for given in [Some(&spec["parameters"]), own].into_iter().flatten() {
                for (name, value) in given.as_object().into_iter().flatten() {
                    let value = value.as_str().unwrap_or_else(|| panic!("{name} of {agent} is no text"));
                    device.parameters.insert(name.clone(), Value::Plain(filled(value)));
                }
            }
            for secret in spec["secretParameters"].as_array().into_iter().flatten() {
                let name = secret["parameter"].as_str().unwrap().to_owned();
                device.parameters.insert(name, Value::Secret(Secret::new(PASSWORD.to_owned())));
            }
            let checked = device.devices.check(&device.driver, &device.parameters).await;
            assert_eq!(checked, Ok(()), "{}: {agent}", block.place());
            agents.insert(agent.to_owned());
        }
    }
    assert!(agents.len() > 7, "the docs show more agents than {agents:?}");
}

fn fence_devices(block: &str) -> Vec<Json> {
    let objects = serde_saphyr::from_multiple::<Json>(block).unwrap_or_default().into_iter();
    objects.filter(|object| object["kind"] == "FenceDevice").map(|mut object| object["spec"].take()).collect()
}

/// With one word in place of each field of the node, as any of them may be.
fn filled(template: &str) -> String {
    template
        .split("{{")
        .map(|part| part.split_once("}}").map_or(part.to_owned(), |(_, rest)| format!("{UUID}{rest}")))
        .collect()
}

/// The first of the service's messages that contains `text`. Each is answered, as the service waits for the answer.
async fn wait_for_message(listener: &TcpListener, text: &str) -> String {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut message = Vec::new();
        while !message.ends_with(b"}") {
            assert!(stream.read_buf(&mut message).await.unwrap() > 0);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await.unwrap();
        let message = String::from_utf8_lossy(&message).into_owned();
        if message.contains(text) {
            return message;
        }
    }
}
