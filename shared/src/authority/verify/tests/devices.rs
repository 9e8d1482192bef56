//! Evidence of fencing with devices that answer: their answer at the moment of the release decides.

use crate::testing::objects::{BOOT, NEXT_BOOT};
use std::collections::BTreeMap;

use futures::future::BoxFuture;
use jiff::Timestamp;
use pod_safety_proof::{DeviceCheck, EvidenceRead, QuorumRead};
use serde_json::json;

use super::*;
use crate::model::{FenceEvidenceKind, Grade};
use crate::testing::at;
use crate::transport::{self, DeviceError, Driver, FenceTransport, Identity, Order, Power};
use crate::wire::{Encoding, Raw};

type Answers = Result<transport::Answer, DeviceError>;

/// The answer of a device to a status check, and the delay of the answer.
#[derive(Clone)]
struct StatusAnswer {
    answer: Answers,
    after: Duration,
}

fn status_answer(power: Power, identity: Identity) -> StatusAnswer {
    let answer = Ok(transport::Answer::new(power, identity, String::new()));
    StatusAnswer { answer, after: Duration::ZERO }
}

fn off() -> StatusAnswer {
    status_answer(Power::Off, Identity::Match)
}

/// The devices, by the parameter `name` of the order.
struct Devices {
    env: Env,
    status_answers: BTreeMap<&'static str, StatusAnswer>,
    asked: Mutex<Vec<String>>,
}

impl FenceTransport for Devices {
    fn check<'a>(
        &'a self,
        _driver: &'a Driver,
        _parameters: &'a BTreeMap<String, transport::Value>,
    ) -> BoxFuture<'a, Result<(), DeviceError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn carry_out(&self, order: Order) -> BoxFuture<'_, Answers> {
        let name = order.parameters["name"].reveal().to_owned();
        self.asked.lock().push(format!("{} {name}", order.act.name()));
        let StatusAnswer { answer, after } = self.status_answers[name.as_str()].clone();
        Box::pin(async move {
            self.env.sleep(after).await;
            answer
        })
    }
}

/// The objects of the API server by path, and two power supplies, `a` and `b`, of node `n`.
pub(super) struct Rig {
    pub(super) world: World,
    pub(super) env: Env,
    pub(super) policy: VerifierConfig,
    pub(super) there: Arc<Mutex<BTreeMap<String, Value>>>,
    connection: Connection,
    devices: Devices,
}

pub(super) const NODE: &str = "/api/v1/nodes/n";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n";
pub(super) const PROOF: &str = "/apis/pod-safety.dev/v1alpha1/fenceevidences/e";
const DEVICE_A: &str = "/apis/pod-safety.dev/v1alpha1/namespaces/fencing/fencedevices/a";
const DEVICE_B: &str = "/apis/pod-safety.dev/v1alpha1/namespaces/fencing/fencedevices/b";

fn device(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "fencing", "uid": format!("uid-{name}"), "resourceVersion": "3" },
        "spec": { "driver": "Agent", "agent": "fence_pdu", "parameters": { "name": name } },
    })
}

fn lost() -> Value {
    node("n").ready("Unknown").set("/status/nodeInfo", json!({ "bootID": BOOT, "systemUUID": "uuid-1" })).0
}

/// FenceEvidence that both supplies were off in two status checks each.
fn evidence() -> Value {
    let sample = |name: &str| json!({ "device": { "namespace": "fencing", "name": name }, "driver": "Agent", "at": "t", "power": "Off", "identity": "Match" });
    json!({
        "metadata": { "name": "e", "uid": "uid-e", "resourceVersion": "7", "creationTimestamp": "2026-11-21T11:45:00Z" },
        "spec": {
            "node": { "name": "n", "uid": "uid-n", "bootID": BOOT }, "kind": "PowerOff", "fence": "n-1", "by": "p",
            "samples": [sample("a"), sample("b"), sample("a"), sample("b")], "leaseRenewed": "2026-01-01T00:00:01Z",
        },
    })
}

impl Rig {
    fn new() -> Self {
        let (env, _wall) = env();
        let there = Arc::new(Mutex::new(BTreeMap::from([
            (NODE.to_owned(), lost()),
            (LEASE.to_owned(), lease("n", 1).0),
            (PROOF.to_owned(), evidence()),
            (DEVICE_A.to_owned(), device("a")),
            (DEVICE_B.to_owned(), device("b")),
        ])));
        let reads = Arc::clone(&there);
        let api = Api::new(&env, move |asked| {
            assert_eq!((asked.method.as_str(), asked.query.as_str()), ("GET", ""), "a quorum read");
            let there = reads.lock();
            let answer = match there.get(&asked.path) {
                _ if there.get("refuse").is_some_and(|path| *path == *asked.path) => Answer::plain(502, "bad gateway"),
                Some(object) => Answer::json(object),
                None => Answer::not_found(),
            };
            async move { answer }
        });
        let policy = VerifierConfig {
            quarantine: QUARANTINE,
            trust_out_of_service_taint: true,
            agent_reports: None,
            exclusive_backends: Default::default(),
        };
        let world = World::listed();
        for (name, node) in [("a", "n"), ("b", "m")] {
            world.apply(Kind::Pods, &on(name, node).0, env.now());
        }
        let status_answers = BTreeMap::from([("a", off()), ("b", off())]);
        let devices = Devices { env: env.clone(), status_answers, asked: Mutex::default() };
        Self { world, policy, there, connection: api.connection(), devices, env }
    }

    /// A cluster in which one thing differs from the valid evidence.
    pub(super) fn with(change: impl FnOnce(&mut Self)) -> Self {
        let mut rig = Self::new();
        change(&mut rig);
        rig
    }

    /// Sets the value at the JSON pointer in the object at this path.
    pub(super) fn set(&mut self, path: &str, pointer: &str, to: Value) {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        self.there.lock().get_mut(path).unwrap().pointer_mut(parent).unwrap()[key] = to;
    }

    /// This device does not answer, and takes its whole timeout.
    pub(super) fn hangs(&mut self, device: &'static str) {
        let answer = Err(DeviceError::TimedOut { after: Duration::from_secs(20) });
        self.devices.status_answers.insert(device, StatusAnswer { answer, ..off() });
    }

    /// How often devices were queried.
    pub(super) fn asked(&self) -> usize {
        self.devices.asked.lock().len()
    }

    pub(super) fn judge(&self) -> Verifier<'_> {
        let Self { connection, env, policy, world, devices, .. } = self;
        let judge = EvidenceReader::new(StatusChecker::new(connection, world.cache(), env, devices));
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
}

/// A terminating pod, bound to this node.
fn on(name: &str, node: &str) -> Obj {
    pod(name).on(node).terminating()
}

fn fenced(node: &str) -> Claim {
    Claim::Fenced { node: node.into(), proof: "e".into(), newest: "1".parse().unwrap() }
}

/// The refusal of the judge, or the kind of evidence.
fn result_text(judged: Result<Evidence<PodVersion>, VerifyError>) -> String {
    judged.map_or_else(|refusal| refusal.to_string(), |evidence| evidence.kind().name().to_owned())
}

#[tokio::test(start_paused = true)]
async fn both_power_supplies_are_checked_again_and_must_be_off() {
    let rig = Rig::new();
    assert_eq!(result_text(rig.verify(&on("a", "n").force(fenced("n"))).await), "PowerOff");
    let mut asked = rig.devices.asked.lock().clone();
    asked.sort();
    assert_eq!(asked, ["look a", "look b"], "each once, and nothing but looks");
}

#[tokio::test(start_paused = true)]
async fn the_present_report_of_a_device_overrides_the_evidence() {
    let stranger = || Identity::Mismatch { found: "uuid-9".to_owned() };
    let never = || StatusAnswer { after: Duration::from_secs(1_000_000), ..off() };
    let fails = || StatusAnswer { answer: Err(DeviceError::Failed { said: "relay stuck".to_owned() }), ..off() };
    for (what, answer, expected) in [
        ("is on", status_answer(Power::On, Identity::Match), "fencing/b says On"),
        ("is neither", status_answer(Power::Unknown, Identity::Match), "fencing/b says Unknown"),
        ("fails", fails(), "fencing/b says Unknown: the device failed: relay stuck"),
        ("does not answer", never(), "fencing/b says Unknown: no answer within"),
        ("is another machine's", status_answer(Power::Off, stranger()), "fencing/b reaches a machine other than"),
    ] {
        for first in [false, true] {
            let rig = Rig::with(|rig| {
                let (other, shown) = if first { ("b", "a") } else { ("a", "b") };
                rig.devices.status_answers.insert(shown, answer.clone());
                rig.devices.status_answers.insert(other, off());
            });
            let expected = if first { expected.replace("fencing/b", "fencing/a") } else { expected.to_owned() };
            let judged = result_text(rig.verify(&on("a", "n").force(fenced("n"))).await);
            let expected = format!("the machine may be on again: {expected}");
            assert!(judged.starts_with(&expected), "a supply that {what}: {judged}");
        }
    }
}

/// A fence agent is a Python program. On a busy machine it starts more slowly than any machine boots, and its evidence had
/// always expired.
#[tokio::test(start_paused = true)]
async fn bug_evidence_of_a_slow_fence_agent_had_always_expired() {
    let s = Duration::from_secs;
    let slow = |asked_after| {
        let StatusAnswer { answer, .. } = off();
        let answer = answer.map(|answer| transport::Answer { asked_after, ..answer });
        StatusAnswer { answer, after: s(15) }
    };
    for (what, a, b, usable) in [
        ("it is not known when they were asked", slow(s(0)), slow(s(0)), false),
        ("they were asked before a machine boots", slow(s(4)), slow(s(6)), false),
        ("one was asked before that", off(), slow(s(14)), false),
        ("both were asked later", slow(s(6)), slow(s(14)), true),
        ("the answers name a time that has not come", slow(Duration::MAX), slow(Duration::MAX), true),
    ] {
        let rig = Rig::with(|rig| rig.devices.status_answers = BTreeMap::from([("a", a), ("b", b)]));
        let judged = rig.verify(&on("a", "n").force(fenced("n"))).await;
        if !usable {
            // Once, the operator was only told that the evidence had expired.
            let said = result_text(judged);
            let why = "the machine may be on again: the answer to the status check was 1";
            assert!(
                said.starts_with(why) && said.ends_with(" s old, and a machine can boot within 10 s"),
                "{what}: {said}"
            );
            continue;
        }
        let evidence = judged.unwrap();
        let (now, expires) = (rig.env.now(), evidence.expires());
        assert!(now < expires, "{what}: {expires:?} at {now:?}");
        assert!(expires <= now + pod_safety_proof::VALID_FOR, "{what}: {expires:?} at {now:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_without_machine_identity_is_accepted_unless_identity_is_required() {
    for (check, expected) in [("BestEffort", "PowerOff"), ("Required", "PowerStateUnconfirmed")] {
        let rig = Rig::with(|rig| {
            rig.devices.status_answers.insert("b", status_answer(Power::Off, Identity::Unknown));
            rig.set(DEVICE_B, "/spec/identityCheck", json!(check));
        });
        assert_eq!(reason(rig.verify(&on("a", "n").force(fenced("n"))).await), expected, "{check}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_that_cannot_be_queried_prevents_evidence() {
    type Change = fn(&mut Rig);
    let rows: [(&str, Change); 6] = [
        ("was deleted", |rig| drop(rig.there.lock().remove(DEVICE_B))),
        ("is not trusted any more", |rig| {
            let trusted = json!([{ "type": "Trusted", "status": "False", "lastTransitionTime": "t", "reason": "r", "message": "m" }]);
            rig.set(DEVICE_B, "/status", json!({ "conditions": trusted }));
        }),
        ("is for other nodes now", |rig| {
            rig.set(DEVICE_B, "/spec/nodeSelector", json!({ "matchLabels": { "rack": "7" } }));
        }),
        ("is a person", |rig| rig.set(DEVICE_B, "/spec/driver", json!("Manual"))),
        ("wants a Secret that is not there", |rig| {
            let wanted = json!([{ "parameter": "password", "secret": "s", "key": "k" }]);
            rig.set(DEVICE_B, "/spec/secretParameters", wanted);
        }),
        ("is an object that nobody wrote down", |rig| rig.set(DEVICE_B, "/spec/driver", json!("Machine"))),
    ];
    for (what, change) in rows {
        let rig = Rig::with(change);
        assert_eq!(
            reason(rig.verify(&on("a", "n").force(fenced("n"))).await),
            "PowerStateUnconfirmed",
            "a device that {what}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn devices_that_contradict_the_evidence_prove_nothing() {
    for kind in ["Decommissioned", "Remediated"] {
        let rig = Rig::with(|rig| rig.set(PROOF, "/spec/kind", json!(kind)));
        let judged = result_text(rig.verify(&on("a", "n").force(fenced("n"))).await);
        let expected = "the FenceEvidence does not hold: its devices show less than it says, or something else";
        assert_eq!(judged, expected, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_evidence_releases_nothing_even_if_its_devices_report_off() {
    type Change = fn(&mut Rig);
    let rows: [(&str, Change, &str); 9] = [
        ("nothing is other", |_| {}, "PowerOff"),
        (
            "it was declared invalid",
            |rig| rig.set(PROOF, "/status", json!({ "invalidated": { "at": "now", "reason": "heard" } })),
            "EvidenceInvalid",
        ),
        (
            "it is being deleted",
            |rig| rig.set(PROOF, "/metadata/deletionTimestamp", json!("2026-11-21T11:59:00Z")),
            "EvidenceInvalid",
        ),
        ("the node booted again", |rig| rig.set(NODE, "/status/nodeInfo/bootID", json!(NEXT_BOOT)), "EvidenceInvalid"),
        (
            "the node does not say its boot",
            |rig| {
                rig.set(NODE, "/status/nodeInfo/bootID", json!(""));
                rig.set(PROOF, "/spec/node/bootID", json!(""));
            },
            "EvidenceInvalid",
        ),
        ("another Node has the name", |rig| rig.set(NODE, "/metadata/uid", json!("uid-2")), "EvidenceInvalid"),
        ("the Node was deleted", |rig| drop(rig.there.lock().remove(NODE)), "EvidenceInvalid"),
        ("the node is Ready", |rig| rig.set(NODE, "/status/conditions/0/status", json!("True")), "NodeInService"),
        (
            "its kubelet was heard",
            |rig| rig.set(LEASE, "/spec/renewTime", json!("2026-01-01T00:00:02.000000Z")),
            "KubeletAlive",
        ),
    ];
    for (what, change, expected) in rows {
        let rig = Rig::with(change);
        assert_eq!(reason(rig.verify(&on("a", "n").force(fenced("n"))).await), expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn evidence_below_the_grade_of_the_nodes_policy_is_refused() {
    let policy = |minimum: &str, rack: &str, priority: i32| {
        json!({
            "metadata": { "name": format!("p{priority}"), "uid": format!("uid-p{priority}"), "resourceVersion": "1" },
            "spec": { "nodeSelector": { "matchLabels": { "rack": rack } }, "priority": priority, "minimumEvidence": minimum,
                "levels": [{ "name": "pdu", "devices": [{ "namespace": "fencing", "name": "a" }] }] },
        })
    };
    let confirmation = |rig: &mut Rig| {
        rig.set(PROOF, "/spec", json!({
            "node": { "name": "n", "uid": "uid-n", "bootID": BOOT }, "kind": "Asserted", "by": "ada", "reason": "unplugged",
            "leaseRenewed": "2026-01-01T00:00:01Z",
        }));
    };
    for (what, policies, of_a_person, expected) in [
        ("no policy, a word", vec![], true, "Confirmed"),
        ("Asserted, a word", vec![policy("Asserted", "7", 1)], true, "Confirmed"),
        ("Verified, a word", vec![policy("Verified", "7", 1)], true, "EvidenceInvalid"),
        ("Verified, devices", vec![policy("Verified", "7", 1)], false, "PowerOff"),
        ("Verified for other nodes, a word", vec![policy("Verified", "8", 1)], true, "Confirmed"),
        (
            "the policy of the highest priority counts",
            vec![policy("Asserted", "7", 1), policy("Verified", "7", 2)],
            true,
            "EvidenceInvalid",
        ),
        ("and no other", vec![policy("Verified", "7", 1), policy("Asserted", "7", 2)], true, "Confirmed"),
    ] {
        let rig = Rig::with(|rig| {
            rig.set(NODE, "/metadata/labels", json!({ "rack": "7" }));
            if of_a_person {
                confirmation(rig);
            }
        });
        for policy in policies {
            rig.world.apply(Kind::FencePolicies, &policy, rig.env.now());
        }
        assert_eq!(reason(rig.verify(&on("a", "n").force(fenced("n"))).await), expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn fencing_evidence_expires_before_a_machine_could_boot() {
    for (what, check_takes, lasts) in [
        ("at once: two seconds after the last read", 0, Some(2)),
        ("the devices take their time", 5, Some(7)),
        ("the looks are old: ten seconds after they began", 9, Some(10)),
        ("the looks took as long as a boot", 10, None),
    ] {
        let rig = Rig::with(|rig| {
            for answer in rig.devices.status_answers.values_mut() {
                answer.after = Duration::from_secs(check_takes);
            }
        });
        let began = rig.env.now();
        let judged = rig.verify(&on("a", "n").force(fenced("n"))).await;
        let Some(lasts) = lasts else {
            assert_eq!(reason(judged), "PowerStateUnconfirmed", "{what}");
            continue;
        };
        assert_eq!(judged.unwrap().expires().since(began), Duration::from_secs(lasts), "{what}");
    }
}

/// A report of the kubelet while its devices report off contradicts them: only a later read of the node shows it.
#[test]
fn evidence_is_refused_if_its_devices_were_checked_after_the_read_of_the_node_was_sent() {
    let raw = |object: &Value| Raw::from_body(Encoding::Json, object.to_string().into()).unwrap();
    let read = EvidenceRead::decode("e", &raw(&evidence()), Timestamp::default()).unwrap();
    let (sent, answered) = (at(10), at(12));
    let live = QuorumRead::decode("n", (sent, answered), Some(&raw(&lost())), Some(&raw(&lease("n", 1).0))).unwrap();
    for (second, refused) in [(10, false), (11, true), (12, true)] {
        let check = DeviceCheck { kind: FenceEvidenceKind::PowerOff, requested_at: at(second) };
        let world = World::listed();
        let judged = proof::verify_fenced(&read, Some(check), &live, Grade::default(), &world.read().view());
        assert_eq!(judged.is_err(), refused, "checked at {second}");
    }
}

#[tokio::test(start_paused = true)]
async fn evidence_about_another_node_is_refused_before_devices_are_queried() {
    let rig = Rig::new();
    let judged = rig.verify(&on("b", "m").force(fenced("m"))).await;
    assert_eq!(result_text(judged), "the FenceEvidence does not hold: it is about another node");
    assert!(rig.devices.asked.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn evidence_is_not_used_for_another_node_of_the_same_turn() {
    let tainted = Rig::with(|rig| {
        rig.there.lock().insert(NODE.to_owned(), node("n").tainted().0);
        rig.there.lock().insert("/api/v1/nodes/m".to_owned(), node("m").ready("True").0);
    });
    let asserted = |node: &str| Claim::OutOfService { node: node.into() };
    for (rig, claim, earned, other) in [
        (&tainted, &asserted as &dyn Fn(&str) -> Claim, "Asserted", "NodeInService"),
        (&Rig::new(), &fenced, "PowerOff", "EvidenceInvalid"),
    ] {
        let mut judge = rig.judge();
        assert_eq!(reason(judge.verify(&on("a", "n").force(claim("n"))).await), earned);
        assert_eq!(reason(judge.verify(&on("b", "m").force(claim("m"))).await), other, "{earned}");
    }
}

#[tokio::test(start_paused = true)]
async fn evidence_about_a_node_is_not_used_for_another_kind_of_claim() {
    let rig = Rig::new();
    let mut judge = rig.judge();
    assert_eq!(reason(judge.verify(&on("a", "n").force(fenced("n"))).await), "PowerOff");
    let other = Claim::Fenced { node: "n".into(), proof: "e-2".into(), newest: "1".parse().unwrap() };
    // Evidence is about the node, whichever FenceEvidence it comes from.
    assert_eq!(reason(judge.verify(&on("a", "n").force(other)).await), "PowerOff");
    let taint = Claim::OutOfService { node: "n".into() };
    assert_eq!(reason(judge.verify(&on("a", "n").force(taint)).await), "NodeInService", "it bears no taint");
    let gone = Claim::NodeGone { node: "n".into() };
    assert_eq!(reason(judge.verify(&on("a", "n").force(gone)).await), "NoWitness", "nobody missed it");
}

#[tokio::test(start_paused = true)]
async fn pods_of_one_node_share_evidence_until_it_expires() {
    let rig = Rig::new();
    let mut judge = rig.judge();
    let first = judge.verify(&on("a", "n").force(fenced("n"))).await.unwrap();
    advance(1.9).await;
    let second = judge.verify(&on("a", "n").force(fenced("n"))).await.unwrap();
    assert_eq!((first.expires(), rig.devices.asked.lock().len()), (second.expires(), 2), "looked at once");
    advance(0.1).await;
    rig.there.lock().remove(PROOF);
    assert_eq!(reason(judge.verify(&on("a", "n").force(fenced("n"))).await), "ReadFailed", "read again");
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_pod_safety_added_is_no_evidence() {
    let taint =
        |value: &str| json!([{ "key": "node.kubernetes.io/out-of-service", "value": value, "effect": "NoExecute" }]);
    let both = json!([
        { "key": "node.kubernetes.io/out-of-service", "value": "ada", "effect": "NoSchedule" },
        { "key": "node.kubernetes.io/out-of-service", "value": "f", "effect": "NoExecute" },
    ]);
    for (what, taints, about, expected) in [
        ("the name of an incident of the node", taint("f"), "n", "TaintNotTrusted"),
        ("the name of another node's incident", taint("f"), "m", "Asserted"),
        ("somebody else's word", taint("ada"), "n", "Asserted"),
        ("no value", taint(""), "n", "Asserted"),
        ("ours beside somebody else's", both, "n", "TaintNotTrusted"),
    ] {
        let rig = Rig::with(|rig| {
            let tainted = node("n").set("/spec/taints", taints);
            rig.there.lock().insert(NODE.to_owned(), tainted.0);
        });
        let fence = json!({
            "metadata": { "name": "f", "uid": "uid-f", "resourceVersion": "1" },
            "spec": { "node": { "name": about, "uid": "u", "bootID": "b" }, "policy": "p",
                "trigger": { "kind": "Detected", "reason": "r" } },
        });
        rig.world.apply(Kind::NodeFences, &fence, rig.env.now());
        let judged = rig.verify(&on("a", "n").force(Claim::OutOfService { node: "n".into() })).await;
        assert_eq!(reason(judged), expected, "a taint with {what}");
    }
}

/// A release waited for a device that hangs, although a person's confirmation needs no device.
#[tokio::test(start_paused = true)]
async fn bug_a_confirmation_waited_for_the_device_of_other_evidence() {
    const WORD: &str = "/apis/pod-safety.dev/v1alpha1/fenceevidences/w";
    let confirmation = json!({
        "metadata": { "name": "w", "uid": "uid-w", "resourceVersion": "8", "creationTimestamp": "2026-11-21T11:30:00Z" },
        "spec": {
            "node": { "name": "n", "uid": "uid-n", "bootID": BOOT }, "kind": "Asserted", "by": "ada", "reason": "I looked",
            "validSeconds": 3600, "leaseRenewed": "2026-01-01T00:00:01Z",
        },
    });
    let rig = Rig::with(|rig| {
        let hangs = StatusAnswer { after: Duration::from_secs(60), ..off() };
        rig.devices.status_answers.insert("a", hangs);
        rig.there.lock().insert(WORD.to_owned(), confirmation.clone());
    });
    rig.world.apply(Kind::Nodes, &lost(), rig.env.now());
    for proof in [&evidence(), &confirmation] {
        rig.world.apply(Kind::FenceEvidences, proof, rig.env.now());
    }
    let began = rig.env.now();
    assert_eq!(reason(rig.verify(&on("a", "n").force(fenced("n"))).await), "Confirmed");
    assert_eq!((rig.env.now().since(began), rig.devices.asked.lock().len()), (Duration::ZERO, 0));
}

/// A person's confirmation was masked by older evidence whose device no longer answers.
#[tokio::test(start_paused = true)]
async fn a_confirmation_is_used_if_the_device_of_other_evidence_does_not_answer() {
    const WORD: &str = "/apis/pod-safety.dev/v1alpha1/fenceevidences/w";
    let confirmation = |created: &str, boot: &str| {
        json!({
            "metadata": { "name": "w", "uid": "uid-w", "resourceVersion": "8", "creationTimestamp": created },
            "spec": {
                "node": { "name": "n", "uid": "uid-n", "bootID": boot }, "kind": "Asserted", "by": "ada", "reason": "I looked",
                "validSeconds": 3600, "leaseRenewed": "2026-01-01T00:00:01Z",
            },
        })
    };
    for (what, confirmation, expected) in [
        ("that holds", confirmation("2026-11-21T11:30:00Z", BOOT), "Confirmed"),
        (
            "that has expired",
            confirmation("2026-11-21T10:30:00Z", BOOT),
            "the machine may be on again: fencing/a says Unknown",
        ),
        (
            "of another life",
            confirmation("2026-11-21T11:30:00Z", "b0000000-0000-4000-8000-000000000000"),
            "the machine may be on again: fencing/a says Unknown",
        ),
    ] {
        let rig = Rig::with(|rig| {
            let no_answer = StatusAnswer { answer: Err(DeviceError::Failed { said: "no route".to_owned() }), ..off() };
            rig.devices.status_answers.insert("a", no_answer);
            rig.there.lock().insert(WORD.to_owned(), confirmation.clone());
        });
        rig.world.apply(Kind::Nodes, &lost(), rig.env.now());
        for proof in [&evidence(), &confirmation] {
            rig.world.apply(Kind::FenceEvidences, proof, rig.env.now());
        }
        let judged = result_text(rig.verify(&on("a", "n").force(fenced("n"))).await);
        assert!(judged.starts_with(expected), "a word {what}: {judged}");
    }
}

/// A mutant checked the invalid evidence a second time, and no other evidence.
#[tokio::test(start_paused = true)]
async fn other_device_evidence_is_used_if_the_named_evidence_is_invalid() {
    let mut other = evidence();
    other["metadata"] =
        json!({ "name": "o", "uid": "uid-o", "resourceVersion": "8", "creationTimestamp": "2026-11-21T11:46:00Z" });
    other["spec"]["samples"].as_array_mut().unwrap().retain(|sample| sample["device"]["name"] == "b");
    let rig = Rig::with(|rig| {
        let no_answer = StatusAnswer { answer: Err(DeviceError::Failed { said: "no route".to_owned() }), ..off() };
        rig.devices.status_answers.insert("a", no_answer);
        let path = "/apis/pod-safety.dev/v1alpha1/fenceevidences/o";
        rig.there.lock().insert(path.to_owned(), other.clone());
    });
    rig.world.apply(Kind::Nodes, &lost(), rig.env.now());
    for proof in [&evidence(), &other] {
        rig.world.apply(Kind::FenceEvidences, proof, rig.env.now());
    }
    assert_eq!(reason(rig.verify(&on("a", "n").force(fenced("n"))).await), "PowerOff");
    rig.world.remove(Kind::FenceEvidences, "uid-o", rig.env.now());
    assert_eq!(
        reason(rig.verify(&on("a", "n").force(fenced("n"))).await),
        "PowerStateUnconfirmed",
        "nothing else is there"
    );
}

/// A device that does not answer takes its whole timeout, which would be needed for each pod of the node.
#[tokio::test(start_paused = true)]
async fn unconfirmed_devices_are_not_queried_again_in_the_same_turn() {
    let rig = Rig::with(|rig| rig.hangs("b"));
    let mut judge = rig.judge();
    for _ in 0..3 {
        assert_eq!(reason(judge.verify(&on("a", "n").force(fenced("n"))).await), "PowerStateUnconfirmed");
    }
    assert_eq!(rig.asked(), 2, "one look at each");
    let other = Claim::Fenced { node: "n".into(), proof: "o".into(), newest: "1".parse().unwrap() };
    assert_eq!(reason(judge.verify(&on("a", "n").force(other)).await), "ReadFailed", "other evidence is read");
    assert_eq!(reason(rig.verify(&on("a", "n").force(fenced("n"))).await), "PowerStateUnconfirmed");
    assert_eq!(rig.asked(), 4, "the next turn looks again");
}
