//! Which text parameters of agents may be given, and what their values may be. Whoever may write a FenceDevice is not
//! thereby to read this process's files, have its credentials sent somewhere, or run commands with its rights.
//!
//! An allow list of the string parameters of fence-agents 4.12.1, by what an agent does with them. One that is not here is
//! refused, as are those of a newer agent: nobody has read what becomes of them.

use std::path::{Path, PathBuf};

/// What an agent does with a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// It logs in with it: it arrives as it is.
    Login,
    /// It compares or splits with it.
    Pattern,
    /// It becomes, or becomes part of, the name of a host to which the login is sent.
    Host,
    /// It opens the file of this name itself.
    File,
    /// It names a file to another program, or a URL on the device's own host.
    Path,
    /// It is pasted into command lines, requests, or lines that are typed at the device.
    Word,
}

const LOGINS: &[&str] =
    &["password", "token", "apikey", "access_key", "secret_key", "community", "snmp_priv_passwd"];

const PATTERNS: &[&str] = &["command_prompt", "plug_separator", "separator", "disable_timeout", "filter"];

const HOSTS: &[&str] = &["ip", "region", "zone", "cloud"];

const FILES: &[&str] = &["status_file", "store_path"];

const PATHS: &[&str] = &["identity_file", "api_path", "systems_uri", "redfish_uri"];

const WORDS: &[&str] = &[
    "api_type",
    "api_version",
    "apiversion",
    "auth",
    "auth_url",
    "cipher",
    "crn",
    "domain",
    "endpoint_type",
    "family",
    "hexadecimal_kg",
    "hidden_page",
    "instance",
    "ipmitool_timeout",
    "ipport",
    "limit",
    "managed",
    "namespace",
    "plug",
    "plugzonemap",
    "privlvl",
    "project",
    "project_domain",
    "project_domain_name",
    "project_name",
    "pve_node",
    "ram_role",
    "random_sleep_range",
    "region_name",
    "resourceGroup",
    "ribcl_version",
    "session_url",
    "suborg",
    "subscriptionId",
    "switch",
    "target",
    "tenant_name",
    "tenantId",
    "type",
    "user_domain",
    "user_domain_name",
    "username",
    "vmtype",
    "vmware_datacenter",
    "vmware_type",
];

/// What an agent does with this parameter; `None`: nobody knows.
pub(super) fn class(name: &str) -> Option<Class> {
    let of = |class: Class, names: &[&str]| names.contains(&name).then_some(class);
    of(Class::Login, LOGINS)
        .or_else(|| of(Class::Pattern, PATTERNS))
        .or_else(|| of(Class::Host, HOSTS))
        .or_else(|| of(Class::File, FILES))
        .or_else(|| of(Class::Path, PATHS))
        .or_else(|| of(Class::Word, WORDS))
}

/// Why a parameter without a class is refused.
pub(super) const UNKNOWN: &str = "what the agent does with it is not known to be safe: it may name a file that the agent reads \
                                  or writes with the rights of this process, a host, or a command; leave it out";

/// Where this process and its node keep what is nobody's business.
const PRIVATE: [&str; 6] = ["/var/run", "/run/secrets", "/proc", "/sys", "/etc", "/root"];

/// What a shell, or a device's own command line, reads as more than a word.
const SHELL: &[char] =
    &['\'', '"', '`', '$', ';', '|', '&', '<', '>', '(', ')', '{', '}', '\\', '*', '?', '!', '#', '~'];

/// As the kernel reads it: doubled slashes and `.` change nothing, and `..` may lead anywhere.
fn is_private(value: &str) -> bool {
    let path: PathBuf = Path::new(value).components().collect();
    let path = path.to_string_lossy();
    value.contains("..") || PRIVATE.iter().any(|private| path.starts_with(private))
}

/// Why a string parameter of this class may not have this value.
pub(super) fn value(class: Class, value: &str) -> Option<&'static str> {
    let is_word = !value.contains(char::is_whitespace) && !value.starts_with('-');
    let is_private = is_private(value);
    match class {
        Class::Login | Class::Pattern => None,
        _ if is_private => Some(
            "it is, or may lead, where this process and its node keep their credentials; write another path",
        ),
        Class::File => None,
        _ if !is_word => {
            Some("it would be read as further arguments of a program that the agent starts; write one word")
        }
        Class::Host if !value.chars().all(|one| one.is_ascii_alphanumeric() || ".:_-[]%".contains(one)) => {
            Some(
                "it becomes a part of a host's name, and the login is sent there; write a host's name or address alone",
            )
        }
        Class::Path | Class::Word if value.contains(SHELL) => Some(
            "the agent may paste it into a command line, where this is more than a word; leave quotes and the like out",
        ),
        Class::Path | Class::Host | Class::Word => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str, text: &str) -> bool {
        class(name).is_none_or(|class| value(class, text).is_some())
    }

    /// Security review 1 and 3b: the token of this process was sent to a host of the device's author, and a Node's
    /// systemUUID ran a command on the hypervisor.
    #[test]
    fn bug_a_device_made_an_agent_send_the_token_away_and_run_commands() {
        for (name, text) in [
            ("token_file", "/var/run/secrets/kubernetes.io/serviceaccount/token"),
            ("region", "attacker.example/"),
            ("ip", "attacker.example/x?"),
            ("ip", "user@attacker.example"),
            ("plug", "x; touch /tmp/pwned"),
            ("plug", "x;touch${IFS}/tmp/pwned"),
            ("plug", "$(id)"),
            ("username", "root`id`"),
            ("identity_file", "/var/run/secrets/kubernetes.io/serviceaccount/token"),
            ("identity_file", "/keys/../var/run/secrets/token"),
            ("status_file", "/proc/1/mem"),
            ("status_file", "//proc/1/mem"),
            ("identity_file", "/./var//run/secrets/kubernetes.io/serviceaccount/token"),
            ("cookie_file", "/tmp/x"),
            ("kubeconfig", "/tmp/x"),
            ("serviceaccount", "/tmp/x"),
            ("cacert", "/tmp/x"),
            ("tlskey", "/tmp/x"),
            ("openrc", "/tmp/x"),
            ("logfile", "/tmp/x"),
            ("proxy", "http://attacker.example"),
            ("metadata_endpoint", "https://attacker.example"),
            ("new_in_the_next_release", "x"),
        ] {
            assert!(refused(name, text), "{name}={text}");
        }
    }

    #[test]
    fn what_devices_need_passes() {
        for (name, text) in [
            ("ip", "192.0.2.1"),
            ("ip", "[2001:db8::1]"),
            ("ip", "bmc-1.example.com"),
            ("region", "eu-de"),
            ("plug", "4c4c4544-0037-4a10-8053-b4c04f4d3432"),
            ("plug", "chassis-1/blade-7"),
            ("plug", "i-0abc,i-0def"),
            ("systems_uri", "/redfish/v1/Systems/System.Embedded.1"),
            ("identity_file", "/keys/id_ed25519"),
            ("password", "p'a ss$word\\1"),
            ("command_prompt", "[>#$] "),
            ("auth_url", "https://keystone.example.com:5000/v3"),
        ] {
            assert!(!refused(name, text), "{name}={text}");
        }
    }
}
