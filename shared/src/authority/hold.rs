//! Why nothing is done: typed, with its numbers, for people and for checkers.

use std::sync::Arc;
use std::time::Duration;

use crate::cache::Sign;
use crate::model::Kind;

/// A reason to do nothing now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hold {
    /// Not everything was listed yet.
    #[error("{} are not listed yet", kind.resource())]
    NotSynced {
        /// Of which kind.
        kind: Kind,
    },
    /// The API server has said nothing for too long.
    #[error("the API server has been silent on {} for {}s; nothing is decided from what may be old", kind.resource(), silent.as_secs())]
    Stale {
        /// On which kind.
        kind: Kind,
        /// For how long.
        silent: Duration,
    },
    /// The node is there, or may be, but cannot be read.
    #[error("node {node} cannot be read: {why}; unknown is not absent")]
    NodeUnreadable {
        /// Its name.
        node: Arc<str>,
        /// What is wrong.
        why: String,
    },
    /// The node is missing, but not for long enough.
    #[error("node {node} is missing; it is believed to be gone in {}s, if neither it nor its Lease returns", left.as_secs())]
    Quarantine {
        /// Its name.
        node: Arc<str>,
        /// How long is left.
        left: Duration,
    },
    /// The node is missing, but its kubelet acts.
    #[error("node {node} does not exist, but its kubelet lives: {} {}s ago. Its pods may run. Stop that kubelet, or let it register its Node again", sign_words(*sign), ago.as_secs())]
    KubeletAlive {
        /// Its name.
        node: Arc<str>,
        /// What showed it.
        sign: Sign,
        /// How long ago.
        ago: Duration,
    },
    /// The out-of-service taint is only somebody's word.
    #[error(
        "node {node} carries the taint node.kubernetes.io/out-of-service, which nobody has proved. Fence the node, or start with --trust-out-of-service-taint to take the taint for proof"
    )]
    OutOfServiceUnproved {
        /// Its name.
        node: Arc<str>,
    },
    /// The node says itself that it is well.
    #[error(
        "node {node} carries the taint node.kubernetes.io/out-of-service, but is Ready: it is in service"
    )]
    OutOfServiceButReady {
        /// Its name.
        node: Arc<str>,
    },
    /// Its phase says ended, its containers say running.
    #[error(
        "the pod's phase says that it ended, but its last report shows a running container: somebody else wrote the phase"
    )]
    TerminalButRunning,
    /// Its phase is a word that proves nothing, though KCM takes it for ended.
    #[error("the pod's phase is empty or unknown: that does not prove that it ended")]
    PhaseUnreadable,
    /// Only the owners of its finalizers can let it go.
    #[error("the pod is deleted and waits for its finalizers: {}", finalizers.join(", "))]
    Finalizers {
        /// Their names.
        finalizers: Vec<String>,
    },
}

const fn sign_words(sign: Sign) -> &'static str {
    match sign {
        Sign::LeaseRenewed => "its Lease was renewed",
        Sign::MirrorPodCreated => "it created a mirror pod",
    }
}

impl Hold {
    /// The reason in one CamelCase word, for metrics, Events and programs.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotSynced { .. } => "NotSynced",
            Self::Stale { .. } => "Stale",
            Self::NodeUnreadable { .. } => "NodeUnreadable",
            Self::Quarantine { .. } => "Quarantine",
            Self::KubeletAlive { .. } => "KubeletAlive",
            Self::OutOfServiceUnproved { .. } => "OutOfServiceUnproved",
            Self::OutOfServiceButReady { .. } => "OutOfServiceButReady",
            Self::TerminalButRunning => "TerminalButRunning",
            Self::PhaseUnreadable => "PhaseUnreadable",
            Self::Finalizers { .. } => "Finalizers",
        }
    }

    /// Every reason, for metrics that must exist before they count.
    pub const REASONS: [&'static str; 10] = [
        "NotSynced",
        "Stale",
        "NodeUnreadable",
        "Quarantine",
        "KubeletAlive",
        "OutOfServiceUnproved",
        "OutOfServiceButReady",
        "TerminalButRunning",
        "PhaseUnreadable",
        "Finalizers",
    ];

    /// Whether a person should hear of it: it will not pass by itself.
    #[must_use]
    pub const fn needs_a_person(&self) -> bool {
        match self {
            Self::NotSynced { .. }
            | Self::Stale { .. }
            | Self::Quarantine { .. }
            | Self::Finalizers { .. } => false,
            Self::NodeUnreadable { .. }
            | Self::KubeletAlive { .. }
            | Self::OutOfServiceUnproved { .. }
            | Self::OutOfServiceButReady { .. }
            | Self::TerminalButRunning
            | Self::PhaseUnreadable => true,
        }
    }
}
