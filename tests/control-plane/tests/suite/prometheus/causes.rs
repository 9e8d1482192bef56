//! The causes of alerts: several at once where they are independent.

use futures::future::join_all;
use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::workloads::{self, STATEFUL_SET};
use pod_safety_control_plane::{budgets, check_that, observe, wait_until};
use serde_json::{Value, json};

use super::{Fixture, NAMESPACE};
use crate::fencing::device_of;

/// Several times the threshold of the shortened alert.
const MANY: usize = 60;

/// A pod of a node that never existed, whose deletion is denied for a time; PDBs that allow no disruption; and then many pods like the
/// first.
pub(super) async fn pods_and_budgets(fixture: &Fixture) {
    let api = fixture.plane.admin();
    let may = async |verbs: &[&str]| {
        let patch = json!([{ "op": "replace", "path": "/rules/0/verbs", "value": verbs }]).to_string();
        fixture.kubectl(&["patch", "clusterrole", "pod-safety", "--type=json", "-p", &patch], &Value::Null).await;
    };
    may(&["list", "watch"]).await;
    let kept = objects::pod(NAMESPACE, "kept").on_node("vanished");
    objects::create_pod(&api, &kept).await.unwrap();
    let owner = workloads::put(&api, STATEFUL_SET, NAMESPACE, "web", 1, None).await.unwrap();
    let mut web = objects::pod(NAMESPACE, "web-0").on_node("well").with_phase("Running");
    web.metadata.owner_references = Some(vec![owner]);
    web.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
    objects::create_pod(&api, &web).await.unwrap();
    for name in ["one", "two"] {
        let spec = json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } });
        budgets::put(&api, NAMESPACE, name, &spec).await.unwrap();
    }
    fixture.until_alerts_fire(&["PodSafetyWritesFailing", "PodSafetyBudgetNeverAllows", "PodSafetyBudgetBroken"]).await;

    may(&["list", "watch", "delete"]).await;
    for name in ["one", "two"] {
        budgets::delete(&api, NAMESPACE, name).await.unwrap();
    }
    let pods = (0..MANY).map(|number| {
        let pod = objects::pod(NAMESPACE, &format!("many-{number}")).on_node("vanished-too");
        if number == 0 { pod.with_finalizer("example.com/hold") } else { pod }
    });
    let pods: Vec<_> = pods.collect();
    join_all(pods.iter().map(async |pod| objects::create_pod(&api, pod).await.unwrap())).await;
    let texts = fixture.until_alerts_fire(&["PodSafetyMassRelease", "PodSafetyFinalizersHeld"]).await;
    assert!(texts["PodSafetyMassRelease"].contains("NodeGone"), "{texts:?}");
    let none = json!({ "metadata": { "finalizers": null } }).to_string();
    let patch = ["patch", "pod", "-n", NAMESPACE, "many-0", "--type=merge", "-p", &none];
    fixture.kubectl(&patch, &Value::Null).await;
    fixture.prometheus.until_quiet().await;
}

pub(super) async fn a_kubelet_outlives_its_node(fixture: &Fixture) {
    let api = fixture.plane.admin();
    let pod = objects::pod(NAMESPACE, "held").on_node("gone").with_phase("Running");
    objects::create_pod(&api, &pod).await.unwrap();
    observe::delete_node(&api, "gone").await.unwrap();
    fixture.until_alert_fires("PodSafetyPodsHeld", "pod-gc has held pods or nodes for ").await;
    fixture.kubelets.stop_reporting(&["gone"]);
    fixture.until_alerts_stop(&["PodSafetyPodsHeld"]).await;
    // It continues as a quarantine, for which no alert fires.
    wait_until("it is released", async || {
        let pod = observe::find_pod(&api, NAMESPACE, "held").await.map_err(|error| format!("{error:?}"))?;
        check_that(pod.is_none(), "it is there".to_owned())
    })
    .await;
}

fn matching(node: &str) -> Value {
    json!({ "matchLabels": { "kubernetes.io/hostname": node } })
}

pub(crate) fn policy(node: &str, device: &str) -> Value {
    json!({
        "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FencePolicy", "metadata": { "name": node },
        "spec": {
            "nodeSelector": matching(node), "when": "Always", "unhealthy": { "silentSeconds": 10 }, "rounds": 1,
            "levels": [{ "name": "power", "devices": [{ "namespace": "pod-safety", "name": device }], "attempts": 1 }],
            "brakes": { "maxConcurrent": 9, "cooldownSeconds": 0, "maxUnhealthyPercent": 100, "maxUnhealthyZonePercent": 100 },
        },
    })
}

/// Nodes with an unreachable device, without a device in the policy, with a paused policy, and with a device that reports off while the node
/// runs. And most of a zone.
const LOST: [&str; 7] = ["lost", "blocked", "paused", "liar", "zone-1", "zone-2", "zone-3"];

pub(super) async fn nodes_are_lost_and_fenced_or_not(fixture: &Fixture) {
    // No server listens there.
    let nobody = json!({ "address": "https://127.0.0.1:1", "insecure": "true" });
    fixture.apply(&device_of("bmc", "lost", json!({ "driver": "Redfish", "nodeParameters": { "lost": nobody }, "timeouts": { "powerOff": "1s", "powerOn": "1s", "status": "1s" } }))).await;
    let switch = json!({ "status_file": fixture.switch });
    let dummy = json!({ "driver": "Agent", "agent": "fence_dummy", "nodeParameters": { "liar": switch }, "timeouts": { "powerOff": "10s", "powerOn": "10s", "status": "10s" } });
    fixture.apply(&device_of("dummy", "liar", dummy)).await;
    fixture.until_alert_fires("PodSafetyFenceDeviceSilent", "has not reported for 15 minutes: 1.").await;
    let mut paused = policy("paused", "dummy");
    paused["spec"]["paused"] = "the test says so".into();
    // A busy machine may cause a failed attempt.
    let mut liar = policy("liar", "dummy");
    liar["spec"]["levels"][0]["attempts"] = 5.into();
    for policy in [policy("lost", "bmc"), policy("blocked", "bmc"), liar, paused] {
        fixture.apply(&policy).await;
    }
    fixture.kubelets.stop_reporting(&LOST);
    // The queue of a zone is short again when all its lost nodes are marked, which may be before a machine is proved off.
    fixture.until_alerts_fire(&["PodSafetyEvictionQueueLong", "PodSafetyRecoveryTooLong"]).await;
    // It reports again in the incarnation that was proved off. That is not trusted immediately.
    fixture.kubelets.resume_reporting(&["liar"]);
    let alerts = [
        "PodSafetyFenceAwaitsOperator",
        "PodSafetyFenceBlocked",
        "PodSafetyFencePaused",
        "PodSafetyFenceTooLong",
        "PodSafetyZoneDisrupted",
    ];
    let texts = fixture.until_alerts_fire(&alerts).await;
    for (alert, tells) in [
        ("PodSafetyFenceAwaitsOperator", "Incidents in the phase AwaitingOperator: 1."),
        ("PodSafetyFenceBlocked", "Nodes not fenced for 5 minutes: 2. Reason: NoDevices"),
        ("PodSafetyFencePaused", "Lost nodes not fenced for an hour: 1. Reason: Paused"),
    ] {
        assert!(texts[alert].contains(tells), "{alert}: {}", texts[alert]);
    }
    fixture.until_alerts_fire(&["PodSafetyEvidenceContradicted", "PodSafetyFenceDeviceNotTrusted"]).await;

    fixture.kubelets.resume_reporting(&LOST);
    let own_kinds = "fencepolicies,nodefences,fenceevidences";
    fixture.kubectl(&["delete", own_kinds, "--all"], &Value::Null).await;
    fixture.kubectl(&["delete", "fencedevices", "--all", "-n", "pod-safety"], &Value::Null).await;
    fixture.prometheus.until_quiet().await;
}

pub(super) async fn all_nodes_are_lost(fixture: &Fixture) {
    fixture.kubelets.stop_reporting(&fixture.kubelets.all());
    fixture.until_alerts_fire(&["PodSafetyLargeOutage"]).await;
    fixture.kubelets.resume_reporting(&fixture.kubelets.all());
    fixture.prometheus.until_quiet().await;
}
