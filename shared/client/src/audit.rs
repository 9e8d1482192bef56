//! Counts and reports every request that goes out.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use tower::{BoxError, Layer, Service};

use crate::metrics::ClientMetrics;
use pod_safety_clock::Env;
use pod_safety_proof::Shape;

/// The request that an [`Audit`] observes.
#[derive(Clone, Debug)]
pub struct RequestLine {
    /// The HTTP method.
    pub method: http::Method,
    /// The path without its query.
    pub path: String,
    /// The query, if any.
    pub query: Option<String>,
}

/// Observes every request before it is sent. Checkers and simulators implement it.
pub trait Audit: Send + Sync + 'static {
    /// A request is about to be sent.
    fn before_send(&self, line: &RequestLine);
}

/// Observes nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoAudit;

impl Audit for NoAudit {
    fn before_send(&self, _line: &RequestLine) {}
}

#[derive(Clone)]
pub(crate) struct AuditLayer {
    env: Env,
    metrics: ClientMetrics,
    audit: Arc<dyn Audit>,
}

impl AuditLayer {
    pub(crate) fn new(env: Env, metrics: ClientMetrics, audit: Arc<dyn Audit>) -> Self {
        Self { env, metrics, audit }
    }
}

impl<S> Layer<S> for AuditLayer {
    type Service = Audited<S>;
    fn layer(&self, inner: S) -> Audited<S> {
        Audited { inner, layer: self.clone() }
    }
}

pub(crate) struct Audited<S> {
    inner: S,
    layer: AuditLayer,
}

impl<S, B> Service<Request<Body>> for Audited<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let AuditLayer { env, metrics, audit } = self.layer.clone();
        let line = RequestLine {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().map(str::to_owned),
        };
        audit.before_send(&line);
        let resource = Shape::from_path(&line.path).resource;
        let verb = verb(&line);
        let start = env.now();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let result = answer.await.map_err(Into::into);
            let code = result.as_ref().map_or(0, |response| response.status().as_u16());
            metrics.observe(verb, resource, code, env.now().since(start));
            result
        })
    }
}

/// The verb, by its name in RBAC.
fn verb(line: &RequestLine) -> &'static str {
    let named = Shape::from_path(&line.path).name.is_some();
    let watches = line.query.as_deref().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"));
    match line.method.as_str() {
        "GET" if watches => "watch",
        "GET" if named => "get",
        "GET" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_rbac_verbs() {
        const PODS: &str = "/api/v1/namespaces/ns/pods";
        const POD: &str = "/api/v1/namespaces/ns/pods/a";
        for (method, path, query, expected) in [
            ("GET", PODS, None, "list"),
            ("GET", PODS, Some("limit=500"), "list"),
            ("GET", PODS, Some("limit=500&watch=true"), "watch"),
            ("GET", POD, None, "get"),
            ("GET", POD, Some("watch=false"), "get"),
            ("POST", PODS, None, "create"),
            ("PUT", POD, None, "update"),
            ("PATCH", POD, None, "patch"),
            ("DELETE", POD, None, "delete"),
            ("OPTIONS", POD, None, "other"),
        ] {
            let line =
                RequestLine { method: method.parse().unwrap(), path: path.to_owned(), query: query.map(str::to_owned) };
            assert_eq!(verb(&line), expected, "{method} {path} {query:?}");
        }
    }
}
