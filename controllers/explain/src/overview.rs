//! The whole cluster on one screen: its state, what waits, and what needs an operator.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pod_safety_fencing::Unfenceable;
use pod_safety_shared::api::DeviceState;
use pod_safety_shared::controller_loop::{HoldReason as _, Mode};
use pod_safety_shared::model::{Kind, Node, Pod, Readiness};
use serde::Serialize;

use super::answer::{Answer, Verdict, capitalize, elapsed, format_duration};
use super::context::{ExplainContext, object_ref};
use super::fencing_step;
use super::history::deletion_requested_at;
use super::last_day::LastDay;
use super::node::{explain_node, node_state, zone_name};
use super::pauses::Paused;
use super::pod::explain_pod;
use super::{BudgetVerdict, explain_budget};

/// The counts of one zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Zone {
    /// Its name.
    pub zone: String,
    /// How many of its nodes are Ready.
    pub ready: usize,
    /// How many nodes it has.
    pub nodes: usize,
    /// How many of them are unreachable.
    pub lost: usize,
    /// Why nodes of the zone are not tainted NoExecute or fenced, if so: the reason in CamelCase.
    pub brake: Option<&'static str>,
}

/// Something that needs an operator's attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// Which object.
    pub object: String,
    /// It does not proceed without an operator.
    pub blocks: bool,
    /// The reason in CamelCase.
    pub reason: &'static str,
    /// What is wrong, for operators.
    pub message: String,
    /// The command that shows more.
    pub command: String,
}

/// A pod that does not proceed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blocked {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its node; `None`: it has none.
    pub node: Option<String>,
    /// When its deletion was requested; `None`: it was not.
    pub since: Option<Timestamp>,
    /// How long ago that was, for operators.
    pub age: String,
    /// The reason in CamelCase.
    pub reason: &'static str,
    /// What it waits for, in a few words.
    pub needs: String,
}

/// The verdict about the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Overall {
    /// Everything was read, and nothing blocks.
    Clear,
    /// Nothing that was read blocks, and not everything could be read.
    Unknown,
    /// Something does not proceed until an operator acts.
    Blocked,
}

/// The whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// How many pods have a stable identity, each of which must be the only one of its name. `None`: pods, nodes or
    /// Leases could not be read.
    pub identities: Option<usize>,
    /// How many of those are held until evidence proves that they stopped. `None`: as above.
    pub wait_for_proof: Option<usize>,
    /// The zones.
    pub zones: Vec<Zone>,
    /// What needs an operator.
    pub troubles: Vec<Trouble>,
    /// The pods that do not proceed.
    pub blocked: Vec<Blocked>,
    /// How many pods wait for proof and are not among those, because their nodes are fenced without a person.
    pub wait_for_fencing: usize,
    /// What is not fenced because an operator paused it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paused: Vec<Paused>,
    /// The results of incidents in the last 24 hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_day: Option<LastDay>,
    /// What could not be read and is therefore not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Something that this page needs could not be read.
    #[serde(skip)]
    incomplete: bool,
    /// How many pods of each node are held.
    #[serde(skip)]
    held: BTreeMap<String, usize>,
    /// The pods with a stable identity that wait for proof, by namespace.
    #[serde(skip)]
    waiting: BTreeMap<String, usize>,
    /// The pods of `wait_for_fencing`, by namespace.
    #[serde(skip)]
    unlisted: BTreeMap<String, usize>,
}

impl Overview {
    /// The overview by what was read.
    #[must_use]
    pub fn from_context(ctx: &ExplainContext<'_>) -> Self {
        let incomplete = !ctx.unread.is_empty() || ctx.running.lease_unread;
        let mut overview = Self { incomplete, ..Self::default() };
        overview.add_zones(ctx);
        overview.add_pods(ctx);
        overview.add_nodes(ctx);
        overview.add_budgets(ctx);
        overview.add_devices(ctx);
        overview.add_policies(ctx);
        overview.add_leader(ctx);
        overview.paused = Paused::list(ctx);
        overview.last_day = LastDay::from_context(ctx);
        overview.troubles.sort_by(|one, other| (!one.blocks, &one.object).cmp(&(!other.blocks, &other.object)));
        overview
    }

    /// The same with the pods, PodDisruptionBudgets and FenceDevices of one namespace; nodes are of the whole cluster.
    #[must_use]
    pub fn only_in(mut self, namespace: &str, ctx: &ExplainContext<'_>) -> Self {
        self.blocked.retain(|one| one.namespace == namespace);
        let is_of_another = |object: &str| match object.split('/').collect::<Vec<_>>().as_slice() {
            [_, of, _] => *of != namespace,
            _ => false,
        };
        self.troubles.retain(|trouble| !is_of_another(&trouble.object));
        let pods = ctx.view.all_pods().filter(|pod| *pod.key.namespace == *namespace && pod.keeps_identity());
        self.identities = self.identities.map(|_| pods.count());
        self.wait_for_proof = self.wait_for_proof.map(|_| self.waiting.get(namespace).copied().unwrap_or(0));
        self.wait_for_fencing = self.unlisted.get(namespace).copied().unwrap_or(0);
        self
    }

    /// The verdict about the cluster. It is not `Clear` if something was not read.
    #[must_use]
    pub fn verdict(&self) -> Overall {
        if !self.blocked.is_empty() || self.troubles.iter().any(|trouble| trouble.blocks) {
            Overall::Blocked
        } else if self.incomplete {
            Overall::Unknown
        } else {
            Overall::Clear
        }
    }

    fn add_zones(&mut self, ctx: &ExplainContext<'_>) {
        let mut zones: BTreeMap<String, Zone> = BTreeMap::new();
        for node in ctx.view.nodes() {
            let name = zone_name(&node.zone);
            let zone =
                zones.entry(name.clone()).or_insert(Zone { zone: name, ready: 0, nodes: 0, lost: 0, brake: None });
            zone.nodes += 1;
            zone.ready += usize::from(node.readiness == Readiness::Ready);
            if node.readiness == Readiness::Unknown {
                zone.lost += 1;
                zone.brake = zone.brake.or(active_brake(node, ctx));
            }
        }
        self.zones = zones.into_values().collect();
    }

    fn add_pods(&mut self, ctx: &ExplainContext<'_>) {
        let mut ending: Vec<&Pod> = ctx.view.all_pods().filter(|pod| may_be_blocked(pod)).collect();
        ending.sort_by_key(|pod| pod.key.clone());
        for pod in ending {
            let answer = explain_pod(pod, ctx);
            // Its node is fenced without an operator.
            let waits = answer.judgement.verdict == Verdict::Waiting && answer.judgement.reason == "NoEvidence";
            let blocked = answer.judgement.verdict == Verdict::Blocked;
            if !blocked && !waits {
                continue;
            }
            // What is proved waits for pod-safety.
            let proved = matches!(answer.judgement.reason, "NoLeader" | "Observe");
            if pod.keeps_identity() && !pod.waits_for_finalizers() && !proved {
                *self.waiting.entry(pod.key.namespace.to_string()).or_default() += 1;
            }
            if let Some(node) = &pod.node {
                *self.held.entry(node.to_string()).or_default() += 1;
            }
            if waits {
                self.wait_for_fencing += 1;
                *self.unlisted.entry(pod.key.namespace.to_string()).or_default() += 1;
                continue;
            }
            let deletion_requested = pod.deletion.and_then(deletion_requested_at);
            self.blocked.push(Blocked {
                namespace: pod.key.namespace.to_string(),
                pod: pod.key.name.to_string(),
                node: pod.node.as_deref().map(str::to_owned),
                since: deletion_requested,
                age: deletion_requested.map_or("-".to_owned(), |at| format_duration(elapsed(at, ctx.wall))),
                reason: answer.judgement.reason,
                needs: describe_needs(pod, &answer),
            });
        }
        if ctx.has_all(&[Kind::Pods, Kind::Nodes, Kind::NodeLeases]) {
            self.identities = Some(ctx.view.all_pods().filter(|pod| pod.keeps_identity()).count());
            self.wait_for_proof = Some(self.waiting.values().sum());
        }
    }

    fn add_nodes(&mut self, ctx: &ExplainContext<'_>) {
        let mut nodes: Vec<&Node> = ctx.view.nodes().filter(|node| node.readiness != Readiness::Ready).collect();
        nodes.sort_by_key(|node| node.name.clone());
        for node in nodes {
            let Some(answer) = explain_node(&node.name, ctx) else { continue };
            let last_report = ctx
                .view
                .last_report_timestamp(node)
                .map_or(String::new(), |at| format!(", last reported {} ago", format_duration(elapsed(at, ctx.wall))));
            let waiting = self.held.get(&*node.name).copied().unwrap_or(0);
            let state = node_state(node, ctx);
            let wait = match (waiting, matches!(state, "Fenced" | "ConfirmedDown")) {
                (0, _) => String::new(),
                (1, true) => ", 1 pod waits to be removed".to_owned(),
                (_, true) => format!(", {waiting} pods wait to be removed"),
                (1, false) => ", 1 pod held until there is proof".to_owned(),
                (_, false) => format!(", {waiting} pods held until there is proof"),
            };
            let why = match fencing_step::next_step(node, ctx) {
                Some(step) => format!(". {}", capitalize(&step.message)),
                None => format!(" ({})", answer.judgement.reason),
            };
            self.troubles.push(Trouble {
                object: answer.object,
                blocks: answer.judgement.verdict == Verdict::Blocked,
                reason: answer.judgement.reason,
                message: format!("{state}{last_report}{wait}{why}"),
                command: format!("pod-safety explain node {}", node.name),
            });
        }
        for (name, _) in ctx.view.absences() {
            let Some(answer) = explain_node(name, ctx) else { continue };
            self.troubles.push(Trouble {
                object: answer.object,
                blocks: answer.judgement.verdict == Verdict::Blocked,
                reason: answer.judgement.reason,
                message: format!("There is no such Node, and pods name it ({})", answer.judgement.reason),
                command: format!("pod-safety explain node {name}"),
            });
        }
    }

    fn add_budgets(&mut self, ctx: &ExplainContext<'_>) {
        if !ctx.has_read(Kind::Budgets) {
            return;
        }
        for budget in ctx.view.budgets() {
            let explained = explain_budget(budget, &ctx.view, ctx.now);
            let message = match &explained.verdict {
                BudgetVerdict::Never => {
                    format!("Never allows an eviction: {}", explained.arithmetic.describe())
                }
                BudgetVerdict::Overlaps(others) => {
                    format!("Its pods are selected by {} too: every eviction fails", others.join(", "))
                }
                BudgetVerdict::SyncFailed(why) => format!("It cannot be calculated: {why}"),
                BudgetVerdict::Ignored(_) => "Its selector cannot be read: it guards nothing".to_owned(),
                BudgetVerdict::Allows(_)
                | BudgetVerdict::NoneNow
                | BudgetVerdict::Processing
                | BudgetVerdict::SelectsNothing
                | BudgetVerdict::AllTerminated => {
                    continue;
                }
            };
            let (namespace, name) = (&budget.key.namespace, &budget.key.name);
            let command = format!("pod-safety explain pdb -n {namespace} {name}");
            self.troubles.push(Trouble {
                object: format!("pdb/{}", budget.key),
                blocks: false,
                reason: explained.verdict.reason(),
                message,
                command,
            });
        }
    }

    /// Adds the devices that may fail when a node is lost.
    fn add_devices(&mut self, ctx: &ExplainContext<'_>) {
        if !ctx.has_read(Kind::FenceDevices) {
            return;
        }
        for device in ctx.view.devices().filter(|device| ctx.view.is_fencing_namespace(&device.namespace)) {
            let state = device.state();
            let message = match state {
                DeviceState::Ready => continue,
                DeviceState::NotReady => format!("Not ready: {}", device.not_ready_reason()),
                DeviceState::NotTrusted => {
                    "Not trusted: evidence from it was contradicted, so it fences no node".to_owned()
                }
                DeviceState::Unseen => {
                    "Not checked since it was created or changed: it is not known whether it works".to_owned()
                }
            };
            let (namespace, name) = (&device.namespace, &device.name);
            self.troubles.push(Trouble {
                object: object_ref("fencedevice", namespace, name),
                blocks: false,
                reason: state.name(),
                message,
                command: format!("pod-safety devices test {namespace}/{name}"),
            });
        }
    }

    /// Adds the policies by which nodes could not be fenced if they were lost now.
    fn add_policies(&mut self, ctx: &ExplainContext<'_>) {
        if !ctx.has_all(&[Kind::FencePolicies, Kind::FenceDevices, Kind::Nodes]) {
            return;
        }
        for policy in ctx.view.policies() {
            let Some(message) = Unfenceable::find(policy, &ctx.view).describe() else { continue };
            self.troubles.push(Trouble {
                object: object_ref("fencepolicy", "", &policy.name),
                blocks: true,
                reason: "NoUsableDevice",
                message,
                command: "pod-safety doctor".to_owned(),
            });
        }
    }

    fn add_leader(&mut self, ctx: &ExplainContext<'_>) {
        let running = ctx.running;
        // In the mode observe, a process elects no leader.
        if !running.has_no_leader() || running.mode == Some(Mode::Observe) {
            return;
        }
        let message = match running.stale {
            Some(at) => {
                format!("No leader: the lease was last renewed {} ago", format_duration(elapsed(at, ctx.wall)))
            }
            None => "No leader: pod-safety does not run, or runs without leader election".to_owned(),
        };
        let command = "pod-safety doctor".to_owned();
        self.troubles.push(Trouble {
            object: "pod-safety".to_owned(),
            blocks: true,
            reason: "NoLeader",
            message,
            command,
        });
    }
}

/// Whether a pod may be one that does not proceed.
fn may_be_blocked(pod: &Pod) -> bool {
    pod.deletion.is_some() || pod.phase.counts_as_terminated()
}

/// Why nodes like this one are not tainted or fenced, if so.
fn active_brake(node: &Node, ctx: &ExplainContext<'_>) -> Option<&'static str> {
    let lost = ctx.decide_lifecycle(&node.name).holds.into_iter().map(|(_, hold)| hold);
    let mut lost = lost.filter(|hold| {
        matches!(
            hold,
            pod_safety_node_lifecycle::Hold::ZoneDisrupted { .. } | pod_safety_node_lifecycle::Hold::LargeOutage { .. }
        )
    });
    let fencing = || ctx.decide_fencing(&node.name).holds.into_iter().map(|(_, hold)| hold);
    let is_brake = |hold: &pod_safety_fencing::Hold| {
        matches!(hold, pod_safety_fencing::Hold::ZoneInTrouble { .. } | pod_safety_fencing::Hold::TooManyLost { .. })
    };
    lost.next().map(|hold| hold.reason()).or_else(|| fencing().find(is_brake).map(|hold| hold.reason()))
}

/// What a blocked pod waits for, in a few words.
fn describe_needs(pod: &Pod, answer: &Answer) -> String {
    let node = pod.node.as_deref().unwrap_or("its node");
    match answer.judgement.reason {
        "NoEvidence" | "NodeUnreachable" | "ForceDeleteHeld" => format!("proof that {node} stopped"),
        "Finalizers" => format!("the owners of {}", pod.finalizers.join(", ")),
        "OutOfServiceWithoutEvidence" => format!("proof that {node} is off: its taint proves nothing"),
        "KubeletAlive" => format!("the kubelet of {node}, which has no Node, to stop"),
        "KubeletMayNotReport" => format!("the kubelet of {node}, which has no Node, to report"),
        "TerminationOverdue" | "NodeNotReady" => format!("the kubelet of {node} to terminate it"),
        "NoLeader" | "Observe" => "pod-safety to act".to_owned(),
        _ => format!("see pod-safety explain pod -n {} {}", pod.key.namespace, pod.key.name),
    }
}
