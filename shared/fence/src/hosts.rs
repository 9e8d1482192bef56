//! To which hosts the Secrets of a device may be sent. Pure.
//!
//! Danger note: a parameter that is rendered from facts of a node may be a host. Only the agent defines which
//! parameters are hosts, so every such parameter must name a host that is allowed, except those that name a machine
//! at a host.

use std::net::IpAddr;

use ipnet::IpNet;

use super::instance;
use crate::api::{FenceDeviceSpec, is_template};

/// Parameters that name a machine at a host, and no host.
const MACHINE_PARAMETERS: [&str; 5] = ["plug", "port", "uuid", "system", "systems_uri"];

/// Parameters that name a place in a cloud, where the agent has the cloud's hosts: `region` is a label in one of
/// them. A part of an instance is one label, without dots, so it names no host outside the provider.
const LOCATION_PARAMETERS: [&str; 5] = ["region", "zone", "project", "resourceGroup", "subscriptionId"];

/// Whether a template is one part of the node's instance, and nothing else.
fn is_part_alone(template: &str) -> bool {
    let inner = template.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
    inner.is_some_and(|inner| instance::is_part(inner.trim()) && !inner.contains(['{', '}']))
}

/// Why a Secret may not be sent to a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HostError {
    #[error(
        "its template uses facts of the node, and {value:?} is not in allowedHosts: a node could have the Secrets of this device sent anywhere"
    )]
    NotAllowed { value: String },
    #[error("allowedHosts has {pattern:?}: write a host name, *. and a domain, an IP address or its network")]
    Pattern { pattern: String },
}

/// Checks whether a parameter with this template may have this value.
pub(super) fn check_host(
    spec: &FenceDeviceSpec,
    parameter: &str,
    template: &str,
    value: &str,
) -> Result<(), HostError> {
    if spec.secret_parameters.is_empty() || !is_template(template) || MACHINE_PARAMETERS.contains(&parameter) {
        return Ok(());
    }
    if LOCATION_PARAMETERS.contains(&parameter) && is_part_alone(template) {
        return Ok(());
    }
    let not_allowed = || HostError::NotAllowed { value: value.to_owned() };
    let host = host_of(value).ok_or_else(not_allowed)?;
    for pattern in &spec.allowed_hosts {
        if HostPattern::parse(pattern)?.matches(&host) {
            return Ok(());
        }
    }
    Err(not_allowed())
}

/// The host of a URL, of `HOST:PORT`, or a host alone.
fn host_of(value: &str) -> Option<String> {
    if value.parse::<IpAddr>().is_ok() {
        return Some(value.to_owned());
    }
    let authority = value.split_once("://").map_or(value, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next()?;
    let authority: http::uri::Authority = authority.parse().ok()?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    (!authority.as_str().contains('@') && !host.is_empty()).then(|| host.to_ascii_lowercase())
}

enum HostPattern {
    Host(String),
    Below(String),
    Network(IpNet),
}

impl HostPattern {
    fn parse(pattern: &str) -> Result<Self, HostError> {
        let wrong = || HostError::Pattern { pattern: pattern.to_owned() };
        if let Ok(network) = pattern.parse::<IpNet>() {
            return Ok(Self::Network(network));
        }
        if let Ok(address) = pattern.parse::<IpAddr>() {
            return Ok(Self::Network(address.into()));
        }
        let (below, name) = pattern.strip_prefix("*.").map_or((false, pattern), |name| (true, name));
        let name = name.to_ascii_lowercase();
        match (crate::model::is_kubernetes_name(&name), below) {
            (false, _) => Err(wrong()),
            (true, false) => Ok(Self::Host(name)),
            (true, true) => Ok(Self::Below(format!(".{name}"))),
        }
    }

    fn matches(&self, host: &str) -> bool {
        match self {
            Self::Host(name) => name == host,
            Self::Below(name) => host.len() > name.len() && host.ends_with(name),
            Self::Network(network) => host.parse::<IpAddr>().is_ok_and(|address| network.contains(&address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(allowed: &[&str]) -> FenceDeviceSpec {
        let secret = json!({ "parameter": "password", "secret": "s", "key": "k" });
        serde_json::from_value(
            json!({ "driver": "Agent", "agent": "a", "secretParameters": [secret], "allowedHosts": allowed }),
        )
        .unwrap()
    }

    /// The password of a BMC was sent to a host that the node chose.
    #[test]
    fn attack_a_secret_goes_to_no_host_that_a_node_names_unless_it_is_allowed() {
        const ALLOWED: [&str; 4] = ["*.bmc.example", "console.example", "10.7.0.0/16", "fd00::1"];
        for (value, allowed) in [
            ("https://w1.bmc.example", true),
            ("https://W1.BMC.example:8443/redfish", true),
            ("w1.bmc.example", true),
            ("console.example:443", true),
            ("10.7.255.1", true),
            ("https://10.7.0.1:444", true),
            ("https://[fd00::1]", true),
            ("fd00::1", true),
            ("https://attacker.example", false),
            ("https://bmc.example", false),
            ("https://xbmc.example", false),
            ("https://w1.bmc.example.attacker.example", false),
            ("https://attacker.example/w1.bmc.example", false),
            ("https://w1.bmc.example@attacker.example", false),
            ("https://attacker@w1.bmc.example", false),
            (".bmc.example", false),
            ("10.8.0.1", false),
            ("10.7.0.1.attacker.example", false),
            ("fd00::2", false),
            ("", false),
        ] {
            assert_eq!(check_host(&spec(&ALLOWED), "ip", "{{.Node.Name}}", value).is_ok(), allowed, "{value}");
        }
        assert!(
            check_host(&spec(&[]), "ip", "bmc-{{.Node.Name}}.example", "bmc-w1.example").is_err(),
            "none is allowed"
        );
    }

    #[test]
    fn a_literal_value_and_a_machine_parameter_need_no_allowed_host() {
        let none = spec(&[]);
        for (parameter, template) in
            [("ip", "bmc.example"), ("plug", "{{.Node.Name}}"), ("system", "/x/{{.Node.Name}}")]
        {
            assert_eq!(check_host(&none, parameter, template, "w1"), Ok(()), "{parameter}");
        }
        let without_secret = FenceDeviceSpec { secret_parameters: Vec::new(), ..none };
        assert_eq!(check_host(&without_secret, "ip", "{{.Node.Name}}", "w1"), Ok(()));
    }

    /// The login of fence_aws goes to a host below amazonaws.com, with the region in its name.
    #[test]
    fn the_region_of_an_instance_needs_no_allowed_host_but_a_text_with_it_does() {
        let none = spec(&[]);
        let region = "{{.Instance.Region}}";
        assert_eq!(check_host(&none, "region", region, "eu-central-1"), Ok(()));
        for (parameter, template) in [
            ("ip", region),
            ("region", "{{.Node.Name}}"),
            ("region", "{{.Instance.Region}}.attacker.example"),
            ("region", "{{.Instance.Region}}{{.Node.Name}}"),
            ("region", "x{{.Instance.Region}}"),
            ("region", "{{.Instance.Region}}.attacker.example/}}"),
        ] {
            assert!(check_host(&none, parameter, template, "w1").is_err(), "{parameter}={template}");
        }
    }

    #[test]
    fn an_invalid_host_pattern_is_an_error_that_names_it() {
        for pattern in ["https://bmc.example", "*", "*.", "bmc.*", "10.7.0.0/99", "a b"] {
            let wrong = check_host(&spec(&[pattern]), "ip", "{{.Node.Name}}", "w1").unwrap_err();
            assert!(wrong.to_string().contains(&format!("{pattern:?}")), "{wrong}");
        }
    }
}
