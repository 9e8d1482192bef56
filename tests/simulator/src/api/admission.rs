//! The effect of the chart's admission policies for exclusive volumes, in clusters that have them: `volume-held`
//! denies, `volume-gate` adds pod-safety's scheduling gate. Policies read their parameters from the cache of their API
//! server, however old that is.

use std::borrow::Cow;

use http::Method;
use pod_safety_shared::model::{DETACH_LABEL, HELD_LABEL, VOLUME_GATE, VOLUME_LEASE_NAMESPACE};
use serde_json::{Value, json};

use super::failure::Failure;
use super::fields::{at, list, text};
use super::kinds::Rules;
use super::log::Log;
use super::read::Cached;
use super::route::{ApiRequest, Route};

/// The policies of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// `volume-held`.
    pub volume_held: bool,
    /// `volume-gate`.
    pub volume_gate: bool,
    /// `pod-report`.
    pub pod_report: bool,
}

/// The request as the policies change it.
pub(super) fn mutated<'a>(log: &Log, route: &Route, asked: &'a ApiRequest) -> Cow<'a, ApiRequest> {
    let creates = asked.method == Method::POST && route.name.is_none() && route.kind.rules == Rules::Pod;
    if !creates || !log.policies.volume_gate {
        return Cow::Borrowed(asked);
    }
    let Ok(mut pod) = serde_json::from_slice::<Value>(&asked.body) else { return Cow::Borrowed(asked) };
    let claims = |volume: &Value| volume.get("persistentVolumeClaim").is_some() || volume.get("ephemeral").is_some();
    let gate = |gate: &Value| text(gate, &["name"]) == VOLUME_GATE;
    let mut gates = list(&pod, &["spec", "schedulingGates"]).to_vec();
    let bound = !text(&pod, &["spec", "nodeName"]).is_empty();
    if bound || gates.iter().any(gate) || !list(&pod, &["spec", "volumes"]).iter().any(claims) {
        return Cow::Borrowed(asked);
    }
    gates.push(json!({ "name": VOLUME_GATE }));
    pod["spec"]["schedulingGates"] = gates.into();
    Cow::Owned(ApiRequest { body: pod.to_string().into(), ..asked.clone() })
}

/// Whether a VolumeAttachment may be created or deleted, or the status of a pod be written.
pub(super) fn check(log: &Log, cached: &Cached, route: &Route, asked: &ApiRequest) -> Result<(), Failure> {
    if route.kind.rules == Rules::Pod && route.subresource.as_deref() == Some("status") && log.policies.pod_report {
        return check_report(log, route, asked);
    }
    if !log.policies.volume_held || route.kind.rules != Rules::Attachment {
        return Ok(());
    }
    let (attachment, deletes) = match (&asked.method, &route.name) {
        (&Method::POST, None) => (serde_json::from_slice(&asked.body).unwrap_or_default(), false),
        (&Method::DELETE, Some(name)) => match log.get(&route.key(name)) {
            Some(found) => (Value::clone(&found.value), true),
            None => return Ok(()),
        },
        _ => return Ok(()),
    };
    let volume = text(&attachment, &["spec", "source", "persistentVolumeName"]);
    let Some(leases) = log.kinds.iter().position(|kind| kind.rules == Rules::Lease) else { return Ok(()) };
    let Some(lease) = cached.objects.get(&(leases, format!("{VOLUME_LEASE_NAMESPACE}/{volume}"))) else {
        return Ok(());
    };
    if at(&lease.value, &["metadata", "labels", HELD_LABEL]).and_then(Value::as_str) != Some("true") {
        return Ok(());
    }
    let node = text(&attachment, &["spec", "nodeName"]);
    if allows(&lease.value, node, deletes) {
        return Ok(());
    }
    let what = if deletes { "detached from" } else { "attached to" };
    let why = format!("ValidatingAdmissionPolicy 'volume-held' denied request: {volume} is not {what} {node}");
    let name = text(&attachment, &["metadata", "name"]);
    Err(Failure::forbidden(&route.kind, name, &why, &[]))
}

/// Only its own kubelet turns a pod Ready, or observes a newer generation of one that did not fail: that shows that a
/// node runs.
fn check_report(log: &Log, route: &Route, asked: &ApiRequest) -> Result<(), Failure> {
    let name = route.name.as_deref().unwrap_or_default();
    let Some(pod) = log.get(&route.key(name)) else { return Ok(()) };
    let node = text(&pod.value, &["spec", "nodeName"]);
    if node.is_empty() || node == &*asked.caller || asked.method == Method::GET {
        return Ok(());
    }
    let status: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    let is_ready = |pod: &Value| {
        let is = |one: &Value| (text(one, &["type"]), text(one, &["status"])) == ("Ready", "True");
        list(pod, &["status", "conditions"]).iter().any(is)
    };
    let observed = |pod: &Value| at(pod, &["status", "observedGeneration"]).and_then(Value::as_i64).unwrap_or(0);
    let observes = text(&status, &["status", "phase"]) != "Failed" && observed(&status) > observed(&pod.value);
    if !observes && (!is_ready(&status) || is_ready(&pod.value)) {
        return Ok(());
    }
    let why = format!("ValidatingAdmissionPolicy 'pod-report' denied request: only the kubelet of {node} may write it");
    Err(Failure::forbidden(&route.kind, name, &why, &[]))
}

/// Whether the Lease of a held volume lets it be detached from this node, or attached to it.
fn allows(lease: &Value, node: &str, deletes: bool) -> bool {
    let identity = text(lease, &["spec", "holderIdentity"]);
    let holder = identity.split_once('/').map_or("", |(holder, _)| holder);
    let from = text(lease, &["metadata", "annotations", DETACH_LABEL]);
    let there = !holder.is_empty() && node == holder;
    if deletes {
        !from.is_empty() || (!holder.is_empty() && !there)
    } else {
        node != from && (there || (identity.is_empty() && !from.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the expressions of the chart's policy: for `a` and `b`, whether it may be detached from each, and attached to
    /// each.
    #[test]
    fn a_held_volume_is_released_as_the_chart_policies_allow() {
        for (identity, from, detached, attached) in [
            ("a/u/1/p", "", [false, true], [true, false]),
            ("a/u/1/p", "a", [true, true], [false, false]),
            ("b/u/1/p", "a", [true, true], [false, true]),
            ("", "a", [true, true], [false, true]),
            ("", "", [false, false], [false, false]),
            ("unreadable", "", [false, false], [false, false]),
        ] {
            let lease = json!({ "metadata": { "annotations": { DETACH_LABEL: from } },
                "spec": { "holderIdentity": identity } });
            let each = |deletes: bool| ["a", "b"].map(|node| allows(&lease, node, deletes));
            assert_eq!((each(true), each(false)), (detached, attached), "{identity:?}, from {from:?}");
        }
    }
}
