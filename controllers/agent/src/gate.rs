//! The state that outlives a process of the agent, in a folder that does not outlive the boot.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The folder, `/run/pod-safety-agent`.
#[derive(Clone, Debug)]
pub struct Marks {
    folder: PathBuf,
}

impl Marks {
    /// Creates the folder.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn new(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Takes the lock, so that one agent runs on a host. None: another one has the lock, and keeps it until it ends.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn lock(&self) -> io::Result<Option<File>> {
        let file = File::create(self.folder.join("lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Records that a promise is about to be made in this boot.
    ///
    /// # Errors
    /// It cannot be recorded. Then the promise must not be made.
    pub fn record_promise(&self, boot: &str) -> io::Result<()> {
        fs::write(self.folder.join("promised"), boot)
    }

    /// Whether a promise may have been made in this boot.
    #[must_use]
    pub fn has_promised(&self, boot: &str) -> bool {
        fs::read_to_string(self.folder.join("promised")).is_ok_and(|text| text == boot)
    }

    /// Records that the promise was withdrawn.
    pub fn clear_promise(&self) {
        let _gone = fs::remove_file(self.folder.join("promised"));
    }

    /// Prevents a kubelet from starting.
    ///
    /// # Errors
    /// The mark cannot be written.
    pub fn close_gate(&self) -> io::Result<()> {
        fs::write(self.folder.join("closed"), "")
    }

    /// Allows a kubelet to start.
    ///
    /// # Errors
    /// The mark cannot be removed.
    pub fn open_gate(&self) -> io::Result<()> {
        match fs::remove_file(self.folder.join("closed")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether a kubelet is prevented from starting.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.folder.join("closed").exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_agent_has_the_lock_and_a_promise_is_recorded_per_boot() {
        let folder = tempfile::tempdir().unwrap();
        let marks = Marks::new(&folder.path().join("run")).unwrap();
        let first = marks.lock().unwrap();
        assert!(first.is_some() && marks.lock().unwrap().is_none());
        drop(first);
        assert!(marks.lock().unwrap().is_some(), "it ends with its process");
        marks.record_promise("one").unwrap();
        assert!(marks.has_promised("one") && !marks.has_promised("other"));
        marks.clear_promise();
        assert!(!marks.has_promised("one"));
        marks.open_gate().unwrap();
        marks.close_gate().unwrap();
        assert!(marks.is_closed());
        marks.open_gate().unwrap();
        assert!(!marks.is_closed());
    }
}
