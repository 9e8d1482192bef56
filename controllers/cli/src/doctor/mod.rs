//! `pod-safety doctor`: what is wrong with an installation, why it matters, and the remedy. Reads only. The checks
//! themselves are pure, in the crate `pod_safety_doctor`.
//!
//! | file | subject |
//! |---|---|
//! | `account` | reads the account of pod-safety, and why no controller answers |
//! | `deleters` | reads which components delete Nodes, and which of them the policies deny |
//! | `rights` | the rights that the service account should have |

mod account;
mod deleters;
mod rights;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Args as ClapArgs;
use pod_safety_doctor::{self as checks, Duties, Health, Installation, Kcm, Leader, Symptom};
use pod_safety_explain::{BudgetVerdict as OfBudget, Paused, explain_budget};
use pod_safety_print::{Paint, Tone};
use pod_safety_process::registry::Name;
use pod_safety_shared::api::crds;
use pod_safety_shared::client::Target;
use pod_safety_shared::model::{Budget, Kind};
use pod_safety_shared::record::error_chain;
use serde::Serialize;
use serde_json::Value;

use super::cluster::{ConnectArgs, PrintArgs, Session};
use super::explain::{ClusterSnapshot, OWN_LABEL, evictions};
use super::{API_VERSION, Exit, pluralize};
pub(crate) use account::{describe_unresponsive, print_reason};

/// The kinds that are needed to know that a budget never allows an eviction.
const BUDGET_KINDS: [Kind; 6] =
    [Kind::Budgets, Kind::Pods, Kind::Deployments, Kind::ReplicaSets, Kind::StatefulSets, Kind::ReplicationControllers];

/// The column of the text below a finding, after its label.
const LABEL: usize = 10;

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("doctor"))]
pub struct Args {
    #[command(flatten)]
    print: PrintArgs,

    #[command(flatten)]
    cluster: ConnectArgs,
}

/// The result, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    verdict: Verdict,
    cluster: &'a Target,
    checks: &'a [Symptom],
}

impl Args {
    pub(super) fn main(self) -> anyhow::Result<Exit> {
        let cluster = self.cluster.clone();
        cluster.with_session("doctor", async |session| self.run(session).await)
    }

    async fn run(self, session: Session) -> anyhow::Result<Exit> {
        let symptoms = examine(&session).await?;
        let paint = self.print.paint();
        let document = Document::new(&symptoms, session.target());
        self.print.output.print(&document, || session.with_header(&page(&symptoms, paint)))?;
        let exit = match Verdict::from_symptoms(&symptoms) {
            Verdict::Fine => Exit::Fine,
            Verdict::Unknown => Exit::Unknown,
            Verdict::Problems => Exit::Blocked,
        };
        Ok(self.print.final_exit(exit))
    }
}

/// The verdict of all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Verdict {
    /// Every check could read what it needs, and none found a problem.
    Fine,
    /// No check found a problem, and some could not read what they need.
    Unknown,
    /// Something must be fixed.
    Problems,
}

impl Verdict {
    fn from_symptoms(symptoms: &[Symptom]) -> Self {
        let any = |health: Health| symptoms.iter().any(|symptom| symptom.health == health);
        match (any(Health::Problem), any(Health::Unknown)) {
            (true, _) => Self::Problems,
            (false, true) => Self::Unknown,
            (false, false) => Self::Fine,
        }
    }
}

impl<'a> Document<'a> {
    fn new(checks: &'a [Symptom], cluster: &'a Target) -> Self {
        let verdict = Verdict::from_symptoms(checks);
        Self { api_version: API_VERSION, kind: "Diagnosis", verdict, cluster, checks }
    }
}

/// The result, for operators and for programs.
pub(super) async fn diagnose(session: &Session) -> anyhow::Result<(String, Value)> {
    let symptoms = examine(session).await?;
    let document = serde_json::to_value(Document::new(&symptoms, session.target()))?;
    Ok((session.with_header(&page(&symptoms, Paint::plain())), document))
}

/// Runs every check.
async fn examine(session: &Session) -> anyhow::Result<Vec<Symptom>> {
    let mut snapshot = ClusterSnapshot::read(session, None).await?;
    snapshot.read_policies(session).await;
    snapshot.read_pauses(session, None).await;
    let server = session.connection.server_info().await?;
    // The clock of this machine, which is one of those that are compared.
    let own = session.env.clock.wall();
    let wall = snapshot.wall;
    let installation = installation(session).await;
    let leader = snapshot.lease.as_ref().and_then(|lease| find_leader(&snapshot, lease));
    let controllers = snapshot.controllers.clone();
    let duties = Duties { mode: snapshot.running.mode, controllers: &controllers, installation: &installation };
    let kcm = read_kcm(session).await;
    let mut symptoms = vec![checks::check_version(&server.version)];
    symptoms.extend(snapshot.with_context(|ctx| {
        let nodes_are_known = ctx.has_all(&[Kind::Nodes, Kind::NodeLeases]);
        let mut all = checks::check_clocks(&ctx.view, nodes_are_known, server.date, own, &kcm, duties);
        all.push(checks::check_leader(ctx.running, wall, &installation));
        all
    }));
    symptoms.extend(check_custom_kinds(session, &installation).await);
    symptoms.extend(account::check_account(session, &snapshot, leader.as_ref(), &installation).await);
    symptoms.push(checks::check_admission_policies(snapshot.policies, duties.mode, wall, &installation));
    symptoms.extend(deleters::check_deleters(session, &installation).await?);
    symptoms.extend(checks::check_kcm(&kcm, duties));
    symptoms.extend(check_duties(session, &snapshot, leader.as_ref(), duties).await);
    symptoms.extend(snapshot.with_context(|ctx| {
        let mut all = Vec::new();
        if controllers.contains(&Name::Fencing) {
            all.extend(checks::check_devices(&ctx.view, ctx.unread, &Paused::list(ctx), wall, &installation));
            all.extend(checks::check_agents(&ctx.view, &snapshot.pods));
        }
        all.push(if ctx.has_all(&BUDGET_KINDS) {
            let never = |budget: &&Budget| explain_budget(budget, &ctx.view, ctx.now).verdict == OfBudget::Never;
            checks::check_budgets(&ctx.view.budgets().filter(never).collect::<Vec<_>>())
        } else {
            checks::not_checked(
                "PodDisruptionBudgets",
                "PodDisruptionBudgets, pods or their controllers could not be listed",
            )
        });
        all
    }));
    symptoms.push(match session.items("/apis/apps/v1/statefulsets").await {
        Ok(sets) => checks::check_grace_periods(&sets),
        Err(error) => {
            checks::not_checked("GracePeriods", &format!("StatefulSets could not be listed: {}", error_chain(&error)))
        }
    });
    match evictions::read_abandoned(session, wall).await {
        Ok(abandoned) => symptoms.extend(abandoned.iter().map(checks::abandoned_request)),
        Err(sentence) => symptoms.push(checks::unreadable("EvictionRequests", sentence)),
    }
    symptoms.extend(snapshot.missing().into_iter().map(|sentence| checks::unreadable("YourRBAC", sentence)));
    Ok(checks::adapt_to_simulation(&server.version, symptoms))
}

/// The installation, by the labels of its Deployments and of a CRD.
async fn installation(session: &Session) -> Installation {
    const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/fenceevidences.pod-safety.dev";
    let Ok(deployments) = session.items(&format!("/apis/apps/v1/deployments?{OWN_LABEL}")).await else {
        return Installation::default();
    };
    let crd = session.get_opt(CRD).await.ok().flatten();
    Installation::from_deployments(&deployments, crd.as_ref())
}

/// The leader. A leader whose Lease does not have its account may be a pod of pod-safety.
fn find_leader(snapshot: &ClusterSnapshot, lease: &Value) -> Option<Leader> {
    let leader = Leader::from_lease(lease)?;
    let is_pod = snapshot.running.leader_node.is_some();
    let of_pod = is_pod.then(|| snapshot.account.clone());
    Some(Leader { user: leader.user.or(of_pod), ..leader })
}

/// Checks for duties that no controller fulfils, by their missing effects.
async fn check_duties(
    session: &Session,
    snapshot: &ClusterSnapshot,
    leader: Option<&Leader>,
    duties: Duties<'_>,
) -> Vec<Symptom> {
    let mut all = snapshot.with_context(|ctx| {
        let mut all = Vec::new();
        match ctx.has_all(&[Kind::Nodes]) {
            true => all.extend(checks::check_node_lifecycle(&ctx.view, snapshot.wall, duties)),
            false => all.push(checks::not_checked("NodeLifecycle", "nodes could not be listed")),
        }
        match ctx.has_all(&[Kind::Nodes, Kind::Pods]) {
            true => all.extend(checks::check_taint_eviction(&ctx.view, snapshot.wall, duties)),
            false => all.push(checks::not_checked("TaintEviction", "nodes or pods could not be listed")),
        }
        all
    });
    match session.items("/apis/policy/v1/poddisruptionbudgets").await {
        Ok(budgets) => all.extend(checks::check_budget_statuses(&budgets, leader, snapshot.wall, duties)),
        Err(error) => {
            let why = format!("their statuses could not be listed: {}", error_chain(&error));
            all.push(checks::not_checked("PodDisruptionBudgets", &why));
        }
    }
    all
}

/// Compares the kinds of pod-safety with those in the cluster.
async fn check_custom_kinds(session: &Session, installation: &Installation) -> Vec<Symptom> {
    let expected = crds();
    let mut installed: BTreeMap<String, Result<Option<Value>, String>> = BTreeMap::new();
    for crd in &expected {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        let answer = session.get_opt(&path).await;
        installed.insert(name.to_owned(), answer.map_err(|error| error_chain(&error)));
    }
    checks::check_crds(&expected, installation, |name| installed.get(name).cloned().unwrap_or(Ok(None)))
}

/// Reads kube-controller-manager, as far as it is visible.
async fn read_kcm(session: &Session) -> Kcm {
    let pods =
        session.items("/api/v1/namespaces/kube-system/pods?labelSelector=component=kube-controller-manager").await;
    let arguments = |pod: &Value| -> Vec<String> {
        let container = &pod["spec"]["containers"][0];
        let texts = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let all = texts(&container["command"]).into_iter().chain(texts(&container["args"]));
        all.filter_map(|one| one.as_str().map(str::to_owned)).collect()
    };
    match pods {
        Ok(pods) if !pods.is_empty() => Kcm::Arguments(pods.iter().map(arguments).collect()),
        _ => Kcm::Hidden { is_leading: is_renewed(session, "kube-controller-manager").await },
    }
}

/// Whether a Lease of kube-system was renewed within a minute.
async fn is_renewed(session: &Session, name: &str) -> bool {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}");
    let lease = session.get_raw(&path).await;
    let wall = session.env.clock.wall();
    lease.is_ok_and(|lease| {
        let renewed =
            lease.pointer("/spec/renewTime").and_then(Value::as_str).and_then(|at| at.parse::<jiff::Timestamp>().ok());
        renewed.is_some_and(|at| wall.as_second().saturating_sub(at.as_second()) < 60)
    })
}

pub(super) fn page(symptoms: &[Symptom], paint: Paint) -> String {
    let mut text = String::new();
    let mut sorted: Vec<&Symptom> = symptoms.iter().collect();
    sorted.sort_by_key(|symptom| std::cmp::Reverse(symptom.health));
    for Symptom { check, health, what, why, remedy } in sorted {
        let tone = match health {
            Health::Fine => Tone::Good,
            Health::Unknown | Health::Attention => Tone::Attention,
            Health::Problem => Tone::Bad,
        };
        text.push_str(&paint.with_mark(tone, &format!("{check}: {what}")));
        for (label, line) in [("why", *why), ("do", &**remedy)].into_iter().filter(|(_, line)| !line.is_empty()) {
            let _infallible = writeln!(text, "{}", paint.wrap_row(&format!("    {label:<6}{line}"), LABEL));
        }
    }
    let of = |health: Health| symptoms.iter().filter(|symptom| symptom.health == health).count();
    let (problems, attention, unknown) = (of(Health::Problem), of(Health::Attention), of(Health::Unknown));
    let _infallible = writeln!(
        text,
        "\n{} to fix, {attention} to know, {unknown} not checked, {} fine. Nothing was changed.",
        pluralize(problems, "thing"),
        of(Health::Fine)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invocation::commands;

    /// A wrapped reason began in column 0, and the remedy was longer than the line.
    #[test]
    fn bug_wrapped_lines_below_a_finding_lost_their_indentation() {
        let why = "a reason that needs more than one line on a terminal of forty columns";
        let (what, remedy) = ("w".to_owned(), why.to_owned());
        let symptom = Symptom { check: "Leader", health: Health::Problem, what, why, remedy };
        let text = page(&[symptom], Paint::plain().with_columns(40, commands()));
        let lines: Vec<&str> = text.lines().skip(1).take_while(|line| !line.is_empty()).collect();
        assert!(lines.len() == 6 && lines[0].starts_with("    why   a reason"), "{text}");
        assert!(lines[3].starts_with("    do    a reason"), "{text}");
        for line in lines {
            assert!(line.starts_with("    ") && line.chars().count() <= 40, "{text}");
        }
    }
}
