//! Inside the simulation: each request goes through a transport, and its answer back to the gate, piece by piece.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::{Method, Request, Response, header};
use http_body_util::BodyExt;
use jiff::fmt::rfc2822::DateTimePrinter;
use kube::client::Body;
use pod_safety_shared::clock::Env;
use serde_json::Value;
use tokio::sync::mpsc;
use tower::Service;

use super::CALLER;
use super::gate::{Part, PendingRequest, Visitors, refusal};
use super::installation;
use super::table::{Include, Table};
use crate::api::{ApiRequest, ApiServer, Failure, Route, Transport};

/// How many pieces a client may be behind before the simulation waits for it.
const PIECES: usize = 256;
/// How long the simulation waits for a client that does not read.
const SLOW: Duration = Duration::from_secs(300);
/// How long a server may go without an answer: it answers by itself after a minute at most.
const SILENT: Duration = Duration::from_secs(65);

/// Parameters that are handled here, or that mean nothing to a simulation.
const NOT_FOR_THE_SERVER: [&str; 2] = ["includeObject", "timeout"];

type Answer = Response<BoxStream<'static, Part>>;

/// Answers the requests that come through the gate, until all gates are gone. `servers` names the API servers at the
/// moment of a request, the preferred one first; `ours` the pods of pod-safety; `env` is of a host that never stops. To
/// be spawned in the simulation.
pub async fn attend(
    mut visitors: Visitors,
    servers: impl Fn() -> Vec<Arc<ApiServer>> + Send + 'static,
    ours: impl Fn() -> Vec<Value> + Send + 'static,
    env: Env,
) {
    while let Some(visit) = visitors.next().await {
        let (servers, own) = (servers(), env.clone());
        let own_pods = installation::is_for_own_pods(&visit.request).then(|| installation::list(&ours()));
        env.spawner.spawn("visit", Box::pin(async move { receive(visit, &servers, own_pods, &own).await }));
    }
}

/// Handles one request, until its answer is sent or its client is gone.
async fn receive(visit: PendingRequest, servers: &[Arc<ApiServer>], ours: Option<Bytes>, env: &Env) {
    let PendingRequest { request, answer: mut gone } = visit;
    let answer = tokio::select! {
        biased;
        () = gone.closed() => return,
        answer = answer(&request, servers, ours, env) => answer,
    };
    let (mut head, mut body) = answer.into_parts();
    // A client measures ages by this header: the simulation's time is no calendar time.
    if let Ok(date) = DateTimePrinter::new().timestamp_to_rfc9110_string(&env.clock.wall())
        && let Ok(date) = header::HeaderValue::try_from(date)
    {
        head.headers.insert(header::DATE, date);
    }
    let (sender, receiver) = mpsc::channel(PIECES);
    if gone.send(Response::from_parts(head, receiver)).is_err() {
        return;
    }
    loop {
        let part = tokio::select! {
            biased;
            () = sender.closed() => return,
            part = body.next() => part,
        };
        let Some(part) = part else { return };
        // Only a client that does not keep up costs the simulation a timer.
        let Err(mpsc::error::TrySendError::Full(part)) = sender.try_send(part) else { continue };
        if env.timeout_at(env.now() + SLOW, sender.send(part)).await.is_none() {
            return;
        }
    }
}

fn whole(response: Response<Bytes>) -> Answer {
    response.map(|bytes| futures::stream::iter([Ok(bytes)]).boxed())
}

async fn answer(request: &Request<Bytes>, servers: &[Arc<ApiServer>], ours: Option<Bytes>, env: &Env) -> Answer {
    let refuse = |code, reason, why: String| whole(refusal(&Failure::plain(code, reason, why)));
    let Some(first) = servers.first() else {
        return refuse(503, "ServiceUnavailable", "no API server runs".to_owned());
    };
    let (kinds, path) = (first.kinds(), request.uri().path());
    let accept = header_text(request, &header::ACCEPT);
    if request.method() == Method::GET
        && let Some(response) = crate::api::discovery::find(&kinds, path, accept)
    {
        return whole(response);
    }
    if let Some(review) = super::reviews::answer(request) {
        let answer = Response::builder().status(201).header(header::CONTENT_TYPE, "application/json");
        return whole(answer.body(review).unwrap_or_default());
    }
    let health = ["/livez", "/readyz", "/healthz"].contains(&path);
    let Some(wish) = AcceptedForm::from_accept(accept) else {
        return refuse(406, "NotAcceptable", "only JSON and tables are served".to_owned());
    };
    let route = Route::parse(&kinds, path);
    if route.is_none() && !health {
        return refuse(404, "NotFound", "the server could not find the requested resource".to_owned());
    }
    if let (Some(ours), Some(route)) = (ours, &route) {
        let text = match wish {
            AcceptedForm::Table => Table::new_for(&route.kind, include(request), env.clone()).whole(&ours),
            AcceptedForm::Json => ours,
        };
        let answer = Response::builder().header(header::CONTENT_TYPE, "application/json");
        return whole(answer.body(text).unwrap_or_default());
    }
    for server in servers {
        let Some(response) = call(server, request, env).await else { continue };
        return match (&route, wish) {
            (Some(route), AcceptedForm::Table) if request.method() == Method::GET => {
                let watches = ApiRequest::new(CALLER, Method::GET, &target(request)).watches();
                tabled(response, Table::new_for(&route.kind, include(request), env.clone()), watches).await
            }
            _ => response,
        };
    }
    refuse(503, "ServiceUnavailable", "no API server answered; what was asked may have been done".to_owned())
}

/// Sends the request to a server. `None`: the connection broke or no answer came, and a retry does no harm.
async fn call(server: &Arc<ApiServer>, request: &Request<Bytes>, env: &Env) -> Option<Answer> {
    let mut own = Request::builder().method(request.method()).uri(target(request));
    own = own.header(header::ACCEPT, "application/json");
    let content_type = header_text(request, &header::CONTENT_TYPE);
    if !content_type.is_empty() {
        own = own.header(header::CONTENT_TYPE, content_type);
    }
    let own = own.body(Body::from(request.body().to_vec())).ok()?;
    let call = Transport::for_stranger(server, CALLER).call(own);
    match env.timeout_at(env.now() + SILENT, call).await {
        Some(Ok(response)) => {
            let (head, body) = response.into_parts();
            Some(Response::from_parts(head, body.into_data_stream().boxed()))
        }
        lost => (request.method() != Method::GET).then(|| {
            let why = match lost {
                Some(_) => "the connection broke; what was asked may have been done",
                None => "no answer came; what was asked may have been done",
            };
            whole(refusal(&Failure::timeout(why)))
        }),
    }
}

/// Path and query, without the parameters that are not for the server.
fn target(request: &Request<Bytes>) -> String {
    let query = request.uri().query().unwrap_or_default().split('&');
    let own = query.filter(|pair| {
        let key = pair.split('=').next().unwrap_or_default();
        !key.is_empty() && !NOT_FOR_THE_SERVER.contains(&key)
    });
    let own: Vec<&str> = own.collect();
    let path = request.uri().path();
    if own.is_empty() { path.to_owned() } else { format!("{path}?{}", own.join("&")) }
}

fn header_text<'a>(request: &'a Request<Bytes>, name: &header::HeaderName) -> &'a str {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn include(request: &Request<Bytes>) -> Include {
    let query = request.uri().query().unwrap_or_default();
    match query.split('&').find_map(|pair| pair.strip_prefix("includeObject=")) {
        Some("Object") => Include::Object,
        Some("None") => Include::Nothing,
        _ => Include::Metadata,
    }
}

/// The form in which the client wants its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AcceptedForm {
    Table,
    Json,
}

impl AcceptedForm {
    /// The first supported form among those that the client accepts.
    fn from_accept(accept: &str) -> Option<Self> {
        accept.split(',').find_map(|media| {
            let mut parts = media.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let mut form = None;
            let mut version = "v1";
            for word in parts {
                match word.split_once('=') {
                    Some(("as", name)) => form = Some(name),
                    Some(("v", name)) => version = name,
                    _ => {}
                }
            }
            match (kind, form) {
                ("application/json", Some("Table")) if version == "v1" => Some(Self::Table),
                ("application/json" | "application/*" | "*/*" | "", None) => Some(Self::Json),
                _ => None,
            }
        })
    }
}

/// The answer to a read, as a table. A refusal stays as it is.
async fn tabled(answer: Answer, mut table: Table, watches: bool) -> Answer {
    let (mut head, mut body) = answer.into_parts();
    if !head.status.is_success() {
        return Response::from_parts(head, body);
    }
    head.headers.remove(header::CONTENT_LENGTH);
    // The server sends a whole answer, and each event, as one piece.
    let body = if watches {
        body.map(move |part| part.map(|line| table.event(&line))).boxed()
    } else {
        let object = body.next().await;
        let text = object.map(|part| part.map(|text| table.whole(&text)));
        futures::stream::iter(text).boxed()
    };
    Response::from_parts(head, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_supported_accept_form_is_used() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        for (accept, wish) in [
            ("", Some(AcceptedForm::Json)),
            ("*/*", Some(AcceptedForm::Json)),
            (table, Some(AcceptedForm::Table)),
            ("application/json;as=Table;g=meta.k8s.io;v=v1beta1, application/json", Some(AcceptedForm::Json)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(AcceptedForm::Json)),
            (&format!("{table},application/json"), Some(AcceptedForm::Table)),
            ("application/yaml", None),
        ] {
            assert_eq!(AcceptedForm::from_accept(accept), wish, "{accept}");
        }
    }

    #[test]
    fn own_parameters_do_not_reach_the_server() {
        let asked = |uri: &str| target(&Request::get(uri).body(Bytes::new()).unwrap());
        assert_eq!(asked("/api/v1/pods?includeObject=Object&limit=500&timeout=5s"), "/api/v1/pods?limit=500");
        assert_eq!(asked("/api/v1/pods?includeObject=Object"), "/api/v1/pods");
    }
}
