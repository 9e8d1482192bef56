//! Finds the executable of an agent by its name.
//!
//! Invariants: a name is one word of a small alphabet. A client that may write a FenceDevice may choose among the
//! installed agents, and cannot name any other program.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use pod_safety_transport::DeviceError;

/// The prefix of every agent's name.
const PREFIX: &str = "fence_";

/// An installed agent.
#[derive(Debug)]
pub(super) struct InstalledAgent {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) version: Version,
}

/// Changes when the file does: seconds and nanoseconds of its last change, inode, length.
pub(super) type Version = (i64, i64, u64, u64);

pub(super) fn find_agent(name: &str, directories: &[PathBuf]) -> Result<InstalledAgent, DeviceError> {
    let word = name.strip_prefix(PREFIX).unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if word.is_empty() || !word.bytes().all(plain) {
        let why = "the name of an agent is `fence_` with lower-case letters, digits and underscores, without a path"
            .to_owned();
        return Err(DeviceError::Metadata { agent: name.to_owned(), why });
    }
    for directory in directories {
        let path = directory.join(name);
        if let Some(version) = file_version(&path) {
            return Ok(InstalledAgent { name: name.to_owned(), path, version });
        }
    }
    Err(DeviceError::NoAgent { agent: name.to_owned(), searched: describe_directories(directories) })
}

fn describe_directories(directories: &[PathBuf]) -> String {
    if directories.is_empty() {
        return "any folder, because this process runs no agents (in the chart: controllers.fencing.agents.enabled)"
            .to_owned();
    }
    let shown: Vec<_> = directories.iter().map(|directory| directory.display().to_string()).collect();
    shown.join(", ")
}

/// `None` if it is no executable file. Links are followed: many agents are one file under several names.
fn file_version(path: &Path) -> Option<Version> {
    let file = std::fs::metadata(path).ok()?;
    let runs = file.is_file() && file.permissions().mode() & 0o111 != 0;
    runs.then(|| (file.mtime(), file.mtime_nsec(), file.ino(), file.len()))
}
