//! The shipped kernel of proof, searched beside an adversary.

pub mod agents;
mod machine;
mod objects;
mod ours;
mod planted;
mod scope;
pub mod scopes;
pub mod search;
mod steps;
pub mod world;
