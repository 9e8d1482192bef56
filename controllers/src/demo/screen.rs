//! The terminal: draws frames and reads keys. It is restored when the program ends, also by a panic or a SIGTERM.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::Context;
use pod_safety_simulator::comparison::{self, Comparison};
use pod_safety_simulator::world::{LiveRun, Pace};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::hosting::Hosting;
use super::launch::launch;
use super::picture::draw;
use super::show::{Show, UserAction};

/// The interval of reading the keyboard.
const POLL_INTERVAL: Duration = Duration::from_millis(30);
/// The wait for a signal in each poll.
const SIGNAL_POLL: Duration = Duration::from_millis(1);
/// The maximum number of frames that are received before the next one is drawn.
const MAX_FRAMES: usize = 64;
/// Simulated time between two frames.
const FRAME_INTERVAL: Duration = Duration::from_millis(200);
/// By this time all machines have booted, which is nothing to watch.
pub(super) const START_AT: Duration = Duration::from_secs(20);

/// SIGTERM, which would otherwise leave the terminal in raw mode.
struct Termination {
    runtime: Runtime,
    signal: Signal,
}

impl Termination {
    fn listen() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let signal = {
            let _inside = runtime.enter();
            signal(SignalKind::terminate())?
        };
        Ok(Self { runtime, signal })
    }

    /// Whether the signal was received.
    fn is_received(&mut self) -> bool {
        let Self { runtime, signal } = self;
        runtime.block_on(async { tokio::time::timeout(SIGNAL_POLL, signal.recv()).await.is_ok() })
    }
}

/// Shows the scenario until the user quits.
pub(super) fn play(show: Show, hosting: Hosting) -> anyhow::Result<()> {
    let termination = Termination::listen().context("listening for SIGTERM")?;
    // This also restores the terminal on a panic.
    let mut terminal = ratatui::try_init().context("the terminal cannot be used; --plain needs none")?;
    let done = watch(&mut terminal, show, hosting, termination);
    ratatui::try_restore().context("restoring the terminal")?;
    done
}

fn watch(
    terminal: &mut DefaultTerminal,
    mut show: Show,
    mut hosting: Hosting,
    mut termination: Termination,
) -> anyhow::Result<()> {
    let mut stage = begin(&show, &hosting)?;
    show.served = hosting.serve(&stage)?;
    let mut measuring = measure(&show)?;
    loop {
        // Bounded: a fast world makes frames as quickly as they are received.
        for snapshot in std::iter::from_fn(|| stage.next_snapshot(Duration::ZERO)).take(MAX_FRAMES) {
            show.update(snapshot);
        }
        if let Ok(comparison) = measuring.try_recv() {
            show.comparison = Some(comparison);
        }
        terminal.draw(|frame| draw(frame, &show)).context("drawing")?;
        match next_action(&mut show, &mut termination)? {
            UserAction::None => {}
            UserAction::Deed(deed) => stage.intervene(deed),
            UserAction::Speed => stage.speed(Some(show.speed)),
            UserAction::Pause => stage.pause(show.paused),
            UserAction::Restart => {
                measuring = measure(&show)?;
                let before = std::mem::replace(&mut stage, begin(&show, &hosting)?);
                drop(before.close());
                show.served = hosting.serve(&stage)?;
            }
            UserAction::Quit => {
                drop(stage.close());
                return Ok(());
            }
        }
    }
}

/// The action of the next key, or of a signal.
fn next_action(show: &mut Show, termination: &mut Termination) -> anyhow::Result<UserAction> {
    if termination.is_received() {
        return Ok(UserAction::Quit);
    }
    if !event::poll(POLL_INTERVAL).context("reading keys")? {
        return Ok(UserAction::None);
    }
    Ok(match event::read().context("reading keys")? {
        Event::Key(key) if key.kind != KeyEventKind::Release => show.key(key),
        _ => UserAction::None,
    })
}

/// Runs the plan by all sets of rules, beside the run that is shown.
fn measure(show: &Show) -> anyhow::Result<Receiver<Comparison>> {
    let plan = show.plan().context("there are no scenarios")?;
    comparison::begin(plan, launch).context("starting a thread")
}

fn begin(show: &Show, hosting: &Hosting) -> anyhow::Result<LiveRun> {
    let plan = hosting.plan(show.plan().context("there are no scenarios")?);
    let pace = Pace { each: FRAME_INTERVAL, speed: Some(show.speed), from: START_AT, ends: false };
    LiveRun::open(&plan, show.contender.subject(launch), pace).context("starting a thread")
}
