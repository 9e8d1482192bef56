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
//! | [`people`] | what people say about nodes |
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
mod ledger;
mod node;
pub mod people;
mod queue;
mod scales;
mod update;
mod verify;
mod volume;
mod writer;

pub use access::{Right, may};
pub use claim::{Cause, ClaimKind, Delete, Intent};
pub(crate) use delete::TAINT_MANAGER_EVICTION;
pub use eviction::{Check, EvictionChange, EvictionUpdate, OwnedBy, Report, Stand, Stated, StatusChange};
pub use node::{Effect, NodeUpdate, OurTaint, Silence};
pub use pod_safety_fence::cordon::{Cordoned, cordon, cordon_as_read, uncordon};
pub use pod_safety_fence::evict::{Evicted, Eviction, FRESH, NotEvicted, evict, evict_as_read};
pub use pod_safety_fence::{
    FenceKey, Fencing, Monitor, PolicyReview, Remediate, Reply, Step, Target, address, asks_a_provider,
    incident_name, rehearsal_name, storage_evidence_name,
};
pub use pod_safety_leader::outcome::{Outcome, Unproved};
pub use pod_safety_proof::{
    Barrier, Claim, Evidence, EvidenceKind, FencedBy, Force, Lack, Now, Refusal, RefusalReason, Said, Witness,
};
pub use scales::{Scaled, ask_scales};
pub use update::{Past, Update};
pub use verify::{FORCE_DELETE_REFUSED, Policy};
pub use volume::{Refused, Seen, VolumeChange, VolumeUpdate};
pub use writer::{
    Authority, EVICTORS, FENCERS, LOOKERS, NODE_WRITERS, Owner, Parts, SWITCHERS, Submitted, WRITERS,
};
