//! # Node lifecycle
//!
//! **Duty.** Detect lost nodes: set their conditions to Unknown, taint them so that no new pods are scheduled there
//! and, zone by zone and no faster than a rate, so that their pods are evicted; and set their pods to not ready.
//!
//! **Inputs.** Nodes with conditions, taints and labels; the Leases that kubelets renew; pods.
//!
//! **Intents.** One update for all of a node, and one for each pod:
//!
//! | rule | write, in place of KCM |
//! |---|---|
//! | its kubelet has not reported for the grace period | Ready and the pressures become Unknown, after a quorum read of Node and Lease |
//! | Ready False or Unknown, a pressure, a cordon | the taint of that name with the effect `NoSchedule`, as long as it lasts |
//! | Ready False or Unknown | `not-ready` or `unreachable` with the effect `NoExecute`, when it is the node's turn in its zone; Ready again: neither, at once |
//! | Ready Unknown | its ready pods become not ready |
//! | `kubernetes.io/os` and `arch` | the `beta` labels have the same values |
//!
//! Beside KCM it leaves all these alone, and adds only what is its own:
//!
//! | rule | write, in both modes |
//! |---|---|
//! | Ready Unknown | condition `pod-safety.dev/NodeUnreachable` on the node, and on its pods that are being deleted: it is unknown whether they still run |
//! | guard: no report for half the grace period | the taint `pod-safety.dev/suspect:NoSchedule`, until it reports again or KCM's own taints take over |
//!
//! **Clocks.** The time without a report counts from when *this process* last saw a renewed Lease or a status update,
//! on its monotonic clock. Timestamps of kubelets are compared for change, never with the local clock. Each node has
//! its own timer, without a tick over all; a heartbeat enqueues no decision.
//!
//! **Lost nodes or a cut-off process** (`heartbeat`). A process that was stopped, an API server that was stopped, and
//! a watch that hangs all look as if nodes were lost. So:
//!
//! 1. a quorum read of Node and Lease decides, the cache only raises suspicion (the guard's suspect taint needs the
//!    Node alone: it releases nothing);
//! 2. while the watch of Leases has had no event for 15 s, and none since a node was due, that node does not count as
//!    lost: one running kubelet causes an event every 10 s. After a break of the watch, kubelets have two fifths of
//!    the grace period to report: they come back within one or two renewals. The event that ends a break may be a
//!    bookmark, which an API server sends even if it reaches no etcd, so that no Lease can be renewed: so after a
//!    break, or in one that lasted until this leader began, these two fifths count from when this process leads,
//!    because its own Lease is renewed there, too;
//! 3. if more than half of the Ready nodes, and at least three are Ready, are overdue, nothing is done for two
//!    seconds; then each node is read on its own.
//!
//! None of these rules delays the loss of one node, of a hundred or of a zone of three while others report; each ends
//! by itself, the second when the API server sends its next bookmark: a minute later, or two if the watch is reopened
//! meanwhile, because its bookmarks come a minute after that.
//!
//! **Turns** (`zones`). A rate of one node in ten seconds needs no counter: the next turn is one interval after the
//! last taint of the zone was added, which is recorded in the API. So it survives restarts, except for the taint of a
//! node that came back. The node that has been lost longest is first. A node that the API server refuses to taint
//! keeps the others of its zone waiting: it is retried, with backoff, and the log states the reason. When the first
//! kubelet reports after a break of the watch, the others have two renewals, and the length of a break, to come back
//! before a turn.
//!
//! **Invariants.** A node that reports never counts as lost, and is never tainted as unreachable. At most one node of
//! a zone is tainted in the interval of the rate; none in a small zone of which more than 55 % are lost, and none
//! when every zone is lost. A decision depends on the cache, and on how long this process has led, so that a restart
//! or a new leader neither removes a taint nor restarts a period that is recorded in the API. Taints, labels and
//! conditions of others stay. What the kubelet reports is never overwritten: it runs. The results are those of
//! kube-controller-manager (`pkg/controller/nodelifecycle`, v1.37.2), but for its weak spots:
//!
//! | deviation | KCM | here |
//! |---|---|---|
//! | W-NL1 | no node is found lost while pods of others are marked | pods wait, nodes do not |
//! | W-NL2 | a turn is lost if its cache is behind | a turn is taken by the taint alone |
//! | W-NL3 | pods are marked on a transition in memory: a restart forgets them | on the state |
//! | W-NL4 | a new leader gives every dead node a fresh grace | the standby has watched, too |
//! | W-NL5 | disruption of all zones races with taints, and resets every clock | decided from the present state |
//! | W-NL7 | a disrupted small zone is left alone without a message | hold `ZoneDisrupted` with its numbers |
//! | W-NL9 | a new leader takes `NoExecute` taints from every node, lost ones too | takes none |
#![forbid(unsafe_code)]

mod config;
mod decide;
mod flags;
mod heartbeat;
mod holds;
mod metrics;
mod pods;
mod run;
mod zones;

pub use config::Config;
pub use decide::{Key, decide};
pub use flags::Flags;
pub use holds::{Decision, Hold};
pub use run::NodeLifecycle;
pub use zones::Rates;

#[cfg(test)]
mod tests;
