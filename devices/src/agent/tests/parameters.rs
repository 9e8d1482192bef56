//! What an agent may be, and be told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pod_safety_clock::Env;
use pod_safety_control_plane::rigs::Rigs;
use pod_safety_transport::{Act, DeviceError, Driver, FenceTransport as _, Secret, Value};

use super::super::metadata::Metadata;
use super::super::parameters::Kind;
use super::super::{Agents, METADATA_WITHIN, find, input, parameters, traps};
use super::{METADATA, Stage, order, plain};
use crate::AgentOptions;

const GOOD: [(&str, &str); 2] = [("ip", "192.0.2.1"), ("password", "x")];

async fn refusal(name: &str, value: &str) -> String {
    let stage = Stage::new().agent("exit 1");
    let error = stage.check(&[GOOD.as_slice(), &[(name, value)]].concat()).await.unwrap_err();
    assert!(matches!(&error, DeviceError::Parameter { name: named, .. } if named == name), "{error}");
    error.to_string()
}

#[tokio::test]
async fn a_good_device_passes() {
    let stage = Stage::new().agent("exit 1");
    stage.check(&GOOD).await.unwrap();
    stage
        .check(&[("ip", "{{ .Node.Label \"bmc\" }}"), ("power_timeout", "40"), ("method", "onoff")])
        .await
        .unwrap();
}

#[tokio::test]
async fn names_are_those_of_the_metadata() {
    assert!(refusal("passwrd", "x").await.contains("no such parameter; it has ip, lanplus"));
    assert!(refusal("passwd", "x").await.contains("write \"password\""));
    assert!(refusal("--plug", "x").await.contains("write \"plug\""));
    let stage = Stage::new().agent("exit 1");
    let error = stage.check(&[("password", "x")]).await.unwrap_err().to_string();
    assert!(error.contains("\"ip\": the agent requires it"), "{error}");
}

#[tokio::test]
async fn traps_are_refused_with_their_reasons() {
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
        // In the next release of the agent, or with another type than it had: nobody has read what becomes of it.
        ("new_text", "x", "not known to be safe"),
        ("new_flag", "1", "not known to be safe"),
        ("new_number", "1", "not known to be safe"),
        ("new_choice", "a", "not known to be safe"),
        ("login_timeout", "x", "not known to be safe"),
        // Of another agent than the one for tests.
        ("status_file", "/tmp/x", "not known to be safe"),
    ] {
        let error = refusal(name, value).await;
        assert!(error.contains(why), "{error}");
    }
}

#[tokio::test]
async fn a_value_that_would_not_arrive_as_it_is_is_refused_without_being_shown() {
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
        let stage = Stage::new().agent("touch \"$here/ran\"; exit 0");
        let mut order = order(Act::Off, Duration::from_secs(20));
        order.parameters.insert("password".to_owned(), Value::Secret(Secret::new(secret.to_owned())));
        let error = stage.devices.carry_out(order).await.unwrap_err();
        assert!(matches!(&error, DeviceError::Parameter { name, .. } if name == "password"), "{error}");
        assert!(!format!("{error} {error:?}").contains("secret\""), "{error:?}");
        assert!(!stage.path("ran").exists());
    }
}

#[tokio::test]
async fn a_name_is_never_a_path() {
    let stage = Stage::new().agent("exit 0");
    for name in
        ["/bin/true", "../fence_test", "fence_test/../x", "true", "fence_", "fence_Test", "fence_test "]
    {
        let error = stage.devices.check(&Driver::Agent(name.into()), &BTreeMap::new()).await.unwrap_err();
        assert!(matches!(error, DeviceError::Metadata { .. }), "{name}: {error}");
    }
    let missing =
        stage.devices.check(&Driver::Agent("fence_missing".into()), &plain(&GOOD)).await.unwrap_err();
    assert!(matches!(missing, DeviceError::NoAgent { .. }));
}

/// It says "off" of a machine whose file is missing.
#[tokio::test]
async fn the_agent_for_tests_is_refused_unless_the_operator_allows_it() {
    let stage = Stage::new().agent("exit 1");
    std::fs::rename(stage.path("fence_test"), stage.path("fence_dummy")).unwrap();
    let given = plain(&[("ip", "192.0.2.1"), ("status_file", "/tmp/x")]);
    for (fence_dummy, refused) in [(false, true), (true, false)] {
        let options = AgentOptions { fence_dummy, ..stage.options() };
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
    assert!(
        refused("fence_test", "<action name=\"reboot\" />", "").contains("reports nothing about its power")
    );
    let always =
        "name=\"missing_as_off\" unique=\"0\" required=\"0\"><content type=\"boolean\" default=\"1\"";
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

/// Agents that cannot be used, or say nothing where the libraries of their cloud are missing.
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

/// Parameters that take any text: it is compared, split by, or sent to the device as a login.
const ANY_TEXT: [&str; 12] = [
    "access_key",
    "apikey",
    "command_prompt",
    "community",
    "disable_timeout",
    "filter",
    "password",
    "plug_separator",
    "secret_key",
    "separator",
    "snmp_priv_passwd",
    "token",
];

/// Names of parameters that look like those of files, and what was read of those that are taken.
const LIKE_FILES: [&str; 8] = ["file", "path", "cert", "config", "openrc", "key", "account", "_script"];
const NO_FILES: [&str; 5] = [
    "identity_file", // ssh reads it; what is in it never leaves
    "api_path",      // a part of a URL
    "access_key",    // a login
    "secret_key",    // a login
    "apikey",        // a login
];

/// Attack 1 of the security review: a parameter that a deny list did not have made an agent read the token of this process.
#[tokio::test]
async fn attack_of_all_agents_each_parameter_was_read_and_none_takes_the_token() {
    const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
    let rigs = Rigs::new().await.unwrap();
    let options = AgentOptions { directories: vec![rigs.agents()], fence_dummy: false };
    let agents = Agents::new(Env::real(1), options, "");
    let mut names: Vec<_> = std::fs::read_dir(rigs.agents())
        .unwrap()
        .map(|one| one.unwrap().file_name().into_string().unwrap())
        .collect();
    names.retain(|name| name.starts_with("fence_"));
    names.sort();
    assert!(names.len() > 80, "{}: not all", names.len());
    let (mut read, mut wrong) = (0, BTreeSet::new());
    for name in &names {
        let found = find::find_agent(name, &[rigs.agents()]).unwrap();
        let metadata = match agents.metadata(&found, agents.env.now() + METADATA_WITHIN).await {
            Ok(metadata) => metadata,
            Err(_) if NOT_USED.contains(&name.as_str()) => continue,
            Err(error) => panic!("{name}: {error}"),
        };
        for (parameter, about) in metadata.parameters.iter().filter(|(_, about)| about.replaced_by.is_none())
        {
            read += 1;
            let classified = traps::parameter_problem(parameter).is_some()
                || parameters::class_of(parameter, &about.kind).is_some();
            let takes = |text: &str| {
                let given = plain(&[(parameter.as_str(), text)]);
                !matches!(input::check(name, &metadata, &given), Err(DeviceError::Parameter { name, .. }) if name == *parameter)
            };
            let like_file = LIKE_FILES.iter().any(|part| parameter.contains(part))
                && !NO_FILES.contains(&parameter.as_str());
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
