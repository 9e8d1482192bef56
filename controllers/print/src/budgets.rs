//! Budgets as people and programs read them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use pod_safety_explain::{Explained, Member, Verdict, plural};
use pod_safety_process::clean;
use pod_safety_shared::client::Target;
use pod_safety_shared::model::{Budget, Wanted};
use serde::Serialize;

use super::API_VERSION;
use super::paint::{Paint, Tone};

/// A budget for programs. Enums are words as the API has them; text may change,
/// fields may not.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    cluster: &'a Target,
    #[serde(flatten)]
    item: Item,
}

/// Many of them.
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
    /// How many evictions it lets through with every pod healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<i32>,
    pods: Vec<PodItem>,
    notes: Vec<String>,
    ways: Vec<WayItem>,
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
struct WayItem {
    change: String,
    effect: String,
}

impl<'a> Document<'a> {
    /// The one, of this cluster.
    #[must_use]
    pub fn of(explained: &Explained<'_>, cluster: &'a Target) -> Self {
        Self { api_version: API_VERSION, kind: "BudgetExplanation", cluster, item: Item::of(explained) }
    }
}

impl<'a> List<'a> {
    /// These, of this cluster; `unreadable` more could not be decoded.
    #[must_use]
    pub fn of(all: &[Explained<'_>], unreadable: usize, cluster: &'a Target) -> Self {
        let items = all.iter().map(Item::of).collect();
        Self { api_version: API_VERSION, kind: "BudgetExplanationList", cluster, unreadable, items }
    }
}

impl Item {
    fn of(explained: &Explained<'_>) -> Self {
        let Explained { budget, verdict, arithmetic, members, notes, ways, unknown, .. } = explained;
        let ways = ways.iter().map(|way| WayItem { change: way.change.clone(), effect: way.effect.clone() });
        Self {
            namespace: budget.key.namespace.to_string(),
            name: budget.key.name.to_string(),
            verdict: verdict.reason(),
            message: sentence(explained),
            wants: wants(budget),
            unhealthy_pod_eviction_policy: budget.unhealthy.name(),
            healthy: arithmetic.healthy,
            needed: arithmetic.needed,
            allowed: arithmetic.allowed,
            ceiling: arithmetic.ceiling,
            replicas: arithmetic.replicas,
            pods: members.iter().map(PodItem::of).collect(),
            notes: notes.clone(),
            ways: ways.collect(),
            unknown: unknown.clone(),
        }
    }
}

impl PodItem {
    fn of(member: &Member<'_>) -> Self {
        Self {
            name: member.pod.key.name.to_string(),
            node: member.pod.node.as_ref().map(ToString::to_string),
            owner: member.owner.clone(),
            ready: member.pod.ready,
            counts: member.counts,
            eviction: member.would.reason(),
            goes: member.would.goes(),
            message: member.would.words(),
        }
    }
}

/// `minAvailable 3`, as the API has it.
fn wants(budget: &Budget) -> String {
    match &budget.wanted {
        Wanted::MinAvailable(least) => format!("minAvailable {least}"),
        Wanted::MaxUnavailable(most) => format!("maxUnavailable {most}"),
        Wanted::Nothing => "neither minAvailable nor maxUnavailable".to_owned(),
        Wanted::Unreadable(field, why) => format!("{field} {why}"),
    }
}

/// The verdict in a sentence, with its numbers.
pub fn sentence(explained: &Explained<'_>) -> String {
    let numbers = &explained.arithmetic;
    let sum = numbers.words();
    let replicas = numbers.replicas.unwrap_or(0);
    match &explained.verdict {
        Verdict::Allows(allowed) => format!("Evictions allowed now: {allowed}.   {sum}."),
        Verdict::Never if replicas <= 0 && numbers.reached == Some(0) => format!(
            "Evictions allowed: 0.   {sum}.   It can never be more: none of its pods has a controller with a scale, so it is not known how many there should be."
        ),
        Verdict::Never => {
            format!("Evictions allowed: 0.   {sum}.   It can never be more while {}.", explained.limit())
        }
        Verdict::NoneNow => match numbers.ceiling {
            Some(ceiling) => format!(
                "Evictions allowed now: 0.   {sum}.   With all {replicas} healthy: {ceiling} at a time."
            ),
            None => format!("Evictions allowed now: 0.   {sum}."),
        },
        Verdict::Processing => format!(
            "Still being processed: its status is about generation {}, and it is at {}. The API server denies evictions until then.",
            explained.budget.status.observed_generation, explained.budget.generation
        ),
        Verdict::SelectsNothing => "It selects no pods, so it protects nothing.".to_owned(),
        Verdict::SyncFailed(why) => {
            format!("Evictions allowed: 0.   Its numbers cannot be calculated: {why}")
        }
        Verdict::Overlaps(others) => format!(
            "Its pods are selected by {} too, so the API server fails every eviction of them (500).",
            others.join(", ")
        ),
        Verdict::Ignored(why) => {
            format!(
                "Its selector cannot be read, so the API server ignores it, and it protects nothing. {why}"
            )
        }
    }
}

/// "3 pods of Deployment/api".
fn selects(members: &[Member<'_>]) -> String {
    let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
    for member in members {
        *owners.entry(&member.owner).or_default() += 1;
    }
    match owners.len() {
        0 => "selects no pods".to_owned(),
        1..=3 => {
            let owners: Vec<String> =
                owners.iter().map(|(owner, count)| format!("{} of {owner}", plural(*count, "pod"))).collect();
            format!("selects {}", owners.join(", "))
        }
        count => format!("selects {} of {count} owners", plural(members.len(), "pod")),
    }
}

/// One budget on a page.
pub fn page(explained: &Explained<'_>, paint: Paint) -> String {
    let budget = explained.budget;
    let tone = tone(&explained.verdict);
    let head = format!(
        "pdb/{}   {}   {}   unhealthyPodEvictionPolicy {}",
        budget.key,
        wants(budget),
        selects(&explained.members),
        budget.unhealthy.name()
    );
    let verdict = format!("{} {}", paint.mark(tone), sentence(explained));
    let mut text = format!("{}\n{}\n", clean::line(&head), paint.tone(tone, &clean::line(&verdict)));
    for note in &explained.notes {
        let _infallible = writeln!(text, "{} {}", paint.mark(Tone::Attention), clean::line(note));
    }
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    if !explained.members.is_empty() {
        let rows = explained.members.iter().map(|member| {
            let node = member.pod.node.as_deref().unwrap_or("-").to_owned();
            let cells = vec![
                member.pod.key.name.to_string(),
                node,
                yes(member.pod.ready),
                yes(member.counts),
                member.would.words(),
            ];
            (if member.would.goes() { Tone::Plain } else { Tone::Attention }, cells)
        });
        let rows: Vec<_> = rows.collect();
        text.push('\n');
        text.push_str(&paint.table(&["POD", "NODE", "READY", "COUNTS", "EVICTION WOULD"], &rows));
    }
    if !explained.ways.is_empty() {
        let rows: Vec<_> = explained
            .ways
            .iter()
            .map(|way| (Tone::Plain, vec![way.change.clone(), way.effect.clone()]))
            .collect();
        text.push('\n');
        text.push_str(&paint.table(&["WAYS OUT", "EFFECT"], &rows));
    }
    let held =
        explained.members.iter().filter(|member| !member.would.goes() && member.pod.deletion.is_none());
    let nodes: BTreeSet<&str> = held.filter_map(|member| member.pod.node.as_deref()).collect();
    if !nodes.is_empty() {
        let nodes: Vec<&str> = nodes.into_iter().collect();
        let _infallible = writeln!(text, "BLOCKS  drains of {}", clean::line(&nodes.join(", ")));
    }
    text
}

/// All of them.
pub fn table(all: &[Explained<'_>], unreadable: usize, paint: Paint) -> String {
    let rows: Vec<_> = all
        .iter()
        .map(|one| {
            let tone = tone(&one.verdict);
            let numbers = &one.arithmetic;
            let cells = vec![
                paint.mark(tone).to_owned(),
                one.budget.key.namespace.to_string(),
                one.budget.key.name.to_string(),
                wants(one.budget),
                one.members.len().to_string(),
                numbers.words(),
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
    for one in all.iter().filter(|one| one.verdict == Verdict::NoneNow && !one.unknown.is_empty()) {
        let mark = paint.mark(Tone::Attention);
        let why = one.unknown.join("; ");
        let line = format!("{mark} {}: it is not known whether it ever allows more: {why}", one.budget.key);
        let _infallible = writeln!(text, "{}", clean::line(&line));
    }
    if unreadable > 0 {
        let _infallible = writeln!(
            text,
            "{} {} cannot be read.",
            paint.mark(Tone::Bad),
            plural(unreadable, "further PodDisruptionBudget")
        );
    }
    text
}

/// The mark of a verdict.
pub const fn tone(verdict: &Verdict) -> Tone {
    match verdict {
        Verdict::Allows(_) => Tone::Good,
        Verdict::SelectsNothing | Verdict::NoneNow | Verdict::Processing => Tone::Attention,
        Verdict::Ignored(_) | Verdict::SyncFailed(_) | Verdict::Overlaps(_) | Verdict::Never => Tone::Bad,
    }
}
