//! A workload as decisions see it: its desired number of pods, and its controller.

use std::sync::Arc;

use super::{Controller, Rv, Uid};

/// The kinds whose `spec.replicas` the cache follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkloadKind {
    /// apps/v1.
    Deployment,
    /// apps/v1.
    ReplicaSet,
    /// apps/v1.
    StatefulSet,
    /// v1.
    ReplicationController,
}

impl WorkloadKind {
    /// The kind that an owner reference names (as in `getPodReplicaSet` and related functions, the group decides, not
    /// the version); `None`: another kind, whose scale subresource has to be read.
    #[must_use]
    pub fn from_controller(controller: &Controller) -> Option<Self> {
        match (controller.group(), &*controller.kind) {
            ("apps", "Deployment") => Some(Self::Deployment),
            ("apps" | "extensions", "ReplicaSet") => Some(Self::ReplicaSet),
            ("apps", "StatefulSet") => Some(Self::StatefulSet),
            ("", "ReplicationController") => Some(Self::ReplicationController),
            _ => None,
        }
    }
}

/// The answer of the scale subresource of a controller of another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The desired number of pods.
    Replicas(i32),
    /// Its kind has no scale: a DaemonSet, a Job.
    None,
    /// The controller does not exist, or another one has its name.
    Absent,
}

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Box<str>,
    /// The UID.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// The desired number of pods; the API server's default is one.
    pub replicas: i32,
    /// Its controller: a Deployment for its ReplicaSets.
    pub controller: Option<Arc<Controller>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_an_owner_reference_decides_its_workload_kind() {
        let of = |api_version: &str, kind: &str| {
            let uid = Uid::new("u").unwrap();
            WorkloadKind::from_controller(&Controller {
                api_version: api_version.into(),
                kind: kind.into(),
                name: "n".into(),
                uid,
            })
        };
        assert_eq!(of("apps/v1", "ReplicaSet"), Some(WorkloadKind::ReplicaSet));
        assert_eq!(of("extensions/v1beta1", "ReplicaSet"), Some(WorkloadKind::ReplicaSet));
        assert_eq!(of("apps/v1beta2", "StatefulSet"), Some(WorkloadKind::StatefulSet));
        assert_eq!(of("v1", "ReplicationController"), Some(WorkloadKind::ReplicationController));
        assert_eq!(of("example.com/v1", "ReplicaSet"), None);
        assert_eq!(of("v1", "ReplicaSet"), None);
        assert_eq!(of("batch/v1", "Job"), None);
    }
}
