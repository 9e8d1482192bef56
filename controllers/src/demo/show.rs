//! The state of the screen, and what keys do: it can be tested without a terminal.

use std::collections::VecDeque;
use std::time::Duration;

use pod_safety_simulator::campaign::{Fault, Plan};
use pod_safety_simulator::checker::News;
use pod_safety_simulator::comparison::Comparison;
use pod_safety_simulator::scenario::{Contender, Scenario};
use pod_safety_simulator::world::{Intervention, Machine, NodeView, Snapshot};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Longer than any session.
const FOREVER: u64 = 100_000_000;
/// The number of timeline lines that are kept for the screen.
const KEPT: usize = 200;
/// The factor by which a key changes the speed.
const FASTER: f64 = 1.5;

/// The overlay above the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overlay {
    /// Nothing.
    Nothing,
    /// The outcome by all sets of rules.
    Table,
    /// The legend, and the keys.
    Help,
}

/// The action of a key.
#[derive(Debug, PartialEq)]
pub(super) enum UserAction {
    /// Nothing.
    None,
    /// Change the world.
    Deed(Intervention),
    /// Continue at the present speed.
    Speed,
    /// Pause, or continue.
    Pause,
    /// Restart, with the present scenario and rules.
    Restart,
    /// Quit.
    Quit,
}

/// The state of the screen.
pub(super) struct Show {
    pub(super) scenarios: Vec<Scenario>,
    pub(super) at: usize,
    pub(super) contender: Contender,
    /// The rules with which a scenario begins.
    first: Contender,
    pub(super) speed: f64,
    pub(super) paused: bool,
    /// The node that keys act on.
    pub(super) selected: usize,
    pub(super) snapshot: Snapshot,
    /// Since when each machine is in its state, in the order of the nodes.
    since: Vec<(Machine, Duration)>,
    pub(super) timeline: VecDeque<News>,
    pub(super) overlay: Overlay,
    /// The outcome of the plan by all sets of rules, once it is measured.
    pub(super) comparison: Option<Comparison>,
    /// The address for kubectl.
    pub(super) served: Option<String>,
}

impl Show {
    pub(super) fn new(scenarios: Vec<Scenario>, at: usize, contender: Contender, speed: f64) -> Self {
        Self {
            scenarios,
            at,
            contender,
            first: contender,
            speed,
            paused: false,
            selected: 0,
            snapshot: Snapshot::default(),
            since: Vec::new(),
            timeline: VecDeque::new(),
            overlay: Overlay::Nothing,
            comparison: None,
            served: None,
        }
    }

    pub(super) fn scenario(&self) -> Option<&Scenario> {
        self.scenarios.get(self.at)
    }

    pub(super) fn plan(&self) -> Option<&Plan> {
        self.scenario().map(|scenario| &scenario.plan)
    }

    /// Takes the newest frame.
    pub(super) fn update(&mut self, mut snapshot: Snapshot) {
        self.timeline.extend(std::mem::take(&mut snapshot.news));
        while self.timeline.len() > KEPT {
            self.timeline.pop_front();
        }
        for (index, node) in snapshot.nodes.iter().enumerate() {
            match self.since.get_mut(index) {
                Some((machine, _)) if *machine == node.machine => {}
                Some(entry) => *entry = (node.machine, snapshot.at),
                None => self.since.push((node.machine, snapshot.at)),
            }
        }
        self.snapshot = snapshot;
    }

    /// How long the machine of this node has been in its state.
    pub(super) fn machine_state_age(&self, index: usize) -> Duration {
        let since = self.since.get(index).map_or(self.snapshot.at, |(_, since)| *since);
        self.snapshot.at.saturating_sub(since)
    }

    /// Resets everything.
    fn begin(&mut self) -> UserAction {
        self.timeline.clear();
        self.snapshot = Snapshot::default();
        self.since.clear();
        self.selected = 0;
        self.paused = false;
        self.overlay = Overlay::Nothing;
        self.comparison = None;
        UserAction::Restart
    }

    /// The action of a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> UserAction {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { UserAction::Quit } else { UserAction::None };
        }
        match key.code {
            KeyCode::Char('q') => UserAction::Quit,
            KeyCode::Esc => self.toggle(self.overlay),
            KeyCode::Char('?') => self.toggle(Overlay::Help),
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::Down | KeyCode::Tab | KeyCode::Char('j') => self.select(1),
            KeyCode::Char(' ') => {
                self.paused = !self.paused;
                UserAction::Pause
            }
            KeyCode::Char('+' | '=') => self.quicken(FASTER),
            KeyCode::Char('-') => self.quicken(1.0 / FASTER),
            KeyCode::Char('s') => {
                self.contender = self.contender.next();
                self.begin()
            }
            KeyCode::Char('t') => self.toggle(Overlay::Table),
            KeyCode::Char(digit @ '1'..='9') => {
                let at = digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok()).unwrap_or(1) - 1;
                if at >= self.scenarios.len() {
                    return UserAction::None;
                }
                self.at = at;
                self.contender = self.first;
                self.begin()
            }
            KeyCode::Char(letter) => self.action_for(letter).map_or(UserAction::None, UserAction::Deed),
            _ => UserAction::None,
        }
    }

    /// The action of a letter on the selected node.
    fn action_for(&self, letter: char) -> Option<Intervention> {
        let node = self.selected;
        let NodeView { machine, registered, .. } = self.snapshot.nodes.get(node)?;
        match (letter, machine) {
            ('c', Machine::On | Machine::Frozen) => {
                Some(Intervention::Fault(Fault::CutNode { node, seconds: FOREVER }))
            }
            ('h', Machine::Cut | Machine::On | Machine::Off) => Some(Intervention::Reconnect(node)),
            ('h' | 'f' | 'r', Machine::Frozen) => Some(Intervention::Thaw(node)),
            ('f', Machine::On | Machine::Cut) => Some(Intervention::Fault(Fault::Freeze { node, seconds: FOREVER })),
            ('o', Machine::On | Machine::Cut | Machine::Frozen) => {
                Some(Intervention::Fault(Fault::PowerOff { node, back: None }))
            }
            ('r', Machine::Off) => Some(Intervention::PowerOn(node)),
            ('d', _) if *registered => Some(Intervention::Fault(Fault::DeleteNode { node })),
            _ => None,
        }
    }

    fn select(&mut self, by: isize) -> UserAction {
        let last = self.snapshot.nodes.len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
        UserAction::None
    }

    fn quicken(&mut self, by: f64) -> UserAction {
        self.speed = (self.speed * by).clamp(0.1, super::FASTEST);
        UserAction::Speed
    }

    fn toggle(&mut self, overlay: Overlay) -> UserAction {
        self.overlay = if self.overlay == overlay { Overlay::Nothing } else { overlay };
        UserAction::None
    }
}
