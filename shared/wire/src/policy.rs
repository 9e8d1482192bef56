//! PodDisruptionBudgets, and the workloads that set the number of pods.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Time;
use super::message::{messages, null_is_empty};
use super::meta::ObjectMeta;

messages! {
    /// A `PodDisruptionBudget` of policy/v1.
    Budget {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// The desired state.
        spec: Option<BudgetSpec> = [message, optional, tag = "2"];
        /// The calculated state.
        status: Option<BudgetStatus> = [message, optional, tag = "3"];
    }

    /// `podDisruptionBudget.spec`.
    BudgetSpec {
        /// How many pods must stay healthy.
        min_available: Option<IntOrString> = [message, optional, tag = "1"];
        /// The pods; absent: none.
        selector: Option<LabelSelector> = [message, optional, tag = "2"];
        /// How many pods may be unavailable.
        max_unavailable: Option<IntOrString> = [message, optional, tag = "3"];
        /// How pods that are not Ready may be evicted.
        unhealthy_pod_eviction_policy: Option<String> = [string, optional, tag = "4"];
    }

    /// `podDisruptionBudget.status`.
    BudgetStatus {
        /// The generation that the numbers reflect.
        observed_generation: Option<i64> = [int64, optional, tag = "1"];
        /// Pods whose eviction was allowed, and when.
        disrupted_pods: BTreeMap<String, Time> = [btree_map = "string, message", tag = "2"] serde[deserialize_with = "null_is_empty"];
        /// How many evictions are allowed.
        disruptions_allowed: Option<i32> = [int32, optional, tag = "3"];
        /// Ready pods.
        current_healthy: Option<i32> = [int32, optional, tag = "4"];
        /// How many healthy pods there must be.
        desired_healthy: Option<i32> = [int32, optional, tag = "5"];
        /// How many pods are expected.
        expected_pods: Option<i32> = [int32, optional, tag = "6"];
        /// `DisruptionAllowed`, and the conditions of other writers.
        conditions: Vec<Condition> = [message, repeated, tag = "7"] serde[deserialize_with = "null_is_empty"];
    }

    /// A condition of `meta/v1`.
    Condition {
        /// The type.
        r#type: Option<String> = [string, optional, tag = "1"];
        /// `True`, `False` or `Unknown`.
        status: Option<String> = [string, optional, tag = "2"];
        /// The generation that it reflects.
        observed_generation: Option<i64> = [int64, optional, tag = "3"];
        /// When the status last changed.
        last_transition_time: Option<Time> = [message, optional, tag = "4"];
        /// The reason, in CamelCase.
        reason: Option<String> = [string, optional, tag = "5"];
        /// The message.
        message: Option<String> = [string, optional, tag = "6"];
    }

    /// A selector of labels.
    LabelSelector {
        /// Label pairs that must exist.
        match_labels: BTreeMap<String, String> = [btree_map = "string, string", tag = "1"] serde[deserialize_with = "null_is_empty"];
        /// Other requirements.
        match_expressions: Vec<LabelRequirement> = [message, repeated, tag = "2"] serde[deserialize_with = "null_is_empty"];
    }

    /// An element of `matchExpressions`.
    LabelRequirement {
        /// The key.
        key: Option<String> = [string, optional, tag = "1"];
        /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
        operator: Option<String> = [string, optional, tag = "2"];
        /// The values, for the first two.
        values: Vec<String> = [string, repeated, tag = "3"] serde[deserialize_with = "null_is_empty"];
    }

    /// A ReplicaSet, Deployment, StatefulSet or ReplicationController.
    Workload {
        /// Its metadata.
        metadata: Option<ObjectMeta> = [message, optional, tag = "1"];
        /// The desired state.
        spec: Option<WorkloadSpec> = [message, optional, tag = "2"];
    }

    /// The field of `spec` that all four kinds have, with the same number.
    WorkloadSpec {
        /// How many pods.
        replicas: Option<i32> = [int32, optional, tag = "1"];
    }

    /// The resources of a group and version: `APIResourceList`.
    ApiResourceList {
        /// The resources and their subresources.
        resources: Vec<ApiResource> = [message, repeated, tag = "2"] serde[deserialize_with = "null_is_empty"];
    }

    /// A resource or subresource.
    ApiResource {
        /// Its plural, followed by a slash and the subresource.
        name: Option<String> = [string, optional, tag = "1"];
        /// The kind of its objects.
        kind: Option<String> = [string, optional, tag = "3"];
    }
}

/// A number or a text: a message in protobuf, the bare value in JSON.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct IntOrString {
    /// 0: a number, 1: a text.
    #[prost(int64, optional, tag = "1")]
    pub kind: Option<i64>,
    /// The number.
    #[prost(int32, optional, tag = "2")]
    pub number: Option<i32>,
    /// The text.
    #[prost(string, optional, tag = "3")]
    pub text: Option<String>,
}

impl IntOrString {
    /// The text.
    ///
    /// # Errors
    /// The number, if it is not a text.
    pub fn as_text(&self) -> Result<&str, i32> {
        match self.kind {
            Some(1) => Ok(self.text.as_deref().unwrap_or_default()),
            _ => Err(self.number.unwrap_or(0)),
        }
    }
}

impl Serialize for IntOrString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_text() {
            Ok(text) => serializer.serialize_str(text),
            Err(number) => serializer.serialize_i32(number),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number or a string")]
        enum Either {
            Number(i32),
            Text(String),
        }
        Ok(match Either::deserialize(deserializer)? {
            Either::Number(number) => Self { kind: Some(0), number: Some(number), text: None },
            Either::Text(text) => Self { kind: Some(1), number: None, text: Some(text) },
        })
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_budget_decodes_the_same_from_json_and_protobuf() {
        let object = json!({
            "metadata": { "name": "b", "namespace": "ns", "labels": { "a": "b" } },
            "spec": { "maxUnavailable": "30%", "minAvailable": 2,
                "selector": { "matchLabels": { "app": "db" }, "matchExpressions": [{ "key": "k", "operator": "In", "values": ["v"] }] } },
            "status": { "observedGeneration": 3, "disruptedPods": { "p": "2026-01-01T00:00:00Z" }, "disruptionsAllowed": 1,
                "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3,
                "conditions": [{ "type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods", "message": "",
                    "observedGeneration": 3, "lastTransitionTime": "2026-01-01T00:00:00Z" }] },
        });
        let read: Budget = serde_json::from_value(object).unwrap();
        let again = Budget::decode(read.encode_to_vec().as_slice()).unwrap();
        assert_eq!(read, again);
        let spec = read.spec.unwrap();
        assert_eq!(spec.max_unavailable.unwrap().as_text(), Ok("30%"));
        assert_eq!(spec.min_available.unwrap().as_text(), Err(2));
        assert_eq!(read.status.unwrap().disrupted_pods["p"].whole_seconds(), 1_767_225_600);
        assert_eq!(read.metadata.unwrap().labels["a"], "b");
    }

    #[test]
    fn null_maps_and_lists_decode_as_empty() {
        let object = json!({ "spec": { "selector": { "matchLabels": null, "matchExpressions": null } }, "status": { "disruptedPods": null, "conditions": null } });
        let read: Budget = serde_json::from_value(object).unwrap();
        assert_eq!(read.spec.unwrap().selector, Some(LabelSelector::default()));
    }

    #[test]
    fn an_int_or_string_of_another_type_is_rejected() {
        let error = serde_json::from_value::<IntOrString>(json!([1])).unwrap_err();
        assert_eq!(error.to_string(), "a number or a string");
    }
}
