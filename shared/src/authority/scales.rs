//! Reads the desired replicas of controllers whose kinds the cache does not watch: by `GET …/scale`, which the API offers
//! for any kind.
//!
//! For each group and version, one read is in flight at a time, so that an API that hangs delays no reads of other groups.
//! Each controller is read once, however many pods need it. The answer goes into the cache, which notifies the control
//! loops. For commands that read the cluster once, [`read_scales`] puts the answers into their snapshot.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cache::{Cache, CacheWriter as _, ScaleAnswer, Snapshot};
use crate::client::{ApiError, Call, Connection};
use crate::clock::{Env, Mono};
use crate::model::{Controller, Scale, Uid, is_kubernetes_name};
use crate::record::error_chain;
use crate::wire;

/// How many reads are in flight at the same time, of different groups.
const SCALE_READERS: usize = 4;

/// How long one answer may take. A scale is one object: if the answer takes longer, its API has a problem, and the status
/// of the budgets shows it.
const SCALE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the discovered resources of a group are cached. The mapper of kube-controller-manager is reset at the same
/// interval.
const DISCOVERED_FOR: Duration = Duration::from_secs(30);

/// How many reads may wait. A read that is rejected is requested again.
const LIMIT: usize = 10_000;

/// One read that waits.
#[derive(Debug)]
struct ScaleQuery {
    namespace: Arc<str>,
    controller: Arc<Controller>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<ScaleQuery>,
    /// The targets that wait or are being read.
    pending: BTreeSet<(Arc<str>, Arc<Controller>)>,
    /// The groups and versions with a read in flight.
    busy: BTreeSet<Box<str>>,
}

/// The target of a scale read: a namespace, and the controller as an owner reference names it.
pub type ScaleTarget = (Arc<str>, Arc<Controller>);

/// Why a scale could not be read.
#[derive(Debug, thiserror::Error)]
enum ScaleError {
    #[error("there is no kind {kind} in {api_version}")]
    NoKind { kind: Box<str>, api_version: Box<str> },
    #[error("{field} {value:?} of an ownerReference is not a valid name")]
    Name { field: &'static str, value: Box<str> },
    #[error("asking which resources {api_version} has")]
    Discovery { api_version: Box<str>, source: ApiError },
    #[error("asking for the scale of {kind} {name}")]
    Ask { kind: Box<str>, name: Box<str>, source: ApiError },
    #[error("the answer about {api_version} cannot be read")]
    Undecodable { api_version: Box<str>, source: wire::WireError },
    #[error("the scale of {kind} {name} has no number of replicas")]
    NoReplicas { kind: Box<str>, name: Box<str> },
}

/// Reads scales for the control loops.
pub(super) struct Scales {
    reader: ScaleReader,
    cache: Arc<Cache>,
    env: Env,
    state: Mutex<State>,
    work: Notify,
}

/// When the resources of a group and version were read, and the resources.
type Discovered = (Mono, Arc<Vec<wire::ApiResource>>);

/// Reads one scale at a time.
struct ScaleReader {
    connection: Connection,
    env: Env,
    discovered: Mutex<BTreeMap<Box<str>, Discovered>>,
}

impl Scales {
    /// Starts the workers.
    pub(super) fn start(connection: Connection, cache: Arc<Cache>, env: Env) -> Arc<Self> {
        let reader = ScaleReader::new(connection, env.clone());
        let scales = Arc::new(Self { reader, cache, env, state: Mutex::default(), work: Notify::new() });
        for _ in 0..SCALE_READERS {
            let worker = Arc::clone(&scales);
            scales.env.spawner.spawn("scales", Box::pin(async move { worker.worker_loop().await }));
        }
        scales
    }

    /// Queues a read of this controller, unless one is queued or in flight.
    pub(super) fn request(&self, namespace: &Arc<str>, controller: &Arc<Controller>) {
        let mut state = self.state.lock();
        let target = (Arc::clone(namespace), Arc::clone(controller));
        if state.waiting.len() < LIMIT && state.pending.insert(target.clone()) {
            let (namespace, controller) = target;
            state.waiting.push_back(ScaleQuery { namespace, controller });
            self.work.notify_one();
        }
    }

    async fn worker_loop(&self) {
        loop {
            let next = self.next();
            match next {
                Some(question) => self.handle(question).await,
                None => self.work.notified().await,
            }
        }
    }

    /// The first waiting read whose group has no read in flight.
    fn next(&self) -> Option<ScaleQuery> {
        let mut state = self.state.lock();
        let State { waiting, busy, .. } = &mut *state;
        let free = waiting.iter().position(|question| !busy.contains(&question.controller.api_version))?;
        let question = waiting.remove(free)?;
        busy.insert(question.controller.api_version.clone());
        Some(question)
    }

    async fn handle(&self, question: ScaleQuery) {
        let ScaleQuery { namespace, controller } = question;
        let answer = self.reader.read(&namespace, &controller).await;
        {
            let mut state = self.state.lock();
            state.pending.remove(&(Arc::clone(&namespace), Arc::clone(&controller)));
            state.busy.remove(&controller.api_version);
        }
        // Another read of this group may have waited for this one.
        self.work.notify_one();
        self.cache.record_scale(&namespace, &controller, answer);
    }
}

impl ScaleReader {
    fn new(connection: Connection, env: Env) -> Self {
        Self { connection, env, discovered: Mutex::default() }
    }

    async fn read(&self, namespace: &str, controller: &Controller) -> ScaleAnswer {
        let requested_at = self.env.now();
        let scale = self.read_scale(namespace, controller).await;
        let scale = scale.map_err(|error| error_chain(&error).into_boxed_str());
        ScaleAnswer { requested_at, answered_at: self.env.now(), scale }
    }

    async fn read_in_turn(&self, snapshot: &Snapshot, group: Vec<&ScaleTarget>) {
        for (namespace, controller) in group {
            snapshot.record_scale(namespace, controller, self.read(namespace, controller).await);
        }
    }

    async fn read_scale(&self, namespace: &str, controller: &Controller) -> Result<Scale, ScaleError> {
        let Controller { api_version, kind, name, uid } = controller;
        // These fields become parts of a path.
        for (field, value) in [("name", name), ("apiVersion", api_version)] {
            let parts = if field == "name" { 1 } else { 2 };
            if value.split('/').count() > parts || !value.split('/').all(is_kubernetes_name) {
                return Err(ScaleError::Name { field, value: value.clone() });
            }
        }
        let base = if api_version.contains('/') { "apis" } else { "api" };
        let no_kind = || ScaleError::NoKind { kind: kind.clone(), api_version: api_version.clone() };
        let resources = match self.discover(api_version, &format!("/{base}/{api_version}")).await {
            // This path is the group and version itself: a 404 does not mean that an object is missing.
            Err(ScaleError::Discovery { source: ApiError::Refused { code: 404, .. }, .. }) => {
                return Err(no_kind());
            }
            found => found?,
        };
        let of_kind = |one: &&wire::ApiResource| one.kind.as_deref() == Some(&**kind);
        let mut names = resources.iter().filter(of_kind).filter_map(|one| one.name.as_deref());
        // The names of subresources contain a slash.
        let Some(resource) = names.find(|name| is_kubernetes_name(name)) else {
            return Err(no_kind());
        };
        let scale = format!("{resource}/scale");
        if !resources.iter().any(|one| one.name.as_deref() == Some(&scale)) {
            return Ok(Scale::None);
        }
        let path = format!("/{base}/{api_version}/namespaces/{namespace}/{resource}/{name}/scale");
        let failed = |source| ScaleError::Ask { kind: kind.clone(), name: name.clone(), source };
        let raw = match self.get(path).await {
            Ok(raw) => raw,
            Err(error) if error.is_not_found() => return Ok(Scale::Absent),
            Err(source) => return Err(failed(source)),
        };
        let read: wire::Workload = raw.decode().map_err(|error| failed(ApiError::Undecodable(error)))?;
        let of = read.metadata.and_then(|meta| meta.uid);
        if of.as_deref().and_then(Uid::new).as_ref() != Some(uid) {
            return Ok(Scale::Absent);
        }
        match read.spec {
            // In protobuf, a zero is not encoded.
            Some(spec) => Ok(Scale::Replicas(spec.replicas.unwrap_or(0))),
            None => Err(ScaleError::NoReplicas { kind: kind.clone(), name: name.clone() }),
        }
    }

    async fn discover(&self, api_version: &str, path: &str) -> Result<Arc<Vec<wire::ApiResource>>, ScaleError> {
        let now = self.env.now();
        if let Some((at, cached)) = self.discovered.lock().get(api_version)
            && now.since(*at) < DISCOVERED_FOR
        {
            return Ok(Arc::clone(cached));
        }
        let raw = self
            .get(path.to_owned())
            .await
            .map_err(|source| ScaleError::Discovery { api_version: api_version.into(), source })?;
        let read: wire::ApiResourceList =
            raw.decode().map_err(|source| ScaleError::Undecodable { api_version: api_version.into(), source })?;
        let read = Arc::new(read.resources);
        self.discovered.lock().insert(api_version.into(), (now, Arc::clone(&read)));
        Ok(read)
    }

    async fn get(&self, path: String) -> Result<wire::Raw, ApiError> {
        self.connection.send(Call::get(path).with_deadline(self.env.now() + SCALE_TIMEOUT)).await
    }
}

/// Reads the scale of each target once and puts the answers into `snapshot`, for a command that reads the cluster once. A
/// target without an answer after `within` counts as failed.
pub async fn read_scales(
    connection: &Connection,
    env: &Env,
    snapshot: &Snapshot,
    targets: &BTreeSet<ScaleTarget>,
    within: Duration,
) {
    let reader = ScaleReader::new(connection.clone(), env.clone());
    let began = env.now();
    let mut groups: BTreeMap<&str, Vec<&ScaleTarget>> = BTreeMap::new();
    for one in targets {
        groups.entry(&one.1.api_version).or_default().push(one);
    }
    let all: FuturesUnordered<_> = groups.into_values().map(|group| reader.read_in_turn(snapshot, group)).collect();
    if env.timeout_at(began + within, all.collect::<()>()).await.is_some() {
        return;
    }
    for (namespace, controller) in targets.iter().filter(|one| !snapshot.has_scale(one)) {
        let why = format!("{} {} gave no answer within {within:?}", controller.kind, controller.name);
        let (requested_at, answered) = (began, env.now());
        snapshot.record_scale(
            namespace,
            controller,
            ScaleAnswer { requested_at, answered_at: answered, scale: Err(why.into()) },
        );
    }
}

#[cfg(test)]
mod tests;
