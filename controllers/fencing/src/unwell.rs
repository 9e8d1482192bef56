//! Whether a node that reports is unhealthy by its policy: it shows a condition, or flaps. Pure.
//!
//! This is no evidence of anything: such a node runs, and so do its pods. It is a reason to fence it, because the policy
//! says so, and what follows passes through the same gates, devices and status checks as a node that is lost.

use std::time::Duration;

use pod_safety_shared::api::{Shown, Unhealthy, UnhealthyCondition};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Life, Node, Reported};

/// What a node shows that its policy calls unhealthy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unwell {
    /// Nothing.
    Well,
    /// Something, not yet for long enough: it counts from this moment.
    Doubtful(Mono),
    /// Enough: why, and the condition; `None`: it flaps.
    Sick(String, Option<Shown>),
}

fn shown<'a>(life: &'a Life, wanted: &UnhealthyCondition) -> Option<&'a Reported> {
    life.conditions.iter().find(|one| *one.kind == *wanted.r#type && wanted.status.is(one.says))
}

fn names(wanted: &UnhealthyCondition) -> Shown {
    Shown { r#type: wanted.r#type.clone(), status: wanted.status }
}

/// How many changes of Ready count, if those are so many that the node flaps.
fn flaps(life: &Life, now: Mono, measures: &Unhealthy) -> Option<usize> {
    let flapping = measures.flapping?;
    let within = Duration::from_secs(flapping.within_seconds.into());
    let changes = life.ready_changes.iter().filter(|at| now.since(**at) < within).count();
    (changes >= usize::try_from(flapping.changes).unwrap_or(usize::MAX)).then_some(changes)
}

/// How unwell a node is by the measures of a policy.
pub(super) fn unwell(node: &Node, now: Mono, measures: &Unhealthy) -> Unwell {
    let Some(life) = &node.life else { return Unwell::Well };
    let mut next = None;
    for wanted in &measures.conditions {
        let Some(seen) = shown(life, wanted).map(|one| one.seen) else { continue };
        let due = seen + Duration::from_secs(wanted.seconds.into());
        if due <= now {
            let (kind, status, since) = (&wanted.r#type, wanted.status, now.since(seen).as_secs());
            let why = format!(
                "it has reported {kind}={status:?} for {since} s (unhealthy.conditions: {} s)",
                wanted.seconds
            );
            return Unwell::Sick(why, Some(names(wanted)));
        }
        next = next.into_iter().chain([due]).min();
    }
    if let (Some(changes), Some(flapping)) = (flaps(life, now, measures), measures.flapping) {
        let why = format!(
            "its condition Ready changed {changes} times within {} s (unhealthy.flapping.changes: {})",
            flapping.within_seconds, flapping.changes
        );
        return Unwell::Sick(why, None);
    }
    next.map_or(Unwell::Well, Unwell::Doubtful)
}

/// Whether it shows anything of that now, for however short.
pub(super) fn shows_any(node: &Node, now: Mono, measures: &Unhealthy) -> bool {
    unwell(node, now, measures) != Unwell::Well
}

/// Whether it still shows that for which it is fenced, and its policy still names that.
pub(super) fn still_shows(node: &Node, trigger: Option<&Shown>, now: Mono, measures: &Unhealthy) -> bool {
    let Some(life) = &node.life else { return true };
    match trigger {
        Some(trigger) => {
            let of_it = |wanted: &&UnhealthyCondition| names(wanted) == *trigger;
            measures.conditions.iter().filter(of_it).any(|wanted| shown(life, wanted).is_some())
        }
        None => flaps(life, now, measures).is_some(),
    }
}
