//! A small cluster in which decisions about nodes are executed, as the API server would show them: time passes,
//! kubelets renew their Leases, and the process may restart.

use std::collections::{BTreeMap, BTreeSet};

use pod_safety_shared::clock::Mono;
use pod_safety_shared::testing::objects::{self, START_SECONDS};
pub(super) use pod_safety_shared::testing::objects::{timestamp, with};
use pod_safety_shared::testing::{World, at};

use super::*;

pub(super) fn condition(kind: &str, status: &str, since: u64) -> Value {
    json!({ "type": kind, "status": status, "lastHeartbeatTime": timestamp(since), "lastTransitionTime": timestamp(since) })
}

pub(super) struct Fixture {
    pub(super) world: World,
    pub(super) config: Config,
    pub(super) nodes: BTreeMap<String, Value>,
    leases: BTreeMap<String, Value>,
    /// The nodes whose kubelets renew their Leases.
    pub(super) alive: BTreeSet<String>,
    pub(super) now: u64,
    began: u64,
}

impl Fixture {
    /// Ready nodes whose kubelets run.
    pub(super) fn new(config: Config, names: &[&str]) -> Self {
        let (nodes, leases, alive) = Default::default();
        let mut fixture = Self { world: World::default(), config, nodes, leases, alive, now: 0, began: 0 };
        fixture.restart();
        for name in names {
            fixture.put(Self::node(name, "True", 0));
            fixture.alive.insert((*name).to_owned());
            fixture.heartbeat(name);
        }
        fixture
    }

    pub(super) fn node(name: &str, ready: &str, since: u64) -> Value {
        let node = objects::node(name).set("/metadata/creationTimestamp", json!(timestamp(0)));
        let node = node.set("/spec/taints", json!([]));
        node.set("/status/conditions/0", condition("Ready", ready, since)).0
    }

    pub(super) fn in_zone(node: Value, zone: &str) -> Value {
        with(node, "/metadata/labels/topology.kubernetes.io~1zone", json!(zone))
    }

    pub(super) fn mono(&self) -> Mono {
        at(self.now - self.began)
    }

    /// Nothing is done about the node until this second, at which it is found lost.
    #[track_caller]
    pub(super) fn assert_lost_from(&mut self, name: &str, second: u64) {
        self.advance_to(second - 1);
        assert!(self.describe(name).is_empty(), "before {second}");
        self.advance_to(second);
        assert_eq!(self.describe(name), LOST, "at {second}");
    }

    /// Sets the state of a node.
    pub(super) fn put(&mut self, node: Value) {
        let node = self.world.put(Kind::Nodes, node, self.mono());
        self.nodes.insert(node["metadata"]["name"].as_str().unwrap().to_owned(), node);
    }

    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(Value) -> Value) {
        let node = change(self.nodes[name].clone());
        self.put(node);
    }

    /// Its kubelet reports its readiness.
    pub(super) fn report(&mut self, name: &str, ready: &str) {
        let now = self.now;
        self.change(name, |node| with(node, "/status/conditions/0", condition("Ready", ready, now)));
    }

    pub(super) fn heartbeat(&mut self, name: &str) {
        self.renew(name, &timestamp(self.now));
    }

    /// Sets the `renewTime` of its Lease.
    pub(super) fn renew(&mut self, name: &str, renewed: &str) {
        let lease = objects::lease(name, 0).set("/spec/renewTime", json!(renewed));
        let lease = self.world.put(Kind::NodeLeases, lease, self.mono());
        self.leases.insert(name.to_owned(), lease);
    }

    /// Another process starts, and lists all objects.
    pub(super) fn restart(&mut self) {
        (self.began, self.world) = (self.now, self.world.restarted());
        self.world.set_wall_time(START_SECONDS + i64::try_from(self.now).unwrap(), at(0));
        self.nodes.values().for_each(|node| self.world.apply(Kind::Nodes, node, at(0)));
        self.leases.values().for_each(|lease| self.world.apply(Kind::NodeLeases, lease, at(0)));
        [Kind::Nodes, Kind::NodeLeases, Kind::Pods].into_iter().for_each(|kind| self.world.mark_listed(kind, at(0)));
    }

    /// Time passes; the API server sends events, and running kubelets renew their Leases.
    pub(super) fn advance_to(&mut self, second: u64) {
        while self.now < second {
            self.now += 1;
            self.world.confirm_all(self.mono());
            if self.now.is_multiple_of(10) {
                self.alive.clone().iter().for_each(|name| self.heartbeat(name));
            }
        }
    }

    /// Time passes without any event.
    pub(super) fn advance_without_events(&mut self, second: u64) {
        self.now = second;
    }

    pub(super) fn decide(&self, name: &str) -> Decision {
        decide(&Key::Node(name.into()), &self.world.read().view(), self.mono(), &self.config)
    }

    pub(super) fn describe(&self, name: &str) -> Vec<String> {
        describe(&self.decide(name))
    }

    /// When this node is decided again, in seconds of the test.
    pub(super) fn recheck_at(&self, name: &str) -> f64 {
        let again = self.decide(name).requeue_at.unwrap().since_start().as_secs_f64();
        let began: f64 = u32::try_from(self.began).unwrap().into();
        began + again
    }

    /// Executes the decision about a node, as the executor does; returns its description.
    pub(super) fn act(&mut self, name: &str) -> Vec<String> {
        let decision = self.decide(name);
        if let Some(update) = update(&decision) {
            let now = self.now;
            self.change(name, |node| apply_update(node, update, now));
        }
        describe(&decision)
    }

    /// As [`Fixture::act`], for every node, in the order of their names.
    pub(super) fn act_on_all(&mut self) {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        names.iter().for_each(|name| drop(self.act(name)));
    }

    /// The keys of a node's `NoExecute` taints.
    pub(super) fn no_execute_taints(&self, name: &str) -> Vec<String> {
        let taints = self.nodes[name]["spec"]["taints"].as_array().unwrap().iter();
        let ends = taints.filter(|taint| taint["effect"] == "NoExecute");
        ends.map(|taint| taint["key"].as_str().unwrap().replace("node.kubernetes.io/", "")).collect()
    }
}

fn apply_update(mut node: Value, update: &NodeUpdate, now: u64) -> Value {
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    let mut say = |kind: &str, status: &str| {
        let existing = conditions.iter().position(|one| one["type"] == kind);
        match existing {
            Some(at) if conditions[at]["status"] == status => {}
            Some(at) => {
                conditions[at]["status"] = json!(status);
                conditions[at]["lastTransitionTime"] = json!(timestamp(now));
            }
            None => conditions.push(condition(kind, status, now)),
        }
    };
    if update.not_reporting.is_some() {
        for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
            say(kind, "Unknown");
        }
    }
    if let Some(unreachable) = update.unreachable {
        say("pod-safety.dev/NodeUnreachable", if unreachable { "True" } else { "False" });
    }
    let taints = node["spec"]["taints"].as_array_mut().unwrap();
    let is = |taint: &Value, (key, effect): &(&str, Effect)| {
        taint["key"] == *key && taint["effect"] == format!("{effect:?}")
    };
    taints.retain(|taint| !update.remove.iter().any(|one| is(taint, one)));
    for one in &update.add {
        assert!(!taints.iter().any(|taint| is(taint, one)), "{one:?} is there");
        taints.push(json!({ "key": one.0, "effect": format!("{:?}", one.1), "timeAdded": timestamp(now) }));
    }
    for (key, value) in &update.labels {
        node["metadata"]["labels"][*key] = json!(&**value);
    }
    node
}
