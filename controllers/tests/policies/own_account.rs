//! Everything but pods, by pod-safety's own account.

use pod_safety_shared::model::{NODE_UNREACHABLE_CONDITION, OUT_OF_SERVICE_TAINT, SUSPECT_TAINT, UNREACHABLE_TAINT};
use pod_safety_shared::testing::objects::{Obj, budget, evidence, lease, named, node, volume_lease, workload};
use serde_json::{Value, json};

use crate::engine::{Request, patched};
use crate::{Expect, OURS, Row};
use Expect::{Allowed, Refused};

const CONDITIONS: Expect = Refused("of the conditions of a node");
const CONDITIONS_ALONE: Expect = Refused("writes conditions alone");
const NOT_OURS: Expect = Refused("does not belong to pod-safety");
const HOLD_ALONE: Expect = Refused("changes nothing in a BareMetalHost but");
const NEVER: Expect = Refused("never does this");

pub(crate) fn rows() -> Vec<Row> {
    [taints(), stolen_nodes(), node_status(), leases(), own_kinds(), foreign_kinds(), hosts(), the_rest()]
        .into_iter()
        .flatten()
        .collect()
}

fn row(name: &'static str, request: Request, expect: Expect) -> Row {
    Row { policy: "own-account", name, request, expect }
}

fn update(kind: &str, old: impl Into<Value>, new: impl Into<Value>) -> Request {
    Request::new(OURS, &format!("UPDATE {kind}")).old(old).object(new)
}

fn deleted(kind: &str, old: impl Into<Value>) -> Request {
    let options = json!({ "preconditions": { "uid": "u", "resourceVersion": "1" } });
    Request::new(OURS, &format!("DELETE {kind}")).old(old).options(options)
}

fn created(kind: &str, object: impl Into<Value>) -> Request {
    Request::new(OURS, &format!("CREATE {kind}")).object(object)
}

fn taint(key: &str, effect: &str) -> Value {
    json!({ "key": key, "effect": effect })
}

fn theirs() -> Value {
    taint("dedicated", "NoSchedule")
}

/// The taint of an incident of this name.
fn off(incident: &str) -> Value {
    json!({ "key": OUT_OF_SERVICE_TAINT, "effect": "NoExecute", "value": incident })
}

fn w1(ready: &str, taints: &[Value]) -> Value {
    patched(node("w1").ready(ready).into(), json!({ "spec": { "taints": taints } }))
}

fn cordoned(ready: &str) -> Value {
    patched(w1(ready, &[]), json!({ "spec": { "unschedulable": true } }))
}

/// An unreachable node with a taint of others gets these.
fn lost(taints: &[Value]) -> Request {
    update("nodes", w1("Unknown", &[theirs()]), w1("Unknown", taints))
}

/// A Ready node gets these.
fn ready_node(taints: &[Value]) -> Request {
    update("nodes", w1("True", &[theirs()]), w1("True", taints))
}

/// A Ready node is changed.
fn changed(change: Value) -> Request {
    update("nodes", w1("True", &[]), patched(w1("True", &[]), change))
}

fn taints() -> Vec<Row> {
    let bare = || Value::from(node("w1").ready("Unknown"));
    let first = patched(bare(), json!({ "spec": { "taints": [off("w1-0a1b")] } }));
    let unreachable = |effect: &str| taint(UNREACHABLE_TAINT, effect);
    let pressure = taint("node.kubernetes.io/memory-pressure", "NoSchedule");
    let back = update("nodes", w1("True", &[theirs(), off("w1-0a1b")]), w1("True", &[theirs()]));
    let label = json!({ "metadata": { "labels": { "beta.kubernetes.io/os": "linux" } } });
    vec![
        row("it is lost", lost(&[theirs(), unreachable("NoExecute"), unreachable("NoSchedule")]), Allowed),
        row("the first taint of all", update("nodes", bare(), first), Allowed),
        row("it is suspected", ready_node(&[theirs(), taint(SUSPECT_TAINT, "NoSchedule")]), Allowed),
        row("its pressure is shown", ready_node(&[theirs(), pressure]), Allowed),
        row("it is proved off", lost(&[theirs(), off("w1-0a1b")]), Allowed),
        row("it is back", back, Allowed),
        row("its label follows", changed(label), Allowed),
        row("it is drained", update("nodes", w1("True", &[]), cordoned("True")), Allowed),
        row("it is unreachable, and was drained", update("nodes", cordoned("True"), cordoned("Unknown")), Allowed),
        row("its drain is over", update("nodes", cordoned("Unknown"), w1("Unknown", &[])), Allowed),
    ]
}

fn stolen_nodes() -> Vec<Row> {
    const READY: Expect = Refused("only to a node that is not Ready");
    const THEIRS: Expect = Refused("the taints of others");
    let metadata = |fields: Value| changed(json!({ "metadata": fields }));
    let spec = |fields: Value| changed(json!({ "spec": fields }));
    let role = json!({ "labels": { "node-role.kubernetes.io/control-plane": "" } });
    let pause = json!({ "annotations": { "pod-safety.dev/pause-fencing": "x" } });
    vec![
        row("bypass: a Ready node is given up", ready_node(&[theirs(), taint(UNREACHABLE_TAINT, "NoExecute")]), READY),
        row("bypass: a Ready node is called off", ready_node(&[theirs(), off("w1-0a1b")]), READY),
        row("bypass: off, without an incident", lost(&[theirs(), off("")]), READY),
        row("bypass: pods that tolerate silence", lost(&[theirs(), taint(SUSPECT_TAINT, "NoExecute")]), READY),
        row("bypass: the taint of others goes", lost(&[]), THEIRS),
        row("bypass: a taint of its own", lost(&[theirs(), taint("evil", "NoSchedule")]), THEIRS),
        row("bypass: a label", metadata(role), Refused("of the labels of a node")),
        row("bypass: an annotation", metadata(pause), Refused("the metadata of nodes")),
        row(
            "bypass: a cordon of an unreachable node",
            update("nodes", w1("Unknown", &[]), cordoned("Unknown")),
            Refused("cordons only a node that is Ready"),
        ),
        row("bypass: another machine", spec(json!({ "providerID": "x" })), Refused("the spec of nodes")),
        row("bypass: a node goes", deleted("nodes", w1("Unknown", &[])), Refused("never does this: DELETE nodes")),
        row("bypass: a node comes", created("nodes", w1("Unknown", &[])), Refused("never does this: CREATE nodes")),
    ]
}

fn node_status() -> Vec<Row> {
    let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status });
    let w1 = |conditions: &[Value]| -> Value { node("w1").set("/status/conditions", json!(conditions)).into() };
    let (ready, disk) = (|| condition("Ready", "True"), || condition("DiskPressure", "False"));
    let net = || condition("NetworkUnavailable", "False");
    let before = || w1(&[ready(), disk(), net()]);
    let says = |conditions: &[Value]| update("nodes/status", before(), w1(conditions));
    let (silent, dark) = (|| condition("Ready", "Unknown"), || condition("DiskPressure", "Unknown"));
    let (pid, ours) = (condition("PIDPressure", "Unknown"), || condition(NODE_UNREACHABLE_CONDITION, "True"));
    let with = |change: Value| update("nodes/status", before(), patched(before(), change));
    vec![
        row("it is unreachable", says(&[silent(), dark(), net(), pid, ours()]), Allowed),
        row("bypass: called Ready", update("nodes/status", w1(&[silent()]), w1(&[ready()])), CONDITIONS),
        row("bypass: called not Ready", says(&[condition("Ready", "False"), disk(), net()]), CONDITIONS),
        row("bypass: its network", says(&[ready(), disk(), condition("NetworkUnavailable", "True")]), CONDITIONS),
        row("bypass: a condition goes", says(&[ready(), disk()]), CONDITIONS),
        row(
            "bypass: another address",
            with(json!({ "status": { "addresses": [{ "address": "10.0.0.1" }] } })),
            CONDITIONS_ALONE,
        ),
        row("bypass: another machine", with(json!({ "status": { "nodeInfo": { "bootID": "x" } } })), CONDITIONS_ALONE),
        row(
            "bypass: a label, by the status",
            with(json!({ "metadata": { "labels": { "a": "b" } } })),
            Refused("the metadata of nodes/status"),
        ),
    ]
}

fn leases() -> Vec<Row> {
    let at = |namespace: &str, name: &str| Value::from(lease(name, 0).in_namespace(namespace));
    let kind = "coordination.k8s.io/leases";
    let change = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "holderIdentity": "x" } });
    let changed = |space: &str, name: &str| update(kind, at(space, name), patched(at(space, name), change.clone()));
    vec![
        row("whose a volume is", created(kind, volume_lease("data", None)), Allowed),
        row("whose a volume is, later", changed("pod-safety-volumes", "data"), Allowed),
        row("a volume is gone", deleted(kind, at("pod-safety-volumes", "data")), Allowed),
        row("the medik8s Lease", changed("medik8s-leases", "node-w1"), Allowed),
        row("bypass: a heartbeat", changed("kube-node-lease", "w1"), NOT_OURS),
        row("bypass: another leader", changed("kube-system", "kube-controller-manager"), NOT_OURS),
        row("bypass: another of medik8s", changed("medik8s-leases", "operator"), NOT_OURS),
    ]
}

fn own_kinds() -> Vec<Row> {
    let of = |kind: &str| format!("pod-safety.dev/{kind}");
    let proof = |kind: &str| created(&of("fenceevidences"), evidence("w1-0a1b", "w1", "b", kind));
    let opens =
        |kind: &str| created(&of("nodefences"), named("w1-0a1b").set("/spec", json!({ "trigger": { "kind": kind } })));
    let status = |kind: &str| update(&of(kind), named("x"), named("x").set("/status", json!({ "phase": "Fenced" })));
    let keeps = |finalizers: &[&str]| {
        let old = named("w1").set("/metadata/finalizers", json!(["medik8s.io/x"]));
        update(&of("podsafetyremediations"), old, named("w1").set("/metadata/finalizers", json!(finalizers)))
    };
    let respec = update(&of("fencedevices/status"), named("d"), named("d").set("/spec/driver", json!("Agent")));
    vec![
        row("a machine is off", proof("PowerOff"), Allowed),
        row("bypass: a confirmation", proof("Asserted"), Refused("a confirmation by a person")),
        row("an incident", opens("Detected"), Allowed),
        row("bypass: in the name of a person", opens("Person"), Refused("opened by a person")),
        row("an incident goes on", status("nodefences/status"), Allowed),
        row("a device was looked at", status("fencedevices/status"), Allowed),
        row("a policy was reviewed", status("fencepolicies/status"), Allowed),
        row("evidence is contradicted", status("fenceevidences/status"), Allowed),
        row("a remediation is answered", status("podsafetyremediations/status"), Allowed),
        row("an old incident goes", deleted(&of("nodefences"), named("x")), Allowed),
        row("old evidence goes", deleted(&of("fenceevidences"), named("x")), Allowed),
        row("a remediation is kept", keeps(&["medik8s.io/x", "pod-safety.dev/fencing"]), Allowed),
        row(
            "bypass: the finalizer of others goes",
            keeps(&["pod-safety.dev/fencing"]),
            Refused("the finalizers of others"),
        ),
        row("bypass: evidence is changed", update(&of("fenceevidences"), named("x"), named("x")), NEVER),
        row("bypass: a policy", update(&of("fencepolicies"), named("x"), named("x")), NEVER),
        row("bypass: a device", created(&of("fencedevices"), named("x")), NEVER),
        row("bypass: a device, by its status", respec, Refused("the spec of pod-safety.dev/fencedevices/status")),
        row("bypass: a remediation of its own", created(&of("podsafetyremediations"), named("w2")), NEVER),
    ]
}

const HOLD: &str = "reboot.metal3.io/pod-safety";

fn host(annotations: Value) -> Obj {
    named("w1").set("/metadata/annotations", annotations).set("/spec/online", json!(true))
}

fn hosts() -> Vec<Row> {
    let (plain, held) = (|| host(json!({})), || host(json!({ HOLD: "{}" })));
    let detached = host(json!({ "baremetalhost.metal3.io/detached": "" }));
    let paused = host(json!({ "baremetalhost.metal3.io/paused": "" }));
    let kept = plain().set("/metadata/finalizers", json!(["f"]));
    let changed = |old: Obj, new: Obj| update("metal3.io/baremetalhosts", old, new);
    vec![
        row("its host is kept off", changed(plain(), held()), Allowed),
        row("its host may run", changed(held(), plain()), Allowed),
        row("bypass: a host is detached", changed(plain(), detached), HOLD_ALONE),
        row("bypass: a host is managed again", changed(paused, plain()), HOLD_ALONE),
        row(
            "bypass: a host of another owner is switched by its spec",
            changed(plain(), plain().set("/spec/online", json!(false))),
            HOLD_ALONE,
        ),
        row("bypass: a host loses its finalizer", changed(kept, plain()), HOLD_ALONE),
    ]
}

fn foreign_kinds() -> Vec<Row> {
    let ours = || named("w1").labels(json!({ "app.kubernetes.io/part-of": "pod-safety" }));
    let theirs = || named("w1").labels(json!({ "app.kubernetes.io/part-of": "shop" }));
    let (storage, healer) =
        ("csiaddons.openshift.io/networkfences", "self-node-remediation.medik8s.io/selfnoderemediations");
    let fences = |cidrs: &[&str]| ours().set("/spec/cidrs", json!(cidrs));
    let fenced = || fences(&["10.0.0.1/32", "fd00::1/128"]);
    let many = vec!["10.0.0.1/32"; 33];
    let lifted = fenced().set("/spec/fenceState", json!("Unfenced"));
    const HOSTS_ALONE: Expect = Refused("each of one host");
    let remediation = || {
        let owner =
            json!([{ "apiVersion": "pod-safety.dev/v1alpha1", "kind": "NodeFence", "name": "w1-0a1b", "uid": "u" }]);
        ours().in_namespace("pod-safety").set("/metadata/ownerReferences", owner)
    };
    const OWNED: Expect = Refused("by objects that a NodeFence owns");
    vec![
        row("its Machine goes", deleted("cluster.x-k8s.io/machines", named("w1")), Allowed),
        row("bypass: its Machine is changed", update("cluster.x-k8s.io/machines", named("w1"), ours()), NEVER),
        row("bypass: a MachineSet", deleted("cluster.x-k8s.io/machinesets", named("w1")), NEVER),
        row("its OpenShift Machine goes", deleted("machine.openshift.io/machines", named("w1")), Allowed),
        row("its NodeClaim goes", deleted("karpenter.sh/nodeclaims", named("w1")), Allowed),
        row("bypass: a NodePool", deleted("karpenter.sh/nodepools", named("w1")), NEVER),
        row("storage is fenced", created(storage, fenced()), Allowed),
        row("storage is lifted", update(storage, fenced(), lifted), Allowed),
        row("bypass: a NetworkFence of all addresses", created(storage, fences(&["0.0.0.0/0"])), HOSTS_ALONE),
        row("bypass: of a network of IPv6", created(storage, fences(&["fd00::/32"])), HOSTS_ALONE),
        row("bypass: of many", created(storage, fences(&many)), HOSTS_ALONE),
        row("bypass: of no addresses", created(storage, ours()), HOSTS_ALONE),
        row("bypass: of more, later", update(storage, fenced(), fences(&["10.0.0.0/8"])), HOSTS_ALONE),
        row("bypass: a NetworkFence of others is lifted", update(storage, theirs(), ours()), NEVER),
        row("bypass: without any label", update(storage, named("w1"), ours()), NEVER),
        row("another remediator is asked", created(healer, remediation()), Allowed),
        row("it is not asked any more", deleted(healer, remediation()), Allowed),
        row("bypass: a remediation elsewhere", created(healer, remediation().in_namespace("shop")), OWNED),
        row("bypass: a remediation without an incident", created(healer, ours().in_namespace("pod-safety")), OWNED),
        row("bypass: a remediation of others", deleted(healer, theirs()), NEVER),
        row("bypass: its status", update("csiaddons.openshift.io/networkfences/status", ours(), ours()), NEVER),
        row(
            "bypass: a kind of Kubernetes with the label",
            created("rbac.authorization.k8s.io/clusterrolebindings", ours()),
            NEVER,
        ),
    ]
}

fn the_rest() -> Vec<Row> {
    let count = |change: Value| {
        let old: Value = budget("b", "a", &json!({})).into();
        update("policy/poddisruptionbudgets/status", old.clone(), patched(old, change))
    };
    vec![
        row("a budget is counted", count(json!({ "status": { "disruptionsAllowed": 1 } })), Allowed),
        row(
            "bypass: a budget is loosened",
            count(json!({ "spec": { "minAvailable": 0 } })),
            Refused("the spec of policy/poddisruptionbudgets/status"),
        ),
        row("an Event", created("events", named("e")), Allowed),
        row("what it may is asked", created("authorization.k8s.io/selfsubjectaccessreviews", named("r")), Allowed),
        row("bypass: a Deployment", update("apps/deployments", workload("d", 1), workload("d", 9)), NEVER),
        row("bypass: a scale", update("apps/deployments/scale", workload("d", 1), workload("d", 9)), NEVER),
        row("bypass: a Secret", created("secrets", named("s")), Refused("never does this: CREATE secrets")),
        row("bypass: a token", created("serviceaccounts/token", json!({ "metadata": {} })), NEVER),
        row("bypass: an attachment", deleted("storage.k8s.io/volumeattachments", named("a")), NEVER),
    ]
}
