//! Strategic merge patch (`apimachinery/pkg/util/strategicpatch`): maps are merged
//! as in a merge patch, and some lists by a key of their items.
//!
//! Not all lists: taints, tolerations and container statuses are replaced, for
//! their Go types say nothing of merging.

use serde_json::{Map, Value};

use crate::api::failure::Failure;

/// How a list is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lists {
    /// Items that agree in this key are one.
    ByKey(&'static str),
    /// Items are plain values, and the list is a set.
    Set,
    /// The patch's list takes the place of the other.
    Replaced,
}

/// The merge strategy of a list, by the field that holds it and the one above
/// (of which that one is a part). From the `patchStrategy` tags of the Go types.
fn strategy(above: &str, field: &str) -> Lists {
    match (above, field) {
        (_, "ownerReferences") => Lists::ByKey("uid"),
        ("metadata", "finalizers") => Lists::Set,
        ("status", "conditions" | "addresses") => Lists::ByKey("type"),
        ("status", "requesters" | "targetResponders" | "responders") => Lists::ByKey("name"),
        ("status", "podIPs" | "hostIPs") => Lists::ByKey("ip"),
        (_, "containers" | "initContainers" | "ephemeralContainers" | "volumes" | "env" | "imagePullSecrets") => {
            Lists::ByKey("name")
        }
        ("spec", "schedulingGates" | "resourceClaims") => Lists::ByKey("name"),
        (_, "volumeMounts") => Lists::ByKey("mountPath"),
        (_, "volumeDevices") => Lists::ByKey("devicePath"),
        (_, "hostAliases") => Lists::ByKey("ip"),
        (_, "ports") => Lists::ByKey("containerPort"),
        (_, "topologySpreadConstraints") => Lists::ByKey("topologyKey"),
        _ => Lists::Replaced,
    }
}

/// Applies a patch, which is an object.
pub(super) fn apply(current: &Value, patch: Value) -> Result<Value, Failure> {
    let mut target = current.clone();
    merge_map(&mut target, patch, "")?;
    Ok(target)
}

fn broken(message: &str) -> Failure {
    // What the strategic patch library refuses, the server has no reason for.
    Failure::plain(500, "", message)
}

fn merge_map(target: &mut Value, patch: Value, name: &str) -> Result<(), Failure> {
    let Value::Object(mut patch) = patch else {
        *target = patch;
        return Ok(());
    };
    if let Some(directive) = patch.remove("$patch") {
        match directive.as_str() {
            Some("replace") => *target = Value::Object(patch),
            Some("delete") => *target = Value::Object(Map::new()),
            _ => return Err(broken("unknown patch type")),
        }
        return Ok(());
    }
    if patch.keys().any(|key| key == "$retainKeys" || key.starts_with("$setElementOrder/")) {
        return Err(Failure::unimplemented("$retainKeys and $setElementOrder in strategic merge patches"));
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(map) = target else { return Ok(()) };
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let doomed = value.as_array().cloned().unwrap_or_default();
            if let Some(Value::Array(items)) = map.get_mut(list) {
                items.retain(|item| !doomed.contains(item));
            }
            continue;
        }
        merge_field(map, name, &key, value)?;
    }
    Ok(())
}

fn merge_field(map: &mut Map<String, Value>, above: &str, key: &str, value: Value) -> Result<(), Failure> {
    if value.is_null() {
        map.remove(key);
        return Ok(());
    }
    match (map.get_mut(key), value) {
        // `PodDisruptionBudgetSpec.selector` is replaced as a whole.
        (Some(Value::Object(_)), Value::Object(new)) if above == "spec" && key == "selector" => {
            map.insert(key.to_owned(), Value::Object(new));
        }
        (Some(known @ Value::Object(_)), new @ Value::Object(_)) => merge_map(known, new, key)?,
        (Some(Value::Array(known)), Value::Array(new)) => {
            let merged = merge_list(std::mem::take(known), new, above, key)?;
            map.insert(key.to_owned(), Value::Array(merged));
        }
        (_, mut new) => {
            if keep_after_directives(&mut new) {
                map.insert(key.to_owned(), new);
            } else {
                map.remove(key);
            }
        }
    }
    Ok(())
}

/// Takes nulls and directives out of what has nothing to be merged with; false if
/// nothing is left of it.
fn keep_after_directives(value: &mut Value) -> bool {
    match value {
        Value::Object(map) => {
            if let Some(directive) = map.remove("$patch")
                && directive == "delete"
            {
                return false;
            }
            map.retain(|key, field| {
                !key.starts_with("$deleteFromPrimitiveList/") && !field.is_null() && keep_after_directives(field)
            });
        }
        Value::Array(items) => items.retain_mut(|item| {
            let marker = item.as_object().is_some_and(|map| map.len() == 1 && map.contains_key("$patch"));
            !marker && keep_after_directives(item)
        }),
        _ => {}
    }
    true
}

fn merge_list(known: Vec<Value>, new: Vec<Value>, above: &str, field: &str) -> Result<Vec<Value>, Failure> {
    match strategy(above, field) {
        Lists::Replaced => Ok(new),
        Lists::Set => {
            let mut all: Vec<Value> = Vec::new();
            for item in known.iter().chain(&new) {
                if !all.contains(item) {
                    all.push(item.clone());
                }
            }
            Ok(in_order(all, &new, &known, |item| item.clone()))
        }
        Lists::ByKey(key) => merge_by_key(known, new, key, field),
    }
}

fn merge_by_key(mut known: Vec<Value>, new: Vec<Value>, key: &str, field: &str) -> Result<Vec<Value>, Failure> {
    let id = |item: &Value| item.get(key).cloned().unwrap_or(Value::Null);
    let mut patch = Vec::new();
    let mut replace = false;
    for item in new {
        let directive = item.get("$patch").and_then(Value::as_str).map(str::to_owned);
        match directive.as_deref() {
            None => patch.push(item),
            Some("delete") if item.get(key).is_some() => known.retain(|one| id(one) != id(&item)),
            Some("replace") => replace = true,
            Some(_) => return Err(broken("a patch directive in a list is broken")),
        }
    }
    if replace {
        return Ok(patch);
    }
    if let Some(nameless) = patch.iter().find(|item| item.get(key).is_none()) {
        return Err(broken(&format!("map: {nameless} does not contain declared merge key: {key}")));
    }
    let mut merged = known.clone();
    for item in &patch {
        match merged.iter_mut().find(|one| id(one) == id(item)) {
            Some(one) => merge_map(one, item.clone(), field)?,
            None => {
                let mut fresh = item.clone();
                keep_after_directives(&mut fresh);
                merged.push(fresh);
            }
        }
    }
    Ok(in_order(merged, &patch, &known, id))
}

/// `normalizeElementOrder`: what the patch names stands in the patch's order,
/// the rest in the server's, and the two are interleaved so that the server's
/// order holds wherever it says something. New items come first.
fn in_order<K: PartialEq>(
    merged: Vec<Value>,
    patch: &[Value],
    server: &[Value],
    id: impl Fn(&Value) -> K,
) -> Vec<Value> {
    let place = |order: &[Value], item: &Value| order.iter().position(|one| id(one) == id(item));
    let (mut named, rest): (Vec<_>, Vec<_>) = merged.into_iter().partition(|item| place(patch, item).is_some());
    named.sort_by_key(|item| place(patch, item));
    let (mut named, mut rest) = (named.into_iter().peekable(), rest.into_iter().peekable());
    let mut all = Vec::new();
    loop {
        let rest_first = match (rest.peek(), named.peek()) {
            (Some(left), Some(right)) => {
                place(server, left).zip(place(server, right)).is_some_and(|(left, right)| left < right)
            }
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return all,
        };
        all.extend(if rest_first { rest.next() } else { named.next() });
    }
}
