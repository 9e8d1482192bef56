//! Without a terminal: the timeline as lines, then the verdict and the table.

use std::time::Duration;

use anyhow::Context;
use pod_safety_simulator::checker::Tone;
use pod_safety_simulator::comparison::compare;
use pod_safety_simulator::scenario::{Contender, Scenario};
use pod_safety_simulator::world::{LiveRun, Outcome, Pace};

use super::hosting::Hosting;
use super::launch::launch;
use pod_safety_cli::invocation::commands;
use pod_safety_cli::{Paint, print};

/// The width of the explanation.
const COLUMNS: usize = 100;
/// The interval of lines, in simulated time.
const FRAME_INTERVAL: Duration = Duration::from_secs(1);
/// The interval in real time when kubectl is served: a request is answered at the next frame, and a command sends up
/// to thirty, one after another.
const SERVED_INTERVAL: Duration = Duration::from_millis(30);

/// Runs the scenario, then compares. Returns whether pod-safety broke no rule.
pub(super) fn play(
    scenario: Option<&Scenario>,
    contender: Contender,
    speed: Option<f64>,
    hosting: Hosting,
) -> anyhow::Result<bool> {
    let scenario = scenario.context("there are no scenarios")?;
    let Scenario { name, title, about, plan, .. } = scenario;
    let (label, seed) = (contender.label(), plan.seed);
    let about = Paint::plain().with_columns(COLUMNS, commands()).wrap(about, 0);
    print(&format!("{name}: {title}\n\n{about}\n\nrules: {label}; seed {seed}\n\n"))?;
    let outcome = run_scenario(scenario, contender, speed, hosting)?;
    print(&verdict(contender, &outcome, false))?;
    let comparison = compare(plan, launch);
    let sentences = comparison.sentences().join("\n");
    print(&format!("\nthe same fault and seed with each set of rules:\n\n{sentences}\n\n{comparison}"))?;
    let own = comparison.outcome(Contender::PodSafety).context("pod-safety's own run did not finish")?;
    Ok(own.broken.is_empty())
}

/// Runs it, with a line for every event as it happens.
pub(super) fn run_scenario(
    scenario: &Scenario,
    contender: Contender,
    speed: Option<f64>,
    mut hosting: Hosting,
) -> anyhow::Result<Outcome> {
    let each = frame_interval(hosting.is_open(), speed);
    let pace = Pace { each, speed, from: Duration::ZERO, ends: true };
    let stage =
        LiveRun::open(&hosting.plan(&scenario.plan), contender.subject(launch), pace).context("starting a thread")?;
    if let Some(url) = hosting.serve(&stage)? {
        print(&format!("kubectl --server {url}\n"))?;
        if let Some(file) = hosting.kubeconfig() {
            print(&format!("export KUBECONFIG={}\n", file.display()))?;
        }
    }
    while let Some(snapshot) = stage.wait() {
        let lines = snapshot.news.iter().map(|news| format!("{:>9.3}s  {}\n", news.at.as_secs_f64(), news.text));
        let lines: String = lines.collect();
        print(&lines)?;
    }
    stage.end().context("the simulation did not finish")
}

/// The time between two frames, in simulated time.
fn frame_interval(is_open: bool, speed: Option<f64>) -> Duration {
    let limit = |speed: f64| SERVED_INTERVAL.mul_f64(speed.clamp(0.01, 30.0));
    speed.filter(|_| is_open).map_or(FRAME_INTERVAL, |speed| FRAME_INTERVAL.min(limit(speed)))
}

/// The outcome as text; `exact`: for developers of the simulator.
pub(super) fn verdict(contender: Contender, outcome: &Outcome, exact: bool) -> String {
    let seconds = outcome.simulated.as_secs();
    if outcome.broken.is_empty() {
        return format!("\nverdict: {} broke no rule in {seconds} simulated seconds\n", contender.name());
    }
    let mut text = format!("\nverdict: {} broke rules in {seconds} simulated seconds\n", contender.name());
    if !exact {
        let broken = outcome.news.iter().filter(|news| news.tone == Tone::Broken);
        text.extend(broken.map(|news| format!("  {:>9.3}s  {}\n", news.at.as_secs_f64(), news.text)));
        return text;
    }
    for (rule, count) in &outcome.broken {
        text.push_str(&format!("  {rule}: {count}\n"));
    }
    for violation in &outcome.violations {
        let at = violation.at.as_secs_f64();
        text.push_str(&format!("  {at:>9.3}s  {}: {}\n", violation.invariant, violation.what));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `--serve` each request waited for a second: `status` took 13, `doctor` 33.
    #[test]
    fn bug_a_served_cluster_answered_each_request_after_a_second() {
        let real = |speed: f64| frame_interval(true, Some(speed)).div_f64(speed);
        assert_eq!(real(1.0), SERVED_INTERVAL);
        assert!(real(6.0) <= SERVED_INTERVAL && real(100.0) <= SERVED_INTERVAL);
        assert_eq!(
            (frame_interval(false, Some(1.0)), frame_interval(true, None)),
            (FRAME_INTERVAL, FRAME_INTERVAL),
            "as before"
        );
    }
}
