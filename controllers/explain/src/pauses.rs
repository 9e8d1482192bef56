//! What is not fenced because an operator paused it: who did, why, and since when.

use pod_safety_shared::api::{PAUSE_ANNOTATION, Pause};
use pod_safety_shared::model::{FencePolicyObject, Node};
use serde::Serialize;

use super::answer::{Moment, elapsed, format_duration};
use super::context::{ExplainContext, object_ref};

/// A node, or the nodes of a FencePolicy, that are not fenced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Paused {
    /// The object, as `node/NAME` or `fencepolicy/NAME`.
    pub object: String,
    /// The reason. For an annotation or taint of other software: which one.
    pub reason: String,
    /// Who paused it, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Since when, by the clock of that operator's machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<jiff::Timestamp>,
    /// The command that ends the pause; empty: pod-safety cannot end it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command: String,
}

impl Paused {
    fn new(object: String, pause: Pause, command: String) -> Self {
        let (by, since) = pause.by.unzip();
        Self { object, reason: pause.reason, by, since, command }
    }

    /// The pause of a policy, if it has one.
    fn from_policy(policy: &FencePolicyObject) -> Option<Self> {
        let pause = Pause::parse(policy.spec.paused.as_deref()?);
        let command = format!("pod-safety resume --policy {} --reason TEXT", policy.name);
        Some(Self::new(object_ref("fencepolicy", "", &policy.name), pause, command))
    }

    /// The pause of a node by its own annotation, if it has one.
    fn from_node(node: &Node, ctx: &ExplainContext<'_>) -> Option<Self> {
        let excluded_by = node.details.as_ref()?.remediation_excluded_by?;
        let object = object_ref("node", "", &node.name);
        if excluded_by != PAUSE_ANNOTATION {
            return Some(Self::new(object, Pause::parse(&format!("it has {excluded_by}")), String::new()));
        }
        let recorded = ctx.pauses.iter().find(|(name, _)| *name == node.name);
        let pause = recorded.map_or_else(|| Pause::parse(excluded_by), |(_, pause)| pause.clone());
        Some(Self::new(object, pause, format!("pod-safety resume {} --reason TEXT", node.name)))
    }

    /// All pauses.
    #[must_use]
    pub fn list(ctx: &ExplainContext<'_>) -> Vec<Self> {
        let policies = ctx.view.policies().filter_map(Self::from_policy);
        let mut all: Vec<Self> =
            policies.chain(ctx.view.nodes().filter_map(|node| Self::from_node(node, ctx))).collect();
        all.sort_by(|one, other| one.object.cmp(&other.object));
        all
    }

    /// The pauses because of which this node is not fenced.
    pub(super) fn affecting_node(
        node: &Node,
        policy: Option<&FencePolicyObject>,
        ctx: &ExplainContext<'_>,
    ) -> Vec<Self> {
        policy.and_then(Self::from_policy).into_iter().chain(Self::from_node(node, ctx)).collect()
    }

    /// `rack moves, by anna@example.com 3h12m ago`.
    #[must_use]
    pub fn describe(&self, wall: jiff::Timestamp) -> String {
        let reason = if self.reason.is_empty() { "no reason is given" } else { &self.reason };
        match (&self.by, self.since) {
            (Some(by), Some(at)) => format!("{reason}, by {by} {} ago", format_duration(elapsed(at, wall))),
            _ => reason.to_owned(),
        }
    }

    /// The entry of the history when it began.
    pub(super) fn to_moment(&self) -> Option<Moment> {
        let by = self.by.as_deref().unwrap_or("unknown");
        Some(Moment::new(self.since?, format!("{} is paused", self.object), format!("{} (by {by})", self.reason)))
    }
}
