//! Model check of the shipped proof kernel against an adversary.

pub mod agents;
mod faulty_cache;
mod machine;
mod objects;
mod process;
mod scope;
pub mod scopes;
pub mod search;
mod steps;
pub mod world;
