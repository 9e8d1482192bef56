//! The columns of a custom resource, as its definition specifies them (`additionalPrinterColumns`), by the rules of
//! `apiextensions-apiserver/pkg/registry/customresource/tableconvertor`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::since;
use crate::api::Kind;

/// One column.
pub(super) struct Defined {
    name: String,
    kind: String,
    priority: i64,
    path: Vec<Step>,
}

/// A part of a JSON path.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// `.name`
    Field(String),
    /// `[?(@.key=="value")]`: the first item of which this is true.
    Where(String, String),
}

impl Defined {
    /// All columns but the name.
    pub(super) fn from_kind(kind: &Kind) -> Vec<Self> {
        let columns = kind.definition.as_ref().and_then(|spec| spec.pointer("/versions/0/additionalPrinterColumns"));
        let column = |one: &Value| Self {
            name: one["name"].as_str().unwrap_or_default().to_owned(),
            kind: one["type"].as_str().unwrap_or_default().to_owned(),
            priority: one["priority"].as_i64().unwrap_or(0),
            path: one["jsonPath"].as_str().and_then(steps).unwrap_or_default(),
        };
        columns.and_then(Value::as_array).into_iter().flatten().map(column).collect()
    }

    pub(super) fn definition(&self) -> Value {
        let Self { name, kind, priority, .. } = self;
        json!({ "name": name, "type": kind, "format": "", "description": name, "priority": priority })
    }

    /// The cell's value; null where the object has no value there.
    pub(super) fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let found = self.path.iter().try_fold(object, |at, step| match step {
            Step::Field(name) => at.get(name),
            Step::Where(key, value) => {
                at.as_array()?.iter().find(|item| item.get(key).is_some_and(|own| own == value.as_str()))
            }
        });
        match found {
            Some(Value::String(_)) if self.kind == "date" => found.map_or(Value::Null, |date| since(date, "", now)),
            Some(value) if !self.path.is_empty() => value.clone(),
            _ => Value::Null,
        }
    }
}

/// The parts of a path; `None`: it has unsupported parts.
fn steps(path: &str) -> Option<Vec<Step>> {
    let (mut rest, mut steps) = (path, Vec::new());
    while !rest.is_empty() {
        if let Some(filter) = rest.strip_prefix("[?(@.") {
            let (key, after) = filter.split_once("==")?;
            // Both kinds of quotes are allowed.
            let (quote, after) = after.split_at_checked(1).filter(|(quote, _)| ["\"", "'"].contains(quote))?;
            let (value, after) = after.split_once(&format!("{quote})]"))?;
            steps.push(Step::Where(key.to_owned(), value.to_owned()));
            rest = after;
        } else {
            let field = rest.strip_prefix('.')?;
            let (name, after) = field.split_at(field.find(['.', '[']).unwrap_or(field.len()));
            steps.push(Step::Field(name.to_owned()));
            rest = after;
        }
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_printer_column_of_our_crds_is_supported() {
        let mut columns = 0;
        for kind in Kind::custom_resources() {
            for column in Defined::from_kind(&kind) {
                columns += 1;
                assert!(!column.path.is_empty(), "{} of {}", column.name, kind.kind);
            }
        }
        assert!(columns > 20, "{columns}");
        assert_eq!(steps(".a[*].b"), None);
    }

    #[test]
    fn cells_show_the_values_of_the_object() {
        let now = "2027-01-15T08:02:00Z".parse().unwrap();
        let object = json!({ "spec": { "n": 3 }, "metadata": { "creationTimestamp": "2027-01-15T08:00:00Z" },
            "status": { "conditions": [{ "type": "A", "status": "False" }, { "type": "Ready", "status": "True" }] } });
        for (kind, path, cell) in [
            ("string", ".status.conditions[?(@.type==\"Ready\")].status", json!("True")),
            ("string", ".status.conditions[?(@.type=='Ready')].status", json!("True")),
            ("string", ".status.conditions[?(@.type==\"None\")].status", Value::Null),
            ("integer", ".spec.n", json!(3)),
            ("date", ".metadata.creationTimestamp", json!("2m")),
            ("string", ".spec.nothing.there", Value::Null),
        ] {
            let path = steps(path).unwrap();
            let column = Defined { name: String::new(), kind: kind.to_owned(), priority: 0, path };
            assert_eq!(column.cell(&object, now), cell, "{:?}", column.path);
        }
    }
}
