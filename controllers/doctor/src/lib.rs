//! What may be wrong with an installation.
//!
//! Duty: the checks of `pod-safety doctor`. Each reports what it found, why that matters, and the remedy.
//!
//! Inputs: what the command read of the cluster. Nothing is read here, so each check has a table of cases in its tests.
//!
//! Invariant: what could not be read is [`Health::Unknown`], never fine.
#![forbid(unsafe_code)]

/// The address of a page of the documentation: a user with the binary and the chart has no `docs`.
macro_rules! page {
    ($path:literal) => {
        concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/", $path)
    };
}

mod account;
mod agents;
mod deleters;
mod devices;
mod duties;
mod foreign_controllers;
mod kcm;
mod kinds;
mod simulation;

use std::time::Duration;

use jiff::Timestamp;
use pod_safety_explain::{Policies, Running, Trouble, format_duration, pluralize, str_at};
use pod_safety_process::registry::Name;
use pod_safety_shared::cache::View;
use pod_safety_shared::controller_loop::Mode;
use pod_safety_shared::model::{Budget, Readiness};
use serde::Serialize;
use serde_json::Value;

pub use account::{Accounts, Leader, check_rights};
pub use agents::check_agents;
pub use deleters::{Component, ObservedComponents};
pub use devices::check_devices;
pub use duties::{Duties, check_budget_statuses, check_node_lifecycle, check_taint_eviction};
pub use foreign_controllers::{ForeignControllers, Objects, paths_to_read};
pub use kcm::{Kcm, check_kcm};
pub use kinds::check_crds;
pub use pod_safety_explain::Installation;
pub use simulation::adapt_to_simulation;

/// The oldest and the newest minor version of Kubernetes that this version is tested with.
pub const MINORS: (u32, u32) = (32, 37);

/// The result of a check, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Health {
    /// As it should be.
    Fine,
    /// It could not be checked.
    Unknown,
    /// An operator should know it.
    Attention,
    /// It must be fixed.
    Problem,
}

/// The finding of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Symptom {
    /// The check, in CamelCase.
    pub check: &'static str,
    /// The result.
    pub health: Health,
    /// What was found.
    pub what: String,
    /// Why it matters.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub why: &'static str,
    /// What to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

fn healthy(check: &'static str, what: impl Into<String>) -> Symptom {
    Symptom { check, health: Health::Fine, what: what.into(), why: "", remedy: String::new() }
}

fn symptom(
    check: &'static str,
    health: Health,
    what: impl Into<String>,
    why: &'static str,
    remedy: impl Into<String>,
) -> Symptom {
    Symptom { check, health, what: what.into(), why, remedy: remedy.into() }
}

/// An unreadable object as a symptom.
pub fn unreadable(check: &'static str, what: impl Into<String>) -> Symptom {
    symptom(check, Health::Unknown, what, "", "")
}

/// A check that could not read what it needs.
pub fn not_checked(check: &'static str, why: &str) -> Symptom {
    unreadable(check, format!("not checked: {why}"))
}

/// Whether the API server is of a version that this program is tested with.
pub fn check_version(server: &str) -> Symptom {
    let minor = server.trim_start_matches('v').split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    let (oldest, newest) = MINORS;
    match minor {
        Some(minor) if (oldest..=newest).contains(&minor) => healthy("ServerVersion", format!("Kubernetes {server}")),
        Some(_) => symptom(
            "ServerVersion",
            Health::Attention,
            format!("Kubernetes {server}; this version is tested with 1.{oldest} to 1.{newest}"),
            "answers of other API servers to evictions and deletions were not tested",
            "use a version of pod-safety that is tested with it",
        ),
        None => not_checked("ServerVersion", "the API server does not report its version"),
    }
}

/// How far clocks may differ: certificates, Leases and operators tolerate that.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(5);

const SYNCHRONIZE: &str = "synchronize them by NTP";

/// A kubelet renews its Lease every ten seconds; a node counts as lost after fifty.
const LEASE_RENEWED_WITHIN: Duration = Duration::from_secs(60);

const CLOCKS_WHY: &str =
    "clock skew affects displayed times and how long confirmations are valid; no deletion depends on clocks";

/// Whether the clocks of the API server, of this machine and of the nodes agree.
pub fn check_clocks(
    view: &View<'_>,
    nodes_read: bool,
    server: Option<Timestamp>,
    wall: Timestamp,
    kcm: &Kcm,
    duties: Duties<'_>,
) -> Vec<Symptom> {
    let Some(server) = server else {
        return vec![not_checked("Clocks", "the API server does not report its time")];
    };
    let mut all = Vec::new();
    let apart = server.duration_since(wall);
    let size = Duration::try_from(apart.abs()).unwrap_or(Duration::MAX);
    if size > MAX_CLOCK_SKEW {
        let word = if apart.is_negative() { "behind" } else { "ahead of" };
        let what = format!("the API server's clock is {} {word} this machine's", format_duration(size));
        all.push(symptom("Clocks", Health::Problem, what, CLOCKS_WHY, "synchronize both by NTP"));
    }
    let (mut ahead, mut behind) = (Vec::new(), Vec::new());
    for node in view.nodes().filter(|node| node.readiness == Readiness::Ready) {
        let Some(renewed) = view.lease(&node.name).flatten() else { continue };
        let age = server.duration_since(renewed);
        if age < -jiff::SignedDuration::try_from(MAX_CLOCK_SKEW).unwrap_or_default() {
            ahead.push(&*node.name);
        } else if age > jiff::SignedDuration::try_from(LEASE_RENEWED_WITHIN).unwrap_or_default() {
            behind.push(&*node.name);
        }
    }
    if !ahead.is_empty() {
        let what = "renew their Leases in the future: their clocks are ahead";
        let what = format!("{} {what}: {}", pluralize(ahead.len(), "node"), join_first(&ahead));
        all.push(symptom("Clocks", Health::Problem, what, CLOCKS_WHY, SYNCHRONIZE));
    }
    if !behind.is_empty() {
        all.push(old_leases(&behind, kcm::lacks_node_lifecycle(kcm, duties, view, server), duties));
    }
    if !nodes_read {
        all.push(not_checked("Clocks", "the clocks of nodes, because nodes or their Leases could not be listed"));
    } else if all.is_empty() {
        all.push(healthy(
            "Clocks",
            format!("API server, this machine and nodes agree within {}", format_duration(MAX_CLOCK_SKEW)),
        ));
    }
    all
}

/// Ready nodes with old Leases. `lacks_lifecycle`: no controller does node lifecycle.
fn old_leases(nodes: &[&str], lacks_lifecycle: bool, duties: Duties<'_>) -> Symptom {
    let run = duties.remedy(Name::NodeLifecycle);
    let (cause, why, remedy) = match lacks_lifecycle {
        true => (
            "no controller does node lifecycle here, so nodes that stopped reporting stay Ready",
            "the pods of such a node are neither evicted nor replaced",
            run,
        ),
        false => (
            "their clocks are behind, no controller does node lifecycle here, or they stopped reporting just now",
            CLOCKS_WHY,
            format!("{SYNCHRONIZE}. If no controller does node lifecycle: {run}"),
        ),
    };
    let count = pluralize(nodes.len(), "node");
    let what = format!("{count} are Ready, and their Leases seem old: {cause}: {}", join_first(nodes));
    symptom("Clocks", Health::Problem, what, why, remedy)
}

/// Joins the first few names.
pub fn join_first(names: &[&str]) -> String {
    const MAX_NAMES: usize = 5;
    let first = names.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
    let rest = names.len().saturating_sub(MAX_NAMES);
    if rest == 0 { first } else { format!("{first} and {rest} more") }
}

/// An EvictionRequest of an earlier drain, which is still active or was not deleted.
pub fn abandoned_request(request: &Trouble) -> Symptom {
    const WHY: &str = "while it asks, its pod is evicted, also if nobody drains the node any more";
    let what = format!("{} {}", request.object, request.message);
    symptom("EvictionRequests", Health::Attention, what, WHY, &request.command)
}

/// Whether there is a leader, and a standby.
pub fn check_leader(running: &Running, wall: Timestamp, installation: &Installation) -> Symptom {
    const WHY: &str = "nothing is proved, fenced or force deleted without a leader";
    const LIST_PODS: &str = "see its pods: kubectl get pods -A -l app.kubernetes.io/name=pod-safety";
    if running.mode == Some(Mode::Observe) {
        const NOT_NEEDED: &str = "not needed in the mode observe";
        return match running.standbys > 0 || running.leader.is_some() {
            true => healthy("Leader", NOT_NEEDED),
            false => {
                let what = format!("{NOT_NEEDED}, and no replica is Ready");
                symptom("Leader", Health::Attention, what, "nothing is decided or reported", LIST_PODS)
            }
        };
    }
    match (&running.leader, running.lease_unread) {
        (_, true) => not_checked("Leader", "the lease could not be read"),
        (None, false) => {
            let what = running.stale.map_or("no leader".to_owned(), |at| {
                let ago = Duration::try_from(wall.duration_since(at)).unwrap_or_default();
                format!("no leader: the lease was last renewed {} ago", format_duration(ago))
            });
            symptom("Leader", Health::Problem, what, WHY, LIST_PODS)
        }
        (Some(leader), false) if running.standbys == 0 => symptom(
            "Leader",
            Health::Attention,
            match running.without_election {
                true => format!("{leader} acts: no leader election, one replica"),
                false => format!("{leader} leads, and no other replica is Ready"),
            },
            "when its node is lost, nothing acts until it is started elsewhere, and it never fences its own node",
            standby_remedy(running, installation),
        ),
        (Some(leader), false) => {
            let others = running.standbys;
            healthy("Leader", format!("{leader} leads, {}", pluralize(others, "standby")))
        }
    }
}

/// How to get a standby.
fn standby_remedy(running: &Running, installation: &Installation) -> String {
    match installation.replicas() {
        _ if running.without_election => installation.helm_command("leaderElection.enabled=true,replicaCount=2"),
        0 | 1 => installation.helm_command("replicaCount=2"),
        _ => {
            let kubectl = format!("kubectl -n {}", installation.namespace());
            format!(
                "see why the other is not Ready: {kubectl} get pods -l app.kubernetes.io/name=pod-safety; {kubectl} describe pod NAME"
            )
        }
    }
}

/// For this long, policies may only warn: a week has the jobs of every day in it, and shows which users would be denied
/// (docs/install.md).
const MAX_AUDIT_PERIOD: Duration = Duration::from_secs(7 * 24 * 3600);

/// What the admission policies do about force deletions.
pub fn check_admission_policies(
    policies: Policies,
    mode: Option<Mode>,
    wall: Timestamp,
    installation: &Installation,
) -> Symptom {
    const WHY: &str = "a force deletion by a person, a script or kube-controller-manager's own collector then starts a second \
        pod beside one that may still run";
    // The chart refuses Deny in the mode observe: nothing could remove pods of nodes that are gone.
    let guard = if mode == Some(Mode::Observe) { "mode=guard," } else { "" };
    let deny = format!("{guard}admissionPolicies.action=Deny");
    match policies {
        Policies::Deny => healthy("AdmissionPolicies", "unproved force deletions are denied"),
        Policies::Audit { since } => {
            let what = "unproved force deletions only cause a warning (Audit)";
            let on_trial = since.map(|since| Duration::try_from(wall.duration_since(since)).unwrap_or_default());
            let (health, what) = match on_trial {
                Some(trial) if trial < MAX_AUDIT_PERIOD => {
                    (Health::Attention, format!("{what}, for {} now: after a week, deny them", format_duration(trial)))
                }
                Some(trial) => (Health::Problem, format!("{what}, for {} now", format_duration(trial))),
                None => (Health::Problem, what.to_owned()),
            };
            symptom("AdmissionPolicies", health, what, WHY, installation.helm_command(&deny))
        }
        Policies::Absent => {
            let first = if installation.is_absent() { "install it first, with" } else { "begin with" };
            let audit = installation.helm_command("admissionPolicies.action=Audit");
            let remedy = format!("{first} policies that warn: {audit}; after a week {deny}");
            symptom("AdmissionPolicies", Health::Problem, "no policy denies unproved force deletions", WHY, remedy)
        }
        Policies::Unread => not_checked("AdmissionPolicies", "the bindings of admission policies could not be listed"),
    }
}

/// StatefulSets whose pods have no termination grace period.
pub fn check_grace_periods(sets: &[Value]) -> Symptom {
    let is_zero = |set: &&Value| {
        set.pointer("/spec/template/spec/terminationGracePeriodSeconds").and_then(Value::as_i64) == Some(0)
    };
    let names: Vec<String> = sets
        .iter()
        .filter(is_zero)
        .map(|set| format!("{}/{}", str_at(set, "/metadata/namespace"), str_at(set, "/metadata/name")))
        .collect();
    if names.is_empty() {
        let sets = pluralize(sets.len(), "StatefulSet");
        return healthy("GracePeriods", format!("{sets} checked, none with terminationGracePeriodSeconds 0"));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    symptom(
        "GracePeriods",
        Health::Problem,
        format!("StatefulSets with terminationGracePeriodSeconds 0: {}", join_first(&names)),
        "every deletion of their pods is a force deletion: a second copy may start beside the first",
        "set it to at least 1",
    )
}

/// PodDisruptionBudgets that never allow an eviction.
pub fn check_budgets(never: &[&Budget]) -> Symptom {
    if never.is_empty() {
        return healthy("PodDisruptionBudgets", "none blocks permanently");
    }
    let names: Vec<String> = never.iter().map(|budget| budget.key.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let what = format!("never allow an eviction: {}", join_first(&names));
    symptom(
        "PodDisruptionBudgets",
        Health::Attention,
        what,
        "drains of their nodes wait until that changes",
        "pod-safety explain pdb shows the ways out",
    )
}

#[cfg(test)]
mod tests;
