//! A BareMetalHost of Metal3: its operator switches the machine, and reads its power every minute.
//!
//! Off is asked by an annotation with a key of our own (`reboot.metal3.io/KEY`): the operator keeps the machine off while it is
//! there, whatever `spec.online` says, which others write. Danger note: `status.poweredOn` is what the operator saw last. So it
//! counts only in the states in which it looks, and off only while something keeps it so.

use serde_json::{Value, json};

use super::machine::{CLUSTER_API, Found, Kind, OPENSHIFT, find};
use super::{ObjectOrder, failed, outcome, read, read_all, text, version_of};
use crate::api::{ActedOn, DeviceDriver};
use crate::client::{Call, Connection, Method, WriteCall as _};
use crate::model::is_kubernetes_name;
use crate::outcome::Outcome;
use crate::transport::{Answer, DeviceError, Identity, Power};
use crate::{Acting, Target};

const GROUP: &str = "metal3.io";
const PLURAL: &str = "baremetalhosts";

/// While it is there, the operator keeps the machine off.
const HOLD: &str = "reboot.metal3.io/pod-safety";

/// By which incident, in its value.
const FENCE: &str = "fence";

/// With one of these the operator does not look, or does not switch.
const LEFT_ALONE: [&str; 2] = ["baremetalhost.metal3.io/paused", "baremetalhost.metal3.io/detached"];

/// In which states the operator switches the power, and no longer does anything else with the machine.
const STATES: [&str; 2] = ["provisioned", "externally provisioned"];

/// Whether a path can be that of one.
pub(super) fn is_path(parts: &[&str]) -> bool {
    let ["", "apis", GROUP, version, "namespaces", namespace, PLURAL, name] = parts else { return false };
    [version, namespace, name].into_iter().all(|part| is_kubernetes_name(part))
}

/// What the consumer of a BareMetalHost is called in its `spec.consumerRef`.
struct Consumer {
    group: &'static str,
    kind: &'static str,
    namespace: String,
    name: String,
}

impl Consumer {
    /// A Machine of OpenShift consumes a host itself, one of Cluster API by its Metal3Machine.
    fn of(kind: &Kind, machine: &Value) -> Result<Self, DeviceError> {
        let namespace = text(machine, "/metadata/namespace").to_owned();
        if kind.driver == DeviceDriver::OpenShiftMachine {
            let name = text(machine, "/metadata/name").to_owned();
            return Ok(Self { group: OPENSHIFT.group, kind: "Machine", namespace, name });
        }
        let made_of = text(machine, "/spec/infrastructureRef/kind");
        if made_of != "Metal3Machine" {
            let name = text(machine, "/metadata/name");
            return Err(failed(format!(
                "the Machine {namespace}/{name} is a {made_of}, not a Metal3Machine"
            )));
        }
        let name = text(machine, "/spec/infrastructureRef/name").to_owned();
        Ok(Self { group: "infrastructure.cluster.x-k8s.io", kind: "Metal3Machine", namespace, name })
    }

    fn consumes(&self, host: &Value) -> bool {
        let group = text(host, "/spec/consumerRef/apiVersion").split('/').next().unwrap_or_default();
        group == self.group
            && text(host, "/spec/consumerRef/kind") == self.kind
            && text(host, "/spec/consumerRef/name") == self.name
            && text(host, "/spec/consumerRef/namespace") == self.namespace
    }
}

/// The Machine of a node, of whichever kind the cluster has.
async fn machine_of(
    connection: &Connection,
    order: &ObjectOrder,
) -> Result<(&'static Kind, Found), DeviceError> {
    const KINDS: [&Kind; 2] = [&CLUSTER_API, &OPENSHIFT];
    let mut why = Vec::new();
    for kind in KINDS {
        match find(connection, order, kind).await {
            Ok(found) => return Ok((kind, found)),
            Err(DeviceError::Failed { said }) => why.push(said),
            Err(other) => return Err(other),
        }
    }
    Err(failed(why.join("; ")))
}

/// By the Machine that names the node, and the host in its namespace that names the Machine: a kubelet writes neither.
pub(super) async fn resolve(connection: &Connection, order: &ObjectOrder) -> Result<ActedOn, DeviceError> {
    let version = version_of(connection, GROUP).await?;
    let (kind, Found { object: machine, .. }) = machine_of(connection, order).await?;
    let consumer = Consumer::of(kind, &machine)?;
    let mut found = Vec::new();
    let mut each = |host: Value| {
        if consumer.consumes(&host) {
            found.push(host);
        }
    };
    let namespace = &consumer.namespace;
    read_all(connection, &format!("/apis/{version}/namespaces/{namespace}/{PLURAL}"), &mut each).await?;
    let [host] = &found[..] else {
        let Consumer { kind, namespace, name, .. } = consumer;
        let count = found.len();
        return Err(failed(format!(
            "{count} BareMetalHosts are consumed by {kind} {namespace}/{name}, not one"
        )));
    };
    let name = text(host, "/metadata/name");
    Ok(ActedOn {
        device: order.device.clone(),
        driver: DeviceDriver::BareMetalHost,
        path: format!("/apis/{version}/namespaces/{namespace}/{PLURAL}/{name}"),
        uid: text(host, "/metadata/uid").to_owned(),
        cidrs: Vec::new(),
        storage: None,
        matched: true,
    })
}

fn annotation<'a>(host: &'a Value, key: &str) -> Option<&'a str> {
    host.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// Why its operator would not switch it off and keep it so.
fn unswitched(host: &Value) -> Option<String> {
    if let Some(mark) = LEFT_ALONE.into_iter().find(|mark| annotation(host, mark).is_some()) {
        return Some(format!("it has the annotation {mark}: its operator does not manage it"));
    }
    if host.pointer("/spec/disablePowerOff") == Some(&Value::Bool(true)) {
        return Some("it has spec.disablePowerOff: its operator would reboot it instead".to_owned());
    }
    let state = text(host, "/status/provisioning/state");
    (!STATES.contains(&state))
        .then(|| format!("its provisioning state is {state:?}: its operator does not switch it"))
}

/// Why what its status says of the power may not be so.
fn doubt(host: &Value) -> Option<String> {
    let operational = text(host, "/status/operationalStatus");
    let error = text(host, "/status/errorMessage");
    unswitched(host).or_else(|| {
        (operational != "OK").then(|| format!("its operationalStatus is {operational:?}: {error}"))
    })
}

fn power(host: &Value) -> Power {
    match host.pointer("/status/poweredOn").and_then(Value::as_bool) {
        Some(true) => Power::On,
        Some(false) => Power::Off,
        None => Power::Unknown,
    }
}

async fn host_of(connection: &Connection, object: &ActedOn) -> Result<Value, DeviceError> {
    let found = read(connection, &object.path).await?;
    let found = found.filter(|host| text(host, "/metadata/uid") == object.uid);
    // Of a host that is not managed any more nothing is known: the machine may run on.
    found.ok_or_else(|| failed(format!("{} is gone: no operator switches its machine", object.path)))
}

pub(super) async fn off(
    acting: &Acting<'_>,
    target: &Target,
    object: &ActedOn,
) -> Result<Result<(), Outcome>, DeviceError> {
    let host = host_of(acting.means.connection, object).await?;
    if let Some(why) = unswitched(&host) {
        return Err(failed(format!("{}: {why}", object.path)));
    }
    // The operator reads the mode alone, and how the incident knows its own annotation again is ours.
    let value = json!({ "mode": "hard", FENCE: target.fence.uid });
    Ok(hold(acting, object, &json!(value.to_string())).await)
}

/// The operator switches it on again, unless others keep it off. What another incident wrote stays.
pub(super) async fn lift(acting: &Acting<'_>, target: &Target, object: &ActedOn) -> Result<(), Outcome> {
    let host = read(acting.means.connection, &object.path).await;
    let host = host.map_err(outcome)?;
    let ours = host.filter(|host| text(host, "/metadata/uid") == object.uid);
    let fence = target.fence.uid.to_string();
    let is_own = |host: &Value| {
        let hold = annotation(host, HOLD).and_then(|hold| serde_json::from_str::<Value>(hold).ok());
        hold.is_some_and(|hold| hold[FENCE] == *fence)
    };
    match ours.as_ref().is_some_and(is_own) {
        true => hold(acting, object, &Value::Null).await,
        false => Ok(()),
    }
}

/// By UID: a host of the same name may be another machine.
async fn hold(acting: &Acting<'_>, object: &ActedOn, value: &Value) -> Result<(), Outcome> {
    let body = json!({ "metadata": { "uid": object.uid, "annotations": { HOLD: value } } });
    acting.send(Call::write(Method::Merge, object.path.clone(), &body)).await.map(drop)
}

/// Without an object that was written down, what its operator reports; with one, off only while it is kept off.
pub(super) async fn look(
    connection: &Connection,
    order: &ObjectOrder,
    object: Option<&ActedOn>,
) -> Result<Answer, DeviceError> {
    let found = match object {
        Some(object) => object.clone(),
        None => resolve(connection, order).await?,
    };
    let host = host_of(connection, &found).await?;
    let identity = if found.matched { Identity::Match } else { Identity::Unknown };
    let path = &found.path;
    let (power, said) = match (doubt(&host), power(&host)) {
        (Some(why), _) => (Power::Unknown, format!("{path}: {why}")),
        (None, Power::Off) if object.is_some() && annotation(&host, HOLD).is_none() => {
            (Power::Unknown, format!("{path} is off, and its operator may switch it on: {HOLD} is missing"))
        }
        (None, power) => (power, format!("{path} has poweredOn {}", host["status"]["poweredOn"])),
    };
    Ok(Answer::new(power, identity, said))
}
