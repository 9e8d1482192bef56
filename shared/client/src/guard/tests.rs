//! The layer: a refused request is never sent.

use super::*;
use crate::scripted::{env, unused};
use crate::{ApiError, Call, Method as Verb, WriteCall as _};

const POD: &str = "/api/v1/namespaces/ns/pods/a";
const STATUS: &str = "/api/v1/namespaces/ns/pods/a/status";
const EVICTION: &str = "/api/v1/namespaces/ns/pods/a/eviction";

#[tokio::test(start_paused = true)]
async fn a_request_that_the_guard_refuses_is_never_sent() {
    let (env, _wall) = env();
    let api = unused(&env);
    let connection = api.connection();
    let force = serde_json::json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": "u" } });
    for call in [
        Call::write(Verb::Delete, POD, &force),
        Call::write(Verb::Patch, STATUS, &serde_json::json!({ "status": { "phase": "Failed" } })),
        Call::write(Verb::Post, EVICTION, &serde_json::json!({})),
        Call::get("/api/v1/pods?resourceVersion=0"),
    ] {
        let error = connection.send(call).await.unwrap_err();
        assert!(matches!(error, ApiError::Guard(_)), "{error:?}");
        assert!(!error.is_outcome_unknown(), "nothing was sent, so nothing was changed");
    }
    let watch = connection.watch(Call::get("/api/v1/pods?watch=true&resourceVersion=0")).await.unwrap_err();
    let list = connection.list(Call::get("/api/v1/pods?resourceVersion=0")).await.unwrap_err();
    assert_eq!((watch.category(), list.category()), ("guard", "guard"));
    assert!(api.requests().is_empty());
}

/// A service that accepts requests only when it is ready.
struct Busy(Option<&'static str>);

impl Service<Request<Body>> for Busy {
    type Response = http::Response<Body>;
    type Error = BoxError;
    type Future = futures::future::Ready<Result<Self::Response, BoxError>>;
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.map_or(Poll::Pending, |error| Poll::Ready(Err(error.into())))
    }
    fn call(&mut self, _: Request<Body>) -> Self::Future {
        futures::future::ready(Ok(http::Response::new(Body::empty())))
    }
}

/// Checks a layer over a service that is not ready, and over one that is closed.
fn assert_waits<L: Layer<Busy>>(layer: &L)
where
    L::Service: Service<Request<Body>, Error = BoxError>,
{
    let mut context = Context::from_waker(std::task::Waker::noop());
    assert!(layer.layer(Busy(None)).poll_ready(&mut context).is_pending());
    let Poll::Ready(Err(error)) = layer.layer(Busy(Some("closed"))).poll_ready(&mut context) else {
        panic!("it is closed");
    };
    assert_eq!(error.to_string(), "closed");
}

#[test]
fn a_layer_is_ready_when_its_inner_service_is() {
    assert_waits(&GuardLayer);
    let metrics = crate::ClientMetrics::register(&prometheus::Registry::new()).unwrap();
    assert_waits(&crate::audit::AuditLayer::new(env().0, metrics, std::sync::Arc::new(crate::NoAudit)));
}
