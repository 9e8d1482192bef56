//! GET of objects and lists, at the version that the reader requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::failure::{Cause, Failure};
use super::kinds::{Kind, Rules, scale};
use super::log::{Key, Log, Object};
use super::route::{ApiRequest, Route};
use super::select::Selector;

/// The part of the log that one API server has read.
#[derive(Debug, Default)]
pub(crate) struct Cached {
    /// The revision up to which it has read.
    pub(crate) applied: u64,
    /// Watches may begin at this revision, or later.
    pub(crate) oldest: u64,
    pub(crate) objects: BTreeMap<Key, Arc<Object>>,
}

/// The version of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// The newest version, by quorum.
    Newest,
    /// Any version that this server has.
    Any,
    /// This one or a newer.
    NotOlder(u64),
    /// Exactly this one.
    Exact(u64),
}

impl Version {
    /// The version that a read with these parameters requests.
    pub(crate) fn from_request(asked: &ApiRequest) -> Result<Self, Failure> {
        let (version, how) = (asked.parameter("resourceVersion"), asked.parameter("resourceVersionMatch"));
        let number = || {
            version
                .parse::<u64>()
                .map_err(|_error| Failure::bad_request("invalid resource version: resourceVersion: not a number"))
        };
        let limited = asked.parameter("limit").parse::<u64>().unwrap_or(0) > 0;
        let forbid = |field: &str| {
            Err(Failure::invalid_as("meta.k8s.io", "ListOptions", "", &[Cause::forbidden(field, "forbidden")]))
        };
        match (version, how) {
            ("", "") => Ok(Self::Newest),
            ("", _) => forbid("resourceVersionMatch"),
            ("0", "" | "NotOlderThan") => Ok(Self::Any),
            ("0", "Exact") => forbid("resourceVersionMatch"),
            (_, "Exact") => number().map(Self::Exact),
            (_, "") if limited => number().map(Self::Exact),
            (_, "" | "NotOlderThan") => number().map(Self::NotOlder),
            _ => {
                let cause = Cause::unsupported("resourceVersionMatch");
                Err(Failure::invalid_as("meta.k8s.io", "ListOptions", "", &[cause]))
            }
        }
    }
}

/// GET of one object.
pub(crate) fn get(log: &Log, cached: &Cached, route: &Route, asked: &ApiRequest) -> Result<Arc<Object>, Failure> {
    asked.only(&["resourceVersion", "pretty"])?;
    let name = route.name.as_deref().unwrap_or_default();
    let key = route.key(name);
    let found = match Version::from_request(asked)? {
        Version::Newest => log.get(&key).cloned(),
        Version::NotOlder(wanted) if wanted > cached.applied => {
            return Err(Failure::future_version(wanted, cached.applied));
        }
        _ => cached.objects.get(&key).cloned(),
    };
    let object = found.ok_or_else(|| Failure::not_found(&route.kind, name))?;
    match route.subresource.as_deref() {
        None => Ok(object),
        Some("status") if route.kind.has_status() => Ok(object),
        Some("scale") if route.kind.has_scale() => Ok(super::write::unstored(scale(&object.value))),
        Some(other) => Err(Failure::unimplemented(format!("reading {}/{other}", route.kind.plural))),
    }
}

/// Where a list goes on.
struct Token {
    revision: u64,
    /// The last key of the previous page.
    after: String,
}

impl Token {
    /// Opaque to clients, and safe in a URL.
    fn write(&self) -> String {
        let text = json!({ "rv": self.revision, "after": self.after }).to_string();
        text.bytes().map(|byte| format!("{byte:02x}")).collect()
    }

    fn decode(text: &str) -> Option<Self> {
        let digits = text.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(pair, 16).ok()
        });
        let bytes: Option<Vec<u8>> = digits.collect();
        let value: Value = serde_json::from_slice(&bytes?).ok()?;
        let revision = value.get("rv")?.as_u64()?;
        Some(Self { revision, after: value.get("after")?.as_str()?.to_owned() })
    }
}

const PARAMETERS: [&str; 8] = [
    "labelSelector",
    "fieldSelector",
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "pretty",
];

/// GET of a collection.
pub(crate) fn list(log: &Log, cached: &Cached, route: &Route, asked: &ApiRequest) -> Result<Bytes, Failure> {
    let flags = ["watch", "allowWatchBookmarks"];
    asked.only(&[&PARAMETERS[..], &flags[..]].concat())?;
    let kind = &route.kind;
    let selector = Selector::from_request(route, asked)?;
    let token = asked.parameter("continue");
    let single = selector.is_single() && token.is_empty();
    let limit: usize = if single { 0 } else { asked.parameter("limit").parse().unwrap_or(0) };
    if !token.is_empty() {
        if !matches!(asked.parameter("resourceVersion"), "" | "0") {
            return Err(Failure::bad_request("specifying resource version is not allowed when using continue"));
        }
        let token = Token::decode(token)
            .ok_or_else(|| Failure::bad_request("continue key is not valid: it was not made by this server"))?;
        let objects = log.snapshot(route.index, token.revision).ok_or_else(|| {
            Failure::expired("The provided continue parameter is too old to display a consistent list result.")
        })?;
        return Ok(page(kind, &objects, &selector, limit, token.revision, &token.after));
    }
    let version = match Version::from_request(asked)? {
        Version::Exact(wanted) if single && asked.parameter("resourceVersionMatch").is_empty() => {
            Version::NotOlder(wanted)
        }
        version => version,
    };
    match version {
        Version::Newest => Ok(whole(log, route, &selector, limit)),
        Version::NotOlder(wanted) if wanted > cached.applied => Err(Failure::future_version(wanted, cached.applied)),
        // From its cache a server answers without pages.
        Version::Any | Version::NotOlder(_) => {
            let range = (route.index, String::new())..(route.index + 1, String::new());
            let objects = cached.objects.range(range).map(|(key, object)| (key.clone(), Arc::clone(object)));
            Ok(page(kind, &objects.collect(), &selector, 0, cached.applied, ""))
        }
        Version::Exact(wanted) if wanted > log.revision => Err(Failure::future_version(wanted, log.revision)),
        Version::Exact(wanted) => {
            let objects = log
                .snapshot(route.index, wanted)
                .ok_or_else(|| Failure::expired("The resourceVersion for the provided list is too old."))?;
            Ok(page(kind, &objects, &selector, limit, wanted, ""))
        }
    }
}

fn whole(log: &Log, route: &Route, selector: &Selector, limit: usize) -> Bytes {
    let range = (route.index, String::new())..(route.index + 1, String::new());
    let indexed = log.objects.range(range).filter(|(_, object)| selector.is_in_its_index(&object.value));
    let objects = indexed.map(|(key, object)| (key.clone(), Arc::clone(object)));
    page(&route.kind, &objects.collect(), selector, limit, log.revision, "")
}

fn page(
    kind: &Kind,
    objects: &BTreeMap<Key, Arc<Object>>,
    selector: &Selector,
    limit: usize,
    revision: u64,
    after: &str,
) -> Bytes {
    let mut rest =
        objects.iter().filter(|((_, name), object)| name.as_str() > after && selector.matches_namespace(&object.value));
    let mut items = Vec::new();
    let mut last = String::new();
    for ((_, name), object) in rest.by_ref() {
        if !selector.matches(&object.value) {
            continue;
        }
        items.push(item_text(kind, object));
        name.clone_into(&mut last);
        if limit > 0 && items.len() == limit {
            break;
        }
    }
    let mut metadata = json!({ "resourceVersion": revision.to_string() });
    // The rest is not filtered: a next page may turn out to be empty.
    let remaining = rest.count();
    if remaining > 0 {
        metadata["continue"] = Token { revision, after: last }.write().into();
        if !selector.is_narrow() {
            metadata["remainingItemCount"] = remaining.into();
        }
    }
    let items: Vec<&str> = items.iter().filter_map(|item| std::str::from_utf8(item).ok()).collect();
    let (api, kind) = (kind.api_version(), &kind.kind);
    Bytes::from(format!(
        "{{\"kind\":\"{kind}List\",\"apiVersion\":\"{api}\",\"metadata\":{metadata},\"items\":[{}]}}",
        items.join(",")
    ))
}

/// An object as an item of a list: the list names the kind of its items once. Custom resources name it in each item.
fn item_text(kind: &Kind, object: &Object) -> Bytes {
    let head = format!("{{\"apiVersion\":\"{}\",\"kind\":\"{}\",", kind.api_version(), kind.kind);
    if kind.rules == Rules::Custom {
        return object.text.clone();
    }
    // The two are the first keys of most kinds, so most items need not be serialized again.
    if let Some(rest) = object.text.strip_prefix(head.as_bytes()) {
        return [b"{", rest].concat().into();
    }
    let mut item = Value::clone(&object.value);
    super::fields::remove(&mut item, &[], "kind");
    super::fields::remove(&mut item, &[], "apiVersion");
    item.to_string().into()
}

/// The names of the objects that a deletion of a collection deletes.
pub(crate) fn names(log: &Log, route: &Route, asked: &ApiRequest) -> Result<Vec<(Key, String)>, Failure> {
    let selector = Selector::from_request(route, asked)?;
    let range = (route.index, String::new())..(route.index + 1, String::new());
    let chosen = log.objects.range(range).filter(|(_, object)| selector.matches(&object.value));
    let name = |object: &Object| super::fields::text(&object.value, &["metadata", "name"]).to_owned();
    Ok(chosen.map(|(key, object)| (key.clone(), name(object))).collect())
}
