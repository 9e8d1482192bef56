//! The end of a run: the world has healed, and what is owed must come true.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::attach::said_of;
use super::host::moment;
use super::run::{Subject, World};
use super::str_at;
use crate::checker::{FAILOVER, Invariant, Owned, Shown, Tone};

/// From the healing of the world to the first look: all that is not held by a
/// living kubelet is owed by then.
const SETTLED_AFTER: Duration = Duration::from_secs(115);
/// From the end of what people do after the healing to the first look.
const OPERATORS_DONE_BEFORE: Duration = Duration::from_secs(50);
/// Nobody waits longer for what a living kubelet holds.
const WAIT_AT_MOST: Duration = Duration::from_secs(250);
/// For so long a run is watched at rest: a pod that is taken away without a reason is replaced within this.
const REST: Duration = Duration::from_secs(40);
/// One run of so many is watched for longer.
const LONG_EACH: u64 = 4;
const LONG_REST: Duration = Duration::from_secs(120);
/// A kubelet starts a process within this, once it has its volume.
const STARTS_WITHIN: Duration = Duration::from_secs(10);

impl World {
    /// Until `end` at most.
    async fn wait_for_what_is_owed(&self, end: Duration) {
        loop {
            let (pods, nodes) = (self.etcd.objects("Pod"), self.etcd.objects("Node"));
            self.checker.check_settled(&pods, &nodes, &self.holds());
            let owed = self.checker.owed_at(&pods, &nodes);
            let now = self.checker.now();
            let Some(owed) = owed.filter(|owed| *owed >= now && now < end) else { return };
            let until = owed.min(end) + Duration::from_secs(1);
            tokio::time::sleep(until.saturating_sub(now)).await;
        }
    }

    /// Until responders that never report have lost their turns: once, for the longest.
    async fn wait_for_turns(&self) {
        if let Some(until) = self.turns_end_by() {
            self.checker.probe("a responder that never reports was waited for");
            tokio::time::sleep(until.saturating_sub(self.checker.now())).await;
        }
    }

    /// Waits for what is owed, and judges.
    pub(crate) async fn wait_settled(
        self: &Arc<Self>,
        healed: Duration,
        people_end: Option<Duration>,
        subject: Subject,
    ) {
        let look = people_end.map_or(Duration::ZERO, |end| end + OPERATORS_DONE_BEFORE);
        let look = look.max(healed + SETTLED_AFTER);
        tokio::time::sleep(look.saturating_sub(self.checker.now())).await;
        self.checker.check_budgets();
        let ours = matches!(subject, Subject::Shipped(..));
        if ours {
            self.wait_for_turns().await;
            self.wait_for_what_is_owed(healed + WAIT_AT_MOST).await;
        }
        for what in self.etcd.unimplemented() {
            self.checker.violated(Invariant::Simulator, what);
        }
        if !ours {
            return;
        }
        self.checker.check_outstanding();
        self.check_stuck();
        if self.with.evictions.is_some() {
            self.checker.check_evictions(&self.etcd.objects("Pod"), &self.holds());
        }
        if self.with.guarded_volumes.is_some() {
            let all = |kind| self.etcd.objects(kind);
            let objects = Owned {
                leases: &all("Lease"),
                pods: &all("Pod"),
                nodes: &all("Node"),
                claims: &all("PersistentVolumeClaim"),
                volumes: &all("PersistentVolume"),
            };
            self.checker.check_owners(&objects, &self.holds());
        }
        self.rest().await;
        self.lose_the_leader().await;
    }

    /// What the processes under test leave alone, and why.
    fn holds(&self) -> Shown {
        let held = self.replicas.iter().flat_map(super::replica::Replica::held);
        Shown::new(held.map(|held| (held.subject, held.reason)))
    }

    /// Has the referee look whether what waits for a proof is shown.
    pub(super) fn check_stuck(&self) {
        self.checker.check_stuck(&self.etcd.objects("Pod"), &self.holds());
    }

    /// Whether a machine is on and awake, and its Node is there.
    fn works(&self, name: &str) -> bool {
        let nodes = self.machines.lock().len();
        let awake = (0..nodes)
            .find(|index| self.node(*index) == name)
            .and_then(|index| self.machine_host(index))
            .is_some_and(|host| !host.is_paused());
        awake && self.etcd.object("Node", name).is_some()
    }

    /// The pods of the `StatefulSet` that nothing keeps from running, with their nodes.
    fn feasible(&self) -> Vec<String> {
        let takes = |node: &Value| {
            let taints = node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
            let avoided = taints.map(|taint| str_at(taint, "/key")).any(|key| key != "node.kubernetes.io/not-ready");
            let cordoned = node.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
            self.works(str_at(node, "/metadata/name")) && !avoided && !cordoned
        };
        let now = self.checker.now();
        let somewhere = self.etcd.objects("Node").iter().any(|node| takes(node));
        let can_run = |name: &String| {
            // Its StatefulSet is about to make it.
            let Some(pod) = self.etcd.object("Pod", name) else { return false };
            let node = str_at(&pod, "/spec/nodeName");
            let made = moment(str_at(&pod, "/metadata/creationTimestamp"));
            if made.is_some_and(|made| made + STARTS_WITHIN > now) {
                // It is about to.
                false
            } else if self.came_lately(node, now) || self.checker.is_eviction_requested(str_at(&pod, "/metadata/uid")) {
                false
            } else if node.is_empty() {
                somewhere && !self.with.attached_volumes
            } else {
                self.works(node) && self.has_volumes(name, node) && !self.ends_pods(node)
            }
        };
        (0..self.members).map(|ordinal| format!("default/data-{ordinal}")).filter(can_run).collect()
    }

    /// Whether this node was called Ready a moment ago.
    fn came_lately(&self, node: &str, now: Duration) -> bool {
        let node = self.etcd.object("Node", node);
        let conditions = node.as_ref().and_then(|node| node.pointer("/status/conditions")?.as_array());
        let ready = conditions.into_iter().flatten().find(|one| str_at(one, "/type") == "Ready");
        let since = ready.and_then(|one| moment(str_at(one, "/lastTransitionTime")));
        since.is_some_and(|since| since + STARTS_WITHIN > now)
    }

    /// Whether this node's taints may end its pods, sooner or later.
    fn ends_pods(&self, node: &str) -> bool {
        let node = self.etcd.object("Node", node).filter(|_| self.with.taints);
        let taints = node.as_ref().and_then(|node| node.pointer("/spec/taints")).and_then(Value::as_array);
        taints.into_iter().flatten().any(|taint| str_at(taint, "/effect") == "NoExecute")
    }

    /// Whether the volumes of this pod were attached here long enough ago for its
    /// process to start.
    fn has_volumes(&self, identity: &str, node: &str) -> bool {
        let now = self.checker.now();
        let said = self.etcd.object("Node", node).filter(|_| self.with.guarded_volumes.is_some());
        let said = said.map(|node| said_of(&node));
        let is_attached = |volume: &String| {
            let is_said = said.as_ref().is_none_or(|said| said.contains(volume));
            let is_there = is_said && self.etcd.object("VolumeAttachment", &format!("{volume}.{node}")).is_some();
            let since = self.checker.attached_since(&format!("default/{volume}"), node);
            since.filter(|_| is_there).is_some_and(|since| now.saturating_sub(since) > STARTS_WITHIN)
        };
        !self.with.attached_volumes || self.checker.volumes_of(identity).iter().all(is_attached)
    }

    async fn rest(self: &Arc<Self>) {
        let feasible = self.feasible();
        let mut before = self.checker.members();
        let ends = |name: &String| {
            let pod = self.etcd.object("Pod", name);
            pod.is_some_and(|pod| pod.pointer("/metadata/deletionTimestamp").is_some())
        };
        // Its kubelet evicts it as soon as its worker is free.
        let evicted = |uid: &String| self.evicted.lock().contains(uid) || self.checker.is_eviction_requested(uid);
        before.retain(|identity, uid| feasible.contains(identity) && !ends(identity) && !evicted(uid));
        let long = self.chance.below(LONG_EACH, "rest", "watched", 0) == 0;
        tokio::time::sleep(if long { LONG_REST } else { REST }).await;
        let feasible = self.feasible();
        before.retain(|identity, _| feasible.contains(identity));
        self.checker.check_rest(&before, &feasible);
    }

    async fn lose_the_leader(self: &Arc<Self>) {
        let leader = self.checker.leader().unwrap_or_default();
        let place = self.replicas.iter().find(|place| place.caller().as_ref() == Some(&leader));
        let Some(place) = place else {
            return self.checker.check_failover(&leader);
        };
        if self.replicas.len() < 2 {
            return;
        }
        self.checker.announce_with_detail(
            Tone::Fault,
            format!("the run is over; as a last test its leader, {leader}, is killed"),
            "the leader of pod-safety is killed",
        );
        self.checker.control_is_troubled(self.checker.now() + FAILOVER);
        place.crash();
        tokio::time::sleep(FAILOVER).await;
        self.checker.check_failover(&leader);
    }
}
