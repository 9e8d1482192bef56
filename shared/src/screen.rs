//! One page in a browser on this machine: what it shows comes from a [`Source`], again and again.
//!
//! | route | answers |
//! |---|---|
//! | `/` | the page |
//! | `/overview` | server-sent events: the overview whenever it changed, or that it cannot be had |
//! | `/explain/KIND/NAME?namespace=NAMESPACE` | why one object is as it is |
//!
//! Invariants: no route changes anything; nobody looks while nobody watches. Danger note: what it shows is what the
//! user's kubeconfig may read, so it is for this machine only: it listens on loopback, and answers only who asks for it
//! by a name of this machine, for else a page of a stranger could read it through the browser (DNS rebinding). A page of a
//! stranger that cannot read the answers has nothing read either, for each look lists the cluster.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::stream::{self, Stream, StreamExt as _};
use serde::Deserialize;
use tokio::sync::{Notify, watch};

use crate::clock::Env;

/// So often it is looked again: a person reads for longer, and the API server lists everything each time.
const PERIOD: Duration = Duration::from_secs(3);

/// Nothing is loaded from elsewhere, and nobody may put the page into another one.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// An answer in JSON, or why there is none.
pub type Told<'a> = Pin<Box<dyn Future<Output = Result<String, String>> + Send + 'a>>;

/// What is shown.
pub trait Source: Send + Sync + 'static {
    /// The whole cluster.
    fn overview(&self) -> Told<'_>;
    /// Why one object is as it is.
    fn explain<'a>(&'a self, kind: &'a str, namespace: Option<&'a str>, name: &'a str) -> Told<'a>;
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum ScreenError {
    /// It would be there for others.
    #[error(
        "--address={0} is not of this machine alone: whoever reaches it would read the cluster with your rights. Use 127.0.0.1 or [::1]"
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
}

/// The page, listening.
#[derive(Debug)]
pub struct Screen {
    listener: tokio::net::TcpListener,
    address: SocketAddr,
}

struct Show {
    page: &'static str,
    source: Arc<dyn Source>,
    seen: watch::Sender<Option<Result<String, String>>>,
    /// Somebody came, and need not wait for the next look.
    came: Notify,
    /// Each answer lists much of the cluster: one at a time.
    explaining: tokio::sync::Mutex<()>,
}

impl Screen {
    /// Listens on `address`.
    ///
    /// # Errors
    /// The address is not of this machine alone, or is taken.
    pub async fn bind(address: SocketAddr) -> Result<Self, ScreenError> {
        if !address.ip().is_loopback() {
            return Err(ScreenError::NotLoopback(address));
        }
        let failed = |source| ScreenError::Listen { address, source };
        let listener = tokio::net::TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers for ever.
    pub async fn serve(self, page: &'static str, source: Arc<dyn Source>, env: Env) {
        let (seen, _) = watch::channel(None);
        let show = Arc::new(Show {
            page,
            source,
            seen,
            came: Notify::new(),
            explaining: tokio::sync::Mutex::default(),
        });
        let looks = look_again(Arc::clone(&show), env);
        let router = router(show);
        tokio::select! {
            biased;
            ended = axum::serve(self.listener, router).into_future() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "the page ended");
                }
            }
            never = looks => match never {},
        }
    }
}

/// Looks for as long as somebody watches.
async fn look_again(show: Arc<Show>, env: Env) -> Infallible {
    loop {
        if show.seen.receiver_count() > 0 {
            let now = Some(show.source.overview().await);
            show.seen.send_if_modified(|before| {
                let news = *before != now;
                *before = now;
                news
            });
        }
        tokio::select! {
            biased;
            () = env.sleep(PERIOD) => {}
            () = show.came.notified() => {}
        }
    }
}

fn router(show: Arc<Show>) -> Router {
    Router::new()
        .route("/overview", get(overview))
        .route("/explain/{kind}/{name}", get(explain))
        .route_layer(from_fn(of_our_page))
        .route("/", get(page))
        .layer(from_fn(of_this_machine))
        .with_state(show)
}

/// Whether a request was meant for us, and not for a stranger's name that leads here.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

async fn of_this_machine(request: Request, next: Next) -> Response {
    if !names_this_machine(request.headers()) {
        return (StatusCode::MISDIRECTED_REQUEST, "ask for localhost\n").into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, header::HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}

/// Browsers say which page a request comes from; other clients say nothing.
async fn of_our_page(request: Request, next: Next) -> Response {
    let site = request.headers().get("sec-fetch-site");
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return (StatusCode::FORBIDDEN, "ask from the page itself\n").into_response();
    }
    next.run(request).await
}

async fn page(State(show): State<Arc<Show>>) -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], show.page).into_response()
}

async fn overview(State(show): State<Arc<Show>>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let mut seen = show.seen.subscribe();
    // What was seen for the last visitor may be old: it is shown, and looked at again at once.
    seen.mark_changed();
    show.came.notify_one();
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
struct Within {
    namespace: Option<String>,
}

async fn explain(
    State(show): State<Arc<Show>>,
    Path((kind, name)): Path<(String, String)>,
    Query(within): Query<Within>,
) -> Response {
    let _one = show.explaining.lock().await;
    match show.source.explain(&kind, within.namespace.as_deref(), &name).await {
        Ok(answer) => ([(header::CONTENT_TYPE, "application/json")], answer).into_response(),
        Err(why) => (StatusCode::BAD_GATEWAY, why).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tower::ServiceExt as _;

    use super::*;

    struct Words;

    impl Source for Words {
        fn overview(&self) -> Told<'_> {
            Box::pin(async { Ok("{}".to_owned()) })
        }
        fn explain<'a>(&'a self, kind: &'a str, namespace: Option<&'a str>, name: &'a str) -> Told<'a> {
            Box::pin(async move {
                if kind == "pod" {
                    Ok(format!("{namespace:?}/{name}"))
                } else {
                    Err(format!("what is a {kind}?"))
                }
            })
        }
    }

    async fn asked(host: &str, path: &str, method: &str) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path).header("host", host);
        answered(request.body(Body::empty()).unwrap()).await
    }

    async fn answered(request: Request) -> (StatusCode, String) {
        let (seen, _) = watch::channel(None);
        let (came, explaining) = (Notify::new(), tokio::sync::Mutex::default());
        let router =
            router(Arc::new(Show { page: "<html>", source: Arc::new(Words), seen, came, explaining }));
        let response = router.oneshot(request).await.unwrap();
        let code = response.status();
        let body = axum::body::to_bytes(response.into_body(), 1_000).await.unwrap();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn it_answers_this_machine_and_nobody_who_goes_by_another_name() {
        for host in ["localhost:8088", "127.0.0.1:8088", "[::1]:8088", "localhost"] {
            assert_eq!(asked(host, "/", "GET").await, (StatusCode::OK, "<html>".to_owned()), "{host}");
        }
        for host in ["evil.example:8088", "10.0.0.1:8088", "", "localhost.evil.example"] {
            assert_eq!(asked(host, "/", "GET").await.0, StatusCode::MISDIRECTED_REQUEST, "{host}");
        }
    }

    #[tokio::test]
    async fn it_explains_and_says_why_it_cannot_and_nothing_writes() {
        let said = asked("localhost", "/explain/pod/db-0?namespace=shop", "GET").await;
        assert_eq!(said, (StatusCode::OK, "Some(\"shop\")/db-0".to_owned()));
        let said = asked("localhost", "/explain/moon/x", "GET").await;
        assert_eq!(said, (StatusCode::BAD_GATEWAY, "what is a moon?".to_owned()));
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            assert_eq!(asked("localhost", "/", method).await.0, StatusCode::METHOD_NOT_ALLOWED);
        }
    }

    /// By pictures of which it cannot read a byte a page of a stranger had the cluster listed without end.
    #[tokio::test]
    async fn attack_a_page_of_a_stranger_has_nothing_looked_at() {
        for (site, path, wanted) in [
            ("cross-site", "/explain/pod/db-0", StatusCode::FORBIDDEN),
            ("same-site", "/overview", StatusCode::FORBIDDEN),
            ("same-origin", "/explain/pod/db-0", StatusCode::OK),
            ("none", "/explain/pod/db-0", StatusCode::OK),
            // A link to the page may be anywhere: the page itself reads nothing.
            ("cross-site", "/", StatusCode::OK),
        ] {
            let request = Request::get(path).header("host", "localhost").header("sec-fetch-site", site);
            assert_eq!(answered(request.body(Body::empty()).unwrap()).await.0, wanted, "{site} {path}");
        }
    }

    #[tokio::test]
    async fn it_listens_on_this_machine_only() {
        let open = Screen::bind("0.0.0.0:0".parse().unwrap()).await;
        assert!(matches!(open, Err(ScreenError::NotLoopback(_))));
        let first = Screen::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let taken = Screen::bind(first.address()).await.unwrap_err();
        assert!(taken.to_string().contains("choose another port"), "{taken}");
    }
}
