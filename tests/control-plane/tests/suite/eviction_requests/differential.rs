//! Compares the port of the API server's Eviction validation, which the model check of the controller uses, with the API server itself:
//! both must accept and reject the same random status writes.

use super::*;

#[path = "../../../../simulator/src/api/kinds/eviction_status.rs"]
mod port;

const RESPONDERS: [(&str, i32); 3] = [("example.com/a", 10_000), ("example.com/b", 5_000), (EVICTOR, 100)];
const STATES: [&str; 5] = ["Active", "Inactive", "Interrupted", "Canceled", "Completed"];
/// Well within or beyond the half minute that the API server allows.
const OFFSETS: [i64; 4] = [0, 15, -40, 40];
const WRITES: usize = 400;

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

fn time(offset: i64) -> String {
    let at = Timestamp::from_second(Timestamp::now().as_second() + offset).unwrap();
    format!("{at:.0}")
}

fn new_request() -> Value {
    let state = |at: usize| if at == 0 { "Active" } else { "Inactive" };
    let targets: Value = RESPONDERS
        .iter()
        .enumerate()
        .map(|(at, (name, priority))| json!({ "name": name, "priority": priority, "state": state(at) }))
        .collect();
    let reports: Value = RESPONDERS
        .iter()
        .enumerate()
        .map(
            |(at, (name, _))| {
                if at == 0 { json!({ "name": name, "startTime": time(0) }) } else { json!({ "name": name }) }
            },
        )
        .collect();
    json!({ "observedGeneration": 1, "targetResponders": targets, "responders": reports })
}

/// Moves to the next responder, like the controller.
fn advanced(draw: &mut Draw, status: &mut Value) {
    let all = status["targetResponders"].as_array().unwrap();
    let Some(at) = all.iter().position(|one| one["state"] == "Active") else { return };
    status["targetResponders"][at]["state"] = json!(draw.one_of(&["Completed", "Interrupted", "Canceled"]));
    if at + 1 < RESPONDERS.len() {
        status["targetResponders"][at + 1]["state"] = json!("Active");
        status["responders"][at + 1]["startTime"] = json!(time(0));
    }
}

fn vary(draw: &mut Draw, status: &Value) -> Value {
    let mut next = if status["targetResponders"].is_array() { status.clone() } else { new_request() };
    for _ in 0..=draw.below(2) {
        let at = draw.below(RESPONDERS.len());
        match draw.below(8) {
            0 => next["targetResponders"][at]["state"] = json!(draw.one_of(&STATES)),
            1 | 2 => advanced(draw, &mut next),
            3 => {
                let field = draw.one_of(&["startTime", "heartbeatTime", "expectedCompletionTime", "completionTime"]);
                next["responders"][at][field] = json!(time(draw.one_of(&OFFSETS)));
            }
            4 => {
                let active =
                    next["targetResponders"].as_array().unwrap().iter().position(|one| one["state"] == "Active");
                next["responders"][active.unwrap_or(0)]["completionTime"] = json!(time(0));
            }
            5 => next["responders"][at]["message"] = json!("m".repeat(draw.one_of(&[1, 4_000, 4_001]))),
            6 => {
                let status = draw.one_of(&["True", "False"]);
                let reason = draw.one_of(&["R", "S"]);
                next["conditions"] = json!([{ "type": draw.one_of(&["Failed", "TargetEvicted"]), "status": status, "reason": reason, "message": "", "lastTransitionTime": time(0) }]);
            }
            _ => next["targetResponders"][at]["priority"] = json!(draw.one_of(&[100, 999, 5_000])),
        }
    }
    next
}

pub(super) async fn ported_validation_agrees_with_the_api_server(plane: &ControlPlane) {
    let tenant = Tenant::new(plane, "differential").await;
    let mut draw = Draw(1);
    let (mut name, mut number, mut taken) = (String::new(), 0, 0);
    for write in 0..WRITES {
        if name.is_empty() || draw.once_in(12) {
            number += 1;
            name = format!("e{number}");
            let target = json!({ "pod": { "name": "p", "uid": format!("11111111-2222-4333-9444-{number:0>12}") } });
            let object = json!({ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "Eviction", "metadata": { "name": name }, "spec": { "target": target } });
            tenant.create("evictions", &object).await;
        }
        let mut object = tenant.get("evictions", &name).await.unwrap();
        let before = object["status"].clone();
        let next = vary(&mut draw, &before);
        object["status"] = next.clone();
        let path = format!("/apis/lifecycle.k8s.io/v1alpha1/namespaces/differential/evictions/{name}/status");
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
        let port = port::validate(&before, &next, Timestamp::now().as_second());
        assert_eq!(port.is_ok(), code == 200, "{write}: {port:?}, {answer:?}\n{before}\n{next}");
    }
    assert!(taken > WRITES / 10, "{taken} were taken");
}
