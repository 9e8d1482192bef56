//! CSI-Addons' NetworkFence: the storage no longer accepts requests from the addresses of a node.
//!
//! The addresses by which a node reaches its storage are recorded in the status of the device while its kubelet
//! reports: after the loss, a storage may list those of the node to which the volume moved. Deleting a NetworkFence
//! does not lift it: it is set to `Unfenced`, and deleted when that has succeeded.

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use ipnet::IpNet;
use serde_json::{Value, json};

use super::{
    Check, ClientAddresses, ObjectDriver, ObjectOrder, Reply, Write, annotation, create, failed, is_named_after,
    name_in_path, read_list, read_object, text, to_device_error, to_outcome,
};
use crate::api::{FencedStorage, NetworkFence, TargetObject};
use crate::client::{Call, Connection, Method, WriteCall as _};
use crate::model::BootId;
use crate::outcome::Outcome;
use crate::transport::{Answer, DeviceError, Identity, Power};
use crate::{Target, name_after};

const VERSION: &str = "/apis/csiaddons.openshift.io/v1alpha1";

/// The path of NetworkFences, before their names.
const FENCES: &str = "/apis/csiaddons.openshift.io/v1alpha1/networkfences/";

/// The UID of the incident. No owner reference: garbage collection with the incident would not lift the fence.
const FENCE_ANNOTATION: &str = "pod-safety.dev/fence";

/// A node has few addresses. More could fence the whole cluster.
const MAX_ADDRESSES: usize = 32;

/// The driver.
#[derive(Debug)]
pub(super) struct StorageFence;

impl ObjectDriver for StorageFence {
    fn is_possible(&self, object: &TargetObject, parts: &[&str], node: &str) -> bool {
        let ["", "apis", _, _, _, name] = parts else { return false };
        object.path.starts_with(FENCES) && is_named_after(name, node)
    }

    fn resolve<'a>(&'a self, check: Check<'a>, target: &'a Target) -> Reply<'a, TargetObject> {
        Box::pin(resolve(check, target))
    }

    fn power_off<'a>(&'a self, write: Write<'a>, order: &'a ObjectOrder) -> Reply<'a, ()> {
        Box::pin(async move { create_fence(write, settings(order)?).await.map_err(to_device_error) })
    }

    fn lift<'a>(&'a self, write: Write<'a>) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(lift(write))
    }

    /// It is cluster-scoped, and no owner removes it.
    fn outlives_incident(&self) -> bool {
        true
    }

    fn why_no_power_on(&self) -> Option<&'static str> {
        Some("it is lifted when the node is back")
    }

    fn check_status<'a>(&'a self, check: Check<'a>, object: &'a TargetObject) -> Reply<'a, Answer> {
        Box::pin(check_status(check.connection(), object))
    }

    fn check_ready<'a>(&'a self, check: Check<'a>) -> Reply<'a, Answer> {
        Box::pin(async move {
            let clients = read_clients(check).await?;
            let message = format!("it would fence {}", clients.cidrs.join(", "));
            Ok(Answer::new(Power::On, Identity::Unknown, message))
        })
    }

    fn read_clients<'a>(&'a self, check: Check<'a>) -> BoxFuture<'a, ClientAddresses> {
        // The status check reports why there are none.
        Box::pin(async move { read_clients(check).await.unwrap_or_else(|_| check.order.clients.clone()) })
    }
}

fn settings(order: &ObjectOrder) -> Result<&NetworkFence, DeviceError> {
    order.spec.network_fence.as_ref().ok_or_else(|| failed("spec.networkFence is missing"))
}

/// The address of one host, if it is one. One address has many spellings, and an IPv4 address also has an IPv6 form
/// (`::ffff:10.0.0.1`).
fn parse_host(cidr: &str) -> Option<IpNet> {
    let net: IpNet = cidr.parse().ok()?;
    let address = net.addr().to_canonical();
    let is_one = net.prefix_len() == net.max_prefix_len();
    let is_special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    (is_one && !is_special).then(|| address.into())
}

/// Parses the addresses into one spelling. Danger note: a CSIAddonsNode is written by a pod on its node. Each address
/// must be that of one host, and of no other node: `0.0.0.0/0` would cut the whole cluster off from the storage.
fn parse_hosts<'a>(cidrs: impl IntoIterator<Item = &'a String>) -> Result<BTreeSet<IpNet>, DeviceError> {
    let wrong = |cidr: &String| failed(format!("{cidr:?} is not the address of one host (ADDRESS/32 or /128)"));
    let hosts: BTreeSet<IpNet> =
        cidrs.into_iter().map(|cidr| parse_host(cidr).ok_or_else(|| wrong(cidr))).collect::<Result<_, _>>()?;
    if hosts.len() > MAX_ADDRESSES {
        return Err(failed(format!("{} addresses are more than the {MAX_ADDRESSES} of a node", hosts.len())));
    }
    Ok(hosts)
}

/// Reads the addresses by which the node reaches the storage of this class; if the node is not Ready, those that were
/// recorded before.
async fn read_clients(check: Check<'_>) -> Result<ClientAddresses, DeviceError> {
    let (connection, order) = (check.connection(), check.order);
    let class = settings(order)?;
    let name = &*order.facts.machine.node;
    let namespace = name_in_path("networkFence.namespace", &class.namespace)?;
    let (mut own, mut others) = (BTreeSet::new(), BTreeSet::new());
    let mut each = |of_node: Value| {
        let is_own = text(&of_node, "/spec/driver/nodeID") == name;
        let addresses = client_addresses(&of_node, &class.class_name);
        if is_own {
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

/// The addresses that a CSIAddonsNode lists for a class.
fn client_addresses(of_node: &Value, class: &str) -> Vec<String> {
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let by_class = list(of_node.pointer("/status/networkFenceClientStatus")).into_iter();
    let details = by_class
        .filter(|status| status["networkFenceClassName"] == *class)
        .flat_map(|status| list(status.get("ClientDetails")));
    let cidrs = details.flat_map(|client| list(client.get("cidrs")));
    cidrs.filter_map(|cidr| cidr.as_str().map(str::to_owned)).collect()
}

/// The volumes that the fence covers are those of the class's provisioner. Addresses that were recorded during
/// another boot of the node may belong to another machine by now: then no coverage is recorded, and no evidence about
/// volumes follows.
async fn read_covered_storage(
    connection: &Connection,
    class: &NetworkFence,
) -> Result<Option<FencedStorage>, DeviceError> {
    let name = name_in_path("networkFence.className", &class.class_name)?;
    let path = format!("{VERSION}/networkfenceclasses/{name}");
    let driver = read_object(connection, &path).await?.map(|class| text(&class, "/spec/provisioner").to_owned());
    let driver = driver.filter(|driver| !driver.is_empty());
    Ok(driver.map(|driver| FencedStorage { driver, class_name: class.class_name.clone() }))
}

async fn resolve(check: Check<'_>, target: &Target) -> Result<TargetObject, DeviceError> {
    let order = check.order;
    let (fence, boot_id) = (&*target.fence.uid.to_string(), &target.spec.node.boot_id);
    let node = &order.facts.machine.node;
    let ClientAddresses { cidrs, boot_id: recorded_boot } = &order.clients;
    if cidrs.is_empty() {
        return Err(failed(format!("no addresses of {node} were recorded while it reported")));
    }
    let cidrs = parse_hosts(cidrs)?.iter().map(ToString::to_string).collect();
    let device = order.device.to_string();
    let storage = match recorded_boot == boot_id && !boot_id.is_empty() {
        // A device that powers the machine off does not need it, so a class that cannot be read does not prevent the
        // fence.
        true => read_covered_storage(check.connection(), settings(order)?).await.unwrap_or_default(),
        false => None,
    };
    let path = format!("{FENCES}{}", name_after(node, &[fence.as_bytes(), device.as_bytes()]));
    Ok(TargetObject { cidrs, storage, ..order.object(path, fence, false) })
}

fn is_owned(existing: &Value, object: &TargetObject) -> bool {
    annotation(existing, FENCE_ANNOTATION) == Some(&*object.uid)
}

/// Whether it has reached this state. Only the messages distinguish an earlier success from a new one.
fn has_reached(existing: &Value, state: &str) -> bool {
    let lifted = text(existing, "/status/message").to_lowercase().contains("unfenc");
    text(existing, "/spec/fenceState") == state
        && text(existing, "/status/result") == "Succeeded"
        && lifted == (state == "Unfenced")
}

fn has_other_class(existing: &Value, object: &TargetObject) -> bool {
    object.storage.as_ref().is_some_and(|storage| text(existing, "/spec/networkFenceClassName") != storage.class_name)
}

async fn create_fence(write: Write<'_>, class: &NetworkFence) -> Result<(), Outcome> {
    let Write { context, target, object } = write;
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

async fn check_status(connection: &Connection, object: &TargetObject) -> Result<Answer, DeviceError> {
    let path = &object.path;
    let (power, message) = match read_object(connection, path).await? {
        None => (Power::On, format!("there is no {path}")),
        Some(existing) if !is_owned(&existing, object) => {
            return Err(failed(format!("{path} exists and belongs to another owner, so it is left alone")));
        }
        Some(existing) if existing["spec"]["cidrs"] != json!(object.cidrs) => {
            return Err(failed(format!("{path} fences addresses other than {}", object.cidrs.join(", "))));
        }
        Some(existing) if has_other_class(&existing, object) => {
            return Err(failed(format!("{path} has another NetworkFenceClass than it was created with")));
        }
        Some(existing) if has_reached(&existing, "Fenced") => (Power::Off, format!("{path} is in force")),
        Some(existing) if text(&existing, "/status/result") == "Failed" => {
            return Err(failed(format!("{path} failed: {}", text(&existing, "/status/message"))));
        }
        Some(_) => (Power::Unknown, format!("{path} is not in force yet")),
    };
    Ok(Answer::new(power, Identity::Unknown, message))
}

/// The node is back, or nothing was proved: lifts the fence, then deletes it.
async fn lift(Write { context, object, .. }: Write<'_>) -> Result<(), Outcome> {
    let existing = read_object(context.writer.connection, &object.path).await.map_err(to_outcome)?;
    let Some(existing) = existing.filter(|existing| is_owned(existing, object)) else { return Ok(()) };
    let meta =
        json!({ "uid": existing["metadata"]["uid"], "resourceVersion": existing["metadata"]["resourceVersion"] });
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
    // The step is repeated until it has succeeded: the incident does not end before.
    let message = format!("{} is being lifted: {}", object.path, text(&existing, "/status/message"));
    Err(Outcome::NotReady(message))
}
