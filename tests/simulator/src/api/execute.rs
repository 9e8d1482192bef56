//! One request, executed: which rule of the API it falls under.

use bytes::Bytes;
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::admission;
use super::delete::{Options, delete, delete_one};
use super::eviction::{bind, carry_out, evict};
use super::failure::Failure;
use super::kinds::{Kind, Part, Rules, scale, scaled};
use super::log::Log;
use super::node_restriction;
use super::patch;
use super::read::{self, Cached};
use super::route::{ApiRequest, Route};
use super::watch::{self, Opening};
use super::write::{self, Update};

/// The result of a request that is not refused.
pub(crate) enum Answer {
    Object {
        code: u16,
        text: Bytes,
    },
    Watch(Opening),
    /// The first half is done.
    Half,
}

/// Counts an eviction; carries it out if there is nothing to count.
pub(crate) fn begin_eviction(
    log: &mut Log,
    route: &Route,
    asked: &ApiRequest,
    now: Timestamp,
) -> Result<Answer, Failure> {
    check_accept(asked)?;
    Ok(evict(log, route, asked, now)?.map_or(Answer::Half, status))
}

/// Carries out an eviction that was counted.
pub(crate) fn end_eviction(
    log: &mut Log,
    route: &Route,
    asked: &ApiRequest,
    now: Timestamp,
) -> Result<Answer, Failure> {
    carry_out(log, route, asked, now).map(status)
}

fn status((code, body): (u16, Value)) -> Answer {
    Answer::Object { code, text: body.to_string().into() }
}

/// Executes a request against the log.
pub(crate) fn execute(
    log: &mut Log,
    cached: &Cached,
    route: &Route,
    asked: &ApiRequest,
    now: Timestamp,
) -> Result<Answer, Failure> {
    check_accept(asked)?;
    node_restriction::check(log, cached, route, asked)?;
    admission::check(log, cached, route, asked)?;
    let asked = &*admission::mutated(log, route, asked);
    let named = route.name.is_some();
    let sub = route.subresource.as_deref();
    let written = |written: write::Written| Answer::Object { code: written.code, text: written.object.text.clone() };
    let deleted =
        |deleted: super::delete::Deleted| Answer::Object { code: deleted.code, text: deleted.body.text.clone() };
    match (&asked.method, named, sub) {
        (&Method::GET, false, _) if asked.watches() => watch::open(log, cached, route, asked).map(Answer::Watch),
        (&Method::GET, false, _) => {
            read::list(log, cached, route, asked).map(|text| Answer::Object { code: 200, text })
        }
        (&Method::GET, true, _) => {
            read::get(log, cached, route, asked).map(|object| Answer::Object { code: 200, text: object.text.clone() })
        }
        (&Method::POST, false, _) => write::create(log, route, asked, now).map(written),
        (&Method::POST, true, Some("eviction")) if route.kind.rules == Rules::Pod => {
            match evict(log, route, asked, now)? {
                Some(done) => Ok(status(done)),
                None => carry_out(log, route, asked, now).map(status),
            }
        }
        (&Method::POST, true, Some("binding")) if route.kind.rules == Rules::Pod => {
            bind(log, route, asked, now).map(status)
        }
        (&Method::PUT | &Method::PATCH, true, Some("scale")) if route.kind.has_scale() => {
            rescale(log, route, asked, now)
        }
        (&Method::PUT, true, _) => write::replace(log, route, asked, now).map(written),
        (&Method::PATCH, true, _) => write::patch(log, route, asked, now).map(written),
        (&Method::DELETE, true, None) => delete(log, route, asked, now).map(deleted),
        (&Method::DELETE, false, None) => delete_collection(log, route, asked, now),
        (method, ..) => Err(Failure::unimplemented(format!("{method} {}", asked.path))),
    }
}

/// Answers are JSON: a client that accepts nothing else is not served.
fn check_accept(asked: &ApiRequest) -> Result<(), Failure> {
    let mut kinds = asked.accept.split(',').map(str::trim);
    let json = |kind: &str| {
        let media = kind.split(';').next().unwrap_or_default();
        matches!(media, "application/json" | "*/*" | "") && !kind.contains("as=")
    };
    if kinds.any(json) { Ok(()) } else { Err(Failure::unimplemented(format!("answers of type {}", asked.accept))) }
}

fn rescale(log: &mut Log, route: &Route, asked: &ApiRequest, now: Timestamp) -> Result<Answer, Failure> {
    asked.only(&["dryRun", "fieldManager", "fieldValidation", "pretty"])?;
    let name = route.name.clone().unwrap_or_default();
    let patch = if asked.method == Method::PATCH {
        let kind = Kind { rules: Rules::Custom, ..(*route.kind).clone() };
        Some((patch::PatchType::from_content_type(&kind, &asked.content_type)?, patch::decode(&asked.body)?))
    } else {
        None
    };
    let update = Update { part: Part::Main, dry: asked.dry_run(), uid: None, now, create: false };
    let written = update.run(log, route, &name, |existing| {
        let new = match patch {
            Some((how, patch)) => patch::apply(how, &scale(existing), patch)?,
            None => serde_json::from_slice(&asked.body)
                .map_err(|error| Failure::bad_request(format!("decoding Scale: {error}")))?,
        };
        Ok(scaled(existing, &new))
    })?;
    Ok(status((written.code, scale(&written.object.value))))
}

/// Not atomic, in the order of names; an object that was removed meanwhile is no error.
fn delete_collection(log: &mut Log, route: &Route, asked: &ApiRequest, now: Timestamp) -> Result<Answer, Failure> {
    if route.kind.rules == Rules::Namespace || (route.kind.namespaced && route.namespace.is_none()) {
        return Err(Failure::method_not_allowed());
    }
    let options = Options::from_request(asked, true)?;
    let listed = log.revision;
    let mut items = Vec::new();
    for (key, name) in read::names(log, route, asked)? {
        if let Some(object) = log.get(&key) {
            let mut item = Value::clone(&object.value);
            if route.kind.rules != Rules::Custom {
                super::fields::remove(&mut item, &[], "kind");
                super::fields::remove(&mut item, &[], "apiVersion");
            }
            items.push(item);
        }
        delete_one(log, &route.kind, &key, &name, &options, now)?;
    }
    let body = json!({
        "kind": format!("{}List", route.kind.kind), "apiVersion": route.kind.api_version(),
        "metadata": { "resourceVersion": listed.to_string() }, "items": items,
    });
    Ok(status((200, body)))
}
