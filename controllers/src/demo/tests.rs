//! The screen at a given moment, and the actions of keys.

use std::time::Duration;

use pod_safety_shared::testing::should_rewrite;
use pod_safety_simulator::campaign::Fault;
use pod_safety_simulator::checker::{Invariant, News, Tone, Violation};
use pod_safety_simulator::comparison::compare;
use pod_safety_simulator::scenario::{Contender, shipped};
use pod_safety_simulator::world::{
    BudgetView, HoldView, Intervention, Machine, NodeView, PodView, ProcessView, ReplicaView, Snapshot,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::launch::launch;
use super::picture::draw;
use super::show::{Overlay, Show, UserAction};
use super::{find_scenario, format_list, plain};

fn node(name: &str, zone: &'static str, machine: Machine, registered: bool) -> NodeView {
    let (name, lease_age, said) = (name.to_owned(), Some(Duration::from_secs(7)), String::new());
    NodeView { name, zone, machine, registered, lease_age, condition_summary: said }
}

fn pod(name: &str, uid: &str, node: &str, terminating: bool) -> PodView {
    let (identity, phase) = (format!("default/{name}"), "Running".to_owned());
    PodView { identity, uid: uid.to_owned(), phase, node: node.to_owned(), terminating }
}

fn process(name: &str, uid: &str, node: &str) -> ProcessView {
    let since = Duration::from_secs(20);
    ProcessView { identity: format!("default/{name}"), uid: uid.to_owned(), node: node.to_owned(), since }
}

fn news(at: u64, tone: Tone, text: &str) -> News {
    News { at: Duration::from_secs(at), tone, text: text.to_owned() }
}

/// Four machines in four states; data-1 runs twice.
fn moment() -> Snapshot {
    Snapshot {
        at: Duration::from_millis(83_400),
        nodes: vec![
            node("node-0", "a", Machine::On, true),
            node("node-1", "b", Machine::Cut, false),
            NodeView {
                condition_summary: "Unknown, suspect, NoExecute".to_owned(),
                ..node("node-2", "c", Machine::Off, true)
            },
            node("node-3", "a", Machine::Frozen, true),
        ],
        pods: vec![
            pod("data-0", "aaaa0", "node-2", true),
            pod("data-1", "bbbb1", "node-0", false),
            pod("data-2", "cccc2", "", false),
        ],
        processes: vec![process("data-1", "bbbb1", "node-0"), process("data-1", "dddd3", "node-1")],
        replicas: vec![ReplicaView { name: "replica-0".to_owned(), running: true, paused: false, leads: true }],
        budgets: vec![BudgetView {
            name: "shop-0".to_owned(),
            allowed: 1,
            current: 4,
            desired: 3,
            expected: 4,
            ready: 3,
        }],
        holds: vec![HoldView {
            subject: "default/data-0".to_owned(),
            reason: "KubeletAlive".to_owned(),
            message: "Stop that kubelet".to_owned(),
        }],
        violations: vec![Violation {
            at: Duration::from_secs(70),
            invariant: Invariant::AtMostOne,
            what: "default/data-1 runs on node-0 (boot 1, pod bbbb1) and now on node-1 too".to_owned(),
            plain: "data-1 runs twice".to_owned(),
        }],
        news: vec![news(33, Tone::Fault, "the Node object of node-1 is deleted")],
        over: false,
    }
}

fn show() -> Show {
    let mut show = Show::new(shipped().unwrap(), 0, Contender::PodSafety, 6.0);
    show.update(moment());
    show
}

fn screen(show: &Show) -> Vec<String> {
    screen_of(show, 150, 44)
}

fn screen_of(show: &Show, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, show)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(line).collect()
}

#[track_caller]
fn has(screen: &[String], words: &[&str]) {
    let matches = screen.iter().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(matches, "no line has all of {words:?}:\n{}", screen.join("\n"));
}

fn press(show: &mut Show, code: KeyCode) -> UserAction {
    show.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn letter(show: &mut Show, letter: char) -> UserAction {
    press(show, KeyCode::Char(letter))
}

#[test]
fn other_rules_are_shown_as_giving_no_reasons() {
    let mut show = show();
    show.contender = Contender::KubeControllerManager;
    show.update(Snapshot { holds: Vec::new(), replicas: Vec::new(), ..moment() });
    has(&screen(&show), &["data-0: Terminating. kube-controller-manager gives no reason."]);
    has(&screen(&show), &["rules: kube-controller-manager"]);
}

/// Each screen is compared with a reviewed file.
#[test]
fn the_screen_fits_terminals_of_any_size() {
    let mut calm = show();
    calm.update(Snapshot { violations: Vec::new(), budgets: Vec::new(), ..moment() });
    calm.overlay = Overlay::Help;
    for (name, show, width, height) in [
        ("80x24", show(), 80, 24),
        ("80x24-help", calm, 80, 24),
        ("50x30", show(), 50, 30),
        ("60x18", show(), 60, 18),
        ("200x50", busy(), 200, 50),
    ] {
        reads(name, &show, width, height);
    }
}

/// A state with so many events that a timeline of any height is full.
fn busy() -> Show {
    let mut show = show();
    let news = (34..84).map(|at| news(at, Tone::Other, "node-0 says that it is not ready")).collect();
    show.update(Snapshot { news, ..moment() });
    show
}

/// Of 50 lines 28 were empty, and the timeline had nine.
#[test]
fn bug_a_large_terminal_was_half_empty() {
    let screen = screen_of(&busy(), 200, 50);
    let lines = screen.iter().filter(|line| line.contains("says that it is not ready")).count();
    let empty = screen.iter().filter(|line| line.trim().is_empty()).count();
    assert!(lines >= 20 && empty <= 3, "{lines} lines have events, {empty} are empty:\n{}", screen.join("\n"));
}

/// The panel showed "No pod waits." for a database whose node was cut off for 35 s.
#[test]
fn bug_an_unnoticed_cut_off_node_was_shown_as_nothing() {
    let cut = |at: u64, said: &str, holds: Vec<HoldView>| Snapshot {
        at: Duration::from_secs(at),
        nodes: vec![NodeView { condition_summary: said.to_owned(), ..node("node-0", "a", Machine::Cut, true) }],
        pods: vec![pod("data-0", "a", "node-0", false)],
        holds,
        ..Snapshot::default()
    };
    let mut show = show();
    show.update(Snapshot { nodes: vec![node("node-0", "a", Machine::On, true)], ..cut(39, "", Vec::new()) });
    has(&screen(&show), &["No pod waits."]);
    for contender in Contender::ALL {
        show.contender = contender;
        show.update(cut(40, "", Vec::new()));
        show.update(cut(75, "", Vec::new()));
        has(&screen(&show), &["data-0: cut off for 35 s, not noticed yet"]);
        show.update(cut(80, "suspect", Vec::new()));
        has(&screen(&show), &["data-0: cut off for 40 s, its node is marked suspect"]);
    }
    show.contender = Contender::PodSafety;
    show.update(cut(95, "Unknown", moment().holds));
    has(&screen(&show), &["data-0 KubeletAlive"]);
    let text = screen(&show).join("\n");
    assert!(!text.contains("cut off for") && !text.contains("No pod waits"), "{text}");
}

#[track_caller]
fn reads(name: &str, show: &Show, width: u16, height: u16) {
    let lines = screen_of(show, width, height);
    let text: String = lines.iter().map(|line| format!("{}\n", line.trim_end())).collect();
    let path = format!("{}/src/demo/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    golden(&path, &text);
}

/// Compares with a file, or writes it again.
#[track_caller]
pub(super) fn golden(path: &str, text: &str) {
    if should_rewrite("POD_SAFETY_WRITE_GOLDEN") {
        std::fs::write(path, text).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        golden == text,
        "{path}: run it once with POD_SAFETY_WRITE_GOLDEN=1 and look at the difference; it is now:\n{text}"
    );
}

#[test]
fn nodes_that_do_not_fit_are_counted_and_the_selected_one_is_seen() {
    let mut show = show();
    let nodes = (0..30).map(|at| node(&format!("node-{at}"), "a", Machine::On, true)).collect();
    show.update(Snapshot { nodes, violations: Vec::new(), budgets: Vec::new(), ..moment() });
    show.selected = 17;
    let screen = screen_of(&show, 80, 24);
    has(&screen, &["▶ node-17"]);
    has(&screen, &["more lines: ↑ and ↓ select other nodes"]);
    show.selected = 29;
    has(&screen_of(&show, 80, 24), &["▶ node-29"]);
}

#[test]
fn the_newest_lines_of_the_timeline_are_seen() {
    let mut show = show();
    let news = (0..400).map(|at| news(at, Tone::Other, &format!("line {at}."))).collect();
    show.update(Snapshot { news, ..moment() });
    let screen = screen(&show);
    has(&screen, &["line 399."]);
    assert!(!screen.iter().any(|line| line.contains("line 100.")));
    assert!(show.timeline.len() < 400, "a long watch does not fill the memory");
}

#[test]
fn a_tiny_terminal_does_not_panic() {
    for overlay in [Overlay::Nothing, Overlay::Table, Overlay::Help] {
        for (width, height) in [(9, 3), (1, 1), (20, 10)] {
            let mut show = show();
            show.overlay = overlay;
            assert_eq!(screen_of(&show, width, height).len(), usize::from(height));
        }
    }
}

#[test]
fn keys_act_on_the_selected_node_as_it_is() {
    let mut show = show();
    let cut = letter(&mut show, 'c');
    assert!(matches!(cut, UserAction::Deed(Intervention::Fault(Fault::CutNode { node: 0, .. }))), "{cut:?}");
    let frozen = letter(&mut show, 'f');
    assert!(matches!(frozen, UserAction::Deed(Intervention::Fault(Fault::Freeze { node: 0, .. }))), "{frozen:?}");
    assert_eq!(letter(&mut show, 'o'), UserAction::Deed(Intervention::Fault(Fault::PowerOff { node: 0, back: None })));
    assert_eq!(letter(&mut show, 'd'), UserAction::Deed(Intervention::Fault(Fault::DeleteNode { node: 0 })));
    assert_eq!(letter(&mut show, 'r'), UserAction::None, "it has power");

    assert_eq!(press(&mut show, KeyCode::Down), UserAction::None);
    assert_eq!(letter(&mut show, 'h'), UserAction::Deed(Intervention::Reconnect(1)));
    assert_eq!(letter(&mut show, 'd'), UserAction::None, "its Node is deleted already");
    press(&mut show, KeyCode::Tab);
    assert_eq!(letter(&mut show, 'r'), UserAction::Deed(Intervention::PowerOn(2)));
    assert_eq!(letter(&mut show, 'o'), UserAction::None, "it has no power");
    (0..5).for_each(|_| assert_eq!(press(&mut show, KeyCode::Down), UserAction::None));
    assert_eq!(show.selected, 3, "the last node stays selected");
    assert_eq!(letter(&mut show, 'f'), UserAction::Deed(Intervention::Thaw(3)));
    press(&mut show, KeyCode::Up);
    assert_eq!(show.selected, 2);
}

#[test]
fn keys_change_what_is_shown() {
    let mut show = show();
    assert_eq!(letter(&mut show, ' '), UserAction::Pause);
    assert!(show.paused);
    has(&screen(&show), &["PAUSED"]);
    assert_eq!(letter(&mut show, '+'), UserAction::Speed);
    assert!(show.speed > 6.0);
    (0..100).for_each(|_| {
        letter(&mut show, '-');
    });
    assert!(show.speed > 0.0, "time never stands still by accident");
    assert_eq!(letter(&mut show, 's'), UserAction::Restart);
    assert_eq!(show.contender, Contender::KubeControllerManager);
    assert!(!show.paused && show.timeline.is_empty(), "a new run begins at its beginning");
    assert_eq!(letter(&mut show, '3'), UserAction::Restart);
    assert_eq!(show.scenario().unwrap().name, "power-loss");
    assert_eq!(show.contender, Contender::PodSafety, "another scenario begins with the rules of the first");
    assert_eq!(letter(&mut show, 'q'), UserAction::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(show.key(interrupt), UserAction::Quit, "not a cut");
}

#[test]
fn the_table_and_the_explanations_are_opened_and_closed() {
    let mut show = show();
    assert_eq!(letter(&mut show, 't'), UserAction::None);
    has(&screen(&show), &["running the same fault with all rules"]);
    show.comparison = Some(compare(show.plan().unwrap(), launch));
    let open = screen(&show);
    has(&open, &["pod-safety", "kube-controller-manager", "script --force"]);
    has(&open, &["two copies wrote", "never"]);
    has(&open, &["With kube-controller-manager alone: data-0 is still away after"]);
    letter(&mut show, '?');
    has(&screen(&show), &["its pods are deleted gracefully"]);
    has(&screen_of(&show, 80, 24), &["the table; this page; quit"]);
    assert_eq!(press(&mut show, KeyCode::Esc), UserAction::None);
    assert_eq!(show.overlay, Overlay::Nothing);
    has(&screen(&show), &["script --force", "data-0"]);
}

#[test]
fn scenarios_are_chosen_by_name_or_number() {
    let scenarios = shipped().unwrap();
    assert_eq!(find_scenario(&scenarios, None).unwrap(), 0);
    assert_eq!(find_scenario(&scenarios, Some("storm")).unwrap(), 12);
    assert_eq!(find_scenario(&scenarios, Some("2")).unwrap(), 1);
    for unknown in ["0", &*(scenarios.len() + 1).to_string(), "nosuch"] {
        let message = find_scenario(&scenarios, Some(unknown)).unwrap_err().to_string();
        assert!(message.contains(unknown) && message.contains("known are database, two-losses,"), "{message}");
    }
    let list = format_list(&scenarios);
    let columns = list.lines().zip(&scenarios).map(|(line, scenario)| line.find(&*scenario.title));
    let columns: Vec<_> = columns.collect();
    assert_eq!(columns, vec![columns[0]; scenarios.len()], "bug: a long name moved its title: {list}");
    for (at, scenario) in scenarios.iter().enumerate() {
        let head = format!("{} {}: {}", at + 1, scenario.name, scenario.title);
        assert!(head.chars().count() <= 80, "it does not fit on a terminal of 80 columns: {head}");
    }
}

#[test]
fn the_verdict_names_what_was_broken_and_how_often() {
    let scenario = &shipped().unwrap()[1];
    let comparison = compare(&scenario.plan, launch);
    let ours = plain::verdict(Contender::PodSafety, comparison.outcome(Contender::PodSafety).unwrap(), false);
    assert!(ours.contains("verdict: pod-safety broke no rule in "), "{ours}");
    let kcm = comparison.outcome(Contender::KubeControllerManager).unwrap();
    let theirs = plain::verdict(Contender::KubeControllerManager, kcm, true);
    let count = kcm.broken[&Invariant::AtMostOne];
    assert!(theirs.contains("broke rules") && theirs.contains(&format!("S1 at most one: {count}\n")), "{theirs}");
    let plain = plain::verdict(Contender::KubeControllerManager, kcm, false);
    assert!(plain.contains("RULE BROKEN: data-") && !plain.contains("S1"), "{plain}");
}
