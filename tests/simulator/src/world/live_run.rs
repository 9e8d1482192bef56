//! A run before an audience: in a thread of its own, paced against real time,
//! paused, and meddled with.
//!
//! The simulation stays what it is: its clock is tokio's paused one, which stands
//! still while the thread waits for real time to catch up. The timers of an
//! audience decide about the order of what happens at the same instant: a run that
//! is looked at is not the run of its seed without, but the same each time.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pod_safety_shared::clock::Task;
use tokio::sync::Notify;

use super::host::Host;
use super::run::{Outcome, Subject, World, run_before};
use super::snapshot::Snapshot;
use crate::campaign::{Fault, Plan};
use crate::checker::Tone;

/// Pictures that wait for an audience that looks away: then the world waits.
const PICTURES: usize = 64;

/// How a run is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Simulated time between two pictures.
    pub each: Duration,
    /// Simulated seconds in a real one; `None`: as fast as it goes.
    pub speed: Option<f64>,
    /// Until then it goes as fast as it can: machines boot, which is no sight.
    pub from: Duration,
    /// Ends with its plan; otherwise it goes on until the stage is closed.
    pub ends: bool,
}

/// What an audience can do to the world, besides the faults of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intervention {
    /// Something goes wrong.
    Fault(Fault),
    /// A node is cut off no longer.
    Reconnect(usize),
    /// A machine that was frozen goes on.
    Thaw(usize),
    /// A machine gets power.
    PowerOn(usize),
}

/// Something that is done inside of the simulation, between two of its moments.
/// Tasks that it starts belong to the host that it is given.
pub type WorldTask = Box<dyn FnOnce(&Arc<World>, &pod_safety_shared::clock::Env) + Send>;

enum Order {
    Deed(Intervention),
    Task(WorldTask),
    Speed(Option<f64>),
    Pause(bool),
    Close,
}

/// What becomes of the world after a picture.
#[derive(PartialEq, Eq)]
enum Next {
    /// Time goes on.
    On,
    /// Something was done; time stands still.
    Still,
    /// Nobody looks any longer.
    Closed,
}

/// A run that is being shown.
#[derive(Debug)]
pub struct LiveRun {
    orders: Sender<Order>,
    pictures: Receiver<Snapshot>,
    thread: Option<JoinHandle<Outcome>>,
}

impl LiveRun {
    /// Begins a run.
    ///
    /// # Errors
    /// The operating system has no thread for it.
    #[expect(clippy::disallowed_methods, reason = "a simulation before an audience has a thread of its own")]
    pub fn open(plan: &Plan, subject: Subject, pace: Pace) -> std::io::Result<Self> {
        let (orders, received) = channel();
        let (sender, pictures) = sync_channel(PICTURES);
        let audience = Audience {
            orders: received,
            pictures: sender,
            pace,
            paused: false,
            sent_news: 0,
            leaves: Arc::new(Notify::new()),
        };
        let plan = plan.clone();
        let play = move || run_before(&plan, subject, audience);
        let thread = std::thread::Builder::new().name("stage".to_owned()).spawn(play)?;
        Ok(Self { orders, pictures, thread: Some(thread) })
    }

    /// The next picture; `None`: none came in this time, or none will.
    #[must_use]
    pub fn next_snapshot(&self, patience: Duration) -> Option<Snapshot> {
        self.pictures.recv_timeout(patience).ok()
    }

    /// The next picture, whenever it comes; `None`: the run has ended.
    #[must_use]
    pub fn wait(&self) -> Option<Snapshot> {
        self.pictures.recv().ok()
    }

    /// Does something in the world. Nothing happens when it has ended.
    pub fn intervene(&self, deed: Intervention) {
        self.order(Order::Deed(deed));
    }

    /// Runs `visit` inside of the simulation: how requests come in from outside.
    pub fn run_inside(&self, visit: WorldTask) {
        self.order(Order::Task(visit));
    }

    /// Real clients come in through this gate, as long as the run lasts.
    pub fn serve(&self, visitors: crate::serve::Visitors) {
        self.run_inside(Box::new(move |world, env| {
            let world = Arc::clone(world);
            let shown = Arc::clone(&world);
            let ours = move || shown.our_pods();
            let attend = crate::serve::attend(visitors, move || world.servers.all(), ours, env.clone());
            env.spawner.spawn("visitors", Box::pin(attend));
        }));
    }

    /// A handle for another thread that visits.
    #[must_use]
    pub fn task_sender(&self) -> TaskSender {
        TaskSender(self.orders.clone())
    }

    /// Simulated seconds in a real one; `None`: as fast as it goes.
    pub fn speed(&self, speed: Option<f64>) {
        self.order(Order::Speed(speed));
    }

    /// Time stands still, or goes on.
    pub fn pause(&self, paused: bool) {
        self.order(Order::Pause(paused));
    }

    fn order(&self, order: Order) {
        drop(self.orders.send(order));
    }

    /// Waits for the end of a run that ends by itself, without looking.
    #[must_use]
    pub fn end(mut self) -> Option<Outcome> {
        while self.pictures.recv().is_ok() {}
        self.thread.take().and_then(|thread| thread.join().ok())
    }

    /// Ends the run now.
    #[must_use]
    pub fn close(mut self) -> Option<Outcome> {
        let thread = self.thread.take();
        self.order(Order::Close);
        // Without a receiver the next picture finds that nobody looks.
        drop(self);
        thread.and_then(|thread| thread.join().ok())
    }
}

/// Lets another thread into the simulation.
#[derive(Clone, Debug)]
pub struct TaskSender(Sender<Order>);

impl TaskSender {
    /// As [`Stage::visit`]; `false`: the run has ended.
    #[must_use]
    pub fn run_inside(&self, visit: WorldTask) -> bool {
        self.0.send(Order::Task(visit)).is_ok()
    }
}

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Order").finish_non_exhaustive()
    }
}

/// The audience's end of a stage, inside of the simulation.
pub(super) struct Audience {
    orders: Receiver<Order>,
    pictures: SyncSender<Snapshot>,
    pace: Pace,
    paused: bool,
    /// Lines of the timeline that it has been told.
    sent_news: usize,
    leaves: Arc<Notify>,
}

impl Audience {
    /// Fires when the run is to end.
    pub(super) fn leaves(&self) -> Arc<Notify> {
        Arc::clone(&self.leaves)
    }

    pub(super) fn watch(mut self, world: Arc<World>, peers: Arc<Host>) -> Task {
        Box::pin(async move {
            let mut due = real_now();
            loop {
                let picture = world.snapshot(self.sent_news);
                self.sent_news += picture.news.len();
                let last = picture.over && self.pace.ends;
                if self.pictures.send(picture).is_err() || last {
                    break;
                }
                match self.until_due(&world, &peers, &mut due) {
                    Next::On => tokio::time::sleep(self.pace.each).await,
                    Next::Still => tokio::task::yield_now().await,
                    Next::Closed => break,
                }
            }
            self.leaves.notify_one();
        })
    }

    /// Waits until the next picture is due, and does what is asked for meanwhile.
    fn until_due(&mut self, world: &Arc<World>, peers: &Arc<Host>, due: &mut Instant) -> Next {
        let warming = world.checker.now() < self.pace.from;
        match self.pace.speed.filter(|_| !warming) {
            Some(speed) => *due += self.pace.each.div_f64(speed.max(0.01)),
            None => *due = real_now(),
        }
        // After a pause, or on a machine that is too slow, nothing is caught up with.
        *due = (*due).max(real_now());
        loop {
            let received = if self.paused {
                self.orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.orders.recv_timeout(due.saturating_duration_since(real_now()))
            };
            match received {
                Err(RecvTimeoutError::Timeout) => return Next::On,
                Err(RecvTimeoutError::Disconnected) | Ok(Order::Close) => return Next::Closed,
                Ok(Order::Speed(speed)) => self.pace.speed = speed,
                Ok(Order::Pause(paused)) => {
                    self.paused = paused;
                    *due = real_now();
                }
                Ok(Order::Deed(deed)) => {
                    world.intervene(deed, peers);
                    return if self.paused { Next::Still } else { Next::On };
                }
                Ok(Order::Task(visit)) => {
                    visit(world, &peers.env());
                    return if self.paused { Next::Still } else { Next::On };
                }
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the audience lives in real time")]
fn real_now() -> Instant {
    Instant::now()
}

impl World {
    /// Does what somebody in the audience wants.
    fn intervene(self: &Arc<Self>, deed: Intervention, peers: &Arc<Host>) {
        match deed {
            Intervention::Fault(fault) => self.strike(fault, peers),
            Intervention::Reconnect(node) => {
                self.checker.announce(Tone::Other, format!("{} is reconnected", self.node(node)));
                self.links.reconnect(&self.node(node));
            }
            Intervention::Thaw(node) => {
                let host = self.machines.lock().get(node).and_then(|machine| machine.host.clone());
                if let Some(host) = host.filter(|host| host.is_paused()) {
                    self.checker.announce(Tone::Other, format!("{} continues", self.node(node)));
                    host.resume();
                }
            }
            Intervention::PowerOn(node) => {
                let world = Arc::clone(self);
                self.checker.announce(Tone::Other, format!("{} gets power", self.node(node)));
                peers.env().spawner.spawn("power", Box::pin(async move { world.power_on(node).await }));
            }
        }
    }
}
