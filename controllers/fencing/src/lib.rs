//! # Fencing
//!
//! **Duty.** From "the node does not answer" to evidence that permits recovery: switch the machine off, verify that
//! it is off, record that as evidence, taint the node, and switch the machine on when its pods are released. It
//! releases no pods itself: `pod_gc` does, by the evidence.
//!
//! **Inputs.** Our own kinds (`pod_safety_shared::api`): policies, devices, incidents (NodeFence) and evidence; nodes
//! with their boot IDs, labels and taints; Leases; pods.
//!
//! **Intents.** One step at a time for each node, each begun by a compare-and-swap of its NodeFence:
//!
//! | phase | condition | step |
//! |---|---|---|
//! | none | lost by the measures of its policy, and needed | `Open` |
//! | `Pending` | unhealthy, and it reports | `Drain`, in rounds |
//! | | all gates open | `Attempt` off |
//! | | it reports again, or was cancelled | `Write` Cancelled |
//! | `Fencing` | an attempt with an outcome, or whose time is over | `Look` |
//! | | reported off | `Prove` |
//! | | reported in another state | `Attempt` off: the same level, the next, the next round; then `Write` AwaitingOperator |
//! | before evidence | another incarnation of the node | `Write` Superseded |
//! | | evidence of another source | `Write` Fenced |
//! | `Fenced` | not tainted yet | `Taint` |
//! | | all is released, and the recovery of the policy is `PowerOn` | `Attempt` on |
//! | `Recovering` | as `Fencing` | `Look`, `Attempt` on |
//! | after evidence | Ready with another boot, and no pod of the old boot remains | `Untaint`, or `Write` Done |
//! | | a sign of life of the same boot for half a minute | `Contradict` |
//! | | the evidence was invalidated, and there is no other | `Withdraw` |
//!
//! When they are over and old: `DeleteFinished`;
//!
//! for each device, at its change and from time to time: `Monitor`; for each PodSafetyRemediation: `Remediate`; for
//! each FencePolicy: `Review`.
//!
//! | file | decides |
//! |---|---|
//! | `detect` | whether a node is lost, and whether a pod is blocked by that |
//! | `unhealthy` | whether a node that reports is unhealthy by its policy |
//! | `drain` | drains such a node, before it is powered off |
//! | `gates` | what must not hold when a node is switched off |
//! | `quorum` | whether the control plane and etcd can do without it |
//! | `collateral` | whether disruption budgets can spare its pods |
//! | `levels` | which devices are tried next |
//! | `progress` | from suspicion to evidence |
//! | `contradiction` | whether a node that was proved off shows a sign of life |
//! | `recover` | from evidence to a node that is back |
//! | `taint` | out-of-service taints that were left on a Ready node |
//! | `history` | which incidents and evidence are deleted |
//! | `remediate` | requests of other remediators, and their status |
//! | `monitor` | which devices get a status check |
//! | `policy` | whether a FencePolicy would work |
//! | `outlook` | what becomes of a lost node if nothing changes, for `explain` |
//! | `remedy` | what a person can do about a node that awaits one |
//!
//! **Invariants.** Nothing is switched off while a gate is closed, nor in a dry run, nor if the node reports again or
//! its incident was cancelled, nor the node that this process runs on. Nothing is begun while an earlier attempt may
//! still take effect: that time counts from when *this* process first saw it, so a restart lengthens it. No evidence
//! without two status checks that reported off. No taint without valid evidence. No power-on before all pods are
//! released. Evidence about one incarnation is never used for another. Every change of phase has its reason in the
//! message, and every incident that waits has a typed hold.
//!
//! kube-controller-manager has no counterpart.
#![forbid(unsafe_code)]

mod collateral;
mod config;
mod contradiction;
mod control_plane;
mod decide;
mod detect;
mod drain;
mod flags;
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
mod recover;
mod remediate;
mod remedy;
mod run;
mod taint;
mod unhealthy;

pub use config::{Config, PROVIDER_LAG};
pub use decide::{Key, decide};
pub use flags::Flags;
pub use holds::{Decision, Hold};
pub use outlook::{Outlook, Unfenceable, asks_only_a_person, outlook, why_unfenceable};
pub use remedy::Remedy;
pub use run::Fencing;

#[cfg(test)]
mod tests;
