//! The trace of an incident, as a collector receives it: across a failover it stays one trace without duplicate spans; and a collector
//! that hangs delays no release.

use pod_safety_clock::Env;
use pod_safety_control_plane::objects::{NodeExt as _, PodExt as _};
use pod_safety_otlp::message::WireSpan;
use pod_safety_otlp::testing::Collector;

use super::*;

/// Two are lost; the others prevent that this counts as a large outage.
const MACHINES: usize = 6;
/// Spans of the last 5 s before a leader's last renewal are exported again by the next leader: the order takes longer than that.
const ORDER_TAKES: Duration = Duration::from_secs(9);
const QUIET: Duration = Duration::from_secs(7);
/// The spans of an incident, in the order of their ends. [`SWITCHED_ON`] is missing if the node is back before its power was checked: its
/// place is before the last one.
const STORY: [&str; 6] = ["detect", "gates", "order off", "evidence", "force delete", "incident"];
const SWITCHED_ON: &str = "order on";

/// A `fence_dummy` whose first order takes some time.
fn agent(agents: &Path, folder: &Path) {
    let script = format!(
        r#"#!/bin/sh
input=$(cat)
if printf '%s\n' "$input" | grep -q '^action=off' && [ ! -e "{folder}/began" ]; then
    touch "{folder}/began"
    sleep {seconds}
fi
printf '%s\n' "$input" | exec "{agents}/fence_dummy"
"#,
        agents = agents.display(),
        folder = folder.display(),
        seconds = ORDER_TAKES.as_secs(),
    );
    let path = folder.join("fence_dummy");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

/// Its kubelet stops reporting, and the Node is marked like by kube-controller-manager: the last heartbeat time stays.
async fn lose_node(api: &Client, machine: &Machine) {
    machine.cut_off().await;
    // Conditions have whole seconds, Leases have fractions.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let pod = format!("db-{}", machine.name);
    observe::delete_pod(api, NAMESPACE, &pod, false).await.unwrap();
    let mut conditions = objects::node(&machine.name).with_ready("Unknown").status.unwrap().conditions.unwrap();
    conditions.iter_mut().for_each(|one| one.last_heartbeat_time = None);
    let only = k8s_openapi::api::core::v1::NodeStatus { conditions: Some(conditions), ..Default::default() };
    objects::set_node_status(api, &machine.name, &only).await.unwrap();
}

struct Fixture {
    plane: ControlPlane,
    kubeconfig: PathBuf,
    agents: String,
    collector: Collector,
    machines: Vec<Arc<Machine>>,
    _rigs: Rigs,
    _kubelets: JoinSet<()>,
}

async fn pod(api: &Client, name: &str, node: &str) {
    let pod = objects::pod(NAMESPACE, name).on_node(node).owned_by_stateful_set("db", "uid-of-db");
    objects::create_pod(api, &pod).await.unwrap();
}

async fn fixture() -> Fixture {
    let rigs = Rigs::new().await.unwrap();
    let folder = rigs.file("");
    agent(&rigs.agents(), &folder);
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    plane.namespace(NAMESPACE).await.unwrap();
    let (mut kubelets, mut machines) = (JoinSet::new(), Vec::new());
    for number in 0..MACHINES {
        let name = format!("m{number}");
        std::fs::write(rigs.file(&name), "on").unwrap();
        let machine = Machine::of_file(&name, rigs.file(&name), "on");
        kubelets.spawn(Arc::clone(&machine).run_kubelet(plane.admin()));
        pod(&plane.admin(), &format!("db-{name}"), &name).await;
        machines.push(machine);
    }
    apply(&plane, &killed::device(&folder)).await;
    apply(&plane, &killed::policy(MACHINES)).await;
    let agents = format!("--fence-agents-path={}", folder.display());
    let collector = Collector::start(&Env::real(1)).await.unwrap();
    Fixture { plane, kubeconfig, agents, collector, machines, _rigs: rigs, _kubelets: kubelets }
}

impl Fixture {
    async fn start(&self, name: &str) -> PodSafety {
        let endpoint = format!("--otlp-endpoint={}", self.collector.url());
        let args = ["--controllers=pod-gc,fencing", &self.agents, "--allow-fence-dummy", &endpoint];
        let args = args.into_iter().chain(SHORT_LEADER_LEASE);
        self.plane.pod_safety(name, &self.kubeconfig, args).await.unwrap()
    }

    /// The spans of the node that the collector received.
    fn trace_of(&self, node: &str) -> Vec<WireSpan> {
        let all = self.collector.spans();
        let first = all.iter().find(|span| span.text("k8s.node.name").as_deref() == Some(node));
        let Some(trace) = first.map(|span| span.trace_id.clone()) else { return Vec::new() };
        all.into_iter().filter(|span| span.trace_id == trace).collect()
    }

    async fn until_recorded(&self, node: &str, name: &str) {
        wait_until(&format!("{name} of {node} is told"), async || {
            let names: Vec<_> = self.trace_of(node).into_iter().map(|span| span.name).collect();
            check_that(names.iter().any(|one| one == name), format!("{names:?}"))
        })
        .await;
    }
}

fn nanos(stamp: &Value) -> u64 {
    let at: Timestamp = stamp.as_str().unwrap().parse().unwrap();
    u64::try_from(at.as_nanosecond()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_incident_is_one_trace_across_a_failover_and_a_hung_collector_delays_nothing() {
    let fixture = fixture().await;
    let mut first = fixture.start("first").await;
    first.is_leader().await.unwrap();
    let mut second = fixture.start("second").await;
    second.ready().await.unwrap();
    a_leader_dies_in_the_middle(&fixture, &mut first).await;
    one_trace_has_each_span_once(&fixture).await;
    each_span_has_the_times_of_the_records(&fixture).await;
    a_collector_that_hangs_delays_no_release(&fixture).await;
    let failures = second.metric("pod_safety_trace_export_failures_total", &[]).await.unwrap();
    assert!(failures >= 1.0, "{failures}");
    let log = second.log_text();
    let complaints = log.lines().filter(|line| line.contains("spans cannot be exported")).count();
    assert_eq!(complaints, 1, "a line, not a flood");
    assert!(log.lines().any(|line| line.contains("event=\"pod_force_deleted\"")), "{log}");
}

async fn a_leader_dies_in_the_middle(fixture: &Fixture, first: &mut PodSafety) {
    let (plane, api) = (&fixture.plane, fixture.plane.admin());
    lose_node(&api, &fixture.machines[0]).await;
    wait_until("the order is written down", async || {
        let fence = node_fence_of(plane, "m0").await.ok_or("no incident")?;
        let status = &fence["status"];
        check_that(status["attempts"].as_array().is_some_and(|all| !all.is_empty()), status.to_string())
    })
    .await;
    fixture.until_recorded("m0", "gates").await;
    tokio::time::sleep(QUIET).await;
    first.kill_9().unwrap();
    until_released(plane, "db-m0").await;
    pod(&api, "db-m0", "m1").await;
    until_phase(plane, "m0", "Done").await;
    // Spans are exported in batches: one span does not imply another.
    for name in STORY.into_iter().chain(["taint", "successor ready"]) {
        fixture.until_recorded("m0", name).await;
    }
}

async fn one_trace_has_each_span_once(fixture: &Fixture) {
    let spans = fixture.trace_of("m0");
    let traces: BTreeSet<_> = fixture.collector.spans().into_iter().map(|span| span.trace_id).collect();
    assert_eq!(traces.len(), 1, "{spans:#?}");
    let ids: BTreeSet<_> = spans.iter().map(|span| span.span_id.clone()).collect();
    assert_eq!(ids.len(), spans.len(), "none is told twice: {spans:#?}");
    let tellers = fixture.collector.requests().into_iter().flat_map(|request| request.resource_spans);
    let tellers: BTreeSet<_> = tellers
        .map(|process| {
            let attributes = process.resource.unwrap().attributes;
            format!("{:?}", attributes.iter().find(|one| one.key == "service.instance.id"))
        })
        .collect();
    assert_eq!(tellers.len(), 2, "both leaders told of it: {tellers:?}");
    let root = spans.iter().find(|span| span.parent_span_id.is_empty()).unwrap();
    assert_eq!(root.name, "incident");
    let names: BTreeMap<_, _> = spans.iter().map(|span| (&span.span_id, &*span.name)).collect();
    for span in &spans {
        let parent = match &*span.name {
            "incident" => None,
            "status checks" => Some(&["order off", "order on"][..]),
            "successor ready" => Some(&["force delete"][..]),
            _ => Some(&["incident"][..]),
        };
        let named = names.get(&span.parent_span_id).copied();
        assert!(
            parent.is_none_or(|parents| named.is_some_and(|one| parents.contains(&one))),
            "{}: {named:?}",
            span.name
        );
        assert!(root.start_time_unix_nano <= span.start_time_unix_nano, "{}", span.name);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{}", span.name);
    }
    // There may be several orders, because the first leader died.
    let ends = |name: &str| spans.iter().filter(|span| span.name == name).map(|span| span.end_time_unix_nano).max();
    let times: Vec<_> = STORY.map(ends).into_iter().collect::<Option<_>>().unwrap();
    assert!(times.is_sorted(), "{STORY:?}: {times:?}");
    if let Some(on) = ends(SWITCHED_ON) {
        assert!(times[4] <= on && on <= times[5], "{STORY:?}: {times:?}, and {on}");
    }
}

async fn each_span_has_the_times_of_the_records(fixture: &Fixture) {
    let spans = fixture.trace_of("m0");
    let of = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let fence = node_fence_of(&fixture.plane, "m0").await.unwrap();
    let attempts = fence["status"]["attempts"].as_array().unwrap();
    assert_eq!(of("gates").start_time_unix_nano, nanos(&fence["metadata"]["creationTimestamp"]));
    assert_eq!(of("gates").end_time_unix_nano, nanos(&attempts[0]["at"]));
    let orders: BTreeSet<_> =
        spans.iter().filter(|span| span.name.starts_with("order ")).map(|span| span.start_time_unix_nano).collect();
    let verified = attempts.iter().filter(|attempt| attempt["verified"].is_object());
    let recorded: BTreeSet<u64> = verified.map(|attempt| nanos(&attempt["at"])).collect();
    assert_eq!(orders, recorded);
    // A node that boots again before an order was verified has renewed its Lease.
    let renewed =
        attempts.iter().map(|attempt| &attempt["verified"]["leaseRenewed"]).filter(|at| at.is_string()).map(nanos);
    let began = renewed.chain([nanos(&fence["metadata"]["creationTimestamp"])]).min().unwrap();
    let starts = (of("incident").start_time_unix_nano, of("detect").start_time_unix_nano);
    assert_eq!(starts, (began, began), "{fence:#}");
    let released = of("force delete");
    let api = fixture.plane.admin();
    let events = observe::events(&api, NAMESPACE, "db-m0", "ForceDeleted").await.unwrap();
    let event = serde_json::to_value(&events[0]).unwrap();
    assert_eq!(event["related"]["name"], "m0", "{event:#}");
    // The journal and the Event are written one after the other.
    assert!(released.end_time_unix_nano.abs_diff(nanos(&event["eventTime"])) < 1_000_000_000, "{event:#}");
    assert_eq!(released.text("k8s.pod.uid").as_deref(), event["involvedObject"]["uid"].as_str());
    let next = observe::find_pod(&api, NAMESPACE, "db-m0").await.unwrap().unwrap();
    let next = serde_json::to_value(&next).unwrap();
    let ready = next["status"]["conditions"].as_array().unwrap().iter().find(|one| one["type"] == "Ready").unwrap();
    let successor = of("successor ready");
    assert_eq!(successor.start_time_unix_nano, nanos(&next["metadata"]["creationTimestamp"]));
    assert_eq!(successor.end_time_unix_nano, nanos(&ready["lastTransitionTime"]));
    assert_eq!(successor.text("k8s.pod.uid").as_deref(), next["metadata"]["uid"].as_str());
    assert_eq!(successor.text("k8s.node.name").as_deref(), Some("m1"));
}

async fn a_collector_that_hangs_delays_no_release(fixture: &Fixture) {
    let (plane, api) = (&fixture.plane, fixture.plane.admin());
    fixture.collector.stop_responding();
    let requests = fixture.collector.heads().len();
    lose_node(&api, &fixture.machines[2]).await;
    wait_until("there is evidence", async || {
        let fence = node_fence_of(plane, "m2").await.ok_or("no incident")?;
        check_that(fence["status"]["evidence"].is_string(), fence["status"].to_string())
    })
    .await;
    assert!(fixture.collector.heads().len() > requests, "it hangs with a request in its hands");
    let proved = Instant::now();
    until_released(plane, "db-m2").await;
    // An export times out after 10 s: a release that waited for one would take longer.
    assert!(proved.elapsed() < Duration::from_secs(9), "released {:?} after the evidence", proved.elapsed());
    fixture.collector.set_response(200, Vec::new());
    fixture.until_recorded("m2", "force delete").await;
    let spans = fixture.trace_of("m2");
    let ids: BTreeSet<_> = spans.iter().map(|span| span.span_id.clone()).collect();
    assert_eq!(ids.len(), spans.len(), "{spans:#?}");
}
