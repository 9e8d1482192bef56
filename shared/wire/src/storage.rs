//! Volumes of pods, claims, PersistentVolumes, attachments and CSI drivers.

use serde::{Deserialize, Serialize};

use super::message::{free_text, messages, null_is_empty};
use super::meta::{ObjectMeta, Presence};

messages! {
    /// A volume of a pod. In JSON its source is on the level of its name.
    PodVolume {
        /// Its name in the pod; the claim of an ephemeral volume is named after pod and volume.
        name: Option<String> = [string, optional, tag = "1"];
        /// Its source.
        source: Option<PodVolumeSource> = [message, optional, tag = "2"] serde[flatten];
    }

    /// The sources that have claims.
    PodVolumeSource {
        /// A claim in the pod's namespace.
        persistent_volume_claim: Option<ClaimSource> = [message, optional, tag = "10"];
        /// A claim that is created for the pod.
        ephemeral: Option<Presence> = [message, optional, tag = "29"];
    }

    /// `persistentVolumeClaim`.
    ClaimSource {
        /// The claim's name.
        claim_name: Vec<u8> = [bytes = "vec", tag = "1"] serde[with = "free_text"];
    }

    /// A scheduling gate.
    SchedulingGate {
        /// Its name, which identifies the controller that removes it.
        name: Option<String> = [string, optional, tag = "1"];
    }

    /// A PersistentVolume.
    PersistentVolume {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// Its spec.
        spec: Option<PersistentVolumeSpec> = [message, optional, tag = "2"];
    }

    /// `persistentVolume.spec`. In JSON its source is on the level of the other fields.
    PersistentVolumeSpec {
        /// Its source.
        source: Option<PersistentVolumeSource> = [message, optional, tag = "2"] serde[flatten];
        /// `ReadWriteOnce` and so on.
        access_modes: Vec<String> = [string, repeated, tag = "3"] serde[deserialize_with = "null_is_empty"];
        /// The claim to which it is bound, or for which it is reserved.
        claim_ref: Option<ClaimReference> = [message, optional, tag = "4"];
        /// Its class.
        storage_class_name: Option<String> = [string, optional, tag = "6"];
    }

    /// `claimRef`.
    ClaimReference {
        /// The claim's namespace.
        namespace: Option<String> = [string, optional, tag = "2"];
        /// Its name.
        name: Option<String> = [string, optional, tag = "3"];
        /// Its UID; absent while the volume is only reserved for a claim of that name.
        uid: Option<String> = [string, optional, tag = "4"];
    }

    /// The source that is read.
    PersistentVolumeSource {
        /// A disk of a CSI driver.
        csi: Option<CsiSource> = [message, optional, tag = "22"];
    }

    /// `csi`.
    CsiSource {
        /// The driver.
        driver: Option<String> = [string, optional, tag = "1"];
        /// The volume's ID at the driver.
        volume_handle: Option<String> = [string, optional, tag = "2"];
    }

    /// A PersistentVolumeClaim.
    PersistentVolumeClaim {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// Its spec.
        spec: Option<PersistentVolumeClaimSpec> = [message, optional, tag = "2"];
    }

    /// `persistentVolumeClaim.spec`.
    PersistentVolumeClaimSpec {
        /// The volume to which it is bound; empty before.
        volume_name: Vec<u8> = [bytes = "vec", tag = "3"] serde[with = "free_text"];
    }

    /// A VolumeAttachment.
    VolumeAttachment {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// The desired state.
        spec: Option<VolumeAttachmentSpec> = [message, optional, tag = "2"];
        /// The observed state.
        status: Option<VolumeAttachmentStatus> = [message, optional, tag = "3"];
    }

    /// `volumeAttachment.spec`.
    VolumeAttachmentSpec {
        /// The volume.
        source: Option<VolumeAttachmentSource> = [message, optional, tag = "2"];
        /// The node.
        node_name: Option<String> = [string, optional, tag = "3"];
    }

    /// `volumeAttachment.spec.source`; an inline one names no volume.
    VolumeAttachmentSource {
        /// The volume.
        persistent_volume_name: Option<String> = [string, optional, tag = "1"];
    }

    /// `volumeAttachment.status`.
    VolumeAttachmentStatus {
        /// Whether the driver has attached it.
        attached: bool = [bool, tag = "1"];
    }

    /// A CSIDriver.
    CsiDriver {
        /// The properties of the driver.
        spec: Option<CsiDriverSpec> = [message, optional, tag = "2"];
    }

    /// `csiDriver.spec`.
    CsiDriverSpec {
        /// Whether its volumes are attached before they are mounted; `None`: they are.
        attach_required: Option<bool> = [bool, optional, tag = "1"];
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Asserts that an object decodes the same from JSON and protobuf, and returns it.
    fn same<T>(object: Value) -> T
    where
        T: prost::Message + Default + PartialEq + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let read: T = serde_json::from_value(object).unwrap();
        assert_eq!(T::decode(read.encode_to_vec().as_slice()).unwrap(), read);
        read
    }

    #[test]
    fn volumes_decode_the_same_from_json_and_protobuf() {
        let volume: PersistentVolume = same(json!({
            "metadata": { "name": "v" },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "capacity": { "storage": "1Gi" },
                "csi": { "driver": "d", "volumeHandle": "h", "fsType": "ext4" } },
        }));
        let spec = volume.spec.unwrap();
        let csi = spec.source.unwrap().csi.unwrap();
        assert_eq!((csi.driver.as_deref(), csi.volume_handle.as_deref()), (Some("d"), Some("h")));
        assert_eq!(
            (spec.access_modes.as_slice(), spec.storage_class_name.as_deref()),
            (["ReadWriteOnce".to_owned()].as_slice(), Some("fast"))
        );
        let nfs: PersistentVolume =
            same(json!({ "spec": { "accessModes": null, "nfs": { "server": "s", "path": "/" } } }));
        assert_eq!(nfs.spec.unwrap().source.and_then(|source| source.csi), None);
    }

    #[test]
    fn claims_attachments_and_pods_decode_the_same_from_both_encodings() {
        let claim: PersistentVolumeClaim =
            same(json!({ "spec": { "volumeName": "v", "accessModes": ["ReadWriteOnce"] } }));
        assert_eq!(claim.spec.unwrap().volume_name, b"v");
        let attachment: VolumeAttachment = same(json!({
            "spec": { "attacher": "d", "nodeName": "n", "source": { "persistentVolumeName": "v" } },
            "status": { "attached": true, "attachmentMetadata": { "a": "b" } },
        }));
        assert!(attachment.status.unwrap().attached);
        assert_eq!(attachment.spec.unwrap().source.unwrap().persistent_volume_name.as_deref(), Some("v"));
        let driver: CsiDriver = same(json!({ "spec": { "attachRequired": false, "podInfoOnMount": true } }));
        assert_eq!(driver.spec.and_then(|spec| spec.attach_required), Some(false));
        let pod: super::super::Pod = same(json!({ "spec": {
            "schedulingGates": [{ "name": "g" }],
            "volumes": [{ "name": "a", "persistentVolumeClaim": { "claimName": "c" } }, { "name": "b", "ephemeral": { "volumeClaimTemplate": {} } }, { "name": "x", "emptyDir": {} }],
        } }));
        let spec = pod.spec.unwrap();
        assert_eq!(spec.scheduling_gates[0].name.as_deref(), Some("g"));
        let source = |at: usize| spec.volumes[at].source.clone().unwrap();
        assert_eq!(source(0).persistent_volume_claim.unwrap().claim_name, b"c");
        assert!(source(1).ephemeral.is_some() && source(2) == PodVolumeSource::default());
    }
}
