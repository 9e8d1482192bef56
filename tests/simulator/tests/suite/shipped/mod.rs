//! The shipped process, started as `pod-safety demo` starts it.

#[path = "../../../../../controllers/src/demo/launch.rs"]
mod process;

pub(crate) use process::launch;

use pod_safety_simulator::world::Subject;

/// Without a bug.
pub(crate) const SHIPPED: Subject = Subject::Shipped(launch, None);
