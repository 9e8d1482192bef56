//! # Node lifecycle
//!
//! **Duty.** Say which nodes are lost: their conditions become Unknown, they are tainted so that
//! nothing new comes to them and, zone by zone and no faster than a rate, so that what is there
//! ends; and their pods are not ready any more.
//!
//! **Inputs.** Nodes with conditions, taints and labels; the Leases that kubelets renew; pods.
//!
//! **Intents.** One update for all of a node, and one for each pod:
//!
//! | rule | write, in place of KCM |
//! |---|---|
//! | nothing was heard of its kubelet for the grace period | Ready and the pressures become Unknown, after a quorum read of Node and Lease |
//! | Ready False or Unknown, a pressure, a cordon | the taint of that name with the effect `NoSchedule`, as long as it lasts |
//! | Ready False or Unknown | `not-ready` or `unreachable` with the effect `NoExecute`, when it is its turn in its zone; Ready again: neither, at once |
//! | Ready Unknown | its ready pods are not ready |
//! | `kubernetes.io/os` and `arch` | the `beta` labels have the same values |
//!
//! Beside KCM it keeps away from all these, and adds only what is its own:
//!
//! | rule | write, in both modes |
//! |---|---|
//! | Ready Unknown | condition `pod-safety.dev/NodeUnreachable` on the node, and on its pods that are asked to end: nobody can say whether they still run |
//! | guard: silent for half the grace period | the taint `pod-safety.dev/suspect:NoSchedule`, until it is heard again or KCM's own taints take over |
//!
//! **Whose clock.** Ours: silence is counted from when *this process* last saw a Lease renewed or a
//! report made, on its monotonic clock. What kubelets stamp is compared for change, never with our
//! time. There is a timer for each node and no tick over all; a heartbeat wakes nobody.
//!
//! **Us or them** (`silence`). A process that was stopped, an API server that was, and a watch that
//! hangs all look as if nodes were lost. So:
//!
//! 1. a live read of Node and Lease convicts, the cache only suspects;
//! 2. while the watch of Leases has been silent for 15 s, and since before a node was due, that node
//!    is not called silent: one living kubelet makes it speak each 10 s. When it speaks again, kubelets have two fifths of the grace
//!    period to be heard: they come back within one or two renewals;
//!    What it says may be a bookmark, which an API server sends that reaches no etcd, where nobody can
//!    renew: so while it is silent otherwise, or was until this leader began, the 20 s count from when
//!    this process leads, for its own Lease is renewed there, too;
//! 3. if more than half of the Ready nodes, and at least three are Ready, are overdue, nothing is
//!    done for two seconds; then each is read alone.
//!
//! None of them touches the loss of one node, of a hundred or of a zone of three while others are
//! heard; each ends by itself, the second when the API server sends its next bookmark: a minute
//! later, or two where the watch is opened anew meanwhile, for its bookmarks come a minute after that.
//!
//! **Turns** (`zones`). A rate of one node in ten seconds is kept without a count of its own: the next
//! one's turn is so long after the last taint of the zone was added, which the API says. So it
//! survives restarts; only the taint of a node that came back is forgotten by them. Who has been lost
//! longest comes first. One that the API server refuses to taint keeps the others of its zone
//! waiting: it is tried again, later each time, and the log says why. When the first kubelet speaks
//! after a silence of all, the others have two renewals, and a break, to come back before a turn.
//!
//! **Invariants.** A node that is heard is never called silent, nor tainted for silence. No more
//! than one node of a zone in the time of the rate; none in a small zone of which more than 55 % are
//! lost, and none when every zone is lost. A decision rests on the cache, and on how long we have led,
//! so that a restart or a new leader neither takes a taint away nor begins a count anew that was in the API. Taints,
//! labels and conditions of others stay. What the kubelet says itself is never overwritten: it lives.
//! The same results as kube-controller-manager (`pkg/controller/nodelifecycle`, v1.37.2), but for
//! its weak spots:
//!
//! | | KCM | here |
//! |---|---|---|
//! | W-NL1 | no node is found lost while pods of others are marked | pods wait, nodes do not |
//! | W-NL2 | a turn is lost if its cache is behind | a turn is taken by the taint alone |
//! | W-NL3 | pods are marked on a transition in memory: a restart forgets them | on the state |
//! | W-NL4 | a new leader gives every dead node a fresh grace | the standby has listened too |
//! | W-NL5 | disruption of all zones races with taints, and resets every clock | decided from what is there |
//! | W-NL7 | a small zone in trouble is left alone without a word | hold `ZoneDisrupted` with its numbers |
//! | W-NL9 | a new leader takes `NoExecute` taints from every node, dead ones too | takes none |
#![forbid(unsafe_code)]

mod config;
mod decide;
mod heartbeat;
mod holds;
mod metrics;
mod pods;
mod run;
mod zones;

pub use config::Config;
pub use decide::{Key, decide};
pub use holds::{Decision, Hold};
pub use run::NodeLifecycle;
pub use zones::Rates;

#[cfg(test)]
mod tests;
