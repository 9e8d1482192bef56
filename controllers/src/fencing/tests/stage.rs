//! A small cluster with devices, where what is decided is done: seconds pass, kubelets renew their Leases, and the
//! answers of devices are what a test says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pod_safety_shared::api::{
    DeviceRef, FenceEvidenceSpec, FenceEvidenceStatus, Incarnation, Invalidation, NodeFenceSpec,
    REMEDIATION_FINALIZER,
};
use pod_safety_shared::authority::{incident_name, rehearsal_name};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::testing::{World, at};

use super::*;

/// When the tests begin, by the wall clock: 2026-01-01T00:00:00Z.
const BEGINS: i64 = 1_767_225_600;

fn stamp(second: u64) -> String {
    let second = BEGINS + i64::try_from(second).unwrap();
    jiff::Timestamp::from_second(second).unwrap().to_string()
}

/// A level of this name with the device of the same name.
pub(super) fn level(name: &str, attempts: u32) -> Level {
    let devices = vec![DeviceRef { namespace: "fencing".to_owned(), name: name.to_owned() }];
    Level { name: name.to_owned(), devices, attempts }
}

#[derive(Clone)]
pub(super) struct Stage {
    pub(super) world: World,
    pub(super) config: Config,
    pub(super) now: u64,
    pub(super) nodes: BTreeMap<String, Value>,
    pub(super) policy: FencePolicySpec,
    pub(super) fences: BTreeMap<String, (NodeFenceSpec, NodeFenceStatus)>,
    pub(super) proofs: BTreeMap<String, (FenceEvidenceSpec, FenceEvidenceStatus)>,
    /// Kubelets that renew their Leases.
    pub(super) alive: BTreeSet<String>,
    /// The remediations, by their names.
    pub(super) remediations: BTreeMap<String, Value>,
    renewed: BTreeMap<String, u64>,
    rv: u64,
}

impl Stage {
    /// Of Ready nodes with living kubelets, a policy `p` that always fences by the device `bmc`, with few brakes.
    pub(super) fn new(names: &[&str]) -> Self {
        let policy: FencePolicySpec = serde_json::from_value(json!({
            "levels": [level("bmc", 2)],
            "when": "Always",
            "brakes": { "cooldownSeconds": 0, "maxConcurrent": 10, "maxUnhealthyZonePercent": 100 },
        }))
        .unwrap();
        let (nodes, fences, proofs, alive, remediations, renewed) = Default::default();
        let (world, config) = (World::listed(), config());
        let mut stage = Self {
            world,
            config,
            now: 0,
            nodes,
            policy,
            fences,
            proofs,
            alive,
            remediations,
            renewed,
            rv: 10,
        };
        stage.policy(|_| ());
        stage.device("bmc", |_| ());
        for name in names {
            stage.put(json!({
                "metadata": { "name": name, "uid": format!("uid-{name}"), "labels": {}, "annotations": {} },
                "spec": {},
                "status": {
                    "nodeInfo": { "bootID": format!("boot-{name}") },
                    "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": stamp(0) }],
                },
            }));
            stage.alive.insert((*name).to_owned());
            stage.beat(name);
        }
        stage
    }

    /// With the node `n` lost since second 0, looked at in second 70, of five.
    pub(super) fn lost() -> Self {
        let mut stage = Self::new(&["n", "m", "k", "l", "o"]);
        stage.loses("n");
        stage.until(70);
        stage
    }

    /// With an incident of `n` in this phase, seen in second 70.
    pub(super) fn at(phase: Phase, change: impl FnOnce(&mut NodeFenceStatus)) -> Self {
        let mut stage = Self::lost();
        let mut status = NodeFenceStatus { phase, ..NodeFenceStatus::default() };
        change(&mut status);
        stage.fence("n", Trigger::Detected, status);
        stage
    }

    pub(super) fn mono(&self) -> Mono {
        at(self.now)
    }

    fn meta(&mut self, name: &str) -> Value {
        self.rv += 1;
        json!({ "name": name, "uid": format!("uid-{name}"), "resourceVersion": self.rv.to_string(), "generation": 1 })
    }

    /// A node as it is from now on.
    pub(super) fn put(&mut self, mut node: Value) {
        self.rv += 1;
        node["metadata"]["resourceVersion"] = json!(self.rv.to_string());
        self.world.apply(Kind::Nodes, &node, self.mono());
        self.nodes.insert(node["metadata"]["name"].as_str().unwrap().to_owned(), node);
    }

    /// Changes one node.
    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut node = self.nodes[name].clone();
        change(&mut node);
        self.put(node);
    }

    /// Its kubelet, or whoever misses it, says so.
    pub(super) fn says(&mut self, name: &str, ready: &str) {
        let now = stamp(self.now);
        self.change(name, |node| {
            node["status"]["conditions"] =
                json!([{ "type": "Ready", "status": ready, "lastHeartbeatTime": now }]);
        });
    }

    /// Its kubelet falls silent, and it is noticed at once.
    pub(super) fn loses(&mut self, name: &str) {
        self.alive.remove(name);
        self.says(name, "Unknown");
    }

    /// It comes back, with another boot or with the same.
    pub(super) fn comes_back(&mut self, name: &str, boot: &str) {
        self.alive.insert(name.to_owned());
        self.change(name, |node| node["status"]["nodeInfo"]["bootID"] = json!(boot));
        self.beat(name);
        self.says(name, "True");
    }

    pub(super) fn beat(&mut self, name: &str) {
        self.rv += 1;
        let lease = json!({
            "metadata": { "name": name, "namespace": "kube-node-lease", "uid": format!("lease-{name}"),
                "resourceVersion": self.rv.to_string() },
            "spec": { "holderIdentity": name, "renewTime": stamp(self.now) },
        });
        self.renewed.insert(name.to_owned(), self.now);
        self.world.apply(Kind::NodeLeases, &lease, self.mono());
    }

    /// `renewTime` of its Lease.
    pub(super) fn renewed(&self, name: &str) -> String {
        stamp(self.renewed[name])
    }

    /// Seconds pass, in which the API server speaks, and kubelets that live renew their Leases.
    pub(super) fn until(&mut self, second: u64) {
        while self.now < second {
            self.now += 1;
            self.world.hear(self.mono());
            if self.now.is_multiple_of(10) {
                self.alive.clone().iter().for_each(|name| self.beat(name));
            }
        }
    }

    pub(super) fn wait(&mut self, seconds: u64) {
        self.until(self.now + seconds);
    }

    pub(super) fn policy(&mut self, change: impl FnOnce(&mut FencePolicySpec)) {
        change(&mut self.policy);
        let object = json!({ "metadata": self.meta("p"), "spec": self.policy });
        self.world.apply(Kind::FencePolicies, &object, self.mono());
    }

    /// A device of this name.
    pub(super) fn device(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut meta = self.meta(name);
        meta["namespace"] = json!("fencing");
        let mut object = json!({
            "metadata": meta,
            "spec": { "driver": "Redfish", "monitorSeconds": 300 },
            "status": { "observedGeneration": 1, "conditions": [], "targets": [] },
        });
        change(&mut object);
        self.world.apply(Kind::FenceDevices, &object, self.mono());
    }

    pub(super) fn pod(&mut self, name: &str, node: &str, change: impl FnOnce(&mut Value)) {
        let mut meta = self.meta(name);
        meta["namespace"] = json!("ns");
        meta["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db",
            "uid": "uid-db", "controller": true }]);
        let mut pod =
            json!({ "metadata": meta, "spec": { "nodeName": node }, "status": { "phase": "Running" } });
        change(&mut pod);
        self.world.apply(Kind::Pods, &pod, self.mono());
    }

    /// A pod that is Ready, with these labels.
    pub(super) fn well(&mut self, namespace: &str, name: &str, node: &str, labels: &Value) {
        self.pod(name, node, |pod| {
            pod["metadata"]["namespace"] = json!(namespace);
            pod["metadata"]["labels"] = labels.clone();
            pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
        });
    }

    /// A member of etcd, as kubeadm has it.
    pub(super) fn etcd(&mut self, node: &str) {
        let labels = json!({ "component": "etcd", "tier": "control-plane" });
        self.well("kube-system", &format!("etcd-{node}"), node, &labels);
    }

    /// The budget `db` of the pods with the label `app: db`, by its numbers.
    pub(super) fn budget(&mut self, healthy: i32, needed: i32) {
        let mut meta = self.meta("db");
        meta["namespace"] = json!("ns");
        let budget = json!({
            "metadata": meta,
            "spec": { "selector": { "matchLabels": { "app": "db" } }, "minAvailable": needed },
            "status": { "currentHealthy": healthy, "desiredHealthy": needed, "observedGeneration": 1 },
        });
        self.world.apply(Kind::Budgets, &budget, self.mono());
    }

    /// A pod on `n`, with a volume that the volume guard calls `m`'s.
    pub(super) fn volume_of_another(&mut self, name: &str) {
        let claim = json!({ "metadata": { "namespace": "ns", "name": "c", "uid": "uid-c", "resourceVersion": "1" },
            "spec": { "volumeName": "v" } });
        self.world.apply(Kind::Claims, &claim, self.mono());
        let lease = json!({ "metadata": { "namespace": "pod-safety-volumes", "name": "v", "uid": "uid-v", "resourceVersion": "1" },
            "spec": { "holderIdentity": "m/uid-m/boot-1/-" } });
        self.world.apply(Kind::VolumeLeases, &lease, self.mono());
        self.pod(name, "n", |pod| {
            pod["spec"]["volumes"] =
                json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "c" } }]);
        });
    }

    pub(super) fn terminating(pod: &mut Value) {
        pod["metadata"]["deletionTimestamp"] = json!(stamp(0));
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    }

    pub(super) fn gone(&mut self, kind: Kind, name: &str) {
        self.world.remove(kind, &format!("uid-{name}"), self.mono());
    }

    pub(super) fn incarnation(&self, name: &str) -> Incarnation {
        let boot_id = self.nodes[name]["status"]["nodeInfo"]["bootID"].as_str().unwrap().to_owned();
        Incarnation { name: name.to_owned(), uid: format!("uid-{name}"), boot_id }
    }

    /// An incident of the life in which this node is.
    pub(super) fn fence(&mut self, node: &str, kind: Trigger, status: NodeFenceStatus) {
        let trigger = FenceTrigger { kind, reason: "r".to_owned(), by: None };
        let node = self.incarnation(node);
        let spec = NodeFenceSpec { node, policy: "p".to_owned(), trigger, dry_run: false, cancelled: false };
        self.put_fence(spec, status);
    }

    /// What a person had written down, and left lying.
    pub(super) fn rehearsal(&mut self, node: &str) -> String {
        let trigger = FenceTrigger { kind: Trigger::Person, reason: "a drill".to_owned(), by: None };
        let node = self.incarnation(node);
        let name = rehearsal_name(&node);
        let spec = NodeFenceSpec { node, policy: "p".to_owned(), trigger, dry_run: true, cancelled: false };
        let object = json!({ "metadata": self.meta(&name), "spec": spec });
        self.world.apply(Kind::NodeFences, &object, self.mono());
        name
    }

    fn put_fence(&mut self, spec: NodeFenceSpec, status: NodeFenceStatus) {
        let name = incident_name(&spec.node);
        let object = json!({ "metadata": self.meta(&name), "spec": spec, "status": status });
        self.world.apply(Kind::NodeFences, &object, self.mono());
        self.fences.insert(name, (spec, status));
    }

    /// The only incident.
    pub(super) fn only(&self) -> (NodeFenceSpec, NodeFenceStatus) {
        assert_eq!(self.fences.len(), 1);
        self.fences.values().next().unwrap().clone()
    }

    /// Changes the only incident.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut NodeFenceSpec, &mut NodeFenceStatus)) {
        let (mut spec, mut status) = self.only();
        change(&mut spec, &mut status);
        self.put_fence(spec, status);
    }

    /// The devices of the last attempt answered.
    pub(super) fn answered(&mut self, said: &str) {
        self.edit(|_, status| status.attempts.last_mut().unwrap().outcome = Some(said.to_owned()));
    }

    /// The looks at the last attempt showed so.
    pub(super) fn seen(&mut self, power: &str) {
        let (spec, _) = self.only();
        let lease_renewed = Some(self.renewed(&spec.node.name));
        let message = if power == "Off" { String::new() } else { format!("bmc says {power}") };
        let verified = Verified { power: power.to_owned(), message, lease_renewed, ..Verified::default() };
        self.edit(|_, status| status.attempts.last_mut().unwrap().verified = Some(verified));
    }

    /// Evidence about the life in which this node is.
    pub(super) fn proof(&mut self, node: &str, name: &str, kind: KindOfEvidence) {
        let asserted = kind == KindOfEvidence::Asserted;
        let spec = FenceEvidenceSpec {
            node: self.incarnation(node),
            kind,
            fence: (!asserted).then(|| incident_name(&self.incarnation(node))),
            samples: Vec::new(),
            storage: Vec::new(),
            lease_renewed: Some(self.renewed(node)),
            by: "somebody".to_owned(),
            reason: asserted.then(|| "I saw it".to_owned()),
            valid_seconds: None,
        };
        self.put_proof(name, spec, FenceEvidenceStatus::default());
    }

    fn put_proof(&mut self, name: &str, spec: FenceEvidenceSpec, status: FenceEvidenceStatus) {
        let object = json!({ "metadata": self.meta(name), "spec": spec, "status": status });
        self.world.apply(Kind::FenceEvidences, &object, self.mono());
        self.proofs.insert(name.to_owned(), (spec, status));
    }

    pub(super) fn invalidates(&mut self, name: &str) {
        let (spec, _) = self.proofs[name].clone();
        let invalidated = Some(Invalidation { at: stamp(self.now), reason: "wrong".to_owned() });
        self.put_proof(name, spec, FenceEvidenceStatus { invalidated });
    }

    pub(super) fn decided(&self, name: &str) -> Decision {
        decide(&Key::Node(name.into()), &self.world.read().view(), self.mono(), &self.config)
    }

    pub(super) fn words(&self, name: &str) -> Vec<String> {
        words(&self.decided(name))
    }

    /// A remediation as it is from now on.
    pub(super) fn remediation(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut meta = self.meta(name);
        meta["namespace"] = json!("ops");
        let mut object = self.remediations.get(name).cloned().unwrap_or_else(|| json!({ "spec": {} }));
        for field in ["finalizers", "annotations", "deletionTimestamp"] {
            meta[field] = object["metadata"][field].clone();
        }
        object["metadata"] = meta;
        change(&mut object);
        self.world.apply(Kind::Remediations, &object, self.mono());
        self.remediations.insert(name.to_owned(), object);
    }

    /// What they are answered is written, as the authority does.
    fn answer(&mut self, intents: &[Intent]) {
        for intent in intents {
            let Intent::Remediate(wish) = intent else { continue };
            self.remediation(&wish.name, |object| match &wish.reply {
                Reply::Keep => object["metadata"]["finalizers"] = json!([REMEDIATION_FINALIZER]),
                Reply::Say(status) => object["status"] = json!(status),
                Reply::LetGo => object["metadata"]["finalizers"] = json!([]),
            });
        }
    }

    /// Does what is decided about a node, as the authority does; gives back what.
    pub(super) fn act(&mut self, name: &str) -> Vec<String> {
        let decision = self.decided(name);
        self.answer(&decision.intents);
        if let Some(step) = step(&decision) {
            match step {
                Step::Open(spec) => self.put_fence((**spec).clone(), NodeFenceStatus::default()),
                Step::Prove(target) => {
                    let proof = target.status.evidence.clone().unwrap();
                    self.proof(name, &proof, KindOfEvidence::PowerOff);
                    self.put_fence((*target.spec).clone(), (*target.status).clone());
                }
                Step::ProveStorage(target) => {
                    let proof = target.status.attempts.last().unwrap().evidence.clone().unwrap();
                    self.proof(name, &proof, KindOfEvidence::StorageFenced);
                    self.put_fence((*target.spec).clone(), (*target.status).clone());
                }
                Step::Contradict(target) => {
                    if let Some(proof) = target.status.evidence.clone() {
                        self.invalidates(&proof);
                    }
                    self.put_fence((*target.spec).clone(), (*target.status).clone());
                }
                Step::Write(target)
                | Step::Attempt(target)
                | Step::Taint(target)
                | Step::Untaint(target)
                | Step::Withdraw(target) => {
                    self.put_fence((*target.spec).clone(), (*target.status).clone());
                }
                Step::Look(_) => panic!("a test says what is seen"),
            }
        }
        words(&decision)
    }

    /// A policy more.
    pub(super) fn another_policy(&mut self, name: &str, change: impl FnOnce(&mut FencePolicySpec)) {
        let mut spec = self.policy.clone();
        change(&mut spec);
        let object = json!({ "metadata": self.meta(name), "spec": spec });
        self.world.apply(Kind::FencePolicies, &object, self.mono());
    }

    /// The sentence of the only hold.
    pub(super) fn sentence(&self, name: &str) -> String {
        let decision = self.decided(name);
        assert_eq!(decision.holds.len(), 1, "{decision:?}");
        decision.holds[0].1.to_string()
    }

    /// This process runs on that node.
    pub(super) fn runs_on(&mut self, name: &str) {
        self.config.our_node = Some(Arc::from(name));
    }
}
