//! The rules in the CRD of FenceDevice: a password is no parameter.

use kube_cel::Validator;
use pod_safety_shared::transport::is_secret_name;
use serde_json::{Value, json};

use crate::schema;

/// The API server's messages about a Redfish device with these additional fields.
fn messages(fields: &Value) -> Vec<String> {
    let device = crate::engine::patched(json!({ "spec": { "driver": "Redfish" } }), json!({ "spec": fields }));
    Validator::new()
        .validate(&schema("fencedevices"), &device, None)
        .iter()
        .map(|error| error.message.clone())
        .collect()
}

/// A spec can be read by everyone with the right to read FenceDevices. The process refuses the same names when it
/// uses a device; the API server refuses them when the device is written. Names that differ only by a dash or an
/// underscore are tested with a real API server (suite `policies`): kube-cel 0.6.1 escapes both in the keys of maps.
#[test]
fn attack_a_password_is_written_into_a_device() {
    const SAYS: &str = "into a Secret, and name that in secretParameters";
    for name in [
        "password",
        "PASSWORD",
        "passwd_script",
        "snmp_priv_passwd",
        "community",
        "token_file",
        "apikey",
        "k_kg",
        "client_secret",
        "address",
        "username",
        "plug",
        "key_map",
        "background",
    ] {
        for fields in [json!({ "parameters": { name: "x" } }), json!({ "nodeParameters": { "w1": { name: "x" } } })] {
            let refused = messages(&fields).iter().any(|message| message.contains(SAYS));
            assert_eq!(refused, is_secret_name(name), "{fields}: {:?}", messages(&fields));
        }
    }
    assert_eq!(messages(&json!({})), Vec::<String>::new());
}
