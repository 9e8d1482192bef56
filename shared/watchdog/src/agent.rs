//! The state machine of the agent: what to do next, and what an answer means.
//!
//! The caller asks [`Agent::next`] with the time, executes one [`Order`], and passes its [`Answer`] back. It executes
//! nothing else, and one order at a time: there is no second loop that pets.
//!
//! Rules, each of which the bound needs:
//!
//! 1. The device is not touched before a grant of this process was acknowledged, or its pods were proved ended.
//!    Opening a device starts it, closing it pets it: a process in a restart loop would pet without a grant.
//! 2. One pet for each acknowledged grant, and round k+1 is sent after the pet of round k.
//! 3. A round that was not acknowledged is requested again as the same round, or its epoch is abandoned.
//! 4. If the grant is late or revoked, the kubelet is stopped and the pods are ended. Then each pet needs a new proof
//!    that both still hold.
//! 5. The kubelet starts again only under a grant of a new epoch, and no sooner than [`Times::settle`] after it was acknowledged.
//! 6. A boot that was revoked gets no further grant. Its pods are ended, nothing is petted, and the watchdog resets
//!    the machine: evidence is about a boot, and the next one is identified by its boot ID.

use std::sync::Arc;
use std::time::Duration;

use crate::record::{Boot, Device, Epoch, ObservedLease, Record, State, Version};

/// The intervals of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Times {
    /// From one grant to the next.
    pub interval: Duration,
    /// The age at which a grant is late. Shorter than the device's timeout, by the time that ending pods takes.
    pub soft: Duration,
    /// From a grant that follows an end of pods to the start of the kubelet: longer than evidence is valid.
    pub settle: Duration,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Read the Lease by quorum.
    Read,
    /// Write this record at that resourceVersion; without one, create the Lease.
    Write(Record, Option<Version>),
    /// Open the device, set its timeout and read it back. This starts it.
    Open,
    /// Pet the device.
    Pet,
    /// Stop the kubelet so that it starts nothing, end the guarded pods, unmount their volumes.
    Stop,
    /// Check that the kubelet is stopped, the cgroups of the pods are empty and their mounts gone.
    Prove,
    /// End the stopped kubelet and allow a new one to start.
    Release,
    /// Stop the device and close it.
    Close,
    /// Do nothing until this time.
    Wait(Duration),
    /// End this process.
    Exit,
}

/// The result of an order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The order was executed.
    Done,
    /// It failed, or its result is unknown: a request without an answer, a device that cannot be opened.
    Failed,
    /// The current Lease; None: it does not exist.
    Lease(Option<ObservedLease>),
    /// The Lease was written, and has this resourceVersion.
    Written(Version),
    /// The Lease has another resourceVersion than the named one.
    Conflict,
    /// The device is open.
    Opened(Arc<Device>),
    /// Whether everything has ended.
    Verified(bool),
}

/// The phase of the agent, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No grant yet.
    Begin,
    /// A grant without a promise: the device is being opened.
    Unarmed,
    /// The promise holds.
    Armed,
    /// Late or revoked, and the pods are not proved ended. Nothing is petted.
    Ending,
    /// Proved ended.
    Ended,
    /// Proved ended after a revocation: the watchdog resets the machine.
    Fenced,
    /// The promise was withdrawn.
    Left,
}

/// The phase, with what is due in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Begin { due: Duration },
    Unarmed { due: Duration },
    Armed(Round),
    Ending(Ending),
    Ended(Ended),
    Fenced,
    Left,
}

/// A grant. `sent` is when it was first requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Round {
    Due {
        due: Duration,
    },
    Sent {
        sent: Duration,
    },
    /// Its answer did not arrive, or named another version: the Lease is read.
    Doubtful {
        sent: Duration,
        due: Duration,
    },
    Granted {
        sent: Duration,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Ending {
    Stop { due: Duration },
    Prove,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Ended {
    Prove {
        due: Duration,
    },
    /// Proved, for one pet.
    Proved,
    /// Petted; the Lease is read for a new grant.
    Read,
    Request,
    Requested {
        sent: Duration,
    },
}

/// The state that a process of the agent finds when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StartupState {
    /// Whether an earlier process of this boot may have made a promise.
    pub predecessor: bool,
    /// Whether the kubelet is stopped.
    pub stopped: bool,
}

/// The agent of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Agent {
    boot: Boot,
    times: Times,
    epoch: Epoch,
    round: u64,
    stage: Stage,
    /// When the last acknowledged round was first sent; before the first, when this process started.
    granted_at: Duration,
    predecessor: bool,
    is_shutting_down: bool,
    /// The resourceVersion when the Lease was last read or written. None: not read yet. Some(None): it does not
    /// exist.
    lease: Option<Option<Version>>,
    device: Option<Arc<Device>>,
    /// Whether the kubelet is stopped.
    stopped: bool,
    /// When the first grant of this epoch was acknowledged: evidence about the earlier epoch may have been created
    /// until then.
    epoch_granted_at: Duration,
}

impl Agent {
    /// The agent of a process that starts. `process` is random.
    #[must_use]
    pub const fn new(boot: Boot, times: Times, process: u64, startup: StartupState, now: Duration) -> Self {
        Self {
            boot,
            times,
            epoch: Epoch { process, count: 0 },
            round: 0,
            stage: Stage::Begin { due: now },
            granted_at: now,
            predecessor: startup.predecessor,
            is_shutting_down: false,
            lease: None,
            device: None,
            stopped: startup.stopped,
            epoch_granted_at: now,
        }
    }

    /// The current phase.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self.stage {
            Stage::Begin { .. } => Phase::Begin,
            Stage::Unarmed { .. } => Phase::Unarmed,
            Stage::Armed(_) => Phase::Armed,
            Stage::Ending(_) => Phase::Ending,
            Stage::Ended(_) => Phase::Ended,
            Stage::Fenced => Phase::Fenced,
            Stage::Left => Phase::Left,
        }
    }

    /// Withdraws the promise and ends, as soon as that is allowed.
    pub const fn shut_down(&mut self) {
        self.is_shutting_down = true;
    }

    /// What to do now.
    #[must_use]
    pub fn next(&mut self, now: Duration) -> Order {
        if self.is_late(now) {
            self.start_ending();
        }
        match self.stage {
            Stage::Begin { .. } if self.is_shutting_down => Order::Exit,
            Stage::Begin { due } | Stage::Unarmed { due } if now < due => Order::Wait(due),
            Stage::Begin { .. } => match &self.lease {
                None => Order::Read,
                Some(version) => Order::Write(self.new_record(State::Unarmed), version.clone()),
            },
            Stage::Unarmed { .. } if self.is_shutting_down => Order::Exit,
            Stage::Unarmed { .. } => Order::Open,
            Stage::Armed(round) => self.next_when_armed(round, now),
            Stage::Ending(Ending::Stop { due }) if now < due => Order::Wait(due),
            Stage::Ending(Ending::Stop { .. }) => Order::Stop,
            Stage::Ending(Ending::Prove) => Order::Prove,
            Stage::Ended(ended) => self.next_when_ended(ended, now),
            // There may be evidence about this boot. The boot ID of the next one shows that the pods have ended.
            Stage::Fenced if self.is_shutting_down => Order::Exit,
            Stage::Fenced => Order::Wait(self.next_attempt(now)),
            Stage::Left if self.device.is_some() => Order::Close,
            Stage::Left => Order::Exit,
        }
    }

    /// Whether the last grant is so old that the pods must end. Before the first promise of this boot they need not.
    fn is_late(&self, now: Duration) -> bool {
        let bound = match self.stage {
            Stage::Begin { .. } | Stage::Unarmed { .. } => self.predecessor,
            Stage::Armed(_) => true,
            Stage::Ending(_) | Stage::Ended(_) | Stage::Fenced | Stage::Left => false,
        };
        bound && now >= self.granted_at.saturating_add(self.times.soft)
    }

    const fn start_ending(&mut self) {
        self.stage = Stage::Ending(Ending::Stop { due: Duration::ZERO });
    }

    const fn next_attempt(&self, now: Duration) -> Duration {
        now.saturating_add(self.times.interval)
    }

    fn next_when_armed(&mut self, round: Round, now: Duration) -> Order {
        match round {
            // Such a pet is allowed. It is skipped because the next one has the same effect, and this one would be
            // late.
            Round::Granted { sent } if now.saturating_sub(sent) > self.times.interval => self.start_round(now),
            Round::Granted { .. } => Order::Pet,
            Round::Doubtful { due, .. } | Round::Due { due } if now < due => Order::Wait(due),
            Round::Doubtful { .. } => Order::Read,
            Round::Due { .. } if self.stopped && now >= self.epoch_granted_at.saturating_add(self.times.settle) => {
                Order::Release
            }
            Round::Due { .. } => self.start_round(now),
            Round::Sent { .. } => self.write(),
        }
    }

    /// The next round: its number and its time stay, however often it is sent.
    fn start_round(&mut self, now: Duration) -> Order {
        self.round += 1;
        self.stage = Stage::Armed(Round::Sent { sent: now });
        self.write()
    }

    fn write(&self) -> Order {
        let state = if self.is_shutting_down && !self.stopped { State::Disarmed } else { State::Armed };
        Order::Write(self.new_record(state), self.lease.clone().flatten())
    }

    fn next_when_ended(&mut self, ended: Ended, now: Duration) -> Order {
        match ended {
            Ended::Prove { due } if now < due => Order::Wait(due),
            Ended::Prove { .. } => Order::Prove,
            Ended::Proved if self.device.is_none() => Order::Open,
            Ended::Proved => Order::Pet,
            Ended::Read => Order::Read,
            // A new epoch for each attempt: an older attempt may have been granted, before a pet that had no grant.
            Ended::Request => {
                self.epoch.count += 1;
                (self.round, self.stage) = (1, Stage::Ended(Ended::Requested { sent: now }));
                self.write()
            }
            Ended::Requested { .. } => self.write(),
        }
    }

    fn new_record(&self, state: State) -> Record {
        let (epoch, round, boot, device) = (self.epoch, self.round, self.boot.clone(), self.device.clone());
        Record { state, epoch, round, boot, device }
    }

    /// Handles the answer to `order`.
    pub fn handle_answer(&mut self, now: Duration, order: &Order, answer: Answer) {
        match (order, answer) {
            (Order::Read, Answer::Lease(lease)) => self.on_read(lease),
            (Order::Read, _) => self.on_read_failed(now),
            (Order::Write(record, _), Answer::Written(version)) => self.on_written(now, record.state, version),
            (Order::Write(..), _) => self.on_write_failed(now),
            (Order::Open, Answer::Opened(device)) => self.on_opened(now, device),
            (Order::Open, _) => self.on_open_failed(now),
            (Order::Pet, Answer::Done) => self.on_petted(),
            (Order::Pet, _) => {
                // Without the device the promise does not hold: the pods must end.
                self.device = None;
                self.start_ending();
            }
            (Order::Stop, _) => (self.stopped, self.stage) = (true, Stage::Ending(Ending::Prove)),
            (Order::Prove, Answer::Verified(true)) => self.stage = Stage::Ended(Ended::Proved),
            (Order::Prove, _) => self.stage = Stage::Ending(Ending::Stop { due: self.next_attempt(now) }),
            (Order::Release, Answer::Done) => self.stopped = false,
            (Order::Release, _) => self.epoch_granted_at = now,
            (Order::Close, _) => self.device = None,
            (Order::Wait(_) | Order::Exit, _) => {}
        }
    }

    fn on_read(&mut self, lease: Option<ObservedLease>) {
        let version = lease.as_ref().map(|seen| Arc::clone(&seen.version));
        let record = lease.and_then(|seen| seen.record);
        match self.stage {
            Stage::Armed(Round::Doubtful { sent, .. }) => self.on_doubtful_read(sent, version, record),
            Stage::Begin { .. } => {
                self.lease = Some(version);
                if self.is_revoked(record.as_ref()) {
                    self.start_ending();
                }
            }
            Stage::Ended(_) if self.is_revoked(record.as_ref()) => self.stage = Stage::Fenced,
            Stage::Ended(_) => (self.lease, self.stage) = (Some(version), Stage::Ended(Ended::Request)),
            Stage::Unarmed { .. } | Stage::Armed(_) | Stage::Ending(_) | Stage::Fenced | Stage::Left => {}
        }
    }

    /// Only of this boot: processes of an earlier one do not exist any more.
    fn is_revoked(&self, record: Option<&Record>) -> bool {
        record.is_some_and(|record| record.state == State::Revoked && record.boot == self.boot)
    }

    /// If the Lease has this round, it is granted. If the Lease is unchanged, the round was not written. Otherwise
    /// another client wrote.
    fn on_doubtful_read(&mut self, sent: Duration, version: Option<Version>, record: Option<Record>) {
        let mine = |record: &Record| (record.epoch, record.round) == (self.epoch, self.round);
        match record.filter(mine).map(|record| record.state) {
            Some(state @ (State::Armed | State::Disarmed)) => {
                self.lease = Some(version);
                self.accept_grant(sent, state);
            }
            _ if version.is_some() && self.lease == Some(version) => self.stage = Stage::Armed(Round::Sent { sent }),
            _ => self.start_ending(),
        }
    }

    fn on_read_failed(&mut self, now: Duration) {
        let due = self.next_attempt(now);
        match self.stage {
            Stage::Begin { .. } => self.stage = Stage::Begin { due },
            Stage::Armed(Round::Doubtful { sent, .. }) => self.stage = Stage::Armed(Round::Doubtful { sent, due }),
            Stage::Ended(_) => self.stage = Stage::Ended(Ended::Prove { due }),
            Stage::Unarmed { .. } | Stage::Armed(_) | Stage::Ending(_) | Stage::Fenced | Stage::Left => {}
        }
    }

    fn on_written(&mut self, now: Duration, state: State, version: Version) {
        self.lease = Some(Some(version));
        match self.stage {
            Stage::Begin { .. } => (self.epoch_granted_at, self.stage) = (now, Stage::Unarmed { due: now }),
            Stage::Armed(Round::Sent { sent }) => self.accept_grant(sent, state),
            Stage::Ended(Ended::Requested { sent }) => {
                self.epoch_granted_at = now;
                self.accept_grant(sent, state);
            }
            Stage::Unarmed { .. }
            | Stage::Armed(_)
            | Stage::Ending(_)
            | Stage::Ended(_)
            | Stage::Fenced
            | Stage::Left => {}
        }
    }

    const fn accept_grant(&mut self, sent: Duration, state: State) {
        self.granted_at = sent;
        self.stage = match state {
            State::Disarmed => Stage::Left,
            State::Unarmed | State::Armed | State::Revoked => Stage::Armed(Round::Granted { sent }),
        };
    }

    fn on_write_failed(&mut self, now: Duration) {
        let due = self.next_attempt(now);
        match self.stage {
            Stage::Begin { .. } => (self.lease, self.stage) = (None, Stage::Begin { due }),
            Stage::Armed(Round::Sent { sent }) => self.stage = Stage::Armed(Round::Doubtful { sent, due: now }),
            Stage::Ended(_) => self.stage = Stage::Ended(Ended::Prove { due }),
            Stage::Unarmed { .. } | Stage::Armed(_) | Stage::Ending(_) | Stage::Fenced | Stage::Left => {}
        }
    }

    fn on_opened(&mut self, now: Duration, device: Arc<Device>) {
        self.device = Some(device);
        match self.stage {
            Stage::Unarmed { .. } => (self.granted_at, self.stage) = (now, Stage::Armed(Round::Due { due: now })),
            Stage::Ended(_) => self.stage = Stage::Ended(Ended::Read),
            Stage::Begin { .. } | Stage::Armed(_) | Stage::Ending(_) | Stage::Fenced | Stage::Left => {}
        }
    }

    fn on_open_failed(&mut self, now: Duration) {
        let due = self.next_attempt(now);
        match self.stage {
            Stage::Unarmed { .. } => self.stage = Stage::Unarmed { due },
            Stage::Ended(_) => self.stage = Stage::Ended(Ended::Prove { due }),
            Stage::Begin { .. } | Stage::Armed(_) | Stage::Ending(_) | Stage::Fenced | Stage::Left => {}
        }
    }

    const fn on_petted(&mut self) {
        match self.stage {
            Stage::Armed(Round::Granted { sent }) => {
                self.stage = Stage::Armed(Round::Due { due: sent.saturating_add(self.times.interval) });
            }
            Stage::Ended(_) => self.stage = Stage::Ended(Ended::Read),
            Stage::Begin { .. }
            | Stage::Unarmed { .. }
            | Stage::Armed(_)
            | Stage::Ending(_)
            | Stage::Fenced
            | Stage::Left => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Class;

    /// Evidence is about a boot: a process of the same boot that restarts has another epoch.
    #[test]
    fn a_revoked_boot_gets_no_grant_after_the_agent_restarts() {
        let (boot, second) = (Boot { node: "7a1c".into(), id: "c3d0".into() }, Duration::from_secs(1));
        let times = Times { interval: second, soft: second * 10, settle: second };
        let startup = StartupState { predecessor: false, stopped: false };
        for (what, of, expected) in [
            ("its boot", boot.clone(), Phase::Ending),
            ("an earlier boot", Boot { id: "0".into(), ..boot.clone() }, Phase::Begin),
        ] {
            let mut agent = Agent::new(boot.clone(), times, 2, startup, Duration::ZERO);
            assert_eq!(agent.next(Duration::ZERO), Order::Read);
            let epoch = Epoch { process: 1, count: 0 };
            let record = Record { state: State::Revoked, epoch, round: 3, boot: of, device: None };
            let lease = ObservedLease { version: "8".into(), record: Some(record) };
            agent.handle_answer(Duration::ZERO, &Order::Read, Answer::Lease(Some(lease)));
            assert_eq!(agent.phase(), expected, "{what} was revoked");
        }
    }

    /// The order of each second, and its answer a second later.
    #[test]
    fn the_age_of_a_grant_counts_from_its_first_request_and_a_late_one_ends_the_pods() {
        let (at, boot) = (Duration::from_secs, Boot { node: "7a1c".into(), id: "c3d0".into() });
        let times = Times { interval: at(2), soft: at(6), settle: at(10) };
        let (class, identity, kernel) = (Class::Hardware, "iTCO_wdt".into(), "6.1.0".into());
        let (timeout, nowayout, pings_on_close, epoch) = (at(10), true, true, Epoch { process: 1, count: 0 });
        let device = Arc::new(Device { class, identity, firmware: 6, kernel, timeout, nowayout, pings_on_close });
        let record = |state, round, device| Record { state, epoch, round, boot: boot.clone(), device };
        let open = |state, round| record(state, round, Some(Arc::clone(&device)));
        let write = |round, over: &str| Order::Write(open(State::Armed, round), Some(over.into()));
        let lease = |version: &str, state, round| {
            Answer::Lease(Some(ObservedLease { version: version.into(), record: Some(open(state, round)) }))
        };
        let mut agent = Agent::new(boot.clone(), times, 1, StartupState { predecessor: false, stopped: false }, at(0));
        for (second, order, answer) in [
            (0, Order::Read, Answer::Lease(None)),
            (1, Order::Write(record(State::Unarmed, 0, None), None), Answer::Written("1".into())),
            (2, Order::Open, Answer::Opened(Arc::clone(&device))),
            (3, write(1, "1"), Answer::Written("2".into())),
            (4, Order::Pet, Answer::Done),
            (5, write(2, "2"), Answer::Failed),
            (6, Order::Read, lease("2", State::Armed, 1)),
            (7, write(2, "2"), Answer::Failed),
            (8, Order::Read, lease("3", State::Armed, 2)),
            (9, write(3, "3"), Answer::Failed),
            (10, Order::Read, Answer::Failed),
            (11, Order::Stop, Answer::Done),
            (12, Order::Prove, Answer::Verified(false)),
            (15, Order::Stop, Answer::Done),
            (16, Order::Prove, Answer::Verified(true)),
            (17, Order::Pet, Answer::Done),
            (18, Order::Read, Answer::Failed),
            (21, Order::Prove, Answer::Verified(true)),
            (22, Order::Pet, Answer::Done),
            (23, Order::Read, lease("4", State::Revoked, 3)),
            (24, Order::Wait(at(26)), Answer::Done),
        ] {
            assert_eq!(agent.next(at(second)), order, "second {second}");
            agent.handle_answer(at(second + 1), &order, answer);
        }
    }
}
