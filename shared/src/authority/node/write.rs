//! The turn of a node: read, compared, and written in at most two steps.

use std::fmt;

use pod_safety_fence::witness::{ask_lease, sample};
use pod_safety_leader::outcome::Outcome;
use pod_safety_leader::send::Means;
use pod_safety_proof::{EvidenceKind, WholeNode};
use serde_json::json;

use super::live::Live;
use super::{Effect, NodeUpdate, OurTaint, conditions, taints};
use crate::client::{ApiError, Call, Method, WriteCall as _};
use crate::wire::Raw;

/// What was changed before it ended so. The status may be written where the rest was not: what is missing then is
/// what the next decision asks for.
#[derive(Debug, Default)]
pub(in crate::authority) struct Done {
    /// The kubelet's conditions became Unknown.
    pub(in crate::authority) silent: bool,
    /// Our condition says this now.
    pub(in crate::authority) unreachable: Option<bool>,
    pub(in crate::authority) added: Vec<OurTaint>,
    pub(in crate::authority) removed: Vec<OurTaint>,
    pub(in crate::authority) labels: Vec<String>,
    /// Of a volume: how its holder's life was found to be over.
    pub(in crate::authority) found: Option<EvidenceKind>,
    /// Of an eviction: what the API server said to it.
    pub(in crate::authority) said: Option<String>,
    /// It was Ready until we called it silent: what its kubelet says itself, that tells itself.
    pub(in crate::authority) turned_not_ready: bool,
}

impl Done {
    /// Nothing.
    pub(in crate::authority) fn is_nothing(&self) -> bool {
        let Self { silent, unreachable, added, removed, labels, turned_not_ready: _, found: _, said: _ } =
            self;
        !silent && unreachable.is_none() && added.is_empty() && removed.is_empty() && labels.is_empty()
    }

    /// The reason for it in one CamelCase word.
    pub(in crate::authority) fn reason(&self) -> &'static str {
        if self.silent {
            "KubeletNotReporting"
        } else if !self.added.is_empty() || !self.removed.is_empty() {
            "Taints"
        } else if self.unreachable.is_some() {
            "NodeUnreachable"
        } else {
            "Labels"
        }
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taints = |taints: &[OurTaint]| {
            let taints = taints.iter().map(|(key, effect)| format!("{key}:{}", Effect::name(*effect)));
            taints.collect::<Vec<_>>().join(", ")
        };
        let mut said = Vec::new();
        if self.silent {
            said.push("Ready and the pressures are Unknown".to_owned());
        }
        if let Some(unreachable) = self.unreachable {
            said.push(format!("NodeUnreachable is {}", if unreachable { "True" } else { "False" }));
        }
        if !self.added.is_empty() {
            said.push(format!("added {}", taints(&self.added)));
        }
        if !self.removed.is_empty() {
            said.push(format!("removed {}", taints(&self.removed)));
        }
        if !self.labels.is_empty() {
            said.push(format!("labelled with {}", self.labels.join(", ")));
        }
        f.write_str(&said.join("; "))
    }
}

/// Carries an update out; gives back how that went, and what of it was done.
pub(in crate::authority) async fn write(means: &Means<'_>, update: &NodeUpdate) -> (Outcome, Done) {
    let mut done = Done::default();
    let outcome = match carry_out(means, update, &mut done).await {
        Ok(outcome) | Err(outcome) => outcome,
    };
    (outcome, done)
}

async fn carry_out(means: &Means<'_>, update: &NodeUpdate, done: &mut Done) -> Result<Outcome, Outcome> {
    let read = look(means, update).await?;
    let version = read.version().to_owned();
    let live = write_status(means, update, read, done).await?;
    write_rest(means, update, &live, done).await?;
    Ok(match (done.is_nothing(), version == update.rv.to_string()) {
        (false, _) => Outcome::Written,
        // The node is as wished already. What was decided from is over, or says so itself: then nothing ever comes of it.
        (true, false) => Outcome::Changed,
        (true, true) => Outcome::NoEffect,
    })
}

/// The quorum read, and whether it bears the decision out.
async fn look(means: &Means<'_>, update: &NodeUpdate) -> Result<Live, Outcome> {
    let node = means.ask(Call::get(path(update)).whole());
    let Some(silence) = &update.silent else {
        let live = identified(node.await?, update)?;
        let same = live.bears_out(update, means.cache, means.env.now());
        return if same { Ok(live) } else { Err(Outcome::Changed) };
    };
    let (node, lease) = futures::future::join(node, means.ask(ask_lease(&update.node.name))).await;
    let (live, lease) = (identified(node?, update)?, sample(lease?).map_err(Outcome::Failed)?);
    // It rests on this comparison, not on the version: others write to a silent node too, for instance which volumes
    // are attached to it.
    match live.was_heard(silence, &lease) {
        Ok(false) => Ok(live),
        Ok(true) => Err(Outcome::Heard),
        Err(error) => Err(Outcome::Failed(error)),
    }
}

/// The node, if it is the one that was decided about.
fn identified(answer: Result<Raw, ApiError>, update: &NodeUpdate) -> Result<Live, Outcome> {
    let live = read(answer.map_err(Outcome::of)?)?;
    if live.meta("uid") == Some(&*update.node.uid.to_string()) { Ok(live) } else { Err(Outcome::Gone) }
}

async fn write_status(
    means: &Means<'_>,
    update: &NodeUpdate,
    live: Live,
    done: &mut Done,
) -> Result<Live, Outcome> {
    let change = conditions::change(update, &live, means.env.now(), means.env.clock.wall());
    if change.conditions.is_empty() {
        return Ok(live);
    }
    let body = json!({
        "metadata": { "uid": update.node.uid, "resourceVersion": live.version() },
        "status": { "conditions": change.conditions },
    });
    let call = Call::write(Method::Patch, format!("{}/status", path(update)), &body);
    let answer = read(means.send(call, None).await?)?;
    // What somebody between undid is no ground for taints.
    let unknown = answer.says("Ready") == Some(conditions::UNKNOWN);
    if answer.version() == live.version() || (change.silent && !unknown) {
        return Err(Outcome::NoEffect);
    }
    (done.silent, done.unreachable) = (change.silent, change.unreachable);
    done.turned_not_ready = change.turned_not_ready;
    Ok(answer)
}

async fn write_rest(
    means: &Means<'_>,
    update: &NodeUpdate,
    live: &Live,
    done: &mut Done,
) -> Result<(), Outcome> {
    let Some(change) = taints::change(update, live, means.env.clock.wall()) else { return Ok(()) };
    let taints::Change { labels, taints, added, removed } = change;
    let named = labels.keys().cloned().collect();
    let mut body = json!({ "metadata": { "uid": update.node.uid, "resourceVersion": live.version() } });
    if !labels.is_empty() {
        body["metadata"]["labels"] = labels.into();
    }
    if let Some(taints) = taints {
        body["spec"] = json!({ "taints": taints });
    }
    // The guard reads the bytes: a list that keeps an out-of-service taint needs a permit.
    let kept = WholeNode::new(&update.node.name, live.whole()).keeps(body.clone());
    let call = kept.map_or_else(|| Call::write(Method::Patch, path(update), &body), Call::permitted);
    let answer = Live::read(means.send(call, None).await?);
    if answer.is_ok_and(|answer| answer.version() == live.version()) {
        return Err(Outcome::NoEffect);
    }
    (done.added, done.removed, done.labels) = (added, removed, named);
    Ok(())
}

fn read(raw: Raw) -> Result<Live, Outcome> {
    Live::read(raw).map_err(Outcome::Failed)
}

fn path(update: &NodeUpdate) -> String {
    format!("/api/v1/nodes/{}", update.node.name)
}
