//! Where ours is not as kube-controller-manager's: nowhere else.

use std::collections::BTreeSet;

use super::{Picture, Step};

/// What differs after one step, and what there is on either side.
pub(crate) struct Difference {
    namespace: &'static str,
    step: &'static str,
    /// The weak spot of kube-controller-manager that it comes from.
    from: &'static str,
    /// Which budgets and evictions it is about.
    about: Vec<String>,
    /// What kube-controller-manager's are then. Which of several is which does not matter: it goes by chance.
    kcm: Vec<String>,
    /// What ours are.
    ours: Vec<String>,
}

/// A line of the table.
pub(crate) fn differs(
    (namespace, step): (&'static str, &'static str),
    from: &'static str,
    about: &[&str],
    kcm: &[&str],
    ours: &[&str],
) -> Difference {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Difference { namespace, step, from, about: owned(about), kcm: owned(kcm), ours: owned(ours) }
}

impl Difference {
    fn is_of(&self, step: &Step) -> bool {
        (self.namespace, self.step) == (step.namespace, step.name)
    }
}

/// What is wrong after `step`; empty if all is as it should be.
pub(crate) fn wrong(step: &Step, kcm: &Picture, ours: &Picture, differences: &[Difference]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut expected: BTreeSet<&str> = BTreeSet::new();
    for difference in differences.iter().filter(|difference| difference.is_of(step)) {
        expected.extend(difference.about.iter().map(String::as_str));
        for (who, picture, said) in [("KCM", kcm, &difference.kcm), ("ours", ours, &difference.ours)] {
            let mut seen: Vec<&str> = difference
                .about
                .iter()
                .map(|name| picture.get(name).map_or("nothing", String::as_str))
                .collect();
            let mut said: Vec<&str> = said.iter().map(String::as_str).collect();
            seen.sort_unstable();
            said.sort_unstable();
            if seen != said {
                let Difference { from, about, .. } = difference;
                wrong.push(format!("{from}, {about:?}, {who}: is {seen:#?}, should be {said:#?}"));
            }
        }
    }
    let names: BTreeSet<&String> = kcm.keys().chain(ours.keys()).collect();
    for name in names.into_iter().filter(|name| !expected.contains(name.as_str())) {
        let (theirs, ours) = (kcm.get(name), ours.get(name));
        if theirs != ours {
            wrong.push(format!("{name}: KCM {theirs:?}, ours {ours:?}"));
        }
    }
    wrong
}

/// The differences that are about no step of the history.
pub(crate) fn astray(history: &[Step], differences: &[Difference]) -> Vec<(&'static str, &'static str)> {
    let lost = differences.iter().filter(|difference| !history.iter().any(|step| difference.is_of(step)));
    lost.map(|difference| (difference.namespace, difference.step)).collect()
}

mod tests {
    use super::*;

    fn one() -> [Difference; 1] {
        [differs(("ns", "step"), "W", &["ns/a", "ns/b"], &["new", "old"], &["new", "new"])]
    }

    fn wrong_with(kcm: [&str; 3], ours: [&str; 3]) -> usize {
        let picture = |texts: [&str; 3]| -> Picture {
            ["ns/a", "ns/b", "ns/c"].map(str::to_owned).into_iter().zip(texts.map(str::to_owned)).collect()
        };
        let step = Step { namespace: "ns", name: "step", acts: Vec::new() };
        wrong(&step, &picture(kcm), &picture(ours), &one()).len()
    }

    #[test]
    fn what_is_listed_must_be_so_on_both_sides_and_the_rest_equal() {
        assert_eq!(wrong_with(["new", "old", "same"], ["new", "new", "same"]), 0);
        assert_eq!(wrong_with(["old", "new", "same"], ["new", "new", "same"]), 0);
        assert_eq!(wrong_with(["new", "new", "same"], ["new", "new", "same"]), 1, "it vanished");
        assert_eq!(wrong_with(["new", "old", "same"], ["new", "old", "same"]), 1, "ours has it, too");
        assert_eq!(wrong_with(["new", "old", "same"], ["new", "new", "other"]), 1, "not listed");
    }

    #[test]
    fn a_difference_about_no_step_is_noticed() {
        let step = |name| Step { namespace: "ns", name, acts: Vec::new() };
        assert_eq!(astray(&[step("step")], &one()).len(), 0);
        assert_eq!(astray(&[step("renamed")], &one()), [("ns", "step")]);
    }
}
