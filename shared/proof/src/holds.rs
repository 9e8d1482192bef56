//! Whether a FenceEvidence is valid now. The judge, the out-of-service taint, the adoption of evidence, the cached view and
//! `explain` all use this check. It does not query the devices; it checks everything else.

use std::time::Duration;

use jiff::Timestamp;
use pod_safety_model::{FenceEvidenceKind, Grade, Incarnation};

use crate::facts::EvidenceRead;
use crate::{Refusal, ReportKind};

/// The fields of a FenceEvidence that decide whether it is valid.
#[derive(Clone, Copy, Debug)]
pub struct EvidenceFields<'a> {
    /// The incarnation that the evidence is about.
    pub node: &'a Incarnation,
    /// The kind of evidence.
    pub kind: FenceEvidenceKind,
    /// The `renewTime` of the node's Lease when the evidence was established.
    pub lease_renewed: Option<&'a str>,
    /// How long the evidence is valid; `None`: without limit.
    pub valid_for: Option<Duration>,
    /// The evidence was invalidated.
    pub invalidated: bool,
    /// The deletion of the evidence was requested.
    pub deleting: bool,
    /// How long ago the evidence was created; `None`: it has no creation time.
    pub age: Option<Duration>,
}

/// The state of a node now.
#[derive(Clone, Debug)]
pub struct NodeState {
    /// The node's present incarnation.
    pub incarnation: Incarnation,
    /// The `renewTime` of the node's Lease. The outer `None`: there is no Lease.
    pub renewed: Option<Option<Timestamp>>,
    /// The weakest grade of evidence that the node's FencePolicy accepts.
    pub minimum: Grade,
}

/// Why a FenceEvidence is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvidenceDefect {
    /// Its status says that it was invalidated.
    Invalidated,
    /// Its deletion was requested.
    BeingDeleted,
    /// It is of kind StorageFenced.
    StorageOnly,
    /// It is about a node of another name.
    OtherNode,
    /// The node has booted since, was registered again, or does not report its boot ID.
    OtherIncarnation,
    /// Its validity has ended.
    Expired,
    /// The FencePolicy requires a higher grade, or cannot be read: then the highest grade is required.
    TooWeak,
    /// The kubelet has renewed its Lease since.
    LeaseRenewed,
}

impl EvidenceDefect {
    /// Why the evidence is not valid, as the end of a sentence.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Invalidated => "it was invalidated",
            Self::BeingDeleted => "it is being deleted",
            Self::StorageOnly => "it is about storage, and does not show what runs",
            Self::OtherNode => "it is about another node",
            Self::OtherIncarnation => "the node has another UID or another boot ID",
            Self::Expired => "the confirmation has expired; confirm again if it is still true",
            Self::TooWeak => "the node's FencePolicy requires verified evidence, or cannot be read",
            Self::LeaseRenewed => "the node's kubelet renewed its Lease since",
        }
    }
}

impl From<EvidenceDefect> for Refusal {
    fn from(defect: EvidenceDefect) -> Self {
        match defect {
            EvidenceDefect::LeaseRenewed => Self::KubeletAlive(ReportKind::LeaseRenewed),
            lack => Self::EvidenceInvalid(lack.describe()),
        }
    }
}

impl EvidenceRead {
    /// The fields that decide whether it is valid.
    #[must_use]
    pub fn fields(&self) -> EvidenceFields<'_> {
        let Self { spec, invalidated, deleting, age, .. } = self;
        EvidenceFields {
            node: &spec.node,
            kind: spec.kind,
            lease_renewed: spec.lease_renewed.as_deref(),
            valid_for: spec.valid_seconds.map(|seconds| Duration::from_secs(seconds.into())),
            invalidated: *invalidated,
            deleting: *deleting,
            age: *age,
        }
    }
}

impl EvidenceFields<'_> {
    /// Checks what does not depend on the kind and on the node: that the evidence is not invalidated, being deleted, or
    /// expired.
    ///
    /// # Errors
    /// The first defect.
    pub fn check_valid(&self) -> Result<(), EvidenceDefect> {
        // Evidence with a limited validity and without a creation time has expired.
        let expired = |valid_for| self.age.is_none_or(|age| age > valid_for);
        if self.invalidated {
            Err(EvidenceDefect::Invalidated)
        } else if self.deleting {
            Err(EvidenceDefect::BeingDeleted)
        } else if self.valid_for.is_some_and(expired) {
            Err(EvidenceDefect::Expired)
        } else {
            Ok(())
        }
    }

    /// Checks that this is valid evidence that an incarnation has ended. It does not depend on the present state of the node.
    ///
    /// # Errors
    /// The first defect.
    pub fn check_ends_incarnation(&self) -> Result<(), EvidenceDefect> {
        self.check_valid()?;
        self.kind.ends_incarnation().then_some(()).ok_or(EvidenceDefect::StorageOnly)
    }

    /// Checks that the evidence is valid for the node in its present state.
    ///
    /// # Errors
    /// The first defect.
    pub fn check_node(&self, node: &NodeState) -> Result<(), EvidenceDefect> {
        self.check_ends_incarnation()?;
        if self.node.name != node.incarnation.name {
            return Err(EvidenceDefect::OtherNode);
        }
        // A node that does not report its boot ID has an unknown incarnation.
        if *self.node != node.incarnation || node.incarnation.boot_id.is_empty() {
            return Err(EvidenceDefect::OtherIncarnation);
        }
        if self.kind.grade() < node.minimum {
            return Err(EvidenceDefect::TooWeak);
        }
        // Two times of the kubelet's clock are compared with each other, never with this host's clock.
        let unmoved = |renewed: Option<Timestamp>| renewed.map(|at| at.to_string()).as_deref() == self.lease_renewed;
        node.renewed.is_none_or(unmoved).then_some(()).ok_or(EvidenceDefect::LeaseRenewed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENEWED: &str = "2026-11-21T11:00:01Z";

    fn incarnation(boot: &str) -> Incarnation {
        Incarnation { name: "n".to_owned(), uid: "uid-n".to_owned(), boot_id: boot.to_owned() }
    }

    /// The spec of a person's confirmation.
    #[derive(Clone)]
    struct Confirmation {
        node: Incarnation,
        kind: FenceEvidenceKind,
        lease_renewed: Option<String>,
        valid_for: Option<Duration>,
    }

    fn confirmation() -> Confirmation {
        Confirmation {
            node: incarnation("b0000000-0000-4000-8000-000000000001"),
            kind: FenceEvidenceKind::OperatorConfirmed,
            lease_renewed: Some(RENEWED.to_owned()),
            valid_for: Some(Duration::from_secs(3_600)),
        }
    }

    type Change = fn(&mut Confirmation, &mut (bool, bool, Option<u64>), &mut NodeState);

    #[test]
    fn each_defect_of_evidence_is_named() {
        use EvidenceDefect::OtherIncarnation;
        let cases: [(&str, Change, Option<EvidenceDefect>); 17] = [
            ("as it was given", |_, _, _| (), None),
            ("to the last second", |_, state, _| state.2 = Some(3_600), None),
            ("a second later", |_, state, _| state.2 = Some(3_601), Some(EvidenceDefect::Expired)),
            ("nobody knows when", |_, state, _| state.2 = None, Some(EvidenceDefect::Expired)),
            ("for ever", |spec, state, _| (spec.valid_for, state.2) = (None, None), None),
            ("taken back", |_, state, _| state.0 = true, Some(EvidenceDefect::Invalidated)),
            ("on its way out", |_, state, _| state.1 = true, Some(EvidenceDefect::BeingDeleted)),
            (
                "of storage",
                |spec, _, _| spec.kind = FenceEvidenceKind::StorageFenced,
                Some(EvidenceDefect::StorageOnly),
            ),
            ("of m", |spec, _, _| spec.node.name = "m".to_owned(), Some(EvidenceDefect::OtherNode)),
            ("of another Node", |spec, _, _| spec.node.uid = "uid-o".to_owned(), Some(OtherIncarnation)),
            (
                "of another boot",
                |_, _, node| node.incarnation = incarnation("b0000000-0000-4000-8000-000000000002"),
                Some(OtherIncarnation),
            ),
            (
                "of no boot",
                |spec, _, node| (spec.node, node.incarnation) = (incarnation(""), incarnation("")),
                Some(OtherIncarnation),
            ),
            ("too weak", |_, _, node| node.minimum = Grade::Verified, Some(EvidenceDefect::TooWeak)),
            (
                "of a device, where verified evidence is asked for",
                |spec, _, node| (spec.kind, node.minimum) = (FenceEvidenceKind::PowerOff, Grade::Verified),
                None,
            ),
            (
                "heard since",
                |_, _, node| node.renewed = Some("2026-11-21T11:00:02Z".parse().ok()),
                Some(EvidenceDefect::LeaseRenewed),
            ),
            ("heard for the first time", |spec, _, _| spec.lease_renewed = None, Some(EvidenceDefect::LeaseRenewed)),
            ("its Lease went", |_, _, node| node.renewed = None, None),
        ];
        for (what, change, defect) in cases {
            let mut spec = confirmation();
            let mut current = NodeState {
                incarnation: incarnation("b0000000-0000-4000-8000-000000000001"),
                renewed: Some(RENEWED.parse().ok()),
                minimum: Grade::Asserted,
            };
            let mut state = (false, false, Some(60));
            change(&mut spec, &mut state, &mut current);
            let (invalidated, deleting, age) = state;
            let age = age.map(Duration::from_secs);
            let lease_renewed = spec.lease_renewed.as_deref();
            let (node, kind, valid_for) = (&spec.node, spec.kind, spec.valid_for);
            let fields = EvidenceFields { node, kind, lease_renewed, valid_for, invalidated, deleting, age };
            assert_eq!(fields.check_node(&current).err(), defect, "a confirmation {what}");
        }
    }
}
