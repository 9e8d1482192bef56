//! The route of a request to the API server: address, credentials, proxy, TLS. It replaces kube's own connector, which
//! panics on a token with a line break, runs a login command three times, and applies `NO_PROXY` to the proxy's own
//! address.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, PROXY_AUTHORIZATION};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, ResolveServerName};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::legacy::{Builder, Client};
use hyper_util::rt::TokioExecutor;
use kube::client::Body;
use parking_lot::Mutex;
use pod_safety_proof::Permit;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use tower::{BoxError, Service};

use super::cause::{ProxyFailed, UnknownAuthority};
use super::login::{Credentials, Login};
use super::proxy::{Proxy, ProxyProtocol};

/// The TLS settings for the API server.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) config: Arc<ClientConfig>,
    /// The name in the API server's certificate, if it differs from its address.
    pub(crate) name: Option<ServerName<'static>>,
    /// The kubeconfig names no certificate authority: those of this machine are used.
    pub(crate) uses_machine_authorities: bool,
}

/// Opens connections to the API server.
#[derive(Clone)]
pub(crate) struct Connector {
    /// The proxy, and the TLS configuration for it: with the same certificate authorities, and without a client certificate.
    pub(crate) proxy: Option<(Proxy, Arc<ClientConfig>)>,
    /// `None`: no TLS.
    pub(crate) tls: Option<Tls>,
}

impl Connector {
    /// The same without cached TLS sessions: a resumed session would keep the client certificate of the earlier connection.
    fn without_tls_sessions(&self) -> Self {
        let fresh_tls = |tls: &Tls| {
            let mut config = (*tls.config).clone();
            config.resumption = Resumption::default();
            Tls { config: Arc::new(config), ..tls.clone() }
        };
        Self { proxy: self.proxy.clone(), tls: self.tls.as_ref().map(fresh_tls) }
    }

    async fn connect(self, to: Uri) -> Result<Stream, BoxError> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        let Some((proxy, tls)) = self.proxy.clone() else { return self.connect_tls(http, to).await };
        let address = proxy.address.clone();
        let failed = |source: BoxError| -> BoxError { Box::new(ProxyFailed { proxy: proxy.clone(), source }) };
        match proxy.protocol {
            ProxyProtocol::Socks5 => {
                let mut socks = SocksV5::new(address, http);
                if let Some((user, password)) = proxy.login.clone() {
                    socks = socks.with_auth(user, password);
                }
                self.connect_tls(ProxyErrors { inner: socks, proxy: proxy.clone() }, with_port(&to)).await
            }
            ProxyProtocol::Http => {
                let names = Arc::new(DefaultServerNameResolver::default());
                let mut hop = HttpsConnector::new(http, tls, false, names);
                // A request without TLS is forwarded, as by Go: few proxies open a tunnel for it.
                if to.scheme_str() == Some("http") {
                    let stream = hop.call(address).await.map_err(failed)?;
                    return Ok(Stream { io: Box::new(stream), is_forwarded: true });
                }
                let mut tunnel = Tunnel::new(address, hop);
                if let Some(login) = proxy_login(&proxy) {
                    tunnel = tunnel.with_auth(login);
                }
                self.connect_tls(ProxyErrors { inner: tunnel, proxy: proxy.clone() }, to).await
            }
        }
    }

    async fn connect_tls<C>(self, mut connector: C, to: Uri) -> Result<Stream, BoxError>
    where
        C: Service<Uri> + Send,
        C::Response: Read + Write + Connection + Send + Unpin + 'static,
        C::Future: Send + 'static,
        C::Error: Into<BoxError>,
    {
        let io: Box<dyn Io> = match self.tls {
            Some(tls) if to.scheme_str() == Some("https") => {
                let names: Arc<dyn ResolveServerName + Send + Sync> = match tls.name {
                    Some(name) => Arc::new(FixedServerNameResolver::new(name)),
                    None => Arc::new(DefaultServerNameResolver::default()),
                };
                let stream = HttpsConnector::new(connector, tls.config, true, names).call(to).await;
                Box::new(stream.map_err(|error| match tls.uses_machine_authorities {
                    true => UnknownAuthority::or(error),
                    false => error,
                })?)
            }
            _ => Box::new(connector.call(to).await.map_err(Into::into)?),
        };
        Ok(Stream { io, is_forwarded: false })
    }
}

/// Adds port 80 to an address without a port, because the SOCKS client would use port 443.
fn with_port(to: &Uri) -> Uri {
    let named = (to.scheme_str(), to.host(), to.port_u16());
    let (Some("http"), Some(host), None) = named else { return to.clone() };
    format!("http://{host}:80/").parse().unwrap_or_else(|_bad| to.clone())
}

fn proxy_login(proxy: &Proxy) -> Option<HeaderValue> {
    use base64::Engine as _;
    let (user, password) = proxy.login.as_ref()?;
    let both = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    let mut header = HeaderValue::from_str(&format!("Basic {both}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Stream, BoxError>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        Box::pin(self.clone().connect(to))
    }
}

/// A connector whose errors name their proxy.
struct ProxyErrors<C> {
    inner: C,
    proxy: Proxy,
}

impl<C> Service<Uri> for ProxyErrors<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<C::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let (work, proxy) = (self.inner.call(to), self.proxy.clone());
        Box::pin(async move {
            work.await.map_err(|error| -> BoxError { Box::new(ProxyFailed { proxy, source: error.into() }) })
        })
    }
}

trait Io: Read + Write + Connection + Send + Unpin {}

impl<T: Read + Write + Connection + Send + Unpin> Io for T {}

/// A connection, directly or through a proxy.
pub(crate) struct Stream {
    io: Box<dyn Io>,
    /// A proxy forwards each request, and needs its absolute address.
    is_forwarded: bool,
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        self.io.connected().proxy(self.is_forwarded)
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_read(context, buffer)
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.io).poll_write_vectored(context, slices)
    }
}

type Http = Client<Connector, Body>;

/// Sends requests to the API server.
#[derive(Clone)]
pub(crate) struct Route {
    /// The address of the API server, which may have a path.
    base: Uri,
    login: Arc<Login>,
    headers: Arc<[(HeaderName, HeaderValue)]>,
    connector: Connector,
    /// The connection pool, and the generation of the credentials with which its connections were opened.
    http: Arc<Mutex<(u64, Http)>>,
}

impl Route {
    pub(crate) fn new(
        base: Uri,
        connector: Connector,
        login: Arc<Login>,
        mut headers: Vec<(HeaderName, HeaderValue)>,
    ) -> Self {
        let proxy = connector.proxy.as_ref().map(|(proxy, _)| proxy);
        let forwards = proxy.filter(|proxy| proxy.protocol == ProxyProtocol::Http && connector.tls.is_none());
        if let Some(login) = forwards.and_then(proxy_login) {
            headers.push((PROXY_AUTHORIZATION, login));
        }
        let http = Arc::new(Mutex::new((0, Self::pool(&connector))));
        Self { base, login, headers: headers.into(), connector, http }
    }

    /// The same route with its own connections.
    pub(crate) fn isolated(&self) -> Self {
        let http = Arc::new(Mutex::new((0, Self::pool(&self.connector))));
        Self { http, ..self.clone() }
    }

    fn pool(connector: &Connector) -> Http {
        Builder::new(TokioExecutor::new()).build(connector.clone())
    }

    /// The connection pool for these credentials. Connections of older credentials are dropped.
    fn http(&self, credentials: &Credentials) -> Http {
        let mut http = self.http.lock();
        if credentials.generation > http.0 {
            *http = (credentials.generation, Self::pool(&self.connector.without_tls_sessions()));
        }
        http.1.clone()
    }

    async fn send_authenticated(self, request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        let credentials = self.login.credentials().await?;
        let retry = copy_for_retry(&request);
        let answer = self.send_once(request, &credentials).await?;
        let (StatusCode::UNAUTHORIZED, Some(retry)) = (answer.status(), retry) else { return Ok(answer) };
        match self.login.refresh_after(&credentials).await {
            Ok(Some(credentials)) => self.send_once(retry, &credentials).await,
            // The refusal is more useful than the reason why there are no other credentials.
            Ok(None) | Err(_) => Ok(answer),
        }
    }

    async fn send_once(
        &self,
        mut request: Request<Body>,
        credentials: &Credentials,
    ) -> Result<Response<Incoming>, BoxError> {
        *request.uri_mut() = join_path(&self.base, request.uri())?;
        for (name, value) in self.headers.iter() {
            request.headers_mut().append(name, value.clone());
        }
        if let Some(header) = &credentials.header {
            request.headers_mut().insert(AUTHORIZATION, header.clone());
        }
        self.http(credentials).request(request).await.map_err(Into::into)
    }
}

/// Joins `path`, query included, to the path of `base`.
fn join_path(base: &Uri, path: &Uri) -> Result<Uri, http::Error> {
    let (before, path) = (base.path().trim_end_matches('/'), path.path_and_query().map_or("/", |path| path.as_str()));
    let scheme = base.scheme_str().unwrap_or_default();
    let authority = base.authority().map_or("", |authority| authority.as_str());
    Uri::builder().scheme(scheme).authority(authority).path_and_query(format!("{before}{path}")).build()
}

/// A copy of a request that may be sent again after a 401, which changed nothing. A request with a permit is not copied,
/// except for an eviction: its evidence expires soon, and a login may take minutes.
fn copy_for_retry(request: &Request<Body>) -> Option<Request<Body>> {
    let evicts = request.uri().path().ends_with("/eviction");
    if request.extensions().get::<Permit>().is_some() && !evicts {
        return None;
    }
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

impl Service<Request<Body>> for Route {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Incoming>, BoxError>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send_authenticated(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_with_a_permit_is_never_sent_twice_unless_it_is_an_eviction() {
        let pod = "/api/v1/namespaces/ns/pods/a";
        for (path, permitted, copied) in [
            (pod.to_owned(), false, true),
            (pod.to_owned(), true, false),
            (format!("{pod}/status"), true, false),
            (format!("{pod}/eviction"), true, true),
        ] {
            let mut request = Request::post(&path).body(Body::from(b"{}".to_vec())).unwrap();
            if permitted {
                request.extensions_mut().insert(Permit::for_guard_tests(&path, "u", "1"));
            }
            assert_eq!(copy_for_retry(&request).is_some(), copied, "{path} {permitted}");
        }
    }

    #[test]
    fn request_paths_are_joined_to_the_path_of_the_address() {
        for (base, path, whole) in [
            ("https://a:6443/", "/api/v1/nodes?limit=1", "https://a:6443/api/v1/nodes?limit=1"),
            ("https://a/k8s/c/", "/version", "https://a/k8s/c/version"),
        ] {
            assert_eq!(join_path(&base.parse().unwrap(), &path.parse().unwrap()).unwrap().to_string(), whole);
        }
        let long = format!("/{}", "a".repeat(65_000));
        let base = format!("https://a/{}", "b".repeat(1_000)).parse().unwrap();
        assert!(join_path(&base, &long.parse().unwrap()).is_err(), "too long for a request: an error, and no panic");
    }
}
