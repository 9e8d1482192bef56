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

/// A parameter whose name ends like that of a program's path, but which is a part of an address.
const NO_PROGRAM: &str = "api_path";

/// Why this parameter may not have this value.
pub(super) fn value_problem(name: &str, value: &str) -> Option<&'static str> {
    match name {
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
