//! A node that is cut off, and another Node with another boot that gets its name: the volume of the first is free by evidence about
//! that former life, and by nothing else.

use std::sync::atomic::Ordering;

use kube::Client;
use pod_safety_control_plane::objects::{boot_id, create_node};
use pod_safety_control_plane::{check_that, observe, until};
use serde_json::json;

use super::hosts::Host;
use super::objects::NAMESPACE;
use super::{
    Fixture, NO_TIMEOUT, fixture, lease, the_lease_is_acquired_before_the_pod_runs, until_held, until_runs,
};

/// What a person types, without the program's name.
async fn typed(scene: &Fixture, words: &[&str]) -> (Option<i32>, String) {
    let kubeconfig = scene.plane.admin_kubeconfig();
    let done = scene.plane.start_pod_safety_once(&kubeconfig, words).await.unwrap();
    (done.status.code(), format!("{}{}", done.stdout, done.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bug_a_volume_of_a_replaced_node_is_released_by_a_confirmation_about_its_former_incarnation() {
    let scene = fixture(&[]).await;
    let plane = &scene.plane;
    the_lease_is_acquired_before_the_pod_runs(&scene).await;
    scene.hosts[0].cut_off().await;
    until_held(plane, "data", "w1", true).await;
    let force = ["delete", "pod", "db-0", "-n", NAMESPACE, "--force", "--grace-period=0"];
    plane.kubectl(&force).await.unwrap().text().unwrap();
    let holder = lease(plane, "data").await.unwrap()["spec"]["holderIdentity"].as_str().unwrap().to_owned();
    let uid = holder.split('/').nth(1).unwrap();
    plane.kubectl(&["delete", "node", "w1"]).await.unwrap().text().unwrap();
    replace(&scene.hosts[0], &plane.admin()).await;
    let former = format!("pod-safety confirm-down w1 --uid {uid} --boot {} --reason TEXT", boot_id("w1", 1));
    until("the hold names the way out", async || {
        let said = scene.pod_safety.debug("/debug/decisions").await.map_err(|error| format!("{error:?}"))?;
        let said = said["holds"].to_string();
        check_that(said.contains("was replaced by another Node") && said.contains(&former), said)
    })
    .await
    .unwrap();
    let event = observe::event(&plane.admin(), "default", "data", "VolumeHeld").await.unwrap();
    assert!(event.contains(&former), "{event}");
    nothing_else_releases_it(&scene, uid).await;
    let words: Vec<&str> = former.split(' ').skip(1).chain(["--confirm=the old w1 is off"]).collect();
    let (code, said) = typed(&scene, &words).await;
    assert_eq!(code, Some(0), "{said}");
    until_runs(&scene, "w2").await;
    let lease = until_held(plane, "data", "w2", false).await;
    assert_eq!(lease["spec"]["leaseTransitions"], 1, "it was broken once: {lease:#}");
}

/// Evidence about the present life, about a life that never had the volume, and words that the command rejects.
async fn nothing_else_releases_it(scene: &Fixture, uid: &str) {
    let plane = &scene.plane;
    let node = plane.find("node", "", "w1").await.unwrap().unwrap();
    let present = node["metadata"]["uid"].as_str().unwrap();
    let (first, second) = (boot_id("w1", 1), boot_id("w1", 2));
    for (what, uid, boot) in
        [("the present life", present, &second), ("its UID", present, &first), ("its boot", uid, &second)]
    {
        let words =
            ["confirm-down", "w1", "--uid", uid, "--boot", boot, "--reason=r", "--confirm=the old w1 is off"];
        let (code, said) = typed(scene, &words).await;
        assert_eq!(code, Some(4), "{what}: {said}");
    }
    let (_, said) = typed(scene, &["confirm-down", "w1", "--uid", uid, "--boot", "5", "--reason=r"]).await;
    assert!(said.contains("a boot ID is a UUID"), "{said}");
    let lives = [(present, &second), ("0b5e2f3a-0000-4000-8000-00000000000a", &first)];
    for (uid, boot) in lives {
        let spec = json!({ "node": { "name": "w1", "uid": uid, "bootID": boot }, "kind": "Asserted", "by": "admin", "reason": "r",
            "validSeconds": 3600 });
        let evidence = json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FenceEvidence",
            "metadata": { "generateName": "w1-" }, "spec": spec });
        plane.kubectl_with(&["create", "-f", "-"], &evidence.to_string()).await.unwrap().text().unwrap();
    }
    tokio::time::sleep(NO_TIMEOUT / 3).await;
    until_held(plane, "data", "w1", true).await;
}

/// The machine of a host is another one, or has booted: its Node is made anew, and it has mounted nothing.
async fn replace(host: &Host, api: &Client) {
    let mut mounted = host.reports.lock().await;
    mounted.clear();
    host.boots.fetch_add(1, Ordering::SeqCst);
    create_node(api, &host.as_node(&mounted)).await.unwrap();
    host.connect();
}
