//! Sends the force deletion that evidence permits.

use pod_safety_leader::outcome::RequestError;
use pod_safety_proof::{Evidence, ForceDelete, Next, PodVersion};

use super::outcome::ForceOutcome;
use crate::client::{ApiError, Call, Connection, WriteCall as _};
use crate::clock::{Env, Mono};
use crate::lease::Leadership;
use crate::wire;

/// Removes the pod of `evidence`. Each request is sent within the leader's term, and before the evidence expires.
pub(super) async fn force_delete(
    connection: &Connection,
    env: &Env,
    leadership: &Leadership,
    evidence: Evidence<PodVersion>,
) -> ForceOutcome {
    let mut act = ForceDelete::new(evidence);
    loop {
        let call = Call::permitted(act.request(env.clock.wall()));
        let answer = match send(connection, env, leadership, call, act.expires()).await {
            Ok(answer) => answer,
            Err(error) => return error.into(),
        };
        match act.advance(&answer) {
            Ok(Next::Delete(next)) => act = next,
            Ok(Next::Done { kind, finalizers_remain: false }) => return ForceOutcome::Released(kind),
            Ok(Next::Done { kind, finalizers_remain: true }) => return ForceOutcome::FinalizersRemain(kind),
            Err(error) => return RequestError::Failed(ApiError::Malformed(error.to_string())).into(),
        }
    }
}

async fn send(
    connection: &Connection,
    env: &Env,
    leadership: &Leadership,
    call: Call,
    expires: Mono,
) -> Result<wire::ObjectMeta, RequestError> {
    let raw = pod_safety_leader::send::send(connection, env, leadership, call, Some(expires)).await?;
    let only: wire::OnlyMeta = raw.decode().map_err(|error| RequestError::Failed(ApiError::Undecodable(error)))?;
    Ok(only.metadata.unwrap_or_default())
}

#[cfg(test)]
mod tests;
