//! Whether a FenceEvidence holds now: one question, with one answer for the judge, the taint, adoption, the cached view
//! and `explain`. What its devices report is not asked here; all else is.

use std::time::Duration;

use jiff::Timestamp;
use pod_safety_model::{Grade, Incarnation, KindOfEvidence};

use crate::facts::EvidenceRead;
use crate::{Refusal, Sign};

/// What evidence says, and what became of it.
#[derive(Clone, Copy, Debug)]
pub struct Said<'a> {
    /// The incarnation that it is about.
    pub node: &'a Incarnation,
    /// How the fact was found.
    pub kind: KindOfEvidence,
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
pub struct Now {
    /// The incarnation that it is in.
    pub life: Incarnation,
    /// The `renewTime` of its Lease; `None`: there is no Lease.
    pub renewed: Option<Option<Timestamp>>,
    /// Which evidence its FencePolicy takes.
    pub wanted: Grade,
}

/// What evidence lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Its status says so.
    Invalidated,
    /// Its deletion was requested.
    BeingDeleted,
    /// It is of kind StorageFenced.
    OfStorage,
    /// It is about another node.
    OtherNode,
    /// The node booted, or was registered anew, or does not report its boot ID.
    OtherLife,
    /// It has expired.
    Expired,
    /// The FencePolicy requires more, or cannot be read: then the strictest is assumed.
    TooWeak,
    /// The kubelet renewed its Lease since.
    Heard,
}

impl Lack {
    /// Why it does not hold, as the end of a sentence.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Invalidated => "it was invalidated",
            Self::BeingDeleted => "it is being deleted",
            Self::OfStorage => "it is about storage, and does not show what runs",
            Self::OtherNode => "it is about another node",
            Self::OtherLife => "the node has another UID or another boot ID",
            Self::Expired => "the confirmation has expired; confirm again if it is still true",
            Self::TooWeak => "the node's FencePolicy requires verified evidence, or cannot be read",
            Self::Heard => "the node's kubelet renewed its Lease since",
        }
    }
}

impl From<Lack> for Refusal {
    fn from(lack: Lack) -> Self {
        match lack {
            Lack::Heard => Self::KubeletAlive(Sign::LeaseRenewed),
            lack => Self::EvidenceInvalid(lack.words()),
        }
    }
}

impl EvidenceRead {
    /// What it says.
    #[must_use]
    pub fn said(&self) -> Said<'_> {
        let Self { spec, invalidated, deleting, age, .. } = self;
        Said {
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

impl Said<'_> {
    /// Whether anything contradicts it, whatever it is about.
    ///
    /// # Errors
    /// The first thing.
    pub fn stands(&self) -> Result<(), Lack> {
        // What does not say when it was written has expired.
        let expired = |valid_for| self.age.is_none_or(|age| age > valid_for);
        if self.invalidated {
            Err(Lack::Invalidated)
        } else if self.deleting {
            Err(Lack::BeingDeleted)
        } else if self.valid_for.is_some_and(expired) {
            Err(Lack::Expired)
        } else {
            Ok(())
        }
    }

    /// What it lacks, as evidence that an incarnation has ended, whatever the node does.
    ///
    /// # Errors
    /// The first thing.
    pub fn holds(&self) -> Result<(), Lack> {
        self.stands()?;
        self.kind.ends_life().then_some(()).ok_or(Lack::OfStorage)
    }

    /// What contradicts it, about the node as it is now.
    ///
    /// # Errors
    /// The first thing.
    pub fn holds_now(&self, now: &Now) -> Result<(), Lack> {
        self.holds()?;
        if self.node.name != now.life.name {
            return Err(Lack::OtherNode);
        }
        // The incarnation of a node that does not report its boot ID is unknown.
        if *self.node != now.life || now.life.boot_id.is_empty() {
            return Err(Lack::OtherLife);
        }
        if self.kind.grade() < now.wanted {
            return Err(Lack::TooWeak);
        }
        // Two stamps of one kubelet are compared, never with our time.
        let unmoved =
            |renewed: Option<Timestamp>| renewed.map(|at| at.to_string()).as_deref() == self.lease_renewed;
        now.renewed.is_none_or(unmoved).then_some(()).ok_or(Lack::Heard)
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
        kind: KindOfEvidence,
        lease_renewed: Option<String>,
        valid_for: Option<Duration>,
    }

    fn confirmation() -> Confirmation {
        Confirmation {
            node: life("b0000000-0000-4000-8000-000000000001"),
            kind: KindOfEvidence::Asserted,
            lease_renewed: Some(RENEWED.to_owned()),
            valid_for: Some(Duration::from_secs(3_600)),
        }
    }

    type Change = fn(&mut Confirmation, &mut (bool, bool, Option<u64>), &mut Now);

    #[test]
    fn each_thing_that_can_be_missing_has_its_own_word() {
        let cases: [(&str, Change, Option<Lack>); 17] = [
            ("as it was given", |_, _, _| (), None),
            ("to the last second", |_, said, _| said.2 = Some(3_600), None),
            ("a second later", |_, said, _| said.2 = Some(3_601), Some(Lack::Expired)),
            ("nobody knows when", |_, said, _| said.2 = None, Some(Lack::Expired)),
            ("for ever", |spec, said, _| (spec.valid_for, said.2) = (None, None), None),
            ("taken back", |_, said, _| said.0 = true, Some(Lack::Invalidated)),
            ("on its way out", |_, said, _| said.1 = true, Some(Lack::BeingDeleted)),
            ("of storage", |spec, _, _| spec.kind = KindOfEvidence::StorageFenced, Some(Lack::OfStorage)),
            ("of m", |spec, _, _| spec.node.name = "m".to_owned(), Some(Lack::OtherNode)),
            ("of another Node", |spec, _, _| spec.node.uid = "uid-o".to_owned(), Some(Lack::OtherLife)),
            (
                "of another boot",
                |_, _, now| now.life = life("b0000000-0000-4000-8000-000000000002"),
                Some(Lack::OtherLife),
            ),
            (
                "of no boot",
                |spec, _, now| (spec.node, now.life) = (life(""), life("")),
                Some(Lack::OtherLife),
            ),
            ("too weak", |_, _, now| now.wanted = Grade::Verified, Some(Lack::TooWeak)),
            (
                "of a device, where verified evidence is asked for",
                |spec, _, now| (spec.kind, now.wanted) = (KindOfEvidence::PowerOff, Grade::Verified),
                None,
            ),
            (
                "heard since",
                |_, _, now| now.renewed = Some("2026-11-21T11:00:02Z".parse().ok()),
                Some(Lack::Heard),
            ),
            ("heard for the first time", |spec, _, _| spec.lease_renewed = None, Some(Lack::Heard)),
            ("its Lease went", |_, _, now| now.renewed = None, None),
        ];
        for (what, change, lack) in cases {
            let mut spec = confirmation();
            let mut now = Now {
                life: life("b0000000-0000-4000-8000-000000000001"),
                renewed: Some(RENEWED.parse().ok()),
                wanted: Grade::Asserted,
            };
            let mut said = (false, false, Some(60));
            change(&mut spec, &mut said, &mut now);
            let (invalidated, deleting, age) = said;
            let age = age.map(Duration::from_secs);
            let lease_renewed = spec.lease_renewed.as_deref();
            let (node, kind, valid_for) = (&spec.node, spec.kind, spec.valid_for);
            let said = Said { node, kind, lease_renewed, valid_for, invalidated, deleting, age };
            assert_eq!(said.holds_now(&now).err(), lack, "a word {what}");
        }
    }
}
