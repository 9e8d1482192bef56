//! Tables for `decide`: each row is a sentence.

mod answers;
mod detect;
mod drivers;
mod edges;
mod edges_of_gates;
mod gates;
mod history;
mod limits;
mod outlook;
mod places;
mod policy;
mod progress;
mod properties;
mod recover;
mod remediate;
mod shown;
mod stage;
mod storm;
mod supplies;
mod taint;
mod unwell;
mod wiring;

use crate::holds::Decision;
use pod_safety_shared::api::{
    Attempt, DeviceDriver, FencePolicySpec, FenceTrigger, Grade, KindOfEvidence, Level, NodeFenceStatus,
    Phase, PodSafetyRemediationStatus, PolicyMode, Power, Recovery, Sample, SwitchTo, Trigger, Verified,
    When,
};
use pod_safety_shared::authority::{Intent, Reply, Step, Update};
use pod_safety_shared::drive::{HoldReason as _, Mode};
use pod_safety_shared::model::Kind;
use serde_json::{Value, json};
use stage::{Stage, level};

use super::*;

fn config() -> Config {
    Config {
        mode: Mode::Guard,
        our_node: None,
        guards_volumes: false,
        rehearsals: true,
        history: None,
        provider_behind: PROVIDER_BEHIND,
    }
}

fn step(decision: &Decision) -> Option<&Step> {
    let mut steps = decision.intents.iter().filter_map(|intent| match intent {
        Intent::Fence(fencing) => Some(&fencing.step),
        Intent::Remediate(_) | Intent::Update(Update::Forget(_)) => None,
        other => panic!("{other:?}"),
    });
    let first = steps.next();
    assert!(steps.next().is_none(), "one step at a time: {decision:?}");
    first
}

/// What those are answered who ask for a node to be fenced.
fn replies(decision: &Decision) -> Vec<&Reply> {
    let wishes = decision.intents.iter().filter_map(|intent| match intent {
        Intent::Remediate(wish) => Some(&wish.reply),
        _ => None,
    });
    wishes.collect()
}

fn status(step: &Step) -> Option<&NodeFenceStatus> {
    step.target().map(|target| &*target.status)
}

/// What a decision wants, in words: the step, and what is held.
fn words(decision: &Decision) -> Vec<String> {
    let mut words: Vec<String> = step(decision).map(step_words).into_iter().collect();
    words.extend(replies(decision).into_iter().map(|reply| match reply {
        Reply::Keep => "keep".to_owned(),
        Reply::LetGo => "let go".to_owned(),
        Reply::Say(status) => format!("say {}", said(status)),
    }));
    let forgets = |intent: &&Intent| matches!(intent, Intent::Update(Update::Forget(_)));
    words.extend(decision.intents.iter().filter(forgets).map(|_| "forget".to_owned()));
    words.extend(decision.holds.iter().map(|(_, hold)| format!("?{}", hold.reason())));
    words
}

/// Processing and Succeeded, and why.
fn said(status: &PodSafetyRemediationStatus) -> String {
    let word = |kind| status.says(kind).unwrap_or("-");
    format!("{}/{} {}", word("Processing"), word("Succeeded"), status.conditions[0].reason)
}

fn step_words(step: &Step) -> String {
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
