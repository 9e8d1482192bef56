//! A cluster with volumes `v` and `w`, their claims, and nodes `a` and `b`.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::holds::Decision;
use pod_safety_shared::authority::{FencedBy, Intent, Refused, Update, VolumeChange};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::HoldReason as _;
use pod_safety_shared::model::Kind;
use pod_safety_shared::testing::objects::{self, Obj, named, stamp, uid};
use pod_safety_shared::testing::{World, at};
use serde_json::{Value, json};

use super::super::{Config, Key, decide};

pub(super) const QUARANTINE: u64 = 40;

pub(super) fn config() -> Config {
    Config::after(Duration::from_secs(QUARANTINE))
}

pub(super) fn said(decision: &Decision) -> Vec<String> {
    let intents = decision.intents.iter().map(|intent| match intent {
        Intent::Update(Update::Volume(update)) => change(&update.change),
        Intent::Update(Update::Ungate { pod, pin, .. }) => {
            let to = pin.iter().map(|pin| format!(" to {pin}")).collect::<String>();
            format!("ungate {}{to}", pod.name)
        }
        Intent::Witness { node } => format!("witness {node}"),
        other => format!("{other:?}"),
    });
    intents.chain(decision.holds.iter().map(|(_, hold)| hold.reason().to_owned())).collect()
}

fn change(change: &VolumeChange) -> String {
    let and = |refused: &Option<Refused>| {
        refused.iter().map(|refused| format!(" {}", kept(refused))).collect::<String>()
    };
    match change {
        VolumeChange::Take { holder, refused } => format!("take {holder}{}", and(refused)),
        VolumeChange::Refuse(refused) => kept(refused).replace("refused", "refuse"),
        VolumeChange::Allow => "allow".to_owned(),
        VolumeChange::Release { refused } => format!("release{}", and(refused)),
        VolumeChange::Break { by: FencedBy::Detached, refused, .. } => {
            format!("break: detached{}", and(refused))
        }
        VolumeChange::Break { by: FencedBy::Evidence { proof, .. }, .. } => format!("break by {proof}"),
        VolumeChange::Break { by: FencedBy::Storage(proof), .. } => format!("break by {proof}, of storage"),
        VolumeChange::Break { by: FencedBy::Replaced(proof), .. } => format!("break by {proof}, replaced"),
        VolumeChange::Break { by: FencedBy::NodeGone, .. } => "break: node gone".to_owned(),
        VolumeChange::Break { by: FencedBy::Rebooted, next: None, .. } => "break: rebooted".to_owned(),
        VolumeChange::Break { by: FencedBy::Rebooted, next: Some(next), refused, .. } => {
            format!("break: rebooted, to {next}{}", and(refused))
        }
        VolumeChange::Forget => "forget".to_owned(),
    }
}

fn kept(refused: &Refused) -> String {
    match &refused.detach_from {
        Some(node) => format!("refused but to detach from {}", node.name),
        None => "refused".to_owned(),
    }
}

pub(super) struct Stage {
    pub(super) world: World,
    pub(super) config: Config,
}

impl Stage {
    pub(super) fn new() -> Self {
        let mut stage = Self { world: World::listed(), config: config() };
        for node in ["a", "b"] {
            stage.node(node, |_| ());
        }
        for (volume, claim) in [("v", "c"), ("w", "d")] {
            stage.volume(volume, &["ReadWriteOnce"]);
            stage.claim(claim, Some(volume));
        }
        stage
    }

    pub(super) fn put(&self, kind: Kind, object: impl Into<Value>, now: Mono) {
        self.world.put(kind, object, now);
    }

    pub(super) fn node(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let labels = json!({ "kubernetes.io/hostname": format!("host-{name}") });
        let node =
            objects::node(name).labels(labels).ready("True").boot("b0000000-0000-4000-8000-000000000001");
        self.put(Kind::Nodes, node.set("/status/nodeInfo/systemUUID", json!("m")).but(change), at(1));
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

    /// A pod that runs there with this claim.
    pub(super) fn pod(
        &mut self,
        name: &str,
        node: Option<&str>,
        claim: &str,
        change: impl FnOnce(&mut Value),
    ) {
        let pod = objects::pod(name).using(claim);
        let pod = node.map_or(pod.clone().phase("Pending"), |node| pod.on(node).running());
        self.put(Kind::Pods, pod.but(change), at(1));
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

    /// As [`Stage::lease`], of a volume that may be detached from this node.
    pub(super) fn lease_to_detach(&mut self, volume: &str, holder: Option<&str>, from: &str) {
        let from = format!("uid-{from}");
        let labels = json!({ "pod-safety.dev/held": "true", "pod-safety.dev/detach-from": from });
        self.lease_with(volume, holder, labels);
    }

    /// Evidence that node `a` is off.
    pub(super) fn proof(&mut self, boot_id: &str) {
        let device = json!({ "namespace": "n", "name": "d" });
        let sample = json!({ "device": device, "at": stamp(0), "power": "Off", "identity": "Match" });
        let proof = objects::evidence("proof", "a", boot_id, "PowerOff").set("/spec/fence", json!("f"));
        self.put(Kind::FenceEvidences, proof.set("/spec/samples", json!([sample])), at(1));
    }

    pub(super) fn of_volume(&self, volume: &str, now: u64) -> Decision {
        self.world.hear(at(now));
        decide(&Key::Volume(volume.into()), &self.world.read().view(), at(now), &self.config)
    }

    pub(super) fn of_pod(&self, pod: &str, now: u64) -> Decision {
        self.world.hear(at(now));
        decide(&Key::Gate(uid(&format!("uid-{pod}"))), &self.world.read().view(), at(now), &self.config)
    }

    pub(super) fn v(&self) -> Vec<String> {
        said(&self.of_volume("v", 2))
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

/// Its kubelet reported the end of all its containers.
pub(super) fn ended(pod: &mut Value) {
    *pod = Obj(pod.take()).ended().0;
}
