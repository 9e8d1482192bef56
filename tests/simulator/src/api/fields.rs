//! Reading and writing single fields of JSON objects.

use serde_json::{Map, Value};

/// The value at `path`, a list of keys.
pub(crate) fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// The string at `path`; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// The number at `path`.
pub(crate) fn number(object: &Value, path: &[&str]) -> Option<i64> {
    at(object, path).and_then(Value::as_i64)
}

/// The list at `path`; empty if there is none.
pub(crate) fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The strings of the list at `path`.
pub(crate) fn texts<'a>(object: &'a Value, path: &[&str]) -> Vec<&'a str> {
    list(object, path).iter().filter_map(Value::as_str).collect()
}

/// The object at `path`, created if it is missing. A value of another type is replaced.
pub(crate) fn object_mut<'a>(object: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let mut place = object;
    for key in path {
        place = as_object(place).entry(*key).or_insert(Value::Null);
    }
    as_object(place)
}

fn as_object(place: &mut Value) -> &mut Map<String, Value> {
    if !place.is_object() {
        *place = Value::Object(Map::new());
    }
    match place {
        Value::Object(map) => map,
        _ => unreachable!("it was just made an object"),
    }
}

/// Sets the field `key` of the object at `path`.
pub(crate) fn set(object: &mut Value, path: &[&str], key: &str, value: impl Into<Value>) {
    object_mut(object, path).insert(key.to_owned(), value.into());
}

/// Sets the field if it is missing.
pub(crate) fn set_default(object: &mut Value, path: &[&str], key: &str, value: impl Into<Value>) {
    let place = object_mut(object, path).entry(key).or_insert(Value::Null);
    if place.is_null() {
        *place = value.into();
    }
}

/// Removes the field.
pub(crate) fn remove(object: &mut Value, path: &[&str], key: &str) {
    if at(object, path).is_some_and(Value::is_object) {
        object_mut(object, path).remove(key);
    }
}

/// Sets the field to its value in `other`, or removes it if it is missing there.
pub(crate) fn copy(object: &mut Value, other: &Value, path: &[&str], key: &str) {
    match at(other, path).and_then(|parent| parent.get(key)) {
        Some(value) => set(object, path, key, value.clone()),
        None => remove(object, path, key),
    }
}
