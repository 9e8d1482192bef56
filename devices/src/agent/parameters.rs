//! Which parameters agents may get, and which values. A user who may write a FenceDevice must not be able to read
//! files in the container of the agents, send credentials to another host, or run commands there.
//!
//! The list has the parameters of fence-agents 4.12.1 that were reviewed, by what an agent does with their values. A
//! parameter that is not listed is refused, as are those that a newer release adds. A test reads the metadata of all
//! agents and fails for each parameter that is neither listed here nor refused by [`traps`](super::traps).

use std::path::{Path, PathBuf};

/// What an agent does with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A number, a flag, or a choice among options that the agent lists. Refused if the agent accepts text.
    Setting,
    /// It logs in with the value, which must arrive unchanged.
    Login,
    /// It compares with the value, or prints it.
    Pattern,
    /// The value becomes, or becomes part of, the name of a host to which the login is sent.
    Host,
    /// The URL of the service to which the login is sent.
    Url,
    /// The agent opens this file. For `fence_dummy` only.
    File,
    /// The agent passes a file name to another program, or a path on the device's own host.
    Path,
    /// The value is inserted into command lines, requests, or lines that are typed at the device.
    Word,
}

const CLASSES: [(Class, &[&str]); 8] = [
    (Class::Setting, SETTINGS),
    (Class::Login, &["password", "token", "apikey", "access_key", "secret_key", "community", "snmp_priv_passwd"]),
    (Class::Pattern, &["command_prompt", "separator", "disable_timeout", "filter"]),
    (Class::Host, &["ip", "region", "zone", "cloud"]),
    (Class::Url, &["auth_url", "session_url"]),
    (Class::File, &["status_file"]),
    (Class::Path, &["identity_file", "api_path", "systems_uri", "redfish_uri"]),
    (Class::Word, WORDS),
];

const SETTINGS: &[&str] = &[
    "apitimeout",
    "auth",
    "boot_option",
    "connect_retries",
    "connect_timeout",
    "delay",
    "disable_http_filter",
    "disable_ssl",
    "drac_version",
    "earlyexit",
    "errortimeout",
    "force",
    "graceful",
    "hmc_version",
    "host_os",
    "inet4_only",
    "inet6_only",
    "lanplus",
    "load_on_activate",
    "login_timeout",
    "method",
    "missing_as_off",
    "msi",
    "notls",
    "operation_timeout",
    "power_timeout",
    "power_wait",
    "privlvl",
    "pve_node_auto",
    "read_retries",
    "read_timeout",
    "retries",
    "retry_on",
    "retrysleep",
    "shell_timeout",
    "snmp_auth_prot",
    "snmp_priv_prot",
    "snmp_sec_level",
    "snmp_version",
    "ssh",
    "ssl",
    "ssl_insecure",
    "ssl_secure",
    "stonith_status_sleep",
    "tls1.0",
    "use_cookies",
    "warntimeout",
];

const WORDS: &[&str] = &[
    "api_type",
    "api_version",
    "apiversion",
    "cipher",
    "crn",
    "hexadecimal_kg",
    "instance",
    "ipmitool_timeout",
    "ipport",
    "limit",
    "managed",
    "namespace",
    "page",
    "plug",
    "plugzonemap",
    "project",
    "project_domain_name",
    "project_name",
    "pve_node",
    "ram_role",
    "random_sleep_range",
    "resourceGroup",
    "ribcl_version",
    "suborg",
    "subscriptionId",
    "switch",
    "target",
    "tenant_name",
    "tenantId",
    "type",
    "user_domain_name",
    "username",
    "uuid",
    "vmtype",
    "vmware_datacenter",
    "vmware_type",
];

/// The type of a parameter.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// Plain digits: a value such as `20s` makes an agent fail.
    Number,
    Flag,
    Choice(Vec<String>),
}

/// The class of this parameter, which has this type in its metadata; `None`: it was not reviewed.
pub(super) fn class_of(name: &str, kind: &Kind) -> Option<Class> {
    let (class, _) = CLASSES.into_iter().find(|(_, names)| names.contains(&name))?;
    let is_text = matches!(kind, Kind::Text);
    (class != Class::Setting || !is_text).then_some(class)
}

/// Why a parameter without a class is refused.
pub(super) const NOT_REVIEWED: &str = "it is not known to be safe: it may name a file that the agent reads \
                                  or writes with the rights of this process, a host, or a command; leave it out";

/// Where this process and its node keep credentials.
const PRIVATE: [&str; 6] = ["/var/run", "/run", "/proc", "/sys", "/etc", "/root"];

/// The characters with which a shell, or a device's own command line, reads more than one word.
const SHELL: &[char] =
    &['\'', '"', '`', '$', ';', '|', '&', '<', '>', '(', ')', '{', '}', '\\', '*', '?', '!', '#', '~'];

/// As the kernel resolves it: doubled slashes and `.` change nothing, and `..` may lead anywhere.
fn is_private(value: &str) -> bool {
    let path: PathBuf = Path::new(value).components().collect();
    let path = path.to_string_lossy();
    value.contains("..") || PRIVATE.iter().any(|private| path.starts_with(private))
}

/// Why a string parameter of this class may not have this value.
pub(super) fn value_problem(class: Class, value: &str) -> Option<&'static str> {
    let is_word = !value.contains(char::is_whitespace) && !value.starts_with('-');
    let is_private = is_private(value);
    match class {
        Class::Setting | Class::Login | Class::Pattern => None,
        _ if is_private => {
            Some("it is, or may lead to, a place where this process or its node keeps credentials; use another path")
        }
        Class::File => None,
        _ if !is_word => {
            Some("it would be read as further arguments of a program that the agent starts; write one word")
        }
        Class::Host if !value.chars().all(|one| one.is_ascii_alphanumeric() || ".:_-[]%".contains(one)) => {
            Some("it becomes part of a host name, and the login is sent there; write only a host name or address")
        }
        Class::Url if !["https://", "http://"].iter().any(|scheme| value.starts_with(scheme)) => {
            Some("the login is sent there; write an address that begins with https://")
        }
        // In `https://ADDRESS:443` + `@host/`, the host is `host`.
        Class::Path if !value.starts_with('/') => {
            Some("an agent may put it behind the host of an address, where it could name another host; begin it with /")
        }
        Class::Path | Class::Url | Class::Word if value.contains(SHELL) => Some(
            "the agent may paste it into a command line, where it would be more than one word; leave out quotes and similar characters",
        ),
        Class::Path | Class::Host | Class::Url | Class::Word => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str, text: &str) -> bool {
        class_of(name, &Kind::Text).is_none_or(|class| value_problem(class, text).is_some())
    }

    /// The token of this process was sent to a host of the device's author, and a Node's systemUUID ran a command on
    /// the hypervisor.
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
            ("auth_url", "file:///etc/passwd"),
            ("session_url", "attacker.example"),
            ("systems_uri", "@attacker.example/redfish/v1/Systems/1"),
            ("redfish_uri", "@attacker.example/redfish/v1"),
            ("api_path", "@attacker.example/api"),
            ("power_timeout", "a text where a number was"),
            ("new_in_the_next_release", "x"),
        ] {
            assert!(refused(name, text), "{name}={text}");
        }
    }

    #[test]
    fn values_that_devices_need_are_accepted() {
        for (name, text) in [
            ("ip", "192.0.2.1"),
            ("ip", "[2001:db8::1]"),
            ("ip", "bmc-1.example.com"),
            ("region", "eu-de"),
            ("plug", "4c4c4544-0037-4a10-8053-b4c04f4d3432"),
            ("plug", "chassis-1/blade-7"),
            ("plug", "i-0abc"),
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
