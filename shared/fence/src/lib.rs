//! Fencing, carried out: one step of one node at a time, each begun by a compare-and-swap of its NodeFence.
//!
//! | file | says |
//! |---|---|
//! | `render` | what of a device's spec is meant for one node |
//! | `instance` | which instance of which cloud a Node is |
//! | `hosts` | where a device may be reached |
//! | `address` | where a person finds it |
//! | `secrets` | which Secrets a device may use |
//! | `identity` | whether a device still switches the machine that it switched before |
//! | `orders` | the device and its Secrets, read by quorum, as orders |
//! | `looker` | with what devices are looked at |
//! | `looks` | what devices answer, as samples |
//! | `met` | the second fact about devices that call more than one state off |
//! | `asking` | which object, if it is one, and for how long |
//! | `objects` | devices that are objects of the cluster |
//! | `judge` | what looks prove. Pure |
//! | `wanted` | what a decision wants done |
//! | `acting` | what a step works with |
//! | `step` | the steps |
//! | `incident` | whether an incident still stands, its status, and the evidence that comes of it |
//! | `storage` | evidence that storage is fenced |
//! | `twice` | two looks, apart from each other |
//! | `corroborate` | a second fact, which only refutes |
//! | `drain` | the soft remedy of a node that still reports: a cordon, and evictions |
//! | [`cordon`], [`evict`] | the two requests of it, which people use too |
//! | [`requests`] | evictions that people request, and how far they are |
//! | [`unchanged`] | a read and a write, done anew when the object was changed between the two |
//! | `contradict` | what follows when the kubelet of a node that was proved off reports |
//! | `news` | Events about devices |
//! | `monitor` | looks at all nodes of a device while nothing is wrong |
//! | `policy` | what is known of a FencePolicy |
//! | `remediation` | the status of a PodSafetyRemediation |
//! | `courtesy` | the Lease by which medik8s' operators keep out of each other's way |
//! | `names` | the names of incidents and of evidence |
//! | [`watchdog`] | the watchdog Lease of a node's agent |
//! | [`witness`] | quorum reads of a node and of its Lease |
//! | `evidence` | whether a FenceEvidence holds now: read by quorum, and its devices looked at again |
//! | `mark` | the out-of-service taint, added after proof and taken away by its owner only |
//!
//! Danger note: the intent to switch a machine off is written down before the device is asked, at the version that was
//! decided from. So whoever leads next finds it, waits until it can no longer land, and looks. What a device answers to
//! `off` is a hint: that the machine is off follows from two later looks, apart, during which its kubelet was silent.
//! A step ends with the leader's term: a device that is being asked then is left, and what was started for it is killed.
#![forbid(unsafe_code)]

mod acting;
mod address;
mod asking;
mod contradict;
pub mod cordon;
mod corroborate;
mod courtesy;
mod drain;
pub mod evict;
mod evidence;
mod hosts;
mod identity;
mod incident;
mod instance;
mod judge;
mod looker;
mod looks;
mod mark;
mod met;
mod monitor;
mod names;
mod news;
mod objects;
mod orders;
mod policy;
mod remediation;
mod render;
pub mod requests;
mod secrets;
mod step;
mod storage;
mod twice;
pub mod unchanged;
mod wanted;
pub mod watchdog;
pub mod witness;

pub use acting::Acting;
pub use address::address;
pub use evidence::{Found, Judge};
pub use instance::asks_a_provider;
pub use looker::Looker;
pub use monitor::monitor;
pub use names::{incident_name, rehearsal_name, storage_evidence_name};
pub use orders::path_of;
pub use policy::review;
pub use remediation::answer;
pub use step::carry_out;
pub use wanted::{FenceKey, Fencing, Monitor, PolicyReview, Remediate, Reply, Step, Target};

use names::{name_after, stem_of};
use pod_safety_cache::{self as cache, model};
use pod_safety_client as client;
use pod_safety_clock as clock;
use pod_safety_crds as api;
use pod_safety_leader::{events, outcome, record, send};
use pod_safety_transport as transport;
use pod_safety_wire as wire;

#[cfg(test)]
mod tests;
