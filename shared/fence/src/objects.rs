//! Devices that are objects of the cluster: an order is a write to the API server, and a status check reads them by
//! quorum.
//!
//! | | driver | order `off` | status check |
//! |---|---|---|
//! | | `Machine`, `OpenShiftMachine`, `NodeClaim` | the object is deleted | off: the object is gone, with its finalizers, of which its provider removes the last |
//! | | `BareMetalHost` | gets an annotation that keeps it off | off: its status reports it while that annotation is there, and reported on before |
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
mod provider;
mod watchdog;

use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::render::NodeFacts;
use super::status_checker::StatusChecker;
use super::{StepContext, Target, stem_of};
use crate::api::{DeviceDriver, DeviceRef, FenceDeviceSpec, TargetObject};
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::model::is_kubernetes_name;
use crate::outcome::Outcome;
use crate::record::error_chain;
use crate::transport::{Act, Answer, DeviceError, Driver, Power};

/// How often an object is read until it has reached the requested state.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// An order to a device that is an object.
#[derive(Clone, Debug)]
pub(super) struct ObjectOrder {
    pub(super) device: DeviceRef,
    pub(super) driver: &'static dyn ObjectDriver,
    pub(super) spec: FenceDeviceSpec,
    pub(super) facts: NodeFacts,
    /// The node's addresses, recorded while it reported.
    pub(super) clients: ClientAddresses,
    pub(super) act: Act,
    pub(super) within: Duration,
}

impl ObjectOrder {
    /// The object that is recorded. `matched`: it is known to be that of the node's machine.
    fn object(&self, path: String, uid: &str, matched: bool) -> TargetObject {
        let (device, driver, uid) = (self.device.clone(), self.spec.driver, uid.to_owned());
        TargetObject { device, driver, path, uid, cidrs: Vec::new(), storage: None, matched }
    }
}

/// The addresses by which a node reaches a storage, and the boot ID with which they were recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientAddresses {
    pub(super) cidrs: Vec<String>,
    pub(super) boot_id: String,
}

/// How the code of a driver is called.
pub(super) enum Reach {
    /// Through this driver of a transport.
    Transport(fn(&FenceDeviceSpec) -> Driver),
    /// Through an object of the cluster.
    Object(&'static dyn ObjectDriver),
    /// It is a person.
    Operator,
}

/// The registry: one line for each driver.
pub(super) const fn reach(driver: DeviceDriver) -> Reach {
    match driver {
        DeviceDriver::Agent => Reach::Transport(|spec| Driver::Agent(spec.agent.as_deref().unwrap_or_default().into())),
        DeviceDriver::Redfish => Reach::Transport(|_| Driver::Redfish),
        DeviceDriver::Machine => Reach::Object(&machine::CLUSTER_API),
        DeviceDriver::OpenShiftMachine => Reach::Object(&machine::OPENSHIFT),
        DeviceDriver::NodeClaim => Reach::Object(&machine::KARPENTER),
        DeviceDriver::BareMetalHost => Reach::Object(&host::Host),
        DeviceDriver::NetworkFence => Reach::Object(&network::StorageFence),
        DeviceDriver::WatchdogLease => Reach::Object(&watchdog::NodeAgent),
        DeviceDriver::External => Reach::Object(&external::Remediator),
        DeviceDriver::Manual => Reach::Operator,
    }
}

/// What a status check has.
#[derive(Clone, Copy)]
pub(super) struct Check<'a> {
    checker: &'a StatusChecker<'a>,
    order: &'a ObjectOrder,
}

impl<'a> Check<'a> {
    const fn connection(self) -> &'a Connection {
        self.checker.reader.connection
    }
}

/// What a write to the object that an attempt recorded has.
#[derive(Clone, Copy)]
pub(super) struct Write<'a> {
    context: &'a StepContext<'a>,
    target: &'a Target,
    object: &'a TargetObject,
}

type Reply<'a, T> = BoxFuture<'a, Result<T, DeviceError>>;

/// A driver of devices that are objects. It never keeps state of its own.
pub(super) trait ObjectDriver: std::fmt::Debug + Sync {
    /// Whether a device of this driver can have recorded this object for this node. `parts`: the segments of its path.
    ///
    /// Danger note: paths are recorded in the status of a NodeFence. A client that can write a path there could have any
    /// object read, changed or deleted with the permissions of this process.
    fn is_possible(&self, object: &TargetObject, parts: &[&str], node: &str) -> bool;

    /// Whether its objects are accepted only in the `spec.namespaces` of the device, if it lists any.
    fn is_limited_to_namespaces(&self) -> bool {
        false
    }

    /// Finds the device's object, which is recorded with the intent, before anything is written.
    fn resolve<'a>(&'a self, check: Check<'a>, target: &'a Target) -> Reply<'a, TargetObject>;

    /// Begins to power the machine off. A status check shows the end.
    fn power_off<'a>(&'a self, write: Write<'a>, order: &'a ObjectOrder) -> Reply<'a, ()>;

    /// `power_off` did not succeed in time.
    fn mark_timed_out<'a>(&'a self, _: Write<'a>) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async { Ok(()) })
    }

    /// Removes what was made for this incident. That powers the machine on, unless [`Self::why_no_power_on`].
    fn lift<'a>(&'a self, _: Write<'a>) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async { Ok(()) })
    }

    /// Whether its objects are lifted even if the namespace of the device is no longer used for fencing.
    fn outlives_incident(&self) -> bool {
        false
    }

    /// Which other state it reports as off: then its "off" counts only after it reported on in the same incident.
    fn off_ambiguity(&self) -> Option<&'static str> {
        None
    }

    /// Why it cannot power a machine on.
    fn why_no_power_on(&self) -> Option<&'static str> {
        None
    }

    /// Checks the status of the object that an attempt recorded.
    fn check_status<'a>(&'a self, check: Check<'a>, object: &'a TargetObject) -> Reply<'a, Answer>;

    /// For a device that is only monitored: whether there is an object that could get an order.
    fn check_ready<'a>(&'a self, check: Check<'a>) -> Reply<'a, Answer>;

    /// The addresses by which a node reaches the storage that is fenced, for the status of the device.
    fn read_clients<'a>(&'a self, _: Check<'a>) -> BoxFuture<'a, ClientAddresses> {
        Box::pin(async { ClientAddresses::default() })
    }
}

/// Whether a device of this driver can have recorded this object for this node.
fn is_possible(driver: &dyn ObjectDriver, object: &TargetObject, node: &str) -> bool {
    driver.is_possible(object, &object.path.split('/').collect::<Vec<_>>(), node)
}

/// Whether this is the node's name, or a name that begins with it and a dash.
fn is_named_after(name: &str, node: &str) -> bool {
    let is_after = name.strip_prefix(stem_of(node)).is_some_and(|rest| rest.starts_with('-'));
    is_kubernetes_name(name) && (name == node || is_after)
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
    let namespace = object.path.split('/').nth(5).unwrap_or_default();
    let is_accepted = is_possible(order.driver, object, &order.facts.machine.node)
        && (!order.driver.is_limited_to_namespaces() || is_namespace_allowed(&order.spec.namespaces, namespace));
    match is_accepted {
        true => Ok(()),
        false => Err(failed(format!("{:?} cannot be an object of this device and this node", object.path))),
    }
}

/// Whether a namespace is accepted. If the device lists none, the namespace that the Node names is accepted.
fn is_namespace_allowed(namespaces: &[String], namespace: &str) -> bool {
    namespaces.is_empty() || namespaces.iter().any(|one| one == namespace)
}

/// Finds the device's object.
pub(super) async fn resolve(
    checker: &StatusChecker<'_>,
    order: &ObjectOrder,
    target: &Target,
) -> Result<TargetObject, DeviceError> {
    let object = order.driver.resolve(Check { checker, order }, target).await?;
    check_object(order, &object).map(|()| object)
}

/// Sends `off` or `on`, and waits for the state within the order's timeout.
pub(super) async fn carry_out(
    context: &StepContext<'_>,
    target: &Target,
    order: &ObjectOrder,
    object: &TargetObject,
) -> Result<Answer, DeviceError> {
    let ends = context.env.now() + order.within;
    let (driver, write) = (order.driver, Write { context, target, object });
    match (order.act, driver.why_no_power_on()) {
        (Act::Off, _) => driver.power_off(write, order).await?,
        (Act::On, Some(why)) => return Err(failed(why)),
        (Act::On, None) => driver.lift(write).await.map_err(to_device_error)?,
        (Act::Look, _) => {}
    }
    let expected = if order.act == Act::Off { Power::Off } else { Power::On };
    loop {
        let answer = check_status(&context.checker, order, Some(object)).await?;
        if answer.power == expected {
            return Ok(answer);
        }
        if context.env.now() + POLL_INTERVAL >= ends {
            if order.act == Act::Off {
                driver.mark_timed_out(write).await.map_err(to_device_error)?;
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

/// Checks the status of an object; without one, of a device that is only monitored.
pub(super) async fn check_status(
    checker: &StatusChecker<'_>,
    order: &ObjectOrder,
    object: Option<&TargetObject>,
) -> Result<Answer, DeviceError> {
    let check = Check { checker, order };
    match object {
        Some(object) => {
            check_object(order, object)?;
            order.driver.check_status(check, object).await
        }
        None => order.driver.check_ready(check).await,
    }
}

/// The addresses by which a node reaches the storage that is fenced, for the status of the device.
pub(super) async fn read_clients(checker: &StatusChecker<'_>, order: &ObjectOrder) -> ClientAddresses {
    order.driver.read_clients(Check { checker, order }).await
}

/// The incident is over: removes what was made for it. A path that no device can have made is ignored.
pub(super) async fn lift(context: &StepContext<'_>, target: &Target) -> Result<(), Outcome> {
    let mut done = std::collections::BTreeSet::new();
    for object in target.status.attempts.iter().flat_map(|attempt| &attempt.objects) {
        let Reach::Object(driver) = reach(object.driver) else { continue };
        let is_followed = driver.outlives_incident()
            || context.writer.cache.read().view().is_fencing_namespace(&object.device.namespace);
        if is_followed
            && is_possible(driver, object, &target.spec.node.name)
            && done.insert((object.driver, &object.path))
        {
            driver.lift(Write { context, target, object }).await?;
        }
    }
    Ok(())
}
