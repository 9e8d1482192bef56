//! Whether nodes would be fenced: devices and policies.

use std::collections::BTreeSet;

use jiff::Timestamp;
use pod_safety_explain::{Paused, pluralize};
use pod_safety_shared::api::{
    DeviceRef, DeviceState, FenceDeviceSpec, FenceEvidenceKind, OFF_WHILE_REPORTING, Power, TargetStatus,
};
use pod_safety_shared::cache::View;
use pod_safety_shared::model::{FenceDeviceObject, Kind, Node};

use super::{Health, Installation, Symptom, healthy, join_first, not_checked, symptom};

/// Whether devices answer and are trusted, and whether a policy uses them. `unread`: the kinds that could not be read.
pub fn check_devices(
    view: &View<'_>,
    unread: &[Kind],
    paused: &[Paused],
    wall: Timestamp,
    installation: &Installation,
) -> Vec<Symptom> {
    let mut all = if unread.contains(&Kind::FenceDevices) {
        vec![not_checked("FenceDevices", "FenceDevices could not be listed")]
    } else {
        [check_answers(view), check_outside(view, installation).into_iter().collect(), check_settings(view)].concat()
    };
    all.extend(check_policies(view, unread, paused, wall));
    all
}

fn device_name(device: &FenceDeviceObject) -> String {
    format!("{}/{}", device.namespace, device.name)
}

/// What each device answered at its last status check.
fn check_answers(view: &View<'_>) -> Vec<Symptom> {
    let mut all = Vec::new();
    let (mut not_answering, mut unpromised, mut contradicted) = (Vec::new(), Vec::new(), Vec::new());
    let (mut unwell, mut distrusted, mut never_checked) = (Vec::new(), Vec::new(), Vec::new());
    let fenced_from: Vec<_> = view.devices().filter(|device| view.is_fencing_namespace(&device.namespace)).collect();
    for device in &fenced_from {
        let name = device_name(device);
        let unknown = describe_targets(device, |target| target.power == Power::Unknown);
        let running = describe_targets(device, |target| target.problem == OFF_WHILE_REPORTING);
        let answers = unknown.is_empty() && running.is_empty();
        contradicted.extend(running);
        match device.spec.driver.gives(FenceEvidenceKind::WatchdogLease) {
            true => unpromised.extend(unknown),
            false => not_answering.extend(unknown),
        }
        match device.state() {
            DeviceState::Unseen => never_checked.push(name),
            DeviceState::NotTrusted => distrusted.push(name),
            DeviceState::NotReady if answers => unwell.push(name),
            DeviceState::NotReady | DeviceState::Ready => {}
        }
    }
    for (health, names, (problem, why, remedy)) in [
        (Health::Problem, unwell, NOT_READY),
        (Health::Problem, distrusted, NOT_TRUSTED),
        (Health::Problem, contradicted, CONTRADICTED),
        (Health::Problem, not_answering, NOT_ANSWERING),
        (Health::Problem, unpromised, NO_VALID_PROMISE),
        (Health::Unknown, never_checked, NEVER_CHECKED),
    ] {
        if !names.is_empty() {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            all.push(symptom("FenceDevices", health, format!("{problem}: {}", join_first(&names)), why, remedy));
        }
    }
    if all.is_empty() && !fenced_from.is_empty() {
        all.push(healthy(
            "FenceDevices",
            format!("{} answered at the last check, all trusted", pluralize(fenced_from.len(), "device")),
        ));
    }
    all
}

/// These targets of a device, with its name and the message of each.
fn describe_targets(device: &FenceDeviceObject, is_meant: impl Fn(&TargetStatus) -> bool) -> Vec<String> {
    let describe = |target: &TargetStatus| {
        let message = if target.message.is_empty() { "no answer" } else { &target.message };
        format!("{} for {}: {message}", device_name(device), target.node)
    };
    device.status.targets.iter().filter(|target| is_meant(target)).map(describe).collect()
}

/// Devices of namespaces that pod-safety does not watch.
fn check_outside(view: &View<'_>, installation: &Installation) -> Option<Symptom> {
    let outside = || view.devices().filter(move |device| !view.is_fencing_namespace(&device.namespace));
    let names: Vec<String> = outside().map(device_name).collect();
    if names.is_empty() {
        return None;
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let watched = view.fencing_namespaces().into_iter().flatten().map(String::as_str);
    let mut all: BTreeSet<&str> = watched.chain(outside().map(|device| &*device.namespace)).collect();
    // The chart adds its own.
    all.remove(installation.namespace());
    let all: Vec<&str> = all.into_iter().collect();
    let command = installation.helm_command(&format!("'controllers.fencing.namespaces={{{}}}'", all.join(",")));
    Some(symptom(
        "FenceDevices",
        Health::Attention,
        format!("in a namespace that pod-safety does not watch: {}", join_first(&names)),
        "no node is fenced by it, and it is not checked",
        format!(
            "delete it, or trust its namespace, where a user who may write FenceDevices can power machines off: {command}"
        ),
    ))
}

/// Settings of a device that make its answer less reliable.
fn check_settings(view: &View<'_>) -> Vec<Symptom> {
    let (mut insecure, mut unsure, mut same) = (Vec::new(), Vec::new(), Vec::new());
    let selected_nodes = |device: &FenceDeviceObject| {
        let labels = view.nodes().filter_map(|node| Some((node, &node.details.as_ref()?.labels)));
        labels.filter(|(_, labels)| device.spec.node_selector.matches(labels)).map(|(node, _)| node).collect()
    };
    for device in view.devices().filter(|device| view.is_fencing_namespace(&device.namespace)) {
        let nodes: Vec<_> = selected_nodes(device);
        if accepts_any_certificate(&device.spec) {
            insecure.push(device_name(device));
        }
        if device.spec.driver.properties().compares_identity && !device.spec.requires_machine_identity() {
            unsure.push(device_name(device));
        }
        if nodes.iter().filter(|node| device.spec.switches_same_machine_for(&node.name)).count() > 1 {
            same.push(device_name(device));
        }
    }
    let rows = [(insecure, INSECURE), (unsure, BEST_EFFORT_IDENTITY), (same, SHARED_PARAMETERS)];
    let rows = rows.into_iter().filter(|(names, _)| !names.is_empty());
    rows.map(|(names, (word, why, remedy))| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        symptom("FenceDevices", Health::Attention, format!("{word}: {}", join_first(&names)), why, remedy)
    })
    .collect()
}

/// Whether `insecure` of the driver Redfish, or `ssl_insecure` of agents, is set.
fn accepts_any_certificate(spec: &FenceDeviceSpec) -> bool {
    let mut all = spec.parameters.iter().chain(spec.node_parameters.values().flatten());
    all.any(|(name, value)| {
        let is_set = ["1", "on", "true", "yes"].iter().any(|word| value.eq_ignore_ascii_case(word));
        ["insecure", "ssl_insecure"].contains(&name.as_str()) && is_set
    })
}

/// What is wrong, its effect, and the remedy.
type Advice = (&'static str, &'static str, &'static str);

const NOT_READY: Advice = (
    "the last check found something wrong",
    "they are still used, and may fail when a node is lost",
    "kubectl describe fencedevices --all-namespaces",
);
const NOT_TRUSTED: Advice = (
    "not trusted: evidence from it was contradicted",
    "it no longer proves anything",
    page!("runbooks/PodSafetyFenceDeviceNotTrusted.md"),
);
const CONTRADICTED: Advice = (
    "reports a node off whose kubelet reports",
    "it would switch another machine off, and prove by that machine that the node is off",
    "correct spec.parameters: pod-safety devices test",
);
const NOT_ANSWERING: Advice = (
    "did not answer at the last check",
    "a node whose device does not answer is not fenced when it is lost",
    page!("runbooks/PodSafetyFenceDeviceSilent.md"),
);
const NO_VALID_PROMISE: Advice = (
    "agents of nodes promise nothing that counts",
    "such a node is not released by its watchdog when it is lost",
    concat!(page!("watchdog-lease.md"), " says which promises count"),
);
const NEVER_CHECKED: Advice = (
    "not checked: never contacted since it was created or changed",
    "it is not known whether it can switch anything",
    "pod-safety devices test",
);

const INSECURE: Advice = (
    "every certificate is accepted",
    "a machine that takes the address of the device can report others as off, and receives the login",
    "use spec.parameters.ca instead of insecure, or a driver that verifies instead of ssl_insecure",
);
const BEST_EFFORT_IDENTITY: Advice = (
    "identityCheck is BestEffort",
    "a machine is switched, and its power state is trusted, even if it does not report which machine it is",
    "set identityCheck: Required where pod-safety devices test shows Match",
);
const SHARED_PARAMETERS: Advice = (
    "the same parameters for several nodes",
    "fencing any of these nodes switches one and the same machine",
    "use nodeParameters, or a template such as {{.Node.Name}}, in spec of the FenceDevice",
);

/// Policies that name devices that do not exist.
fn check_missing_devices(view: &View<'_>) -> Option<Symptom> {
    let mut names = Vec::new();
    for policy in view.policies() {
        let devices = policy.spec.levels.iter().flat_map(|level| &level.devices);
        let absent = devices.filter(|device| view.device(&device.namespace, &device.name).is_none());
        names.extend(absent.map(|device| format!("{device} (of fencepolicy/{})", policy.name)));
    }
    names.sort();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    (!names.is_empty()).then(|| {
        symptom(
            "FencePolicies",
            Health::Problem,
            format!("FenceDevices that do not exist: {}", join_first(&names)),
            "a level with such a device cannot fence a node",
            "create the FenceDevice, or correct its namespace and name in spec.levels of the FencePolicy",
        )
    })
}

/// Policies that are paused, and nodes without a policy.
fn check_policies(view: &View<'_>, unread: &[Kind], paused: &[Paused], wall: Timestamp) -> Vec<Symptom> {
    let mut all = Vec::new();
    if !unread.contains(&Kind::FenceDevices) {
        all.extend(check_missing_devices(view));
    }
    for pause in paused {
        all.push(symptom(
            "FencePolicies",
            Health::Attention,
            format!("{} is paused: {}", pause.object, pause.describe(wall)),
            "it is not fenced until the pause ends, however long that takes",
            if pause.command.is_empty() { "ask the person who set it" } else { &pause.command },
        ));
    }
    if unread.contains(&Kind::FencePolicies) || unread.contains(&Kind::Nodes) {
        all.push(not_checked("FencePolicies", "FencePolicies or nodes could not be listed"));
        return all;
    }
    if !unread.contains(&Kind::FenceDevices) {
        all.extend(check_unused(view));
    }
    let unguarded: Vec<&str> =
        view.nodes().filter(|node| view.policy_of(node.labels()).is_none()).map(|node| &*node.name).collect();
    if unguarded.is_empty() {
        all.push(healthy("FencePolicies", "every node has its FencePolicy"));
    } else {
        let what = format!("{} without a FencePolicy: {}", pluralize(unguarded.len(), "node"), join_first(&unguarded));
        all.push(symptom(
            "FencePolicies",
            Health::Attention,
            what,
            "when such a node is lost, its pods wait until a person confirms that it is off",
            concat!("create one: ", page!("fencing.md")),
        ));
    }
    all
}

const NO_WORKING_LEVEL: Advice = (
    "each level of their FencePolicy has a device that does not work for",
    "nothing fences such a node when it is lost: its pods wait for a person",
    "pod-safety devices test shows what is wrong with each device",
);
const NOT_IN_POLICY: Advice =
    ("no FencePolicy names", "no node is fenced by it", "name it in spec.levels of a FencePolicy, or delete it");
const WITHOUT_NODES: Advice = (
    "no node is selected by",
    "nothing is fenced by it",
    "correct its spec.nodeSelector or spec.priority: kubectl get nodes --show-labels",
);

/// What exists and has no effect: nodes for which no level works, devices that no policy names, policies without a
/// node.
fn check_unused(view: &View<'_>) -> Vec<Symptom> {
    let (mut hopeless, mut used) = (Vec::new(), BTreeSet::new());
    for node in view.nodes() {
        let Some(policy) = view.policy_of(node.labels()) else { continue };
        used.insert(&policy.uid);
        let works = |device: &DeviceRef| may_work_for(view, device, node);
        let levels = &policy.spec.levels;
        if !levels.is_empty() && !levels.iter().any(|level| level.devices.iter().all(works)) {
            hopeless.push(node.name.to_string());
        }
    }
    let named = |device: &FenceDeviceObject| {
        let mut levels = view.policies().flat_map(|policy| &policy.spec.levels);
        levels.any(|level| level.devices.iter().any(|one| is_named_by(device, one)))
    };
    let fenced_from = view.devices().filter(|device| view.is_fencing_namespace(&device.namespace));
    let unnamed = fenced_from.filter(|device| !named(device)).map(self::device_name).collect();
    let nodeless = view.policies().filter(|policy| !used.contains(&policy.uid));
    let nodeless = nodeless.filter(|_| view.nodes().next().is_some());
    let nodeless = nodeless.map(|policy| policy.name.to_string()).collect();
    let rows: [(_, _, Vec<String>, _); 3] = [
        ("FencePolicies", Health::Problem, hopeless, NO_WORKING_LEVEL),
        ("FenceDevices", Health::Attention, unnamed, NOT_IN_POLICY),
        ("FencePolicies", Health::Attention, nodeless, WITHOUT_NODES),
    ];
    let rows = rows.into_iter().filter(|(_, _, names, _)| !names.is_empty());
    rows.map(|(check, health, names, (word, why, remedy))| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        symptom(check, health, format!("{word}: {}", join_first(&names)), why, remedy)
    })
    .collect()
}

fn is_named_by(device: &FenceDeviceObject, named: &DeviceRef) -> bool {
    *device.namespace == *named.namespace && *device.name == *named.name
}

/// Whether a device may work for a node, as far as it is known: a device that was not checked yet may.
fn may_work_for(view: &View<'_>, named: &DeviceRef, node: &Node) -> bool {
    let Some(device) = view.device(&named.namespace, &named.name) else { return false };
    let target = device.status.targets.iter().find(|target| *target.node == *node.name);
    view.is_fencing_namespace(&device.namespace)
        && match device.state() {
            DeviceState::NotTrusted => false,
            DeviceState::Unseen => true,
            // A person switches the machine.
            DeviceState::Ready | DeviceState::NotReady if device.spec.driver.is_operator() => true,
            // A node that has just joined was not checked yet.
            DeviceState::Ready | DeviceState::NotReady => target.map_or_else(
                || device.spec.node_selector.matches(node.labels()),
                |target| target.power != Power::Unknown && target.problem != OFF_WHILE_REPORTING,
            ),
        }
}
