//! Real `kubectl` on the simulated cluster.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pod_safety_control_plane::tool;
use pod_safety_simulator::scenario;
use stage::Stage;
use tempfile::TempDir;

use crate::documents::Served;
use crate::stage;

/// Far more than any command takes.
const LONG: Duration = Duration::from_secs(60);

/// kubectl without any configuration of a user.
struct Kubectl {
    program: PathBuf,
    server: String,
    home: TempDir,
}

impl Kubectl {
    fn new(stage: &Stage) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let program = runtime.block_on(tool("kubectl")).unwrap();
        Self { program, server: stage.listener.url(), home: TempDir::new().unwrap() }
    }

    fn command(&self, line: &str) -> Command {
        println!("$ kubectl {line}");
        let mut command = Command::new(&self.program);
        command.env("HOME", self.home.path()).env_remove("KUBECONFIG").stdin(Stdio::null());
        command.args(["--server", &self.server, "--request-timeout=30s"]).args(line.split_whitespace());
        command
    }

    /// Its output and errors, and whether it succeeds.
    fn try_run(&self, line: &str) -> (bool, String) {
        let output = self.command(line).output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        println!("{text}");
        (output.status.success(), text)
    }

    fn run(&self, line: &str) -> String {
        let (success, text) = self.try_run(line);
        assert!(success, "kubectl {line}: {text}");
        text
    }

    /// A command that goes on, and its lines as they come.
    fn start(&self, line: &str) -> (Running, std::sync::mpsc::Receiver<String>) {
        let mut command = self.command(line);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        (Running(child), lines)
    }
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The columns of a table, with its header.
fn table_cells(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn kubectl_gets() {
    let stage = Stage::start();
    let kubectl = Kubectl::new(&stage);
    let pods = kubectl.run("get pods");
    assert_eq!(table_cells(&pods)[0], ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    assert_eq!(table_cells(&pods)[1][..4], ["web-0", "1/1", "Running", "0"]);
    let wide = kubectl.run("get po -A -o wide");
    assert_eq!(table_cells(&wide)[2][..2], ["default", "web-1"]);
    assert!(table_cells(&wide)[2].contains(&"node-1"));
    assert_eq!(table_cells(&kubectl.run("get no"))[1][..3], ["node-1", "Ready", "worker"]);
    assert_eq!(table_cells(&kubectl.run("get leases -n kube-node-lease"))[1][..2], ["node-1", "node-1"]);
    assert!(kubectl.run("get events").contains("no proof that its processes ended"));
    assert!(kubectl.run("events --for pod/web-1").contains("no proof that its processes ended"));
    assert!(kubectl.run("get all,pdb,pv,pvc,ns").contains("kube-node-lease"));
    let yaml = kubectl.run("get pod web-0 -o yaml");
    assert!(yaml.starts_with("apiVersion: v1\nkind: Pod\nmetadata:\n") && yaml.contains("  nodeName: node-1\n"));
    assert!(kubectl.run("get pods -l app=web -o yaml").contains("kind: List"));
    assert_eq!(kubectl.run("get pods --field-selector metadata.name=web-1 -o name"), "pod/web-1\n");
    assert!(kubectl.run("api-resources").contains("nodefences"));
    assert!(kubectl.run("version").contains("v1.37"));
    let (success, text) = kubectl.try_run("get pod nobody");
    assert!(!success && text.contains("Error from server (NotFound): pods \"nobody\" not found"), "{text}");
    let (success, text) = kubectl.try_run("get secrets");
    assert!(!success && text.contains("the server doesn't have a resource type \"secrets\""), "{text}");
    assert!(stage.etcd.unimplemented().is_empty(), "{:?}", stage.etcd.unimplemented());
}

#[test]
fn kubectl_describes() {
    let stage = Stage::start();
    let kubectl = Kubectl::new(&stage);
    for (line, expected) in [
        ("describe pod web-1", &["Node: node-1/", "Status: Running", "Held", "no proof that its processes ended"][..]),
        ("describe node node-1", &["Roles: worker", "HolderIdentity: node-1", "web-0", "web-1"][..]),
    ] {
        let text = kubectl.run(line);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for wanted in expected {
            assert!(text.contains(wanted), "{wanted:?} is not in {text}");
        }
    }
    assert!(stage.etcd.unimplemented().is_empty(), "{:?}", stage.etcd.unimplemented());
}

#[test]
fn kubectl_watches_a_pod_that_another_deletes() {
    let stage = Stage::start();
    let kubectl = Kubectl::new(&stage);
    let (_running, lines) = kubectl.start("get pods -w");
    let next = || lines.recv_timeout(LONG).inspect(|line| println!("| {line}")).unwrap();
    assert_eq!(next().split_whitespace().next(), Some("NAME"));
    assert!(next().starts_with("web-0") && next().starts_with("web-1"));
    let began = Instant::now();
    let output = kubectl.run("delete pod web-0");
    assert!(output.contains("pod \"web-0\" deleted"), "{output}");
    assert!(began.elapsed() < LONG, "it waits until the pod is gone, no longer");
    assert!(stage.etcd.object("Pod", "default/web-0").is_none());
    let change = next();
    assert!(change.starts_with("web-0") && change.contains("Terminating"), "{change}");
    assert!(stage.server.open_watches() >= 1, "the watch goes on");
    let output = kubectl.run("delete pod web-1 --force --grace-period=0");
    assert!(output.contains("pod \"web-1\" force deleted"), "{output}");
    assert!(kubectl.run("get pods").contains("No resources found"));
}

#[test]
fn kubectl_writes() {
    let stage = Stage::start();
    let kubectl = Kubectl::new(&stage);
    kubectl.run("label pod web-0 tier=front");
    kubectl.run("annotate pod web-0 note=seen");
    assert!(kubectl.run("get pods -L tier").contains("front"));
    kubectl.run("cordon node-1");
    kubectl.run("taint node node-1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute");
    let nodes = kubectl.run("get nodes");
    assert!(nodes.contains("Ready,SchedulingDisabled"), "{nodes}");
    assert_eq!(stage.etcd.object("Node", "node-1").unwrap()["spec"]["taints"][0]["value"], "nodeshutdown");
    assert!(stage.etcd.unimplemented().is_empty(), "{:?}", stage.etcd.unimplemented());
}

#[test]
fn kubectl_waits_while_time_stands_still() {
    let stage = Stage::start();
    let kubectl = Kubectl::new(&stage);
    stage.stand(true);
    // The loop may be in the middle of its last turn.
    std::thread::sleep(Duration::from_millis(50));
    let (_running, lines) = kubectl.start("get pods -o name");
    assert!(lines.recv_timeout(Duration::from_millis(500)).is_err());
    stage.stand(false);
    assert_eq!(lines.recv_timeout(LONG).unwrap(), "pod/web-0");
}

/// The default scenario as the demonstration serves it, after the database was released.
fn demonstration() -> Served {
    Served::start(&scenario::shipped().unwrap()[0].plan, 200)
}

/// It printed NAME and AGE, without the columns of the definitions.
#[test]
fn bug_kubectl_showed_no_columns_of_our_kinds_in_the_served_demonstration() {
    let served = demonstration();
    let kubectl = |line: &str| served.answer(&format!("kubectl {line}"));
    for crd in pod_safety_shared::api::crds() {
        let plural = crd["spec"]["names"]["plural"].as_str().unwrap().to_owned();
        if plural.starts_with("podsafetyremediation") {
            continue; // Nobody made one, and kubectl prints no heads for nothing.
        }
        let columns = crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap();
        let shown = columns.iter().filter(|column| column["priority"].as_i64().unwrap_or(0) == 0);
        let heads = shown.map(|column| column["name"].as_str().unwrap().to_uppercase());
        let heads: Vec<String> = ["NAMESPACE", "NAME"].into_iter().map(str::to_owned).chain(heads).collect();
        let printed = kubectl(&format!("get {plural} -A"));
        let namespaced = usize::from(crd["spec"]["scope"] != "Namespaced");
        assert_eq!(table_cells(&printed)[0], heads[namespaced..], "{plural}");
    }
    let fences = kubectl("get nodefences");
    assert!(table_cells(&fences)[1].contains(&"node-0"), "{fences}");
    let evidence = kubectl("get fe");
    assert!(table_cells(&evidence)[1].contains(&"node-0"), "{evidence}");
}

/// `status` did not show the mode, and counted no standby.
#[test]
fn bug_the_pods_of_pod_safety_were_not_shown_in_the_served_demonstration() {
    let served = demonstration();
    let kubectl = |line: &str| served.answer(&format!("kubectl {line}"));
    let pods = kubectl("get pods -A -l app.kubernetes.io/name=pod-safety");
    assert_eq!(table_cells(&pods).len(), 3, "{pods}");
    let yaml = kubectl("get pods -A -l app.kubernetes.io/name=pod-safety -o yaml");
    assert!(yaml.contains("- --mode=replace\n") && yaml.contains("name: replica-0.1\n"), "{yaml}");
    assert!(!kubectl("get pods -A").contains("replica-"), "they are no pods of the simulated nodes");
    let status = served.answer("pod-safety status");
    assert!(status.contains("mode replace") && status.contains(", 1 standby"), "{status}");
    let doctor = served.answer("pod-safety doctor");
    assert!(!doctor.contains('✖') && doctor.contains("this cluster is simulated"), "{doctor}");
}
