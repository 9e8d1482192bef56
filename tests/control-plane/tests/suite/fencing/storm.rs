//! Two hundred nodes are lost at once: the gates hold, each with its numbers, and no machine is switched off. When most nodes are back, one at
//! a time is fenced.

use std::sync::Mutex;

use futures::future::join_all;
use pod_safety_control_plane::objects::NodeExt as _;
use tempfile::TempDir;

use super::*;

/// The number of nodes, of nodes lost at first, and of nodes lost in the end.
const NODES: usize = 250;
const LOST: usize = 200;
const REMAIN_LOST: usize = 20;

fn name(number: usize) -> String {
    format!("n{number:03}")
}

/// The nodes whose kubelets report.
type Alive = Arc<Mutex<BTreeSet<String>>>;

/// Renews Leases until the test ends.
async fn renew_leases(api: Client, alive: Alive) {
    loop {
        let names: Vec<_> = alive.lock().unwrap().iter().cloned().collect();
        // A failure is retried, like in a kubelet.
        let _again = join_all(names.iter().map(|name| objects::renew_lease(&api, name))).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
}

async fn set_ready_conditions(api: &Client, names: impl Iterator<Item = String>, ready: &str) {
    let updates = names.map(|name| async move {
        let status = objects::node(&name).with_ready(ready).status.unwrap();
        objects::set_node_status(api, &name, &status).await.unwrap();
    });
    join_all(updates).await;
}

/// The nodes whose machines were switched: each has its own switch.
fn power_offs(switches: &Path) -> Vec<String> {
    let all = (0..NODES).map(name);
    all.filter(|name| std::fs::read_to_string(switches.join(name)).unwrap().trim() != "on").collect()
}

fn gate(status: &Value, name: &str) -> Option<String> {
    let gate = status["gates"].as_array()?.iter().find(|gate| gate["name"] == name)?;
    (gate["holds"] == true).then(|| gate["message"].as_str().unwrap_or_default().to_owned())
}

/// The leading number of a text.
fn leading(text: &str) -> usize {
    text.split(' ').next().unwrap().parse().unwrap()
}

fn switches() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    (0..NODES).for_each(|number| std::fs::write(folder.path().join(name(number)), "on").unwrap());
    folder
}

async fn set_up(plane: &ControlPlane, switches: &Path) {
    let file = format!("{}/{{{{.Node.Name}}}}", switches.display());
    let spec = json!({ "driver": "Agent", "agent": "fence_dummy", "parameters": { "status_file": file } });
    let policy = json!({
        "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FencePolicy", "metadata": { "name": "all" },
        "spec": {
            "when": "Always",
            // A busy machine renews fifty Leases within it.
            "unhealthy": { "silentSeconds": 30 },
            "levels": [{ "name": "power", "devices": [{ "namespace": "pod-safety", "name": "switches" }] }],
            "brakes": { "maxConcurrent": 1, "cooldownSeconds": 600 },
        },
    });
    let api = plane.admin();
    let created = (0..NODES).map(|number| {
        let api = api.clone();
        async move { objects::create_node(&api, &objects::node(&name(number))).await.unwrap() }
    });
    join_all(created).await;
    apply(plane, &device("switches", spec)).await;
    apply(plane, &policy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_nodes_lost_at_once_are_held_by_gates_and_none_is_fenced() {
    let rigs = Rigs::new().await.unwrap();
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    let folder = switches();
    let switches = folder.path();
    set_up(&plane, switches).await;
    let (api, alive) = (plane.admin(), Alive::default());
    alive.lock().unwrap().extend((0..NODES).map(name));
    let mut kubelets = JoinSet::new();
    kubelets.spawn(renew_leases(api.clone(), Arc::clone(&alive)));
    let agents = format!("--fence-agents-path={}", rigs.agents().display());
    // Another controller marks lost nodes here: that of pod-safety would itself not mark so many.
    let args = ["--mode=guard", "--controllers=pod-gc,fencing", &agents, "--allow-fence-dummy"];
    let pod_safety = plane.leading_pod_safety(&kubeconfig, args).await.unwrap();

    alive.lock().unwrap().retain(|name| *name >= self::name(LOST));
    set_ready_conditions(&api, (0..LOST).map(name), "Unknown").await;
    wait_until("each incident shows the brakes that hold it", async || {
        let all = incidents(&plane).await;
        // The numbers are those at the time the gate closed: later changes are not written.
        let held = |status: &&Value| {
            let us = gate(status, "LargeOutage").unwrap_or_default();
            let zone = gate(status, "ZoneInTrouble").unwrap_or_default();
            us.contains(" of 250 nodes are lost, more than 49 %")
                && zone.contains(" of 250 nodes of the cluster are not ready, more than 55 %")
                && [us, zone].iter().all(|text| leading(text) * 100 > NODES * 49)
        };
        let count = all.iter().filter(held).count();
        let last = all.iter().find(|status| !held(status)).map(|status| status["gates"].clone());
        check_that(count == LOST, format!("{count} of {}: {last:?}", all.len()))
    })
    .await;
    let begun = incidents(&plane).await.iter().filter(|status| status["attempts"][0].is_object()).count();
    assert_eq!((begun, power_offs(switches)), (0, Vec::new()), "nothing was begun, nothing was shot");
    let labels = [("controller", "fencing"), ("reason", "LargeOutage")];
    let held = pod_safety.metric("pod_safety_holds", &labels).await.unwrap();
    assert!((held - 200.0).abs() < 0.5, "{held}");

    // The network is back for most: each of the others may now be lost by itself.
    alive.lock().unwrap().extend((REMAIN_LOST..LOST).map(name));
    join_all((REMAIN_LOST..LOST).map(name).map(|name| {
        let api = api.clone();
        async move { objects::renew_lease(&api, &name).await.unwrap() }
    }))
    .await;
    set_ready_conditions(&api, (REMAIN_LOST..LOST).map(name), "True").await;
    wait_until("one is fenced, and the others wait for their turn", async || {
        let all = incidents(&plane).await;
        // No pod waits for it, so it does not stay Fenced for long.
        let fenced = all.iter().filter(|status| status["evidence"].is_string()).count();
        let waits = |status: &&Value| {
            let turn = gate(status, "Concurrency").or_else(|| gate(status, "Cooldown"));
            status["phase"] == "Pending" && turn.is_some()
        };
        let called_off = all.iter().filter(|status| status["phase"] == "Cancelled").count();
        let counted = (fenced, all.iter().filter(waits).count(), called_off);
        let turn = all.iter().find(|status| status["phase"] != "Pending" && status["phase"] != "Cancelled");
        check_that(counted == (1, REMAIN_LOST - 1, LOST - REMAIN_LOST), format!("{counted:?}, {turn:#?}"))
    })
    .await;
    assert_eq!(power_offs(switches).len(), 1, "one at a time, and the next after the cooldown");
    drop(kubelets);
}
