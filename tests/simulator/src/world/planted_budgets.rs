//! The effect of planted bugs on the numbers of disruption budgets, between the controller and the wire.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::seam::{Parts, Seam};
use super::{is_called_ready, number_at, str_at};
use crate::api::selects_labels;
use crate::campaign::Plant;
use crate::checker::healthy_of;

/// A generation that no budget reaches.
const FAR_AHEAD: i64 = 1_000_000;

/// The numbers of a status that is about to be written.
struct Numbers {
    current: i64,
    desired: i64,
    expected: i64,
}

/// Resolves a number or a percentage of `of`, rounded down.
fn rounded_down(amount: Option<&Value>, of: i64) -> Option<i64> {
    let percent: i64 = amount?.as_str()?.strip_suffix('%')?.parse().ok()?;
    Some(percent * of / 100)
}

fn count(pods: &[Arc<Value>], counts: impl Fn(&Value) -> bool) -> i64 {
    i64::try_from(pods.iter().filter(|pod| counts(pod)).count()).unwrap_or(0)
}

fn terminates(pod: &Value) -> bool {
    pod.pointer("/metadata/deletionTimestamp").is_some()
}

impl Parts {
    /// A write of the numbers of a budget.
    fn is_budget_status(&self) -> bool {
        self.method != Method::GET && self.path().contains("/poddisruptionbudgets/") && self.path().ends_with("/status")
    }

    fn budget(&self) -> Option<String> {
        let path = self.path().split_once("/namespaces/")?.1.strip_suffix("/status")?;
        let (namespace, name) = path.split_once("/poddisruptionbudgets/")?;
        Some(format!("{namespace}/{name}"))
    }
}

impl Seam {
    /// Changes the numbers that the controller is about to write.
    pub(super) fn miscount(&self, plant: Plant, parts: &mut Parts) {
        if !parts.is_budget_status() {
            return;
        }
        let stored = parts.budget().and_then(|name| self.world.etcd.object("PodDisruptionBudget", &name));
        let (Some(stored), Ok(mut body)) = (stored, serde_json::from_slice::<Value>(&parts.body)) else {
            return;
        };
        match plant {
            Plant::LostDecrement => {
                if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("resourceVersion");
                }
            }
            Plant::AlwaysObserved => body["status"]["observedGeneration"] = FAR_AHEAD.into(),
            plant => self.miscounted(plant, &stored, &mut body, parts.method == Method::PATCH),
        }
        parts.body = body.to_string().into();
    }

    fn miscounted(&self, plant: Plant, stored: &Value, body: &mut Value, patches: bool) {
        let field = |name: &str| {
            let pointer = format!("/status/{name}");
            number_at(body, &pointer).or_else(|| number_at(stored, &pointer)).unwrap_or(0)
        };
        let mut numbers = Numbers {
            current: field("currentHealthy"),
            desired: field("desiredHealthy"),
            expected: field("expectedPods"),
        };
        let mut pods = self.world.etcd.objects("Pod");
        pods.retain(|pod| selects_labels(stored.pointer("/spec/selector"), pod.pointer("/metadata/labels")));
        let (least, most) = (stored.pointer("/spec/minAvailable"), stored.pointer("/spec/maxUnavailable"));
        match plant {
            Plant::CountsTerminating => {
                numbers.current += count(&pods, |pod| terminates(pod) && is_called_ready(pod));
            }
            Plant::ForgetsEvictions => {
                let entries = stored.pointer("/status/disruptedPods").cloned().unwrap_or_default();
                numbers.current += count(&pods, |pod| {
                    entries.get(str_at(pod, "/metadata/name")).is_some() && !terminates(pod) && is_called_ready(pod)
                });
                body["status"]["disruptedPods"] = if patches { json!({ "$patch": "replace" }) } else { json!({}) };
            }
            Plant::RoundsDown => {
                let healthy = rounded_down(least, numbers.expected);
                let missing = rounded_down(most, numbers.expected).map(|most| numbers.expected - most);
                numbers.desired = healthy.or(missing).unwrap_or(numbers.desired);
            }
            Plant::ExpectsWhatIsThere => {
                numbers.expected = count(&pods, |_| true);
                numbers.desired = healthy_of(stored, numbers.expected);
            }
            _ => return,
        }
        let Numbers { current, desired, expected } = numbers;
        let allowed = if expected <= 0 { 0 } else { (current - desired).max(0) };
        for (name, value) in [
            ("currentHealthy", current),
            ("desiredHealthy", desired),
            ("expectedPods", expected),
            ("disruptionsAllowed", allowed),
        ] {
            body["status"][name] = value.into();
        }
    }

    /// A process that does not lead receives an event of a budget, and writes its own calculation.
    pub(super) fn writes_aside(&self, parts: &Parts, event: &Bytes) {
        let leads = self.world.replicas.get(self.index).is_some_and(super::replica::Replica::leads);
        if leads || !parts.path().ends_with("/poddisruptionbudgets") {
            return;
        }
        let event: Value = serde_json::from_slice(event).unwrap_or_default();
        let Some(budget) = event.get("object").filter(|_| str_at(&event, "/type") != "BOOKMARK") else {
            return;
        };
        let meta = |key: &str| str_at(budget, &format!("/metadata/{key}")).to_owned();
        let body = json!({ "metadata": { "uid": meta("uid"), "resourceVersion": meta("resourceVersion") },
            "status": { "observedGeneration": number_at(budget, "/metadata/generation") } });
        let target =
            format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets/{}/status", meta("namespace"), meta("name"));
        let seam = self.clone();
        self.aside(Box::pin(async move { seam.write_as_meant(target, &body).await }));
    }
}
