//! The few objects that are stored as written: the Lease of the leader. As JSON, by path.

use std::collections::BTreeMap;

use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};

#[derive(Default)]
pub(crate) struct Objects(Mutex<State>);

#[derive(Default)]
struct State {
    version: u64,
    objects: BTreeMap<String, Value>,
}

/// The code and the reason of a `Status` for a refused request.
pub(crate) type ErrorStatus = (StatusCode, &'static str);

const NOT_FOUND: ErrorStatus = (StatusCode::NOT_FOUND, "NotFound");
const CONFLICT: ErrorStatus = (StatusCode::CONFLICT, "Conflict");

impl Objects {
    pub(crate) fn read(&self, path: &str) -> Result<Value, ErrorStatus> {
        self.0.lock().objects.get(path).cloned().ok_or(NOT_FOUND)
    }

    /// Like the API server: POST creates an object, PUT replaces it, PATCH merges `spec`, each with its resourceVersion as a precondition.
    pub(crate) fn write(&self, method: &Method, path: &str, body: Value) -> Result<Value, ErrorStatus> {
        let mut state = self.0.lock();
        let named = body["metadata"]["name"].as_str().unwrap_or_default();
        let path = if *method == Method::POST { format!("{path}/{named}") } else { path.to_owned() };
        let mut object = match (state.objects.get(&path), *method == Method::POST) {
            (None, true) => body,
            (Some(_), true) => return Err((StatusCode::CONFLICT, "AlreadyExists")),
            (None, false) => return Err(NOT_FOUND),
            (Some(old), false) => {
                let expected = &body["metadata"]["resourceVersion"];
                if !expected.is_null() && *expected != old["metadata"]["resourceVersion"] {
                    return Err(CONFLICT);
                }
                let mut new = old.clone();
                for (key, value) in body["spec"].as_object().into_iter().flatten() {
                    new["spec"][key] = value.clone();
                }
                new
            }
        };
        state.version += 1;
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        object["metadata"]["uid"] = json!(path);
        state.objects.insert(path, object.clone());
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_updated_only_with_its_version() {
        let leases = Objects::default();
        let lease = |version: Value, holder: &str| json!({ "metadata": { "name": "l", "resourceVersion": version }, "spec": { "holderIdentity": holder } });
        assert_eq!(leases.write(&Method::PATCH, "/leases/l", lease(json!("1"), "a")), Err(NOT_FOUND));
        let made = leases.write(&Method::POST, "/leases", lease(Value::Null, "a")).unwrap();
        assert_eq!(made["metadata"]["resourceVersion"], "1");
        assert_eq!(leases.write(&Method::POST, "/leases", lease(Value::Null, "b")).unwrap_err().1, "AlreadyExists");
        assert_eq!(
            leases.write(&Method::PATCH, "/leases/l", lease(json!("1"), "b")).unwrap()["spec"]["holderIdentity"],
            "b"
        );
        assert_eq!(leases.write(&Method::PUT, "/leases/l", lease(json!("1"), "c")), Err(CONFLICT));
        assert_eq!(leases.read("/leases/l").unwrap()["spec"]["holderIdentity"], "b");
    }
}
