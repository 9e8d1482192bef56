//! The folder of one control plane: logs, certificates, kubeconfigs and etcd's data. It is removed when the last program that writes into
//! it has ended; its logs remain if the test failed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use crate::Error;

const PREFIX: &str = "pod-safety-";

/// A file system in memory. etcd's writes then cost no I/O, and its data counts as memory of the test.
const MEMORY: &str = "/dev/shm";

/// If set to any value, the logs of passing tests are kept.
const KEEP_LOGS: &str = "POD_SAFETY_KEEP_LOGS";

pub(crate) struct Folder {
    root: Option<TempDir>,
    path: PathBuf,
    data: Option<InMemory>,
    keep_logs: AtomicBool,
    measured: bool,
}

impl Folder {
    pub(crate) fn create(data_in_memory: bool, measured: bool) -> Result<Self, Error> {
        let root = scratch(&std::env::temp_dir())?;
        let path = root.path().to_owned();
        let memory = Path::new(MEMORY);
        let data = if data_in_memory && memory.is_dir() { Some(InMemory::create(memory)?) } else { None };
        let keep_logs = AtomicBool::new(std::env::var_os(KEEP_LOGS).is_some());
        let folder = Self { root: Some(root), path, data, keep_logs, measured };
        for part in [folder.logs(), folder.pki(), folder.access(), folder.data()] {
            std::fs::create_dir_all(&part).map_err(Error::file("create", &part))?;
        }
        Ok(folder)
    }

    /// Whether its programs are measured.
    pub(crate) const fn measured(&self) -> bool {
        self.measured
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// The log file of one program.
    pub(crate) fn log(&self, program: &str) -> PathBuf {
        self.logs().join(format!("{program}.log"))
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.path.join("pki")
    }

    /// Kubeconfigs and client certificates.
    pub(crate) fn access(&self) -> PathBuf {
        self.path.join("access")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.data.as_ref().map_or(&*self.path, |data| data.folder.path()).join("etcd")
    }

    fn saved_data(&self) -> PathBuf {
        self.data().with_file_name("etcd-saved")
    }

    /// Replaces an earlier copy.
    pub(crate) async fn copy_data(&self) -> Result<(), Error> {
        replace(&self.saved_data(), &self.data()).await
    }

    pub(crate) async fn put_data_back(&self) -> Result<(), Error> {
        replace(&self.data(), &self.saved_data()).await
    }

    /// Must be called from `drop`: only the thread of the test knows whether the test fails, and only while it unwinds.
    pub(crate) fn keep_logs_if_failing(&self) {
        if std::thread::panicking() {
            self.keep_logs.store(true, Ordering::Relaxed);
        }
    }
}

/// A folder in memory. A killed process leaves it behind, and it is large: the next process removes it.
struct InMemory {
    folder: TempDir,
    /// A lock that shows that the owner runs; the system releases it when the owner ends.
    _claim: File,
}

impl InMemory {
    const CLAIM: &str = "claim";

    fn create(memory: &Path) -> Result<Self, Error> {
        remove_abandoned(memory);
        let folder = scratch(memory)?;
        // The folder is renamed after it is locked, so that no process finds it unlocked under its final name.
        let unlocked = folder.path().join("unlocked");
        let claim = File::create(&unlocked).map_err(Error::file("create", &unlocked))?;
        let lock = claim.lock().and_then(|()| std::fs::rename(&unlocked, folder.path().join(Self::CLAIM)));
        lock.map_err(Error::file("lock", &unlocked))?;
        Ok(Self { folder, _claim: claim })
    }
}

/// Folders that cannot be read or removed belong to other users.
fn remove_abandoned(memory: &Path) {
    for entry in std::fs::read_dir(memory).into_iter().flatten().flatten() {
        let pod_safety = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if let Some(claim) = File::open(entry.path().join(InMemory::CLAIM)).ok().filter(|_| pod_safety)
            && claim.try_lock().is_ok()
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.keep_logs_if_failing();
        let Some(root) = self.root.take().filter(|_| self.keep_logs.load(Ordering::Relaxed)) else {
            return;
        };
        let kept = root.keep();
        // Keys and data have no value without the processes; a failure to remove them is harmless.
        for part in ["pki", "access", "etcd", "etcd-saved"] {
            let _ = std::fs::remove_dir_all(kept.join(part));
        }
        print_line(&format!("the logs of the control plane are in {}", kept.join("logs").display()));
    }
}

#[expect(clippy::print_stderr, reason = "the only place where a test's output can tell where the logs are")]
fn print_line(text: &str) {
    eprintln!("{text}");
}

/// Replaces a folder by a copy of another one.
async fn replace(folder: &Path, by: &Path) -> Result<(), Error> {
    let script = r#"rm -rf "$1" && cp -a "$2" "$1""#;
    let copy = tokio::process::Command::new("sh").args(["-c", script, "sh"]).arg(folder).arg(by).status().await;
    let failed = Error::file("copy", by);
    match copy {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(std::io::Error::other(status.to_string()))),
        Err(error) => Err(failed(error)),
    }
}

fn scratch(parent: &Path) -> Result<TempDir, Error> {
    tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent).map_err(Error::file("create a folder in", parent))
}
