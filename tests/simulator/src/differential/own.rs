//! Objects of pod-safety's own kinds: mostly valid, and now and then against their schema or one of its rules.

use serde_json::{Value, json};

use crate::chance::Draws;

/// pod-safety's own kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Own {
    Device,
    Policy,
    Fence,
    Evidence,
    Remediation,
}

/// A value of the wrong type: no string where a string is expected, or the other way round.
fn nonsense(draws: &mut Draws) -> Value {
    draws.choose(&[json!(7), json!("seven"), json!([]), json!({ "a": 1 }), json!(true)]).cloned().unwrap_or_default()
}

/// One of `usual`; seldom one of `odd`.
fn choose_value(draws: &mut Draws, usual: &[&'static str], odd: &[&'static str]) -> Value {
    let from = if draws.percent(85) { usual } else { odd };
    json!(draws.choose(from).copied())
}

impl Own {
    pub(super) const ALL: [Self; 5] = [Self::Device, Self::Policy, Self::Fence, Self::Evidence, Self::Remediation];

    pub(super) const fn plural(self) -> &'static str {
        match self {
            Self::Device => "fencedevices",
            Self::Policy => "fencepolicies",
            Self::Fence => "nodefences",
            Self::Evidence => "fenceevidences",
            Self::Remediation => "podsafetyremediations",
        }
    }

    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Device => "FenceDevice",
            Self::Policy => "FencePolicy",
            Self::Fence => "NodeFence",
            Self::Evidence => "FenceEvidence",
            Self::Remediation => "PodSafetyRemediation",
        }
    }

    pub(super) const fn namespaced(self) -> bool {
        matches!(self, Self::Device | Self::Remediation)
    }

    pub(super) fn body(self, node: &str, draws: &mut Draws) -> Value {
        let mut spec = match self {
            Self::Device => device(draws),
            Self::Policy => policy(draws),
            Self::Fence => fence(node, draws),
            Self::Evidence => evidence(node, draws),
            Self::Remediation => json!({}),
        };
        // An unknown field.
        if draws.percent(20) {
            spec["unknown"] = json!({ "a": 1 });
        }
        if draws.percent(3) {
            spec = nonsense(draws);
        }
        let mut body = json!({ "spec": spec, "status": { "phase": "Ignored" } });
        if draws.percent(3) {
            body["spec"] = Value::Null;
        }
        if draws.percent(10) {
            body["nothing"] = json!({ "metadata": null });
        }
        body
    }

    pub(super) fn status(self, draws: &mut Draws) -> Value {
        let mut condition = json!({ "type": choose_value(draws, &["Ready", "Trusted"], &[""]), "status": "True", "reason": "R",
            "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z", "unknown": 1 });
        match draws.below(20) {
            0 => condition["reason"] = Value::Null,
            1 => condition["message"] = nonsense(draws),
            _ => {}
        }
        let conditions = if draws.percent(5) { json!([condition, condition]) } else { json!([condition]) };
        match self {
            Self::Device => {
                let target = json!({ "node": "n", "power": "On", "clients": null, "unknown": [] });
                let targets = if draws.percent(5) { nonsense(draws) } else { json!([target, {}]) };
                json!({ "observedGeneration": 1 + draws.below(2), "conditions": conditions, "targets": targets,
                    "tested": draws.choose(&[json!("a"), Value::Null, json!(1)]).cloned() })
            }
            Self::Policy => {
                json!({ "observedGeneration": 1, "nodes": draws.below(3), "conditions": conditions, "more": 1 })
            }
            Self::Fence => json!({
                "phase": choose_value(draws, &["Pending", "Fencing", "Fenced"], &["Elsewhere", ""]),
                "level": string_or_number(draws), "tainted": draws.percent(50), "message": "m", "evidence": null,
                "gates": [{ "name": "Paused", "holds": false }], "conditions": conditions,
                "attempts": [{ "id": draws.below(3), "act": "off", "outcome": null,
                    "devices": [{ "namespace": "n", "name": draws.choose(&["d", "d", "d", ""]).copied() }] }],
            }),
            Self::Evidence => {
                let reason = draws.choose(&["it lives", "another word"]).copied();
                draws
                    .choose(&[
                        json!({ "invalidated": { "at": "2026-01-01T00:00:00Z", "reason": reason } }),
                        json!({ "invalidated": { "at": "2026-01-01T00:00:00Z" } }),
                        json!({ "invalidated": null }),
                        json!({}),
                    ])
                    .cloned()
                    .unwrap_or_default()
            }
            Self::Remediation => json!({ "conditions": conditions, "fence": "f" }),
        }
    }

    pub(super) fn spec_change(self, draws: &mut Draws) -> Value {
        let changes = match self {
            Self::Device => vec![
                json!({ "agent": "fence_dummy" }),
                json!({ "agent": null }),
                json!({ "driver": "Redfish" }),
                json!({ "driver": "Redfish", "agent": null }),
                json!({ "parameters": { "ip": "b", "plug": null } }),
                json!({ "parameters": { "method": "cycle" } }),
                json!({ "timeouts": { "powerOff": "90s" } }),
                json!({ "timeouts": null }),
                json!({ "driver": "WatchdogLease", "agent": null, "parameters": null, "watchdogLease": watchdog_lease(draws) }),
                json!({ "watchdogLease": { "pauseSeconds": 0 } }),
                json!({ "watchdogLease": null }),
                json!({ "monitorSeconds": 86_401 }),
                json!({ "nodeSelector": { "matchLabels": { "rack": "8" } } }),
            ],
            Self::Policy => vec![
                json!({ "when": "Always" }),
                json!({ "when": "Sometimes" }),
                json!({ "levels": [] }),
                json!({ "levels": null }),
                json!({ "brakes": { "maxConcurrent": 2 } }),
                json!({ "brakes": { "maxConcurrent": 0 } }),
                json!({ "paused": "for now" }),
                json!({ "paused": "" }),
                json!({ "rounds": null }),
            ],
            Self::Fence => vec![
                json!({ "cancelled": true }),
                json!({ "cancelled": false }),
                json!({ "policy": "another" }),
                json!({ "node": { "bootID": "another" } }),
                json!({ "trigger": { "by": "another" } }),
                json!({ "dryRun": true }),
            ],
            Self::Evidence => vec![
                json!({ "by": "another" }),
                json!({ "reason": "another" }),
                json!({ "validSeconds": 120 }),
                json!({ "unknown": 1 }),
                json!({ "samples": [] }),
            ],
            Self::Remediation => vec![json!({ "unknown": 1 }), json!({})],
        };
        draws.choose(&changes).cloned().unwrap_or_default()
    }
}

fn string_or_number(draws: &mut Draws) -> Value {
    draws.choose(&[json!(0), json!(1), json!(-1), json!("one")]).cloned().unwrap_or_default()
}

fn watchdog_lease(draws: &mut Draws) -> Value {
    let drilled = json!([{ "identity": "iTCO_wdt", "kernel": "6.1.0", "firmware": draws.below(2) }]);
    match draws.below(14) {
        0 => json!({ "classes": ["Virtual"] }),
        1 => json!({ "classes": ["Virtual"], "pauseSeconds": 0 }),
        2 => json!({ "classes": ["Virtual", "Hardware"], "pauseSeconds": 30 }),
        3 => json!({ "classes": [] }),
        4 => json!({ "classes": ["Hardware", "Software", "Virtual", "Hardware"], "pauseSeconds": 1 }),
        5 => json!({ "classes": ["Cloud"] }),
        6 => json!({ "classes": null, "tickSeconds": draws.below(2) }),
        7 => json!({ "driftPpm": 999 + draws.below(2) }),
        8 => json!({ "resetSeconds": 3_600 + draws.below(2), "pauseSeconds": nonsense(draws) }),
        9 => json!({ "drilled": [{ "identity": "iTCO_wdt" }] }),
        10 => json!({ "drilled": [{ "identity": "", "kernel": "6.1.0", "firmware": -1 }] }),
        11 => json!({}),
        12 => Value::Null,
        _ => json!({ "classes": ["Software"], "drilled": drilled, "more": 1 }),
    }
}

fn device(draws: &mut Draws) -> Value {
    let drivers = ["Agent", "Agent", "Redfish", "Manual", "WatchdogLease"];
    let mut spec = json!({ "driver": choose_value(draws, &drivers, &["External", "NetworkFence", "Ssh"]) });
    if spec["driver"] == "WatchdogLease" || draws.percent(5) {
        spec["watchdogLease"] = watchdog_lease(draws);
    }
    if spec["driver"] == "Agent" || draws.percent(5) {
        spec["agent"] = choose_value(draws, &["fence_ipmilan", "fence_dummy"], &["ipmilan", "fence_", ""]);
    }
    if draws.percent(10) {
        spec["agent"] = Value::Null;
    }
    if !["Manual", "WatchdogLease"].iter().any(|driver| spec["driver"] == *driver) || draws.percent(10) {
        spec["parameters"] = json!({ "ip": "a" });
    }
    match draws.below(14) {
        0 => spec["parameters"] = json!({ "ip": "a", "action": "reboot" }),
        1 => spec["parameters"] = json!({ "ip": null }),
        2 => spec["timeouts"] = json!({ "powerOff": format!("{}s", draws.below(2)), "status": null }),
        3 => spec["monitorSeconds"] = json!(80_000 + 5_000 * draws.below(3)),
        4 => spec["nodeSelector"] = Value::Null,
        5 => {
            let operator = choose_value(draws, &["In", "Exists"], &["Like"]);
            spec["nodeSelector"] =
                json!({ "matchExpressions": [{ "key": "k", "operator": operator }, { "key": "k" }] });
        }
        6 => spec["secretParameters"] = json!([{ "parameter": "password", "secret": "s", "key": "k", "more": 1 }]),
        7 => spec["secretParameters"] = json!([{ "parameter": "password" }]),
        8 => spec["external"] = json!({ "templateRef": { "apiVersion": "g/v1", "kind": "ATemplate", "name": "t" } }),
        9 => spec["external"] = json!({ "templateRef": { "apiVersion": "v1", "kind": "A", "name": "" } }),
        10 => spec["networkFence"] = json!({ "className": "c", "namespace": "d" }),
        11 => spec["nodeParameters"] = json!({ "n": { "ip": "b" }, "m": {} }),
        12 => spec["identityCheck"] = choose_value(draws, &["Required"], &["Never"]),
        _ => drop(spec.as_object_mut().map(|fields| fields.remove("parameters"))),
    }
    spec
}

fn policy(draws: &mut Draws) -> Value {
    let device = json!({ "namespace": "n", "name": draws.choose(&["d", "d", "d", ""]).copied(), "more": 1 });
    let mut spec = json!({ "levels": [{ "name": "power", "devices": [device] }] });
    match draws.below(16) {
        0 => spec["levels"] = json!([]),
        1 => spec["levels"] = json!((0..10).map(|_| spec["levels"][0].clone()).collect::<Vec<_>>()),
        2 => spec["levels"][0]["devices"] = json!([]),
        3 => spec["levels"][0]["attempts"] = json!(draws.below(12)),
        4 => spec["levels"][0]["name"] = json!("x".repeat(63 + draws.below(2) as usize)),
        5 => spec["brakes"] = json!({ "maxUnhealthyPercent": 100 * draws.below(3) }),
        6 => spec["brakes"] = json!({ "controlPlane": choose_value(draws, &["Never"], &["Always"]) }),
        7 => {
            spec["unhealthy"] = json!({ "notReadySeconds": draws.choose(&[json!(null), json!(5), json!(50)]).cloned() })
        }
        8 => spec["mode"] = choose_value(draws, &["DryRun"], &["dryrun"]),
        9 => spec["priority"] = json!(draws.choose(&[-5, 5]).copied()),
        10 => spec["paused"] = json!(draws.choose(&["", "because"]).copied()),
        11 => spec["recovery"] = nonsense(draws),
        12 => spec["unhealthy"] = nonsense(draws),
        13 => drop(spec.as_object_mut().map(|fields| fields.remove("levels"))),
        _ => {}
    }
    spec
}

fn incarnation(node: &str, draws: &mut Draws) -> Value {
    let mut life = json!({ "name": node, "uid": "u", "bootID": "b" });
    match draws.below(16) {
        0 => life["bootID"] = json!(""),
        1 => life["uid"] = Value::Null,
        2 => life["uid"] = json!("u".repeat(65)),
        _ => {}
    }
    life
}

fn fence(node: &str, draws: &mut Draws) -> Value {
    let mut spec = json!({ "node": incarnation(node, draws), "policy": "p",
        "trigger": { "kind": choose_value(draws, &["Detected", "Person"], &["Chance"]), "reason": "r" } });
    match draws.below(10) {
        0 => spec["cancelled"] = json!(true),
        1 => spec["trigger"]["by"] = Value::Null,
        2 => spec["dryRun"] = Value::Null,
        3 => spec["policy"] = Value::Null,
        4 => spec["dryRun"] = nonsense(draws),
        _ => {}
    }
    spec
}

fn evidence(node: &str, draws: &mut Draws) -> Value {
    let mut spec = json!({ "node": incarnation(node, draws), "by": "us",
        "kind": choose_value(draws, &["PowerOff", "StorageFenced", "Asserted"], &["Guessed"]) });
    let is_found = spec["kind"] == "PowerOff" || spec["kind"] == "StorageFenced";
    if is_found != draws.percent(8) {
        spec["fence"] = "f".into();
    }
    if (spec["kind"] == "StorageFenced") != draws.percent(8) {
        spec["storage"] = match draws.below(8) {
            0 => json!([]),
            1 => json!([{ "driver": "d" }]),
            _ => json!([{ "driver": "d", "className": "c" }]),
        };
    }
    if (spec["kind"] == "Asserted") != draws.percent(8) {
        spec["reason"] = "r".into();
    }
    match draws.below(10) {
        0 => spec["validSeconds"] = json!(600),
        1 => spec["validSeconds"] = json!(5),
        2 => spec["validSeconds"] = Value::Null,
        3 => spec["samples"] = json!([{ "device": { "namespace": "n", "name": "d" }, "power": "Off", "driver": null }]),
        4 => spec["samples"] = json!([{ "device": { "namespace": "n" }, "driver": "Ssh" }]),
        5 => spec["fence"] = Value::Null,
        6 => spec["reason"] = Value::Null,
        _ => {}
    }
    spec
}
