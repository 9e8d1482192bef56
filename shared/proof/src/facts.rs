//! Facts: what was read. A fact is decoded from an answer of the API server, and made in no other way.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use pod_safety_model::{FenceEvidenceKind, Incarnation, Mono, OUT_OF_SERVICE_TAINT, Pod, lease_duration};
use pod_safety_wire::{self as wire, Raw, WireError};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// A kubelet's Lease, as a quorum read returned it. Two reads are compared with each other, because the times are of the
/// kubelet's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRead(Option<Lease>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    uid: String,
    renewed: Option<wire::Time>,
    seconds: Option<i32>,
}

/// A Lease whose `renewTime` is no valid time. It differs from a Lease without `renewTime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a Lease with an invalid renewTime")]
pub struct InvalidRenewTime;

impl LeaseRead {
    /// Decodes `answer`: the Lease, or `None` for a 404.
    ///
    /// # Errors
    /// The Lease cannot be decoded.
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

    /// Whether no Lease exists.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// When the kubelet last renewed the Lease, by the kubelet's clock. `None`: there is no Lease, or it has no `renewTime`.
    ///
    /// # Errors
    /// The `renewTime` is no valid time.
    pub fn renewed(&self) -> Result<Option<Timestamp>, InvalidRenewTime> {
        let renewed = self.0.as_ref().and_then(|lease| lease.renewed);
        renewed.map(|renewed| renewed.timestamp().ok_or(InvalidRenewTime)).transpose()
    }

    /// The lease duration. It is the default of Kubernetes if the Lease has none.
    #[must_use]
    pub fn duration(&self) -> Duration {
        lease_duration(self.0.as_ref().and_then(|lease| lease.seconds))
    }
}

/// A Node, as a quorum read returned it.
#[derive(Clone, Debug)]
pub struct NodeRead {
    incarnation: Incarnation,
    /// Type and status of each condition.
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
        let conditions = conditions.map(|one| (one.r#type.unwrap_or_default(), one.status.unwrap_or_default()));
        let conditions = conditions.collect();
        let taints = spec.taints.into_iter();
        let taints = taints.filter(|taint| taint.key.as_deref() == Some(OUT_OF_SERVICE_TAINT));
        let out_of_service = taints.map(|taint| taint.value.unwrap_or_default()).collect();
        Ok(Self { incarnation, conditions, cordoned: spec.unschedulable, out_of_service, labels: metadata.labels })
    }

    /// The incarnation. An empty boot ID means that the boot is unknown.
    #[must_use]
    pub const fn incarnation(&self) -> &Incarnation {
        &self.incarnation
    }

    /// Whether its condition Ready is True.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.condition_statuses("Ready").any(|status| status == "True")
    }

    /// The statuses of the conditions of this type.
    pub fn condition_statuses(&self, condition: &str) -> impl Iterator<Item = &str> {
        self.conditions.iter().filter(move |(kind, _)| kind == condition).map(|(_, status)| status.as_str())
    }

    /// Whether the node is cordoned. That is no evidence; it is only displayed.
    #[must_use]
    pub const fn is_cordoned(&self) -> bool {
        self.cordoned
    }

    /// The values of the node's out-of-service taints.
    #[must_use]
    pub fn out_of_service(&self) -> &[String] {
        &self.out_of_service
    }

    /// The labels, which select the node's FencePolicy.
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
    /// The Node; `None`: no Node of the name exists.
    pub node: Option<NodeRead>,
    /// The node's Lease.
    pub lease: LeaseRead,
}

impl QuorumRead {
    /// Decodes the answers to reads without a resourceVersion, which were sent at `requested_at`; both had arrived at
    /// `answered_at`. `None` means 404.
    ///
    /// # Errors
    /// An answer cannot be decoded.
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

/// The first quorum read that did not find a Node, with the node's Lease at that time. The quarantine starts at its answer.
#[derive(Clone, Debug)]
pub struct AbsenceRead {
    requested_at: Mono,
    answered_at: Mono,
    pub(crate) lease: LeaseRead,
}

impl AbsenceRead {
    /// The first read of an absence. `None`: the Node exists.
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

    /// When the answer had arrived. The quarantine starts here.
    #[must_use]
    pub const fn answered_at(&self) -> Mono {
        self.answered_at
    }

    /// A first read without an answer, for tests of `decide`.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub const fn for_decide_tests(requested_at: Mono, answered_at: Mono) -> Self {
        Self { requested_at, answered_at, lease: LeaseRead(None) }
    }
}

/// What the agent on a node reports about pods in its Lease (`docs/watchdog-lease.md`), as a quorum read returned it. The
/// agent checks its pods after the API server confirmed one round, and before it sends the next round.
#[derive(Clone, Debug)]
pub struct AgentRead {
    pub(crate) sent_at: Mono,
    pub(crate) epoch: String,
    pub(crate) round: u64,
    /// The first round that was sent after the check of the pods.
    pub(crate) looked: u64,
    /// The UIDs of pods of which no process and no mount remains, separated by spaces.
    ended: String,
    /// A line for each pod of which something remains: its UID, and what remains.
    remaining: String,
}

impl AgentRead {
    /// Decodes the answer to a read that was sent at `sent_at`. `None`: the Lease has no round, or the agent has not
    /// checked its pods yet.
    ///
    /// # Errors
    /// The Lease cannot be decoded.
    pub fn decode(sent_at: Mono, raw: &Raw) -> Result<Option<Self>, WireError> {
        let mut annotations = raw.decode::<wire::Custom<IgnoredAny, IgnoredAny>>()?.metadata.annotations;
        let mut text = |name: &str| annotations.remove(&format!("watchdog.pod-safety.dev/{name}"));
        let (Some(epoch), Some(round), Some(looked)) = (text("epoch"), text("round"), text("pods-looked")) else {
            return Ok(None);
        };
        let (Ok(round), Ok(looked)) = (round.parse(), looked.parse()) else { return Ok(None) };
        let (ended, remaining) = (text("pods-ended").unwrap_or_default(), text("pods-left").unwrap_or_default());
        Ok(Some(Self { sent_at, epoch, round, looked, ended, remaining }))
    }

    /// Checks that nothing remains of this pod. The error names what remains.
    pub(crate) fn check_ended(&self, uid: &str) -> Result<(), String> {
        if self.ended.split(' ').any(|ended| ended == uid) {
            return Ok(());
        }
        let remaining = self.remaining.lines().find_map(|line| line.strip_prefix(uid));
        Err(remaining.unwrap_or_default().trim().to_owned())
    }
}

/// A FenceEvidence, as a quorum read returned it.
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
    /// Decodes a FenceEvidence. `wall` is the time now, by this host's clock. A wrong clock makes a person's confirmation
    /// valid for too short or too long a time; it never makes the confirmation valid for another incarnation.
    ///
    /// # Errors
    /// The FenceEvidence cannot be decoded.
    pub fn decode(name: &str, raw: &Raw, wall: Timestamp) -> Result<Self, WireError> {
        let wire::Custom { metadata, spec, status } = raw.decode::<wire::Custom<EvidenceSpec, EvidenceStatus>>()?;
        let written = metadata.creation_timestamp.and_then(wire::Time::timestamp);
        // Evidence with a creation time in the future has age zero.
        let age = written.map(|written| Duration::try_from(wall.duration_since(written)).unwrap_or_default());
        let invalidated = status.unwrap_or_default().invalidated.is_some();
        let deleting = metadata.deletion_timestamp.is_some();
        Ok(Self { name: name.to_owned(), spec, invalidated, deleting, age })
    }

    /// The incarnation that the evidence is about.
    #[must_use]
    pub const fn node(&self) -> &Incarnation {
        &self.spec.node
    }

    /// The kind of evidence.
    #[must_use]
    pub const fn kind(&self) -> FenceEvidenceKind {
        self.spec.kind
    }
}

/// What the devices of a FenceEvidence report now. It exists only if every device reported off and none reported another
/// machine. `pod-safety-shared` checks the devices; the kernel compares the result with the evidence.
#[derive(Clone, Copy, Debug)]
pub struct DeviceCheck {
    /// The kind of evidence that this check supports: that of the weakest device.
    pub kind: FenceEvidenceKind,
    /// When the first device was queried.
    pub requested_at: Mono,
}

/// What showed that a kubelet runs.
/// docs/assumptions.md: kubelets-write-for-themselves
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportKind {
    /// The kubelet renewed its Lease.
    LeaseRenewed,
    /// The kubelet reported the status of a pod.
    PodReported,
}

/// The last report of a kubelet that this process saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastHeartbeat {
    /// What the kubelet wrote.
    pub kind: ReportKind,
    /// When this process saw it.
    pub at: Mono,
}

/// A renewal of a Lease that this process saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// When this process saw it.
    pub at: Mono,
    /// The `renewTime` of the Lease since then. `None`: the Lease was deleted, or has no `renewTime`.
    pub renewed: Option<Timestamp>,
}

/// What the watches of this process showed about kubelets. The cache implements it.
pub trait Liveness {
    /// Whether the watches of Leases and of pods are current.
    fn is_current(&self, now: Mono) -> bool;
    /// The first quorum read of a Node that is still missing, unless something refuted it.
    fn first_read(&self, node: &str) -> Option<&AbsenceRead>;
    /// The last report of the node's kubelet, whether or not its Node exists.
    fn last_heartbeat(&self, node: &str) -> Option<LastHeartbeat>;
    /// The `renewTime` of the node's Lease. The outer `None`: there is no Lease.
    fn lease(&self, node: &str) -> Option<Option<Timestamp>>;
    /// Whether the watch delivered the deletion of the Lease, or never delivered a Lease.
    fn lease_is_gone(&self, node: &str) -> bool;
    /// The last renewal. `None`: no renewal since this process started.
    fn renewal(&self, node: &str) -> Option<Renewal>;
    /// Whether the kubelet had not reported for a whole lease duration when its Node was deleted, and has not reported since.
    /// `false` if unknown.
    fn unreachable_before_node_deleted(&self, node: &str) -> bool;
    /// Whether the kubelet of a missing node reports at once that it observed the deletion of a pod. `false` if unknown.
    fn reports_deletions(&self, node: &str) -> bool;
    /// Whether the kubelet of a missing node may have started so shortly before its Node was deleted that it does not know
    /// this pod. `false` if unknown.
    fn may_have_just_started(&self, pod: &Pod, node: &str) -> bool;
}
