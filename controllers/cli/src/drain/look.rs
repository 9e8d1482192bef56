//! What the API server has, read once, and its answers to dry runs.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use futures::StreamExt;
use futures::stream;
use pod_safety_drain::{Cluster, Consent, Needs, Plan, Room, plan};
use pod_safety_shared::authority::{Eviction, evict};
use pod_safety_shared::cache::{Lookup, Snapshot, ViewGuard};
use pod_safety_shared::model::{Kind, Uid};
use pod_safety_shared::wire;

use crate::cluster::Session;
use crate::helped::{Named, NotThere};
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
}

impl Look {
    /// Reads everything that a plan rests on.
    pub(crate) async fn at(session: &Session, node: &str) -> anyhow::Result<Self> {
        let (mut needs, mut rooms) = (BTreeMap::new(), Vec::new());
        let mut each = |kind: Kind, raw: &wire::Raw| match kind {
            Kind::Pods => needs.extend(needs_of(raw)),
            Kind::Nodes => rooms.extend(raw.decode().ok().and_then(Room::of)),
            _ => {}
        };
        let reading = Snapshot::read(&session.connection, &session.env, &KINDS, None, &mut each);
        let snapshot = waiting(|| "all nodes and pods to be read".to_owned(), reading).await?;
        let look = Self { snapshot, needs, rooms };
        match look.snapshot.view().view().node(node) {
            Lookup::Known(_) => {}
            Lookup::Unknown(why) => bail!("node {node} cannot be read: {why}"),
            Lookup::Absent => bail!(NotThere::new(Named::Node, None, node)),
        }
        // What budgets let through with every pod healthy rests on all of their pods.
        let scales = session.ask_scales(&look.snapshot, |view| {
            view.pods_on(node).flat_map(|pod| view.budgets_of_pod(pod)).collect()
        });
        scales.await;
        Ok(look)
    }

    fn cluster<'a>(&'a self, guard: &'a ViewGuard<'_>) -> Cluster<'a> {
        Cluster { view: guard.view(), needs: &self.needs, rooms: &self.rooms, now: self.snapshot.at() }
    }

    /// The plan by what was read.
    pub(crate) fn plan(&self, node: &str, consent: &Consent) -> anyhow::Result<Plan> {
        let guard = self.snapshot.view();
        for (namespace, name) in &consent.skip {
            let named = |pod: &pod_safety_shared::model::Pod| {
                *pod.key.namespace == **namespace && *pod.key.name == **name
            };
            if !guard.view().pods_on(node).any(named) {
                bail!("--skip {namespace}/{name}: there is no such pod on node {node}");
            }
        }
        Ok(plan(node, &self.cluster(&guard), consent))
    }

    /// Asks the API server what it would say to each eviction.
    pub(super) async fn ask(&self, session: &Session, plan: &mut Plan) {
        let asked: Vec<(usize, Eviction)> =
            plan.asks().map(|(index, pod)| (index, Eviction { pod: pod.clone(), dry_run: true })).collect();
        let answers = stream::iter(asked).map(|(index, eviction)| async move {
            let deadline = session.env.now() + PATIENCE;
            (index, evict(&session.connection, &session.env, &eviction, deadline).await)
        });
        let answers: Vec<_> = answers.buffer_unordered(DRY_RUNS).collect().await;
        for (index, answer) in &answers {
            plan.heard(*index, answer);
        }
        plan.order();
    }

    /// Looks where what goes would go.
    pub(super) fn place(&self, plan: &mut Plan) {
        plan.place(&self.cluster(&self.snapshot.view()));
    }
}

/// What a pod needs, if it can be read.
fn needs_of(raw: &wire::Raw) -> Option<(Uid, Needs)> {
    let pod: wire::PodNeeds = raw.decode().ok()?;
    let uid = pod.metadata.as_ref()?.uid.as_deref().and_then(Uid::new)?;
    Some((uid, Needs::of(pod)))
}
