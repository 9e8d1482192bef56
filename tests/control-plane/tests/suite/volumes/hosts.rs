//! Kubelets that mount, and the attacher of a CSI driver: the two parties of attach and detach that are not part of kube-controller-manager.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use pod_safety_control_plane::objects::{self, NodeExt as _};
use pod_safety_control_plane::{Error, observe};
use serde_json::json;

/// The driver of all volumes here.
pub(super) const DRIVER: &str = "hollow.csi.example.com";
const FINALIZER: &str = "external-attacher/hollow-csi-example-com";
const RENEW_INTERVAL: Duration = Duration::from_millis(500);

/// A volume's unique name, as used by kubelets.
pub(super) fn unique(volume: &str) -> String {
    format!("kubernetes.io/csi/{DRIVER}^{volume}")
}

/// A kubelet on a machine whose power is in a file: it runs pods whose volumes are attached.
pub(super) struct Host {
    name: String,
    power: Option<PathBuf>,
    cut_off: AtomicBool,
    pub(super) boots: AtomicU32,
    pub(super) reports: tokio::sync::Mutex<BTreeSet<String>>,
}

impl Host {
    pub(super) fn new(name: &str, power: Option<&Path>) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            power: power.map(Path::to_owned),
            cut_off: AtomicBool::new(false),
            boots: AtomicU32::new(1),
            reports: tokio::sync::Mutex::default(),
        })
    }

    fn has_power(&self) -> bool {
        let read = |file: &PathBuf| std::fs::read_to_string(file).is_ok_and(|power| power.trim() == "on");
        self.power.as_ref().is_none_or(read)
    }

    /// Disconnects it, while it continues to run.
    pub(super) async fn cut_off(&self) {
        self.cut_off.store(true, Ordering::SeqCst);
        drop(self.reports.lock().await);
    }

    pub(super) fn connect(&self) {
        self.cut_off.store(false, Ordering::SeqCst);
    }

    pub(super) fn as_node(&self, mounted: &BTreeSet<String>) -> Node {
        let boot = objects::boot_id(&self.name, self.boots.load(Ordering::SeqCst));
        let mut node = objects::node(&self.name).with_boot_id(&boot);
        let annotations = node.metadata.annotations.get_or_insert_default();
        annotations.insert("volumes.kubernetes.io/controller-managed-attach-detach".to_owned(), "true".to_owned());
        let status = node.status.get_or_insert_default();
        status.volumes_in_use = Some(mounted.iter().map(|volume| unique(volume)).collect());
        node
    }

    /// Runs until the test ends.
    pub(super) async fn run_kubelet(self: Arc<Self>, api: Client) {
        objects::create_node(&api, &self.as_node(&BTreeSet::new())).await.unwrap();
        let mut had_power = true;
        loop {
            let mut mounted = self.reports.lock().await;
            let has_power = self.has_power();
            if !has_power {
                mounted.clear();
            } else if !had_power {
                self.boots.fetch_add(1, Ordering::SeqCst);
                self.connect();
            }
            if has_power && !self.cut_off.load(Ordering::SeqCst) {
                // A failure is retried at the next heartbeat, like in a kubelet.
                let _again = self.heartbeat(&api, &mut mounted).await;
            }
            drop(mounted);
            had_power = has_power;
            tokio::time::sleep(RENEW_INTERVAL).await;
        }
    }

    /// Reports volumes before it mounts them, and until after it has unmounted them.
    async fn heartbeat(&self, api: &Client, mounted: &mut BTreeSet<String>) -> Result<(), Error> {
        let fields = format!("spec.nodeName={}", self.name);
        let pods = Api::<Pod>::all(api.clone()).list(&ListParams::default().fields(&fields)).await;
        let pods = pods.map(|list| list.items).unwrap_or_default();
        let (leaving, staying): (Vec<_>, Vec<_>) =
            pods.into_iter().partition(|pod| pod.metadata.deletion_timestamp.is_some());
        let desired: BTreeSet<String> = staying.iter().flat_map(claims).collect();
        for pod in &leaving {
            let ended = objects::PodExt::with_phase(objects::pod("x", "x"), "Succeeded").status.unwrap();
            let (namespace, name) = (pod.metadata.namespace.as_deref().unwrap(), pod.metadata.name.as_deref().unwrap());
            objects::set_pod_status(api, namespace, name, &ended).await?;
        }
        *mounted = desired.clone();
        objects::set_node_status(api, &self.name, &self.as_node(mounted).status.unwrap()).await?;
        objects::renew_lease(api, &self.name).await?;
        for pod in &leaving {
            let (namespace, name) = (pod.metadata.namespace.as_deref().unwrap(), pod.metadata.name.as_deref().unwrap());
            observe::delete_pod(api, namespace, name, true).await?;
        }
        let attached = attached_to(api, &self.name).await;
        for pod in staying {
            let runs = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
            if !runs && claims(&pod).all(|volume| attached.contains(&volume)) {
                let (namespace, name) = (pod.metadata.namespace.unwrap(), pod.metadata.name.unwrap());
                let running = objects::PodExt::with_phase(objects::pod(&namespace, &name), "Running");
                objects::set_pod_status(api, &namespace, &name, &running.status.unwrap()).await?;
            }
        }
        Ok(())
    }
}

/// The volumes of a pod: here each claim has the name of its volume.
fn claims(pod: &Pod) -> impl Iterator<Item = String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.clone()))
}

async fn attached_to(api: &Client, node: &str) -> BTreeSet<String> {
    let all = Api::<VolumeAttachment>::all(api.clone()).list(&ListParams::default()).await;
    let here = |one: &VolumeAttachment| {
        one.spec.node_name == node && one.status.as_ref().is_some_and(|status| status.attached)
    };
    let items = all.map(|list| list.items).unwrap_or_default();
    items.into_iter().filter(here).filter_map(|one| one.spec.source.persistent_volume_name).collect()
}

/// Acts as the external attacher of the driver: every attachment succeeds.
pub(super) async fn attach(api: Client) {
    let attachments = Api::<VolumeAttachment>::all(api);
    loop {
        for one in attachments.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
            let name = one.metadata.name.clone().unwrap();
            let attached = one.status.as_ref().is_some_and(|status| status.attached);
            if one.metadata.deletion_timestamp.is_some() {
                let patch = json!({ "metadata": { "finalizers": null } });
                let _again = attachments.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
            } else if !attached {
                let patch = json!({ "metadata": { "finalizers": [FINALIZER] } });
                let _again = attachments.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
                let patch = json!({ "status": { "attached": true } });
                let _again = attachments.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
