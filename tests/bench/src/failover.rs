//! The leader dies: measures how soon the standby decides. A PDB is created at that moment, and its status is awaited.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Api;
use kube::api::PostParams;

use crate::cluster::Cluster;
use crate::contender::{Contender, Duty, Starter};
use crate::plan::{Phase, Plan};
use crate::results::{Results, Sample};

const NAMESPACE: &str = "default";
pub(crate) const DECIDED: &str = "until the next leader has decided, s";
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// kube-controller-manager lists its objects only after it has become the leader.
const WITHIN: Duration = Duration::from_secs(600);
/// When the leader dies within its renewal period: later in each round.
const LATER_EACH_ROUND: Duration = Duration::from_millis(700);

/// Each contender uses its default flags of leader election.
pub(crate) async fn run(
    cluster: &mut Cluster,
    starter: &mut Starter,
    plan: &Plan,
    results: &mut Results,
) -> Result<()> {
    for round in 0..plan.rounds {
        for contender in plan.those_of(Phase::Failover) {
            let seconds = measure_once(cluster, starter, contender, round).await?;
            let sample = Sample::new(Phase::Failover, contender.name(), "its leader is killed");
            results.add(sample.with(DECIDED, seconds));
        }
    }
    Ok(())
}

async fn measure_once(cluster: &mut Cluster, starter: &mut Starter, contender: Contender, round: u16) -> Result<f64> {
    let leader = starter.start(contender, Duty::Failover, cluster).await?;
    let standby = starter.stand_by(contender, Duty::Failover, cluster).await?;
    cluster.calm().await?;
    tokio::time::sleep(LATER_EACH_ROUND * round.into()).await;
    let budgets = Api::<PodDisruptionBudget>::namespaced(cluster.plane.admin(), NAMESPACE);
    let name = format!("failover-{}-{round}", contender.name().to_lowercase());
    let died = Instant::now();
    leader.kill()?;
    budgets.create(&PostParams::default(), &budget(&name)).await?;
    while died.elapsed() < WITHIN {
        let status = budgets.get(&name).await?.status;
        if status.is_some_and(|status| status.observed_generation.is_some()) {
            let seconds = died.elapsed().as_secs_f64();
            starter.stop_standby(standby).await?;
            return Ok(seconds);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    bail!("{} has not decided within {WITHIN:?}", contender.name())
}

fn budget(name: &str) -> PodDisruptionBudget {
    let labels = [("app".to_owned(), name.to_owned())].into();
    let selector = LabelSelector { match_labels: Some(labels), ..LabelSelector::default() };
    PodDisruptionBudget {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(selector),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}
