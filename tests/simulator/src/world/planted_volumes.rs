//! The effect of planted bugs on the Leases of volumes.

use bytes::Bytes;
use http::Method;
use pod_safety_shared::model::{HELD_LABEL, VOLUME_GATE, VOLUME_LEASE_NAMESPACE};
use serde_json::{Value, json};
use tower::BoxError;

use super::guarded::volumes_of;
use super::planted::{edit, remove_field, request};
use super::seam::{Answer, Parts, Seam, whole};
use super::{str_at, value_at};
use crate::campaign::Plant;

fn leases() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{VOLUME_LEASE_NAMESPACE}/leases")
}

/// A write of the Lease of a volume.
fn writes_volume_lease(parts: &Parts) -> bool {
    parts.method != Method::GET && parts.path().starts_with(&leases())
}

fn without_label(body: &mut Value) {
    if let Some(labels) = body.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HELD_LABEL);
    }
}

/// The holder with node and pod, and without the incarnation of the node.
fn by_name(body: &mut Value) {
    let identity = str_at(body, "/spec/holderIdentity").to_owned();
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
    /// The effect of a planted bug on a write of the Lease of a volume.
    pub(super) fn mistakes_owner(&self, plant: Plant, parts: &mut Parts) {
        if !writes_volume_lease(parts) {
            return;
        }
        match plant {
            Plant::NeverHolds => edit(parts, without_label),
            Plant::SameGeneration => edit(parts, same_generation),
            Plant::OwnersByName => edit(parts, by_name),
            Plant::OwnersByForce => {
                remove_field(parts, "uid");
                remove_field(parts, "resourceVersion");
            }
            _ => {}
        }
    }

    /// The effect of a planted bug when an event of a pod or of a volume arrives.
    pub(super) fn on_volume_event(&self, parts: &Parts, event: &Bytes) {
        let bugs = [Plant::GoneMeansFree, Plant::ForgetsHeld, Plant::OpensTheGate];
        let Some(plant) = self.plant.filter(|plant| bugs.contains(plant)) else { return };
        let (of_pods, of_volumes) = (parts.path().ends_with("/pods"), parts.path().ends_with("/persistentvolumes"));
        if !(of_pods || of_volumes) || self.world.with.guarded_volumes.is_none() || !self.leads() {
            return;
        }
        let change: Value = serde_json::from_slice(event).unwrap_or_default();
        let object = &change["object"];
        match (plant, str_at(&change, "/type"), str_at(object, "/kind")) {
            (Plant::GoneMeansFree, "DELETED", "Pod") => {
                volumes_of(object).into_iter().for_each(|volume| self.release_or_delete(volume, Method::PATCH));
            }
            (Plant::ForgetsHeld, "DELETED", "PersistentVolume") => {
                self.release_or_delete(str_at(object, "/metadata/name").to_owned(), Method::DELETE);
            }
            (Plant::OpensTheGate, "ADDED", "Pod") if value_at(object, "/spec/schedulingGates/0").is_some() => {
                let (uid, version) = (str_at(object, "/metadata/uid"), str_at(object, "/metadata/resourceVersion"));
                let body = json!({ "metadata": { "uid": uid, "resourceVersion": version },
                    "spec": { "schedulingGates": [{ "$patch": "delete", "name": VOLUME_GATE }] } });
                let path = format!("/api/v1/namespaces/default/pods/{}", str_at(object, "/metadata/name"));
                let seam = self.clone();
                self.aside(Box::pin(async move { seam.write_as_meant(path, &body).await }));
            }
            _ => {}
        }
    }

    /// Releases the Lease of a volume, or deletes it, whatever its state is.
    fn release_or_delete(&self, volume: String, method: Method) {
        let seam = self.clone();
        self.aside(Box::pin(async move {
            let Some(lease) = seam.world.etcd.object("Lease", &format!("{VOLUME_LEASE_NAMESPACE}/{volume}")) else {
                return;
            };
            let (uid, version) = (str_at(&lease, "/metadata/uid"), str_at(&lease, "/metadata/resourceVersion"));
            let which = json!({ "uid": uid, "resourceVersion": version });
            let path = format!("{}/{volume}", leases());
            if method == Method::DELETE {
                seam.send_as_meant(request(method, path, &json!({ "preconditions": which }))).await;
            } else {
                let body = json!({ "metadata": which, "spec": { "holderIdentity": null } });
                seam.write_as_meant(path, &body).await;
            }
        }));
    }

    /// The answer that a planted bug reads in place of the true one.
    pub(super) fn other_words(&self, parts: &Parts, answer: Bytes) -> Bytes {
        let (evidence, heartbeat, devices) = ("/fenceevidences", "/kube-node-lease/leases/", "/fencedevices");
        let (resource, is, reads) = match self.plant {
            Some(Plant::SharesAnyway) => ("/persistentvolumes", "ReadWriteOncePod", "ReadWriteOnce"),
            Some(Plant::DeafToMounts) => ("/nodes", "^data-0\"", "^data-none\""),
            // A kubelet may go without a report for three eighths of the duration, and status checks lie as far apart.
            Some(Plant::LooksTooSoon) => (heartbeat, "\"leaseDurationSeconds\":40", "\"leaseDurationSeconds\":1"),
            Some(Plant::WordsNeverExpire) => (evidence, "\"validSeconds\"", "\"unread\""),
            Some(Plant::MasksWords) if self.is_proved_otherwise(&answer) => {
                (evidence, "\"kind\":\"Asserted\"", "\"kind\":\"StorageFenced\"")
            }
            Some(Plant::ForgetsFormerLives) if self.is_about_a_former_life(&answer) => {
                (evidence, "\"kind\":\"Asserted\"", "\"kind\":\"StorageFenced\"")
            }
            Some(Plant::TrustsTenants) => (devices, "[\"machines\"]", "[\"machines\",\"tenants\"]"),
            _ => return answer,
        };
        match std::str::from_utf8(&answer) {
            Ok(text)
                if parts.path().ends_with(resource)
                    || [evidence, heartbeat, devices].contains(&resource) && parts.path().contains(resource) =>
            {
                text.replace(is, reads).into()
            }
            _ => answer,
        }
    }

    /// Whether there is evidence by devices about the node of this evidence.
    fn is_proved_otherwise(&self, bytes: &Bytes) -> bool {
        let evidence: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let about = evidence.pointer("/object/spec/node").or_else(|| evidence.pointer("/spec/node"));
        let by_device =
            |other: &Value| str_at(other, "/spec/kind") == "PowerOff" && other.pointer("/spec/node") == about;
        !self.world.etcd.objects_that("FenceEvidence", by_device).is_empty()
    }

    /// Whether another Node has the name of the node of this evidence.
    fn is_about_a_former_life(&self, bytes: &Bytes) -> bool {
        let evidence: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let about = evidence.pointer("/object/spec/node").or_else(|| evidence.pointer("/spec/node"));
        let node = about.and_then(|about| self.world.etcd.object("Node", str_at(about, "/name")));
        node.zip(about).is_some_and(|(node, about)| str_at(&node, "/metadata/uid") != str_at(about, "/uid"))
    }

    /// The same for a list.
    pub(super) async fn in_other_words(
        &self,
        parts: &Parts,
        answer: Result<Answer, BoxError>,
    ) -> Result<Answer, BoxError> {
        use http_body_util::BodyExt;
        if parts.is_watch() || parts.method != Method::GET {
            return answer;
        }
        let answer = answer?;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        whole(code, self.other_words(parts, body))
    }
}

impl Parts {
    /// The deletion of the Lease of a volume.
    pub(super) fn forgets_a_volume(&self) -> bool {
        self.method == Method::DELETE && writes_volume_lease(self)
    }
}
