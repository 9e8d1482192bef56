//! Tests of the harness itself: the properties that the other suites rely on.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, PostParams, WatchParams};
use kube::{Api, Client};
use pod_safety_control_plane::objects::{self, NodeExt as _, PodExt as _};
use pod_safety_control_plane::{ControlPlane, Error, Options, check_that, tool, wait_until};

async fn start() -> Result<ControlPlane, Error> {
    ControlPlane::start(Options::default()).await
}

fn pods(client: &Client, namespace: &str) -> Api<Pod> {
    Api::namespaced(client.clone(), namespace)
}

/// The HTTP code of the API server's refusal.
fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("expected a refusal by the API server, not {other:?}"),
    }
}

/// The programs of the control plane in `folder`: its working directory.
fn programs_in(folder: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let inside = processes.filter(|path| std::fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd == folder));
    inside.filter_map(|path| std::fs::read_to_string(path.join("comm")).ok()).collect()
}

#[tokio::test]
async fn a_pod_survives_a_crash_of_the_api_server() {
    tool("etcd").await.unwrap();
    let began = Instant::now();
    let mut plane = start().await.unwrap();
    println!("started in {:?}", began.elapsed());

    let pod = objects::pod("default", "db-0").on_node("ghost").with_phase("Running").with_finalizer("example.com/hold");
    let created = objects::create_pod(&plane.admin(), &pod).await.unwrap();
    assert_eq!(created.status.unwrap().phase.as_deref(), Some("Running"));

    let began = Instant::now();
    plane.restart_apiserver().await.unwrap();
    println!("restarted in {:?}", began.elapsed());
    let existing = pods(&plane.admin(), "default").get("db-0").await.unwrap();
    assert_eq!(existing.metadata.uid, created.metadata.uid);
}

#[tokio::test]
async fn nothing_is_left_when_a_control_plane_is_dropped() {
    let mut plane = start().await.unwrap();
    let manager = plane.kube_controller_manager("pod-garbage-collector-controller", &[]).await.unwrap();
    let folder = folder_of(&plane);
    assert!(plane.apiserver().unwrap().rss_peak_kib().unwrap() > 50_000);
    assert!(manager.cpu_seconds().unwrap() > 0.0);
    assert!(manager.metrics().await.unwrap().contains("process_cpu_seconds_total"));
    assert_eq!(programs_in(&folder).len(), 3, "{:?}", programs_in(&folder));

    plane.apiserver().unwrap().pause().unwrap(); // a stopped process must be killed too
    drop(plane);
    assert!(folder.exists(), "the manager still writes its log");
    drop(manager);
    assert_eq!(programs_in(&folder), Vec::<String>::new());
    assert!(!folder.exists(), "{} is still there", folder.display());
}

#[tokio::test]
async fn a_failing_test_keeps_its_logs_and_leaves_no_process() {
    // The plane is started here and dropped by a task that panics, like a failing test.
    let plane = start().await.unwrap();
    let folder = folder_of(&plane);
    let failing = tokio::spawn(async move {
        let _plane = plane;
        panic!("this is what a failed assertion looks like");
    });
    assert!(failing.await.unwrap_err().is_panic());
    assert_eq!(programs_in(&folder), Vec::<String>::new());
    let log = std::fs::metadata(folder.join("logs/kube-apiserver.log")).unwrap();
    assert!(log.len() > 0);
    assert!(!folder.join("pki").exists(), "keys are no logs");
    std::fs::remove_dir_all(folder).unwrap();
}

fn folder_of(plane: &ControlPlane) -> PathBuf {
    plane.admin_kubeconfig().ancestors().nth(2).map(Path::to_owned).unwrap_or_default()
}

/// Not a test: the next test runs it in a separate process and kills it.
#[tokio::test]
#[ignore = "runs for ever; started and killed by another test"]
async fn a_test_that_is_killed() {
    let plane = start().await.unwrap();
    std::fs::write(std::env::var_os(KILLED_TEST).unwrap(), folder_of(&plane).to_string_lossy().as_bytes()).unwrap();
    std::future::pending::<()>().await;
}

/// The file into which the killed test writes the path of its folder.
const KILLED_TEST: &str = "POD_SAFETY_TEST_VICTIM";

#[tokio::test]
async fn a_killed_test_process_leaves_no_process() {
    let note = tempfile::NamedTempFile::new().unwrap();
    let mut victim = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "harness::a_test_that_is_killed"])
        .env(KILLED_TEST, note.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let folder = wait_until("the victim has started", async || {
        let folder = std::fs::read_to_string(note.path()).unwrap();
        if folder.is_empty() { Err("no note") } else { Ok(PathBuf::from(folder)) }
    })
    .await;
    assert_eq!(programs_in(&folder).len(), 2);
    victim.kill().await.unwrap();
    let gone = async || check_that(programs_in(&folder).is_empty(), format!("{:?}", programs_in(&folder)));
    wait_until("its programs are gone", gone).await;
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn programs_end_on_signal_and_errors_show_the_end_of_the_log() {
    let plane = start().await.unwrap();
    let shell = Path::new("/bin/sh");
    let mut broken = plane.program("broken", shell, ["-c", "echo no such database; exit 3"], &[]).unwrap();
    let error = broken.wait_for("serve", async || Err("connection refused".to_owned())).await.unwrap_err();
    let text = format!("{error:?}");
    assert!(text.contains("broken ended (exit status: 3)") && text.contains("no such database"), "{text}");

    // Processes that a program starts belong to its group and are killed with it.
    let mut parent = plane.program("parent", shell, ["-c", "sleep 4713 & exit 0"], &[]).unwrap();
    assert!(parent.wait_exit().await.unwrap().success());
    let gone = async || check_that(programs_in(&folder_of(&plane)).len() == 2, "still sleeping");
    wait_until("the grandchild is gone", gone).await;

    let mut polite = plane.program("polite", Path::new("/bin/sleep"), ["4714"], &[]).unwrap();
    assert!(!polite.terminate().await.unwrap().success());
    assert!(polite.pause().is_err(), "an ended program cannot be signalled");
}

#[tokio::test]
async fn loaded_objects_look_like_created_ones() {
    let plane = start().await.unwrap();
    let counts = ["-nodes", "5", "-pods", "100", "-pdbs", "5", "-orphans", "7", "-ghosts", "2", "-terminated", "3"];
    let output = plane.loader(&counts).await.unwrap();
    assert!(output.starts_with("wrote 130 objects"), "{output}");

    let admin = plane.admin();
    let everything = ListParams::default();
    let loaded = pods(&admin, "load").list(&everything).await.unwrap().items;
    assert_eq!(loaded.len(), 110);
    assert_eq!(Api::<Node>::all(admin.clone()).list(&everything).await.unwrap().items.len(), 5);
    let budgets = Api::<PodDisruptionBudget>::namespaced(admin.clone(), "load");
    assert_eq!(budgets.list(&everything).await.unwrap().items.len(), 5);

    let with = |test: &dyn Fn(&Pod) -> bool| loaded.iter().filter(|pod| test(pod)).count();
    let node = |pod: &Pod| pod.spec.clone().unwrap().node_name.unwrap();
    let phase = |pod: &Pod| pod.status.clone().unwrap().phase.unwrap();
    assert_eq!(with(&|pod| node(pod).starts_with("ghost-")), 7);
    assert_eq!(with(&|pod| node(pod) == "node-0" && phase(pod) == "Running"), 20);
    assert_eq!(with(&|pod| phase(pod) == "Succeeded"), 3);
    for pod in &loaded {
        let uid = pod.metadata.uid.as_deref().unwrap();
        assert!(is_canonical_uuid(uid), "{uid}");
    }
    let size = serde_json::to_vec(&loaded[0]).unwrap().len();
    println!("a loaded pod has {size} bytes of JSON");
    assert!((5_000..9_000).contains(&size), "not the size of a real pod: {size}");

    // The API server can change and delete them: the stored objects pass its validation.
    objects::set_pod_status(&admin, "load", "p-0", &objects::pod("load", "p-0").with_phase("Failed").status.unwrap())
        .await
        .unwrap();
    pods(&admin, "load").delete("p-0", &DeleteParams::default()).await.unwrap();
    assert_eq!(code(pods(&admin, "load").get("p-0").await), 404);

    let again = plane.loader(&["-pods", "100"]).await.unwrap_err().to_string();
    assert!(again.contains("exists; choose another -prefix"), "{again}");
    plane.loader(&["-pods", "3", "-prefix", "more"]).await.unwrap();
    let usage = plane.loader(&["-pods", "-1"]).await.unwrap_err().to_string();
    assert!(usage.contains("exit status: 2") && usage.contains("cannot be negative"), "{usage}");
}

fn is_canonical_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f')))
}

#[tokio::test]
async fn a_service_account_has_no_rights_until_it_is_given_some() {
    let plane = start().await.unwrap();
    let kubeconfig = plane.service_account("pod-safety", "controller").await.unwrap();
    let client = plane.client(&kubeconfig).await.unwrap();
    assert_eq!(code(pods(&client, "default").list(&ListParams::default()).await), 403);

    // A separate role: the built-in "view" is empty until kube-controller-manager aggregates it.
    for grant in [
        ["create", "clusterrole", "reader", "--verb=list", "--resource=pods"],
        ["create", "clusterrolebinding", "reader", "--clusterrole=reader", "--serviceaccount=pod-safety:controller"],
    ] {
        plane.kubectl(&grant).await.unwrap().text().unwrap();
    }
    wait_until("the role is in force", async || pods(&client, "default").list(&ListParams::default()).await).await;
    let create = pods(&client, "default").create(&PostParams::default(), &objects::pod("default", "p")).await;
    assert_eq!(code(create), 403);
    // A second call for the same account finds it existing.
    plane.service_account("pod-safety", "controller").await.unwrap();
}

#[tokio::test]
async fn users_have_their_names_and_groups() {
    let plane = start().await.unwrap();
    let kubeconfig = plane.user_kubeconfig("alice", &["oncall", "system:masters"]).unwrap();
    let path = kubeconfig.to_string_lossy();
    let whoami = ["--kubeconfig", &*path, "auth", "whoami", "-o", "json"];
    let output = plane.kubectl(&whoami).await.unwrap().text().unwrap();
    for expected in ["alice", "oncall", "system:masters", "system:authenticated"] {
        assert!(output.contains(&format!("\"{expected}\"")), "no {expected} in {output}");
    }
    assert!(matches!(plane.user_kubeconfig("bob", &["a", "b", "c"]), Err(Error::Groups(3))));

    let stranger = plane.user_kubeconfig("mallory", &[]).unwrap();
    let client = plane.client(&stranger).await.unwrap();
    assert_eq!(code(pods(&client, "default").get("any").await), 403);
}

#[tokio::test]
async fn a_compaction_causes_410_gone() {
    let options = Options { watch_cache: false, ..Options::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let pods = pods(&plane.admin(), "default");
    let mut old = None;
    for i in 0..3 {
        let pod = objects::create_pod(&plane.admin(), &objects::pod("default", &format!("p-{i}"))).await.unwrap();
        old = old.or(pod.metadata.resource_version);
    }
    let page = pods.list(&ListParams::default().limit(1)).await.unwrap();
    pods.delete("p-2", &DeleteParams::default()).await.unwrap();
    plane.compact().await.unwrap();

    let next = ListParams::default().limit(1).continue_token(&page.metadata.continue_.unwrap());
    assert_eq!(code(pods.list(&next).await), 410);
    assert_eq!(first_watch_error(&pods, &old.unwrap()).await, 410);
}

/// A restart also clears the API server's watch cache.
#[tokio::test]
async fn watches_older_than_a_compaction_restart_after_a_server_restart() {
    let mut plane = start().await.unwrap();
    let pods = pods(&plane.admin(), "default");
    let pod = objects::create_pod(&plane.admin(), &objects::pod("default", "p-0")).await.unwrap();
    objects::create_pod(&plane.admin(), &objects::pod("default", "p-1")).await.unwrap();
    plane.compact().await.unwrap();
    plane.restart_apiserver().await.unwrap();
    assert_eq!(first_watch_error(&pods, &pod.metadata.resource_version.unwrap()).await, 410);
}

/// The code of the first ERROR event of a watch, or of its refusal.
async fn first_watch_error(pods: &Api<Pod>, version: &str) -> u16 {
    use futures::TryStreamExt as _;
    let watch = match pods.watch(&WatchParams::default().timeout(5), version).await {
        Ok(watch) => watch,
        Err(kube::Error::Api(status)) => return status.code,
        Err(error) => panic!("{error}"),
    };
    let mut watch = std::pin::pin!(watch);
    while let Some(event) = watch.try_next().await.unwrap() {
        if let kube::api::WatchEvent::Error(status) = event {
            return status.code;
        }
    }
    0
}

#[tokio::test]
async fn a_paused_api_server_hangs_until_resumed() {
    let mut plane = start().await.unwrap();
    let pods = pods(&plane.admin(), "default");
    plane.apiserver().unwrap().pause().unwrap();
    let call = tokio::time::timeout(Duration::from_millis(500), pods.list(&ListParams::default())).await;
    assert!(call.is_err(), "a paused server answered");
    plane.apiserver().unwrap().resume().unwrap();
    wait_until("it answers again", async || pods.list(&ListParams::default()).await).await;
}

#[tokio::test]
async fn the_scheduler_and_the_controller_manager_run() {
    let plane = start().await.unwrap();
    let admin = plane.admin();
    let _scheduler = plane.kube_scheduler(&[]).await.unwrap();
    let _manager = plane.kube_controller_manager("nodelifecycle,statefulset", &[]).await.unwrap();
    objects::create_node(&admin, &objects::node("node-a").with_boot_id("b0000000-0000-4000-8000-000000000007"))
        .await
        .unwrap();
    objects::renew_lease(&admin, "node-a").await.unwrap();
    objects::renew_lease(&admin, "node-a").await.unwrap();
    plane.kubectl_with(&["apply", "-f", "-"], STATEFUL_SET).await.unwrap().text().unwrap();
    wait_until("db-0 is bound to node-a", async || {
        let pod = pods(&admin, "default").get("db-0").await.map_err(|error| error.to_string())?;
        let node = pod.spec.and_then(|spec| spec.node_name);
        check_that(node.as_deref() == Some("node-a"), format!("bound to {node:?}"))
    })
    .await;
}

const STATEFUL_SET: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 1
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: main, image: registry.example/main:1}]}
";

#[tokio::test]
async fn pods_can_be_bound_as_the_scheduler_does() {
    let plane = start().await.unwrap();
    let admin = plane.admin();
    objects::create_pod(&admin, &objects::pod("default", "p").with_label("app", "p").with_grace(5)).await.unwrap();
    objects::bind_pod(&admin, "default", "p", "anywhere").await.unwrap();
    let pod = pods(&admin, "default").get("p").await.unwrap();
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("anywhere"));
}
