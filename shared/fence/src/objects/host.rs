//! A BareMetalHost of Metal3: the baremetal-operator switches the machine, and reads its power state every minute.
//!
//! The order `off` is an annotation with a key of our own (`reboot.metal3.io/KEY`): the operator keeps the machine
//! off while it is there, whatever `spec.online` contains, which other clients write. Danger note: `status.poweredOn`
//! is what the operator read last, and it has no time: an operator that is down leaves it as it was. So it counts only
//! in the states in which the operator reads it, and off only while an annotation keeps the machine off, and after the
//! status was on in the same incident: then the operator has read the power since.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::machine::{CLUSTER_API, Kind, MachineObject, OPENSHIFT, find};
use super::{
    Check, ObjectDriver, ObjectOrder, Reply, Write, annotation, failed, preferred_version, read_list, read_object,
    text, to_device_error, to_outcome,
};
use crate::api::TargetObject;
use crate::client::{Call, Connection, Method, WriteCall as _};
use crate::model::is_kubernetes_name;
use crate::outcome::Outcome;
use crate::transport::{Answer, DeviceError, Identity, Power};
use crate::{StepContext, Target};

const GROUP: &str = "metal3.io";
const PLURAL: &str = "baremetalhosts";

/// The annotation with which the operator keeps the machine off.
const POWER_OFF_ANNOTATION: &str = "reboot.metal3.io/pod-safety";

/// The key of the incident in the annotation's value.
const FENCE: &str = "fence";

/// With one of these annotations the operator neither reads nor switches the power.
const UNMANAGED_ANNOTATIONS: [&str; 2] = ["baremetalhost.metal3.io/paused", "baremetalhost.metal3.io/detached"];

/// The provisioning states in which the operator switches the power, and does nothing else with the machine.
const SWITCHABLE_STATES: [&str; 2] = ["provisioned", "externally provisioned"];

/// The driver.
#[derive(Debug)]
pub(super) struct Host;

impl ObjectDriver for Host {
    fn is_possible(&self, _: &TargetObject, parts: &[&str], _: &str) -> bool {
        let ["", "apis", GROUP, version, "namespaces", namespace, PLURAL, name] = parts else { return false };
        [version, namespace, name].into_iter().all(|part| is_kubernetes_name(part))
    }

    fn is_limited_to_namespaces(&self) -> bool {
        true
    }

    fn resolve<'a>(&'a self, check: Check<'a>, _: &'a Target) -> Reply<'a, TargetObject> {
        Box::pin(resolve(check))
    }

    fn power_off<'a>(&'a self, write: Write<'a>, _: &'a ObjectOrder) -> Reply<'a, ()> {
        Box::pin(power_off(write))
    }

    /// docs/assumptions.md: domain-is-current
    fn off_ambiguity(&self) -> Option<&'static str> {
        Some("a host off until its operator reads the power again")
    }

    fn lift<'a>(&'a self, write: Write<'a>) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(lift(write))
    }

    fn check_status<'a>(&'a self, check: Check<'a>, object: &'a TargetObject) -> Reply<'a, Answer> {
        Box::pin(check_status(check, Some(object)))
    }

    fn check_ready<'a>(&'a self, check: Check<'a>) -> Reply<'a, Answer> {
        Box::pin(check_status(check, None))
    }
}

/// The consumer of a BareMetalHost, as in its `spec.consumerRef`.
struct Consumer {
    group: &'static str,
    kind: &'static str,
    namespace: String,
    name: String,
}

impl Consumer {
    /// A Machine of OpenShift consumes a host itself, a Machine of Cluster API through its Metal3Machine.
    fn from_machine(kind: &Kind, machine: &Value) -> Result<Self, DeviceError> {
        let namespace = text(machine, "/metadata/namespace").to_owned();
        if kind.group == OPENSHIFT.group {
            let name = text(machine, "/metadata/name").to_owned();
            return Ok(Self { group: OPENSHIFT.group, kind: "Machine", namespace, name });
        }
        let made_of = text(machine, "/spec/infrastructureRef/kind");
        if made_of != "Metal3Machine" {
            let name = text(machine, "/metadata/name");
            return Err(failed(format!("the Machine {namespace}/{name} is a {made_of}, not a Metal3Machine")));
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

/// The Machine of a node, of either kind.
async fn find_machine(check: Check<'_>) -> Result<(&'static Kind, MachineObject), DeviceError> {
    const KINDS: [&Kind; 2] = [&CLUSTER_API, &OPENSHIFT];
    let mut why = Vec::new();
    for kind in KINDS {
        match find(check, kind).await {
            Ok(machine) => return Ok((kind, machine)),
            Err(DeviceError::Failed { said }) => why.push(said),
            Err(other) => return Err(other),
        }
    }
    Err(failed(why.join("; ")))
}

/// Finds the host by the Machine that names the node: the host in its namespace whose consumer it is. A kubelet can
/// write neither.
async fn resolve(check: Check<'_>) -> Result<TargetObject, DeviceError> {
    let connection = check.connection();
    let version = preferred_version(connection, GROUP).await?;
    let (kind, MachineObject { object: machine, .. }) = find_machine(check).await?;
    let consumer = Consumer::from_machine(kind, &machine)?;
    let mut hosts = Vec::new();
    let mut each = |host: Value| {
        if consumer.consumes(&host) {
            hosts.push(host);
        }
    };
    let namespace = &consumer.namespace;
    read_list(connection, &format!("/apis/{version}/namespaces/{namespace}/{PLURAL}"), &mut each).await?;
    let [host] = &hosts[..] else {
        let Consumer { kind, namespace, name, .. } = consumer;
        let count = hosts.len();
        return Err(failed(format!("{count} BareMetalHosts are consumed by {kind} {namespace}/{name}, not one")));
    };
    let name = text(host, "/metadata/name");
    let path = format!("/apis/{version}/namespaces/{namespace}/{PLURAL}/{name}");
    Ok(check.order.object(path, text(host, "/metadata/uid"), true))
}

/// Why the operator would not switch the host off and keep it off.
fn why_not_switchable(host: &Value) -> Option<String> {
    if let Some(mark) = UNMANAGED_ANNOTATIONS.into_iter().find(|mark| annotation(host, mark).is_some()) {
        return Some(format!("it has the annotation {mark}: its operator does not manage it"));
    }
    if host.pointer("/spec/disablePowerOff") == Some(&Value::Bool(true)) {
        return Some("it has spec.disablePowerOff: its operator would reboot it instead".to_owned());
    }
    let state = text(host, "/status/provisioning/state");
    (!SWITCHABLE_STATES.contains(&state))
        .then(|| format!("its provisioning state is {state:?}: its operator does not switch it"))
}

/// Why the power in its status may be outdated.
fn why_power_unreliable(host: &Value) -> Option<String> {
    let operational = text(host, "/status/operationalStatus");
    let error = text(host, "/status/errorMessage");
    why_not_switchable(host)
        .or_else(|| (operational != "OK").then(|| format!("its operationalStatus is {operational:?}: {error}")))
}

fn power(host: &Value) -> Power {
    match host.pointer("/status/poweredOn").and_then(Value::as_bool) {
        Some(true) => Power::On,
        Some(false) => Power::Off,
        None => Power::Unknown,
    }
}

async fn read_host(connection: &Connection, object: &TargetObject) -> Result<Value, DeviceError> {
    let host = read_object(connection, &object.path).await?;
    let host = host.filter(|host| text(host, "/metadata/uid") == object.uid);
    // Without a managed host the power state is unknown: the machine may run on.
    host.ok_or_else(|| failed(format!("{} is gone: no operator switches its machine", object.path)))
}

async fn power_off(Write { context, target, object }: Write<'_>) -> Result<(), DeviceError> {
    let host = read_host(context.writer.connection, object).await?;
    if let Some(why) = why_not_switchable(&host) {
        return Err(failed(format!("{}: {why}", object.path)));
    }
    // The operator reads the mode alone; the other key identifies the incident that wrote the annotation.
    let value = json!({ "mode": "hard", FENCE: target.fence.uid });
    set_power_off(context, object, &json!(value.to_string())).await.map_err(to_device_error)
}

/// Removes the annotation, so that the operator switches the host on again unless another annotation keeps it off. An
/// annotation of another incident stays.
async fn lift(Write { context, target, object }: Write<'_>) -> Result<(), Outcome> {
    let host = read_object(context.writer.connection, &object.path).await;
    let host = host.map_err(to_outcome)?;
    let own = host.filter(|host| text(host, "/metadata/uid") == object.uid);
    let fence = target.fence.uid.to_string();
    let is_own = |host: &Value| {
        let hold = annotation(host, POWER_OFF_ANNOTATION).and_then(|hold| serde_json::from_str::<Value>(hold).ok());
        hold.is_some_and(|hold| hold[FENCE] == *fence)
    };
    match own.as_ref().is_some_and(is_own) {
        true => set_power_off(context, object, &Value::Null).await,
        false => Ok(()),
    }
}

/// Writes by UID: a host of the same name may be another machine.
async fn set_power_off(context: &StepContext<'_>, object: &TargetObject, value: &Value) -> Result<(), Outcome> {
    let body = json!({ "metadata": { "uid": object.uid, "annotations": { POWER_OFF_ANNOTATION: value } } });
    context.send(Call::write(Method::Merge, object.path.clone(), &body)).await.map(drop)
}

/// Without a recorded object, the power that the operator reports; with one, off only while the annotation keeps it
/// off, and on even if the status may be outdated.
async fn check_status(check: Check<'_>, object: Option<&TargetObject>) -> Result<Answer, DeviceError> {
    let resolved = match object {
        Some(object) => object.clone(),
        None => resolve(check).await?,
    };
    let host = read_host(check.connection(), &resolved).await?;
    let identity = if resolved.matched { Identity::Match } else { Identity::Unknown };
    let path = &resolved.path;
    let (power, message) = match (why_power_unreliable(&host), power(&host)) {
        // Off can follow only after another read.
        (Some(why), Power::On) if object.is_some() => (Power::On, format!("{path} has poweredOn true, but {why}")),
        (Some(why), _) => (Power::Unknown, format!("{path}: {why}")),
        (None, Power::Off) if object.is_some() && annotation(&host, POWER_OFF_ANNOTATION).is_none() => (
            Power::Unknown,
            format!("{path} is off, and its operator may switch it on: {POWER_OFF_ANNOTATION} is missing"),
        ),
        (None, power) => (power, format!("{path} has poweredOn {}", host["status"]["poweredOn"])),
    };
    Ok(Answer::new(power, identity, message))
}
