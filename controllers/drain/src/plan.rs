//! The plan: what happens to every pod of a node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pod_safety_explain::{
    Arithmetic, BudgetVerdict, EvictionAnswer, RefusalCause, explain_budget, owner_of, predict_eviction,
};
use pod_safety_shared::authority::{Evicted, NotEvicted};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::model::{Budget, BudgetKey, Kind, Pod, PodKey, RESPONDER_HEARTBEAT_DEADLINE, Readiness, Uid};
use pod_safety_shared::record::error_chain;

use super::action::{Action, Consent};
use super::cluster::{Cluster, DaemonSet};
use super::exceptions::find_exception;
use super::fit::{ClusterCapacity, Needs, Place};

/// The API server's answer to the dry run of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRun {
    /// It would allow the eviction.
    pub passed: bool,
    /// The reason in CamelCase.
    pub reason: &'static str,
    /// The message; empty if it passed.
    pub message: String,
}

/// The plan for one pod.
#[derive(Clone, Debug)]
pub struct Row {
    /// The pod.
    pub pod: PodKey,
    /// What manages it.
    pub owner: String,
    /// What happens to it.
    pub action: Action,
    /// The reason in CamelCase.
    pub reason: &'static str,
    /// The reason as a sentence.
    pub message: String,
    /// The budget that counts it.
    pub budget: Option<BudgetKey>,
    /// The turn in which it is evicted; pods of one turn are evicted together.
    pub step: Option<u32>,
    /// The pod after which it is evicted, because one budget counts both.
    pub after: Option<Arc<str>>,
    /// Its termination grace period in seconds.
    pub grace: i64,
    /// What is lost with it.
    pub loses: Option<&'static str>,
    /// The API server's answer to the dry run, if there was one.
    pub dry_run: Option<DryRun>,
    /// Where its replacement would be scheduled, if it is evicted.
    pub place: Option<Place>,
    /// Its replacement may be scheduled to the drained node, because it tolerates the cordon.
    pub may_come_back: bool,
    /// How its eviction can be requested.
    pub method: EvictionMethod,
}

/// How an eviction can be requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionMethod {
    /// By an EvictionRequest, with these responders before the evictor, in this order.
    Request(Vec<String>),
    /// By `pods/eviction` only; the reason.
    Direct(&'static str),
}

impl EvictionMethod {
    /// The responders of a pod, if its eviction can be requested.
    #[must_use]
    pub fn responders(&self) -> &[String] {
        match self {
            Self::Request(responders) => responders,
            Self::Direct(_) => &[],
        }
    }

    /// For how long they may not report, all together.
    #[must_use]
    pub fn worst_wait(&self) -> Duration {
        RESPONDER_HEARTBEAT_DEADLINE * u32::try_from(self.responders().len()).unwrap_or(u32::MAX)
    }
}

/// What happens to the pods of a node.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The node.
    pub node: String,
    /// Its kubelet reports that the node is Ready. Otherwise pods that are deleted gracefully do not terminate, because
    /// no kubelet reports it.
    pub node_ready: bool,
    /// Its pods: those to evict by turns, then the others.
    pub rows: Vec<Row>,
    /// Pods of the cluster that cannot be decoded: they may be on this node.
    pub unreadable: usize,
    /// Evictions are requested first, because the API server has EvictionRequests.
    pub requests: bool,
    /// How much the budgets allow now, and with every pod healthy.
    allows: BTreeMap<BudgetKey, (i32, i32)>,
}

/// How many pods there are of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Evicted at once.
    pub now: usize,
    /// Evicted after others.
    pub later: usize,
    /// Could be evicted, and fit on no other node.
    pub nowhere: usize,
    /// Could be evicted, fit on no other node, and are scheduled to this node again.
    pub back: usize,
    /// Wait for a budget.
    pub waiting_for_budget: usize,
    /// Not evicted.
    pub blocked: usize,
    /// Must not be evicted.
    pub unsafe_: usize,
    /// Terminating already.
    pub ending: usize,
    /// Stay.
    pub staying: usize,
}

/// Makes the plan, before dry runs.
#[must_use]
pub fn plan(node: &str, cluster: &Cluster<'_>, consent: &Consent) -> Plan {
    let mut pods: Vec<&Pod> = cluster.view.pods_on(node).collect();
    pods.sort_by(|one, other| one.key.cmp(&other.key));
    let (_, unreadable) = cluster.view.count(Kind::Pods);
    let node_ready = matches!(cluster.view.node(node), Lookup::Known(known) if known.readiness == Readiness::Ready);
    let (rows, allows) = (Vec::new(), BTreeMap::new());
    let mut plan = Plan { node: node.to_owned(), node_ready, rows, unreadable, requests: false, allows };
    for pod in pods {
        let row = plan.build_row(pod, cluster, consent);
        plan.rows.push(row);
    }
    plan.sort_by_turn();
    plan
}

/// Finds where the pods of nodes that are drained together would fit: all of the nodes are cordoned before the first
/// pod is evicted.
pub fn place(plans: &mut [Plan], cluster: &Cluster<'_>) {
    let nodes: BTreeSet<&str> = plans.iter().map(|plan| &*plan.node).collect();
    let mut rooms = ClusterCapacity::excluding(&nodes, cluster.capacities, cluster.needs, &cluster.view);
    for plan in plans {
        plan.place_rows(&mut rooms, cluster);
    }
}

impl Plan {
    fn build_row(&mut self, pod: &Pod, cluster: &Cluster<'_>, consent: &Consent) -> Row {
        let needs = cluster.needs.get(pod.uid());
        let mut row = Row {
            pod: pod.key.clone(),
            owner: owner_of(pod, &cluster.view),
            action: Action::Evict,
            reason: "NoBudget",
            message: "no PodDisruptionBudget".to_owned(),
            budget: None,
            step: None,
            after: None,
            grace: needs.map_or(0, |needs| needs.grace),
            loses: None,
            dry_run: None,
            place: None,
            may_come_back: false,
            method: eviction_method(pod, needs),
        };
        if let Some((action, reason, why)) = find_exception(pod, cluster, consent, &row.owner) {
            (row.action, row.reason, row.message) = (action, reason, why);
            return row;
        }
        if needs.is_some_and(|needs| needs.empty_dir) {
            row.loses = Some("emptyDir data is lost");
        }
        if cluster.budgets_unread {
            row.reason = "BudgetsUnread";
            "which PodDisruptionBudgets select it is not known".clone_into(&mut row.message);
            return row;
        }
        let answer = predict_eviction(pod, cluster.view.budgets_of_pod(pod));
        (row.reason, row.message) = (answer.reason(), answer.describe());
        match answer {
            EvictionAnswer::Unguarded(_) => row.message = row.message.trim_start_matches("be allowed: ").to_owned(),
            EvictionAnswer::AllowUncounted(budget, _) => {
                let message = row.message.trim_start_matches("be allowed: ").to_owned();
                row.message = format!("pdb {}: {message}", budget.key.name);
            }
            EvictionAnswer::Allow(budget) => self.apply_budget(&mut row, budget, None, cluster),
            EvictionAnswer::Refuse(budget, why) => self.apply_budget(&mut row, budget, Some(why), cluster),
            EvictionAnswer::Fail(budgets) => {
                let names: Vec<&str> = budgets.iter().map(|budget| &*budget.key.name).collect();
                row.action = Action::Blocked;
                row.message =
                    format!("pdbs {} select it: the API server evicts no pod with several PDBs", names.join(" and "));
            }
            EvictionAnswer::AlreadyTerminating | EvictionAnswer::AlreadyFinished => row.action = Action::Stay,
        }
        row
    }

    /// The plan for a pod that one budget counts.
    fn apply_budget(&mut self, row: &mut Row, budget: &Budget, refused: Option<RefusalCause>, cluster: &Cluster<'_>) {
        let explained = explain_budget(budget, &cluster.view, cluster.now);
        let numbers = explained.arithmetic;
        let name = &budget.key.name;
        let sum = numbers.describe();
        let ceiling = numbers.ceiling.unwrap_or(1);
        self.allows.insert(budget.key.clone(), (numbers.allowed.max(0), ceiling));
        row.budget = Some(budget.key.clone());
        let never = explained.verdict == BudgetVerdict::Never;
        (row.action, row.message) = match refused {
            None => (Action::Evict, format!("pdb {name}: {sum} {}", describe_rate(&numbers))),
            Some(RefusalCause::Insufficient) if never => {
                row.reason = "DisruptionsNeverAllowed";
                (Action::Blocked, format!("pdb {name}: {sum}, never more while {}", explained.limit()))
            }
            Some(RefusalCause::Insufficient) => {
                let ever =
                    explained.unknown.first().map(|why| format!("; whether it ever allows one is not known: {why}"));
                (Action::Wait, format!("pdb {name}: {sum}, none now{}", ever.unwrap_or_default()))
            }
            Some(RefusalCause::Processing) if let BudgetVerdict::SyncFailed(why) = &explained.verdict => {
                row.reason = "BudgetSyncFailed";
                (Action::Blocked, format!("pdb {name} failed to sync: {why}"))
            }
            Some(RefusalCause::Processing) => {
                (Action::Wait, format!("pdb {name} is still being processed: its status is older than its last change"))
            }
            Some(RefusalCause::SyncFailed(why)) => (Action::Blocked, format!("pdb {name} failed to sync: {why}")),
            Some(RefusalCause::Negative) => {
                (Action::Blocked, format!("pdb {name} allows a negative number of evictions: {}", numbers.allowed))
            }
            Some(RefusalCause::TooManyDisrupted) => {
                (Action::Wait, format!("pdb {name}: too many evictions wait in its status"))
            }
        };
    }

    /// The pods whose eviction is to be tried as a dry run.
    pub fn dry_run_candidates(&self) -> impl Iterator<Item = (usize, &PodKey)> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, row)| row.is_attempted()).map(|(index, row)| (index, &row.pod))
    }

    /// Records the API server's answer to a dry run. It takes precedence over the listed objects.
    pub fn record_dry_run(&mut self, index: usize, answer: &Result<Evicted, NotEvicted>) {
        let Some(row) = self.rows.get_mut(index) else { return };
        let message = answer.as_ref().err().map(|error| error_chain(error)).unwrap_or_default();
        let (action, reason) = match answer {
            Ok(Evicted::Terminates { grace }) => {
                row.grace = *grace;
                (Action::Evict, "WouldEvict")
            }
            Ok(Evicted::AlreadyTerminating) => (Action::Ending, "Terminating"),
            Ok(Evicted::Gone | Evicted::Replaced) => (Action::Stay, "Gone"),
            Ok(Evicted::Finished) => (Action::Stay, "Finished"),
            // An eviction that a budget never allows is refused with the same message as one that must wait.
            Err(why @ (NotEvicted::Blocked { .. } | NotEvicted::Processing { .. }))
                if row.action == Action::Blocked =>
            {
                (Action::Blocked, why.reason())
            }
            Err(why @ NotEvicted::Unsafe) => (Action::Unsafe, why.reason()),
            Err(why) if why.retry_delay().is_some() => (Action::Wait, why.reason()),
            Err(why) => (Action::Blocked, why.reason()),
        };
        if action != row.action {
            // The statuses that were listed differ: the newer answer takes precedence.
            row.reason = reason;
            row.message = match answer {
                Ok(Evicted::Terminates { .. }) => "the API server would allow it now".to_owned(),
                Ok(_) => "it is gone meanwhile".to_owned(),
                Err(_) => message.clone(),
            };
        }
        row.action = action;
        row.dry_run = Some(DryRun { passed: answer.is_ok(), reason, message });
    }

    /// Sets turns, and sorts by them.
    pub fn sort_by_turn(&mut self) {
        let mut turns: BTreeMap<&BudgetKey, (i32, Arc<str>)> = BTreeMap::new();
        for row in &mut self.rows {
            (row.step, row.after) = (None, None);
            if row.action != Action::Evict {
                continue;
            }
            row.step = Some(1);
            let Some((key, (now, ceiling))) = row.budget.as_ref().and_then(|key| self.allows.get_key_value(key)) else {
                continue;
            };
            let before = turns.get(key).map(|(count, last)| (*count, Arc::clone(last)));
            let count = before.as_ref().map_or(0, |(count, _)| *count);
            turns.insert(key, (count + 1, Arc::clone(&row.pod.name)));
            // The dry run of one of them passed, although the listed status allows none.
            let now = (*now).max(1);
            if count >= now {
                let later = (count - now) / (*ceiling).max(1);
                row.step = Some(2 + later.unsigned_abs());
                row.after = before.map(|(_, last)| last);
            }
        }
        self.rows.sort_by(|one, other| {
            let by = |row: &Row| (row.action, row.step);
            by(one).cmp(&by(other)).then_with(|| one.pod.cmp(&other.pod))
        });
    }

    /// Finds where the evicted pods would fit, in the order of their eviction.
    fn place_rows(&mut self, capacity: &mut ClusterCapacity, cluster: &Cluster<'_>) {
        for row in &mut self.rows {
            let Some(needs) = cluster.needs.get(&row.pod.uid).filter(|_| row.is_attempted()) else {
                continue;
            };
            if is_orphan(&row.pod.uid, cluster) {
                row.place = Some(Place::NotRecreated);
                continue;
            }
            row.may_come_back = capacity.can_return(&self.node, needs);
            if row.action != Action::Blocked {
                row.place = Some(capacity.place(&self.node, needs));
            }
        }
    }

    /// How many pods there are of each kind.
    #[must_use]
    pub fn summarize(&self) -> Summary {
        let mut summary = Summary::default();
        for row in &self.rows {
            let count = match (row.action, row.step) {
                (Action::Evict, _) if matches!(row.place, Some(Place::Nowhere(_))) => &mut summary.nowhere,
                (Action::Evict, _) if row.place == Some(Place::SameNode) => &mut summary.back,
                (Action::Evict, Some(2..)) => &mut summary.later,
                (Action::Evict, _) => &mut summary.now,
                (Action::Wait, _) => &mut summary.waiting_for_budget,
                (Action::Blocked | Action::NeedsConsent, _) => &mut summary.blocked,
                (Action::Unsafe, _) => &mut summary.unsafe_,
                (Action::Ending, _) => &mut summary.ending,
                (Action::Stay, _) => &mut summary.staying,
            };
            *count += 1;
        }
        summary
    }

    /// Whether the drain must not start: an operator must consent first, pods cannot be decoded, or no pod can be evicted
    /// whatever an operator does. `try_anyway`: the operator wants it tried although pods cannot be decoded or may not
    /// be evicted.
    #[must_use]
    pub fn must_not_start(&self, try_anyway: bool) -> bool {
        let needs_consent = self.rows.iter().any(|row| row.action == Action::NeedsConsent);
        needs_consent || (!try_anyway && (self.unreadable > 0 || self.all_pods_unsafe()))
    }

    /// Whether there are pods to evict, and each of them may run although its phase is terminal.
    #[must_use]
    pub fn all_pods_unsafe(&self) -> bool {
        let mut remaining = self.rows.iter().filter(|row| row.action != Action::Stay).peekable();
        remaining.peek().is_some() && remaining.all(|row| row.action == Action::Unsafe)
    }

    /// Whether a pod is refused for safety.
    #[must_use]
    pub fn is_unsafe(&self) -> bool {
        self.rows.iter().any(|row| row.action == Action::Unsafe)
    }

    /// Whether every pod would be evicted without waiting for more than other pods, and would fit on another node.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        let Summary { waiting_for_budget: waiting, nowhere, back, blocked, unsafe_, .. } = self.summarize();
        self.unreadable == 0 && waiting + nowhere + back + blocked + unsafe_ == 0
    }
}

impl Row {
    /// Whether its eviction is tried.
    #[must_use]
    pub const fn is_attempted(&self) -> bool {
        matches!(self.action, Action::Evict | Action::Wait | Action::Blocked)
    }
}

/// Pods that no EvictionRequest evicts are evicted directly.
fn eviction_method(pod: &Pod, needs: Option<&Needs>) -> EvictionMethod {
    match needs {
        _ if pod.mirror => EvictionMethod::Direct("a mirror pod"),
        _ if pod.controller.as_ref().is_some_and(|owner| owner.is_daemon_set()) => {
            EvictionMethod::Direct("a pod of a DaemonSet")
        }
        None => EvictionMethod::Direct("a pod whose responders cannot be read"),
        Some(needs) if needs.gang => EvictionMethod::Direct("a member of a gang"),
        Some(needs) => EvictionMethod::Request(needs.responders.clone()),
    }
}

/// Whether nothing recreates the pod: it has no controller, or its controller does not exist.
fn is_orphan(pod: &Uid, cluster: &Cluster<'_>) -> bool {
    let Some(controller) = cluster.view.pod(pod).and_then(|pod| pod.controller.as_ref()) else { return true };
    cluster.daemon_sets.get(&controller.uid) == Some(&DaemonSet::Absent)
}

fn describe_rate(numbers: &Arithmetic) -> String {
    match numbers.ceiling {
        Some(ceiling) if ceiling != numbers.allowed => format!("now, {ceiling} at a time with all healthy"),
        _ => "at a time".to_owned(),
    }
}
