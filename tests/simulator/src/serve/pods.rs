//! The STATUS column of `kubectl get pods` (`printPod`). Init containers are left out: simulated pods have none.

use serde_json::Value;

use crate::world::{number_at, str_at};

fn containers(pod: &Value) -> &[Value] {
    pod.pointer("/status/containerStatuses").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// How many containers are ready, of how many.
pub(super) fn ready(pod: &Value) -> String {
    let all = pod.pointer("/spec/containers").and_then(Value::as_array).map_or(0, Vec::len);
    let ready = containers(pod).iter().filter(|one| is_ready(one)).count();
    format!("{ready}/{all}")
}

/// How often its containers were restarted.
pub(super) fn restarts(pod: &Value) -> i64 {
    containers(pod).iter().filter_map(|one| number_at(one, "/restartCount")).sum()
}

fn is_ready(container: &Value) -> bool {
    let is = |pointer: &str| container.pointer(pointer).is_some_and(|value| *value != Value::Bool(false));
    is("/ready") && is("/state/running")
}

/// Its phase, unless a more specific reason exists.
pub(super) fn status(pod: &Value) -> String {
    let phase = str_at(pod, "/status/phase");
    let own = str_at(pod, "/status/reason");
    let mut status = if own.is_empty() { phase.to_owned() } else { own.to_owned() };
    for container in containers(pod).iter().rev() {
        status = container_reason(container).unwrap_or(status);
    }
    if status == "Completed" && containers(pod).iter().any(is_ready) {
        "Running".clone_into(&mut status);
    }
    let deleted = !str_at(pod, "/metadata/deletionTimestamp").is_empty();
    match (deleted, own, phase) {
        (false, ..) | (true, _, "Succeeded" | "Failed") => status,
        (true, "NodeLost", _) => "Unknown".to_owned(),
        (true, ..) => "Terminating".to_owned(),
    }
}

fn container_reason(container: &Value) -> Option<String> {
    let waiting = str_at(container, "/state/waiting/reason");
    if !waiting.is_empty() {
        return Some(waiting.to_owned());
    }
    container.pointer("/state/terminated")?;
    let reason = str_at(container, "/state/terminated/reason");
    if !reason.is_empty() {
        return Some(reason.to_owned());
    }
    let what = |pointer: &str| number_at(container, pointer).unwrap_or(0);
    Some(match what("/state/terminated/signal") {
        0 => format!("ExitCode:{}", what("/state/terminated/exitCode")),
        signal => format!("Signal:{signal}"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_pod_status_text_equals_kubectl() {
        let running = json!({ "phase": "Running",
            "containerStatuses": [{ "ready": true, "state": { "running": {} }, "restartCount": 2 }] });
        let dead = json!({ "phase": "Running",
            "containerStatuses": [{ "ready": false, "state": { "terminated": { "exitCode": 137 } } }] });
        let waiting = json!({ "phase": "Pending",
            "containerStatuses": [{ "ready": false, "state": { "waiting": { "reason": "ContainerCreating" } } }] });
        let gone = "2027-01-01T00:00:00Z";
        for (status_of, deleted, expected, count) in [
            (&running, "", "Running", "1/1"),
            (&running, gone, "Terminating", "1/1"),
            (&dead, "", "ExitCode:137", "0/1"),
            (&waiting, "", "ContainerCreating", "0/1"),
            (&json!({ "phase": "Failed" }), gone, "Failed", "0/1"),
            (&json!({ "phase": "Failed", "reason": "Evicted" }), "", "Evicted", "0/1"),
            (&json!({ "phase": "Running", "reason": "NodeLost" }), gone, "Unknown", "0/1"),
        ] {
            let pod = json!({ "metadata": { "deletionTimestamp": deleted }, "spec": { "containers": [{}] },
                "status": status_of });
            assert_eq!((status(&pod).as_str(), ready(&pod).as_str()), (expected, count), "{pod}");
        }
        assert_eq!(restarts(&json!({ "status": running })), 2);
    }
}
