//! A node whose kubelet has stopped reporting: its stored form after it was marked, and the JSON in which it is read before it is written.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::template::{content, field, fields, next};

/// Protobuf field numbers of a node.
const META: usize = 1;
const SPEC: usize = 2;
const STATUS: usize = 3;
const TAINTS: usize = 5;
const CONDITIONS: usize = 4;
const LABELS: usize = 11;

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const EFFECTS: [&str; 2] = ["NoSchedule", "NoExecute"];

/// The condition of pod-safety.
const NODE_UNREACHABLE: &str = "NodeUnreachable";

/// Labels of each node that current kubelets do not write: the node lifecycle controller maintains them.
const KEPT_LABELS: [(&str, &str); 2] = [("beta.kubernetes.io/arch", "amd64"), ("beta.kubernetes.io/os", "linux")];

/// A message with replaced content in the fields for which `other` returns some.
fn changed(mut message: &[u8], mut other: impl FnMut(usize, &[u8]) -> Result<Option<Vec<u8>>>) -> Result<Vec<u8>> {
    let mut changed = Vec::new();
    while !message.is_empty() {
        let part = next(&mut message)?;
        match part.content.map(|content| other(part.number, content)).transpose()?.flatten() {
            Some(content) => field(part.number, &content, &mut changed),
            None => changed.extend_from_slice(part.whole),
        }
    }
    Ok(changed)
}

/// A message with one more map entry of these texts at its end.
fn with_map_entry(mut message: Vec<u8>, number: usize, texts: [(usize, &str); 2]) -> Vec<u8> {
    let mut inner = Vec::new();
    texts.into_iter().for_each(|(number, text)| field(number, text.as_bytes(), &mut inner));
    field(number, &inner, &mut message);
    message
}

/// The template of a node that already has the labels of the controller.
pub(crate) fn labelled(node: &[u8]) -> Result<Vec<u8>> {
    let label = |meta, (key, value)| with_map_entry(meta, LABELS, [(1, key), (2, value)]);
    changed(node, |number, meta| Ok((number == META).then(|| KEPT_LABELS.into_iter().fold(meta.to_vec(), label))))
}

/// The template of a node with Unknown conditions and the taints of an unreachable node.
pub(crate) fn marked(node: &[u8]) -> Result<Vec<u8>> {
    let taint = |spec, effect| with_map_entry(spec, TAINTS, [(1, UNREACHABLE), (3, effect)]);
    changed(node, |number, content| {
        Ok(match number {
            SPEC => Some(EFFECTS.into_iter().fold(content.to_vec(), taint)),
            STATUS => Some(with_map_entry(unknown(content)?, CONDITIONS, [(1, NODE_UNREACHABLE), (2, "True")])),
            _ => None,
        })
    })
}

/// A status with Unknown conditions.
fn unknown(status: &[u8]) -> Result<Vec<u8>> {
    let to_unknown = |number, _: &[u8]| Ok((number == 2).then(|| b"Unknown".to_vec()));
    changed(status, |number, condition| (number == CONDITIONS).then(|| changed(condition, to_unknown)).transpose())
}

/// The parts of a protobuf node that are read in JSON: identity, labels, taints, conditions.
pub(crate) fn in_json(node: &[u8]) -> Option<Value> {
    let (meta, spec, status) = (content(node, META)?, content(node, SPEC)?, content(node, STATUS)?);
    let text =
        |message: &[u8], number: usize| content(message, number).map(|text| String::from_utf8_lossy(text).into_owned());
    let all = |message, number| -> Vec<&[u8]> {
        fields(message).filter(|field| field.number == number).filter_map(|field| field.content).collect()
    };
    let labels = all(meta, LABELS).into_iter().filter_map(|label| Some((text(label, 1)?, text(label, 2)?)));
    let taint = |taint: &&[u8]| json!({ "key": text(taint, 1), "effect": text(taint, 3) });
    let condition = |condition: &&[u8]| {
        let last_heartbeat =
            content(condition, 3).and_then(moment).map(|last_heartbeat| format!("{last_heartbeat:.0}"));
        json!({ "type": text(condition, 1), "status": text(condition, 2), "lastHeartbeatTime": last_heartbeat })
    };
    Some(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": text(meta, 1), "uid": text(meta, 5), "resourceVersion": text(meta, 6),
            "labels": labels.collect::<BTreeMap<_, _>>(),
        },
        "spec": { "taints": all(spec, TAINTS).iter().map(taint).collect::<Vec<_>>() },
        "status": { "conditions": all(status, CONDITIONS).iter().map(condition).collect::<Vec<_>>() },
    }))
}

fn moment(time: &[u8]) -> Option<Timestamp> {
    let time = <super::messages::Time as prost::Message>::decode(time).ok()?;
    Timestamp::from_second(time.seconds?).ok()
}

/// Whether this patch marks a node as unreachable.
pub(crate) fn marks(patch: &Value) -> bool {
    let conditions = patch["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "Unknown")
}

/// The time from the last renewal of each node to its mark.
#[derive(Default)]
pub(crate) struct Lags(Mutex<BTreeMap<usize, Duration>>);

impl Lags {
    pub(crate) fn marked(&self, node: usize, lag: Duration) {
        self.0.lock().entry(node).or_insert(lag);
    }

    /// The numbers of nodes with their seconds.
    pub(crate) fn all(&self) -> Value {
        let lags = self.0.lock();
        json!(lags.iter().map(|(node, lag)| (node, lag.as_secs_f64())).collect::<Vec<_>>())
    }
}

/// The nodes in a request that stops renewals, by number.
pub(crate) fn stopped_nodes(body: &Value) -> Result<Vec<usize>> {
    let nodes = body["nodes"].as_array().context("the nodes to silence, as numbers")?;
    Ok(nodes.iter().filter_map(Value::as_u64).filter_map(|node| usize::try_from(node).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_node_has_the_controller_fields_and_keeps_the_kubelet_fields() {
        let node: &[u8] = include_bytes!("../../testdata/node.pb");
        let node: &[u8] = &labelled(node).unwrap();
        let (before, after) = (in_json(node).unwrap(), in_json(&marked(node).unwrap()).unwrap());
        assert_eq!(before["metadata"]["labels"]["beta.kubernetes.io/os"], "linux");
        assert_eq!(before["metadata"], after["metadata"]);
        let status_of = |node: &Value, kind: &str| -> Value {
            let all = node["status"]["conditions"].as_array().unwrap();
            all.iter().find(|one| one["type"] == kind).cloned().unwrap_or_default()
        };
        assert_eq!(
            (&status_of(&before, "Ready")["status"], &status_of(&after, "Ready")["status"]),
            (&json!("True"), &json!("Unknown"))
        );
        assert!(status_of(&before, "Ready")["lastHeartbeatTime"].is_string());
        assert_eq!(status_of(&before, "Ready")["lastHeartbeatTime"], status_of(&after, "Ready")["lastHeartbeatTime"]);
        assert_eq!(status_of(&after, NODE_UNREACHABLE)["status"], "True");
        assert_eq!(after["spec"]["taints"].as_array().unwrap().len(), 2);
        assert_eq!(before["spec"]["taints"], json!([]));
    }
}
