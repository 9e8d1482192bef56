//! The differences from kube-controller-manager: there are no others.

use pod_safety_control_plane::Implementation;

use super::ObservedState;
use crate::versions;

/// The difference after some steps, and the state on either side.
pub(crate) struct Difference {
    pub(crate) first: String,
    pub(crate) last: String,
    /// The defect of kube-controller-manager that causes it.
    why: &'static str,
    /// Lines of the observed state.
    pub(crate) about: Vec<String>,
    /// The values of the lines, in any order, because the order varies from run to run.
    pub(crate) kcm: Vec<String>,
    pub(crate) pod_safety: Vec<String>,
}

/// A row of a table: the first and the last step, the cause, the lines, and their values on either side.
pub(crate) fn differs(
    (first, last): (&str, &str),
    why: &'static str,
    about: &[&str],
    kcm: &[&str],
    pod_safety: &[&str],
) -> Difference {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let selected = |texts: &[&str]| texts.iter().map(|text| versions::as_selected(text)).collect();
    let (first, last) = (first.to_owned(), last.to_owned());
    Difference { first, last, why, about: owned(about), kcm: selected(kcm), pod_safety: selected(pod_safety) }
}

impl Difference {
    pub(crate) fn is_about(&self, line: &str) -> bool {
        self.about.iter().any(|about| about == line)
    }

    /// The mismatch with the table, as text.
    pub(crate) fn mismatch(&self, implementation: Implementation, state: &ObservedState) -> Option<String> {
        let sorted = |mut texts: Vec<String>| {
            texts.sort_unstable();
            texts
        };
        let values = self.about.iter().map(|line| state.get(line).cloned().unwrap_or_default());
        let listed = match implementation {
            Implementation::Kcm => &self.kcm,
            Implementation::PodSafety => &self.pod_safety,
        };
        let (seen, listed) = (sorted(values.collect()), sorted(listed.clone()));
        let Self { why, about, .. } = self;
        (seen != listed).then(|| format!("{why}, {about:?}: is {seen:#?}, should be {listed:#?}"))
    }
}
