//! What the admission plugin NodeRestriction of kube-apiserver 1.36 (`plugin/pkg/admission/noderestriction`) refuses to
//! kubelets, as far as the kinds here go: a kubelet writes its own Node, its own Lease, the status of its own pods,
//! deletes its own pods, and creates only mirror pods.
//!
//! A mirror pod must name the Node that the plugin finds in its cache as its owner, with that UID: a kubelet whose Node
//! is gone creates none, and one whose Node was created again creates one only after it has received the new UID.
//!
//! Left out: labels, taints and `configSource` of Nodes, claims, tokens, and the references that a mirror pod may have.

use http::Method;
use serde_json::Value;

use super::failure::Failure;
use super::fields::{at, list, text};
use super::kinds::Rules;
use super::log::Log;
use super::read::Cached;
use super::route::{ApiRequest, Route};

/// The annotation of mirror pods.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The namespace of the Leases of Nodes.
const LEASES: &str = "kube-node-lease";

/// The Node of a caller that is a kubelet: a kubelet's caller name is the name of its Node, `node-N`.
fn node_of(caller: &str) -> Option<&str> {
    let number = caller.strip_prefix("node-")?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(caller)
}

/// Whether a kubelet may make this request.
pub(super) fn check(log: &Log, cached: &Cached, route: &Route, asked: &ApiRequest) -> Result<(), Failure> {
    if asked.method == Method::GET {
        return Ok(());
    }
    let Some(node) = node_of(&asked.caller) else { return Ok(()) };
    match route.kind.rules {
        Rules::Pod => check_pod(log, cached, route, asked, node),
        Rules::Node => check_name(route, asked, node, &format!("node {node:?} is not allowed to modify")),
        Rules::Lease if route.namespace.as_deref() != Some(LEASES) => {
            Err(forbidden(route, &format!("can only access leases in the {LEASES:?} system namespace")))
        }
        Rules::Lease => {
            check_name(route, asked, node, "can only access node lease with the same name as the requesting node")
        }
        _ => Ok(()),
    }
}

fn forbidden(route: &Route, why: &str) -> Failure {
    Failure::forbidden(&route.kind, route.name.as_deref().unwrap_or_default(), why, &[])
}

fn body(asked: &ApiRequest) -> Value {
    serde_json::from_slice(&asked.body).unwrap_or_default()
}

/// The object must have the name of the node.
fn check_name(route: &Route, asked: &ApiRequest, node: &str, why: &str) -> Result<(), Failure> {
    let made = route.name.is_none().then(|| body(asked));
    let name = match (&route.name, &made) {
        (Some(name), _) => name,
        (None, made) => made.as_ref().map(|made| text(made, &["metadata", "name"])).unwrap_or_default(),
    };
    if name == node { Ok(()) } else { Err(forbidden(route, why)) }
}

fn check_pod(log: &Log, cached: &Cached, route: &Route, asked: &ApiRequest, node: &str) -> Result<(), Failure> {
    let is_own = |pod: &Value| text(pod, &["spec", "nodeName"]) == node;
    match (&asked.method, &route.name, route.subresource.as_deref()) {
        (&Method::POST, None, None) => check_mirror(log, cached, route, asked, node),
        (&Method::DELETE, Some(name), None) => match cached.objects.get(&route.key(name)) {
            None => Err(Failure::not_found(&route.kind, name)),
            Some(pod) if is_own(&pod.value) => Ok(()),
            Some(_) => {
                Err(forbidden(route, &format!("node {node:?} can only delete pods with spec.nodeName set to itself")))
            }
        },
        (_, Some(name), Some("status")) => match log.get(&route.key(name)) {
            // The write itself reports that the object does not exist.
            None => Ok(()),
            Some(pod) if is_own(&pod.value) => Ok(()),
            Some(_) => Err(forbidden(
                route,
                &format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"),
            )),
        },
        // Which own pods may be evicted is not checked here.
        (_, _, Some("eviction")) => Ok(()),
        _ => Err(forbidden(route, &format!("node {node:?} can only create and delete mirror pods"))),
    }
}

fn check_mirror(log: &Log, cached: &Cached, route: &Route, asked: &ApiRequest, node: &str) -> Result<(), Failure> {
    let pod = body(asked);
    let only = |what: &str| Err(forbidden(route, &format!("node {node:?} can only create {what}")));
    if at(&pod, &["metadata", "annotations", MIRROR]).is_none() {
        return only("mirror pods");
    }
    if text(&pod, &["spec", "nodeName"]) != node {
        return only("pods with spec.nodeName set to itself");
    }
    let [owner] = list(&pod, &["metadata", "ownerReferences"]) else {
        return only("pods with an owner reference set to itself");
    };
    let says = |field: &str| text(owner, &[field]);
    if (says("apiVersion"), says("kind"), says("name")) != ("v1", "Node", node) {
        return only("pods with an owner reference set to itself");
    }
    if at(owner, &["controller"]) != Some(&Value::Bool(true)) {
        return only("pods with a controller owner reference set to itself");
    }
    let nodes = log.kinds.iter().position(|kind| kind.rules == Rules::Node).unwrap_or(usize::MAX);
    let Some(found) = cached.objects.get(&(nodes, node.to_owned())) else {
        let kind = log.kinds.get(nodes).unwrap_or(&route.kind);
        return Err(Failure::not_found(kind, node));
    };
    let (named, known) = (says("uid"), text(&found.value, &["metadata", "uid"]));
    if named != known {
        return Err(forbidden(route, &format!("node {node} UID mismatch: expected {named} got {known}")));
    }
    Ok(())
}
