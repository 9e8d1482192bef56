//! Leader election by client-go's rules, with a Lease in memory.

mod candidates;
mod limits;
mod rules;

use super::*;
use crate::client::scripted::{Answer, Api, Received, SetWall, advance, env};
use crate::metrics::Metrics;

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l";
const COLLECTION: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";

/// What happens to one request.
#[derive(Clone, Copy, Default)]
struct Fate {
    before: Duration,
    after: Duration,
    lost: bool,
    /// It is applied, and its answer is lost.
    unheard: bool,
}

/// The one Lease, with the compare-and-swap of an API server.
#[derive(Clone, Default)]
struct Server {
    lease: Arc<Mutex<Option<(u64, Value)>>>,
    versions: Arc<Mutex<u64>>,
}

impl Server {
    fn held_by(holder: &str, seconds: i32) -> Self {
        let server = Self::default();
        server.write(json!({ "holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": 4,
            "renewTime": "2026-11-21T12:00:00.000000Z", "strategy": "kept" }));
        server
    }

    fn write(&self, spec: Value) -> Value {
        let mut versions = self.versions.lock();
        *versions += 1;
        *self.lease.lock() = Some((*versions, spec));
        drop(versions);
        self.object().unwrap()
    }

    fn object(&self) -> Option<Value> {
        let lease = self.lease.lock();
        let (version, spec) = lease.as_ref()?;
        Some(json!({ "metadata": { "name": "l", "uid": "u", "resourceVersion": version.to_string() }, "spec": spec }))
    }

    fn spec(&self) -> Value {
        self.lease.lock().as_ref().unwrap().1.clone()
    }

    fn delete(&self) {
        *self.lease.lock() = None;
    }

    fn answer(&self, request: &Received) -> Answer {
        match (request.method.as_str(), request.path.as_str(), self.object()) {
            ("GET", PATH, Some(object)) => Answer::json(&object),
            ("GET" | "PATCH", PATH, None) => Answer::not_found(),
            ("POST", COLLECTION, Some(_)) => Answer::status(409, "AlreadyExists", "leases l already exists"),
            ("POST", COLLECTION, None) => Answer::json(&self.write(request.json()["spec"].clone())),
            ("PATCH", PATH, Some(object)) => {
                let body = request.json();
                if body["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
                    return Answer::status(409, "Conflict", "the object has been modified");
                }
                let mut spec = object["spec"].clone();
                for (key, value) in body["spec"].as_object().unwrap() {
                    spec[key] = value.clone();
                }
                Answer::json(&self.write(spec))
            }
            other => panic!("nobody should ask {other:?}"),
        }
    }
}

struct Candidate {
    env: Env,
    wall: Arc<SetWall>,
    api: Api,
    leadership: Arc<Leadership>,
    metrics: Metrics,
    elector: Option<Elector>,
    stop: watch::Sender<bool>,
}

fn config(identity: &str) -> LeaseConfig {
    LeaseConfig {
        namespace: "ns".to_owned(),
        name: "l".to_owned(),
        identity: identity.to_owned(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

impl Candidate {
    /// A candidate whose requests meet this fate. The server continues with a request whose sender has stopped waiting.
    fn new(server: &Server, identity: &str, fate: impl Fn(&Received) -> Fate + Send + Sync + 'static) -> Self {
        let (env, wall) = env();
        let (server, spawner) = (server.clone(), env.clone());
        let api = Api::new(&env, move |request| {
            let (fate, server, world) = (fate(&request), server.clone(), spawner.clone());
            let (reply, answer) = tokio::sync::oneshot::channel();
            let work = async move {
                if fate.lost {
                    return std::future::pending().await;
                }
                world.sleep(fate.before).await;
                let answer = server.answer(&request);
                world.sleep(fate.after).await;
                if fate.unheard {
                    return std::future::pending().await;
                }
                // The sender may have stopped waiting.
                drop(reply.send(answer));
            };
            spawner.spawner.spawn("server", Box::pin(work));
            async move { answer.await.unwrap() }
        });
        let (leadership, metrics) = (Leadership::none(), Metrics::new().unwrap());
        let connection = api.connection_with(&metrics.client);
        let elector =
            Elector::new(config(identity), connection, env.clone(), metrics.lease.clone(), Arc::clone(&leadership));
        Self { env, wall, api, leadership, metrics, elector: Some(elector), stop: watch::Sender::new(false) }
    }

    fn well(server: &Server, identity: &str) -> Self {
        Self::new(server, identity, |_| Fate::default())
    }

    /// Runs the elector in the background until `stop`, then returns it.
    fn start(&mut self) -> tokio::sync::oneshot::Receiver<Elector> {
        let (mut elector, mut stop) = (self.elector.take().unwrap(), self.stop.subscribe());
        let (done, ended) = tokio::sync::oneshot::channel();
        let run = async move {
            elector.run(&mut stop).await;
            drop(done.send(elector));
        };
        self.env.spawner.spawn("elector", Box::pin(run));
        ended
    }

    fn leads(&self) -> bool {
        self.leadership.term(self.env.now()).is_some()
    }

    fn page(&self) -> String {
        String::from_utf8(self.metrics.encode().unwrap()).unwrap()
    }
}

fn seconds(env: &Env) -> f64 {
    env.now().since_start().as_secs_f64()
}
