//! The cluster for all measurements: one control plane, filled once, idle before each measurement.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{DeleteParams, ListParams, PartialObjectMeta};
use kube::{Api, ResourceExt};
use pod_safety_control_plane::{ControlPlane, Options, objects};

use crate::etcd::Etcd;
use crate::http;
use crate::plan::Plan;
use crate::print_line;
use crate::requests::{self, Requests};

/// The RBAC rules of pod-safety as shipped.
const RBAC: &str = include_str!("../../../charts/pod-safety/files/rbac.yaml");

/// The API server is idle when it uses less than this share of a core.
const CALM: f64 = 0.10;

/// How long to wait for an idle API server; after that the measurement starts anyway.
const CALM_WITHIN: Duration = Duration::from_secs(90);

/// The namespace of the orphans: separate, so that counting them does not list other pods.
const NAMESPACE: &str = "orphans";

pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    pub(crate) etcd: Etcd,
    /// The ServiceAccount of pod-safety, with its shipped rights.
    pub(crate) kubeconfig: PathBuf,
    ghosts: u16,
    calm_seconds: u32,
    bursts: u32,
}

/// The nodes of dead machines, by the loader's naming.
fn dead_node(number: u16) -> String {
    format!("ghost-{number}")
}

/// An orphan: the fields that a precondition needs.
pub(crate) struct Orphan {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) version: String,
}

impl Cluster {
    /// Starts an empty control plane.
    pub(crate) async fn empty(plan: &Plan) -> Result<Self> {
        print_line("starting the control plane");
        let plane = ControlPlane::start(Options { measured: true, ..Options::default() }).await?;
        plane.kubectl_with(&["apply", "-f", "-"], RBAC).await?.text()?;
        let kubeconfig = plane.service_account("pod-safety", "pod-safety").await?;
        let etcd = Etcd::connect(&plane.etcd_url())?;
        let (ghosts, calm_seconds) = (plan.ghosts, plan.calm_seconds());
        Ok(Self { plane, etcd, kubeconfig, ghosts, calm_seconds, bursts: 0 })
    }

    /// Starts a control plane and fills it with nodes and pods.
    pub(crate) async fn start(plan: &Plan) -> Result<Self> {
        let mut cluster = Self::empty(plan).await?;
        print_line(&format!("filling it with {} nodes, their leases, and {} pods", plan.nodes, plan.pods));
        let (nodes, pods) = (plan.nodes.to_string(), plan.pods.to_string());
        let filled = cluster.plane.loader(&["-nodes", &nodes, "-pods", &pods]).await?;
        print_line(filled.trim_end());
        cluster.calm().await?;
        Ok(cluster)
    }

    /// A client with the ServiceAccount of pod-safety, in the current runtime.
    pub(crate) async fn client(&self) -> Result<Client> {
        Ok(self.plane.client(&self.kubeconfig).await?)
    }

    /// The CPU time that the API server has used so far.
    pub(crate) fn apiserver_cpu(&mut self) -> Result<f64> {
        self.plane.apiserver().map_or(Ok(0.0), |program| Ok(program.cpu_seconds()?))
    }

    /// Waits until the API server is idle.
    pub(crate) async fn calm(&mut self) -> Result<()> {
        self.calm_by(Instant::now() + CALM_WITHIN).await
    }

    /// The same, until `deadline` at the latest.
    pub(crate) async fn calm_by(&mut self, deadline: Instant) -> Result<()> {
        let mut calm = 0;
        while calm < self.calm_seconds && Instant::now() < deadline {
            let share = self.apiserver_share(Duration::from_secs(1)).await?;
            calm = if share < CALM { calm + 1 } else { 0 };
        }
        Ok(())
    }

    /// The share of a core that the API server uses, over `length`.
    pub(crate) async fn apiserver_share(&mut self, length: Duration) -> Result<f64> {
        let (began, before) = (Instant::now(), self.apiserver_cpu()?);
        tokio::time::sleep(length).await;
        Ok((self.apiserver_cpu()? - before) / began.elapsed().as_secs_f64())
    }

    /// How many requests the API server has answered so far.
    pub(crate) async fn requests(&self) -> Result<Requests> {
        Ok(requests::parse_counters(&http::page(&self.plane.admin(), "metrics").await?))
    }

    /// The nodes of dead machines, each with a Lease that is no longer renewed.
    pub(crate) async fn add_dead_nodes(&self) -> Result<()> {
        let admin = self.plane.admin();
        for name in (0..self.ghosts).map(dead_node) {
            objects::create_node(&admin, &objects::node(&name)).await?;
            objects::renew_lease(&admin, &name).await?;
        }
        Ok(())
    }

    /// Creates the Lease of a node, if it does not exist, and renews it.
    pub(crate) async fn renew_lease(&self, node: &str) -> Result<()> {
        objects::renew_lease(&self.plane.admin(), node).await?;
        Ok(())
    }

    /// Deletes the nodes like a cloud provider, and their Leases like the garbage collector. Returns when that began.
    pub(crate) async fn delete_dead_nodes(&self) -> Result<Instant> {
        let admin = self.plane.admin();
        let (nodes, leases) = (Api::<Node>::all(admin.clone()), Api::<Lease>::namespaced(admin, "kube-node-lease"));
        let began = Instant::now();
        for name in (0..self.ghosts).map(dead_node) {
            nodes.delete(&name, &DeleteParams::default()).await.context("cannot delete a dead node")?;
            leases.delete(&name, &DeleteParams::default()).await.context("cannot delete its Lease")?;
        }
        Ok(began)
    }

    /// Writes `count` pods of dead nodes directly into etcd, and waits until the first is stored.
    pub(crate) async fn add_orphans(&mut self, count: usize) -> Result<()> {
        // Names are unique: a new pod with the name of a removed one would be a different case.
        self.bursts += 1;
        let prefix = format!("burst-{}", self.bursts);
        let (number, ghosts) = (count.to_string(), self.ghosts.to_string());
        let args = ["-orphans", &number, "-ghosts", &ghosts, "-namespace", NAMESPACE, "-prefix", &prefix];
        self.plane.loader(&args).await?;
        let stored = self.orphans_left().await?;
        ensure!(stored == count, "{stored} of {count} orphans are stored");
        Ok(())
    }

    /// How many of them still exist, read from etcd at no cost to the API server.
    pub(crate) async fn orphans_left(&self) -> Result<usize> {
        self.etcd.count(&format!("/registry/pods/{NAMESPACE}/")).await
    }

    /// The orphans as the API server returns them.
    pub(crate) async fn orphans(&self) -> Result<Vec<Orphan>> {
        let pods = Api::<PartialObjectMeta<Pod>>::namespaced(self.plane.admin(), NAMESPACE);
        let list = pods.list(&ListParams::default()).await.context("cannot list the orphans")?;
        let orphans = list.into_iter().map(|pod| Orphan {
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            version: pod.resource_version().unwrap_or_default(),
        });
        Ok(orphans.collect())
    }

    pub(crate) fn orphans_path() -> String {
        format!("/api/v1/namespaces/{NAMESPACE}/pods")
    }
}
