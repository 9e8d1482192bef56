//! The subresources that act: eviction and binding of pods.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::delete::{Options, delete_one};
use super::failure::{Failure, success};
use super::fields::{at, list, number, set, text};
use super::kinds::{Kind, Part, Rules, is_terminal, set_condition};
use super::log::{Key, Log};
use super::route::{ApiRequest, Route};
use super::select::label_selector_matches;
use super::write::{Update, seconds};

const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// A budget with this many unconfirmed evictions allows no more.
const MAX_DISRUPTED: usize = 2_000;

/// The code, and the `Status` object.
pub(crate) type Outcome = Result<(u16, Value), Failure>;

fn created() -> Outcome {
    let mut status = success(Value::Null);
    status["code"] = 201.into();
    Ok((201, status))
}

/// The object that was sent to a subresource; it names the pod again.
fn named_body(asked: &ApiRequest, kind: &str, name: &str) -> Result<Value, Failure> {
    let body: Value = serde_json::from_slice(&asked.body)
        .map_err(|error| Failure::bad_request(format!("decoding {kind}: {error}")))?;
    if text(&body, &["metadata", "name"]) == name {
        Ok(body)
    } else {
        Err(Failure::bad_request(format!("name in URL does not match name in {kind} object")))
    }
}

/// The name and the options of an Eviction.
fn decode(route: &Route, asked: &ApiRequest) -> Result<(String, Options), Failure> {
    asked.only(&["dryRun", "fieldManager", "fieldValidation", "pretty"])?;
    let name = route.name.clone().unwrap_or_default();
    let body = named_body(asked, "Eviction", &name)?;
    let mut options = Options::from_object(at(&body, &["deleteOptions"]).unwrap_or(&Value::Null));
    options.dry |= asked.dry_run();
    Ok((name, options))
}

/// The second half of an Eviction that was counted, whatever has happened to the pod since.
pub(crate) fn carry_out(log: &mut Log, route: &Route, asked: &ApiRequest, now: Timestamp) -> Outcome {
    let (name, options) = decode(route, asked)?;
    condition_and_delete(log, route, &route.key(&name), &name, &options, now)
}

/// POST of an Eviction. `None`: it was counted, and is to be carried out now.
pub(crate) fn evict(
    log: &mut Log,
    route: &Route,
    asked: &ApiRequest,
    now: Timestamp,
) -> Result<Option<(u16, Value)>, Failure> {
    let (name, mut options) = decode(route, asked)?;
    let key = route.key(&name);
    let pod = log.get(&key).cloned().ok_or_else(|| Failure::not_found(&route.kind, &name))?;

    let terminating = at(&pod.value, &["metadata", "deletionTimestamp"]).is_some();
    let unguarded = is_terminal(&pod.value) || text(&pod.value, &["status", "phase"]) == "Pending" || terminating;
    if unguarded {
        if !is_terminal(&pod.value) && !terminating && options.version.is_none() {
            options.version = Some(text(&pod.value, &["metadata", "resourceVersion"]).to_owned());
        }
        return condition_and_delete(log, route, &key, &name, &options, now).map(Some);
    }
    let budgets = budgets_of(log, route, &pod.value);
    match budgets.as_slice() {
        [] => condition_and_delete(log, route, &key, &name, &options, now).map(Some),
        [budget] if spends_budget(log, budget, &pod.value) => {
            spend(log, budget, &name, options.dry, now).map(|()| None)
        }
        [budget] => {
            // It must still be unready when it is deleted. The resourceVersion in the request is lost by this, in the
            // real server too.
            let unsaid = options.version.is_none();
            options.version = Some(text(&pod.value, &["metadata", "resourceVersion"]).to_owned());
            let budget = budget.1.rsplit('/').next().unwrap_or_default().to_owned();
            let done = condition_and_delete(log, route, &key, &name, &options, now);
            // Whatever the conflict was: the sender is told to retry.
            let message = |failure: Failure| if failure.code == 409 && unsaid { unobserved(&budget) } else { failure };
            done.map(Some).map_err(message)
        }
        _ => {
            let message =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            Ok(Some((
                500,
                json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": 500 }),
            )))
        }
    }
}

fn budgets_of(log: &Log, route: &Route, pod: &Value) -> Vec<Key> {
    let Some(index) = log.kinds.iter().position(|kind| kind.rules == Rules::Budget) else {
        return Vec::new();
    };
    let prefix = format!("{}/", route.namespace.as_deref().unwrap_or_default());
    let labels = at(pod, &["metadata", "labels"]);
    log.objects
        .range((index, prefix.clone())..)
        .take_while(|((kind, name), _)| *kind == index && name.starts_with(&prefix))
        .filter(|(_, budget)| label_selector_matches(at(&budget.value, &["spec", "selector"]), labels))
        .map(|(key, _)| key.clone())
        .collect()
}

/// Whether the pod counts: an unready one does not, if the budget is satisfied without it or its policy excludes it.
fn spends_budget(log: &Log, budget: &Key, pod: &Value) -> bool {
    let ready = list(pod, &["status", "conditions"])
        .iter()
        .any(|one| text(one, &["type"]) == "Ready" && text(one, &["status"]) == "True");
    let Some(budget) = log.get(budget) else { return false };
    let count = |key: &str| number(&budget.value, &["status", key]).unwrap_or(0);
    let always = text(&budget.value, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow";
    let in_order = count("currentHealthy") >= count("desiredHealthy") && count("desiredHealthy") > 0;
    ready || !(always || in_order)
}

/// The budget's status was calculated for an earlier generation of its spec.
fn unobserved(budget: &str) -> Failure {
    let cause = format!("The disruption budget {budget} is still being processed by the server.");
    Failure::too_many_requests(VIOLATES, 10, &cause)
}

/// `checkAndDecrement`: the budget is spent *before* the pod is deleted, and stays
/// spent when the deletion fails.
fn spend(log: &mut Log, key: &Key, pod: &str, dry: bool, now: Timestamp) -> Result<(), Failure> {
    let Some(budget) = log.get(key).cloned() else { return Ok(()) };
    let mut new = Value::clone(&budget.value);
    let name = text(&budget.value, &["metadata", "name"]);
    let status = |field: &str| number(&budget.value, &["status", field]).unwrap_or(0);
    let generation = number(&budget.value, &["metadata", "generation"]).unwrap_or(0);
    let kind = log.kinds.get(key.0).cloned();
    if status("observedGeneration") < generation {
        return Err(unobserved(name));
    }
    let disrupted = at(&budget.value, &["status", "disruptedPods"]).and_then(Value::as_object);
    if let Some(kind) = kind.filter(|_| disrupted.is_some_and(|pods| pods.len() > MAX_DISRUPTED)) {
        return Err(Failure::forbidden(&kind, name, "DisruptedPods map too big", &[]));
    }
    if status("disruptionsAllowed") == 0 {
        let (needs, has) = (status("desiredHealthy"), status("currentHealthy"));
        let cause = format!("The disruption budget {name} needs {needs} healthy pods and has {has} currently");
        return Err(Failure::too_many_requests(VIOLATES, 0, &cause));
    }
    let remaining = status("disruptionsAllowed") - 1;
    set(&mut new, &["status"], "disruptionsAllowed", remaining);
    if remaining == 0 {
        exhaust(&mut new, now);
    }
    set(&mut new, &["status", "disruptedPods"], pod, seconds(now));
    if !dry {
        log.put(key, new);
    }
    Ok(())
}

/// The condition that no disruption is left.
fn exhaust(budget: &mut Value, now: Timestamp) {
    let mut conditions = list(budget, &["status", "conditions"]).to_vec();
    let mut fresh = json!({ "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "lastTransitionTime": seconds(now) });
    if let Some(observed) = number(budget, &["status", "observedGeneration"]).filter(|observed| *observed != 0) {
        set(&mut fresh, &[], "observedGeneration", observed);
    }
    match conditions.iter_mut().find(|one| text(one, &["type"]) == "DisruptionAllowed") {
        Some(known) => {
            if text(known, &["status"]) == "False" {
                super::fields::copy(&mut fresh, &known.clone(), &[], "lastTransitionTime");
            }
            *known = fresh;
        }
        None => conditions.push(fresh),
    }
    set(budget, &["status"], "conditions", conditions);
}

fn condition_and_delete(
    log: &mut Log,
    route: &Route,
    key: &Key,
    name: &str,
    options: &Options,
    now: Timestamp,
) -> Outcome {
    let mut options = options.clone();
    if !options.dry {
        let kind = route.kind.clone();
        let update = Update { part: Part::Status, dry: false, uid: None, now, create: false };
        let written = update.run(log, route, name, |latest| {
            check(&kind, latest, &options)?;
            let mut pod = latest.clone();
            let condition = json!({ "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting" });
            set_condition(&mut pod, condition, &seconds(now));
            Ok(pod)
        })?;
        if options.version.is_some() {
            options.version = Some(text(&written.object.value, &["metadata", "resourceVersion"]).to_owned());
        }
    }
    delete_one(log, &route.kind, key, name, &options, now)?;
    created()
}

fn check(kind: &Kind, pod: &Value, options: &Options) -> Result<(), Failure> {
    let differs = |wanted: &Option<String>, own: &str| {
        wanted.as_deref().is_some_and(|wanted| !wanted.is_empty() && wanted != own)
    };
    let meta = |key: &str| text(pod, &["metadata", key]);
    if differs(&options.uid, meta("uid")) || differs(&options.version, meta("resourceVersion")) {
        return Err(Failure::conflict_on_kind(kind, meta("name"), "a precondition does not match the record"));
    }
    Ok(())
}

/// POST of a Binding.
pub(crate) fn bind(log: &mut Log, route: &Route, asked: &ApiRequest, now: Timestamp) -> Outcome {
    asked.only(&["dryRun", "fieldManager", "fieldValidation", "pretty"])?;
    let name = route.name.clone().unwrap_or_default();
    let body = named_body(asked, "Binding", &name)?;
    let key = route.key(&name);
    let existing = log.get(&key).cloned().ok_or_else(|| Failure::not_found(&route.kind, &name))?;
    let meta = |object: &Value, key: &str| text(object, &["metadata", key]).to_owned();
    for field in ["uid", "resourceVersion"] {
        let expected = meta(&body, field);
        if !expected.is_empty() && expected != meta(&existing.value, field) {
            return Err(Failure::conflict(&route.kind, &name, "Precondition failed"));
        }
    }
    let bindings = Kind { plural: "pods/binding".to_owned(), ..(*route.kind).clone() };
    let refused = |why: &str| Err(Failure::conflict(&bindings, &name, why));
    if at(&existing.value, &["metadata", "deletionTimestamp"]).is_some() {
        return refused("the pod is being deleted, cannot be assigned to a host");
    }
    if !text(&existing.value, &["spec", "nodeName"]).is_empty() {
        return refused("the pod is already assigned to a node");
    }
    if !list(&existing.value, &["spec", "schedulingGates"]).is_empty() {
        return refused("the pod has non-empty .spec.schedulingGates");
    }
    let mut pod = Value::clone(&existing.value);
    set(&mut pod, &["spec"], "nodeName", text(&body, &["target", "name"]));
    for field in ["annotations", "labels"] {
        let given = at(&body, &["metadata", field]).and_then(Value::as_object);
        for (key, value) in given.into_iter().flatten() {
            set(&mut pod, &["metadata", field], key, value.clone());
        }
    }
    set_condition(&mut pod, json!({ "type": "PodScheduled", "status": "True" }), &seconds(now));
    if !asked.dry_run() {
        log.put(&key, pod);
    }
    created()
}
