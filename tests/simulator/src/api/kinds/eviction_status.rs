//! The API server's validation of an Eviction's status (`pkg/apis/lifecycle/validation`, v1.37.2). The simulated API server
//! applies it, the model check of `controllers/eviction` includes it, and the control-plane suite compares it with a real
//! API server.

use std::collections::BTreeSet;

use pod_safety_shared::model::{IMPERATIVE_EVICTOR, compare_turns};
use pod_safety_shared::wire::Time;
use serde_json::Value;

const SKEW: i64 = 30;
const DEADLINE: i64 = 1_200;
const MAX_RESPONDERS: usize = 11;
const MAX_REQUESTERS: usize = 100;
const MAX_PRIORITY: i32 = 100_000;
const MAX_EXPECTED: i64 = 10 * 365 * 86_400;

fn list<'a>(status: &'a Value, field: &str) -> &'a [Value] {
    status[field].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
    entry[field].as_str().unwrap_or_default()
}

fn name(entry: &Value) -> &str {
    text(entry, "name")
}

fn priority(entry: &Value) -> i32 {
    entry["priority"].as_i64().and_then(|priority| priority.try_into().ok()).unwrap_or(0)
}

fn time(entry: &Value, field: &str) -> Option<i64> {
    serde_json::from_value::<Time>(entry[field].clone()).ok().map(Time::whole_seconds)
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    list(status, "conditions").iter().find(|one| one["type"] == kind)
}

pub(super) fn is_true(status: &Value, kind: &str) -> bool {
    condition(status, kind).is_some_and(|one| one["status"] == "True")
}

fn refuse(refused: bool, why: &str) -> Result<(), String> {
    if refused { Err(why.to_owned()) } else { Ok(()) }
}

/// Whether the API server accepts this status after that one, at this second of its clock.
pub(super) fn validate(old: &Value, new: &Value, now: i64) -> Result<(), String> {
    for kind in ["TargetEvicted", "Failed"] {
        let Some(before) = condition(old, kind).filter(|one| one["status"] == "True") else { continue };
        let kept =
            condition(new, kind).is_some_and(|one| one["status"] != "False" && one["reason"] == before["reason"]);
        refuse(!kept, "condition status cannot be reverted")?;
    }
    let is_final = is_true(new, "TargetEvicted") || is_true(new, "Failed");
    targets(old, new, is_final, now)?;
    reports(old, new, now)?;
    let (before, after) = (old["observedGeneration"].as_i64(), new["observedGeneration"].as_i64());
    refuse(after < before, "may not be decreased")?;
    refuse(after.is_some_and(|after| after < 1), "must be greater than or equal to 1")?;
    requesters(list(new, "requesters"))
}

fn are_unique(all: &[Value]) -> bool {
    all.iter().map(name).collect::<BTreeSet<_>>().len() == all.len()
}

fn requesters(all: &[Value]) -> Result<(), String> {
    refuse(!are_unique(all) || all.len() > MAX_REQUESTERS, "requesters")?;
    let is_named =
        |one: &Value| name(one).split_once('/').is_some_and(|parts| !parts.0.is_empty() && !parts.1.is_empty());
    let valid = |one: &Value| is_named(one) && ["Eviction", "Withdrawn"].contains(&text(one, "intent"));
    refuse(!all.iter().all(valid), "a requester's name or intent")
}

fn sorted(status: &Value) -> Vec<&Value> {
    let mut all: Vec<&Value> = list(status, "targetResponders").iter().collect();
    all.sort_by(|one, other| compare_turns((name(one), priority(one)), (name(other), priority(other))));
    all
}

fn keeps_members(before: &[&Value], after: &[&Value]) -> Result<(), String> {
    let names = |all: &[&Value]| all.iter().map(|one| name(one).to_owned()).collect::<BTreeSet<_>>();
    refuse(before.len() != after.len() || names(before) != names(after), "must preserve the same keys")?;
    after.iter().try_for_each(|one| {
        let same = before.iter().any(|earlier| name(earlier) == name(one) && earlier["priority"] == one["priority"]);
        refuse(!same, "cannot be modified once set")
    })
}

fn targets(old: &Value, new: &Value, is_final: bool, now: i64) -> Result<(), String> {
    let (before, after) = (sorted(old), sorted(new));
    if !before.is_empty() {
        keeps_members(&before, &after)?;
    }
    refuse(after.len() > MAX_RESPONDERS, "must have at most 11 items")?;
    refuse(!are_unique(list(new, "targetResponders")), "Duplicate value")?;
    let last_active = before.iter().position(|one| one["state"] == "Active");
    let changed = last_active.is_some_and(|at| after[at]["state"] != "Active");
    let all_done = is_final
        || before.last().is_some_and(|one| ["Completed", "Canceled", "Interrupted"].contains(&text(one, "state")));
    for (at, one) in after.iter().enumerate() {
        let over = last_active.is_some_and(|last| at < last) || !before.is_empty() && last_active.is_none() && all_done;
        let expected: &[&str] = if over {
            std::slice::from_ref(&"")
        } else if last_active == Some(at) && (changed || is_final) {
            &["Interrupted", "Canceled", "Completed"]
        } else if last_active == Some(at) {
            &["Active"]
        } else if at == 0 && before.is_empty() || last_active.is_some_and(|last| at == last + 1) && changed {
            if is_final { &["Inactive"] } else { &["Active"] }
        } else {
            &["Inactive"]
        };
        let state = text(one, "state");
        match over {
            true => refuse(before[at]["state"] != one["state"], "final state is immutable")?,
            false => {
                refuse(!expected.contains(&state), &format!("{} is {state}, must be one of {expected:?}", name(one)))?
            }
        }
        responder(one, new, is_final, now)?;
    }
    Ok(())
}

fn responder(one: &Value, new: &Value, is_final: bool, now: i64) -> Result<(), String> {
    let report = list(new, "responders").iter().find(|report| name(report) == name(one));
    let report = report.ok_or("has to be tracked in status.responders first")?;
    let priority = priority(one);
    let range = if name(one) == IMPERATIVE_EVICTOR { 100..=100 } else { 1_000..=MAX_PRIORITY };
    refuse(!range.contains(&priority), "priority")?;
    let (state, start) = (text(one, "state"), time(report, "startTime"));
    let completed = time(report, "completionTime").is_some();
    let sign = time(report, "heartbeatTime").or(start);
    let early = sign.is_some_and(|sign| now < sign + DEADLINE - SKEW);
    refuse(state != "Active" && start.is_some() && !completed && !is_final && early, "must stay Active")?;
    refuse(state == "Completed" && !completed, "cannot become Completed")
}

fn reports(old: &Value, new: &Value, now: i64) -> Result<(), String> {
    let targets = list(new, "targetResponders");
    refuse(targets.len() != list(new, "responders").len(), "must be the same length as status.targetResponders")?;
    for after in list(new, "responders") {
        let target = targets.iter().find(|one| name(one) == name(after)).ok_or("must contain the same keys")?;
        let before = list(old, "responders").iter().find(|one| name(one) == name(after));
        let active = target["state"] == "Active";
        refuse(before.is_some_and(|before| before != after) && !active, "field is immutable")?;
        report(before.unwrap_or(&Value::Null), after, active, now)?;
    }
    Ok(())
}

fn report(before: &Value, after: &Value, active: bool, now: i64) -> Result<(), String> {
    let [start, beat, expected, done] = ["startTime", "heartbeatTime", "expectedCompletionTime", "completionTime"]
        .map(|field| (time(before, field), time(after, field)));
    let near = |at: i64| (at - now).abs() < SKEW;
    refuse(start.0.is_some() && start.0 != start.1, "startTime cannot be modified once set")?;
    refuse(active && start.1.is_none(), "is required for an active responder")?;
    refuse(start.0 != start.1 && !start.1.is_some_and(near), "startTime must be set to the present time")?;
    refuse(beat.0.is_some() && beat.1.is_none(), "is required once set")?;
    if beat.0 != beat.1 {
        refuse(start.1.is_none() || beat.1 < start.1, "heartbeatTime must not be before startTime")?;
        refuse(beat.1 < beat.0, "heartbeatTime cannot be decreased")?;
        refuse(!beat.1.is_some_and(near), "heartbeatTime must be set to the present time")?;
    }
    if let Some(at) = expected.1.filter(|_| expected.0 != expected.1) {
        let range = start.1.is_none_or(|start| at < start) || at > now + MAX_EXPECTED;
        refuse(range, "expectedCompletionTime is out of range")?;
        refuse(at < now - SKEW, "expectedCompletionTime cannot be set to the past time")?;
    }
    refuse(done.0.is_some() && done.0 != done.1, "completionTime cannot be modified once set")?;
    if let Some(at) = done.1 {
        refuse(start.1.is_none_or(|start| at < start), "completionTime must not be before startTime")?;
        refuse(done.0 != done.1 && !near(at), "completionTime must be set to the present time")?;
    }
    refuse(after["message"].as_str().is_some_and(|message| message.chars().count() > 4_000), "message")
}
