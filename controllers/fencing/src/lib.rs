//! # Fencing
//!
//! **Duty.** Turn "the node does not answer" into a fact that permits recovery: switch the machine off, see that it is
//! off, write that down as evidence, mark the node, and switch the machine on when its pods are released. It releases
//! nothing itself: that is `pod_gc`, by the evidence.
//!
//! **Inputs.** Our own kinds (`pod_safety_shared::api`): policies, devices, incidents (NodeFence) and evidence; nodes
//! with their boot ids, labels and taints; Leases; pods.
//!
//! **Intents.** One step at a time for each node, each begun by a compare-and-swap of its NodeFence:
//!
//! | phase | what is found | step |
//! |---|---|---|
//! | none | lost by the measures of its policy, and needed | `Open` |
//! | `Pending` | unhealthy, and it reports | `Drain`, in rounds |
//! | | all gates open | `Attempt` off |
//! | | heard again, or cancelled | `Write` Cancelled |
//! | `Fencing` | an attempt with an outcome, or whose time is over | `Look` |
//! | | it was seen off | `Prove` |
//! | | it was seen in another state | `Attempt` off: the same level, the next, the next round; then `Write` AwaitingOperator |
//! | before evidence | another life of the node | `Write` Superseded |
//! | | somebody else's evidence | `Write` Fenced |
//! | `Fenced` | not tainted yet | `Taint` |
//! | | all is released, and the policy says `PowerOn` | `Attempt` on |
//! | `Recovering` | as `Fencing` | `Look`, `Attempt` on |
//! | after evidence | Ready with another boot, and no pod of the old life is left | `Untaint`, or `Write` Done |
//! | | a sign of life of the same boot for half a minute | `Contradict` |
//! | | what was proved was declared invalid, and nothing else is | `Withdraw` |
//!
//! for what is over and old: `Forget`;
//!
//! and for each device, at its change and from time to time: `Monitor`; for each PodSafetyRemediation: `Remediate`;
//! for each FencePolicy: `Review`.
//!
//! | file | says |
//! |---|---|
//! | `detect` | whether a node is lost, and whether that matters |
//! | `unwell` | whether a node that reports is unhealthy by its policy |
//! | `drain` | the soft remedy of such a node, before it is powered off |
//! | `gates` | what must not be in the way, with its numbers |
//! | `quorum` | whether the control plane and etcd can do without it |
//! | `collateral` | whether disruption budgets can spare its pods |
//! | `levels` | which devices are asked next |
//! | `progress` | from suspicion to evidence |
//! | `doubt` | whether a node that was found off lives |
//! | `recover` | from evidence to a node that is back |
//! | `taint` | whose mark of a node that is off was forgotten on one that is not |
//! | `history` | which incidents and evidence nothing rests on any more |
//! | `remediate` | what other remediators ask for, and are answered |
//! | `monitor` | which devices are looked through |
//! | `policy` | whether a FencePolicy would work |
//! | `outlook` | what becomes of a lost node if nothing changes: for people |
//! | `way_out` | what helps a node that waits for a person |
//!
//! **Invariants.** Nothing is switched off while a gate is closed, nor by a dry run, nor for one who was heard again or
//! whose incident was cancelled, nor the node that this process runs on. Nothing is begun while something begun before
//! may still land: that time counts from when *this* process first saw it, so a restart lengthens it. No evidence
//! without two looks that said off. No taint without evidence that holds. No power before all pods are released. What
//! was proved of one life of a node is never said of another. A phase is left only for a reason that a person can read
//! in its message, and whatever waits is held by a typed reason.
//!
//! kube-controller-manager has nothing like it.
#![forbid(unsafe_code)]

mod collateral;
mod config;
mod contradiction;
mod decide;
mod detect;
mod drain;
mod gates;
mod history;
mod holds;
mod incident;
mod levels;
mod metrics;
mod monitor;
mod outlook;
mod policy;
mod progress;
mod quorum;
mod recover;
mod remediate;
mod remedy;
mod run;
mod taint;
mod unhealthy;

pub use config::{Config, PROVIDER_LAG};
pub use decide::{Key, decide};
pub use holds::{Decision, Hold};
pub use outlook::{Outlook, outlook, why_none_fenceable, why_unfenceable};
pub use remedy::Remedy;
pub use run::Fencing;

#[cfg(test)]
mod tests;
