//! Why the harness could not do what a test requested.

use std::error::Error as _;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A failure of the harness. The messages are for a test's output, so they include the end of the log of the program that they are about.
#[derive(thiserror::Error)]
pub enum Error {
    /// `tools/build.sh` failed.
    #[error("the programs of the control plane are not there: {0}")]
    Tools(String),
    /// A failure with a file or folder.
    #[error("cannot {act} {}", .path.display())]
    File {
        /// What was attempted.
        act: &'static str,
        /// On which path.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A certificate or key could not be created.
    #[error("cannot make the {what}")]
    Certificate {
        /// Which certificate or key.
        what: &'static str,
        /// The error of the library.
        source: rcgen::Error,
    },
    /// A client certificate names its groups, and those of the harness have room for few of them.
    #[error("a user of this harness has at most two groups, not {0}")]
    Groups(usize),
    /// All ports that were tried are in use.
    #[error("found no free port after {0} attempts")]
    Ports(u32),
    /// A program could not be started or inspected.
    #[error("cannot {act} {program}")]
    Process {
        /// What was attempted.
        act: &'static str,
        /// The program.
        program: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A program ended while it should have served.
    #[error("{program} ended ({status}) while we waited for it to {awaited}; end of its log:\n{log}")]
    Ended {
        /// The program.
        program: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// What was awaited.
        awaited: &'static str,
        /// The end of its log.
        log: String,
    },
    /// A program runs, but a condition did not become true in time.
    #[error("{program} did not {awaited} within {within:?}; last seen: {seen}; end of its log:\n{log}")]
    TooSlow {
        /// The program.
        program: String,
        /// What was awaited.
        awaited: &'static str,
        /// The time limit.
        within: Duration,
        /// The last answer of the probe.
        seen: String,
        /// The end of its log.
        log: String,
    },
    /// A command gave an exit code other than 0.
    #[error("`{command}` failed ({status}):\n{stderr}")]
    Command {
        /// The command line.
        command: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// Its stderr.
        stderr: String,
    },
    /// A command did not end in time.
    #[error("`{command}` did not end within {within:?}")]
    Hangs {
        /// The command line.
        command: String,
        /// The time limit.
        within: Duration,
    },
    /// The condition of [`eventually`](crate::eventually) did not become true.
    #[error("{what}: not so within {within:?}; last seen: {seen}")]
    NeverSeen {
        /// The condition.
        what: String,
        /// The time limit.
        within: Duration,
        /// The last observation.
        seen: String,
    },
    /// The content differs from a golden file.
    #[error("{}: {why}", .path.display())]
    Golden {
        /// The file.
        path: PathBuf,
        /// The difference.
        why: String,
    },
    /// A request of the harness itself to the API server failed.
    #[error("cannot {act}")]
    Api {
        /// What was attempted.
        act: String,
        /// The error of the client or the server.
        source: Box<kube::Error>,
    },
    /// A kubeconfig of the harness cannot be used.
    #[error("cannot use the kubeconfig {}", .path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The error of the client.
        source: Box<kube::config::KubeconfigError>,
    },
    /// An answer of the API server lacks a field.
    #[error("the API server's answer lacks {0}")]
    Incomplete(&'static str),
}

impl Error {
    pub(crate) fn file(act: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { act, path, source }
    }

    pub(crate) fn api(act: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let act = act.into();
        move |source| Self::Api { act, source: Box::new(source) }
    }

    /// Whether another attempt with another port may help.
    pub(crate) fn is_port_conflict(&self) -> bool {
        matches!(self, Self::Ended { log, .. } if log.contains("address already in use"))
    }
}

/// `unwrap` prints this. An escaped multi-line log would be unreadable, and a source that is not shown would be lost.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut source = self.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
