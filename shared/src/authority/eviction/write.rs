//! Executes a write.

use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pod_safety_fence::evict::{self, Evicted, NotEvicted, evict};
use pod_safety_leader::outcome::{RequestError, resource_version, version_of};
use pod_safety_leader::send::WriteContext;
use serde_json::{Value, json};

use super::super::outcome::UpdateOutcome;
use super::body::{collect, conditions, controller_status, create, name, patch_metadata, path, report, status};
use super::check::{invalid_reason, is_confirmed, read};
use super::{ConditionChange, ConditionChanges, EvictionChange, EvictionShared, EvictionUpdate, OwnerRequest, Report};
use crate::client::{ApiError, Call};
use crate::model::{EVICTION_INVALID, EvictionRole, IMPERATIVE_EVICTOR, Kind, Uid};
use crate::record::error_chain;
use crate::wire;

/// An eviction that is not answered within this time is requested again.
const EVICT_TIMEOUT: Duration = Duration::from_secs(10);

/// How many names are tried for a new Eviction. Other clients may have created Evictions of pods with the same name.
const NAMES: u32 = 8;

/// A webhook's message may have any length. It is truncated, so that the text after it fits into the message.
const MAX_REFUSAL_CHARS: usize = 3_000;

/// The name is taken, perhaps by an Eviction of an earlier pod: its target is read.
const NAME_TAKEN: u16 = 409;

/// Executes the write within the leader's term. Also returns the API server's answer to an eviction.
pub(super) async fn write(
    writer: &WriteContext<'_>,
    common: &EvictionShared,
    update: &EvictionUpdate,
) -> (UpdateOutcome, Option<String>) {
    let done = match &update.change {
        EvictionChange::Evict { attempt, floor, heartbeat } => {
            return match attempt_eviction(writer, update, (*attempt, *floor, *heartbeat)).await {
                Ok((made, grace)) => {
                    let message = made.message.clone();
                    let body = |now: Timestamp| {
                        let expected = grace.map(|grace| now.as_second().saturating_add(grace));
                        report(&Report { expected, ..made.clone() }, now)
                    };
                    (send_status(writer, common, Kind::Evictions, update, &body).await, Some(message))
                }
                Err(error) => (error.into(), None),
            };
        }
        EvictionChange::Create { number, owners, labels } => {
            create_eviction(writer, update, *number, (owners, labels)).await
        }
        EvictionChange::Mark { owners, labels } => sent(writer, patch_metadata(update, owners, labels)).await,
        EvictionChange::Collect => sent(writer, collect(update)).await,
        EvictionChange::Request { observed, conditions: changes } => {
            write_request_status(writer, common, update, *observed, changes.as_deref()).await
        }
        EvictionChange::Refuse { observed, transitions } => match invalid_reason(writer, common, update).await {
            Ok(Some(message)) => {
                let changes = refusal_conditions(message, *transitions);
                write_request_status(writer, common, update, *observed, Some(&changes)).await
            }
            Ok(None) => RequestError::Changed.into(),
            Err(error) => error.into(),
        },
        EvictionChange::Status(change) => match is_confirmed(writer, common, update, &change.check).await {
            Ok(true) => {
                send_status(writer, common, Kind::Evictions, update, &|now| controller_status(change, now)).await
            }
            Ok(false) => RequestError::Changed.into(),
            Err(error) => error.into(),
        },
        EvictionChange::Report(made) => {
            send_status(writer, common, Kind::Evictions, update, &|now| report(made, now)).await
        }
    };
    (done, None)
}

/// Writes the status of an EvictionRequest.
async fn write_request_status(
    writer: &WriteContext<'_>,
    common: &EvictionShared,
    update: &EvictionUpdate,
    observed: i64,
    new_conditions: Option<&ConditionChanges>,
) -> UpdateOutcome {
    let body = |now| {
        let mut body = json!({ "observedGeneration": observed });
        if let Some(changes) = new_conditions {
            body["conditions"] = conditions(changes, now);
        }
        body
    };
    send_status(writer, common, Kind::EvictionRequests, update, &body).await
}

fn refusal_conditions(message: String, (failed, evicted): (bool, bool)) -> ConditionChanges {
    let reason = EVICTION_INVALID.to_owned();
    let evicted = ConditionChange {
        is_true: false,
        reason: "EvictionFailed".to_owned(),
        message: String::new(),
        transition: evicted,
    };
    ConditionChanges { failed: ConditionChange { is_true: true, reason, message, transition: failed }, evicted }
}

async fn sent(writer: &WriteContext<'_>, call: Call) -> UpdateOutcome {
    writer.send(call, None).await.map_or_else(UpdateOutcome::from, |_| UpdateOutcome::Written)
}

/// Whether the API server refused a time because its clock differs. It would refuse the same body each time.
fn is_about_time(error: &ApiError) -> bool {
    let phrases = ["must be set to the present time", "cannot be set to the past time"];
    matches!(error, ApiError::Refused { code: 422, message, .. } if phrases.iter().any(|phrase| message.contains(phrase)))
}

/// Writes a status. If the API server refuses its times because the clocks differ by more than the API allows, the API
/// server's time is read, and used from then on.
async fn send_status(
    writer: &WriteContext<'_>,
    common: &EvictionShared,
    kind: Kind,
    update: &EvictionUpdate,
    body: &(dyn Fn(Timestamp) -> Value + Send + Sync),
) -> UpdateOutcome {
    let now = || {
        let ahead = SignedDuration::from_secs(common.ahead.load(Ordering::Relaxed));
        let wall = writer.env.clock.wall();
        wall.checked_add(ahead).unwrap_or(wall)
    };
    let call = || status(kind, update, body(now()));
    let answer = match writer.query(call()).await {
        Ok(Err(error)) if is_about_time(&error) => {
            let (sent_at, Ok(server)) = (writer.env.clock.wall(), writer.connection.server_info().await) else {
                return RequestError::Failed(error).into();
            };
            let Some(date) = server.date else { return RequestError::Failed(error).into() };
            let ahead = date.duration_since(sent_at).as_secs();
            common.ahead.store(ahead, Ordering::Relaxed);
            tracing::warn!(
                ahead,
                "the clock of the API server differs from ours by these seconds: times of evictions are written by its clock"
            );
            writer.query(call()).await
        }
        other => other,
    };
    match answer {
        Ok(Ok(answer)) if version_of(&answer) == Some(update.rv) => UpdateOutcome::NoEffect,
        Ok(Ok(_)) => UpdateOutcome::Written,
        Ok(Err(error)) => RequestError::from_error(error).into(),
        Err(error) => error.into(),
    }
}

/// Creates an Eviction under the first free name. If an Eviction of this pod has the name, the cache is behind.
async fn create_eviction(
    writer: &WriteContext<'_>,
    update: &EvictionUpdate,
    first: u32,
    (owners, labels): (&[OwnerRequest], &[(Box<str>, EvictionRole)]),
) -> UpdateOutcome {
    for number in first..first.saturating_add(NAMES) {
        match writer.query(create(&update.pod, number, owners, labels)).await {
            Ok(Ok(_)) => return UpdateOutcome::Written,
            Ok(Err(error)) if error.code() == Some(NAME_TAKEN) => {
                let name = name(number, &update.pod.name);
                let path = path(Kind::Evictions, &update.pod.namespace, Some(&name), "");
                match read::<wire::Eviction>(writer, path).await {
                    Ok(Some(existing)) if target_of(&existing).as_ref() == Some(&update.pod.uid) => {
                        return RequestError::Changed.into();
                    }
                    Ok(_) => {}
                    Err(error) => return error.into(),
                }
            }
            Ok(Err(error)) => return RequestError::from_error(error).into(),
            Err(error) => return error.into(),
        }
    }
    RequestError::Changed.into()
}

fn target_of(eviction: &wire::Eviction) -> Option<Uid> {
    let pod = eviction.spec.as_ref()?.target.as_ref()?.pod.as_ref()?;
    Uid::new(pod.uid.as_deref()?)
}

/// Requests the eviction of the pod, if the Eviction has not changed since the decision. It may have been canceled. Also
/// returns the grace period in seconds of a pod that terminates now.
async fn attempt_eviction(
    writer: &WriteContext<'_>,
    update: &EvictionUpdate,
    (attempt, floor, heartbeat): (u32, i64, bool),
) -> Result<(Report, Option<i64>), RequestError> {
    let path = path(Kind::Evictions, &update.pod.namespace, Some(&update.name), "");
    let eviction_meta = read::<wire::OnlyMeta>(writer, path).await?.ok_or(RequestError::Gone)?;
    let meta = eviction_meta.metadata.unwrap_or_default();
    if resource_version(&meta) != Some(update.rv) || meta.uid != Some(update.uid.to_string()) {
        return Err(RequestError::Changed);
    }
    let now = writer.env.now();
    let term = writer.leadership.term(now).ok_or(RequestError::NotLeader)?;
    let eviction = evict::Eviction { pod: update.pod.clone(), dry_run: false };
    let answer = evict(writer.connection, writer.env, &eviction, (now + EVICT_TIMEOUT).min(term.ends())).await;
    let wall = writer.env.clock.wall();
    let mut made = Report {
        responder: IMPERATIVE_EVICTOR,
        message: String::new(),
        heartbeat,
        expected: None,
        complete: false,
        floor,
    };
    let mut terminates_in = None;
    match answer {
        Ok(Evicted::Terminates { grace }) => {
            made.message = format!("the API server accepted the eviction: the pod has {grace}s to terminate");
            terminates_in = Some(grace);
        }
        Ok(Evicted::AlreadyTerminating) => made.message = "the pod is terminating".to_owned(),
        Ok(Evicted::Finished) => finished(&mut made, "the pod ran to its end: there is nothing to evict"),
        Ok(Evicted::Gone) => finished(&mut made, "the pod does not exist any more"),
        Ok(Evicted::Replaced) => finished(&mut made, "another pod has its name"),
        Err(why) => made.message = refusal_message(&why, attempt, wall),
    }
    Ok((made, terminates_in))
}

fn finished(report: &mut Report, why: &str) {
    report.message = why.to_owned();
    report.complete = true;
}

/// The reason, the API server's message, and the state of the retries, which must survive a restart.
fn refusal_message(why: &NotEvicted, attempt: u32, wall: Timestamp) -> String {
    let pause = why.retry_delay().unwrap_or_default().as_secs();
    let reason = why.reason();
    let sentence: String = error_chain(why).chars().take(MAX_REFUSAL_CHARS).collect();
    format!("{reason}: {sentence} (attempts={attempt}, last={wall:.0}, retryAfter={pause}s)")
}
