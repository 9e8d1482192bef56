//! Three nodes, one of them lost, at 10:23:05 of 21 November 2026.

use pod_safety_shared::testing::objects::BOOT;
use std::sync::Arc;

use pod_safety_explain::{Attachment, EventRecord, ExplainContext, Policies, Running, Settings};
use pod_safety_shared::api::{Incarnation, PAUSE_ANNOTATION, Pause};
use pod_safety_shared::authority::dry_run_name;
use pod_safety_shared::controller_loop::Mode;
use pod_safety_shared::model::Kind;
use pod_safety_shared::testing::objects::{self, Obj, named};
use pod_safety_shared::testing::{World, at};
use serde_json::{Value, json};

/// 10:14:05, when worker-b1 last reported.
const LAST_REPORT: i64 = 1_795_256_045;
const NOW: u64 = 540;

pub(crate) struct Fixture {
    world: World,
    pub(crate) settings: Settings,
    pub(crate) running: Running,
    pub(crate) policies: Policies,
    pub(crate) events: Vec<EventRecord>,
    attachments: Vec<Attachment>,
    pub(crate) successors: Vec<Value>,
    pauses: Vec<(Arc<str>, Pause)>,
    pub(crate) unread: Vec<Kind>,
}

pub(crate) fn terminating(pod: &mut Value) {
    pod["metadata"]["deletionTimestamp"] = json!("2026-11-21T10:20:25Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    pod["status"]["containerStatuses"] = json!([{ "state": { "running": {} } }]);
}

pub(crate) fn ready(pod: &mut Value) {
    pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
}

pub(crate) fn set(name: &str, replicas: u32) -> Value {
    json!({ "metadata": { "namespace": "shop", "name": name, "uid": format!("uid-{name}") }, "spec": { "replicas": replicas } })
}

fn rack_b() -> Obj {
    let level = json!({ "name": "ipmi", "devices": [{ "namespace": "fence", "name": "ipmi-b1" }] });
    named("rack-b").uid("uid-policy").set("/spec/levels", json!([level]))
}

impl Fixture {
    /// Without nodes, and with these kinds unread.
    pub(crate) fn without_nodes(unread: &[Kind]) -> Self {
        let world = World::listed_except(unread);
        world.set_wall_time(LAST_REPORT, at(0));
        let running = Running {
            mode: Some(Mode::Guard),
            leader: Some("pod-safety-x".to_owned()),
            standbys: 1,
            ..Running::default()
        };
        Self {
            world,
            settings: Settings::default(),
            running,
            policies: Policies::Deny,
            events: Vec::new(),
            attachments: Vec::new(),
            successors: Vec::new(),
            pauses: Vec::new(),
            unread: unread.to_vec(),
        }
    }

    pub(crate) fn healthy() -> Self {
        let fixture = Self::without_nodes(&[]);
        for (name, zone) in [("worker-a1", "zone-a"), ("worker-a2", "zone-a"), ("worker-b2", "zone-b")] {
            fixture.node_with(name, zone, "True", "2026-11-21T10:23:00Z", &json!([]), 0);
        }
        fixture
    }

    /// worker-b1 stopped reporting, and shop/orders-1 is being deleted there.
    pub(crate) fn with_lost_node() -> Self {
        let fixture = Self::healthy();
        fixture.node_with("worker-b1", "zone-b", "True", "2026-11-21T10:14:05Z", &json!([]), 0);
        fixture.lose(json!([
            { "key": "node.kubernetes.io/unreachable", "effect": "NoSchedule", "timeAdded": "2026-11-21T10:14:55Z" },
            { "key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-11-21T10:14:55Z" },
        ]));
        fixture.pod_with("orders-1", "worker-b1", terminating);
        fixture
    }

    fn lose(&self, taints: Value) {
        self.node_with("worker-b1", "zone-b", "Unknown", "2026-11-21T10:14:05Z", &taints, 50);
    }

    /// Adds an object that existed from the beginning.
    pub(crate) fn put(&self, kind: Kind, object: impl Into<Value>) {
        self.apply(kind, object, 0);
    }

    fn apply(&self, kind: Kind, object: impl Into<Value>, seconds: u64) {
        self.world.put(kind, object, at(seconds));
    }

    fn machine(name: &str, zone: &str, ready: &str, last_report: &str, taints: &Value) -> Obj {
        let since = if ready == "True" { "2026-11-01T08:00:00Z" } else { "2026-11-21T10:14:55Z" };
        let condition =
            json!({ "type": "Ready", "status": ready, "lastHeartbeatTime": last_report, "lastTransitionTime": since });
        objects::node(name)
            .labels(json!({ "topology.kubernetes.io/zone": zone }))
            .set("/metadata/creationTimestamp", json!("2026-11-01T08:00:00Z"))
            .set("/spec/taints", taints.clone())
            .set("/spec/providerID", json!(format!("metal3://racks/{name}")))
            .boot(BOOT)
            .set("/status/conditions", json!([condition]))
    }

    fn node_with(&self, name: &str, zone: &str, ready: &str, last_report: &str, taints: &Value, seconds: u64) {
        self.apply(Kind::Nodes, Self::machine(name, zone, ready, last_report, taints), seconds);
        self.lease(name, last_report, seconds);
    }

    fn lease(&self, name: &str, last_report: &str, seconds: u64) {
        let renewed = json!(last_report.replace('Z', ".000000Z"));
        self.apply(Kind::NodeLeases, objects::lease(name, 0).set("/spec/renewTime", renewed), seconds);
    }

    /// A pod of the StatefulSet that its name contains.
    pub(crate) fn pod_with(&self, name: &str, node: &str, with: impl FnOnce(&mut Value)) {
        let set = name.rsplit_once('-').map_or(name, |(set, _)| set);
        let pod = objects::pod(name).in_namespace("shop").on(node).owned_by("apps/v1", "StatefulSet", set);
        let pod = pod.set("/metadata/creationTimestamp", json!("2026-11-02T08:00:00Z"));
        self.apply(Kind::Pods, pod.modify(with), 0);
    }

    pub(crate) fn policy(&self, minimum: &str) {
        self.apply(Kind::FencePolicies, rack_b().set("/spec/minimumEvidence", json!(minimum)), 0);
        let device = json!({ "metadata": { "namespace": "fence", "name": "ipmi-b1", "uid": "uid-device" },
            "spec": { "driver": "Agent", "agent": "fence_ipmilan", "nodeSelector": {}, "parameters": { "ip": "10.0.8.21" } },
            "status": { "targets": [{ "node": "worker-b1", "power": "Unknown", "identity": "Unknown", "looked": "2026-11-21T10:22:35Z",
                "message": "no answer from 10.0.8.21" }] } });
        self.apply(Kind::FenceDevices, device, 0);
    }

    /// The only device of its policy is a person.
    pub(crate) fn by_hand(&self) {
        self.policy("Asserted");
        let device = json!({ "metadata": { "namespace": "fence", "name": "ipmi-b1", "uid": "uid-device" },
            "spec": { "driver": "Manual", "nodeSelector": {} } });
        self.apply(Kind::FenceDevices, device, 0);
    }

    /// Its policy waits for this many seconds after the node stopped reporting, and its device has this state.
    pub(crate) fn policy_after(&self, unreachable_seconds: u32, why_not_ready: Option<&str>) {
        let unhealthy = json!({ "silentSeconds": unreachable_seconds });
        self.apply(Kind::FencePolicies, rack_b().set("/spec/unhealthy", unhealthy), 0);
        let (status, why) = why_not_ready.map_or(("True", ""), |why| ("False", why));
        let ready = json!({ "type": "Ready", "status": status, "reason": "Checked", "message": why, "lastTransitionTime": "2026-11-21T10:00:00Z" });
        let device = json!({ "metadata": { "namespace": "fence", "name": "ipmi-b1", "uid": "uid-device", "generation": 1 },
            "spec": { "driver": "Agent", "agent": "fence_ipmilan", "nodeSelector": {}, "parameters": { "ip": "10.0.8.21" } },
            "status": { "observedGeneration": 1, "conditions": [ready] } });
        self.apply(Kind::FenceDevices, device, 0);
    }

    /// worker-b2 is lost too: half of all nodes, which is more than `percent` of them.
    pub(crate) fn outage(&self) {
        let brakes = json!({ "maxUnhealthyPercent": 10 });
        self.apply(Kind::FencePolicies, rack_b().set("/spec/brakes", brakes), 0);
        self.node_with("worker-b2", "zone-b", "Unknown", "2026-11-21T10:14:05Z", &json!([]), 50);
    }

    /// shop/orders-1 runs on worker-a1 again; the earlier pod of that name was on worker-b1.
    pub(crate) fn set_recovered(&mut self, is_ready: bool) {
        let node = "worker-a1";
        let events = [
            ("10:15:05", "NodeNotReady", "Node is not ready", true),
            ("10:20:25", "ForceDeleteHeld", "NoEvidence: Node worker-b1 is unreachable. It may be off", true),
            ("10:22:35", "ForceDeleted", "node worker-b1 was powered off: FenceEvidence worker-b1-e", false),
        ];
        for (time, reason, message, warning) in events {
            let at = format!("2026-11-21T{time}Z").parse().unwrap();
            let removed = reason == "ForceDeleted";
            self.events.push(EventRecord {
                at,
                first: at,
                count: 1,
                object: "pod/shop/orders-1".to_owned(),
                uid: "uid-before".to_owned(),
                node: if removed { "worker-b1".to_owned() } else { String::new() },
                requested: removed.then(|| "2026-11-21T10:19:55Z".parse().unwrap()),
                reason: reason.to_owned(),
                message: message.to_owned(),
                by: "pod-safety".to_owned(),
                warning,
            });
        }
        self.pod_with("orders-1", node, |pod| {
            pod["metadata"]["creationTimestamp"] = json!("2026-11-21T10:22:36Z");
            pod["status"] = json!({ "phase": if is_ready { "Running" } else { "Pending" } });
            if is_ready {
                ready(pod);
            }
        });
        let condition = |kind: &str, at: &str| json!({ "type": kind, "status": "True", "lastTransitionTime": at });
        let mut conditions = vec![condition("PodScheduled", "2026-11-21T10:22:37Z")];
        conditions.extend(is_ready.then(|| condition("Ready", "2026-11-21T10:22:45Z")));
        self.successors = vec![json!({ "metadata": { "uid": "uid-orders-1" }, "spec": { "nodeName": node },
            "status": { "conditions": conditions } })];
    }

    /// Its incident ended, and the machine was not switched on.
    pub(crate) fn not_switched_on(&self) {
        let why = "it could not be switched on in 3 attempts: Secret pod-safety/bmc does not exist";
        self.incident_with("AwaitingOperator", &[], why, "worker-b1-e");
    }

    /// Adds the incident, with attempts to switch the machine off and the error of each.
    pub(crate) fn fence(&self, phase: &str, tries: &[(&str, Option<&str>)]) {
        let evidence = if phase == "Fenced" { "worker-b1-e" } else { "" };
        self.incident_with(phase, tries, "every level was tried 3 times", evidence);
    }

    fn incident_with(&self, phase: &str, tries: &[(&str, Option<&str>)], message: &str, evidence: &str) {
        let attempts: Vec<Value> = (1..)
            .zip(tries)
            .map(|(id, (at, wrong))| {
                let power = if wrong.is_some() { "Unknown" } else { "Off" };
                json!({ "id": id, "act": "off", "at": at, "withinSeconds": 60, "by": "pod-safety-x", "outcome": "done",
                    "devices": [{ "namespace": "fence", "name": "ipmi-b1" }],
                    "verified": { "power": power, "message": wrong.unwrap_or_default(), "samples": [{ "at": at, "power": power }] } })
            })
            .collect();
        let fence = json!({
            "metadata": { "name": "worker-b1-x", "uid": "uid-fence" },
            "spec": { "node": self.incarnation(BOOT), "policy": "rack-b", "trigger": { "kind": "Detected", "reason": "silent" } },
            "status": { "phase": phase, "message": message, "attempts": attempts, "evidence": Some(evidence).filter(|name| !name.is_empty()) },
        });
        self.apply(Kind::NodeFences, fence, NOW - 30);
    }

    /// Adds an incident of this incarnation that is a dry run, of a policy or of an operator's drill.
    pub(crate) fn dry_run(&self, is_drill: bool) {
        let incarnation: Incarnation = serde_json::from_value(self.incarnation(BOOT)).unwrap();
        let name = if is_drill { dry_run_name(&incarnation) } else { "worker-b1-dry".to_owned() };
        let reconciling = json!({ "type": "Reconciling", "status": "True", "reason": "Pending", "message": "held back",
            "lastTransitionTime": "2026-11-21T10:22:50Z" });
        let fence = json!({
            "metadata": { "name": name, "uid": format!("uid-{name}") },
            "spec": { "node": self.incarnation(BOOT), "policy": "rack-b", "trigger": { "kind": "Detected", "reason": "silent" }, "dryRun": true },
            "status": { "phase": "Pending", "message": "held back", "conditions": [reconciling] },
        });
        self.apply(Kind::NodeFences, fence, NOW - 30);
    }

    fn incarnation(&self, boot: &str) -> Value {
        json!({ "name": "worker-b1", "uid": "uid-worker-b1", "bootID": boot })
    }

    /// Adds an operator's confirmation of this time, withdrawn at a later time for a reason.
    pub(crate) fn add_confirmation(&self, at: &str, until: Option<(&str, &str)>) {
        let spec = json!({ "node": self.incarnation(BOOT), "kind": "Asserted", "by": "anna@example.com",
            "reason": "PDU port 14 off, ticket 8123", "leaseRenewed": "2026-11-21T10:14:05Z" });
        let mut proof =
            json!({ "metadata": { "name": "worker-b1-e", "uid": "uid-proof", "creationTimestamp": at }, "spec": spec });
        if let Some((at, reason)) = until {
            proof["status"] = json!({ "invalidated": { "at": at, "reason": reason } });
        }
        self.apply(Kind::FenceEvidences, proof, NOW - 20);
    }

    /// Adds an incident that began and was proved at these times, with later conditions.
    pub(crate) fn incident(&self, name: &str, began: &str, conditions: &[(&str, &str)]) {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, at)| json!({ "type": kind, "status": "True", "reason": "r", "message": "m", "lastTransitionTime": at }))
            .collect();
        let fence = json!({
            "metadata": { "name": name, "uid": format!("uid-{name}"), "creationTimestamp": began },
            "spec": { "node": self.incarnation(name), "policy": "rack-b", "trigger": { "kind": "Detected", "reason": "silent" } },
            "status": { "phase": "Done", "conditions": conditions, "evidence": "worker-b1-e" },
        });
        self.apply(Kind::NodeFences, fence, 0);
    }

    pub(crate) fn add_evidence(&self, kind: &str, boot: &str) {
        let mut spec = json!({ "node": self.incarnation(boot), "kind": kind, "by": "pod-safety-x", "leaseRenewed": "2026-11-21T10:14:05Z" });
        if kind == "Asserted" {
            (spec["by"], spec["reason"]) = (json!("anna@example.com"), json!("PDU port 14 off, ticket 8123"));
        } else {
            spec["fence"] = json!("worker-b1-x");
        }
        let proof = json!({ "metadata": { "name": "worker-b1-e", "uid": "uid-proof" }, "spec": spec });
        self.apply(Kind::FenceEvidences, proof, NOW - 20);
    }

    /// Pauses fencing of the node and of its policy.
    pub(crate) fn paused(&mut self) {
        let since = "2026-11-21T10:03:05Z".parse().unwrap();
        let pause = |reason: &str| Pause { reason: reason.to_owned(), by: Some(("anna".to_owned(), since)) };
        let paused = json!(pause("rack b moves").to_string());
        self.apply(Kind::FencePolicies, rack_b().set("/spec/paused", paused), 0);
        let node = Self::machine("worker-b2", "zone-b", "True", "2026-11-21T10:23:00Z", &json!(null));
        let hands = json!({ PAUSE_ANNOTATION: "hands in it" });
        self.apply(Kind::Nodes, node.set("/metadata/annotations", hands), 0);
        self.pauses.push((Arc::from("worker-a2"), pause("new disks")));
        self.pauses.push((Arc::from("worker-b2"), pause("hands in it")));
    }

    pub(crate) fn out_of_service(&self) {
        self.lose(
            json!([{ "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute" }]),
        );
    }

    pub(crate) fn node_gone(&self) {
        self.world.remove(Kind::Nodes, "uid-worker-b1", at(NOW - 10));
    }

    pub(crate) fn kubelet_reports(&self) {
        self.world.record_absence_read("worker-b1", at(NOW - 8));
        self.lease("worker-b1", "2026-11-21T10:23:01Z", NOW - 4);
    }

    pub(crate) fn add_event(&mut self, object: &str, reason: &str, message: &str) {
        let at = "2026-11-21T10:22:40Z".parse().unwrap();
        let (object, reason, message) = (object.to_owned(), reason.to_owned(), message.to_owned());
        let by = if reason == "ForceDeleteHeld" { "pod-safety" } else { "kube-controller-manager" }.to_owned();
        let (uid, node, requested) = (String::new(), String::new(), None);
        self.events.push(EventRecord {
            at,
            first: at,
            count: 3,
            object,
            uid,
            node,
            requested,
            reason,
            message,
            by,
            warning: true,
        });
    }

    pub(crate) fn attached(&mut self, volume: &str, node: &str, hold: Option<&str>) {
        let (name, volume, node) = (format!("csi-{node}"), volume.to_owned(), node.to_owned());
        let (attached, deleting, error, hold) = (true, false, String::new(), hold.map(str::to_owned));
        self.attachments.push(Attachment { name, volume, node, attached, deleting, error, hold });
    }

    pub(crate) fn attachment(&mut self, attachment: Attachment) {
        self.attachments.push(attachment);
    }

    pub(crate) fn with_context<T>(&self, explain: impl FnOnce(&ExplainContext<'_>) -> T) -> T {
        for name in ["worker-a1", "worker-a2", "worker-b2"] {
            self.lease(name, "2026-11-21T10:23:02Z", NOW - 3);
        }
        self.world.confirm_all(at(NOW));
        let guard = self.world.read();
        explain(&ExplainContext {
            view: guard.view(),
            now: at(NOW),
            wall: jiff::Timestamp::from_second(LAST_REPORT + i64::try_from(NOW).unwrap()).unwrap(),
            settings: &self.settings,
            running: &self.running,
            policies: self.policies,
            events: &self.events,
            attachments: &self.attachments,
            successors: &self.successors,
            pauses: &self.pauses,
            unread: &self.unread,
        })
    }
}
