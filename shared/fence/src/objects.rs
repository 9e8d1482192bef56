//! Devices that are objects of the cluster: an order is a write to the API server, and a status check reads them by
//! quorum.
//!
//! | | driver | order `off` | status check |
//! |---|---|---|
//! | | `Machine`, `OpenShiftMachine`, `NodeClaim` | the object is deleted | off: the object is gone, with its finalizers, of which its provider removes the last |
//! | | `BareMetalHost` | gets an annotation that keeps it off | off: its status reports it while that annotation is there |
//! | | `WatchdogLease` | its last grant is revoked | off: the processes that it guards have terminated, or its watchdog reset the machine |
//! | | `NetworkFence` | a NetworkFence of the node's addresses is created | off: it is in force |
//! | | `External` | another remediator's object is created from its template | off: its success condition is True |
//!
//! The attempt records the object before anything is written ([`TargetObject`]), so that the next leader, and each
//! later check before a force delete, read the same object. Danger note: another controller may act on an object long
//! after the order's timeout. So an object that did not succeed in time is marked as timed out, and a Machine that is
//! being deleted is not off until it is gone.

mod external;
mod host;
mod machine;
mod network;
mod path;
mod provider;
mod watchdog;

use std::time::Duration;

use serde_json::{Value, json};

use super::render::NodeFacts;
use super::status_checker::StatusChecker;
use super::{StepContext, Target};
use crate::api::{DeviceDriver, DeviceRef, External, FenceDeviceSpec, NetworkFence, TargetObject};
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::model::is_kubernetes_name;
use crate::outcome::Outcome;
use crate::record::error_chain;
use crate::transport::{Act, Answer, DeviceError, Identity, Power};

/// How often an object is read until it has reached the requested state.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// An order to a device that is an object.
#[derive(Clone, Debug)]
pub(super) struct ObjectOrder {
    pub(super) device: DeviceRef,
    pub(super) kind: ObjectKind,
    /// The namespaces in which objects of machines are accepted; empty: the one that the Node names.
    pub(super) namespaces: Vec<String>,
    pub(super) facts: NodeFacts,
    /// The node's addresses, recorded while it reported.
    pub(super) clients: ClientAddresses,
    pub(super) act: Act,
    pub(super) within: Duration,
}

/// The addresses by which a node reaches a storage, and the boot ID with which they were recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientAddresses {
    pub(super) cidrs: Vec<String>,
    pub(super) boot_id: String,
}

/// The kind of object.
#[derive(Clone, Debug)]
pub(super) enum ObjectKind {
    Machine(&'static machine::Kind),
    Host,
    External(Box<External>),
    NetworkFence(Box<NetworkFence>),
    Watchdog(Box<watchdog::AcceptedPromises>),
}

impl ObjectKind {
    const fn driver(&self) -> DeviceDriver {
        match self {
            Self::Machine(kind) => kind.driver,
            Self::Host => DeviceDriver::BareMetalHost,
            Self::External(_) => DeviceDriver::External,
            Self::NetworkFence(_) => DeviceDriver::NetworkFence,
            Self::Watchdog(_) => DeviceDriver::WatchdogLease,
        }
    }
}

/// `None`: a transport reaches the device, or it is an operator (driver Manual).
pub(super) fn object_kind(spec: &FenceDeviceSpec) -> Option<ObjectKind> {
    match spec.driver {
        DeviceDriver::Machine => Some(ObjectKind::Machine(&machine::CLUSTER_API)),
        DeviceDriver::OpenShiftMachine => Some(ObjectKind::Machine(&machine::OPENSHIFT)),
        DeviceDriver::NodeClaim => Some(ObjectKind::Machine(&machine::KARPENTER)),
        DeviceDriver::BareMetalHost => Some(ObjectKind::Host),
        DeviceDriver::External => spec.external.clone().map(|external| ObjectKind::External(Box::new(external))),
        DeviceDriver::NetworkFence => spec.network_fence.clone().map(|class| ObjectKind::NetworkFence(Box::new(class))),
        DeviceDriver::WatchdogLease => spec.watchdog_lease.as_ref().map(|lease| {
            ObjectKind::Watchdog(Box::new(watchdog::AcceptedPromises::from_spec(lease, spec.timeouts.power_off)))
        }),
        DeviceDriver::Agent | DeviceDriver::Redfish | DeviceDriver::Manual => None,
    }
}

fn failed(message: impl Into<String>) -> DeviceError {
    DeviceError::Failed { said: message.into() }
}

/// Checks a segment of a path: with `..` or `?` in it, the request would read another object.
fn name_in_path<'a>(field: &str, name: &'a str) -> Result<&'a str, DeviceError> {
    if is_kubernetes_name(name) { Ok(name) } else { Err(failed(format!("{field} {name:?} is not a valid name"))) }
}

fn read_error(error: &ApiError) -> DeviceError {
    DeviceError::Unreachable { said: error_chain(error) }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// Reads an object with all of its fields, by quorum; `None`: the API server reports that it does not exist.
async fn read_object(connection: &Connection, path: &str) -> Result<Option<Value>, DeviceError> {
    match connection.send(Call::get(path).all_fields()).await {
        Ok(raw) => raw.to_json().map(Some).map_err(|error| read_error(&ApiError::Undecodable(error))),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) if error.code() == Some(404) => Err(failed(not_served(path))),
        Err(error) => Err(read_error(&error)),
    }
}

/// Reads every object of a list.
async fn read_list(
    connection: &Connection,
    all: &str,
    each: &mut (dyn FnMut(Value) + Send),
) -> Result<(), DeviceError> {
    connection.for_each_item(all, each).await.map_err(|error| match error.code() {
        Some(404) => failed(not_served(all)),
        _ => read_error(&error),
    })
}

fn not_served(what: &str) -> String {
    format!("this cluster does not serve {what}: its CRDs are not installed")
}

/// The preferred version of a group.
async fn preferred_version(connection: &Connection, group: &str) -> Result<String, DeviceError> {
    let path = format!("/apis/{group}");
    let discovery = read_object(connection, &path).await?.ok_or_else(|| failed(not_served(group)))?;
    let version = text(&discovery, "/preferredVersion/groupVersion");
    if version.is_empty() { Err(failed(not_served(group))) } else { Ok(version.to_owned()) }
}

/// The plural name of a kind, as discovery lists it.
async fn resource_name(connection: &Connection, api_version: &str, kind: &str) -> Result<String, DeviceError> {
    let path = format!("/apis/{api_version}");
    let missing = || failed(not_served(&format!("{kind} of {api_version}")));
    let discovery = read_object(connection, &path).await.map_err(|error| match error {
        DeviceError::Failed { .. } => missing(),
        other => other,
    })?;
    let discovery = discovery.ok_or_else(missing)?;
    let all = discovery.get("resources").and_then(Value::as_array).into_iter().flatten();
    let mut named = all.filter(|one| one["kind"] == kind).map(|one| text(one, "/name"));
    named.find(|name| !name.contains('/')).map(str::to_owned).ok_or_else(missing)
}

/// Checks that the object can belong to this device and this node.
fn check_object(order: &ObjectOrder, object: &TargetObject) -> Result<(), DeviceError> {
    let is_possible = path::is_possible(order.kind.driver(), object, &order.facts.machine.node)
        && path::is_namespace_allowed(order.kind.driver(), object, &order.namespaces);
    match is_possible {
        true => Ok(()),
        false => Err(failed(format!("{:?} cannot be an object of this device and this node", object.path))),
    }
}

/// Finds the device's object, which is recorded with the intent, before anything is written.
pub(super) async fn resolve(
    checker: &StatusChecker<'_>,
    order: &ObjectOrder,
    target: &Target,
) -> Result<TargetObject, DeviceError> {
    let connection = checker.reader.connection;
    let fence = &*target.fence.uid.to_string();
    let resolved = match &order.kind {
        ObjectKind::Machine(kind) => Box::pin(machine::resolve(connection, order, kind)).await,
        ObjectKind::Host => Box::pin(host::resolve(connection, order)).await,
        ObjectKind::External(external) => external::resolve(connection, order, external, fence).await,
        ObjectKind::NetworkFence(class) => {
            network::resolve(connection, order, class, fence, &target.spec.node.boot_id).await
        }
        ObjectKind::Watchdog(_) => watchdog::resolve(checker, order).await,
    };
    resolved.and_then(|object| check_object(order, &object).map(|()| object))
}

/// Sends `off` or `on`, and waits for the state within the order's timeout.
pub(super) async fn carry_out(
    context: &StepContext<'_>,
    target: &Target,
    order: &ObjectOrder,
    object: &TargetObject,
) -> Result<Answer, DeviceError> {
    let ends = context.env.now() + order.within;
    let begun = match (&order.kind, order.act) {
        (ObjectKind::Machine(kind), Act::Off) => machine::power_off(context, kind, object).await,
        (ObjectKind::Host, Act::Off) => Box::pin(host::power_off(context, target, object)).await?,
        (ObjectKind::Host, Act::On) => Box::pin(host::lift(context, target, object)).await,
        (ObjectKind::External(external), Act::Off) => {
            external::power_off(context, target, order, external, object).await
        }
        (ObjectKind::External(_), Act::On) => external::lift(context, object).await,
        (ObjectKind::NetworkFence(class), Act::Off) => network::create_fence(context, target, class, object).await,
        (ObjectKind::Watchdog(accepted), Act::Off) => {
            watchdog::revoke(context, order, accepted, object).await?;
            Ok(())
        }
        (ObjectKind::Watchdog(_), Act::On) => {
            return Err(failed("its watchdog resets it, and it boots by itself"));
        }
        (ObjectKind::Machine(_), Act::On) => {
            return Err(failed("a machine that was deleted cannot be switched on"));
        }
        (ObjectKind::NetworkFence(_), Act::On) => return Err(failed("it is lifted when the node is back")),
        (_, Act::Look) => Ok(()),
    };
    begun.map_err(to_device_error)?;
    let expected = if order.act == Act::Off { Power::Off } else { Power::On };
    loop {
        let answer = check_status(&context.checker, order, Some(object)).await?;
        if answer.power == expected {
            return Ok(answer);
        }
        if context.env.now() + POLL_INTERVAL >= ends {
            if let (ObjectKind::External(_), Act::Off) = (&order.kind, order.act) {
                external::mark_timed_out(context, object).await.map_err(to_device_error)?;
            }
            return Err(DeviceError::TimedOut { after: order.within });
        }
        context.env.sleep(POLL_INTERVAL).await;
    }
}

/// Creates the object. If it was created before a crash, the next status check compares its owner and its spec.
async fn create(context: &StepContext<'_>, object: &TargetObject, body: &Value) -> Result<(), Outcome> {
    let (collection, _) = object.path.rsplit_once('/').unwrap_or_default();
    match context.send(Call::write(Method::Post, collection, body)).await {
        Ok(_) | Err(Outcome::Changed) => Ok(()),
        Err(outcome) => Err(outcome),
    }
}

/// Deletes the object with this UID. The next status check shows whether it is gone or replaced.
async fn delete(context: &StepContext<'_>, object: &TargetObject, uid: &str) -> Result<(), Outcome> {
    let body = json!({ "preconditions": { "uid": uid } });
    match context.send(Call::write(Method::Delete, object.path.clone(), &body)).await {
        Ok(_) | Err(Outcome::Gone | Outcome::Changed) => Ok(()),
        Err(outcome) => Err(outcome),
    }
}

/// The outcome of a step that could not read an object.
fn to_outcome(error: DeviceError) -> Outcome {
    Outcome::NotReady(error.to_string())
}

fn to_device_error(outcome: Outcome) -> DeviceError {
    match outcome {
        Outcome::Failed(error) => read_error(&error),
        Outcome::NotReady(why) => failed(why),
        other => failed(format!("not written: {}", other.name())),
    }
}

/// Checks the status of an object. Without one, for a device that is only monitored: whether there is an object that
/// could get an order.
pub(super) async fn check_status(
    checker: &StatusChecker<'_>,
    order: &ObjectOrder,
    object: Option<&TargetObject>,
) -> Result<Answer, DeviceError> {
    let connection = checker.reader.connection;
    if let Some(object) = object {
        check_object(order, object)?;
    }
    match (&order.kind, object) {
        (ObjectKind::Machine(_), Some(object)) => machine::check_status(connection, object).await,
        (ObjectKind::Host, object) => Box::pin(host::check_status(connection, order, object)).await,
        (ObjectKind::External(external), Some(object)) => external::check_status(connection, external, object).await,
        (ObjectKind::NetworkFence(_), Some(object)) => network::check_status(connection, object).await,
        (ObjectKind::Watchdog(accepted), Some(object)) => {
            watchdog::check_status(checker, order, accepted, object).await
        }
        (ObjectKind::Watchdog(accepted), None) => watchdog::check_armed(checker, order, accepted).await,
        (ObjectKind::NetworkFence(class), None) => {
            let clients = network::read_clients(connection, order, class).await?;
            let message = format!("it would fence {}", clients.cidrs.join(", "));
            Ok(Answer::new(Power::On, Identity::Unknown, message))
        }
        (ObjectKind::Machine(kind), None) => {
            let resolved = Box::pin(machine::resolve(connection, order, kind)).await?;
            Ok(Answer::new(Power::On, Identity::Match, format!("{} exists", resolved.path)))
        }
        (ObjectKind::External(external), None) => {
            let resolved = external::resolve(connection, order, external, "").await?;
            let message = format!("{} would be created", resolved.path);
            Ok(Answer::new(Power::On, Identity::Unknown, message))
        }
    }
}

/// The addresses by which a node reaches the storage that is fenced, for the status of the device.
pub(super) async fn read_clients(connection: &Connection, order: &ObjectOrder) -> ClientAddresses {
    match &order.kind {
        // The status check reports why there are none.
        ObjectKind::NetworkFence(class) => {
            network::read_clients(connection, order, class).await.unwrap_or_else(|_| order.clients.clone())
        }
        ObjectKind::Machine(_) | ObjectKind::Host | ObjectKind::External(_) | ObjectKind::Watchdog(_) => {
            ClientAddresses::default()
        }
    }
}

/// The incident is over: removes what was made for it. A path that no device can have made is ignored.
pub(super) async fn lift(context: &StepContext<'_>, target: &Target) -> Result<(), Outcome> {
    let mut done = std::collections::BTreeSet::new();
    let is_possible = |object: &&TargetObject| {
        // A NetworkFence is cluster-scoped, and outlives the incident unless it is lifted.
        let followed = object.driver == DeviceDriver::NetworkFence
            || context.writer.cache.read().view().is_fencing_namespace(&object.device.namespace);
        followed && path::is_possible(object.driver, object, &target.spec.node.name)
    };
    let objects = target.status.attempts.iter().flat_map(|attempt| &attempt.objects);
    for object in objects.filter(is_possible) {
        match object.driver {
            DeviceDriver::External if done.insert(&object.path) => external::lift(context, object).await?,
            DeviceDriver::NetworkFence if done.insert(&object.path) => network::lift(context, object).await?,
            DeviceDriver::BareMetalHost if done.insert(&object.path) => {
                Box::pin(host::lift(context, target, object)).await?;
            }
            DeviceDriver::External
            | DeviceDriver::NetworkFence
            | DeviceDriver::BareMetalHost
            | DeviceDriver::Machine
            | DeviceDriver::OpenShiftMachine
            | DeviceDriver::NodeClaim
            | DeviceDriver::WatchdogLease
            | DeviceDriver::Agent
            | DeviceDriver::Redfish
            | DeviceDriver::Manual => {}
        }
    }
    Ok(())
}
