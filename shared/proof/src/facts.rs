//! What was read. A fact is made from an answer of the API server, and from nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use pod_safety_model::{FenceEvidenceKind, Incarnation, Mono, OUT_OF_SERVICE_TAINT, lease_duration};
use pod_safety_wire::{self as wire, Raw, WireError};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// A kubelet's Lease, as a quorum read showed it. Two of them are compared; their times are by the kubelet's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRead(Option<Lease>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    uid: String,
    renewed: Option<wire::Time>,
    seconds: Option<i32>,
}

/// A Lease whose `renewTime` is no time. That is not the same as none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a Lease with an invalid renewTime")]
pub struct InvalidRenewTime;

impl LeaseRead {
    /// `answer`: the Lease, or `None` for 404.
    ///
    /// # Errors
    /// It cannot be decoded.
    pub fn decode(answer: Option<&Raw>) -> Result<Self, WireError> {
        let lease = answer.map(|raw| {
            raw.decode::<wire::Lease>().map(|lease| {
                let uid = lease.metadata.and_then(|meta| meta.uid).unwrap_or_default();
                let spec = lease.spec.unwrap_or_default();
                Lease { uid, renewed: spec.renew_time, seconds: spec.lease_duration_seconds }
            })
        });
        Ok(Self(lease.transpose()?))
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// When the kubelet renewed it last, by the kubelet's clock; `None`: there is no Lease, or it does not say.
    ///
    /// # Errors
    /// What it says is no time.
    pub fn renewed(&self) -> Result<Option<Timestamp>, InvalidRenewTime> {
        let renewed = self.0.as_ref().and_then(|lease| lease.renewed);
        renewed.map(|renewed| renewed.timestamp().ok_or(InvalidRenewTime)).transpose()
    }

    /// How long it lasts; Kubernetes' default if it does not say.
    #[must_use]
    pub fn duration(&self) -> Duration {
        lease_duration(self.0.as_ref().and_then(|lease| lease.seconds))
    }
}

/// A Node, as a quorum read showed it.
#[derive(Clone, Debug)]
pub struct NodeRead {
    incarnation: Incarnation,
    /// Types with their status.
    conditions: Vec<(String, String)>,
    cordoned: bool,
    out_of_service: Vec<String>,
    labels: BTreeMap<String, String>,
}

impl NodeRead {
    fn decode(name: &str, raw: &Raw) -> Result<Self, WireError> {
        let node: wire::Node = raw.decode()?;
        let metadata = node.metadata.unwrap_or_default();
        let (spec, status) = (node.spec.unwrap_or_default(), node.status.unwrap_or_default());
        let boot = status.node_info.and_then(|info| info.boot_id).unwrap_or_default();
        let incarnation = Incarnation::new(name.to_owned(), metadata.uid.unwrap_or_default(), &boot);
        let conditions = status.conditions.into_iter();
        let conditions =
            conditions.map(|one| (one.r#type.unwrap_or_default(), one.status.unwrap_or_default()));
        let conditions = conditions.collect();
        let cordoned = spec.unschedulable;
        let taints = spec.taints.into_iter();
        let taints = taints.filter(|taint| taint.key.as_deref() == Some(OUT_OF_SERVICE_TAINT));
        let out_of_service = taints.map(|taint| taint.value.unwrap_or_default()).collect();
        Ok(Self { incarnation, conditions, cordoned, out_of_service, labels: metadata.labels })
    }

    /// Its incarnation. A boot ID that is empty is unknown.
    #[must_use]
    pub const fn incarnation(&self) -> &Incarnation {
        &self.incarnation
    }

    /// Whether its condition Ready is True.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.condition_statuses("Ready").any(|status| status == "True")
    }

    /// The statuses that it reports for this type of condition.
    pub fn condition_statuses(&self, condition: &str) -> impl Iterator<Item = &str> {
        self.conditions.iter().filter(move |(of, _)| of == condition).map(|(_, status)| status.as_str())
    }

    /// Whether it is cordoned: that proves nothing, and people are told.
    #[must_use]
    pub const fn is_cordoned(&self) -> bool {
        self.cordoned
    }

    /// The values of its out-of-service taints.
    #[must_use]
    pub fn out_of_service(&self) -> &[String] {
        &self.out_of_service
    }

    /// Its labels: they select its FencePolicy.
    #[must_use]
    pub const fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }
}

/// One quorum read of a Node and of its Lease.
#[derive(Clone, Debug)]
pub struct QuorumRead {
    pub(crate) requested_at: Mono,
    pub(crate) answered_at: Mono,
    /// `None`: there is no Node of the name.
    pub node: Option<NodeRead>,
    /// Its Lease.
    pub lease: LeaseRead,
}

impl QuorumRead {
    /// The answers to reads without a resourceVersion that were sent at `asked_at`; both were there at `answered_at`.
    /// `None` is 404.
    ///
    /// # Errors
    /// One of them cannot be decoded.
    pub fn decode(
        name: &str,
        (requested_at, answered_at): (Mono, Mono),
        node: Option<&Raw>,
        lease: Option<&Raw>,
    ) -> Result<Self, WireError> {
        let node = node.map(|raw| NodeRead::decode(name, raw)).transpose()?;
        Ok(Self { requested_at, answered_at, node, lease: LeaseRead::decode(lease)? })
    }
}

/// The first quorum read that did not find a Node, and how its Lease looked then. The quarantine counts from it.
#[derive(Clone, Debug)]
pub struct AbsenceRead {
    requested_at: Mono,
    answered_at: Mono,
    pub(crate) lease: LeaseRead,
}

impl AbsenceRead {
    /// `None`: the Node is there.
    #[must_use]
    pub fn from_read(read: QuorumRead) -> Option<Self> {
        let QuorumRead { requested_at, answered_at, node, lease } = read;
        node.is_none().then_some(Self { requested_at, answered_at, lease })
    }

    /// When the read was sent.
    #[must_use]
    pub const fn requested_at(&self) -> Mono {
        self.requested_at
    }

    /// When the answer was there: from here a quarantine counts.
    #[must_use]
    pub const fn answered_at(&self) -> Mono {
        self.answered_at
    }

    /// A first read that no answer ever made, for tests of `decide`.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub const fn for_decide_tests(requested_at: Mono, answered_at: Mono) -> Self {
        Self { requested_at, answered_at, lease: LeaseRead(None) }
    }
}

/// What the agent of a node reports in its Lease about pods (`docs/watchdog-lease.md`), as a quorum read showed it. The agent looks
/// at its pods after the API server confirmed one round, and before it sends the next.
#[derive(Clone, Debug)]
pub struct AgentRead {
    pub(crate) sent_at: Mono,
    pub(crate) epoch: String,
    pub(crate) round: u64,
    /// The round that was sent after the look.
    pub(crate) looked: u64,
    /// UIDs: neither a process nor a mount is left.
    ended: String,
    /// UIDs, and what is left, a line each.
    remaining: String,
}

impl AgentRead {
    /// The answer to a read that was sent at `asked_at`. `None`: it has no round, or its agent did not look at its pods yet.
    ///
    /// # Errors
    /// It cannot be decoded.
    pub fn decode(sent_at: Mono, raw: &Raw) -> Result<Option<Self>, WireError> {
        let mut annotations = raw.decode::<wire::Custom<IgnoredAny, IgnoredAny>>()?.metadata.annotations;
        let mut text = |name: &str| annotations.remove(&format!("watchdog.pod-safety.dev/{name}"));
        let (Some(epoch), Some(round), Some(looked)) = (text("epoch"), text("round"), text("pods-looked"))
        else {
            return Ok(None);
        };
        let (Ok(round), Ok(looked)) = (round.parse(), looked.parse()) else { return Ok(None) };
        let (ended, remaining) =
            (text("pods-ended").unwrap_or_default(), text("pods-left").unwrap_or_default());
        Ok(Some(Self { sent_at, epoch, round, looked, ended, remaining }))
    }

    /// Whether nothing of this pod is left; if not, what is.
    pub(crate) fn check_ended(&self, uid: &str) -> Result<(), String> {
        if self.ended.split(' ').any(|ended| ended == uid) {
            return Ok(());
        }
        let remaining = self.remaining.lines().find_map(|line| line.strip_prefix(uid));
        Err(remaining.unwrap_or_default().trim().to_owned())
    }
}

/// A FenceEvidence, as a quorum read showed it.
#[derive(Clone, Debug)]
pub struct EvidenceRead {
    pub(crate) name: String,
    pub(crate) spec: EvidenceSpec,
    pub(crate) invalidated: bool,
    pub(crate) deleting: bool,
    pub(crate) age: Option<Duration>,
}

/// The fields of a FenceEvidence that the judge compares.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EvidenceSpec {
    pub(crate) node: Incarnation,
    pub(crate) kind: FenceEvidenceKind,
    #[serde(default)]
    pub(crate) samples: Vec<IgnoredAny>,
    #[serde(default)]
    pub(crate) storage: Vec<Storage>,
    pub(crate) lease_renewed: Option<String>,
    #[serde(default)]
    pub(crate) by: String,
    pub(crate) valid_seconds: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Storage {
    pub(crate) driver: String,
}

#[derive(Default, Deserialize)]
struct EvidenceStatus {
    invalidated: Option<IgnoredAny>,
}

impl EvidenceRead {
    /// `wall`: now, by this host's clock. A clock that is wrong makes a person's confirmation last too short or too long, never
    /// true of another incarnation.
    ///
    /// # Errors
    /// It cannot be decoded.
    pub fn decode(name: &str, raw: &Raw, wall: Timestamp) -> Result<Self, WireError> {
        let wire::Custom { metadata, spec, status } =
            raw.decode::<wire::Custom<EvidenceSpec, EvidenceStatus>>()?;
        let written = metadata.creation_timestamp.and_then(wire::Time::timestamp);
        // One from the future is new.
        let age = written.map(|written| Duration::try_from(wall.duration_since(written)).unwrap_or_default());
        let invalidated = status.unwrap_or_default().invalidated.is_some();
        let deleting = metadata.deletion_timestamp.is_some();
        Ok(Self { name: name.to_owned(), spec, invalidated, deleting, age })
    }

    /// The incarnation that it is about.
    #[must_use]
    pub const fn node(&self) -> &Incarnation {
        &self.spec.node
    }

    /// How the fact was found.
    #[must_use]
    pub const fn kind(&self) -> FenceEvidenceKind {
        self.spec.kind
    }
}

/// What the devices of a FenceEvidence report now: every one reported off, of no other machine. `pod-safety-shared` checks
/// the devices; the kernel compares the result.
#[derive(Clone, Copy, Debug)]
pub struct DeviceCheck {
    /// What that proves: as much as the weakest of the devices.
    pub kind: FenceEvidenceKind,
    /// When the first device was asked.
    pub requested_at: Mono,
}

/// What showed that a kubelet runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportKind {
    /// Its Lease was renewed.
    LeaseRenewed,
    /// It reported on a pod.
    PodReported,
}

/// A sign that a kubelet runs, and when this process saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastHeartbeat {
    /// What showed it.
    pub kind: ReportKind,
    /// When this process saw it.
    pub at: Mono,
}

/// A renewal of a Lease that this process saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// When it was seen.
    pub at: Mono,
    /// The `renewTime` that the Lease has since; `None`: it went, or does not say.
    pub renewed: Option<Timestamp>,
}

/// What this process's watches showed of kubelets. The cache implements it.
pub trait Liveness {
    /// Whether the watches of Leases and of pods are current.
    fn is_current(&self, now: Mono) -> bool;
    /// The first quorum read of a Node that is missing still, unless something refuted it.
    fn first_read(&self, node: &str) -> Option<&AbsenceRead>;
    /// The last sign that the node's kubelet runs, whether its Node is there or not.
    fn last_heartbeat(&self, node: &str) -> Option<LastHeartbeat>;
    /// Whether there is a Lease, and its `renewTime`.
    fn lease(&self, node: &str) -> Option<Option<Timestamp>>;
    /// Whether the watch brought the deletion of the Lease, or never one.
    fn lease_is_gone(&self, node: &str) -> bool;
    /// The last renewal; `None`: none since this process began.
    fn renewal(&self, node: &str) -> Option<Renewal>;
    /// Whether the kubelet was silent for a whole lease duration when its Node was deleted, and since. `false` if unknown.
    fn unreachable_before_node_deleted(&self, node: &str) -> bool;
    /// Whether the kubelet of a missing node reports at once that it saw the deletion of a pod. `false` if unknown.
    fn reports_deletions(&self, node: &str) -> bool;
}
