//! The answers to other operators that request fencing: the finalizer and the status of a PodSafetyRemediation.

use serde_json::{Value, json};

use super::StepContext;
use crate::api::{Condition, PodSafetyRemediationStatus, REMEDIATION_FINALIZER, group_path};
use crate::client::{ApiError, Call, Method, WriteCall as _};
use crate::outcome::Outcome;
use crate::{RemediationRequest, RemediationUpdate};

/// Writes the finalizer or the status.
pub async fn update_remediation(context: &StepContext<'_>, request: &RemediationRequest) -> Outcome {
    let done = match &request.update {
        RemediationUpdate::AddFinalizer => set_finalizer(context, request, true).await,
        RemediationUpdate::WriteStatus(status) => write_status(context, request, status).await,
        RemediationUpdate::RemoveFinalizer => set_finalizer(context, request, false).await,
    };
    done.into()
}

fn object_path(request: &RemediationRequest) -> String {
    group_path(&format!("namespaces/{}/podsafetyremediations/{}", request.namespace, request.name))
}

/// A merge patch replaces a list as a whole: the finalizers of others are read, and written unchanged.
async fn set_finalizer(context: &StepContext<'_>, request: &RemediationRequest, add: bool) -> Result<(), Outcome> {
    let raw = context.send(Call::get(object_path(request)).all_fields()).await?;
    let whole = raw.to_json().map_err(|error| Outcome::Failed(ApiError::Undecodable(error)))?;
    if whole.pointer("/metadata/uid").and_then(Value::as_str) != Some(&request.uid.to_string()) {
        return Err(Outcome::Gone);
    }
    let before = whole.pointer("/metadata/finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut after: Vec<_> = before.iter().filter(|one| *one != REMEDIATION_FINALIZER).cloned().collect();
    if add {
        after.push(json!(REMEDIATION_FINALIZER));
    }
    if after == before {
        return Ok(());
    }
    let version = whole.pointer("/metadata/resourceVersion");
    let body = json!({ "metadata": { "uid": request.uid, "resourceVersion": version, "finalizers": after } });
    context.send(Call::write(Method::Merge, object_path(request), &body)).await.map(drop)
}

async fn write_status(
    context: &StepContext<'_>,
    request: &RemediationRequest,
    status: &PodSafetyRemediationStatus,
) -> Result<(), Outcome> {
    let mut status = status.clone();
    Condition::set_transition_time(&mut status.conditions, &format!("{:.0}", context.env.clock.wall()));
    context.write_status(&object_path(request), (&request.uid, request.rv), &status).await
}
