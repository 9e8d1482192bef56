//! A node as decisions see it.

use std::sync::Arc;

use super::{Rv, Taint, Uid};

/// The taint by which somebody asserts that a node is off (KEP-2268).
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";

/// The node's Ready condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Its kubelet says that it is well.
    Ready,
    /// Its kubelet says that it is not.
    NotReady,
    /// Nobody heard of it.
    Unknown,
    /// It has no Ready condition.
    Missing,
}

/// A node as decisions see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// Its identity: a node re-registered under the same name is another one.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// Its Ready condition.
    pub readiness: Readiness,
    /// It carries [`OUT_OF_SERVICE_TAINT`], with any value and effect (KCM's reading).
    pub out_of_service: bool,
    /// Its taints that end pods, in its own order.
    pub no_execute: Box<[Taint]>,
}
