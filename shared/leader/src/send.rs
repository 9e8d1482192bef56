//! One request, within the leader's term and while its evidence lasts. All requests that write pods, nodes and volumes, and
//! all steps of fencing, are sent by it.
//!
//! Danger note: after the term another leader may act, and after the evidence expired the machine may run again. So the request
//! is given up when the first of them ends. The term is asked for right before each request: it may have been lost, or renewed,
//! since the last.

use pod_safety_cache::Cache;

use crate::client::{ApiError, Call, Connection};
use crate::clock::{Env, Mono};
use crate::lease::Leadership;
use crate::outcome::Outcome;
use crate::wire::Raw;

/// `expires`: when the evidence on which it rests ends.
pub async fn send(
    connection: &Connection,
    env: &Env,
    leadership: &Leadership,
    call: Call,
    expires: Option<Mono>,
) -> Result<Raw, Outcome> {
    query(connection, env, leadership, call, expires).await?.map_err(Outcome::from_error)
}

/// As [`send`], with the API server's answer as it is.
pub async fn query(
    connection: &Connection,
    env: &Env,
    leadership: &Leadership,
    call: Call,
    expires: Option<Mono>,
) -> Result<Result<Raw, ApiError>, Outcome> {
    let now = env.now();
    if expires.is_some_and(|expires| now >= expires) {
        return Err(Outcome::Expired);
    }
    let Some(term) = leadership.term(now) else { return Err(Outcome::NotLeader) };
    let until = expires.map_or(term.ends(), |expires| expires.min(term.ends()));
    Ok(connection.send(call.with_deadline(until)).await)
}

/// What a write needs.
pub struct WriteContext<'a> {
    /// To the API server.
    pub connection: &'a Connection,
    /// What is known.
    pub cache: &'a Cache,
    /// Time.
    pub env: &'a Env,
    /// The term within which it is sent.
    pub leadership: &'a Leadership,
}

impl WriteContext<'_> {
    /// See [`send`].
    pub fn send(
        &self,
        call: Call,
        expires: Option<Mono>,
    ) -> impl Future<Output = Result<Raw, Outcome>> + Send {
        send(self.connection, self.env, self.leadership, call, expires)
    }

    /// See [`query`].
    pub fn query(&self, call: Call) -> impl Future<Output = Result<Result<Raw, ApiError>, Outcome>> + Send {
        query(self.connection, self.env, self.leadership, call, None)
    }
}
