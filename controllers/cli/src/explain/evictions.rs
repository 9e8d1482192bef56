//! `pod-safety explain eviction`, and what `status` and `doctor` report about abandoned requests.

use anyhow::{Context, bail};
use pod_safety_explain::{Answer, RequestedEviction, Trouble, elapsed, find_abandoned, format_duration};
use pod_safety_shared::authority::operator_requests::eviction_requests::{
    self, EvictionOfPod, EvictionRequest, NODE_LABEL,
};
use pod_safety_shared::client::ApiError;
use pod_safety_shared::model::Pod;

use super::ClusterSnapshot;
use crate::cluster::Session;
use crate::error_hints::{NotFound, ResourceKind};

type Read = Option<(Vec<EvictionRequest>, Vec<EvictionOfPod>)>;

/// Reads the eviction objects of a namespace. `None`: the API server does not have these kinds.
async fn read(session: &Session, namespace: &str) -> Result<Read, ApiError> {
    let connection = &session.connection;
    let Some(all) = eviction_requests::list_requests(connection, Some(namespace), "").await? else {
        return Ok(None);
    };
    let evictions = eviction_requests::list_evictions(connection, Some(namespace), "").await?;
    Ok(Some((all, evictions.unwrap_or_default())))
}

/// The explanation of the Eviction, the EvictionRequest, or the pod of this name.
pub(super) async fn answer(session: &Session, namespace: &str, name: &str) -> anyhow::Result<Answer> {
    let (namespace, name) = name.split_once('/').unwrap_or((namespace, name));
    let snapshot = ClusterSnapshot::read(session, Some(namespace)).await?;
    let Some((all, evictions)) = read(session, namespace).await.context("reading the Evictions")? else {
        bail!(
            "this API server has no Evictions (lifecycle.k8s.io/v1alpha1, Kubernetes 1.37 with the feature gate EvictionRequestAPI)"
        );
    };
    let answer = snapshot.with_context(|ctx| {
        RequestedEviction::find_by_name(namespace, name, &all, &evictions, ctx).map(|eviction| eviction.to_answer(ctx))
    });
    let mut answer = answer.ok_or_else(|| NotFound::new(ResourceKind::Eviction, Some(namespace), name))?;
    answer.missing.extend(snapshot.missing());
    Ok(answer)
}

/// Adds the note about a pod's eviction to the explanation of the pod.
pub(super) async fn add_note(session: &Session, snapshot: &ClusterSnapshot, pod: &Pod, answer: &mut Answer) {
    match read(session, &pod.key.namespace).await {
        Ok(Some((all, evictions))) => {
            let uid = pod.uid().to_string();
            let note = snapshot
                .with_context(|ctx| RequestedEviction::find_by_uid(&uid, &all, &evictions, ctx)?.describe_note(ctx));
            answer.notes.extend(note);
        }
        Ok(None) => {}
        Err(error) => answer.missing.push(format!(
            "{}: it is not known whether its eviction is requested.",
            super::describe_refusal(&error, "list evictionrequests and evictions")
        )),
    }
}

/// The abandoned requests of pod-safety for `status`, or why they could not be read.
pub(crate) async fn read_abandoned(session: &Session, wall: jiff::Timestamp) -> Result<Vec<Trouble>, String> {
    let all = eviction_requests::list_requests(&session.connection, None, NODE_LABEL).await;
    let all = all.map_err(|error| {
        format!("{}: it is not known which were left behind.", super::describe_refusal(&error, "list evictionrequests"))
    })?;
    Ok(list_abandoned(&all.unwrap_or_default(), wall))
}

/// The abandoned ones of these requests, with the command that withdraws them.
pub(super) fn list_abandoned(all: &[EvictionRequest], wall: jiff::Timestamp) -> Vec<Trouble> {
    let trouble = |one: &&EvictionRequest| {
        let EvictionRequest { metadata, spec, .. } = one;
        let age = metadata.creation_timestamp.map(|at| format_duration(elapsed(at, wall))).unwrap_or_default();
        let pod = &spec.target.pod.name;
        Trouble {
            object: format!("evictionrequest/{}/{}", metadata.namespace, metadata.name),
            blocks: false,
            reason: "RequestLeftBehind",
            message: format!("asks for the eviction of pod {pod} since {age}, by {}", spec.requester),
            command: format!("pod-safety drain {} --withdraw", one.node()),
        }
    };
    find_abandoned(all, wall).iter().map(trouble).collect()
}
