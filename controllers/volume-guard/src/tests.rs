//! Tables of sentences: what is decided about a volume, and about a pod behind the gate.

mod detached;
mod edges;
mod events;
mod gate;
mod holders;
mod limits;
mod replaced;
mod stage;
mod storage;
mod tenants;
mod untold;
mod users;
