//! The columns of each kind, as `kubernetes/pkg/printers/internalversion` has them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::pods;
use crate::api::Rules;
use crate::world::{number_at, str_at};

/// One column: its name and what stands in it.
pub(super) struct Column {
    name: &'static str,
    /// Shown with `-o wide` only.
    wide: bool,
    pub(super) cell: fn(&Value, Timestamp) -> Value,
}

impl Column {
    const fn text(name: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Self {
        Self { name, wide: false, cell }
    }

    const fn wide(name: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Self {
        Self { name, wide: true, cell }
    }

    pub(super) fn definition(&self) -> Value {
        // By this format kubectl finds the column that it puts kinds in front of.
        let format = if self.name == "Name" { "name" } else { "" };
        json!({ "name": self.name, "type": "string", "format": format, "description": self.name,
            "priority": i32::from(self.wide) })
    }
}

pub(super) fn of_kind(rules: Rules) -> &'static [Column] {
    match rules {
        Rules::Pod => PODS,
        Rules::Node => NODES,
        Rules::Lease => LEASES,
        Rules::Event => EVENTS,
        Rules::Namespace => NAMESPACES,
        Rules::Budget => BUDGETS,
        Rules::Attachment => ATTACHMENTS,
        Rules::StatefulSet => STATEFUL_SETS,
        Rules::ReplicaSet | Rules::Replication => REPLICA_SETS,
        Rules::Deployment => DEPLOYMENTS,
        Rules::Volume | Rules::Claim | Rules::EvictionRequest | Rules::Eviction | Rules::Custom => ANY,
    }
}

pub(super) const NAME: Column = Column::text("Name", |object, _| str_at(object, "/metadata/name").into());
const AGE: Column = Column::text("Age", |object, now| since(object, "/metadata/creationTimestamp", now));

const ANY: &[Column] = &[NAME, AGE];

const PODS: &[Column] = &[
    NAME,
    Column::text("Ready", |pod, _| pods::ready(pod).into()),
    Column::text("Status", |pod, _| pods::status(pod).into()),
    Column::text("Restarts", |pod, _| pods::restarts(pod).to_string().into()),
    AGE,
    Column::wide("IP", |pod, _| or_none(str_at(pod, "/status/podIP"))),
    Column::wide("Node", |pod, _| or_none(str_at(pod, "/spec/nodeName"))),
    Column::wide("Nominated Node", |pod, _| or_none(str_at(pod, "/status/nominatedNodeName"))),
    Column::wide("Readiness Gates", |_, _| or_none("")),
];

const NODES: &[Column] = &[
    NAME,
    Column::text("Status", |node, _| node_status(node).into()),
    Column::text("Roles", |node, _| or_none(&node_roles(node))),
    AGE,
    Column::text("Version", |node, _| str_at(node, "/status/nodeInfo/kubeletVersion").into()),
    Column::wide("Internal-IP", |node, _| or_none(node_address(node, "InternalIP"))),
    Column::wide("External-IP", |node, _| or_none(node_address(node, "ExternalIP"))),
    Column::wide("OS-Image", |node, _| or_unknown(str_at(node, "/status/nodeInfo/osImage"))),
    Column::wide("Kernel-Version", |node, _| or_unknown(str_at(node, "/status/nodeInfo/kernelVersion"))),
    Column::wide("Container-Runtime", |node, _| or_unknown(str_at(node, "/status/nodeInfo/containerRuntimeVersion"))),
];

const LEASES: &[Column] = &[NAME, Column::text("Holder", |lease, _| str_at(lease, "/spec/holderIdentity").into()), AGE];

const EVENTS: &[Column] = &[
    Column::text("Last Seen", last_seen),
    Column::text("Type", |event, _| str_at(event, "/type").into()),
    Column::text("Reason", |event, _| str_at(event, "/reason").into()),
    Column::text("Object", |event, _| {
        let kind = str_at(event, "/involvedObject/kind").to_lowercase();
        format!("{kind}/{}", str_at(event, "/involvedObject/name")).into()
    }),
    Column::wide("Subobject", |event, _| str_at(event, "/involvedObject/fieldPath").into()),
    Column::wide("Source", |event, _| str_at(event, "/source/component").into()),
    Column::text("Message", |event, _| str_at(event, "/message").trim().into()),
    Column::wide("First Seen", |event, now| since(event, "/firstTimestamp", now)),
    Column::wide("Count", |event, _| number_at(event, "/count").unwrap_or(1).to_string().into()),
    Column { wide: true, ..NAME },
];

const NAMESPACES: &[Column] = &[NAME, Column::text("Status", |space, _| str_at(space, "/status/phase").into()), AGE];

const BUDGETS: &[Column] = &[
    NAME,
    Column::text("Min Available", |budget, _| number_or_percent(budget, "/spec/minAvailable")),
    Column::text("Max Unavailable", |budget, _| number_or_percent(budget, "/spec/maxUnavailable")),
    Column::text("Allowed Disruptions", |budget, _| {
        number_at(budget, "/status/disruptionsAllowed").unwrap_or(0).to_string().into()
    }),
    AGE,
];

const ATTACHMENTS: &[Column] = &[
    NAME,
    Column::text("Attacher", |one, _| str_at(one, "/spec/attacher").into()),
    Column::text("PV", |one, _| str_at(one, "/spec/source/persistentVolumeName").into()),
    Column::text("Node", |one, _| str_at(one, "/spec/nodeName").into()),
    Column::text("Attached", |one, _| {
        let attached = one.pointer("/status/attached").and_then(Value::as_bool);
        attached.unwrap_or(false).to_string().into()
    }),
    AGE,
];

fn count(set: &Value, pointer: &str) -> Value {
    number_at(set, pointer).unwrap_or(0).to_string().into()
}

const REPLICA_SETS: &[Column] = &[
    NAME,
    Column::text("Desired", |set, _| count(set, "/spec/replicas")),
    Column::text("Current", |set, _| count(set, "/status/replicas")),
    Column::text("Ready", |set, _| count(set, "/status/readyReplicas")),
    AGE,
];

const DEPLOYMENTS: &[Column] = &[
    NAME,
    Column::text("Ready", |set, _| {
        let ready = number_at(set, "/status/readyReplicas").unwrap_or(0);
        format!("{ready}/{}", number_at(set, "/spec/replicas").unwrap_or(1)).into()
    }),
    Column::text("Up-to-date", |set, _| count(set, "/status/updatedReplicas")),
    Column::text("Available", |set, _| count(set, "/status/availableReplicas")),
    AGE,
];

const STATEFUL_SETS: &[Column] = &[
    NAME,
    Column::text("Ready", |set, _| {
        let ready = number_at(set, "/status/readyReplicas").unwrap_or(0);
        format!("{ready}/{}", number_at(set, "/spec/replicas").unwrap_or(1)).into()
    }),
    AGE,
];

fn or_none(text: &str) -> Value {
    if text.is_empty() { "<none>".into() } else { text.into() }
}

fn or_unknown(text: &str) -> Value {
    if text.is_empty() { "<unknown>".into() } else { text.into() }
}

fn number_or_percent(object: &Value, pointer: &str) -> Value {
    match object.pointer(pointer) {
        Some(Value::String(text)) => text.as_str().into(),
        Some(Value::Number(number)) => number.to_string().into(),
        _ => "N/A".into(),
    }
}

fn node_status(node: &Value) -> String {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|condition| str_at(condition, "/type") == "Ready");
    let mut status = match ready.map(|ready| str_at(ready, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn node_roles(node: &Value) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    let roles = labels.filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role),
        None if key == "kubernetes.io/role" => value.as_str(),
        None => None,
    });
    roles.filter(|role| !role.is_empty()).collect::<Vec<_>>().join(",")
}

fn node_address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let addresses = node.pointer("/status/addresses").and_then(Value::as_array).into_iter().flatten();
    let mut own = addresses.filter(|address| str_at(address, "/type") == kind);
    own.next().map(|address| str_at(address, "/address")).unwrap_or_default()
}

fn last_seen(event: &Value, now: Timestamp) -> Value {
    let known = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/firstTimestamp"];
    let pointer = known.into_iter().find(|pointer| !str_at(event, pointer).is_empty());
    since(event, pointer.unwrap_or("/lastTimestamp"), now)
}

/// How long ago the time at `pointer` was.
pub(super) fn since(object: &Value, pointer: &str, now: Timestamp) -> Value {
    match str_at(object, pointer).parse::<Timestamp>() {
        Ok(then) => span(now.as_second() - then.as_second()).into(),
        Err(_) => "<unknown>".into(),
    }
}

/// `duration.HumanDuration`: two units at most, and only as long as they matter.
fn span(seconds: i64) -> String {
    let two = |large: i64, unit: &str, small: i64, part: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{part}"),
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_as_kubectl_writes_them() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_460, "3h11m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(span(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn a_node_without_a_kubelet_report_is_unknown() {
        let ready = |status: &str| json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
        assert_eq!(node_status(&ready("True")), "Ready");
        assert_eq!(node_status(&ready("Unknown")), "NotReady");
        assert_eq!(node_status(&json!({})), "Unknown");
        let mut cordoned = ready("False");
        cordoned["spec"] = json!({ "unschedulable": true });
        assert_eq!(node_status(&cordoned), "NotReady,SchedulingDisabled");
    }
}
