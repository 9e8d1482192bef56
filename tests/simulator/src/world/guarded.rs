//! What a world has where exclusive volumes are guarded: a PersistentVolume and a claim for each pod of the
//! StatefulSet, called after it, the namespace of our Leases, and the chart's admission policies. And what people do
//! to all that.

use std::sync::Arc;

use pod_safety_shared::model::VOLUME_LEASES;
use serde_json::{Value, json};

use super::attach::attachment;
use super::run::World;
use super::{part, word};
use crate::api::Policies;

/// The driver of all disks.
const DRIVER: &str = "disk.example.com";

/// What pods call their volume.
const VOLUME: &str = "data";

/// The finalizers that admission gives to what is made: it stays while it is in use.
pub(super) const KEEPS_CLAIM: &str = "kubernetes.io/pvc-protection";
pub(super) const KEEPS_VOLUME: &str = "kubernetes.io/pv-protection";

pub(super) const VOLUMES: &str = "/api/v1/persistentvolumes";
pub(super) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

/// How kubelets call a volume in `volumesInUse`.
pub(super) fn unique(volume: &str) -> String {
    format!("kubernetes.io/csi/{DRIVER}^{volume}")
}

/// The volume that a kubelet means; where volumes have no objects they are called after their pods.
pub(super) fn meant(unique: &str) -> &str {
    unique.rsplit('^').next().unwrap_or(unique)
}

/// The claim that is made for the ephemeral volume of a pod, if it has one.
pub(super) fn own_claim(pod: &Value) -> Option<String> {
    part(pod, "/spec/volumes/0/ephemeral")?;
    Some(format!("{}-{VOLUME}", word(pod, "/metadata/name")))
}

/// The volume of a pod, which is called after its claim.
pub(super) fn volume_of(pod: &Value) -> Option<String> {
    if let Some(own) = own_claim(pod) {
        return Some(own);
    }
    let claim = word(pod, "/spec/volumes/0/persistentVolumeClaim/claimName");
    let name = if claim.is_empty() { word(pod, "/metadata/name") } else { claim };
    name.starts_with("data-").then(|| name.to_owned())
}

/// What a pod says of the claim that it uses.
pub(super) fn claims(volume: &str) -> Value {
    json!([{ "name": VOLUME, "persistentVolumeClaim": { "claimName": volume } }])
}

/// The claim of a volume that is there already.
pub(super) fn claim(name: &str, one_pod: bool) -> Value {
    let mode = if one_pod { "ReadWriteOncePod" } else { "ReadWriteOnce" };
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": "default", "finalizers": [KEEPS_CLAIM] },
        "spec": { "accessModes": [mode], "resources": { "requests": { "storage": "1Gi" } }, "volumeName": name },
    })
}

/// A volume for this claim, made by a person, or provisioned.
pub(super) fn volume(name: &str, one_pod: bool, claim_uid: Option<&str>) -> Value {
    let mode = if one_pod { "ReadWriteOncePod" } else { "ReadWriteOnce" };
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": { "name": name, "finalizers": [KEEPS_VOLUME] },
        "spec": { "accessModes": [mode], "capacity": { "storage": "1Gi" },
            "persistentVolumeReclaimPolicy": if claim_uid.is_some() { "Delete" } else { "Retain" },
            "csi": { "driver": DRIVER, "volumeHandle": name },
            "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": name,
                "uid": claim_uid } },
    })
}

impl World {
    /// How a kubelet reports this volume.
    pub(super) fn reported(&self, volume: String) -> String {
        if self.with.guarded_volumes.is_some() { unique(&volume) } else { volume }
    }

    /// The volumes of the StatefulSet are for one pod each.
    pub(super) fn one_pod(&self) -> bool {
        self.with.guarded_volumes.is_some_and(|guarding| guarding.one_pod)
    }

    /// Makes what is there before the first pod.
    pub(super) async fn install_volumes(self: &Arc<Self>) {
        let Some(guarding) = self.with.guarded_volumes else { return };
        self.checker.volumes_are_guarded(guarding.excludes, guarding.one_pod);
        self.etcd.enforce(Policies { volume_held: true, volume_gate: guarding.gate });
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": VOLUME_LEASES } });
        self.person("POST", "/api/v1/namespaces", Some(namespace)).await;
        for member in 0..self.members {
            let name = format!("data-{member}");
            self.person("POST", VOLUMES, Some(volume(&name, guarding.one_pod, None))).await;
            self.person("POST", CLAIMS, Some(claim(&name, guarding.one_pod))).await;
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

    /// A person makes a pod with a volume that goes with it.
    pub(super) async fn make_brief(&self, number: usize) {
        let name = format!("brief-{number}");
        self.checker.shares_volume(&format!("default/{name}"), &format!("default/{name}-{VOLUME}"));
        let template = json!({ "spec": { "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } } } });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
            "spec": { "volumes": [{ "name": VOLUME, "ephemeral": { "volumeClaimTemplate": template } }],
                "restartPolicy": "Never", "terminationGracePeriodSeconds": 5,
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

    /// A person takes a volume from wherever it is attached.
    pub(super) async fn tear_off(&self, member: usize) {
        let volume = format!("data-{member}");
        let of_it = |one: &Value| word(one, "/spec/source/persistentVolumeName") == volume;
        for one in self.etcd.objects_that("VolumeAttachment", of_it) {
            let path = attachment(&volume, word(&one, "/spec/nodeName"));
            self.person("DELETE", &path, None).await;
        }
    }

    /// A person makes the claim and the volume of a member anew, of the same disk.
    pub(super) async fn renew_volume(&self, member: usize, force: bool) {
        let name = format!("data-{member}");
        let at = [
            (CLAIMS, "PersistentVolumeClaim", format!("default/{name}")),
            (VOLUMES, "PersistentVolume", name.clone()),
        ];
        for (path, kind, key) in &at {
            let uid = self.etcd.object(kind, key).map(|old| word(&old, "/metadata/uid").to_owned());
            let path = format!("{path}/{name}");
            self.person("DELETE", &path, None).await;
            if force {
                self.person(
                    "PATCH",
                    &path,
                    Some(json!([{ "op": "remove", "path": "/metadata/finalizers" }])),
                )
                .await;
            }
            let is_there = || {
                self.etcd
                    .object(kind, key)
                    .is_some_and(|now| Some(word(&now, "/metadata/uid")) == uid.as_deref())
            };
            while is_there() {
                self.wait(1).await;
            }
        }
        self.checker.probe("a volume was made anew under its name");
        self.person("POST", VOLUMES, Some(volume(&name, self.one_pod(), None))).await;
        self.person("POST", CLAIMS, Some(claim(&name, self.one_pod()))).await;
    }
}
