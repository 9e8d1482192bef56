//! PodDisruptionBudgets of every form: the status that the controller writes, `explain pdb`, the plan of a drain, `doctor` and `status` have
//! the same numbers and the same verdict, and the advice has the promised effect.

use pod_safety_control_plane::budgets::{self, BudgetStatus};
use pod_safety_control_plane::objects::{self, NodeExt as _, PodExt as _};
use pod_safety_control_plane::workloads::{self, FLEET, HERD, Kind, STATEFUL_SET};
use pod_safety_control_plane::{ControlPlane, Implementation, Options, check_that, wait_until};
use serde_json::{Value, json};

use crate::commands::run;

/// The pods of a PDB.
#[derive(Clone, Copy, Debug)]
enum Pods {
    /// This many, all Ready.
    Ready(usize),
    /// Three, the last one not Ready, or terminated.
    OneUnready,
    OneEnded,
    /// Three, of which the PDB selects the first.
    OneSelected,
}

impl Pods {
    const fn count(self) -> usize {
        match self {
            Self::Ready(count) => count,
            Self::OneUnready | Self::OneEnded | Self::OneSelected => 3,
        }
    }
}

/// A row: its name, the workload kind and its replicas, the pods, the PDB, and the allowed disruptions.
type Row = (&'static str, Kind, i32, Pods, Value, i32);

fn rows() -> Vec<Row> {
    let set = |name, pods, spec, allowed| (name, STATEFUL_SET, 3, pods, spec, allowed);
    let three = Pods::Ready(3);
    vec![
        set("least", three, json!({ "minAvailable": 2 }), 1),
        set("least-percent", three, json!({ "minAvailable": "50%" }), 1),
        set("most", three, json!({ "maxUnavailable": 1 }), 1),
        set("most-percent", three, json!({ "maxUnavailable": "34%" }), 2),
        set("least-zero", three, json!({ "minAvailable": 0 }), 3),
        set("least-all", three, json!({ "minAvailable": 3 }), 0),
        set("least-hundred", three, json!({ "minAvailable": "100%" }), 0),
        set("most-zero", three, json!({ "maxUnavailable": 0 }), 0),
        set("most-zero-percent", three, json!({ "maxUnavailable": "0%" }), 0),
        set("unready", Pods::OneUnready, json!({ "maxUnavailable": 1 }), 0),
        set("always", Pods::OneUnready, json!({ "minAvailable": 3, "unhealthyPodEvictionPolicy": "AlwaysAllow" }), 0),
        set("ended", Pods::OneEnded, json!({ "minAvailable": 2 }), 0),
        set("primary", Pods::OneSelected, json!({ "minAvailable": 1 }), 0),
        set("everything", three, json!({ "minAvailable": 2, "selector": {} }), 1),
        ("single", STATEFUL_SET, 1, Pods::Ready(1), json!({ "minAvailable": 1 }), 0),
        // One replica of this kind is two pods.
        ("pairs", FLEET, 1, Pods::Ready(2), json!({ "minAvailable": 1 }), 1),
        ("unscaled", HERD, 0, Pods::Ready(1), json!({ "minAvailable": 1 }), 0),
        ("unscaled-least", HERD, 0, Pods::Ready(2), json!({ "minAvailable": 1 }), 1),
    ]
}

async fn set_up(plane: &ControlPlane, (name, kind, replicas, pods, spec, _): &Row) {
    let api = plane.admin();
    plane.namespace(name).await.unwrap();
    objects::create_node(&api, &objects::node(name).with_ready("True")).await.unwrap();
    let owner = workloads::put(&api, *kind, name, "app", *replicas, None).await.unwrap();
    for number in 0..pods.count() {
        let pod_name = format!("app-{number}");
        let mut pod = objects::pod(name, &pod_name).on_node(name).controlled_by(owner.clone());
        let is_last = number + 1 == pods.count();
        if !matches!(pods, Pods::OneSelected) || number == 0 {
            pod = pod.with_label("app", "app");
        }
        let phase = if matches!(pods, Pods::OneEnded) && is_last { "Succeeded" } else { "Running" };
        objects::create_pod(&api, &pod.with_phase(phase)).await.unwrap();
        if matches!(pods, Pods::OneUnready) && is_last {
            let unready = json!({ "conditions": [{ "type": "Ready", "status": "False" }] });
            let status = serde_json::from_value(unready).unwrap();
            objects::set_pod_status(&api, name, &pod_name, &status).await.unwrap();
        }
    }
    let mut spec = spec.clone();
    if spec["selector"].is_null() {
        spec["selector"] = json!({ "matchLabels": { "app": "app" } });
    }
    budgets::put(&api, name, "app", &spec).await.unwrap();
}

async fn until_allows(plane: &ControlPlane, namespace: &str, allowed: i32) -> BudgetStatus {
    wait_until(&format!("{namespace} allows {allowed}"), async || {
        let status =
            budgets::budget_status(&plane.admin(), namespace, "app").await.map_err(|error| error.to_string())?;
        let is_so = status.allowed == allowed && status.observed == status.generation && status.healthy > 0;
        if is_so { Ok(status) } else { Err(status.to_string()) }
    })
    .await
}

async fn query_json(plane: &ControlPlane, args: &[&str]) -> Value {
    let output = run(plane, &plane.admin_kubeconfig(), &[args, &["-o", "json"]].concat()).await;
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{args:?} {output:?}"))
}

/// The output of `doctor` and `status` for all of them.
struct Views {
    doctor: String,
    status: Value,
}

impl Views {
    async fn read(plane: &ControlPlane) -> Self {
        let (doctor, status) = (query_json(plane, &["doctor"]).await, query_json(plane, &["status"]).await);
        let checks = doctor["checks"].as_array().unwrap().iter();
        let mut messages = checks
            .filter(|check| check["check"] == "PodDisruptionBudgets")
            .map(|check| check["what"].as_str().unwrap());
        let doctor = messages.find(|what| what.starts_with("never allow")).unwrap().to_owned();
        Self { doctor, status }
    }

    /// Contradictions of a view with the controller and `explain`, about a PDB and about the pods of the node of its name.
    fn contradictions(&self, name: &str, status: &BudgetStatus, explained: &Value, drained: &Value) -> Vec<String> {
        let mut wrong = Vec::new();
        let never = explained["verdict"] == "DisruptionsNeverAllowed";
        let sum = match status.healthy < status.desired {
            true => format!("{} healthy of {} needed", status.healthy, status.desired),
            false => format!("{} healthy - {} needed = {}", status.healthy, status.desired, status.allowed),
        };
        let numbers = json!([explained["healthy"], explained["needed"], explained["allowed"]]);
        if numbers != json!([status.healthy, status.desired, status.allowed]) {
            wrong.push(format!("{name}: {sum}, explain: {numbers}"));
        }
        for pod in drained["pods"].as_array().unwrap().iter().filter(|pod| pod["budget"].is_string()) {
            let (shown, blocked) = (pod["message"].as_str().unwrap(), pod["reason"] == "DisruptionsNeverAllowed");
            let by_it = pod["action"] == "Evict" || shown.contains(&sum);
            if !by_it || blocked != (never && pod["action"] != "Evict") {
                wrong.push(format!("{name}: {sum}, {}, drain: {pod}", explained["verdict"]));
            }
        }
        let object = json!(format!("pdb/{name}/app"));
        let mut troubles = self.status["troubles"].as_array().unwrap().iter();
        let in_status = troubles.any(|one| one["object"] == object && one["reason"] == "DisruptionsNeverAllowed");
        // It shows the first few, and the number of the others.
        let in_doctor = self.doctor.split(&[' ', ','][..]).any(|word| word == format!("{name}/app"));
        if in_status != never || (in_doctor && !never) {
            wrong.push(format!("{name}: {}, status {in_status}, doctor {}", explained["verdict"], self.doctor));
        }
        wrong
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_views_agree_on_pdbs_of_each_form() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    workloads::define_custom_kinds(&plane.admin()).await.unwrap();
    let rows = rows();
    for row in &rows {
        set_up(&plane, row).await;
    }
    let _pod_safety = plane.disruption_controller(Implementation::PodSafety).await.unwrap();
    let mut looks = Vec::new();
    for (name, .., allowed) in &rows {
        looks.push(until_allows(&plane, name, *allowed).await);
    }
    let views = Views::read(&plane).await;
    let (mut wrong, mut ways, mut never) = (Vec::new(), Vec::new(), 0);
    for ((name, .., pods, _, _), status) in rows.iter().zip(&looks) {
        let explained = query_json(&plane, &["explain", "pdb", "-n", name, "app"]).await;
        let drained = query_json(&plane, &["drain", name]).await;
        wrong.extend(views.contradictions(name, status, &explained, &drained));
        if explained["verdict"] == "DisruptionsNeverAllowed" {
            never += 1;
            let way = explained["ways"].as_array().unwrap().iter().find_map(parse_remedy);
            // The promise is for all pods healthy.
            let now = !matches!(pods, Pods::OneUnready);
            ways.extend(way.map(|(patch, allowed)| (*name, patch, allowed, now)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let shown = views.doctor.matches("/app").count();
    assert!(views.doctor.ends_with(&format!("and {} more", never - shown)), "{never}: {}", views.doctor);
    assert!(ways.len() >= 5, "{ways:?}");
    for (name, patch, allowed, now) in ways {
        apply_remedy(&plane, name, &patch, allowed, now).await;
    }
}

/// The promised number is allowed: `now`, or with every pod healthy.
async fn apply_remedy(plane: &ControlPlane, name: &str, patch: &Value, allowed: i32, now: bool) {
    let args = ["patch", "pdb", "-n", name, "app", "--type=merge", "-p", &patch.to_string()];
    plane.kubectl(&args).await.unwrap().text().unwrap();
    if now {
        until_allows(plane, name, allowed).await;
    }
    wait_until(&format!("explain says so of {name}"), async || {
        let explained = query_json(plane, &["explain", "pdb", "-n", name, "app"]).await;
        let is_so = explained["ceiling"] == allowed && (!now || explained["verdict"] == "Allows");
        check_that(is_so, explained.to_string())
    })
    .await;
}

/// A remedy that changes the PDB, as a patch, and the number that it promises: `maxUnavailable: 1 in place of …`, `1 at a time`.
fn parse_remedy(way: &Value) -> Option<(Value, i32)> {
    let (change, effect) = (way["change"].as_str()?, way["effect"].as_str()?);
    let (field, rest) = change.split_once(": ")?;
    let (amount, _) = rest.split_once(" in place of ")?;
    let other = match field {
        "maxUnavailable" => "minAvailable",
        "minAvailable" => "maxUnavailable",
        _ => return None,
    };
    let amount = amount.parse::<i32>().map_or_else(|_| json!(amount), |number| json!(number));
    let (promised, _) = effect.split_once(" at a time")?;
    let mut spec = json!({});
    spec[field] = amount;
    spec[other] = Value::Null;
    Some((json!({ "spec": spec }), promised.rsplit(' ').next()?.parse().ok()?))
}
