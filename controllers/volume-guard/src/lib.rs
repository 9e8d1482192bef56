//! # Exclusive volumes
//!
//! **Duty.** At most one life of a node owns an exclusive volume: it is written down before another may attach it, and
//! what is written is taken back only by the word of the node's kubelet, or by evidence that this life is over.
//!
//! **Inputs.** PersistentVolumes and claims, VolumeAttachments, pods with their claims, nodes with their boot ids and
//! `volumesInUse`, the Leases of the namespace `pod-safety-volumes`, evidence of fencing.
//!
//! **Intents.** The Lease of a volume is called after its PersistentVolume; its holder is
//! NODE/NODE-UID/BOOT-ID/POD-UID, its transitions are the generation that grows with each break.
//!
//! | of a volume that is exclusive | write |
//! |---|---|
//! | nobody's, and one node uses it | the Lease becomes that node's |
//! | its holder is well and uses it | none; the label `held` goes, if it was there |
//! | its holder is well and has unmounted it | the Lease becomes nobody's |
//! | its holder is well and has it mounted, and its pods were removed by force | the label `held`, until it is unmounted |
//! | its holder is not Ready, missing, or replaced | the label `held`: admission refuses to attach the volume elsewhere and to detach it (but not to detach it where that ends what the node writes) |
//! | its holder's life is over, by evidence | the Lease becomes nobody's, the generation grows |
//! | its storage takes nothing from its holder any more: it was detached from an exclusive backend, or fenced | the same; of pods that says nothing |
//! | it is gone, and nobody holds it | the Lease goes |
//! | a pod behind our gate whose volumes are free | the gate goes; where a volume is on a node already, the pod is sent there |
//!
//! Exclusive is what `ReadWriteOnce` or `ReadWriteOncePod` alone name, and every volume of a class or driver that a
//! flag names. Nothing else is touched.
//!
//! **Invariants.** A Lease names one life of one node. No pod passes the gate while one of its volumes is another
//! life's, and of several that wait for a free one only the first. A force deletion, a deleted VolumeAttachment, a
//! deleted Node is nobody's word. Two writes for each time that a volume is used: taken and given back.
//!
//! Not in the list of controllers that `*` means: it asks for a namespace, rights and policies of its own
//! (`volumeGuard.enabled` of the chart).
#![forbid(unsafe_code)]

mod config;
mod context;
mod decide;
mod detach;
mod free;
mod gate;
mod holder_state;
mod holds;
mod metrics;
mod run;
mod uses;

pub use config::Config;
pub use decide::{Key, decide};
pub use holds::{Decision, Doubt, Hold};
pub use run::VolumeGuard;

#[cfg(test)]
mod tests;
