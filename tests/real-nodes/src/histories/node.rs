//! A node of a hollow kubelet: two programs, its runtime and its kubelet, in a folder of its own.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use pod_safety_control_plane::{ControlPlane, Program, eventually};
use serde_json::{Value, json};
use tokio::net::UnixStream;

use super::journal;
use crate::cluster;

/// Longer than two quarantines of 40 s. What hangs when the repair comes hangs on for so long.
const HANGS_SECONDS: u32 = 90;
/// Less than the grace period and a quarantine: `docs/proof.md`, *A process that outlives its grace period*.
const STOP_HANGS_SECONDS: u32 = 30;
/// Only failures wait so long.
const LISTENS_WITHIN: Duration = Duration::from_secs(60);
/// There are many: each collects garbage as programs of Go do.
const MEMORY: [(&str, &str); 2] = [("GOGC", "100"), ("GOMEMLIMIT", "off")];
/// The priority level whose requests are all rejected.
const THROTTLED: &str = "hollow-throttled";

pub(super) struct HollowNode {
    name: String,
    folder: PathBuf,
    program: PathBuf,
    boot: u32,
    runtime: Option<Program>,
    kubelet: Option<Program>,
}

/// Where a node keeps its files; the control plane removes them with its own.
pub(super) fn folder(plane: &ControlPlane, name: &str) -> PathBuf {
    plane.log(name).with_extension("folder")
}

/// Creates the priority level of throttled nodes.
pub(super) async fn prepare(plane: &ControlPlane) -> Result<()> {
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration", "metadata": { "name": THROTTLED },
        "spec": { "type": "Limited", "limited": {
            "nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0, "limitResponse": { "type": "Reject" },
        } },
    });
    cluster::apply(plane, &level.to_string()).await
}

impl HollowNode {
    pub(super) fn new(plane: &ControlPlane, program: &Path, name: &str) -> Result<Self> {
        let folder = folder(plane, name);
        std::fs::create_dir_all(&folder)?;
        let kubeconfig = plane.user_kubeconfig(&format!("system:node:{name}"), &["system:nodes"])?;
        std::fs::copy(kubeconfig, folder.join("kubeconfig"))?;
        let (name, program) = (name.to_owned(), program.to_owned());
        Ok(Self { name, folder, program, boot: 0, runtime: None, kubelet: None })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Begins another boot, whose runtime has no containers.
    pub(super) async fn power_on(&mut self, plane: &ControlPlane) -> Result<()> {
        self.boot += 1;
        let socket = self.folder.join("cri.sock");
        if socket.exists() {
            std::fs::remove_file(&socket)?;
        }
        let args = ["runtime".as_ref(), self.folder.as_os_str()];
        self.runtime = Some(plane.program(&format!("{}-runtime", self.name), &self.program, args, &MEMORY)?);
        // A kubelet that cannot reach its runtime when it starts exits, and nothing starts it again.
        eventually("its runtime listens", LISTENS_WITHIN, async || UnixStream::connect(&socket).await).await?;
        self.start_kubelet(plane)
    }

    /// Ends all of its processes at once.
    pub(super) fn power_off(&mut self) -> Result<()> {
        self.kill_kubelet()?;
        let runtime = self.runtime.take().context("it has no power")?;
        // Dropping it kills it. Nothing of it writes afterwards.
        drop(runtime);
        let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
        let mut journal = std::fs::File::options().append(true).create(true).open(self.folder.join("journal"))?;
        Ok(journal.write_all(journal::power_off(at).as_bytes())?)
    }

    /// Starts the kubelet; one that runs is killed first.
    pub(super) fn start_kubelet(&mut self, plane: &ControlPlane) -> Result<()> {
        self.kill_kubelet()?;
        let boot = format!("00000000-0000-4000-8000-{:06}{:06}", self.number(), self.boot);
        let args = ["kubelet".as_ref(), self.folder.as_os_str(), self.name.as_ref(), boot.as_ref()];
        self.kubelet = Some(plane.program(&self.name, &self.program, args, &MEMORY)?);
        Ok(())
    }

    fn number(&self) -> u32 {
        self.name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or_default()
    }

    pub(super) fn kill_kubelet(&mut self) -> Result<()> {
        Ok(self.kubelet.take().map_or(Ok(()), |mut kubelet| kubelet.kill_9())?)
    }

    pub(super) fn freeze_kubelet(&mut self) -> Result<()> {
        Ok(self.kubelet.as_mut().context("it has no kubelet")?.pause()?)
    }

    pub(super) fn thaw_kubelet(&mut self) -> Result<()> {
        Ok(self.kubelet.as_mut().context("it has no kubelet")?.resume()?)
    }

    /// Makes an operation of its runtime hang.
    pub(super) fn hang(&self, operation: &str) -> Result<()> {
        let seconds = if operation == "stop" { STOP_HANGS_SECONDS } else { HANGS_SECONDS };
        Ok(std::fs::write(self.folder.join("faults"), format!("{operation} {seconds}\n"))?)
    }

    pub(super) fn stop_hanging(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.folder.join("faults"))?)
    }

    fn flow_schema(&self) -> Value {
        let user = format!("system:node:{}", self.name);
        let all = json!(["*"]);
        json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
            "metadata": { "name": format!("throttled-{}", self.name) },
            "spec": {
                "matchingPrecedence": 2, "priorityLevelConfiguration": { "name": THROTTLED },
                "rules": [{
                    "subjects": [{ "kind": "User", "user": { "name": user } }],
                    "resourceRules": [{
                        "verbs": ["create", "update", "patch", "delete"], "apiGroups": all, "resources": all,
                        "namespaces": all, "clusterScope": true,
                    }],
                }],
            },
        })
    }

    /// The API server answers each of its writes with 429.
    pub(super) async fn throttle(&self, plane: &ControlPlane) -> Result<()> {
        cluster::apply(plane, &self.flow_schema().to_string()).await
    }

    pub(super) async fn stop_throttling(&self, plane: &ControlPlane) -> Result<()> {
        plane
            .kubectl(&["delete", "flowschema", "--ignore-not-found", &format!("throttled-{}", self.name)])
            .await?
            .text()?;
        Ok(())
    }
}
