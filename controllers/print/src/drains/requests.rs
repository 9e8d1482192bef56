//! How evictions are requested, in plans and where requests are withdrawn.

use pod_safety_drain::{EvictionMethod, Plan, Row, Withdrawn};
use pod_safety_explain::{format_duration, pluralize};
use pod_safety_process::sanitize;
use serde::Serialize;

use crate::Paint;

/// By `EvictionRequest`, or by `Eviction` of policy/v1.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequestItem {
    by: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    /// The responders before the evictor, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    responders: Vec<String>,
    /// For how long all of them together may not report.
    worst_wait_seconds: u64,
}

impl RequestItem {
    pub(super) fn from_method(method: &EvictionMethod) -> Self {
        let (by, reason) = match method {
            EvictionMethod::Request(_) => ("EvictionRequest", ""),
            EvictionMethod::Direct(why) => ("Eviction", *why),
        };
        let worst_wait_seconds = method.worst_wait().as_secs();
        Self { by, reason, responders: method.responders().to_vec(), worst_wait_seconds }
    }
}

/// How evictions are requested, where they are.
pub(super) fn describe_requests(plan: &Plan, paint: Paint) -> String {
    let tried: Vec<&Row> = plan.rows.iter().filter(|row| row.is_attempted()).collect();
    if !plan.requests || tried.is_empty() {
        return String::new();
    }
    let mut text =
        "\nEvictions are requested (EvictionRequest), and sent directly if no controller answers within 10s.\n"
            .to_owned();
    for row in tried {
        let line = match &row.method {
            EvictionMethod::Direct(why) => format!("  pod/{} is evicted directly: {why}", row.pod),
            EvictionMethod::Request(responders) if responders.is_empty() => continue,
            EvictionMethod::Request(responders) => format!(
                "  pod/{} waits for {}: at most {} while they are silent",
                row.pod,
                responders.join(", then "),
                format_duration(row.method.worst_wait())
            ),
        };
        text.push_str(&sanitize::line(&line));
        text.push('\n');
    }
    paint.wrap_page(&text)
}

/// The withdrawn requests of a node.
#[must_use]
pub fn describe_withdrawn(done: &Withdrawn) -> String {
    if done.pods.is_empty() {
        return "has no EvictionRequest of a drain".to_owned();
    }
    let pods: Vec<&str> = done.pods.iter().map(String::as_str).collect();
    let unrecorded = match done.unrecorded {
        0 => String::new(),
        count => format!(". No controller has recorded that of {count} within 30s, and they are deleted all the same"),
    };
    let many = pluralize(pods.len(), "EvictionRequest");
    sanitize::line(&format!("{many} withdrawn and deleted: {}{unrecorded}", pods.join(" "))).into_owned()
}
