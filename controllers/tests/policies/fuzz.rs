//! Fuzz targets: the request of any row, changed in any way. The oracles read JSON, and use no CEL.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use pod_safety_fuzz::{Draw, fuzz, json::vary};
use serde_json::Value;

use crate::engine::{Policy, Request, Verdict};
use crate::{OURS, policies, rows};

/// Values that matter in the expressions.
const WORDS: &[&str] = &[
    "metadata",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "deletionTimestamp",
    "managedFields",
    "resourceVersion",
    "pod-safety.dev/break-glass",
    "spec",
    "nodeName",
    "hostname",
    "nodeSelector",
    "kubernetes.io/hostname",
    "schedulingGates",
    "taints",
    "terminationGracePeriodSeconds",
    "status",
    "phase",
    "Failed",
    "Succeeded",
    "Running",
    "conditions",
    "observedGeneration",
    "containerStatuses",
    "initContainerStatuses",
    "state",
    "running",
    "type",
    "Ready",
    "True",
    "False",
    "DisruptionTarget",
    "DeletionByPodGC",
    "gracePeriodSeconds",
    "preconditions",
    "uid",
    "name",
    "key",
    "value",
    "effect",
    "NoExecute",
    "node.kubernetes.io/out-of-service",
    "w1",
    "w2",
];

/// In a request that is not for the status, the API server restores the old one.
const PUT_BACK: &str = "/status";

/// Fields that the API server itself changes.
const BOOKKEEPING: [&str; 3] = ["/metadata/managedFields", "/metadata/resourceVersion", "/metadata/generation"];

/// A row of a policy, with its request changed; `None`: the policy has no rows.
fn case(draw: &mut Draw<'_>, policy: &str) -> Option<(&'static Policy, Request)> {
    static POLICIES: LazyLock<Vec<Policy>> = LazyLock::new(policies);
    static REQUESTS: LazyLock<Vec<(&'static str, Request)>> =
        LazyLock::new(|| rows().into_iter().map(|row| (row.policy, row.request)).collect());
    let requests: Vec<_> = REQUESTS.iter().filter(|(of, _)| *of == policy).collect();
    let (_, request) = draw.one_of(&requests)?;
    let mut request = request.clone();
    for part in [&mut request.old, &mut request.object, &mut request.options] {
        if draw.once_in(3) {
            vary(draw, part, WORDS);
            drop_nulls(part);
        }
    }
    let policy = POLICIES.iter().find(|candidate| candidate.name == policy)?;
    Some((policy, request))
}

/// Removes fields without a value, as the API server does.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Whether the request passes. An expression that cannot be evaluated refuses it.
fn passes(policy: &Policy, request: &Request) -> bool {
    matches!(policy.judge(request), Ok(Verdict::Allowed | Verdict::NotAsked))
}

/// The paths of the fields that differ, three names deep. Empty values are absent, as for [`drop_nulls`].
fn changed(old: &Value, new: &Value, path: &str, into: &mut BTreeSet<String>) {
    let nothing = |value: &Value| match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    if old == new || nothing(old) && nothing(new) {
        return;
    }
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else {
        into.insert(path.to_owned());
        return;
    };
    if path.matches('/').count() == 3 {
        into.insert(path.to_owned());
        return;
    }
    for key in before.keys().chain(after.keys()) {
        let at = |fields: &serde_json::Map<String, Value>| fields.get(key).cloned().unwrap_or_default();
        changed(&at(before), &at(after), &format!("{path}/{}", key.replace('/', "~1")), into);
    }
}

fn condition<'v>(object: &'v Value, kind: &str, status: &str) -> Option<&'v Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|one| one["type"] == kind && one["status"] == status)
}

fn cordons(old: &Value, new: &Value) -> bool {
    new["spec"]["unschedulable"] == true && old["spec"]["unschedulable"] != true
}

fn terminal(object: &Value) -> bool {
    object["status"]["phase"] == "Failed" || object["status"]["phase"] == "Succeeded"
}

/// The API server refuses a value that is no object before it evaluates a policy.
fn is_typed(Request { old, object, .. }: &Request) -> bool {
    let mut parts = [old, object].into_iter().flat_map(|one| ["metadata", "spec", "status"].map(|part| &one[part]));
    parts.all(|part| part.is_null() || part.is_object())
}

/// What a stolen token of pod-safety must not obtain, in the order of SECURITY.md.
fn check_own_account(request: &Request) {
    let Request { old, object, options, .. } = request;
    let mut fields = BTreeSet::new();
    // The API server drops other fields.
    for part in ["metadata", "spec", "status"] {
        changed(&old[part], &object[part], &format!("/{part}"), &mut fields);
    }
    let only = |allowed: &[&str]| {
        for field in &fields {
            let allowed_field = BOOKKEEPING
                .iter()
                .chain(allowed)
                .any(|one| field.strip_prefix(one).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
            assert!(allowed_field, "{field} was changed: {old} to {object}");
        }
    };
    let kind = format!("{} {}/{}", request.operation, request.resource, request.subresource);
    match kind.as_str() {
        "DELETE pods/" => {
            // The API server refuses a grace period that is no whole number before it evaluates a policy.
            let Some(grace) = options["gracePeriodSeconds"].as_i64() else { return };
            let texts = ["uid", "resourceVersion"].map(|field| options["preconditions"][field].clone());
            if texts.iter().any(|text| !text.is_string() && !text.is_null()) {
                return;
            }
            assert!(texts.iter().all(|text| !text.is_null() && text != "") && grace >= 0, "{options}");
            let why = if grace == 0 { terminal(old) } else { condition(old, "DisruptionTarget", "True").is_some() };
            assert!(why, "{options}: {old}");
        }
        "UPDATE pods/" => {
            only(&["/spec/schedulingGates", "/spec/nodeSelector/kubernetes.io~1hostname", PUT_BACK]);
            let gates = |of: &Value| of["spec"]["schedulingGates"].as_array().cloned().unwrap_or_default();
            assert!(gates(object).iter().all(|gate| gates(old).contains(gate)), "a gate is new");
        }
        "UPDATE pods/status" => {
            only(&["/status/phase", "/status/conditions", "/status/observedGeneration"]);
            let phase = |of: &Value| of["status"]["phase"].as_str().unwrap_or_default().to_owned();
            let became = phase(old) != phase(object);
            let gone =
                condition(object, "DisruptionTarget", "True").is_some_and(|one| one["reason"] == "DeletionByPodGC");
            let may_end = !old["metadata"]["deletionTimestamp"].is_null() || gone;
            assert!(!became || object["status"]["phase"] == "Failed" && may_end, "{old} to {object}");
            let better = condition(object, "Ready", "True").is_some();
            assert!(!better || condition(old, "Ready", "True").is_some(), "it is called Ready");
        }
        "UPDATE nodes/" => {
            only(&[
                "/spec/taints",
                "/spec/unschedulable",
                PUT_BACK,
                "/metadata/labels/beta.kubernetes.io~1os",
                "/metadata/labels/beta.kubernetes.io~1arch",
            ]);
            assert!(!cordons(old, object) || condition(old, "Ready", "True").is_some(), "{old}");
        }
        "UPDATE nodes/status" => {
            only(&["/status/conditions"]);
            let better = condition(object, "Ready", "True").is_some();
            assert!(!better || condition(old, "Ready", "True").is_some(), "it is called Ready");
        }
        "UPDATE evictions/" => only(&["/metadata/labels", "/metadata/ownerReferences", PUT_BACK]),
        _ => {}
    }
}

/// The account can do only what its code does, whatever the objects and the options of a request are.
#[test]
fn only_its_own_writes_pass_with_the_token_of_pod_safety() {
    fuzz!(2_000, |draw| {
        let Some((policy, mut request)) = case(draw, "own-account") else { return };
        OURS.clone_into(&mut request.user);
        if is_typed(&request) && passes(policy, &request) {
            check_own_account(&request);
        }
    });
}

/// Its replacement has its name: as `Pod::keeps_identity`, or by the hostname that such a controller gives it.
fn keeps_identity(pod: &Value) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let foreign = |api: &str| {
        let group = api.split_once('/').map_or("", |(group, _)| group);
        !["", "apps", "batch", "extensions"].contains(&group)
    };
    let by_owner = owners.iter().any(|owner| {
        let api = owner["apiVersion"].as_str().unwrap_or_default();
        owner["controller"] == true && (owner["kind"] == "StatefulSet" || foreign(api))
    });
    by_owner || pod["spec"]["hostname"].is_string() && pod["spec"]["hostname"] == pod["metadata"]["name"]
}

/// Without the right, and without a report of the kubelet, a scheduled pod is not removed at once.
#[test]
fn without_the_right_no_pod_that_may_run_is_removed_at_once() {
    fuzz!(2_000, |draw| {
        let Some((policy, mut request)) = case(draw, "force-delete") else { return };
        request.rights.clear();
        draw.word(&["dev", "system:node:w2", "system:serviceaccount:kube-system:pod-garbage-collector"])
            .clone_into(&mut request.user);
        let Request { old, options, user, .. } = &request;
        if options["gracePeriodSeconds"] != 0 || !passes(policy, &request) {
            return;
        }
        let node = old["spec"]["nodeName"].as_str().unwrap_or_default();
        let runs = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"]
            .iter()
            .filter_map(|field| old["status"][field].as_array())
            .flatten()
            .any(|container| container["state"].get("running").is_some());
        let by_choice = old["spec"]["terminationGracePeriodSeconds"] == 0 && !keeps_identity(old);
        let its_kubelet = *user == format!("system:node:{node}");
        assert!(node.is_empty() || terminal(old) && !runs || by_choice || its_kubelet, "{user}: {old}");
    });
}
