//! Objects in a status that no device of that status can have created.

use super::*;

/// The owner is named by the object and by the status: both may be forged.
fn in_store(path: &str) -> Store {
    let store = Store::default();
    let meta = json!({ "uid": "u", "resourceVersion": "1", "annotations": { "pod-safety.dev/fence": "uid-nf" },
        "ownerReferences": [{ "uid": "uid-nf" }] });
    store.put(path, json!({ "metadata": meta }));
    store
}

fn forged(driver: DeviceDriver, path: &str) -> crate::api::Attempt {
    let (path, uid) = (path.to_owned(), "uid-nf".to_owned());
    let object = TargetObject { device: bmc(), driver, path, uid, matched: false, cidrs: Vec::new(), storage: None };
    crate::api::Attempt { objects: vec![object], ..tried("off").attempts.pop().unwrap() }
}

const EXTERNAL: [&str; 13] = [
    "/api/v1/namespaces/fencing/pods/n",
    "/api/v1/namespaces/fencing/secrets/n",
    "/api/v1/nodes/n-2",
    "/apis/apps/v1/namespaces/fencing/statefulsets/n",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/fencing/roles/n",
    "/apis/k8s.io/v1/namespaces/fencing/fars/n",
    "/apis/pod-safety.dev/v1alpha1/namespaces/fencing/fencedevices/n",
    "/apis/far.medik8s.io/v1/namespaces/elsewhere/fars/n",
    "/apis/far.medik8s.io/v1/namespaces/fencing/fars/m",
    "/apis/far.medik8s.io/v1/namespaces/fencing/fars/n/status",
    "/apis/far.medik8s.io/v1/namespaces/fencing/fars",
    "/apis/far.medik8s.io/v1/fars/n",
    "/apis/far.medik8s.io/v1/namespaces/fencing/../../secrets/n",
];

const NETWORK: [&str; 5] = [
    "/api/v1/namespaces/fencing/secrets/n",
    "/apis/csiaddons.openshift.io/v1alpha1/networkfenceclasses/n",
    "/apis/csiaddons.openshift.io/v1alpha1/networkfences/m-1",
    "/apis/csiaddons.openshift.io/v1alpha1/networkfences/n/status",
    "/apis/csiaddons.openshift.io/v1alpha1/networkfences/../../../../api/v1/nodes/n",
];

const MACHINES: [&str; 3] = [
    "/api/v1/namespaces/fencing/secrets/n",
    "/apis/cluster.x-k8s.io/v1beta2/namespaces/capi/clusters/c",
    "/apis/example.com/v1/namespaces/capi/machines/m",
];

const HOSTS: [&str; 3] = [
    "/apis/metal3.io/v1alpha1/namespaces/capi/hostfirmwaresettings/h",
    "/apis/metal3.io/v1alpha1/namespaces/capi/baremetalhosts/h/status",
    "/apis/metal3.io/v1alpha1/namespaces/capi/baremetalhosts/..",
];

const CLAIMS: [&str; 2] = ["/apis/karpenter.sh/v1/nodepools/n", "/apis/karpenter.sh/v1/nodeclaims/../nodes/n"];

const WATCHDOGS: [&str; 5] = [
    "/apis/coordination.k8s.io/v1/namespaces/fencing/leases/watchdog.m",
    "/apis/coordination.k8s.io/v1/namespaces/fencing/leases/n",
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/watchdog.n",
    "/api/v1/namespaces/fencing/secrets/watchdog.n",
    "/apis/coordination.k8s.io/v1/namespaces/fencing/leases/../secrets/watchdog.n",
];

fn rows() -> Vec<(DeviceDriver, Value, &'static str)> {
    let (_, external) = external();
    let (_, network) = network(&["10.0.0.1/32"]);
    let (_, machine) = machine_of("cloud:///n");
    let of = |driver, spec: &Value, paths: &[&'static str]| {
        paths.iter().map(|path| (driver, spec.clone(), *path)).collect::<Vec<_>>()
    };
    let mut rows = of(DeviceDriver::External, &external, &EXTERNAL);
    rows.extend(of(DeviceDriver::NetworkFence, &network, &NETWORK));
    rows.extend(of(DeviceDriver::Machine, &machine, &MACHINES));
    let spec = |driver: &str| json!({ "spec": { "driver": driver } });
    rows.extend(of(DeviceDriver::OpenShiftMachine, &spec("OpenShiftMachine"), &MACHINES));
    rows.extend(of(DeviceDriver::BareMetalHost, &spec("BareMetalHost"), &HOSTS));
    rows.extend(of(DeviceDriver::NodeClaim, &spec("NodeClaim"), &CLAIMS));
    let agents = json!({ "spec": { "driver": "WatchdogLease", "watchdogLease": {} } });
    rows.extend(of(DeviceDriver::WatchdogLease, &agents, &WATCHDOGS));
    rows
}

fn sent(harness: &Harness, path: &str) -> Vec<String> {
    let requests =
        harness.api.requests().into_iter().filter(|request| request.path == path || request.path.contains(".."));
    requests.map(|request| request.line()).collect()
}

/// A path that a tenant wrote into the status of a NodeFence was read and deleted as if pod-safety had created the
/// object.
#[tokio::test(start_paused = true)]
async fn attack_a_forged_path_in_the_status_is_neither_read_nor_written() {
    for (driver, spec, path) in rows() {
        let harness = with(&in_store(path), spec.clone());
        let done = NodeFenceStatus { phase: Phase::Done, ..again(forged(driver, path)) };
        harness.assert_outcome(Step::Write(target(done)), "written").await;
        assert_eq!(sent(&harness, path), [""; 0], "the incident is over");
        let harness = with(&in_store(path), spec);
        let verified = check_power(&harness, forged(driver, path)).await;
        assert_eq!(verified.power, Power::Unknown, "{path}");
        assert_eq!(sent(&harness, path), [""; 0], "a look");
    }
}

/// No device is accepted in a namespace that is not used for fencing.
#[tokio::test(start_paused = true)]
async fn attack_a_forged_path_outside_the_fencing_namespaces_is_not_read() {
    let harness = with(&in_store(MADE), external().1);
    harness.world.cache().restrict_fencing_to(["pod-safety".to_owned()].into());
    let done = NodeFenceStatus { phase: Phase::Done, ..again(forged(DeviceDriver::External, MADE)) };
    harness.assert_outcome(Step::Write(target(done)), "written").await;
    assert_eq!(sent(&harness, MADE), [""; 0]);
}

/// Names of a device became parts of paths.
#[tokio::test(start_paused = true)]
async fn attack_a_name_with_dots_and_slashes_is_not_put_into_a_path() {
    let walks_up = "../../secrets/bmc";
    let external = |field: &str, value: &str| {
        let (store, mut spec) = external();
        spec["spec"]["external"]["templateRef"][field] = json!(value);
        (store, spec)
    };
    let (class, mut by_class) = network(&["10.0.0.1/32"]);
    by_class["spec"]["networkFence"]["className"] = json!(walks_up);
    for (what, (store, spec)) in [
        ("templateRef.name", external("name", walks_up)),
        ("templateRef.apiVersion", external("apiVersion", "../api/v1")),
        ("templateRef.apiVersion", external("apiVersion", "far.medik8s.io/../v1")),
        ("className", (class, by_class)),
    ] {
        let harness = with(&store, spec);
        harness.run_off_attempt().await;
        let walked: Vec<_> = harness
            .api
            .requests()
            .into_iter()
            .filter(|request| request.path.contains(".."))
            .map(|one| one.line())
            .collect();
        assert_eq!(walked, [""; 0], "{what}");
        assert!(attempted(&harness).outcome.is_some(), "{what}");
    }
}
