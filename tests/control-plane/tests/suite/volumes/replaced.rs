//! An isolated node, and another Node with another boot that gets its name: the volume of the first is released by evidence about that former
//! incarnation, and by nothing else.

use std::sync::atomic::Ordering;

use kube::Client;
use pod_safety_control_plane::objects::{boot_id, create_node};
use pod_safety_control_plane::{check_that, observe, wait_until};
use serde_json::json;

use super::hosts::Host;
use super::objects::NAMESPACE;
use super::{Fixture, NO_TIMEOUT, fixture, lease, the_lease_is_acquired_before_the_pod_runs, until_held, until_runs};

/// Runs a command, without the program's name.
async fn typed(fixture: &Fixture, words: &[&str]) -> (Option<i32>, String) {
    let kubeconfig = fixture.plane.admin_kubeconfig();
    let done = fixture.plane.start_pod_safety_once(&kubeconfig, words).await.unwrap();
    (done.status.code(), format!("{}{}", done.stdout, done.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bug_a_volume_of_a_replaced_node_is_released_by_a_confirmation_about_its_former_incarnation() {
    let fixture = fixture(&[]).await;
    let plane = &fixture.plane;
    the_lease_is_acquired_before_the_pod_runs(&fixture).await;
    fixture.hosts[0].cut_off().await;
    until_held(plane, "data", "w1", true).await;
    let force = ["delete", "pod", "db-0", "-n", NAMESPACE, "--force", "--grace-period=0"];
    plane.kubectl(&force).await.unwrap().text().unwrap();
    let holder = lease(plane, "data").await.unwrap()["spec"]["holderIdentity"].as_str().unwrap().to_owned();
    let uid = holder.split('/').nth(1).unwrap();
    plane.kubectl(&["delete", "node", "w1"]).await.unwrap().text().unwrap();
    replace(&fixture.hosts[0], &plane.admin()).await;
    let former = format!("pod-safety confirm-down w1 --uid {uid} --boot {} --reason TEXT", boot_id("w1", 1));
    wait_until("the hold names the way out", async || {
        let output = fixture.pod_safety.debug("/debug/decisions").await.map_err(|error| format!("{error:?}"))?;
        let output = output["holds"].to_string();
        check_that(output.contains("was replaced by another Node") && output.contains(&former), output)
    })
    .await;
    let event = observe::event(&plane.admin(), "default", "data", "VolumeHeld").await.unwrap();
    assert!(event.contains(&former), "{event}");
    nothing_else_releases_it(&fixture, uid).await;
    let words: Vec<&str> = former.split(' ').skip(1).chain(["--confirm=the old w1 is off"]).collect();
    let (code, output) = typed(&fixture, &words).await;
    assert_eq!(code, Some(0), "{output}");
    until_runs(&fixture, "w2").await;
    let lease = until_held(plane, "data", "w2", false).await;
    assert_eq!(lease["spec"]["leaseTransitions"], 1, "it was broken once: {lease:#}");
}

/// Evidence about the present incarnation, about an incarnation that never held the volume, and arguments that the command rejects.
async fn nothing_else_releases_it(fixture: &Fixture, uid: &str) {
    let plane = &fixture.plane;
    let node = plane.find("node", "", "w1").await.unwrap().unwrap();
    let present = node["metadata"]["uid"].as_str().unwrap();
    let (first, second) = (boot_id("w1", 1), boot_id("w1", 2));
    for (what, uid, boot) in
        [("the present life", present, &second), ("its UID", present, &first), ("its boot", uid, &second)]
    {
        let words = ["confirm-down", "w1", "--uid", uid, "--boot", boot, "--reason=r", "--confirm=the old w1 is off"];
        let (code, output) = typed(fixture, &words).await;
        assert_eq!(code, Some(4), "{what}: {output}");
    }
    let (_, output) = typed(fixture, &["confirm-down", "w1", "--uid", uid, "--boot", "5", "--reason=r"]).await;
    assert!(output.contains("a boot ID is a UUID"), "{output}");
    let incarnations = [(present, &second), ("0b5e2f3a-0000-4000-8000-00000000000a", &first)];
    for (uid, boot) in incarnations {
        let spec = json!({ "node": { "name": "w1", "uid": uid, "bootID": boot }, "kind": "Asserted", "by": "admin", "reason": "r",
            "validSeconds": 3600 });
        let evidence = json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FenceEvidence",
            "metadata": { "generateName": "w1-" }, "spec": spec });
        plane.kubectl_with(&["create", "-f", "-"], &evidence.to_string()).await.unwrap().text().unwrap();
    }
    tokio::time::sleep(NO_TIMEOUT / 3).await;
    until_held(plane, "data", "w1", true).await;
}

/// The machine of a host is replaced, or has booted: its Node is created again, and it has mounted nothing.
async fn replace(host: &Host, api: &Client) {
    let mut mounted = host.reports.lock().await;
    mounted.clear();
    host.boots.fetch_add(1, Ordering::SeqCst);
    create_node(api, &host.as_node(&mounted)).await.unwrap();
    host.connect();
}
