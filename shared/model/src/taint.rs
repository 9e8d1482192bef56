//! Taints with the effect `NoExecute`, and the tolerations that match them.
//!
//! Source of the semantics: `k8s.io/api` v0.37.2, `core/v1/toleration.go` (`ToleratesTaint`), and
//! `k8s.io/component-helpers`, `scheduling/corev1/helpers.go` (`GetMatchingTolerations`: the first of several
//! matching ones decides).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Mono;

use jiff::SignedDuration;

/// The effect of taints that evict the pods that do not tolerate them.
pub const NO_EXECUTE: &str = "NoExecute";

/// A taint of a node with the effect [`NO_EXECUTE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: Arc<str>,
    /// Its value; mostly empty.
    pub value: Arc<str>,
    /// `timeAdded`, in seconds of the writer's clock. It may be missing: `kubectl taint` does not set it.
    pub time_added: Option<i64>,
    /// When this process first saw it.
    pub first_seen: Mono,
    /// How old it was then; zero if unknown.
    pub age: Duration,
}

impl Taint {
    /// When a pod that tolerates it for this long is to be evicted: counted from when it was added, but not before it
    /// was first seen.
    #[must_use]
    pub fn tolerated_until(&self, span: Duration) -> Mono {
        self.first_seen + span.saturating_sub(self.age)
    }

    /// When it was added, as far as this process knows: for the order among taints. It may be before this process
    /// started.
    #[must_use]
    pub fn since(&self) -> SignedDuration {
        let nanos = |span: Duration| SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
        nanos(self.first_seen.since_start()).saturating_sub(nanos(self.age))
    }

    /// Whether it is the same taint as an earlier one, whatever its value: the API identifies taints by key and
    /// effect, and a taint that was removed and added again has another `timeAdded`.
    #[must_use]
    pub fn is_same_taint_as(&self, earlier: &Self) -> bool {
        self.key == earlier.key && self.time_added == earlier.time_added
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, .. } = self;
        if value.is_empty() { write!(f, "{key}:{NO_EXECUTE}") } else { write!(f, "{key}={value}:{NO_EXECUTE}") }
    }
}

/// Which values a toleration matches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operator {
    /// This value.
    Equal(Box<str>),
    /// All values.
    Exists,
    /// An operator that this version does not know: it matches nothing, and proves nothing.
    Unreadable(Box<str>),
}

/// A toleration that can match a taint with the effect [`NO_EXECUTE`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Toleration {
    /// The key; `None`: every key.
    pub key: Option<Box<str>>,
    /// The values.
    pub operator: Operator,
    /// For how long; `None`: for ever. Zero or less: not at all.
    pub seconds: Option<i64>,
}

impl Toleration {
    /// Parses the API's values.
    #[must_use]
    pub fn new(key: &str, operator: &str, value: &str, seconds: Option<i64>) -> Self {
        let operator = match operator {
            "" | "Equal" => Operator::Equal(value.into()),
            "Exists" => Operator::Exists,
            unknown => Operator::Unreadable(unknown.into()),
        };
        Self { key: Some(key).filter(|key| !key.is_empty()).map(Into::into), operator, seconds }
    }

    fn matches_key(&self, taint: &Taint) -> bool {
        self.key.as_ref().is_none_or(|key| **key == *taint.key)
    }

    fn matches(&self, taint: &Taint) -> bool {
        self.matches_key(taint)
            && match &self.operator {
                Operator::Equal(value) => **value == *taint.value,
                Operator::Exists => true,
                Operator::Unreadable(_) => false,
            }
    }

    fn unreadable_operator(&self, taint: &Taint) -> Option<&str> {
        match &self.operator {
            Operator::Unreadable(operator) if self.matches_key(taint) => Some(operator),
            Operator::Unreadable(_) | Operator::Equal(_) | Operator::Exists => None,
        }
    }
}

/// How long a pod tolerates a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TolerationPeriod<'a> {
    /// For ever.
    Forever,
    /// For this long.
    For(Duration),
    /// Not at all.
    NotTolerated,
    /// None of its tolerations matches, and one with this taint's key has an unknown operator.
    Unreadable(&'a str),
}

/// The tolerations of one pod that can match [`NO_EXECUTE`], in the order of its spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tolerations(Option<Arc<Vec<Toleration>>>);

impl Tolerations {
    fn iter(&self) -> impl Iterator<Item = &Toleration> {
        self.0.iter().flat_map(|all| all.iter())
    }

    /// For how long they tolerate a taint.
    #[must_use]
    pub fn period_for(&self, taint: &Taint) -> TolerationPeriod<'_> {
        match self.iter().find(|one| one.matches(taint)) {
            Some(Toleration { seconds: None, .. }) => TolerationPeriod::Forever,
            Some(Toleration { seconds: Some(seconds), .. }) => {
                TolerationPeriod::For(Duration::from_secs(u64::try_from(*seconds).unwrap_or(0)))
            }
            None => self
                .iter()
                .find_map(|one| one.unreadable_operator(taint))
                .map_or(TolerationPeriod::NotTolerated, TolerationPeriod::Unreadable),
        }
    }

    /// Whether both have the same allocation.
    #[must_use]
    pub fn shares_with(&self, other: &Self) -> bool {
        matches!((&self.0, &other.0), (Some(one), Some(other)) if Arc::ptr_eq(one, other))
    }

    /// Whether another object has the same allocation.
    pub(super) fn is_shared(&self) -> bool {
        self.0.as_ref().is_some_and(|all| Arc::strong_count(all) > 1)
    }
}

impl FromIterator<Toleration> for Tolerations {
    fn from_iter<I: IntoIterator<Item = Toleration>>(all: I) -> Self {
        let all: Vec<Toleration> = all.into_iter().collect();
        Self((!all.is_empty()).then(|| Arc::new(all)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, value: &str) -> Taint {
        Taint {
            key: key.into(),
            value: value.into(),
            time_added: None,
            first_seen: Mono::from_start(Duration::from_secs(100)),
            age: Duration::from_secs(40),
        }
    }

    #[test]
    fn tolerations_match_taints_as_the_api_documents() {
        type Case<'a> = (&'a str, &'a [(&'a str, &'a str, &'a str, Option<i64>)], TolerationPeriod<'a>);
        let for_secs = |seconds| TolerationPeriod::For(Duration::from_secs(seconds));
        let cases: [Case<'_>; 14] = [
            ("none at all", &[], TolerationPeriod::NotTolerated),
            ("of another key", &[("other", "Exists", "", None)], TolerationPeriod::NotTolerated),
            ("of the key, for ever", &[("k", "Exists", "", None)], TolerationPeriod::Forever),
            ("of every key", &[("", "Exists", "", None)], TolerationPeriod::Forever),
            ("equal by default", &[("k", "", "v", None)], TolerationPeriod::Forever),
            ("equal by name", &[("k", "Equal", "v", Some(30))], for_secs(30)),
            ("of another value", &[("k", "Equal", "w", None)], TolerationPeriod::NotTolerated),
            ("for no time", &[("k", "Exists", "", Some(0))], for_secs(0)),
            ("for less than no time", &[("k", "Exists", "", Some(-5))], for_secs(0)),
            ("the first that matches", &[("k", "", "v", Some(9)), ("k", "Exists", "", None)], for_secs(9)),
            ("an operator to come", &[("k", "Gt", "5", None)], TolerationPeriod::Unreadable("Gt")),
            ("nonsense", &[("", "near", "", None)], TolerationPeriod::Unreadable("near")),
            ("nonsense of another key", &[("other", "near", "", None)], TolerationPeriod::NotTolerated),
            ("nonsense beside one", &[("k", "Lt", "5", None), ("k", "Exists", "", Some(7))], for_secs(7)),
        ];
        for (sentence, given, expected) in cases {
            let given =
                given.iter().map(|(key, operator, value, seconds)| Toleration::new(key, operator, value, *seconds));
            assert_eq!(given.collect::<Tolerations>().period_for(&taint("k", "v")), expected, "{sentence}");
        }
    }

    #[test]
    fn toleration_time_counts_from_time_added_and_ends_not_before_first_seen() {
        let at = |seconds| Mono::from_start(Duration::from_secs(seconds));
        let taint = taint("k", "");
        assert_eq!(taint.tolerated_until(Duration::from_secs(300)), at(360));
        assert_eq!(taint.tolerated_until(Duration::from_secs(10)), at(100));
        assert_eq!(taint.tolerated_until(Duration::MAX), Mono::from_start(Duration::MAX));
    }

    #[test]
    fn a_taint_is_displayed_as_by_kubectl() {
        assert_eq!(taint("k", "v").to_string(), "k=v:NoExecute");
        assert_eq!(taint("k", "").to_string(), "k:NoExecute");
    }
}
