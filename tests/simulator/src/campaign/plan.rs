//! What happens in a run, as data.

use serde::{Deserialize, Serialize};

/// What can happen to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Trouble {
    /// It is applied, and its answer is lost.
    LoseAnswer,
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
            Self::DropRequest => "request dropped".to_owned(),
            Self::Error(code) => format!("error {code}"),
            Self::Delay(_) => "delay".to_owned(),
        }
    }
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
    /// A kubelet hears nothing new of its pods, and does not know: it renews its
    /// Lease and acts by what it heard before.
    DeafKubelet { node: usize, seconds: u64 },
    /// Processes of a node do not end when they are killed: they hang in the kernel.
    StuckProcesses { node: usize, seconds: u64 },
    /// A person or an autoscaler deletes the Node object.
    DeleteNode { node: usize },
    /// A script adds the out-of-service taint.
    Taint { node: usize },
    /// A person deletes a pod.
    DeletePod { pod: usize },
    /// A kubelet evicts a pod: it ends as Failed.
    Evict { pod: usize },
}

impl Fault {
    /// Its kind, for counts.
    #[must_use]
    pub fn kind(&self) -> String {
        let text = format!("{self:?}");
        text.split([' ', '{']).next().unwrap_or_default().to_owned()
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// What happens, by seconds since the start.
    pub faults: Vec<(u64, Fault)>,
}
