//! Tables for `decide`: each row is a sentence.

mod concurrency;
mod detect;
mod drivers;
mod edges;
mod edges_of_gates;
mod fixture;
mod gate_records;
mod gates;
mod history;
mod limits;
mod outlook;
mod policy;
mod progress;
mod properties;
mod recover;
mod remediate;
mod remediation_replies;
mod storm;
mod supplies;
mod taint;
mod unhealthy;
mod wiring;

use crate::holds::Decision;
use crate::holds::Hold;
use fixture::{Fixture, level};
use pod_safety_shared::api::{
    Attempt, DesiredPower, DeviceDriver, FenceEvidenceKind, FencePolicySpec, FenceTrigger, Grade, Level,
    NodeFenceStatus, Phase, PodSafetyRemediationStatus, PolicyMode, Power, Recovery, Sample, Trigger, Verified, When,
};
use pod_safety_shared::api::{Drain, REMEDIATION_FINALIZER, TIMED_OUT_ANNOTATION};
use pod_safety_shared::authority::incident_name;
use pod_safety_shared::authority::{Intent, RemediationUpdate, Step, Update};
use pod_safety_shared::controller_loop::{HoldReason as _, Mode};
use pod_safety_shared::model::Kind;
use pod_safety_shared::model::Uid;
use pod_safety_shared::testing::at;
use pod_safety_shared::testing::objects::{NEXT_BOOT, Obj, START_SECONDS, named, timestamp};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

use super::*;

fn config() -> Config {
    Config {
        mode: Mode::Guard,
        own_node: None,
        guards_volumes: false,
        include_dry_runs: true,
        history: None,
        provider_lag: PROVIDER_LAG,
    }
}

fn step(decision: &Decision) -> Option<&Step> {
    let mut steps = decision.intents.iter().filter_map(|intent| match intent {
        Intent::Fence(fencing) => Some(&fencing.step),
        Intent::Remediate(_) | Intent::Update(Update::DeleteFinished(_)) => None,
        other => panic!("{other:?}"),
    });
    let first = steps.next();
    assert!(steps.next().is_none(), "one step at a time: {decision:?}");
    first
}

/// The updates of remediations that a decision contains.
fn replies(decision: &Decision) -> Vec<&RemediationUpdate> {
    let wishes = decision.intents.iter().filter_map(|intent| match intent {
        Intent::Remediate(wish) => Some(&wish.update),
        _ => None,
    });
    wishes.collect()
}

fn status(step: &Step) -> Option<&NodeFenceStatus> {
    step.target().map(|target| &*target.status)
}

/// A decision as text: the step, and the holds.
fn describe(decision: &Decision) -> Vec<String> {
    let mut words: Vec<String> = step(decision).map(describe_step).into_iter().collect();
    words.extend(replies(decision).into_iter().map(|reply| match reply {
        RemediationUpdate::AddFinalizer => "keep".to_owned(),
        RemediationUpdate::RemoveFinalizer => "let go".to_owned(),
        RemediationUpdate::WriteStatus(status) => format!("say {}", condition_summary(status)),
    }));
    let forgets = |intent: &&Intent| matches!(intent, Intent::Update(Update::DeleteFinished(_)));
    words.extend(decision.intents.iter().filter(forgets).map(|_| "forget".to_owned()));
    words.extend(decision.holds.iter().map(|(_, hold)| format!("?{}", hold.reason())));
    words
}

/// The statuses of Processing and Succeeded, and the reason.
fn condition_summary(status: &PodSafetyRemediationStatus) -> String {
    let word = |kind| status.condition_status(kind).unwrap_or("-");
    format!("{}/{} {}", word("Processing"), word("Succeeded"), status.conditions[0].reason)
}

fn describe_step(step: &Step) -> String {
    match step {
        Step::Open(spec) => format!("open by {}{}", spec.policy, if spec.dry_run { ", dry" } else { "" }),
        Step::Write(target) => format!("write {}", target.status.phase.name()),
        Step::Attempt(target) => {
            let last = target.status.attempts.last().unwrap();
            let devices: Vec<_> = last.devices.iter().map(|device| device.name.as_str()).collect();
            format!("{} {} by {}", last.act, last.id, devices.join("+"))
        }
        Step::Drain(_, pods) => {
            let pods: Vec<_> = pods.iter().map(|pod| &*pod.name).collect();
            format!("drain {}", pods.join("+"))
        }
        Step::Look(_)
        | Step::Prove(_)
        | Step::ProveStorage(_)
        | Step::Taint(_)
        | Step::Untaint(_)
        | Step::Withdraw(_)
        | Step::Contradict(_) => step.name().to_owned(),
    }
}
