//! PodDisruptionBudgets for operators and for programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use pod_safety_explain::{BudgetExplanation, BudgetVerdict, Member, pluralize};
use pod_safety_process::sanitize;
use pod_safety_shared::client::Target;
use pod_safety_shared::model::{Budget, BudgetLimit};
use serde::Serialize;

use super::API_VERSION;
use super::term::{Paint, Tone};

/// A PodDisruptionBudget for programs. Enums are serialised by the names of the API. Messages may change, fields may
/// not.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    cluster: &'a Target,
    #[serde(flatten)]
    item: Item,
}

/// A list of them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct List<'a> {
    api_version: &'static str,
    kind: &'static str,
    cluster: &'a Target,
    unreadable: usize,
    items: Vec<Item>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    namespace: String,
    name: String,
    verdict: &'static str,
    message: String,
    wants: String,
    unhealthy_pod_eviction_policy: &'static str,
    healthy: i32,
    needed: i32,
    allowed: i32,
    /// How many evictions it allows with every pod healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<i32>,
    pods: Vec<PodItem>,
    notes: Vec<String>,
    ways: Vec<RemediationItem>,
    /// Why there is no `replicas` and no `ceiling`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodItem {
    name: String,
    node: Option<String>,
    owner: String,
    ready: bool,
    counts: bool,
    eviction: &'static str,
    goes: bool,
    message: String,
}

#[derive(Debug, Serialize)]
struct RemediationItem {
    change: String,
    effect: String,
}

impl<'a> Document<'a> {
    /// The document of one PodDisruptionBudget of this cluster.
    #[must_use]
    pub fn new(explained: &BudgetExplanation<'_>, cluster: &'a Target) -> Self {
        Self { api_version: API_VERSION, kind: "BudgetExplanation", cluster, item: Item::from_explanation(explained) }
    }
}

impl<'a> List<'a> {
    /// The list of these PodDisruptionBudgets of this cluster; `unreadable` more could not be decoded.
    #[must_use]
    pub fn new(all: &[BudgetExplanation<'_>], unreadable: usize, cluster: &'a Target) -> Self {
        let items = all.iter().map(Item::from_explanation).collect();
        Self { api_version: API_VERSION, kind: "BudgetExplanationList", cluster, unreadable, items }
    }
}

impl Item {
    fn from_explanation(explained: &BudgetExplanation<'_>) -> Self {
        let BudgetExplanation { budget, verdict, arithmetic, members, notes, remediations: ways, unknown, .. } =
            explained;
        let ways = ways.iter().map(|remediation| RemediationItem {
            change: remediation.change.clone(),
            effect: remediation.effect.clone(),
        });
        Self {
            namespace: budget.key.namespace.to_string(),
            name: budget.key.name.to_string(),
            verdict: verdict.reason(),
            message: sentence(explained),
            wants: format_requirement(budget),
            unhealthy_pod_eviction_policy: budget.unhealthy_policy.name(),
            healthy: arithmetic.healthy,
            needed: arithmetic.needed,
            allowed: arithmetic.allowed,
            ceiling: arithmetic.ceiling,
            replicas: arithmetic.replicas,
            pods: members.iter().map(PodItem::from_member).collect(),
            notes: notes.clone(),
            ways: ways.collect(),
            unknown: unknown.clone(),
        }
    }
}

impl PodItem {
    fn from_member(member: &Member<'_>) -> Self {
        Self {
            name: member.pod.key.name.to_string(),
            node: member.pod.node.as_ref().map(ToString::to_string),
            owner: member.owner.clone(),
            ready: member.pod.ready,
            counts: member.counts_as_healthy,
            eviction: member.eviction.reason(),
            goes: member.eviction.is_allowed(),
            message: member.eviction.describe(),
        }
    }
}

/// `minAvailable 3`, as the API has it.
fn format_requirement(budget: &Budget) -> String {
    match &budget.limit {
        BudgetLimit::MinAvailable(least) => format!("minAvailable {least}"),
        BudgetLimit::MaxUnavailable(most) => format!("maxUnavailable {most}"),
        BudgetLimit::Unset => "neither minAvailable nor maxUnavailable".to_owned(),
        BudgetLimit::Unreadable(field, why) => format!("{field} {why}"),
    }
}

/// The verdict as a sentence, with its numbers.
pub fn sentence(explained: &BudgetExplanation<'_>) -> String {
    let numbers = &explained.arithmetic;
    let sum = numbers.describe();
    let replicas = numbers.replicas.unwrap_or(0);
    match &explained.verdict {
        BudgetVerdict::Allows(allowed) => format!("Evictions allowed now: {allowed}.   {sum}."),
        BudgetVerdict::Never if replicas <= 0 && numbers.max_healthy == Some(0) => format!(
            "Evictions allowed: 0.   {sum}.   It can never be more: none of its pods has a controller with a scale, so it is not known how many there should be."
        ),
        BudgetVerdict::Never => {
            format!("Evictions allowed: 0.   {sum}.   It can never be more while {}.", explained.limit())
        }
        BudgetVerdict::NoneNow => match numbers.ceiling {
            Some(ceiling) => {
                format!("Evictions allowed now: 0.   {sum}.   With all {replicas} healthy: {ceiling} at a time.")
            }
            None => format!("Evictions allowed now: 0.   {sum}."),
        },
        BudgetVerdict::Processing => format!(
            "Still being processed: its status is about generation {}, and it is at {}. The API server denies evictions until then.",
            explained.budget.status.observed_generation, explained.budget.generation
        ),
        BudgetVerdict::SelectsNothing => "It selects no pods, so it protects nothing.".to_owned(),
        BudgetVerdict::AllTerminated => {
            "All its pods have terminated, so it protects nothing now, and blocks no eviction.".to_owned()
        }
        BudgetVerdict::SyncFailed(why) => {
            format!("Evictions allowed: 0.   Its numbers cannot be calculated: {why}")
        }
        BudgetVerdict::Overlaps(others) => format!(
            "Its pods are selected by {} too, so the API server fails every eviction of them (500).",
            others.join(", ")
        ),
        BudgetVerdict::Ignored(why) => {
            format!("Its selector cannot be read, so the API server ignores it, and it protects nothing. {why}")
        }
    }
}

/// "3 pods of Deployment/api".
fn describe_selection(members: &[Member<'_>]) -> String {
    let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
    for member in members {
        *owners.entry(&member.owner).or_default() += 1;
    }
    match owners.len() {
        0 => "selects no pods".to_owned(),
        1..=3 => {
            let owners: Vec<String> =
                owners.iter().map(|(owner, count)| format!("{} of {owner}", pluralize(*count, "pod"))).collect();
            format!("selects {}", owners.join(", "))
        }
        count => format!("selects {} of {count} owners", pluralize(members.len(), "pod")),
    }
}

/// One PodDisruptionBudget as a page.
pub fn page(explained: &BudgetExplanation<'_>, paint: Paint) -> String {
    let budget = explained.budget;
    let tone = tone_for(&explained.verdict);
    let head = format!(
        "pdb/{}   {}   {}   unhealthyPodEvictionPolicy {}",
        budget.key,
        format_requirement(budget),
        describe_selection(&explained.members),
        budget.unhealthy_policy.name()
    );
    let verdict = format!("{} {}", paint.mark(tone), sentence(explained));
    let mut text = format!("{}\n{}\n", sanitize::line(&head), paint.tone(tone, &sanitize::line(&verdict)));
    for note in &explained.notes {
        let _infallible = writeln!(text, "{} {}", paint.mark(Tone::Attention), sanitize::line(note));
    }
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    if !explained.members.is_empty() {
        let rows = explained.members.iter().map(|member| {
            let node = member.pod.node.as_deref().unwrap_or("-").to_owned();
            let cells = vec![
                member.pod.key.name.to_string(),
                node,
                yes(member.pod.ready),
                yes(member.counts_as_healthy),
                member.eviction.describe(),
            ];
            (if member.eviction.is_allowed() { Tone::Plain } else { Tone::Attention }, cells)
        });
        let rows: Vec<_> = rows.collect();
        text.push('\n');
        text.push_str(&paint.table(&["POD", "NODE", "READY", "COUNTS", "EVICTION WOULD"], &rows));
    }
    if !explained.remediations.is_empty() {
        let rows: Vec<_> = explained
            .remediations
            .iter()
            .map(|remediation| (Tone::Plain, vec![remediation.change.clone(), remediation.effect.clone()]))
            .collect();
        text.push('\n');
        text.push_str(&paint.table(&["WAYS OUT", "EFFECT"], &rows));
    }
    let held = explained.members.iter().filter(|member| !member.eviction.is_allowed() && member.pod.deletion.is_none());
    let nodes: BTreeSet<&str> = held.filter_map(|member| member.pod.node.as_deref()).collect();
    if !nodes.is_empty() {
        let nodes: Vec<&str> = nodes.into_iter().collect();
        let _infallible = writeln!(text, "BLOCKS  drains of {}", sanitize::line(&nodes.join(", ")));
    }
    text
}

/// All of them as a table.
pub fn table(all: &[BudgetExplanation<'_>], unreadable: usize, paint: Paint) -> String {
    let rows: Vec<_> = all
        .iter()
        .map(|one| {
            let tone = tone_for(&one.verdict);
            let numbers = &one.arithmetic;
            let cells = vec![
                paint.mark(tone).to_owned(),
                one.budget.key.namespace.to_string(),
                one.budget.key.name.to_string(),
                format_requirement(one.budget),
                one.members.len().to_string(),
                numbers.describe(),
                one.verdict.reason().to_owned(),
            ];
            (tone, cells)
        })
        .collect();
    let mut text = if rows.is_empty() {
        "There are no PodDisruptionBudgets.\n".to_owned()
    } else {
        paint.table(&["", "NAMESPACE", "NAME", "WANTS", "PODS", "ARITHMETIC", "VERDICT"], &rows)
    };
    for one in all.iter().filter(|one| one.verdict == BudgetVerdict::NoneNow && !one.unknown.is_empty()) {
        let mark = paint.mark(Tone::Attention);
        let why = one.unknown.join("; ");
        let line = format!("{mark} {}: it is not known whether it ever allows more: {why}", one.budget.key);
        let _infallible = writeln!(text, "{}", sanitize::line(&line));
    }
    if unreadable > 0 {
        let _infallible = writeln!(
            text,
            "{} {} cannot be read.",
            paint.mark(Tone::Bad),
            pluralize(unreadable, "further PodDisruptionBudget")
        );
    }
    text
}

/// The tone of a verdict.
pub const fn tone_for(verdict: &BudgetVerdict) -> Tone {
    match verdict {
        BudgetVerdict::Allows(_) => Tone::Good,
        BudgetVerdict::SelectsNothing
        | BudgetVerdict::AllTerminated
        | BudgetVerdict::NoneNow
        | BudgetVerdict::Processing => Tone::Attention,
        BudgetVerdict::Ignored(_)
        | BudgetVerdict::SyncFailed(_)
        | BudgetVerdict::Overlaps(_)
        | BudgetVerdict::Never => Tone::Bad,
    }
}
