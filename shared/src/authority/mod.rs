//! The deletion authority: the one writer for all controllers. The kernel decides what is evidence and which requests it
//! permits ([`pod_safety_proof`], a small crate that can be reviewed in one sitting). This module reads the facts for the
//! kernel and sends the permitted requests. The crate [`pod_safety_fence`] has the steps of fencing.
//!
//! | file | contents |
//! |---|---|
//! | `claim` | the requests that a decision can result in |
//! | `verify` | quorum reads for the judge |
//! | `act` | sends the force deletion that evidence permits, within the leader's term |
//! | `delete` | deletes one pod gracefully: by compare-and-swap, within the term |
//! | `update` | writes statuses, which terminate nothing: by compare-and-swap, within the term |
//! | `node` | conditions, taints and labels of a node, after a quorum read of the Node and its Lease |
//! | `eviction` | EvictionRequests and Evictions; final conditions only after quorum reads |
//! | `volume` | the holder of an exclusive volume; it is revoked only with evidence |
//! | [`operator_requests`] | commands of operators about nodes |
//! | `outcome` | what each kind of request can end with |
//! | `access` | asks the API server what a user may do |
//! | `scales` | reads the desired replicas of controllers that the cache does not watch |
//! | `queue`, `retry_tracker` | the order of requests, and which are in flight |
//! | `writer` | the worker pools that execute the requests |
//!
//! A claim is not evidence: `decide` may claim anything, and a claim alone has no effect. Five independent mechanisms
//! ensure this, each with a test: the crate graph (controllers cannot name a client), privacy and move semantics
//! ([`Evidence`] has no public constructor and is consumed by value), compile-fail tests, clippy's banned methods, and the
//! layer [`crate::client::Guard`], which reads the bytes of each request before it is sent.

mod access;
mod act;
mod claim;
mod delete;
mod eviction;
mod node;
pub mod operator_requests;
mod outcome;
mod priority;
mod queue;
mod retry_tracker;
mod scales;
mod status_write;
mod update;
mod verify;
mod volume;
mod writer;

pub use access::{AccessRight, is_allowed};
pub use claim::{DeleteCause, GracefulDeleteRequest, Intent};
pub(crate) use delete::TAINT_MANAGER_EVICTION;
pub use eviction::{
    ConditionChange, ConditionChanges, EvictionChange, EvictionUpdate, OwnerRequest, Precondition, Report, StatusChange,
};
pub use node::{Effect, ManagedTaint, NodeUpdate, NotReporting};
pub use outcome::{DeleteOutcome, ForceOutcome, UpdateOutcome};
pub use pod_safety_fence::cordon::{Cordoned, cordon, cordon_read_node, uncordon};
pub use pod_safety_fence::evict::{Evicted, Eviction, MAX_READ_AGE, NotEvicted, evict, evict_read_pod};
pub use pod_safety_fence::{
    FenceKey, FenceStepRequest, MonitorRequest, PolicyStatusUpdate, RemediationRequest, RemediationUpdate, Step,
    StepOutcome, Target, device_address, dry_run_name, incident_name, is_provider_agent, storage_evidence_name,
};
pub use pod_safety_leader::outcome::{RequestError, VerifyError};
pub use pod_safety_proof::{
    AbsenceRead, Barrier, Claim, ClaimKind, Evidence, EvidenceDefect, EvidenceFields, EvidenceKind, ForceDeleteRequest,
    NodeState, Refusal, RefusalReason, RevocationBasis,
};
pub use scales::{ScaleTarget, read_scales};
pub use update::{BudgetUpdate, FinishedObject, LostNodePodUpdate, NotDisruptedUpdate, Update};
pub use verify::{FORCE_DELETE_REFUSED, VerifierConfig};
pub use volume::{AttachDenial, UngateUpdate, VolumeChange, VolumeLeaseRef, VolumeUpdate};
pub use writer::{
    Authority, CompletionHandler, DEFAULT_WORKERS, EVICTION_WORKERS, FENCE_STEP_WORKERS, NODE_WORKERS,
    POWER_SWITCH_WORKERS, Parts, STATUS_CHECK_WORKERS, Submitted,
};
