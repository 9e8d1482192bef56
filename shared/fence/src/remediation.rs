//! What those are answered who want a node fenced: the finalizer and the status of a PodSafetyRemediation.

use serde_json::{Value, json};

use super::Acting;
use crate::api::{Condition, PodSafetyRemediationStatus, REMEDIATION_FINALIZER, group_path};
use crate::client::{ApiError, Call, Method, WriteCall as _};
use crate::outcome::Outcome;
use crate::{Remediate, Reply};

/// Answers.
pub async fn answer(acting: &Acting<'_>, wish: &Remediate) -> Outcome {
    let done = match &wish.reply {
        Reply::Keep => finalizers(acting, wish, true).await,
        Reply::Say(status) => say(acting, wish, status).await,
        Reply::LetGo => finalizers(acting, wish, false).await,
    };
    match done {
        Ok(()) => Outcome::Written,
        Err(outcome) => outcome,
    }
}

fn path_of(wish: &Remediate) -> String {
    group_path(&format!("namespaces/{}/podsafetyremediations/{}", wish.namespace, wish.name))
}

/// A merge patch knows no elements of a list: those of others are read, and written as they were.
async fn finalizers(acting: &Acting<'_>, wish: &Remediate, ours: bool) -> Result<(), Outcome> {
    let raw = acting.send(Call::get(path_of(wish)).whole()).await?;
    let whole = raw.whole().map_err(|error| Outcome::Failed(ApiError::Undecodable(error)))?;
    if whole.pointer("/metadata/uid").and_then(Value::as_str) != Some(&wish.uid.to_string()) {
        return Err(Outcome::Gone);
    }
    let before = whole.pointer("/metadata/finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut after: Vec<_> = before.iter().filter(|one| *one != REMEDIATION_FINALIZER).cloned().collect();
    if ours {
        after.push(json!(REMEDIATION_FINALIZER));
    }
    if after == before {
        return Ok(());
    }
    let version = whole.pointer("/metadata/resourceVersion");
    let body = json!({ "metadata": { "uid": wish.uid, "resourceVersion": version, "finalizers": after } });
    acting.send(Call::write(Method::Merge, path_of(wish), &body)).await.map(drop)
}

async fn say(
    acting: &Acting<'_>,
    wish: &Remediate,
    status: &PodSafetyRemediationStatus,
) -> Result<(), Outcome> {
    let mut status = status.clone();
    Condition::begin(&mut status.conditions, &format!("{:.0}", acting.env.clock.wall()));
    acting.write_status(&path_of(wish), (&wish.uid, wish.rv), &status).await
}
