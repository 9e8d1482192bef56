//! The parts that controllers share: the deletion authority, the control loop, and re-exports of the crates below. The
//! re-exports exclude everything that reads Secrets, writes to the API server, or writes to the cache.
//!
//! ```text
//! apiserver ─ one watch per kind ─► wire (partial) ─► model ─► cache ─► dirty keys ─► decide ─► authority ─► apiserver
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`api`] | the custom resources of pod-safety, from which the CRDs are generated |
//! | [`model`] | lean domain types; identities as newtypes |
//! | [`wire`] | the fields of API objects that this program reads, as JSON and as protobuf |
//! | [`client`] | connection, deadlines, audit, and the layer that refuses unpermitted deletions |
//! | [`cache`] | the one informer cache: feed, store, indexes, view |
//! | [`authority`] | claim, evidence, verify, act: the only writer of pods, nodes and volumes |
//! | [`controller_loop`] | the control loop: keys, deadlines and resyncs become decisions, decisions become requests |
//! | [`lease`] | leadership by client-go's rules |
//! | [`events`], [`record`] | Events, and the journal of decisions and outcomes |
//! | [`clock`] | time, tasks and randomness, injected |
//! | [`transport`] | requests to fence devices, and their answers |
//! | [`metrics`], [`admin`] | Prometheus metrics, and the admin server |
#![forbid(unsafe_code)]

pub mod admin;
pub mod authority;
pub mod controller_loop;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

// The crates below, named by their subjects.
pub use pod_safety_clock as clock;
pub use pod_safety_crds as api;
pub use pod_safety_leader::{events, lease, metrics, record};
pub use pod_safety_screen as screen;
pub use pod_safety_transport as transport;
pub use pod_safety_wire as wire;

pub use pod_safety_cache::model;

/// The connection to the API server, without write access.
pub mod client {
    #[cfg(test)]
    pub(crate) use pod_safety_client::scripted;
    pub use pod_safety_client::{
        ApiError, Audit, Call, ConfigError, ConnectOptions, Connection, Guard, GuardRefusal, ListStream, Method,
        NoAudit, OnReadPause, Prefer, READ_TIMEOUT, RequestLine, Resource, ServerInfo, Shape, Target, WatchStream,
    };
    pub(crate) use pod_safety_client::{MAX_WRITE_SLOTS, WriteCall};
}

/// The cache, without write access.
pub mod cache {
    pub use pod_safety_cache::{
        Absence, Cache, Change, FreshnessError, Heartbeat, Inability, KindState, LastHeartbeat, LastUse, Lookup,
        ObjectVisitor, Renewal, ReportKind, STALE_AFTER, ScaleAnswer, Snapshot, SnapshotError, Subscriber, UnreadKind,
        UseReport, View, ViewGuard, WATCH_GAP, WatchProblem, ZoneCount, start_feeds,
    };
    pub(crate) use pod_safety_cache::{CacheWriter, node_from_wire, pod_from_wire, read_page};
}
