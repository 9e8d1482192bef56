//! Scripted histories for one controller, step by step, on its own control plane; after each step everything that the controller can have
//! changed is recorded line by line as the observed state.
//!
//! The states of kube-controller-manager are recorded in `golden/kcm`, with its version. pod-safety must reach the same states, except for
//! the differences that the history lists, which are defects of kube-controller-manager; and intermediate values of pod-safety must lie
//! between the states before and after. The tests whose names end in `_live` show that kube-controller-manager still matches its recording;
//! with `POD_SAFETY_WRITE_KCM=1` they record it again.

pub(crate) mod differences;
pub(crate) mod recorded;
pub(crate) mod trace;

use std::collections::BTreeMap;
use std::time::Duration;

use pod_safety_control_plane::{Implementation, wait_until};

use differences::Difference;
use recorded::Recorded;

use crate::versions;

/// A state that is unchanged for this time is final: both sides check nodes twice a second.
const QUIET: Duration = Duration::from_secs(3);

/// Everything that a controller can have changed, line by line.
pub(crate) type ObservedState = BTreeMap<String, String>;

/// A step of a history, after which the state is compared.
pub(crate) struct Step<A> {
    /// The name of the step, which is unique.
    pub(crate) name: String,
    pub(crate) acts: Vec<A>,
    /// The expected values on both sides, where a person has stated them: a line of the state, and its value.
    pub(crate) expected: &'static [(&'static str, &'static str)],
}

/// The steps of a history and the expected states.
pub(crate) struct History<A> {
    /// The file of the recording.
    pub(crate) name: &'static str,
    pub(crate) steps: Vec<Step<A>>,
    pub(crate) differences: Vec<Difference>,
    /// Whether a line of kube-controller-manager's state after this step is random.
    pub(crate) is_drawn_by_chance: fn(step: &str, line: &str) -> bool,
}

/// The environment of a history: its own control plane with one controller.
pub(crate) trait World: Sized {
    type Act;

    async fn start(implementation: Implementation) -> Self;

    /// Runs a step; returns the lines of the state that only the environment knows.
    async fn run_step(&mut self, step: &Step<Self::Act>) -> ObservedState;

    /// Waits until the controller has observed everything.
    async fn wait_settled(&mut self) {}

    async fn observe(&self) -> ObservedState;

    /// The values of lines since the last call, in order.
    async fn intermediate_values(&mut self) -> Vec<(String, String)>;

    /// Whether this value of a line is allowed between the other two.
    fn lies_between(value: &str, before: &str, after: &str) -> bool;
}

impl<A> History<A> {
    /// All mismatched lines, as text. `model` is the recorded state, if there is one.
    fn mismatches(
        &self,
        at: usize,
        implementation: Implementation,
        state: &ObservedState,
        model: Option<&ObservedState>,
    ) -> Vec<String> {
        let step = &self.steps[at];
        let value = |of: &ObservedState, line: &str| of.get(line).cloned().unwrap_or_default();
        let listed: Vec<_> = self.differences.iter().filter(|one| self.holds_at(one, at)).collect();
        let mut wrong: Vec<_> = listed.iter().filter_map(|one| one.mismatch(implementation, state)).collect();
        for (line, expected) in step.expected {
            if !listed.iter().any(|one| one.is_about(line))
                && (implementation == Implementation::PodSafety || !(self.is_drawn_by_chance)(&step.name, line))
                && value(state, line) != versions::as_selected(expected)
            {
                wrong.push(format!("{line}: {:?}, wanted {expected:?}", value(state, line)));
            }
        }
        let Some(model) = model else { return wrong };
        for line in model.keys().chain(state.keys()).filter(|line| !self.is_free(at, line)) {
            let (is, recorded) = (value(state, line), value(model, line));
            if is != recorded {
                wrong.push(format!("{line}: {is:?}, kube-controller-manager {recorded:?}"));
            }
        }
        wrong.sort();
        wrong.dedup();
        wrong
    }

    /// Whether a line is not compared with the other side: the table lists it, or it is random.
    fn is_free(&self, at: usize, line: &str) -> bool {
        let listed = self.differences.iter().any(|one| one.is_about(line) && self.holds_at(one, at));
        listed || (self.is_drawn_by_chance)(&self.steps[at].name, line)
    }

    fn holds_at(&self, difference: &Difference, at: usize) -> bool {
        let place = |name: &str| self.steps.iter().position(|step| step.name == name);
        place(&difference.first) <= Some(at) && Some(at) <= place(&difference.last)
    }

    /// Rows of the tables that match no line, or are no difference.
    fn invalid_rows(&self) -> Vec<String> {
        let place = |name: &str| self.steps.iter().position(|step| step.name == name);
        let mut astray = Vec::new();
        for (at, step) in self.steps.iter().enumerate() {
            if place(&step.name) != Some(at) {
                astray.push(format!("two steps are called {:?}", step.name));
            }
        }
        for one in &self.differences {
            match (place(&one.first), place(&one.last)) {
                (Some(first), Some(last)) if first <= last => {
                    let expected = self.steps[first..=last].iter().flat_map(|step| step.expected);
                    let expected = expected.filter(|(line, _)| one.is_about(line));
                    let others =
                        expected.filter(|(_, expected)| !one.pod_safety.contains(&versions::as_selected(expected)));
                    astray.extend(others.map(|(line, _)| format!("{line}: the step says something else")));
                }
                _ => astray.push(format!("{:?}: no steps from {:?} to {:?}", one.about, one.first, one.last)),
            }
            if one.kcm == one.pod_safety {
                astray.push(format!("{:?}: a difference that is none", one.about));
            }
        }
        astray
    }

    /// Runs a step until the state is as expected, and returns the state.
    async fn run_until_expected<W: World<Act = A>>(
        &self,
        world: &mut W,
        at: usize,
        implementation: Implementation,
        model: Option<&ObservedState>,
    ) -> ObservedState {
        println!("{}", self.steps[at].name);
        let lines = world.run_step(&self.steps[at]).await;
        wait_until(&format!("{implementation:?} after {:?}", self.steps[at].name), async || {
            world.wait_settled().await;
            let mut state = world.observe().await;
            state.extend(lines.iter().map(|(line, value)| (line.clone(), versions::as_selected(value))));
            let wrong = self.mismatches(at, implementation, &state, model);
            if wrong.is_empty() { Ok(state) } else { Err(format!("{}\n{state:#?}", wrong.join("\n"))) }
        })
        .await
    }
}

/// pod-safety reaches the recorded states of kube-controller-manager, and all intermediate values are allowed.
pub(crate) async fn pod_safety_matches_the_recording<W: World>(history: History<W::Act>) {
    assert_eq!(history.invalid_rows(), Vec::<String>::new());
    let recorded = Recorded::read(&history).unwrap();
    let (mut world, mut before) = (W::start(Implementation::PodSafety).await, ObservedState::new());
    let mut astray = Vec::new();
    for at in 0..history.steps.len() {
        let after =
            history.run_until_expected(&mut world, at, Implementation::PodSafety, Some(recorded.after(at))).await;
        let value_of = |of: &ObservedState, line: &str| of.get(line).cloned().unwrap_or_default();
        let passed = world.intermediate_values().await.into_iter();
        let strayed =
            passed.filter(|(line, value)| !W::lies_between(value, &value_of(&before, line), &value_of(&after, line)));
        astray.extend(strayed.map(|(line, value)| {
            let (step, from, to) = (&history.steps[at].name, value_of(&before, &line), value_of(&after, &line));
            format!("{step}: {line} was {value:?} between {from:?} and {to:?}")
        }));
        before = after;
    }
    assert!(astray.is_empty(), "{}", astray.join("\n"));
}

/// kube-controller-manager still reaches the recorded states.
pub(crate) async fn kcm_matches_the_recording<W: World>(history: History<W::Act>) {
    assert_eq!(history.invalid_rows(), Vec::<String>::new());
    let writes = recorded::is_to_be_written();
    let recorded = if writes { None } else { Some(Recorded::read(&history).unwrap()) };
    let (mut world, mut pictures) = (W::start(Implementation::Kcm).await, Vec::new());
    for at in 0..history.steps.len() {
        let model = recorded.as_ref().map(|recorded| recorded.after(at));
        let mut state = history.run_until_expected(&mut world, at, Implementation::Kcm, model).await;
        let mut lines = ObservedState::new();
        while writes && state != lines {
            tokio::time::sleep(QUIET).await;
            lines = state.clone();
            state.extend(world.observe().await);
        }
        state.retain(|line, _| !history.is_free(at, line));
        pictures.push(state);
    }
    if writes {
        Recorded::from_history(&history, pictures).write().unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::differences::differs;
    use super::*;

    fn history() -> History<()> {
        let step = |name: &str| Step { name: name.to_owned(), acts: Vec::new(), expected: &[("a", "new")] };
        History {
            name: "none",
            steps: vec![step("one"), step("two")],
            differences: vec![differs(("two", "two"), "W", &["b", "c"], &["new", "old"], &["new", "new"])],
            is_drawn_by_chance: |_, line| line == "chance",
        }
    }

    fn observed(lines: &[(&str, &str)]) -> ObservedState {
        lines.iter().map(|(line, value)| ((*line).to_owned(), (*value).to_owned())).collect()
    }

    fn count_mismatches(at: usize, implementation: Implementation, lines: &[(&str, &str)]) -> usize {
        let model = observed(&[("a", "new"), ("b", "new"), ("c", "old"), ("d", "same")]);
        history().mismatches(at, implementation, &observed(lines), Some(&model)).len()
    }

    #[test]
    fn listed_lines_match_the_table_and_the_rest_the_recording() {
        let good = [("a", "new"), ("b", "new"), ("c", "new"), ("d", "same")];
        assert_eq!(count_mismatches(1, Implementation::PodSafety, &good), 0);
        assert_eq!(count_mismatches(0, Implementation::PodSafety, &good), 1, "listed for the other step");
        let with =
            |line: &'static str, value: &'static str| good.map(|(of, was)| (of, if of == line { value } else { was }));
        assert_eq!(count_mismatches(1, Implementation::PodSafety, &with("c", "old")), 1, "ours has the weak spot, too");
        assert_eq!(count_mismatches(1, Implementation::PodSafety, &with("d", "other")), 1, "not listed");
        assert_eq!(count_mismatches(1, Implementation::PodSafety, &with("a", "old")), 2, "as neither");
        assert_eq!(count_mismatches(1, Implementation::PodSafety, &good[..3]), 1, "a line is missing");
        let more = [good.as_slice(), &[("e", "there")]].concat();
        assert_eq!(count_mismatches(1, Implementation::PodSafety, &more), 1, "a line too many");
        let by_chance = [good.as_slice(), &[("chance", "there")]].concat();
        assert_eq!(count_mismatches(1, Implementation::PodSafety, &by_chance), 0);
    }

    #[test]
    fn one_of_several_lines_must_show_the_difference() {
        let kcm = |b, c| count_mismatches(1, Implementation::Kcm, &[("a", "new"), ("b", b), ("c", c), ("d", "same")]);
        assert_eq!((kcm("new", "old"), kcm("old", "new")), (0, 0));
        assert_eq!(kcm("new", "new"), 1, "it vanished");
    }

    #[test]
    fn a_row_about_no_line_is_an_error() {
        assert_eq!(history().invalid_rows(), Vec::<String>::new());
        let mut renamed = history();
        renamed.steps[1].name = "renamed".to_owned();
        assert_eq!(renamed.invalid_rows().len(), 1);
        let mut equal = history();
        equal.differences[0].kcm = equal.differences[0].pod_safety.clone();
        assert_eq!(equal.invalid_rows().len(), 1);
        let mut contrary = history();
        contrary.differences[0].about = vec!["a".to_owned()];
        contrary.differences[0].pod_safety = vec!["other".to_owned()];
        assert_eq!(contrary.invalid_rows().len(), 1);
    }
}
