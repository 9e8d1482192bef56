//! The objects of a world in which exclusive volumes are guarded: a PersistentVolume and a claim of the same name for
//! each pod of the StatefulSet, and in some worlds a second one; the namespace of pod-safety's Leases, and the chart's
//! admission policies. And the changes that people make to them.

use std::sync::Arc;

use pod_safety_shared::model::VOLUME_LEASE_NAMESPACE;
use serde_json::{Value, json};

use super::attach::attachment;
use super::run::World;
use super::{str_at, value_at};
use crate::api::Policies;
use crate::campaign::Plant;

/// The driver of all disks.
const DRIVER: &str = "disk.example.com";

/// The name of the volume in the pod's spec.
const VOLUME: &str = "data";

/// The name of the second volume in the spec of pods with two.
const SECOND: &str = "log";

/// The finalizers that admission adds to new objects: an object stays while it is in use.
pub(super) const KEEPS_CLAIM: &str = "kubernetes.io/pvc-protection";
pub(super) const KEEPS_VOLUME: &str = "kubernetes.io/pv-protection";

pub(super) const VOLUMES: &str = "/api/v1/persistentvolumes";
pub(super) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

/// The name of a volume in `volumesInUse`.
pub(super) fn unique(volume: &str) -> String {
    format!("kubernetes.io/csi/{DRIVER}^{volume}")
}

/// The volume behind a name in `volumesInUse`; where volumes have no objects they have the names of their pods.
pub(super) fn meant(unique: &str) -> &str {
    unique.rsplit('^').next().unwrap_or(unique)
}

/// The claim that is created for the ephemeral volume of a pod, if it has one.
pub(super) fn own_claim(pod: &Value) -> Option<String> {
    value_at(pod, "/spec/volumes/0/ephemeral")?;
    Some(format!("{}-{VOLUME}", str_at(pod, "/metadata/name")))
}

/// The claims that a pod names.
pub(super) fn named_claims(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = value_at(pod, "/spec/volumes").and_then(Value::as_array).into_iter().flatten();
    volumes.map(|volume| str_at(volume, "/persistentVolumeClaim/claimName")).filter(|claim| !claim.is_empty())
}

/// All claims of a pod.
pub(crate) fn claims_of(pod: &Value) -> Vec<String> {
    named_claims(pod).map(str::to_owned).chain(own_claim(pod)).collect()
}

/// The volumes of a pod. Each has the name of its claim; where volumes have no objects, the name of the pod.
pub(super) fn volumes_of(pod: &Value) -> Vec<String> {
    let mut volumes = claims_of(pod);
    let name = str_at(pod, "/metadata/name");
    if volumes.is_empty() && name.starts_with("data-") {
        volumes.push(name.to_owned());
    }
    volumes
}

/// The volumes of the StatefulSet's pod with this name.
fn volumes_of_member(name: &str, two: bool) -> Vec<String> {
    let second = two.then(|| format!("{SECOND}-{name}"));
    [name.to_owned()].into_iter().chain(second).collect()
}

/// The part of a pod's spec that names its claims.
pub(super) fn claims(volumes: &[String]) -> Value {
    let named = [VOLUME, SECOND].into_iter().zip(volumes);
    named.map(|(name, claim)| json!({ "name": name, "persistentVolumeClaim": { "claimName": claim } })).collect()
}

/// The claim of a volume that exists already.
pub(super) fn claim(name: &str, one_pod: bool) -> Value {
    let mode = if one_pod { "ReadWriteOncePod" } else { "ReadWriteOnce" };
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": "default", "finalizers": [KEEPS_CLAIM] },
        "spec": { "accessModes": [mode], "resources": { "requests": { "storage": "1Gi" } }, "volumeName": name },
    })
}

/// A volume for this claim, created by a person, or provisioned.
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

    /// Whether the volumes of the StatefulSet are ReadWriteOncePod.
    pub(super) fn one_pod(&self) -> bool {
        self.with.guarded_volumes.is_some_and(|guarding| guarding.one_pod)
    }

    /// The volumes of the StatefulSet's pod with this name.
    pub(super) fn member_volumes(&self, name: &str) -> Vec<String> {
        volumes_of_member(name, self.with.guarded_volumes.is_some_and(|guarding| guarding.two))
    }

    /// Records that a pod is about to be created with these volumes, which do not have its name.
    fn will_have(&self, pod: &str, volumes: &[String]) {
        let volumes = volumes.iter().map(|volume| format!("default/{volume}")).collect();
        self.checker.has_volumes(&format!("default/{pod}"), volumes);
    }

    /// The admission policies of the chart that this world has.
    pub(super) fn policies(&self) -> Policies {
        let guarding = self.with.guarded_volumes;
        let pod_report = !self.with.furnished && self.plant != Some(Plant::TenantsReport);
        Policies { volume_held: guarding.is_some(), volume_gate: guarding.is_some_and(|one| one.gate), pod_report }
    }

    /// Creates the objects that exist before the first pod.
    pub(super) async fn install_volumes(self: &Arc<Self>) {
        let Some(guarding) = self.with.guarded_volumes else { return };
        self.checker.volumes_are_guarded(guarding.excludes, guarding.one_pod);
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": VOLUME_LEASE_NAMESPACE } });
        self.person("POST", "/api/v1/namespaces", Some(namespace)).await;
        for member in 0..self.members {
            let name = format!("data-{member}");
            let volumes = self.member_volumes(&name);
            self.will_have(&name, &volumes);
            for name in volumes {
                self.person("POST", VOLUMES, Some(volume(&name, guarding.one_pod, None))).await;
                self.person("POST", CLAIMS, Some(claim(&name, guarding.one_pod))).await;
            }
        }
    }

    /// A person creates a pod with the volumes of a pod of the StatefulSet; of two volumes every second such pod has
    /// only the last.
    pub(super) async fn make_pod(&self, member: usize) {
        let (name, all) = (format!("next-{member}"), self.member_volumes(&format!("data-{member}")));
        let volumes = if member.is_multiple_of(2) { &all[..] } else { all.split_at(all.len() - 1).1 };
        self.will_have(&name, volumes);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "volumes": claims(volumes), "terminationGracePeriodSeconds": 5,
                "containers": [{ "name": "main", "image": "hollow" }] },
        });
        self.person("POST", "/api/v1/namespaces/default/pods", Some(pod)).await;
    }

    /// A person creates a pod with a volume that is deleted with it.
    pub(super) async fn make_brief(&self, number: usize) {
        let name = format!("brief-{number}");
        self.will_have(&name, &[format!("{name}-{VOLUME}")]);
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

    /// A person force deletes a pod.
    pub(super) async fn force_delete(&self, member: usize) {
        let path = format!("/api/v1/namespaces/default/pods/data-{member}");
        let pod = self.etcd.object("Pod", &format!("default/data-{member}"));
        self.checker.is_forced(pod.as_ref().map_or("", |pod| str_at(pod, "/metadata/uid")));
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0 });
        self.person("DELETE", &path, Some(options)).await;
    }

    /// A person detaches a volume from every node to which it is attached.
    pub(super) async fn tear_off(&self, member: usize) {
        let volume = format!("data-{member}");
        let of_it = |one: &Value| str_at(one, "/spec/source/persistentVolumeName") == volume;
        for one in self.etcd.objects_that("VolumeAttachment", of_it) {
            let path = attachment(&volume, str_at(&one, "/spec/nodeName"));
            self.person("DELETE", &path, None).await;
        }
    }

    /// A person creates the claim and the volume of a pod again, for the same disk.
    pub(super) async fn renew_volume(&self, member: usize, force: bool) {
        let name = format!("data-{member}");
        let at =
            [(CLAIMS, "PersistentVolumeClaim", format!("default/{name}")), (VOLUMES, "PersistentVolume", name.clone())];
        for (path, kind, key) in &at {
            let uid = self.etcd.object(kind, key).map(|old| str_at(&old, "/metadata/uid").to_owned());
            let path = format!("{path}/{name}");
            self.person("DELETE", &path, None).await;
            if force {
                self.person("PATCH", &path, Some(json!([{ "op": "remove", "path": "/metadata/finalizers" }]))).await;
            }
            let is_there =
                || self.etcd.object(kind, key).is_some_and(|now| Some(str_at(&now, "/metadata/uid")) == uid.as_deref());
            while is_there() {
                self.wait(1).await;
            }
        }
        self.checker.probe("a volume was made anew under its name");
        self.person("POST", VOLUMES, Some(volume(&name, self.one_pod(), None))).await;
        self.person("POST", CLAIMS, Some(claim(&name, self.one_pod()))).await;
    }
}
