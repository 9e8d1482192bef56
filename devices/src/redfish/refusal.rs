//! The reason of a refusal.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value as Json;

const MORE: &str = "@Message.ExtendedInfo";

/// An answer that contains a reason: in an `error`, beside it, or in the members of a list or a single object.
#[derive(Default, Deserialize)]
#[serde(transparent)]
pub(super) struct Refusal(Json);

impl Refusal {
    /// Its messages, each once.
    pub(super) fn text(&self) -> String {
        let error = &self.0["error"];
        let first = error.as_str().or_else(|| error["message"].as_str());
        let more = [&error[MORE], &self.0[MORE]].into_iter().flat_map(messages);
        let mut seen = BTreeSet::new();
        let texts = first.into_iter().chain(more).map(str::trim);
        let texts: Vec<_> = texts.filter(|text| !text.is_empty() && seen.insert(*text)).collect();
        texts.join("; ")
    }
}

/// The messages of a list, or of a single one. One without text has its ID.
fn messages(more: &Json) -> impl Iterator<Item = &str> {
    let alone = std::slice::from_ref(more);
    let all = more.as_array().map_or(alone, Vec::as_slice);
    let text = |one: &'_ Json, field: &str| one[field].as_str().is_some_and(|text| !text.is_empty());
    all.iter().filter_map(move |one| {
        let field = ["Message", "MessageId"].into_iter().find(|field| text(one, field));
        field.map_or(one.as_str(), |field| one[field].as_str())
    })
}
