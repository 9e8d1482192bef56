//! What must have happened when the world has been well for long enough.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::{Checker, Invariant};
use crate::world::word;

impl Checker {
    /// Pods of nodes that are gone since before `since` must not be there, unless
    /// somebody is told why: `holds` are the reasons that the leader shows.
    pub(crate) fn check_settled(
        &self,
        pods: &[Value],
        nodes: &[Value],
        since: Duration,
        holds: &BTreeMap<String, u64>,
    ) {
        let now = self.now();
        let present = |name: &str| nodes.iter().any(|node| word(node, "/metadata/name") == name);
        for pod in pods {
            let (node, name) = (word(pod, "/spec/nodeName"), word(pod, "/metadata/name"));
            if node.is_empty() || present(node) {
                continue;
            }
            let gone_before = self.state.lock().acts.missing_since(node).is_none_or(|at| at < since);
            if !gone_before {
                continue;
            }
            let uid = word(pod, "/metadata/uid").to_owned();
            // Its process may have ended: a living kubelet will say so when it may.
            let reasons = ["KubeletAlive", "NodeUnreadable"];
            if reasons.iter().any(|reason| holds.get(*reason).is_some_and(|count| *count > 0)) {
                self.probe("held with a reason: the kubelet of a deleted Node lives");
                continue;
            }
            if pod.pointer("/metadata/finalizers/0").is_some() {
                continue;
            }
            let mut state = self.state.lock();
            let what =
                format!("{name} ({uid:.8}) of node {node}, which is gone, is still there; holds: {holds:?}");
            state.violated(now, Invariant::Liveness, what);
        }
    }
}
