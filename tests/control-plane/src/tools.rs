//! The paths of the programs: `tools/build.sh` builds what is missing and prints the path. It also reads `KUBERNETES`, which selects a
//! version of Kubernetes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::Error;

/// The path of a program of the control plane: `etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler`, `kubectl`, `helm`,
/// `vcenter` or `loader`. The first call builds what is missing, which takes minutes on a new machine.
pub async fn tool(name: &str) -> Result<PathBuf, Error> {
    // A build blocks, and other tasks of the test may be waiting for answers.
    let folder = tokio::task::spawn_blocking(folder).await.map_err(|error| Error::Tools(error.to_string()))??;
    Ok(folder.join(name))
}

/// The version of Kubernetes if `KUBERNETES` selects none, as `v1.37.2`. Recordings are of this version.
pub fn pinned_kubernetes() -> Result<String, Error> {
    let text = module("go.mod")?;
    let version = text.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "));
    version.map(str::to_owned).ok_or(Error::Incomplete("go.mod's version of Kubernetes"))
}

/// The other versions that `KUBERNETES` can select, the oldest first.
pub fn other_kubernetes() -> Result<Vec<String>, Error> {
    Ok(module("versions")?.lines().map(str::to_owned).collect())
}

/// The value of `KUBERNETES`: `1.32`, or a full version.
#[must_use]
pub fn selected_kubernetes() -> Option<String> {
    std::env::var("KUBERNETES").ok().filter(|version| !version.is_empty())
}

/// A file of the Go module that builds Kubernetes.
fn module(file: &str) -> Result<String, Error> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/kubernetes").join(file);
    std::fs::read_to_string(&path).map_err(Error::file("read", &path))
}

fn folder() -> Result<PathBuf, Error> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOLDER.get_or_init(build).clone().map_err(Error::Tools)
}

fn build() -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/build.sh");
    // Its progress goes to stderr: ten minutes without output would look like a hang.
    let output = Command::new(&script)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run {}: {error}", script.display()))?;
    if !output.status.success() {
        return Err(format!("{} failed ({}); it says why above", script.display(), output.status));
    }
    let folder = String::from_utf8_lossy(&output.stdout);
    Ok(PathBuf::from(folder.trim_end()))
}
