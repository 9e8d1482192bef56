//! `pod-safety explain eviction`, and what `status` and `doctor` say of requests that were left behind.

use anyhow::{Context, bail};
use pod_safety_explain::{Answer, Requested, Trouble, left_behind, since, span};
use pod_safety_shared::authority::people::requests::{self, EvictionOfPod, EvictionRequest, NODE_LABEL};
use pod_safety_shared::client::ApiError;
use pod_safety_shared::model::Pod;

use super::Look;
use crate::cluster::Session;
use crate::helped::{Named, NotThere};

type Read = Option<(Vec<EvictionRequest>, Vec<EvictionOfPod>)>;

/// What a namespace has. None: the API server does not have these kinds.
async fn read(session: &Session, namespace: &str) -> Result<Read, ApiError> {
    let connection = &session.connection;
    let Some(all) = requests::requests(connection, Some(namespace), "").await? else { return Ok(None) };
    let evictions = requests::evictions(connection, Some(namespace), "").await?;
    Ok(Some((all, evictions.unwrap_or_default())))
}

/// The answer about the Eviction, the EvictionRequest, or the pod of this name.
pub(super) async fn answer(session: &Session, namespace: &str, name: &str) -> anyhow::Result<Answer> {
    let (namespace, name) = name.split_once('/').unwrap_or((namespace, name));
    let look = Look::at(session, Some(namespace)).await?;
    let Some((all, evictions)) = read(session, namespace).await.context("reading the Evictions")? else {
        bail!(
            "this API server has no Evictions (lifecycle.k8s.io/v1alpha1, Kubernetes 1.37 with the feature gate EvictionRequestAPI)"
        );
    };
    let answer = look.scene(|scene| {
        Requested::named(namespace, name, &all, &evictions, scene).map(|found| found.answer(scene))
    });
    let mut answer = answer.ok_or_else(|| NotThere::new(Named::Eviction, Some(namespace), name))?;
    answer.missing.extend(look.missing());
    Ok(answer)
}

/// What is said of the eviction of a pod where the pod is explained.
pub(super) async fn note(session: &Session, look: &Look, pod: &Pod, answer: &mut Answer) {
    match read(session, &pod.key.namespace).await {
        Ok(Some((all, evictions))) => {
            let uid = pod.uid().to_string();
            let note = look.scene(|scene| Requested::of(&uid, &all, &evictions, scene)?.note(scene));
            answer.notes.extend(note);
        }
        Ok(None) => {}
        Err(error) => answer.missing.push(format!(
            "{}: it is not known whether its eviction is requested.",
            super::refusal(&error, "list evictionrequests and evictions")
        )),
    }
}

/// What `status` says of requests of ours that were left behind, and what it could not read.
pub(crate) async fn left(session: &Session, wall: jiff::Timestamp) -> Result<Vec<Trouble>, String> {
    let all = requests::requests(&session.connection, None, NODE_LABEL).await;
    let all = all.map_err(|error| {
        format!(
            "{}: it is not known which were left behind.",
            super::refusal(&error, "list evictionrequests")
        )
    })?;
    let all = all.unwrap_or_default();
    let trouble = |one: &&EvictionRequest| {
        let EvictionRequest { metadata, spec, .. } = one;
        let age = metadata.creation_timestamp.map(|at| span(since(at, wall))).unwrap_or_default();
        let pod = &spec.target.pod.name;
        Trouble {
            object: format!("evictionrequest/{}/{}", metadata.namespace, metadata.name),
            blocks: false,
            reason: "RequestLeftBehind",
            message: format!("asks for the eviction of pod {pod} since {age}, by {}", spec.requester),
            command: format!("pod-safety drain {} --withdraw", one.node()),
        }
    };
    Ok(left_behind(&all, wall).iter().map(trouble).collect())
}
