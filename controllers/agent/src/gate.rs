//! What outlives a process of the agent, in a folder that does not outlive the boot.

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
    /// Makes the folder.
    ///
    /// # Errors
    /// If that fails.
    pub fn new(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Only one agent of a host goes on. None: another one has the lock, and keeps it until it ends.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn lock(&self) -> io::Result<Option<File>> {
        let file = File::create(self.folder.join("lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A promise is about to be made in this boot.
    ///
    /// # Errors
    /// If it cannot be written down. Then it must not be made.
    pub fn record_promise(&self, boot: &str) -> io::Result<()> {
        fs::write(self.folder.join("promised"), boot)
    }

    /// Whether one may have been made in this boot.
    #[must_use]
    pub fn has_promised(&self, boot: &str) -> bool {
        fs::read_to_string(self.folder.join("promised")).is_ok_and(|text| text == boot)
    }

    /// It was taken back.
    pub fn clear_promise(&self) {
        let _gone = fs::remove_file(self.folder.join("promised"));
    }

    /// No kubelet may start.
    ///
    /// # Errors
    /// If the mark cannot be written.
    pub fn close_gate(&self) -> io::Result<()> {
        fs::write(self.folder.join("closed"), "")
    }

    /// A kubelet may start.
    ///
    /// # Errors
    /// If the mark stays.
    pub fn open_gate(&self) -> io::Result<()> {
        match fs::remove_file(self.folder.join("closed")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether no kubelet may start.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.folder.join("closed").exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_agent_has_the_lock_and_marks_are_of_a_boot() {
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
