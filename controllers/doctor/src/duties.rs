//! Whether some controller does what kube-controller-manager does by default: node lifecycle, the statuses of
//! PodDisruptionBudgets, eviction by taint. The checks read effects: flags cannot be read everywhere, and a controller
//! that runs may have no effect.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use pod_safety_explain::pluralize;
use pod_safety_process::registry::Name;
use pod_safety_shared::cache::View;
use pod_safety_shared::controller_loop::Mode;
use pod_safety_shared::model::{NOT_READY_TAINT, Node, Pod, Readiness, Taint, TolerationPeriod, UNREACHABLE_TAINT};
use serde_json::Value;

use super::{Health, Installation, Leader, Symptom, healthy, join_first, symptom};

/// Controllers of a healthy cluster need seconds.
const MINUTE: i64 = 60;

/// An eviction by taint that is this late counts as not done: a kube-controller-manager that restarts waits for the
/// usual toleration of five minutes once more.
const OVERDUE: Duration = Duration::from_secs(360);

/// The controllers that should do them.
#[derive(Clone, Copy, Debug)]
pub struct Duties<'a> {
    /// The mode of pod-safety; `None`: not known.
    pub mode: Option<Mode>,
    /// Its controllers.
    pub controllers: &'a [Name],
    /// The installation, for the commands in remedies.
    pub installation: &'a Installation,
}

impl Duties<'_> {
    /// The command after which some controller does it.
    pub(super) fn remedy(&self, name: Name) -> String {
        let kcm_name = name.kcm_names().first().copied().unwrap_or_default();
        let key: &str = name.into();
        match self.mode {
            Some(Mode::Replace) if self.controllers.contains(&name) => format!(
                "pod-safety does it in the mode replace. Its log says what keeps it from it: kubectl logs --namespace {} --selector app.kubernetes.io/name=pod-safety --tail=-1",
                self.installation.namespace()
            ),
            Some(Mode::Replace) => self.installation.helm_command(&format!("controllers.{key}.enabled=true")),
            Some(Mode::Guard | Mode::Observe) | None => format!(
                "remove -{kcm_name} from --controllers of kube-controller-manager, or have pod-safety do its work: {}",
                self.installation.helm_command("mode=replace")
            ),
        }
    }
}

/// Whether the taints of nodes that are Ready again are removed.
pub fn check_node_lifecycle(view: &View<'_>, wall: Timestamp, duties: Duties<'_>) -> Option<Symptom> {
    const CHECK: &str = "NodeLifecycle";
    let is_lost = |key: &str| [NOT_READY_TAINT, UNREACHABLE_TAINT].contains(&key);
    let keeps = |node: &&&Node| {
        let mut keys = node.no_schedule.iter().chain(node.no_execute.iter().map(|taint| &taint.key));
        let since = node.ready_since.unwrap_or(node.created).max(node.created);
        keys.any(|key| is_lost(key)) && wall.as_second().saturating_sub(since) > MINUTE
    };
    let ready: Vec<&Node> = view.nodes().filter(|node| node.readiness == Readiness::Ready).collect();
    let kept: Vec<&str> = ready.iter().filter(keeps).map(|node| &*node.name).collect();
    let all = ready.len();
    if kept.is_empty() {
        let what = format!("{} checked, none keeps the taint not-ready or unreachable", pluralize(all, "Ready node"));
        return (all > 0).then(|| healthy(CHECK, what));
    }
    Some(symptom(
        CHECK,
        Health::Problem,
        format!(
            "the taint node.kubernetes.io/not-ready or unreachable stays for more than a minute on {} of {}, and no controller removes it: {}",
            kept.len(),
            pluralize(all, "Ready node"),
            join_first(&kept)
        ),
        "no pod is scheduled there that does not tolerate the taint, and nodes that are lost may not be noticed either",
        duties.remedy(Name::NodeLifecycle),
    ))
}

/// Whether the statuses of PodDisruptionBudgets follow their specs, and which controllers write them.
pub fn check_budget_statuses(
    budgets: &[Value],
    leader: Option<&Leader>,
    wall: Timestamp,
    duties: Duties<'_>,
) -> Vec<Symptom> {
    const CHECK: &str = "PodDisruptionBudgets";
    let name = |one: &Value| {
        let text = |field: &str| one["metadata"][field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", text("namespace"), text("name"))
    };
    let behind: Vec<String> = budgets.iter().filter(|one| is_outdated(one, wall)).map(name).collect();
    if !behind.is_empty() {
        let names: Vec<&str> = behind.iter().map(String::as_str).collect();
        let what = format!(
            "no controller wrote the status of {} of {} for more than a minute: {}",
            behind.len(),
            pluralize(budgets.len(), "PodDisruptionBudget"),
            join_first(&names)
        );
        let why = "the API server denies every eviction that such a PodDisruptionBudget is about: drains do not end";
        return vec![symptom(CHECK, Health::Problem, what, why, duties.remedy(Name::Disruption))];
    }
    let writers = writers(budgets);
    let since = leader.and_then(|leader| leader.since).filter(|_| has_controller(duties, Name::Disruption));
    let rival = writers.iter().find(|(manager, (at, _))| {
        is_kcm(manager) && since.is_some_and(|since| at.as_second() - since.as_second() > MINUTE)
    });
    if let Some((manager, (_, of))) = rival {
        let what = format!("{manager} writes statuses too, since pod-safety leads in the mode replace: {of}");
        let remedy = "add -disruption-controller to --controllers of kube-controller-manager, or use the mode guard: ";
        return vec![symptom(
            CHECK,
            Health::Problem,
            what,
            "two controllers that write the same objects undo each other's work",
            format!("{remedy}{}", duties.installation.helm_command("mode=guard")),
        )];
    }
    let by: BTreeSet<&str> = writers.keys().map(String::as_str).collect();
    let by = match by.is_empty() {
        true => String::new(),
        false => format!(", by {}", by.into_iter().collect::<Vec<_>>().join(" and ")),
    };
    let what = format!("{} checked, each has its status{by}", pluralize(budgets.len(), "PodDisruptionBudget"));
    if budgets.is_empty() { Vec::new() } else { vec![healthy(CHECK, what)] }
}

pub(super) fn has_controller(duties: Duties<'_>, name: Name) -> bool {
    duties.mode == Some(Mode::Replace) && duties.controllers.contains(&name)
}

fn is_kcm(manager: &str) -> bool {
    manager == "kube-controller-manager"
}

/// Whether a status is older than a spec that is older than a minute. A controller that fails sets a condition.
fn is_outdated(budget: &Value, wall: Timestamp) -> bool {
    let (metadata, status) = (&budget["metadata"], &budget["status"]);
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    let failed = |condition: &Value| condition["reason"] == "SyncFailed";
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_spec = managed_fields(budget).filter(|entry| entry["subresource"].is_null());
    let times = of_spec.filter_map(|entry| time(&entry["time"]));
    let changed = times.chain(time(&metadata["creationTimestamp"])).max();
    number(&status["observedGeneration"]) < number(&metadata["generation"])
        && !conditions.iter().any(failed)
        && metadata["deletionTimestamp"].is_null()
        && changed.is_some_and(|at| wall.as_second() - at.as_second() > MINUTE)
}

fn managed_fields(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["managedFields"].as_array().into_iter().flatten()
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// The controllers that wrote their statuses, when last, and of which PodDisruptionBudget.
fn writers(budgets: &[Value]) -> BTreeMap<String, (Timestamp, String)> {
    let mut all = BTreeMap::new();
    for budget in budgets {
        for entry in managed_fields(budget).filter(|entry| entry["subresource"] == "status") {
            let (Some(manager), Some(at)) = (entry["manager"].as_str(), time(&entry["time"])) else {
                continue;
            };
            let text = |field: &str| budget["metadata"][field].as_str().unwrap_or_default();
            let of = || format!("{}/{}", text("namespace"), text("name"));
            let last = all.entry(manager.to_owned()).or_insert_with(|| (at, of()));
            if at > last.0 {
                *last = (at, of());
            }
        }
    }
    all
}

/// Whether a pod should have been evicted long ago, by the timestamps of the taint and of the pod. Not every taint has
/// a timestamp.
fn is_overdue(pod: &Pod, taint: &Taint, wall: Timestamp) -> bool {
    let span = match pod.tolerations.period_for(taint) {
        TolerationPeriod::NotTolerated => Duration::ZERO,
        TolerationPeriod::For(span) => span,
        TolerationPeriod::Forever | TolerationPeriod::Unreadable(_) => return false,
    };
    let span = i64::try_from((span + OVERDUE).as_secs()).unwrap_or(i64::MAX);
    let met = taint.time_added.map(|added| added.max(pod.bound_at).max(pod.created));
    met.is_some_and(|met| wall.as_second() > met.saturating_add(span))
}

/// Whether pods are evicted from nodes whose taints they do not tolerate. `None` where no node has such a taint.
pub fn check_taint_eviction(view: &View<'_>, wall: Timestamp, duties: Duties<'_>) -> Option<Symptom> {
    const CHECK: &str = "TaintEviction";
    let tainted: Vec<&Node> = view.nodes().filter(|node| !node.no_execute.is_empty()).collect();
    let mut overdue = Vec::new();
    for node in &tainted {
        let stays = view.pods_on(&node.name).filter(|pod| pod.deletion.is_none() && !pod.phase.is_terminal());
        let stays = stays.filter(|pod| node.no_execute.iter().any(|taint| is_overdue(pod, taint, wall)));
        overdue.extend(stays.map(|pod| format!("{}/{} on {}", pod.key.namespace, pod.key.name, node.name)));
    }
    if overdue.is_empty() {
        let what = format!("no pod is overdue on {} with a taint NoExecute", pluralize(tainted.len(), "node"));
        return (!tainted.is_empty()).then(|| healthy(CHECK, what));
    }
    let names: Vec<&str> = overdue.iter().map(String::as_str).collect();
    let what = format!(
        "{} not tolerate a taint NoExecute of their node any more, and no controller deletes them: {}",
        if overdue.len() == 1 { "1 pod does".to_owned() } else { format!("{} pods do", overdue.len()) },
        join_first(&names)
    );
    let why = "they stay on a node that is lost or out of service, and nothing starts in their place";
    Some(symptom(CHECK, Health::Problem, what, why, duties.remedy(Name::TaintEviction)))
}

#[cfg(test)]
mod tests;
