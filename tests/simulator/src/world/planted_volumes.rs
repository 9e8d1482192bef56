//! What planted bugs make of the owners of volumes.

use bytes::Bytes;
use http::Method;
use pod_safety_shared::model::{HELD_LABEL, VOLUME_LEASES};
use serde_json::{Value, json};

use super::guarded::volume_of;
use super::planted::{edit, forget};
use super::seam::{Parts, Seam};
use super::word;
use crate::campaign::Plant;

fn leases() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{VOLUME_LEASES}/leases")
}

/// A write of whose a volume is.
fn says_whose(parts: &Parts) -> bool {
    parts.method != Method::GET && parts.path().starts_with(&leases())
}

fn without_label(body: &mut Value) {
    if let Some(labels) = body.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HELD_LABEL);
    }
}

/// NODE and the pod, and nothing that says which life of the node it is.
fn by_name(body: &mut Value) {
    let identity = word(body, "/spec/holderIdentity").to_owned();
    if let [node, _, _, pod] = identity.split('/').collect::<Vec<_>>().as_slice() {
        body["spec"]["holderIdentity"] = format!("{node}/{node}//{pod}").into();
    }
}

fn same_generation(body: &mut Value) {
    let spec = body.get_mut("spec").and_then(Value::as_object_mut);
    if let Some(spec) = spec.filter(|spec| spec.get("holderIdentity").is_none_or(Value::is_null)) {
        spec.remove("leaseTransitions");
    }
}

impl Seam {
    /// What a planted bug makes of a write of whose a volume is.
    pub(super) fn mistakes_owner(&self, plant: Plant, parts: &mut Parts) {
        if !says_whose(parts) {
            return;
        }
        match plant {
            Plant::NeverHolds => edit(parts, without_label),
            Plant::SameGeneration => edit(parts, same_generation),
            Plant::OwnersByName => edit(parts, by_name),
            Plant::OwnersByForce => {
                forget(parts, "uid");
                forget(parts, "resourceVersion");
            }
            _ => {}
        }
    }

    /// What a planted bug does when it hears that a pod is gone.
    pub(super) fn told_of_users(&self, event: &Bytes) {
        if self.plant != Some(Plant::GoneMeansFree) || self.world.with.guarded_volumes.is_none() {
            return;
        }
        let told: Value = serde_json::from_slice(event).unwrap_or_default();
        let pod = &told["object"];
        if word(&told, "/type") != "DELETED" || word(pod, "/kind") != "Pod" || !self.leads() {
            return;
        }
        let Some(volume) = volume_of(pod).map(str::to_owned) else { return };
        let seam = self.clone();
        self.aside(Box::pin(async move {
            let Some(lease) = seam.world.etcd.object("Lease", &format!("{VOLUME_LEASES}/{volume}")) else { return };
            let (uid, version) = (word(&lease, "/metadata/uid"), word(&lease, "/metadata/resourceVersion"));
            let body = json!({ "metadata": { "uid": uid, "resourceVersion": version }, "spec": { "holderIdentity": null } });
            seam.write_as_meant(format!("{}/{volume}", leases()), &body).await;
        }));
    }
}
