//! The rules that run in a world.

use crate::world::{Baseline, Launch, Subject};

/// The rules that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contender {
    /// The shipped process.
    PodSafety,
    /// The rules of kube-controller-manager's `PodGC`.
    KubeControllerManager,
    /// The script that force deletes the pods of a node that is not ready.
    Script,
}

impl Contender {
    /// All of them, pod-safety first.
    pub const ALL: [Self; 3] = [Self::PodSafety, Self::KubeControllerManager, Self::Script];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PodSafety => "pod-safety",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::Script => "script",
        }
    }

    /// Its name for people.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Script => "script --force",
            other => other.name(),
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|contender| contender.name() == name)
    }

    /// The next one; after the last, the first.
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::PodSafety => Self::KubeControllerManager,
            Self::KubeControllerManager => Self::Script,
            Self::Script => Self::PodSafety,
        }
    }

    /// The subject to run; `launch` starts the shipped process.
    #[must_use]
    pub const fn subject(self, launch: Launch) -> Subject {
        match self {
            Self::PodSafety => Subject::Shipped(launch, None),
            Self::KubeControllerManager => Subject::Baseline(Baseline::KubeControllerManager),
            Self::Script => Subject::Baseline(Baseline::Script),
        }
    }
}
