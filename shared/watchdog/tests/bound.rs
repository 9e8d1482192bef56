//! The bound, for all parameters at once: z3 finds no schedule beyond it, and finds one for each wrong variant.
//!
//! `lemma` searches a schedule in which something of the machine still runs after the wait, and there must be none.
//! `variant` searches the same with a shorter wait or a weaker rule, and there must be one: then the part that was
//! left out is needed.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a helper of tests fails loudly, and prints the schedule that it found"
)]

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use pod_safety_watchdog::bound::Bound;

/// Rule 4: the pet of round k-1 came before round k was sent.
const IN_TURN: &str = "(assert (< before sent))";
/// The device fires one period after the last pet, or later than that only by pauses.
const NO_CLOSE: &str = "(assert (= closed pet)) (assert (<= pet dies (+ pet D P2)))";
/// The agent dies while the device runs, and closing it pets it.
const CLOSES: &str = "(assert (<= pet closed (+ pet D P2))) (assert (<= closed dies (+ closed D P3)))";
const TWICE: &str = "(+ (* 2 D) R P)";
const THRICE: &str = "(+ (* 3 D) R P)";

fn z3(question: &str) -> String {
    let missing = "z3 is missing: tests/install.sh installs it (apt-get install z3)";
    let mut child = Command::new("z3")
        .args(["-in", "-T:60"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{missing}: {error}"));
    child.stdin.take().unwrap().write_all(question.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

/// A schedule in which something still runs when `wait` has passed since `from`, under these rules.
fn runs_after(wait: &str, from: &str, rules: &[&str]) -> Option<String> {
    let page = include_str!("bound.smt2");
    let shown = "W g rho R P before sent committed seen pet closed dies ended";
    let answer = z3(&format!(
        "{page}{}\n(assert (> ended (+ {from} {wait})))\n(check-sat)\n(get-value ({shown}))\n",
        rules.join("\n")
    ));
    match answer.split_once('\n').unwrap_or_default() {
        ("sat", schedule) => Some(schedule.to_owned()),
        ("unsat", _) => None,
        _ => panic!("z3 does not know: {answer}"),
    }
}

fn lemma(wait: &str, rules: &[&str]) {
    let schedule = runs_after(wait, "seen", rules);
    assert!(schedule.is_none(), "{}", schedule.unwrap_or_default());
}

fn variant(wait: &str, from: &str, rules: &[&str]) {
    let schedule = runs_after(wait, from, rules);
    println!("{}", schedule.unwrap_or_else(|| panic!("no schedule breaks it: what it leaves out is not needed")));
}

#[test]
fn nothing_runs_after_the_wait() {
    lemma(THRICE, &[IN_TURN, CLOSES]);
}

/// The keeper of the tests, and any device whose descriptor outlives the agent.
#[test]
fn without_a_ping_on_close_two_periods_are_enough() {
    lemma(TWICE, &[IN_TURN, NO_CLOSE]);
}

/// The bound is tight: whichever part is taken from it, there is a schedule.
#[test]
fn nothing_can_be_taken_from_it() {
    variant("(+ (* 3 D) R P (- 0.001))", "seen", &[IN_TURN, CLOSES]);
    variant("(+ (* 2 D) R P (- 0.001))", "seen", &[IN_TURN, NO_CLOSE]);
}

/// The design had two periods. Linux pets a running device when its last descriptor is closed, also when a signal
/// closes it.
#[test]
fn bug_the_ping_on_close_was_not_counted() {
    variant(TWICE, "seen", &[IN_TURN, CLOSES]);
}

#[test]
fn variant_one_period() {
    variant("(+ D R P)", "seen", &[IN_TURN, NO_CLOSE]);
}

/// The agent pets if its read of the clock is within delta of the send. It may be suspended between the read and the
/// pet.
#[test]
fn variant_one_period_and_the_time_that_a_grant_may_take() {
    let looks = "(declare-const delta Real) (declare-const look Real)
        (assert (and (< 0 delta W) (<= committed look pet) (<= look (+ sent delta))))";
    variant("(+ D delta R P)", "seen", &[IN_TURN, NO_CLOSE, looks]);
}

/// `renewTime` is a time of the node's wall clock.
#[test]
fn variant_counted_from_the_time_that_the_node_wrote() {
    let skewed = "(declare-const skew Real) (define-fun renewed () Real (+ sent skew))";
    variant(THRICE, "renewed", &[IN_TURN, CLOSES, skewed]);
    // With the same clock it would hold: it is the clock that is wrong.
    assert!(runs_after(THRICE, "renewed", &[IN_TURN, CLOSES, skewed, "(assert (= skew 0))"]).is_none());
}

/// Round k+1 is petted before its answer, which reports that round k was revoked.
#[test]
fn variant_pet_before_the_acknowledgement() {
    let early = "(declare-const next Real) (assert (< pet next)) (assert (<= next (+ pet D P2)))
        (assert (<= next closed (+ next D P2))) (assert (<= closed dies (+ closed D P3)))";
    variant(THRICE, "seen", &[IN_TURN, early]);
}

/// A separate feeder pets until it is stopped: three more pets are enough to break the bound.
#[test]
fn variant_a_separate_feeder() {
    let feeder =
        "(declare-const f1 Real) (declare-const f2 Real) (assert (<= pet f1 (+ pet D))) (assert (<= f1 f2 (+ f1 D)))
        (assert (<= f2 closed (+ f2 D))) (assert (<= closed dies (+ closed D)))";
    variant(THRICE, "seen", &[IN_TURN, feeder]);
}

/// A test for each row.
macro_rules! tests {
    ($($(#[$doc:meta])* fn $name:ident() $check:block)*) => { $($(#[$doc])* #[test] fn $name() $check)* };
}

tests! {
    /// Round k is sent before round k-1 was petted, and may be observed before that too.
    fn variant_rounds_out_of_turn() { variant(THRICE, "seen", &[CLOSES]); }
    fn variant_no_ticks() { variant("(+ (* 3 W (+ 1 rho)) R P)", "seen", &[IN_TURN, CLOSES]); }
    fn variant_no_drift() { variant("(+ (* 3 (+ W g)) R P)", "seen", &[IN_TURN, CLOSES]); }
    fn variant_no_time_for_the_reset() { variant("(+ (* 3 D) P)", "seen", &[IN_TURN, CLOSES]); }
    /// The device of a virtual machine stands still while the machine is paused.
    fn variant_a_virtual_machine_without_a_pause_budget() { variant("(+ (* 3 D) R)", "seen", &[IN_TURN, CLOSES]); }
    /// The kernel continues to pet after the agent has died, or the device stops: there is no last ping.
    fn variant_closed_without_nowayout() {
        variant("(+ (* 1000 D) R P)", "seen", &[IN_TURN, "(assert (<= pet closed dies))"]);
    }
    /// A revocation that does not name the observed version: a later grant was committed, and not observed.
    fn variant_revoked_without_compare_and_swap() {
        variant(THRICE, "earlier", &[IN_TURN, CLOSES, "(declare-const earlier Real) (assert (< earlier sent))"]);
    }
}

/// The program computes the wait time of the lemma.
#[test]
fn the_program_computes_the_wait_of_the_lemma() {
    for (timeout, drift_ppm, reset, pause, pings_on_close) in
        [(10, 10_000, 5, 0, true), (5, 500, 0, 30, true), (60, 30_000, 7, 0, false), (255, 0, 120, 9, false)]
    {
        let seconds = Duration::from_secs;
        let bound = Bound {
            timeout: seconds(timeout),
            tick: seconds(1),
            drift_ppm,
            reset: seconds(reset),
            pause: seconds(pause),
            pings_on_close,
        };
        let nanos = bound.wait_time().unwrap().as_nanos();
        let formula = if pings_on_close { THRICE } else { TWICE };
        let asked = format!(
            "{}(assert (and (= W {timeout}) (= g 1) (= rho (/ {drift_ppm} 1000000)) (= R {reset}) (= P {pause})))
            (assert (not (and (<= {formula} (/ {nanos} 1000000000)) (< (/ {nanos} 1000000000) (+ {formula} 0.000000001)))))
            (check-sat)\n",
            include_str!("bound.smt2")
        );
        assert_eq!(z3(&asked).trim(), "unsat", "{bound:?}");
    }
}
