//! Plans of drains, for operators and for programs, and the progress of a drain (`live`).

mod live;
mod requests;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use pod_safety_drain::{Action, Place, Plan, Row, Summary};
use pod_safety_explain::pluralize;
use pod_safety_process::sanitize;
use pod_safety_shared::authority::AccessRight;
use pod_safety_shared::client::Target;
use pod_safety_shared::model::BudgetKey;
use serde::Serialize;

use crate::{API_VERSION, Paint, Tone};

pub use live::ProgressOutput;
pub use requests::describe_withdrawn;
use requests::{RequestItem, describe_requests};

/// A plan for programs. Enums are serialised by name. Messages may change, fields may not.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    cluster: &'a Target,
    node: String,
    node_ready: bool,
    /// `Clear`, or `Blocked`: then an operator must act, or wait.
    verdict: &'static str,
    unreadable_pods: usize,
    /// The rights that the user does not have, so that the plan is incomplete.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_rights: Vec<String>,
    pods: Vec<PodItem>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PodItem {
    namespace: String,
    name: String,
    uid: String,
    owner: String,
    action: &'static str,
    reason: &'static str,
    message: String,
    /// `DryRun`: the API server's answer to a dry run. `Listed`: the objects as they were read.
    rests_on: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    grace_period_seconds: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    loses: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dry_run: Option<DryRunItem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goes_to: Option<PlaceItem>,
    /// Its replacement may be scheduled to the node: it tolerates the cordon.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    may_come_back: bool,
    /// How its eviction is requested, where the API server has EvictionRequests.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<RequestItem>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DryRunItem {
    passed: bool,
    reason: &'static str,
    message: String,
}

/// The result of the fit check, which is a simple check.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PlaceItem {
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    reason: &'static str,
    message: String,
}

/// Plans for several nodes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct List<'a> {
    api_version: &'static str,
    kind: &'static str,
    cluster: &'a Target,
    items: Vec<Document<'a>>,
}

impl<'a> List<'a> {
    /// The plans of one command.
    #[must_use]
    pub fn from_plans(plans: &[Plan], missing: &[AccessRight], cluster: &'a Target) -> Self {
        let items = plans.iter().map(|plan| Document::from_plan(plan, missing, cluster)).collect();
        Self { api_version: API_VERSION, kind: "DrainPlanList", cluster, items }
    }
}

impl<'a> Document<'a> {
    /// One plan.
    #[must_use]
    pub fn from_plan(plan: &Plan, missing: &[AccessRight], cluster: &'a Target) -> Self {
        Self {
            api_version: API_VERSION,
            kind: "DrainPlan",
            cluster,
            node: plan.node.clone(),
            node_ready: plan.node_ready,
            verdict: if plan.is_clear() { "Clear" } else { "Blocked" },
            unreadable_pods: plan.unreadable,
            missing_rights: missing.iter().map(ToString::to_string).collect(),
            pods: plan.rows.iter().map(|row| PodItem::from_row(row, plan.requests)).collect(),
        }
    }
}

impl PodItem {
    fn from_row(row: &Row, requests: bool) -> Self {
        Self {
            namespace: row.pod.namespace.to_string(),
            name: row.pod.name.to_string(),
            uid: row.pod.uid.to_string(),
            owner: row.owner.clone(),
            action: row.action.name(),
            reason: row.reason,
            message: row.message.clone(),
            rests_on: if row.dry_run.is_some() { "DryRun" } else { "Listed" },
            budget: row.budget.as_ref().map(ToString::to_string),
            step: row.step,
            after: row.after.as_ref().map(ToString::to_string),
            grace_period_seconds: row.grace,
            loses: row.loses,
            dry_run: row.dry_run.as_ref().map(|answer| DryRunItem {
                passed: answer.passed,
                reason: answer.reason,
                message: answer.message.clone(),
            }),
            goes_to: row.place.as_ref().map(PlaceItem::from_place),
            may_come_back: row.may_come_back,
            request: (requests && row.is_attempted()).then(|| RequestItem::from_method(&row.method)),
        }
    }
}

impl PlaceItem {
    fn from_place(place: &Place) -> Self {
        let (node, reason, message) = match place {
            Place::Node { name, unchecked: false } => (Some(name.clone()), "Fits", String::new()),
            Place::Node { name, unchecked: true } => (Some(name.clone()), "FitsPerhaps", NOT_CHECKED.to_owned()),
            Place::Nowhere(why) => (None, "FitsNowhere", why.clone()),
            Place::SameNode => (None, "ComesBack", COMES_BACK.to_owned()),
            Place::NotRecreated => (None, "NotMadeAgain", "nothing recreates it".to_owned()),
        };
        Self { node, reason, message }
    }
}

const COMES_BACK: &str = "it tolerates the cordon, and fits on no other node";

const NOT_CHECKED: &str = "has affinity, spread or volumes, which were not checked";

/// "9 now, 2 after one another, 1 blocked, 2 stay".
#[must_use]
pub fn summary(summary: &Summary) -> String {
    let Summary { now, later, nowhere, back, waiting_for_budget: waiting, blocked, unsafe_, ending, staying } = summary;
    let parts = [
        (now, "now"),
        (later, "one after another"),
        (nowhere, if *nowhere == 1 { "fits on no other node" } else { "fit on no other node" }),
        (back, if *back == 1 { "comes back" } else { "come back" }),
        (waiting, "waiting"),
        (blocked, "blocked"),
        (unsafe_, "refused for safety"),
        (ending, "terminating already"),
        (staying, "staying"),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|(count, _)| **count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    parts.join(", ")
}

fn row_cells(row: &Row, paint: Paint) -> (Tone, Vec<String>) {
    let lost =
        row.loses.is_some() || row.may_come_back || matches!(row.place, Some(Place::Nowhere(_) | Place::NotRecreated));
    let tone = match row.action {
        Action::Evict if lost => Tone::Attention,
        Action::Evict => Tone::Good,
        Action::Wait | Action::Ending => Tone::Attention,
        Action::Blocked | Action::NeedsConsent | Action::Unsafe => Tone::Bad,
        Action::Stay => Tone::Plain,
    };
    let step = match (row.step, tone) {
        (Some(step), Tone::Attention) => format!("{step} {}", paint.mark(tone)),
        (Some(step), _) => step.to_string(),
        (None, _) => paint.mark(tone).to_owned(),
    };
    let mut why = row.message.clone();
    if let Some(after) = &row.after {
        let _infallible = write!(why, ", after {after} is replaced");
    }
    if row.may_come_back {
        why.push_str("; tolerates the cordon, so its successor may come back");
    }
    if let Some(lost) = row.loses {
        let _infallible = write!(why, "; {lost}");
    }
    let place = match &row.place {
        Some(Place::Node { name, unchecked: unseen }) => format!("{name}{}", if *unseen { "?" } else { "" }),
        Some(Place::Nowhere(why)) => format!("nowhere ({why})"),
        Some(Place::NotRecreated) => "not recreated".to_owned(),
        Some(Place::SameNode) => "back here".to_owned(),
        None => "-".to_owned(),
    };
    let grace = if row.grace > 0 { format!("{}s", row.grace) } else { "-".to_owned() };
    let by = if row.dry_run.is_some() { "dry run" } else { "listed" };
    (tone, vec![step, row.pod.to_string(), why, by.to_owned(), place, grace])
}

/// The plan as a table.
#[must_use]
pub fn table(rows: &[Row], paint: Paint) -> String {
    let rows: Vec<_> = rows.iter().map(|row| row_cells(row, paint)).collect();
    paint.table(&["STEP", "POD", "WHY", "BY", "GOES TO", "GRACE"], &rows)
}

/// The plans as a page.
#[must_use]
pub fn page(plans: &[Plan], missing: &[AccessRight], next: &str, paint: Paint) -> String {
    let mut text = plans.iter().map(|plan| plan_page(plan, paint)).collect::<Vec<_>>().join("\n");
    if !missing.is_empty() {
        let lacking = describe_missing_rights(missing);
        let line = format!("The plan rests on what you may read: {lacking}.");
        text.push_str(&paint.with_mark(Tone::Attention, &line));
    }
    let rows = || plans.iter().flat_map(|plan| &plan.rows);
    let mut notes = String::new();
    if rows().next().is_some() {
        notes.push_str("\nBY: \"dry run\" is the API server's own answer, \"listed\" is calculated from its objects. ");
        notes.push_str("GOES TO is a fit check of requests, labels and taints");
        let unseen = |row: &Row| matches!(row.place, Some(Place::Node { unchecked: true, .. }));
        notes.push_str(if rows().any(unseen) { "; \"?\" " } else { ".\n" });
        if rows().any(unseen) {
            let _infallible = writeln!(notes, "{NOT_CHECKED}.");
        }
    }
    let _infallible = writeln!(notes, "\nNothing was changed. {next}");
    text + &paint.wrap_page(&notes)
}

fn plan_page(plan: &Plan, paint: Paint) -> String {
    let node = sanitize::line(&plan.node);
    let mut text = match plan.rows.len() {
        0 => format!("Plan for {node}: no pod is on it.\n"),
        count => format!("Plan for {node}: {}.   {}.\n", pluralize(count, "pod"), summary(&plan.summarize())),
    };
    if !plan.node_ready {
        let line = format!(
            "{node} is not Ready: evicted pods stay Terminating until its kubelet reports that they terminated."
        );
        text.push_str(&paint.with_mark(Tone::Attention, &line));
    }
    if plan.unreadable > 0 {
        let many = pluralize(plan.unreadable, "pod");
        let line = format!("{many} of this cluster cannot be read, and may be on this node.");
        text.push_str(&paint.with_mark(Tone::Bad, &line));
    }
    if !plan.rows.is_empty() {
        text.push('\n');
        text.push_str(&table(&plan.rows, paint));
        text.push_str(&describe_requests(plan, paint));
    }
    text
}

/// The missing rights, in one sentence.
#[must_use]
pub fn describe_missing_rights(rights: &[AccessRight]) -> String {
    let names: Vec<String> = rights.iter().map(ToString::to_string).collect();
    format!("you may not {}", names.join(", "))
}

/// The next command, with --apply.
#[must_use]
pub fn describe_next(plans: &[Plan]) -> String {
    let stops: Vec<&Plan> = plans.iter().filter(|plan| plan.must_not_start(false)).collect();
    let first = if !stops.is_empty() {
        describe_start(&stops, "add --apply", "--apply --try-anyway")
    } else if rows_of(plans).all(|row| row.action == Action::Stay) {
        return "No pod has to go. --apply only cordons.".to_owned();
    } else {
        format!("{}To do it: add --apply", describe_no_place(plans, "--apply"))
    };
    first + &describe_waits(rows_of(plans))
}

/// The next command where the plan is that of `maintain --dry-run`.
#[must_use]
pub fn describe_next_maintenance(plan: &Plan) -> String {
    const REAL: &str = "leave out --dry-run, add --reason TEXT";
    let (plans, of) = (std::slice::from_ref(plan), std::iter::once(plan));
    let first = if plan.must_not_start(false) {
        describe_start(&of.collect::<Vec<_>>(), REAL, "drain --apply --try-anyway")
    } else {
        format!("{}To do it: {REAL}", describe_no_place(plans, "the drain"))
    };
    first + &describe_waits(rows_of(plans))
}

/// Why --apply has not started, and the next command.
#[must_use]
pub fn describe_not_started(stops: &[&Plan]) -> String {
    format!(
        "Nothing was changed: no node was cordoned. {}\n",
        describe_start(stops, "repeat the command", "--try-anyway")
    )
}

fn rows_of(plans: &[Plan]) -> impl Iterator<Item = &Row> + Clone {
    plans.iter().flat_map(|plan| &plan.rows)
}

/// What an operator has to decide before anything is changed.
fn describe_start(stops: &[&Plan], begin: &str, anyway: &str) -> String {
    let needs_consent: Vec<&Row> =
        stops.iter().flat_map(|plan| &plan.rows).filter(|row| row.action == Action::NeedsConsent).collect();
    if needs_consent.is_empty() {
        let why = if stops.iter().any(|plan| plan.unreadable > 0) {
            "Pods that cannot be read may be there"
        } else {
            "No pod may be evicted for safety: WHY says what is wrong"
        };
        return format!("{why}. To cordon, and evict what can go: {anyway}");
    }
    let mut text = format!("To do it: {begin} with a flag for each pod that needs your decision:");
    for (flag, what) in [
        (Some("--evict-unmanaged"), "evicts what would not come back"),
        (Some("--delete-emptydir-data"), "evicts what loses its data"),
        (None, ""),
    ] {
        let of_flag = |row: &&&Row| flag.map_or(row.reason == "Unreadable", |flag| row.message.contains(flag));
        let skips = skip_flags(needs_consent.iter().filter(of_flag).copied());
        match flag {
            _ if skips.is_empty() => {}
            Some(flag) => {
                let _infallible = write!(text, "\n  {flag} {what}, or leave it: {skips}");
            }
            None => {
                let _infallible = write!(text, "\n  {skips}");
            }
        }
    }
    text
}

/// The advice to wait for what blocks, and what helps.
fn describe_waits<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> String {
    let of = |action: Action| rows.clone().filter(move |row| row.action == action);
    let mut text = String::new();
    for (action, what) in [
        (Action::Blocked, "What is blocked is tried until somebody changes what blocks it"),
        (Action::Unsafe, "What is refused for safety stays, and the exit code is 4"),
    ] {
        let skips = skip_flags(of(action));
        if !skips.is_empty() {
            let _infallible = write!(text, "\n{what}. To leave it out: {skips}");
        }
    }
    text + &describe_remedies(of(Action::Blocked))
}

/// What happens to pods that fit on no other node, if there are any.
fn describe_no_place(plans: &[Plan], evicts: &str) -> String {
    match plans.iter().map(|plan| plan.summarize().nowhere).sum() {
        0 => String::new(),
        count => format!(
            "{} would be Pending after {evicts} until there is room (GOES TO says why): kubectl get nodes shows which are cordoned. ",
            pluralize(count, "pod")
        ),
    }
}

/// The flags that skip these pods.
fn skip_flags<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let skips: Vec<String> = rows.map(|row| format!("--skip {}", row.pod)).collect();
    skips.join(" ")
}

fn describe_remedies<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let budgets: BTreeSet<_> = rows.filter_map(|row| row.budget.as_ref()).collect();
    let remedy =
        |budget: &BudgetKey| format!("\nWays out: pod-safety explain pdb -n {} {}", budget.namespace, budget.name);
    budgets.into_iter().map(remedy).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pod_safety_drain::{Cluster, Consent, Needs, Withdrawn, place, plan};
    use pod_safety_shared::authority::Evicted;
    use pod_safety_shared::model::{Kind, Uid};
    use pod_safety_shared::testing::{World, at};
    use pod_safety_shared::wire;
    use serde_json::json;

    use super::*;

    fn planned() -> Plan {
        let world = World::listed();
        let owner = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "uid-db", "controller": true }]);
        for (name, owners) in [("db-0", owner), ("naked", json!([]))] {
            let pod = json!({ "metadata": { "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
                "ownerReferences": owners }, "spec": { "nodeName": "n" }, "status": { "phase": "Running" } });
            world.apply(Kind::Pods, &pod, at(0));
        }
        let needs: BTreeMap<Uid, Needs> = ["uid-db-0", "uid-naked"]
            .iter()
            .filter_map(|uid| Some((Uid::new(uid)?, Needs::from_pod(wire::PodNeeds::default()))))
            .collect();
        let guard = world.read();
        let cluster = Cluster {
            view: guard.view(),
            needs: &needs,
            capacities: &[],
            daemon_sets: &BTreeMap::new(),
            budgets_unread: false,
            now: at(60),
        };
        let mut plan = plan("n", &cluster, &Consent::default());
        plan.record_dry_run(0, &Ok(Evicted::Terminates { grace: 30 }));
        place(std::slice::from_mut(&mut plan), &cluster);
        plan
    }

    #[test]
    fn a_page_has_the_source_of_each_line_and_the_next_command() {
        assert_eq!(
            page(&[planned()], &[], &describe_next(&[planned()]), Paint::plain()),
            "Plan for n: 2 pods.   1 fits on no other node, 1 blocked.
! n is not Ready: evicted pods stay Terminating until its kubelet reports that they terminated.

STEP  POD       WHY                                                                           BY       GOES TO                           GRACE
1 !   ns/db-0   no PodDisruptionBudget                                                        dry run  nowhere (there is no other node)  30s
✖     ns/naked  it has no controller, so it would not come back: --evict-unmanaged or --skip  listed   -                                 30s

BY: \"dry run\" is the API server's own answer, \"listed\" is calculated from its objects. GOES TO is a fit check of requests, labels and taints.

Nothing was changed. To do it: add --apply with a flag for each pod that needs your decision:
  --evict-unmanaged evicts what would not come back, or leave it: --skip ns/naked
"
        );
    }

    #[test]
    fn missing_rights_are_named_in_one_line() {
        let missing = [pod_safety_drain::right("list", "nodes"), pod_safety_drain::right("get", "daemonsets")];
        let text = page(&[planned()], &missing, "", Paint::plain());
        assert!(
            text.contains("! The plan rests on what you may read: you may not list nodes, get daemonsets.\n"),
            "{text}"
        );
    }

    #[test]
    fn withdrawn_requests_that_no_controller_recorded_are_counted() {
        let text = describe_withdrawn(&Withdrawn { pods: ["a", "b"].map(str::to_owned).into(), unrecorded: 1 });
        assert!(text.starts_with("2 EvictionRequests") && text.contains("recorded that of 1 within 30s"), "{text}");
    }

    #[test]
    fn documents_have_enum_names_and_no_empty_fields() {
        let document = serde_json::to_value(Document::from_plan(&planned(), &[], &Target::default())).unwrap();
        assert_eq!(document["kind"], "DrainPlan");
        assert_eq!(document["verdict"], "Blocked");
        assert_eq!(
            document["pods"][0],
            json!({ "namespace": "ns", "name": "db-0", "uid": "uid-db-0", "owner": "StatefulSet/db", "action": "Evict",
                "reason": "NoBudget", "message": "no PodDisruptionBudget", "restsOn": "DryRun", "step": 1, "gracePeriodSeconds": 30,
                "dryRun": { "passed": true, "reason": "WouldEvict", "message": "" },
                "goesTo": { "reason": "FitsNowhere", "message": "there is no other node" } })
        );
    }
}
