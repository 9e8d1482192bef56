//! What an agent may be, and be told.

use std::collections::BTreeMap;
use std::time::Duration;

use pod_safety_shared::transport::{Act, DeviceError, Driver, FenceTransport as _, Secret, Value};

use super::super::metadata::{Kind, Metadata};
use super::{METADATA, Stage, order, plain};

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
    assert!(error.contains("\"ip\": the agent needs it"), "{error}");
}

#[tokio::test]
async fn traps_are_refused_with_their_reasons() {
    for (name, value, why) in [
        ("action", "reboot", "decided by this program"),
        ("option", "off", "decided by this program"),
        ("help", "1", "report success"),
        ("version", "1", "report success"),
        ("debug_file", "/tmp/x", "passwords"),
        ("password_script", "/bin/true", "names a program"),
        ("ipmitool_path", "/bin/true", "names a program"),
        ("ssh_options", "-oProxyCommand=x", "names a program"),
        ("missing_as_off", "1", "count as off"),
        ("network_fencing", "1", "network alone"),
        ("method", "cycle", "not verified"),
        ("ssl", "false", "cannot be switched off"),
        ("ssl_insecure", "maybe", "\"true\" or \"false\""),
        ("power_timeout", "20s", "whole number"),
        ("ip", "host -f /etc/passwd", "one word"),
        ("ip", "-oProxyCommand=x", "one word"),
        ("nodename", "node-2", "given by this program"),
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

#[test]
fn agents_that_prove_nothing_are_refused() {
    let refused = |name: &str, from: &str, to: &str| {
        let metadata = Metadata::read(&METADATA.replace(from, to)).unwrap();
        metadata.usable(name).unwrap_err()
    };
    assert!(refused("fence_test", "<action name=\"status\" />", "").contains("no action `status`"));
    assert!(refused("fence_test", "<action name=\"off\" />", "").contains("no action `off`"));
    assert!(refused("fence_test", "<action name=\"reboot\" />", "").contains("says nothing of its power"));
    let always =
        "name=\"missing_as_off\" unique=\"0\" required=\"0\"><content type=\"boolean\" default=\"1\"";
    let may = "name=\"missing_as_off\" unique=\"0\" required=\"0\"><content type=\"boolean\"";
    assert!(refused("fence_test", may, always).contains("proves nothing"));
    for name in ["fence_sbd", "fence_heuristics_ping", "fence_crosslink", "fence_evacuate"] {
        assert!(Metadata::read(METADATA).unwrap().usable(name).is_err(), "{name}");
    }
    Metadata::read(METADATA).unwrap().usable("fence_test").unwrap();
}

#[test]
fn metadata_is_read() {
    let metadata = Metadata::read(METADATA).unwrap();
    assert_eq!(metadata.parameters["passwd"].now.as_deref(), Some("password"));
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
            "ssl_insecure"
        ]
    );
    let laughs = "<!DOCTYPE a [<!ENTITY b \"ha\">]><resource-agent name=\"&b;\"/>";
    assert!(Metadata::read(laughs).unwrap_err().contains("not XML"));
}
