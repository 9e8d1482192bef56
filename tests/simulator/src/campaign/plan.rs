//! What happens in a run, as data.

use serde::{Deserialize, Serialize};

use super::evictions::{Evictions, Withdrawal};
use super::fencing::{Fencing, Malfunction};
use super::kubelets::{Edit, OddKubelet};
use super::volumes::Guarding;

/// When the first fault of a part may begin: the pods run.
pub(super) const BEGIN: u64 = 28;
/// How long before the end of the faults the last fault of a part may begin.
pub(super) const SPARE: u64 = 5;

/// What can happen to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Trouble {
    /// It is applied, and its answer is lost.
    LoseAnswer,
    /// It is applied, and half of its answer arrives.
    CutAnswer,
    /// It does not arrive.
    DropRequest,
    /// It is refused with this code.
    Error(u16),
    /// It arrives up to so many milliseconds late.
    Delay(u64),
}

impl Trouble {
    /// Its name, for counts.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::LoseAnswer => "answer lost".to_owned(),
            Self::CutAnswer => "answer cut".to_owned(),
            Self::DropRequest => "request dropped".to_owned(),
            Self::Error(code) => format!("error {code}"),
            Self::Delay(_) => "delay".to_owned(),
        }
    }
}

/// How a power switch behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Manner {
    /// It does what it is told and says what is so.
    Honest,
    /// It says off, and the machine runs on.
    SaysOffWhileOn,
    /// It says done at once, and acts so many seconds later.
    Late(u64),
    /// It acts, and acts once more so many seconds later.
    Twice(u64),
    /// It acts, and its answer is lost.
    DoneButSilent,
    /// It hears nothing.
    Dead,
}

/// What ails a node whose kubelet says that it is not ready, and goes on renewing its Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ailment {
    /// The container runtime does not answer, or PLEG is late: no process starts, none is ended, nothing new is said of
    /// pods, and what runs runs on.
    Runtime,
    /// There is no network for new pods: none starts, and the others go on and end as ever.
    Network,
}

/// Why a container is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Restart {
    /// It crashed: its kubelet reports that before it starts it again.
    Crashed,
    /// Its liveness probe failed: its kubelet ends it and starts it again at once, and has reported that it runs.
    Unhealthy,
}

/// What a disruption budget asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Limit {
    /// So many pods must be healthy.
    MinAvailable(u64),
    /// So many of a hundred.
    MinPercent(u64),
    /// So many pods may be missing.
    MaxUnavailable(u64),
    /// So many of a hundred.
    MaxPercent(u64),
}

/// Something that goes wrong, or that somebody does. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "each kind says what its fields are: which one, and for how many seconds")]
pub enum Fault {
    /// A node reaches no API server.
    CutNode { node: usize, seconds: u64 },
    /// A node does not reach one of the API servers.
    CutLink { node: usize, server: usize, seconds: u64 },
    /// A process under test reaches no API server, and its watches fall silent.
    CutReplica { replica: usize, seconds: u64 },
    /// The open watches of a process under test fall silent for one kind, half open, and the others go on; then those
    /// connections break.
    SilenceWatch { replica: usize, kind: String, seconds: u64 },
    /// Requests of a process under test meet trouble.
    TroubleReplica { replica: usize, trouble: Trouble, percent: u64, seconds: u64 },
    /// Requests of a kubelet meet trouble.
    TroubleNode { node: usize, trouble: Trouble, percent: u64, seconds: u64 },
    /// An API server does not reach etcd.
    CutServer { server: usize, answers_lost: bool, seconds: u64 },
    /// An API server shows the past.
    LagServer { server: usize, seconds: u64 },
    /// An API server starts anew, without history.
    RestartServer { server: usize },
    /// History is compacted: watches that come back get 410.
    Forget,
    /// A process under test goes to the next API server from now on.
    SwitchServer { replica: usize },
    /// A process under test dies, and starts again.
    CrashReplica { replica: usize, seconds: u64 },
    /// A process under test stops for a while, and does not know.
    PauseReplica { replica: usize, seconds: u64 },
    /// A process under test is told to stop, and starts again.
    StopReplica { replica: usize, seconds: u64 },
    /// The wall clock of a process under test jumps.
    JumpReplica { replica: usize, seconds: i64 },
    /// The wall clock of a node jumps.
    JumpNode { node: usize, seconds: i64 },
    /// A machine loses power; without `back` for ever.
    PowerOff { node: usize, back: Option<u64> },
    /// A machine restarts.
    Reboot { node: usize },
    /// A kubelet dies and starts again; processes run on.
    KillKubelet { node: usize, seconds: u64 },
    /// A machine freezes and thaws, with its processes.
    Freeze { node: usize, seconds: u64 },
    /// The agent of a node dies, and is started again.
    KillAgent { node: usize, seconds: u64 },
    /// The agent of a node stops for a while, and does not know.
    PauseAgent { node: usize, seconds: u64 },
    /// A kubelet hears nothing new of its pods, and does not know: it renews its
    /// Lease and acts by what it heard before.
    DeafKubelet { node: usize, seconds: u64 },
    /// Processes of a node do not end when they are killed: they hang in the kernel.
    StuckProcesses { node: usize, seconds: u64 },
    /// The kubelet of a node says Ready=False, and goes on renewing its Lease.
    SickenNode { node: usize, ailment: Ailment, seconds: u64 },
    /// Whatever ails a node is over.
    HealNode { node: usize },
    /// A person or an autoscaler deletes the Node object.
    DeleteNode { node: usize },
    /// A person turns a machine off by its switch, asks the switch, and deletes the
    /// Node if that says off.
    FenceByHand { node: usize, manner: Manner },
    /// A person confirms that a node is down, for so many seconds: of a machine that they switched off before, or wrongly.
    Confirm { node: usize, wrong: bool, valid: u64 },
    /// The fence device of a node fails or lies, for so long.
    Malfunction { node: usize, how: Malfunction, seconds: u64 },
    /// Somebody pauses fencing of a node, for so long.
    PauseFencing { node: usize, seconds: u64 },
    /// Somebody deletes the policy of a node, and makes it again after so long.
    RemovePolicy { node: usize, seconds: u64 },
    /// Another actor terminates the instance that is a node's machine.
    Terminate { node: usize },
    /// Another actor starts that instance again, if it is stopped.
    StartAgain { node: usize },
    /// A script adds the out-of-service taint.
    Taint { node: usize },
    /// Somebody adds a taint with the effect `NoExecute`, and says when (`stamped`) or, as
    /// `kubectl taint` does, not. Which one: of [`TROUBLES`](crate::world::TROUBLES).
    AddTaint { node: usize, key: usize, stamped: bool },
    /// Somebody takes it away.
    LiftTaint { node: usize, key: usize },
    /// Somebody changes for how long a pod bears that taint; without a time: for ever.
    Tolerate { pod: usize, key: usize, seconds: Option<u64> },
    /// A person deletes a pod.
    DeletePod { pod: usize },
    /// Who may edit the pods of its namespace changes one.
    EditPod { pod: usize, how: Edit },
    /// A tenant has a pod on a node, and deletes it when it runs: it does not end. When it is gone there is another.
    Linger { node: usize },
    /// A person confirms that a former life of a node, which volumes name, has ended: another boot runs there.
    ConfirmFormer { node: usize },
    /// A person deletes a pod, and does not wait for its kubelet.
    ForceDelete { pod: usize },
    /// A person makes a pod of another name with the volume of this one.
    MakePod { pod: usize },
    /// A person makes a pod with a volume of its own: a generic ephemeral one. It ends by itself.
    MakeBrief { number: usize },
    /// A person deletes the claim and the volume of a pod, and makes both anew under their names when they are gone.
    /// With `force` they take away the finalizers that keep what is in use.
    RenewVolume { pod: usize, force: bool },
    /// A person deletes the attachments of a pod's volume.
    TearOff { pod: usize },
    /// kube-controller-manager's attach/detach controller starts anew, and has forgotten what it knew.
    RestartAttacher,
    /// A kubelet evicts a pod: it ends as Failed.
    Evict { pod: usize },
    /// The second container of a pod ends, and its kubelet takes so long to start it again: the worker of the pod is busy.
    RestartContainer { pod: usize, why: Restart, seconds: u64 },
    /// A person makes a workload with a budget: a StatefulSet if its pods keep their
    /// names, else a ReplicaSet. Its pods are ready `start_up` after their start.
    Deploy { workload: usize, replicas: u64, keeps_names: bool, start_up: u64, limit: Limit },
    /// A person or an autoscaler scales a workload.
    Scale { workload: usize, replicas: u64 },
    /// A person changes what a budget asks for.
    ChangeBudget { workload: usize, limit: Limit },
    /// The controllers of the workloads do nothing.
    StallWorkloads { seconds: u64 },
    /// A process of a workload runs and is not ready.
    Sicken { workload: usize, pod: usize, seconds: u64 },
    /// A person drains a node, for so long at most, and takes it into service again.
    /// With `careful` it evicts with the code of `pod-safety drain`, otherwise as `kubectl drain` does.
    Drain { node: usize, careful: bool, seconds: u64 },
    /// So many clients at once evict the pods of a workload. With `stale` they name
    /// UIDs that these pods do not have.
    EvictAtOnce { workload: usize, clients: usize, stale: bool },
    /// A client requests the eviction of a pod by an EvictionRequest: of `data-N`, or beyond these of any other pod. With
    /// `stale` it names a UID that no pod has.
    RequestEviction { pod: usize, requester: usize, stale: bool },
    /// It withdraws its latest request.
    WithdrawRequest { requester: usize, how: Withdrawal },
    /// The API servers are restarted without the feature gate of the Eviction API, and so much later with it.
    SwitchGateOff { seconds: u64 },
}

impl Fault {
    /// Its kind, for counts.
    #[must_use]
    pub fn kind(&self) -> String {
        let text = format!("{self:?}");
        text.split([' ', '{']).next().unwrap_or_default().to_owned()
    }

    /// For how long it keeps processes under test and API servers from their work;
    /// `None`: not at all.
    #[must_use]
    pub const fn troubles_control(&self) -> Option<u64> {
        match self {
            Self::CutReplica { seconds, .. }
            | Self::SilenceWatch { seconds, .. }
            | Self::TroubleReplica { seconds, .. }
            | Self::CutServer { seconds, .. }
            | Self::LagServer { seconds, .. }
            | Self::CrashReplica { seconds, .. }
            | Self::SwitchGateOff { seconds }
            | Self::PauseReplica { seconds, .. } => Some(*seconds),
            // Its grace, and then it is away.
            Self::StopReplica { seconds, .. } => Some(*seconds + 30),
            Self::RestartServer { .. } | Self::Forget | Self::SwitchServer { .. } | Self::JumpReplica { .. } => Some(0),
            _ => None,
        }
    }

    /// Whether people do it to workloads with a budget, or request evictions.
    #[must_use]
    pub const fn is_of_budgets(&self) -> bool {
        matches!(
            self,
            Self::Scale { .. }
                | Self::ChangeBudget { .. }
                | Self::StallWorkloads { .. }
                | Self::Sicken { .. }
                | Self::Drain { .. }
                | Self::EvictAtOnce { .. }
                | Self::RequestEviction { .. }
                | Self::WithdrawRequest { .. }
        )
    }

    /// For how long it goes on by itself after it began.
    #[must_use]
    pub const fn lasts(&self) -> u64 {
        match self {
            Self::StallWorkloads { seconds } | Self::Sicken { seconds, .. } | Self::Drain { seconds, .. } => *seconds,
            _ => 0,
        }
    }
}

/// Who looks after the nodes of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Keeper {
    /// Where taints end pods, kube-controller-manager's node lifecycle as the world has it;
    /// elsewhere nobody.
    #[default]
    Theirs,
    /// Theirs, and pod-safety's beside it, in mode guard.
    Guarded,
    /// Pod-safety's, in mode replace.
    Ours,
}

/// What a world has or has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Extras {
    /// The volumes of the `StatefulSet` must be attached to a node before a process
    /// there can have them. Without it they are at hand everywhere.
    pub attached_volumes: bool,
    /// Our guard says whose they are, and admission refuses what its Leases forbid; they must be attached there, and
    /// pod-safety looks after nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarded_volumes: Option<Guarding>,
    /// Each node has a static pod, whose copy its kubelet keeps in the API.
    pub static_pods: bool,
    /// There are no pods beside those of the `StatefulSet` and of workloads: none that ends by itself, and none that no
    /// scheduler takes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_other_pods: bool,
    /// Clocks of nodes and of processes under test run up to a thousandth too fast or too slow.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub drift: bool,
    /// The first process of each place is of an older release: it has other terms, and a longer quarantine.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub upgrade: bool,
    /// The pods of the `StatefulSet` have a sidecar, and a container that runs before it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sidecars: bool,
    /// Taints end pods, and kube-controller-manager's node lifecycle controller taints
    /// nodes that are silent. Pods of the `StatefulSet` differ in what they tolerate.
    pub taints: bool,
    /// Who looks after nodes. Where pod-safety does, nodes have zones, and kubelets say how
    /// their nodes and pods are.
    pub nodes: Keeper,
    /// How nodes are fenced, where pod-safety does that; it looks after nodes there, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fencing: Option<Fencing>,
    /// The pods of the `StatefulSet` have a second container, and their kubelets take so many seconds to start it: their
    /// first one runs meanwhile, and the worker of the pod is busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_start: Option<u64>,
    /// One kubelet reports less than others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub odd_kubelet: Option<OddKubelet>,
    /// Commands of people are served: the objects and kinds that they ask for are there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub furnished: bool,
    /// The Eviction API is served, and pods name responders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evictions: Option<Evictions>,
}

impl Extras {
    /// Guarded volumes that are attached, on nodes that our controllers keep.
    #[must_use]
    pub fn guarded(guarding: Guarding, fencing: Option<Fencing>) -> Self {
        Self {
            attached_volumes: true,
            guarded_volumes: Some(guarding),
            taints: true,
            nodes: Keeper::Ours,
            fencing,
            ..Self::default()
        }
    }

    /// Whether it is a world like most.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// One run; by default in a world without anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// All chance of the run.
    pub seed: u64,
    /// API servers.
    pub servers: usize,
    /// Machines.
    pub nodes: usize,
    /// Processes under test.
    pub replicas: usize,
    /// Pods of the StatefulSet.
    pub pods: usize,
    /// How long a Lease outlives its Node, before it is collected.
    pub lease_collected_after: u64,
    /// When everything that can be healed is, in seconds.
    pub heal_at: u64,
    /// What else there is.
    #[serde(default, skip_serializing_if = "Extras::is_nothing")]
    pub with: Extras,
    /// What happens, by seconds since the start.
    pub faults: Vec<(u64, Fault)>,
}

impl Plan {
    /// Moves faults that would begin too late to the last moment, and sorts all of them by their times.
    pub(super) fn end_faults_in_time(&mut self) {
        let last = self.heal_at - SPARE;
        self.faults.iter_mut().for_each(|(at, _)| *at = (*at).min(last));
        self.faults.sort_by_key(|(at, _)| *at);
    }
}
