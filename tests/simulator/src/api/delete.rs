//! DELETE: grace, preconditions, finalizers (`rest.BeforeDelete` and
//! `generic/registry.Store.Delete`).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::failure::{Cause, Failure, success};
use super::fields::{at, number, set, text, texts};
use super::kinds::{Kind, Rules, grace};
use super::log::{Key, Log, Object};
use super::route::{ApiRequest, Route};
use super::write::{seconds, unstored};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The options of a deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) grace: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    propagation: Option<String>,
    orphan_dependents: Option<bool>,
    pub(crate) dry: bool,
}

impl Options {
    /// From the body, or without one from the query.
    pub(crate) fn from_request(asked: &ApiRequest, collection: bool) -> Result<Self, Failure> {
        let own = ["gracePeriodSeconds", "propagationPolicy", "orphanDependents", "dryRun", "pretty"];
        let list = ["labelSelector", "fieldSelector", "limit", "continue", "resourceVersion"];
        asked.only(&if collection { [&own[..], &list[..]].concat() } else { own.to_vec() })?;
        if asked.body.is_empty() {
            let text = |name: &str| Some(asked.parameter(name).to_owned()).filter(|text| !text.is_empty());
            let number =
                |text: String| text.parse().map_err(|_error| Failure::bad_request("a grace period is a number"));
            let options = Self {
                grace: text("gracePeriodSeconds").map(number).transpose()?,
                propagation: text("propagationPolicy"),
                orphan_dependents: text("orphanDependents").map(|text| text == "true"),
                dry: asked.dry_run(),
                ..Self::default()
            };
            return options.checked();
        }
        let body: Value = serde_json::from_slice(&asked.body)
            .map_err(|error| Failure::bad_request(format!("decoding DeleteOptions: {error}")))?;
        if !matches!(text(&body, &["kind"]), "" | "DeleteOptions") {
            return Err(Failure::bad_request("decoded object cannot be converted to DeleteOptions"));
        }
        let mut options = Self::from_object(&body);
        options.dry |= asked.dry_run();
        options.checked()
    }

    /// From a `DeleteOptions` object. Validated later.
    pub(crate) fn from_object(body: &Value) -> Self {
        let string_at = |path: &[&str]| at(body, path).and_then(Value::as_str).map(str::to_owned);
        Self {
            grace: number(body, &["gracePeriodSeconds"]),
            uid: string_at(&["preconditions", "uid"]),
            version: string_at(&["preconditions", "resourceVersion"]),
            propagation: string_at(&["propagationPolicy"]),
            orphan_dependents: at(body, &["orphanDependents"]).and_then(Value::as_bool),
            dry: texts(body, &["dryRun"]).contains(&"All"),
        }
    }

    fn checked(self) -> Result<Self, Failure> {
        self.validate()?;
        Ok(self)
    }

    fn validate(&self) -> Result<(), Failure> {
        let mut causes = Vec::new();
        if self.propagation.is_some() && self.orphan_dependents.is_some() {
            causes.push(Cause::invalid(
                "propagationPolicy",
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        if !matches!(self.propagation.as_deref(), None | Some("Foreground" | "Background" | "Orphan")) {
            causes.push(Cause::unsupported("propagationPolicy"));
        }
        if causes.is_empty() { Ok(()) } else { Err(Failure::invalid_as("meta.k8s.io", "DeleteOptions", "", &causes)) }
    }

    fn check(&self, kind: &Kind, object: &Value) -> Result<(), Failure> {
        self.validate()?;
        let meta = |key: &str| text(object, &["metadata", key]);
        if let Some(uid) = self.uid.as_deref().filter(|uid| *uid != meta("uid")) {
            let why = format!("the UID in the precondition ({uid}) does not match the UID in record ({})", meta("uid"));
            return Err(Failure::conflict_on_kind(kind, meta("name"), &why));
        }
        if let Some(version) = self.version.as_deref().filter(|version| *version != meta("resourceVersion")) {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({})",
                meta("resourceVersion")
            );
            return Err(Failure::conflict_on_kind(kind, meta("name"), &why));
        }
        Ok(())
    }
}

/// The result of a deletion.
pub(crate) struct Deleted {
    pub(crate) code: u16,
    pub(crate) body: Arc<Object>,
}

/// How a deletion continues after the first pass.
enum Course {
    /// It is being deleted already, and would not be removed sooner.
    Pending,
    /// The object is marked as deleted, and is removed at once or later.
    Mark { object: Value, grace: i64 },
    /// It is removed as it is.
    Now,
}

/// DELETE of one object.
pub(crate) fn delete(log: &mut Log, route: &Route, asked: &ApiRequest, now: Timestamp) -> Result<Deleted, Failure> {
    let options = Options::from_request(asked, false)?;
    let name = route.name.clone().unwrap_or_default();
    delete_one(log, &route.kind, &route.key(&name), &name, &options, now)
}

/// Deletes by key.
pub(crate) fn delete_one(
    log: &mut Log,
    kind: &Kind,
    key: &Key,
    name: &str,
    options: &Options,
    now: Timestamp,
) -> Result<Deleted, Failure> {
    let existing = log.get(key).cloned().ok_or_else(|| Failure::not_found(kind, name))?;
    if kind.rules == Rules::Namespace {
        return delete_namespace(log, kind, key, &existing, options, now);
    }
    options.check(kind, &existing.value)?;
    let course = first_pass(kind, &existing.value, options, now);
    let (marked, stays) = match course {
        Course::Pending => return Ok(answer(kind, &existing, options, true)),
        Course::Mark { mut object, grace } => {
            let finalizers = collector_finalizers(kind, &object, options);
            set_finalizers(&mut object, &finalizers);
            (Some(object), !finalizers.is_empty() || grace > 0)
        }
        Course::Now => {
            let mut object = Value::clone(&existing.value);
            let finalizers = collector_finalizers(kind, &object, options);
            let stays = !finalizers.is_empty();
            if !stays && options.version.is_some() && !texts(&object, &["metadata", "finalizers"]).is_empty() {
                // A flaw of the real server: having checked finalizers that are removed by this same request, it
                // compares the version with that of an object that it never filled in.
                let why =
                    "Precondition failed: ResourceVersion in precondition: , ResourceVersion in object meta: its own";
                return Err(Failure::conflict(kind, name, why));
            }
            set_finalizers(&mut object, &finalizers);
            if stays {
                mark_as_deleting(&mut object, now);
            }
            (stays.then_some(object), stays)
        }
    };
    let marked = marked.map(|object| if options.dry { unstored(object) } else { log.put(key, object) });
    match marked {
        // An object that stays is returned, whatever the kind returns for a removed one.
        Some(object) if stays => Ok(Deleted { code: accepted(options), body: object }),
        Some(object) if options.dry => Ok(answer(kind, &object, options, false)),
        None if options.dry => Ok(answer(kind, &existing, options, false)),
        _ => {
            let last = log.remove(key).ok_or_else(|| Failure::not_found(kind, name))?;
            Ok(answer(kind, &last, options, false))
        }
    }
}

/// 202 means that the object still exists, but only for a request that asked for foreground deletion of its dependents.
fn accepted(options: &Options) -> u16 {
    if options.orphan_dependents == Some(false) { 202 } else { 200 }
}

fn answer(kind: &Kind, object: &Arc<Object>, options: &Options, pending: bool) -> Deleted {
    let code = if pending { accepted(options) } else { 200 };
    if kind.returns_deleted() {
        return Deleted { code, body: Arc::clone(object) };
    }
    let mut details = json!({ "name": object.value["metadata"]["name"], "kind": kind.plural, "uid": object.value["metadata"]["uid"] });
    if !kind.group.is_empty() {
        details["group"] = kind.group.clone().into();
    }
    Deleted { code, body: unstored(success(details)) }
}

/// `rest.BeforeDelete`.
fn first_pass(kind: &Kind, object: &Value, options: &Options, now: Timestamp) -> Course {
    if kind.rules != Rules::Pod {
        return Course::Now;
    }
    let requested = options.grace.map(|grace| if grace < 0 { 1 } else { grace });
    let mut object = object.clone();
    if at(&object, &["metadata", "deletionTimestamp"]).is_some() {
        let pending = number(&object, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0);
        return match requested {
            _ if pending == 0 => Course::Now,
            Some(requested) if requested < pending => shorten(object, pending, requested, now),
            _ => Course::Pending,
        };
    }
    let grace = grace(&object, requested);
    let end = now + SignedDuration::from_secs(grace);
    set(&mut object, &["metadata"], "deletionTimestamp", seconds(end));
    set(&mut object, &["metadata"], "deletionGracePeriodSeconds", grace);
    raise_generation(&mut object);
    Course::Mark { object, grace }
}

/// A grace period that has begun gets shorter, but does not end in the past.
fn shorten(mut object: Value, pending: i64, requested: i64, now: Timestamp) -> Course {
    let end: Timestamp = text(&object, &["metadata", "deletionTimestamp"]).parse().unwrap_or(now);
    let (mut end, mut grace) = (end + SignedDuration::from_secs(requested - pending), requested);
    if end < now {
        end = now;
        grace = grace.min(1);
    }
    set(&mut object, &["metadata"], "deletionTimestamp", seconds(end));
    set(&mut object, &["metadata"], "deletionGracePeriodSeconds", grace);
    Course::Mark { object, grace }
}

fn raise_generation(object: &mut Value) {
    if let Some(generation) = number(object, &["metadata", "generation"]).filter(|generation| *generation > 0) {
        set(object, &["metadata"], "generation", generation + 1);
    }
}

/// `markAsDeleting`: the end is now, or was earlier.
fn mark_as_deleting(object: &mut Value, now: Timestamp) {
    let pending = at(object, &["metadata", "deletionTimestamp"]).and_then(Value::as_str);
    let pending: Option<Timestamp> = pending.and_then(|text| text.parse().ok());
    if pending.is_none() {
        raise_generation(object);
    }
    if pending.is_none_or(|pending| pending > now) {
        set(object, &["metadata"], "deletionTimestamp", seconds(now));
    }
    set(object, &["metadata"], "deletionGracePeriodSeconds", 0);
}

/// The object's finalizers, with those for the garbage collector that the options ask for.
fn collector_finalizers(kind: &Kind, object: &Value, options: &Options) -> Vec<String> {
    let existing = texts(object, &["metadata", "finalizers"]);
    if kind.rules == Rules::Event {
        // Events have no dependents, and their registry no garbage collection.
        return existing.into_iter().map(str::to_owned).collect();
    }
    let policy = options.propagation.as_deref();
    let unsaid = policy.is_none() && options.orphan_dependents.is_none();
    let orphan = options.orphan_dependents == Some(true)
        || policy == Some("Orphan")
        || (unsaid && existing.contains(&ORPHAN))
        // The registry's own default, from before there was a collector.
        || (unsaid && kind.rules == Rules::Replication && !existing.contains(&FOREGROUND));
    let foreground = policy == Some("Foreground") || (unsaid && !orphan && existing.contains(&FOREGROUND));
    let mut finalizers: Vec<String> =
        existing.iter().filter(|name| ![ORPHAN, FOREGROUND].contains(*name)).map(|name| (*name).to_owned()).collect();
    finalizers.extend(orphan.then(|| ORPHAN.to_owned()));
    finalizers.extend(foreground.then(|| FOREGROUND.to_owned()));
    let same =
        finalizers.len() == existing.len() && existing.iter().all(|name| finalizers.iter().any(|one| one == name));
    if same { existing.into_iter().map(str::to_owned).collect() } else { finalizers }
}

fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    if finalizers.is_empty() {
        super::fields::remove(object, &["metadata"], "finalizers");
    } else {
        set(object, &["metadata"], "finalizers", finalizers.to_vec());
    }
}

/// A namespace is shown as terminating until its content and its finalizers are gone.
fn delete_namespace(
    log: &mut Log,
    kind: &Kind,
    key: &Key,
    existing: &Arc<Object>,
    options: &Options,
    now: Timestamp,
) -> Result<Deleted, Failure> {
    let meta = |key: &str| text(&existing.value, &["metadata", key]);
    let wrong = |given: &Option<String>, own: &str| given.as_deref().is_some_and(|given| given != own);
    if wrong(&options.uid, meta("uid")) || wrong(&options.version, meta("resourceVersion")) {
        return Err(Failure::conflict(kind, meta("name"), "Precondition failed"));
    }
    let show = |object: &Arc<Object>| Deleted { code: accepted(options), body: Arc::clone(object) };
    if at(&existing.value, &["metadata", "deletionTimestamp"]).is_some() {
        let waits = !texts(&existing.value, &["spec", "finalizers"]).is_empty()
            || !texts(&existing.value, &["metadata", "finalizers"]).is_empty();
        if waits || options.dry {
            return Ok(show(existing));
        }
        return Ok(log.remove(key).map_or_else(|| show(existing), |last| show(&last)));
    }
    let mut object = Value::clone(&existing.value);
    set(&mut object, &["metadata"], "deletionTimestamp", seconds(now));
    set(&mut object, &["status"], "phase", "Terminating");
    let finalizers = collector_finalizers(kind, &object, options);
    set_finalizers(&mut object, &finalizers);
    let object = if options.dry { unstored(object) } else { log.put(key, object) };
    Ok(show(&object))
}
