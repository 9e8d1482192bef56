//! What `curl` and Prometheus get from the admin server.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::http::Request;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::authority::{Refusal, VerifyError};
use crate::cache::{ReportKind, STALE_AFTER, WatchProblem};
use crate::client::ApiError;
use crate::client::scripted::{advance, env};
use crate::clock::Mono;
use crate::controller_loop::{HoldReason as _, NodeUnreadable, Subject};
use crate::events::Recorder;
use crate::model::{PodKey, Uid};
use crate::record::Action;
use crate::testing::World;
use crate::testing::example_hold::Hold;
use crate::testing::objects::{lease, pod};

struct Desk {
    world: World,
    admin: Admin,
}

fn desk(world: World) -> Desk {
    let (env, _wall) = env();
    let (metrics, journal) = (Metrics::new().unwrap(), Arc::new(Journal::default()));
    let recorder = Recorder::new(env.clone(), metrics.authority.clone());
    let holds = Holds::new(Arc::clone(&journal), recorder, metrics.registry()).unwrap();
    let (cache, leadership) = (Arc::clone(world.cache()), Leadership::none());
    let admin = Admin {
        env,
        kinds: vec![Kind::Pods, Kind::Nodes, Kind::NodeLeases],
        cache,
        metrics,
        journal,
        holds,
        leadership,
        heartbeats: LoopHeartbeats::default(),
        debug: true,
    };
    Desk { world, admin }
}

/// A request as `curl localhost:8080/PATH` sends it.
fn of_localhost(path: &str) -> axum::http::request::Builder {
    Request::get(path).header(header::HOST, "localhost:8080")
}

impl Desk {
    fn router(&self, peer: &str) -> Router {
        let peer = Peer(peer.parse().unwrap());
        self.admin.clone().router().layer(MockConnectInfo(peer))
    }

    async fn get(&self, path: &str) -> (u16, String, String) {
        let request = of_localhost(path).body(Body::empty()).unwrap();
        let answer = self.router("127.0.0.1:40000").oneshot(request).await.unwrap();
        let (code, kind) =
            (answer.status().as_u16(), answer.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned());
        let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (code, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn json(&self, path: &str) -> Value {
        let (code, kind, body) = self.get(path).await;
        assert_eq!((code, kind.as_str()), (200, "application/json"));
        serde_json::from_str(&body).unwrap()
    }
}

fn key() -> PodKey {
    PodKey { namespace: "ns".into(), name: "a".into(), uid: Uid::new("uid-a").unwrap() }
}

#[tokio::test(start_paused = true)]
async fn livez_fails_and_names_a_loop_without_heartbeat_for_two_minutes() {
    let desk = desk(World::listed());
    let (slow, fast) = (
        desk.admin.heartbeats.register("pod_gc", Mono::default()),
        desk.admin.heartbeats.register("fencing", Mono::default()),
    );
    advance(120.0).await;
    fast.record(desk.admin.env.now());
    assert_eq!(desk.get("/livez").await.0, 200, "at the limit");
    advance(1.0).await;
    let (code, _, body) = desk.get("/livez").await;
    assert_eq!((code, body.as_str()), (500, "[-]pod_gc has not run its loop for 121s\n"));
    slow.record(desk.admin.env.now());
    assert_eq!(desk.get("/livez").await.2, "ok\n");
}

#[tokio::test(start_paused = true)]
async fn readyz_shows_for_each_kind_what_is_missing_and_why() {
    let desk = desk(World::default());
    desk.world.mark_listed(Kind::Pods, Mono::default());
    let message = "list nodes: the API server answered 403 Forbidden: no".to_owned();
    desk.world.record_problem(Kind::Nodes, WatchProblem { category: "forbidden", message });
    let (code, _, body) = desk.get("/readyz").await;
    let expected = "[+]pods ok\n\
        [-]nodes: nodes are not listed yet (list nodes: the API server answered 403 Forbidden: no)\n\
        [-]leases: leases are not listed yet\n";
    assert_eq!((code, body.as_str()), (503, expected));
    desk.world.mark_listed(Kind::Nodes, Mono::default());
    desk.world.mark_listed(Kind::NodeLeases, Mono::default());
    assert_eq!(
        desk.get("/readyz").await.2,
        "[+]pods ok\n[+]nodes ok\n[+]leases ok\n",
        "trouble passes with contact; a standby is ready"
    );
    desk.admin.metrics.set_fence_agents(false);
    let (code, _, body) = desk.get("/readyz").await;
    assert!(code == 200 && body.ends_with("ok\n[-]fence-agents: no answer on --fence-agents-socket\n"), "{body}");
    desk.admin.metrics.set_fence_agents(true);
    advance(STALE_AFTER.as_secs_f64() + 1.0).await;
    let (code, _, body) = desk.get("/readyz").await;
    assert_eq!(code, 503);
    assert!(body.starts_with("[-]pods: the API server has sent nothing about pods for 151s."), "{body}");
}

#[tokio::test(start_paused = true)]
async fn metrics_are_in_prometheus_text_format_and_name_no_object() {
    let desk = desk(World::listed());
    desk.world.apply(Kind::Pods, &pod("secret-pod").on("secret-node").0, Mono::default());
    desk.admin.holds.register("pod_gc", &Hold::reason_names());
    let holds = vec![(
        Subject::Node("secret-node".into()),
        Hold::from(NodeUnreadable { node: "secret-node".into(), why: "w".into() }),
    )];
    desk.admin.holds.replace("pod_gc", "k", holds, &BTreeSet::new(), true, &desk.admin.env);
    let (code, kind, body) = desk.get("/metrics").await;
    assert_eq!((code, kind.as_str()), (200, "text/plain; version=0.0.4"));
    assert!(body.contains("process_resident_memory_bytes") && body.contains("pod_safety_build_info"), "{body}");
    assert!(body.contains(r#"pod_safety_holds{controller="pod_gc",reason="NodeUnreadable"} 1"#), "{body}");
    assert!(body.contains(r#"pod_safety_holds{controller="pod_gc",reason="Quarantine"} 0"#), "{body}");
    assert!(!body.contains("secret"), "{body}");
}

#[test]
fn metric_labels_are_closed_sets_except_the_namespace_of_kcm_metrics() {
    const CLOSED: &str = "change code controller error evidence mode name outcome reason resource step verb version";
    let desk = desk(World::listed());
    desk.admin.metrics.cache.failed(Kind::Pods, "server");
    desk.admin.metrics.set_mode("pod-gc", crate::controller_loop::Mode::Guard.name());
    for family in desk.admin.metrics.registry().gather() {
        for label in family.get_metric().iter().flat_map(|metric| metric.get_label()) {
            let allowed = CLOSED.split(' ').any(|name| name == label.name())
                || (label.name() == "namespace" && family.name().starts_with("pod_gc_collector"));
            assert!(allowed, "{} has the label {}", family.name(), label.name());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_and_evidence_metrics_exist_from_the_start() {
    let kinds = [
        "NodeGone",
        "NeverScheduled",
        "KubeletTerminated",
        "PodsEnded",
        "Asserted",
        "PowerOff",
        "Decommissioned",
        "InstanceStopped",
        "InstanceGone",
        "WatchdogLease",
        "Remediated",
        "Confirmed",
    ];
    let refusals = [
        Refusal::PodChanged,
        Refusal::ClaimMismatch("why"),
        Refusal::NoWitness,
        Refusal::QuarantineNotOver { left: Duration::ZERO },
        Refusal::NodeExists,
        Refusal::KubeletAlive(ReportKind::LeaseRenewed),
        Refusal::KubeletNotAsked,
        Refusal::HeardLately { left: Duration::ZERO },
        Refusal::HeartbeatsUnseen,
        Refusal::TaintNotTrusted,
        Refusal::NodeInService,
        Refusal::EvidenceInvalid("why"),
        Refusal::PodsNotEnded("why".to_owned()),
        Refusal::AgentMustLookAgain,
        Refusal::PowerStateUnconfirmed("why".to_owned()),
    ];
    let unread = VerifyError::Read(ApiError::Malformed("why".to_owned()));
    let late = VerifyError::Late { by: Duration::ZERO };
    let reasons: Vec<_> = refusals.iter().map(Refusal::reason).chain([unread.reason(), late.reason()]).collect();
    assert_eq!(crate::metrics::release_evidence_names(), kinds);
    assert_eq!(reasons, VerifyError::reasons());
    let page = desk(World::listed()).get("/metrics").await.2;
    for zero in [
        r#"pod_safety_force_deletes_total{evidence="PowerOff"} 0"#,
        r#"pod_safety_evidence_refusals_total{reason="PowerStateUnconfirmed"} 0"#,
        r#"pod_safety_authority_outcomes_total{outcome="failed"} 0"#,
        r#"pod_safety_leader_changes_total{change="lost"} 0"#,
    ] {
        assert!(page.contains(zero), "{zero}: {page}");
    }
}

#[tokio::test(start_paused = true)]
async fn debug_cache_shows_sync_states_and_missing_nodes() {
    let desk = desk(World::listed());
    desk.world.apply(Kind::Pods, &pod("a").on("n").0, Mono::default());
    desk.world.apply(Kind::NodeLeases, &lease("n", 1).0, Mono::default());
    advance(5.0).await;
    desk.world.record_absence_read("n", desk.admin.env.now());
    let message = "watch leases: talking to the API server".to_owned();
    desk.world.record_problem(Kind::NodeLeases, WatchProblem { category: "transport", message });
    advance(2.0).await;
    let kind = |objects: u8, trouble: Value| json!({ "synced": true, "objects": objects, "undecodable": 0, "lastContactSecondsAgo": 7, "trouble": trouble });
    let expected = json!({
        "leads": false,
        "kinds": { "pods": kind(1, Value::Null), "nodes": kind(0, Value::Null),
            "leases": kind(1, json!("watch leases: talking to the API server")) },
        "missingNodes": [{ "node": "n", "missingForSeconds": 7, "firstQuorumReadSecondsAgo": 2, "pods": 1 }],
    });
    assert_eq!(desk.json("/debug/cache").await, expected);
}

#[tokio::test(start_paused = true)]
async fn debug_decisions_shows_holds_and_records() {
    let desk = desk(World::listed());
    let holds = vec![(Subject::Pod(key()), Hold::PhaseUnreadable)];
    desk.admin.holds.replace("pod_gc", "k", holds, &BTreeSet::new(), true, &desk.admin.env);
    let (noon, pod) = ("2026-11-21T12:00:00Z", json!({ "namespace": "ns", "name": "a", "uid": "uid-a" }));
    let words = Hold::PhaseUnreadable.to_string();
    let expected = json!({
        "holds": [{ "controller": "pod_gc", "subject": { "pod": pod }, "reason": "PhaseUnreadable", "message": words, "since": noon }],
        "records": [{ "at": noon, "controller": "pod_gc", "action": "Held", "pod": pod, "reason": "PhaseUnreadable", "message": words }],
    });
    assert_eq!(desk.json("/debug/decisions").await, expected);
}

#[tokio::test(start_paused = true)]
async fn the_journal_keeps_the_last_thousand_records() {
    let desk = desk(World::listed());
    for number in 0..1_030 {
        let at = desk.admin.env.clock.wall();
        let message = number.to_string();
        desk.admin.journal.write(Record {
            at,
            controller: "c",
            action: Action::Dropped,
            pod: None,
            budget: None,
            node: None,
            node_uid: None,
            reason: "R",
            message,
        });
    }
    let records = desk.json("/debug/decisions").await["records"].as_array().unwrap().clone();
    assert_eq!((records.len(), &records[0]["message"]), (1_024, &json!("6")));
}

#[tokio::test(start_paused = true)]
async fn no_route_accepts_writes_and_an_unknown_path_lists_the_routes() {
    let desk = desk(World::listed());
    let (code, _, body) = desk.get("/").await;
    assert_eq!((code, body.as_str()), (404, "try /livez /readyz /metrics /debug/cache /debug/decisions\n"));
    for path in ["/livez", "/readyz", "/metrics", "/debug/cache", "/debug/decisions"] {
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let request = of_localhost(path).method(method).body(Body::empty()).unwrap();
            let answer = desk.router("[::1]:40000").oneshot(request).await.unwrap();
            assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn an_address_in_use_is_named_in_the_error() {
    let first = Admin::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = first.local_addr().unwrap();
    let error = Admin::bind(address).await.unwrap_err();
    assert_eq!(error.to_string(), format!("listening on --admin-address={address}"));
}

/// `/debug` shows the names of pods, nodes and devices of all namespaces, and any pod of the cluster can connect.
#[tokio::test(start_paused = true)]
async fn attack_another_pod_reads_no_object_names() {
    let desk = desk(World::listed());
    for (peer, wanted) in
        [("10.1.2.3:40000", 403), ("[fd00::1]:40000", 403), ("127.0.0.1:40000", 200), ("[::ffff:127.0.0.1]:40000", 200)]
    {
        for (path, wanted) in [("/debug/cache", wanted), ("/debug/decisions", wanted), ("/metrics", 200)] {
            let request = of_localhost(path).body(Body::empty()).unwrap();
            let answer = desk.router(peer).oneshot(request).await.unwrap();
            assert_eq!(answer.status().as_u16(), wanted, "{path} from {peer}");
            assert_eq!(answer.headers()[header::CONNECTION], "close");
        }
    }
    let request = of_localhost("/debug/cache").body(Body::empty()).unwrap();
    let answer = desk.admin.clone().router().oneshot(request).await.unwrap();
    assert_eq!(answer.status().as_u16(), 403, "from an unknown address");
}

/// With `hostNetwork`, each process of the node connects from the loopback address.
#[tokio::test(start_paused = true)]
async fn attack_a_process_of_the_node_reads_no_object_names_if_debug_is_off() {
    let mut desk = desk(World::listed());
    desk.admin.debug = false;
    for (path, wanted) in [("/debug/cache", 403), ("/debug/decisions", 403), ("/metrics", 200)] {
        let request = of_localhost(path).body(Body::empty()).unwrap();
        let answer = desk.router("127.0.0.1:40000").oneshot(request).await.unwrap();
        assert_eq!(answer.status().as_u16(), wanted, "{path}");
    }
}

/// A web page that is open while `kubectl port-forward` runs.
#[tokio::test(start_paused = true)]
async fn attack_a_web_page_reads_no_object_names_by_a_forwarded_port() {
    let desk = desk(World::listed());
    for (host, more, wanted) in [
        ("localhost:8080", None, 200),
        ("127.0.0.1:9090", Some(("sec-fetch-site", "none")), 200),
        ("[::1]:8080", Some(("sec-fetch-site", "same-origin")), 200),
        ("evil.example:8080", None, 403),
        ("10.1.2.3:8080", None, 403),
        ("localhost:8080", Some(("sec-fetch-site", "cross-site")), 403),
        ("localhost:8080", Some(("sec-fetch-site", "same-site")), 403),
        ("localhost:8080", Some(("origin", "http://evil.example")), 403),
    ] {
        for (path, wanted) in [("/debug/cache", wanted), ("/debug/decisions", wanted), ("/metrics", 200)] {
            let request = more
                .into_iter()
                .fold(Request::get(path).header(header::HOST, host), |all, (name, value)| all.header(name, value));
            let answer = desk.router("127.0.0.1:40000").oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(answer.status().as_u16(), wanted, "{path} of {host}, {more:?}");
        }
    }
}

/// Connects from its own address, and sends one request.
async fn request_from(from: [u8; 4], to: SocketAddr, request: &str) -> tokio::net::TcpStream {
    use tokio::io::AsyncWriteExt as _;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let mut stream = socket.connect(to).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Forty addresses with eight connections each, which send nothing, or never read the longest possible answer.
#[tokio::test]
async fn attack_slow_readers_do_not_block_probes() {
    use tokio::io::AsyncReadExt as _;
    let desk = desk(World::listed());
    for number in 0..20_000 {
        let node: Arc<str> = format!("node-{number:05}").into();
        let holds = vec![(Subject::Node(node.clone()), Hold::from(NodeUnreadable { node, why: "w".repeat(200) }))];
        let key = number.to_string();
        desk.admin.holds.replace("pod_gc", &key, holds, &BTreeSet::new(), true, &desk.admin.env);
    }
    let longest = desk.get("/debug/decisions").await.2.len();
    assert!((100_000..2_000_000).contains(&longest), "{longest} bytes of each slow reader are held");
    let listener = Admin::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let there = listener.local_addr().unwrap();
    let admin = Admin { env: Env::real(1), ..desk.admin.clone() };
    let play = async {
        let mut theirs = Vec::new();
        for address in 1..=40 {
            for number in 0..8 {
                let request = if number % 2 == 0 { "GET /debug/decisions HTTP/1.1\r\nHost: a\r\n\r\n" } else { "GET" };
                theirs.push(request_from([127, 0, 1, address], there, request).await);
            }
        }
        let mut probe = request_from([127, 0, 2, 1], there, "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let mut answer = String::new();
        probe.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = tokio::select! {
        biased;
        answer = play => answer,
        () = admin.serve(listener, None) => panic!("the admin server ended"),
    };
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"), "{answer}");
}
