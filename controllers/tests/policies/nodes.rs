//! Nodes: the out-of-service taint, the condition Ready, deletions, and the marks that exclude a node from fencing.

use pod_safety_shared::api::PAUSE_ANNOTATION;
use pod_safety_shared::model::{OUT_OF_SERVICE_TAINT, SUSPECT_TAINT};
use pod_safety_shared::testing::objects::node;
use serde_json::{Value, json};

use crate::engine::{Request, patched};
use crate::{Expect, OURS, Row};
use Expect::{Allowed, NotAsked, Refused};

const DEV: &str = "dev";
const KUBELET: &str = "system:node:w1";
const KARPENTER: &str = "system:serviceaccount:kube-system:karpenter";
const AZURE: &str = "system:serviceaccount:kube-system:azure";
const DOWN: &str = "nodes confirm-down";

const NO_PROOF: Expect = Refused("There is no proof that it is off");
const ITS_KUBELET: Expect = Refused("only the kubelet of node w1");
const PAUSE: Expect = Refused("pod-safety pause w1");
const RESUME: Expect = Refused("pod-safety resume w1");
const EXCLUDE: Expect = Refused("exclude its own node");

pub(crate) fn rows() -> Vec<Row> {
    [taints(), conditions(), mounts(), deletions(), marks()].into_iter().flatten().collect()
}

fn row(name: &'static str, request: Request, expect: Expect) -> Row {
    Row { policy: "node", name, request, expect }
}

fn w1(ready: &str) -> Value {
    node("w1").ready(ready).into()
}

fn burnt(object: Value) -> Value {
    patched(object, json!({ "metadata": { "annotations": { "pod-safety.dev/break-glass": "burnt" } } }))
}

fn tainted(object: Value, key: &str) -> Value {
    patched(object, json!({ "spec": { "taints": [{ "key": key, "effect": "NoExecute" }] } }))
}

fn suspected(object: Value) -> Value {
    tainted(object, SUSPECT_TAINT)
}

/// The kubelet has never reported, or its report was removed.
fn unreported() -> Value {
    patched(node("w1").into(), json!({ "status": { "conditions": null } }))
}

fn changed(user: &str, old: Value, new: Value) -> Request {
    Request::new(user, "UPDATE nodes").old(old).object(new)
}

fn reports(user: &str, old: Value, new: Value) -> Request {
    Request::new(user, "UPDATE nodes/status").old(old).object(new)
}

fn taints() -> Vec<Row> {
    let off = |object| tainted(object, OUT_OF_SERVICE_TAINT);
    let adds = |user: &str, ready: &str| changed(user, w1(ready), off(w1(ready)));
    let adds_burnt = || changed(DEV, w1("Unknown"), off(burnt(w1("Unknown"))));
    const SUSPECT: Expect = Refused("only pod-safety removes the taint pod-safety.dev/suspect");
    let made = |new: Value| Request::new(DEV, "CREATE nodes").object(new);
    vec![
        row("the taint", adds(DEV, "Unknown"), NO_PROOF),
        row("the taint, by a controller that checks the machine", adds(AZURE, "Unknown"), Allowed),
        row("bypass: the taint of a Ready node, by such a controller", adds(AZURE, "True"), NO_PROOF),
        row("the taint, with the right", adds_burnt().may(DOWN), Allowed),
        row("the taint, with a reason alone", adds_burnt(), NO_PROOF),
        row("it was there", changed(DEV, off(w1("Unknown")), off(w1("Unknown"))), Allowed),
        row("bypass: the suspect taint is removed", changed(DEV, suspected(w1("True")), w1("True")), SUSPECT),
        row("it stays beside another", changed(DEV, suspected(w1("True")), suspected(w1("True"))), Allowed),
        row("removed, by right", changed(DEV, suspected(w1("True")), burnt(w1("True"))).may(DOWN), Allowed),
        row("another taint", changed(DEV, w1("True"), tainted(w1("True"), "a")), Allowed),
        row("pod-safety", adds(OURS, "Unknown"), NotAsked),
        row("bypass: a Node comes with the taint", made(off(w1("Unknown"))), NO_PROOF),
        row("a Node comes without", made(w1("True")), Allowed),
    ]
}

fn conditions() -> Vec<Row> {
    const GOES: Expect = Refused("only the kubelet of node w1 may remove the condition Ready");
    let says = |user: &str, before: &str, now: &str| reports(user, w1(before), w1(now));
    let forgets = |user: &str, now: Value| reports(user, w1("Unknown"), now);
    let renamed = patched(unreported(), json!({ "status": { "conditions": [{ "type": "Readi" }] } }));
    vec![
        row("bypass: it is marked Ready", says(DEV, "Unknown", "True"), ITS_KUBELET),
        row("bypass: another kubelet does", says("system:node:w2", "Unknown", "True"), ITS_KUBELET),
        row("its kubelet", says(KUBELET, "Unknown", "True"), Allowed),
        row("less than Ready", says(DEV, "True", "Unknown"), Allowed),
        row("bypass: the condition Ready goes", forgets(DEV, unreported()), GOES),
        row("bypass: the condition Ready gets another name", forgets(DEV, renamed), GOES),
        row("it goes, by another kubelet", forgets("system:node:w2", unreported()), GOES),
        row("it goes, by its kubelet", forgets(KUBELET, unreported()), Allowed),
        row("removed, by right", forgets(DEV, burnt(unreported())).may(DOWN), Allowed),
        row("the first report", reports(KUBELET, unreported(), w1("True")), Allowed),
        row("Unknown, of one that never reported", reports(DEV, unreported(), w1("Unknown")), Allowed),
    ]
}

fn mounts() -> Vec<Row> {
    const GOES: Expect = Refused("may remove a volume from status.volumesInUse");
    let uses = |volumes: &[&str]| patched(w1("Unknown"), json!({ "status": { "volumesInUse": volumes } }));
    let both = || uses(&["a", "b"]);
    const OTHER: Expect = Refused("may change the bootID and the systemUUID");
    let is = |boot: &str, machine: &str| {
        patched(w1("Unknown"), json!({ "status": { "nodeInfo": { "bootID": boot, "systemUUID": machine } } }))
    };
    vec![
        row("bypass: a volume is reported unmounted", reports(DEV, both(), uses(&["b"])), GOES),
        row("bypass: all volumes are", reports(DEV, both(), w1("Unknown")), GOES),
        row("bypass: by another kubelet", reports("system:node:w2", both(), uses(&["a"])), GOES),
        row("its kubelet has unmounted it", reports(KUBELET, both(), uses(&["b"])), Allowed),
        row("a volume is unmounted, with the right", reports(DEV, both(), burnt(uses(&["b"]))).may(DOWN), Allowed),
        row("one more", reports(DEV, uses(&["b"]), both()), Allowed),
        // With another boot ID, written by a network plugin, the volumes of a running node were given to other nodes.
        row("bypass: another boot is reported", reports(DEV, is("b1", "m1"), is("b2", "m1")), OTHER),
        row("bypass: no boot is", reports(DEV, is("b1", "m1"), is("", "m1")), OTHER),
        row("bypass: another machine is reported", reports("system:node:w2", is("b1", "m1"), is("b1", "m2")), OTHER),
        row("its kubelet has booted", reports(KUBELET, is("b1", "m1"), is("b2", "m1")), Allowed),
        row("another boot, with the right", reports(DEV, is("b1", "m1"), burnt(is("b2", "m1"))).may(DOWN), Allowed),
        row("the first boot", reports(DEV, is("", ""), is("b1", "m1")), Allowed),
    ]
}

fn kept(object: Value) -> Value {
    patched(object, json!({ "metadata": { "finalizers": ["karpenter.sh/termination"] } }))
}

fn going(object: Value) -> Value {
    patched(kept(object), json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }))
}

fn deletions() -> Vec<Row> {
    let deleted = |user: &str, old: Value| Request::new(user, "DELETE nodes").old(old);
    let cordoned = |object| patched(object, json!({ "spec": { "unschedulable": true } }));
    let lets_go = |user: &str, ready: &str| changed(user, going(w1(ready)), w1(ready));
    const UNPROVED: Expect = Refused("and there is no proof that it is off");
    const IN_USE: Expect = Refused("pods run on node w1");
    vec![
        row("an unreachable one", deleted(DEV, w1("Unknown")), UNPROVED),
        row("an unreachable one, cordoned", deleted(DEV, cordoned(w1("Unknown"))), UNPROVED),
        row("a Ready one", deleted(DEV, w1("True")), IN_USE),
        row("a Ready one, cordoned", deleted(DEV, cordoned(w1("True"))), Allowed),
        row("a Ready one of an autoscaler", deleted(DEV, tainted(w1("True"), "karpenter.sh/disrupted")), Allowed),
        row("one unreachable since a moment ago", deleted(DEV, suspected(w1("True"))), IN_USE),
        row(
            "bypass: one unreachable since a moment ago is cordoned",
            deleted(DEV, cordoned(suspected(w1("True")))),
            UNPROVED,
        ),
        row("what is proved carries the taint", deleted(DEV, tainted(w1("Unknown"), OUT_OF_SERVICE_TAINT)), Allowed),
        row("one that never reported", deleted(DEV, unreported()), Allowed),
        row("bypass: Karpenter's finalizer of an unreachable deleted one", lets_go(DEV, "Unknown"), UNPROVED),
        row("bypass: Karpenter's finalizer of a Ready one that goes", lets_go(DEV, "True"), IN_USE),
        row("by Karpenter, an unreachable one", lets_go(KARPENTER, "Unknown"), Allowed),
        row("by Karpenter, a Ready one", lets_go(KARPENTER, "True"), Allowed),
        row("a drained one that goes", changed(DEV, going(cordoned(w1("True"))), cordoned(w1("True"))), Allowed),
        row("another finalizer stays", changed(DEV, going(w1("Unknown")), kept(w1("Unknown"))), Allowed),
        row("a finalizer of one that stays", changed(DEV, kept(w1("Unknown")), w1("Unknown")), Allowed),
        row("with the right", deleted(DEV, burnt(w1("True"))).may(DOWN), Allowed),
        row("an unreachable one, with the right", deleted(DEV, burnt(w1("Unknown"))).may(DOWN), Allowed),
    ]
}

fn marks() -> Vec<Row> {
    const EXCLUDED: &str = "remediation.medik8s.io/exclude-from-remediation";
    const SKIP: &str = "cluster.x-k8s.io/skip-remediation";
    let row = |name, request, expect| Row { policy: "pause", name, request, expect };
    let annotated =
        |key: &str, value: &str| patched(w1("True"), json!({ "metadata": { "annotations": { key: value } } }));
    let (paused, skips) = (|text: &str| annotated(PAUSE_ANNOTATION, text), annotated(SKIP, ""));
    let by_kubelet = |old: Value, new: Value| changed(KUBELET, old, new);
    let labelled = || patched(w1("True"), json!({ "metadata": { "labels": { EXCLUDED: "true" } } }));
    let status = |old: Value, new: Value| reports(KUBELET, old, new);
    let made = |new: Value| Request::new(KUBELET, "CREATE nodes").object(new);
    vec![
        row("a person pauses", changed(DEV, w1("True"), paused("hands in it")), NotAsked),
        row("bypass: its kubelet pauses", changed(KUBELET, w1("True"), paused("mine")), PAUSE),
        row("bypass: by its status", status(w1("True"), paused("mine")), PAUSE),
        row("bypass: by Cluster API's mark", by_kubelet(w1("True"), skips.clone()), PAUSE),
        row("bypass: by another reason", by_kubelet(paused("hands in it"), paused("mine")), PAUSE),
        row("bypass: a Node comes paused", made(paused("mine")), PAUSE),
        row("bypass: by medik8s' label", changed(KUBELET, w1("True"), labelled()), EXCLUDE),
        row("bypass: a Node comes with that label", made(labelled()), EXCLUDE),
        row("a Node comes without marks", made(w1("True")), Allowed),
        row("bypass: its kubelet ends the pause of a person", by_kubelet(paused("hands in it"), w1("True")), RESUME),
        row("bypass: it ends the pause by its status", status(paused("hands in it"), w1("True")), RESUME),
        row("bypass: it takes Cluster API's mark away", by_kubelet(skips, w1("True")), RESUME),
        row("bypass: it takes medik8s' label away", by_kubelet(labelled(), w1("True")), EXCLUDE),
        row("a person ends a pause", changed(DEV, paused("hands in it"), w1("True")), NotAsked),
        row("a pause of others stays", status(paused("hands in it"), paused("hands in it")), Allowed),
        row("a label of others stays", status(labelled(), labelled()), Allowed),
        row("its kubelet reports", status(w1("True"), w1("True")), Allowed),
    ]
}
