//! Histories that a controller lives through, step by step, on a control plane of its own; after each step all that it can
//! have changed is drawn, line by line, as a picture.
//!
//! kube-controller-manager's pictures are recorded in `golden/kcm`, with its version. Ours must come to the same, but for
//! the differences that the history lists, where a weak spot of kube-controller-manager shows; and what ours had on the way
//! must lie between the pictures before and after. That kube-controller-manager still lives through it so is shown by the
//! tests whose names end in `_live`; with `POD_SAFETY_WRITE_KCM=1` they record it anew.

pub(crate) mod differences;
pub(crate) mod recorded;
pub(crate) mod trace;

use std::collections::BTreeMap;
use std::time::Duration;

use pod_safety_control_plane::{Implementation, until};

use differences::Difference;
use recorded::Recorded;

use crate::versions;

/// A picture that does not change for so long is what it will be: both sides look at nodes twice a second.
const QUIET: Duration = Duration::from_secs(3);

/// All that a controller can have changed, line by line.
pub(crate) type ObservedState = BTreeMap<String, String>;

/// A part of a history, after which all is looked at.
pub(crate) struct Step<A> {
    /// What happens; no other step has this name.
    pub(crate) name: String,
    pub(crate) acts: Vec<A>,
    /// What it comes to on both sides, where that is said by hand: a line of the picture, and what it says.
    pub(crate) expected: &'static [(&'static str, &'static str)],
}

/// What happens, and what comes of it.
pub(crate) struct History<A> {
    /// The file of what is recorded.
    pub(crate) name: &'static str,
    pub(crate) steps: Vec<Step<A>>,
    pub(crate) differences: Vec<Difference>,
    /// Whether a line of kube-controller-manager's picture after this step goes by chance.
    pub(crate) is_drawn_by_chance: fn(step: &str, line: &str) -> bool,
}

/// Where a history happens: a control plane of its own with one controller.
pub(crate) trait World: Sized {
    type Act;

    async fn start(who: Implementation) -> Self;

    /// Lets a step happen; gives back the lines of the picture that only it can know.
    async fn run_step(&mut self, step: &Step<Self::Act>) -> ObservedState;

    /// Waits until the controller has seen all that happened.
    async fn wait_settled(&mut self) {}

    async fn observe(&self) -> ObservedState;

    /// The values that lines had since the last call, in their order.
    async fn intermediate_values(&mut self) -> Vec<(String, String)>;

    /// Whether a line may have this value between these two.
    fn lies_between(value: &str, before: &str, after: &str) -> bool;
}

impl<A> History<A> {
    /// All lines that are wrong, in words. `model` is what was recorded, if it was.
    fn mismatches(
        &self,
        at: usize,
        who: Implementation,
        picture: &ObservedState,
        model: Option<&ObservedState>,
    ) -> Vec<String> {
        let step = &self.steps[at];
        let said = |of: &ObservedState, line: &str| of.get(line).cloned().unwrap_or_default();
        let listed: Vec<_> = self.differences.iter().filter(|one| self.holds_at(one, at)).collect();
        let mut wrong: Vec<_> = listed.iter().filter_map(|one| one.mismatch(who, picture)).collect();
        for (line, wanted) in step.expected {
            if !listed.iter().any(|one| one.is_about(line))
                && (who == Implementation::PodSafety || !(self.is_drawn_by_chance)(&step.name, line))
                && said(picture, line) != versions::as_selected(wanted)
            {
                wrong.push(format!("{line}: {:?}, wanted {wanted:?}", said(picture, line)));
            }
        }
        let Some(model) = model else { return wrong };
        for line in model.keys().chain(picture.keys()).filter(|line| !self.is_free(at, line)) {
            let (is, recorded) = (said(picture, line), said(model, line));
            if is != recorded {
                wrong.push(format!("{line}: {is:?}, kube-controller-manager {recorded:?}"));
            }
        }
        wrong.sort();
        wrong.dedup();
        wrong
    }

    /// Whether a line is not compared with the other side: the table has it, or it goes by chance.
    fn is_free(&self, at: usize, line: &str) -> bool {
        let listed = self.differences.iter().any(|one| one.is_about(line) && self.holds_at(one, at));
        listed || (self.is_drawn_by_chance)(&self.steps[at].name, line)
    }

    fn holds_at(&self, difference: &Difference, at: usize) -> bool {
        let place = |name: &str| self.steps.iter().position(|step| step.name == name);
        place(&difference.first) <= Some(at) && Some(at) <= place(&difference.last)
    }

    /// What of the tables is about nothing, or is no difference.
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
                    let said = self.steps[first..=last].iter().flat_map(|step| step.expected);
                    let said = said.filter(|(line, _)| one.is_about(line));
                    let others =
                        said.filter(|(_, said)| !one.pod_safety.contains(&versions::as_selected(said)));
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

    /// Lets a world live through a step until its picture is as it must be; gives that back.
    async fn run_until_expected<W: World<Act = A>>(
        &self,
        world: &mut W,
        at: usize,
        who: Implementation,
        model: Option<&ObservedState>,
    ) -> ObservedState {
        println!("{}", self.steps[at].name);
        let known = world.run_step(&self.steps[at]).await;
        until(&format!("{who:?} after {:?}", self.steps[at].name), async || {
            world.wait_settled().await;
            let mut picture = world.observe().await;
            picture.extend(known.iter().map(|(line, said)| (line.clone(), versions::as_selected(said))));
            let wrong = self.mismatches(at, who, &picture, model);
            if wrong.is_empty() { Ok(picture) } else { Err(format!("{}\n{picture:#?}", wrong.join("\n"))) }
        })
        .await
        .unwrap()
    }
}

/// Ours comes to what was recorded of kube-controller-manager, and passes nothing that does not lie on the way.
pub(crate) async fn pod_safety_matches_the_recording<W: World>(history: History<W::Act>) {
    assert_eq!(history.invalid_rows(), Vec::<String>::new());
    let recorded = Recorded::read(&history).unwrap();
    let (mut world, mut before) = (W::start(Implementation::PodSafety).await, ObservedState::new());
    let mut astray = Vec::new();
    for at in 0..history.steps.len() {
        let after = history
            .run_until_expected(&mut world, at, Implementation::PodSafety, Some(recorded.after(at)))
            .await;
        let said = |of: &ObservedState, line: &str| of.get(line).cloned().unwrap_or_default();
        let passed = world.intermediate_values().await.into_iter();
        let strayed =
            passed.filter(|(line, value)| !W::lies_between(value, &said(&before, line), &said(&after, line)));
        astray.extend(strayed.map(|(line, value)| {
            let (step, from, to) = (&history.steps[at].name, said(&before, &line), said(&after, &line));
            format!("{step}: {line} was {value:?} between {from:?} and {to:?}")
        }));
        before = after;
    }
    assert!(astray.is_empty(), "{}", astray.join("\n"));
}

/// kube-controller-manager still comes to what was recorded.
pub(crate) async fn kcm_matches_the_recording<W: World>(history: History<W::Act>) {
    assert_eq!(history.invalid_rows(), Vec::<String>::new());
    let writes = recorded::is_to_be_written();
    let recorded = if writes { None } else { Some(Recorded::read(&history).unwrap()) };
    let (mut world, mut pictures) = (W::start(Implementation::Kcm).await, Vec::new());
    for at in 0..history.steps.len() {
        let model = recorded.as_ref().map(|recorded| recorded.after(at));
        let mut picture = history.run_until_expected(&mut world, at, Implementation::Kcm, model).await;
        let mut known = ObservedState::new();
        while writes && picture != known {
            tokio::time::sleep(QUIET).await;
            known = picture.clone();
            picture.extend(world.observe().await);
        }
        picture.retain(|line, _| !history.is_free(at, line));
        pictures.push(picture);
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
        lines.iter().map(|(line, said)| ((*line).to_owned(), (*said).to_owned())).collect()
    }

    fn count_mismatches(at: usize, who: Implementation, lines: &[(&str, &str)]) -> usize {
        let model = observed(&[("a", "new"), ("b", "new"), ("c", "old"), ("d", "same")]);
        history().mismatches(at, who, &observed(lines), Some(&model)).len()
    }

    #[test]
    fn listed_lines_match_the_table_and_the_rest_the_recording() {
        let good = [("a", "new"), ("b", "new"), ("c", "new"), ("d", "same")];
        assert_eq!(count_mismatches(1, Implementation::PodSafety, &good), 0);
        assert_eq!(
            count_mismatches(0, Implementation::PodSafety, &good),
            1,
            "the difference is listed for the other step"
        );
        let with = |line: &'static str, said: &'static str| {
            good.map(|(of, was)| (of, if of == line { said } else { was }))
        };
        assert_eq!(
            count_mismatches(1, Implementation::PodSafety, &with("c", "old")),
            1,
            "ours has the weak spot, too"
        );
        assert_eq!(count_mismatches(1, Implementation::PodSafety, &with("d", "other")), 1, "not listed");
        assert_eq!(
            count_mismatches(1, Implementation::PodSafety, &with("a", "old")),
            2,
            "neither as the step says nor as recorded"
        );
        assert_eq!(count_mismatches(1, Implementation::PodSafety, &good[..3]), 1, "a line is missing");
        let more = [good.as_slice(), &[("e", "there")]].concat();
        assert_eq!(count_mismatches(1, Implementation::PodSafety, &more), 1, "a line too many");
        let by_chance = [good.as_slice(), &[("chance", "there")]].concat();
        assert_eq!(count_mismatches(1, Implementation::PodSafety, &by_chance), 0);
    }

    #[test]
    fn one_of_several_lines_must_show_the_difference() {
        let kcm = |b, c| {
            count_mismatches(1, Implementation::Kcm, &[("a", "new"), ("b", b), ("c", c), ("d", "same")])
        };
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
