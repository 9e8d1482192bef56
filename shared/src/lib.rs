//! Everything that two controllers of pod-safety need: the deletion authority and the loop, and the crates below, without what
//! reads Secrets, writes, or tells the cache anything.
//!
//! ```text
//! apiserver ─ one watch per kind ─► wire (partial) ─► model ─► cache ─► dirty keys ─► decide ─► authority ─► apiserver
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`api`] | our own kinds, from which the CRDs are made |
//! | [`model`] | lean domain types; identities as newtypes |
//! | [`wire`] | the fields of API objects that somebody reads, as JSON and as protobuf |
//! | [`client`] | connection, deadlines, audit, and the layer that refuses unpermitted deletions |
//! | [`cache`] | the one informer cache: feed, store, indexes, view |
//! | [`authority`] | claim, evidence, verify, act: the only writer of pods, nodes and volumes |
//! | [`controller_loop`] | the one loop: dirty keys, deadlines and sweeps become decisions, decisions become acts |
//! | [`lease`] | leadership by client-go's rules |
//! | [`events`], [`record`] | what was decided and done, for people and for checkers |
//! | [`clock`] | time, tasks and chance, injected |
//! | [`transport`] | what is asked of fence devices, and what they answer |
//! | [`metrics`], [`admin`] | what Prometheus and a person with `curl` can see |
#![forbid(unsafe_code)]

pub mod admin;
pub mod authority;
pub mod controller_loop;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

// The crates below, under the names of their subjects.
pub use pod_safety_clock as clock;
pub use pod_safety_crds as api;
pub use pod_safety_leader::{events, lease, metrics, record};
pub use pod_safety_screen as screen;
pub use pod_safety_transport as transport;
pub use pod_safety_wire as wire;

pub use pod_safety_cache::model;

/// The connection to the API server, without what writes.
pub mod client {
    #[cfg(test)]
    pub(crate) use pod_safety_client::scripted;
    pub use pod_safety_client::{
        ApiError, Audit, Call, ConfigError, ConnectOptions, Connection, Guard, GuardRefusal, ListStream,
        Method, NoAudit, Prefer, READ_TIMEOUT, RequestLine, Resource, ServerInfo, Shape, Target, WatchStream,
    };
    pub(crate) use pod_safety_client::{MAX_WRITE_SLOTS, WriteCall};
}

/// The cache, without what tells it anything.
pub mod cache {
    pub use pod_safety_cache::{
        Absence, Cache, Change, FreshnessError, Heartbeat, KindState, LastHeartbeat, LastUse, Lookup,
        ObjectVisitor, Renewal, ReportKind, STALE_AFTER, ScaleAnswer, Snapshot, SnapshotError, Subscriber,
        UnreadKind, UseReport, View, ViewGuard, WATCH_GAP, WatchProblem, ZoneCount, start_feeds,
    };
    pub(crate) use pod_safety_cache::{CacheWriter, node_from_wire, pod_from_wire, read_page};
}
