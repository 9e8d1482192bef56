//! Whether a FenceEvidence holds now: one question, with one answer for the judge, the taint, adoption, the cached view
//! and `explain`. What its devices report is not asked here; all else is.

use std::time::Duration;

use jiff::Timestamp;
use pod_safety_model::{FenceEvidenceKind, Grade, Incarnation};

use crate::facts::EvidenceRead;
use crate::{Refusal, ReportKind};

/// What evidence says, and what became of it.
#[derive(Clone, Copy, Debug)]
pub struct EvidenceFields<'a> {
    /// The incarnation that it is about.
    pub node: &'a Incarnation,
    /// How the fact was found.
    pub kind: FenceEvidenceKind,
    /// The `renewTime` of the Lease when it was found.
    pub lease_renewed: Option<&'a str>,
    /// How long it holds; `None`: without limit.
    pub valid_for: Option<Duration>,
    /// It was declared invalid.
    pub invalidated: bool,
    /// Its deletion was requested.
    pub deleting: bool,
    /// How long ago it was written; `None`: it does not say.
    pub age: Option<Duration>,
}

/// The node as it is now.
#[derive(Clone, Debug)]
pub struct NodeState {
    /// The incarnation that it is in.
    pub incarnation: Incarnation,
    /// The `renewTime` of its Lease; `None`: there is no Lease.
    pub renewed: Option<Option<Timestamp>>,
    /// Which evidence its FencePolicy takes.
    pub minimum: Grade,
}

/// What evidence lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvidenceDefect {
    /// Its status says so.
    Invalidated,
    /// Its deletion was requested.
    BeingDeleted,
    /// It is of kind StorageFenced.
    StorageOnly,
    /// It is about another node.
    OtherNode,
    /// The node booted, or was registered anew, or does not report its boot ID.
    OtherIncarnation,
    /// It has expired.
    Expired,
    /// The FencePolicy requires more, or cannot be read: then the strictest is assumed.
    TooWeak,
    /// The kubelet renewed its Lease since.
    LeaseRenewed,
}

impl EvidenceDefect {
    /// Why it does not hold, as the end of a sentence.
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
    /// What it says.
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
    /// Whether anything contradicts it, whatever it is about.
    ///
    /// # Errors
    /// The first thing.
    pub fn check_valid(&self) -> Result<(), EvidenceDefect> {
        // What does not say when it was written has expired.
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

    /// What it lacks, as evidence that an incarnation has ended, whatever the node does.
    ///
    /// # Errors
    /// The first thing.
    pub fn check_ends_incarnation(&self) -> Result<(), EvidenceDefect> {
        self.check_valid()?;
        self.kind.ends_incarnation().then_some(()).ok_or(EvidenceDefect::StorageOnly)
    }

    /// What contradicts it, about the node as it is now.
    ///
    /// # Errors
    /// The first thing.
    pub fn check_node(&self, node: &NodeState) -> Result<(), EvidenceDefect> {
        self.check_ends_incarnation()?;
        if self.node.name != node.incarnation.name {
            return Err(EvidenceDefect::OtherNode);
        }
        // The incarnation of a node that does not report its boot ID is unknown.
        if *self.node != node.incarnation || node.incarnation.boot_id.is_empty() {
            return Err(EvidenceDefect::OtherIncarnation);
        }
        if self.kind.grade() < node.minimum {
            return Err(EvidenceDefect::TooWeak);
        }
        // Two stamps of one kubelet are compared, never with our time.
        let unmoved =
            |renewed: Option<Timestamp>| renewed.map(|at| at.to_string()).as_deref() == self.lease_renewed;
        node.renewed.is_none_or(unmoved).then_some(()).ok_or(EvidenceDefect::LeaseRenewed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENEWED: &str = "2026-11-21T11:00:01Z";

    fn life(boot: &str) -> Incarnation {
        Incarnation { name: "n".to_owned(), uid: "uid-n".to_owned(), boot_id: boot.to_owned() }
    }

    /// What a person's confirmation says.
    #[derive(Clone)]
    struct Confirmation {
        node: Incarnation,
        kind: FenceEvidenceKind,
        lease_renewed: Option<String>,
        valid_for: Option<Duration>,
    }

    fn confirmation() -> Confirmation {
        Confirmation {
            node: life("b0000000-0000-4000-8000-000000000001"),
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
            ("to the last second", |_, said, _| said.2 = Some(3_600), None),
            ("a second later", |_, said, _| said.2 = Some(3_601), Some(EvidenceDefect::Expired)),
            ("nobody knows when", |_, said, _| said.2 = None, Some(EvidenceDefect::Expired)),
            ("for ever", |spec, said, _| (spec.valid_for, said.2) = (None, None), None),
            ("taken back", |_, said, _| said.0 = true, Some(EvidenceDefect::Invalidated)),
            ("on its way out", |_, said, _| said.1 = true, Some(EvidenceDefect::BeingDeleted)),
            (
                "of storage",
                |spec, _, _| spec.kind = FenceEvidenceKind::StorageFenced,
                Some(EvidenceDefect::StorageOnly),
            ),
            ("of m", |spec, _, _| spec.node.name = "m".to_owned(), Some(EvidenceDefect::OtherNode)),
            ("of another Node", |spec, _, _| spec.node.uid = "uid-o".to_owned(), Some(OtherIncarnation)),
            (
                "of another boot",
                |_, _, now| now.incarnation = life("b0000000-0000-4000-8000-000000000002"),
                Some(OtherIncarnation),
            ),
            (
                "of no boot",
                |spec, _, now| (spec.node, now.incarnation) = (life(""), life("")),
                Some(OtherIncarnation),
            ),
            ("too weak", |_, _, now| now.minimum = Grade::Verified, Some(EvidenceDefect::TooWeak)),
            (
                "of a device, where verified evidence is asked for",
                |spec, _, now| (spec.kind, now.minimum) = (FenceEvidenceKind::PowerOff, Grade::Verified),
                None,
            ),
            (
                "heard since",
                |_, _, now| now.renewed = Some("2026-11-21T11:00:02Z".parse().ok()),
                Some(EvidenceDefect::LeaseRenewed),
            ),
            (
                "heard for the first time",
                |spec, _, _| spec.lease_renewed = None,
                Some(EvidenceDefect::LeaseRenewed),
            ),
            ("its Lease went", |_, _, now| now.renewed = None, None),
        ];
        for (what, change, lack) in cases {
            let mut spec = confirmation();
            let mut now = NodeState {
                incarnation: life("b0000000-0000-4000-8000-000000000001"),
                renewed: Some(RENEWED.parse().ok()),
                minimum: Grade::Asserted,
            };
            let mut said = (false, false, Some(60));
            change(&mut spec, &mut said, &mut now);
            let (invalidated, deleting, age) = said;
            let age = age.map(Duration::from_secs);
            let lease_renewed = spec.lease_renewed.as_deref();
            let (node, kind, valid_for) = (&spec.node, spec.kind, spec.valid_for);
            let fields = EvidenceFields { node, kind, lease_renewed, valid_for, invalidated, deleting, age };
            assert_eq!(fields.check_node(&now).err(), lack, "a word {what}");
        }
    }
}
