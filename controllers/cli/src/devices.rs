//! `pod-safety devices test`: has the controller check the devices now in the same way as when a node is lost.

use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use pod_safety_print::{Paint, Tone};
use pod_safety_shared::api::{DeviceRef, IdentityMatch, OFF_WHILE_REPORTING, Power, TargetStatus};
use pod_safety_shared::authority::operator_requests::{self, Device, Examined, OperatorError};
use pod_safety_shared::client::Target;
use pod_safety_shared::model::Kind;
use serde::Serialize;

use super::cluster::{ConnectArgs, PrintArgs, Session, name, node_name};
use super::doctor::{describe_unresponsive, print_reason};
use super::error_hints::{NotFound, ResourceKind};
use super::progress::announce_wait;
use super::{API_VERSION, Exit, duration, pluralize, sanitize};

/// The message of the problem `NotForNode`.
const NOT_SELECTED: &str = "its nodeSelector does not select it";

/// How often the result is read.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check fence devices now, through the controller that uses them: power is read, nothing is switched
    #[command(after_help = crate::exit::help("devices test"))]
    Test(TestArgs),
}

#[derive(Debug, ClapArgs)]
struct TestArgs {
    /// NAMESPACE/NAME, or the name alone; may be given more than once. Default: all
    #[arg(value_name = "DEVICE", value_parser = device)]
    devices: Vec<DeviceName>,

    /// All namespaces (the default)
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,

    /// Only devices with these labels
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,

    /// Only results for this node
    #[arg(long, value_name = "NODE", value_parser = node_name)]
    target: Option<String>,

    /// How long to wait for an answer
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration::parse, allow_hyphen_values = true)]
    timeout: Duration,

    #[command(flatten)]
    print: PrintArgs,

    #[command(flatten)]
    cluster: ConnectArgs,
}

/// A device as the user named it: its namespace, if given, and its name.
type DeviceName = (Option<String>, String);

/// Parses `NAMESPACE/NAME`, or `NAME`.
fn device(text: &str) -> Result<DeviceName, String> {
    match text.split_once('/') {
        Some((namespace, device)) => Ok((Some(name(namespace)?), name(device)?)),
        None => Ok((None, name(text)?)),
    }
}

/// The result for one device and one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeviceResult {
    device: String,
    node: String,
    power: Power,
    identity: IdentityMatch,
    /// The problem in CamelCase; empty: none.
    problem: String,
    message: String,
    /// The fields of the FenceDevice that the problem is about.
    #[serde(skip_serializing_if = "str::is_empty")]
    field: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    way_out: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    cluster: &'a Target,
    items: &'a [DeviceResult],
}

/// The fields that a problem is about, and the remedy. The message has the value.
fn remedy_for(problem: &str) -> (&'static str, &'static str) {
    const PARAMETERS: &str = "spec.parameters, spec.nodeParameters, spec.secretParameters";
    match problem {
        "" => ("", ""),
        "LoginDenied" => (PARAMETERS, "correct the user name or password; many BMCs lock accounts after a few tries"),
        "BadParameter" => (PARAMETERS, "correct the parameter that the message names"),
        "BadSecret" => (
            "spec.secretParameters",
            "create the Secret or its key in the device's namespace, correct its name, or add the annotation that the message names",
        ),
        "BadTemplate" => (PARAMETERS, "give the node what the template uses, or set the value in nodeParameters"),
        "HostNotAllowed" => {
            ("spec.allowedHosts", "add the host or its domain, if the Secrets of this device may go there")
        }
        "IdentityChanged" => (
            PARAMETERS,
            "if the machine was replaced: delete the Node or recreate the FenceDevice; otherwise the node reports something false",
        ),
        "NoAgent" => ("spec.agent", "put the agent into the image, or correct its name"),
        "AgentsUnavailable" => {
            ("", "check that the container fence-agents of pod-safety runs; if not, kubectl describe pod shows why")
        }
        "BadMetadata" => ("spec.agent", "run the agent by hand in the image; often a package is missing"),
        "Unreachable" => (PARAMETERS, "check address, route and firewall from the pods of pod-safety, then the login"),
        "TlsNotTrusted" => {
            ("spec.parameters.ca", "set it to the authority that signed the certificate, or as the message says")
        }
        "TimedOut" => ("spec.timeouts.status", "check address and route; a slow device needs a longer timeout"),
        "AnotherMachine" => (
            PARAMETERS,
            "address, system or plug belong to another machine: correct them before this device may fence the node",
        ),
        OFF_WHILE_REPORTING => (
            PARAMETERS,
            "address, system or plug belong to another machine: correct them. If they are right, the reported state is old",
        ),
        "IdentityUnknown" => {
            ("spec.identityCheck", "set BestEffort, or use a driver that reports which machine it reaches")
        }
        "NotTrusted" => ("status.conditions[Trusted]", "correct the device, then delete and recreate it"),
        "NotForNode" => ("spec.nodeSelector", "select the node, or test another device"),
        "NotChecked" => ("", "pod-safety devices test DEVICE (needs a leader)"),
        "LabelNotProtected" => (
            "spec.nodeSelector, spec.nodeParameters",
            "name the parameters of the node in nodeParameters, or select it by a label below node-restriction.kubernetes.io/",
        ),
        "NotFollowed" => {
            ("metadata.namespace", "create it in a namespace of --fencing-namespaces, or add its own there")
        }
        "NotRead" => ("", "check the rights and the connection of pod-safety: see its log"),
        "Unanswered" => (
            "",
            "check that a leader runs the controller fencing (--mode guard or replace), and that --fencing-namespaces has this namespace",
        ),
        problem => provider_remedy_for(problem),
    }
}

/// The same for problems of cloud providers.
fn provider_remedy_for(problem: &str) -> (&'static str, &'static str) {
    match problem {
        "CredentialsExpired" => ("spec.secretParameters", "put new credentials into the Secret that it names"),
        "Throttled" => (
            "spec.monitorSeconds",
            "check it less often, or have the provider allow more requests; it is tried again by itself",
        ),
        "RequestRefused" => (
            "spec.secretParameters",
            "try the keys by hand: the provider's own client says whether they are wrong, lack a right, or are used too often",
        ),
        _ => ("", "there is no further detail: check its address, user and password, then try it by hand"),
    }
}

/// The result by what a device reported about a node.
pub(crate) fn device_result(device: &DeviceRef, target: TargetStatus) -> DeviceResult {
    let TargetStatus { node, power, identity, problem, message, .. } = target;
    let (field, way_out) = remedy_for(if problem.is_empty() && !message.is_empty() { "?" } else { &problem });
    DeviceResult { device: device.to_string(), node, power, identity, problem, message, field, way_out }
}

fn unanswered(device: &DeviceRef, node: &str, problem: &str, message: String) -> DeviceResult {
    let (problem, node) = (problem.to_owned(), node.to_owned());
    device_result(device, TargetStatus { node, problem, message, ..TargetStatus::default() })
}

impl DeviceResult {
    pub(crate) const fn is_wrong(&self) -> bool {
        !self.message.is_empty()
    }
}

/// The result by the last status check in the status of the device.
pub(crate) fn last_result(device: &Device, examined: &Examined) -> DeviceResult {
    let node = &*examined.node.name;
    let of_node = device.status.targets.iter().find(|target| target.node == node);
    match of_node {
        Some(target) => device_result(&device.named, target.clone()),
        None if device.spec.driver.is_operator() => {
            device_result(&device.named, TargetStatus { node: node.to_owned(), ..TargetStatus::default() })
        }
        None if device.spec.node_selector.matches(&examined.labels) => {
            unanswered(&device.named, node, "NotChecked", "it was not checked for this node yet".to_owned())
        }
        None => unanswered(&device.named, node, "NotForNode", NOT_SELECTED.to_owned()),
    }
}

/// Tests one device and waits for its result.
async fn test_device(
    session: &Session,
    device: &Device,
    target: Option<&str>,
    timeout: Duration,
) -> Result<Vec<DeviceResult>, OperatorError> {
    let Session { connection, env } = session;
    let named = &device.named;
    let (deadline, token) = (env.now() + timeout, env.clock.wall().to_string());
    let test = operator_requests::request_status_check(connection, named, &token, target).await?;
    let status = loop {
        match operator_requests::status_check_result(connection, named, &test).await? {
            Some(status) => break status,
            None if env.now() >= deadline => {
                let message = format!("no answer within {}s", timeout.as_secs());
                return Ok(vec![unanswered(named, target.unwrap_or("-"), "Unanswered", message)]);
            }
            None => env.sleep(POLL_INTERVAL).await,
        }
    };
    let is_meant = |one: &TargetStatus| target.is_none_or(|target| *one.node == *target);
    let results: Vec<_> =
        status.targets.into_iter().filter(is_meant).map(|target| device_result(named, target)).collect();
    if !results.is_empty() || device.spec.driver.is_operator() {
        return Ok(results);
    }
    Ok(vec![unanswered(named, target.unwrap_or("-"), "NotForNode", NOT_SELECTED.to_owned())])
}

/// Tests these devices concurrently; returns the results and the exit.
pub(crate) async fn test_all(
    session: &Session,
    devices: &[Device],
    target: Option<&str>,
    timeout: Duration,
) -> anyhow::Result<(Vec<DeviceResult>, Exit)> {
    let all = devices.iter().map(|device| test_device(session, device, target, timeout));
    let what = || {
        let devices = pluralize(devices.len(), "FenceDevice");
        format!("the leader of pod-safety to check {devices}, for at most {}s", timeout.as_secs())
    };
    let mut results = Vec::new();
    for answer in announce_wait(what, futures::future::join_all(all)).await {
        results.extend(answer?);
    }
    let any = |problem: &str| results.iter().any(|one| one.problem == problem);
    if any("Unanswered") {
        print_reason(&describe_unresponsive(session).await);
    }
    let exit = match results.iter().all(|one| one.message.is_empty()) {
        true => Exit::Fine,
        false if any("Unanswered") => Exit::TimedOut,
        false => Exit::Blocked,
    };
    Ok((results, exit))
}

/// The results as a page.
pub(crate) fn page(results: &[DeviceResult], paint: Paint) -> String {
    let row = |one: &DeviceResult| {
        let tone = if one.message.is_empty() { Tone::Good } else { Tone::Bad };
        let problem = if one.message.is_empty() { "-" } else { &one.problem };
        let cells = [paint.mark(tone), &one.device, &one.node, one.power.name(), one.identity.name(), problem];
        (tone, cells.map(str::to_owned).to_vec())
    };
    let rows: Vec<_> = results.iter().map(row).collect();
    let mut text = paint.table(&["", "DEVICE", "NODE", "POWER", "IDENTITY", "PROBLEM"], &rows);
    for one in results.iter().filter(|one| !one.message.is_empty()) {
        let line = format!("{} for {}: {}", one.device, one.node, one.message);
        text.push_str(&format!("\n{}\n", sanitize::line(&line)));
        if !one.way_out.is_empty() {
            let field = if one.field.is_empty() { String::new() } else { format!("{}: ", one.field) };
            text.push_str(&format!("  fix: {field}{}\n", one.way_out));
        }
    }
    text
}

fn is_within(device: &Device, namespace: &Option<String>) -> bool {
    namespace.as_ref().is_none_or(|namespace| device.named.namespace == *namespace)
}

fn is_named(device: &Device, (namespace, name): &DeviceName) -> bool {
    is_within(device, namespace) && device.named.name == *name
}

/// Why no device is tested; `there`: how many exist.
fn nothing_to_test(existing: usize) -> String {
    match existing {
        0 => "there is no FenceDevice in this cluster: no node can be fenced. How to make one: kubectl explain fencedevice.spec".to_owned(),
        _ => format!("none of the {} has this namespace and these labels; kubectl get fencedevices -A --show-labels", pluralize(existing, "FenceDevice")),
    }
}

impl Args {
    pub(crate) fn main(self) -> anyhow::Result<Exit> {
        let Self { command: Command::Test(args) } = self;
        let cluster = args.cluster.clone();
        cluster.with_session("devices test", async |session| args.run(session).await)
    }
}

impl TestArgs {
    async fn run(self, session: Session) -> anyhow::Result<Exit> {
        session.announce();
        let selected = session.select_by_labels(Kind::FenceDevices, self.selector.as_deref()).await?;
        let is_meant = |device: &Device| {
            let key = || (device.named.namespace.clone(), device.named.name.clone());
            (self.all_namespaces || is_within(device, &self.cluster.namespace))
                && selected.as_ref().is_none_or(|selected| selected.contains(&key()))
                && (self.devices.is_empty() || self.devices.iter().any(|one| is_named(device, one)))
        };
        let all = operator_requests::list_devices(&session.connection).await?;
        let existing = all.len();
        let named: Vec<_> = all.into_iter().filter(is_meant).collect();
        for (namespace, name) in &self.devices {
            if !named.iter().any(|device| is_named(device, &(namespace.clone(), name.clone()))) {
                let namespace = namespace.as_deref().or(self.cluster.namespace.as_deref());
                return Err(NotFound::new(ResourceKind::Device, namespace, name).into());
            }
        }
        // A test of no device must not succeed.
        anyhow::ensure!(!named.is_empty(), "{}", nothing_to_test(existing));
        let (results, exit) = test_all(&session, &named, self.target.as_deref(), self.timeout).await?;
        let cluster = session.target();
        let document = Document { api_version: API_VERSION, kind: "DeviceTest", cluster, items: &results };
        self.print.output.print(&document, || page(&results, self.print.paint()))?;
        Ok(self.print.final_exit(exit))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pod_safety_shared::api::{FenceDeviceStatus, Incarnation};
    use serde_json::json;

    use super::*;

    fn bmc() -> DeviceRef {
        DeviceRef { namespace: "ns".to_owned(), name: "bmc".to_owned() }
    }

    #[test]
    fn a_problem_is_printed_with_its_message_field_and_fix() {
        let fine = TargetStatus {
            node: "a".to_owned(),
            power: Power::On,
            identity: IdentityMatch::Match,
            ..TargetStatus::default()
        };
        let wrong = unanswered(&bmc(), "b", "LoginDenied", "the device refuses the login: 401".to_owned());
        let text = page(&[device_result(&bmc(), fine), wrong], Paint::plain());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], "✔  ns/bmc  a     On       Match     -");
        assert_eq!(lines[2], "✖  ns/bmc  b     Unknown  Unknown   LoginDenied");
        assert_eq!(lines[4], "ns/bmc for b: the device refuses the login: 401");
        assert!(lines[5].starts_with("  fix: spec.parameters") && lines[5].contains("password"), "{}", lines[5]);
    }

    #[test]
    fn a_device_that_reports_a_running_node_off_is_printed_as_wrong() {
        let (node, power, problem) = ("a".to_owned(), Power::Off, "SaysOff".to_owned());
        let target = TargetStatus { node, power, problem, message: "m".to_owned(), ..TargetStatus::default() };
        let text = page(&[device_result(&bmc(), target)], Paint::plain());
        let row: Vec<_> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["✖", "ns/bmc", "a", "Off", "Unknown", "SaysOff"]);
        assert!(text.contains("plug belong to another machine"), "{text}");
    }

    /// A device that selects the node, and that no leader had checked, was called one that does not select it.
    #[test]
    fn bug_a_device_that_was_not_checked_was_called_not_for_the_node() {
        for (selector, problem, fix) in [
            (json!({}), "NotChecked", "pod-safety devices test DEVICE (needs a leader)"),
            (json!({ "matchLabels": { "rack": "7" } }), "NotForNode", "select the node, or test another device"),
        ] {
            let spec = json!({ "driver": "Agent", "agent": "fence_ipmilan", "nodeSelector": selector });
            let spec = serde_json::from_value(spec).unwrap();
            let device = Device { named: bmc(), spec, status: FenceDeviceStatus::default() };
            let (node, labels) = (Incarnation { name: "a".to_owned(), ..Incarnation::default() }, BTreeMap::new());
            let examined = Examined { node, labels, ready: true, cordoned: false, renewed: None };
            let result = last_result(&device, &examined);
            assert_eq!((&*result.problem, result.way_out), (problem, fix));
        }
    }

    #[test]
    fn a_device_name_is_parsed_with_or_without_its_namespace() {
        assert_eq!(device("ns/bmc"), Ok((Some("ns".to_owned()), "bmc".to_owned())));
        assert_eq!(device("bmc"), Ok((None, "bmc".to_owned())));
        assert!(device("ns/").is_err() && device("a/b/c").is_err());
    }

    /// For a cluster without a device the result was an empty table and exit code 0, and a second device was refused.
    #[test]
    fn bug_a_test_of_no_device_succeeded_and_a_second_device_was_refused() {
        use clap::Parser as _;
        assert!(crate::Cli::try_parse_from(["pod-safety", "devices", "test", "a/b", "c/d", "e"]).is_ok());
        assert!(nothing_to_test(0).starts_with("there is no FenceDevice in this cluster"));
        assert!(nothing_to_test(2).starts_with("none of the 2 FenceDevices has"));
    }
}
