//! The program itself, with an API server that has one Lease, a keeper at the other end of a pipe, and a pod that is
//! a process.
//!
//! Its folders of processes and cgroups are created here: the machine that runs the tests may have kubelets.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a rig of tests fails loudly, waits in real time, and reads the clock that the program reads"
)]

mod server;

use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use futures::future::{Either, select};
use server::Server;
use tempfile::TempDir;

const POD: &str = "3f0b9d2e-1b7e-4d51-9c6e-6d1f2a3b4c5d";
/// The UID of the agent's own pod.
const OWN: &str = "0aaaaaaa-1b7e-4d51-9c6e-6d1f2a3b4c5d";

struct Rig {
    folder: TempDir,
    server: Arc<Server>,
    keeper: fs::File,
    pod: Child,
    agent: Option<Child>,
    flags: Vec<String>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _gone = self.pod.kill();
        if let Some(agent) = &mut self.agent {
            let _gone = agent.kill();
        }
    }
}

impl Rig {
    async fn new(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let pod = Command::new("sleep").arg("600").spawn().unwrap();
        let cgroup = at("cgroups/pids/kubepods").join(format!("pod{POD}"));
        fs::create_dir_all(&cgroup).unwrap();
        let own = at("cgroups/pids/kubepods").join(format!("pod{OWN}"));
        fs::create_dir(&own).unwrap();
        for empty in [at("cgroups/pids"), at("cgroups/pids/kubepods"), own] {
            fs::write(empty.join("cgroup.procs"), "").unwrap();
        }
        fs::write(cgroup.join("cgroup.procs"), format!("{}\n", pod.id())).unwrap();
        fs::create_dir_all(at("proc/1")).unwrap();
        fs::write(at("proc/1/mountinfo"), "").unwrap();
        fs::write(at("proc/1/stat"), "1 (init) S 0 1\n").unwrap();
        fs::create_dir_all(at("proc/sys/kernel/random")).unwrap();
        fs::write(at("proc/sys/kernel/random/boot_id"), "b0000000-0000-4000-8000-000000000001\n").unwrap();
        let server = Arc::new(Server::start().await);
        fs::create_dir(at("account")).unwrap();
        fs::write(at("account/token"), token()).unwrap();
        fs::write(at("account/ca.crt"), &server.authority).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("keeper"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap();
        let keeper = OpenOptions::new().read(true).custom_flags(nonblocking).open(at("keeper")).unwrap();
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut rig = Self { folder, server, keeper, pod, agent: None, flags };
        rig.start();
        rig
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn start(&mut self) {
        let log = OpenOptions::new().create(true).append(true).open(self.at("log")).unwrap();
        let path = |path: &str| self.at(path).display().to_string();
        // A released program can be measured in place of the one that cargo built.
        let program = std::env::var("POD_SAFETY_AGENT").unwrap_or(env!("CARGO_BIN_EXE_pod-safety-agent").to_owned());
        let agent = Command::new(program)
            .args(["run", "--node", "a", "--namespace", "safe", "--server", "127.0.0.1", "--gated"])
            .args(["--pod-uid", OWN])
            .args(["--port", &self.server.address.port().to_string()])
            .args(["--account", &path("account"), "--keeper", &path("keeper"), "--marks", &path("run")])
            .args(["--proc", &path("proc"), "--cgroups", &path("cgroups"), "--kubelet", &path("kubelet")])
            .args(["--record", &path("record"), "--interval", "1", "--late", "3"])
            .args(&self.flags)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.agent = Some(agent);
    }

    fn log(&self) -> String {
        fs::read_to_string(self.at("log")).unwrap()
    }

    /// The bytes that the keeper received since the last call.
    fn read_keeper(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        let length = self.keeper.read(&mut bytes).unwrap_or(0);
        bytes.truncate(length);
        bytes
    }

    /// Reaps the pod, whose cgroup is empty then.
    fn reap(&mut self) -> bool {
        let ended = self.pod.try_wait().unwrap().is_some();
        if ended {
            let procs = self.at("cgroups/pids/kubepods").join(format!("pod{POD}")).join("cgroup.procs");
            fs::write(procs, "").unwrap();
        }
        ended
    }

    async fn until(&mut self, what: &str, mut is: impl FnMut(&mut Self) -> bool) {
        let began = Instant::now();
        while !is(self) {
            assert!(began.elapsed() < Duration::from_secs(60), "never: {what}\n{}", self.log());
            pause().await;
        }
    }

    async fn until_armed(&mut self) {
        self.until("a second grant", |rig| {
            let store = rig.server.store.lock().unwrap();
            store.annotation("state") == "Armed"
                && store.annotation("round").parse::<u64>().is_ok_and(|round| round > 1)
        })
        .await;
    }
}

/// A token that names the node, as the API server creates it.
fn token() -> String {
    let claims = r#"{"kubernetes.io":{"node":{"name":"a","uid":"7a1c"}}}"#;
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(claims);
    format!("e30.{claims}.x")
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// Runs a test with the server of its rig.
fn with_rig(flags: &[&str], test: impl AsyncFnOnce(&mut Rig)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut rig = Rig::new(flags).await;
        let server = Arc::clone(&rig.server);
        match select(Box::pin(server.serve()), Box::pin(test(&mut rig))).await {
            Either::Left(_) => panic!("the server ended"),
            Either::Right(_) => {}
        }
    });
}

fn terminate(agent: &Child) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(agent.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

#[test]
fn a_pet_follows_each_acknowledged_grant() {
    with_rig(&[], async |rig| {
        rig.until_armed().await;
        // The first pet is the opening, before the first promise.
        let states: Vec<String> = {
            let store = rig.server.store.lock().unwrap();
            let state = |lease: &serde_json::Value| {
                lease["metadata"]["annotations"]["watchdog.pod-safety.dev/state"].as_str().unwrap().to_owned()
            };
            store.writes.iter().map(state).collect()
        };
        assert_eq!(states[..2], ["Unarmed", "Armed"]);
        let grants = rig.server.store.lock().unwrap().writes.len();
        let pets = rig.read_keeper().len();
        assert!(pets <= grants, "{pets} pets, {grants} grants");
        assert_eq!(rig.server.store.lock().unwrap().annotation("node-uid"), "7a1c");
        let status = fs::read_to_string(format!("/proc/{}/status", rig.agent.as_ref().unwrap().id())).unwrap();
        println!("{}", status.lines().filter(|line| line.starts_with("Vm")).collect::<Vec<_>>().join("; "));
        assert!(!rig.reap(), "the pod runs");
    });
}

/// An API server that does not answer for longer than the watchdog's timeout resets no machine whose pods have ended.
#[test]
fn an_outage_of_the_api_server_ends_the_pods_without_a_reset() {
    with_rig(&[], async |rig| {
        rig.until_armed().await;
        rig.server.store.lock().unwrap().away = true;
        rig.until("the end of the pod", Rig::reap).await;
        assert!(rig.at("run/closed").exists(), "no kubelet starts");
        rig.until("the proof", |rig| rig.log().contains("Ended:")).await;
        rig.read_keeper();
        let mut pets = 0;
        let mut more = |rig: &mut Rig| {
            pets += rig.read_keeper().len();
            pets > 3
        };
        rig.until("pets without a grant", &mut more).await;
        rig.server.store.lock().unwrap().away = false;
        rig.until("the gate to open", |rig| !rig.at("run/closed").exists()).await;
        let epoch = rig.server.store.lock().unwrap().annotation("epoch");
        assert!(!epoch.ends_with("-0"), "a new epoch: {epoch}");
    });
}

#[test]
fn after_a_revocation_the_pods_are_ended_and_nothing_is_petted_before() {
    with_rig(&[], async |rig| {
        rig.until_armed().await;
        // Its cgroup does not become empty, whatever is killed.
        rig.server.store.lock().unwrap().set("state", "Revoked");
        rig.until("the end", |rig| rig.log().contains("Ending:")).await;
        rig.read_keeper();
        rig.until("what is left", |rig| rig.log().contains("has not ended")).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(rig.read_keeper(), b"", "pets without a proof:\n{}", rig.log());
        rig.until("the end of the pod", Rig::reap).await;
        // The pet of the proof, and no other: the watchdog resets the machine.
        rig.until("the reset", |rig| rig.log().contains("Fenced:")).await;
        rig.read_keeper();
        let survived = |rig: &Rig| fs::read_to_string(rig.at("record/survived")).unwrap_or_default();
        rig.until("what it survives", |rig| survived(rig).lines().count() > 8).await;
        assert_eq!(rig.read_keeper(), b"", "pets:\n{}", rig.log());
        assert!(rig.at("run/closed").exists(), "no kubelet starts");
        // The next boot reports it.
        rig.agent.take().unwrap().kill().unwrap();
        let last: u64 = survived(rig).lines().last().unwrap().split_once(' ').unwrap().1.parse().unwrap();
        fs::write(rig.at("proc/sys/kernel/random/boot_id"), "b0000000-0000-4000-8000-000000000002\n").unwrap();
        fs::remove_dir_all(rig.at("run")).unwrap();
        rig.start();
        rig.until_armed().await;
        let store = rig.server.store.lock().unwrap();
        assert_eq!(store.annotation("boot-id"), "b0000000-0000-4000-8000-000000000002");
        assert_eq!(store.annotation("earlier-boot-id"), "b0000000-0000-4000-8000-000000000001");
        assert_eq!(store.annotation("earlier-boot-survived-milliseconds").parse::<u64>().unwrap(), last);
    });
}

#[test]
fn attack_a_lease_that_another_client_wrote_ends_the_pods() {
    with_rig(&[], async |rig| {
        rig.until_armed().await;
        rig.server.store.lock().unwrap().set("epoch", "00000000000000ff-0");
        rig.until("the end of the pod", Rig::reap).await;
    });
}

/// The write is executed, and its answer is lost: a read finds the round granted, and the pod goes on.
#[test]
fn a_grant_whose_answer_was_lost_is_found_by_a_read() {
    with_rig(&[], async |rig| {
        rig.until_armed().await;
        let before: u64 = rig.server.store.lock().unwrap().annotation("round").parse().unwrap();
        rig.server.store.lock().unwrap().loses = 1;
        rig.until("later grants", |rig| {
            rig.server.store.lock().unwrap().annotation("round").parse::<u64>().unwrap() > before + 3
        })
        .await;
        assert!(!rig.reap() && !rig.log().contains("Ending:"), "{}", rig.log());
    });
}

#[test]
fn an_orderly_end_withdraws_the_promise_before_the_device_stops() {
    with_rig(&[], async |rig| {
        rig.until_armed().await;
        rig.read_keeper();
        terminate(rig.agent.as_ref().unwrap());
        rig.until("the end of the agent", |rig| {
            let ended = rig.agent.as_mut().unwrap().try_wait().unwrap();
            ended.is_some_and(|status| status.success())
        })
        .await;
        assert_eq!(rig.server.store.lock().unwrap().annotation("state"), "Disarmed");
        assert_eq!(rig.read_keeper().last(), Some(&b'V'), "stopped");
        assert!(!rig.reap(), "the pod runs");
    });
}

/// A process that restarts has no grant yet, and the device runs: it ends the pods when none comes, and then pets.
#[test]
fn an_agent_that_is_killed_and_started_without_an_api_server_ends_the_pods() {
    with_rig(&[], async |rig| {
        rig.until_armed().await;
        rig.server.store.lock().unwrap().away = true;
        let mut agent = rig.agent.take().unwrap();
        agent.kill().unwrap();
        agent.wait().unwrap();
        rig.read_keeper();
        rig.start();
        rig.until("the end of the pod", Rig::reap).await;
        rig.until("the proof", |rig| rig.log().contains("Ended:")).await;
        let log = rig.log();
        let opened = log.rfind("the watchdog is open");
        assert!(opened < log.rfind("Ending:") || opened > log.rfind("Ended:"), "it was opened before:\n{log}");
        rig.until("a pet", |rig| !rig.read_keeper().is_empty()).await;
    });
}

#[test]
fn an_agent_that_is_killed_and_started_again_goes_on_by_a_grant() {
    with_rig(&[], async |rig| {
        rig.until_armed().await;
        let epoch = rig.server.store.lock().unwrap().annotation("epoch");
        let mut agent = rig.agent.take().unwrap();
        agent.kill().unwrap();
        agent.wait().unwrap();
        rig.start();
        rig.until("another epoch", |rig| rig.server.store.lock().unwrap().annotation("epoch") != epoch).await;
        rig.until_armed().await;
        assert!(!rig.reap() && !rig.log().contains("Ending:"), "{}", rig.log());
    });
}

#[test]
fn a_missing_watchdog_is_an_error_with_a_remedy() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_pod-safety-agent")).args(["check", "--device", "250"]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() && message.contains("/dev/watchdog250") && message.contains("held by: no process"),
        "{message}"
    );
}

#[test]
fn a_drill_requires_a_flag_and_fails_if_nothing_was_reset() {
    let drill = |flags: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_pod-safety-agent")).arg("drill").args(flags).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(drill(&[]).contains("add --reset-this-machine"));
    let folder = tempfile::tempdir().unwrap();
    let keeper = folder.path().join("keeper");
    let missing = drill(&["--reset-this-machine", "--keeper", &keeper.display().to_string()]);
    assert!(missing.contains("is the keeper running?"), "{missing}");
    rustix::fs::mknodat(rustix::fs::CWD, &keeper, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap();
    let _idle = OpenOptions::new().read(true).custom_flags(nonblocking).open(&keeper).unwrap();
    let message = drill(&["--reset-this-machine", "--timeout", "4", "--keeper", &keeper.display().to_string()]);
    assert!(message.contains("did not reset this machine within 9 s"), "{message}");
}

#[test]
fn an_agent_beside_a_static_pod_does_not_start() {
    with_rig(&[], async |rig| {
        rig.until_armed().await;
        rig.agent.take().unwrap().kill().unwrap();
        let cgroup = rig.at("cgroups/pids/kubepods/pod0c55fafebd0f6b1d9f1d2a4f0f8a2b3c");
        fs::create_dir(&cgroup).unwrap();
        fs::write(cgroup.join("cgroup.procs"), "").unwrap();
        rig.start();
        rig.until("the end of the agent", |rig| rig.agent.as_mut().unwrap().try_wait().unwrap().is_some()).await;
        assert!(rig.log().contains("--end-static-pods"), "{}", rig.log());
    });
}

/// It would guard nothing, and prove that nothing runs.
#[test]
fn an_agent_that_does_not_find_its_own_pod_does_not_start() {
    with_rig(&[], async |rig| {
        rig.until_armed().await;
        rig.agent.take().unwrap().kill().unwrap();
        fs::rename(rig.at("cgroups/pids/kubepods"), rig.at("cgroups/pids/elsewhere")).unwrap();
        rig.start();
        rig.until("the end of the agent", |rig| rig.agent.as_mut().unwrap().try_wait().unwrap().is_some()).await;
        assert!(rig.log().contains("A kubelet with another --cgroup-root cannot be guarded"), "{}", rig.log());
    });
}

/// It would find no mounts or no kubelet, and prove that nothing runs.
#[test]
fn bug_an_agent_started_beside_a_kubelet_that_its_flags_do_not_name() {
    let mount = format!("30 22 0:25 / /other/pods/{OWN}/volumes/x/token rw - tmpfs tmpfs rw\n");
    for (file, text, message) in [
        ("proc/1/mountinfo", &*mount, "volumes are in /other: name that one"),
        ("proc/7/stat", "7 (k3s-agent) S 1 7\n", "process 7 (k3s-agent) in state S: name that one"),
    ] {
        with_rig(&[], async |rig| {
            rig.until_armed().await;
            rig.agent.take().unwrap().kill().unwrap();
            fs::create_dir_all(rig.at(file).parent().unwrap()).unwrap();
            fs::write(rig.at(file), text).unwrap();
            rig.start();
            rig.until("the end of the agent", |rig| rig.agent.as_mut().unwrap().try_wait().unwrap().is_some()).await;
            assert!(rig.log().contains(message), "{}", rig.log());
        });
    }
}
