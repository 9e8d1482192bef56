//! Devices that are objects of the cluster: they are asked by a write to the API server, and looked at by quorum reads.
//!
//! | driver | off | looks |
//! |---|---|---|
//! | `Machine`, `OpenShiftMachine`, `NodeClaim` | it is deleted | off: it is gone, finalizers and all, which its provider drops last |
//! | `BareMetalHost` | it gets an annotation that keeps it off | off: its operator says so while that annotation is there |
//! | `WatchdogLease` | its last grant is revoked | off: what it guards has ended, or its watchdog reset the machine |
//! | `NetworkFence` | one is made of its addresses | off: it is in force |
//! | `External` | another remediator's object is made from its template | off: its condition of success |
//!
//! Which object it is stands in the attempt before anything is written ([`ActedOn`]): whoever leads next, and whoever
//! releases a pod later, looks at the same one. Danger note: what another controller does with an object it may do long
//! after our time. So an object that did not come to success in its time is told that its time is over, and a Machine
//! that is being deleted counts as nothing until it is gone.

mod external;
mod host;
mod machine;
mod network;
mod path;
mod provider;
mod watchdog;

use std::time::Duration;

use serde_json::{Value, json};

use super::looker::Looker;
use super::render::Facts;
use super::{Acting, Target};
use crate::api::{ActedOn, DeviceDriver, DeviceRef, External, FenceDeviceSpec, NetworkFence};
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::model::is_kubernetes_name;
use crate::outcome::Outcome;
use crate::record::error_chain;
use crate::transport::{Act, Answer, DeviceError, Identity, Power};

/// How often it is looked whether an object has come so far.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// What is asked of an object.
#[derive(Clone, Debug)]
pub(super) struct ObjectOrder {
    pub(super) device: DeviceRef,
    pub(super) by: By,
    /// Where objects of machines count; empty: where the Node says.
    pub(super) namespaces: Vec<String>,
    pub(super) facts: Facts,
    /// The node's addresses that were recorded while it was heard.
    pub(super) clients: Clients,
    pub(super) act: Act,
    pub(super) within: Duration,
}

/// By which addresses a node reaches a storage, and in which life of it they were found.
#[derive(Clone, Debug, Default)]
pub(super) struct Clients {
    pub(super) cidrs: Vec<String>,
    pub(super) boot_id: String,
}

/// By which kind of object.
#[derive(Clone, Debug)]
pub(super) enum By {
    Machine(&'static machine::Kind),
    Host,
    External(Box<External>),
    NetworkFence(Box<NetworkFence>),
    Watchdog(Box<watchdog::Accepted>),
}

impl By {
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

/// `None`: the device is reached by a transport, or by nobody.
pub(super) fn by(spec: &FenceDeviceSpec) -> Option<By> {
    match spec.driver {
        DeviceDriver::Machine => Some(By::Machine(&machine::CLUSTER_API)),
        DeviceDriver::OpenShiftMachine => Some(By::Machine(&machine::OPENSHIFT)),
        DeviceDriver::NodeClaim => Some(By::Machine(&machine::KARPENTER)),
        DeviceDriver::BareMetalHost => Some(By::Host),
        DeviceDriver::External => spec.external.clone().map(|external| By::External(Box::new(external))),
        DeviceDriver::NetworkFence => {
            spec.network_fence.clone().map(|class| By::NetworkFence(Box::new(class)))
        }
        DeviceDriver::WatchdogLease => spec
            .watchdog_lease
            .as_ref()
            .map(|lease| By::Watchdog(Box::new(watchdog::Accepted::by(lease, spec.timeouts.power_off)))),
        DeviceDriver::Agent | DeviceDriver::Redfish | DeviceDriver::Manual => None,
    }
}

fn failed(said: impl Into<String>) -> DeviceError {
    DeviceError::Failed { said: said.into() }
}

/// A part of a path: one with `..` or `?` in it would make a question about one object a question about another.
fn name_in_path<'a>(field: &str, name: &'a str) -> Result<&'a str, DeviceError> {
    if is_kubernetes_name(name) {
        Ok(name)
    } else {
        Err(failed(format!("{field} {name:?} is not a valid name")))
    }
}

fn unread(error: &ApiError) -> DeviceError {
    DeviceError::Unreachable { said: error_chain(error) }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// An object with all of its fields, by quorum; `None`: the registry says that there is none.
async fn read(connection: &Connection, path: &str) -> Result<Option<Value>, DeviceError> {
    match connection.send(Call::get(path).whole()).await {
        Ok(raw) => raw.whole().map(Some).map_err(|error| unread(&ApiError::Undecodable(error))),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) if error.code() == Some(404) => Err(failed(not_served(path))),
        Err(error) => Err(unread(&error)),
    }
}

/// Every object of a list.
async fn read_all(
    connection: &Connection,
    all: &str,
    each: &mut (dyn FnMut(Value) + Send),
) -> Result<(), DeviceError> {
    connection.each(all, each).await.map_err(|error| match error.code() {
        Some(404) => failed(not_served(all)),
        _ => unread(&error),
    })
}

fn not_served(what: &str) -> String {
    format!("this cluster does not serve {what}: its CRDs are not installed")
}

/// The version of a group that the API server prefers.
async fn version_of(connection: &Connection, group: &str) -> Result<String, DeviceError> {
    let path = format!("/apis/{group}");
    let found = read(connection, &path).await?.ok_or_else(|| failed(not_served(group)))?;
    let version = text(&found, "/preferredVersion/groupVersion");
    if version.is_empty() { Err(failed(not_served(group))) } else { Ok(version.to_owned()) }
}

/// The collection of a kind, as the API server names it in paths.
async fn plural_of(connection: &Connection, api_version: &str, kind: &str) -> Result<String, DeviceError> {
    let path = format!("/apis/{api_version}");
    let missing = || failed(not_served(&format!("{kind} of {api_version}")));
    let found = read(connection, &path).await.map_err(|error| match error {
        DeviceError::Failed { .. } => missing(),
        other => other,
    })?;
    let found = found.ok_or_else(missing)?;
    let all = found.get("resources").and_then(Value::as_array).into_iter().flatten();
    let mut named = all.filter(|one| one["kind"] == kind).map(|one| text(one, "/name"));
    named.find(|name| !name.contains('/')).map(str::to_owned).ok_or_else(missing)
}

/// Whether the object can be one of this device and this node.
fn checked(order: &ObjectOrder, object: &ActedOn) -> Result<(), DeviceError> {
    let is_possible = path::is_possible(order.by.driver(), object, &order.facts.machine.node)
        && path::is_followed(order.by.driver(), object, &order.namespaces);
    match is_possible {
        true => Ok(()),
        false => Err(failed(format!("{:?} cannot be an object of this device and this node", object.path))),
    }
}

/// Which object it is: for the intent, before anything is written. `fence`: the UID of the incident.
pub(super) async fn resolve(
    looker: &Looker<'_>,
    order: &ObjectOrder,
    target: &Target,
) -> Result<ActedOn, DeviceError> {
    let connection = looker.reader.connection;
    let fence = &*target.fence.uid.to_string();
    let found = match &order.by {
        By::Machine(kind) => Box::pin(machine::resolve(connection, order, kind)).await,
        By::Host => Box::pin(host::resolve(connection, order)).await,
        By::External(external) => external::resolve(connection, order, external, fence).await,
        By::NetworkFence(class) => {
            network::resolve(connection, order, class, fence, &target.spec.node.boot_id).await
        }
        By::Watchdog(_) => watchdog::resolve(looker, order).await,
    };
    found.and_then(|found| checked(order, &found).map(|()| found))
}

/// Off or on: writes, and waits for as long as the order gives it.
pub(super) async fn carry_out(
    acting: &Acting<'_>,
    target: &Target,
    order: &ObjectOrder,
    object: &ActedOn,
) -> Result<Answer, DeviceError> {
    let ends = acting.env.now() + order.within;
    let begun = match (&order.by, order.act) {
        (By::Machine(kind), Act::Off) => machine::off(acting, kind, object).await,
        (By::Host, Act::Off) => Box::pin(host::off(acting, target, object)).await?,
        (By::Host, Act::On) => Box::pin(host::lift(acting, target, object)).await,
        (By::External(external), Act::Off) => external::off(acting, target, order, external, object).await,
        (By::External(_), Act::On) => external::lift(acting, object).await,
        (By::NetworkFence(class), Act::Off) => network::off(acting, target, class, object).await,
        (By::Watchdog(accepted), Act::Off) => {
            watchdog::off(acting, order, accepted, object).await?;
            Ok(())
        }
        (By::Watchdog(_), Act::On) => return Err(failed("its watchdog resets it, and it boots by itself")),
        (By::Machine(_), Act::On) => return Err(failed("a machine that was deleted cannot be switched on")),
        (By::NetworkFence(_), Act::On) => return Err(failed("it is lifted when the node is back")),
        (_, Act::Look) => Ok(()),
    };
    begun.map_err(said)?;
    let wanted = if order.act == Act::Off { Power::Off } else { Power::On };
    loop {
        let answer = look(&acting.looker, order, Some(object)).await?;
        if answer.power == wanted {
            return Ok(answer);
        }
        if acting.env.now() + LOOK_AGAIN >= ends {
            if let (By::External(_), Act::Off) = (&order.by, order.act) {
                external::time_is_over(acting, object).await.map_err(said)?;
            }
            return Err(DeviceError::TimedOut { after: order.within });
        }
        acting.env.sleep(LOOK_AGAIN).await;
    }
}

/// Makes the object. It may have been made before a crash: what it is, and for which incident, the next look shows.
async fn make(acting: &Acting<'_>, object: &ActedOn, body: &Value) -> Result<(), Outcome> {
    let (collection, _) = object.path.rsplit_once('/').unwrap_or_default();
    match acting.send(Call::write(Method::Post, collection, body)).await {
        Ok(_) | Err(Outcome::Changed) => Ok(()),
        Err(outcome) => Err(outcome),
    }
}

/// Deletes the object with this UID. That it is gone, or another one, the next look shows.
async fn delete(acting: &Acting<'_>, object: &ActedOn, uid: &str) -> Result<(), Outcome> {
    let body = json!({ "preconditions": { "uid": uid } });
    match acting.send(Call::write(Method::Delete, object.path.clone(), &body)).await {
        Ok(_) | Err(Outcome::Gone | Outcome::Changed) => Ok(()),
        Err(outcome) => Err(outcome),
    }
}

/// How a step ends that could not read an object.
fn outcome(error: DeviceError) -> Outcome {
    Outcome::NotReady(error.to_string())
}

fn said(outcome: Outcome) -> DeviceError {
    match outcome {
        Outcome::Failed(error) => unread(&error),
        Outcome::NotReady(why) => failed(why),
        other => failed(format!("not written: {}", other.name())),
    }
}

/// One look. Without an object, as of a device that is only looked through: whether there is one that could be asked.
pub(super) async fn look(
    looker: &Looker<'_>,
    order: &ObjectOrder,
    object: Option<&ActedOn>,
) -> Result<Answer, DeviceError> {
    let connection = looker.reader.connection;
    if let Some(object) = object {
        checked(order, object)?;
    }
    match (&order.by, object) {
        (By::Machine(_), Some(object)) => machine::look(connection, object).await,
        (By::Host, object) => Box::pin(host::look(connection, order, object)).await,
        (By::External(external), Some(object)) => external::look(connection, external, object).await,
        (By::NetworkFence(_), Some(object)) => network::look(connection, object).await,
        (By::Watchdog(accepted), Some(object)) => watchdog::look(looker, order, accepted, object).await,
        (By::Watchdog(accepted), None) => watchdog::look_through(looker, order, accepted).await,
        (By::NetworkFence(class), None) => {
            let clients = network::clients(connection, order, class).await?;
            let said = format!("it would fence {}", clients.cidrs.join(", "));
            Ok(Answer::new(Power::On, Identity::Unknown, said))
        }
        (By::Machine(kind), None) => {
            let found = Box::pin(machine::resolve(connection, order, kind)).await?;
            Ok(Answer::new(Power::On, Identity::Match, format!("{} exists", found.path)))
        }
        (By::External(external), None) => {
            let found = external::resolve(connection, order, external, "").await?;
            let said = format!("{} would be created", found.path);
            Ok(Answer::new(Power::On, Identity::Unknown, said))
        }
    }
}

/// By which addresses a node reaches the storage that is fenced: for the status of the device.
pub(super) async fn clients(connection: &Connection, order: &ObjectOrder) -> Clients {
    match &order.by {
        // Why there are none, the look says.
        By::NetworkFence(class) => {
            network::clients(connection, order, class).await.unwrap_or_else(|_| order.clients.clone())
        }
        By::Machine(_) | By::Host | By::External(_) | By::Watchdog(_) => Clients::default(),
    }
}

/// The incident is over: what was made for it goes. What no device can have made stays as it is.
pub(super) async fn lift(acting: &Acting<'_>, target: &Target) -> Result<(), Outcome> {
    let mut done = std::collections::BTreeSet::new();
    let is_possible = |object: &&ActedOn| {
        // A NetworkFence is in no namespace, and outlives the incident unless it is lifted.
        let followed = object.driver == DeviceDriver::NetworkFence
            || acting.means.cache.read().view().fences_from(&object.device.namespace);
        followed && path::is_possible(object.driver, object, &target.spec.node.name)
    };
    let objects = target.status.attempts.iter().flat_map(|attempt| &attempt.objects);
    for object in objects.filter(is_possible) {
        match object.driver {
            DeviceDriver::External if done.insert(&object.path) => external::lift(acting, object).await?,
            DeviceDriver::NetworkFence if done.insert(&object.path) => network::lift(acting, object).await?,
            DeviceDriver::BareMetalHost if done.insert(&object.path) => {
                Box::pin(host::lift(acting, target, object)).await?;
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
