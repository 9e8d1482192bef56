//! The impact of fencing a node: its pods, their volumes and PDBs, shown before an operator types a phrase. Reads only.
//!
//! What cannot be read is named, and does not prevent the action: an operator in an emergency may have few rights.

use std::collections::BTreeMap;

use pod_safety_explain::{ExplainContext, Paused, asks_a_person, how_to_check_power, owner_of};
use pod_safety_print::{Paint, Tone};
use pod_safety_shared::api::{FencePolicySpec, Recovery};
use pod_safety_shared::authority::operator_requests::Examined;
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::model::{Kind, Pod};
use serde_json::Value;

use super::cluster::Session;
use super::explain::{ClusterSnapshot, describe_refusal};
use super::pluralize;

/// How many pods are shown.
const MAX_SHOWN: usize = 20;

/// The PersistentVolumeClaims of pods, by namespace and name.
type Claims = BTreeMap<(String, String), Vec<String>>;

/// The impact on a node.
pub(crate) struct Impact {
    /// The page: pods, volumes, PDBs, pauses.
    pub(crate) page: String,
    /// How many of its pods are being deleted.
    pub(crate) terminating: usize,
    /// The FencePolicy that selects it.
    pub(crate) policy: Option<(String, FencePolicySpec)>,
    /// That policy names no device, but a person.
    pub(crate) asks_a_person: bool,
    /// How an operator sees whether its machine has power.
    pub(crate) power_check: String,
}

impl Impact {
    /// Reads the impact.
    pub(crate) async fn read(session: &Session, examined: &Examined, paint: Paint) -> anyhow::Result<Self> {
        let node = &examined.node.name;
        let mut snapshot = ClusterSnapshot::read(session, None).await?;
        snapshot.read_pauses(session, Some(node)).await;
        let mut missing: Vec<String> = snapshot.pods_unread().map(|(why, _)| why).into_iter().collect();
        let pods = session.items(&format!("/api/v1/pods?fieldSelector=spec.nodeName={node}")).await;
        let pods = pods.unwrap_or_else(|error| {
            missing.push(format!(
                "{}: it is not known which volumes its pods use.",
                describe_refusal(&error, "list pods")
            ));
            Vec::new()
        });
        let claims: Claims = pods.iter().map(|pod| (key(pod), claim_names(pod))).collect();
        Ok(snapshot.with_context(|ctx| {
            for (kind, what) in [
                (Kind::Budgets, "which PodDisruptionBudgets select its pods"),
                (Kind::FencePolicies, "its FencePolicy"),
            ] {
                if ctx.unread.contains(&kind) {
                    missing.push(format!("You may not list {}: {what} is not known.", kind.resource()));
                }
            }
            let mut page = page(ctx, node, &claims, paint);
            for missing in &missing {
                page.push_str(&format!("{}\n", paint.wrap(&format!("{} {missing}", paint.mark(Tone::Attention)), 2)));
            }
            let policy = ctx.view.policy_of(&examined.labels);
            let (how, asks_a_person) = match ctx.view.node(node) {
                Lookup::Known(node) => (how_to_check_power(node, ctx), asks_a_person(node, ctx)),
                Lookup::Unknown(_) | Lookup::Absent => (String::new(), false),
            };
            Self {
                page,
                power_check: how,
                asks_a_person,
                terminating: active_pods(ctx, node).filter(|pod| pod.deletion.is_some()).count(),
                policy: policy.map(|policy| (policy.name.to_string(), policy.spec.clone())),
            }
        }))
    }

    /// Whether its policy switches the machine on when its pods are released.
    pub(crate) fn is_powered_on_again(&self) -> bool {
        self.policy.as_ref().is_some_and(|(_, policy)| policy.recovery == Recovery::PowerOn)
    }
}

/// The pods of a node that have not terminated.
fn active_pods<'a>(ctx: &ExplainContext<'a>, node: &str) -> impl Iterator<Item = &'a Pod> {
    ctx.view.pods_on(node).filter(|pod| !pod.phase.is_terminal())
}

fn page(ctx: &ExplainContext<'_>, node: &str, claims: &Claims, paint: Paint) -> String {
    let is_of_daemon_set = |pod: &&Pod| pod.controller.as_ref().is_some_and(|controller| controller.is_daemon_set());
    let (of_daemon_sets, mut pods): (Vec<&Pod>, Vec<&Pod>) = active_pods(ctx, node).partition(is_of_daemon_set);
    pods.sort_by_key(|pod| pod.key.clone());
    let row = |pod: &&Pod| {
        let claims = claims.get(&(pod.key.namespace.to_string(), pod.key.name.to_string()));
        let budgets = ctx
            .view
            .budgets_of_pod(pod)
            .map(|budget| format!("{} (allows {})", budget.key.name, budget.status.disruptions_allowed));
        let state = if pod.deletion.is_some() { "Terminating" } else { "" };
        let cells = [
            pod.key.to_string(),
            owner_of(pod, &ctx.view),
            join(claims.cloned().unwrap_or_default()),
            join(budgets.collect()),
            state.to_owned(),
        ];
        (Tone::Plain, cells.to_vec())
    };
    let rows: Vec<_> = pods.iter().take(MAX_SHOWN).map(row).collect();
    let mut text = format!("{} on {node}", pluralize(pods.len(), "pod"));
    if !of_daemon_sets.is_empty() {
        text.push_str(&format!(", and {} of DaemonSets", of_daemon_sets.len()));
    }
    text.push('\n');
    if !rows.is_empty() {
        text.push_str(&paint.table(&["POD", "OWNER", "VOLUME CLAIMS", "PDBS", ""], &rows));
    }
    if pods.len() > MAX_SHOWN {
        text.push_str(&format!("and {} more\n", pods.len() - MAX_SHOWN));
    }
    for pause in Paused::list(ctx).into_iter().filter(|pause| pause.object == format!("node/{node}")) {
        text.push_str(&format!(
            "{} {} is paused: {}\n",
            paint.mark(Tone::Attention),
            pause.object,
            pause.describe(ctx.wall)
        ));
    }
    text
}

fn key(pod: &Value) -> (String, String) {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// The PersistentVolumeClaims that a pod names, including those of its ephemeral volumes.
fn claim_names(pod: &Value) -> Vec<String> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes
        .filter_map(|volume| match &volume["ephemeral"] {
            Value::Null => volume["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned),
            _ => Some(format!("{}-{}", pod["metadata"]["name"].as_str()?, volume["name"].as_str()?)),
        })
        .collect()
}

fn join(words: Vec<String>) -> String {
    if words.is_empty() { "-".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{self, Fixture};

    #[test]
    fn the_impact_page_shows_pods_volumes_and_their_owners() {
        let fixture = Fixture::with_lost_node();
        fixture.pod_with("orders-0", "worker-b1", fixture::ready);
        let pod = json!({ "metadata": { "namespace": "shop", "name": "orders-1" }, "spec": { "volumes": [
            { "name": "data", "persistentVolumeClaim": { "claimName": "data-orders-1" } },
            { "name": "scratch", "ephemeral": {} }, { "name": "tmp", "emptyDir": {} }] } });
        let claims: Claims = [(key(&pod), claim_names(&pod))].into();
        let text = fixture.with_context(|ctx| page(ctx, "worker-b1", &claims, Paint::plain()));
        let golden = "2 pods on worker-b1
POD            OWNER               VOLUME CLAIMS                     PDBS
shop/orders-0  StatefulSet/orders  -                                 -
shop/orders-1  StatefulSet/orders  data-orders-1, orders-1-scratch   -        Terminating
";
        assert_eq!(
            text.split_whitespace().collect::<Vec<_>>(),
            golden.split_whitespace().collect::<Vec<_>>(),
            "{text}"
        );
    }
}
