//! Both sides together, and each with a malicious or dying peer.
#![expect(clippy::disallowed_methods, reason = "tests start peers as tasks")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use pod_safety_clock::{Env, since_boot};
use pod_safety_transport::{Act, Answer, DeviceError, FenceTransport as _, Identity, MAX_OUTPUT_BYTES, Order, Power};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use super::frame::{self, MOST};
use super::message::{Reply, Request, WireValue};
use super::server::remaining;
use super::{AgentServer, ServeError};
use crate::agent::tests::runs::{CHILDREN, assert_all_dead, assert_dead};
use crate::agent::tests::{AgentFixture, SECRET, order};

const OFF: &str = "echo 'Status: OFF'; exit 2";

fn us() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Agents behind a server that listens at the socket of its fixture.
struct Scene {
    fixture: AgentFixture,
    server: Arc<AgentServer>,
}

async fn scene(body: &str, client_uid: Option<u32>, at_once: usize) -> Scene {
    let fixture = AgentFixture::new().agent(body);
    let socket = fixture.path("socket");
    let server = AgentServer::bind(Env::real(1), &socket, fixture.options(), client_uid, at_once).await.unwrap();
    Env::real(1).spawner.spawn("server", Box::pin(Arc::clone(&server).serve()));
    Scene { fixture: fixture.by_socket(socket), server }
}

/// A peer that sends these bytes to its first connections, one after another; `None`: it closes the connection.
fn peer(fixture: &AgentFixture, replies: Vec<Option<Vec<u8>>>) -> tokio::task::JoinHandle<usize> {
    let listener = UnixListener::bind(fixture.path("socket")).unwrap();
    tokio::spawn(async move {
        let mut accepted = 0;
        for reply in replies {
            let (mut stream, _) = listener.accept().await.unwrap();
            let asked: Result<Request, _> = frame::read(&mut stream).await;
            accepted += usize::from(asked.is_ok());
            if let Some(reply) = reply {
                stream.write_all(&reply).await.unwrap();
            }
        }
        accepted
    })
}

fn off_until(not_after: Duration) -> Request {
    let parameters = WireValue::encode_all(&order(Act::Off, Duration::ZERO).parameters);
    let (agent, node) = ("fence_test".to_owned(), "node-1".to_owned());
    Request::CarryOut { agent, parameters, node, act: Act::Off, not_after }
}

fn bytes(reply: &Reply) -> Vec<u8> {
    frame::encode(reply).unwrap().to_vec()
}

fn why(error: &DeviceError) -> &str {
    let DeviceError::AgentsUnavailable { why, .. } = error else { panic!("{error}") };
    why
}

async fn appears(path: &Path) {
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn orders_and_answers_arrive_unchanged() {
    let Scene { fixture, .. } = scene(OFF, Some(us()), 4).await;
    fixture.devices.check_agents().await.unwrap();
    fixture.check(&[("ip", "192.0.2.1")]).await.unwrap();
    let answer = fixture.act(Act::Look).await.unwrap();
    assert_eq!((answer.power, answer.identity), (Power::Off, Identity::Unknown));
    let input = format!("ip=192.0.2.1\nlanplus=0\npassword={SECRET}\nnodename=node-1\naction=status\n");
    assert_eq!(fixture.read("stdin"), input);
    let error = fixture.check(&[("ip", "192.0.2.1"), ("token_file", "/x")]).await.unwrap_err();
    assert!(matches!(&error, DeviceError::Parameter { name, .. } if name == "token_file"), "{error}");
    let error = fixture.check(&[("ip", &"x".repeat(MOST))]).await.unwrap_err();
    assert!(matches!(&error, DeviceError::Parameter { name, .. } if name == "ip"), "{error}");
}

#[tokio::test]
async fn errors_of_agents_contain_no_secrets() {
    let Scene { fixture, .. } = scene("cat $here/stdin >&2; exit 1", None, 4).await;
    let error = fixture.act(Act::Off).await.unwrap_err();
    assert!(matches!(&error, DeviceError::Failed { said } if said.contains("password=[secret]")), "{error}");
}

#[tokio::test]
async fn without_a_server_the_error_says_that_no_order_was_sent() {
    let fixture = AgentFixture::new();
    let socket = fixture.path("socket");
    let fixture = fixture.by_socket(socket);
    for error in [fixture.act(Act::Off).await.unwrap_err(), fixture.devices.check_agents().await.unwrap_err()] {
        assert!(why(&error).contains("No order was sent"), "{error}");
        assert_eq!(error.category(), "AgentsUnavailable");
    }
}

#[tokio::test]
async fn attack_a_malicious_reply_proves_no_more_than_an_agent_can_report() {
    let lie = Answer {
        power: Power::Off,
        identity: Identity::Match,
        said: format!("\x1b[31m{}{SECRET}", "x".repeat(2 * MAX_OUTPUT_BYTES)),
        asked_after: Duration::MAX,
    };
    let lie = bytes(&Reply::CarriedOut(Ok(lie)));
    for (act, power) in [(Act::Off, Power::Unknown), (Act::Look, Power::Off)] {
        let fixture = AgentFixture::new();
        let _peer = peer(&fixture, vec![Some(lie.clone())]);
        let socket = fixture.path("socket");
        let answer = fixture.by_socket(socket).act(act).await.unwrap();
        assert_eq!((answer.power, answer.identity), (power, Identity::Unknown));
        assert!(answer.said.len() <= MAX_OUTPUT_BYTES && answer.said.ends_with("[secret]"), "{}", answer.said);
    }
    let valid = bytes(&Reply::Hello);
    let header =
        |version: u16, length: u32| [b"agents".as_slice(), &version.to_be_bytes(), &length.to_be_bytes()].concat();
    for (reply, expected) in [
        (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), "another protocol"),
        (header(2, 0), "version 2"),
        (header(1, u32::MAX), "longer than"),
        ([header(1, 3), b"{{{".to_vec()].concat(), "cannot be understood"),
        (valid[..valid.len() - 1].to_vec(), "ended"),
        (valid.clone(), "does not fit"),
        (bytes(&Reply::Checked(Ok(()))), "does not fit"),
        (bytes(&Reply::Refused("\x07no".to_owned())), "refuses the request: no"),
        (Vec::new(), "ended"),
    ] {
        let fixture = AgentFixture::new();
        let _peer = peer(&fixture, vec![Some(reply)]);
        let socket = fixture.path("socket");
        let error = fixture.by_socket(socket).act(Act::Look).await.unwrap_err();
        assert!(why(&error).contains(expected), "{expected}: {error}");
    }
}

#[tokio::test]
async fn attack_a_malformed_request_is_refused_and_starts_no_agent() {
    let Scene { fixture, .. } = scene(OFF, None, 4).await;
    let valid = frame::encode(&Request::Hello).unwrap();
    let mut requests = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        [b"agents\x00\x01".as_slice(), &u32::MAX.to_be_bytes()].concat(),
        [b"agents\x00\x01".as_slice(), &3_u32.to_be_bytes(), b"\xff\xff\xff"].concat(),
        // More than one request.
        [valid.as_slice(), valid.as_slice()].concat(),
    ];
    // Each byte wrong once.
    requests.extend((0..valid.len()).map(|at| {
        let mut wrong = valid.to_vec();
        wrong[at] ^= 0x20;
        wrong
    }));
    for request in requests {
        let mut stream = UnixStream::connect(fixture.path("socket")).await.unwrap();
        stream.write_all(&request).await.unwrap();
        let mut reply = Vec::new();
        // A server that did not read everything resets the connection after its answer.
        let _closed_already = stream.shutdown().await;
        let _reset_at_the_end = stream.read_to_end(&mut reply).await;
        let hello = bytes(&Reply::Hello);
        assert_ne!(reply, hello, "{request:?}");
    }
    assert!(!fixture.path("stdin").exists(), "an agent ran");
    fixture.devices.check_agents().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_disconnected() {
    let Scene { fixture, .. } = scene(OFF, None, 4).await;
    let mut stream = UnixStream::connect(fixture.path("socket")).await.unwrap();
    let reply: Reply = frame::read(&mut stream).await.unwrap();
    assert!(matches!(&reply, Reply::Refused(why) if why.contains("no request within")), "{reply:?}");
}

#[tokio::test]
async fn attack_another_user_cannot_send_orders() {
    let Scene { fixture, .. } = scene(OFF, Some(us() + 1), 4).await;
    let error = fixture.act(Act::Off).await.unwrap_err();
    assert!(why(&error).contains("may not send orders"), "{error}");
    assert!(!fixture.path("stdin").exists(), "an agent ran");
}

#[tokio::test]
async fn a_dropped_order_kills_its_agent() {
    let Scene { fixture, .. } = scene(&format!("{CHILDREN}\ntouch \"$here/ready\"; sleep 300"), None, 4).await;
    let order = fixture.devices.carry_out(order(Act::Off, Duration::from_secs(60)));
    let path = fixture.path("ready");
    let ready = Box::pin(appears(&path));
    let futures::future::Either::Right(((), order)) = futures::future::select(order, ready).await else {
        panic!("it ended")
    };
    drop(order);
    assert_all_dead(&fixture).await;
}

#[tokio::test]
async fn at_the_deadline_the_agent_and_its_children_are_killed() {
    let Scene { fixture, .. } = scene(&format!("{CHILDREN}\nsleep 300"), None, 4).await;
    let within = Duration::from_secs(4);
    let answer = fixture.devices.carry_out(order(Act::Off, within)).await;
    assert_eq!(answer, Err(DeviceError::TimedOut { after: within }));
    assert_all_dead(&fixture).await;
}

/// It was cut to ten minutes, the longest timeout of a status check.
#[test]
fn bug_an_order_of_an_hour_was_cut_short() {
    let hour = Order::LONGEST;
    assert!(remaining(since_boot() + hour) > hour - Duration::from_secs(60));
    assert_eq!(remaining(since_boot() + 2 * hour), hour, "a client that asks for more is wrong");
}

/// A request can wait in the socket, for instance while the host is suspended.
#[tokio::test]
async fn bug_an_order_that_is_read_after_its_deadline_starts_no_agent() {
    let Scene { fixture, .. } = scene(OFF, None, 4).await;
    let late = off_until(since_boot().saturating_sub(Duration::from_millis(1)));
    let mut stream = UnixStream::connect(fixture.path("socket")).await.unwrap();
    frame::write(&mut stream, &late).await.unwrap();
    let reply: Reply = frame::read(&mut stream).await.unwrap();
    assert!(matches!(&reply, Reply::CarriedOut(Err(DeviceError::TimedOut { .. }))), "{reply:?}");
    assert!(!fixture.path("stdin").exists(), "an agent ran");
}

/// The agent of a killed server may run until the deadline. So `off` returns only when a server listens again, which has
/// killed that agent first.
#[tokio::test]
async fn bug_off_returned_while_the_agent_of_a_killed_server_could_still_run() {
    let fixture = AgentFixture::new();
    // The order, two hellos that fail, and one that is answered.
    let peer = peer(&fixture, vec![None, None, None, Some(bytes(&Reply::Hello))]);
    let socket = fixture.path("socket");
    let error = fixture.by_socket(socket).act(Act::Off).await.unwrap_err();
    assert!(why(&error).contains("may have been carried out"), "{error}");
    let asked = tokio::time::timeout(Duration::from_secs(60), peer).await;
    assert_eq!(asked.expect("it returned too early").unwrap(), 4);
}

#[tokio::test]
async fn if_no_server_listens_again_off_returns_at_its_deadline() {
    let fixture = AgentFixture::new();
    let gone = peer(&fixture, vec![None]);
    let socket = fixture.path("socket");
    let fixture = fixture.by_socket(socket);
    let (env, within) = (Env::real(1), Duration::from_secs(2));
    let began = env.now();
    let error = fixture.devices.carry_out(order(Act::Off, within)).await.unwrap_err();
    assert!(env.now().since(began) >= within, "an agent may still run");
    assert!(why(&error).contains("may have been carried out"), "{error}");
    gone.await.unwrap();
}

/// A process as an agent of the server of this socket.
fn left_behind(socket: &Path) -> Child {
    let mark = format!("{}:1-0;", socket.display());
    Command::new("sleep").arg("300").env("POD_SAFETY_FENCE_RUN", mark).spawn().unwrap()
}

#[tokio::test]
async fn a_server_kills_the_agents_of_its_predecessor_before_it_listens() {
    let fixture = AgentFixture::new();
    let (socket, other) = (fixture.path("socket"), fixture.path("other"));
    let (own, mut others) = (left_behind(&socket), left_behind(&other));
    let _server = AgentServer::bind(Env::real(1), &socket, fixture.options(), None, 1).await.unwrap();
    assert_dead(&own.id().to_string()).await;
    assert!(others.try_wait().unwrap().is_none(), "of another server");
    others.kill().unwrap();
    others.wait().unwrap();
}

#[tokio::test]
async fn a_server_replaces_a_stale_socket_and_nothing_else() {
    let fixture = AgentFixture::new();
    let bind = async |path: PathBuf| AgentServer::bind(Env::real(1), &path, fixture.options(), None, 1).await.map(drop);
    let file = fixture.path("file");
    std::fs::write(&file, "mine").unwrap();
    assert!(matches!(bind(file.clone()).await, Err(ServeError::NoSocket(_))));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    drop(UnixListener::bind(fixture.path("socket")).unwrap());
    bind(fixture.path("socket")).await.unwrap();
    let _living = UnixListener::bind(fixture.path("living")).unwrap();
    assert!(matches!(bind(fixture.path("living")).await, Err(ServeError::Taken(_))));
}

#[tokio::test]
async fn an_order_beyond_the_limit_waits_and_starts_no_agent_after_its_deadline() {
    let Scene { fixture, server } = scene("touch \"$here/ready\"; sleep 300", None, 1).await;
    let first = fixture.devices.carry_out(order(Act::Off, Duration::from_secs(60)));
    let second = async {
        appears(&fixture.path("ready")).await;
        server.reply(off_until(since_boot() + Duration::from_secs(1))).await
    };
    let futures::future::Either::Right((second, first)) = futures::future::select(first, Box::pin(second)).await else {
        panic!("the first ended")
    };
    let Reply::CarriedOut(Err(DeviceError::Failed { said })) = &second else { panic!("{second:?}") };
    assert!(said.contains("did not start"), "{said}");
    drop(first);
}

#[tokio::test]
async fn a_server_that_stops_kills_its_agents() {
    let Scene { fixture, server } = scene("echo $$ > \"$here/agent\"; touch \"$here/ready\"; sleep 300", None, 2).await;
    let stopped = async {
        appears(&fixture.path("ready")).await;
        server.stop().await;
    };
    let (answer, ()) = tokio::join!(fixture.devices.carry_out(order(Act::Off, Duration::from_secs(60))), stopped);
    assert!(matches!(answer, Err(DeviceError::Failed { .. })), "{answer:?}");
    assert_dead(fixture.read("agent").trim()).await;
    assert!(!fixture.path("socket").exists());
}
