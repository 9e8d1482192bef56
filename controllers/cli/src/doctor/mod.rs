//! `pod-safety doctor`: what is wrong with an installation, why it matters, and what to do. Reads only.
//!
//! | file | subject |
//! |---|---|
//! | `checks` | what each check finds in what was read: pure |
//! | `deleters` | reads what deletes Nodes |
//! | `rights` | which rights the service account should have |

mod deleters;
mod rights;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Args as ClapArgs;
use futures::StreamExt;
use futures::stream;
use pod_safety_doctor::{self as checks, Health, Kcm, Symptom};
use pod_safety_explain::{Paused, Verdict as OfBudget, explain};
use pod_safety_process::registry::Name;
use pod_safety_shared::api::crds;
use pod_safety_shared::authority::{Right, may, people};
use pod_safety_shared::client::Target;
use pod_safety_shared::model::{Budget, Kind};
use pod_safety_shared::record::error_chain;
use serde::Serialize;
use serde_json::Value;

use super::cluster::{ConnectArgs, PrintArgs, Session};
use super::explain::Look;
use super::paint::{Paint, Tone};
use super::{API_VERSION, Exit, clean, plural};

/// What is needed to say that a budget never allows an eviction.
const OF_BUDGETS: [Kind; 4] = [Kind::Budgets, Kind::Pods, Kind::ReplicaSets, Kind::StatefulSets];

/// How many questions about rights are under way at a time.
const QUESTIONS: usize = 8;

#[derive(Debug, ClapArgs)]
#[command(after_help = crate::exit::help("doctor"))]
pub struct Args {
    #[command(flatten)]
    print: PrintArgs,

    #[command(flatten)]
    cluster: ConnectArgs,
}

/// What was found, for programs.
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
        cluster.reach("doctor", async |session| self.run(session).await)
    }

    async fn run(self, session: Session) -> anyhow::Result<Exit> {
        let symptoms = examine(&session).await?;
        let paint = self.print.paint();
        let document = Document::of(&symptoms, session.target());
        self.print.output.print(&document, || session.headed(&page(&symptoms, paint)))?;
        let exit = match Verdict::of(&symptoms) {
            Verdict::Fine => Exit::Fine,
            Verdict::Unknown => Exit::Unknown,
            Verdict::Problems => Exit::Blocked,
        };
        Ok(self.print.ends(exit))
    }
}

/// What all checks come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Verdict {
    /// Every check could look, and found nothing that must be fixed.
    Fine,
    /// No check found anything that must be fixed, and some could not look.
    Unknown,
    /// Something must be fixed.
    Problems,
}

impl Verdict {
    fn of(symptoms: &[Symptom]) -> Self {
        let any = |health: Health| symptoms.iter().any(|symptom| symptom.health == health);
        match (any(Health::Problem), any(Health::Unknown)) {
            (true, _) => Self::Problems,
            (false, true) => Self::Unknown,
            (false, false) => Self::Fine,
        }
    }
}

impl<'a> Document<'a> {
    fn of(checks: &'a [Symptom], cluster: &'a Target) -> Self {
        let verdict = Verdict::of(checks);
        Self { api_version: API_VERSION, kind: "Diagnosis", verdict, cluster, checks }
    }
}

/// What was found, for people and for programs.
pub(super) async fn diagnosis(session: &Session) -> anyhow::Result<(String, Value)> {
    let symptoms = examine(session).await?;
    let document = serde_json::to_value(Document::of(&symptoms, session.target()))?;
    Ok((session.headed(&page(&symptoms, Paint::plain())), document))
}

/// Every check.
async fn examine(session: &Session) -> anyhow::Result<Vec<Symptom>> {
    let mut look = Look::at(session, None).await?;
    look.ask_policies(session).await;
    look.ask_pauses(session, None).await;
    let server = session.connection.server().await?;
    // Of this machine, whose clock is one of those that are compared.
    let own = session.env.clock.wall();
    let wall = look.wall;
    let mut symptoms = vec![checks::version(&server.version)];
    let sets = session.items("/apis/apps/v1/statefulsets").await;
    symptoms.extend(look.scene(|scene| {
        let nodes_are_known = scene.has_all(&[Kind::Nodes, Kind::NodeLeases]);
        let mut all = checks::clocks(&scene.view, nodes_are_known, server.date, own);
        all.push(checks::leader(scene.running, wall));
        all
    }));
    symptoms.extend(custom_kinds(session).await);
    symptoms.push(rights_of(session, &look).await);
    symptoms.push(checks::policies(look.policies, wall));
    symptoms.push(deleters::check(session).await?);
    let ours = look.controllers.clone();
    symptoms.extend(checks::twins(&kcm(session).await, look.running.mode, &ours));
    symptoms.extend(look.scene(|scene| {
        let mut all = Vec::new();
        if ours.contains(&Name::Fencing) {
            all.extend(checks::devices(&scene.view, scene.unread, &Paused::all(scene), wall));
            all.extend(checks::agents(&scene.view, &look.pods));
        }
        all.push(if scene.has_all(&OF_BUDGETS) {
            let never = |budget: &&Budget| explain(budget, &scene.view, scene.now).verdict == OfBudget::Never;
            checks::budgets(&scene.view.budgets().filter(never).collect::<Vec<_>>())
        } else {
            checks::not_checked(
                "PodDisruptionBudgets",
                "PodDisruptionBudgets, pods or their controllers could not be listed",
            )
        });
        all
    }));
    match sets {
        Ok(sets) => symptoms.push(checks::graceless(&sets)),
        Err(error) => symptoms.push(checks::not_checked(
            "GracePeriods",
            &format!("StatefulSets could not be listed: {}", error_chain(&error)),
        )),
    }
    symptoms.extend(look.missing().into_iter().map(|sentence| checks::unread("YourRights", sentence)));
    Ok(symptoms)
}

/// Our kinds, as the cluster has them.
async fn custom_kinds(session: &Session) -> Vec<Symptom> {
    let ours = crds();
    let mut there: BTreeMap<String, Result<Option<Value>, String>> = BTreeMap::new();
    for crd in &ours {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        let answer = match session.whole(&path).await {
            Ok(crd) => Ok(Some(crd)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error_chain(&error)),
        };
        there.insert(name.to_owned(), answer);
    }
    checks::crds(&ours, |name| there.get(name).cloned().unwrap_or(Ok(None)))
}

/// What the service account may not do of what it needs.
async fn rights_of(session: &Session, look: &Look) -> Symptom {
    if look.pods_unread().is_some() {
        return checks::not_checked(
            "Rights",
            "it is not known which controllers run, because pods could not be listed",
        );
    }
    let account = look.account.clone();
    let me = people::whoami(&session.connection).await.unwrap_or_default();
    let user = (me != account).then_some(account.as_str());
    let wanted = rights::needed(look.settings.mode, &look.controllers);
    let answers = stream::iter(wanted.iter())
        .map(|right| async move { (right, may(&session.connection, user, right).await) });
    let answers: Vec<_> = answers.buffer_unordered(QUESTIONS).collect().await;
    let mut lacking: Vec<Right> = Vec::new();
    for (right, answer) in answers {
        match answer {
            Ok(true) => {}
            Ok(false) => lacking.push(right.clone()),
            Err(error) => {
                let why =
                    format!("the API server did not answer what {account} may do: {}", error_chain(&error));
                return checks::not_checked("Rights", &why);
            }
        }
    }
    lacking.sort();
    checks::rights(&account, wanted.len(), &lacking)
}

/// kube-controller-manager, as far as it can be seen.
async fn kcm(session: &Session) -> Kcm {
    let pods = session
        .items("/api/v1/namespaces/kube-system/pods?labelSelector=component=kube-controller-manager")
        .await;
    let arguments = |pod: &Value| -> Vec<String> {
        let container = &pod["spec"]["containers"][0];
        let texts = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let all = texts(&container["command"]).into_iter().chain(texts(&container["args"]));
        all.filter_map(|one| one.as_str().map(str::to_owned)).collect()
    };
    match pods {
        Ok(pods) if !pods.is_empty() => Kcm::Arguments(pods.iter().map(arguments).collect()),
        _ => Kcm::Hidden { leads: is_renewed(session, "kube-controller-manager").await },
    }
}

/// Whether a Lease of kube-system was renewed within a minute.
async fn is_renewed(session: &Session, name: &str) -> bool {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}");
    let lease = session.whole(&path).await;
    let wall = session.env.clock.wall();
    lease.is_ok_and(|lease| {
        let renewed = lease
            .pointer("/spec/renewTime")
            .and_then(Value::as_str)
            .and_then(|at| at.parse::<jiff::Timestamp>().ok());
        renewed.is_some_and(|at| wall.as_second().saturating_sub(at.as_second()) < 60)
    })
}

fn page(symptoms: &[Symptom], paint: Paint) -> String {
    let mut text = String::new();
    let mut sorted: Vec<&Symptom> = symptoms.iter().collect();
    sorted.sort_by_key(|symptom| std::cmp::Reverse(symptom.health));
    for Symptom { check, health, what, why, remedy } in sorted {
        let tone = match health {
            Health::Fine => Tone::Good,
            Health::Unknown | Health::Attention => Tone::Attention,
            Health::Problem => Tone::Bad,
        };
        text.push_str(&paint.marked(tone, &format!("{check}: {what}")));
        if !why.is_empty() {
            let _infallible = writeln!(text, "{}", paint.wrap(&format!("    why   {why}"), 10));
        }
        if !remedy.is_empty() {
            let _infallible = writeln!(text, "    do    {}", clean::line(remedy));
        }
    }
    let of = |health: Health| symptoms.iter().filter(|symptom| symptom.health == health).count();
    let (problems, attention, unknown) = (of(Health::Problem), of(Health::Attention), of(Health::Unknown));
    let _infallible = writeln!(
        text,
        "\n{} to fix, {attention} to know, {unknown} not checked, {} fine. Nothing was changed.",
        plural(problems, "thing"),
        of(Health::Fine)
    );
    text
}
