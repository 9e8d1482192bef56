//! Model of the agent of a node beside its kubelet: what each one reports, and when the kubelet may still start a process. The shipped
//! functions of the kernel decide; the adversary delays, loses and reorders messages.

use pod_safety_model::{Mono, Pod};
use pod_safety_proof::{AgentRead, Claim, ForceDeleteRequest, Mark, PodVersion, check_claim, verify_pods_ended};
use pod_safety_wire::{Encoding, Raw};
use stateright::{Model, Property};

use crate::objects::{self, NODE};
use crate::world::{ObservedAt, PodObject};

/// A small world of one pod.
#[derive(Clone, Debug)]
pub struct Agents {
    /// How many rounds all agent processes send in total.
    pub rounds: u8,
    /// How often the agent process is killed and started again.
    pub kills: u8,
    /// How many times the kubelet starts the process.
    pub starts: u8,
    /// A restarted kubelet lists an old state of the pods (kubernetes#59848).
    pub lists_the_past: bool,
    /// A bug.
    pub plant: Option<Bug>,
}

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// One report is enough.
    NoMark,
    /// The round after the mark is enough.
    OneRound,
    /// The agent reports an old check as one of the current round.
    StaleCheck,
    /// Whether the kubelet received the deletion is not checked.
    KubeletNotAsked,
    /// Rounds of one agent process count from the mark of another.
    AnyEpoch,
    /// The mark uses reads from before the pod was claimed.
    ReadsFirst,
}

/// The content of the agent's Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Report {
    epoch: u8,
    round: u8,
    checked_at: u8,
    ended: bool,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pod: PodObject,
    /// The process runs.
    runs: bool,
    /// The kubelet has seen the deletion.
    saw_deletion: bool,
    /// The pod was released.
    released: bool,
    lease: Option<Report>,
    /// The agent: the report that it sends, and whether that was confirmed.
    agent: Report,
    confirmed: bool,
    /// Requests to the API server: the report, and the report that it replaces.
    sent: Vec<(Report, Option<Report>)>,
    /// The pod as the watch delivered it last.
    cached: PodObject,
    /// The version that was claimed before the Lease was read, and the content of the Lease.
    claimed: Option<u8>,
    read: Option<Report>,
    /// Generation, epoch and round.
    mark: Option<(u8, u8, u8)>,
    /// The version for which there is evidence.
    evidence: Option<u8>,
    starts: u8,
    kills: u8,
    restarts: u8,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The kubelet starts the process.
    Starts,
    /// The process ends, with or without its kubelet.
    Ends,
    /// The kubelet reports that it runs.
    Reports,
    /// A person deletes the pod.
    Deletes,
    /// The kubelet sees the deletion.
    Sees,
    /// The kubelet acknowledges the deletion.
    Acknowledges,
    /// The kubelet restarts.
    Restarts,
    /// The agent checks the processes before its next round.
    ChecksProcesses,
    /// The agent sends its next round, or repeats the last one.
    Sends,
    /// The agent's request arrives; its answer arrives or is lost.
    Arrives {
        /// Which.
        which: u8,
        /// The answer is lost.
        lost: bool,
    },
    /// The agent process is killed, and a new one starts.
    AgentKilled,
    /// The watch of pods delivers.
    Delivers,
    /// The pod is claimed to have terminated.
    Claims,
    /// The Lease is read.
    Reads,
    /// The kernel checks the evidence.
    Judges,
    /// The pod is released by compare-and-swap.
    Releases,
}

const OBSERVED: ObservedAt = ObservedAt { deletion: 1, maybe_known: true };

/// No process of a released pod runs.
pub const NOTHING_RUNS: &str = "nothing of a pod that was released runs";

impl Model for Agents {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let pod = PodObject {
            uid: 1,
            version: 1,
            bound: true,
            deleted: false,
            observed: 1,
            running: false,
            failed: false,
            busy: false,
        };
        vec![State {
            pod,
            runs: false,
            saw_deletion: false,
            released: false,
            lease: None,
            agent: Report { epoch: 1, round: 0, checked_at: 0, ended: false },
            confirmed: true,
            sent: Vec::new(),
            cached: pod,
            claimed: None,
            read: None,
            mark: None,
            evidence: None,
            starts: self.starts,
            kills: self.kills,
            restarts: u8::from(self.lists_the_past),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        actions.extend([Step::Starts, Step::Ends, Step::Reports, Step::Deletes, Step::Sees, Step::Acknowledges]);
        actions.extend([Step::Restarts, Step::ChecksProcesses, Step::Sends, Step::AgentKilled]);
        actions.extend([Step::Delivers, Step::Claims, Step::Reads, Step::Judges, Step::Releases]);
        for which in 0..u8::try_from(state.sent.len()).unwrap_or_default() {
            actions.extend([false, true].map(|lost| Step::Arrives { which, lost }));
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Starts
            | Step::Ends
            | Step::Reports
            | Step::Deletes
            | Step::Sees
            | Step::Acknowledges
            | Step::Restarts => state.apply_kubelet(step)?,
            Step::ChecksProcesses | Step::Sends | Step::AgentKilled => state.apply_agent(step, self)?,
            Step::Arrives { which, lost } => state.arrives(usize::from(which), lost),
            Step::Delivers | Step::Claims | Step::Reads | Step::Judges | Step::Releases => {
                state.apply_process(step, self)?;
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always(NOTHING_RUNS, |_, state| !(state.released && state.runs)),
            Property::<Self>::sometimes("a pod is released", |_, state| state.released),
        ]
    }
}

impl State {
    fn write(&mut self, change: impl FnOnce(&mut PodObject)) {
        change(&mut self.pod);
        self.pod.version += 1;
    }

    fn apply_kubelet(&mut self, step: Step) -> Option<()> {
        match step {
            Step::Starts if !self.saw_deletion && !self.runs => {
                self.starts = self.starts.checked_sub(1)?;
                self.runs = true;
            }
            Step::Ends if self.runs => self.runs = false,
            Step::Reports if self.runs && !self.pod.running && !self.released => self.write(|pod| pod.running = true),
            Step::Deletes if !self.pod.deleted => self.write(|pod| pod.deleted = true),
            Step::Sees if self.pod.deleted => self.saw_deletion = true,
            Step::Acknowledges if self.saw_deletion && self.pod.observed < 2 && !self.released => {
                self.write(|pod| pod.observed = 2);
            }
            // In an old list the pod is not deleted.
            Step::Restarts => {
                self.restarts = self.restarts.checked_sub(1)?;
                self.saw_deletion = false;
            }
            _ => return None,
        }
        Some(())
    }

    /// One request at a time: the agent checks and sends after its last round was confirmed.
    fn apply_agent(&mut self, step: Step, world: &Agents) -> Option<()> {
        match step {
            Step::ChecksProcesses if self.confirmed && self.agent.round < world.rounds => {
                let looked = self.agent.round + 1;
                self.agent = Report { checked_at: looked, ended: !self.runs, ..self.agent };
            }
            Step::Sends if self.confirmed && self.agent.round < world.rounds => {
                self.agent.round += 1;
                if world.plant == Some(Bug::StaleCheck) {
                    self.agent.checked_at = self.agent.round;
                }
                self.confirmed = false;
                self.sent.push((self.agent, self.lease));
            }
            Step::AgentKilled => {
                self.kills = self.kills.checked_sub(1)?;
                // Rounds continue across agent processes, so that rounds of two processes can have equal numbers.
                self.agent = Report { epoch: self.agent.epoch + 1, checked_at: 0, ended: false, ..self.agent };
                self.confirmed = true;
            }
            _ => return None,
        }
        Some(())
    }

    fn arrives(&mut self, which: usize, lost: bool) {
        let (report, over) = self.sent[which];
        if over == self.lease {
            self.lease = Some(report);
        }
        // Kept until its answer arrives: the agent retries until it has one.
        if !lost {
            self.sent.remove(which);
            self.confirmed |= self.lease == Some(report) && self.agent == report;
        }
    }

    fn pod(&self, world: &Agents) -> Pod {
        let mut pod = objects::pod(&self.cached, OBSERVED, 1, 1);
        if world.plant == Some(Bug::KubeletNotAsked) {
            pod.observed_generation = pod.generation;
        }
        pod
    }

    fn apply_process(&mut self, step: Step, world: &Agents) -> Option<()> {
        match step {
            Step::Delivers => self.cached = self.pod,
            Step::Claims if self.claimed.is_none() => {
                let pod = self.pod(world);
                check_claim(&force(&pod), Some(&pod)).ok()?;
                self.claimed = Some(self.cached.version);
                if world.plant != Some(Bug::ReadsFirst) {
                    self.read = None;
                }
            }
            Step::Reads if self.read.is_none() => {
                let early = world.plant == Some(Bug::ReadsFirst);
                self.read = self.lease.filter(|_| early || self.claimed.is_some());
            }
            Step::Judges if self.read.is_some() && self.claimed == Some(self.cached.version) => self.verify(world)?,
            Step::Judges if self.read.is_some() && self.claimed.is_some() => (self.claimed, self.read) = (None, None),
            Step::Releases if !self.released => {
                let version = self.evidence.take()?;
                self.released = version == self.pod.version;
            }
            _ => return None,
        }
        Some(())
    }

    fn verify(&mut self, world: &Agents) -> Option<()> {
        let read = self.read.take()?;
        self.claimed = None;
        let pod = self.pod(world);
        let force = force(&pod);
        let version = check_claim(&force, Some(&pod)).ok()?;
        let agent = agent_read(&read)?;
        let marked = |(generation, epoch, round): (u8, u8, u8)| {
            let epoch = if world.plant == Some(Bug::AnyEpoch) { read.epoch } else { epoch };
            let round = round - u8::from(world.plant == Some(Bug::OneRound));
            mark(&version, generation, &Report { epoch, round, ..read })
        };
        let current_mark = self.mark.and_then(marked);
        let current_mark = if world.plant == Some(Bug::NoMark) {
            mark(&version, 2, &Report { round: 0, ..read })
        } else {
            current_mark
        };
        if verify_pods_ended(&force, Some(&pod), current_mark.as_ref(), &agent).is_ok() {
            self.evidence = Some(self.cached.version);
        } else if !current_mark.is_some_and(|current_mark| current_mark.matches(&version, &agent)) {
            let generation = u8::try_from(version.generation).ok()?;
            self.mark = Some((generation, read.epoch, read.round));
        }
        Some(())
    }
}

fn force(pod: &Pod) -> ForceDeleteRequest {
    ForceDeleteRequest::new(pod, Claim::PodsEnded { node: NODE.into() })
}

fn mark(version: &PodVersion, generation: u8, read: &Report) -> Option<Mark> {
    let version = PodVersion { generation: i64::from(generation), ..version.clone() };
    Some(Mark::new(version, &agent_read(read)?))
}

/// The Lease as the API server would return it.
fn agent_read(report: &Report) -> Option<AgentRead> {
    let Report { epoch, round, checked_at: looked, ended } = report;
    let ended = if *ended { "pod-1" } else { "" };
    let text = format!(
        r#"{{"metadata":{{"annotations":{{"watchdog.pod-safety.dev/epoch":"{epoch}","watchdog.pod-safety.dev/round":"{round}","watchdog.pod-safety.dev/pods-looked":"{looked}","watchdog.pod-safety.dev/pods-ended":"{ended}"}}}},"spec":{{}}}}"#
    );
    let raw = Raw::from_body(Encoding::Json, text.into()).ok()?;
    AgentRead::decode(Mono::default(), &raw).ok()?
}
