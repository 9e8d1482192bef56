//! Why the harness could not do what a test asked of it.

use std::error::Error as _;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A failure of the harness. Its messages are made to be read in a test's output, so they carry the end of
/// the log of the program that they are about.
#[derive(thiserror::Error)]
pub enum Error {
    /// `tools/build.sh` did not give us the programs.
    #[error("the programs of the control plane are not there: {0}")]
    Tools(String),
    /// Something with a file or folder.
    #[error("cannot {act} {}", .path.display())]
    File {
        /// What was tried.
        act: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A certificate or key could not be made.
    #[error("cannot make the {what}")]
    Certificate {
        /// Which.
        what: &'static str,
        /// What the library said.
        source: rcgen::Error,
    },
    /// A client certificate names its groups, and ours has room for few of them.
    #[error("a user of this harness has at most two groups, not {0}")]
    Groups(usize),
    /// All ports that were tried are in use.
    #[error("found no free port after {0} attempts")]
    Ports(u32),
    /// A program could not be started or asked about.
    #[error("cannot {act} {program}")]
    Process {
        /// What was tried.
        act: &'static str,
        /// With which program.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A program ended when it should have served.
    #[error("{program} ended ({status}) while we waited for it to {awaited}; end of its log:\n{log}")]
    Ended {
        /// Which program.
        program: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What was waited for.
        awaited: &'static str,
        /// The end of its log.
        log: String,
    },
    /// A program lives but does not get there.
    #[error("{program} did not {awaited} within {within:?}; last seen: {seen}; end of its log:\n{log}")]
    TooSlow {
        /// Which program.
        program: String,
        /// What was waited for.
        awaited: &'static str,
        /// For how long.
        within: Duration,
        /// The last answer to the question whether it is there.
        seen: String,
        /// The end of its log.
        log: String,
    },
    /// A command gave an exit code other than 0.
    #[error("`{command}` failed ({status}):\n{stderr}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it complained about.
        stderr: String,
    },
    /// A command neither ended nor failed.
    #[error("`{command}` did not end within {within:?}")]
    Hangs {
        /// The command line.
        command: String,
        /// How long it was given.
        within: Duration,
    },
    /// [`eventually`](crate::eventually) gave up.
    #[error("{what}: not so within {within:?}; last seen: {seen}")]
    NeverSeen {
        /// What should have become true.
        what: String,
        /// For how long it was waited for.
        within: Duration,
        /// The last observation.
        seen: String,
    },
    /// What was looked at once is not what is now.
    #[error("{}: {why}", .path.display())]
    Golden {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A call of the API server that the harness itself makes.
    #[error("cannot {act}")]
    Api {
        /// What was tried.
        act: String,
        /// What the client or the server said.
        source: Box<kube::Error>,
    },
    /// A kubeconfig that we wrote cannot be used.
    #[error("cannot use the kubeconfig {}", .path.display())]
    Kubeconfig {
        /// Which file.
        path: PathBuf,
        /// What the client said.
        source: Box<kube::config::KubeconfigError>,
    },
    /// The API server gave an answer without what was asked for.
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

/// `unwrap` prints this. A log is no use with its line ends escaped, and a source that is not shown is lost.
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
