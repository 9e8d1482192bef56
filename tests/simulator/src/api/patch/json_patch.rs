//! JSON patch (RFC 6902), as `gopkg.in/evanphx/json-patch.v4` reads it.

use serde_json::Value;

use crate::api::failure::Failure;

/// Applies all operations, or none.
pub(super) fn apply(current: &Value, patch: &Value) -> Result<Value, Failure> {
    let operations = patch.as_array().ok_or_else(|| Failure::bad_request("error decoding patch: it is no list"))?;
    if operations.iter().any(|operation| !operation.is_object()) {
        return Err(Failure::bad_request("error decoding patch: an operation is no object"));
    }
    let mut document = current.clone();
    for operation in operations {
        step(&mut document, operation)?;
    }
    Ok(document)
}

fn step(document: &mut Value, operation: &Value) -> Result<(), Failure> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str);
    let path = text("path").unwrap_or_default();
    let value = operation.get("value").cloned();
    match text("op").unwrap_or_default() {
        "add" => add(document, path, value.unwrap_or(Value::Null)),
        "remove" => remove_at(document, path).map(drop),
        "replace" => {
            find(document, path)?;
            remove_at(document, path)?;
            add(document, path, value.unwrap_or(Value::Null))
        }
        "move" => {
            let moved = remove_at(document, text("from").unwrap_or_default())?;
            add(document, path, moved)
        }
        "copy" => {
            let copied = find(document, text("from").unwrap_or_default())?.clone();
            add(document, path, copied)
        }
        "test" => {
            let found = document.pointer(path).cloned().unwrap_or(Value::Null);
            if found == value.unwrap_or(Value::Null) { Ok(()) } else { Err(Failure::unprocessable()) }
        }
        _ => Err(Failure::unprocessable()),
    }
}

fn missing() -> Failure {
    Failure::unprocessable()
}

fn find<'a>(document: &'a Value, path: &str) -> Result<&'a Value, Failure> {
    document.pointer(path).ok_or_else(missing)
}

fn parent<'a, 'b>(document: &'a mut Value, path: &'b str) -> Result<(&'a mut Value, &'b str), Failure> {
    let (parent, key) = path.rsplit_once('/').ok_or_else(missing)?;
    let place = document.pointer_mut(parent).ok_or_else(missing)?;
    Ok((place, key))
}

fn unescape(key: &str) -> String {
    key.replace("~1", "/").replace("~0", "~")
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), Failure> {
    match parent(document, path)? {
        (Value::Object(map), key) => drop(map.insert(unescape(key), value)),
        (Value::Array(items), "-") => items.push(value),
        (Value::Array(items), index) => {
            let index: usize = index.parse().map_err(|_error| missing())?;
            if index > items.len() {
                return Err(missing());
            }
            items.insert(index, value);
        }
        _ => return Err(missing()),
    }
    Ok(())
}

fn remove_at(document: &mut Value, path: &str) -> Result<Value, Failure> {
    match parent(document, path)? {
        (Value::Object(map), key) => map.remove(&unescape(key)).ok_or_else(missing),
        (Value::Array(items), index) => {
            let index: usize = index.parse().map_err(|_error| missing())?;
            if index < items.len() { Ok(items.remove(index)) } else { Err(missing()) }
        }
        _ => Err(missing()),
    }
}
