//! A run that is shown to viewers: in a thread of its own, paced against real time, with pauses and interventions.
//!
//! The simulation keeps tokio's paused clock, which stands still while the thread waits for real time to catch up. The
//! timers of the viewer influence the order of events at the same instant: a run that is shown differs from the unshown
//! run of its seed, but it is the same each time.

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

/// How many snapshots may wait for a viewer that does not read: then the world waits.
const PICTURES: usize = 64;

/// How a run is paced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Simulated time between two snapshots.
    pub each: Duration,
    /// Simulated seconds in a real one; `None`: as fast as possible.
    pub speed: Option<f64>,
    /// Until this moment the run goes as fast as possible: machines boot.
    pub from: Duration,
    /// The run ends with its plan; otherwise it goes on until it is closed.
    pub ends: bool,
}

/// What a viewer can do to the world, besides the faults of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intervention {
    /// A fault begins.
    Fault(Fault),
    /// A node is connected again.
    Reconnect(usize),
    /// A frozen machine goes on.
    Thaw(usize),
    /// A machine gets power.
    PowerOn(usize),
}

/// Work that runs inside the simulation, between two of its moments. Tasks that it starts belong to the host that it is
/// given.
pub type WorldTask = Box<dyn FnOnce(&Arc<World>, &pod_safety_shared::clock::Env) + Send>;

enum Order {
    Deed(Intervention),
    Task(WorldTask),
    Speed(Option<f64>),
    Pause(bool),
    Close,
}

/// How the run continues after a snapshot.
#[derive(PartialEq, Eq)]
enum Next {
    /// Time goes on.
    On,
    /// An intervention happened; time stands still.
    Still,
    /// The viewer is gone.
    Closed,
}

/// A run that is shown.
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
    /// The operating system cannot start a thread for it.
    #[expect(clippy::disallowed_methods, reason = "a live run has a thread of its own")]
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

    /// The next snapshot; `None`: none came within `patience`, or none will come.
    #[must_use]
    pub fn next_snapshot(&self, patience: Duration) -> Option<Snapshot> {
        self.pictures.recv_timeout(patience).ok()
    }

    /// The next snapshot, however long it takes; `None`: the run has ended.
    #[must_use]
    pub fn wait(&self) -> Option<Snapshot> {
        self.pictures.recv().ok()
    }

    /// Changes the world. Has no effect after the run has ended.
    pub fn intervene(&self, deed: Intervention) {
        self.order(Order::Deed(deed));
    }

    /// Runs `visit` inside the simulation: requests from outside come in this way.
    pub fn run_inside(&self, visit: WorldTask) {
        self.order(Order::Task(visit));
    }

    /// Real clients come in through this gate, as long as the run lasts.
    pub fn serve(&self, visitors: crate::serve::Visitors) {
        self.run_inside(Box::new(move |world, env| {
            let world = Arc::clone(world);
            let shown = Arc::clone(&world);
            let own_pods = move || shown.our_pods();
            let attend = crate::serve::attend(visitors, move || world.servers.all(), own_pods, env.clone());
            env.spawner.spawn("visitors", Box::pin(attend));
        }));
    }

    /// A handle with which another thread can run work inside the simulation.
    #[must_use]
    pub fn task_sender(&self) -> TaskSender {
        TaskSender(self.orders.clone())
    }

    /// Sets the simulated seconds in a real one; `None`: as fast as possible.
    pub fn speed(&self, speed: Option<f64>) {
        self.order(Order::Speed(speed));
    }

    /// Pauses the run, or continues it.
    pub fn pause(&self, paused: bool) {
        self.order(Order::Pause(paused));
    }

    fn order(&self, order: Order) {
        drop(self.orders.send(order));
    }

    /// Waits for the end of a run that ends by itself, without reading snapshots.
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
        // Without a receiver the next snapshot finds that the viewer is gone.
        drop(self);
        thread.and_then(|thread| thread.join().ok())
    }
}

/// Sends work into the simulation from another thread.
#[derive(Clone, Debug)]
pub struct TaskSender(Sender<Order>);

impl TaskSender {
    /// As [`LiveRun::run_inside`]; `false`: the run has ended.
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

/// The viewer's end of a live run, inside the simulation.
pub(super) struct Audience {
    orders: Receiver<Order>,
    pictures: SyncSender<Snapshot>,
    pace: Pace,
    paused: bool,
    /// How many lines of the timeline were sent already.
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

    /// Waits until the next snapshot is due, and carries out orders meanwhile.
    fn until_due(&mut self, world: &Arc<World>, peers: &Arc<Host>, due: &mut Instant) -> Next {
        let warming = world.checker.now() < self.pace.from;
        match self.pace.speed.filter(|_| !warming) {
            Some(speed) => *due += self.pace.each.div_f64(speed.max(0.01)),
            None => *due = real_now(),
        }
        // After a pause, or on a machine that is too slow, lost time is not made up.
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

#[expect(clippy::disallowed_methods, reason = "the viewer runs in real time")]
fn real_now() -> Instant {
    Instant::now()
}

impl World {
    /// Carries out an intervention of a viewer.
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
