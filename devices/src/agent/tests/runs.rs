//! The environment of a run, and its end.

use super::super::process;
use pod_safety_transport::{FenceTransport as _, Identity};

use super::*;

const OFF: &str = "echo 'Status: OFF'; exit 2";

#[tokio::test]
async fn an_agent_gets_its_input_no_arguments_and_a_minimal_environment() {
    let fixture = AgentFixture::new().agent(&format!(
        "echo $# > \"$here/arguments\"; tr '\\0' '\\n' < /proc/$$/environ > \"$here/environment\"; {OFF}"
    ));
    let answer = fixture.act(Act::Look).await.unwrap();
    assert_eq!((answer.power, answer.identity), (Power::Off, Identity::Unknown));
    assert_eq!(fixture.read("arguments"), "0\n");
    // Flags that are false are left out, except the one that is read by its value.
    let input = format!("ip=192.0.2.1\nlanplus=0\npassword={SECRET}\nnodename=node-1\naction=status\n");
    assert_eq!(fixture.read("stdin"), input);
    let environment = fixture.read("environment");
    let names: Vec<_> = environment.lines().filter_map(|line| line.split('=').next()).collect();
    assert_eq!(names, ["LC_ALL", "PATH", "POD_SAFETY_FENCE_RUN", "PYTHONWARNINGS"], "{environment}");
    assert!(environment.contains("LC_ALL=C\n") && environment.contains("PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"));
}

/// The report of an agent is not older than the moment when it read its input.
#[tokio::test]
async fn bug_an_answer_was_dated_from_the_start_of_the_agent() {
    // It prints its metadata at once, and later starts slowly.
    let slowly = "if [ -e \"$here/asked\" ]; then sleep 2; fi";
    let fixture = AgentFixture::new().agent_that_starts(slowly, &format!("sleep 1; {OFF}"));
    let env = Env::real(1);
    let began = env.now();
    let answer = fixture.act(Act::Look).await.unwrap();
    let age = env.now().since(began) - answer.asked_after;
    assert!(age >= Duration::from_secs(1), "it asks its device after it has read: {age:?}");
    // Two seconds; on a busy machine the last check of its input may be some time before.
    assert!(answer.asked_after >= Duration::from_millis(500), "{answer:?}");
}

#[tokio::test]
async fn each_act_has_its_action() {
    for (act, action) in [(Act::Off, "off"), (Act::On, "on"), (Act::Look, "status")] {
        let fixture = AgentFixture::new().agent("echo Success; exit 0");
        fixture.act(act).await.unwrap();
        assert!(fixture.read("stdin").ends_with(&format!("\naction={action}\n")));
    }
}

/// One in the agent's group, one there without an environment, one in a session of its own, one whose parent has
/// ended.
pub(crate) const CHILDREN: &str = "sleep 300 & echo $! >> \"$here/pids\"
env -i sleep 300 & echo $! >> \"$here/pids\"
setsid sh -c 'echo $$ >> \"$0/pids\"; exec sleep 300' \"$here\" &
(setsid sh -c 'echo $$ >> \"$0/pids\"; exec sleep 300 >/dev/null 2>&1 </dev/null' \"$here\" &) &
while [ $(wc -l < \"$here/pids\") -lt 4 ]; do sleep 0.01; done; sleep 0.1";

pub(crate) async fn assert_all_dead(fixture: &AgentFixture) {
    let pids = fixture.read("pids");
    assert_eq!(pids.lines().count(), 4);
    for pid in pids.lines() {
        assert_dead(pid).await;
    }
}

/// A killed process ends when it gets a processor, which may be late on a busy machine: it is checked this often, for
/// a minute. Otherwise it would sleep for five.
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
    // Its parent must reap it, whose PID follows the state: if that is this process, it does.
    let ours = state.starts_with(&format!("Z {} ", std::process::id()));
    assert!(!runs(&state) && !ours, "{pid} lives: {state}");
}

/// The fields after its name, which is in parentheses; `Z` is a process that has ended and is not reaped yet.
fn state(pid: &str) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn no_process_is_left_after_the_deadline() {
    let fixture = AgentFixture::new().agent(&format!("{CHILDREN}\necho $$ > \"$here/agent\"; sleep 300"));
    let within = Duration::from_secs(4);
    let answer = fixture.devices.carry_out(order(Act::Off, within)).await;
    assert_eq!(answer, Err(DeviceError::TimedOut { after: within }));
    assert_all_dead(&fixture).await;
    assert_dead(fixture.read("agent").trim()).await;
}

#[tokio::test]
async fn no_process_is_left_after_the_future_is_dropped() {
    let fixture = AgentFixture::new().agent(&format!("{CHILDREN}\ntouch \"$here/ready\"; sleep 300"));
    let ready = async {
        while !fixture.path("ready").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let order = fixture.devices.carry_out(order(Act::Off, Duration::from_secs(60)));
    // The loser is dropped at the end of this statement.
    let dropped = futures::future::select(order, Box::pin(ready)).await;
    let futures::future::Either::Right(((), order)) = dropped else { panic!("it ended") };
    drop(order);
    assert_all_dead(&fixture).await;
}

#[tokio::test]
async fn leftover_processes_of_an_agent_are_killed_and_reported() {
    let fixture = AgentFixture::new().agent(&format!("{CHILDREN}\n{OFF}"));
    let answer = fixture.act(Act::Look).await.unwrap();
    assert_eq!(answer.power, Power::Off);
    assert!(answer.said.contains("left 4 processes behind"), "{}", answer.said);
    assert_all_dead(&fixture).await;
}

#[tokio::test]
async fn an_agent_that_never_reads_its_input_does_not_block() {
    let text = "if [ ! -e ${0%/*}/again ]; then touch ${0%/*}/again; cat <<'END'\nMETADATA\nEND\nexit 0; fi; echo 'Status: ON'; exit 0";
    let fixture = AgentFixture::new().raw(&text.replace("METADATA", super::METADATA));
    assert_eq!(fixture.act(Act::Look).await.unwrap().power, Power::On);
}

#[tokio::test]
async fn an_output_of_ten_megabytes_is_read_and_not_kept() {
    let fixture = AgentFixture::new().agent("head -c 10000000 /dev/zero | tr '\\0' x; touch \"$here/done\"; exit 0");
    let error = fixture.act(Act::Off).await.unwrap_err();
    assert!(matches!(&error, DeviceError::Garbage { said } if said.len() < 200), "{error}");
    assert!(fixture.path("done").exists(), "it was not let finish");
}

#[tokio::test]
async fn metadata_is_read_once_for_each_version_of_an_agent() {
    let fixture = AgentFixture::new().agent(OFF);
    for _ in 0..3 {
        fixture.act(Act::Look).await.unwrap();
    }
    assert_eq!(fixture.read("asked"), "asked\n");
    let fixture = fixture.agent("echo 'Status: ON'; exit 0");
    assert_eq!(fixture.act(Act::Look).await.unwrap().power, Power::On);
    assert_eq!(fixture.read("asked"), "asked\nasked\n");
}

#[tokio::test]
async fn an_agent_that_cannot_start_is_an_error_that_names_it() {
    let fixture = AgentFixture::new().raw("exit 0\n");
    std::fs::remove_file(fixture.path("fence_test")).unwrap();
    let error = fixture.act(Act::Look).await.unwrap_err();
    assert!(matches!(&error, DeviceError::NoAgent { agent, .. } if agent == "fence_test"), "{error}");
}

/// The next leader waits for the deadline of a recorded intent and no longer, whatever happened to this process.
#[tokio::test]
async fn the_deadline_is_enforced_after_this_process_was_killed() {
    let fixture = AgentFixture::new().raw("sleep 20 & echo $! > ${0%/*}/pids; wait");
    let part = process::command(&fixture.path("fence_test"), Duration::from_millis(1_200), "test");
    assert!(part.get_args().any(|argument| argument == "2"), "zero would be no limit: {part:?}");
    let mut command = process::command(&fixture.path("fence_test"), Duration::from_secs(1), "test");
    let status = command.status().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status}");
    // It was killed, and nothing has waited until it is gone.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let state = state(fixture.read("pids").trim());
    assert!(state.is_empty() || state.starts_with("Z "), "{state}");
}
