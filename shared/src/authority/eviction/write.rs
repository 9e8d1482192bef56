//! Carries a write out.

use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pod_safety_fence::evict::{self, Evicted, NotEvicted, evict};
use pod_safety_leader::outcome::{Outcome, version};
use pod_safety_leader::send::Means;
use serde_json::{Value, json};

use super::body::{collect, conditions, controlled, create, mark, name, path, report, status};
use super::check::{holds, invalid, read};
use super::{Common, EvictionChange, EvictionUpdate, Report, Stand, Stated};
use crate::client::{ApiError, Call};
use crate::model::{EVICTION_INVALID, IMPERATIVE_EVICTOR, Kind, Rv, Uid};
use crate::record::error_chain;
use crate::wire;

/// What has not been answered after this is asked again.
const PATIENCE: Duration = Duration::from_secs(10);

/// So many names are tried for a new Eviction. Others may have Evictions of pods that had the same name.
const NAMES: u32 = 8;

/// A webhook may say as much as it wants: what follows the sentence must fit into the message.
const LONGEST_SENTENCE: usize = 3_000;

/// An Eviction that another one replaced may have taken the name; its target is read.
const TAKEN: u16 = 409;

/// Writes it, within the leader's term. Gives back what the API server said to an eviction.
pub(in super::super) async fn write(
    means: &Means<'_>,
    common: &Common,
    update: &EvictionUpdate,
) -> (Outcome, Option<String>) {
    let done = match &update.change {
        EvictionChange::Evict { attempt, floor, heartbeat } => {
            return match attempted(means, update, (*attempt, *floor, *heartbeat)).await {
                Ok(made) => {
                    let said = made.message.clone();
                    let body = |now| report(&made, now);
                    (send_status(means, common, Kind::Evictions, update, &body).await, Some(said))
                }
                Err(outcome) => (outcome, None),
            };
        }
        EvictionChange::Create { number, .. } => created(means, update, *number).await,
        EvictionChange::Mark { owners, labels } => sent(means, mark(update, owners, labels)).await,
        EvictionChange::Collect => sent(means, collect(update)).await,
        EvictionChange::Request { observed, stand } => {
            asked(means, common, update, *observed, stand.as_deref()).await
        }
        EvictionChange::Refuse { observed, transitions } => match invalid(means, common, update).await {
            Ok(Some(message)) => {
                let stand = refusal(message, *transitions);
                asked(means, common, update, *observed, Some(&stand)).await
            }
            Ok(None) => Outcome::Changed,
            Err(outcome) => outcome,
        },
        EvictionChange::Status(change) => match holds(means, common, update, &change.check).await {
            Ok(true) => {
                send_status(means, common, Kind::Evictions, update, &|now| controlled(change, now)).await
            }
            Ok(false) => Outcome::Changed,
            Err(outcome) => outcome,
        },
        EvictionChange::Report(made) => {
            send_status(means, common, Kind::Evictions, update, &|now| report(made, now)).await
        }
    };
    (done, None)
}

/// Writes the status of a request.
async fn asked(
    means: &Means<'_>,
    common: &Common,
    update: &EvictionUpdate,
    observed: i64,
    stand: Option<&Stand>,
) -> Outcome {
    let body = |now| {
        let mut body = json!({ "observedGeneration": observed });
        if let Some(stand) = stand {
            body["conditions"] = conditions(stand, now);
        }
        body
    };
    send_status(means, common, Kind::EvictionRequests, update, &body).await
}

fn refusal(message: String, (failed, evicted): (bool, bool)) -> Stand {
    let reason = EVICTION_INVALID.to_owned();
    let evicted = Stated {
        holds: false,
        reason: "EvictionFailed".to_owned(),
        message: String::new(),
        transition: evicted,
    };
    Stand { failed: Stated { holds: true, reason, message, transition: failed }, evicted }
}

async fn sent(means: &Means<'_>, call: Call) -> Outcome {
    means.send(call, None).await.map_or_else(|outcome| outcome, |_| Outcome::Written)
}

/// Whether the API server refused a time because its clock says otherwise: the same body is never taken.
fn is_about_time(error: &ApiError) -> bool {
    let words = ["must be set to the present time", "cannot be set to the past time"];
    matches!(error, ApiError::Refused { code: 422, message, .. } if words.iter().any(|words| message.contains(words)))
}

/// Writes a status by the API server's clock, which may differ from ours by more than the API allows: then it is asked.
async fn send_status(
    means: &Means<'_>,
    common: &Common,
    kind: Kind,
    update: &EvictionUpdate,
    body: &(dyn Fn(Timestamp) -> Value + Send + Sync),
) -> Outcome {
    let now = || {
        let ahead = SignedDuration::from_secs(common.ahead.load(Ordering::Relaxed));
        let wall = means.env.clock.wall();
        wall.checked_add(ahead).unwrap_or(wall)
    };
    let call = || status(kind, update, body(now()));
    let answer = match means.ask(call()).await {
        Ok(Err(error)) if is_about_time(&error) => {
            let (asked, Ok(server)) = (means.env.clock.wall(), means.connection.server().await) else {
                return Outcome::Failed(error);
            };
            let Some(date) = server.date else { return Outcome::Failed(error) };
            let ahead = date.duration_since(asked).as_secs();
            common.ahead.store(ahead, Ordering::Relaxed);
            tracing::warn!(
                ahead,
                "the clock of the API server differs from ours by these seconds: times of evictions are written by its clock"
            );
            means.ask(call()).await
        }
        other => other,
    };
    match answer {
        Ok(Ok(answer)) if version_of(&answer) == Some(update.rv) => Outcome::NoEffect,
        Ok(Ok(_)) => Outcome::Written,
        Ok(Err(error)) => Outcome::of(error),
        Err(outcome) => outcome,
    }
}

fn version_of(answer: &wire::Raw) -> Option<Rv> {
    version(&answer.decode::<wire::OnlyMeta>().ok()?.metadata?)
}

/// Creates an Eviction under the first name that is free. If one of this pod has it, the cache is behind.
async fn created(means: &Means<'_>, update: &EvictionUpdate, first: u32) -> Outcome {
    let EvictionChange::Create { owners, labels, .. } = &update.change else { return Outcome::Withdrawn };
    for number in first..first.saturating_add(NAMES) {
        match means.ask(create(&update.pod, number, owners, labels)).await {
            Ok(Ok(_)) => return Outcome::Written,
            Ok(Err(error)) if error.code() == Some(TAKEN) => {
                let name = name(number, &update.pod.name);
                let path = path(Kind::Evictions, &update.pod.namespace, Some(&name), "");
                match read::<wire::Eviction>(means, path).await {
                    Ok(Some(there)) if target_of(&there).as_ref() == Some(&update.pod.uid) => {
                        return Outcome::Changed;
                    }
                    Ok(_) => {}
                    Err(outcome) => return outcome,
                }
            }
            Ok(Err(error)) => return Outcome::of(error),
            Err(outcome) => return outcome,
        }
    }
    Outcome::Changed
}

fn target_of(eviction: &wire::Eviction) -> Option<Uid> {
    let pod = eviction.spec.as_ref()?.target.as_ref()?.pod.as_ref()?;
    Uid::new(pod.uid.as_deref()?)
}

/// Asks the API server to evict the pod, if the Eviction is still as it was decided from: it may have been canceled.
async fn attempted(
    means: &Means<'_>,
    update: &EvictionUpdate,
    (attempt, floor, heartbeat): (u32, i64, bool),
) -> Result<Report, Outcome> {
    let path = path(Kind::Evictions, &update.pod.namespace, Some(&update.name), "");
    let found = read::<wire::OnlyMeta>(means, path).await?.ok_or(Outcome::Gone)?;
    let meta = found.metadata.unwrap_or_default();
    if version(&meta) != Some(update.rv) || meta.uid != Some(update.uid.to_string()) {
        return Err(Outcome::Changed);
    }
    let now = means.env.now();
    let term = means.leadership.term(now).ok_or(Outcome::NotLeader)?;
    let eviction = evict::Eviction { pod: update.pod.clone(), dry_run: false };
    let answer = evict(means.connection, means.env, &eviction, (now + PATIENCE).min(term.ends())).await;
    let wall = means.env.clock.wall();
    let mut made = Report {
        responder: IMPERATIVE_EVICTOR,
        message: String::new(),
        heartbeat,
        expected: None,
        complete: false,
        floor,
    };
    match answer {
        Ok(Evicted::Ends { grace }) => {
            made.message = format!("the API server accepted the eviction: the pod has {grace}s to terminate");
            made.expected = Some(wall.as_second().saturating_add(grace));
        }
        Ok(Evicted::Ending) => made.message = "the pod is terminating".to_owned(),
        Ok(Evicted::Finished) => finished(&mut made, "the pod ran to its end: there is nothing to evict"),
        Ok(Evicted::Gone) => finished(&mut made, "the pod does not exist any more"),
        Ok(Evicted::Another) => finished(&mut made, "another pod has its name"),
        Err(why) => made.message = refused(&why, attempt, wall),
    }
    Ok(made)
}

fn finished(report: &mut Report, why: &str) {
    report.message = why.to_owned();
    report.complete = true;
}

/// The reason, the API server's sentence, and what the next attempt must know: a restart does not forget it.
fn refused(why: &NotEvicted, attempt: u32, wall: Timestamp) -> String {
    let pause = why.again().unwrap_or_default().as_secs();
    let reason = why.reason();
    let sentence: String = error_chain(why).chars().take(LONGEST_SENTENCE).collect();
    format!("{reason}: {sentence} (attempts={attempt}, last={wall:.0}, retryAfter={pause}s)")
}
