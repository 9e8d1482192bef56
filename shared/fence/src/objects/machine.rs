//! Objects that represent machines: a Machine of Cluster API or of OpenShift, a NodeClaim of Karpenter. Their
//! controllers keep each by a finalizer until it is done. [`Provider`] lists for which of them that means that the
//! machine is off.

use serde_json::Value;

use super::provider::Provider;
use super::{
    Check, ObjectDriver, ObjectOrder, Reply, Write, annotation, delete, failed, is_namespace_allowed,
    preferred_version, read_list, read_object, text, to_device_error, to_outcome,
};
use crate::Target;
use crate::api::{DeviceDriver, TargetObject};
use crate::client::Connection;
use crate::model::is_kubernetes_name;
use crate::outcome::Outcome;
use crate::transport::{Answer, DeviceError, Identity, Power};

/// A kind of such objects. The table is closed.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(super) driver: DeviceDriver,
    /// Its name in messages.
    pub(super) name: &'static str,
    pub(super) group: &'static str,
    pub(super) plural: &'static str,
    is_namespaced: bool,
    /// The fields that name its node, by name and by UID. A user who can write the status of such an object in any
    /// namespace can write them.
    node: &'static str,
    node_uid: Option<&'static str>,
    provider_id: &'static str,
    /// Its namespace and name, as its controller writes them on the node.
    named_by: fn(&Value) -> Option<(&str, &str)>,
}

pub(super) const CLUSTER_API: Kind = Kind {
    driver: DeviceDriver::Machine,
    name: "Machine",
    group: "cluster.x-k8s.io",
    plural: "machines",
    is_namespaced: true,
    node: "/status/nodeRef/name",
    node_uid: Some("/status/nodeRef/uid"),
    provider_id: "/spec/providerID",
    named_by: |node| {
        Some((annotation(node, "cluster.x-k8s.io/cluster-namespace")?, annotation(node, "cluster.x-k8s.io/machine")?))
    },
};

pub(super) const OPENSHIFT: Kind = Kind {
    driver: DeviceDriver::OpenShiftMachine,
    name: "OpenShift Machine",
    group: "machine.openshift.io",
    named_by: |node| annotation(node, "machine.openshift.io/machine")?.split_once('/'),
    ..CLUSTER_API
};

pub(super) const KARPENTER: Kind = Kind {
    driver: DeviceDriver::NodeClaim,
    name: "NodeClaim",
    group: "karpenter.sh",
    plural: "nodeclaims",
    is_namespaced: false,
    node: "/status/nodeName",
    node_uid: None,
    provider_id: "/status/providerID",
    named_by: |_| None,
};

/// An object that has the providerID of the Node.
pub(super) struct MachineObject {
    pub(super) path: String,
    pub(super) object: Value,
}

impl ObjectDriver for Kind {
    /// The object that made a node has a name of its own.
    fn is_possible(&self, object: &TargetObject, parts: &[&str], _: &str) -> bool {
        let (version, namespace, name) = match (self.is_namespaced, parts) {
            (true, [_, _, _, version, _, namespace, _, name]) => (version, namespace, name),
            (false, [_, _, _, version, _, name]) => (version, name, name),
            _ => return false,
        };
        [version, namespace, name].into_iter().all(|part| is_kubernetes_name(part))
            && object.path == self.path(&format!("{}/{version}", self.group), namespace, name)
    }

    fn is_limited_to_namespaces(&self) -> bool {
        self.is_namespaced
    }

    fn resolve<'a>(&'a self, check: Check<'a>, _: &'a Target) -> Reply<'a, TargetObject> {
        Box::pin(resolve(check, self))
    }

    fn power_off<'a>(&'a self, write: Write<'a>, _: &'a ObjectOrder) -> Reply<'a, ()> {
        Box::pin(async move { power_off(write, self).await.map_err(to_device_error) })
    }

    fn why_no_power_on(&self) -> Option<&'static str> {
        Some("a machine that was deleted cannot be switched on")
    }

    fn check_status<'a>(&'a self, check: Check<'a>, object: &'a TargetObject) -> Reply<'a, Answer> {
        Box::pin(check_status(check.connection(), object))
    }

    fn check_ready<'a>(&'a self, check: Check<'a>) -> Reply<'a, Answer> {
        Box::pin(async move {
            let resolved = resolve(check, self).await?;
            Ok(Answer::new(Power::On, Identity::Match, format!("{} exists", resolved.path)))
        })
    }
}

async fn resolve(check: Check<'_>, kind: &Kind) -> Result<TargetObject, DeviceError> {
    let MachineObject { path, object } = find(check, kind).await?;
    check_deletion_means_off(kind, &path, &object)?;
    Ok(check.order.object(path, text(&object, "/metadata/uid"), true))
}

/// Danger note: an object without a finalizer is gone as soon as it is deleted, whether its machine runs or not. With
/// one it is kept until its controller removes the finalizer.
fn check_deletion_means_off(kind: &Kind, path: &str, object: &Value) -> Result<(), DeviceError> {
    Provider::from_object(kind.driver, object)
        .check_deletion_means_off(kind.driver)
        .map_err(|why| failed(format!("{path}: {why}")))?;
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    match finalizers.is_some_and(|all| !all.is_empty()) {
        true => Ok(()),
        false => Err(failed(format!(
            "{path} has no finalizer: when it is gone, its machine may still run. Its controller must be running and add one"
        ))),
    }
}

/// Finds the object by the node's annotations, or else by searching the namespaces of the device. A kubelet may write
/// both its annotations and its providerID, so the object must name the node. A tenant may write an object in a
/// namespace of their own, so it counts only in a namespace that the device or the Node names, and with the
/// providerID of the Node.
pub(super) async fn find(check: Check<'_>, kind: &Kind) -> Result<MachineObject, DeviceError> {
    let (connection, order) = (check.connection(), check.order);
    let (name, namespaces) = (&*order.facts.machine.node, &order.spec.namespaces[..]);
    let version = preferred_version(connection, kind.group).await?;
    let what = kind.name;
    let node = read_object(connection, &format!("/api/v1/nodes/{name}")).await?;
    let node = node.ok_or_else(|| failed(format!("the Node {name} is gone, so its {what} is not known")))?;
    let named =
        (kind.named_by)(&node).filter(|(namespace, name)| is_kubernetes_name(namespace) && is_kubernetes_name(name));
    let (path, object) = match named {
        Some((namespace, machine)) => {
            if !is_namespace_allowed(namespaces, namespace) {
                return Err(failed(format!(
                    "node {name} names the {what} {namespace}/{machine}, and {namespace} is not in spec.namespaces of the FenceDevice"
                )));
            }
            let path = kind.path(&version, namespace, machine);
            let missing = format!("the {what} {path} that node {name} names does not exist");
            let object = read_object(connection, &path).await?.ok_or_else(|| failed(missing))?;
            (path, object)
        }
        None => find_by_reference(connection, &version, &node, kind, namespaces).await?,
    };
    if !kind.is_machine_of(&object, &node) {
        let (field, stated_node) = (kind.node_field(), text(&object, kind.node));
        return Err(failed(format!("{path} does not belong to node {name}: its {field} names {stated_node:?}")));
    }
    let (node_provider_id, object_provider_id) = (text(&node, "/spec/providerID"), text(&object, kind.provider_id));
    if node_provider_id.is_empty() {
        return Err(failed(format!("node {name} has no spec.providerID, so no {what} is known to be its own")));
    }
    if node_provider_id != object_provider_id {
        return Err(failed(format!(
            "{path} is the machine {object_provider_id:?}, and node {name} runs on {node_provider_id:?}"
        )));
    }
    Ok(MachineObject { path, object })
}

impl Kind {
    fn path(&self, version: &str, namespace: &str, name: &str) -> String {
        let plural = self.plural;
        match self.is_namespaced {
            true => format!("/apis/{version}/namespaces/{namespace}/{plural}/{name}"),
            false => format!("/apis/{version}/{plural}/{name}"),
        }
    }

    /// The field that names the node, for messages.
    fn node_field(&self) -> &'static str {
        if self.node_uid.is_some() { "status.nodeRef" } else { "status.nodeName" }
    }

    /// Whether this object names the node as the one that it made.
    fn is_machine_of(&self, object: &Value, node: &Value) -> bool {
        let (name, uid) = (text(node, "/metadata/name"), text(node, "/metadata/uid"));
        let named = self.node_uid.map_or("", |field| text(object, field));
        text(object, self.node) == name && (named.is_empty() || named == uid)
    }
}

/// Danger note: if two objects name the node, neither is accepted, as one of them was written wrongly.
async fn find_by_reference(
    connection: &Connection,
    version: &str,
    node: &Value,
    kind: &Kind,
    namespaces: &[String],
) -> Result<(String, Value), DeviceError> {
    let (name, what, plural) = (text(node, "/metadata/name"), kind.name, kind.plural);
    let lists: Vec<String> = match kind.is_namespaced {
        true => namespaces.iter().map(|one| format!("/apis/{version}/namespaces/{one}/{plural}")).collect(),
        false => vec![format!("/apis/{version}/{plural}")],
    };
    if lists.is_empty() {
        return Err(failed(format!(
            "the annotations of node {name} name no {what}: list the namespaces of its {what} in spec.namespaces of the FenceDevice"
        )));
    }
    let mut machines = Vec::new();
    let mut each = |machine: Value| {
        if kind.is_machine_of(&machine, node) {
            machines.push(machine);
        }
    };
    for list in &lists {
        read_list(connection, list, &mut each).await?;
    }
    if machines.len() > 1 {
        let names: Vec<_> = machines.iter().map(|one| text(one, "/metadata/name")).collect();
        return Err(failed(format!("several objects of kind {what} name node {name}: {}", names.join(", "))));
    }
    let machine = machines.pop().ok_or_else(|| failed(format!("no {what} belongs to node {name}")))?;
    let path = kind.path(version, text(&machine, "/metadata/namespace"), text(&machine, "/metadata/name"));
    Ok((path, machine))
}

/// Deletes the object, unless it is being deleted already.
async fn power_off(Write { context, object, .. }: Write<'_>, kind: &Kind) -> Result<(), Outcome> {
    // The next status check shows the result; the read may also fail.
    let existing = read_object(context.writer.connection, &object.path).await.ok().flatten();
    let is_deleting = |existing: &Value| existing.pointer("/metadata/deletionTimestamp").is_some();
    if existing.as_ref().is_some_and(is_deleting) {
        return Ok(());
    }
    if let Some(existing) = &existing {
        check_deletion_means_off(kind, &object.path, existing).map_err(to_outcome)?;
    }
    delete(context, object, &object.uid).await
}

/// Off means that the object is gone. [`power_off`] deletes no object whose provider removes the last finalizer
/// before the machine is off.
async fn check_status(connection: &Connection, object: &TargetObject) -> Result<Answer, DeviceError> {
    let identity = if object.matched { Identity::Match } else { Identity::Unknown };
    let path = &object.path;
    let machine = read_object(connection, path).await?.filter(|machine| text(machine, "/metadata/uid") == object.uid);
    let (power, message) = match machine {
        None => (Power::Off, format!("{path} is gone")),
        Some(machine) if machine.pointer("/metadata/deletionTimestamp").is_some() => {
            (Power::Unknown, format!("{path} is being deleted: {}", text(&machine, "/status/phase")))
        }
        Some(_) => (Power::On, format!("{path} exists")),
    };
    Ok(Answer::new(power, identity, message))
}
