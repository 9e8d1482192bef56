//! The quorum reads that must confirm a final condition before it is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pod_safety_leader::outcome::RequestError;
use pod_safety_leader::send::WriteContext;

use super::body::path;
use super::{EvictionShared, EvictionUpdate, Precondition};
use crate::cache;
use crate::client::{ApiError, Call};
use crate::clock::Mono;
use crate::model::{EVICTION_INVALID, Kind, Pod, PodKey, Uid};
use crate::wire::{self, Decode, Raw};

/// How long a list of a namespace is reused for later writes: so a thousand requests that are withdrawn at once do not cause a
/// thousand lists.
const LIST_LASTS: Duration = Duration::from_secs(1);

/// For each namespace and kind, when the list was requested, and its content.
pub(super) type Lists = BTreeMap<(Arc<str>, Kind), (Mono, Arc<Listed>)>;

/// The pods that a namespace's EvictionRequests request to evict, or that have Evictions.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pods: BTreeSet<Uid>,
    /// An entry could not be decoded: it may be about any pod.
    unreadable: bool,
}

impl Listed {
    fn may_have(&self, pod: &Uid) -> bool {
        self.unreadable || self.pods.contains(pod)
    }

    fn add(&mut self, target: Option<wire::EvictionTarget>) {
        let uid = target.and_then(|target| target.pod).and_then(|pod| Uid::new(pod.uid.as_deref()?));
        match uid {
            Some(uid) => drop(self.pods.insert(uid)),
            None => self.unreadable = true,
        }
    }

    /// Adds one object. An EvictionRequest that is withdrawn, being deleted or finally invalid is not added.
    fn read(&mut self, kind: Kind, raw: &Raw) {
        if kind == Kind::Evictions {
            match raw.decode::<wire::Eviction>() {
                Ok(eviction) => self.add(eviction.spec.and_then(|spec| spec.target)),
                Err(_) => self.unreadable = true,
            }
            return;
        }
        let Ok(request) = raw.decode::<wire::EvictionRequest>() else { return self.unreadable = true };
        let deleting = request.metadata.is_some_and(|meta| meta.deletion_timestamp.is_some());
        let spec = request.spec.unwrap_or_default();
        let conditions = request.status.unwrap_or_default().conditions;
        let invalid = |one: &wire::Condition| {
            one.r#type.as_deref() == Some("Failed")
                && one.status.as_deref() == Some("True")
                && one.reason.as_deref() == Some(EVICTION_INVALID)
        };
        if spec.intent.as_deref() != Some("Withdrawn") && !deleting && !conditions.iter().any(invalid) {
            self.add(spec.target);
        }
    }
}

/// Whether a quorum read confirms the precondition.
pub(super) async fn is_confirmed(
    writer: &WriteContext<'_>,
    common: &EvictionShared,
    update: &EvictionUpdate,
    check: &Precondition,
) -> Result<bool, RequestError> {
    let pod = &update.pod;
    Ok(match check {
        Precondition::Nothing => true,
        Precondition::PodGone => read_pod(writer, pod).await?.is_none_or(|existing| existing.key.uid != pod.uid),
        Precondition::PodTerminal => matches_pod(read_pod(writer, pod).await?, pod, true),
        Precondition::PodRunning => matches_pod(read_pod(writer, pod).await?, pod, false),
        Precondition::NotRequested => {
            !list(writer, common, &pod.namespace, Kind::EvictionRequests).await?.may_have(&pod.uid)
        }
        Precondition::Duplicate { of, uid } => {
            let path = path(Kind::Evictions, &pod.namespace, Some(of), "");
            read::<wire::Eviction>(writer, path).await?.is_some_and(|older| is_open(older, uid, &pod.uid))
        }
    })
}

/// Why a request is invalid, with the messages of kubernetes#137133; `None`: it is valid, or an Eviction records the pod's
/// outcome.
pub(super) async fn invalid_reason(
    writer: &WriteContext<'_>,
    common: &EvictionShared,
    update: &EvictionUpdate,
) -> Result<Option<String>, RequestError> {
    let pod = &update.pod;
    let message = match read_pod(writer, pod).await? {
        Some(existing) if existing.key.uid == pod.uid => {
            let message = "Target pod references a SchedulingGroup. Eviction is currently not supported.";
            return Ok(existing.in_group.then(|| message.to_owned()));
        }
        Some(existing) => format!("Target pod UID mismatch: expected {}, got {}.", pod.uid, existing.key.uid),
        None => "Target pod not found.".to_owned(),
    };
    let has_eviction = list(writer, common, &pod.namespace, Kind::Evictions).await?.may_have(&pod.uid);
    Ok((!has_eviction).then_some(message))
}

fn matches_pod(existing: Option<Pod>, pod: &PodKey, terminal: bool) -> bool {
    existing.is_some_and(|existing| existing.key.uid == pod.uid && existing.phase.is_terminal() == terminal)
}

/// Whether this is the Eviction `uid` of this pod, and has not ended.
fn is_open(eviction: wire::Eviction, uid: &Uid, pod: &Uid) -> bool {
    let own = eviction.metadata.and_then(|meta| Uid::new(meta.uid.as_deref()?));
    let target = eviction.spec.and_then(|spec| spec.target).and_then(|target| target.pod);
    let target = target.and_then(|target| Uid::new(target.uid.as_deref()?));
    let conditions = eviction.status.unwrap_or_default().conditions;
    let ended = |one: &wire::Condition| {
        matches!(one.r#type.as_deref(), Some("Failed" | "TargetEvicted")) && one.status.as_deref() == Some("True")
    };
    own.as_ref() == Some(uid) && target.as_ref() == Some(pod) && !conditions.iter().any(ended)
}

/// Reads one object. `None`: it does not exist.
pub(super) async fn read<T: Decode>(writer: &WriteContext<'_>, path: String) -> Result<Option<T>, RequestError> {
    match writer.query(Call::get(path)).await? {
        Ok(raw) => raw.decode().map(Some).map_err(|error| RequestError::Failed(ApiError::Undecodable(error))),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(RequestError::Failed(error)),
    }
}

async fn read_pod(writer: &WriteContext<'_>, pod: &PodKey) -> Result<Option<Pod>, RequestError> {
    let path = Kind::Pods.path_in(Some(&pod.namespace));
    let read = read::<wire::Pod>(writer, format!("{path}/{}", pod.name)).await?;
    let read = read.map(|wire| cache::pod_from_wire(wire, writer.env.now())).transpose();
    read.map_err(|unreadable| RequestError::Failed(ApiError::Malformed(unreadable.reason().to_owned())))
}

async fn list(
    writer: &WriteContext<'_>,
    common: &EvictionShared,
    namespace: &Arc<str>,
    kind: Kind,
) -> Result<Arc<Listed>, RequestError> {
    let requested_at = writer.env.now();
    let key = (Arc::clone(namespace), kind);
    {
        let mut lists = common.lists.lock();
        lists.retain(|_, (at, _)| requested_at.since(*at) < LIST_LASTS);
        if let Some((_, listed)) = lists.get(&key) {
            return Ok(Arc::clone(listed));
        }
    }
    let mut listed = Listed::default();
    let path = kind.path_in(Some(namespace));
    let read = cache::read_page(writer.connection, writer.env, path, &mut |raw| listed.read(kind, &raw)).await;
    read.map_err(RequestError::Failed)?;
    let listed = Arc::new(listed);
    common.lists.lock().insert(key, (requested_at, Arc::clone(&listed)));
    Ok(listed)
}
