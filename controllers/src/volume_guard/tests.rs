//! Tables of sentences: what is decided about a volume, and about a pod behind the gate.

mod gate;
mod holders;
mod stage;
mod users;
