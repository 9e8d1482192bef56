//! Fencing, carried out: one step of one node at a time, each begun by a compare-and-swap of its NodeFence.
//!
//! | | file | content |
//! |---|---|
//! | `render` | what of a device's spec is meant for one node |
//! | `instance` | which instance of which cloud a Node is |
//! | `hosts` | where a device may be reached |
//! | `address` | where a person finds it |
//! | `secrets` | which Secrets a device may use |
//! | `identity` | whether a device still switches the machine that it switched before |
//! | `orders` | the device and its Secrets, read by quorum, as orders |
//! | | `status_checker` | what a status check of a device needs |
//! | | `status_check` | what devices answer, as samples |
//! | | `order_effect` | the second fact about devices that call more than one state off |
//! | | `prepare` | the request that an order is sent as: which object, if the device is one, and its timeout |
//! | `objects` | devices that are objects of the cluster |
//! | | `aggregate` | what status checks prove. Pure |
//! | | `actions` | what a decision requests |
//! | | `step_context` | what a step works with |
//! | | `step` | the steps, with a table of them |
//! | | `incident` | whether an incident still stands, its status, and the evidence that follows from it |
//! | `storage` | evidence that storage is fenced |
//! | | `confirm` | two status checks, with an interval between them |
//! | | `corroborate` | a second fact, which can only refute |
//! | | `drain` | the soft remedy of a node that still reports: a cordon, and evictions |
//! | | [`cordon`], [`evict`] | the two requests of a drain, which the CLI uses too |
//! | | [`eviction_requests`] | EvictionRequests of operators, and their progress |
//! | | [`retry_on_conflict`] | a read and a write, repeated when the object was changed between the two |
//! | `contradict` | what follows when the kubelet of a node that was proved off reports |
//! | | `device_events` | Events about devices |
//! | | `monitor` | checks of all nodes of a device while no node is lost |
//! | | `policy` | the status of a FencePolicy |
//! | `remediation` | the status of a PodSafetyRemediation |
//! | | `medik8s_lease` | the Lease by which medik8s' operators exclude each other from a node |
//! | `names` | the names of incidents and of evidence |
//! | [`watchdog`] | the watchdog Lease of a node's agent |
//! | [`quorum_read`] | quorum reads of a node and of its Lease |
//! | | `evidence` | whether a FenceEvidence holds now: read by quorum, with a new status check of its devices |
//! | | `taint` | the out-of-service taint, added after proof and removed by its owner only |
//!
//! Danger note: the intent to switch a machine off is written to the NodeFence before the device receives the order,
//! at the resourceVersion from which it was decided. So the next leader finds the intent, waits until the order can
//! no longer take effect, and checks the device. What a device answers to `off` is a hint. That the machine is off
//! follows from two later status checks with an interval between them, during which its kubelet did not renew its
//! Lease. A step ends with the leader's term: an order in progress is abandoned, and the process that was started for
//! it is killed.
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
mod outcome;
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
    FenceKey, FenceStepRequest, MonitorRequest, PolicyStatusUpdate, RemediationRequest, RemediationUpdate, Step, Target,
};
pub use address::device_address;
pub use evidence::{EvidenceReader, StoredEvidence};
pub use instance::is_provider_agent;
pub use monitor::monitor;
pub use names::{dry_run_name, incident_name, storage_evidence_name};
pub use orders::device_path;
pub use outcome::Outcome as StepOutcome;
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
use pod_safety_leader::{events, record, send};
use pod_safety_transport as transport;
use pod_safety_wire as wire;

#[cfg(test)]
mod tests;
