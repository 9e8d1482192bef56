//! Sends the force deletion that evidence permits, and says how an intent ended.

use pod_safety_proof::{Evidence, EvidenceKind, ForceDelete, Next, PodVersion};

use super::verify::Unproved;
use crate::client::{ApiError, Call, Connection, WriteCall as _};
use crate::clock::{Env, Mono};
use crate::lease::Leadership;
use crate::model::Rv;
use crate::wire;

/// How an intent ended.
#[derive(Debug)]
pub enum Outcome {
    /// The pod is removed.
    Released(EvidenceKind),
    /// The pod is removed as far as we may: finalizers keep the object.
    FinalizersRemain(EvidenceKind),
    /// The pod ends within its own grace.
    Ending,
    /// The status is written.
    Written,
    /// The API server took the status, and what it stores is as it was: somebody
    /// between (a webhook, an admission policy) undid it. No event follows.
    NoEffect,
    /// The node was heard of meanwhile: the cache was behind, so it is us. Nothing
    /// was written.
    Heard,
    /// When its turn came, nobody wanted it any more.
    Withdrawn,
    /// Somebody else removed it first.
    Gone,
    /// It is not what the evidence was about any more; the next event decides.
    Changed,
    /// There is no evidence.
    Refused(Unproved),
    /// The evidence, or the term, ran out before the act was done.
    Expired,
    /// We do not lead.
    NotLeader,
    /// A request failed; whether it was applied may be unknown.
    Failed(ApiError),
}

impl Outcome {
    /// Its name in metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Released(_) => "released",
            Self::FinalizersRemain(_) => "finalizers_remain",
            Self::Ending => "ending",
            Self::Written => "written",
            Self::NoEffect => "no_effect",
            Self::Heard => "heard",
            Self::Withdrawn => "withdrawn",
            Self::Gone => "gone",
            Self::Changed => "changed",
            Self::Refused(_) => "refused",
            Self::Expired => "expired",
            Self::NotLeader => "not_leader",
            Self::Failed(_) => "failed",
        }
    }

    pub(super) fn of(error: ApiError) -> Self {
        if error.is_not_found() {
            Self::Gone
        } else if error.is_changed() {
            Self::Changed
        } else {
            Self::Failed(error)
        }
    }
}

/// Removes the pod that `evidence` is about: each request within the leader's term, and while the evidence lasts.
pub(super) async fn force(
    connection: &Connection,
    env: &Env,
    leadership: &Leadership,
    evidence: Evidence<PodVersion>,
) -> Outcome {
    let mut act = ForceDelete::new(evidence);
    loop {
        let call = Call::permitted(act.request(env.clock.wall()));
        let answer = match send(connection, env, leadership, call, act.expires()).await {
            Ok(answer) => answer,
            Err(outcome) => return outcome,
        };
        match act.answered(&answer) {
            Ok(Next::Delete(next)) => act = next,
            Ok(Next::Done { kind, finalizers_remain: false }) => return Outcome::Released(kind),
            Ok(Next::Done { kind, finalizers_remain: true }) => return Outcome::FinalizersRemain(kind),
            Err(error) => return Outcome::Failed(ApiError::ContentType(error.to_string())),
        }
    }
}

pub(super) fn version(meta: &wire::ObjectMeta) -> Option<Rv> {
    meta.resource_version.as_deref()?.parse().ok()
}

async fn send(
    connection: &Connection,
    env: &Env,
    leadership: &Leadership,
    call: Call,
    expires: Mono,
) -> Result<wire::ObjectMeta, Outcome> {
    let raw = super::send::send(connection, env, leadership, call, Some(expires)).await?;
    let only: wire::OnlyMeta = raw.decode().map_err(|error| Outcome::Failed(ApiError::Undecodable(error)))?;
    Ok(only.metadata.unwrap_or_default())
}

#[cfg(test)]
mod tests;
