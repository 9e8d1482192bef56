//! One process of what is under test, and the seam below its client: here its
//! requests are seen as it meant them, and here bugs are planted.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use parking_lot::Mutex;
use pod_safety_shared::client::{Connection, NoAudit};
use pod_safety_shared::clock::{Env, Task};
use pod_safety_shared::drive::{HeldNow, Holds};
use pod_safety_shared::metrics::Metrics;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::{BoxError, Service};

use super::host::Host;
use super::run::World;
use crate::api::Door;
use crate::campaign::Plant;
use crate::checker::Invariant;

/// How a process under test is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Between the two reads of a missing node.
    pub quarantine: Duration,
    /// For how long others wait after a leader's last renewal; `None`: no election.
    pub lease_duration: Option<Duration>,
    /// For how long a leader writes after its last renewal.
    pub renew_deadline: Duration,
    /// How often it renews.
    pub retry_period: Duration,
    /// Terminated pods that are left alone.
    pub terminated_threshold: usize,
}

impl Settings {
    /// The settings of a release, but for the threshold: there are few pods here.
    pub(crate) const SHIPPED: Self = Self {
        quarantine: Duration::from_secs(40),
        lease_duration: Some(Duration::from_secs(15)),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
        terminated_threshold: 1,
    };

    fn with(plant: Option<Plant>) -> Self {
        let mut settings = Self::SHIPPED;
        match plant {
            Some(Plant::NoQuarantine) => settings.quarantine = Duration::from_secs(1),
            Some(Plant::NoElection) => settings.lease_duration = None,
            Some(Plant::LongTerm) => settings.renew_deadline = Duration::from_secs(60),
            _ => {}
        }
        settings
    }
}

/// What a process is started with.
#[expect(missing_debug_implementations, reason = "a bundle of handles, taken apart at once")]
pub struct Launched {
    /// Its way to the API servers.
    pub connection: Connection,
    /// Its world.
    pub env: Env,
    /// Its metrics, which the world reads at the end.
    pub metrics: Metrics,
    /// Set when it is told to stop.
    pub stop: watch::Receiver<bool>,
    /// Unique to it.
    pub identity: String,
    /// How it is set up.
    pub settings: Settings,
    /// Where it shows its holds to whoever watches; no rule is checked by them.
    pub shown: Shown,
}

/// The holds of a process, once it has some.
pub type Shown = Arc<OnceLock<Arc<Holds>>>;

/// Starts the shipped process. A function, so that this crate does not depend on
/// the binary, which is to carry this crate's demonstration.
pub type Launch = fn(Launched) -> Task;

struct Running {
    host: Arc<Host>,
    stop: watch::Sender<bool>,
    metrics: Metrics,
    shown: Shown,
    caller: String,
}

/// A place in which processes run one after another, as in a Deployment.
pub(crate) struct Replica {
    index: usize,
    server: Mutex<usize>,
    started: Mutex<u32>,
    running: Mutex<Option<Running>>,
}

impl Replica {
    pub(crate) fn new(index: usize) -> Self {
        Self { index, server: Mutex::new(index), started: Mutex::default(), running: Mutex::default() }
    }

    /// The name of its link.
    pub(crate) fn name(&self) -> String {
        format!("{}{}", super::REPLICA, self.index)
    }

    /// The name under which its present process calls.
    pub(crate) fn caller(&self) -> Option<String> {
        self.running.lock().as_ref().map(|running| running.caller.clone())
    }

    pub(crate) fn host(&self) -> Option<Arc<Host>> {
        self.running.lock().as_ref().map(|running| Arc::clone(&running.host))
    }

    /// Starts a process, unless one runs.
    pub(crate) fn start(&self, world: &Arc<World>, launch: Launch, plant: Option<Plant>) {
        let mut running = self.running.lock();
        if running.is_some() {
            return;
        }
        let number = {
            let mut started = self.started.lock();
            *started += 1;
            *started
        };
        let caller = format!("{}.{number}", self.name());
        let rate = if plant == Some(Plant::FastClock) { 8 } else { 1 };
        let host = Host::start_with_rate(&caller, world.chance.part(&caller, 0), &world.checker, rate);
        let Ok(metrics) = Metrics::new() else {
            return world.checker.violated(Invariant::Simulator, "metrics cannot be registered");
        };
        let seam = Seam {
            world: Arc::clone(world),
            index: self.index,
            caller: caller.clone(),
            plant,
            memory: Arc::default(),
        };
        let connection = Connection::over(seam, host.env(), metrics.client.clone(), Arc::new(NoAudit));
        let (stop, stopped) = watch::channel(false);
        let shown = Shown::default();
        let task = launch(Launched {
            connection,
            env: host.env(),
            metrics: metrics.clone(),
            stop: stopped,
            identity: caller.clone(),
            settings: Settings::with(plant),
            shown: Arc::clone(&shown),
        });
        world.checker.note(format!("{caller} starts"));
        host.env().spawner.spawn("process", task);
        *running = Some(Running { host, stop, metrics, shown, caller });
    }

    /// It dies.
    pub(crate) fn crash(&self) {
        if let Some(running) = self.running.lock().take() {
            running.host.crash();
        }
    }

    /// It is told to stop.
    pub(crate) fn stop(&self) {
        if let Some(running) = self.running.lock().as_ref() {
            running.stop.send_replace(true);
        }
    }

    pub(crate) fn server(&self) -> usize {
        *self.server.lock()
    }

    pub(crate) fn switch(&self) {
        *self.server.lock() += 1;
    }

    fn page(&self) -> String {
        let page = self.running.lock().as_ref().and_then(|running| running.metrics.page().ok());
        String::from_utf8(page.unwrap_or_default()).unwrap_or_default()
    }

    /// Whether its process believes that it leads.
    pub(crate) fn leads(&self) -> bool {
        let page = self.page();
        let mut lines = page.lines().filter(|line| line.starts_with("leader_election_master_status"));
        lines.any(|line| line.ends_with(" 1"))
    }

    /// What its process holds, with the reasons in words.
    pub(crate) fn held(&self) -> Vec<HeldNow> {
        let shown = self.running.lock().as_ref().map(|running| Arc::clone(&running.shown));
        shown.and_then(|shown| shown.get().map(|holds| holds.now())).unwrap_or_default()
    }

    /// The holds that its process shows, by reason.
    pub(crate) fn holds(&self) -> BTreeMap<String, u64> {
        let page = self.page();
        let lines = page.lines().filter(|line| line.starts_with("pod_safety_holds{"));
        lines
            .filter_map(|line| {
                let (_, rest) = line.split_once("reason=\"")?;
                let (reason, rest) = rest.split_once('"')?;
                let count = rest.split_whitespace().last()?.parse().ok()?;
                Some((reason.to_owned(), count))
            })
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// What lies between a process's client and the wire.
#[derive(Clone)]
struct Seam {
    world: Arc<World>,
    index: usize,
    caller: String,
    plant: Option<Plant>,
    /// Answers that a planted bug remembers, by path.
    memory: Arc<Mutex<BTreeMap<String, (u16, Bytes)>>>,
}

/// A request taken apart, so that it can be sent again.
#[derive(Clone)]
struct Parts {
    method: Method,
    target: String,
    headers: http::HeaderMap,
    body: Bytes,
}

impl Service<Request<Body>> for Seam {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().now_or_never().and_then(Result::ok).unwrap_or_default();
        let target = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        let (path, method) = (head.uri.path().to_owned(), head.method.clone());
        let outstanding = self.world.checker.sent(&self.caller, &method, &path, &body);
        let sent = self.world.checker.now();
        let parts = self.tampered(Parts { method: method.clone(), target, headers: head.headers, body });
        let first = self.send(parts.clone());
        let seam = self.clone();
        Box::pin(async move {
            let answer = seam.meddled(parts, first).await;
            drop(outstanding);
            if let Ok(answer) = &answer {
                seam.world.checker.answered(&seam.caller, &method, &path, sent, answer.status().as_u16());
            }
            answer
        })
    }
}

impl Seam {
    /// Puts a request on the wire, now.
    fn send(&self, parts: Parts) -> BoxFuture<'static, Result<Answer, BoxError>> {
        let server =
            self.world.replicas.get(self.index).and_then(|replica| self.world.servers.get(replica.server()));
        let mut request = Request::builder().method(parts.method).uri(parts.target);
        if let Some(headers) = request.headers_mut() {
            *headers = parts.headers;
        }
        match (server, request.body(Body::from(parts.body.to_vec()))) {
            (Some(server), Ok(request)) => Door::new(&server, &self.caller).call(request),
            _ => Box::pin(async { Err("there is no API server".into()) }),
        }
    }

    /// What a planted bug makes of a request.
    fn tampered(&self, mut parts: Parts) -> Parts {
        let edit = |parts: &mut Parts, field: &str| {
            if parts.method == Method::GET || !parts.target.contains("/pods/") {
                return;
            }
            let Ok(mut body) = serde_json::from_slice::<Value>(&parts.body) else { return };
            for object in ["metadata", "preconditions"] {
                if let Some(object) = body.get_mut(object).and_then(Value::as_object_mut) {
                    object.remove(field);
                }
            }
            parts.body = body.to_string().into();
        };
        match self.plant {
            Some(Plant::NoUid) => edit(&mut parts, "uid"),
            Some(Plant::NoVersion) => edit(&mut parts, "resourceVersion"),
            Some(Plant::CachedReads) if is_evidence(&parts) => parts.target.push_str("?resourceVersion=0"),
            Some(Plant::BlindToLeases | Plant::ErrorsMeanAbsent | Plant::RememberedReads) => {
                let target = parts.target.replace("/namespaces/kube-node-lease/", "/namespaces/default/");
                if self.plant != Some(Plant::RememberedReads) || !is_evidence(&parts) {
                    parts.target = target;
                }
            }
            _ => {}
        }
        parts
    }

    /// What a planted bug makes of an answer.
    async fn meddled(
        &self,
        parts: Parts,
        first: BoxFuture<'static, Result<Answer, BoxError>>,
    ) -> Result<Answer, BoxError> {
        let answer = first.await;
        match self.plant {
            Some(Plant::DeafToNodes) if is_evidence(&parts) => whole(503, Bytes::new()),
            Some(Plant::ErrorsMeanAbsent) if is_evidence(&parts) => match answer {
                Ok(answer) if answer.status() == 200 => Ok(answer),
                _ => whole(
                    404,
                    json!({ "kind": "Status", "code": 404, "reason": "NotFound" }).to_string().into(),
                ),
            },
            Some(Plant::RememberedReads) if is_evidence(&parts) => {
                let known = self.memory.lock().get(&parts.target).cloned();
                if let Some((code, body)) = known {
                    return whole(code, body);
                }
                let answer = answer?;
                let code = answer.status().as_u16();
                let body = answer.into_body().collect().await?.to_bytes();
                self.memory.lock().insert(parts.target, (code, body.clone()));
                whole(code, body)
            }
            Some(Plant::Hammer) if parts.target.contains("/nodes/") => {
                let mut answer = answer;
                while answer.is_err() || answer.as_ref().is_ok_and(|answer| !answer.status().is_success()) {
                    answer = self.send(parts.clone()).await;
                }
                answer
            }
            _ => answer,
        }
    }
}

/// A read of one Node or of its Lease.
fn is_evidence(parts: &Parts) -> bool {
    let evidence = parts.target.contains("/nodes/") || parts.target.contains("-node-lease/leases/");
    parts.method == Method::GET && evidence && !parts.target.contains('?')
}

fn whole(code: u16, body: Bytes) -> Result<Answer, BoxError> {
    let body = Full::new(body).map_err(|never| match never {});
    Ok(Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(UnsyncBoxBody::new(body))?)
}
