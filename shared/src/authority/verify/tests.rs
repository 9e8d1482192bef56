//! The judge, with a scripted API server.

mod devices;
mod fenced;
mod gone;
mod lease_age;
mod limits;
mod pods;
mod pods_ended;
mod sidecars;
mod trusted_taint;
mod volumes;

use std::time::Duration;

use parking_lot::Mutex;
use pod_safety_fence::{StatusChecker, quorum_read};
use pod_safety_proof::{EvidenceKind, VALID_FOR};
use serde_json::Value;

use super::*;
use crate::client::scripted::{Answer, Api, advance, env};
use crate::model::Kind;
use crate::testing::Claimed as _;
use crate::testing::World;
use crate::testing::objects::{Obj, lease, node, pod};
use crate::transport::NoTransport;

const QUARANTINE: Duration = Duration::from_secs(40);

/// The answer to each read.
type Responder = Arc<dyn Fn() -> Answer + Send + Sync>;

fn answering(answer: impl Fn() -> Answer + Send + Sync + 'static) -> Responder {
    Arc::new(answer)
}

fn object(object: Obj) -> Responder {
    answering(move || Answer::json(&object.0))
}

fn absent() -> Responder {
    answering(Answer::not_found)
}

/// A cluster in which pod `a` is bound to node `n`, which is missing.
struct Fixture {
    world: World,
    env: Env,
    policy: VerifierConfig,
    node: Arc<Mutex<Responder>>,
    lease: Arc<Mutex<Responder>>,
    /// The FenceEvidence `e`.
    proof: Arc<Mutex<Responder>>,
    /// The Lease of the agent of `n`.
    agent: Arc<Mutex<Responder>>,
    api: Api,
    connection: Connection,
}

impl Fixture {
    /// The kubelet of `n` was unreachable before its Node was deleted.
    fn new() -> Self {
        let fixture = Self::connected();
        fixture.world.set_unreachable_before_node_deleted("n");
        fixture
    }

    /// The kubelet of `n` reported until its Node was deleted.
    fn connected() -> Self {
        let (env, _wall) = env();
        let (node, lease) = (Arc::new(Mutex::new(absent())), Arc::new(Mutex::new(absent())));
        let proof = Arc::new(Mutex::new(absent()));
        let agent = Arc::new(Mutex::new(absent()));
        let (nodes, leases, proofs) = (Arc::clone(&node), Arc::clone(&lease), Arc::clone(&proof));
        let agents = Arc::clone(&agent);
        let api = Api::new(&env, move |request| {
            assert_eq!((request.method.as_str(), request.query.as_str()), ("GET", ""), "a quorum read");
            let answering = match request.path.as_str() {
                "/api/v1/nodes/n" => nodes.lock().clone(),
                "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n" => leases.lock().clone(),
                "/apis/pod-safety.dev/v1alpha1/fenceevidences/e" => proofs.lock().clone(),
                "/apis/coordination.k8s.io/v1/namespaces/agents/leases/watchdog.n" => agents.lock().clone(),
                other => panic!("nobody should read {other}"),
            };
            async move { answering() }
        });
        let policy = VerifierConfig {
            quarantine: QUARANTINE,
            trust_out_of_service_taint: false,
            agent_reports: None,
            exclusive_backends: Default::default(),
        };
        let connection = api.connection();
        let world = World::listed();
        world.apply(Kind::Pods, &pod("a").on("n").0, env.now());
        Self { world, env, policy, node, lease, proof, agent, api, connection }
    }

    /// Makes the first read now, as the authority does.
    async fn make_first_read(&self) {
        let taken = quorum_read::read_absence(&self.connection, &self.env, "n").await.unwrap().unwrap();
        self.world.cache().record_absence_read("n", taken);
    }

    /// The first read was made, and the quarantine is over.
    async fn after_quarantine() -> Self {
        let fixture = Self::new();
        fixture.make_first_read().await;
        advance(QUARANTINE.as_secs_f64()).await;
        fixture
    }

    fn reads_of_node(&self, answer: Responder) {
        *self.node.lock() = answer;
    }

    fn reads_of_lease(&self, answer: Responder) {
        *self.lease.lock() = answer;
    }

    fn judge(&self) -> Verifier<'_> {
        let Self { connection, env, policy, world, .. } = self;
        let judge = EvidenceReader::new(StatusChecker::new(connection, world.cache(), env, &NoTransport));
        Verifier {
            connection,
            cache: world.cache(),
            env,
            config: policy,
            evidence_reader: judge,
            node_evidence: None,
            unconfirmed: None,
        }
    }

    async fn verify(&self, force: &ForceDeleteRequest) -> Result<Evidence<PodVersion>, VerifyError> {
        self.judge().verify(force).await
    }

    async fn verify_gone(&self) -> Result<Evidence<PodVersion>, VerifyError> {
        self.verify(&gone()).await
    }

    fn has_first_read(&self) -> bool {
        self.world.read().view().absence("n").is_some_and(|absence| absence.first_read.is_some())
    }

    fn apply(&self, kind: Kind, object: &Value) {
        self.world.apply(kind, object, self.env.now());
    }
}

fn gone() -> ForceDeleteRequest {
    pod("a").on("n").force(Claim::NodeGone { node: "n".into() })
}

fn reason(judged: Result<Evidence<PodVersion>, VerifyError>) -> &'static str {
    judged.map_or_else(|refusal| refusal.reason(), |evidence| evidence.kind().name())
}
