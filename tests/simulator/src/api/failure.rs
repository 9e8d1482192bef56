//! The API server's refusals: `Status` objects, field by field as `apimachinery/pkg/api/errors` creates them.

use serde_json::{Value, json};

use super::kinds::Kind;

/// A refusal.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The HTTP code.
    pub code: u16,
    /// The reason in CamelCase; may be empty.
    pub reason: &'static str,
    /// The message.
    pub message: String,
    details: Value,
}

/// One field that is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) field: String,
    pub(crate) message: String,
}

impl Cause {
    pub(crate) fn invalid(field: impl Into<String>, message: &str) -> Self {
        Self { reason: "FieldValueInvalid", field: field.into(), message: message.to_owned() }
    }
    pub(crate) fn required(field: impl Into<String>) -> Self {
        Self { reason: "FieldValueRequired", field: field.into(), message: "Required value".to_owned() }
    }
    pub(crate) fn forbidden(field: impl Into<String>, message: &str) -> Self {
        Self { reason: "FieldValueForbidden", field: field.into(), message: message.to_owned() }
    }
    pub(crate) fn duplicate(field: impl Into<String>) -> Self {
        Self { reason: "FieldValueDuplicate", field: field.into(), message: "Duplicate value".to_owned() }
    }
    pub(crate) fn unsupported(field: impl Into<String>) -> Self {
        Self { reason: "FieldValueNotSupported", field: field.into(), message: "Unsupported value".to_owned() }
    }
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: impl Into<String>, details: Value) -> Self {
        Self { code, reason, message: message.into(), details }
    }

    fn on(kind: &Kind, name: &str) -> Value {
        named(&kind.group, &kind.plural, name)
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.qualified());
        Self::new(404, "NotFound", message, Self::on(kind, name))
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.qualified());
        Self::new(409, "AlreadyExists", message, Self::on(kind, name))
    }

    /// The same for a name that the server generated, or seems to have generated.
    pub(crate) fn generated_name_exists(kind: &Kind, name: &str) -> Self {
        let mut failure = Self::already_exists(kind, name);
        failure.details["retryAfterSeconds"] = 1.into();
        failure
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.qualified());
        Self::new(409, "Conflict", message, Self::on(kind, name))
    }

    /// A conflict that is reported on the kind's name, as `rest.BeforeDelete` does.
    pub(crate) fn conflict_on_kind(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.kind);
        Self::new(409, "Conflict", message, named(&kind.group, &kind.kind, name))
    }

    pub(crate) fn changed(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message, Value::Null)
    }

    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str, causes: &[Value]) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", kind.qualified());
        let mut details = Self::on(kind, name);
        if !causes.is_empty() {
            details["causes"] = causes.to_vec().into();
        }
        Self::new(403, "Forbidden", message, details)
    }

    pub(crate) fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        Self::invalid_as(&kind.group, &kind.kind, name, causes)
    }

    pub(crate) fn invalid_as(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let parts: Vec<_> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let sentence = match parts.as_slice() {
            [one] => one.clone(),
            _ => format!("[{}]", parts.join(", ")),
        };
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut details = named(group, kind, name);
        details["causes"] = causes
            .iter()
            .map(|cause| json!({ "reason": cause.reason, "message": cause.message, "field": cause.field }))
            .collect();
        Self::new(422, "Invalid", format!("{qualified} {name:?} is invalid: {sentence}"), details)
    }

    /// A JSON patch that cannot be applied to the object as it is.
    pub(crate) fn unprocessable() -> Self {
        Self::new(422, "Invalid", "the server rejected our request due to an error in our request", json!({}))
    }

    pub(crate) fn too_many_requests(message: &str, seconds: u32, cause: &str) -> Self {
        let mut details = json!({ "causes": [{ "reason": "DisruptionBudget", "message": cause }] });
        if seconds > 0 {
            details["retryAfterSeconds"] = seconds.into();
        }
        Self::new(429, "TooManyRequests", message, details)
    }

    pub(crate) fn expired(message: &str) -> Self {
        Self::new(410, "Expired", message, Value::Null)
    }

    pub(crate) fn future_version(requested: u64, current: u64) -> Self {
        let details = json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        });
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        Self::new(504, "Timeout", message, details)
    }

    pub(crate) fn timeout(message: &str) -> Self {
        Self::new(504, "Timeout", format!("Timeout: {message}"), json!({}))
    }

    /// An error without a known reason: code 500 and a message.
    pub(crate) fn plain(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(code, reason, message, Value::Null)
    }

    pub(crate) fn media_type() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type", json!({}))
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message, json!({}))
    }

    /// A request that the simulator does not know. A test with such a request fails.
    pub(crate) fn unimplemented(what: impl std::fmt::Display) -> Self {
        let message = format!("unimplemented in the simulator: {what}");
        Self::new(501, "Unimplemented", message, Value::Null)
    }

    /// The answer that the world injects instead of the API server's own.
    pub(crate) fn injected(code: u16) -> Self {
        let (reason, message) = match code {
            401 => ("Unauthorized", "Unauthorized"),
            403 => ("Forbidden", "forbidden"),
            409 => ("Conflict", "the object has been modified"),
            429 => ("TooManyRequests", "too many requests, please try again later"),
            503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
            504 => ("Timeout", "the request timed out"),
            _ => ("InternalError", "internal error"),
        };
        let details = if code == 429 { json!({ "retryAfterSeconds": 1 }) } else { Value::Null };
        Self::new(code, reason, message, details)
    }

    /// When the client should retry.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        self.details.get("retryAfterSeconds").and_then(Value::as_u64)
    }

    /// The `Status` object.
    #[must_use]
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}

fn named(group: &str, kind: &str, name: &str) -> Value {
    let mut details = json!({});
    if !kind.is_empty() {
        details["kind"] = kind.into();
    }
    if !name.is_empty() {
        details["name"] = name.into();
    }
    if !group.is_empty() {
        details["group"] = group.into();
    }
    details
}

/// `Status` of a deletion that does not return the object.
pub(crate) fn success(details: Value) -> Value {
    let mut status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" });
    if !details.is_null() {
        status["details"] = details;
    }
    status
}
