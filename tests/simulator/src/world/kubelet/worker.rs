//! The worker of a pod while `SyncPod` of the runtime runs.
//!
//! As the kubelet of 1.37.2 does it: `Kubelet.SyncPod` writes the pod's status first, with its `observedGeneration` and with
//! all containers as they were before (`generateAPIPodStatus`, `SetPodStatus`), and then calls `SyncPod` of the runtime with
//! `context.WithoutCancel`. That starts the containers one after the other, and waits for each image and for each hook
//! `postStart`. Meanwhile the containers before it run, the worker reports nothing, and a deletion waits.

use std::pin::pin;
use std::time::Duration;

use futures::future::select;
use serde_json::{Value, json};

use super::{Kubelet, path, sidecar, str_at};
use crate::campaign::Restart;

/// `syncPeriod` of the status manager.
const REPORTS_EACH: Duration = Duration::from_secs(10);

/// The longest that an image is pulled for, in seconds.
const PULLS_WITHIN: u64 = 60;

/// The containers of a pod whose second one is slow to start.
pub(in crate::world) fn with_second() -> Value {
    json!([{ "name": "main", "image": "hollow" }, { "name": "second", "image": "slow" }])
}

pub(super) fn has_second(pod: &Value) -> bool {
    pod.pointer("/spec/containers/1").is_some()
}

/// The state of a container as it is reported.
#[derive(Clone, Copy)]
pub(super) enum ContainerState {
    /// The default of `convertToAPIContainerStatuses`; with init containers the reason is another.
    Waiting(&'static str),
    Running,
    Terminated,
}

impl ContainerState {
    fn report(self, now: &str) -> Value {
        let state = |waiting: Value, running: Value, terminated: Value| json!({ "waiting": waiting, "running": running, "terminated": terminated });
        match self {
            Self::Waiting(reason) => state(json!({ "reason": reason }), Value::Null, Value::Null),
            Self::Running => state(Value::Null, json!({ "startedAt": now }), Value::Null),
            Self::Terminated => state(Value::Null, Value::Null, json!({ "exitCode": 0, "finishedAt": now })),
        }
    }
}

/// The statuses of the two containers.
pub(super) fn statuses(main: ContainerState, second: ContainerState, now: &str) -> Value {
    let status = |name: &str, state: ContainerState| {
        json!({ "name": name, "image": "hollow", "imageID": "hollow", "ready": matches!(state, ContainerState::Running),
            "restartCount": 0, "state": state.report(now) })
    };
    json!([status("main", main), status("second", second)])
}

impl Kubelet {
    /// The status that a kubelet reports before it starts a container of the pod.
    pub(super) async fn report_starting(&self, pod: &Value) {
        if !has_second(pod) {
            return;
        }
        let now = format!("{:.0}", self.env.clock.wall());
        let inits = sidecar::statuses(pod, true, &now);
        let waiting = ContainerState::Waiting(if inits.is_some() { "PodInitializing" } else { "ContainerCreating" });
        let mut status = json!({ "phase": "Pending", "observedGeneration": self.observed(pod), "startTime": now,
            "containerStatuses": statuses(waiting, waiting, &now) });
        if let Some(inits) = inits {
            status["initContainerStatuses"] = inits;
        }
        self.report_status(pod, status).await;
    }

    /// The first container runs, and the worker is busy with the second.
    pub(super) async fn start_second(&self, pod: &Value) {
        if let Some(seconds) = self.world.with.slow_start.filter(|_| has_second(pod)) {
            self.env.sleep(Duration::from_secs(seconds)).await;
            self.probe_busy_worker(pod);
        }
    }

    /// The second container is restarted, and the worker is busy with that. The kubelet reports one that crashed as
    /// terminated. One whose liveness probe failed ends in the same `SyncPod` that restarts it: it was reported as
    /// running.
    pub(super) async fn restart(&self, pod: &Value, why: Restart, seconds: u64) {
        if !has_second(pod) {
            return;
        }
        self.world.checker.probe("a worker was busy with a container that starts again");
        let busy = self.env.sleep(Duration::from_secs(seconds));
        if why == Restart::Crashed {
            let now = format!("{:.0}", self.env.clock.wall());
            let status = json!({ "phase": "Running", "observedGeneration": self.observed(pod),
                "containerStatuses": statuses(ContainerState::Running, ContainerState::Terminated, &now) });
            let told = async {
                // The status manager is another goroutine, and sends again what did not arrive (`syncBatch`).
                while !self.report_status(pod, status.clone()).await {
                    self.env.sleep(REPORTS_EACH).await;
                }
                std::future::pending::<()>().await
            };
            select(pin!(busy), pin!(told)).await;
        } else {
            busy.await;
        }
        self.probe_busy_worker(pod);
    }

    /// Restarts a container that crashed, or whose image was changed (`computePodActions`). `image`: the one with which
    /// it runs. Returns whether it restarted any.
    pub(super) async fn restarts_containers(&self, uid: &str, pod: &Value, image: &mut Option<String>) -> bool {
        let restart = self.world.restarts.lock().remove(uid);
        if let Some((why, seconds)) = restart {
            self.restart(pod, why, seconds).await;
            return true;
        }
        let desired = str_at(pod, "/spec/containers/0/image").to_owned();
        let changed = image.replace(desired.clone()).is_some_and(|runs| runs != desired);
        if changed {
            // As for a failed probe: the same `SyncPod` ends and starts it.
            self.world.checker.probe("a kubelet restarted a container for its new image");
            self.env.sleep(Duration::from_secs(self.draw_number(uid, &desired, PULLS_WITHIN))).await;
            self.probe_busy_worker(pod);
        }
        changed
    }

    /// Counts a deletion that came while the worker was busy.
    fn probe_busy_worker(&self, pod: &Value) {
        let now = self.pod(str_at(pod, "/metadata/uid"));
        if now.is_none_or(|pod| pod.pointer("/metadata/deletionTimestamp").is_some()) {
            self.world.checker.probe("a worker was busy when its pod was deleted");
        }
    }

    /// Whether an API server answered.
    async fn report_status(&self, pod: &Value, status: Value) -> bool {
        let patch = json!({ "metadata": { "uid": str_at(pod, "/metadata/uid") }, "status": status });
        let answer = self.request("PATCH", &format!("{}/status", path(pod)), Some(patch)).await;
        answer.is_some_and(|(code, _)| code < 500)
    }
}
