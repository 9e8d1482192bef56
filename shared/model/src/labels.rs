//! Labels, and label selectors.
//!
//! Source of the semantics: `k8s.io/apimachinery` v0.37.2, `pkg/labels/selector.go`
//! (`Requirement.Matches`) and `pkg/apis/meta/v1/helpers.go` (`LabelSelectorAsSelector`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The number of labels of one object that are kept. The largest charts have some thirty; Kubernetes has no limit
/// except etcd's for a whole object, so ten pods can have a million.
const MAX_LABELS: usize = 128;
/// The number of bytes of keys and values that are kept: 128 labels of a usual length.
const MAX_LABEL_BYTES: usize = 16 << 10;

/// The labels of one object: sorted by key, each key once. Of an object with more labels than the limit none are
/// kept, and no selector matches it: see [`Labels::omitted`].
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels(Option<Arc<PackedLabels>>);

/// All labels in one allocation for the texts and one for the offsets: a pod has some eight labels, and a cluster
/// 150,000 pods.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct PackedLabels {
    /// Each key, followed by its value.
    text: Box<str>,
    /// For each label: where its key begins, where its key ends, and where its value ends.
    offsets: Box<[[u16; 3]]>,
    omitted: bool,
}

impl PackedLabels {
    fn pair_at(&self, [key, value, end]: [u16; 3]) -> (&str, &str) {
        let slice = |from: u16, to: u16| self.text.get(usize::from(from)..usize::from(to)).unwrap_or_default();
        (slice(key, value), slice(value, end))
    }
}

impl Labels {
    /// The labels of an object that has more than are kept.
    #[must_use]
    pub fn omitted() -> Self {
        Self(Some(Arc::new(PackedLabels { omitted: true, ..PackedLabels::default() })))
    }

    /// Whether the labels were omitted because there are too many.
    #[must_use]
    pub fn are_omitted(&self) -> bool {
        self.0.as_ref().is_some_and(|packed| packed.omitted)
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let packed = self.0.as_ref()?;
        let at = packed.offsets.binary_search_by(|place| packed.pair_at(*place).0.cmp(key)).ok()?;
        packed.offsets.get(at).map(|place| packed.pair_at(*place).1)
    }

    /// Whether another object has the same allocation.
    pub(super) fn is_shared(&self) -> bool {
        self.0.as_ref().is_some_and(|packed| Arc::strong_count(packed) > 1)
    }

    /// All labels, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|packed| packed.offsets.iter().map(|place| packed.pair_at(*place)))
    }
}

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Labels {
    /// The last value of a repeated key wins, as in a map.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut sorted = BTreeMap::<Box<str>, Box<str>>::new();
        for (key, value) in pairs {
            sorted.insert(key.into(), value.into());
            if sorted.len() > MAX_LABELS {
                return Self::omitted();
            }
        }
        let (mut text, mut offsets) = (String::new(), Vec::with_capacity(sorted.len()));
        for (key, value) in sorted {
            let ends = [0, key.len(), key.len() + value.len()].map(|end| text.len() + end);
            if ends[2] > MAX_LABEL_BYTES {
                return Self::omitted();
            }
            let [Ok(begins), Ok(key_ends), Ok(value_ends)] = ends.map(u16::try_from) else {
                return Self::omitted();
            };
            text.push_str(&key);
            text.push_str(&value);
            offsets.push([begins, key_ends, value_ends]);
        }
        let packed = PackedLabels { text: text.into(), offsets: offsets.into(), omitted: false };
        Self((!packed.offsets.is_empty()).then(|| Arc::new(packed)))
    }
}

/// Why a selector cannot be used. The API server rejects most of these, but objects that are older than its
/// validation may have them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSelector {
    /// An unknown operator.
    #[error("matchExpressions of key {key:?}: operator {operator:?} is none of In, NotIn, Exists and DoesNotExist")]
    Operator {
        /// The key of the requirement.
        key: Box<str>,
        /// The operator.
        operator: Box<str>,
    },
    /// `In` or `NotIn` without values.
    #[error("matchExpressions of key {key:?}: {operator} needs at least one value")]
    NoValues {
        /// The key of the requirement.
        key: Box<str>,
        /// The operator.
        operator: &'static str,
    },
    /// `Exists` or `DoesNotExist` with values.
    #[error("matchExpressions of key {key:?}: {operator} takes no values, and has {count}")]
    Values {
        /// The key of the requirement.
        key: Box<str>,
        /// The operator.
        operator: &'static str,
        /// How many values there are.
        count: usize,
    },
    /// A value that no label can have.
    #[error(
        "key {key:?}: no label can have the value {value:?}: it must have at most 63 letters, digits, '-', '_' and '.', with a letter or digit at either end"
    )]
    Value {
        /// The key of the requirement.
        key: Box<str>,
        /// The value.
        value: Box<str>,
    },
}

/// The longest value of a label.
const MAX_VALUE_LENGTH: usize = 63;

/// `validation.IsValidLabelValue`.
fn label_value(key: &str, value: &str) -> Result<Box<str>, BadSelector> {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let end = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    let ends = end(value.chars().next()) && end(value.chars().next_back());
    if value.len() <= MAX_VALUE_LENGTH && ends && value.chars().all(inner) {
        Ok(value.into())
    } else {
        Err(BadSelector::Value { key: key.into(), value: value.into() })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Predicate {
    In(BTreeSet<Box<str>>),
    NotIn(BTreeSet<Box<str>>),
    Exists,
    DoesNotExist,
}

/// The requirement of a selector for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: Box<str>,
    predicate: Predicate,
}

impl Requirement {
    /// `key: value` of `matchLabels`.
    ///
    /// # Errors
    /// The value is not a valid label value.
    pub fn equals(key: &str, value: &str) -> Result<Self, BadSelector> {
        Ok(Self { key: key.into(), predicate: Predicate::In([label_value(key, value)?].into()) })
    }

    /// An element of `matchExpressions`.
    ///
    /// # Errors
    /// The operator is unknown, or does not fit the values.
    pub fn expression(key: &str, operator: &str, values: &[String]) -> Result<Self, BadSelector> {
        let text = key;
        let set = || values.iter().map(|value| label_value(text, value)).collect::<Result<_, _>>();
        let (key, count): (Box<str>, usize) = (key.into(), values.len());
        let predicate = match (operator, count) {
            ("In", 0) => return Err(BadSelector::NoValues { key, operator: "In" }),
            ("NotIn", 0) => return Err(BadSelector::NoValues { key, operator: "NotIn" }),
            ("In", _) => Predicate::In(set()?),
            ("NotIn", _) => Predicate::NotIn(set()?),
            ("Exists", 0) => Predicate::Exists,
            ("DoesNotExist", 0) => Predicate::DoesNotExist,
            ("Exists", count) => return Err(BadSelector::Values { key, operator: "Exists", count }),
            ("DoesNotExist", count) => {
                return Err(BadSelector::Values { key, operator: "DoesNotExist", count });
            }
            (operator, _) => return Err(BadSelector::Operator { key, operator: operator.into() }),
        };
        Ok(Self { key, predicate })
    }

    fn matches(&self, labels: &Labels) -> bool {
        match (&self.predicate, labels.get(&self.key)) {
            (Predicate::In(values), Some(value)) => values.contains(value),
            (Predicate::In(_), None) | (Predicate::DoesNotExist, Some(_)) | (Predicate::Exists, None) => false,
            // `NotIn` also matches objects without the label.
            (Predicate::NotIn(values), value) => value.is_none_or(|value| !values.contains(value)),
            (Predicate::Exists, Some(_)) | (Predicate::DoesNotExist, None) => true,
        }
    }
}

/// A label selector with the semantics of policy/v1: an empty one matches everything. A missing one is represented as
/// `None` elsewhere and matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Box<[Requirement]>);

impl Selector {
    /// Whether all requirements are met. Omitted labels match no selector, not even an empty one.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        !labels.are_omitted() && self.0.iter().all(|requirement| requirement.matches(labels))
    }

    /// A label pair that every matching object must have; `None`: no such pair is required. Indexes use it, so that
    /// few selectors are tried on one object.
    #[must_use]
    pub fn required_pair(&self) -> Option<(&str, &str)> {
        self.0.iter().find_map(|requirement| match &requirement.predicate {
            Predicate::In(values) if values.len() == 1 => values.first().map(|value| (&*requirement.key, &**value)),
            _ => None,
        })
    }
}

impl FromIterator<Requirement> for Selector {
    fn from_iter<I: IntoIterator<Item = Requirement>>(requirements: I) -> Self {
        Self(requirements.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().copied().collect()
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Result<Requirement, BadSelector> {
        let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        Requirement::expression(key, operator, &values)
    }

    /// The cases of `TestSelectorMatches` and `TestLabelSelectorAsSelector` of apimachinery.
    #[test]
    fn selector_operators_match_as_in_apimachinery() {
        let labels_of_object = labels(&[("app", "db"), ("tier", "")]);
        let cases: &[(&str, &str, &[&str], bool)] = &[
            ("app", "In", &["db", "web"], true),
            ("app", "In", &["web"], false),
            ("none", "In", &["db"], false),
            ("tier", "In", &[""], true),
            ("app", "NotIn", &["web"], true),
            ("app", "NotIn", &["db"], false),
            ("none", "NotIn", &["db"], true),
            ("tier", "Exists", &[], true),
            ("none", "Exists", &[], false),
            ("none", "DoesNotExist", &[], true),
            ("app", "DoesNotExist", &[], false),
        ];
        for (key, operator, values, expected) in cases {
            let selector: Selector = [expression(key, operator, values).unwrap()].into_iter().collect();
            assert_eq!(selector.matches(&labels_of_object), *expected, "{key} {operator} {values:?}");
        }
    }

    #[test]
    fn an_empty_selector_matches_everything() {
        assert!(Selector::default().matches(&Labels::default()));
        assert!(Selector::default().matches(&labels(&[("a", "b")])));
    }

    #[test]
    fn every_requirement_must_be_met() {
        let both: Selector =
            [Requirement::equals("a", "1").unwrap(), expression("b", "Exists", &[]).unwrap()].into_iter().collect();
        assert!(both.matches(&labels(&[("a", "1"), ("b", "2")])));
        assert!(!both.matches(&labels(&[("a", "1")])));
        assert!(!both.matches(&labels(&[("b", "2")])));
    }

    #[test]
    fn the_error_of_a_requirement_names_key_and_operator() {
        let message = |result: Result<Requirement, BadSelector>| result.unwrap_err().to_string();
        assert_eq!(message(expression("k", "In", &[])), r#"matchExpressions of key "k": In needs at least one value"#);
        assert_eq!(
            message(expression("k", "Exists", &["a", "b"])),
            r#"matchExpressions of key "k": Exists takes no values, and has 2"#
        );
        assert_eq!(
            message(expression("k", "in", &["a"])),
            r#"matchExpressions of key "k": operator "in" is none of In, NotIn, Exists and DoesNotExist"#
        );
    }

    /// `TestIsValidLabelValue`: KCM rejects a whole selector with such a value.
    #[test]
    fn a_requirement_with_an_invalid_label_value_is_rejected() {
        for good in ["", "a", "simple", "now-with-dashes", "1-starts-with-num", "1234", "a_b.c", &"x".repeat(63)] {
            assert!(Requirement::equals("k", good).is_ok(), "{good:?}");
        }
        for bad in ["nospecialchars%^=@", "cantendwithadash-", "-a", "only/one", "a b", ".", "\u{e9}", &"x".repeat(64)]
        {
            let message = Requirement::equals("k", bad).unwrap_err().to_string();
            assert!(message.contains(&format!("{bad:?}")), "{message}");
            assert!(expression("k", "NotIn", &["a", bad]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_last_value_of_a_repeated_label_key_wins() {
        let twice = labels(&[("a", "1"), ("b", "2"), ("a", "3")]);
        assert_eq!(twice.get("a"), Some("3"));
        assert_eq!(twice.iter().collect::<Vec<_>>(), [("a", "3"), ("b", "2")]);
    }

    /// Ten pods with 90,000 labels each took 312 MB of the process: more than its limit, and again after each
    /// restart.
    #[test]
    fn attack_too_many_labels_are_not_kept() {
        let many: Labels = (0..=MAX_LABELS).map(|number| (format!("l{number}"), "")).collect();
        let long: Labels = (0..100).map(|number| (format!("{number:0>200}"), "")).collect();
        for labels in [many, long] {
            assert!(labels.are_omitted() && labels.iter().next().is_none());
            assert!(!Selector::default().matches(&labels), "whether it is chosen is not known");
        }
        let most: Labels = (0..MAX_LABELS).map(|number| (format!("l{number}"), "")).collect();
        assert_eq!((most.are_omitted(), most.iter().count()), (false, MAX_LABELS));
    }

    proptest! {
        #[test]
        fn packed_labels_agree_with_a_map(
            pairs in proptest::collection::btree_map("[a-d]{0,3}", "\\PC{0,3}", 0..9),
            key in "[a-d]{0,3}",
        ) {
            let labels: Labels = pairs.clone().into_iter().collect();
            prop_assert_eq!(labels.get(&key), pairs.get(&key).map(String::as_str));
            let all: Vec<(String, String)> =
                labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            prop_assert_eq!(all, pairs.into_iter().collect::<Vec<_>>());
        }

        /// The property that the index of selectors relies on.
        #[test]
        fn every_match_of_a_selector_has_its_required_pair(
            pairs in proptest::collection::btree_map("[ab]", "[xy]", 0..3),
            wants in proptest::collection::vec(("[ab]", prop_oneof![Just("In"), Just("NotIn")], proptest::collection::vec("[xy]", 1..3)), 0..3),
        ) {
            let labels: Labels = pairs.into_iter().collect();
            let selector: Selector =
                wants.iter().map(|(key, operator, values)| Requirement::expression(key, operator, values).unwrap()).collect();
            if let (true, Some((key, value))) = (selector.matches(&labels), selector.required_pair()) {
                prop_assert_eq!(labels.get(key), Some(value));
            }
        }
    }
}
