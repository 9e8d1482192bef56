//! The deletion authority: the only code that writes to the cluster.
//!
//! Small enough to be read whole by whoever must trust it. The order to read in:
//!
//! | file | says |
//! |---|---|
//! | `claim` | what a controller may *believe* from its cache |
//! | `hold` | why it does nothing instead |
//! | `witness` | the first quorum read of a missing node |
//! | `verify` | live reads that turn a claim into evidence, or refuse |
//! | `evidence` | what only `verify` can make and only `act` can consume |
//! | `send` | one request, within the leader's term and while its evidence lasts |
//! | `act` | PATCH and DELETE by compare-and-swap, within the leader's term |
//! | `delete` | asks one pod to end by its own grace: by compare-and-swap, within the term |
//! | `update` | statuses, which end nothing: by compare-and-swap, within the term |
//! | `node` | conditions, taints and labels of a node, after a quorum read of it and of its Lease |
//! | `volume` | whose an exclusive volume is; a break only after the judge |
//! | `evict` | asks the API server to end a pod by its own grace, within its budget |
//! | `cordon` | has the scheduler leave a node alone |
//! | `fence` | switches machines off, looks, and writes down what that proves |
//! | [`people`] | what people say about nodes |
//! | `scales` | reads how many pods a controller wants that the cache does not follow |
//! | `queue`, `ledger` | whose turn it is, and what is already being done |
//! | `writer` | the pool that ties them together |
//!
//! Claim ≠ evidence is the heart: `decide` may claim anything, and nothing
//! follows from it. Five independent locks keep it so, each with a test: the
//! crate graph (controllers cannot name a client), privacy and move
//! ([`Evidence`] has no public constructor and is consumed by value),
//! compile-fail tests, clippy's banned methods, and the layer
//! [`crate::client::Guard`] that reads what would go over the wire.

mod access;
mod act;
mod claim;
mod cordon;
mod delete;
mod evict;
mod evidence;
mod fence;
mod hold;
mod holds;
mod ledger;
mod node;
pub mod people;
mod permit;
mod queue;
mod scales;
mod send;
mod silence;
mod update;
mod verify;
mod volume;
mod witness;
mod writer;

pub use access::{Right, may};
pub use act::Outcome;
pub use claim::{Cause, Claim, ClaimKind, Delete, Force, Intent, Monitor, PolicyReview, Remediate, Reply};
pub use cordon::{Cordoned, cordon, uncordon};
pub(crate) use delete::TAINT_MANAGER_EVICTION;
pub use evict::{Evicted, Eviction, NotEvicted, evict};
pub use evidence::{Barrier, Evidence, EvidenceKind};
pub use fence::{FenceKey, Fencing, Step, Target, incident_name, rehearsal_name, storage_evidence_name};
pub use hold::{Doubt, FORCE_DELETE_HELD, Hold, VolumeHold};
pub use holds::{Lack, Now, Said};
pub use node::{Effect, NodeUpdate, OurTaint, Silence};
pub(crate) use permit::Permit;
pub use scales::{Scaled, ask_scales};
pub use update::{Past, Update};
pub use verify::{FORCE_DELETE_REFUSED, Refusal};
pub use volume::{Over, Refused, Seen, VolumeChange, VolumeUpdate};
pub use witness::Witness;
pub use writer::{
    Authority, FENCERS, LOOKERS, NODE_WRITERS, Owner, Parts, Policy, SWITCHERS, Submitted, WRITERS,
};
