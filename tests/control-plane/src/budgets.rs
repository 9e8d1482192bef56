//! PodDisruptionBudgets for tests, their status as written by a disruption controller, and the API server's answers to evictions.

use std::collections::BTreeMap;
use std::fmt;

use http::Method;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::{Error, raw};

/// The status of a PDB, without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetStatus {
    /// `disruptionsAllowed`.
    pub allowed: i32,
    /// `currentHealthy`.
    pub healthy: i32,
    /// `desiredHealthy`.
    pub desired: i32,
    /// `expectedPods`.
    pub expected: i32,
    /// The names in `disruptedPods`.
    pub disrupted: Vec<String>,
    /// The condition `DisruptionAllowed`: its status, reason and message, separated by spaces.
    pub condition: String,
    /// The `observedGeneration` of the condition.
    pub condition_generation: i64,
    /// `observedGeneration`.
    pub observed: i64,
    /// The generation of the spec.
    pub generation: i64,
}

impl fmt::Display for BudgetStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { allowed, healthy, desired, expected, disrupted, condition, .. } = self;
        write!(f, "{allowed} allowed: {healthy} healthy, {desired} desired, {expected} expected, {condition}")?;
        if !disrupted.is_empty() {
            write!(f, ", disrupted {}", disrupted.join(" "))?;
        }
        if self.observed != self.generation {
            write!(f, ", seen {} of {}", self.observed, self.generation)?;
        }
        if self.condition_generation != self.observed {
            write!(f, ", condition of {}", self.condition_generation)?;
        }
        Ok(())
    }
}

impl From<&PodDisruptionBudget> for BudgetStatus {
    fn from(budget: &PodDisruptionBudget) -> Self {
        let status = budget.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let condition = conditions.into_iter().find(|condition| condition.type_ == "DisruptionAllowed");
        Self {
            allowed: status.disruptions_allowed.unwrap_or(0),
            healthy: status.current_healthy.unwrap_or(0),
            desired: status.desired_healthy.unwrap_or(0),
            expected: status.expected_pods.unwrap_or(0),
            disrupted: status.disrupted_pods.unwrap_or_default().into_keys().collect(),
            condition_generation: condition.as_ref().and_then(|condition| condition.observed_generation).unwrap_or(0),
            condition: condition.map_or_else(
                || "no condition".to_owned(),
                |condition| {
                    let words = [condition.status, condition.reason, condition.message];
                    words.join(" ").trim_end().to_owned()
                },
            ),
            observed: status.observed_generation.unwrap_or(0),
            generation: budget.metadata.generation.unwrap_or(0),
        }
    }
}

/// Creates a PDB, or replaces its spec.
pub async fn put(client: &Client, namespace: &str, name: &str, spec: &Value) -> Result<(), Error> {
    let object = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": name },
        "spec": spec,
    });
    raw::apply(client, &path(namespace, name), &object).await.map(drop)
}

/// Changes a PDB so that its controller is triggered, without any effect on its meaning.
pub async fn touch_budget(client: &Client, namespace: &str, name: &str) -> Result<(), Error> {
    let before = raw::merge(client, &path(namespace, name), &json!({})).await?;
    let touched = json!({ "touched-at": before["metadata"]["resourceVersion"] });
    let patch = json!({ "metadata": { "annotations": touched } });
    raw::merge(client, &path(namespace, name), &patch).await.map(drop)
}

/// Deletes a PDB.
pub async fn delete(client: &Client, namespace: &str, name: &str) -> Result<(), Error> {
    raw::delete(client, &path(namespace, name)).await
}

fn path(namespace: &str, name: &str) -> String {
    format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}")
}

/// The status of one PDB.
pub async fn budget_status(client: &Client, namespace: &str, name: &str) -> Result<BudgetStatus, Error> {
    let budget = Api::<PodDisruptionBudget>::namespaced(client.clone(), namespace).get(name).await;
    Ok(BudgetStatus::from(&budget.map_err(Error::api(format!("look at the budget {namespace}/{name}")))?))
}

/// The statuses of all PDBs of the cluster, by `namespace/name`.
pub async fn budget_statuses(client: &Client) -> Result<BTreeMap<String, BudgetStatus>, Error> {
    let list = Api::<PodDisruptionBudget>::all(client.clone()).list(&ListParams::default()).await;
    let budgets = list.map_err(Error::api("list the budgets"))?.items;
    let named = budgets.iter().map(|budget| {
        let (namespace, name) = (budget.metadata.namespace.as_deref(), budget.metadata.name.as_deref());
        let name = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
        (name, BudgetStatus::from(budget))
    });
    Ok(named.collect())
}

/// What the API server answered to an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP code.
    pub code: u16,
    /// The message of the answer.
    pub message: String,
    /// The messages of its causes.
    pub causes: Vec<String>,
    /// `retryAfterSeconds`; 0 if it is not set.
    pub retry_after: u32,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        let sentences = std::iter::once(&self.message).chain(&self.causes).filter(|text| !text.is_empty());
        for sentence in sentences {
            write!(f, " {sentence}")?;
        }
        if self.retry_after > 0 {
            write!(f, " (again in {} s)", self.retry_after)?;
        }
        Ok(())
    }
}

/// Evicts a pod; `options` are the deleteOptions. A refusal is also an answer.
pub async fn evict(client: &Client, namespace: &str, pod: &str, options: &Value) -> Result<Answer, Error> {
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "namespace": namespace, "name": pod },
        "deleteOptions": options,
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/eviction");
    match raw::send(client, Method::POST, &path, "application/json", &body).await {
        Ok(_) => Ok(Answer { code: 201, message: String::new(), causes: Vec::new(), retry_after: 0 }),
        Err(kube::Error::Api(status)) => {
            let retry_after = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            let causes = status.details.into_iter().flat_map(|details| details.causes);
            let causes = causes.map(|cause| cause.message).collect();
            Ok(Answer { code: status.code, message: status.message, causes, retry_after })
        }
        Err(other) => Err(Error::api(format!("evict {namespace}/{pod}"))(other)),
    }
}
