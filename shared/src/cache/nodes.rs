//! How nodes are kept: their readiness, and since when they bear which taints.

use std::sync::Arc;
use std::time::Duration;

use super::object::{Identity, Object, ProjectError, Tell, Undecodable, identity};
use super::table::{Entry, Table};
use super::wall::Wall;
use super::{Change, Inner};
use crate::clock::Mono;
use crate::model::{Interner, Kind, NO_EXECUTE, Node, OUT_OF_SERVICE_TAINT, Readiness, Taint, Uid};
use crate::wire;

fn project_node(
    meta: &wire::ObjectMeta,
    spec: &wire::NodeSpec,
    status: &wire::NodeStatus,
    interner: &mut Interner,
    now: Mono,
) -> Result<Node, ProjectError> {
    let Identity { uid, rv, name } = identity(meta)?;
    let ready = status.conditions.iter().find(|condition| condition.r#type.as_deref() == Some("Ready"));
    let readiness = ready.map_or(Readiness::Missing, |ready| match ready.status.as_deref() {
        Some("True") => Readiness::Ready,
        Some("False") => Readiness::NotReady,
        _ => Readiness::Unknown,
    });
    let out_of_service = spec.taints.iter().any(|taint| taint.key.as_deref() == Some(OUT_OF_SERVICE_TAINT));
    let no_execute = spec.taints.iter().filter(|taint| taint.effect.as_deref() == Some(NO_EXECUTE));
    let no_execute = no_execute.map(|taint| project_taint(taint, interner, now)).collect();
    Ok(Node { name: interner.intern(&name), uid, rv, readiness, out_of_service, no_execute })
}

/// Its age is known when it is clear that it is new: see [`Object::put`].
fn project_taint(taint: &wire::Taint, interner: &mut Interner, now: Mono) -> Taint {
    let mut text = |text: &Option<String>| interner.intern(text.as_deref().unwrap_or_default());
    let (key, value) = (text(&taint.key), text(&taint.value));
    // Before 1970 nobody added taints.
    let time_added = taint.time_added.map(wire::Time::whole_seconds).filter(|seconds| *seconds > 0);
    Taint { key, value, time_added, first_seen: now, age: Duration::ZERO }
}

/// Keeps since when taints are known that were there before, and finds out how old
/// the others are.
fn date_taints(taints: &mut [Taint], before: &[Taint], wall: Wall, now: Mono) {
    for taint in taints {
        match (before.iter().find(|earlier| taint.continues(earlier)), taint.time_added) {
            (Some(earlier), _) => (taint.first_seen, taint.age) = (earlier.first_seen, earlier.age),
            (None, Some(seconds)) => taint.age = wall.age(seconds, now),
            (None, None) => {}
        }
    }
}

impl Object for Node {
    type Wire = wire::Node;
    type Kept = Self;
    const KIND: Kind = Kind::Nodes;

    fn project(wire: wire::Node, interner: &mut Interner, now: Mono) -> Result<Self, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        let (spec, status) = (wire.spec.unwrap_or_default(), wire.status.unwrap_or_default());
        project_node(&meta, &spec, &status, interner, now)
            .map_err(|error| Undecodable::from_meta(&meta, &error))
    }

    fn meta(wire: &wire::Node) -> Option<&wire::ObjectMeta> {
        wire.metadata.as_ref()
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.nodes
    }

    fn put(inner: &mut Inner, mut node: Self, now: Mono, tell: Tell<'_>) {
        let (uid, name) = (node.uid.clone(), Arc::clone(&node.name));
        let known = inner.nodes.known(&uid);
        date_taints(&mut node.no_execute, known.map_or(&[], |before| &before.no_execute), inner.wall, now);
        let noise = known.is_some_and(|before| Self { rv: node.rv, ..before.clone() } == node);
        let taints = known.is_none_or(|before| before.no_execute != node.no_execute);
        inner.nodes.put(uid.clone(), Entry::Known(node));
        inner.node_index.add(&name, &uid);
        inner.recheck_absence(&name, now);
        if !noise {
            tell(Change::Node { name: &name, taints });
        }
    }

    fn put_undecodable(inner: &mut Inner, undecodable: Undecodable, now: Mono, tell: Tell<'_>) {
        let (Some(uid), Some(name)) = (undecodable.uid, undecodable.name) else {
            return inner.nodes.put_unidentified();
        };
        let name = inner.interner.intern(&name);
        inner.nodes.put(uid.clone(), Entry::Undecodable(undecodable.why.into()));
        inner.node_index.add(&name, &uid);
        inner.recheck_absence(&name, now);
        tell(Change::Node { name: &name, taints: true });
    }

    fn take(inner: &mut Inner, uid: &Uid, now: Mono, tell: Tell<'_>) {
        if inner.nodes.take(uid).is_none() {
            return;
        }
        // An undecodable node has no name of its own here; its index entry has.
        let Some(name) = inner.node_index.name_of(uid) else { return };
        inner.node_index.remove(&name, uid);
        inner.recheck_absence(&name, now);
        tell(Change::Node { name: &name, taints: true });
    }
}
