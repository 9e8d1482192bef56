//! CSI-Addons' NetworkFence: the storage takes nothing from the addresses of a node any more.
//!
//! By which addresses a node reaches its storage is recorded while its kubelet is heard, in the status of the device:
//! asked after the loss, a storage may name those of the node to which the volume moved. Deleting a NetworkFence does
//! not lift it: it is set to `Unfenced`, that is waited for, and only then it goes.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{
    ClientAddresses, ObjectOrder, create, failed, name_in_path, read_list, read_object, text, to_outcome,
};
use crate::api::{DeviceDriver, FencedStorage, NetworkFence, TargetObject};
use crate::client::{Call, Connection, Method, WriteCall as _};
use crate::model::BootId;
use crate::outcome::Outcome;
use crate::transport::{Answer, DeviceError, Identity, Power};
use crate::{StepContext, Target, name_after};

const VERSION: &str = "/apis/csiaddons.openshift.io/v1alpha1";

/// Where NetworkFences are, before their names.
pub(super) const FENCES: &str = "/apis/csiaddons.openshift.io/v1alpha1/networkfences/";

/// Whose it is. No owner reference: it must not go with the incident, for that would not lift it.
const FENCE_ANNOTATION: &str = "pod-safety.dev/fence";

/// A node has few addresses. More would be a way to fence everybody.
const MAX_ADDRESSES: usize = 32;

/// The address of one host, if it is that. One address has many spellings, and an IPv4 address one of IPv6 as well
/// (`::ffff:10.0.0.1`).
fn parse_host(cidr: &str) -> Option<IpNet> {
    let net: IpNet = cidr.parse().ok()?;
    let address = net.addr().to_canonical();
    let is_one = net.prefix_len() == net.max_prefix_len();
    let is_nobodys = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    (is_one && !is_nobodys).then(|| address.into())
}

/// In one spelling. Danger note: a CSIAddonsNode is written by whatever runs on its node. Each address must be one host's, and
/// no other node's: `0.0.0.0/0` would take the storage from the whole cluster.
fn parse_hosts<'a>(cidrs: impl IntoIterator<Item = &'a String>) -> Result<BTreeSet<IpNet>, DeviceError> {
    let wrong =
        |cidr: &String| failed(format!("{cidr:?} is not the address of one host (ADDRESS/32 or /128)"));
    let hosts: BTreeSet<IpNet> = cidrs
        .into_iter()
        .map(|cidr| parse_host(cidr).ok_or_else(|| wrong(cidr)))
        .collect::<Result<_, _>>()?;
    if hosts.len() > MAX_ADDRESSES {
        return Err(failed(format!("{} addresses are more than the {MAX_ADDRESSES} of a node", hosts.len())));
    }
    Ok(hosts)
}

/// By which addresses the node reaches the storage of this class: what was recorded before, if it is not heard now.
pub(crate) async fn read_clients(
    connection: &Connection,
    order: &ObjectOrder,
    class: &NetworkFence,
) -> Result<ClientAddresses, DeviceError> {
    let name = &*order.facts.machine.node;
    let namespace = name_in_path("networkFence.namespace", &class.namespace)?;
    let (mut own, mut others) = (BTreeSet::new(), BTreeSet::new());
    let mut each = |of_node: Value| {
        let is_it = text(&of_node, "/spec/driver/nodeID") == name;
        let addresses = client_addresses(&of_node, &class.class_name);
        if is_it {
            own.extend(addresses);
        } else {
            others.extend(addresses.iter().filter_map(|cidr| parse_host(cidr)));
        }
    };
    let path = format!("{VERSION}/namespaces/{namespace}/csiaddonsnodes");
    read_list(connection, &path, &mut each).await?;
    let node = read_object(connection, &format!("/api/v1/nodes/{name}")).await?;
    let conditions = node.as_ref().and_then(|node| node.pointer("/status/conditions")?.as_array());
    let is_ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
    if !conditions.into_iter().flatten().any(is_ready) {
        return Ok(order.clients.clone());
    }
    let boot_id = node.as_ref().map_or("", |node| text(node, "/status/nodeInfo/bootID"));
    let boot_id = BootId::from(boot_id).to_string();
    if own.is_empty() {
        let class = &class.class_name;
        let none = format!(
            "no CSIAddonsNode in namespace {namespace} lists the addresses by which {name} is a client of {class}"
        );
        return Err(failed(none));
    }
    let hosts = parse_hosts(&own)?;
    if let Some(shared) = hosts.intersection(&others).next() {
        return Err(failed(format!("{shared} is also the address of another node")));
    }
    let cidrs = hosts.iter().map(ToString::to_string).collect();
    Ok(ClientAddresses { cidrs, boot_id })
}

/// The addresses that a CSIAddonsNode names as those of a class.
fn client_addresses(of_node: &Value, class: &str) -> Vec<String> {
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let by_class = list(of_node.pointer("/status/networkFenceClientStatus")).into_iter();
    let details = by_class
        .filter(|status| status["networkFenceClassName"] == *class)
        .flat_map(|status| list(status.get("ClientDetails")));
    let cidrs = details.flat_map(|client| list(client.get("cidrs")));
    cidrs.filter_map(|cidr| cidr.as_str().map(str::to_owned)).collect()
}

/// Which volumes it covers is the class's to say: those of its provisioner. Addresses that were found in another life of
/// the node may be another machine's by now: then it is not said what is covered, and nothing follows for volumes.
async fn read_covered_storage(
    connection: &Connection,
    class: &NetworkFence,
) -> Result<Option<FencedStorage>, DeviceError> {
    let name = name_in_path("networkFence.className", &class.class_name)?;
    let path = format!("{VERSION}/networkfenceclasses/{name}");
    let driver =
        read_object(connection, &path).await?.map(|found| text(&found, "/spec/provisioner").to_owned());
    let driver = driver.filter(|driver| !driver.is_empty());
    Ok(driver.map(|driver| FencedStorage { driver, class_name: class.class_name.clone() }))
}

pub(super) async fn resolve(
    connection: &Connection,
    order: &ObjectOrder,
    class: &NetworkFence,
    fence: &str,
    boot_id: &str,
) -> Result<TargetObject, DeviceError> {
    let node = &order.facts.machine.node;
    let ClientAddresses { cidrs, boot_id: recorded_boot } = &order.clients;
    if cidrs.is_empty() {
        return Err(failed(format!("no addresses of {node} were recorded while it reported")));
    }
    let cidrs = parse_hosts(cidrs)?.iter().map(ToString::to_string).collect();
    let device = order.device.to_string();
    let storage = match recorded_boot == boot_id && !boot_id.is_empty() {
        // Beside a device that ends what runs there it is not needed: who cannot read it fences all the same.
        true => read_covered_storage(connection, class).await.unwrap_or_default(),
        false => None,
    };
    Ok(TargetObject {
        device: order.device.clone(),
        driver: DeviceDriver::NetworkFence,
        path: format!("{FENCES}{}", name_after(node, &[fence.as_bytes(), device.as_bytes()])),
        uid: fence.to_owned(),
        matched: false,
        cidrs,
        storage,
    })
}

fn is_owned(existing: &Value, object: &TargetObject) -> bool {
    existing
        .pointer("/metadata/annotations")
        .and_then(|all| all.get(FENCE_ANNOTATION))
        .is_some_and(|uid| *uid == *object.uid)
}

/// Whether it has come to this state. The messages tell an old success from a new one: nothing else in it does.
fn has_reached(existing: &Value, state: &str) -> bool {
    let lifted = text(existing, "/status/message").to_lowercase().contains("unfenc");
    text(existing, "/spec/fenceState") == state
        && text(existing, "/status/result") == "Succeeded"
        && lifted == (state == "Unfenced")
}

fn has_other_class(existing: &Value, object: &TargetObject) -> bool {
    object
        .storage
        .as_ref()
        .is_some_and(|storage| text(existing, "/spec/networkFenceClassName") != storage.class_name)
}

pub(super) async fn create_fence(
    context: &StepContext<'_>,
    target: &Target,
    class: &NetworkFence,
    object: &TargetObject,
) -> Result<(), Outcome> {
    let (_, name) = object.path.rsplit_once('/').unwrap_or_default();
    let body = json!({
        "apiVersion": "csiaddons.openshift.io/v1alpha1",
        "kind": "NetworkFence",
        "metadata": {
            "name": name,
            "annotations": { FENCE_ANNOTATION: object.uid, "pod-safety.dev/node": target.spec.node.name },
            "labels": { "app.kubernetes.io/part-of": "pod-safety" },
        },
        "spec": { "networkFenceClassName": class.class_name, "fenceState": "Fenced", "cidrs": object.cidrs },
    });
    create(context, object, &body).await
}

pub(super) async fn check_status(
    connection: &Connection,
    object: &TargetObject,
) -> Result<Answer, DeviceError> {
    let path = &object.path;
    let (power, message) = match read_object(connection, path).await? {
        None => (Power::On, format!("there is no {path}")),
        Some(there) if !is_owned(&there, object) => {
            return Err(failed(format!("{path} exists and belongs to another owner, so it is left alone")));
        }
        Some(there) if there["spec"]["cidrs"] != json!(object.cidrs) => {
            return Err(failed(format!("{path} fences addresses other than {}", object.cidrs.join(", "))));
        }
        Some(there) if has_other_class(&there, object) => {
            return Err(failed(format!("{path} has another NetworkFenceClass than it was created with")));
        }
        Some(there) if has_reached(&there, "Fenced") => (Power::Off, format!("{path} is in force")),
        Some(there) if text(&there, "/status/result") == "Failed" => {
            return Err(failed(format!("{path} failed: {}", text(&there, "/status/message"))));
        }
        Some(_) => (Power::Unknown, format!("{path} is not in force yet")),
    };
    Ok(Answer::new(power, Identity::Unknown, message))
}

/// The node is back, or nothing was proved: it is lifted, then it goes.
pub(super) async fn lift(context: &StepContext<'_>, object: &TargetObject) -> Result<(), Outcome> {
    let existing = read_object(context.writer.connection, &object.path).await.map_err(to_outcome)?;
    let Some(existing) = existing.filter(|there| is_owned(there, object)) else { return Ok(()) };
    let meta = json!({ "uid": existing["metadata"]["uid"], "resourceVersion": existing["metadata"]["resourceVersion"] });
    if text(&existing, "/spec/fenceState") != "Unfenced" {
        let body = json!({ "metadata": meta, "spec": { "fenceState": "Unfenced" } });
        context.send(Call::write(Method::Merge, object.path.clone(), &body)).await?;
    } else if has_reached(&existing, "Unfenced") {
        let body = json!({ "preconditions": meta });
        return match context.send(Call::write(Method::Delete, object.path.clone(), &body)).await {
            Ok(_) | Err(Outcome::Gone) => Ok(()),
            Err(outcome) => Err(outcome),
        };
    }
    // It is asked again until it says so: the incident is not over before.
    let message = format!("{} is being lifted: {}", object.path, text(&existing, "/status/message"));
    Err(Outcome::NotReady(message))
}
