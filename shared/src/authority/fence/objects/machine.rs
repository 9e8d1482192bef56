//! The Machine of Cluster API that made a node.

use serde_json::{Value, json};

use super::{ObjectOrder, failed, read, read_all, text, version_of};
use crate::api::{ActedOn, DeviceDriver};
use crate::authority::act::Outcome;
use crate::authority::fence::step::Acting;
use crate::client::{Call, Connection, Method};
use crate::model::is_kubernetes_name;
use crate::transport::{Answer, DeviceError, Identity, Power};

const GROUP: &str = "cluster.x-k8s.io";

/// What Cluster API writes on the nodes of its Machines.
const NAME: &str = "cluster.x-k8s.io/machine";
const NAMESPACE: &str = "cluster.x-k8s.io/cluster-namespace";

/// By the node's annotations, or else by looking through all. A kubelet may write both its annotations and its providerID:
/// it is the Machine that must name the node (`status.nodeRef`), and no other machine at its provider.
pub(super) async fn resolve(connection: &Connection, order: &ObjectOrder) -> Result<ActedOn, DeviceError> {
    let version = version_of(connection, GROUP).await?;
    let name = &order.facts.machine.node;
    let node = read(connection, &format!("/api/v1/nodes/{name}")).await?;
    let node = node.ok_or_else(|| failed(format!("the Node {name} is gone, so its Machine is not known")))?;
    let found = match annotated(&node) {
        Some((namespace, machine)) => {
            let path = format!("/apis/{version}/namespaces/{namespace}/machines/{machine}");
            let machine = read(connection, &path).await?;
            let missing = format!("the Machine {path} that node {name} names does not exist");
            (path, machine.ok_or_else(|| failed(missing))?)
        }
        None => by_reference(connection, &version, &node).await?,
    };
    let (path, machine) = found;
    if !is_of(&machine, &node) {
        let said = text(&machine, "/status/nodeRef/name");
        return Err(failed(format!(
            "{path} does not belong to node {name}: its status.nodeRef names {said:?}"
        )));
    }
    let (ours, its) = (text(&node, "/spec/providerID"), text(&machine, "/spec/providerID"));
    if !ours.is_empty() && !its.is_empty() && ours != its {
        return Err(failed(format!("{path} is the machine {its}, and node {name} runs on {ours}")));
    }
    Ok(ActedOn {
        device: order.device.clone(),
        driver: DeviceDriver::Machine,
        path,
        uid: text(&machine, "/metadata/uid").to_owned(),
        cidrs: Vec::new(),
        storage: None,
        matched: !ours.is_empty() && ours == its,
    })
}

fn annotated(node: &Value) -> Option<(&str, &str)> {
    let annotation = |key: &str| {
        let value = node.pointer("/metadata/annotations").and_then(|all| all.get(key));
        value.and_then(Value::as_str).filter(|value| is_kubernetes_name(value))
    };
    Some((annotation(NAMESPACE)?, annotation(NAME)?))
}

/// Whether this Machine says that it made the node.
fn is_of(machine: &Value, node: &Value) -> bool {
    let (name, uid) = (text(node, "/metadata/name"), text(node, "/metadata/uid"));
    let named = text(machine, "/status/nodeRef/uid");
    text(machine, "/status/nodeRef/name") == name && (named.is_empty() || named == uid)
}

async fn by_reference(
    connection: &Connection,
    version: &str,
    node: &Value,
) -> Result<(String, Value), DeviceError> {
    let name = text(node, "/metadata/name");
    let mut found = None;
    let mut each = |machine: Value| {
        if found.is_none() && is_of(&machine, node) {
            found = Some(machine);
        }
    };
    read_all(connection, &format!("/apis/{version}/machines"), &mut each).await?;
    let machine = found.ok_or_else(|| failed(format!("no Machine belongs to node {name}")))?;
    let path = format!(
        "/apis/{version}/namespaces/{}/machines/{}",
        text(&machine, "/metadata/namespace"),
        text(&machine, "/metadata/name")
    );
    Ok((path, machine))
}

pub(super) async fn off(acting: &Acting<'_>, object: &ActedOn) -> Result<(), Outcome> {
    let body = json!({ "preconditions": { "uid": object.uid } });
    match acting.send(Call::write(Method::Delete, object.path.clone(), &body)).await {
        // Gone, or another one: what it is comes out when it is looked.
        Ok(_) | Err(Outcome::Gone | Outcome::Changed) => Ok(()),
        Err(outcome) => Err(outcome),
    }
}

/// Off is that it is gone: its provider drops the last finalizer when there is no such machine any more.
pub(super) async fn look(connection: &Connection, object: &ActedOn) -> Result<Answer, DeviceError> {
    let identity = if object.matched { Identity::Match } else { Identity::Unknown };
    let path = &object.path;
    let found = read(connection, path).await?.filter(|machine| text(machine, "/metadata/uid") == object.uid);
    let (power, said) = match found {
        None => (Power::Off, format!("{path} is gone")),
        Some(machine) if machine.pointer("/metadata/deletionTimestamp").is_some() => {
            (Power::Unknown, format!("{path} is being deleted: {}", text(&machine, "/status/phase")))
        }
        Some(_) => (Power::On, format!("{path} exists")),
    };
    Ok(Answer { power, identity, said })
}
