//! Tables of sentences: what is decided about a volume, and about a pod behind the gate.

mod detached;
mod edges;
mod events;
mod fixture;
mod gate;
mod holders;
mod limits;
mod replaced;
mod storage;
mod tenants;
mod unreported;
mod users;
