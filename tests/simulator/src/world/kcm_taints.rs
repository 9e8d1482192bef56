//! The baseline's taint eviction, as kube-controller-manager 1.37 does it: a timer for each pod by namespace and name,
//! set when this process first saw the taint, kept whatever changes, and no check when it fires (the weak spots that
//! `controllers/taint-eviction` names).
//!
//! In a world without other taints than those of its node lifecycle, every pod tolerates them for 300 s, as
//! `DefaultTolerationSeconds` sets it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::kcm::{CALLER, request_as_kcm};
use super::kcm_nodes::is_tainted;
use super::run::World;
use super::{number_at, str_at};

/// What `DefaultTolerationSeconds` gives every pod.
const TOLERATED: Duration = Duration::from_secs(300);

/// The controller with its informers and its state.
pub(super) struct Taints {
    world: Arc<World>,
    /// When pods are to be deleted, by namespace and name; the UID is for the checker only, upstream does not record
    /// it.
    timers: BTreeMap<(String, String), (Duration, String)>,
}

/// How long a pod tolerates a taint; `None`: without limit.
fn toleration_period(pod: &Value, taint: &Value) -> Option<Duration> {
    let matches = |one: &&Value| {
        let (key, effect) = (str_at(one, "/key"), str_at(one, "/effect"));
        (key.is_empty() || key == str_at(taint, "/key")) && (effect.is_empty() || effect == "NoExecute")
    };
    let all = pod.pointer("/spec/tolerations").and_then(Value::as_array);
    match all.into_iter().flatten().find(matches) {
        None => Some(Duration::ZERO),
        Some(one) => {
            number_at(one, "/tolerationSeconds").map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
        }
    }
}

fn no_execute(node: &Value) -> impl Iterator<Item = &Value> {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
    taints.filter(|taint| str_at(taint, "/effect") == "NoExecute")
}

impl Taints {
    pub(super) fn new(world: &Arc<World>) -> Self {
        Self { world: Arc::clone(world), timers: BTreeMap::new() }
    }

    /// How long this pod tolerates the taints of its node; `None`: without limit.
    fn span(&self, pod: &Value, node: &Value) -> Option<Duration> {
        if !self.world.with.taints {
            return is_tainted(node).then_some(TOLERATED);
        }
        no_execute(node).filter_map(|taint| toleration_period(pod, taint)).min()
    }

    /// A running timer is kept, unless its node has recovered.
    pub(super) async fn evict(&mut self) {
        let Some(server) = self.world.servers.get(0) else { return };
        let now = self.world.checker.now();
        let tainted = server.cached_that("Node", |node| no_execute(node).next().is_some());
        let mut timers = BTreeMap::new();
        for pod in server.cached("Pod") {
            let on = tainted.iter().find(|node| str_at(node, "/metadata/name") == str_at(&pod, "/spec/nodeName"));
            let Some(span) = on.and_then(|node| self.span(&pod, node)) else { continue };
            let key = (str_at(&pod, "/metadata/namespace").to_owned(), str_at(&pod, "/metadata/name").to_owned());
            // A taint without any toleration cancels the timer and fires at once.
            let timer = self.timers.get(&key).filter(|_| !span.is_zero()).cloned();
            let new = || (now + span, str_at(&pod, "/metadata/uid").to_owned());
            timers.insert(key, timer.unwrap_or_else(new));
        }
        self.timers = timers;
        let due = self.timers.iter_mut().filter(|(_, (due, _))| *due <= now);
        let due: Vec<_> = due
            .map(|((namespace, name), (due, uid))| {
                *due = now + TOLERATED;
                (format!("/api/v1/namespaces/{namespace}/pods/{name}"), uid.clone())
            })
            .collect();
        for (path, uid) in due {
            self.world.checker.intends(CALLER, &path, &uid);
            request_as_kcm(&self.world, "DELETE", &path, None).await;
            self.world.checker.probe("kcm evicted a pod by its taint");
        }
    }
}
