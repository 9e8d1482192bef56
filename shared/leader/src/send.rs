//! Sends one request within the leader's term and before its evidence expires. All writes to pods, nodes and volumes, and
//! all steps of fencing, are sent by it.
//!
//! Danger note: after the term another leader may write, and after the evidence expired the machine may run again. So the
//! request times out at the earlier of the two. The term is read right before each request, because it may have ended, or
//! been renewed, since the last one.

use pod_safety_cache::Cache;

use crate::client::{ApiError, Call, Connection};
use crate::clock::{Env, Mono};
use crate::lease::Leadership;
use crate::outcome::RequestError;
use crate::wire::Raw;

/// Sends a request. `expires` is when the evidence on which it rests expires.
pub async fn send(
    connection: &Connection,
    env: &Env,
    leadership: &Leadership,
    call: Call,
    expires: Option<Mono>,
) -> Result<Raw, RequestError> {
    query(connection, env, leadership, call, expires).await?.map_err(RequestError::from_error)
}

/// As [`send`], but returns the API server's errors unchanged.
pub async fn query(
    connection: &Connection,
    env: &Env,
    leadership: &Leadership,
    call: Call,
    expires: Option<Mono>,
) -> Result<Result<Raw, ApiError>, RequestError> {
    let now = env.now();
    if expires.is_some_and(|expires| now >= expires) {
        return Err(RequestError::Expired);
    }
    let Some(term) = leadership.term(now) else { return Err(RequestError::NotLeader) };
    let until = expires.map_or(term.ends(), |expires| expires.min(term.ends()));
    Ok(connection.send(call.with_deadline(until)).await)
}

/// The parts that a write needs.
pub struct WriteContext<'a> {
    /// The connection to the API server.
    pub connection: &'a Connection,
    /// The cache.
    pub cache: &'a Cache,
    /// The clock.
    pub env: &'a Env,
    /// The leadership, whose term limits the request.
    pub leadership: &'a Leadership,
}

impl WriteContext<'_> {
    /// See [`send`].
    pub fn send(&self, call: Call, expires: Option<Mono>) -> impl Future<Output = Result<Raw, RequestError>> + Send {
        send(self.connection, self.env, self.leadership, call, expires)
    }

    /// See [`query`].
    pub fn query(&self, call: Call) -> impl Future<Output = Result<Result<Raw, ApiError>, RequestError>> + Send {
        query(self.connection, self.env, self.leadership, call, None)
    }
}
