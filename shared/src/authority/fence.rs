//! Fencing, carried out: one step of one node at a time, each begun by a compare-and-swap of its NodeFence.
//!
//! | file | says |
//! |---|---|
//! | `render` | what of a device's spec is meant for one node |
//! | `instance` | which instance of which cloud a Node is |
//! | `orders` | the device and its Secrets, read by quorum, as orders |
//! | `looks` | what devices answer, as samples |
//! | `asking` | which object, if it is one, and for how long |
//! | `objects` | devices that are objects of the cluster |
//! | `judge` | what looks prove. Pure |
//! | `step` | the steps |
//! | `twice` | two looks, apart from each other |
//! | `corroborate` | a second fact, which only refutes |
//! | `drain` | the soft remedy of a node that still reports: a cordon, and evictions |
//! | `contradict` | what follows when a node that was proved off is heard |
//! | `monitor` | looks at all nodes of a device while nothing is wrong |
//! | `policy` | what is known of a FencePolicy |
//! | `remediation` | what those are answered who want a node fenced |
//! | `courtesy` | the Lease by which medik8s' operators keep out of each other's way |
//! | `mark` | the out-of-service taint, added after proof and taken away by its owner only |
//!
//! Danger note: the intent to switch a machine off is written down before the device is asked, at the version that was
//! decided from. So whoever leads next finds it, waits until it can no longer land, and looks. What a device answers to
//! `off` is a hint: that the machine is off follows from two later looks, apart, during which its kubelet was silent.
//! A step ends with the leader's term: a device that is being asked then is left, and what was started for it is killed.

mod asking;
mod contradict;
mod corroborate;
mod courtesy;
mod drain;
mod hosts;
mod identity;
mod instance;
mod judge;
mod looks;
mod mark;
mod monitor;
mod news;
mod objects;
mod orders;
mod policy;
mod remediation;
mod render;
mod secrets;
mod step;
mod storage;
mod twice;

use std::sync::Arc;

pub use instance::asks_a_provider;
pub(super) use looks::Looker;
pub(super) use monitor::monitor;
pub(super) use orders::{Reader, path_of};
pub(super) use policy::review;
pub(super) use remediation::answer;
pub(super) use step::{Acting, carry_out};

use crate::api::{NodeFenceSpec, NodeFenceStatus};
use crate::model::{PodKey, Rv, Uid};

/// A NodeFence at the version that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceKey {
    /// Its name.
    pub name: Arc<str>,
    /// Its identity.
    pub uid: Uid,
    /// The version that was seen.
    pub rv: Rv,
}

/// One step for one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Fencing {
    /// The node's name: one step at a time is taken for it.
    pub node: Arc<str>,
    /// What is done.
    pub step: Step,
}

/// What is done. Each writes the status that it carries, at the version that was seen, or nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// An incident begins.
    Open(Box<NodeFenceSpec>),
    /// A status is written, and nothing else is done.
    Write(Target),
    /// The node is cordoned, and these pods are evicted within their budgets.
    Drain(Target, Vec<PodKey>),
    /// The last attempt of the status is new: it is written, then its devices are asked, then what they answered is
    /// written.
    Attempt(Target),
    /// The devices of the last attempt are looked at, twice; what was seen is written into it.
    Look(Target),
    /// What the last attempt's looks showed becomes evidence, if the kubelet has been silent since.
    Prove(Target),
    /// That the last attempt's storage is fenced becomes evidence about volumes; the incident goes on.
    ProveStorage(Target),
    /// The out-of-service taint is put on the node, for the evidence that the status names.
    Taint(Target),
    /// Our out-of-service taint is taken from the node, which is Ready with another boot.
    Untaint(Target),
    /// What was proved was declared invalid by somebody: our taint goes.
    Withdraw(Target),
    /// What was proved is not true: the evidence is invalidated, its devices are no longer trusted, and our taint goes unless
    /// the status keeps it.
    Contradict(Target),
}

/// A NodeFence, and the status that it should have.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Which one.
    pub fence: FenceKey,
    /// What it is about.
    pub spec: Box<NodeFenceSpec>,
    /// As it should be.
    pub status: Box<NodeFenceStatus>,
}

impl Step {
    /// Its name in logs and metrics: closed.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Open(_) => "open",
            Self::Write(_) => "write",
            Self::Drain(..) => "drain",
            Self::Attempt(_) => "attempt",
            Self::Look(_) => "look",
            Self::Prove(_) => "prove",
            Self::ProveStorage(_) => "prove-storage",
            Self::Taint(_) => "taint",
            Self::Untaint(_) => "untaint",
            Self::Withdraw(_) => "withdraw",
            Self::Contradict(_) => "contradict",
        }
    }

    /// The names of all steps, for metrics; `monitor` and `remediate` are steps of their own.
    pub const NAMES: [&'static str; 11] = [
        "open",
        "write",
        "drain",
        "attempt",
        "look",
        "prove",
        "prove-storage",
        "taint",
        "untaint",
        "withdraw",
        "contradict",
    ];

    /// Whether it waits for devices to switch a machine: for minutes, where others do that.
    pub(super) const fn switches(&self) -> bool {
        match self {
            Self::Attempt(_) => true,
            Self::Open(_)
            | Self::Write(_)
            | Self::Drain(..)
            | Self::Look(_)
            | Self::Prove(_)
            | Self::ProveStorage(_)
            | Self::Taint(_)
            | Self::Untaint(_)
            | Self::Withdraw(_)
            | Self::Contradict(_) => false,
        }
    }

    /// Whom it is about; `Err`: there is none yet, and this is what it will be about.
    fn about(&self) -> Result<&Target, &NodeFenceSpec> {
        match self {
            Self::Open(spec) => Err(spec),
            Self::Write(target)
            | Self::Drain(target, _)
            | Self::Attempt(target)
            | Self::Look(target)
            | Self::Prove(target)
            | Self::ProveStorage(target)
            | Self::Taint(target)
            | Self::Untaint(target)
            | Self::Withdraw(target)
            | Self::Contradict(target) => Ok(target),
        }
    }

    /// Whom it is about, if that is there.
    #[must_use]
    pub fn target(&self) -> Option<&Target> {
        self.about().ok()
    }

    /// What it is about.
    #[must_use]
    pub fn spec(&self) -> &NodeFenceSpec {
        self.about().map_or_else(|spec| spec, |target| &target.spec)
    }
}

/// The name of the incident, and of the evidence, of one incarnation: the same for whoever asks.
#[must_use]
pub fn incident_name(spec: &crate::api::Incarnation) -> String {
    name_after(&spec.name, &[spec.uid.as_bytes(), &[0], spec.boot_id.as_bytes()])
}

/// The name of the evidence that an attempt fenced storage: another one for each, for what was lifted is not proved anew.
#[must_use]
pub fn storage_evidence_name(node: &crate::api::Incarnation, fence: &Uid, attempt: u32) -> String {
    let (fence, attempt) = (fence.to_string(), attempt.to_string());
    let parts: [&[u8]; 7] =
        [node.uid.as_bytes(), &[0], node.boot_id.as_bytes(), &[0], b"storage", fence.as_bytes(), &[0]];
    name_after(&node.name, &[&parts[..], &[attempt.as_bytes()]].concat())
}

/// The name of what a person only wants to see written down. It is another one: what was left lying after a drill must
/// not be in the way when the node is lost.
#[must_use]
pub fn rehearsal_name(spec: &crate::api::Incarnation) -> String {
    name_after(&spec.name, &[spec.uid.as_bytes(), &[0], spec.boot_id.as_bytes(), &[0], b"rehearsal"])
}

/// A name that begins with this one and tells these parts apart.
fn name_after(name: &str, parts: &[&[u8]]) -> String {
    format!("{}-{:016x}", stem_of(name), fnv(parts))
}

/// What stands before the number: a name of 253 characters has no room for it.
fn stem_of(name: &str) -> &str {
    name.get(..LONGEST_STEM).unwrap_or(name).trim_end_matches(['-', '.'])
}

/// 253 less a dash and sixteen digits.
const LONGEST_STEM: usize = 236;

/// FNV-1a: it only tells incarnations of one name apart; what an object is about is compared in full.
fn fnv(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests;
