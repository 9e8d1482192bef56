//! Why there is no evidence.

use std::time::Duration;

use crate::facts::ReportKind;

/// Why there is no evidence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::EnumDiscriminants)]
#[strum_discriminants(name(Reason), derive(strum::EnumString, strum::IntoStaticStr, strum::VariantNames))]
pub enum Refusal {
    /// The pod is not as the claim saw it.
    #[error("the pod changed since the decision")]
    PodChanged,
    /// The claim does not fit the pod.
    #[error("the pod does not match the claim: {0}")]
    ClaimMismatch(&'static str),
    /// No first read was made, or it was refuted.
    #[error("there is no first quorum read of the missing node yet")]
    NoWitness,
    /// The first read is too young.
    #[error("the quarantine lasts another {}s", left.as_secs())]
    QuarantineNotOver {
        /// How long.
        left: Duration,
    },
    /// The node is there.
    #[error("a quorum read found the node")]
    NodeExists,
    /// The kubelet runs.
    #[error("the kubelet showed a sign of life after the first read ({0:?})")]
    KubeletAlive(ReportKind),
    /// The kubelet was active until its Node was deleted: it gets the time to terminate the pod itself.
    #[error(
        "the kubelet was active until its Node was deleted, and has not had the time to terminate the pod itself"
    )]
    KubeletNotAsked,
    /// Its Lease was renewed so lately that a kubelet that runs need not have renewed it again.
    #[error("the kubelet reported recently: it must stay silent for another {}s", left.as_secs())]
    HeardLately {
        /// How long.
        left: Duration,
    },
    /// Heartbeats cannot be seen, so none can be said to be missing.
    #[error("the Leases of nodes, or the pods that kubelets create, cannot be watched")]
    HeartbeatsUnseen,
    /// The settings do not take a taint for proof, or it is ours, which rests on its evidence.
    #[error(
        "--trust-out-of-service-taint is off, or pod-safety added the taint itself and relies on its evidence instead"
    )]
    TaintNotTrusted,
    /// The node does not have the taint, or is Ready.
    #[error("a quorum read found the node Ready, or without the taint")]
    NodeInService,
    /// The FenceEvidence is not there, not valid, or not about this incarnation of the node.
    #[error("the FenceEvidence does not hold: {0}")]
    EvidenceInvalid(&'static str),
    /// The agent of its node does not report the end of the pod.
    #[error("the agent of its node does not report that no process and no mount of it is left: {0}")]
    PodsNotEnded(String),
    /// What it reports may be older than the kubelet's answer to the deletion.
    #[error("the agent of its node must look at its pods once more")]
    AgentMustLookAgain,
    /// A device does not report off now.
    #[error("the machine may be on again: {0}")]
    PowerStateUnconfirmed(String),
}

impl Refusal {
    /// The reason in one CamelCase word.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        Reason::from(self).into()
    }

    /// Whether it refutes the first read: the quarantine starts anew.
    #[must_use]
    pub const fn refutes_absence(&self) -> bool {
        matches!(self, Self::NodeExists | Self::KubeletAlive(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_shows_a_living_kubelet_refutes_the_first_read() {
        for (refusal, refutes) in [
            (Refusal::NodeExists, true),
            (Refusal::KubeletAlive(ReportKind::LeaseRenewed), true),
            (Refusal::KubeletAlive(ReportKind::PodReported), true),
            (Refusal::PodChanged, false),
            (Refusal::ClaimMismatch("x"), false),
            (Refusal::NoWitness, false),
            (Refusal::QuarantineNotOver { left: Duration::from_secs(40) }, false),
            (Refusal::KubeletNotAsked, false),
            (Refusal::HeardLately { left: Duration::from_secs(40) }, false),
            (Refusal::HeartbeatsUnseen, false),
            (Refusal::TaintNotTrusted, false),
            (Refusal::NodeInService, false),
            (Refusal::EvidenceInvalid("x"), false),
            (Refusal::PowerStateUnconfirmed(String::new()), false),
            (Refusal::PodsNotEnded(String::new()), false),
            (Refusal::AgentMustLookAgain, false),
        ] {
            assert_eq!(refusal.refutes_absence(), refutes, "{refusal:?}");
        }
    }
}
