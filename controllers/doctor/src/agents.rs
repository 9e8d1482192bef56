//! Whether fence agents run, and whether they can read the token of the controllers.

use pod_safety_shared::cache::View;
use serde_json::Value;

use super::{Health, Symptom, healthy, join_first, symptom};

const CHECK: &str = "FenceAgents";

/// Whether each pod of pod-safety has a container for fence agents, and whether it runs; no symptom where no device
/// needs one.
pub fn check_agents(view: &View<'_>, pods: &[Value]) -> Vec<Symptom> {
    let needs = view
        .devices()
        .any(|device| view.is_fencing_namespace(&device.namespace) && device.spec.driver.properties().runs_fence_agent);
    if !needs || pods.is_empty() {
        return Vec::new();
    }
    let (mut without, mut not_running) = (Vec::new(), Vec::new());
    for pod in pods {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        match agent_container(pod) {
            None => without.push(name),
            Some(container) if !is_running(pod, container) => not_running.push(name),
            Some(_) => {}
        }
    }
    if without.is_empty() && not_running.is_empty() {
        return vec![healthy(CHECK, "they run in a container of their own")];
    }
    let mut all = Vec::new();
    for (health, names, (problem, why, remedy)) in
        [(Health::Problem, not_running, DOWN), (Health::Problem, without, BESIDE_THE_TOKEN)]
    {
        if !names.is_empty() {
            all.push(symptom(CHECK, health, format!("{problem}: {}", join_first(&names)), why, remedy));
        }
    }
    all
}

/// The name of the container that runs agents.
fn agent_container(pod: &Value) -> Option<&str> {
    let all = |field: &str| pod["spec"][field].as_array().into_iter().flatten();
    let mut containers = all("initContainers").chain(all("containers"));
    let runs = containers.find(|one| one["args"][0] == "fence-agents")?;
    runs["name"].as_str()
}

fn is_running(pod: &Value, container: &str) -> bool {
    let all = |field: &str| pod["status"][field].as_array().into_iter().flatten();
    let mut statuses = all("initContainerStatuses").chain(all("containerStatuses"));
    statuses.any(|one| one["name"] == container && one["state"]["running"].is_object())
}

/// What is wrong, its effect, and the remedy.
type Advice = (&'static str, &'static str, &'static str);

const DOWN: Advice = (
    "the container that runs fence agents is not running in",
    "no node can be fenced by a fence agent meanwhile",
    "kubectl describe pod shows why it does not run",
);
const BESIDE_THE_TOKEN: Advice = (
    "FenceDevices have the driver Agent, and no container runs fence agents in",
    "they cannot run, or they run beside the controllers, where they can read the ServiceAccount's token",
    concat!(
        "set controllers.fencing.agents.enabled=true in the chart, with an image that has them: ",
        page!("fence-devices.md")
    ),
);
