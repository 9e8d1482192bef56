//! An API server that is down, slow, compacted, or sends objects that cannot be decoded.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]

use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Taint;
use kube::Client;
use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::{ControlPlane, PodSafety, SHORT_LEADER_LEASE, check_that, observe, wait_until};

const QUARANTINE: Duration = Duration::from_secs(3);

async fn bound(api: &Client, name: &str, node: &str) {
    let pod = objects::pod("default", name).on_node(node).with_phase("Running");
    objects::create_pod(api, &pod).await.unwrap();
}

fn count_log_lines(pod_safety: &PodSafety, what: &str) -> usize {
    pod_safety.log_text().lines().filter(|line| line.contains(what)).count()
}

#[tokio::test]
async fn the_controllers_wait_for_an_unavailable_api_server() {
    let (mut plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    objects::create_node(&plane.admin(), &objects::node("worker")).await.unwrap();
    bound(&plane.admin(), "orphan-1", "vanished").await;
    let pod_safety = down_at_start(&mut plane, &kubeconfig).await;
    restarted_amid_a_quarantine(&mut plane, &pod_safety).await;
    hung_for_a_while(&mut plane, &pod_safety).await;
}

async fn down_at_start(plane: &mut ControlPlane, kubeconfig: &Path) -> PodSafety {
    plane.stop_apiserver().unwrap();
    let mut pod_safety = plane.pod_safety("pod-safety", kubeconfig, SHORT_LEADER_LEASE).await.unwrap();
    let page = wait_until("it says what it waits for", async || {
        let page = pod_safety.get("/readyz").await.map_err(|error| format!("{error:?}"))?;
        let is_listed = |kind: &&str| {
            let line = page.body.lines().find(|line| line.starts_with(&format!("[-]{kind}: ")));
            line.is_some_and(|line| line.contains("connection refused"))
        };
        if ["pods", "nodes", "leases"].iter().all(is_listed) { Ok(page) } else { Err(page.body) }
    });
    assert_eq!(page.await.code, 503);
    // By now each watch has been retried many times.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(pod_safety.exited().unwrap().is_none(), "{}", pod_safety.log_text());
    assert_eq!(pod_safety.get("/livez").await.unwrap().code, 200, "waiting is no reason to be killed");
    // Three of pod garbage collection, five of budgets (four kinds of workloads and the PDBs), and five custom resources.
    assert_eq!(
        count_log_lines(&pod_safety, "cannot watch this resource"),
        13,
        "once a minute for each: {}",
        pod_safety.log_text()
    );
    assert_eq!(count_log_lines(&pod_safety, "cannot renew or take the lease"), 1, "{}", pod_safety.log_text());
    plane.start_apiserver().await.unwrap();
    pod_safety.ready().await.unwrap();
    pod_safety.is_leader().await.unwrap();
    observe::remaining_pod(&plane.admin(), "default", &[]).await.unwrap();
    pod_safety
}

async fn restarted_amid_a_quarantine(plane: &mut ControlPlane, pod_safety: &PodSafety) {
    let api = plane.admin();
    bound(&api, "orphan-2", "vanished").await;
    bound(&api, "at-work", "worker").await;
    tokio::time::sleep(QUARANTINE / 3).await;
    plane.restart_apiserver().await.unwrap();
    observe::remaining_pod(&api, "default", &["at-work"]).await.unwrap();
    assert_eq!(pod_safety.get("/readyz").await.unwrap().code, 200);
}

async fn hung_for_a_while(plane: &mut ControlPlane, pod_safety: &PodSafety) {
    let before = count_log_lines(pod_safety, "cannot renew or take the lease");
    plane.apiserver().unwrap().pause().unwrap();
    let stepped_down = async || {
        let leads =
            pod_safety.metric("leader_election_master_status", &[]).await.map_err(|error| format!("{error:?}"))?;
        check_that(leads == 0.0, "it leads".to_owned())
    };
    wait_until("it steps down", stepped_down).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let lines = count_log_lines(pod_safety, "cannot renew or take the lease") - before;
    assert!(lines <= 1, "{lines} lines of one outage: {}", pod_safety.log_text());
    plane.apiserver().unwrap().resume().unwrap();
    let api = plane.admin();
    bound(&api, "orphan-3", "vanished").await;
    observe::remaining_pod(&api, "default", &["at-work"]).await.unwrap();
}

#[tokio::test]
async fn deletions_in_a_watch_gap_are_noticed() {
    let (mut plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    let api = plane.admin();
    for node in ["stays", "goes"] {
        objects::create_node(&api, &objects::node(node)).await.unwrap();
        bound(&api, &format!("on-{node}"), node).await;
    }
    bound(&api, "removed", "stays").await;
    let relay = plane.relay("road", &kubeconfig).await.unwrap();
    let mut pod_safety = plane.pod_safety("pod-safety", relay.kubeconfig(), [] as [&str; 0]).await.unwrap();
    pod_safety.ready().await.unwrap();
    assert_eq!(pod_safety.metric("pod_safety_cache_objects", &[("resource", "pods")]).await.unwrap(), 3.0);

    relay.cut_connections();
    observe::delete_pod(&api, "default", "removed", true).await.unwrap();
    observe::delete_node(&api, "goes").await.unwrap();
    // So that their versions are older than the compaction.
    for name in ["later-1", "later-2"] {
        bound(&api, name, "stays").await;
    }
    plane.compact().await.unwrap();
    plane.restart_apiserver().await.unwrap();
    let gap = Instant::now();
    relay.open();
    observe::remaining_pod(&api, "default", &["later-1", "later-2", "on-stays"]).await.unwrap();
    assert!(gap.elapsed() >= QUARANTINE, "a node is missed from when it is noticed: {:?}", gap.elapsed());
    for resource in ["pods", "nodes"] {
        let lists = pod_safety.metric("pod_safety_cache_lists_total", &[("resource", resource)]).await.unwrap();
        assert!(lists >= 2.0, "{resource}: {lists}; {}", pod_safety.log_text());
    }
    assert_eq!(pod_safety.metric("pod_safety_cache_objects", &[("resource", "pods")]).await.unwrap(), 3.0);
    assert_eq!(pod_safety.metric("pod_safety_cache_objects", &[("resource", "nodes")]).await.unwrap(), 1.0);
    assert!(count_log_lines(&pod_safety, "listing again") >= 2, "{}", pod_safety.log_text());
}

#[tokio::test]
async fn an_undecodable_object_does_not_affect_others() {
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    let api = &plane.admin();
    let mut node = objects::node("unreadable");
    let taint = Taint { key: "spoil-me".to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    node.spec.get_or_insert_default().taints = Some(vec![taint]);
    objects::create_node(api, &node).await.unwrap();
    bound(api, "on-unreadable", "unreadable").await;
    let mut broken = objects::pod("default", "broken").on_node("vanished").with_phase("Running");
    broken.status.get_or_insert_default().reason = Some("SpoilMe".to_owned());
    objects::create_pod(api, &broken).await.unwrap();
    plane.corrupt_object("/registry/minions/unreadable", b"spoil-me", b"\xff\xfe").await.unwrap();
    plane.corrupt_object("/registry/pods/default/broken", b"SpoilMe", b"\xff\xfe").await.unwrap();
    bound(api, "beside", "vanished").await;

    let mut pod_safety = plane.pod_safety("pod-safety", &kubeconfig, [] as [&str; 0]).await.unwrap();
    pod_safety.ready().await.unwrap();
    for resource in ["pods", "nodes"] {
        let unread = [("resource", resource)];
        assert_eq!(
            pod_safety.metric("pod_safety_cache_undecodable_objects", &unread).await.unwrap(),
            1.0,
            "{resource}"
        );
    }
    assert_eq!(
        count_log_lines(&pod_safety, "an object cannot be decoded; it counts as unknown"),
        2,
        "{}",
        pod_safety.log_text()
    );
    observe::remaining_pod(api, "default", &["broken", "on-unreadable"]).await.unwrap();
    let holds = pod_safety.debug("/debug/decisions").await.unwrap()["holds"].to_string();
    assert!(holds.contains("NodeUnreadable") && holds.contains("It may still exist"), "{holds}");
    tokio::time::sleep(QUARANTINE).await;
    assert_eq!(observe::pod_names(api, "default").await.unwrap(), ["broken", "on-unreadable"]);

    // A deletion counts, whether or not the object could be decoded.
    observe::delete_node(api, "unreadable").await.unwrap();
    observe::remaining_pod(api, "default", &["broken"]).await.unwrap();
    let counted = async || {
        let unread = pod_safety.metric("pod_safety_cache_undecodable_objects", &[("resource", "nodes")]).await;
        check_that(unread.is_ok_and(|count| count == 0.0), "it still counts")
    };
    wait_until("the node counts no more", counted).await;
}
