//! Whether a kubelet's worker for a pod may be busy, by the pod's last report.
//!
//! A kubelet has one worker for each pod (`pkg/kubelet/pod_workers.go`), and only that worker reports on the pod.
//! While it starts or changes a container it reports nothing, and a deletion does not interrupt it: `SyncPod` of the
//! runtime runs with `context.WithoutCancel` (`pkg/kubelet/kubelet.go`, `Kubelet.SyncPod`). Neither the pull of an
//! image nor a hook `postStart` has a timeout. So missing reports of such a worker do not show that its kubelet is
//! gone.

use crate::wire::{ContainerSpec, ContainerStatus, PodSpec, PodStatus};

/// Conditions by which a kubelet reports that the resources of a running pod are being changed, or wait to be
/// (KEP-1287).
const RESIZE_CONDITIONS: [&str; 2] = ["PodResizeInProgress", "PodResizePending"];

/// Whether the pod's worker may be busy, by its last report. The worker of a pod without container statuses is not
/// busy: a worker writes them before it starts anything (`Kubelet.SyncPod`, `SetPodStatus`). `ahead`: the number of
/// generations that the kubelet has not observed, without the deletion; below zero: it has observed the deletion, so
/// its worker terminates the pod.
pub(super) fn may_be_busy(spec: &PodSpec, status: &PodStatus, ahead: i64) -> bool {
    let reports = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    if ahead < 0 || reports.iter().all(|reports| reports.is_empty()) {
        return false;
    }
    let [main, init, debug] = reports;
    let own_policy = |container: &ContainerSpec| container.restart_policy.is_some();
    let never = spec.restart_policy.as_deref() == Some("Never") && !spec.containers.iter().any(own_policy);
    let sidecar = |container: &&ContainerSpec| container.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().filter(sidecar).count();
    let resized = status.conditions.iter().any(|one| {
        one.status.as_deref() == Some("True")
            && one.r#type.as_deref().is_some_and(|name| RESIZE_CONDITIONS.contains(&name))
    });
    let main_settled = main.iter().all(|one| is_running(one) || never && has_terminated(one));
    let others_settled = init.iter().chain(debug).all(|one| is_running(one) || has_terminated(one));
    let unreported = main.len() < spec.containers.len()
        || debug.len() < spec.ephemeral_containers.len()
        || init.iter().filter(|one| is_running(one)).count() < sidecars;
    resized || ahead > 0 || unreported || !(main_settled && others_settled)
}

/// Whether the container runs, by this status.
pub(super) fn is_running(one: &ContainerStatus) -> bool {
    one.state.as_ref().is_some_and(|state| state.running.is_some())
}

pub(super) fn has_terminated(one: &ContainerStatus) -> bool {
    one.state.as_ref().is_some_and(|state| state.terminated.is_some())
}
