//! The cluster as it was when it was asked: for commands that look once.
//!
//! Invariant: every list is a consistent read, and one that fails is an error, not
//! an empty kind.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::feed::{first_limit, read_page};
use super::object::{Object, Undecodable};
use super::{Cache, CacheWriter as _, ScaleAnswer, ViewGuard};
use crate::clock::{Env, Mono};
use crate::model::{Controller, Kind, Uid};
use crate::wire::Raw;

use pod_safety_client::{ApiError, Connection, error_chain, page_path};

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
#[error("listing {}{}", kind.resource(), namespace.as_ref().map(|name| format!(" of namespace {name}")).unwrap_or_default())]
pub struct SnapshotError {
    /// Of which kind.
    pub kind: Kind,
    /// In which namespace; `None`: in all of them.
    pub namespace: Option<String>,
    /// What went wrong.
    #[source]
    pub source: ApiError,
}

/// A kind that could not be read, or not in all namespaces.
#[derive(Debug)]
pub struct UnreadKind {
    /// What was refused.
    pub error: SnapshotError,
    /// The one namespace in which it was read all the same.
    pub read_in: Option<String>,
}

/// So long before the first read the time of a snapshot begins: what stamps say of the time before it has a place.
const TIME_OFFSET: Duration = Duration::from_secs(10 * 365 * 86_400);

/// A cache that was filled once and is not kept up.
#[derive(Debug)]
pub struct Snapshot {
    cache: Cache,
    at: Mono,
}

/// Hears of every object, for what decisions do not keep.
pub type ObjectVisitor<'a> = &'a mut (dyn FnMut(Kind, &Raw) + Send);

impl Snapshot {
    /// Lists `kinds`, in a namespace or in all of them.
    ///
    /// # Errors
    /// A list failed.
    pub async fn read(
        connection: &Connection,
        env: &Env,
        kinds: &[Kind],
        namespace: Option<&str>,
        each: ObjectVisitor<'_>,
    ) -> Result<Self, SnapshotError> {
        let snapshot = Self::empty(env);
        for &kind in kinds {
            snapshot.list(connection, env, kind, namespace, each).await?;
        }
        Ok(snapshot.complete(env, kinds.iter().copied()))
    }

    /// Lists `kinds` in all namespaces as far as that is allowed: a kind that is refused, or that this cluster does not
    /// have, counts as not listed, and decisions that need it hold. What may not be read in all namespaces is read in
    /// `namespace`, if one is given.
    ///
    /// # Errors
    /// The API server did not answer.
    pub async fn read_allowed(
        connection: &Connection,
        env: &Env,
        kinds: &[Kind],
        namespace: Option<&str>,
        each: ObjectVisitor<'_>,
    ) -> Result<(Self, Vec<UnreadKind>), SnapshotError> {
        let snapshot = Self::empty(env);
        let (mut read, mut unread) = (Vec::new(), Vec::new());
        for &kind in kinds {
            let Err(error) = snapshot.list(connection, env, kind, None, each).await else {
                read.push(kind);
                continue;
            };
            let missing = kind.is_optional() && error.source.code() == Some(404);
            if error.source.code() != Some(403) && !missing {
                return Err(error);
            }
            let mut only = None;
            if let Some(namespace) = namespace.filter(|_| !missing && kind.is_namespaced())
                && snapshot.list(connection, env, kind, Some(namespace), each).await.is_ok()
            {
                only = Some(namespace.to_owned());
                read.push(kind);
            }
            unread.push(UnreadKind { error, read_in: only });
        }
        Ok((snapshot.complete(env, read.into_iter()), unread))
    }

    fn empty(env: &Env) -> Self {
        let cache = Cache::default();
        cache.enable_budgets();
        cache.enable_fencing();
        cache.enable_evictions();
        let at = env.now() + TIME_OFFSET;
        cache.record_wall_time(at, env.clock.wall());
        Self { cache, at }
    }

    async fn list(
        &self,
        connection: &Connection,
        env: &Env,
        kind: Kind,
        namespace: Option<&str>,
        each: ObjectVisitor<'_>,
    ) -> Result<(), SnapshotError> {
        self.cache.begin_list_of_kind(kind);
        let apply = &mut |raw: Raw| {
            each(kind, &raw);
            drop(self.cache.apply_wire(kind, &raw, env.now() + TIME_OFFSET));
        };
        let (all, limit, mut token) = (kind.path_in(namespace), first_limit(kind), String::new());
        loop {
            let read = read_page(connection, env, page_path(&all, limit, &token), apply).await;
            let read = read.map_err(|source| SnapshotError {
                kind,
                namespace: namespace.map(str::to_owned),
                source,
            })?;
            if read.continue_token().is_empty() {
                break;
            }
            read.continue_token().clone_into(&mut token);
        }
        self.cache.end_list_of_kind(kind, env.now() + TIME_OFFSET);
        Ok(())
    }

    /// Now everything is as young as the last list: a person's question takes seconds. How long a node has been silent
    /// only stamps can say to whoever looks once.
    fn complete(mut self, env: &Env, read: impl Iterator<Item = Kind>) -> Self {
        self.at = env.now() + TIME_OFFSET;
        for kind in read {
            self.cache.record_event(kind, self.at);
        }
        self.cache.apply_timestamps(self.at);
        self
    }

    /// What was read of other namespaces is shown, and nothing is fenced from there.
    pub fn restrict_fencing_to(&self, namespaces: BTreeSet<String>) {
        self.cache.restrict_fencing_to(namespaces);
    }

    /// Adds an object that is not there: what would be decided if it were.
    pub fn insert_hypothetical(&self, kind: Kind, object: &Raw) {
        drop(self.cache.apply_wire(kind, object, self.at));
    }

    /// The object of this kind with this UID is not there any more.
    pub fn remove(&self, kind: Kind, uid: &Uid) {
        self.cache.remove_of_kind(kind, uid, self.at);
    }

    /// What decisions see.
    #[must_use]
    pub fn view(&self) -> ViewGuard<'_> {
        self.cache.read()
    }

    /// What the scale of a controller said, which no list has.
    pub fn record_scale(&self, namespace: &Arc<str>, controller: &Arc<Controller>, answer: ScaleAnswer) {
        let ScaleAnswer { requested_at: asked, answered_at: answered, scale } = answer;
        let answer =
            ScaleAnswer { requested_at: asked + TIME_OFFSET, answered_at: answered + TIME_OFFSET, scale };
        self.cache.record_scale(namespace, controller, answer);
    }

    /// Whether its scale was asked.
    #[must_use]
    pub fn has_scale(&self, of: &(Arc<str>, Arc<Controller>)) -> bool {
        self.cache.inner.read().scales.contains_key(of)
    }

    /// When it was complete.
    #[must_use]
    pub const fn at(&self) -> Mono {
        self.at
    }
}

impl Cache {
    /// An object as it came over the wire; one that cannot be read stays as unknown.
    pub(super) fn decode_and_apply<T: Object>(&self, raw: &Raw, now: Mono) -> Option<String> {
        match raw.decode::<T::Wire>() {
            Ok(wire) => {
                let version = T::meta(&wire).and_then(|meta| meta.resource_version.clone());
                self.apply::<T>(wire, now);
                version
            }
            Err(error) => {
                let undecodable = Undecodable::from_raw(raw, error_chain(&error));
                tracing::warn!(resource = T::KIND.resource(), object = ?undecodable, "an object cannot be decoded; it counts as unknown");
                self.apply_undecodable::<T>(undecodable, now);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::objects::pod;
    use pod_safety_client::scripted::{Answer, Api, env};

    #[tokio::test(start_paused = true)]
    async fn it_holds_what_was_listed_and_passes_everything_on() {
        let (env, _wall) = env();
        let api = Api::new(&env, |asked| async move {
            match asked.path.as_str() {
                "/api/v1/namespaces/ns/pods" => Answer::json(
                    &json!({ "metadata": { "resourceVersion": "9" }, "items": [pod("a").0, { "metadata": { "name": 7 } }] }),
                ),
                _ => Answer::json(&json!({ "metadata": { "resourceVersion": "9" }, "items": [] })),
            }
        });
        let mut visited = 0;
        let kinds = [Kind::Pods, Kind::Budgets];
        let mut each = |_kind: Kind, _raw: &Raw| visited += 1;
        let snapshot = Snapshot::read(&api.connection(), &env, &kinds, Some("ns"), &mut each).await.unwrap();
        assert_eq!(visited, 2);
        assert_eq!(snapshot.view().view().count(Kind::Pods), (1, 1));
        assert!(snapshot.view().view().check_fresh(Kind::Budgets, snapshot.at()).is_ok());
        assert_eq!(
            api.lines(),
            ["GET /api/v1/namespaces/ns/pods", "GET /apis/policy/v1/namespaces/ns/poddisruptionbudgets"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_fails_is_no_empty_cluster() {
        let (env, _wall) = env();
        let api = Api::new(&env, |_| async { Answer::status(403, "Forbidden", "no") });
        let nothing = &mut |_: Kind, _: &Raw| {};
        let error = Snapshot::read(&api.connection(), &env, &[Kind::Pods], None, nothing).await.unwrap_err();
        assert_eq!(error_chain(&error), "listing pods: the API server answered 403 Forbidden: no");
    }

    /// A person who may read one namespace gets that, and is told of the rest; a cluster without our kinds is no error.
    #[tokio::test(start_paused = true)]
    async fn what_may_not_be_read_is_named_and_not_taken_for_absent() {
        let (env, _wall) = env();
        let api = Api::new(&env, |asked| async move {
            match asked.path.as_str() {
                "/api/v1/pods" | "/api/v1/nodes" => Answer::status(403, "Forbidden", "no"),
                "/apis/pod-safety.dev/v1alpha1/nodefences" => Answer::status(404, "NotFound", "no"),
                _ => Answer::json(&json!({ "metadata": { "resourceVersion": "9" }, "items": [pod("a").0] })),
            }
        });
        let nothing = &mut |_: Kind, _: &Raw| {};
        let kinds = [Kind::Pods, Kind::Nodes, Kind::NodeFences];
        let read = Snapshot::read_allowed(&api.connection(), &env, &kinds, Some("ns"), nothing).await;
        let (snapshot, unread) = read.unwrap();
        let seen: Vec<_> = unread.iter().map(|one| (one.error.kind, one.read_in.as_deref())).collect();
        assert_eq!(seen, [(Kind::Pods, Some("ns")), (Kind::Nodes, None), (Kind::NodeFences, None)]);
        let guard = snapshot.view();
        assert_eq!(guard.view().count(Kind::Pods), (1, 0));
        assert!(guard.view().check_fresh(Kind::Nodes, snapshot.at()).is_err());
        assert!(matches!(guard.view().node("n"), crate::Lookup::Unknown(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_kind_of_ours_may_be_missing() {
        for (kind, code, fails) in [
            (Kind::NodeFences, 404, false),
            (Kind::NodeFences, 500, true),
            (Kind::Pods, 404, true),
            (Kind::Pods, 403, false),
        ] {
            let (env, _wall) = env();
            let api = Api::new(&env, move |_| async move { Answer::status(code, "No", "no") });
            let nothing = &mut |_: Kind, _: &Raw| {};
            let read = Snapshot::read_allowed(&api.connection(), &env, &[kind], None, nothing).await;
            assert_eq!(read.is_err(), fails, "{kind:?} {code}");
        }
    }

    #[test]
    fn what_others_put_into_their_namespaces_does_not_count() {
        let (env, _wall) = env();
        let snapshot = Snapshot::empty(&env);
        snapshot.restrict_fencing_to(["pod-safety".to_owned()].into());
        let from = |namespace: &str| snapshot.view().view().is_fencing_namespace(namespace);
        assert_eq!((from("pod-safety"), from("tenant")), (true, false));
    }

    /// Whoever looks once did not hear the node fall silent: its stamps say when.
    #[tokio::test(start_paused = true)]
    async fn how_long_a_node_is_silent_is_said_by_its_stamps() {
        let (env, wall) = env();
        wall.set("2026-01-01T00:10:00Z");
        let node = crate::testing::objects::node("n").0;
        let lease = crate::testing::objects::lease("n", 30).0;
        let api = Api::new(&env, move |asked| {
            let item = if asked.path.ends_with("nodes") { node.clone() } else { lease.clone() };
            async move { Answer::json(&json!({ "metadata": { "resourceVersion": "9" }, "items": [item] })) }
        });
        let nothing = &mut |_: Kind, _: &Raw| {};
        let kinds = [Kind::Nodes, Kind::NodeLeases];
        let snapshot = Snapshot::read(&api.connection(), &env, &kinds, None, nothing).await.unwrap();
        let guard = snapshot.view();
        let crate::Lookup::Known(node) = guard.view().node("n") else { panic!("the node") };
        let silent = snapshot.at().since(guard.view().last_report(node)).as_secs();
        assert_eq!(silent, 570);
    }
}
