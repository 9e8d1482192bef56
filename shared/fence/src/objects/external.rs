//! Another remediator, used as medik8s' NodeHealthCheck does: an object created from its template, in the template's
//! namespace, with the node's name.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{
    Check, ObjectDriver, ObjectOrder, Reply, Write, create, delete, failed, is_named_after, name_in_path, read_object,
    resource_name, text, to_device_error, to_outcome,
};
use crate::api::{External, GROUP, NODE_NAME_ANNOTATION, TIMED_OUT_ANNOTATION, TargetObject, TemplateRef, VERSION};
use crate::client::{Call, Connection, Method, WriteCall as _};
use crate::model::is_kubernetes_name;
use crate::outcome::Outcome;
use crate::transport::{Answer, DeviceError, Identity, Power};
use crate::{Target, name_after};

const TEMPLATE_ANNOTATION: &str = "remediation.medik8s.io/template-name";
/// A template with this annotation is of a kind that may have several objects for one node: they do not get its name.
const MULTIPLE_TEMPLATES: &str = "remediation.medik8s.io/multiple-templates-support";
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
const CONTROL_PLANE_LABEL: &str = "remediation.medik8s.io/isControlPlaneNode";

/// The driver.
#[derive(Debug)]
pub(super) struct Remediator;

impl ObjectDriver for Remediator {
    fn is_possible(&self, object: &TargetObject, parts: &[&str], node: &str) -> bool {
        let ["", "apis", group, version, "namespaces", namespace, plural, name] = parts else { return false };
        is_remediator_group(group)
            && [version, plural].into_iter().all(|part| is_kubernetes_name(part))
            && *namespace == object.device.namespace
            && is_named_after(name, node)
    }

    fn resolve<'a>(&'a self, check: Check<'a>, target: &'a Target) -> Reply<'a, TargetObject> {
        Box::pin(async move { resolve(check, &target.fence.uid.to_string()).await })
    }

    fn power_off<'a>(&'a self, write: Write<'a>, order: &'a ObjectOrder) -> Reply<'a, ()> {
        Box::pin(async move { power_off(write, order, settings(order)?).await.map_err(to_device_error) })
    }

    fn mark_timed_out<'a>(&'a self, write: Write<'a>) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(mark_timed_out(write))
    }

    fn lift<'a>(&'a self, write: Write<'a>) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(lift(write))
    }

    fn check_status<'a>(&'a self, check: Check<'a>, object: &'a TargetObject) -> Reply<'a, Answer> {
        Box::pin(async move { check_status(check.connection(), settings(check.order)?, object).await })
    }

    fn check_ready<'a>(&'a self, check: Check<'a>) -> Reply<'a, Answer> {
        Box::pin(async move {
            let resolved = resolve(check, "").await?;
            Ok(Answer::new(Power::On, Identity::Unknown, format!("{} would be created", resolved.path)))
        })
    }
}

fn settings(order: &ObjectOrder) -> Result<&External, DeviceError> {
    order.spec.external.as_ref().ok_or_else(|| failed("spec.external is missing"))
}

/// Whether this is the group of a CRD: Kubernetes' own groups have no dot, or end in `k8s.io`.
fn is_remediator_group(group: &str) -> bool {
    let of_kubernetes = group == "k8s.io" || group.ends_with(".k8s.io");
    is_kubernetes_name(group) && group.contains('.') && !of_kubernetes && group != GROUP
}

/// The kind of the object that is created from a template.
fn remediation_kind(template: &TemplateRef) -> &str {
    template.kind.strip_suffix("Template").unwrap_or(&template.kind)
}

/// The condition by which this kind reports that the node is fenced. `Succeeded` of some kinds means more: that the
/// remediator itself deleted the pods or added the taint, which the admission policies deny until there is evidence.
fn success_condition(external: &External) -> &str {
    let by_kind = match remediation_kind(&external.template_ref) {
        "FenceAgentsRemediation" => "FenceAgentActionSucceeded",
        "StorageBasedRemediation" => "FencingSucceeded",
        _ => "Succeeded",
    };
    external.success_condition.as_deref().unwrap_or(by_kind)
}

async fn read_template(
    connection: &Connection,
    order: &ObjectOrder,
    template_ref: &TemplateRef,
) -> Result<Value, DeviceError> {
    for part in template_ref.api_version.split('/') {
        name_in_path("templateRef.apiVersion", part)?;
    }
    let plural = resource_name(connection, &template_ref.api_version, &template_ref.kind).await?;
    let (namespace, TemplateRef { api_version, kind, name }) = (&order.device.namespace, template_ref);
    name_in_path("templateRef.name", name)?;
    let path = format!("/apis/{api_version}/namespaces/{namespace}/{plural}/{name}");
    let template = read_object(connection, &path).await?;
    let template = template.ok_or_else(|| failed(format!("there is no {kind} {namespace}/{name}")))?;
    match template.pointer("/spec/template/spec") {
        Some(_) => Ok(template),
        None => Err(failed(format!("{kind} {namespace}/{name} has no spec.template.spec"))),
    }
}

async fn resolve(check: Check<'_>, fence: &str) -> Result<TargetObject, DeviceError> {
    let (connection, order) = (check.connection(), check.order);
    let named = &settings(order)?.template_ref;
    let template = read_template(connection, order, named).await?;
    let plural = resource_name(connection, &named.api_version, remediation_kind(named)).await?;
    let several = template.pointer("/metadata/annotations").is_some_and(|all| all.get(MULTIPLE_TEMPLATES).is_some());
    let node = &order.facts.machine.node;
    let name = if several { name_after(node, &[named.name.as_bytes()]) } else { node.to_string() };
    let namespace = &order.device.namespace;
    let path = format!("/apis/{}/namespaces/{namespace}/{plural}/{name}", named.api_version);
    Ok(order.object(path, fence, false))
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
        "kind": remediation_kind(&external.template_ref),
        "metadata": {
            "name": name,
            "namespace": order.device.namespace,
            "annotations": { NODE_NAME_ANNOTATION: node, TEMPLATE_ANNOTATION: template },
            "labels": labels,
            // Garbage collected with the incident at the latest.
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

/// Whether it was created for the incident with this UID.
fn is_owned(object: &Value, fence: &str) -> bool {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| owner["uid"] == fence)
}

fn is_timed_out(object: &Value) -> bool {
    object.pointer("/metadata/annotations").is_some_and(|all| all.get(TIMED_OUT_ANNOTATION).is_some())
}

async fn power_off(write: Write<'_>, order: &ObjectOrder, external: &External) -> Result<(), Outcome> {
    let Write { context, target, object } = write;
    let connection = context.writer.connection;
    // An object that is marked as timed out stops for good: another one is created when it is gone.
    if let Some(existing) = read_object(connection, &object.path).await.map_err(to_outcome)?
        && is_owned(&existing, &object.uid)
        && (is_timed_out(&existing) || condition_status(&existing, "Succeeded") == Some("False"))
    {
        lift(write).await?;
        return Err(Outcome::NotReady(format!("{} failed before and is being deleted", object.path)));
    }
    let template = read_template(connection, order, &external.template_ref).await.map_err(to_outcome)?;
    let spec = template.pointer("/spec/template/spec").cloned().unwrap_or_default();
    let (_, name) = object.path.rsplit_once('/').unwrap_or_default();
    create(context, object, &body(target, order, external, name, &spec)).await
}

/// Deletes the object, if it belongs to this incident: a remediator then reverts what it did to the node.
async fn lift(Write { context, object, .. }: Write<'_>) -> Result<(), Outcome> {
    let existing = read_object(context.writer.connection, &object.path).await.map_err(to_outcome)?;
    let Some(existing) = existing.filter(|existing| is_owned(existing, &object.uid)) else { return Ok(()) };
    delete(context, object, text(&existing, "/metadata/uid")).await
}

/// Marks the object, so that the remediator starts nothing more.
async fn mark_timed_out(Write { context, object, .. }: Write<'_>) -> Result<(), Outcome> {
    let at = format!("{:.0}", context.env.clock.wall());
    let existing = read_object(context.writer.connection, &object.path).await.map_err(to_outcome)?;
    let is_pending = |existing: &Value| is_owned(existing, &object.uid) && !is_timed_out(existing);
    let Some(existing) = existing.filter(is_pending) else { return Ok(()) };
    let uid = text(&existing, "/metadata/uid");
    let body = json!({ "metadata": { "uid": uid, "annotations": { TIMED_OUT_ANNOTATION: at } } });
    match context.send(Call::write(Method::Merge, object.path.clone(), &body)).await {
        Ok(_) | Err(Outcome::Gone | Outcome::Changed) => Ok(()),
        Err(outcome) => Err(outcome),
    }
}

fn condition_status<'a>(object: &'a Value, condition: &str) -> Option<&'a str> {
    let all = object.pointer("/status/conditions").and_then(Value::as_array);
    let matching = all.into_iter().flatten().find(|one| one["type"] == condition)?;
    matching["status"].as_str()
}

/// In these phases a SelfNodeRemediation considers the node rebooted. It sets `Succeeded` only after it has deleted
/// the pods.
const REBOOTED: [&str; 2] = ["Reboot-Completed", "Fencing-Completed"];

/// The phase in which the node was rebooted, for a kind that has one and no condition for it.
fn rebooted_phase<'a>(object: &'a Value, external: &External) -> Option<&'a str> {
    let has_phases = remediation_kind(&external.template_ref) == "SelfNodeRemediation";
    let by_default = has_phases && external.success_condition.is_none();
    Some(text(object, "/status/phase")).filter(|phase| by_default && REBOOTED.contains(phase))
}

async fn check_status(
    connection: &Connection,
    external: &External,
    object: &TargetObject,
) -> Result<Answer, DeviceError> {
    let (path, condition) = (&object.path, success_condition(external));
    let existing = read_object(connection, path).await?;
    let (power, message) = match &existing {
        None => (Power::On, format!("there is no {path}")),
        Some(existing) if !is_owned(existing, &object.uid) => {
            return Err(failed(format!("{path} exists and belongs to another owner, so it is left alone")));
        }
        Some(existing) if condition_status(existing, condition) == Some("True") => {
            (Power::Off, format!("{path} says {condition}=True"))
        }
        Some(existing) if rebooted_phase(existing, external).is_some() => {
            (Power::Off, format!("{path} says phase {}", text(existing, "/status/phase")))
        }
        Some(existing) if condition_status(existing, "Succeeded") == Some("False") => {
            return Err(failed(format!("{path} says that it failed")));
        }
        Some(existing) => (
            Power::Unknown,
            format!("{path} says {condition}={}", condition_status(existing, condition).unwrap_or("nothing yet")),
        ),
    };
    Ok(Answer::new(power, Identity::Unknown, message))
}
