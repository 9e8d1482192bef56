//! The cordon: keeps the scheduler from placing pods on a node. It terminates nothing, and any client can revert it.

use serde_json::json;

use super::retry_on_conflict::retry_on_conflict;
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::clock::Mono;
use crate::wire;

/// The result of a cordon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cordoned {
    /// The node was cordoned by this call.
    Now,
    /// The node was cordoned before.
    Already,
    /// There is no such node.
    NoNode,
}

/// Sets `spec.unschedulable` of a node, by compare-and-swap.
///
/// # Errors
/// The API server did not do it, or its answer is unknown.
pub async fn cordon(connection: &Connection, node: &str, deadline: Mono) -> Result<Cordoned, ApiError> {
    set_unschedulable(connection, node, None, true, deadline).await
}

/// As [`cordon`], for a node that was just read: it is read again only if it has changed since.
///
/// # Errors
/// The API server did not do it, or its answer is unknown.
pub async fn cordon_read_node(
    connection: &Connection,
    node: &str,
    read: &wire::Raw,
    deadline: Mono,
) -> Result<Cordoned, ApiError> {
    match set_unschedulable_on(connection, node, read, None, true, deadline).await {
        Err(error) if error.is_changed() => cordon(connection, node, deadline).await,
        done => done,
    }
}

/// Removes `spec.unschedulable` of the Node with this UID. Another Node of that name is not changed.
///
/// # Errors
/// The API server did not do it, or its answer is unknown.
pub async fn uncordon(connection: &Connection, node: &str, uid: &str, deadline: Mono) -> Result<(), ApiError> {
    set_unschedulable(connection, node, Some(uid), false, deadline).await.map(drop)
}

async fn set_unschedulable(
    connection: &Connection,
    node: &str,
    uid: Option<&str>,
    unschedulable: bool,
    deadline: Mono,
) -> Result<Cordoned, ApiError> {
    retry_on_conflict(ApiError::is_changed, || async {
        let raw = match connection.send(Call::get(format!("/api/v1/nodes/{node}")).with_deadline(deadline)).await {
            Err(error) if error.is_not_found() => return Ok(Cordoned::NoNode),
            read => read?,
        };
        set_unschedulable_on(connection, node, &raw, uid, unschedulable, deadline).await
    })
    .await
}

async fn set_unschedulable_on(
    connection: &Connection,
    node: &str,
    raw: &wire::Raw,
    uid: Option<&str>,
    unschedulable: bool,
    deadline: Mono,
) -> Result<Cordoned, ApiError> {
    let read: wire::Node = raw.decode().map_err(ApiError::Undecodable)?;
    if read.spec.is_some_and(|spec| spec.unschedulable) == unschedulable {
        return Ok(Cordoned::Already);
    }
    let meta = read.metadata.unwrap_or_default();
    if uid.is_some_and(|uid| meta.uid.as_deref() != Some(uid)) {
        return Ok(Cordoned::NoNode);
    }
    let body = json!({
        "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version },
        "spec": { "unschedulable": unschedulable.then_some(true) },
    });
    let path = format!("/api/v1/nodes/{node}");
    match connection.send(Call::write(Method::Patch, path, &body).with_deadline(deadline)).await {
        Err(error) if error.is_not_found() => Ok(Cordoned::NoNode),
        written => written.map(|_| Cordoned::Now),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pod_safety_cache::testing::objects::node;

    use super::super::retry_on_conflict::MAX_ATTEMPTS;
    use super::*;
    use crate::client::scripted::{Answer, Api, env};

    const PATCH: &str = "PATCH /api/v1/nodes/n";

    async fn cordoned(script: impl Fn(&str) -> Answer + Send + Sync + 'static) -> (Option<Cordoned>, Api) {
        let (env, _wall) = env();
        let api = Api::new(&env, move |request| {
            let answer = script(&request.method);
            async move { answer }
        });
        let deadline = env.now() + Duration::from_secs(10);
        (cordon(&api.connection(), "n", deadline).await.ok(), api)
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_cordoned_at_the_version_that_was_read() {
        let (done, api) = cordoned(|_| Answer::json(&node("n").0)).await;
        assert_eq!(done, Some(Cordoned::Now));
        assert_eq!(api.writes(), [PATCH]);
        let patch = api.requests().pop().unwrap();
        assert_eq!(
            patch.json(),
            json!({ "metadata": { "uid": "uid-n", "resourceVersion": "5" }, "spec": { "unschedulable": true } })
        );
        assert!(!patch.permitted);
    }

    /// A drain of a thousand nodes read each of them twice.
    #[tokio::test(start_paused = true)]
    async fn a_node_that_was_read_is_read_again_only_after_a_conflict() {
        for (answers, lines) in [(&[200][..], &["PATCH"][..]), (&[409, 200], &["PATCH", "GET", "PATCH"])] {
            let (env, _wall) = env();
            let remaining = parking_lot::Mutex::new(answers.to_vec());
            let api = Api::answering(&env, move |request| match request.method.as_str() {
                "PATCH" if remaining.lock().remove(0) == 409 => Answer::status(409, "Conflict", "changed"),
                _ => Answer::json(&node("n").0),
            });
            let (connection, deadline) = (api.connection(), env.now() + Duration::from_secs(10));
            let read = connection.send(Call::get("/api/v1/nodes/n")).await.unwrap();
            assert_eq!(cordon_read_node(&connection, "n", &read, deadline).await.ok(), Some(Cordoned::Now));
            let methods: Vec<String> =
                api.lines().iter().skip(1).filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect();
            assert_eq!(methods, lines);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cordoned_node_and_a_missing_one_are_not_written() {
        let (done, api) = cordoned(|_| Answer::json(&node("n").set("/spec/unschedulable", json!(true)).0)).await;
        assert_eq!((done, api.writes().len()), (Some(Cordoned::Already), 0));
        let (done, api) = cordoned(|_| Answer::not_found()).await;
        assert_eq!((done, api.writes().len()), (Some(Cordoned::NoNode), 0));
    }

    #[tokio::test(start_paused = true)]
    async fn cordon_fails_after_the_last_attempt_if_the_node_keeps_changing() {
        let (done, api) = cordoned(|method| match method {
            "GET" => Answer::json(&node("n").0),
            _ => Answer::status(409, "Conflict", "changed"),
        })
        .await;
        assert_eq!((done, api.writes().len()), (None, MAX_ATTEMPTS));
    }

    #[tokio::test(start_paused = true)]
    async fn cordon_returns_an_error_without_a_retry_when_the_api_server_fails() {
        for failing in ["GET", "PATCH"] {
            let (done, api) = cordoned(move |method| match method {
                method if method == failing => Answer::plain(502, "bad gateway"),
                _ => Answer::json(&node("n").0),
            })
            .await;
            let writes = usize::from(failing == "PATCH");
            assert_eq!((done, api.writes().len()), (None, writes), "{failing}");
        }
    }
}
