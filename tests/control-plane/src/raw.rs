//! Untyped requests, for objects without a Rust type in the harness.

use http::Method;
use kube::Client;
use serde_json::Value;

use crate::Error;

/// The field manager of applied objects.
const FIELD_MANAGER: &str = "test";

/// Sends `body`, if it is not null, and returns the answer.
pub(crate) async fn send(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> kube::Result<Value> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
    client.request(request.body(body).map_err(kube::Error::HttpError)?).await
}

/// Creates or updates an object (`kubectl apply --server-side --force-conflicts`): fields that an earlier call set and this one does not
/// are removed.
pub(crate) async fn apply(client: &Client, path: &str, object: &Value) -> Result<Value, Error> {
    let uri = format!("{path}?fieldManager={FIELD_MANAGER}&force=true");
    let answer = send(client, Method::PATCH, &uri, "application/apply-patch+yaml", object).await;
    answer.map_err(Error::api(format!("apply {path}")))
}

/// Changes the fields that `patch` names.
pub(crate) async fn merge(client: &Client, path: &str, patch: &Value) -> Result<Value, Error> {
    let answer = send(client, Method::PATCH, path, "application/merge-patch+json", patch).await;
    answer.map_err(Error::api(format!("change {path}")))
}

/// Deletes an object.
pub(crate) async fn delete(client: &Client, path: &str) -> Result<(), Error> {
    let answer = send(client, Method::DELETE, path, "application/json", &Value::Null).await;
    answer.map(drop).map_err(Error::api(format!("delete {path}")))
}
