//! Members of a wrong type count as missing: a service with one wrong member is understood in all others.

use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Deserializer};
use serde_json::Value as Json;

/// A string, or nothing.
pub(super) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Json::deserialize(from)?.as_str().map(str::to_owned))
}

/// An object, or an empty one. From a list serde would read the fields by their order.
pub(super) fn object<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(from: D) -> Result<T, D::Error> {
    let json = Json::deserialize(from)?;
    Ok(if json.is_object() { serde_json::from_value(json).unwrap_or_default() } else { T::default() })
}

/// The strings of a list; `None`: there is no list, or it is empty.
pub(super) fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    let json = Json::deserialize(from)?;
    let all = json.as_array().into_iter().flatten().filter_map(Json::as_str);
    Ok(Some(all.map(str::to_owned).collect::<Vec<_>>()).filter(|all| !all.is_empty()))
}

/// The links of a list, each once, without invalid ones.
pub(super) fn links<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(distinct(&Json::deserialize(from)?))
}

/// As [`links`], for a list that was read.
pub(super) fn distinct(list: &Json) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for link in list.as_array().into_iter().flatten().filter_map(|one| one["@odata.id"].as_str()) {
        if !all.iter().any(|seen| seen.trim_end_matches('/') == link.trim_end_matches('/')) {
            all.push(link.to_owned());
        }
    }
    all
}
