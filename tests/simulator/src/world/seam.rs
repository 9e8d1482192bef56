//! What lies between a process's client and the wire: here its requests are seen
//! as it meant them, here bugs are planted, and here a strike meets it between
//! two of its calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, pending};
use futures::{FutureExt, StreamExt};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use tower::{BoxError, Service};

use super::run::World;
use super::strike::{Blow, Moment, Occasion};
use crate::api::Transport;
use crate::campaign::{Fault, Plant};
use crate::checker::Outstanding;

/// The longest that a process waits for an answer that does not come, and a second.
const STRUCK_FOR: Duration = Duration::from_secs(31);

/// What a process hears.
pub(super) type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;
type Answering = BoxFuture<'static, Result<Answer, BoxError>>;

/// The seam of one process.
#[derive(Clone)]
pub(crate) struct Seam {
    pub(super) world: Arc<World>,
    pub(super) index: usize,
    pub(super) caller: String,
    pub(super) plant: Option<Plant>,
    /// Answers that a planted bug remembers, by path.
    pub(super) memory: Arc<Mutex<BTreeMap<String, (u16, Bytes)>>>,
    /// Watch events that a planted bug counted.
    pub(super) counted: Arc<Mutex<u64>>,
}

/// A request taken apart, so that it can be sent again.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) headers: http::HeaderMap,
    pub(super) body: Bytes,
}

impl Parts {
    fn from_request(request: Request<Body>) -> Self {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().now_or_never().and_then(Result::ok).unwrap_or_default();
        let target = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        Self { method: head.method, target, headers: head.headers, body }
    }

    pub(super) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A write to one pod.
    pub(super) fn is_write_to_pod(&self) -> bool {
        self.method != Method::GET && self.target.contains("/pods/")
    }

    /// A read of one Node or of its Lease.
    pub(super) fn is_evidence(&self) -> bool {
        let evidence = self.target.contains("/nodes/") || self.target.contains("-node-lease/leases/");
        self.method == Method::GET && evidence && !self.target.contains('?')
    }

    /// A write from which something follows: renewals of our leadership and Events are none.
    fn is_of_weight(&self) -> bool {
        let none = ["/events", "/kube-system/leases"];
        self.method != Method::GET && none.into_iter().all(|part| !self.path().contains(part))
    }

    pub(super) fn is_watch(&self) -> bool {
        self.target.contains("watch=true")
    }
}

impl Service<Request<Body>> for Seam {
    type Response = Answer;
    type Error = BoxError;
    type Future = Answering;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let parts = Parts::from_request(request);
        if parts.is_write_to_pod() && self.plant == Some(Plant::QueuedWrites) {
            return self.queued(parts);
        }
        let blow = self.occurs(Occasion::Call, &parts);
        let (outstanding, sent) = self.sent(&parts);
        match blow {
            None => self.pass(parts, outstanding, sent),
            Some(blow) => self.struck(blow, parts, outstanding, sent),
        }
    }
}

impl Seam {
    pub(super) fn new(world: &Arc<World>, index: usize, caller: &str, plant: Option<Plant>) -> Self {
        let (memory, counted) = (Arc::default(), Arc::default());
        Self { world: Arc::clone(world), index, caller: caller.to_owned(), plant, memory, counted }
    }

    /// Tells the tape where this run is; gives back what strikes here.
    fn occurs(&self, occasion: Occasion, parts: &Parts) -> Option<Blow> {
        if !self.world.tape.runs() {
            return None;
        }
        let checker = &self.world.checker;
        let moment = Moment {
            replica: self.index,
            occasion,
            at: checker.now(),
            write: parts.method != Method::GET,
            of_pod: parts.is_write_to_pod(),
            of_weight: parts.is_of_weight(),
            hash: checker.hash(),
        };
        self.world.tape.reached(moment)
    }

    /// From here on the request is under way, and cannot be called back.
    pub(super) fn sent(&self, parts: &Parts) -> (Outstanding, Duration) {
        let checker = &self.world.checker;
        let outstanding = checker.sent(&self.caller, &parts.method, parts.path(), &parts.body);
        (outstanding, checker.now())
    }

    fn pass(&self, parts: Parts, outstanding: Outstanding, sent: Duration) -> Answering {
        let tampered = self.tampered(parts.clone());
        let never = matches!(self.plant, Some(Plant::SkipPatch | Plant::DeleteFirst));
        let first = if never && tampered.path().ends_with("/status") {
            Box::pin(pending())
        } else if let Some(answer) =
            self.answers_about_evictions(&tampered).or_else(|| self.answered_by_plant(&tampered))
        {
            Box::pin(async move { answer })
        } else {
            self.send(tampered.clone())
        };
        let seam = self.clone();
        let work = async move {
            let answer = seam.meddled(tampered, first).await;
            drop(outstanding);
            if let Ok(answer) = &answer {
                let Parts { method, body, .. } = &parts;
                let code = answer.status().as_u16();
                seam.world.checker.renewed(&seam.caller, method, parts.path(), body, sent, code);
            }
            answer.map(|answer| seam.filter_watch(&parts, answer))
        };
        if self.plant == Some(Plant::NoDeadline) { self.for_ever(Box::pin(work)) } else { Box::pin(work) }
    }

    /// Puts a request on the wire, now.
    pub(super) fn send(&self, parts: Parts) -> Answering {
        let server = self.world.replicas.get(self.index).and_then(|replica| self.world.servers.get(replica.server()));
        let mut request = Request::builder().method(parts.method).uri(parts.target);
        if let Some(headers) = request.headers_mut() {
            *headers = parts.headers;
        }
        match (server, request.body(Body::from(parts.body.to_vec()))) {
            (Some(server), Ok(request)) => Transport::new(&server, &self.caller).call(request),
            _ => Box::pin(async { Err("there is no API server".into()) }),
        }
    }

    /// A watch as its process hears it, event by event.
    fn filter_watch(&self, parts: &Parts, answer: Answer) -> Answer {
        if !parts.is_watch() || !(self.world.tape.runs() || self.changes_watches()) {
            return answer;
        }
        let (head, body) = answer.into_parts();
        let (seam, parts) = (self.clone(), parts.clone());
        let events = body.into_data_stream().filter_map(move |event| {
            let seam = seam.clone();
            if let Some(Blow::Meanwhile(faults)) = seam.occurs(Occasion::Event, &parts) {
                seam.inject(faults);
            }
            let event = match event {
                Ok(bytes) if seam.changes_watches() => seam.changed(&parts, bytes).map(Ok),
                event => Some(event),
            };
            async move { event.map(|event| event.map(Frame::data)) }
        });
        Response::from_parts(head, UnsyncBoxBody::new(StreamBody::new(events)))
    }

    /// Later, whatever becomes of whoever asked: what a queue without a term does.
    fn queued(&self, parts: Parts) -> Answering {
        let seam = self.clone();
        self.for_ever(Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(12)).await;
            let (outstanding, sent) = seam.sent(&parts);
            seam.pass(parts, outstanding, sent).await
        }))
    }

    /// Goes on when the process has given the request up.
    fn for_ever(&self, work: Answering) -> Answering {
        let Some(host) = self.world.replicas.get(self.index).and_then(super::replica::Replica::host) else {
            return work;
        };
        let (sender, receiver) = futures::channel::oneshot::channel();
        host.env().spawner.spawn("queued", Box::pin(async move { drop(sender.send(work.await)) }));
        Box::pin(async move { receiver.await.unwrap_or_else(|_| Err("given up".into())) })
    }

    /// Does something beside what the process does, while it lives.
    pub(super) fn aside(&self, work: BoxFuture<'static, ()>) {
        if let Some(host) = self.world.replicas.get(self.index).and_then(super::replica::Replica::host) {
            host.env().spawner.spawn("aside", work);
        }
    }

    fn inject(&self, faults: Vec<Fault>) {
        self.world.tape.inject(&self.world, faults);
    }

    fn struck(&self, blow: Blow, parts: Parts, outstanding: Outstanding, sent: Duration) -> Answering {
        let replica = self.index;
        // Whatever it is, it costs its process a request, or more.
        let checker = &self.world.checker;
        checker.control_is_troubled(checker.now() + STRUCK_FOR);
        let crash = move |seconds: u64| vec![Fault::CrashReplica { replica, seconds }];
        match blow {
            Blow::CrashBefore { back } => {
                self.inject(crash(back));
                Box::pin(pending())
            }
            Blow::CrashSent { back } => {
                // On the wire it outlives whoever sent it.
                let _nobody_listens = self.send(parts);
                self.inject(crash(back));
                Box::pin(pending())
            }
            Blow::CrashAnswered { back } => {
                let (seam, answer) = (self.clone(), self.send(parts));
                Box::pin(async move {
                    let _unread = answer.await;
                    seam.inject(crash(back));
                    pending().await
                })
            }
            Blow::Drop => Box::pin(async move {
                let _under_way = outstanding;
                pending().await
            }),
            Blow::LoseAnswer => {
                let answer = self.send(parts);
                Box::pin(async move {
                    let (_under_way, _unread) = (outstanding, answer.await);
                    pending().await
                })
            }
            Blow::Error { code } => Box::pin(async move { refused(code) }),
            Blow::Pause { seconds } => {
                let host = self.world.replicas.get(replica).and_then(super::replica::Replica::host);
                host.iter().for_each(|host| host.pause());
                self.inject(vec![Fault::PauseReplica { replica, seconds }]);
                let seam = self.clone();
                Box::pin(async move {
                    // The process is not asked again before it goes on.
                    tokio::task::yield_now().await;
                    seam.pass(parts, outstanding, sent).await
                })
            }
            Blow::Wake { replica } => {
                let host = self.world.replicas.get(replica).and_then(super::replica::Replica::host);
                host.iter().for_each(|host| host.resume());
                self.pass(parts, outstanding, sent)
            }
            Blow::Meanwhile(faults) => {
                self.inject(faults);
                self.pass(parts, outstanding, sent)
            }
        }
    }
}

/// What an API server says when it refuses.
pub(super) fn refused(code: u16) -> Result<Answer, BoxError> {
    let reason = if code == 404 { "NotFound" } else { "" };
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason });
    whole(code, status.to_string().into())
}

pub(super) fn whole(code: u16, body: Bytes) -> Result<Answer, BoxError> {
    let body = Full::new(body).map_err(|never| match never {});
    Ok(Response::builder().status(code).header("content-type", "application/json").body(UnsyncBoxBody::new(body))?)
}
