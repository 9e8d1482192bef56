//! One request of a sequence, independent of the server that it is sent to.

use serde_json::Value;

/// The body of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Body {
    None,
    /// JSON whose strings may be references such as `$uid` or `$rv:2`.
    Json(Value),
    /// The object at the path as it was `back` versions ago, with a merge patch.
    Stale {
        path: String,
        back: usize,
        edit: Value,
        otherwise: Value,
    },
    /// Bytes that are no JSON.
    Garbage,
}

/// One request of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    pub(super) method: &'static str,
    pub(super) path: String,
    /// May end in a reference.
    pub(super) query: String,
    pub(super) content_type: &'static str,
    pub(super) body: Body,
    /// The object that references are about.
    pub(super) about: String,
}

impl Operation {
    pub(super) fn new(method: &'static str, path: &str, about: &str) -> Self {
        Self {
            method,
            path: path.to_owned(),
            query: String::new(),
            content_type: "application/json",
            body: Body::None,
            about: about.to_owned(),
        }
    }

    pub(super) fn query(mut self, query: impl Into<String>) -> Self {
        self.query = query.into();
        self
    }

    pub(super) fn json(mut self, body: Value) -> Self {
        self.body = Body::Json(body);
        self
    }

    pub(super) fn typed(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self
    }

    /// Its shape, for the count of what was compared.
    #[must_use]
    pub fn shape(&self) -> String {
        super::shape(self.method, &self.path, Some(&self.query))
    }
}

pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(super) const JSON: &str = "application/json-patch+json";
