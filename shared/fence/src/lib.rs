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
//! | [`eviction_requests`] | evictions that people request, and how far they are |
//! | [`retry_on_conflict`] | a read and a write, done anew when the object was changed between the two |
//! | `contradict` | what follows when the kubelet of a node that was proved off reports |
//! | `news` | Events about devices |
//! | `monitor` | looks at all nodes of a device while nothing is wrong |
//! | `policy` | what is known of a FencePolicy |
//! | `remediation` | the status of a PodSafetyRemediation |
//! | `courtesy` | the Lease by which medik8s' operators keep out of each other's way |
//! | `names` | the names of incidents and of evidence |
//! | [`watchdog`] | the watchdog Lease of a node's agent |
//! | [`quorum_read`] | quorum reads of a node and of its Lease |
//! | `evidence` | whether a FenceEvidence holds now: read by quorum, and its devices looked at again |
//! | `mark` | the out-of-service taint, added after proof and taken away by its owner only |
//!
//! Danger note: the intent to switch a machine off is written down before the device is asked, at the version that was
//! decided from. So whoever leads next finds it, waits until it can no longer land, and looks. What a device answers to
//! `off` is a hint: that the machine is off follows from two later looks, apart, during which its kubelet was silent.
//! A step ends with the leader's term: a device that is being asked then is left, and what was started for it is killed.
#![forbid(unsafe_code)]

mod actions;
mod address;
mod aggregate;
mod confirm;
mod contradict;
pub mod cordon;
mod corroborate;
mod device_events;
mod drain;
pub mod evict;
pub mod eviction_requests;
mod evidence;
mod hosts;
mod identity;
mod incident;
mod instance;
mod medik8s_lease;
mod monitor;
mod names;
mod objects;
mod order_effect;
mod orders;
mod policy;
mod prepare;
pub mod quorum_read;
mod remediation;
mod render;
pub mod retry_on_conflict;
mod secrets;
mod status_check;
mod status_checker;
mod step;
mod step_context;
mod storage;
mod taint;
pub mod watchdog;

pub use actions::{
    FenceKey, FenceStepRequest, MonitorRequest, PolicyStatusUpdate, RemediationRequest, RemediationUpdate,
    Step, Target,
};
pub use address::device_address;
pub use evidence::{EvidenceReader, StoredEvidence};
pub use instance::is_provider_agent;
pub use monitor::monitor;
pub use names::{dry_run_name, incident_name, storage_evidence_name};
pub use orders::device_path;
pub use policy::write_policy_status;
pub use remediation::update_remediation;
pub use status_checker::StatusChecker;
pub use step::execute_step;
pub use step_context::StepContext;

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
