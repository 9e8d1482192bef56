//! What is read of the API server, once, and its answers to dry runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use futures::stream;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use pod_safety_drain::{
    Cluster, Consent, DaemonSet, Needs, NodeCapacity, Place, Plan, missing_drain_rights, missing_right, place, plan,
    right,
};
use pod_safety_shared::authority::{AccessRight, Eviction, MAX_READ_AGE, evict};
use pod_safety_shared::cache::{Lookup, Snapshot};
use pod_safety_shared::client::{ApiError, Call};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Controller, Kind, Pod, Uid};
use pod_safety_shared::record::error_chain;
use pod_safety_shared::wire;

use crate::cluster::Session;
use crate::error_hints::{NotFound, ResourceKind};
use crate::print_stderr;
use crate::progress::announce_wait;
use crate::rights;

/// The kinds that a plan reads.
const KINDS: [Kind; 7] = [
    Kind::Nodes,
    Kind::Pods,
    Kind::Budgets,
    Kind::Deployments,
    Kind::ReplicaSets,
    Kind::StatefulSets,
    Kind::ReplicationControllers,
];

/// How many reads or dry runs are in flight at a time: a node has a hundred pods or so, and an API server answers one
/// in milliseconds.
const MAX_CONCURRENT: usize = 8;

/// How long one dry run may take. The API server itself retries conflicts for ten seconds.
const DRY_RUN_TIMEOUT: Duration = Duration::from_secs(15);

/// The cluster as it was read.
pub(crate) struct DrainSnapshot {
    cache: Snapshot,
    details: Mutex<Details>,
}

/// Data that the cache of the controllers does not keep.
#[derive(Default)]
struct Details {
    needs: BTreeMap<Uid, Needs>,
    rooms: Vec<NodeCapacity>,
    daemon_sets: BTreeMap<Uid, DaemonSet>,
    /// The rights that were missing for reads.
    missing: Vec<AccessRight>,
    /// The nodes as they were read, until they are cordoned.
    nodes: BTreeMap<String, wire::Raw>,
    /// The pods of a node that is being drained, as they were listed, and when the list was requested.
    listed: BTreeMap<Uid, (Mono, wire::Raw)>,
}

impl Details {
    fn lacks(&self, kind: Kind) -> bool {
        self.missing.iter().any(|right| right.verb == "list" && right.resource == kind.resource())
    }

    fn add_missing(&mut self, right: AccessRight) {
        if !self.missing.contains(&right) {
            self.missing.push(right);
        }
    }
}

impl DrainSnapshot {
    /// Reads everything that a plan needs, as far as the rights suffice: the nodes and their pods are required.
    pub(crate) async fn read(session: &Session, nodes: &[String]) -> anyhow::Result<Self> {
        let mut also = Details::default();
        let mut each = |kind: Kind, raw: &wire::Raw| match kind {
            Kind::Pods => also.needs.extend(needs_of(raw)),
            Kind::Nodes => also.rooms.extend(raw.decode().ok().and_then(NodeCapacity::from_node)),
            _ => {}
        };
        let reading = Snapshot::read_allowed(&session.connection, &session.env, &KINDS, None, &mut each);
        let (snapshot, unread) = announce_wait(|| "all nodes and pods to be read".to_owned(), reading).await?;
        also.missing = unread.iter().map(|one| right("list", one.error.kind.resource())).collect();
        let lacks_nodes = also.lacks(Kind::Nodes);
        let snapshot = Self { cache: snapshot, details: Mutex::new(also) };
        if lacks_nodes {
            snapshot.read_nodes(session, nodes).await?;
        }
        if let Some(pods) = unread.into_iter().find(|one| one.error.kind == Kind::Pods) {
            return Err(snapshot.with_missing_rights(pods.error));
        }
        snapshot.check_nodes_exist(nodes)?;
        snapshot.read_daemon_sets(session, nodes).await?;
        // What budgets allow with every pod healthy depends on all of their pods.
        let scales = session.query_scales(&snapshot.cache, |view| {
            let pods = nodes.iter().flat_map(|node| view.pods_on(node));
            pods.flat_map(|pod| view.budgets_of_pod(pod)).collect()
        });
        scales.await;
        Ok(snapshot)
    }

    /// Reads only what the execution of a drain needs: these nodes, their pods, and the budgets.
    pub(crate) async fn read_for_apply(session: &Session, nodes: &[String]) -> anyhow::Result<Self> {
        let nothing = &mut |_: Kind, _: &wire::Raw| {};
        let reading = Snapshot::read_allowed(&session.connection, &session.env, &[Kind::Budgets], None, nothing);
        let (snapshot, unread) = reading.await?;
        let missing = unread.iter().map(|one| right("list", one.error.kind.resource())).collect();
        let snapshot = Self { cache: snapshot, details: Mutex::new(Details { missing, ..Details::default() }) };
        let reading = async {
            let read = snapshot.read_nodes(session, nodes).await;
            // If neither may be read, both rights are reported.
            snapshot.read_pods_of(session, nodes).await?;
            read
        };
        announce_wait(|| "the nodes and their pods to be read".to_owned(), reading).await?;
        snapshot.check_nodes_exist(nodes)?;
        snapshot.read_daemon_sets(session, nodes).await?;
        Ok(snapshot)
    }

    /// An error that names all missing rights, if any are missing.
    fn with_missing_rights(&self, error: impl Into<anyhow::Error>) -> anyhow::Error {
        error.into().context(rights::describe_missing_rights(&self.details.lock().missing))
    }

    fn check_nodes_exist(&self, nodes: &[String]) -> anyhow::Result<()> {
        let guard = self.cache.view();
        for node in nodes {
            match guard.view().node(node) {
                Lookup::Known(_) => {}
                Lookup::Unknown(why) => bail!("node {node} cannot be read: {why}"),
                Lookup::Absent => bail!(NotFound::new(ResourceKind::Node, None, node)),
            }
        }
        Ok(())
    }

    /// Reads these nodes, each by its name.
    async fn read_nodes(&self, session: &Session, nodes: &[String]) -> anyhow::Result<()> {
        let path = |node: &String| format!("{}/{node}", Kind::Nodes.path_in(None));
        let reads =
            stream::iter(nodes).map(|node| async move { (node, session.connection.send(Call::get(path(node))).await) });
        let mut answers = reads.buffered(MAX_CONCURRENT);
        while let Some((node, answer)) = answers.next().await {
            match answer {
                Ok(raw) => {
                    self.cache.insert_hypothetical(Kind::Nodes, &raw);
                    let mut also = self.details.lock();
                    also.rooms.extend(raw.decode().ok().and_then(NodeCapacity::from_node));
                    also.nodes.insert(node.clone(), raw);
                }
                Err(error) if error.is_not_found() => bail!(NotFound::new(ResourceKind::Node, None, node)),
                Err(error) if error.code() == Some(403) => {
                    self.details.lock().add_missing(right("get", "nodes"));
                    return Err(self.with_missing_rights(error));
                }
                Err(error) => return Err(anyhow::Error::from(error).context("reading the node")),
            }
        }
        Ok(())
    }

    async fn read_pods_of(&self, session: &Session, nodes: &[String]) -> anyhow::Result<()> {
        let reads = stream::iter(nodes).map(|node| self.read_pods(session, node));
        reads.buffered(MAX_CONCURRENT).try_for_each(|_| std::future::ready(Ok(()))).await
    }

    /// Reads the pods again that are on a node (or, without a name, on none), and removes those that are gone.
    async fn read_pods(&self, session: &Session, node: &str) -> anyhow::Result<Vec<(Uid, wire::Raw)>> {
        let path = format!("{}?fieldSelector=spec.nodeName={node}", Kind::Pods.path_in(None));
        let raws: Result<Vec<wire::Raw>, ApiError> = async {
            let (mut list, mut all) = (session.connection.list(Call::get(path)).await?, Vec::new());
            while let Some(raw) = list.next().await? {
                all.push(raw);
            }
            Ok(all)
        }
        .await;
        let raws = raws.map_err(|error| match error.code() {
            Some(403) => {
                self.details.lock().add_missing(right("list", "pods"));
                self.with_missing_rights(error)
            }
            _ => anyhow::Error::from(error).context("listing the node's pods"),
        })?;
        let mut all = Vec::new();
        for raw in raws {
            self.details.lock().needs.extend(needs_of(&raw));
            self.cache.insert_hypothetical(Kind::Pods, &raw);
            let meta = raw.decode::<wire::OnlyMeta>().ok().and_then(|only| only.metadata);
            all.extend(meta.and_then(|meta| meta.uid.as_deref().and_then(Uid::new)).map(|uid| (uid, raw)));
        }
        let present: BTreeSet<&Uid> = all.iter().map(|(uid, _)| uid).collect();
        let gone: Vec<Uid> = self.pods_on(node).into_iter().filter(|uid| !present.contains(uid)).collect();
        for uid in gone {
            self.cache.remove(Kind::Pods, &uid);
            self.details.lock().listed.remove(&uid);
        }
        Ok(all)
    }

    /// Reads the pods of a node again, with their owners. Returns which exist.
    pub(super) async fn reread_pods(&self, session: &Session, node: &str) -> anyhow::Result<BTreeSet<Uid>> {
        let requested_at = session.env.now();
        let pods = self.read_pods(session, node).await?;
        let uids = pods.iter().map(|(uid, _)| uid.clone()).collect();
        self.details.lock().listed.extend(pods.into_iter().map(|(uid, raw)| (uid, (requested_at, raw))));
        self.read_daemon_sets(session, std::slice::from_ref(&node.to_owned())).await?;
        Ok(uids)
    }

    /// Reads the pods that are on no node yet: the scheduler may have decided already.
    pub(super) async fn read_unbound(&self, session: &Session) -> anyhow::Result<BTreeSet<Uid>> {
        Ok(self.read_pods(session, "").await?.into_iter().map(|(uid, _)| uid).collect())
    }

    /// The pod as it was just listed, for one eviction.
    pub(super) fn listed(&self, pod: &Uid, now: Mono) -> Option<wire::Raw> {
        let (requested_at, raw) = self.details.lock().listed.remove(pod)?;
        (now.since(requested_at) < MAX_READ_AGE).then_some(raw)
    }

    /// The node as it was read, for one cordon.
    pub(super) fn node(&self, node: &str) -> Option<wire::Raw> {
        self.details.lock().nodes.remove(node)
    }

    /// Reads the DaemonSets of the pods of these nodes, each once: a DaemonSet that does not exist recreates no pod.
    async fn read_daemon_sets(&self, session: &Session, nodes: &[String]) -> anyhow::Result<()> {
        let named: BTreeSet<(Arc<str>, Arc<Controller>)> = {
            let (guard, also) = (self.cache.view(), self.details.lock());
            let controller = |pod: &Pod| Some((Arc::clone(&pod.key.namespace), pod.controller.clone()?));
            let all = nodes.iter().flat_map(|node| guard.view().pods_on(node).filter_map(controller));
            all.filter(|(_, one)| one.is_daemon_set() && !also.daemon_sets.contains_key(&one.uid)).collect()
        };
        let reads = stream::iter(named).map(|(namespace, named)| async move {
            let path = format!("/apis/apps/v1/namespaces/{namespace}/daemonsets/{}", named.name);
            (named, session.connection.send(Call::get(path)).await)
        });
        let answers: Vec<_> = reads.buffer_unordered(MAX_CONCURRENT).collect().await;
        for (named, answer) in answers {
            let daemon_set = match answer.map(|raw| raw.decode::<wire::OnlyMeta>()) {
                Ok(Ok(only)) => {
                    let uid = only.metadata.and_then(|meta| meta.uid.as_deref().and_then(Uid::new));
                    if uid.as_ref() == Some(&named.uid) { DaemonSet::Exists } else { DaemonSet::Absent }
                }
                Ok(Err(error)) => DaemonSet::Unread(error_chain(&error)),
                Err(error) if error.is_not_found() => DaemonSet::Absent,
                Err(error) if error.code() == Some(403) => {
                    let right = right("get", "daemonsets");
                    let why = format!("you may not {right}");
                    self.details.lock().add_missing(right);
                    DaemonSet::Unread(why)
                }
                Err(error) => return Err(anyhow::Error::from(error).context("reading a DaemonSet")),
            };
            self.details.lock().daemon_sets.insert(named.uid.clone(), daemon_set);
        }
        Ok(())
    }

    fn with_cluster<T>(&self, apply: impl FnOnce(&Cluster<'_>) -> T) -> T {
        let (guard, also) = (self.cache.view(), self.details.lock());
        apply(&Cluster {
            view: guard.view(),
            needs: &also.needs,
            capacities: &also.rooms,
            daemon_sets: &also.daemon_sets,
            budgets_unread: also.lacks(Kind::Budgets),
            now: self.cache.at(),
        })
    }

    /// The plan by what was read.
    pub(crate) fn plan(&self, node: &str, consent: &Consent) -> Plan {
        self.with_cluster(|cluster| plan(node, cluster, consent))
    }

    /// Warns of each pod to skip that does not exist: it may be gone, or its name may be mistyped.
    pub(crate) fn warn_missing_pods(&self, nodes: &[String], consent: &Consent) {
        let guard = self.cache.view();
        for (namespace, name) in &consent.skip {
            let is_it = |pod: &Pod| *pod.key.namespace == **namespace && *pod.key.name == **name;
            if !nodes.iter().any(|node| guard.view().pods_on(node).any(is_it)) {
                let on = match nodes {
                    [node] => format!("node {node}"),
                    _ => "these nodes".to_owned(),
                };
                print_stderr(&format!("pod-safety: --skip {namespace}/{name}: no such pod is on {on}"));
            }
        }
    }

    /// The pods that are on the node.
    fn pods_on(&self, node: &str) -> BTreeSet<Uid> {
        self.cache.view().view().pods_on(node).map(|pod| pod.uid().clone()).collect()
    }

    /// Whether the scheduler binds the pod to a cordoned node.
    pub(super) fn tolerates_cordon(&self, pod: &Uid) -> bool {
        self.details.lock().needs.get(pod).is_some_and(Needs::tolerates_cordon)
    }

    /// Whether the replacement of an evicted pod may be scheduled to the node again.
    pub(super) fn may_come_back(&self, plan: &Plan) -> bool {
        let mut plan = plan.clone();
        self.place(std::slice::from_mut(&mut plan));
        plan.rows.iter().any(|row| row.may_come_back)
    }

    /// Sends a dry run of each eviction to the API server. Returns the rights that are missing for it, and for the
    /// plan.
    pub(super) async fn run_dry_runs(&self, session: &Session, plan: &mut Plan) -> Vec<AccessRight> {
        let dry_runs: Vec<(usize, Eviction)> = plan
            .dry_run_candidates()
            .map(|(index, pod)| (index, Eviction { pod: pod.clone(), dry_run: true }))
            .collect();
        let answers = stream::iter(dry_runs).map(|(index, eviction)| async move {
            let deadline = session.env.now() + DRY_RUN_TIMEOUT;
            (index, evict(&session.connection, &session.env, &eviction, deadline).await)
        });
        let answers: Vec<_> = answers.buffer_unordered(MAX_CONCURRENT).collect().await;
        for (index, answer) in &answers {
            match answer.as_ref().err().and_then(missing_right) {
                Some(right) => self.details.lock().add_missing(right),
                None => plan.record_dry_run(*index, answer),
            }
        }
        plan.sort_by_turn();
        self.details.lock().missing.clone()
    }

    /// Whether plans may be executed: reports all missing rights at once, before anything is changed.
    pub(crate) async fn check_rights(&self, session: &Session, plans: &[Plan]) -> anyhow::Result<()> {
        let missing = self.details.lock().missing.clone();
        if !missing.is_empty() {
            print_stderr(&format!("pod-safety: {}", rights::describe_missing_rights(&missing)));
        }
        let tried = plans.iter().flat_map(|plan| &plan.rows).filter(|row| row.is_attempted());
        let namespaces: BTreeSet<&str> = tried.map(|row| &*row.pod.namespace).collect();
        let lacking = missing_drain_rights(&session.connection, &namespaces).await;
        if lacking.is_empty() {
            return Ok(());
        }
        let advice = rights::missing_rights_hint("drain").unwrap_or_default();
        bail!("{}; {advice}", rights::describe_missing_rights(&[missing, lacking].concat()));
    }

    /// Finds where the evicted pods would fit, one node after the other.
    pub(super) fn place(&self, plans: &mut [Plan]) {
        self.with_cluster(|cluster| place(plans, cluster));
        if self.details.lock().lacks(Kind::Nodes) {
            // The other nodes were not read: a pod may fit there.
            let rows = plans.iter_mut().flat_map(|plan| &mut plan.rows);
            rows.filter(|row| row.place != Some(Place::NotRecreated)).for_each(|row| row.place = None);
        }
    }
}

/// What a pod needs, if it can be decoded.
fn needs_of(raw: &wire::Raw) -> Option<(Uid, Needs)> {
    let pod: wire::PodNeeds = raw.decode().ok()?;
    let uid = pod.metadata.as_ref()?.uid.as_deref().and_then(Uid::new)?;
    Some((uid, Needs::from_pod(pod)))
}
