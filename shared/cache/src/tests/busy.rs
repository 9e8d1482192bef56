//! Whether a kubelet's worker may be busy, by its last report.

use super::*;

/// A description, whether the worker may be busy, `spec` and `status`.
const REPORTS: [(&str, bool, &str, &str); 20] = [
    ("nothing", false, r#"{"containers":[{}]}"#, "{}"),
    ("all run", false, r#"{"containers":[{}]}"#, r#"{"containerStatuses":[$runs]}"#),
    ("one is created", true, "{}", r#"{"containerStatuses":[$runs,$waits]}"#),
    ("one has no state", true, "{}", r#"{"containerStatuses":[$runs,{}]}"#),
    ("one is missing", true, r#"{"containers":[{},{}]}"#, r#"{"containerStatuses":[$runs]}"#),
    ("one restarts", true, r#"{"restartPolicy":"Always"}"#, r#"{"containerStatuses":[$runs,$ended]}"#),
    ("one ended, without a policy", true, "{}", r#"{"containerStatuses":[$runs,$ended]}"#),
    ("one ended or failed", true, r#"{"restartPolicy":"OnFailure"}"#, r#"{"containerStatuses":[$runs,$ended]}"#),
    ("one never restarts", false, r#"{"restartPolicy":"Never"}"#, r#"{"containerStatuses":[$runs,$ended]}"#),
    (
        "one restarts by its own policy",
        true,
        r#"{"restartPolicy":"Never","containers":[{},{$retried}]}"#,
        r#"{"containerStatuses":[$runs,$ended]}"#,
    ),
    ("an init container ended", false, r#"{"initContainers":[{}]}"#, r#"{$init:[$ended],$main}"#),
    ("an init container waits", true, r#"{"initContainers":[{}]}"#, r#"{$init:[$waits]}"#),
    ("a sidecar runs", false, r#"{$sidecar}"#, r#"{$init:[$ended,$runs],$main}"#),
    ("a sidecar restarts", true, r#"{$sidecar}"#, r#"{$init:[$ended,$ended],$main}"#),
    (
        "a debug container ended",
        false,
        r#"{"ephemeralContainers":[{}]}"#,
        r#"{"ephemeralContainerStatuses":[$ended],$main}"#,
    ),
    ("a debug container was added", true, r#"{"ephemeralContainers":[{}]}"#, r#"{"containerStatuses":[$runs]}"#),
    ("a resize", true, "{}", r#"{$main,"conditions":[{$resize,"status":"True"}]}"#),
    ("a resize that is over", false, "{}", r#"{$main,"conditions":[{$resize,"status":"False"}]}"#),
    ("an earlier generation", true, "{}", r#"{"containerStatuses":[$runs],"observedGeneration":2}"#),
    ("this generation", false, "{}", r#"{"containerStatuses":[$runs],"observedGeneration":3}"#),
];

fn read(text: &str) -> Value {
    let text = text.replace("$sidecar", r#""initContainers":[{},{"restartPolicy":"Always"}]"#);
    let text = text
        .replace("$retried", r#""restartPolicy":"OnFailure""#)
        .replace("$resize", r#""type":"PodResizeInProgress""#);
    let text = text.replace("$init", r#""initContainerStatuses""#).replace("$main", r#""containerStatuses":[$runs]"#);
    let text = text.replace("$runs", r#"{"state":{"running":{}}}"#);
    let text = text.replace("$ended", r#"{"state":{"terminated":{"exitCode":0}}}"#);
    serde_json::from_str(&text.replace("$waits", r#"{"state":{"waiting":{"reason":"ContainerCreating"}}}"#)).unwrap()
}

#[test]
fn a_worker_may_be_busy_if_its_last_report_shows_a_start_a_restart_or_a_resize() {
    for (what, busy, spec, status) in REPORTS {
        let cache = listed();
        let may_be_busy = || cache.read().view().pod(&uid("uid-a")).unwrap().worker_may_be_busy;
        let object = pod("a").on("n").set("/spec", read(spec)).set("/status", read(status));
        apply::<Pod>(&cache, &object, at(1));
        assert_eq!(may_be_busy(), busy, "{what}");
        // The deletion raises the generation. Once the kubelet has observed it, its worker terminates the pod.
        let dying = object.terminating().rv(11).set("/metadata/generation", json!(4));
        apply::<Pod>(&cache, &dying, at(2));
        assert_eq!(may_be_busy(), busy, "{what}, deleted");
        apply::<Pod>(&cache, &dying.observed(4).rv(12), at(3));
        assert!(!may_be_busy(), "{what}, seen");
    }
}
