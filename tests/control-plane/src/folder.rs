//! The folder of one control plane: logs, certificates, kubeconfigs and etcd's data. It goes when the last
//! program that writes into it is gone; its logs stay if the test failed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use crate::Error;

const PREFIX: &str = "pod-safety-";

/// Memory that looks like a disk. etcd's writes then cost no I/O, and what it stores counts as ours.
const MEMORY: &str = "/dev/shm";

/// Set to anything, it keeps the logs of tests that pass.
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

    /// Of one program.
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

    /// In place of an earlier copy.
    pub(crate) async fn copy_data(&self) -> Result<(), Error> {
        replace(&self.saved_data(), &self.data()).await
    }

    pub(crate) async fn put_data_back(&self) -> Result<(), Error> {
        replace(&self.data(), &self.saved_data()).await
    }

    /// To be called by whatever drops: whether the test fails is known to its own thread only, and only while
    /// it unwinds.
    pub(crate) fn keep_logs_if_failing(&self) {
        if std::thread::panicking() {
            self.keep_logs.store(true, Ordering::Relaxed);
        }
    }
}

/// A folder in memory. A process that is killed leaves it behind, and it is not small: the next one removes
/// it.
struct InMemory {
    folder: TempDir,
    /// Says that the owner lives; the system takes the lock back when it does not.
    _claim: File,
}

impl InMemory {
    const CLAIM: &str = "claim";

    fn create(memory: &Path) -> Result<Self, Error> {
        remove_abandoned(memory);
        let folder = scratch(memory)?;
        // It gets its name when it is locked: under that name nobody finds it unlocked while we live.
        let unlocked = folder.path().join("unlocked");
        let claim = File::create(&unlocked).map_err(Error::file("create", &unlocked))?;
        let lock = claim.lock().and_then(|()| std::fs::rename(&unlocked, folder.path().join(Self::CLAIM)));
        lock.map_err(Error::file("lock", &unlocked))?;
        Ok(Self { folder, _claim: claim })
    }
}

/// What cannot be looked at or removed belongs to someone else.
fn remove_abandoned(memory: &Path) {
    for entry in std::fs::read_dir(memory).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if let Some(claim) = File::open(entry.path().join(InMemory::CLAIM)).ok().filter(|_| ours)
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
        // Keys and data have no value without the processes; failing to remove them loses nothing.
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

/// Makes a folder what another one is.
async fn replace(folder: &Path, by: &Path) -> Result<(), Error> {
    let script = r#"rm -rf "$1" && cp -a "$2" "$1""#;
    let copy =
        tokio::process::Command::new("sh").args(["-c", script, "sh"]).arg(folder).arg(by).status().await;
    let failed = Error::file("copy", by);
    match copy {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(std::io::Error::other(status.to_string()))),
        Err(error) => Err(failed(error)),
    }
}

fn scratch(parent: &Path) -> Result<TempDir, Error> {
    tempfile::Builder::new()
        .prefix(PREFIX)
        .tempdir_in(parent)
        .map_err(Error::file("create a folder in", parent))
}
