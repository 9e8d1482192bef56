//! The shipped binary against the real control plane: one test program, because linking twenty takes minutes, and so that scenarios that
//! mostly wait run concurrently. To run one suite: `cargo test --workspace --test suite fencing`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "what tests share may fail as loudly as they do, and says what it measured"
)]

mod alerts;
mod api_faults;
mod bad_budgets;
mod bad_input;
mod beside_kcm;
mod chart;
mod chart_render;
mod commands;
mod disruption_beside_kcm;
mod doctor;
mod documents;
mod drain;
mod eviction_requests;
mod evictions;
mod explain;
mod fencing;
mod first_hour;
mod five_views;
mod harness;
mod leadership;
mod live_kubelet_with_kcm;
mod node_lifecycle_beside_kcm;
mod orphans;
mod policies;
mod prometheus;
mod questions;
mod races_with_kcm;
mod rbac;
mod taint_eviction_beside_kcm;
mod terminated;
mod unscheduled_and_out_of_service;
mod versions;
mod volumes;
mod wire;
