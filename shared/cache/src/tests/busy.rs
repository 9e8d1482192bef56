//! Whether a kubelet's worker may be busy, by what it reported last.

use serde_json::{Value, json};

use super::*;
use crate::testing::{at, objects::pod};

#[test]
fn a_worker_may_be_busy_where_its_last_report_shows_something_that_is_started_restarted_or_changed() {
    let runs = || json!({ "state": { "running": {} } });
    let ended = || json!({ "state": { "terminated": { "exitCode": 0 } } });
    let waits = || json!({ "state": { "waiting": { "reason": "ContainerCreating" } } });
    let one = || json!([{}]);
    let sidecar = || json!([{}, { "restartPolicy": "Always" }]);
    let resize = |status: &str| json!([{ "type": "PodResizeInProgress", "status": status }]);
    let rows: [(&str, bool, Value, Value); 20] = [
        ("it has reported nothing", false, json!({ "containers": one() }), json!({})),
        ("all run", false, json!({ "containers": one() }), json!({ "containerStatuses": [runs()] })),
        ("one is created", true, json!({}), json!({ "containerStatuses": [runs(), waits()] })),
        ("one has no state", true, json!({}), json!({ "containerStatuses": [runs(), {}] })),
        (
            "one is not reported",
            true,
            json!({ "containers": [{}, {}] }),
            json!({ "containerStatuses": [runs()] }),
        ),
        (
            "one is restarted",
            true,
            json!({ "restartPolicy": "Always" }),
            json!({ "containerStatuses": [runs(), ended()] }),
        ),
        (
            "one is not said to be never restarted",
            true,
            json!({}),
            json!({ "containerStatuses": [runs(), ended()] }),
        ),
        (
            "one failed or not",
            true,
            json!({ "restartPolicy": "OnFailure" }),
            json!({ "containerStatuses": [runs(), ended()] }),
        ),
        (
            "one is never restarted",
            false,
            json!({ "restartPolicy": "Never" }),
            json!({ "containerStatuses": [runs(), ended()] }),
        ),
        (
            "one is restarted by its own rule",
            true,
            json!({ "restartPolicy": "Never", "containers": [{}, { "restartPolicy": "OnFailure" }] }),
            json!({ "containerStatuses": [runs(), ended()] }),
        ),
        (
            "an init container has ended",
            false,
            json!({ "initContainers": one() }),
            json!({ "initContainerStatuses": [ended()], "containerStatuses": [runs()] }),
        ),
        (
            "an init container waits",
            true,
            json!({ "initContainers": one() }),
            json!({ "initContainerStatuses": [waits()] }),
        ),
        (
            "a sidecar runs",
            false,
            json!({ "initContainers": sidecar() }),
            json!({ "initContainerStatuses": [ended(), runs()], "containerStatuses": [runs()] }),
        ),
        (
            "a sidecar is restarted",
            true,
            json!({ "initContainers": sidecar() }),
            json!({ "initContainerStatuses": [ended(), ended()], "containerStatuses": [runs()] }),
        ),
        (
            "a debug container ended",
            false,
            json!({ "ephemeralContainers": one() }),
            json!({ "ephemeralContainerStatuses": [ended()], "containerStatuses": [runs()] }),
        ),
        (
            "a debug container was added",
            true,
            json!({ "ephemeralContainers": one() }),
            json!({ "containerStatuses": [runs()] }),
        ),
        (
            "it is resized",
            true,
            json!({}),
            json!({ "containerStatuses": [runs()], "conditions": resize("True") }),
        ),
        (
            "it was resized",
            false,
            json!({}),
            json!({ "containerStatuses": [runs()], "conditions": resize("False") }),
        ),
        (
            "it was changed",
            true,
            json!({}),
            json!({ "containerStatuses": [runs()], "observedGeneration": 2 }),
        ),
        (
            "all that was changed is reported",
            false,
            json!({}),
            json!({ "containerStatuses": [runs()], "observedGeneration": 3 }),
        ),
    ];
    for (what, busy, spec, status) in rows {
        let cache = listed();
        let object = pod("a").on("n").set("/spec", spec).set("/status", status);
        apply::<Pod>(&cache, &object, at(1));
        assert_eq!(cache.read().view().pod(&uid("uid-a")).unwrap().worker_may_be_busy, busy, "{what}");
        // Its deletion is another generation. Once that is reported, its worker terminates the pod.
        let dying = object.terminating().rv(11);
        apply::<Pod>(&cache, &dying.clone().set("/metadata/generation", json!(4)), at(2));
        assert_eq!(
            cache.read().view().pod(&uid("uid-a")).unwrap().worker_may_be_busy,
            busy,
            "{what}, deleted"
        );
        apply::<Pod>(&cache, &dying.set("/metadata/generation", json!(4)).observed(4).rv(12), at(3));
        assert!(!cache.read().view().pod(&uid("uid-a")).unwrap().worker_may_be_busy, "{what}, seen");
    }
}
