//! The plan: what becomes of every pod of a node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pod_safety_explain::{
    Arithmetic, BudgetVerdict, EvictionAnswer, RefusalCause, explain_budget, owner_of, predict_eviction,
};
use pod_safety_shared::authority::{Evicted, NotEvicted};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::model::{
    Budget, BudgetKey, Kind, Pod, PodKey, RESPONDER_HEARTBEAT_DEADLINE, Readiness, Uid,
};
use pod_safety_shared::record::error_chain;

use super::action::{Action, Consent};
use super::cluster::{Cluster, DaemonSet};
use super::exceptions::find_exception;
use super::fit::{ClusterCapacity, Needs, Place};

/// What the API server said to a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRun {
    /// It would let the eviction through.
    pub passed: bool,
    /// One CamelCase word.
    pub reason: &'static str,
    /// Its sentence; empty if it passed.
    pub message: String,
}

/// One pod.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which one.
    pub pod: PodKey,
    /// What manages it.
    pub owner: String,
    /// What becomes of it.
    pub action: Action,
    /// Why, in one CamelCase word.
    pub reason: &'static str,
    /// Why, in a sentence.
    pub message: String,
    /// The budget that counts it.
    pub budget: Option<BudgetKey>,
    /// In which turn it goes; pods of one turn go together.
    pub step: Option<u32>,
    /// The pod after which it goes, because one budget counts both.
    pub after: Option<Arc<str>>,
    /// How long its processes may take to end, in seconds.
    pub grace: i64,
    /// What is lost with it.
    pub loses: Option<&'static str>,
    /// What the API server said, if it was asked.
    pub dry_run: Option<DryRun>,
    /// Where it would go, if it goes.
    pub place: Option<Place>,
    /// Its successor may come back to the node, for it tolerates the cordon.
    pub may_come_back: bool,
    /// How its eviction can be asked for.
    pub method: EvictionMethod,
}

/// How an eviction can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionMethod {
    /// By an EvictionRequest. These responders are asked first, in this order.
    Request(Vec<String>),
    /// By `pods/eviction` alone, and why.
    Direct(&'static str),
}

impl EvictionMethod {
    /// Responders of a pod, if its eviction can be requested.
    #[must_use]
    pub fn responders(&self) -> &[String] {
        match self {
            Self::Request(responders) => responders,
            Self::Direct(_) => &[],
        }
    }

    /// For how long they may stay silent, all together.
    #[must_use]
    pub fn worst_wait(&self) -> Duration {
        RESPONDER_HEARTBEAT_DEADLINE * u32::try_from(self.responders().len()).unwrap_or(u32::MAX)
    }
}

/// What becomes of a node's pods.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The node.
    pub node: String,
    /// Its kubelet says that it is well. Without that, pods that are told to end do
    /// not: nobody says so.
    pub node_ready: bool,
    /// Its pods: what goes, by turns, then the others.
    pub rows: Vec<Row>,
    /// Pods of the cluster that cannot be read: they may be on this node.
    pub unreadable: usize,
    /// Evictions are requested first, because the API server has EvictionRequests.
    pub requests: bool,
    /// How much the budgets allow now, and with every pod healthy.
    allows: BTreeMap<BudgetKey, (i32, i32)>,
}

/// How many there are of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Go at once.
    pub now: usize,
    /// Go after others.
    pub later: usize,
    /// Could go, and fit on no other node.
    pub nowhere: usize,
    /// Could go, and fit on no other node, and come back to this one.
    pub back: usize,
    /// Wait for a budget.
    pub waiting_for_budget: usize,
    /// Do not go.
    pub blocked: usize,
    /// Must not go.
    pub unsafe_: usize,
    /// End already.
    pub ending: usize,
    /// Stay.
    pub staying: usize,
}

/// Makes the plan, before any dry run.
#[must_use]
pub fn plan(node: &str, cluster: &Cluster<'_>, consent: &Consent) -> Plan {
    let mut pods: Vec<&Pod> = cluster.view.pods_on(node).collect();
    pods.sort_by(|one, other| one.key.cmp(&other.key));
    let (_, unreadable) = cluster.view.count(Kind::Pods);
    let node_ready =
        matches!(cluster.view.node(node), Lookup::Known(known) if known.readiness == Readiness::Ready);
    let (rows, allows) = (Vec::new(), BTreeMap::new());
    let mut plan = Plan { node: node.to_owned(), node_ready, rows, unreadable, requests: false, allows };
    for pod in pods {
        let row = plan.build_row(pod, cluster, consent);
        plan.rows.push(row);
    }
    plan.sort_by_turn();
    plan
}

/// Says where the pods of nodes would go that are drained together: all of them are cordoned before the first pod goes.
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
            EvictionAnswer::Unguarded(_) => {
                row.message = row.message.trim_start_matches("be allowed: ").to_owned()
            }
            EvictionAnswer::AllowUncounted(budget, _) => {
                let message = row.message.trim_start_matches("be allowed: ").to_owned();
                row.message = format!("pdb {}: {message}", budget.key.name);
            }
            EvictionAnswer::Allow(budget) => self.apply_budget(&mut row, budget, None, cluster),
            EvictionAnswer::Refuse(budget, why) => self.apply_budget(&mut row, budget, Some(why), cluster),
            EvictionAnswer::Fail(budgets) => {
                let names: Vec<&str> = budgets.iter().map(|budget| &*budget.key.name).collect();
                row.action = Action::Blocked;
                row.message = format!(
                    "pdbs {} select it: the API server evicts no pod with several PDBs",
                    names.join(" and ")
                );
            }
            EvictionAnswer::AlreadyTerminating | EvictionAnswer::AlreadyFinished => row.action = Action::Stay,
        }
        row
    }

    /// A pod that one budget counts.
    fn apply_budget(
        &mut self,
        row: &mut Row,
        budget: &Budget,
        refused: Option<RefusalCause>,
        cluster: &Cluster<'_>,
    ) {
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
                let ever = explained
                    .unknown
                    .first()
                    .map(|why| format!("; whether it ever allows one is not known: {why}"));
                (Action::Wait, format!("pdb {name}: {sum}, none now{}", ever.unwrap_or_default()))
            }
            Some(RefusalCause::Processing) if let BudgetVerdict::SyncFailed(why) = &explained.verdict => {
                row.reason = "BudgetSyncFailed";
                (Action::Blocked, format!("pdb {name} failed to sync: {why}"))
            }
            Some(RefusalCause::Processing) => (
                Action::Wait,
                format!("pdb {name} is still being processed: its status is older than its last change"),
            ),
            Some(RefusalCause::SyncFailed(why)) => {
                (Action::Blocked, format!("pdb {name} failed to sync: {why}"))
            }
            Some(RefusalCause::Negative) => (
                Action::Blocked,
                format!("pdb {name} allows a negative number of evictions: {}", numbers.allowed),
            ),
            Some(RefusalCause::TooManyDisrupted) => {
                (Action::Wait, format!("pdb {name}: too many evictions wait in its status"))
            }
        };
    }

    /// The pods that the API server should be asked about.
    pub fn dry_run_candidates(&self) -> impl Iterator<Item = (usize, &PodKey)> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, row)| row.is_attempted()).map(|(index, row)| (index, &row.pod))
    }

    /// What the API server said to a dry run. Its word counts.
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
            // What can never be let through is refused with the words of what waits.
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
            // The statuses that were listed say something else: the younger word counts.
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
            let Some((key, (now, ceiling))) =
                row.budget.as_ref().and_then(|key| self.allows.get_key_value(key))
            else {
                continue;
            };
            let before = turns.get(key).map(|(count, last)| (*count, Arc::clone(last)));
            let count = before.as_ref().map_or(0, |(count, _)| *count);
            turns.insert(key, (count + 1, Arc::clone(&row.pod.name)));
            // One of them went through in the dry run, whatever the list said.
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

    /// Says where what goes would go, in the order in which it goes.
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

    /// How many there are of each.
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

    /// Why nothing is begun: a person must agree first, pods cannot be read, or no pod may go by anybody's act.
    /// `all_the_same`: a person wants it tried whatever cannot be read or may not go.
    #[must_use]
    pub fn must_not_start(&self, try_anyway: bool) -> bool {
        let unagreed = self.rows.iter().any(|row| row.action == Action::NeedsConsent);
        unagreed || (!try_anyway && (self.unreadable > 0 || self.all_pods_unsafe()))
    }

    /// Whether pods must go, and each of them may run although it is called finished.
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

    /// Whether everything would go without waiting for more than one another, and run elsewhere.
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

/// What no EvictionRequest evicts is evicted directly.
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

/// Whether nothing recreates the pod: it has no controller, or that is not there.
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
