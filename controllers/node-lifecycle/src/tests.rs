//! Tables and sentences about decisions. KCM is kube-controller-manager's controller.

mod conditions;
mod edges;
mod events;
mod fixture;
mod heartbeat;
mod limits;
mod no_execute;
mod pods;
mod properties;
mod wiring;

use super::zones::{ZoneState, zone_state};
use crate::holds::{Decision, Hold};
use fixture::{Fixture, condition, with};
use pod_safety_shared::authority::{Effect, Intent, LostNodePodUpdate, NodeUpdate, Update};
use pod_safety_shared::cache::ZoneCount;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::{HoldReason as _, Mode};
use pod_safety_shared::model::Kind;
use pod_safety_shared::testing::at;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::*;

const LOST: &[&str] = &["not reporting", "cut off", "+unreachable:NoSchedule"];

fn config() -> Config {
    Config { mode: Mode::Replace, led_since: Some(Mono::default()), ..Config::kcm_defaults() }
}

fn guard() -> Config {
    Config { mode: Mode::Guard, ..config() }
}

/// The update of a node in a decision.
fn update(decision: &Decision) -> Option<&NodeUpdate> {
    decision.intents.first().map(|intent| match intent {
        Intent::Update(Update::Node(update)) => &**update,
        other => panic!("{other:?}"),
    })
}

/// A decision about a node as text.
fn describe(decision: &Decision) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(update) = update(decision) {
        let taint = |sign: char, (key, effect): &(&str, Effect)| {
            let key = key.trim_start_matches("node.kubernetes.io/");
            format!("{sign}{key}:{effect:?}")
        };
        words.extend(update.not_reporting.iter().map(|_| "not reporting".to_owned()));
        words.extend(update.unreachable.map(|cut_off| if cut_off { "cut off" } else { "back" }.to_owned()));
        words.extend(update.remove.iter().map(|one| taint('-', one)));
        words.extend(update.add.iter().map(|one| taint('+', one)));
        words.extend(update.labels.iter().map(|(key, value)| format!("{key}={value}")));
    }
    words.extend(decision.holds.iter().map(|(_, hold)| match hold {
        Hold::LargeOutage { lost, of } => format!("LargeOutage {lost}/{of}"),
        Hold::ZoneDisrupted { not_ready, of, .. } => format!("ZoneDisrupted {not_ready}/{of}"),
        Hold::EvictionQueued { ahead, next, .. } => format!("EvictionQueued {ahead} {}s", next.as_secs()),
        other => other.reason().to_owned(),
    }));
    words
}
