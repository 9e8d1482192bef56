//! The world's objects as the API server would send them, and pods as the cache would have them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pod_safety_model::{ConditionState, Deletion, Labels, Mono, Phase, Pod, PodKey, Tolerations, Uid, Uncommon};
use pod_safety_wire::{Encoding, Raw};

use crate::world::{FenceEvidence, Lease, Node, ObservedAt, PodObject};

/// The node whose state is in doubt.
pub(crate) const NODE: &str = "a";
/// The node on which each successor runs.
pub(crate) const OTHER_NODE: &str = "b";

/// Ticks start this late, so that no age reaches back before the start of the clock.
const EPOCH: u64 = 100_000;

/// A tick on the monotonic clock of pod-safety.
pub(crate) fn mono(tick: u8, seconds: u64) -> Mono {
    Mono::from_start(Duration::from_secs(EPOCH + u64::from(tick) * seconds))
}

/// Timestamp text for a tick on the kubelet's clock, which is not synchronised with any other clock.
pub(crate) fn stamp(tick: u8) -> String {
    format!("2026-01-01T00:{tick:02}:00Z")
}

/// The same as a value.
pub(crate) fn timestamp(tick: u8) -> Timestamp {
    stamp(tick).parse().unwrap_or_default()
}

fn raw(text: String) -> Option<Raw> {
    Raw::from_body(Encoding::Json, text.into()).ok()
}

/// The Node with all fields that its taint needs.
pub(crate) fn node_text(node: &Node, boot: &str) -> String {
    let ready = if node.ready { "True" } else { "Unknown" };
    let taints = if node.tainted {
        r#"[{"key":"node.kubernetes.io/out-of-service","value":"v","effect":"NoExecute"}]"#
    } else {
        "[]"
    };
    format!(
        r#"{{"metadata":{{"name":"{NODE}","uid":"node-{}","resourceVersion":"{}"}},"spec":{{"taints":{taints}}},"status":{{"nodeInfo":{{"bootID":"{boot}"}},"conditions":[{{"type":"Ready","status":"{ready}"}}]}}}}"#,
        node.uid, node.version,
    )
}

/// The answer to a read of the Node.
pub(crate) fn node(node: &Node) -> Option<Raw> {
    raw(node_text(node, &boot_id(node.boot)))
}

/// The answer to a read of the Lease.
pub(crate) fn lease(lease: &Lease, seconds: u64) -> Option<Raw> {
    raw(format!(
        r#"{{"metadata":{{"name":"{NODE}","uid":"lease-{}"}},"spec":{{"leaseDurationSeconds":{seconds},"renewTime":"{}"}}}}"#,
        lease.uid,
        stamp(lease.renewed).replace('Z', ".000000Z"),
    ))
}

/// The answer to a read of the FenceEvidence.
pub(crate) fn evidence(evidence: &FenceEvidence, of_provider: bool) -> Option<Raw> {
    let (kind, samples) = match (evidence.by_person, of_provider) {
        (true, _) => ("Asserted", "[]"),
        (false, true) => ("InstanceStopped", "[{}]"),
        (false, false) => ("PowerOff", "[{}]"),
    };
    let renewed = evidence.renewed.map_or_else(|| "null".to_owned(), |tick| format!(r#""{}""#, stamp(tick)));
    raw(format!(
        r#"{{"metadata":{{"name":"e"}},"spec":{{"node":{{"name":"{NODE}","uid":"node-{}","bootID":"{}"}},"kind":"{kind}","samples":{samples},"by":"sam","leaseRenewed":{renewed}}}}}"#,
        evidence.node,
        boot_id(evidence.boot),
    ))
}

/// The boot ID of that boot.
pub(crate) fn boot_id(boot: u8) -> String {
    format!("b0000000-0000-4000-8000-{boot:012}")
}

/// A pod as the cache has it.
pub(crate) fn pod(object: &PodObject, seen: ObservedAt, seconds: u64, grace: u64) -> Pod {
    let at = mono(0, seconds);
    let key = PodKey {
        namespace: "ns".into(),
        name: "db-0".into(),
        // The constant prefix makes this a valid UID.
        uid: Uid::new(&format!("pod-{}", object.uid)).unwrap_or_else(|| unreachable!()),
    };
    let deletion = object.deleted.then(|| Deletion {
        at: 1,
        grace: i64::try_from(grace).ok(),
        first_seen: mono(seen.deletion, seconds),
        kubelet_may_know: seen.maybe_known,
    });
    let generation = if object.deleted { 2 } else { 1 };
    let mut pod = Pod {
        key,
        rv: version(object).parse().unwrap_or_default(),
        generation,
        created: 0,
        node: object.node().map(Arc::from),
        bound_at: 0,
        phase: if object.failed { Phase::Failed } else { Phase::Running },
        evicted: false,
        observed_generation: i64::from(object.observed),
        running_containers: u16::from(object.running),
        container_states: u32::from(object.running),
        worker_may_be_busy: object.busy && i64::from(object.observed) < generation,
        mirror: false,
        ready: false,
        unreachable: ConditionState::default(),
        labels: Labels::default(),
        tolerations: Tolerations::default(),
        gated: false,
        unschedulable: false,
        controller: None,
        uncommon: None,
        first_seen: at,
        placed_at: at,
        became_ready: None,
    };
    pod.set_uncommon(Uncommon { deletion, ..Uncommon::default() });
    pod
}

/// resourceVersions of one cluster are never reused.
pub(crate) fn version(object: &PodObject) -> String {
    (u32::from(object.uid) * 100 + u32::from(object.version)).to_string()
}
