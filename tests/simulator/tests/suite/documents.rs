//! The commands in the documentation work: each `pod-safety` command is typed in a served demonstration, in which a
//! node is lost, its fence device does not answer, and a pod of a StatefulSet waits for evidence.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use pod_safety_control_plane::{binary, tool};
use pod_safety_locks::documents::{TestedBy, commands, with_stand_ins};
use pod_safety_simulator::campaign::Plan;
use pod_safety_simulator::scenario::{parse, shipped as scenarios};
use pod_safety_simulator::serve::{Listener, gate};
use pod_safety_simulator::world::{LiveRun, Pace};
use serde_json::Value;
use tempfile::TempDir;

use crate::shipped::SHIPPED;

/// The incident of the documentation.
const INCIDENT: &str = "
nodes: 4
pods: 6
node-lifecycle: replace
fencing: { when: always }
heal-at: 3600s
faults:
  - { at: 18s, fault: deploy, workload: 0, replicas: 4, keeps-names: true, start-up: 5s, max-unavailable: 3 }
  - { at: 35s, fault: malfunction, node: 0, how: unreachable, for: 3000s }
  - { at: 40s, fault: cut-node, node: 0, for: 3000s }
";

/// Names in the documentation, and their counterparts in the incident. The name of the waiting pod is found at run
/// time.
const NAMES: [(&str, &str); 9] = [
    ("NODE", "node-0"),
    ("worker-a", "node-0"),
    ("worker-b", "node-1"),
    ("NS", "default"),
    ("shop", "default"),
    ("PDB", "shop-0"),
    ("api", "shop-0"),
    ("POD", WAITS),
    ("orders-1", WAITS),
];
/// The pod that waits for evidence, until its name is found.
const WAITS: &str = "the-pod-that-waits";

/// Its name in docs/simulator.md.
const KUBECONFIG: &str = "demo.kubeconfig";

/// Commands that go on until they are stopped.
const GO_ON: [&str; 3] = ["pod-safety ui", " -w", " --watch"];
/// For how long these are run.
const LOOK: &str = "5";
/// A command that takes so long hangs.
const HANGS: &str = "120";

/// A served demonstration, and a folder in which a person works.
pub(crate) struct Served {
    listener: Listener,
    home: TempDir,
}

impl Served {
    /// As `pod-safety demo --serve` does it; from `seconds` on simulated time runs twice as fast as real time.
    pub(crate) fn start(plan: &Plan, seconds: u64) -> Self {
        let from = Duration::from_secs(seconds);
        let pace = Pace { each: Duration::from_millis(40), speed: Some(2.0), from, ends: false };
        let mut plan = plan.clone();
        plan.with.furnished = true;
        let stage = LiveRun::open(&plan, SHIPPED, pace).unwrap();
        let (gate, visitors) = gate();
        let listener = Listener::start("127.0.0.1:0".parse().unwrap(), gate).unwrap();
        stage.serve(visitors);
        let (sender, tells) = std::sync::mpsc::channel();
        // A world stops when its snapshots are not read.
        std::thread::spawn(move || {
            while let Some(picture) = stage.wait() {
                if picture.at >= from {
                    let _heard = sender.send(());
                }
            }
        });
        tells.recv().unwrap();
        let home = TempDir::new().unwrap();
        std::fs::write(home.path().join(KUBECONFIG), listener.kubeconfig()).unwrap();
        std::fs::create_dir(home.path().join("bin")).unwrap();
        let served = Self { listener, home };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (binary, kubectl) = runtime.block_on(async { (binary().await.unwrap(), tool("kubectl").await.unwrap()) });
        for (name, program) in [("pod-safety", &binary), ("kubectl-pod_safety", &binary), ("kubectl", &kubectl)] {
            symlink(std::fs::canonicalize(program).unwrap(), served.bin().join(name)).unwrap();
        }
        served
    }

    fn bin(&self) -> PathBuf {
        self.home.path().join("bin")
    }

    /// Types a line into a shell, for as long as `timeout` lets it run.
    fn type_in(&self, line: &str, timeout: &str) -> Output {
        println!("$ {line}");
        let mut command = Command::new("timeout");
        command.args([timeout, "bash", "-o", "pipefail", "-c", line]).current_dir(self.home.path());
        let path = format!("{}:{}", self.bin().display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("HOME", self.home.path()).env("KUBECONFIG", self.home.path().join(KUBECONFIG));
        let output = command.stdin(Stdio::null()).output().unwrap();
        println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        output
    }

    /// The output of a command that answers: all is well, something blocks, or a part could not be checked.
    fn ask(&self, line: &str) -> Result<String, String> {
        let goes_on = GO_ON.iter().any(|part| line.contains(part));
        let output = self.type_in(line, if goes_on { LOOK } else { HANGS });
        let expected: &[i32] = if goes_on { &[124] } else { &[0, 3, 6] };
        let is_mute = output.stdout.is_empty() && output.stderr.is_empty();
        match output.status.code() {
            Some(code) if expected.contains(&code) && !is_mute => Ok(String::from_utf8(output.stdout).unwrap()),
            code => Err(format!("exit code {code:?}: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    pub(crate) fn answer(&self, line: &str) -> String {
        self.ask(line).unwrap()
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.answer(&format!("{line} -o json"))).unwrap()
    }
}

/// Without fencing, `status` reported the custom resources as missing; there was no StatefulSet, and no claim.
#[test]
fn bug_the_served_demonstration_lacked_objects_that_commands_read() {
    // A scenario without fencing, before the first fault.
    let mut plan = scenarios().unwrap().into_iter().find(|one| one.plan.with.fencing.is_none()).unwrap().plan;
    plan.faults.clear();
    plan.heal_at = 100_000;
    let served = Served::start(&plan, 60);
    let status = served.answer("pod-safety status");
    assert!(!status.contains("does not have") && !status.contains("not known"), "{status}");
    let doctor = served.answer("pod-safety doctor");
    // There is no kube-controller-manager, and neither clocks nor policies are those of a real cluster.
    let unchecked = doctor.lines().filter(|line| line.contains(": not checked"));
    const NOT_THERE: [&str; 2] = ["simulated", "KubeControllerManager"];
    let unchecked = unchecked.filter(|line| !NOT_THERE.iter().any(|known| line.contains(known)));
    let unchecked: Vec<_> = unchecked.collect();
    assert!(unchecked.is_empty() && !doctor.contains('✖') && !doctor.contains("missing: "), "{doctor}");
    let set = served.json("kubectl get sts data");
    assert_eq!(set["status"]["readyReplicas"], plan.pods, "{set}");
    assert_eq!(served.json("kubectl get pod data-0")["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
    assert_eq!(served.json("kubectl get pvc data-0")["status"]["phase"], "Bound");
    assert!(served.answer("kubectl get crds").contains("nodefences.pod-safety.dev"));
    let explained = served.answer("pod-safety explain statefulset data");
    assert!(explained.contains("statefulset/default/data") && explained.contains("data-0"), "{explained}");
    let explained = served.answer("pod-safety explain volume data-0");
    assert!(explained.contains("bound to persistentvolume/pvc-data-0"), "{explained}");
}

#[test]
fn every_pod_safety_command_of_the_documentation_is_answered() {
    let served = Served::start(&parse("incident.yaml", INCIDENT).unwrap().plan, 200);
    let waits = pod_that_waits(&served);
    println!("{waits} waits; {}", served.listener.url());
    let (mut typed, mut refused) = (BTreeSet::new(), Vec::new());
    for command in commands().unwrap().iter().filter(|command| command.tested_by == TestedBy::Demo) {
        let line = with_stand_ins(&with_stand_ins(&command.text, &NAMES), &[(WAITS, &waits), ("data-0", &waits)]);
        if typed.insert(line.clone()) {
            println!("{}", command.place);
            let answer = served.ask(&format!("{line}{}", rest_of(&line)));
            refused.extend(answer.err().map(|why| format!("{}: {line}: {why}", command.place)));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(typed.len() > 12, "{typed:?}");
    for there in ["node-0", "node-1", "-n default", "shop-0", &waits] {
        assert!(typed.iter().any(|line| line.contains(there)), "nothing names {there} any more");
    }
}

/// The confirmation that a person would type, as a flag; a free port; and the rest of a command that uses a variable
/// set before.
fn rest_of(line: &str) -> &'static str {
    match line {
        _ if line.contains(" confirm-down ") => " --confirm 'node-0 is off'",
        _ if line.contains(" fence ") && !line.contains("--dry-run") => " --confirm 'switch off node-0'",
        _ if line.starts_with("export ") => " && pod-safety status",
        _ if line.contains(" ui") => " --address 127.0.0.1:0",
        _ => "",
    }
}

fn pod_that_waits(served: &Served) -> String {
    let pods = served.json("kubectl get pods");
    let waits = |pod: &&Value| {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        name.starts_with("data-")
            && pod["spec"]["nodeName"] == "node-0"
            && pod["metadata"]["deletionTimestamp"].is_string()
    };
    let pod = pods["items"].as_array().unwrap().iter().find(waits);
    pod.unwrap()["metadata"]["name"].as_str().unwrap().to_owned()
}
