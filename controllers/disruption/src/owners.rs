//! The owner of a pod: how many replicas its controller wants. Pure.
//!
//! Source: the `finders()` of `pkg/controller/disruption/disruption.go` (v1.37.2). They look up names and read scales
//! again in each sync; here objects in the cache are looked up by UID, and other scales are requested.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::cache::{Lookup, ScaleAnswer, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Controller, Pod, Scale, Workload, WorkloadKind};

use super::calculate::Owner;

/// An older answer about a scale is not used for the present pods: they may have changed because the scale did.
pub(super) const MAX_AGE: Duration = Duration::from_secs(2);
/// Unless it was requested after the last change of the pods: then it is about the present pods, while the scales of
/// other controllers of the same budget are read one after the other: 300 custom resources at 100 ms each. A budget
/// over more has no status. It stays below the minute after which a budget is calculated again, so that a scaling
/// without a change of pods is noticed.
const MAX_AGE_UNCHANGED: Duration = Duration::from_secs(30);
/// That a kind has no scale changes only with its definition.
const MAX_AGE_NO_SCALE: Duration = Duration::from_secs(60);
/// After a failure a scale is read again this much later.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Kinds are not listed together: a pod may be seen this long before its controller.
const CONTROLLER_GRACE: Duration = Duration::from_secs(1);

/// The result of looking up a pod's controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerLookup {
    /// It is known.
    Owner(Owner),
    /// The read failed; to be repeated then.
    Failed(Owner, Mono),
    /// The scale must be read.
    RequestScale(Arc<Controller>),
    /// To be looked up again then.
    Wait(Mono),
}

/// The owner of `pod`; `changed_at`: when the pods of its budget changed last.
#[must_use]
pub fn find_owner(pod: &Pod, view: &View<'_>, now: Mono, changed_at: Option<Mono>) -> OwnerLookup {
    let Some(controller) = &pod.controller else { return OwnerLookup::Owner(Owner::NoController) };
    let Some(kind) = WorkloadKind::from_controller(controller) else {
        return scale_owner(controller, pod, view, now, changed_at);
    };
    match view.workload(kind, &controller.uid) {
        Lookup::Known(workload) => OwnerLookup::Owner(workload_owner(workload, view)),
        Lookup::Unknown(why) => OwnerLookup::Owner(unreadable_owner(controller, why)),
        Lookup::Absent => absent_owner(pod, controller, view, now, changed_at),
    }
}

/// The owner of the pods of a ReplicaSet is its Deployment: during a rollout the sum of the ReplicaSets is more than
/// the Deployment wants.
fn workload_owner(workload: &Workload, view: &View<'_>) -> Owner {
    let own_scale = || Owner::Scaled(workload.uid.clone(), workload.replicas);
    let Some(above) = workload.controller.as_ref().filter(|_| workload.kind == WorkloadKind::ReplicaSet) else {
        return own_scale();
    };
    if WorkloadKind::from_controller(above) != Some(WorkloadKind::Deployment) {
        return own_scale();
    }
    match view.workload(WorkloadKind::Deployment, &above.uid) {
        Lookup::Known(deployment) => Owner::Scaled(deployment.uid.clone(), deployment.replicas),
        Lookup::Unknown(why) => unreadable_owner(above, why),
        // As KCM, which then reads the scale of the ReplicaSet.
        Lookup::Absent => own_scale(),
    }
}

fn unreadable_owner(controller: &Controller, why: &str) -> Owner {
    Owner::Unknown(format!("{} cannot be read: {why}", display_name(controller)).into())
}

pub(super) fn display_name(controller: &Controller) -> String {
    format!("{}/{}", controller.kind, controller.name)
}

/// The cache does not have the controller: it was deleted, or its watch is behind. A terminating pod does not count
/// anyway (KCM fails its whole budget: kubernetes#130723); a new pod may have been seen before its controller; for
/// any other pod the API server is queried.
fn absent_owner(
    pod: &Pod,
    controller: &Arc<Controller>,
    view: &View<'_>,
    now: Mono,
    changed_at: Option<Mono>,
) -> OwnerLookup {
    if pod.deletion.is_some() {
        OwnerLookup::Owner(deleted_owner(controller))
    } else if now.since(pod.first_seen) < CONTROLLER_GRACE {
        OwnerLookup::Wait(pod.first_seen + CONTROLLER_GRACE)
    } else {
        scale_owner(controller, pod, view, now, changed_at)
    }
}

pub(super) fn deleted_owner(controller: &Controller) -> Owner {
    Owner::Deleted(display_name(controller).into())
}

/// The scale of a controller that the cache does not have, if the answer is recent.
fn scale_owner(
    controller: &Arc<Controller>,
    pod: &Pod,
    view: &View<'_>,
    now: Mono,
    changed_at: Option<Mono>,
) -> OwnerLookup {
    let request = || OwnerLookup::RequestScale(Arc::clone(controller));
    let Some(ScaleAnswer { requested_at, answered_at, scale }) = view.scale(pod) else {
        return request();
    };
    let within = |limit: Duration| now.since(*answered_at) <= limit;
    let fresh =
        if changed_at.is_some_and(|changed_at| changed_at < *requested_at) { MAX_AGE_UNCHANGED } else { MAX_AGE };
    match scale {
        Ok(Scale::Replicas(replicas)) if within(fresh) => {
            OwnerLookup::Owner(Owner::Scaled(controller.uid.clone(), *replicas))
        }
        Ok(Scale::None) if within(MAX_AGE_NO_SCALE) => {
            OwnerLookup::Owner(Owner::Unscaled(display_name(controller).into()))
        }
        Ok(Scale::Absent) if within(fresh) => OwnerLookup::Owner(deleted_owner(controller)),
        Err(why) if within(RETRY_AFTER) => {
            OwnerLookup::Failed(Owner::Unknown(why.clone()), *answered_at + RETRY_AFTER + Duration::from_millis(1))
        }
        Ok(_) | Err(_) => request(),
    }
}
