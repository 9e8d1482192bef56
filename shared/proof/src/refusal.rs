//! The reasons for which there is no evidence.

use std::time::Duration;

use crate::facts::ReportKind;

/// Why there is no evidence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::EnumDiscriminants)]
#[strum_discriminants(name(Reason), derive(strum::EnumString, strum::IntoStaticStr, strum::VariantNames))]
pub enum Refusal {
    /// The pod changed since the claim.
    #[error("the pod changed since the decision")]
    PodChanged,
    /// The claim does not match the pod.
    #[error("the pod does not match the claim: {0}")]
    ClaimMismatch(&'static str),
    /// There is no first read of the missing node, or it was refuted.
    #[error("there is no first quorum read of the missing node yet")]
    NoWitness,
    /// The quarantine since the first read is not over.
    #[error("the quarantine lasts another {}s", left.as_secs())]
    QuarantineNotOver {
        /// The remaining time.
        left: Duration,
    },
    /// The Node exists.
    #[error("a quorum read found the node")]
    NodeExists,
    /// The kubelet reported after the first read.
    #[error("the kubelet showed a sign of life after the first read ({0:?})")]
    KubeletAlive(ReportKind),
    /// The kubelet was active until its Node was deleted, and has not had the time to terminate the pod itself.
    #[error("the kubelet was active until its Node was deleted, and has not had the time to terminate the pod itself")]
    KubeletNotAsked,
    /// The Lease was renewed so recently that a kubelet that runs need not have renewed it again.
    #[error("the kubelet reported recently: it must stay silent for another {}s", left.as_secs())]
    HeardLately {
        /// The remaining time.
        left: Duration,
    },
    /// Reports of kubelets cannot be watched, so a missing report shows nothing.
    #[error("the Leases of nodes, or the pods that kubelets create, cannot be watched")]
    HeartbeatsUnseen,
    /// The settings do not trust the taint, or pod-safety added it, so that it rests on other evidence.
    #[error(
        "--trust-out-of-service-taint is off, or pod-safety added the taint itself and relies on its evidence instead"
    )]
    TaintNotTrusted,
    /// The node does not have the out-of-service taint, or is Ready.
    #[error("a quorum read found the node Ready, or without the taint")]
    NodeInService,
    /// The FenceEvidence does not exist, is not valid, or is about another incarnation of the node.
    #[error("the FenceEvidence does not hold: {0}")]
    EvidenceInvalid(&'static str),
    /// The agent on the pod's node does not report that the pod has ended.
    #[error("the agent of its node does not report that no process and no mount of it is left: {0}")]
    PodsNotEnded(String),
    /// The agent's report may be older than the kubelet's observation of the deletion.
    #[error("the agent of its node must look at its pods once more")]
    AgentMustLookAgain,
    /// A device does not report off now.
    #[error("the machine may be on again: {0}")]
    PowerStateUnconfirmed(String),
}

impl Refusal {
    /// The reason as one CamelCase word.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        Reason::from(self).into()
    }

    /// Whether the refusal refutes the first read, so that the quarantine starts again.
    #[must_use]
    pub const fn refutes_absence(&self) -> bool {
        matches!(self, Self::NodeExists | Self::KubeletAlive(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signs_of_a_running_kubelet_refute_the_first_read() {
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
