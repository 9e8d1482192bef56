//! Agents that are small scripts, each with one fault.

mod outputs;
mod parameters;
pub(crate) mod runs;

use pod_safety_transport::Power;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use pod_safety_clock::Env;
use pod_safety_transport::{Act, Answer, DeviceError, Driver, FenceTransport as _, Machine, Order, Secret, Value};
use tempfile::TempDir;

use crate::{AgentLocation, AgentOptions, Devices};

pub(crate) const METADATA: &str = r#"<?xml version="1.0" ?>
<resource-agent name="fence_test" shortdesc="for tests" >
<longdesc>fence_test is for tests.</longdesc>
<vendor-url>http://www.example.com</vendor-url>
<parameters>
	<parameter name="action" unique="0" required="1"><getopt mixed="-o, --action=[action]" /><content type="string" default="reboot" /></parameter>
	<parameter name="ip" unique="0" required="1" obsoletes="ipaddr"><content type="string" /></parameter>
	<parameter name="ipaddr" unique="0" required="1" deprecated="1"><content type="string" /></parameter>
	<parameter name="password" unique="0" required="0" obsoletes="passwd"><content type="string" /></parameter>
	<parameter name="passwd" unique="0" required="0" deprecated="1"><content type="string" /></parameter>
	<parameter name="password_script" unique="0" required="0"><content type="string" /></parameter>
	<parameter name="plug" unique="0" required="0"><content type="string" /></parameter>
	<parameter name="power_timeout" unique="0" required="0"><content type="second" default="20" /></parameter>
	<parameter name="ssl_insecure" unique="0" required="0"><content type="boolean" /></parameter>
	<parameter name="lanplus" unique="0" required="0"><content type="boolean" default="1" /></parameter>
	<parameter name="ssl" unique="0" required="0"><content type="boolean" default="1" /></parameter>
	<parameter name="missing_as_off" unique="0" required="0"><content type="boolean" /></parameter>
	<parameter name="method" unique="0" required="0"><content type="select" default="onoff"><option value="onoff" /><option value="cycle" /></content></parameter>
	<parameter name="new_text" unique="0" required="0"><content type="string" /></parameter>
	<parameter name="new_flag" unique="0" required="0"><content type="boolean" /></parameter>
	<parameter name="new_number" unique="0" required="0"><content type="second" /></parameter>
	<parameter name="new_choice" unique="0" required="0"><content type="select"><option value="a" /></content></parameter>
	<parameter name="login_timeout" unique="0" required="0"><content type="string" /></parameter>
	<parameter name="status_file" unique="0" required="0"><content type="string" /></parameter>
	<parameter name="debug_file" unique="0" required="0"><content type="string" /></parameter>
	<parameter name="port_as_ip" unique="0" required="0"><content type="boolean" /></parameter>
	<parameter name="ipmitool_path" unique="0" required="0"><content type="string" default="/usr/bin/ipmitool" /></parameter>
</parameters>
<actions>
	<action name="on" automatic="0"/>
	<action name="off" />
	<action name="reboot" />
	<action name="status" />
	<action name="monitor" />
	<action name="metadata" />
</actions>
</resource-agent>"#;

/// A secret that a shell, a URL and a string each encode differently.
pub(crate) const SECRET: &str = "p'a ss$word\\1";

/// A folder of agents, and the devices that use it.
pub(crate) struct AgentFixture {
    folder: TempDir,
    pub(crate) devices: Devices,
}

impl AgentFixture {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = AgentOptions { directories: vec![folder.path().to_owned()], fence_dummy: false };
        let devices = Devices::new(Env::real(1), AgentLocation::Local(options));
        Self { folder, devices }
    }

    pub(crate) fn options(&self) -> AgentOptions {
        AgentOptions { directories: vec![self.folder.path().to_owned()], fence_dummy: false }
    }

    /// The same agents, reached by a server at this socket.
    pub(crate) fn by_socket(self, socket: PathBuf) -> Self {
        Self { devices: Devices::new(Env::real(1), AgentLocation::Socket(socket)), ..self }
    }

    /// An agent that prints its metadata; for any other action it executes `body`, with `$here` as its folder. Its
    /// input is in `$here/stdin`.
    pub(crate) fn agent(self, body: &str) -> Self {
        self.agent_that_starts("", body)
    }

    /// As [`Self::agent`], with `start` executed before it reads its input.
    pub(crate) fn agent_that_starts(self, start: &str, body: &str) -> Self {
        self.raw(&format!(
            "here=${{0%/*}}\n{start}\ncat > \"$here/stdin\"\nif grep -q action=metadata \"$here/stdin\"; then echo asked >> \"$here/asked\"; \
             cat <<'END'\n{METADATA}\nEND\nexit 0\nfi\n{body}\n"
        ))
    }

    /// An agent that is the shell script `text`.
    pub(crate) fn raw(self, text: &str) -> Self {
        // Written by another process: a file that this process has open for writing, even in a child that was just
        // forked for another test, cannot be executed.
        let path = self.path("fence_test");
        let mut writer = Command::new("/bin/sh")
            .args(["-c", "cat > \"$0.new\" && chmod 755 \"$0.new\" && mv \"$0.new\" \"$0\""])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        writer.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{text}").as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) async fn act(&self, act: Act) -> Result<Answer, DeviceError> {
        self.devices.carry_out(order(act, Duration::from_secs(20))).await
    }

    pub(crate) async fn check(&self, parameters: &[(&str, &str)]) -> Result<(), DeviceError> {
        let agent = Driver::Agent("fence_test".into());
        self.devices.check(&agent, &plain(parameters)).await
    }
}

pub(crate) fn plain(parameters: &[(&str, &str)]) -> BTreeMap<String, Value> {
    let value = |(name, value): &(&str, &str)| ((*name).to_owned(), Value::Plain((*value).to_owned()));
    parameters.iter().map(value).collect()
}

pub(crate) fn order(act: Act, within: Duration) -> Order {
    let mut parameters = plain(&[("ip", "192.0.2.1"), ("ssl_insecure", "false"), ("lanplus", "no")]);
    parameters.insert("password".to_owned(), Value::Secret(Secret::new(SECRET.to_owned())));
    let machine = Machine { node: "node-1".into(), ..Machine::default() };
    Order { driver: Driver::Agent("fence_test".into()), parameters, machine, act, within }
}
