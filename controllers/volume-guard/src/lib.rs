//! # Exclusive volumes
//!
//! **Duty.** At most one incarnation of a node holds an exclusive volume: this is recorded before another node may
//! attach it, and the record is removed only after a report of the node's kubelet, or with evidence that the
//! incarnation has ended.
//!
//! **Inputs.** PersistentVolumes and claims, VolumeAttachments, pods with their claims, nodes with their boot IDs and
//! `volumesInUse`, the Leases of the namespace `pod-safety-volumes`, evidence of fencing.
//!
//! **Intents.** The Lease of a volume has the name of its PersistentVolume; its holder is
//! NODE/NODE-UID/BOOT-ID/POD-UID, its transitions are the generation that grows with each revocation.
//!
//! | an exclusive volume | write |
//! |---|---|
//! | free, and one node uses it | the node becomes the holder |
//! | its holder is healthy and uses it | none; the label `held` is removed, if it was set |
//! | its holder is healthy and has unmounted it | the Lease is released |
//! | its holder is healthy and has it mounted, and its pods were force deleted | the label `held`, until it is unmounted |
//! | its holder is not Ready, missing, or replaced | the label `held`: admission refuses to attach the volume elsewhere and to detach it (but not to detach it if that ends the node's writes) |
//! | its holder's incarnation has ended, by evidence | the Lease is revoked, the generation grows |
//! | its storage accepts no writes from its holder any more: it was detached from an exclusive backend, or fenced | the same; this proves nothing about pods |
//! | it was deleted, and has no holder | the Lease is deleted |
//! | a pod with our gate whose volumes are free | the gate is removed; if a volume is on a node already, the pod is pinned to that node |
//!
//! Exclusive are volumes with only the access modes `ReadWriteOnce` or `ReadWriteOncePod`, and all volumes of a class
//! or driver that a flag names. No other volume is touched.
//!
//! **Invariants.** A Lease names one incarnation of one node. No pod passes the gate while another incarnation holds
//! one of its volumes, and of several pods that wait for a free volume only the first passes. A force delete, a
//! deleted VolumeAttachment or a deleted Node releases nothing. Two writes for each use of a volume: acquire and
//! release.
//!
//! It is not in the list of controllers that `*` means: it requires a namespace, rights and policies of its own
//! (`volumeGuard.enabled` of the chart).
#![forbid(unsafe_code)]

mod config;
mod context;
mod decide;
mod detach;
mod flags;
mod free;
mod gate;
mod holder_state;
mod holds;
mod metrics;
mod run;
mod uses;

pub use config::Config;
pub use decide::{Key, decide};
pub use flags::Flags;
pub use holds::{Decision, Doubt, Hold};
pub use run::VolumeGuard;

#[cfg(test)]
mod tests;
