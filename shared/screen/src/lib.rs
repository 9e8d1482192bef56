//! A web page for a browser on this machine. Its content comes from a [`Source`], and is refreshed periodically.
//!
//! | route | answers |
//! |---|---|
//! | `/`, `/page.css`, `/page.js` | the page |
//! | `/overview` | server-sent events: the overview whenever it changed, or why it cannot be read |
//! | `/explain/KIND/NAME?namespace=NAMESPACE` | the explanation of one object |
//!
//! Invariants: no route changes anything; the cluster is read only while a browser is connected. Danger note: the
//! page shows what the user's kubeconfig may read, so it is for one user of this machine only. Four independent
//! checks ensure that:
//!
//! - it listens on loopback only;
//! - a request must name this machine (`Host`), or a page of another site could read the responses through the
//!   browser (DNS rebinding);
//! - a request must have the token of this session, which only the user who started it sees: other users of the
//!   machine can reach loopback, too;
//! - a request for data of the cluster must come from the page itself (`Sec-Fetch-Site`): each one lists the cluster,
//!   so a page that cannot read the response must not cause it either.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::stream::{self, Stream, StreamExt as _};
use pod_safety_clock::Env;
use serde::Deserialize;
use tokio::sync::{Notify, watch};

/// The refresh period of the overview. A user reads for longer than this, and each refresh makes the API server list
/// everything.
const REFRESH_PERIOD: Duration = Duration::from_secs(3);

/// Nothing is loaded from other sites, inline code is not run, and the page cannot be embedded in another one.
const SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Bytes of a token: 128 bits cannot be guessed.
const TOKEN_BYTES: usize = 16;

/// A response in JSON, or why there is none.
pub type JsonFuture<'a> = Pin<Box<dyn Future<Output = Result<String, String>> + Send + 'a>>;

/// The data of the page.
pub trait Source: Send + Sync + 'static {
    /// The overview of the cluster.
    fn overview(&self) -> JsonFuture<'_>;
    /// The explanation of one object.
    fn explain<'a>(&'a self, kind: &'a str, namespace: Option<&'a str>, name: &'a str) -> JsonFuture<'a>;
}

/// The files of the page. They contain no data of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// The document.
    pub html: &'static str,
    /// The style sheet.
    pub style: &'static str,
    /// The script.
    pub script: &'static str,
}

/// Why the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum WebUiError {
    /// Other machines could reach it.
    #[error(
        "--address={0} can be reached from other machines: everyone who reaches it could read the cluster with your rights. Use 127.0.0.1 or [::1]"
    )]
    NotLoopback(SocketAddr),
    /// The address is in use or does not belong to this machine.
    #[error("listening on --address={address}: choose another port, or 0 for any that is free")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error.
        #[source]
        source: std::io::Error,
    },
    /// The kernel provides no random bytes.
    #[error("making the token of this session")]
    Token(#[source] std::io::Error),
}

/// The web server, bound to its address.
pub struct WebUi {
    listener: tokio::net::TcpListener,
    address: SocketAddr,
    token: String,
}

struct AppState {
    page: Page,
    token: String,
    source: Arc<dyn Source>,
    overview: watch::Sender<Option<Result<String, String>>>,
    /// A visitor arrived, so the overview is refreshed at once.
    visitor_arrived: Notify,
    /// Each explanation lists much of the cluster: one at a time.
    explain_lock: tokio::sync::Mutex<()>,
}

impl WebUi {
    /// Listens on `address`.
    ///
    /// # Errors
    /// The address is not a loopback address, or is in use.
    pub async fn bind(address: SocketAddr) -> Result<Self, WebUiError> {
        if !address.ip().is_loopback() {
            return Err(WebUiError::NotLoopback(address));
        }
        let failed = |source| WebUiError::Listen { address, source };
        let listener = tokio::net::TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, token: token()? })
    }

    /// The URL for the user. Danger note: it gives the user's read access to the cluster.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/?token={}", self.address, self.token)
    }

    /// Serves until the process ends.
    pub async fn serve(self, page: Page, source: Arc<dyn Source>, env: Env) {
        let (overview, _) = watch::channel(None);
        let state = Arc::new(AppState {
            page,
            token: self.token,
            source,
            overview,
            visitor_arrived: Notify::new(),
            explain_lock: tokio::sync::Mutex::default(),
        });
        let refresh = refresh_overview(Arc::clone(&state), env);
        let router = router(state);
        tokio::select! {
            biased;
            served = axum::serve(self.listener, router).into_future() => {
                if let Err(error) = served {
                    tracing::error!(%error, "the page ended");
                }
            }
            never = refresh => match never {},
        }
    }
}

fn token() -> Result<String, WebUiError> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| WebUiError::Token(std::io::Error::other(error)))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Refreshes the overview while a browser is connected.
async fn refresh_overview(state: Arc<AppState>, env: Env) -> Infallible {
    loop {
        if state.overview.receiver_count() > 0 {
            let now = Some(state.source.overview().await);
            state.overview.send_if_modified(|before| {
                let changed = *before != now;
                *before = now;
                changed
            });
        }
        tokio::select! {
            biased;
            () = env.sleep(REFRESH_PERIOD) => {}
            () = state.visitor_arrived.notified() => {}
        }
    }
}

fn router(state: Arc<AppState>) -> Router {
    Router::new()
        .route("/overview", get(overview))
        .route("/explain/{kind}/{name}", get(explain))
        .route_layer(from_fn(require_same_origin))
        .route("/", get(page))
        .route_layer(from_fn_with_state(Arc::clone(&state), require_session_token))
        .route("/page.css", get(style))
        .route("/page.js", get(script))
        .layer(from_fn(require_this_machine))
        .with_state(state)
}

/// Whether a request was meant for this machine, and not for a foreign name that resolves to it (DNS rebinding).
#[must_use]
pub fn is_for_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Whether a page of another site sent the request, by the browser's header; `None`: not from a browser, or from an
/// old one without the header.
#[must_use]
pub fn is_cross_site(headers: &HeaderMap) -> Option<bool> {
    let site = headers.get("sec-fetch-site")?;
    Some(site != "same-origin" && site != "none")
}

async fn require_this_machine(request: Request, next: Next) -> Response {
    if !is_for_this_machine(request.headers()) {
        return (StatusCode::MISDIRECTED_REQUEST, "ask for localhost\n").into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, header::HeaderValue::from_static(SECURITY_POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, header::HeaderValue::from_static("no-referrer"));
    response
}

/// A request without the header could come from an old browser and a page of another site, so it is denied.
async fn require_same_origin(request: Request, next: Next) -> Response {
    if is_cross_site(request.headers()) != Some(false) {
        return (StatusCode::FORBIDDEN, "ask from the page itself\n").into_response();
    }
    next.run(request).await
}

async fn require_session_token(State(state): State<Arc<AppState>>, request: Request, next: Next) -> Response {
    let mut given = request.uri().query().unwrap_or_default().split('&');
    if !given
        .any(|pair| pair.strip_prefix("token=").is_some_and(|given| is_equal_in_constant_time(given, &state.token)))
    {
        return (
            StatusCode::FORBIDDEN,
            "open the address that pod-safety ui has printed: it ends in the token of this session\n",
        )
            .into_response();
    }
    next.run(request).await
}

/// Compares in constant time, however much of the token is right.
fn is_equal_in_constant_time(given: &str, token: &str) -> bool {
    let differing = given.bytes().zip(token.bytes()).fold(0, |differing, (one, other)| differing | (one ^ other));
    given.len() == token.len() && differing == 0
}

async fn page(State(state): State<Arc<AppState>>) -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], state.page.html).into_response()
}

async fn style(State(state): State<Arc<AppState>>) -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], state.page.style).into_response()
}

async fn script(State(state): State<Arc<AppState>>) -> Response {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], state.page.script).into_response()
}

async fn overview(State(state): State<Arc<AppState>>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let mut overview = state.overview.subscribe();
    // The last overview may be old: it is shown, and refreshed at once.
    overview.mark_changed();
    state.visitor_arrived.notify_one();
    let events = stream::unfold(overview, async |mut overview| {
        loop {
            overview.changed().await.ok()?;
            let now = overview.borrow_and_update().clone();
            if let Some(now) = now {
                let event = match now {
                    Ok(json) => Event::default().event("overview").data(json),
                    Err(why) => Event::default().event("trouble").data(why.replace(['\n', '\r'], " ")),
                };
                return Some((Ok(event), overview));
            }
        }
    });
    Sse::new(events.boxed()).keep_alive(KeepAlive::default())
}

#[derive(Deserialize)]
struct ExplainQuery {
    namespace: Option<String>,
}

async fn explain(
    State(state): State<Arc<AppState>>,
    Path((kind, name)): Path<(String, String)>,
    Query(query): Query<ExplainQuery>,
) -> Response {
    let _one = state.explain_lock.lock().await;
    match state.source.explain(&kind, query.namespace.as_deref(), &name).await {
        Ok(answer) => ([(header::CONTENT_TYPE, "application/json")], answer).into_response(),
        Err(why) => (StatusCode::BAD_GATEWAY, why).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tower::ServiceExt as _;

    use super::*;

    struct FakeSource;

    impl Source for FakeSource {
        fn overview(&self) -> JsonFuture<'_> {
            Box::pin(async { Ok("{}".to_owned()) })
        }
        fn explain<'a>(&'a self, kind: &'a str, namespace: Option<&'a str>, name: &'a str) -> JsonFuture<'a> {
            Box::pin(async move {
                if kind == "pod" { Ok(format!("{namespace:?}/{name}")) } else { Err(format!("what is a {kind}?")) }
            })
        }
    }

    /// A request from the page itself.
    async fn request_page(host: &str, path: &str, method: &str) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path).header("host", host);
        send(request.header("sec-fetch-site", "same-origin").body(Body::empty()).unwrap()).await
    }

    async fn response(request: Request) -> Response {
        let (overview, _) = watch::channel(None);
        let (visitor_arrived, explain_lock) = (Notify::new(), tokio::sync::Mutex::default());
        let (page, token) = (Page { html: "<html>", style: "p{}", script: "1;" }, "s3cret".to_owned());
        let state = AppState { page, token, source: Arc::new(FakeSource), overview, visitor_arrived, explain_lock };
        router(Arc::new(state)).oneshot(request).await.unwrap()
    }

    async fn send(request: Request) -> (StatusCode, String) {
        let response = response(request).await;
        let code = response.status();
        let body = axum::body::to_bytes(response.into_body(), 1_000).await.unwrap();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn requests_for_another_host_name_are_rejected() {
        for host in ["localhost:8088", "127.0.0.1:8088", "[::1]:8088", "localhost"] {
            assert_eq!(
                request_page(host, "/?token=s3cret", "GET").await,
                (StatusCode::OK, "<html>".to_owned()),
                "{host}"
            );
        }
        for host in ["evil.example:8088", "10.0.0.1:8088", "", "localhost.evil.example"] {
            for path in ["/?token=s3cret", "/page.js"] {
                assert_eq!(request_page(host, path, "GET").await.0, StatusCode::MISDIRECTED_REQUEST, "{host}{path}");
            }
        }
    }

    #[tokio::test]
    async fn explain_returns_the_answer_or_the_error_and_other_methods_are_rejected() {
        let response = request_page("localhost", "/explain/pod/db-0?namespace=shop&token=s3cret", "GET").await;
        assert_eq!(response, (StatusCode::OK, "Some(\"shop\")/db-0".to_owned()));
        let response = request_page("localhost", "/explain/moon/x?token=s3cret", "GET").await;
        assert_eq!(response, (StatusCode::BAD_GATEWAY, "what is a moon?".to_owned()));
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            assert_eq!(request_page("localhost", "/?token=s3cret", method).await.0, StatusCode::METHOD_NOT_ALLOWED);
        }
    }

    /// With images whose content it cannot read, a page of another site had the cluster listed without end.
    #[tokio::test]
    async fn attack_a_page_of_another_site_reads_no_data() {
        for (site, path, expected) in [
            (Some("cross-site"), "/explain/pod/db-0", StatusCode::FORBIDDEN),
            (Some("same-site"), "/overview", StatusCode::FORBIDDEN),
            (None, "/explain/pod/db-0", StatusCode::FORBIDDEN),
            (None, "/overview", StatusCode::FORBIDDEN),
            (Some("same-origin"), "/explain/pod/db-0", StatusCode::OK),
            (Some("none"), "/explain/pod/db-0", StatusCode::OK),
            // A link to the page may be anywhere: the page itself reads no data.
            (Some("cross-site"), "/", StatusCode::OK),
        ] {
            let mut request = Request::get(format!("{path}?token=s3cret")).header("host", "localhost");
            if let Some(site) = site {
                request = request.header("sec-fetch-site", site);
            }
            assert_eq!(send(request.body(Body::empty()).unwrap()).await.0, expected, "{site:?} {path}");
        }
    }

    /// Every user of a machine can reach its loopback, and could read the cluster with the rights of the user who had
    /// started the page.
    #[tokio::test]
    async fn attack_requests_without_the_session_token_are_rejected() {
        for path in ["/", "/overview", "/explain/pod/db-0", "/explain/pod/db-0?namespace=shop"] {
            for token in ["", "token=", "token=s3cre", "token=s3creT", "token=s3cret1", "nottoken=s3cret"] {
                let (page, refused) =
                    (format!("{path}{}{token}", if path.contains('?') { '&' } else { '?' }), StatusCode::FORBIDDEN);
                assert_eq!(request_page("localhost", &page, "GET").await.0, refused, "{page}");
            }
        }
        let (one, other) = (token().unwrap(), token().unwrap());
        assert!(one.len() == 2 * TOKEN_BYTES && one != other, "{one} {other}");
    }

    /// Texts of the cluster are not markup. If one gets into the page as markup nevertheless, no script in it runs.
    #[tokio::test]
    async fn attack_the_security_policy_runs_no_inline_script() {
        for (path, kind) in
            [("/?token=s3cret", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")]
        {
            let request = Request::get(path).header("host", "localhost");
            let response = response(request.body(Body::empty()).unwrap()).await;
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            let header_text = |name: header::HeaderName| response.headers()[name].to_str().unwrap().to_owned();
            assert!(header_text(header::CONTENT_TYPE).starts_with(kind), "{path}");
            let policy = header_text(header::CONTENT_SECURITY_POLICY);
            assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe"), "{policy}");
            assert_eq!(header_text(header::REFERRER_POLICY), "no-referrer", "the token would go with it");
        }
    }

    #[tokio::test]
    async fn the_server_binds_to_loopback_only() {
        let open = WebUi::bind("0.0.0.0:0".parse().unwrap()).await;
        assert!(matches!(open, Err(WebUiError::NotLoopback(_))));
        let first = WebUi::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let taken = WebUi::bind(first.address).await.err().unwrap();
        assert!(taken.to_string().contains("choose another port"), "{taken}");
    }
}
