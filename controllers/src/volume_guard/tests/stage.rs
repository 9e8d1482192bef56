//! A cluster with volumes `v` and `w`, their claims, and nodes `a` and `b`.

use std::collections::BTreeSet;
use std::time::Duration;

use pod_safety_shared::authority::{Intent, Over, Refused, Update, VolumeChange};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::Decision;
use pod_safety_shared::model::{Kind, Uid};
use pod_safety_shared::testing::{World, at};
use serde_json::{Value, json};

use super::super::{Config, Key, decide};
use crate::staged::with;

pub(super) const QUARANTINE: u64 = 40;

pub(super) fn config() -> Config {
    Config::after(Duration::from_secs(QUARANTINE))
}

/// What was decided, in words.
pub(super) fn said(decision: &Decision) -> Vec<String> {
    let intents = decision.intents.iter().map(|intent| match intent {
        Intent::Update(Update::Volume(update)) => change(&update.change),
        Intent::Update(Update::Ungate { pod, pin, .. }) => {
            format!(
                "ungate {}{}",
                pod.name,
                pin.as_ref().map_or_else(String::new, |pin| format!(" to {pin}"))
            )
        }
        Intent::Witness { node } => format!("witness {node}"),
        other => format!("{other:?}"),
    });
    intents.chain(decision.holds.iter().map(|(_, hold)| hold.reason().to_owned())).collect()
}

fn change(change: &VolumeChange) -> String {
    match change {
        VolumeChange::Take { holder, refused } => {
            format!(
                "take {holder}{}",
                refused.as_ref().map_or_else(String::new, |refused| format!(" {}", kept(refused)))
            )
        }
        VolumeChange::Refuse(refused) => kept(refused).replace("refused", "refuse"),
        VolumeChange::Allow => "allow".to_owned(),
        VolumeChange::Release { refused } => {
            format!(
                "release{}",
                refused.as_ref().map_or_else(String::new, |refused| format!(" {}", kept(refused)))
            )
        }
        VolumeChange::Break { by: Over::Detached, refused, .. } => {
            format!(
                "break: detached{}",
                refused.as_ref().map_or_else(String::new, |refused| format!(" {}", kept(refused)))
            )
        }
        VolumeChange::Break { by: Over::Fenced(proof), .. } => format!("break by {proof}"),
        VolumeChange::Break { by: Over::StorageFenced(proof), .. } => format!("break by {proof}, of storage"),
        VolumeChange::Break { by: Over::NodeGone, .. } => "break: node gone".to_owned(),
        VolumeChange::Break { by: Over::Rebooted, .. } => "break: rebooted".to_owned(),
        VolumeChange::Forget => "forget".to_owned(),
    }
}

fn kept(refused: &Refused) -> String {
    match &refused.detach_from {
        Some(node) => format!("refused but to detach from {}", node.name),
        None => "refused".to_owned(),
    }
}

/// The cluster, and what happens in it.
pub(super) struct Stage {
    pub(super) world: World,
    pub(super) config: Config,
    version: u64,
}

impl Stage {
    pub(super) fn new() -> Self {
        let mut stage = Self { world: World::listed(), config: config(), version: 100 };
        for node in ["a", "b"] {
            stage.node(node, |_| ());
        }
        for (volume, claim) in [("v", "c"), ("w", "d")] {
            stage.volume(volume, &["ReadWriteOnce"]);
            stage.claim(claim, Some(volume));
        }
        stage
    }

    /// With another version each time.
    pub(super) fn put(&mut self, kind: Kind, mut object: Value, now: Mono) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.world.apply(kind, &object, now);
    }

    pub(super) fn node(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut node = json!({
            "metadata": { "name": name, "uid": format!("uid-{name}"), "labels": { "kubernetes.io/hostname": format!("host-{name}") } },
            "spec": {},
            "status": { "conditions": [{ "type": "Ready", "status": "True" }], "nodeInfo": { "bootID": "boot-1", "systemUUID": "m" } },
        });
        change(&mut node);
        self.put(Kind::Nodes, node, at(1));
    }

    pub(super) fn volume(&mut self, name: &str, modes: &[&str]) {
        let volume = json!({
            "metadata": { "name": name, "uid": format!("uid-{name}") },
            "spec": { "accessModes": modes, "storageClassName": "fast", "csi": { "driver": "d", "volumeHandle": name } },
        });
        self.put(Kind::Volumes, volume, at(1));
    }

    pub(super) fn claim(&mut self, name: &str, volume: Option<&str>) {
        let claim = json!({ "metadata": { "namespace": "ns", "name": name, "uid": format!("uid-{name}") }, "spec": { "volumeName": volume } });
        self.put(Kind::Claims, claim, at(1));
    }

    pub(super) fn attachment(&mut self, volume: &str, node: &str, attached: bool) {
        let attachment = json!({
            "metadata": { "name": format!("{volume}.{node}"), "uid": format!("uid-{volume}.{node}") },
            "spec": { "attacher": "d", "nodeName": node, "source": { "persistentVolumeName": volume } },
            "status": { "attached": attached },
        });
        self.put(Kind::Attachments, attachment, at(1));
    }

    /// A pod that runs there with this claim.
    pub(super) fn pod(
        &mut self,
        name: &str,
        node: Option<&str>,
        claim: &str,
        change: impl FnOnce(&mut Value),
    ) {
        let mut pod = json!({
            "metadata": { "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "nodeName": node, "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }] },
            "status": { "phase": "Running", "containerStatuses": [{ "state": { "running": {} } }] },
        });
        if node.is_none() {
            pod["status"] = json!({ "phase": "Pending" });
        }
        change(&mut pod);
        self.put(Kind::Pods, pod, at(1));
    }

    /// A pod behind the gate.
    pub(super) fn gated(&mut self, name: &str, claim: &str) {
        self.pod(name, None, claim, |pod| {
            pod["spec"]["schedulingGates"] = json!([{ "name": "pod-safety.dev/volume-guard" }])
        });
    }

    pub(super) fn lease(&mut self, volume: &str, holder: Option<&str>, held: bool) {
        let labels = if held { json!({ "pod-safety.dev/held": "true" }) } else { json!({}) };
        let lease = json!({
            "metadata": { "namespace": "pod-safety-volumes", "name": volume, "uid": format!("uid-lease-{volume}"), "labels": labels },
            "spec": { "holderIdentity": holder, "leaseTransitions": 3 },
        });
        self.put(Kind::VolumeLeases, lease, at(1));
    }

    /// As [`Stage::lease`], of a volume that may be detached from this node.
    pub(super) fn lease_to_detach(&mut self, volume: &str, holder: Option<&str>, from: &str) {
        let lease = json!({
            "metadata": { "namespace": "pod-safety-volumes", "name": volume, "uid": format!("uid-lease-{volume}"),
                "labels": { "pod-safety.dev/held": "true", "pod-safety.dev/detach-from": format!("uid-{from}") } },
            "spec": { "holderIdentity": holder, "leaseTransitions": 3 },
        });
        self.put(Kind::VolumeLeases, lease, at(1));
    }

    /// Evidence that node `a` is off.
    pub(super) fn proof(&mut self, boot_id: &str) {
        let proof = json!({
            "metadata": { "name": "proof", "uid": "uid-proof" },
            "spec": { "node": { "name": "a", "uid": "uid-a", "bootID": boot_id }, "kind": "PowerOff", "fence": "f", "by": "x",
                "samples": [{ "device": { "namespace": "n", "name": "d" }, "at": "2026-01-01T00:00:00Z", "power": "Off", "identity": "Match" }] },
        });
        self.put(Kind::FenceEvidences, proof, at(1));
    }

    pub(super) fn of_volume(&self, volume: &str, now: u64) -> Decision {
        self.hear(now);
        decide(&Key::Volume(volume.into()), &self.world.read().view(), at(now), &self.config)
    }

    pub(super) fn of_pod(&self, pod: &str, now: u64) -> Decision {
        self.hear(now);
        let uid = Uid::new(&format!("uid-{pod}")).unwrap();
        decide(&Key::Gate(uid), &self.world.read().view(), at(now), &self.config)
    }

    /// The API server says that nothing else changed.
    fn hear(&self, now: u64) {
        self.world.hear(at(now));
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
    let over = with(
        pod.clone(),
        "/status",
        json!({ "phase": "Succeeded", "containerStatuses": [{ "state": { "terminated": {} } }] }),
    );
    *pod = over;
}
