//! The last check before a request is sent: a layer below all code that sends. The kernel's guard
//! ([`pod_safety_proof::check`]) reads the bytes of every request before it is sent.

use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::Either;
use http::Request;
use kube::client::Body;
use pod_safety_proof::{GuardRefusal, Permit, check};
use tower::{BoxError, Layer, Service};

/// Wraps a service in a [`Guard`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuardLayer;

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;
    fn layer(&self, inner: S) -> Guard<S> {
        Guard { inner }
    }
}

/// A service that refuses unpermitted deletions.
#[derive(Clone, Debug)]
pub struct Guard<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<Body>>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future =
        Either<futures::future::Ready<Result<S::Response, BoxError>>, futures::future::ErrInto<S::Future, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        use futures::TryFutureExt;
        match check_request(&request) {
            Ok(()) => Either::Right(self.inner.call(request).err_into()),
            Err(refusal) => Either::Left(futures::future::ready(Err(Box::new(refusal)))),
        }
    }
}

/// Checks one request. A body that is not in memory cannot be read, and is refused if the request needs its content checked.
fn check_request(request: &Request<Body>) -> Result<(), GuardRefusal> {
    let bytes = request.body().try_clone().and_then(|body| body.collect_bytes().now_or_never()?.ok());
    let (method, uri) = (request.method().as_str(), request.uri());
    check(method, uri.path(), uri.query(), bytes.as_deref(), request.extensions().get::<Permit>())
}

#[cfg(test)]
mod tests;
