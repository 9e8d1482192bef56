//! What kube-controller-manager does with claims and PersistentVolumes beside attaching them, and the provisioner of a
//! driver, by the rules of 1.37 (`pkg/controller/volume/{pvcprotection,pvprotection,persistentvolume,ephemeral}`).
//!
//! | object | action |
//! |---|---|
//! | a pod with an ephemeral volume | creates a claim that the pod owns, which is garbage collected when the pod is gone |
//! | a claim without a volume | provisions one |
//! | a claim that is deleted | keeps it while a pod that has a node uses it |
//! | a volume | sets it to Bound, and to Released when its claim is gone; if it was provisioned, deletes it then, once it is detached |
//! | a volume that is deleted | keeps it while it is Bound |

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::guarded::{CLAIMS, KEEPS_CLAIM, KEEPS_VOLUME, VOLUMES, named_claims, own_claim, volume};
use super::host::Host;
use super::kcm::request_as;
use super::run::World;
use super::{str_at, value_at};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The objects that one pass reads, from the watch cache of its API server.
struct VolumeControllers {
    world: Arc<World>,
    pods: Vec<Arc<Value>>,
    claims: Vec<Arc<Value>>,
    volumes: Vec<Arc<Value>>,
}

/// Starts them.
pub(super) fn start(world: &Arc<World>, host: &Arc<Host>) {
    let (world, env) = (Arc::clone(world), host.env());
    host.start_task("claims", async move {
        loop {
            if let Some(server) = world.servers.get(0) {
                let has_volume = |pod: &Value| value_at(pod, "/spec/volumes/0").is_some();
                let pass = VolumeControllers {
                    world: Arc::clone(&world),
                    pods: server.cached_that("Pod", has_volume),
                    claims: server.cached("PersistentVolumeClaim"),
                    volumes: server.cached("PersistentVolume"),
                };
                pass.at_pods().await;
                pass.at_claims().await;
                pass.at_volumes().await;
            }
            env.sleep(POLL_INTERVAL).await;
        }
    });
}

fn name(object: &Value) -> &str {
    str_at(object, "/metadata/name")
}

fn is_deleted(object: &Value) -> bool {
    value_at(object, "/metadata/deletionTimestamp").is_some()
}

fn is_over(pod: &Value) -> bool {
    matches!(str_at(pod, "/status/phase"), "Failed" | "Succeeded")
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    let all = value_at(object, "/metadata/finalizers").and_then(Value::as_array).into_iter().flatten();
    all.into_iter().any(|one| one == finalizer)
}

impl VolumeControllers {
    async fn request(&self, method: &str, path: &str, body: Value) -> u16 {
        request_as(&self.world, "claims", method, path, Some(body).filter(|body| !body.is_null())).await
    }

    /// Removes the finalizers that keep a deleted object.
    async fn remove_finalizers(&self, path: String, object: &Value) {
        let patch = json!([
            { "op": "test", "path": "/metadata/resourceVersion", "value": str_at(object, "/metadata/resourceVersion") },
            { "op": "remove", "path": "/metadata/finalizers" },
        ]);
        self.request("PATCH", &path, patch).await;
    }

    async fn delete(&self, path: String, object: &Value) {
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions",
            "preconditions": { "uid": str_at(object, "/metadata/uid") } });
        self.request("DELETE", &path, options).await;
    }

    async fn at_pods(&self) {
        for pod in &self.pods {
            let Some(own) = own_claim(pod) else { continue };
            let path = format!("/api/v1/namespaces/default/pods/{}", name(pod));
            if is_over(pod) && !is_deleted(pod) {
                // Its owner is gone, so the claim is deleted.
                self.request("DELETE", &path, Value::Null).await;
            } else if !is_deleted(pod) && !self.claims.iter().any(|claim| name(claim) == own) {
                let owner = json!([{ "apiVersion": "v1", "kind": "Pod", "name": name(pod),
                    "uid": str_at(pod, "/metadata/uid"), "controller": true }]);
                let claim = json!({
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "metadata": { "name": own, "namespace": "default", "finalizers": [KEEPS_CLAIM], "ownerReferences": owner },
                    "spec": pod.pointer("/spec/volumes/0/ephemeral/volumeClaimTemplate/spec"),
                });
                self.request("POST", CLAIMS, claim).await;
            }
        }
    }

    /// Whether a pod that has a node uses this claim; a pod that has none may not start with a claim that is deleted.
    fn uses(pod: &Value, claim: &str) -> bool {
        let names = named_claims(pod).any(|named| named == claim);
        let owns = own_claim(pod).is_some_and(|own| own == claim) && !is_over(pod);
        !str_at(pod, "/spec/nodeName").is_empty() && (names || owns)
    }

    async fn at_claims(&self) {
        for claim in &self.claims {
            let path = format!("{CLAIMS}/{}", name(claim));
            if is_deleted(claim) {
                // The cache is not enough: pods are read once more, by quorum.
                let used = self.world.etcd.objects("Pod").iter().any(|pod| Self::uses(pod, name(claim)));
                if has_finalizer(claim, KEEPS_CLAIM) && !used {
                    self.remove_finalizers(path, claim).await;
                }
                continue;
            }
            let owner = str_at(claim, "/metadata/ownerReferences/0/uid");
            let pods = || self.world.etcd.objects_that("Pod", |pod| str_at(pod, "/metadata/uid") == owner);
            if !owner.is_empty() && pods().is_empty() {
                self.delete(path, claim).await;
                continue;
            }
            let bound = self.volumes.iter().find(|volume| name(volume) == name(claim));
            if str_at(claim, "/spec/volumeName").is_empty() {
                self.provision(claim, bound.map(Arc::as_ref)).await;
            } else if str_at(claim, "/status/phase") != "Bound" && bound.is_some_and(|bound| is_for(bound, claim)) {
                self.request("PATCH", &format!("{path}/status"), json!({ "status": { "phase": "Bound" } })).await;
            }
        }
    }

    async fn provision(&self, claim: &Value, made: Option<&Value>) {
        let uid = str_at(claim, "/metadata/uid");
        match made {
            None => drop(self.request("POST", VOLUMES, volume(name(claim), false, Some(uid))).await),
            Some(made) if is_for(made, claim) => {
                let bound = json!({ "spec": { "volumeName": name(claim) } });
                self.request("PATCH", &format!("{CLAIMS}/{}", name(claim)), bound).await;
            }
            Some(_) => {}
        }
    }

    async fn at_volumes(&self) {
        for volume in &self.volumes {
            let (path, phase) = (format!("{VOLUMES}/{}", name(volume)), str_at(volume, "/status/phase"));
            let claim = self.claims.iter().find(|claim| name(claim) == name(volume) && is_for(volume, claim));
            let desired = match claim {
                Some(claim) if !str_at(claim, "/spec/volumeName").is_empty() => "Bound",
                None if !str_at(volume, "/spec/claimRef/uid").is_empty() => "Released",
                _ => phase,
            };
            if desired == "Bound" && str_at(volume, "/spec/claimRef/uid").is_empty() {
                let uid = claim.map_or("", |claim| str_at(claim, "/metadata/uid"));
                self.request("PATCH", &path, json!({ "spec": { "claimRef": { "uid": uid } } })).await;
            }
            if desired != phase {
                self.request("PATCH", &format!("{path}/status"), json!({ "status": { "phase": desired } })).await;
            } else if is_deleted(volume) && phase != "Bound" && has_finalizer(volume, KEEPS_VOLUME) {
                self.remove_finalizers(path, volume).await;
            } else if !is_deleted(volume)
                && phase == "Released"
                && str_at(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete"
            {
                let of_it = |one: &Value| str_at(one, "/spec/source/persistentVolumeName") == name(volume);
                if self.world.etcd.objects_that("VolumeAttachment", of_it).is_empty() {
                    self.delete(path, volume).await;
                }
            }
        }
    }
}

/// Whether this volume is bound to this very claim, or may be.
pub(super) fn is_for(volume: &Value, claim: &Value) -> bool {
    let uid = str_at(volume, "/spec/claimRef/uid");
    uid.is_empty() || uid == str_at(claim, "/metadata/uid")
}

impl World {
    /// Whether a pod with this claim may start: the claim is there, bound, and not deleted, and so is its volume.
    pub(super) fn may_start_with(&self, volume: &str) -> bool {
        if self.with.guarded_volumes.is_none() {
            return true;
        }
        let claim = self.etcd.object("PersistentVolumeClaim", &format!("default/{volume}"));
        let bound = self.etcd.object("PersistentVolume", volume);
        claim.zip(bound).is_some_and(|(claim, bound)| {
            !is_deleted(&claim) && str_at(&claim, "/status/phase") == "Bound" && is_for(&bound, &claim)
        })
    }
}
