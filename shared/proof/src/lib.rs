//! The trusted kernel: the crate to read in order to trust pod-safety. It decides whether processes of a pod, of an
//! incarnation of a node, or on a volume can still run, and it makes the only requests that release what these processes
//! use.
//!
//! Claims and facts become [`Evidence`] or a [`Refusal`]; evidence becomes an act. Inputs: answers of the API server, what
//! the watches showed ([`Liveness`]), what devices report ([`DeviceCheck`]). Outputs: [`Request`]s. The crate is pure: no
//! IO, no clock, no task, no client. Read it in this order:
//!
//! | file | contents |
//! |---|---|
//! | `claim` | what a controller may *conclude* from its cache |
//! | `facts` | what was read; decoded only from answers |
//! | `holds`, `lease_age` | whether a FenceEvidence is valid now; how long a kubelet must not have renewed its Lease |
//! | `judge`, `volume` | facts become evidence, or a refusal |
//! | `evidence` | what only the judge can create, and only an act can consume |
//! | `act` | the requests: each with UID, resourceVersion and permit |
//! | `guard`, `shape` | the check of each request before it is sent |
//!
//! Invariants:
//! - Evidence has no constructor outside this crate, is not `Clone`, names its subject and version, and expires.
//! - Each act takes its evidence by value. Its requests carry the UID and the version of the subject.
//! - Only an act creates a [`Permit`], and a permit is valid only for its own path, UID and version.
//! - Unknown is not absent: what cannot be read, decoded or compared results in a refusal.

mod act;
mod claim;
mod evidence;
mod facts;
mod guard;
mod holds;
mod judge;
pub mod lease_age;
mod refusal;
mod shape;
mod volume;

pub use act::{
    ForceDelete, NODE_GONE_MESSAGE, Next, NoVersion, Request, TaintRefusal, Verb, WholeNode, revoke_holder,
    taint_out_of_service,
};
pub use claim::{Claim, ClaimKind, ForceDeleteRequest, RevocationBasis};
pub use evidence::{Barrier, Evidence, EvidenceKind, EvidenceName, LeaseVersion, MINIMUM_BOOT, PodVersion, VALID_FOR};
pub use facts::{
    AbsenceRead, AgentRead, DeviceCheck, EvidenceRead, InvalidRenewTime, LastHeartbeat, LeaseRead, Liveness, NodeRead,
    QuorumRead, Renewal, ReportKind,
};
pub use guard::{Forbidden, GuardRefusal, Permit, check};
pub use holds::{EvidenceDefect, EvidenceFields, NodeState};
pub use judge::{
    Inability, Mark, NodeEvidence, check_claim, check_quarantine, is_reusable, unreachable_is_proof, verify_fenced,
    verify_node_gone, verify_pod, verify_pods_ended, verify_trusted_taint, why_unable_to_report,
};
pub use refusal::{Reason as RefusalReason, Refusal};
pub use shape::{Resource, Shape};
pub use volume::{Detachment, HolderFacts, check_storage_evidence, verify_volume};
