//! A cluster with volumes `v` and `w`, their claims, and nodes `a` and `b`.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::holds::Decision;
use pod_safety_shared::authority::{AttachDenial, Intent, RevocationBasis, UngateUpdate, Update, VolumeChange};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::HoldReason as _;
use pod_safety_shared::model::Kind;
use pod_safety_shared::testing::objects::{self, Obj, named, timestamp, uid};
use pod_safety_shared::testing::{World, at};
use serde_json::{Value, json};

use super::super::{Config, Key, decide};

/// The holder `a` of the pod `p`, and `b` of the pod `q`.
pub(super) const A: &str = "a/uid-a/b0000000-0000-4000-8000-000000000001/uid-p";
pub(super) const B: &str = "b/uid-b/b0000000-0000-4000-8000-000000000001/uid-q";
pub(super) const QUARANTINE: u64 = 40;

pub(super) fn config() -> Config {
    Config::with_quarantine(Duration::from_secs(QUARANTINE))
}

pub(super) fn describe(decision: &Decision) -> Vec<String> {
    let intents = decision.intents.iter().map(|intent| match intent {
        Intent::Update(Update::Volume(update)) => change(&update.change),
        Intent::Update(Update::Ungate(UngateUpdate { pod, pin, .. })) => {
            let to = pin.iter().map(|pin| format!(" to {pin}")).collect::<String>();
            format!("ungate {}{to}", pod.name)
        }
        Intent::ReadMissingNode { node } => format!("witness {node}"),
        other => format!("{other:?}"),
    });
    intents.chain(decision.holds.iter().map(|(_, hold)| hold.reason().to_owned())).collect()
}

fn change(change: &VolumeChange) -> String {
    let and = |refused: &Option<AttachDenial>| {
        refused.iter().map(|refused| format!(" {}", describe_refused(refused))).collect::<String>()
    };
    match change {
        VolumeChange::Acquire { holder, denial: refused } => format!("take {holder}{}", and(refused)),
        VolumeChange::DenyAttach(refused) => describe_refused(refused).replace("refused", "refuse"),
        VolumeChange::Allow => "allow".to_owned(),
        VolumeChange::Release { denial: refused } => format!("release{}", and(refused)),
        VolumeChange::Revoke { basis: RevocationBasis::Detached, denial: refused, .. } => {
            format!("break: detached{}", and(refused))
        }
        VolumeChange::Revoke { basis: RevocationBasis::Evidence { proof, .. }, .. } => {
            format!("break by {proof}")
        }
        VolumeChange::Revoke { basis: RevocationBasis::Storage(proof), .. } => {
            format!("break by {proof}, of storage")
        }
        VolumeChange::Revoke { basis: RevocationBasis::Replaced(proof), .. } => {
            format!("break by {proof}, replaced")
        }
        VolumeChange::Revoke { basis: RevocationBasis::NodeGone, .. } => "break: node gone".to_owned(),
        VolumeChange::Revoke { basis: RevocationBasis::Rebooted, next: None, .. } => "break: rebooted".to_owned(),
        VolumeChange::Revoke { basis: RevocationBasis::Rebooted, next: Some(next), denial: refused, .. } => {
            format!("break: rebooted, to {next}{}", and(refused))
        }
        VolumeChange::DeleteLease => "forget".to_owned(),
    }
}

fn describe_refused(refused: &AttachDenial) -> String {
    match &refused.detach_from {
        Some(node) => format!("refused but to detach from {}", node.name),
        None => "refused".to_owned(),
    }
}

pub(super) struct Fixture {
    pub(super) world: World,
    pub(super) config: Config,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let mut fixture = Self { world: World::listed(), config: config() };
        for node in ["a", "b"] {
            fixture.node(node, |_| ());
        }
        for (volume, claim) in [("v", "c"), ("w", "d")] {
            fixture.volume(volume, &["ReadWriteOnce"]);
            fixture.claim(claim, Some(volume));
        }
        fixture
    }

    pub(super) fn put(&self, kind: Kind, object: impl Into<Value>, now: Mono) {
        self.world.put(kind, object, now);
    }

    pub(super) fn node(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let labels = json!({ "kubernetes.io/hostname": format!("host-{name}") });
        let node = objects::node(name).labels(labels).ready("True").boot("b0000000-0000-4000-8000-000000000001");
        self.put(Kind::Nodes, node.set("/status/nodeInfo/systemUUID", json!("m")).modify(change), at(1));
    }

    pub(super) fn volume(&mut self, name: &str, modes: &[&str]) {
        let volume = objects::volume(name, modes).set("/spec/storageClassName", json!("fast"));
        self.put(Kind::Volumes, volume, at(1));
    }

    pub(super) fn claim(&mut self, name: &str, volume: Option<&str>) {
        self.put(Kind::Claims, objects::claim(name, volume), at(1));
    }

    pub(super) fn attachment(&mut self, volume: &str, node: &str, attached: bool) {
        let spec = json!({ "attacher": "d", "nodeName": node, "source": { "persistentVolumeName": volume } });
        let attachment = named(&format!("{volume}.{node}")).set("/spec", spec);
        self.put(Kind::Attachments, attachment.set("/status", json!({ "attached": attached })), at(1));
    }

    /// A running pod there with this claim.
    pub(super) fn pod(&mut self, name: &str, node: Option<&str>, claim: &str, change: impl FnOnce(&mut Value)) {
        let pod = objects::pod(name).using_claim(claim);
        let pod = node.map_or(pod.clone().phase("Pending"), |node| pod.on(node).running());
        self.put(Kind::Pods, pod.modify(change), at(1));
    }

    pub(super) fn gated(&mut self, name: &str, claim: &str) {
        self.pod(name, None, claim, |pod| {
            pod["spec"]["schedulingGates"] = json!([{ "name": "pod-safety.dev/volume-guard" }])
        });
    }

    pub(super) fn lease(&mut self, volume: &str, holder: Option<&str>, held: bool) {
        let labels = if held { json!({ "pod-safety.dev/held": "true" }) } else { json!({}) };
        self.lease_with(volume, holder, labels);
    }

    fn lease_with(&self, volume: &str, holder: Option<&str>, labels: Value) {
        self.put(Kind::VolumeLeases, objects::volume_lease(volume, holder).labels(labels), at(1));
    }

    /// As [`Fixture::lease`], of a volume that may be detached from this node.
    pub(super) fn lease_to_detach(&mut self, volume: &str, holder: Option<&str>, from: &str) {
        let from = format!("uid-{from}");
        let labels = json!({ "pod-safety.dev/held": "true", "pod-safety.dev/detach-from": from });
        self.lease_with(volume, holder, labels);
    }

    /// Evidence that node `a` is off.
    pub(super) fn proof(&mut self, boot_id: &str) {
        let device = json!({ "namespace": "n", "name": "d" });
        let sample = json!({ "device": device, "at": timestamp(0), "power": "Off", "identity": "Match" });
        let proof = objects::evidence("proof", "a", boot_id, "PowerOff").set("/spec/fence", json!("f"));
        self.put(Kind::FenceEvidences, proof.set("/spec/samples", json!([sample])), at(1));
    }

    pub(super) fn decide_volume(&self, volume: &str, now: u64) -> Decision {
        self.world.confirm_all(at(now));
        decide(&Key::Volume(volume.into()), &self.world.read().view(), at(now), &self.config)
    }

    pub(super) fn decide_pod(&self, pod: &str, now: u64) -> Decision {
        self.world.confirm_all(at(now));
        decide(&Key::Gate(uid(&format!("uid-{pod}"))), &self.world.read().view(), at(now), &self.config)
    }

    pub(super) fn describe_volume(&self) -> Vec<String> {
        describe(&self.decide_volume("v", 2))
    }
}

pub(super) fn not_ready(node: &mut Value) {
    node["status"]["conditions"][0]["status"] = json!("Unknown");
}

pub(super) fn in_use(node: &mut Value) {
    node["status"]["volumesInUse"] = json!(["kubernetes.io/csi/d^v"]);
}

pub(super) fn classes(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Its kubelet reported that all its containers have terminated.
pub(super) fn terminate(pod: &mut Value) {
    *pod = Obj(pod.take()).terminated().0;
}
