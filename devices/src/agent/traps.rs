//! Agents and parameters that are not used, each with its reason: they report an unknown state as "off", do something
//! other than requested, or run programs that another user chose. From the sources of fence-agents 4.12.1.

/// An agent that switches nothing.
pub(super) const DUMMY_AGENT: &str = "fence_dummy";

/// Why [`DUMMY_AGENT`] is not used.
pub(super) const DUMMY_REFUSED: &str = "it is for tests: it switches nothing, and reports a missing file as a machine that is off; use the agent of your hardware \
     (--allow-fence-dummy allows it in a test cluster)";

/// Why this agent cannot be used, whatever its metadata contains.
pub(super) fn agent_problem(name: &str) -> Option<&'static str> {
    match name {
        "fence_ack_manual" => Some("it asks a person at a terminal; use pod-safety confirm-down"),
        "fence_crosslink" => Some("its status shows whether a link answers a ping, not power"),
        "fence_evacuate" => Some("it makes OpenStack move instances away, and reads no power"),
        "fence_heuristics_ping" => Some("its status shows whether another host answers a ping, not power"),
        "fence_kdump" => Some("it waits for a node to write a crash dump, and reads no power"),
        "fence_sbd" => Some("its status shows whether a message was written to a disk, not whether the node obeyed it"),
        _ => None,
    }
}

/// Why this parameter is refused, whatever its value is.
pub(super) fn parameter_problem(name: &str) -> Option<&'static str> {
    let name = name.replace('-', "_");
    match name.as_str() {
        "action" | "option" | "o" => Some("pod-safety decides the action; leave it out"),
        "port_as_ip" => Some("the login would go to the host in plug, which is not checked as a host is; write ip"),
        "plug_separator" => Some(SEVERAL),
        "nodename" => Some("pod-safety sets it to the node's name; leave it out"),
        "help" | "version" | "usage" | "manpage" => Some("the agent would print text and report success; leave it out"),
        "debug" | "debug_file" | "verbose" | "verbose_level" | "boto3_debug" => {
            Some("the agent would write passwords to a file or a log; leave it out, and try the agent by hand")
        }
        "quiet" => Some("why the agent failed would be lost; leave it out"),
        "baremetalsolution" => {
            Some("the agent would report the opposite of the requested state without a check; leave it out")
        }
        "network_fencing" => Some("the agent would report a machine as off when only its network is cut; leave it out"),
        "ssh_options" | "exec" | "runonfail" | "runonwarn" | "use_sudo" | "sudo" => Some(RUNS),
        "cacert" | "cookie_file" | "kubeconfig" | "openrc" | "serviceaccount" | "tlscacert" | "tlscert" | "tlskey"
        | "token_file" => Some(READS),
        "proxy" | "proxyhost" | "proxyport" => Some(
            "the login would go through another host than the device; leave it out, and give the pod a route to the device",
        ),
        "stackdriver_logging" => Some("the agent would write to the log of the cloud; leave it out"),
        name if name.ends_with("_script") => Some(RUNS),
        name if name.ends_with("_path") && name != NO_PROGRAM => Some(RUNS),
        _ => None,
    }
}

const RUNS: &str = "it names a program that would run with all rights of this process; leave it out, and install the agent \
                    so that its defaults fit";

const READS: &str = "it names a file that the agent reads, writes or sends to the device; leave it out";

/// The library of the agents splits `plug` at the separator, and asks for the power of each part. `fence_apc_snmp` and
/// others resolve the first outlet alone, and read and switch it again for each further one.
const SEVERAL: &str = "the agent splits plug at the separator, a comma by default, into several outlets, and may read \
                       and switch the first one alone; write one FenceDevice for each outlet, all in one level";

/// A parameter whose name ends like that of a program's path, but which is a part of an address.
const NO_PROGRAM: &str = "api_path";

/// The default of the agents' `plug_separator`.
const SEPARATOR: char = ',';

/// Agents that call each state off that is not on, and that find the outlet of a name in the table of the switch, or
/// fail.
const OUTLETS: [&str; 3] = ["fence_apc_snmp", "fence_ipdu", "fence_tripplite_snmp"];

/// The version of SNMP in which a query for an outlet that the switch does not have fails. In 2c and 3 `snmpget` prints
/// `No Such Instance currently exists at this OID` and exits with 0.
/// docs/assumptions.md: domain-is-current
const VERSION_THAT_FAILS: &str = "1";

/// Why this agent may not get this outlet with this version of SNMP.
pub(super) fn outlet_problem(agent: &str, plug: &str, snmp_version: Option<&str>) -> Option<&'static str> {
    // `2:14` is an outlet of a switch. The agents' own check takes the digits of all scripts, too.
    let is_number = plug.chars().all(|one| one.is_numeric() || one == ':');
    let may_be_missing = OUTLETS.contains(&agent) && is_number && snmp_version != Some(VERSION_THAT_FAILS);
    may_be_missing.then_some(
        "with this snmp_version the agent reports an outlet off that the switch does not list; write the outlet's \
         name, or snmp_version \"1\"",
    )
}

/// Why this parameter may not have this value.
pub(super) fn value_problem(name: &str, value: &str) -> Option<&'static str> {
    match name {
        "plug" if value.contains(SEPARATOR) => Some(SEVERAL),
        "missing_as_off" if is_truthy(value) => {
            Some("a machine that the device does not know would count as off; leave it out")
        }
        "method" if value.eq_ignore_ascii_case("cycle") => {
            Some("a power cycle is not verified and cannot be repeated; leave it out, or say onoff")
        }
        _ => None,
    }
}

/// A parameter without which this agent would choose a machine itself.
pub(super) fn required_parameter(agent: &str) -> Option<(&'static str, &'static str)> {
    match agent {
        "fence_redfish" => Some((
            "systems_uri",
            "without it the agent switches the last system that the service lists; write /redfish/v1/Systems/…",
        )),
        DUMMY_AGENT => Some(("status_file", "without it all nodes would share one file; write a path for each node")),
        _ => None,
    }
}

/// Whether agents read this value as a set flag.
pub(super) fn is_truthy(value: &str) -> bool {
    ["1", "yes", "on", "true"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Whether agents read this value as an unset flag.
pub(super) fn is_falsy(value: &str) -> bool {
    ["0", "no", "off", "false"].iter().any(|word| value.eq_ignore_ascii_case(word))
}
