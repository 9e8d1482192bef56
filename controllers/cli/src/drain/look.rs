//! What the API server has, read once, and its answers to dry runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use futures::StreamExt;
use futures::stream;
use pod_safety_drain::{
    Cluster, Consent, DaemonSet, Needs, Place, Plan, Room, lacked, lacking_for_drain, plan, right,
};
use pod_safety_shared::authority::{Eviction, Right, evict};
use pod_safety_shared::cache::{Lookup, Snapshot, ViewGuard};
use pod_safety_shared::client::Call;
use pod_safety_shared::model::{Controller, Kind, Pod, Uid};
use pod_safety_shared::record::error_chain;
use pod_safety_shared::wire;

use crate::cluster::Session;
use crate::helped::{Named, NotThere};
use crate::rights;
use crate::say;
use crate::waiting::waiting;

/// What a plan reads.
const KINDS: [Kind; 7] = [
    Kind::Nodes,
    Kind::Pods,
    Kind::Budgets,
    Kind::Deployments,
    Kind::ReplicaSets,
    Kind::StatefulSets,
    Kind::ReplicationControllers,
];

/// How many dry runs are under way at a time: a node has some hundred pods, and an
/// API server answers one in milliseconds.
const DRY_RUNS: usize = 8;

/// How long one dry run may take. The API server itself retries conflicts for ten seconds.
const PATIENCE: Duration = Duration::from_secs(15);

/// The cluster as it was read.
pub(crate) struct Look {
    snapshot: Snapshot,
    needs: BTreeMap<Uid, Needs>,
    rooms: Vec<Room>,
    daemon_sets: BTreeMap<Uid, DaemonSet>,
    /// What could not be read for want of rights.
    pub(super) missing: Vec<Right>,
}

impl Look {
    /// Reads everything that a plan rests on, as far as that is allowed: the node and the pods must be.
    pub(crate) async fn at(session: &Session, node: &str) -> anyhow::Result<Self> {
        let (mut needs, mut rooms) = (BTreeMap::new(), Vec::new());
        let mut each = |kind: Kind, raw: &wire::Raw| match kind {
            Kind::Pods => needs.extend(needs_of(raw)),
            Kind::Nodes => rooms.extend(raw.decode().ok().and_then(Room::of)),
            _ => {}
        };
        let reading = Snapshot::read_allowed(&session.connection, &session.env, &KINDS, None, &mut each);
        let (snapshot, unread) = waiting(|| "all nodes and pods to be read".to_owned(), reading).await?;
        let missing = unread.iter().map(|one| right("list", one.error.kind.resource())).collect();
        let mut look = Self { snapshot, needs, rooms, daemon_sets: BTreeMap::new(), missing };
        if look.lacks(Kind::Nodes) {
            look.read_node(session, node).await?;
        }
        if let Some(pods) = unread.into_iter().find(|one| one.error.kind == Kind::Pods) {
            let words = rights::lacking(&look.missing);
            return Err(anyhow::Error::from(pods.error).context(words));
        }
        match look.snapshot.view().view().node(node) {
            Lookup::Known(_) => {}
            Lookup::Unknown(why) => bail!("node {node} cannot be read: {why}"),
            Lookup::Absent => bail!(NotThere::new(Named::Node, None, node)),
        }
        look.read_daemon_sets(session, node).await?;
        // What budgets let through with every pod healthy rests on all of their pods.
        let scales = session.ask_scales(&look.snapshot, |view| {
            view.pods_on(node).flat_map(|pod| view.budgets_of_pod(pod)).collect()
        });
        scales.await;
        Ok(look)
    }

    fn lacks(&self, kind: Kind) -> bool {
        self.missing.iter().any(|right| right.verb == "list" && right.resource == kind.resource())
    }

    /// The one node, for whoever may not list them.
    async fn read_node(&mut self, session: &Session, node: &str) -> anyhow::Result<()> {
        match session.connection.send(Call::get(format!("{}/{node}", Kind::Nodes.path_in(None)))).await {
            Ok(raw) => {
                self.rooms.extend(raw.decode().ok().and_then(Room::of));
                self.snapshot.suppose(Kind::Nodes, &raw);
                Ok(())
            }
            Err(error) if error.is_not_found() => bail!(NotThere::new(Named::Node, None, node)),
            Err(error) if error.code() == Some(403) => {
                self.missing.push(right("get", "nodes"));
                Err(anyhow::Error::from(error).context(rights::lacking(&self.missing)))
            }
            Err(error) => Err(anyhow::Error::from(error).context("reading the node")),
        }
    }

    /// The DaemonSets that the node's pods name: what is not there recreates nothing.
    async fn read_daemon_sets(&mut self, session: &Session, node: &str) -> anyhow::Result<()> {
        let named: BTreeSet<(Arc<str>, Arc<Controller>)> = {
            let guard = self.snapshot.view();
            let controller = |pod: &Pod| Some((Arc::clone(&pod.key.namespace), pod.controller.clone()?));
            let all = guard.view().pods_on(node).filter_map(controller);
            all.filter(|(_, controller)| controller.is_daemon_set()).collect()
        };
        let asked = stream::iter(named).map(|(namespace, named)| async move {
            let path = format!("/apis/apps/v1/namespaces/{namespace}/daemonsets/{}", named.name);
            (named, session.connection.send(Call::get(path)).await)
        });
        let answers: Vec<_> = asked.buffer_unordered(DRY_RUNS).collect().await;
        for (named, answer) in answers {
            let found = match answer.map(|raw| raw.decode::<wire::OnlyMeta>()) {
                Ok(Ok(only)) => {
                    let uid = only.metadata.and_then(|meta| meta.uid.as_deref().and_then(Uid::new));
                    if uid.as_ref() == Some(&named.uid) { DaemonSet::There } else { DaemonSet::Absent }
                }
                Ok(Err(error)) => DaemonSet::Unread(error_chain(&error)),
                Err(error) if error.is_not_found() => DaemonSet::Absent,
                Err(error) if error.code() == Some(403) => {
                    let right = right("get", "daemonsets");
                    let why = format!("you may not {right}");
                    if !self.missing.contains(&right) {
                        self.missing.push(right);
                    }
                    DaemonSet::Unread(why)
                }
                Err(error) => return Err(anyhow::Error::from(error).context("reading a DaemonSet")),
            };
            self.daemon_sets.insert(named.uid.clone(), found);
        }
        Ok(())
    }

    fn cluster<'a>(&'a self, guard: &'a ViewGuard<'_>) -> Cluster<'a> {
        Cluster {
            view: guard.view(),
            needs: &self.needs,
            rooms: &self.rooms,
            daemon_sets: &self.daemon_sets,
            budgets_unread: self.lacks(Kind::Budgets),
            now: self.snapshot.at(),
        }
    }

    /// The plan by what was read.
    pub(crate) fn plan(&self, node: &str, consent: &Consent) -> Plan {
        let guard = self.snapshot.view();
        plan(node, &self.cluster(&guard), consent)
    }

    /// Says of each pod to skip that is not there: it may have gone, and may be mistyped.
    pub(crate) fn say_what_is_not_there(&self, node: &str, consent: &Consent) {
        let guard = self.snapshot.view();
        for (namespace, name) in &consent.skip {
            let is_it = |pod: &Pod| *pod.key.namespace == **namespace && *pod.key.name == **name;
            if !guard.view().pods_on(node).any(is_it) {
                say(&format!("pod-safety: --skip {namespace}/{name}: no such pod is on node {node}"));
            }
        }
    }

    /// The pods that are on the node.
    pub(super) fn on(&self, node: &str) -> BTreeSet<Uid> {
        self.snapshot.view().view().pods_on(node).map(|pod| pod.uid().clone()).collect()
    }

    /// What a pod needs, wherever it is.
    pub(super) fn needs_of(&self, pod: &Uid) -> Option<&Needs> {
        self.needs.get(pod)
    }

    /// Whether the successor of a pod that goes may come back.
    pub(super) fn comes_back(&self, mut plan: Plan) -> bool {
        self.place(&mut plan);
        plan.rows.iter().any(|row| row.may_come_back)
    }

    /// Asks the API server what it would say to each eviction.
    /// Gives back which rights are missing for it, and for the plan.
    pub(super) async fn ask(&self, session: &Session, plan: &mut Plan) -> Vec<Right> {
        let asked: Vec<(usize, Eviction)> =
            plan.asks().map(|(index, pod)| (index, Eviction { pod: pod.clone(), dry_run: true })).collect();
        let answers = stream::iter(asked).map(|(index, eviction)| async move {
            let deadline = session.env.now() + PATIENCE;
            (index, evict(&session.connection, &session.env, &eviction, deadline).await)
        });
        let answers: Vec<_> = answers.buffer_unordered(DRY_RUNS).collect().await;
        let mut missing = self.missing.clone();
        for (index, answer) in &answers {
            match answer.as_ref().err().and_then(lacked) {
                Some(right) if missing.contains(&right) => {}
                Some(right) => missing.push(right),
                None => plan.heard(*index, answer),
            }
        }
        plan.order();
        missing
    }

    /// Whether the plan may be carried out: says all of what is missing at once, before anything is changed.
    pub(crate) async fn may_apply(&self, session: &Session, plan: &Plan) -> anyhow::Result<()> {
        if !self.missing.is_empty() {
            say(&format!("pod-safety: {}", rights::lacking(&self.missing)));
        }
        let tried = plan.rows.iter().filter(|row| row.is_tried());
        let namespaces: BTreeSet<&str> = tried.map(|row| &*row.pod.namespace).collect();
        let lacking = lacking_for_drain(&session.connection, &namespaces).await;
        if lacking.is_empty() {
            return Ok(());
        }
        let advice = rights::to_ask_for("drain").unwrap_or_default();
        bail!("{}; {advice}", rights::lacking(&[self.missing.clone(), lacking].concat()));
    }

    /// Looks where what goes would go.
    pub(super) fn place(&self, plan: &mut Plan) {
        plan.place(&self.cluster(&self.snapshot.view()));
        if self.lacks(Kind::Nodes) {
            // Where nobody looked there may be room.
            plan.rows
                .iter_mut()
                .filter(|row| row.place != Some(Place::NotAgain))
                .for_each(|row| row.place = None);
        }
    }
}

/// What a pod needs, if it can be read.
fn needs_of(raw: &wire::Raw) -> Option<(Uid, Needs)> {
    let pod: wire::PodNeeds = raw.decode().ok()?;
    let uid = pod.metadata.as_ref()?.uid.as_deref().and_then(Uid::new)?;
    Some((uid, Needs::of(pod)))
}
