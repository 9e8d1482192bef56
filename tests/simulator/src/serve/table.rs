//! Server-side tables: the output of `kubectl get`, row by row.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use pod_safety_shared::clock::Env;
use serde_json::{Value, json};

use super::columns::{Column, NAME, of_kind};
use super::defined::Defined;
use crate::api::{Kind, parse_event};

/// How much of its object a row carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Include {
    /// All of it.
    Object,
    /// Its metadata.
    Metadata,
    /// Nothing.
    Nothing,
}

/// Turns answers about one kind into tables.
pub(super) struct Table {
    kind: Arc<Kind>,
    columns: &'static [Column],
    /// The columns of a custom resource, after its name.
    defined: Vec<Defined>,
    include: Include,
    env: Env,
    /// Whether the column definitions are still to be sent; events after the first have none.
    headed: bool,
}

impl Table {
    pub(super) fn new_for(kind: &Arc<Kind>, include: Include, env: Env) -> Self {
        let defined = Defined::from_kind(kind);
        let columns = if defined.is_empty() { of_kind(kind.rules) } else { &[NAME] };
        Self { kind: Arc::clone(kind), columns, defined, include, env, headed: true }
    }

    /// An object or a list. Other kinds stay as they are.
    pub(super) fn whole(&mut self, text: &Bytes) -> Bytes {
        let Ok(value) = serde_json::from_slice::<Value>(text) else { return text.clone() };
        let kind = value["kind"].as_str().unwrap_or_default();
        let rows: Vec<&Value> = match value["items"].as_array() {
            Some(items) if kind == format!("{}List", self.kind.kind) => items.iter().collect(),
            _ if kind == self.kind.kind => vec![&value],
            _ => return text.clone(),
        };
        Bytes::from(self.table(&rows, &value["metadata"]).to_string())
    }

    /// A line of a watch. Errors stay as they are.
    pub(super) fn event(&mut self, line: &Bytes) -> Bytes {
        let Some((kind, object)) = parse_event(line) else { return line.clone() };
        let table = match kind.as_str() {
            "ERROR" => return line.clone(),
            "BOOKMARK" => self.table(&[], &object["metadata"]),
            _ => self.table(&[&object], &object["metadata"]),
        };
        Bytes::from(format!("{}\n", json!({ "type": kind, "object": table })))
    }

    fn table(&mut self, objects: &[&Value], from: &Value) -> Value {
        let now = self.env.clock.wall();
        let rows: Vec<Value> = objects.iter().map(|object| self.row(object, now)).collect();
        let mut metadata = json!({});
        for key in ["resourceVersion", "continue", "remainingItemCount"] {
            if let Some(value) = from.get(key) {
                metadata[key] = value.clone();
            }
        }
        let mut table = json!({ "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "rows": rows });
        table["columnDefinitions"] = if std::mem::take(&mut self.headed) {
            let defined = self.defined.iter().map(Defined::definition);
            self.columns.iter().map(Column::definition).chain(defined).collect()
        } else {
            json!([])
        };
        table
    }

    fn row(&self, object: &Value, now: Timestamp) -> Value {
        let defined = self.defined.iter().map(|column| column.cell(object, now));
        let cells: Vec<Value> = self.columns.iter().map(|column| (column.cell)(object, now)).chain(defined).collect();
        let mut row = json!({ "cells": cells });
        match self.include {
            Include::Nothing => {}
            Include::Metadata => {
                row["object"] = json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                    "metadata": object["metadata"] });
            }
            Include::Object => {
                let mut whole = object.clone();
                whole["kind"] = self.kind.kind.as_str().into();
                whole["apiVersion"] = self.kind.api_version().into();
                row["object"] = whole;
            }
        }
        row
    }
}
