//! The user's whole path: the image in the machines' containerd, the chart installed with Helm, its pods asking the API
//! server by its Service, Prometheus reading them by their addresses with the chart's rules; then cables are pulled, and the
//! commands, the metrics and the alerts say what happened.

mod image;
mod view;

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use pod_safety_control_plane::{chart, check_that, eventually};

use crate::cluster::{Cluster, Extra, Mode};
use crate::machine::{Machine, run};
use crate::objects::{IDENTITIES, NAMESPACE};
use crate::play::CALM;
use crate::steps::Steps;
use crate::watch;

pub(crate) use image::pack;
use view::View;

const SOON: Duration = Duration::from_secs(60);
/// A replica that is lost with the leader's machine is missed after 5 s, asked to end after 20 s, and then waits for a proof.
const LATER: Duration = Duration::from_secs(120);
/// What must not happen without a proof is looked at for so long.
const WITHOUT_PROOF: Duration = Duration::from_secs(6);
const RELEASE: &str = "pod-safety";

/// Plays all of it; an error is what is not as it should be.
pub(crate) async fn play() -> Result<String> {
    let mut steps = Steps::new("helm");
    let mut cluster = steps.step("three machines", Cluster::machines(Mode::Replace, Extra::ServiceAccounts)).await?;
    steps.step("the image in their containerd", import()).await?;
    steps.step("helm install: two replicas Ready, on two machines", install(&cluster)).await?;
    steps.step("a StatefulSet of three, power switches", cluster.serve()).await?;
    let view = steps.step("Prometheus reads both, one leads, no alert", View::open(&cluster)).await?;
    let idle = steps.step("helm test", test(&cluster, &view)).await?;
    let uid = steps.step("a cable is pulled: held, said, an alert", hold(&mut cluster, &view, idle)).await?;
    steps
        .step("the switch answers: switched off by who leads, runs elsewhere", release(&mut cluster, &view, idle, &uid))
        .await?;
    steps.step("the machine is back, the alert stops", back(&mut cluster, &view, idle)).await?;
    let led = steps.step("the leader's cable is pulled: the other one fences it", depose(&mut cluster, &view)).await?;
    steps.step("two replicas again, the alert stops", back(&mut cluster, &view, led)).await?;
    Ok(steps.markdown())
}

/// Pods are reached from the control plane's end of the switch, and answer.
async fn import() -> Result<()> {
    for machine in Machine::ALL {
        run("ip", &["route", "replace", &machine.pods(), "via", &machine.address()]).await?;
        machine.import(&image::archive()).await?;
    }
    Ok(())
}

async fn install(cluster: &Cluster) -> Result<()> {
    let chart = chart();
    let values = [
        format!("image.repository={},image.tag={},image.pullPolicy=Never", image::REPOSITORY, image::TAG),
        "mode=replace,admissionPolicies.action=Deny".to_owned(),
        "controllers.podGc.quarantine=3s,controllers.nodeLifecycle.monitorGracePeriod=8s".to_owned(),
        "leaderElection.leaseDuration=5s,leaderElection.renewDeadline=3s,leaderElection.retryPeriod=1s".to_owned(),
    ];
    let set = format!("--set={}", values.join(","));
    let args = ["install", RELEASE, &chart.to_string_lossy(), "--namespace=pod-safety", "--create-namespace", &set];
    let wait = ["--wait", "--timeout=120s"];
    cluster.plane.helm(&[&args[..], &wait].concat()).await?.text()?;
    let on = machines(&replicas(cluster).await?);
    ensure!(on.len() == 2 && on[0] != on[1], "the replicas run on {on:?}");
    Ok(())
}

/// The pods of the release.
async fn pods(cluster: &Cluster) -> Result<Vec<Pod>> {
    let pods = Api::<Pod>::namespaced(cluster.plane.admin(), "pod-safety");
    let label = ListParams::default().labels("app.kubernetes.io/name=pod-safety,pod-template-hash");
    Ok(pods.list(&label).await?.items)
}

/// Those that are not to end.
async fn replicas(cluster: &Cluster) -> Result<Vec<Pod>> {
    let all = pods(cluster).await?;
    Ok(all.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect())
}

fn machines(pods: &[Pod]) -> Vec<String> {
    pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect()
}

/// `helm test`; and which machine has no replica.
async fn test(cluster: &Cluster, view: &View) -> Result<Machine> {
    cluster.plane.helm(&["test", RELEASE, "--namespace=pod-safety", "--timeout=60s"]).await?.text()?;
    let status = view.kubectl(cluster, &["pod-safety", "status"]).await?;
    ensure!(status.status.success(), "nothing is wrong, and status says {status:?}");
    let on = machines(&replicas(cluster).await?);
    Machine::ALL.into_iter().find(|one| !on.contains(&one.name())).context("replicas are everywhere")
}

/// Who was last seen to write there.
fn identity_on(cluster: &Cluster, machine: Machine) -> Result<&'static str> {
    let there = |identity: &&&str| cluster.machine_of(identity).is_ok_and(|at| at == machine);
    IDENTITIES.iter().find(there).copied().with_context(|| format!("nobody writes on {}", machine.name()))
}

/// Nothing proves anything while no switch answers. The UID of who is held.
async fn hold(cluster: &mut Cluster, view: &View, lost: Machine) -> Result<String> {
    let identity = identity_on(cluster, lost)?;
    cluster.switches.pause()?;
    lost.cable(false).await?;
    view.until_fires(cluster, "PodSafetyPodsHeld").await?;
    let pod = cluster.pod(identity).await?.context("the pod is gone")?;
    ensure!(pod.metadata.deletion_timestamp.is_some(), "{identity} was not asked to end");
    let explained = view.kubectl(cluster, &["pod-safety", "explain", "pod", identity, "-n", NAMESPACE]).await?;
    let words = [&*lost.name(), "is unreachable", "cut off with this pod still running"];
    ensure!(words.iter().all(|word| explained.stdout.contains(word)), "explain says {explained:?}");
    let status = view.kubectl(cluster, &["pod-safety", "status"]).await?;
    ensure!(status.stdout.contains(&lost.name()) && !status.status.success(), "status says {status:?}");
    tokio::time::sleep(WITHOUT_PROOF).await;
    let line = watch::last_line(identity).context("it never wrote")?;
    ensure!(line.node == lost.name() && watch::uptime()? - line.at < 1.0, "{identity} was to write on: {line:?}");
    pod.metadata.uid.context("a pod without UID")
}

/// The leader asks the switch, once it answers.
async fn release(cluster: &mut Cluster, view: &View, lost: Machine, uid: &str) -> Result<()> {
    let leader = view.leader().await?;
    cluster.switches.resume()?;
    until_rescheduled(cluster, lost, uid).await?;
    switched_off_by(cluster, lost, leader)?;
    view.until_result(
        "a pod was released by a device's word",
        "sum(pod_safety_force_deletes_total{evidence=\"PowerOff\"}) >= 1",
    )
    .await
}

/// Every identity runs on another machine than this.
async fn until_rescheduled(cluster: &Cluster, lost: Machine, uid: &str) -> Result<()> {
    let moved = async || {
        cluster.served().await.map_err(|error| error.to_string())??;
        let stays = IDENTITIES.iter().filter_map(|one| watch::last_line(one)).find(|line| line.uid == uid);
        let there = IDENTITIES.iter().filter(|one| cluster.machine_of(one).is_ok_and(|at| at == lost)).count();
        check_that(stays.is_none() && there == 0, format!("{there} on {}", lost.name()))
    };
    Ok(eventually("every identity runs elsewhere", LATER, moved).await?)
}

fn switched_off_by(cluster: &Cluster, lost: Machine, leader: Ipv4Addr) -> Result<()> {
    let (log, line) = (cluster.switches.log_text(), format!("{leader}: {}: ForceOff, then Off", lost.name()));
    ensure!(log.contains(&line), "the switches were not told so by who leads ({line}): {log}");
    Ok(())
}

/// Switched on again, everything is as it was, and nothing fires.
async fn back(cluster: &mut Cluster, view: &View, lost: Machine) -> Result<()> {
    cluster.until_calm(CALM).await?;
    let on = || async { Ok::<_, anyhow::Error>(machines(&replicas(cluster).await?)) };
    let well = async || {
        let on = on().await.map_err(|error| error.to_string())?;
        check_that(on.len() == 2 && on[0] != on[1], format!("the replicas run on {on:?}"))
    };
    eventually("two replicas on two machines", LATER, well).await?;
    ensure!(lost.is_on().await?, "{} is off", lost.name());
    view.until_quiet(cluster).await?;
    let status = view.kubectl(cluster, &["pod-safety", "status"]).await?;
    ensure!(status.status.success(), "all is well again, and status says {status:?}");
    Ok(())
}

/// The machine of who leads. The alert is that of a replica that does not answer.
async fn depose(cluster: &mut Cluster, view: &View) -> Result<Machine> {
    let leader = view.leader().await?;
    let lost = Machine::ALL.into_iter().find(|one| one.has_pod(leader)).context("whose pod is that?")?;
    let uid = match identity_on(cluster, lost) {
        Ok(identity) => watch::last_line(identity).context("it never wrote")?.uid,
        Err(_) => String::new(),
    };
    lost.cable(false).await?;
    view.until_fires(cluster, "PodSafetyReplicaDown").await?;
    let fenced = async || {
        let next = view.leader().await.map_err(|error| error.to_string())?;
        if next == leader {
            return Err("it still leads, for all that is known".to_owned());
        }
        switched_off_by(cluster, lost, next).map_err(|error| error.to_string())
    };
    eventually("the other replica leads and switches it off", SOON, fenced).await?;
    until_rescheduled(cluster, lost, &uid).await?;
    Ok(lost)
}
