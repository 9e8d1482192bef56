//! A small cluster with devices, in which decisions are executed: time passes, kubelets renew their Leases, and
//! devices answer what a test sets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pod_safety_shared::api::{
    DeviceRef, Drain, FenceEvidenceSpec, FenceEvidenceStatus, Incarnation, Invalidation, NodeFenceSpec,
    REMEDIATION_FINALIZER,
};
use pod_safety_shared::authority::{dry_run_name, incident_name};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::testing::objects::{self, Obj, named, pod, timestamp};
use pod_safety_shared::testing::{World, at};

use super::*;

/// A level of this name with the device of the same name.
pub(super) fn level(name: &str, attempts: u32) -> Level {
    let devices = vec![DeviceRef { namespace: "fencing".to_owned(), name: name.to_owned() }];
    Level { name: name.to_owned(), devices, corroborate: Vec::new(), attempts }
}

/// An object of one of our own kinds.
pub(super) fn own(name: &str) -> Obj {
    named(name).set("/metadata/generation", json!(1))
}

#[derive(Clone)]
pub(super) struct Fixture {
    pub(super) world: World,
    pub(super) config: Config,
    pub(super) now: u64,
    pub(super) nodes: BTreeMap<String, Value>,
    pub(super) policy: FencePolicySpec,
    pub(super) fences: BTreeMap<String, (NodeFenceSpec, NodeFenceStatus)>,
    pub(super) proofs: BTreeMap<String, (FenceEvidenceSpec, FenceEvidenceStatus)>,
    /// The nodes whose kubelets renew their Leases.
    pub(super) alive: BTreeSet<String>,
    pub(super) remediations: BTreeMap<String, Value>,
    renewed: BTreeMap<String, u64>,
}

impl Fixture {
    /// Ready nodes whose kubelets run, and a policy `p` that always fences by the device `bmc`, with few brakes.
    pub(super) fn new(names: &[&str]) -> Self {
        let policy: FencePolicySpec = serde_json::from_value(json!({
            "levels": [level("bmc", 2)],
            "when": "Always",
            "brakes": { "cooldownSeconds": 0, "maxConcurrent": 10, "maxUnhealthyZonePercent": 100 },
        }))
        .unwrap();
        let (nodes, fences, proofs, alive, remediations, renewed) = Default::default();
        let (world, config) = (World::listed(), config());
        let mut fixture = Self { world, config, now: 0, nodes, policy, fences, proofs, alive, remediations, renewed };
        fixture.policy(|_| ());
        fixture.device("bmc", |_| ());
        for name in names {
            let node = objects::node(name).ready("True").boot(boot_of(name));
            let node = node.set("/status/conditions/0/lastHeartbeatTime", json!(timestamp(0)));
            fixture.put(node.set("/metadata/annotations", json!({})).0);
            fixture.alive.insert((*name).to_owned());
            fixture.heartbeat(name);
        }
        fixture
    }

    /// Five nodes, with the node `n` lost since second 0, in second 70.
    pub(super) fn lost() -> Self {
        Self::lost_with(|_| {})
    }

    /// The same, with objects that existed before.
    pub(super) fn lost_with(before: impl FnOnce(&mut Self)) -> Self {
        let mut fixture = Self::new(&["n", "m", "k", "l", "o"]);
        before(&mut fixture);
        fixture.lose_node("n");
        fixture.advance_to(70);
        fixture
    }

    /// An incident of `n` in this phase, first seen in second 70.
    pub(super) fn at(phase: Phase, change: impl FnOnce(&mut NodeFenceStatus)) -> Self {
        let mut fixture = Self::lost();
        let mut status = NodeFenceStatus { phase, ..NodeFenceStatus::default() };
        change(&mut status);
        fixture.fence("n", Trigger::Detected, status);
        fixture
    }

    pub(super) fn mono(&self) -> Mono {
        at(self.now)
    }

    /// Sets the state of a node.
    pub(super) fn put(&mut self, node: Value) {
        let node = self.world.put(Kind::Nodes, node, self.mono());
        self.nodes.insert(node["metadata"]["name"].as_str().unwrap().to_owned(), node);
    }

    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut node = self.nodes[name].clone();
        change(&mut node);
        self.put(node);
    }

    /// Sets the Ready condition, as the kubelet or the node-lifecycle controller does.
    pub(super) fn set_ready(&mut self, name: &str, ready: &str) {
        let now = timestamp(self.now);
        self.change(name, |node| {
            node["status"]["conditions"] = json!([{ "type": "Ready", "status": ready, "lastHeartbeatTime": now }]);
        });
    }

    /// Sets or removes this condition beside Ready.
    pub(super) fn set_condition(&mut self, name: &str, kind: &str, status: Option<&str>) {
        self.change(name, |node| {
            let conditions = node["status"]["conditions"].as_array_mut().unwrap();
            conditions.retain(|one| one["type"] != kind);
            conditions.extend(status.map(|status| json!({ "type": kind, "status": status })));
        });
    }

    /// Its kubelet stops reporting, and Ready becomes Unknown at once.
    pub(super) fn lose_node(&mut self, name: &str) {
        self.alive.remove(name);
        self.set_ready(name, "Unknown");
    }

    pub(super) fn lose(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.lose_node(name));
    }

    /// A person excludes it from remediation.
    pub(super) fn exclude_from_remediation(&mut self, name: &str) {
        self.change(name, |node| {
            node["metadata"]["annotations"]["pod-safety.dev/pause-fencing"] = json!("");
        });
    }

    pub(super) fn control_plane(&mut self, names: &[&str]) {
        for name in names {
            self.change(name, |node| {
                node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = json!("");
            });
        }
    }

    /// The node comes back, with another boot or with the same.
    pub(super) fn reboot(&mut self, name: &str, boot: &str) {
        self.alive.insert(name.to_owned());
        self.change(name, |node| node["status"]["nodeInfo"]["bootID"] = json!(boot));
        self.heartbeat(name);
        self.set_ready(name, "True");
    }

    pub(super) fn heartbeat(&mut self, name: &str) {
        self.renewed.insert(name.to_owned(), self.now);
        self.world.put(Kind::NodeLeases, objects::lease(name, self.now), self.mono());
    }

    /// `renewTime` of its Lease.
    pub(super) fn renewed(&self, name: &str) -> String {
        timestamp(self.renewed[name])
    }

    /// Time passes; the API server answers, and running kubelets renew their Leases.
    pub(super) fn advance_to(&mut self, second: u64) {
        while self.now < second {
            self.now += 1;
            self.world.confirm_all(self.mono());
            if self.now.is_multiple_of(10) {
                self.alive.clone().iter().for_each(|name| self.heartbeat(name));
            }
        }
    }

    pub(super) fn advance(&mut self, seconds: u64) {
        self.advance_to(self.now + seconds);
    }

    /// The decision about `n` is `then` from so many seconds later on, and `before` until then.
    #[track_caller]
    pub(super) fn assert_turns(&mut self, seconds: u64, before: &[&str], then: &[&str]) {
        self.advance(seconds - 1);
        assert_eq!(self.describe("n"), before, "{} s later", seconds - 1);
        self.advance(1);
        assert_eq!(self.describe("n"), then, "{seconds} s later");
    }

    pub(super) fn policy(&mut self, change: impl FnOnce(&mut FencePolicySpec)) {
        change(&mut self.policy);
        self.with_spec(Kind::FencePolicies, "p", &self.policy);
    }

    /// Stores a status of the policy `p`.
    pub(super) fn policy_status(&self, status: &impl serde::Serialize) {
        let policy = own("p").set("/spec", json!(self.policy)).set("/status", json!(status));
        self.world.put(Kind::FencePolicies, policy, self.mono());
    }

    /// A second policy.
    pub(super) fn other_policy(&self, name: &str, spec: &FencePolicySpec) {
        self.with_spec(Kind::FencePolicies, name, spec);
    }

    fn with_spec(&self, kind: Kind, name: &str, spec: &impl serde::Serialize) {
        self.world.put(kind, own(name).set("/spec", json!(spec)), self.mono());
    }

    pub(super) fn device(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let device = own(name)
            .in_namespace("fencing")
            .set("/spec", json!({ "driver": "Redfish", "monitorSeconds": 300 }))
            .set("/status", json!({ "observedGeneration": 1, "conditions": [], "targets": [{ "node": "n" }] }));
        self.world.put(Kind::FenceDevices, device.modify(change), self.mono());
    }

    pub(super) fn pod(&mut self, name: &str, node: &str, change: impl FnOnce(&mut Value)) {
        let pod = pod(name).on(node).owned_by("apps/v1", "StatefulSet", "db").modify(change);
        self.world.put(Kind::Pods, pod, self.mono());
    }

    /// A pod that is Ready, with these labels.
    pub(super) fn ready_pod(&mut self, namespace: &str, name: &str, node: &str, labels: &Value) {
        self.pod(name, node, |pod| {
            pod["metadata"]["namespace"] = json!(namespace);
            pod["metadata"]["labels"] = labels.clone();
            pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
        });
    }

    /// Members of etcd, as kubeadm labels them.
    pub(super) fn etcd(&mut self, nodes: &[&str]) {
        let labels = json!({ "component": "etcd", "tier": "control-plane" });
        for node in nodes {
            self.ready_pod("kube-system", &format!("etcd-{node}"), node, &labels);
        }
    }

    /// A Ready pod of `db` runs on `n`, under its budget.
    pub(super) fn guarded(&mut self, healthy: i32, needed: i32) {
        self.ready_pod("ns", "db-0", "n", &json!({ "app": "db" }));
        self.budget(healthy, needed);
    }

    /// The budget `db` of the pods with the label `app: db`, by its numbers.
    pub(super) fn budget(&mut self, healthy: i32, needed: i32) {
        let status = json!({ "currentHealthy": healthy, "desiredHealthy": needed, "observedGeneration": 2 });
        let budget = objects::budget("db", "db", &json!({ "minAvailable": needed })).set("/status", status);
        self.world.put(Kind::Budgets, budget, self.mono());
    }

    /// A pod on `n`, with a volume that its volume Lease gives to `m`.
    pub(super) fn volume_of_another(&mut self, name: &str) {
        self.world.put(Kind::Claims, objects::claim("c", Some("v")), self.mono());
        let lease = objects::volume_lease("v", Some("m/uid-m/b0000000-0000-4000-8000-000000000001/-"));
        self.world.put(Kind::VolumeLeases, lease, self.mono());
        self.pod(name, "n", |pod| *pod = Obj(pod.take()).using_claim("c").0);
    }

    pub(super) fn terminating(pod: &mut Value) {
        pod["metadata"]["deletionTimestamp"] = json!(timestamp(0));
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    }

    /// It has ended, and waits for a finalizer.
    pub(super) fn finalized(pod: &mut Value) {
        Self::terminating(pod);
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        pod["metadata"]["finalizers"] = json!(["example.com/a"]);
        pod["status"]["phase"] = json!("Succeeded");
    }

    pub(super) fn delete(&mut self, kind: Kind, name: &str) {
        self.world.remove(kind, &format!("uid-{name}"), self.mono());
    }

    pub(super) fn incarnation(&self, name: &str) -> Incarnation {
        let boot_id = self.nodes[name]["status"]["nodeInfo"]["bootID"].as_str().unwrap().to_owned();
        Incarnation { name: name.to_owned(), uid: format!("uid-{name}"), boot_id }
    }

    /// An incident of the present incarnation of this node.
    pub(super) fn fence(&mut self, node: &str, kind: Trigger, status: NodeFenceStatus) {
        let condition = None;
        self.fence_for(node, FenceTrigger { kind, reason: "r".to_owned(), by: None, condition }, status);
    }

    pub(super) fn fence_for(&mut self, node: &str, trigger: FenceTrigger, status: NodeFenceStatus) {
        let node = self.incarnation(node);
        let spec =
            NodeFenceSpec { node, policy: "p".to_owned(), trigger, dry_run: false, cancelled: false, keep_off: false };
        self.put_fence(spec, status);
    }

    /// A dry run that a person requested, and did not delete.
    pub(super) fn dry_run_incident(&mut self, node: &str) -> String {
        let trigger = FenceTrigger { kind: Trigger::Person, reason: "a drill".to_owned(), by: None, condition: None };
        let node = self.incarnation(node);
        let name = dry_run_name(&node);
        let spec =
            NodeFenceSpec { node, policy: "p".to_owned(), trigger, dry_run: true, cancelled: false, keep_off: false };
        self.with_spec(Kind::NodeFences, &name, &spec);
        name
    }

    fn put_fence(&mut self, spec: NodeFenceSpec, status: NodeFenceStatus) {
        let name = incident_name(&spec.node);
        let object = own(&name).set("/spec", json!(spec)).set("/status", json!(status));
        self.world.put(Kind::NodeFences, object, self.mono());
        self.fences.insert(name, (spec, status));
    }

    pub(super) fn only(&self) -> (NodeFenceSpec, NodeFenceStatus) {
        assert_eq!(self.fences.len(), 1);
        self.fences.values().next().unwrap().clone()
    }

    pub(super) fn edit(&mut self, change: impl FnOnce(&mut NodeFenceSpec, &mut NodeFenceStatus)) {
        let (mut spec, mut status) = self.only();
        change(&mut spec, &mut status);
        self.put_fence(spec, status);
    }

    /// The output of the devices of the last attempt.
    pub(super) fn set_outcome(&mut self, output: &str) {
        self.edit(|_, status| status.attempts.last_mut().unwrap().outcome = Some(output.to_owned()));
    }

    /// The power state that the status checks of the last attempt reported.
    pub(super) fn set_power(&mut self, power: &str) {
        let (spec, _) = self.only();
        let lease_renewed = Some(self.renewed(&spec.node.name));
        let message = if power == "Off" { String::new() } else { format!("bmc says {power}") };
        let verified = Verified { power: power.parse().unwrap(), message, lease_renewed, ..Verified::default() };
        self.edit(|_, status| status.attempts.last_mut().unwrap().verified = Some(verified));
    }

    /// Evidence about the present incarnation of this node.
    pub(super) fn evidence(&mut self, node: &str, name: &str, kind: FenceEvidenceKind) {
        let asserted = kind == FenceEvidenceKind::OperatorConfirmed;
        let spec = FenceEvidenceSpec {
            node: self.incarnation(node),
            kind,
            fence: (!asserted).then(|| incident_name(&self.incarnation(node))),
            corroborated: Vec::new(),
            samples: Vec::new(),
            storage: Vec::new(),
            lease_renewed: Some(self.renewed(node)),
            by: "somebody".to_owned(),
            reason: asserted.then(|| "I saw it".to_owned()),
            valid_seconds: None,
            power_on: false,
        };
        self.put_evidence(name, spec, FenceEvidenceStatus::default());
    }

    /// A confirmation about the present incarnation of this node.
    pub(super) fn confirmation(&mut self, node: &str, name: &str, power_on: bool) {
        self.evidence(node, name, FenceEvidenceKind::OperatorConfirmed);
        let (mut spec, status) = self.proofs[name].clone();
        spec.power_on = power_on;
        self.put_evidence(name, spec, status);
    }

    pub(super) fn put_evidence(&mut self, name: &str, spec: FenceEvidenceSpec, status: FenceEvidenceStatus) {
        let object = own(name).set("/spec", json!(spec)).set("/status", json!(status));
        self.world.put(Kind::FenceEvidences, object, self.mono());
        self.proofs.insert(name.to_owned(), (spec, status));
    }

    /// Makes it a confirmation of long ago, valid for an hour.
    pub(super) fn expire(&mut self, name: &str) {
        let (mut spec, status) = self.proofs[name].clone();
        (spec.kind, spec.valid_seconds) = (FenceEvidenceKind::OperatorConfirmed, Some(3_600));
        self.world.set_wall_time(objects::START_SECONDS, self.mono());
        self.put_evidence(name, spec, status);
    }

    pub(super) fn invalidate(&mut self, name: &str) {
        let (spec, _) = self.proofs[name].clone();
        let invalidated = Some(Invalidation { at: timestamp(self.now), reason: "wrong".to_owned() });
        self.put_evidence(name, spec, FenceEvidenceStatus { invalidated });
    }

    pub(super) fn decide(&self, name: &str) -> Decision {
        decide(&Key::Node(name.into()), &self.world.read().view(), self.mono(), &self.config)
    }

    pub(super) fn describe(&self, name: &str) -> Vec<String> {
        describe(&self.decide(name))
    }

    /// Sets the state of a remediation.
    pub(super) fn remediation(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let object = self.remediations.get(name).cloned().unwrap_or_else(|| own(name).in_namespace("ops").0);
        let object = self.world.put(Kind::Remediations, Obj(object).modify(change), self.mono());
        self.remediations.insert(name.to_owned(), object);
    }

    /// Applies the updates of remediations, as the executor does.
    fn answer(&mut self, intents: &[Intent]) {
        for intent in intents {
            let Intent::Remediate(wish) = intent else { continue };
            self.remediation(&wish.name, |object| match &wish.update {
                RemediationUpdate::AddFinalizer => object["metadata"]["finalizers"] = json!([REMEDIATION_FINALIZER]),
                RemediationUpdate::WriteStatus(status) => object["status"] = json!(status),
                RemediationUpdate::RemoveFinalizer => object["metadata"]["finalizers"] = json!([]),
            });
        }
    }

    /// Executes the decision about a node, as the executor does; returns its description.
    pub(super) fn act(&mut self, name: &str) -> Vec<String> {
        let decision = self.decide(name);
        self.answer(&decision.intents);
        if let Some(step) = step(&decision) {
            match step {
                Step::Open(spec) => self.put_fence((**spec).clone(), NodeFenceStatus::default()),
                Step::Prove(target) => {
                    let proof = target.status.evidence.clone().unwrap();
                    self.evidence(name, &proof, FenceEvidenceKind::PowerOff);
                    self.put_fence((*target.spec).clone(), (*target.status).clone());
                }
                Step::ProveStorage(target) => {
                    let proof = target.status.attempts.last().unwrap().evidence.clone().unwrap();
                    self.evidence(name, &proof, FenceEvidenceKind::StorageFenced);
                    self.put_fence((*target.spec).clone(), (*target.status).clone());
                }
                Step::Contradict(target) => {
                    if let Some(proof) = target.status.evidence.clone() {
                        self.invalidate(&proof);
                    }
                    self.put_fence((*target.spec).clone(), (*target.status).clone());
                }
                Step::Drain(target, _) => {
                    let mut status = (*target.status).clone();
                    let drain = status.drain.get_or_insert_with(|| Drain {
                        began: timestamp(self.now),
                        cordoned: true,
                        ..Drain::default()
                    });
                    drain.rounds += 1;
                    self.put_fence((*target.spec).clone(), status);
                }
                Step::Write(target)
                | Step::Attempt(target)
                | Step::Taint(target)
                | Step::Untaint(target)
                | Step::Withdraw(target) => {
                    self.put_fence((*target.spec).clone(), (*target.status).clone());
                }
                Step::Look(_) => panic!("a test sets the power state"),
            }
        }
        describe(&decision)
    }

    pub(super) fn another_policy(&mut self, name: &str, change: impl FnOnce(&mut FencePolicySpec)) {
        let mut spec = self.policy.clone();
        change(&mut spec);
        self.with_spec(Kind::FencePolicies, name, &spec);
    }

    pub(super) fn hold_message(&self, name: &str) -> String {
        let decision = self.decide(name);
        assert_eq!(decision.holds.len(), 1, "{decision:?}");
        decision.holds[0].1.to_string()
    }

    pub(super) fn runs_on(&mut self, name: &str) {
        self.config.own_node = Some(Arc::from(name));
    }
}

/// The first boot ID of each node.
pub(super) fn boot_of(name: &str) -> &'static str {
    match name {
        "n" => "b0000000-0000-4000-8000-00000000000a",
        "m" => "b0000000-0000-4000-8000-00000000000b",
        _ => "b0000000-0000-4000-8000-00000000000c",
    }
}
