//! A workload as decisions see it: how many pods it wants, and whose it is.

use std::sync::Arc;

use super::{Controller, Rv, Uid};

/// Which of the kinds whose `spec.replicas` the cache follows.
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
    /// The kind that an owner reference names (`getPodReplicaSet` and its
    /// neighbours: the group decides, not the version); `None`: another one, which
    /// has to be asked for its scale.
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

/// What the scale of a controller of another kind says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// It wants so many pods.
    Replicas(i32),
    /// Its kind has no scale: a DaemonSet, a Job.
    None,
    /// The controller is not there, or another one has its name.
    Absent,
}

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Which kind it is of.
    pub kind: WorkloadKind,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Box<str>,
    /// The identity.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// How many pods it wants; the API server fills in one where nothing is said.
    pub replicas: i32,
    /// Who manages it: a Deployment its ReplicaSets.
    pub controller: Option<Arc<Controller>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_decides_and_not_the_version() {
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
