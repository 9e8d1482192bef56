//! Tables of sentences: decisions about volumes, and about pods with the scheduling gate.

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
