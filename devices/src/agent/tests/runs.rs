//! What a run is given, and how it ends.

use std::time::Duration;

use pod_safety_clock::Env;
use pod_safety_transport::{Act, DeviceError, FenceTransport as _, Identity, Power};

use super::super::process;
use super::{SECRET, Stage, order};

const OFF: &str = "echo 'Status: OFF'; exit 2";

#[tokio::test]
async fn an_agent_gets_no_arguments_the_exact_lines_an_end_of_file_and_a_bare_environment() {
    let stage = Stage::new().agent(&format!(
        "echo $# > \"$here/arguments\"; tr '\\0' '\\n' < /proc/$$/environ > \"$here/environment\"; {OFF}"
    ));
    let answer = stage.act(Act::Look).await.unwrap();
    assert_eq!((answer.power, answer.identity), (Power::Off, Identity::Unknown));
    assert_eq!(stage.read("arguments"), "0\n");
    // Flags that are false are not there, but for the one that is read by its value.
    let told = format!("ip=192.0.2.1\nlanplus=0\npassword={SECRET}\nnodename=node-1\naction=status\n");
    assert_eq!(stage.read("stdin"), told);
    let environment = stage.read("environment");
    let names: Vec<_> = environment.lines().filter_map(|line| line.split('=').next()).collect();
    assert_eq!(names, ["LC_ALL", "PATH", "POD_SAFETY_FENCE_RUN", "PYTHONWARNINGS"], "{environment}");
    assert!(
        environment.contains("LC_ALL=C\n") && environment.contains("PATH=/usr/sbin:/usr/bin:/sbin:/bin\n")
    );
}

/// What an agent reports is not older than the moment when it read what it was asked.
#[tokio::test]
async fn bug_what_an_agent_reported_was_as_old_as_its_start() {
    // It says what it is at once, and then starts slowly.
    let slowly = "if [ -e \"$here/asked\" ]; then sleep 2; fi";
    let stage = Stage::new().agent_that_starts(slowly, &format!("sleep 1; {OFF}"));
    let env = Env::real(1);
    let began = env.now();
    let answer = stage.act(Act::Look).await.unwrap();
    let age = env.now().since(began) - answer.asked_after;
    assert!(age >= Duration::from_secs(1), "it asks its device after it has read: {age:?}");
    // Two seconds; on a busy machine the last look at its input may be some time before.
    assert!(answer.asked_after >= Duration::from_millis(500), "{answer:?}");
}

#[tokio::test]
async fn each_act_is_told_by_its_word() {
    for (act, word) in [(Act::Off, "off"), (Act::On, "on"), (Act::Look, "status")] {
        let stage = Stage::new().agent("echo Success; exit 0");
        stage.act(act).await.unwrap();
        assert!(stage.read("stdin").ends_with(&format!("\naction={word}\n")));
    }
}

/// One in the agent's group, one there without an environment, one in a session of its own, one that a dead parent
/// left to the system.
pub(crate) const CHILDREN: &str = "sleep 300 & echo $! >> \"$here/pids\"
env -i sleep 300 & echo $! >> \"$here/pids\"
setsid sh -c 'echo $$ >> \"$0/pids\"; exec sleep 300' \"$here\" &
(setsid sh -c 'echo $$ >> \"$0/pids\"; exec sleep 300 >/dev/null 2>&1 </dev/null' \"$here\" &) &
while [ $(wc -l < \"$here/pids\") -lt 4 ]; do sleep 0.01; done; sleep 0.1";

pub(crate) async fn assert_all_dead(stage: &Stage) {
    let pids = stage.read("pids");
    assert_eq!(pids.lines().count(), 4);
    for pid in pids.lines() {
        assert_dead(pid).await;
    }
}

/// A process that was killed ends when it gets a processor, which may be late where others compute: it is looked for so
/// often, for a minute. Left alone it would sleep for five.
const LOOKS: u32 = 6_000;

pub(crate) async fn assert_dead(pid: &str) {
    let runs = |state: &str| !(state.is_empty() || state.starts_with("Z "));
    let mut state = state(pid);
    for _ in 0..LOOKS {
        if !runs(&state) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        state = self::state(pid);
    }
    // To reap it is its parent's, which stands behind the state: if that is us, we would collect them.
    let ours = state.starts_with(&format!("Z {} ", std::process::id()));
    assert!(!runs(&state) && !ours, "{pid} lives: {state}");
}

/// Behind its name, which stands in brackets; `Z` is one that has ended and is not reaped yet.
fn state(pid: &str) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn at_the_deadline_nothing_is_left() {
    let stage = Stage::new().agent(&format!("{CHILDREN}\necho $$ > \"$here/agent\"; sleep 300"));
    let within = Duration::from_secs(4);
    let answer = stage.devices.carry_out(order(Act::Off, within)).await;
    assert_eq!(answer, Err(DeviceError::TimedOut { after: within }));
    assert_all_dead(&stage).await;
    assert_dead(stage.read("agent").trim()).await;
}

#[tokio::test]
async fn when_nobody_waits_any_more_nothing_is_left() {
    let stage = Stage::new().agent(&format!("{CHILDREN}\ntouch \"$here/ready\"; sleep 300"));
    let ready = async {
        while !stage.path("ready").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let order = stage.devices.carry_out(order(Act::Off, Duration::from_secs(60)));
    // The loser is dropped with the end of this statement.
    let dropped = futures::future::select(order, Box::pin(ready)).await;
    let futures::future::Either::Right(((), order)) = dropped else { panic!("it ended") };
    drop(order);
    assert_all_dead(&stage).await;
}

#[tokio::test]
async fn what_an_agent_leaves_behind_is_killed_and_told() {
    let stage = Stage::new().agent(&format!("{CHILDREN}\n{OFF}"));
    let answer = stage.act(Act::Look).await.unwrap();
    assert_eq!(answer.power, Power::Off);
    assert!(answer.said.contains("left 4 processes behind"), "{}", answer.said);
    assert_all_dead(&stage).await;
}

#[tokio::test]
async fn an_agent_that_never_reads_does_not_hang_us() {
    let text = "if [ ! -e ${0%/*}/again ]; then touch ${0%/*}/again; cat <<'END'\nMETADATA\nEND\nexit 0; fi; echo 'Status: ON'; exit 0";
    let stage = Stage::new().raw(&text.replace("METADATA", super::METADATA));
    assert_eq!(stage.act(Act::Look).await.unwrap().power, Power::On);
}

#[tokio::test]
async fn ten_megabytes_are_read_and_not_kept() {
    let stage = Stage::new().agent("head -c 10000000 /dev/zero | tr '\\0' x; touch \"$here/done\"; exit 0");
    let error = stage.act(Act::Off).await.unwrap_err();
    assert!(matches!(&error, DeviceError::Garbage { said } if said.len() < 200), "{error}");
    assert!(stage.path("done").exists(), "it was not let finish");
}

#[tokio::test]
async fn metadata_is_asked_once_for_each_version_of_an_agent() {
    let stage = Stage::new().agent(OFF);
    for _ in 0..3 {
        stage.act(Act::Look).await.unwrap();
    }
    assert_eq!(stage.read("asked"), "asked\n");
    let stage = stage.agent("echo 'Status: ON'; exit 0");
    assert_eq!(stage.act(Act::Look).await.unwrap().power, Power::On);
    assert_eq!(stage.read("asked"), "asked\nasked\n");
}

#[tokio::test]
async fn an_agent_that_cannot_start_is_named() {
    let stage = Stage::new().raw("exit 0\n");
    std::fs::remove_file(stage.path("fence_test")).unwrap();
    let error = stage.act(Act::Look).await.unwrap_err();
    assert!(matches!(&error, DeviceError::NoAgent { agent, .. } if agent == "fence_test"), "{error}");
}

/// A successor that reads our intent waits for its deadline and no longer, whatever became of us.
#[tokio::test]
async fn the_deadline_is_kept_when_we_are_gone() {
    let stage = Stage::new().raw("sleep 20 & echo $! > ${0%/*}/pids; wait");
    let mut command = process::command(&stage.path("fence_test"), Duration::from_secs(1), "test");
    let status = command.status().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
    // Killed, but nobody has waited until it is gone.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let state = state(stage.read("pids").trim());
    assert!(state.is_empty() || state.starts_with("Z "), "{state}");
}
