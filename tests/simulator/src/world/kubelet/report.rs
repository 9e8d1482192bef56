//! The conditions that a kubelet reports for its node and pods, in worlds in which pod-safety manages nodes. That its
//! node is not ready it reports in every world (`setters.go`, `ReadyCondition`).

use std::time::Duration;

use pod_safety_shared::clock::Mono;
use serde_json::{Value, json};

use super::{Kubelet, RENEW_INTERVAL};
use crate::campaign::{Ailment, Keeper, Lack};
use crate::checker::Tone;
use crate::world::fencing::HOSTNAME;
use crate::world::kcm_nodes::ready;
use crate::world::machines::number_of;
use crate::world::shops::start_up;
use crate::world::{boot_id, str_at, zone};

/// `nodeStatusReportFrequency`: how often it reports an unchanged status.
const POST_INTERVAL: Duration = Duration::from_secs(300);

/// The last report of the node's status, and when it was made.
#[derive(Default)]
pub(super) struct Posted {
    at: Option<Mono>,
    ailment: Option<Ailment>,
}

impl Kubelet {
    fn is_listened_to(&self) -> bool {
        self.world.with.nodes != Keeper::Theirs
    }

    /// Whether this pod has readiness that is reported.
    pub(super) fn reports_readiness(&self, pod: &Value) -> bool {
        start_up(pod).is_some() || self.is_listened_to()
    }

    pub(super) fn labels(&self) -> Value {
        if !self.is_listened_to() {
            return json!({});
        }
        let number = self.node.rsplit('-').next().and_then(|number| number.parse().ok());
        json!({ "topology.kubernetes.io/zone": zone(number.unwrap_or(0)), HOSTNAME: &*self.node })
    }

    /// In what this kubelet differs from the others.
    pub(super) fn lacks(&self) -> Option<Lack> {
        let odd = self.world.with.odd_kubelet?;
        (number_of(&self.node) == Some(odd.node)).then_some(odd.lacks)
    }

    pub(super) fn renews_a_lease(&self) -> bool {
        self.lacks() != Some(Lack::Lease)
    }

    /// The boot ID that it reports.
    pub(super) fn boot_id(&self) -> String {
        match self.lacks() {
            Some(Lack::BootUuid) => self.boot.to_string(),
            Some(Lack::BootId) => String::new(),
            Some(Lack::Lease) | None => boot_id(&self.node, self.boot),
        }
    }

    /// The conditions of its node.
    pub(super) fn conditions(&self) -> Value {
        let (status, reason, message) = match self.world.ailment_of(&self.node) {
            None => ("True", "KubeletReady", "kubelet is posting ready status"),
            Some(Ailment::Runtime) => ("False", "KubeletNotReady", "container runtime is down"),
            Some(Ailment::Network) => {
                ("False", "KubeletNotReady", "container runtime network not ready: cni plugin not initialized")
            }
        };
        if !self.is_listened_to() && self.renews_a_lease() {
            return json!([{ "type": "Ready", "status": status, "reason": reason, "message": message }]);
        }
        let now = format!("{:.0}", self.env.clock.wall());
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({ "type": kind, "status": status, "reason": reason,
                "lastHeartbeatTime": now, "lastTransitionTime": now })
        };
        json!([
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            { "type": "Ready", "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": now },
        ])
    }

    /// Reports the conditions of its node: when it starts, when they change, when the API shows others, and now and
    /// then.
    pub(super) async fn post(&self, posted: &mut Posted) {
        let ailment = self.world.ailment_of(&self.node);
        let was_sick = || {
            posted.at.is_none()
                && self.world.etcd.object("Node", &self.node).is_some_and(|node| ready(&node) == "False")
        };
        let each = if self.renews_a_lease() { POST_INTERVAL } else { RENEW_INTERVAL };
        let posts = self.is_listened_to() || !self.renews_a_lease();
        if !posts && ailment.is_none() && posted.ailment.is_none() && !was_sick() {
            return;
        }
        let path = format!("/api/v1/nodes/{}", self.node);
        let Some((200, node)) = self.request("GET", &path, None).await else { return };
        let now = self.env.now();
        let due = posted.at.is_none_or(|at| now.since(at) >= each);
        let so = if ailment.is_some() { "False" } else { "True" };
        if !due && ready(&node) == so && ailment == posted.ailment {
            return;
        }
        let body = json!({ "metadata": { "uid": str_at(&node, "/metadata/uid") },
            "status": { "conditions": self.conditions(), "nodeInfo": { "bootID": self.boot_id() } } });
        if let Some((200, _)) = self.request("PATCH", &format!("{path}/status"), Some(body)).await {
            if ailment.is_some() && posted.ailment.is_none() {
                self.world.checker.probe("a kubelet said that its node is not ready, and renewed");
                self.world.checker.announce(Tone::Loss, format!("{} says that it is not ready", self.node));
            }
            *posted = Posted { at: Some(now), ailment };
        }
    }
}
