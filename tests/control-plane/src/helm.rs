//! helm: renders the chart, and installs it into a control plane.

use std::path::{Path, PathBuf};

use crate::{ControlPlane, Error, Output, command, tool};

/// The shipped chart.
#[must_use]
pub fn chart() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).join("charts/pod-safety")
}

/// Runs helm commands that need no cluster, such as `helm template`.
pub async fn helm(args: &[&str]) -> Result<Output, Error> {
    let home = tempfile::tempdir().map_err(Error::file("create a folder in", &std::env::temp_dir()))?;
    run(args, home.path(), &[]).await
}

impl ControlPlane {
    /// Runs helm with all rights.
    pub async fn helm(&self, args: &[&str]) -> Result<Output, Error> {
        let kubeconfig = self.admin_kubeconfig();
        run(args, self.folder.path(), &[("KUBECONFIG", &kubeconfig)]).await
    }
}

/// The result of kube-score for rendered manifests, as JSON. Its exit code reports findings, which the caller checks.
pub async fn kube_score(manifests: &str) -> Result<String, Error> {
    let args = ["score", "--output-format=json", "--enable-optional-test=container-seccomp-profile", "-"];
    Ok(command::run(&tool("kube-score").await?, &args, &[], manifests).await?.stdout)
}

/// Plugins and caches of the user who runs the tests must have no effect.
async fn run(args: &[&str], home: &Path, more: &[(&str, &Path)]) -> Result<Output, Error> {
    let folders = ["HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"];
    let env: Vec<_> = folders.map(|name| (name, home)).into_iter().chain(more.iter().copied()).collect();
    command::run(&tool("helm").await?, args, &env, "").await
}
