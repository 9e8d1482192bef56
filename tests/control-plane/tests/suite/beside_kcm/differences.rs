//! Where ours is not as kube-controller-manager's: nowhere else.

use pod_safety_control_plane::Implementation;

use super::ObservedState;
use crate::versions;

/// What differs after some steps, and what there is on either side.
pub(crate) struct Difference {
    pub(crate) first: String,
    pub(crate) last: String,
    /// The weak spot of kube-controller-manager that it comes from.
    why: &'static str,
    /// Lines of the picture.
    pub(crate) about: Vec<String>,
    /// What they say then. Which of several says which does not matter: it goes by chance.
    pub(crate) kcm: Vec<String>,
    pub(crate) pod_safety: Vec<String>,
}

/// A row of a table: from this step to that one, the weak spot, the lines, and what they say on either side.
pub(crate) fn differs(
    (first, last): (&str, &str),
    why: &'static str,
    about: &[&str],
    kcm: &[&str],
    ours: &[&str],
) -> Difference {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let said = |texts: &[&str]| texts.iter().map(|text| versions::as_selected(text)).collect();
    let (first, last) = (first.to_owned(), last.to_owned());
    Difference { first, last, why, about: owned(about), kcm: said(kcm), pod_safety: said(ours) }
}

impl Difference {
    pub(crate) fn is_about(&self, line: &str) -> bool {
        self.about.iter().any(|about| about == line)
    }

    /// What is not as listed, in words.
    pub(crate) fn mismatch(&self, who: Implementation, picture: &ObservedState) -> Option<String> {
        let sorted = |mut texts: Vec<String>| {
            texts.sort_unstable();
            texts
        };
        let said = self.about.iter().map(|line| picture.get(line).cloned().unwrap_or_default());
        let listed = match who {
            Implementation::Kcm => &self.kcm,
            Implementation::PodSafety => &self.pod_safety,
        };
        let (seen, listed) = (sorted(said.collect()), sorted(listed.clone()));
        let Self { why, about, .. } = self;
        (seen != listed).then(|| format!("{why}, {about:?}: is {seen:#?}, should be {listed:#?}"))
    }
}
