//! What stands behind a pod: how many its controller wants. Pure.
//!
//! Source: the `finders()` of `pkg/controller/disruption/disruption.go` (v1.37.2).
//! They look up names and ask scales anew in each sync; here what the cache
//! follows is looked up by UID, and what it does not follow is asked for.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::cache::{Lookup, ScaleAnswer, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Controller, Pod, Scale, Workload, WorkloadKind};

use super::calculate::Owner;

/// An answer about a scale that is older says nothing about the pods of now: they
/// may have changed because it did.
pub(super) const FRESH: Duration = Duration::from_secs(2);
/// Unless the question was put after the pods changed last: then it is about the pods of now, while others of the same
/// budget are asked, one after the other: 300 custom resources at 100 ms each. A budget over more has no status. It stays below
/// the minute after which a budget is calculated again, so that a scale without a change of pods is noticed.
const GATHERED: Duration = Duration::from_secs(30);
/// That a kind has no scale changes with its definition only.
const NO_SCALE_FRESH: Duration = Duration::from_secs(60);
/// After a failure a controller is asked again so long later.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Kinds are not listed together: a pod may be seen so long before its controller.
const BEFORE_ITS_CONTROLLER: Duration = Duration::from_secs(1);

/// What is known of a pod's controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// This much.
    Owner(Owner),
    /// It was asked and did not answer; ask again then.
    Failed(Owner, Mono),
    /// It has to be asked.
    Ask(Arc<Controller>),
    /// Look again then.
    Wait(Mono),
}

/// What stands behind `pod`; `touched`: when the pods of its budget changed last.
#[must_use]
pub fn find(pod: &Pod, view: &View<'_>, now: Mono, touched: Option<Mono>) -> Found {
    let Some(controller) = &pod.controller else { return Found::Owner(Owner::Nobody) };
    let Some(kind) = WorkloadKind::of(controller) else {
        return asked(controller, pod, view, now, touched);
    };
    match view.workload(kind, &controller.uid) {
        Lookup::Known(workload) => Found::Owner(scaled(workload, view)),
        Lookup::Unknown(why) => Found::Owner(unreadable(controller, why)),
        Lookup::Absent => absent(pod, controller, view, now, touched),
    }
}

/// A Deployment stands behind the ReplicaSets that it manages: while it rolls, the
/// sum of theirs is more than it wants.
fn scaled(workload: &Workload, view: &View<'_>) -> Owner {
    let itself = || Owner::Scaled(workload.uid.clone(), workload.replicas);
    let Some(above) = workload.controller.as_ref().filter(|_| workload.kind == WorkloadKind::ReplicaSet)
    else {
        return itself();
    };
    if WorkloadKind::of(above) != Some(WorkloadKind::Deployment) {
        return itself();
    }
    match view.workload(WorkloadKind::Deployment, &above.uid) {
        Lookup::Known(deployment) => Owner::Scaled(deployment.uid.clone(), deployment.replicas),
        Lookup::Unknown(why) => unreadable(above, why),
        // As KCM, which then asks the ReplicaSet for its scale.
        Lookup::Absent => itself(),
    }
}

fn unreadable(controller: &Controller, why: &str) -> Owner {
    Owner::Unknown(format!("{} cannot be read: {why}", named(controller)).into())
}

fn named(controller: &Controller) -> String {
    format!("{}/{}", controller.kind, controller.name)
}

/// The cache does not have the controller: it is gone, or its watch is behind. A pod that ends does not count anyway (KCM
/// gives up its whole budget: kubernetes#130723); one that is new may have been seen before its controller; of any other
/// the API server knows.
fn absent(
    pod: &Pod,
    controller: &Arc<Controller>,
    view: &View<'_>,
    now: Mono,
    touched: Option<Mono>,
) -> Found {
    if pod.deletion.is_some() {
        Found::Owner(gone(controller))
    } else if now.since(pod.first_seen) < BEFORE_ITS_CONTROLLER {
        Found::Wait(pod.first_seen + BEFORE_ITS_CONTROLLER)
    } else {
        asked(controller, pod, view, now, touched)
    }
}

fn gone(controller: &Controller) -> Owner {
    Owner::Unscaled(format!("{}, which does not exist", named(controller)).into())
}

/// What the scale of a controller that the cache does not have said, if that is recent.
fn asked(
    controller: &Arc<Controller>,
    pod: &Pod,
    view: &View<'_>,
    now: Mono,
    touched: Option<Mono>,
) -> Found {
    let ask = || Found::Ask(Arc::clone(controller));
    let Some(ScaleAnswer { asked, answered, scale }) = view.scale(pod) else { return ask() };
    let within = |limit: Duration| now.since(*answered) <= limit;
    let fresh = if touched.is_some_and(|touched| touched < *asked) { GATHERED } else { FRESH };
    match scale {
        Ok(Scale::Replicas(replicas)) if within(fresh) => {
            Found::Owner(Owner::Scaled(controller.uid.clone(), *replicas))
        }
        Ok(Scale::None) if within(NO_SCALE_FRESH) => Found::Owner(Owner::Unscaled(named(controller).into())),
        Ok(Scale::Absent) if within(fresh) => Found::Owner(gone(controller)),
        Err(why) if within(ASK_AGAIN) => {
            Found::Failed(Owner::Unknown(why.clone()), *answered + ASK_AGAIN + Duration::from_millis(1))
        }
        Ok(_) | Err(_) => ask(),
    }
}
