//! Whether nodes would be fenced: devices and policies.

use jiff::Timestamp;
use pod_safety::explain::Paused;
use pod_safety_shared::cache::View;
use pod_safety_shared::model::Device;

use super::{Health, Symptom, fine, found, shown};
use crate::cli::plural;

/// Whether devices answer, and are believed; and whether anybody asks them.
pub(in crate::cli::doctor) fn devices(view: &View<'_>, paused: &[Paused], wall: Timestamp) -> Vec<Symptom> {
    let mut all = Vec::new();
    let (mut silent, mut unusable, mut distrusted) = (Vec::new(), Vec::new(), Vec::new());
    let (ours, elsewhere): (Vec<_>, Vec<_>) =
        view.devices().partition(|device| view.fences_from(&device.namespace));
    let named = |device: &Device| format!("{}/{}", device.namespace, device.name);
    for device in &ours {
        let name = named(device);
        if device.status.says("Ready") == Some("False") {
            unusable.push(name.clone());
        }
        if device.status.says("Trusted") == Some("False") {
            distrusted.push(name.clone());
        }
        for target in device.status.targets.iter().filter(|target| target.power == "Unknown") {
            let said = if target.message.is_empty() { "no answer" } else { &target.message };
            silent.push(format!("{name} for {}: {said}", target.node));
        }
    }
    let elsewhere = elsewhere.into_iter().map(named).collect();
    for (health, names, (word, why, remedy)) in [
        (Health::Problem, unusable, UNUSABLE),
        (Health::Problem, distrusted, DISTRUSTED),
        (Health::Problem, silent, SILENT),
        (Health::Attention, elsewhere, ELSEWHERE),
    ] {
        if !names.is_empty() {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            all.push(found("FenceDevices", health, format!("{word}: {}", shown(&names)), why, remedy));
        }
    }
    if all.is_empty() && !ours.is_empty() {
        all.push(fine("FenceDevices", format!("all {} answer and are trusted", ours.len())));
    }
    all.extend(policies(view, paused, wall));
    all
}

/// What is wrong, what follows, and the way out.
type Words = (&'static str, &'static str, &'static str);

const UNUSABLE: Words = (
    "cannot be used",
    "its nodes are fenced by a later level of their policies, or not at all",
    "kubectl describe fencedevice says why",
);
const DISTRUSTED: Words = (
    "not trusted: evidence from it was contradicted",
    "nothing is proved by it any more",
    "docs/runbooks/PodSafetyFenceDeviceNotTrusted.md",
);
const SILENT: Words = (
    "did not answer at the last look",
    "a node whose device is silent is not fenced when it is lost",
    "docs/runbooks/PodSafetyFenceDeviceSilent.md",
);
const ELSEWHERE: Words = (
    "in a namespace that is not followed",
    "no node is fenced by it, and it is not looked at",
    "--fencing-namespaces (chart: controllers.fencing.namespaces), or delete it",
);

/// Policies that pause, and nodes that have none.
fn policies(view: &View<'_>, paused: &[Paused], wall: Timestamp) -> Vec<Symptom> {
    let mut all = Vec::new();
    for pause in paused {
        all.push(found(
            "FencePolicies",
            Health::Attention,
            format!("{} pauses: {}", pause.object, pause.words(wall)),
            "its nodes are not fenced meanwhile, however long it lasts",
            if pause.command.is_empty() { "ask whoever marked it" } else { &pause.command },
        ));
    }
    let none = Default::default();
    let unguarded: Vec<&str> = view
        .nodes()
        .filter(|node| view.policy_of(node.life.as_ref().map_or(&none, |life| &life.labels)).is_none())
        .map(|node| &*node.name)
        .collect();
    if unguarded.is_empty() {
        all.push(fine("FencePolicies", "every node has its FencePolicy"));
    } else {
        let what =
            format!("{} without a FencePolicy: {}", plural(unguarded.len(), "node"), shown(&unguarded));
        all.push(found(
            "FencePolicies",
            Health::Attention,
            what,
            "when such a node is lost, its pods wait until a person confirms that it is down",
            "docs/fencing.md",
        ));
    }
    all
}
