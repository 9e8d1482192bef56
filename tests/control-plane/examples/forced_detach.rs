//! The six minutes after which kube-controller-manager detaches by force, which no flag shortens: a node is isolated, its pod is force
//! deleted, and the volume that is still mounted there is detached by force; with the volume guard it is not, until an operator confirms that
//! the node is off. Both run in parallel, each on its own control plane. Prints a table; it takes eleven minutes.
//!
//! `cargo run -p pod-safety-control-plane --example forced_detach`

#![expect(clippy::disallowed_methods, reason = "it measures a real cluster in real time")]
#![expect(clippy::unwrap_used, reason = "it shares the objects of a suite, which may fail as loudly")]

#[path = "../tests/suite/volumes/hosts.rs"]
mod hosts;
#[path = "../tests/suite/volumes/objects.rs"]
mod objects;

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pod_safety_control_plane::{AuditLog, Component, ControlPlane, PodSafety, check_that, eventually, observe, until};
use tokio::task::JoinSet;

use hosts::Host;
use objects::NAMESPACE;

/// kube-controller-manager's six minutes, and a margin.
const FORCED: Duration = Duration::from_secs(390);
/// How long something that must not happen is awaited.
const HELD: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const ATTACH_DETACH: &str = "system:serviceaccount:kube-system:attachdetach-controller";
const CONTROLLERS: &str = "persistentvolume-attach-detach-controller,persistentvolume-binder-controller,\
    statefulset-controller,node-lifecycle-controller,taint-eviction-controller";

/// A cluster whose database is on `w1`.
struct Cluster {
    plane: ControlPlane,
    audit: AuditLog,
    hosts: Vec<Arc<Host>>,
    pod_safety: Option<PodSafety>,
    _components: [Component; 2],
    _running: JoinSet<()>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let (without, with) = tokio::try_join!(measure_without(), measure_with_pod_safety())?;
    let mut out = std::io::stdout();
    writeln!(out, "| from the pod's deletion by force, of a node that is cut off | without the guard | with it |")?;
    writeln!(out, "|---|---|---|")?;
    for (what, without, with) in std::iter::zip(without, with).map(|((what, without), (_, with))| (what, without, with))
    {
        writeln!(out, "| {what} | {without} | {with} |")?;
    }
    Ok(())
}

/// The code of a denial by admission.
const FORBIDDEN: u64 = 403;

type Rows = Vec<(&'static str, String)>;

async fn measure_without() -> Result<Rows> {
    let cluster = Cluster::start(false).await?;
    let begun = cluster.lose().await?;
    cluster.until_detached().await?;
    let detached = begun.elapsed();
    cluster.until_runs("w2").await?;
    Ok(rows([seconds(detached), cluster.refused_deletes()?, seconds(begun.elapsed()), "–".to_owned()]))
}

async fn measure_with_pod_safety() -> Result<Rows> {
    let cluster = Cluster::start(true).await?;
    let begun = cluster.lose().await?;
    while begun.elapsed() < HELD {
        let at = objects::attachments(&cluster.plane).await;
        ensure!(at == [("w1".to_owned(), true)], "after {:?}: {at:?}", begun.elapsed());
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let refused = cluster.refused_deletes()?;
    let (kubeconfig, confirmed_at) = (cluster.plane.admin_kubeconfig(), Instant::now());
    let word = ["confirm-down", "w1", "--reason=its plug is out", "--confirm=w1 is off", "--listen=3s"];
    cluster.plane.start_pod_safety_once(&kubeconfig, &word).await?.text()?;
    cluster.until_runs("w2").await?;
    let held = format!("not in {} s", HELD.as_secs());
    Ok(rows([held.clone(), refused, held, seconds(confirmed_at.elapsed())]))
}

fn rows(values: [String; 4]) -> Rows {
    let names = [
        "kube-controller-manager has detached its volume",
        "how often it tried to detach",
        "the next pod runs elsewhere, with the volume",
        "from the confirmation that the node is off to that",
    ];
    names.into_iter().zip(values).collect()
}

fn seconds(time: Duration) -> String {
    format!("{:.0} s", time.as_secs_f64())
}

impl Cluster {
    async fn start(guarded: bool) -> Result<Self> {
        let (audit, plane) = ControlPlane::audited(ATTACH_DETACH).await?;
        let kubeconfig = plane.install_pod_safety().await?;
        plane.namespace(NAMESPACE).await?;
        let hosts = vec![Host::new("w1", None), Host::new("w2", None)];
        let mut running = JoinSet::new();
        running.spawn(hosts::attach(plane.admin()));
        for host in &hosts {
            running.spawn(Arc::clone(host).run_kubelet(plane.admin()));
        }
        let args =
            ["--use-service-account-credentials=true", "--node-monitor-grace-period=8s", "--node-monitor-period=1s"];
        let components = [plane.kube_controller_manager(CONTROLLERS, &args).await?, plane.kube_scheduler(&[]).await?];
        let mut pod_safety = None;
        if guarded {
            objects::policies(&plane).await;
            let args = ["--mode=guard", "--controllers=volume-guard", "--leader-elect=false"];
            let mut started = plane.pod_safety("pod-safety", &kubeconfig, args).await?;
            started.ready().await?;
            pod_safety = Some(started);
        }
        objects::volume(&plane, "data").await;
        objects::apply(&plane, &objects::database(1)).await;
        let cluster = Self { plane, audit, hosts, pod_safety, _components: components, _running: running };
        cluster.until_runs("w1").await?;
        Ok(cluster)
    }

    /// Isolates the node, and force deletes the pod once its deletion is requested: returns the time of that deletion.
    async fn lose(&self) -> Result<Instant> {
        self.hosts.first().context("no host")?.cut_off().await;
        until("the pod is asked to end", async || {
            let pod =
                observe::find_pod(&self.plane.admin(), NAMESPACE, "db-0").await.map_err(|error| error.to_string())?;
            check_that(pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()), "not yet".to_owned())
        })
        .await?;
        observe::delete_pod(&self.plane.admin(), NAMESPACE, "db-0", true).await?;
        Ok(Instant::now())
    }

    async fn until_detached(&self) -> Result<()> {
        Ok(eventually("it is detached from w1", FORCED, async || {
            let at = objects::attachments(&self.plane).await;
            check_that(!at.iter().any(|(node, _)| node == "w1"), format!("{at:?}"))
        })
        .await?)
    }

    async fn until_runs(&self, node: &str) -> Result<()> {
        Ok(until(&format!("the database runs on {node}"), async || {
            let pod = observe::find_pod(&self.plane.admin(), NAMESPACE, "db-0").await;
            let pod = pod.map_err(|error| error.to_string())?.ok_or("there is no pod")?;
            let runs = observe::is_running(&pod);
            let held = self.pod_safety.is_some().then_some("with the guard");
            check_that(runs.as_ref().is_some_and(|(there, _)| there == node), format!("{runs:?} {held:?}"))
        })
        .await?)
    }

    /// How often kube-controller-manager requested the deletion of an attachment, and was denied.
    fn refused_deletes(&self) -> Result<String> {
        let entries = self.audit.entries()?.into_iter();
        let deletes = entries.filter(|entry| entry.resource == "volumeattachments" && entry.verb == "delete");
        let codes: Vec<_> = deletes.map(|entry| entry.code).collect();
        let refused = codes.iter().filter(|code| **code == FORBIDDEN).count();
        Ok(format!("{}, of which refused {refused}", codes.len()))
    }
}
