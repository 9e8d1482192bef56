//! One page in a browser on this machine: what it shows comes from a [`Source`], again and again.
//!
//! | route | answers |
//! |---|---|
//! | `/`, `/page.css`, `/page.js` | the page |
//! | `/overview` | server-sent events: the overview whenever it changed, or that it cannot be had |
//! | `/explain/KIND/NAME?namespace=NAMESPACE` | why one object is as it is |
//!
//! Invariants: no route changes anything; nobody looks while nobody watches. Danger note: what it shows is what the
//! user's kubeconfig may read, so it is for one user of this machine only. Four checks hold, each alone:
//!
//! - it listens on loopback;
//! - a request must name this machine (`Host`), or a page of a stranger could read the answers through the browser (DNS rebinding);
//! - a request must carry the token of this session, which only the user sees who started it: other users of the machine reach
//!   loopback, too;
//! - a request for what is read from the cluster must come from the page itself (`Sec-Fetch-Site`): each lists the cluster, so a
//!   page that cannot read the answer must not cause it either.

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

/// So often it is looked again: a person reads for longer, and the API server lists everything each time.
const REFRESH_PERIOD: Duration = Duration::from_secs(3);

/// Nothing is loaded from elsewhere, nothing in the page itself is run, and nobody may put the page into another one.
const SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Bytes of a token: nobody guesses 128 bits.
const TOKEN_BYTES: usize = 16;

/// An answer in JSON, or why there is none.
pub type JsonFuture<'a> = Pin<Box<dyn Future<Output = Result<String, String>> + Send + 'a>>;

/// What is shown.
pub trait Source: Send + Sync + 'static {
    /// The whole cluster.
    fn overview(&self) -> JsonFuture<'_>;
    /// Why one object is as it is.
    fn explain<'a>(&'a self, kind: &'a str, namespace: Option<&'a str>, name: &'a str) -> JsonFuture<'a>;
}

/// The files of the page. They hold nothing of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// What is opened.
    pub html: &'static str,
    /// How it looks.
    pub style: &'static str,
    /// What it does.
    pub script: &'static str,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum WebUiError {
    /// It would be there for others.
    #[error(
        "--address={0} can be reached from other machines: everyone who reaches it could read the cluster with your rights. Use 127.0.0.1 or [::1]"
    )]
    NotLoopback(SocketAddr),
    /// The address is taken or not ours.
    #[error("listening on --address={address}: choose another port, or 0 for any that is free")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The kernel gives no random bytes.
    #[error("making the token of this session")]
    Token(#[source] std::io::Error),
}

/// The page, listening.
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
    /// Somebody came, and need not wait for the next look.
    visitor_arrived: Notify,
    /// Each answer lists much of the cluster: one at a time.
    explain_lock: tokio::sync::Mutex<()>,
}

impl WebUi {
    /// Listens on `address`.
    ///
    /// # Errors
    /// The address is not of this machine alone, or is taken.
    pub async fn bind(address: SocketAddr) -> Result<Self, WebUiError> {
        if !address.ip().is_loopback() {
            return Err(WebUiError::NotLoopback(address));
        }
        let failed = |source| WebUiError::Listen { address, source };
        let listener = tokio::net::TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, token: token()? })
    }

    /// What its user opens. Danger note: whoever has it reads the cluster with the user's rights.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/?token={}", self.address, self.token)
    }

    /// Answers for ever.
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

/// Looks for as long as somebody watches.
async fn refresh_overview(state: Arc<AppState>, env: Env) -> Infallible {
    loop {
        if state.overview.receiver_count() > 0 {
            let now = Some(state.source.overview().await);
            state.overview.send_if_modified(|before| {
                let news = *before != now;
                *before = now;
                news
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

/// Whether a request was meant for this machine, and not for a stranger's name that leads here (DNS rebinding).
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

/// Whether a page of another site has sent it, as the browser says; `None`: no browser has, or an old one that does not say.
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

/// What no browser has sent cannot be told from what an old one sends for a stranger's page.
async fn require_same_origin(request: Request, next: Next) -> Response {
    if is_cross_site(request.headers()) != Some(false) {
        return (StatusCode::FORBIDDEN, "ask from the page itself\n").into_response();
    }
    next.run(request).await
}

async fn require_session_token(State(show): State<Arc<AppState>>, request: Request, next: Next) -> Response {
    let mut given = request.uri().query().unwrap_or_default().split('&');
    if !given.any(|pair| {
        pair.strip_prefix("token=").is_some_and(|given| is_equal_in_constant_time(given, &show.token))
    }) {
        return (
            StatusCode::FORBIDDEN,
            "open the address that pod-safety ui has printed: it ends in the token of this session\n",
        )
            .into_response();
    }
    next.run(request).await
}

/// In the same time, however much of it is right.
fn is_equal_in_constant_time(given: &str, token: &str) -> bool {
    let differing =
        given.bytes().zip(token.bytes()).fold(0, |differing, (one, other)| differing | (one ^ other));
    given.len() == token.len() && differing == 0
}

async fn page(State(show): State<Arc<AppState>>) -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], show.page.html).into_response()
}

async fn style(State(show): State<Arc<AppState>>) -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], show.page.style).into_response()
}

async fn script(State(show): State<Arc<AppState>>) -> Response {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], show.page.script).into_response()
}

async fn overview(State(show): State<Arc<AppState>>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let mut seen = show.overview.subscribe();
    // What was seen for the last visitor may be old: it is shown, and looked at again at once.
    seen.mark_changed();
    show.visitor_arrived.notify_one();
    let news = stream::unfold(seen, async |mut seen| {
        loop {
            seen.changed().await.ok()?;
            let now = seen.borrow_and_update().clone();
            if let Some(now) = now {
                let event = match now {
                    Ok(overview) => Event::default().event("overview").data(overview),
                    Err(why) => Event::default().event("trouble").data(why.replace(['\n', '\r'], " ")),
                };
                return Some((Ok(event), seen));
            }
        }
    });
    Sse::new(news.boxed()).keep_alive(KeepAlive::default())
}

#[derive(Deserialize)]
struct ExplainQuery {
    namespace: Option<String>,
}

async fn explain(
    State(show): State<Arc<AppState>>,
    Path((kind, name)): Path<(String, String)>,
    Query(query): Query<ExplainQuery>,
) -> Response {
    let _one = show.explain_lock.lock().await;
    match show.source.explain(&kind, query.namespace.as_deref(), &name).await {
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
                if kind == "pod" {
                    Ok(format!("{namespace:?}/{name}"))
                } else {
                    Err(format!("what is a {kind}?"))
                }
            })
        }
    }

    /// From the page itself.
    async fn request_page(host: &str, path: &str, method: &str) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path).header("host", host);
        send(request.header("sec-fetch-site", "same-origin").body(Body::empty()).unwrap()).await
    }

    async fn response(request: Request) -> Response {
        let (seen, _) = watch::channel(None);
        let (came, explaining) = (Notify::new(), tokio::sync::Mutex::default());
        let (page, token) = (Page { html: "<html>", style: "p{}", script: "1;" }, "s3cret".to_owned());
        let show = AppState {
            page,
            token,
            source: Arc::new(FakeSource),
            overview: seen,
            visitor_arrived: came,
            explain_lock: explaining,
        };
        router(Arc::new(show)).oneshot(request).await.unwrap()
    }

    async fn send(request: Request) -> (StatusCode, String) {
        let response = response(request).await;
        let code = response.status();
        let body = axum::body::to_bytes(response.into_body(), 1_000).await.unwrap();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn it_answers_this_machine_and_nobody_who_goes_by_another_name() {
        for host in ["localhost:8088", "127.0.0.1:8088", "[::1]:8088", "localhost"] {
            assert_eq!(
                request_page(host, "/?token=s3cret", "GET").await,
                (StatusCode::OK, "<html>".to_owned()),
                "{host}"
            );
        }
        for host in ["evil.example:8088", "10.0.0.1:8088", "", "localhost.evil.example"] {
            for path in ["/?token=s3cret", "/page.js"] {
                assert_eq!(
                    request_page(host, path, "GET").await.0,
                    StatusCode::MISDIRECTED_REQUEST,
                    "{host}{path}"
                );
            }
        }
    }

    #[tokio::test]
    async fn it_explains_and_says_why_it_cannot_and_nothing_writes() {
        let response =
            request_page("localhost", "/explain/pod/db-0?namespace=shop&token=s3cret", "GET").await;
        assert_eq!(response, (StatusCode::OK, "Some(\"shop\")/db-0".to_owned()));
        let response = request_page("localhost", "/explain/moon/x?token=s3cret", "GET").await;
        assert_eq!(response, (StatusCode::BAD_GATEWAY, "what is a moon?".to_owned()));
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            assert_eq!(
                request_page("localhost", "/?token=s3cret", method).await.0,
                StatusCode::METHOD_NOT_ALLOWED
            );
        }
    }

    /// By pictures of which it cannot read a byte a page of a stranger had the cluster listed without end.
    #[tokio::test]
    async fn attack_a_page_of_a_stranger_has_nothing_looked_at() {
        for (site, path, expected) in [
            (Some("cross-site"), "/explain/pod/db-0", StatusCode::FORBIDDEN),
            (Some("same-site"), "/overview", StatusCode::FORBIDDEN),
            (None, "/explain/pod/db-0", StatusCode::FORBIDDEN),
            (None, "/overview", StatusCode::FORBIDDEN),
            (Some("same-origin"), "/explain/pod/db-0", StatusCode::OK),
            (Some("none"), "/explain/pod/db-0", StatusCode::OK),
            // A link to the page may be anywhere: the page itself reads nothing.
            (Some("cross-site"), "/", StatusCode::OK),
        ] {
            let mut request = Request::get(format!("{path}?token=s3cret")).header("host", "localhost");
            if let Some(site) = site {
                request = request.header("sec-fetch-site", site);
            }
            assert_eq!(send(request.body(Body::empty()).unwrap()).await.0, expected, "{site:?} {path}");
        }
    }

    /// Every user of a machine reaches its loopback, and read the cluster there with the rights of whoever had started the page.
    #[tokio::test]
    async fn attack_another_user_of_the_machine_has_no_token() {
        for path in ["/", "/overview", "/explain/pod/db-0", "/explain/pod/db-0?namespace=shop"] {
            for token in ["", "token=", "token=s3cre", "token=s3creT", "token=s3cret1", "nottoken=s3cret"] {
                let (page, refused) = (
                    format!("{path}{}{token}", if path.contains('?') { '&' } else { '?' }),
                    StatusCode::FORBIDDEN,
                );
                assert_eq!(request_page("localhost", &page, "GET").await.0, refused, "{page}");
            }
        }
        let (one, other) = (token().unwrap(), token().unwrap());
        assert!(one.len() == 2 * TOKEN_BYTES && one != other, "{one} {other}");
    }

    /// What comes from the cluster is text. Should it ever get into the page as markup, nothing of it runs.
    #[tokio::test]
    async fn attack_markup_in_a_name_runs_nothing() {
        for (path, kind) in
            [("/?token=s3cret", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")]
        {
            let request = Request::get(path).header("host", "localhost");
            let response = response(request.body(Body::empty()).unwrap()).await;
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            let header_text =
                |name: header::HeaderName| response.headers()[name].to_str().unwrap().to_owned();
            assert!(header_text(header::CONTENT_TYPE).starts_with(kind), "{path}");
            let policy = header_text(header::CONTENT_SECURITY_POLICY);
            assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe"), "{policy}");
            assert_eq!(header_text(header::REFERRER_POLICY), "no-referrer", "the token would go with it");
        }
    }

    #[tokio::test]
    async fn it_listens_on_this_machine_only() {
        let open = WebUi::bind("0.0.0.0:0".parse().unwrap()).await;
        assert!(matches!(open, Err(WebUiError::NotLoopback(_))));
        let first = WebUi::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let taken = WebUi::bind(first.address).await.err().unwrap();
        assert!(taken.to_string().contains("choose another port"), "{taken}");
    }
}
