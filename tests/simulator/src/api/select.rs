//! Label and field selectors.

use serde_json::Value;

use super::failure::Failure;
use super::fields::{at, list, text, texts};
use super::kinds::{Kind, Rules};
use super::route::{ApiRequest, Route};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
}

impl Test {
    fn holds(&self, labels: Option<&Value>) -> bool {
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
        let among =
            |key: &str, values: &[String]| label(key).is_some_and(|value| values.iter().any(|one| one == value));
        match self {
            Self::In(key, values) => among(key, values),
            Self::NotIn(key, values) => !among(key, values),
            Self::Exists(key) => label(key).is_some(),
            Self::Missing(key) => label(key).is_none(),
        }
    }
}

/// The conditions under which an object is listed or watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    namespace: Option<String>,
    labels: Vec<Test>,
    /// Path, value, and whether they must be equal.
    fields: Vec<(&'static [&'static str], String, bool)>,
}

impl Selector {
    /// What a request for a collection selects.
    pub(crate) fn from_request(route: &Route, asked: &ApiRequest) -> Result<Self, Failure> {
        let (labels, fields) = (asked.parameter("labelSelector"), asked.parameter("fieldSelector"));
        Self::parse(&route.kind, route.namespace.as_deref(), labels, fields)
    }

    fn parse(kind: &Kind, namespace: Option<&str>, labels: &str, fields: &str) -> Result<Self, Failure> {
        let mut selector = Self { namespace: namespace.map(str::to_owned), ..Self::default() };
        selector.labels = parse_labels(labels)?;
        for requirement in fields.split(',').filter(|part| !part.is_empty()) {
            let (key, value, equal) = field_requirement(requirement)?;
            let Some(path) = field_path(kind, key) else {
                let unsupported = "field label not supported";
                return Err(Failure::bad_request(format!("{key}: {unsupported}")));
            };
            selector.fields.push((path, value.to_owned(), equal));
        }
        Ok(selector)
    }

    /// Whether it names a single object. Such a list is a read of that object: it
    /// has no pages, and `limit` does not make its version exact.
    pub(crate) fn is_single(&self) -> bool {
        self.fields.iter().any(|(path, _, equal)| *equal && *path == ["metadata", "name"])
    }

    /// Whether it selects by more than the namespace.
    pub(crate) const fn is_narrow(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    /// Whether the object is in the selected namespace.
    pub(crate) fn matches_namespace(&self, object: &Value) -> bool {
        self.namespace.as_deref().is_none_or(|ns| text(object, &["metadata", "namespace"]) == ns)
    }

    /// Whether a server finds the object by the index of its cache: pods are indexed by node. It uses the index for the
    /// newest list only, not for its later pages, and announces another page if the index has more
    /// (`watchCache.listLatestRV`).
    pub(crate) fn is_in_its_index(&self, object: &Value) -> bool {
        let by_node = |path: &[&str]| path == ["spec", "nodeName"];
        let mut indexed = self.fields.iter().filter(|(path, _, equal)| *equal && by_node(path));
        indexed.all(|(path, value, _)| text(object, path) == value)
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.matches_namespace(object)
            && self.labels.iter().all(|test| test.holds(at(object, &["metadata", "labels"])))
            && self.fields.iter().all(|(path, value, equal)| (text(object, path) == value) == *equal)
    }
}

fn field_requirement(requirement: &str) -> Result<(&str, &str, bool), Failure> {
    if let Some((key, value)) = requirement.split_once("!=") {
        return Ok((key, value, false));
    }
    let pair = requirement.split_once("==").or_else(|| requirement.split_once('='));
    let (key, value) = pair.ok_or_else(|| Failure::bad_request(format!("invalid field selector: {requirement:?}")))?;
    Ok((key, value, true))
}

fn field_path(kind: &Kind, key: &str) -> Option<&'static [&'static str]> {
    match (key, kind.rules) {
        ("metadata.name", _) => Some(&["metadata", "name"]),
        ("metadata.namespace", _) => Some(&["metadata", "namespace"]),
        ("spec.nodeName", Rules::Pod) => Some(&["spec", "nodeName"]),
        ("status.phase", Rules::Pod | Rules::Namespace) => Some(&["status", "phase"]),
        ("reason", Rules::Event) => Some(&["reason"]),
        ("type", Rules::Event) => Some(&["type"]),
        ("reportingComponent", Rules::Event) => Some(&["reportingComponent"]),
        ("involvedObject.kind", Rules::Event) => Some(&["involvedObject", "kind"]),
        ("involvedObject.apiVersion", Rules::Event) => Some(&["involvedObject", "apiVersion"]),
        ("involvedObject.name", Rules::Event) => Some(&["involvedObject", "name"]),
        ("involvedObject.namespace", Rules::Event) => Some(&["involvedObject", "namespace"]),
        ("involvedObject.uid", Rules::Event) => Some(&["involvedObject", "uid"]),
        _ => None,
    }
}

fn parse_labels(selector: &str) -> Result<Vec<Test>, Failure> {
    let mut tests = Vec::new();
    for part in split_requirements(selector) {
        let part = part.trim();
        if part.is_empty() {
            continue;
        }
        let test = if let Some((key, values)) = part.split_once(" notin ") {
            Test::NotIn(key.trim().to_owned(), set(values))
        } else if let Some((key, values)) = part.split_once(" in ") {
            Test::In(key.trim().to_owned(), set(values))
        } else if let Some((key, value)) = part.split_once("!=") {
            Test::NotIn(key.to_owned(), vec![value.to_owned()])
        } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            Test::In(key.to_owned(), vec![value.to_owned()])
        } else if let Some(key) = part.strip_prefix('!') {
            Test::Missing(key.to_owned())
        } else if part.contains(' ') {
            return Err(Failure::bad_request(format!("unable to parse requirement: {part}")));
        } else {
            Test::Exists(part.to_owned())
        };
        tests.push(test);
    }
    Ok(tests)
}

/// Splits at the commas that stand outside of brackets.
fn split_requirements(selector: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_u32);
    for (place, letter) in selector.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&selector[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    parts.push(&selector[start..]);
    parts
}

fn set(values: &str) -> Vec<String> {
    let inner = values.trim().trim_start_matches('(').trim_end_matches(')');
    inner.split(',').map(|value| value.trim().to_owned()).collect()
}

/// Whether a `LabelSelector` object, as budgets have it, selects `labels`.
pub(crate) fn label_selector_matches(selector: Option<&Value>, labels: Option<&Value>) -> bool {
    // No selector selects nothing, an empty one everything.
    let Some(selector) = selector else { return false };
    let exact = at(selector, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten();
    let mut tests: Vec<Test> =
        exact.map(|(key, value)| Test::In(key.clone(), vec![value.as_str().unwrap_or_default().to_owned()])).collect();
    for expression in list(selector, &["matchExpressions"]) {
        let key = text(expression, &["key"]).to_owned();
        let values = texts(expression, &["values"]).into_iter().map(str::to_owned).collect();
        tests.push(match text(expression, &["operator"]) {
            "In" => Test::In(key, values),
            "NotIn" => Test::NotIn(key, values),
            "Exists" => Test::Exists(key),
            "DoesNotExist" => Test::Missing(key),
            // An invalid selector matches no pod.
            _ => return false,
        });
    }
    tests.iter().all(|test| test.holds(labels))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(labels: &str, object: &Value) -> bool {
        let kind = &Kind::built_in()[0];
        Selector::parse(kind, None, labels, "").unwrap().matches(object)
    }

    #[test]
    fn label_selectors_read_as_kubectl_writes_them() {
        let pod = json!({ "metadata": { "labels": { "app": "x", "tier": "db" } } });
        for (selector, expected) in [
            ("", true),
            ("app=x", true),
            ("app==x,tier=db", true),
            ("app!=x", false),
            ("zone!=a", true),
            ("app in (x,y)", true),
            ("app in (y, z),tier", false),
            ("app notin (y,z)", true),
            ("zone", false),
            ("!zone", true),
        ] {
            assert_eq!(selects(selector, &pod), expected, "{selector}");
        }
    }

    #[test]
    fn a_pdb_without_a_selector_selects_nothing() {
        let labels = json!({ "app": "x" });
        assert!(!label_selector_matches(None, Some(&labels)));
        assert!(label_selector_matches(Some(&json!({})), Some(&labels)));
        assert!(label_selector_matches(Some(&json!({ "matchLabels": { "app": "x" } })), Some(&labels)));
        let other = json!({ "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": ["x"] }] });
        assert!(!label_selector_matches(Some(&other), Some(&labels)));
    }
}
