//! The simulated cluster, its checker, and the shipped process in it: one program, for linking twenty takes minutes. One part of
//! it: `cargo test -p pod-safety-simulator --test suite planted::`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "what tests share fails loudly, says what it measured, and has threads of real time for real clients"
)]

mod agents;
mod allocator;
mod asked;
mod audience;
mod budgets;
mod campaign;
mod corpus;
mod determinism;
mod differential;
mod documents;
mod evictions;
mod fencing;
mod files;
mod memory;
mod nodes;
mod paused;
mod perturbed;
mod planted;
mod projects;
mod provider;
mod runs;
mod serve;
mod serve_kubectl;
mod shapes;
mod shipped;
mod stage;
mod taints;
mod teeth;
mod twins;
mod two_copies;
mod volumes;
mod world;
