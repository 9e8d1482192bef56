//! The shipped process, started as `pod-safety demo` starts it.

#[path = "../../../../../controllers/src/demo/launch.rs"]
mod process;

pub(crate) use process::launch;
