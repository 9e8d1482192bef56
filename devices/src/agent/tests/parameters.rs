//! Which agents are used, and which parameters they get.

use std::collections::BTreeSet;

use super::super::metadata::Metadata;
use super::super::parameters::Kind;
use super::super::{Agents, METADATA_WITHIN, find, input, parameters, traps};
use pod_safety_control_plane::rigs::Rigs;
use pod_safety_transport::FenceTransport as _;

use super::*;

const GOOD: [(&str, &str); 2] = [("ip", "192.0.2.1"), ("password", "x")];

async fn refusal(name: &str, value: &str) -> String {
    let fixture = AgentFixture::new().agent("exit 1");
    let error = fixture.check(&[GOOD.as_slice(), &[(name, value)]].concat()).await.unwrap_err();
    assert!(matches!(&error, DeviceError::Parameter { name: named, .. } if named == name), "{error}");
    error.to_string()
}

#[tokio::test]
async fn valid_parameters_are_accepted() {
    let fixture = AgentFixture::new().agent("exit 1");
    fixture.check(&GOOD).await.unwrap();
    fixture.check(&[("ip", "{{ .Node.Label \"bmc\" }}"), ("power_timeout", "40"), ("method", "onoff")]).await.unwrap();
}

#[tokio::test]
async fn parameter_names_must_be_in_the_metadata() {
    assert!(refusal("passwrd", "x").await.contains("no such parameter; it has ip, lanplus"));
    assert!(refusal("passwd", "x").await.contains("write \"password\""));
    assert!(refusal("--plug", "x").await.contains("write \"plug\""));
    let fixture = AgentFixture::new().agent("exit 1");
    let error = fixture.check(&[("password", "x")]).await.unwrap_err().to_string();
    assert!(error.contains("\"ip\": the agent requires it"), "{error}");
}

#[tokio::test]
async fn unsafe_parameters_are_refused_with_their_reasons() {
    for (name, value, why) in [
        ("action", "reboot", "pod-safety decides"),
        ("option", "off", "pod-safety decides"),
        ("help", "1", "report success"),
        ("version", "1", "report success"),
        ("debug_file", "/tmp/x", "passwords"),
        ("password_script", "/bin/true", "names a program"),
        ("ipmitool_path", "/bin/true", "names a program"),
        ("ssh_options", "-oProxyCommand=x", "names a program"),
        ("missing_as_off", "1", "count as off"),
        ("network_fencing", "1", "only its network"),
        ("method", "cycle", "not verified"),
        ("ssl", "false", "cannot be switched off"),
        ("ssl_insecure", "maybe", "\"true\" or \"false\""),
        ("power_timeout", "20s", "whole number"),
        ("ip", "host -f /etc/passwd", "one word"),
        ("ip", "-oProxyCommand=x", "one word"),
        ("nodename", "node-2", "pod-safety sets it"),
        ("port_as_ip", "1", "write ip"),
        // In the next release of the agent, or with another type than before: its use was not reviewed.
        ("new_text", "x", "not known to be safe"),
        ("new_flag", "1", "not known to be safe"),
        ("new_number", "1", "not known to be safe"),
        ("new_choice", "a", "not known to be safe"),
        ("login_timeout", "x", "not known to be safe"),
        // For an agent other than the one for tests.
        ("status_file", "/tmp/x", "not known to be safe"),
    ] {
        let error = refusal(name, value).await;
        assert!(error.contains(why), "{error}");
    }
}

/// The agent read and switched the first outlet alone, and the other one fed the machine.
#[tokio::test]
async fn bug_two_outlets_in_one_plug_were_off_when_the_first_was() {
    for (name, value) in [("plug", "1,2"), ("plug", "1,bogus"), ("plug_separator", ";")] {
        let error = refusal(name, value).await;
        assert!(error.contains("one FenceDevice for each outlet, all in one level"), "{name}={value}: {error}");
    }
}

/// SNMP 2c and 3 answer for an outlet that the switch does not have, and the agent calls all but on off.
#[test]
fn bug_an_outlet_that_the_switch_does_not_have_was_off() {
    for (agent, default, given, plug, refused) in [
        ("fence_apc_snmp", "1", None, "25", false),
        ("fence_apc_snmp", "1", Some("2c"), "25", true),
        ("fence_apc_snmp", "1", Some("3"), "2:14", true),
        ("fence_apc_snmp", "1", Some("3"), "db-7", false),
        ("fence_tripplite_snmp", "1", Some("3"), "25", true),
        ("fence_ipdu", "3", None, "25", true),
        ("fence_ipdu", "3", Some("1"), "25", false),
        ("fence_eaton_snmp", "1", Some("3"), "25", false),
    ] {
        let parameter = format!(
            "<parameter name=\"snmp_version\"><content type=\"select\" default=\"{default}\">\
             <option value=\"1\" /><option value=\"2c\" /><option value=\"3\" /></content></parameter></parameters>"
        );
        let metadata = Metadata::read(&METADATA.replace("</parameters>", &parameter)).unwrap();
        let mut order = order(Act::Look, Duration::from_secs(20));
        order.parameters = plain(&[("ip", "192.0.2.1"), ("plug", plug)]);
        let given = given.map(|version: &str| ("snmp_version".to_owned(), Value::Plain(version.to_owned())));
        order.parameters.extend(given);
        let checked = input::check(agent, &metadata, &order.parameters);
        for result in [checked, input::order_input(agent, &metadata, &order).map(drop)] {
            assert_eq!(result.is_err(), refused, "{agent} {plug}: {result:?}");
        }
    }
}

#[tokio::test]
async fn a_value_that_agents_would_change_is_refused_without_being_shown() {
    for secret in [
        "",
        "topsecret\n",
        " topsecret",
        "topsecret\t",
        "\"topsecret\"",
        "top\nsecret",
        "topsecret\0",
        "topsecret\u{1f}",
    ] {
        let fixture = AgentFixture::new().agent("touch \"$here/ran\"; exit 0");
        let mut order = order(Act::Off, Duration::from_secs(20));
        order.parameters.insert("password".to_owned(), Value::Secret(Secret::new(secret.to_owned())));
        let error = fixture.devices.carry_out(order).await.unwrap_err();
        assert!(matches!(&error, DeviceError::Parameter { name, .. } if name == "password"), "{error}");
        assert!(!format!("{error} {error:?}").contains("secret\""), "{error:?}");
        assert!(!fixture.path("ran").exists());
    }
}

#[tokio::test]
async fn an_agent_name_with_a_path_is_refused() {
    let fixture = AgentFixture::new().agent("exit 0");
    for name in ["/bin/true", "../fence_test", "fence_test/../x", "true", "fence_", "fence_Test", "fence_test "] {
        let error = fixture.devices.check(&Driver::Agent(name.into()), &BTreeMap::new()).await.unwrap_err();
        assert!(matches!(error, DeviceError::Metadata { .. }), "{name}: {error}");
    }
    let missing = fixture.devices.check(&Driver::Agent("fence_missing".into()), &plain(&GOOD)).await.unwrap_err();
    assert!(matches!(missing, DeviceError::NoAgent { .. }));
}

/// It reports a machine as off whose file is missing.
#[tokio::test]
async fn fence_dummy_is_refused_unless_the_operator_allows_it() {
    let fixture = AgentFixture::new().agent("exit 1");
    std::fs::rename(fixture.path("fence_test"), fixture.path("fence_dummy")).unwrap();
    let given = plain(&[("ip", "192.0.2.1"), ("status_file", "/tmp/x")]);
    for (fence_dummy, refused) in [(false, true), (true, false)] {
        let options = AgentOptions { fence_dummy, ..fixture.options() };
        let checked = Agents::new(Env::real(1), options, "").check("fence_dummy", &given).await;
        assert_eq!(checked.is_err(), refused, "{checked:?}");
        if let Err(error) = checked {
            assert!(
                matches!(&error, DeviceError::Metadata { .. }) && error.to_string().contains("for tests"),
                "{error}"
            );
        }
    }
}

#[test]
fn agents_that_prove_nothing_are_refused() {
    let refused = |name: &str, from: &str, to: &str| {
        let metadata = Metadata::read(&METADATA.replace(from, to)).unwrap();
        metadata.check_usable(name).unwrap_err()
    };
    assert!(refused("fence_test", "<action name=\"status\" />", "").contains("no action `status`"));
    assert!(refused("fence_test", "<action name=\"off\" />", "").contains("no action `off`"));
    assert!(refused("fence_test", "<action name=\"reboot\" />", "").contains("reports nothing about its power"));
    let always = "name=\"missing_as_off\" unique=\"0\" required=\"0\"><content type=\"boolean\" default=\"1\"";
    let may = "name=\"missing_as_off\" unique=\"0\" required=\"0\"><content type=\"boolean\"";
    assert!(refused("fence_test", may, always).contains("proves nothing"));
    for name in ["fence_sbd", "fence_heuristics_ping", "fence_crosslink", "fence_evacuate"] {
        assert!(Metadata::read(METADATA).unwrap().check_usable(name).is_err(), "{name}");
    }
    Metadata::read(METADATA).unwrap().check_usable("fence_test").unwrap();
}

#[test]
fn metadata_is_read() {
    let metadata = Metadata::read(METADATA).unwrap();
    assert_eq!(metadata.parameters["passwd"].replaced_by.as_deref(), Some("password"));
    assert_eq!(metadata.parameters["method"].kind, Kind::Choice(vec!["onoff".into(), "cycle".into()]));
    assert_eq!(metadata.parameters["lanplus"].default.as_deref(), Some("1"));
    let names: Vec<_> = metadata.names().collect();
    assert_eq!(
        names,
        [
            "ip",
            "lanplus",
            "method",
            "missing_as_off",
            "password",
            "plug",
            "power_timeout",
            "ssl",
            "ssl_insecure",
            "status_file"
        ]
    );
    let laughs = "<!DOCTYPE a [<!ENTITY b \"ha\">]><resource-agent name=\"&b;\"/>";
    assert!(Metadata::read(laughs).unwrap_err().contains("not XML"));
}

/// Agents that cannot be used, or print nothing if the libraries of their cloud are missing.
const NOT_USED: [&str; 18] = [
    "fence_ack_manual",
    "fence_brocade",
    "fence_cisco_mds",
    "fence_compute",
    "fence_crosslink",
    "fence_dummy",
    "fence_evacuate",
    "fence_heuristics_ping",
    "fence_ifmib",
    "fence_kdump",
    "fence_mpath",
    "fence_ovh",
    "fence_rcd_serial",
    "fence_sanbox2",
    "fence_sbd",
    "fence_scsi",
    "fence_vmware_soap",
    "fence_zvmip",
];

/// Parameters that accept any text: it is compared, printed, or sent to the device as a login.
const ANY_TEXT: [&str; 11] = [
    "access_key",
    "apikey",
    "command_prompt",
    "community",
    "disable_timeout",
    "filter",
    "password",
    "secret_key",
    "separator",
    "snmp_priv_passwd",
    "token",
];

/// Parameters whose names look like those of files, and the result of the review of those that are accepted.
const LIKE_FILES: [&str; 8] = ["file", "path", "cert", "config", "openrc", "key", "account", "_script"];
const NO_FILES: [&str; 5] = [
    "identity_file", // ssh reads it; what is in it never leaves
    "api_path",      // a part of a URL
    "access_key",    // a login
    "secret_key",    // a login
    "apikey",        // a login
];

/// A parameter that a deny list did not contain made an agent read the token of this process.
#[tokio::test]
async fn attack_each_parameter_of_all_agents_is_reviewed_and_none_reads_the_token() {
    const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
    let rigs = Rigs::new().await.unwrap();
    let options = AgentOptions { directories: vec![rigs.agents()], fence_dummy: false };
    let agents = Agents::new(Env::real(1), options, "");
    let mut names: Vec<_> =
        std::fs::read_dir(rigs.agents()).unwrap().map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.starts_with("fence_"));
    names.sort();
    assert!(names.len() > 80, "{}: not all", names.len());
    let (mut read, mut wrong) = (0, BTreeSet::new());
    for name in &names {
        let agent = find::find_agent(name, &[rigs.agents()]).unwrap();
        let metadata = match agents.metadata(&agent, agents.env.now() + METADATA_WITHIN).await {
            Ok(metadata) => metadata,
            Err(_) if NOT_USED.contains(&name.as_str()) => continue,
            Err(error) => panic!("{name}: {error}"),
        };
        for (parameter, about) in metadata.parameters.iter().filter(|(_, about)| about.replaced_by.is_none()) {
            read += 1;
            let classified =
                traps::parameter_problem(parameter).is_some() || parameters::class_of(parameter, &about.kind).is_some();
            let takes = |text: &str| {
                let given = plain(&[(parameter.as_str(), text)]);
                !matches!(input::check(name, &metadata, &given), Err(DeviceError::Parameter { name, .. }) if name == *parameter)
            };
            let like_file =
                LIKE_FILES.iter().any(|part| parameter.contains(part)) && !NO_FILES.contains(&parameter.as_str());
            if !classified {
                wrong.insert(format!("{parameter} of {name} is not classified"));
            }
            if takes(TOKEN) && !ANY_TEXT.contains(&parameter.as_str()) {
                wrong.insert(format!("{parameter} of {name} takes {TOKEN}"));
            }
            if like_file && takes("/keys/x") {
                wrong.insert(format!("{parameter} of {name} takes a file"));
            }
        }
    }
    assert!(read > 1_500, "only {read} parameters were read");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
