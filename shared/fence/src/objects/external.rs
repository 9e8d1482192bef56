//! Another remediator, asked as medik8s' NodeHealthCheck does: an object made from its template, in the template's
//! namespace, of the node's name.

use serde_json::{Value, json};

use super::{ObjectOrder, delete, failed, make, name_in_path, outcome, plural_of, read, text};
use crate::Acting;
use crate::api::{
    ActedOn, DeviceDriver, External, GROUP, NODE_NAME_ANNOTATION, TIMED_OUT_ANNOTATION, TemplateRef, VERSION,
};
use crate::client::{Call, Connection, Method, WriteCall as _};
use crate::outcome::Outcome;
use crate::transport::{Answer, DeviceError, Identity, Power};
use crate::{Target, name_after};

const TEMPLATE_ANNOTATION: &str = "remediation.medik8s.io/template-name";
/// A template with this is of a kind that may have several objects for one node: they do not take its name.
const SEVERAL: &str = "remediation.medik8s.io/multiple-templates-support";
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
const CONTROL_PLANE_LABEL: &str = "remediation.medik8s.io/isControlPlaneNode";

/// The kind of what is made from a template.
fn made(template: &TemplateRef) -> &str {
    template.kind.strip_suffix("Template").unwrap_or(&template.kind)
}

/// By which condition this kind says that the node is fenced. `Succeeded` of some says more: that the remediator itself deleted the
/// pods or added the taint, which the policies deny until there is evidence.
fn success(external: &External) -> &str {
    let by_kind = match made(&external.template_ref) {
        "FenceAgentsRemediation" => "FenceAgentActionSucceeded",
        "StorageBasedRemediation" => "FencingSucceeded",
        _ => "Succeeded",
    };
    external.success_condition.as_deref().unwrap_or(by_kind)
}

async fn template(
    connection: &Connection,
    order: &ObjectOrder,
    named: &TemplateRef,
) -> Result<Value, DeviceError> {
    for part in named.api_version.split('/') {
        name_in_path("templateRef.apiVersion", part)?;
    }
    let plural = plural_of(connection, &named.api_version, &named.kind).await?;
    let (namespace, TemplateRef { api_version, kind, name }) = (&order.device.namespace, named);
    name_in_path("templateRef.name", name)?;
    let path = format!("/apis/{api_version}/namespaces/{namespace}/{plural}/{name}");
    let found = read(connection, &path).await?;
    let found = found.ok_or_else(|| failed(format!("there is no {kind} {namespace}/{name}")))?;
    match found.pointer("/spec/template/spec") {
        Some(_) => Ok(found),
        None => Err(failed(format!("{kind} {namespace}/{name} has no spec.template.spec"))),
    }
}

pub(super) async fn resolve(
    connection: &Connection,
    order: &ObjectOrder,
    external: &External,
    fence: &str,
) -> Result<ActedOn, DeviceError> {
    let named = &external.template_ref;
    let template = template(connection, order, named).await?;
    let plural = plural_of(connection, &named.api_version, made(named)).await?;
    let several = template.pointer("/metadata/annotations").is_some_and(|all| all.get(SEVERAL).is_some());
    let node = &order.facts.machine.node;
    let name = if several { name_after(node, &[named.name.as_bytes()]) } else { node.to_string() };
    let namespace = &order.device.namespace;
    Ok(ActedOn {
        device: order.device.clone(),
        driver: DeviceDriver::External,
        path: format!("/apis/{}/namespaces/{namespace}/{plural}/{name}", named.api_version),
        uid: fence.to_owned(),
        cidrs: Vec::new(),
        storage: None,
        matched: false,
    })
}

fn body(target: &Target, order: &ObjectOrder, external: &External, name: &str, spec: &Value) -> Value {
    let TemplateRef { api_version, name: template, .. } = &external.template_ref;
    let node = &order.facts.machine.node;
    let mut labels = json!({ "app.kubernetes.io/part-of": "pod-safety" });
    if order.facts.labels.as_ref().is_some_and(|labels| labels.contains_key(CONTROL_PLANE)) {
        labels[CONTROL_PLANE_LABEL] = json!("");
    }
    json!({
        "apiVersion": api_version,
        "kind": made(&external.template_ref),
        "metadata": {
            "name": name,
            "namespace": order.device.namespace,
            "annotations": { NODE_NAME_ANNOTATION: node, TEMPLATE_ANNOTATION: template },
            "labels": labels,
            // It goes with the incident at the latest.
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": "NodeFence",
                "name": target.fence.name,
                "uid": target.fence.uid,
            }],
        },
        "spec": spec,
    })
}

/// Whether it was made for the incident with this UID.
fn is_owned(object: &Value, fence: &str) -> bool {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| owner["uid"] == fence)
}

fn is_timed_out(object: &Value) -> bool {
    object.pointer("/metadata/annotations").is_some_and(|all| all.get(TIMED_OUT_ANNOTATION).is_some())
}

pub(super) async fn off(
    acting: &Acting<'_>,
    target: &Target,
    order: &ObjectOrder,
    external: &External,
    object: &ActedOn,
) -> Result<(), Outcome> {
    let connection = acting.means.connection;
    // One whose time was over stops for good: another one is made when it is gone.
    if let Some(there) = read(connection, &object.path).await.map_err(outcome)?
        && is_owned(&there, &object.uid)
        && (is_timed_out(&there) || says(&there, "Succeeded") == Some("False"))
    {
        lift(acting, object).await?;
        return Err(Outcome::NotReady(format!("{} failed before and is being deleted", object.path)));
    }
    let template = template(connection, order, &external.template_ref).await.map_err(outcome)?;
    let spec = template.pointer("/spec/template/spec").cloned().unwrap_or_default();
    let (_, name) = object.path.rsplit_once('/').unwrap_or_default();
    make(acting, object, &body(target, order, external, name, &spec)).await
}

/// It goes, if it is ours: that is how a remediator is told to take back what it put on the node.
pub(super) async fn lift(acting: &Acting<'_>, object: &ActedOn) -> Result<(), Outcome> {
    let there = read(acting.means.connection, &object.path).await.map_err(outcome)?;
    let Some(there) = there.filter(|there| is_owned(there, &object.uid)) else { return Ok(()) };
    delete(acting, object, text(&there, "/metadata/uid")).await
}

/// Tells the remediator to begin nothing more.
pub(super) async fn time_is_over(acting: &Acting<'_>, object: &ActedOn) -> Result<(), Outcome> {
    let at = format!("{:.0}", acting.env.clock.wall());
    let there = read(acting.means.connection, &object.path).await.map_err(outcome)?;
    let ours = |there: &Value| is_owned(there, &object.uid) && !is_timed_out(there);
    let Some(there) = there.filter(ours) else { return Ok(()) };
    let uid = text(&there, "/metadata/uid");
    let body = json!({ "metadata": { "uid": uid, "annotations": { TIMED_OUT_ANNOTATION: at } } });
    match acting.send(Call::write(Method::Merge, object.path.clone(), &body)).await {
        Ok(_) | Err(Outcome::Gone | Outcome::Changed) => Ok(()),
        Err(outcome) => Err(outcome),
    }
}

fn says<'a>(object: &'a Value, condition: &str) -> Option<&'a str> {
    let all = object.pointer("/status/conditions").and_then(Value::as_array);
    let found = all.into_iter().flatten().find(|one| one["type"] == condition)?;
    found["status"].as_str()
}

/// In these phases a SelfNodeRemediation takes the node for rebooted. It says `Succeeded` only after it deleted the pods.
const REBOOTED: [&str; 2] = ["Reboot-Completed", "Fencing-Completed"];

/// The phase in which the node was rebooted, of a kind that has one and no condition for it.
fn rebooted<'a>(object: &'a Value, external: &External) -> Option<&'a str> {
    let has_phases = made(&external.template_ref) == "SelfNodeRemediation";
    let by_default = has_phases && external.success_condition.is_none();
    Some(text(object, "/status/phase")).filter(|phase| by_default && REBOOTED.contains(phase))
}

pub(super) async fn look(
    connection: &Connection,
    external: &External,
    object: &ActedOn,
) -> Result<Answer, DeviceError> {
    let (path, wanted) = (&object.path, success(external));
    let found = read(connection, path).await?;
    let (power, said) = match &found {
        None => (Power::On, format!("there is no {path}")),
        Some(there) if !is_owned(there, &object.uid) => {
            return Err(failed(format!("{path} exists and belongs to another owner, so it is left alone")));
        }
        Some(there) if says(there, wanted) == Some("True") => {
            (Power::Off, format!("{path} says {wanted}=True"))
        }
        Some(there) if rebooted(there, external).is_some() => {
            (Power::Off, format!("{path} says phase {}", text(there, "/status/phase")))
        }
        Some(there) if says(there, "Succeeded") == Some("False") => {
            return Err(failed(format!("{path} says that it failed")));
        }
        Some(there) => {
            (Power::Unknown, format!("{path} says {wanted}={}", says(there, wanted).unwrap_or("nothing yet")))
        }
    };
    Ok(Answer::new(power, Identity::Unknown, said))
}
