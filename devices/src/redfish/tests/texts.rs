//! Parameters.

use super::super::check;
use super::super::parameters::Parameters;

use super::*;

fn with(more: &[(&str, &str)]) -> BTreeMap<String, Value> {
    let good = [("address", "https://bmc.example"), ("insecure", "true")];
    let all = good.iter().chain(more).filter(|(_, value)| !value.is_empty());
    let mut parameters: BTreeMap<_, _> =
        all.map(|(name, value)| ((*name).to_owned(), Value::Plain((*value).to_owned()))).collect();
    for (name, _) in more.iter().filter(|(_, value)| value.is_empty()) {
        parameters.remove(*name);
    }
    parameters
}

#[test]
fn good_ones_pass() {
    for more in [
        &[][..],
        &[("system", "/redfish/v1/Systems/System.Embedded.1")],
        &[("username", "a"), ("password", "b"), ("auth", "session")],
        &[("address", "https://[2001:db8::1]:8443/")],
    ] {
        check(&with(more)).unwrap();
        Parameters::read(&with(more)).unwrap();
    }
    check(&with(&[("address", "https://{{ .Node.Name }}.bmc.example")])).unwrap();
}

#[test]
fn bad_ones_are_named() {
    for (name, more, why) in [
        ("address", &[("address", "http://bmc.example")][..], "https://HOST"),
        ("address", &[("address", "bmc.example")], "https://HOST"),
        ("address", &[("address", "https://admin:x@bmc.example")], "its own parameters"),
        ("address", &[("address", "https://bmc.example/redfish/v1")], "https://HOST"),
        ("address", &[("address", "")], "required"),
        ("ca", &[("insecure", "")], "cannot be verified"),
        ("ca", &[("insecure", "false")], "cannot be verified"),
        ("ca", &[("insecure", "false"), ("ca", "x")], "no certificate"),
        ("insecure", &[("insecure", "1")], "\"true\" or \"false\""),
        (
            "insecure",
            &[("ca", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----")],
            "leave one of them out",
        ),
        ("system", &[("system", "/api/v1/nodes")], "path of one system"),
        ("system", &[("system", "/redfish/v1/../../api")], "path of one system"),
        ("system", &[("system", "/redfish/v1/Systems/1?x")], "path of one system"),
        ("password", &[("username", "a")], "no password"),
        ("username", &[("password", "a")], "no username"),
        ("username", &[("username", "a:b"), ("password", "c")], "colon"),
        ("auth", &[("auth", "digest"), ("username", "a"), ("password", "b")], "basic"),
        ("systems_uri", &[("systems_uri", "/redfish/v1/Systems/1")], "there are address, username"),
    ] {
        let error = Parameters::read(&with(more)).unwrap_err();
        assert!(matches!(&error, DeviceError::Parameter { name: named, .. } if named == name), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}
