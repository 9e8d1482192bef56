//! Users, scripts and other controllers.

use pod_safety_shared::testing::objects::{named, pod, volume_lease};
use serde_json::{Value, json};

use crate::engine::{Request, patched};
use crate::{Expect, OURS, Row};
use Expect::{Allowed, NotAsked, Refused};

const DEV: &str = "dev";
const KUBELET: &str = "system:node:w1";
const REASON: &str = "pod-safety.dev/break-glass";
const FORCE_DETACH: &str = "volumeattachments force-detach";
const FORCE: &str = "pods force-delete";

const ENDS: Expect = Refused("before its containers terminate");
const SELF_NAME: Expect = Refused("must be your own user name");
const ALONE: Expect = Refused("pod-safety alone writes it");
const HELD: Expect = Refused("is held");
const DETACH: Expect = Refused("force-detach");
const BY_US_ALONE: Expect = Refused("by pod-safety alone");
const GRACE: Expect = Refused("Set at least 1");

pub(crate) fn rows() -> Vec<Row> {
    [
        force_delete(),
        force_delete_by_pod(),
        terminal_phase(),
        pod_report(),
        pod_report_on_containers(),
        leases(),
        evictions(),
        attachments(),
        volumes(),
        stateful_sets(),
        evidence(),
        fences(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn stateful() -> Value {
    pod("db-0").on("w1").owned_by("apps/v1", "StatefulSet", "db").into()
}

fn reasoned(object: Value, reason: &str) -> Value {
    patched(object, json!({ "metadata": { "annotations": { REASON: reason } } }))
}

const MORE: Expect = Refused("break-glass=REASON");
const RUNS: Expect = Refused("may still run");

fn forced(user: &str, old: impl Into<Value>) -> Request {
    Request::new(user, "DELETE pods").old(old).options(json!({ "gracePeriodSeconds": 0 }))
}

fn row_of_deletion(name: &'static str, request: Request, expect: Expect) -> Row {
    Row { policy: "force-delete", name, request, expect }
}

/// By user, right and reason.
fn force_delete() -> Vec<Row> {
    let row = row_of_deletion;
    let web = || pod("web").on("w1");
    let with_reason = |reason: &str| forced(DEV, reasoned(stateful(), reason));
    vec![
        row("--force", forced(DEV, stateful()), Refused("would start another db-0 beside it")),
        row("--force without a StatefulSet", forced(DEV, web()), Refused("has not reported that")),
        row("bypass: a reason without the right", with_reason("."), RUNS),
        row("the right without a reason", forced(DEV, stateful()).may(FORCE), MORE),
        row("an empty reason", with_reason("  ").may(FORCE), MORE),
        row("right and reason", with_reason("burnt").may(FORCE), Allowed),
        row("the right, and no StatefulSet", forced(DEV, web()).may(FORCE), Allowed),
        row("its kubelet", forced(KUBELET, stateful()), NotAsked),
        row("another kubelet", forced("system:node:w2", stateful()), RUNS),
        row("pod-safety", forced(OURS, stateful()), NotAsked),
    ]
}

/// By the state of the pod.
fn force_delete_by_pod() -> Vec<Row> {
    let row = row_of_deletion;
    let delete = || Request::new(DEV, "DELETE pods").old(stateful());
    let runs = json!({ "state": { "running": {} } });
    let lies =
        |field: &str| forced(DEV, patched(stateful(), json!({ "status": { "phase": "Failed", field: [runs] } })));
    let graceless = |of: Value| forced(DEV, patched(of, json!({ "spec": { "terminationGracePeriodSeconds": 0 } })));
    let owned = |api: &str, kind: &str, name: &str| pod("db-0").on("w1").owned_by(api, kind, name).into();
    let of_db = |api: &str, kind: &str| owned(api, kind, "db");
    let called = |hostname: &str| patched(pod("db-0").on("w1").into(), json!({ "spec": { "hostname": hostname } }));
    vec![
        row("a grace", delete().options(json!({ "gracePeriodSeconds": 1 })), NotAsked),
        row("no options", delete(), NotAsked),
        row("no node", forced(DEV, pod("free")), NotAsked),
        row("it ended", forced(DEV, pod("done").on("w1").terminated()), NotAsked),
        row("bypass: Failed beside a container that runs", lies("containerStatuses"), RUNS),
        row("bypass: Failed beside an init container that runs", lies("initContainerStatuses"), RUNS),
        row("bypass: Failed beside an ephemeral container", lies("ephemeralContainerStatuses"), RUNS),
        row("graceless by choice", graceless(pod("web").on("w1").into()), NotAsked),
        row("graceless by choice, of a ReplicaSet", graceless(owned("apps/v1", "ReplicaSet", "web")), NotAsked),
        row("graceless by choice, of a node", graceless(owned("v1", "Node", "w1")), NotAsked),
        row("graceless by choice, with another hostname", graceless(called("db")), NotAsked),
        row(
            "bypass: graceless, of a StatefulSet",
            graceless(stateful()),
            Refused("StatefulSet db would start another db-0"),
        ),
        row(
            "bypass: graceless, and taken from its StatefulSet",
            graceless(called("db-0")),
            Refused("its controller would start another db-0"),
        ),
        row(
            "bypass: graceless, of an operator of databases",
            graceless(of_db("postgresql.cnpg.io/v1", "Cluster")),
            Refused("Cluster db would start another db-0"),
        ),
        row(
            "bypass: graceless, of Kruise's StatefulSet",
            graceless(of_db("apps.kruise.io/v1beta1", "StatefulSet")),
            Refused("StatefulSet db would start another db-0"),
        ),
        row(
            "of an operator, with the right, no reason",
            forced(DEV, of_db("core.strimzi.io/v1beta2", "StrimziPodSet")).may(FORCE),
            MORE,
        ),
    ]
}

fn terminal_phase() -> Vec<Row> {
    let runs = json!({ "status": { "containerStatuses": [{ "state": { "running": {} } }] } });
    let becomes = |user: &str, old: Value, status: Value| {
        let new = patched(old.clone(), json!({ "status": status }));
        Request::new(user, "UPDATE pods/status").object(new).old(old)
    };
    let failed = || json!({ "phase": "Failed" });
    let row = |name, request, expect| Row { policy: "terminal-phase", name, request, expect };
    vec![
        row("Failed", becomes(DEV, stateful(), failed()), Refused("can say Failed")),
        row("Succeeded", becomes(DEV, stateful(), json!({ "phase": "Succeeded" })), Refused("can say Succeeded")),
        row("Pending", becomes(DEV, stateful(), json!({ "phase": "Pending" })), NotAsked),
        row("Failed already", becomes(DEV, patched(stateful(), json!({ "status": failed() })), failed()), NotAsked),
        row(
            "bypass: a running container is taken from the status",
            becomes(DEV, patched(stateful(), runs), json!({ "containerStatuses": null })),
            Refused("can say that its containers terminated"),
        ),
        row("no node", becomes(DEV, pod("free").into(), failed()), NotAsked),
        row("its kubelet", becomes(KUBELET, stateful(), failed()), NotAsked),
        row("pod-safety", becomes(OURS, stateful(), failed()), NotAsked),
        row("right and reason", becomes(DEV, reasoned(stateful(), "burnt"), failed()).may(FORCE), Allowed),
        row("a reason without the right", becomes(DEV, reasoned(stateful(), "."), failed()), Refused("may still run")),
    ]
}

/// This status of a pod, written by this user.
fn reports(user: &str, old: Value, status: Value) -> Request {
    let new = patched(old.clone(), json!({ "status": status }));
    Request::new(user, "UPDATE pods/status").object(new).old(old)
}

/// States of containers, reported by clients other than their kubelet.
fn pod_report_on_containers() -> Vec<Row> {
    let container = |state: &str, restarts: u32| json!({ "state": { state: {} }, "restartCount": restarts });
    let (waits, runs, ended) = (container("waiting", 0), container("running", 0), container("terminated", 0));
    let list = |field: &str, one: &Value| json!({ field: [one] });
    let (none, main) = (json!({}), |one: &Value| list("containerStatuses", one));
    let failed = patched(json!({ "phase": "Failed" }), list("ephemeralContainerStatuses", &runs));
    let others = patched(main(&waits), json!({ "message": "m" }));
    let rows = [
        ("bypass: one waits", none.clone(), main(&waits), false),
        ("bypass: one starts", main(&waits), main(&runs), false),
        ("bypass: one starts, and Failed", none, failed, false),
        ("bypass: one ends", list("initContainerStatuses", &runs), json!({ "initContainerStatuses": [] }), false),
        ("bypass: one terminates that was never reported running", main(&waits), main(&ended), false),
        ("bypass: one was restarted", main(&runs), main(&container("running", 1)), false),
        ("the message of its pod changes", main(&waits), others, true),
    ];
    let row = |(name, old, new, is_allowed)| {
        let request = reports(DEV, patched(stateful(), json!({ "status": old })), new);
        let expect = if is_allowed { Allowed } else { Refused("what its containers do") };
        Row { policy: "pod-report", name, request, expect }
    };
    rows.into_iter().map(row).collect()
}

/// Signs of a running kubelet, and writes of other clients.
fn pod_report() -> Vec<Row> {
    let ready = |statuses: &[&str]| -> Value {
        statuses.iter().map(|status| json!({ "type": "Ready", "status": status })).collect()
    };
    let free = || Value::from(pod("free"));
    let with = |status: Value| patched(stateful(), json!({ "status": status }));
    let dev = |old: Value, status: Value| reports(DEV, with(old), status);
    let row = |name, request, expect| Row { policy: "pod-report", name, request, expect };
    let seen = Refused("a newer status.observedGeneration");
    let (turns, again) = (Refused("Ready=True"), Refused("that it runs again"));
    let newer = || json!({ "observedGeneration": 2 });
    let off = || json!({ "conditions": ready(&["False"]) });
    let on = || json!({ "conditions": ready(&["True"]) });
    let failed = || json!({ "phase": "Failed", "observedGeneration": 2 });
    let target = json!({ "conditions": [{ "type": "Ready", "status": "True" }, { "type": "DisruptionTarget", "status": "True" }] });
    vec![
        row("its kubelet", reports(KUBELET, stateful(), newer()), NotAsked),
        row("pod-safety", reports(OURS, stateful(), newer()), NotAsked),
        row("no node", reports(DEV, free(), newer()), NotAsked),
        row("bypass: another kubelet", reports("system:node:w2", stateful(), newer()), seen),
        row("bypass: observed", dev(json!({ "observedGeneration": 1 }), newer()), seen),
        row("observed before", dev(newer(), json!({ "observedGeneration": 1 })), Allowed),
        row("the collector of kube-controller-manager", dev(json!({}), failed()), Allowed),
        row("bypass: observed, and Failed already", dev(json!({ "phase": "Failed" }), failed()), seen),
        row("bypass: Failed, and Running again", dev(failed(), json!({ "phase": "Running" })), again),
        row("bypass: Ready again", dev(off(), on()), turns),
        row("bypass: Ready for the first time", dev(json!({}), on()), turns),
        row("bypass: Ready twice", dev(on(), json!({ "conditions": ready(&["False", "True"]) })), turns),
        row("not Ready any more, as the node lifecycle writes", dev(on(), off()), Allowed),
        row("to be evicted, as others write", dev(on(), target), Allowed),
        row("where it should go, as the scheduler writes", dev(off(), json!({ "nominatedNodeName": "w1" })), Allowed),
    ]
}

/// The Leases of pod-safety.
fn leases() -> Vec<Row> {
    let lease = |namespace: &str, name: &str| Value::from(named(name).in_namespace(namespace));
    let asks = |user: &str, operation: &str, object: Value| {
        let request = Request::new(user, &format!("{operation} coordination.k8s.io/leases"));
        if operation == "DELETE" { request.old(object) } else { request.object(object) }
    };
    let leader = || lease("kube-system", "pod-safety");
    let volume = || lease("pod-safety-volumes", "data");
    let row = |name, request, expect| Row { policy: "leases", name, request, expect };
    let end = "system:serviceaccount:kube-system:namespace-controller";
    vec![
        row("pod-safety", asks(OURS, "UPDATE", leader()), NotAsked),
        row("an election of others", asks(DEV, "UPDATE", lease("kube-system", "other")), NotAsked),
        row("bypass: another leader", asks(DEV, "UPDATE", leader()), Refused("a Lease of another name")),
        row("bypass: the leader's is deleted", asks(DEV, "DELETE", leader()), BY_US_ALONE),
        row("another release", asks(DEV, "UPDATE", leader()).may("/pods/status patch"), Allowed),
        row("bypass: a volume is taken", asks(DEV, "CREATE", volume()), DETACH),
        row("bypass: a volume is free", asks(DEV, "DELETE", volume()), DETACH),
        row("a volume is freed, with the right", asks(DEV, "DELETE", volume()).may(FORCE_DETACH), Allowed),
        row(
            "bypass: the right to detach frees no leader",
            asks(DEV, "UPDATE", leader()).may(FORCE_DETACH),
            BY_US_ALONE,
        ),
        row("the namespace is deleted", asks(end, "DELETE", volume()), NotAsked),
        row("bypass: its controller writes", asks(end, "UPDATE", volume()), BY_US_ALONE),
    ]
}

fn evictions() -> Vec<Row> {
    let evicts = |user: &str, change: Value| {
        let eviction = json!({ "metadata": { "name": "db-0", "namespace": "ns" } });
        Request::new(user, "CREATE pods/eviction").object(patched(eviction, change))
    };
    let now = || json!({ "deleteOptions": { "gracePeriodSeconds": 0 } });
    let row = |name, request, expect| Row { policy: "eviction", name, request, expect };
    vec![
        row("grace 0", evicts(DEV, now()), ENDS),
        row("a grace", evicts(DEV, json!({ "deleteOptions": { "gracePeriodSeconds": 1 } })), NotAsked),
        row("its own grace", evicts(DEV, json!({})), NotAsked),
        row("pod-safety", evicts(OURS, now()), NotAsked),
        row("right and reason", evicts(DEV, reasoned(now(), "burnt")).may(FORCE), Allowed),
        row("a reason without the right", evicts(DEV, reasoned(now(), ".")), ENDS),
    ]
}

fn attachments() -> Vec<Row> {
    const HOLD: &str = "pod-safety.dev/hold";
    let held = |change: Value| {
        let held = json!({ "metadata": { "name": "a", "annotations": { HOLD: "w1 may still write" } } });
        patched(held, change)
    };
    let deleted = |user: &str, old: Value| Request::new(user, "DELETE storage.k8s.io/volumeattachments").old(old);
    let changed = |change: Value| {
        Request::new(DEV, "UPDATE storage.k8s.io/volumeattachments").old(held(json!({}))).object(held(change))
    };
    let row = |name, request, expect| Row { policy: "attachment-hold", name, request, expect };
    let annotated = |key: &str, value: Value| json!({ "metadata": { "annotations": { key: value } } });
    let burnt = || json!({ "metadata": { "annotations": { REASON: "burnt" } } });
    let gone_and_burnt = || json!({ "metadata": { "annotations": { HOLD: null, REASON: "burnt" } } });
    vec![
        row("it is deleted", deleted(DEV, held(json!({}))), Refused("is held: w1 may still write")),
        row("one that is not held", deleted(DEV, json!({ "metadata": { "name": "a" } })), NotAsked),
        row("pod-safety", deleted(OURS, held(json!({}))), NotAsked),
        row("right and reason", deleted(DEV, held(burnt())).may(FORCE_DETACH), Allowed),
        row("a reason without the right", deleted(DEV, held(burnt())), HELD),
        row("another change", changed(json!({ "metadata": { "labels": { "a": "b" } } })), Allowed),
        row("bypass: the mark goes first", changed(annotated(HOLD, json!(null))), HELD),
        row("bypass: the mark is emptied", changed(annotated(HOLD, json!(""))), HELD),
        row("the mark is removed, with the right", changed(gone_and_burnt()).may(FORCE_DETACH), Allowed),
    ]
}

fn volumes() -> Vec<Row> {
    const ACT: [&str; 2] = ["CREATE storage.k8s.io/volumeattachments", "DELETE storage.k8s.io/volumeattachments"];
    let at = |node: &str| json!({ "metadata": { "name": "a" }, "spec": { "nodeName": node, "source": { "persistentVolumeName": "data" } } });
    let lease = |holder: Option<&str>, annotations: Value| {
        // An absent field means no holder.
        let change = json!({ "metadata": { "annotations": annotations }, "spec": { "holderIdentity": holder } });
        patched(volume_lease("data", holder).into(), change)
    };
    let held = || lease(Some("w1/u/b/p"), json!({ "pod-safety.dev/hold": "its pod may run on w1" }));
    let leaving = |holder| lease(holder, json!({ "pod-safety.dev/detach-from": "w1" }));
    let logs = Value::from(volume_lease("logs", Some("w1/u/b/p")));
    let attach = |node: &str| Request::new(DEV, ACT[0]).object(at(node));
    let detach = |node: &str| Request::new(DEV, ACT[1]).old(at(node));
    let row = |name, request: Request, params: Value, expect| Row {
        policy: "volume-held",
        name,
        request: request.params(params),
        expect,
    };
    let inline = Request::new(DEV, ACT[0]).object(json!({ "spec": { "source": {} } }));
    let ours = Request::new("system:serviceaccount:pod-safety:keeper", ACT[0]).object(at("w2"));
    let burnt = Request::new(DEV, ACT[0]).object(reasoned(at("w2"), "burnt")).may(FORCE_DETACH);
    let again = Refused("its owner may still write");
    vec![
        row("attached elsewhere", attach("w2"), held(), Refused("not attached to w2: its pod may run on w1")),
        row("attached where it is held", attach("w1"), held(), Allowed),
        row("detached from its holder", detach("w1"), held(), Refused("data is not detached from w1")),
        row("detached from elsewhere", detach("w2"), held(), Allowed),
        row("a Lease of another volume", attach("w2"), logs, Allowed),
        row("detached where that ends the writes", detach("w1"), leaving(Some("w1/u/b/p")), Allowed),
        row("attached again where it was detached from", attach("w1"), leaving(None), again),
        row("attached elsewhere after that", attach("w2"), leaving(None), Allowed),
        row("a holder that cannot be read", attach("w1"), lease(Some("x"), json!({})), Refused("not attached")),
        row("no volume of a claim", inline, held(), NotAsked),
        row("pod-safety", ours, held(), NotAsked),
        row("right and reason", burnt, held(), Allowed),
    ]
}

fn stateful_sets() -> Vec<Row> {
    let set = |grace: Option<i64>| {
        patched(
            named("db").in_namespace("ns").into(),
            json!({ "spec": { "template": { "spec": { "terminationGracePeriodSeconds": grace } } } }),
        )
    };
    let made = |user: &str, new: Value| Request::new(user, "CREATE apps/statefulsets").object(new);
    let changed = |old: Value, new: Value| Request::new(DEV, "UPDATE apps/statefulsets").old(old).object(new);
    let row = |name, request, expect| Row { policy: "stateful-set-grace", name, request, expect };
    vec![
        row("made with grace 0", made(DEV, set(Some(0))), GRACE),
        row("made with a grace", made(DEV, set(Some(30))), NotAsked),
        row("without any", made(DEV, set(None)), NotAsked),
        row("it gets grace 0", changed(set(Some(30)), set(Some(0))), GRACE),
        row("it has grace 0 already", changed(set(Some(0)), set(Some(0))), NotAsked),
        row("with a reason", made(DEV, reasoned(set(Some(0)), "a cache")), Allowed),
        row("pod-safety", made(OURS, set(Some(0))), NotAsked),
    ]
}

fn evidence() -> Vec<Row> {
    let says = |user: &str, name: &str, kind: &str, by: &str| {
        let object =
            json!({ "metadata": { "name": name }, "spec": { "node": { "name": "w1" }, "kind": kind, "by": by } });
        Request::new(user, "CREATE pod-safety.dev/fenceevidences").object(object)
    };
    let may = |request: Request| request.may("nodes confirm-down");
    let row = |name, request, expect| Row { policy: "evidence", name, request, expect };
    vec![
        row("a confirmation", may(says(DEV, "w1-0a1b-x2x4z", "Asserted", DEV)), Allowed),
        // The API server cuts a generateName off after 58 characters: no node of a longer name could be confirmed.
        row(
            "bug: a confirmation about a node with a name of 44 characters",
            may(says(DEV, "ip-10-0-123-45.eu-central-1.compute.internal-fce01fcfd5f174sjzl", "Asserted", DEV)),
            Allowed,
        ),
        row("bypass: without the right", says(DEV, "w1-x2x4z", "Asserted", DEV), Refused("the verb confirm-down")),
        row("bypass: in another name", may(says(DEV, "w1-x2x4z", "Asserted", "boss")), Refused("you are dev")),
        row(
            "bypass: what pod-safety finds",
            may(says(DEV, "w1-x2x4z", "PowerOff", DEV)),
            Refused("written by pod-safety alone"),
        ),
        row(
            "bypass: the name that pod-safety needs",
            may(says(DEV, &pod_safety_shared::authority::incident_name(&life()), "Asserted", DEV)),
            Refused("generateName"),
        ),
        row("pod-safety", says(OURS, "w1-0a1b", "PowerOff", "pod-safety-0"), NotAsked),
    ]
}

fn life() -> pod_safety_shared::api::Incarnation {
    pod_safety_shared::api::Incarnation { name: "w1".to_owned(), uid: "u".to_owned(), boot_id: "b".to_owned() }
}

fn fences() -> Vec<Row> {
    let opens = |user: &str, trigger: Value| {
        let object = json!({ "metadata": { "name": "w1" }, "spec": { "node": { "name": "w1" }, "trigger": trigger } });
        Request::new(user, "CREATE pod-safety.dev/nodefences").object(object)
    };
    let status = |user: &str, kind: &str| {
        let object = json!({ "metadata": { "name": "w1" }, "status": { "phase": "Fenced" } });
        Request::new(user, &format!("UPDATE pod-safety.dev/{kind}/status")).object(object.clone()).old(object)
    };
    let withdraws = || {
        let object = json!({ "metadata": { "name": "e" }, "spec": { "node": { "name": "w1" } } });
        Request::new(DEV, "UPDATE pod-safety.dev/fenceevidences/status").object(object.clone()).old(object)
    };
    let row = |name, request, expect| Row { policy: "fence", name, request, expect };
    vec![
        row("in one's own name", opens(DEV, json!({ "kind": "Person", "by": DEV })), Allowed),
        row("bypass: in another name", opens(DEV, json!({ "kind": "Person", "by": "boss" })), SELF_NAME),
        row("bypass: in no name", opens(DEV, json!({ "kind": "Person" })), SELF_NAME),
        row(
            "bypass: a trigger that pod-safety finds",
            opens(DEV, json!({ "kind": "Detected", "by": DEV })),
            Refused("opened by pod-safety alone"),
        ),
        row("pod-safety", opens(OURS, json!({ "kind": "Detected" })), NotAsked),
        row("bypass: a forged NodeFence", status(DEV, "nodefences"), ALONE),
        row("bypass: a forged FenceDevice", status(DEV, "fencedevices"), ALONE),
        row("bypass: a forged FencePolicy", status(DEV, "fencepolicies"), ALONE),
        row("bypass: a forged remediation", status(DEV, "podsafetyremediations"), ALONE),
        row("evidence is withdrawn", withdraws().may("nodes confirm-down"), Allowed),
        row("bypass: without the right to confirm", withdraws(), Refused("you need the verb confirm-down")),
    ]
}
