//! Pods with init containers, sidecars and debug containers: a terminal phase only means that the ordinary containers
//! terminated.

use serde_json::json;

use super::*;

/// The kubelet's status of a container.
fn report(state: &str) -> Value {
    match state {
        "" => json!({ "name": "c" }),
        "terminated" => json!({ "name": "c", "state": { "terminated": { "exitCode": 0 } } }),
        state => json!({ "name": "c", "state": { state: {} } }),
    }
}

/// A finished pod, with the last state of each kind of container.
fn finished(main: &[&str], init: &[&str], debug: &[&str]) -> Obj {
    let reports = |states: &[&str]| states.iter().map(|state| report(state)).collect::<Value>();
    pod("a")
        .on("n")
        .phase("Failed")
        .set("/status/containerStatuses", reports(main))
        .set("/status/initContainerStatuses", reports(init))
        .set("/status/ephemeralContainerStatuses", reports(debug))
}

const ENDED: &str = "KubeletTerminated";
const RUNS: &str = "ClaimMismatch";

#[tokio::test(start_paused = true)]
async fn a_terminal_phase_releases_a_pod_only_if_no_other_container_runs() {
    for (what, pod, expected) in [
        ("all ended", finished(&["terminated"], &["terminated"], &["terminated"]), ENDED),
        ("nothing was reported of its containers: they never began", finished(&[], &[], &[]), ENDED),
        ("its first container runs", finished(&["running", "terminated"], &[], &[]), RUNS),
        ("its last container runs", finished(&["terminated", "running"], &[], &[]), RUNS),
        ("a sidecar runs beside the terminal phase", finished(&["terminated"], &["running"], &[]), RUNS),
        ("the second of two sidecars runs", finished(&["terminated"], &["terminated", "running"], &[]), RUNS),
        ("an init container runs, and the others never began", finished(&["waiting"], &["running"], &[]), RUNS),
        ("somebody debugs it", finished(&["terminated"], &["terminated"], &["running"]), RUNS),
        (
            "a sidecar waits to be restarted, which no terminal pod's is",
            finished(&["terminated"], &["waiting"], &[]),
            ENDED,
        ),
        ("a container of which no state was reported", finished(&["", "terminated"], &[""], &[]), ENDED),
    ] {
        let fixture = Fixture::new();
        fixture.apply(Kind::Pods, &pod.0);
        assert_eq!(reason(fixture.verify(&pod.force(Claim::KubeletTerminated)).await), expected, "{what}");
        let cache = fixture.world.read();
        let over =
            cache.view().pod(&pod.force(Claim::KubeletTerminated).pod.uid).is_some_and(|pod| pod.has_terminated());
        assert_eq!(over, expected == ENDED, "whether it has ended its use of volumes: {what}");
    }
}

/// Evidence that the node is off does not depend on what ran on it.
#[tokio::test(start_paused = true)]
async fn running_containers_do_not_matter_if_the_node_is_gone() {
    let fixture = Fixture::new();
    let pod = finished(&["running"], &["running"], &[]).phase("Running");
    fixture.apply(Kind::Pods, &pod.0);
    advance(1.0).await;
    fixture.make_first_read().await;
    advance(QUARANTINE.as_secs_f64()).await;
    let gone = Claim::NodeGone { node: "n".into() };
    assert_eq!(reason(fixture.verify(&pod.force(gone)).await), "NodeGone");
}
