//! Compares the port of the API server's Eviction validation, which the model check of the controller uses, with the API server itself:
//! both must accept and reject the same random status writes.

use std::collections::BTreeSet;

use super::*;

#[path = "../../../../simulator/src/api/kinds/eviction_status.rs"]
mod port;

const RESPONDERS: [(&str, i32); 3] = [("example.com/a", 10_000), ("example.com/b", 5_000), (EVICTOR, 100)];
const STATES: [&str; 5] = ["Active", "Inactive", "Interrupted", "Canceled", "Completed"];
/// Ten years, within which a responder must expect to be done.
const LONGEST: i64 = 10 * 365 * 86_400;
/// Well within or beyond the half minute that the API server allows, the deadline of reports, and the ten years.
const OFFSETS: [i64; 11] = [0, 0, 0, 15, 15, -40, 40, -1_160, -1_180, LONGEST - 60, LONGEST + 60];
/// A responder may lose its turn after 19m30s.
const TURNS: [i64; 2] = [1_160, 1_180];
const WRITES: usize = 500;
/// The writes must break these rules, too, by the words of the port.
const BROKEN: [&str; 11] = [
    "a requester's name or intent",
    "condition status cannot be reverted",
    "Duplicate value",
    "may not be decreased",
    "message",
    "must be greater than or equal to 1",
    "must have at most 11 items",
    "must preserve the same keys",
    "must stay Active",
    "priority",
    "requesters",
];
const NAMESPACE: &str = "differential";

struct Draw(u64);

impl Draw {
    /// A number below `end` (splitmix64).
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(end).unwrap()).unwrap()
    }

    fn once_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// The status that a controller writes first, for these responders in their order.
fn first_status(all: &[(String, i32)]) -> Value {
    let target = |(at, (name, priority)): (usize, &(String, i32))| {
        let state = if at == 0 { "Active" } else { "Inactive" };
        json!({ "name": name, "priority": priority, "state": state })
    };
    let report = |(at, (name, _)): (usize, &(String, i32))| match at {
        0 => json!({ "name": name, "startTime": time(0) }),
        _ => json!({ "name": name }),
    };
    let targets: Value = all.iter().enumerate().map(target).collect();
    let reports: Value = all.iter().enumerate().map(report).collect();
    json!({ "observedGeneration": 1, "targetResponders": targets, "responders": reports })
}

/// The responders by name and priority, the last `count` of them, and more if there are fewer.
fn members(count: usize) -> Vec<(String, i32)> {
    let more = (2_001..).map(|priority| (format!("example.com/x{priority}"), priority));
    let named = RESPONDERS.iter().rev().map(|(name, priority)| ((*name).to_owned(), *priority));
    let mut all: Vec<_> = named.chain(more).take(count).collect();
    all.sort_by_key(|(_, priority)| -priority);
    all
}

pub(super) fn new_request() -> Value {
    first_status(&members(RESPONDERS.len()))
}

fn active(status: &Value) -> Option<String> {
    let mut all = status["targetResponders"].as_array()?.iter();
    Some(all.find(|one| one["state"] == "Active")?["name"].as_str()?.to_owned())
}

/// Sets a field of the entry of this name, if there is one.
fn set(status: &mut Value, list: &str, name: &str, field: &str, value: Value) {
    let mut all = status[list].as_array_mut().into_iter().flatten();
    if let Some(one) = all.find(|one| one["name"] == name) {
        one[field] = value;
    }
}

/// Moves to the next responder, like the controller.
fn advance(draw: &mut Draw, status: &mut Value) {
    let Some(name) = active(status) else { return };
    let inactive = status["targetResponders"].as_array().into_iter().flatten().filter(|one| one["state"] == "Inactive");
    let next = inactive.max_by_key(|one| one["priority"].as_i64());
    let next = next.and_then(|one| one["name"].as_str()).map(str::to_owned);
    let state = json!(draw.one_of(&["Completed", "Interrupted", "Canceled"]));
    set(status, "targetResponders", &name, "state", state);
    if let Some(next) = next {
        set(status, "targetResponders", &next, "state", json!("Active"));
        set(status, "responders", &next, "startTime", json!(time(0)));
    }
}

/// One entry fewer, one of another name, one twice, or one more; sometimes in one list only.
fn change_members(draw: &mut Draw, status: &mut Value, name: &str) {
    let (change, is_partial) = (draw.below(4), draw.once_in(4));
    for list in ["targetResponders", "responders"].into_iter().skip(usize::from(is_partial)) {
        let Some(all) = status[list].as_array_mut() else { continue };
        let Some(at) = all.iter().position(|one| one["name"] == name) else { continue };
        let mut entry = all[at].clone();
        match change {
            0 => drop(all.remove(at)),
            1 => all[at]["name"] = json!("example.com/c"),
            2 => all.push(entry),
            _ => {
                entry["name"] = json!("example.com/c");
                all.push(entry);
            }
        }
    }
}

fn requesters(draw: &mut Draw) -> Value {
    let count = draw.one_of(&[1, 2, 2, 100, 101]);
    let one = |number: usize| {
        let intent = draw.one_of(&["Eviction", "Withdrawn"]);
        json!({ "name": format!("example.com/r{number}"), "intent": intent })
    };
    let mut all: Vec<Value> = (0..count).map(one).collect();
    match draw.below(8) {
        0 => all[0]["name"] = json!("plain"),
        1 => all[0]["intent"] = json!("Other"),
        2 => {
            let twice = all[0].clone();
            all.push(twice);
        }
        _ => {}
    }
    all.into()
}

fn condition(draw: &mut Draw, kind: &str) -> Value {
    let (status, reason) = (draw.one_of(&["True", "False", "Unknown"]), draw.one_of(&["R", "S"]));
    json!({ "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": time(0) })
}

fn vary(draw: &mut Draw, status: &Value) -> Value {
    let mut next = match status["targetResponders"].is_array() {
        true => status.clone(),
        false => first_status(&members(draw.one_of(&[2, 3, 3, 3, 3, 11, 12]))),
    };
    for _ in 0..=draw.below(2) {
        let names = next["targetResponders"].as_array().into_iter().flatten();
        let names: Vec<String> = names.filter_map(|one| one["name"].as_str()).map(str::to_owned).collect();
        let any = names.get(draw.below(names.len().max(1))).cloned().unwrap_or_default();
        // Only the active responder may report.
        let reports = active(&next).filter(|_| !draw.once_in(3)).unwrap_or_else(|| any.clone());
        match draw.below(13) {
            0 => set(&mut next, "targetResponders", &any, "state", json!(draw.one_of(&STATES))),
            1 | 2 => advance(draw, &mut next),
            3 | 4 => {
                let field = draw.one_of(&["startTime", "heartbeatTime", "expectedCompletionTime", "completionTime"]);
                set(&mut next, "responders", &reports, field, json!(time(draw.one_of(&OFFSETS))));
            }
            5 => {
                let name = active(&next).unwrap_or(any);
                set(&mut next, "responders", &name, "completionTime", json!(time(0)));
            }
            6 => {
                let message = draw.one_of(&["m", "é"]).repeat(draw.one_of(&[1, 4_000, 4_001]));
                set(&mut next, "responders", &reports, "message", json!(message));
            }
            7 => {
                let kinds = draw.one_of(&[&["Failed"][..], &["TargetEvicted"][..], &["Failed", "TargetEvicted"][..]]);
                next["conditions"] = kinds.iter().map(|kind| condition(draw, kind)).collect();
            }
            8 => {
                let priority = draw.one_of(&[100, 999, 5_000, 100_000, 100_001]);
                set(&mut next, "targetResponders", &any, "priority", json!(priority));
            }
            9 => next["requesters"] = requesters(draw),
            10 => next["observedGeneration"] = json!(draw.one_of(&[None, Some(0), Some(1), Some(2), Some(3)])),
            11 => next["targetResponders"].as_array_mut().into_iter().for_each(|all| all.reverse()),
            _ => change_members(draw, &mut next, &any),
        }
    }
    next
}

/// Moves the start of the active turn so many seconds into the past, in etcd: the API server accepts no such start.
async fn age_turn(plane: &ControlPlane, object: &Value, seconds: i64) {
    let Some(responder) = active(&object["status"]) else { return };
    move_start(plane, NAMESPACE, object, &responder, Timestamp::now().as_second() - seconds).await;
}

pub(super) async fn ported_validation_agrees_with_the_api_server(plane: &ControlPlane) {
    let tenant = Tenant::new(plane, NAMESPACE).await;
    let mut draw = Draw(1);
    let (mut name, mut number, mut taken) = (String::new(), 0, 0);
    let mut refusals = BTreeSet::new();
    for write in 0..WRITES {
        if name.is_empty() || draw.once_in(12) {
            number += 1;
            name = format!("e{number}");
            tenant.create_eviction(&name, "p", &format!("11111111-2222-4333-9444-{number:0>12}")).await;
        }
        let mut object = tenant.get("evictions", &name).await.unwrap();
        if draw.once_in(6) {
            age_turn(plane, &object, draw.one_of(&TURNS)).await;
            object = tenant.get("evictions", &name).await.unwrap();
        }
        let before = object["status"].clone();
        let next = vary(&mut draw, &before);
        object["status"] = next.clone();
        let path = format!("/apis/lifecycle.k8s.io/v1alpha1/namespaces/{NAMESPACE}/evictions/{name}/status");
        let sent = Timestamp::now().as_second();
        let answer = send(&tenant.api, Method::PUT, &path, "application/json", &object).await;
        let code = match &answer {
            Ok(_) => 200,
            Err(kube::Error::Api(status)) => status.code,
            Err(error) => panic!("{error}"),
        };
        if code == 409 {
            continue;
        }
        taken += usize::from(code == 200);
        // The API server judged in between.
        let ports = [sent, Timestamp::now().as_second()].map(|now| port::validate(&before, &next, now));
        let agrees = ports.iter().any(|port| port.is_ok() == (code == 200));
        assert!(agrees, "{write}: {ports:?}, {answer:?}\n{before}\n{next}");
        refusals.extend(ports.into_iter().filter_map(Result::err));
    }
    assert!(taken > WRITES / 10, "{taken} were taken");
    let unbroken: Vec<&str> = BROKEN.into_iter().filter(|rule| !refusals.contains(*rule)).collect();
    assert!(unbroken.is_empty(), "{unbroken:?} are not broken, but {refusals:#?}");
}
