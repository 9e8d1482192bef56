//! Machines with only a power state and a kubelet.

use std::sync::atomic::AtomicU32;

use k8s_openapi::api::core::v1::PodStatus;
use pod_safety_control_plane::Error;
use pod_safety_control_plane::objects::NodeExt as _;

use super::*;

/// A kubelet without containers: it runs while its machine has power.
pub(super) struct Machine {
    pub(super) name: String,
    power: Box<dyn Fn() -> bool + Send + Sync>,
    /// As reported by its firmware and its kubelet.
    pub(super) uuid: String,
    provider_id: String,
    /// The machine runs without a connection to the API server.
    cut_off: AtomicBool,
    /// Its container runtime does not answer: its kubelet receives deletions, and terminates no pod.
    hangs: AtomicBool,
    boots: AtomicU32,
    /// Locked during requests to the API server.
    reports: tokio::sync::Mutex<()>,
}

impl Machine {
    pub(super) fn new(name: &str, power: impl Fn() -> bool + Send + Sync + 'static) -> Arc<Self> {
        Self::in_cloud(name, &format!("cloud:///{name}"), power)
    }

    /// A cloud instance with this providerID.
    pub(super) fn in_cloud(
        name: &str,
        provider_id: &str,
        power: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        let number = name.bytes().fold(0_u64, |sum, byte| sum << 8 | u64::from(byte));
        Arc::new(Self {
            name: name.to_owned(),
            power: Box::new(power),
            uuid: format!("27946b59-9e44-4fa7-8e91-{number:012x}"),
            provider_id: provider_id.to_owned(),
            cut_off: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
            boots: AtomicU32::new(1),
            reports: tokio::sync::Mutex::new(()),
        })
    }

    /// A machine whose power state is this text in this file.
    pub(super) fn of_file(name: &str, file: PathBuf, on: &'static str) -> Arc<Self> {
        Self::new(name, move || std::fs::read_to_string(&file).is_ok_and(|power| power.trim() == on))
    }

    pub(super) fn has_power(&self) -> bool {
        (self.power)()
    }

    /// Disconnects it, also for a request that was about to be sent.
    pub(super) async fn cut_off(&self) {
        self.cut_off.store(true, Ordering::SeqCst);
        drop(self.reports.lock().await);
    }

    /// From now on its container runtime does not answer.
    pub(super) fn hang(&self) {
        self.hangs.store(true, Ordering::SeqCst);
    }

    /// Connects it again.
    pub(super) fn connect(&self) {
        self.cut_off.store(false, Ordering::SeqCst);
    }

    /// The number of boots.
    pub(super) fn boots(&self) -> u32 {
        self.boots.load(Ordering::SeqCst)
    }

    /// Reboots it, like its power button.
    pub(super) fn reboot(&self) {
        self.boots.fetch_add(1, Ordering::SeqCst);
    }

    fn as_node(&self) -> Node {
        let boot_id = objects::boot_id(&self.name, self.boots());
        let mut node = objects::node(&self.name).with_boot_id(&boot_id);
        let info = node.status.get_or_insert_default().node_info.get_or_insert_default();
        info.system_uuid.clone_from(&self.uuid);
        node
    }

    /// A cloud instance that Cluster API also manages.
    fn as_new_node(&self) -> Node {
        let mut node = self.as_node();
        node.spec.get_or_insert_default().provider_id = Some(self.provider_id.clone());
        let annotations = node.metadata.annotations.get_or_insert_default();
        annotations.insert("cluster.x-k8s.io/machine".to_owned(), format!("machine-{}", self.name));
        annotations.insert("cluster.x-k8s.io/cluster-namespace".to_owned(), "pod-safety".to_owned());
        node
    }

    /// Runs until the test ends.
    pub(super) async fn run_kubelet(self: Arc<Self>, api: Client) {
        objects::create_node(&api, &self.as_new_node()).await.unwrap();
        let mut had_power = true;
        loop {
            let has_power = self.has_power();
            if has_power && !had_power {
                self.reboot();
                // A kubelet that starts is connected, whatever the state of the last one.
                self.connect();
            }
            let speaks = self.reports.lock().await;
            if has_power && !self.cut_off.load(Ordering::SeqCst) {
                // A failure is retried in a second, like in a kubelet.
                let _again = self.heartbeat(&api).await;
            }
            drop(speaks);
            had_power = has_power;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn heartbeat(&self, api: &Client) -> Result<(), Error> {
        objects::set_node_status(api, &self.name, &self.as_node().status.unwrap_or_default()).await?;
        objects::renew_lease(api, &self.name).await?;
        let pods = Api::<Pod>::all(api.clone());
        let mine = pods.list(&ListParams::default().fields(&format!("spec.nodeName={}", self.name))).await;
        for pod in mine.map(|list| list.items).unwrap_or_default() {
            let (namespace, name) = (pod.metadata.namespace.clone().unwrap(), pod.metadata.name.clone().unwrap());
            if pod.metadata.deletion_timestamp.is_some() && self.hangs.load(Ordering::SeqCst) {
                let seen = PodStatus { observed_generation: pod.metadata.generation, ..PodStatus::default() };
                objects::set_pod_status(api, &namespace, &name, &seen).await?;
            } else if pod.metadata.deletion_timestamp.is_some() {
                observe::delete_pod(api, &namespace, &name, true).await?;
            } else if pod.status.and_then(|status| status.phase).as_deref() != Some("Running") {
                let running = objects::PodExt::with_phase(objects::pod(&namespace, &name), "Running");
                objects::set_pod_status(api, &namespace, &name, &running.status.unwrap()).await?;
            }
        }
        Ok(())
    }
}
