//! What a world has where exclusive volumes are guarded: a PersistentVolume and a claim for each pod of the
//! StatefulSet, called after it, the namespace of our Leases, and the chart's admission policies.

use std::sync::Arc;

use pod_safety_shared::model::VOLUME_LEASES;
use serde_json::{Value, json};

use super::run::World;
use super::word;
use crate::api::Policies;

/// The driver of all disks.
const DRIVER: &str = "disk.example.com";

/// How kubelets call a volume in `volumesInUse`.
fn unique(volume: &str) -> String {
    format!("kubernetes.io/csi/{DRIVER}^{volume}")
}

/// The volume that a kubelet means; where volumes have no objects they are called after their pods.
pub(super) fn meant(unique: &str) -> &str {
    unique.rsplit('^').next().unwrap_or(unique)
}

/// The volume of a pod.
pub(super) fn volume_of(pod: &Value) -> Option<&str> {
    let claim = word(pod, "/spec/volumes/0/persistentVolumeClaim/claimName");
    let name = if claim.is_empty() { word(pod, "/metadata/name") } else { claim };
    name.starts_with("data-").then_some(name)
}

/// What a pod says of the claim that it uses.
pub(super) fn claims(volume: &str) -> Value {
    json!([{ "name": "data", "persistentVolumeClaim": { "claimName": volume } }])
}

fn volume(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" },
            "csi": { "driver": DRIVER, "volumeHandle": name },
            "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": name } },
    })
}

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name, "namespace": "default" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
            "volumeName": name },
    })
}

impl World {
    /// How a kubelet reports this volume.
    pub(super) fn reported(&self, volume: String) -> String {
        if self.with.guarded_volumes.is_some() { unique(&volume) } else { volume }
    }

    /// Makes what is there before the first pod.
    pub(super) async fn install_volumes(self: &Arc<Self>) {
        let Some(guarding) = self.with.guarded_volumes else { return };
        self.checker.volumes_are_guarded(guarding.excludes);
        self.etcd.enforce(Policies { volume_held: true, volume_gate: guarding.gate });
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": VOLUME_LEASES } });
        self.person("POST", "/api/v1/namespaces", Some(namespace)).await;
        for member in 0..self.members {
            let name = format!("data-{member}");
            self.person("POST", "/api/v1/persistentvolumes", Some(volume(&name))).await;
            self.person("POST", "/api/v1/namespaces/default/persistentvolumeclaims", Some(claim(&name)))
                .await;
        }
    }

    /// A person makes a pod with the volume of a member of the StatefulSet.
    pub(super) async fn make_pod(&self, member: usize) {
        self.checker.shares_volume(&format!("default/next-{member}"), &format!("default/data-{member}"));
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("next-{member}"), "namespace": "default" },
            "spec": { "volumes": claims(&format!("data-{member}")), "terminationGracePeriodSeconds": 5,
                "containers": [{ "name": "main", "image": "hollow" }] },
        });
        self.person("POST", "/api/v1/namespaces/default/pods", Some(pod)).await;
    }

    /// A person does not wait for the kubelet.
    pub(super) async fn force_delete(&self, member: usize) {
        let path = format!("/api/v1/namespaces/default/pods/data-{member}");
        let pod = self.etcd.object("Pod", &format!("default/data-{member}"));
        self.checker.is_forced(pod.as_ref().map_or("", |pod| word(pod, "/metadata/uid")));
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0 });
        self.person("DELETE", &path, Some(options)).await;
    }
}
