//! How a benchmark fails.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// What went wrong, and while what was done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The harness of the control plane.
    #[error(transparent)]
    ControlPlane(#[from] pod_safety_control_plane::Error),
    /// A request of the benchmark itself.
    #[error("cannot {act}")]
    Request {
        /// What was tried.
        act: String,
        /// What the client or the server said.
        source: Box<kube::Error>,
    },
    /// A server that was started says that it listens nowhere.
    #[error("{0:?} is no address")]
    Address(String),
    /// Something with a file.
    #[error("cannot {act} {}", .path.display())]
    File {
        /// What was tried.
        act: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The page has no place for the tables.
    #[error("{} lacks the line {marker:?}", .path.display())]
    NoMarker {
        /// Which page.
        path: PathBuf,
        /// What it should contain.
        marker: &'static str,
    },
    /// The results have no JSON form.
    #[error("cannot write the results as JSON")]
    Json(#[from] serde_json::Error),
    /// What should have happened did not.
    #[error("{what}: not so within {within:?}; last seen: {seen}")]
    NeverSeen {
        /// What.
        what: String,
        /// For how long it was waited for.
        within: Duration,
        /// The last observation.
        seen: String,
    },
    /// What etcd stores is not what we can read.
    #[error("etcd holds {key} in a form that cannot be read")]
    Stored {
        /// Which object.
        key: String,
    },
    /// A part of the benchmark's own work was lost.
    #[error("a task of the benchmark ended early: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl Error {
    /// For `map_err` on a request.
    pub(crate) fn request(act: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let act = act.into();
        move |source| Self::Request { act, source: Box::new(source) }
    }

    /// For `map_err` on a request that could not even be put together.
    pub(crate) fn request_shape(act: &'static str) -> impl FnOnce(kube::core::request::Error) -> Self {
        move |source| Self::Request {
            act: act.to_owned(),
            source: Box::new(kube::Error::BuildRequest(source)),
        }
    }

    /// For `map_err` on file operations.
    pub(crate) fn file(act: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { act, path, source }
    }
}
