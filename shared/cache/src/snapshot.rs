//! The cluster as a one-off read, for commands that do not watch.
//!
//! Invariant: every list is a consistent read, and one that fails is an error, not an empty kind.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::feed::{first_limit, read_page};
use super::object::{HasMeta, Object, Undecodable};
use super::{Cache, CacheWriter as _, ScaleAnswer, ViewGuard};
use crate::clock::{Env, Mono};
use crate::model::{Controller, Kind, Uid};
use crate::wire::Raw;

use pod_safety_client::{ApiError, Connection, error_chain, page_path};

/// Why a snapshot could not be read.
#[derive(Debug, thiserror::Error)]
#[error("listing {}{}", kind.resource(), namespace.as_ref().map(|name| format!(" of namespace {name}")).unwrap_or_default())]
pub struct SnapshotError {
    /// The kind.
    pub kind: Kind,
    /// The namespace; `None`: all namespaces.
    pub namespace: Option<String>,
    /// The error.
    #[source]
    pub source: ApiError,
}

/// A kind that could not be read, or not in all namespaces.
#[derive(Debug)]
pub struct UnreadKind {
    /// The error of the list over all namespaces.
    pub error: SnapshotError,
    /// The one namespace in which the kind could be read.
    pub read_in: Option<String>,
}

/// A snapshot's monotonic time starts this long before its first read, so that older timestamps can be converted.
const TIME_OFFSET: Duration = Duration::from_secs(10 * 365 * 86_400);

/// A cache that is filled once and not updated.
#[derive(Debug)]
pub struct Snapshot {
    cache: Cache,
    at: Mono,
}

/// Is called with every raw object, for fields that the cache does not keep.
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

    /// Lists `kinds` in all namespaces as far as allowed. A kind that is forbidden, or that this cluster does not
    /// have, counts as not listed, and decisions that need it hold. A kind that may not be read in all namespaces is
    /// read in `namespace`, if one is given.
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
            let read =
                read.map_err(|source| SnapshotError { kind, namespace: namespace.map(str::to_owned), source })?;
            if read.continue_token().is_empty() {
                break;
            }
            read.continue_token().clone_into(&mut token);
        }
        self.cache.end_list_of_kind(kind, env.now() + TIME_OFFSET);
        Ok(())
    }

    /// Sets the time of the snapshot: every kind is as current as the last list, because reading takes seconds.
    /// Without a watch, only timestamps tell for how long a node has not reported.
    fn complete(mut self, env: &Env, read: impl Iterator<Item = Kind>) -> Self {
        self.at = env.now() + TIME_OFFSET;
        for kind in read {
            self.cache.record_event(kind, self.at);
        }
        self.cache.apply_timestamps(self.at);
        self
    }

    /// Objects of other namespaces that were read before stay, and no decision uses their devices.
    pub fn restrict_fencing_to(&self, namespaces: BTreeSet<String>) {
        self.cache.restrict_fencing_to(namespaces);
    }

    /// Adds an object that does not exist, to compute what would be decided if it did.
    pub fn insert_hypothetical(&self, kind: Kind, object: &Raw) {
        drop(self.cache.apply_wire(kind, object, self.at));
    }

    /// Removes the object of this kind with this UID.
    pub fn remove(&self, kind: Kind, uid: &Uid) {
        self.cache.remove_of_kind(kind, uid, self.at);
    }

    /// The view that decisions read.
    #[must_use]
    pub fn view(&self) -> ViewGuard<'_> {
        self.cache.read()
    }

    /// Adds the answer of a controller's scale subresource, which no list contains.
    pub fn record_scale(&self, namespace: &Arc<str>, controller: &Arc<Controller>, answer: ScaleAnswer) {
        let ScaleAnswer { requested_at, answered_at, scale } = answer;
        let answer =
            ScaleAnswer { requested_at: requested_at + TIME_OFFSET, answered_at: answered_at + TIME_OFFSET, scale };
        self.cache.record_scale(namespace, controller, answer);
    }

    /// Whether the scale of this controller was read.
    #[must_use]
    pub fn has_scale(&self, of: &(Arc<str>, Arc<Controller>)) -> bool {
        self.cache.inner.read().scales.contains_key(of)
    }

    /// When the snapshot was complete.
    #[must_use]
    pub const fn at(&self) -> Mono {
        self.at
    }
}

impl Cache {
    /// Stores a wire object and returns its version; one that cannot be decoded is kept as unknown.
    pub(super) fn decode_and_apply<T: Object>(&self, raw: &Raw, now: Mono) -> Option<String> {
        match raw.decode::<T::Wire>() {
            Ok(wire) => {
                let version = HasMeta::meta(&wire).and_then(|meta| meta.resource_version.clone());
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
    async fn a_snapshot_contains_the_listed_objects_and_visits_each_raw_object() {
        let (env, _wall) = env();
        let api = Api::new(&env, |request| async move {
            match request.path.as_str() {
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
    async fn a_failed_list_is_an_error_and_not_an_empty_kind() {
        let (env, _wall) = env();
        let api = Api::new(&env, |_| async { Answer::status(403, "Forbidden", "no") });
        let nothing = &mut |_: Kind, _: &Raw| {};
        let error = Snapshot::read(&api.connection(), &env, &[Kind::Pods], None, nothing).await.unwrap_err();
        assert_eq!(error_chain(&error), "listing pods: the API server answered 403 Forbidden: no");
    }

    /// A user who may read one namespace gets that one, and the rest is reported as unread; missing CRDs of
    /// pod-safety are no error.
    #[tokio::test(start_paused = true)]
    async fn a_forbidden_or_missing_kind_is_reported_as_unread_and_not_as_absent() {
        let (env, _wall) = env();
        let api = Api::new(&env, |request| async move {
            match request.path.as_str() {
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
    async fn only_an_optional_kind_may_answer_404() {
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
    fn a_snapshot_fences_only_from_the_given_namespaces() {
        let (env, _wall) = env();
        let snapshot = Snapshot::empty(&env);
        snapshot.restrict_fencing_to(["pod-safety".to_owned()].into());
        let from = |namespace: &str| snapshot.view().view().is_fencing_namespace(namespace);
        assert_eq!((from("pod-safety"), from("tenant")), (true, false));
    }

    /// A one-off read has not observed when the node stopped reporting: the timestamps tell it.
    #[tokio::test(start_paused = true)]
    async fn a_snapshot_takes_the_last_report_of_a_node_from_its_timestamps() {
        let (env, wall) = env();
        wall.set("2026-01-01T00:10:00Z");
        let node = crate::testing::objects::node("n").0;
        let lease = crate::testing::objects::lease("n", 30).0;
        let api = Api::new(&env, move |request| {
            let item = if request.path.ends_with("nodes") { node.clone() } else { lease.clone() };
            async move { Answer::json(&json!({ "metadata": { "resourceVersion": "9" }, "items": [item] })) }
        });
        let nothing = &mut |_: Kind, _: &Raw| {};
        let kinds = [Kind::Nodes, Kind::NodeLeases];
        let snapshot = Snapshot::read(&api.connection(), &env, &kinds, None, nothing).await.unwrap();
        let guard = snapshot.view();
        let crate::Lookup::Known(node) = guard.view().node("n") else { panic!("the node") };
        let unreachable_for = snapshot.at().since(guard.view().last_report(node)).as_secs();
        assert_eq!(unreachable_for, 570);
    }
}
