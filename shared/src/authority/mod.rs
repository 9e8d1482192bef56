//! The deletion authority: one writer for all controllers. What is evidence, and what may be sent with it, the kernel
//! says ([`pod_safety_proof`], a crate that one person reads in a sitting); here is what reads for it and carries it out. The
//! steps of fencing are a crate below ([`pod_safety_fence`]).
//!
//! | file | says |
//! |---|---|
//! | `claim` | what a decision wants done |
//! | `verify` | live reads for the judge |
//! | `act` | sends the force deletion that evidence permits, within the leader's term |
//! | `delete` | deletes one pod gracefully: by compare-and-swap, within the term |
//! | `update` | statuses, which end nothing: by compare-and-swap, within the term |
//! | `node` | conditions, taints and labels of a node, after a quorum read of it and of its Lease |
//! | `eviction` | requests to evict pods, and Evictions; final conditions only after quorum reads |
//! | `volume` | whose an exclusive volume is; a break only with evidence |
//! | [`operator_requests`] | what people say about nodes |
//! | `access` | asks the API server what a user may do |
//! | `scales` | reads how many pods a controller wants that the cache does not follow |
//! | `queue`, `ledger` | whose turn it is, and what is already being done |
//! | `writer` | the pool that ties them together |
//!
//! A claim is not evidence: `decide` may claim anything, and nothing follows from it. Five independent locks keep it so, each
//! with a test: the crate graph (controllers cannot name a client), privacy and move ([`Evidence`] has no public constructor
//! and is consumed by value), compile-fail tests, clippy's banned methods, and the layer [`crate::client::Guard`] that reads
//! what would go over the wire.

mod access;
mod act;
mod claim;
mod delete;
mod eviction;
mod node;
pub mod operator_requests;
mod queue;
mod retry_tracker;
mod scales;
mod update;
mod verify;
mod volume;
mod writer;

pub use access::{AccessRight, is_allowed};
pub use claim::{ClaimKind, DeleteCause, GracefulDeleteRequest, Intent};
pub(crate) use delete::TAINT_MANAGER_EVICTION;
pub use eviction::{
    ConditionChange, ConditionChanges, EvictionChange, EvictionUpdate, OwnerRequest, Precondition, Report,
    StatusChange,
};
pub use node::{Effect, ManagedTaint, NodeUpdate, NotReporting};
pub use pod_safety_fence::cordon::{Cordoned, cordon, cordon_read_node, uncordon};
pub use pod_safety_fence::evict::{Evicted, Eviction, MAX_READ_AGE, NotEvicted, evict, evict_read_pod};
pub use pod_safety_fence::{
    FenceKey, FenceStepRequest, MonitorRequest, PolicyStatusUpdate, RemediationRequest, RemediationUpdate,
    Step, Target, device_address, dry_run_name, incident_name, is_provider_agent, storage_evidence_name,
};
pub use pod_safety_leader::outcome::{Outcome, VerifyError};
pub use pod_safety_proof::{
    AbsenceRead, Barrier, Claim, Evidence, EvidenceDefect, EvidenceFields, EvidenceKind, ForceDeleteRequest,
    NodeState, Refusal, RefusalReason, ReleaseBasis,
};
pub use scales::{ScaleTarget, read_scales};
pub use update::{FinishedObject, Update};
pub use verify::{FORCE_DELETE_REFUSED, VerifierConfig};
pub use volume::{AttachDenial, VolumeChange, VolumeLeaseRef, VolumeUpdate};
pub use writer::{
    Authority, CompletionHandler, DEFAULT_WORKERS, EVICTION_WORKERS, FENCE_STEP_WORKERS, NODE_WORKERS,
    POWER_SWITCH_WORKERS, Parts, STATUS_CHECK_WORKERS, Submitted,
};
