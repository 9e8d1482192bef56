//! Create, replace and patch: `generic/registry.Store` and the handlers above it,
//! with their checks in their order, for the order decides which error is told.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::failure::{Cause, Failure};
use super::fields::{at, number, remove, set, text, texts};
use super::kinds::{self, Kind, Part, Rules, defaults, metadata, shape};
use super::log::{Key, Log, Object};
use super::patch::{self, PatchType};
use super::route::{ApiRequest, Route};

/// Which parameters a write may have. Field managers are not kept, and unknown
/// fields are dropped, whatever `fieldValidation` asks for.
const PARAMETERS: [&str; 5] = ["dryRun", "fieldManager", "fieldValidation", "pretty", "force"];

/// What a write led to.
pub(crate) struct Written {
    pub(crate) code: u16,
    pub(crate) object: Arc<Object>,
}

/// A time as objects carry it.
pub(crate) fn seconds(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).map_or_else(|_error| now.to_string(), |whole| whole.to_string())
}

/// The part that a subresource stands for.
pub(crate) fn part_of(route: &Route) -> Result<Part, Failure> {
    match route.subresource.as_deref() {
        None => Ok(Part::Main),
        Some("status") if route.kind.has_status() => Ok(Part::Status),
        Some("finalize") if route.kind.rules == Rules::Namespace => Ok(Part::Finalize),
        Some(other) => Err(Failure::unimplemented(format!("writing {}/{other}", route.kind.plural))),
    }
}

/// Reads the object of a POST or PUT.
fn decode(kind: &Kind, body: &[u8]) -> Result<Value, Failure> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("the object provided is unrecognized: {error}")))?;
    for (key, expected) in [("kind", kind.kind.clone()), ("apiVersion", kind.api_version())] {
        let given = text(&value, &[key]);
        if !given.is_empty() && given != expected {
            return Err(Failure::bad_request(format!("the {key} in the data ({given}) does not match {expected}")));
        }
    }
    let nonsense = |error: &dyn std::fmt::Display| {
        Failure::bad_request(format!("{} in version {:?} cannot be handled: {error}", kind.kind, kind.version))
    };
    let mut object = shape::canonical(kind, value).map_err(|error| nonsense(&error))?;
    defaults::apply(kind, &mut object);
    Ok(object)
}

/// POST to a collection.
pub(crate) fn create(log: &mut Log, route: &Route, asked: &ApiRequest, now: Timestamp) -> Result<Written, Failure> {
    asked.only(&PARAMETERS)?;
    if route.kind.namespaced && route.namespace.is_none() {
        return Err(Failure::method_not_allowed());
    }
    let mut object = decode(&route.kind, &asked.body)?;
    if route.kind.rules == Rules::Pod && !log.serves_evictions() {
        kinds::lifecycle::drop_responders(&mut object);
    }
    create_object(log, route, object, asked.dry_run(), now)
}

fn create_object(
    log: &mut Log,
    route: &Route,
    mut object: Value,
    dry: bool,
    now: Timestamp,
) -> Result<Written, Failure> {
    let kind = &route.kind;
    take_namespace(route, &mut object)?;
    if text(&object, &["metadata", "name"]).is_empty() {
        let prefix: String = text(&object, &["metadata", "generateName"]).chars().take(58).collect();
        if !prefix.is_empty() {
            let name = format!("{prefix}{}", log.suffix());
            set(&mut object, &["metadata"], "name", name);
        }
    }
    let name = text(&object, &["metadata", "name"]).to_owned();
    if kind.rules == Rules::Namespace {
        defaults::apply(kind, &mut object);
    }
    namespace_takes(log, route, &name)?;
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        remove(&mut object, &["metadata"], key);
    }
    set(&mut object, &["metadata"], "creationTimestamp", seconds(now));
    let uid = log.uid();
    set(&mut object, &["metadata"], "uid", uid);
    defaults::admit(kind, &mut object, None);
    kinds::prepare_create(kind, &mut object, now);
    let mut causes = metadata::validate_create(kind, &object);
    causes.extend(kinds::validate_create(kind, &object));
    if !causes.is_empty() {
        return Err(Failure::invalid(kind, &name, &causes));
    }
    // A dry run never comes to where this is checked.
    if !dry && !matches!(text(&object, &["metadata", "resourceVersion"]), "" | "0") {
        return Err(Failure::plain(500, "", "resourceVersion should not be set on objects to be created"));
    }
    let key = route.key(&name);
    if log.get(&key).is_some() {
        let generated = !text(&object, &["metadata", "generateName"]).is_empty();
        let failure = if generated { Failure::generated_name_exists } else { Failure::already_exists };
        return Err(failure(kind, &name));
    }
    let object = if dry { unstored(object) } else { log.create(&key, object) };
    Ok(Written { code: 201, object })
}

/// What a dry run answers with: the object as it would be, with the version that
/// it has.
pub(crate) fn unstored(value: Value) -> Arc<Object> {
    let text = value.to_string().into();
    Arc::new(Object { value: Arc::new(value), text, revision: 0, unfinished: false })
}

/// An object may leave its namespace out, but not name another one.
fn take_namespace(route: &Route, object: &mut Value) -> Result<(), Failure> {
    let given = text(object, &["metadata", "namespace"]);
    let Some(wanted) = route.namespace.as_deref() else {
        // What lives in no namespace may say that it does.
        remove(object, &["metadata"], "namespace");
        return Ok(());
    };
    if !given.is_empty() && given != wanted {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    set(object, &["metadata"], "namespace", wanted);
    Ok(())
}

/// `NamespaceLifecycle`: nothing is created where there is no namespace, or where
/// it is going.
fn namespace_takes(log: &Log, route: &Route, name: &str) -> Result<(), Failure> {
    let Some(namespace) = &route.namespace else { return Ok(()) };
    let Some(index) = log.kinds.iter().position(|kind| kind.rules == Rules::Namespace) else { return Ok(()) };
    let kinds = &log.kinds;
    let Some(found) = log.get(&(index, namespace.clone())) else {
        let kind = kinds.get(index).map_or(&route.kind, |kind| kind);
        return Err(Failure::not_found(kind, namespace));
    };
    if text(&found.value, &["status", "phase"]) == "Terminating" {
        let message = format!("namespace {namespace} is being terminated");
        let cause = json!({ "reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace" });
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        return Err(Failure::forbidden(&route.kind, name, &why, &[cause]));
    }
    Ok(())
}

/// PUT of an object, its status or (for namespaces) its finalizers.
pub(crate) fn replace(log: &mut Log, route: &Route, asked: &ApiRequest, now: Timestamp) -> Result<Written, Failure> {
    asked.only(&PARAMETERS)?;
    let name = route.name.clone().unwrap_or_default();
    let part = part_of(route)?;
    let mut object = decode(&route.kind, &asked.body)?;
    if text(&object, &["metadata", "name"]) != name {
        return Err(Failure::bad_request("the name of the object does not match the name on the URL"));
    }
    let given = text(&object, &["metadata", "namespace"]);
    if route.namespace.as_deref().is_some_and(|wanted| !given.is_empty() && given != wanted) {
        return Err(Failure::bad_request("the namespace of the object does not match the namespace on the request"));
    }
    if let Some(namespace) = &route.namespace {
        set(&mut object, &["metadata"], "namespace", namespace.clone());
    }
    let uid = Some(text(&object, &["metadata", "uid"]).to_owned()).filter(|uid| !uid.is_empty());
    let update = Update { part, dry: asked.dry_run(), uid, now, create: true };
    update.run(log, route, &name, |_existing| Ok(object))
}

/// PATCH of an object or its status.
pub(crate) fn patch(log: &mut Log, route: &Route, asked: &ApiRequest, now: Timestamp) -> Result<Written, Failure> {
    asked.only(&PARAMETERS)?;
    let name = route.name.clone().unwrap_or_default();
    let part = part_of(route)?;
    let kind = Arc::clone(&route.kind);
    let how = PatchType::from_content_type(&kind, &asked.content_type)?;
    let read = patch::decode(&asked.body)?;
    if how == PatchType::Apply {
        if asked.parameter("fieldManager").is_empty() {
            let cause = Cause::required("fieldManager");
            return Err(Failure::invalid_as("meta.k8s.io", "PatchOptions", "", &[cause]));
        }
        if log.get(&route.key(&name)).is_none() {
            let object = decode(&kind, &asked.body)?;
            return create_object(log, route, object, asked.dry_run(), now);
        }
    }
    let update = Update { part, dry: asked.dry_run(), uid: None, now, create: false };
    update.run(log, route, &name, |existing| {
        let patched = patch::apply(how, existing, read)?;
        let mut object = shape::canonical(&kind, patched).map_err(|error| patch::leads_to_nonsense(&error))?;
        defaults::apply(&kind, &mut object);
        if text(&object, &["metadata", "name"]) != name {
            return Err(Failure::bad_request("the name of the object does not match the name on the URL"));
        }
        Ok(object)
    })
}

/// One update, however the new object comes about.
pub(crate) struct Update {
    pub(crate) part: Part,
    pub(crate) dry: bool,
    /// The UID that the object must have.
    pub(crate) uid: Option<String>,
    pub(crate) now: Timestamp,
    /// Whether it may create, where the kind lets a PUT create.
    pub(crate) create: bool,
}

impl Update {
    pub(crate) fn run(
        &self,
        log: &mut Log,
        route: &Route,
        name: &str,
        make: impl FnOnce(&Value) -> Result<Value, Failure>,
    ) -> Result<Written, Failure> {
        let kind = &route.kind;
        let key = route.key(name);
        let Some(existing) = log.get(&key).cloned() else {
            if !self.create || !kind.create_on_update() {
                return Err(Failure::not_found(kind, name));
            }
            if let Some(uid) = &self.uid {
                return Err(wrong_uid(kind, name, uid, ""));
            }
            return create_object(log, route, make(&Value::Null)?, self.dry, self.now);
        };
        let old = &existing.value;
        let own_uid = text(old, &["metadata", "uid"]);
        if let Some(uid) = self.uid.as_deref().filter(|uid| *uid != own_uid) {
            return Err(wrong_uid(kind, name, uid, own_uid));
        }
        let mut new = make(old)?;
        self.check_version(kind, name, &mut new, old)?;
        take_namespace(route, &mut new)?;
        self.prepare(kind, &mut new, old);
        let mut causes = metadata::validate_update(&new, old);
        causes.extend(kinds::validate_update(kind, self.part, &new, old, self.now));
        if !causes.is_empty() {
            let name = text(&new, &["metadata", "name"]);
            return Err(Failure::invalid(kind, name, &causes));
        }
        Ok(self.store(log, &key, new, &existing))
    }

    /// The compare of compare-and-swap.
    fn check_version(&self, kind: &Kind, name: &str, new: &mut Value, old: &Value) -> Result<(), Failure> {
        let current = text(old, &["metadata", "resourceVersion"]);
        let given = text(new, &["metadata", "resourceVersion"]);
        match given {
            "" | "0" if kind.unconditional_update() => {
                set(new, &["metadata"], "resourceVersion", current);
                Ok(())
            }
            "" | "0" => {
                let cause = Cause::invalid("metadata.resourceVersion", "must be specified for an update");
                Err(Failure::invalid_as(&kind.group, &kind.plural, name, &[cause]))
            }
            given if given == current => Ok(()),
            given if given.parse::<u64>().is_err() => {
                Err(Failure::plain(500, "", format!("strconv.ParseUint: parsing {given:?}: invalid syntax")))
            }
            _ => Err(Failure::changed(kind, name)),
        }
    }

    /// `rest.BeforeUpdate` up to its validation, and what admission adds before.
    fn prepare(&self, kind: &Kind, new: &mut Value, old: &Value) {
        if self.part == Part::Main {
            defaults::admit(kind, new, Some(old));
        }
        super::fields::copy(new, old, &["metadata"], "generation");
        kinds::prepare_update(kind, self.part, new, old, self.now);
        if text(new, &["metadata", "uid"]).is_empty() {
            super::fields::copy(new, old, &["metadata"], "uid");
        }
        super::fields::copy(new, old, &["metadata"], "creationTimestamp");
        if at(old, &["metadata", "deletionTimestamp"]).is_some() {
            super::fields::copy(new, old, &["metadata"], "deletionTimestamp");
        }
        if at(new, &["metadata", "deletionGracePeriodSeconds"]).is_none() {
            super::fields::copy(new, old, &["metadata"], "deletionGracePeriodSeconds");
        }
    }

    /// Stores the update, or removes the object if this was what kept it.
    fn store(&self, log: &mut Log, key: &Key, new: Value, existing: &Object) -> Written {
        let object = if removes(&new, &existing.value) {
            if !self.dry {
                log.remove(key);
            }
            unstored(new)
        } else if self.dry {
            unstored(new)
        } else {
            log.put(key, new)
        };
        Written { code: 200, object }
    }
}

/// `shouldDeleteDuringUpdate`: deletion was asked for, its grace is over, and the
/// last finalizer is gone.
fn removes(new: &Value, old: &Value) -> bool {
    let namespace_waits = !texts(new, &["spec", "finalizers"]).is_empty() && text(new, &["kind"]) == "Namespace";
    texts(new, &["metadata", "finalizers"]).is_empty()
        && !namespace_waits
        && at(old, &["metadata", "deletionTimestamp"]).is_some()
        && number(old, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0) == 0
}

fn wrong_uid(kind: &Kind, name: &str, given: &str, own: &str) -> Failure {
    let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {own}");
    Failure::conflict(kind, name, &why)
}
