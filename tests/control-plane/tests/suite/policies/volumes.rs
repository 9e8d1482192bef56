//! Attachments of held volumes.

use pod_safety_control_plane::{check_that, wait_until};
use serde_json::{Value, json};

use super::admission::{ADMIN, ATTACH_DETACH, DEV, EXEMPT, Fixture, OPERATOR, POD_SAFETY, REASON};

pub(super) fn attachment(name: &str, annotations: &Value, node: &str, volume: &str) -> Value {
    json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": name, "annotations": annotations },
        "spec": { "attacher": "csi.example.com", "nodeName": node, "source": { "persistentVolumeName": volume } } })
}

pub(super) async fn attachments(fixture: &Fixture) {
    for (number, (user, held, reason, refusal)) in (0..).zip([
        (ATTACH_DETACH, true, None, Some("attachment-hold")),
        (ATTACH_DETACH, false, None, None),
        (DEV, true, Some("a reason without the right"), Some("attachment-hold")),
        (OPERATOR, true, None, Some("attachment-hold")),
        (OPERATOR, true, Some("the rack burnt down"), None),
        (EXEMPT, true, None, None),
        (POD_SAFETY, true, None, Some("own-account")),
    ]) {
        let name = format!("attachment-{number}");
        let mut annotations = json!({});
        if held {
            annotations["pod-safety.dev/hold"] = json!("w1 may still write");
        }
        if let Some(reason) = reason {
            annotations[REASON] = json!(reason);
        }
        fixture.make(&attachment(&name, &annotations, "w1", "data")).await;
        let output = fixture.run(user, &["delete", "volumeattachment", &name, "--wait=false"], &Value::Null).await;
        Fixture::check_answer(&format!("attachment {number}: {user} {held} {reason:?}"), &output, refusal);
        let held = output.stderr.contains("is held: w1 may still write");
        assert!(refusal != Some("attachment-hold") || held, "{output:?}");
    }
}

/// Three volumes: one is held by `w1`, one has an unreadable holder, and one has none.
pub(super) async fn held_volumes(fixture: &Fixture) {
    for (volume, holder) in [("held", "w1/uid/boot/-"), ("garbled", "somebody")] {
        fixture.make(&json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "namespace": "pod-safety-volumes", "name": volume, "labels": { "pod-safety.dev/held": "true" },
                "annotations": { "pod-safety.dev/hold": "w1 may still write" } },
            "spec": { "holderIdentity": holder } })).await;
    }
    let refused = Some("volume-held");
    // User; volume; node; a reason on it; whether attaching is denied, and whether detaching is.
    let rows: [(_, _, _, _, _, _); 11] = [
        (ATTACH_DETACH, "free", "w1", None, None, None),
        (ATTACH_DETACH, "held", "w1", None, None, refused),
        (ATTACH_DETACH, "held", "w2", None, refused, None),
        (ATTACH_DETACH, "garbled", "w1", None, refused, refused),
        (DEV, "held", "w1", Some("a reason without the right"), None, refused),
        (OPERATOR, "held", "w1", None, None, refused),
        (OPERATOR, "held", "w1", Some("the rack burnt down"), None, None),
        (OPERATOR, "held", "w2", Some("the rack burnt down"), None, None),
        (ADMIN, "held", "w2", None, refused, None),
        (ADMIN, "held", "w1", Some("the rack burnt down"), None, None),
        (EXEMPT, "held", "w2", None, None, None),
    ];
    let of = |name: &str, volume: &str, node: &str, reason: Option<&str>| {
        let annotations = reason.map_or_else(|| json!({}), |reason| json!({ REASON: reason }));
        attachment(name, &annotations, node, volume)
    };
    // The Leases are policy parameters, which take effect a moment after they were written.
    let probe = of("probe", "garbled", "w1", None);
    wait_until("the Leases are known", async || {
        let output = fixture.run(DEV, &["create", "--dry-run=server", "-f", "-"], &probe).await;
        check_that(!output.status.success(), format!("{output:?}"))
    })
    .await;
    for (number, (user, volume, node, reason, attaching, detaching)) in rows.into_iter().enumerate() {
        let row = format!("volume {number}: {user} {volume} {node} {reason:?}");
        let attached = of(&format!("new-{number}"), volume, node, reason);
        let output = fixture.run(user, &["create", "--dry-run=server", "-f", "-"], &attached).await;
        Fixture::check_answer(&format!("{row}, attached"), &output, attaching);
        assert!(
            attaching.is_none()
                || output.stderr.contains("is not attached to") && output.stderr.contains("w1 may still write"),
            "{output:?}"
        );
        let name = format!("there-{number}");
        fixture.run(EXEMPT, &["create", "-f", "-"], &of(&name, volume, node, reason)).await.text().unwrap();
        let output = fixture.run(user, &["delete", "volumeattachment", &name, "--wait=false"], &Value::Null).await;
        Fixture::check_answer(&format!("{row}, detached"), &output, detaching);
        assert!(detaching.is_none() || output.stderr.contains("is not detached from"), "{output:?}");
    }
}
