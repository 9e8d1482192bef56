//! The cluster as it was when it was asked: for commands that look once.
//!
//! Invariant: every list is a consistent read, and one that fails is an error, not
//! an empty kind.

use std::sync::Arc;

use super::feed::page;
use super::kinds::of_kind;
use super::object::{Object, Undecodable};
use super::{Cache, ScaleAnswer, ViewGuard};
use crate::client::{ApiError, Connection};
use crate::clock::{Env, Mono};
use crate::model::{Controller, Kind};
use crate::record::error_chain;
use crate::wire::Raw;

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

/// A cache that was filled once and is not kept up.
#[derive(Debug)]
pub struct Snapshot {
    cache: Cache,
    at: Mono,
}

impl Snapshot {
    /// Lists `kinds`, in a namespace or in all of them. `each` hears of every object,
    /// for what decisions do not keep.
    ///
    /// # Errors
    /// A list failed.
    pub async fn read(
        connection: &Connection,
        env: &Env,
        kinds: &[Kind],
        namespace: Option<&str>,
        each: &mut (dyn FnMut(Kind, &Raw) + Send),
    ) -> Result<Self, SnapshotError> {
        let cache = Cache::default();
        cache.select();
        for &kind in kinds {
            of_kind!(kind, T => {
                cache.begin_list::<T>();
                let apply = &mut |raw: Raw| {
                    each(kind, &raw);
                    cache.put_raw::<T>(&raw, env.now());
                };
                page(connection, env, kind.path_in(namespace), apply)
                    .await
                    .map_err(|source| SnapshotError { kind, namespace: namespace.map(str::to_owned), source })?;
                cache.end_list::<T>(env.now());
            });
        }
        // Now everything is as young as the last list: a person's question takes seconds.
        for kind in kinds {
            cache.heard(*kind, env.now());
        }
        Ok(Self { cache, at: env.now() })
    }

    /// What decisions see.
    #[must_use]
    pub fn view(&self) -> ViewGuard<'_> {
        self.cache.read()
    }

    /// What the scale of a controller said, which no list has.
    pub(crate) fn scaled(&self, namespace: &Arc<str>, controller: &Arc<Controller>, answer: ScaleAnswer) {
        self.cache.scaled(namespace, controller, answer);
    }

    /// Whether its scale was asked.
    pub(crate) fn is_scaled(&self, of: &(Arc<str>, Arc<Controller>)) -> bool {
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
    pub(super) fn put_raw<T: Object>(&self, raw: &Raw, now: Mono) -> Option<String> {
        match raw.decode::<T::Wire>() {
            Ok(wire) => {
                let version = T::meta(&wire).and_then(|meta| meta.resource_version.clone());
                self.apply::<T>(wire, now);
                version
            }
            Err(error) => {
                let undecodable = Undecodable::of(raw, error_chain(&error));
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
    use crate::client::scripted::{Answer, Api, env};
    use crate::testing::objects::pod;

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
        let mut heard = 0;
        let kinds = [Kind::Pods, Kind::Budgets];
        let mut each = |_kind: Kind, _raw: &Raw| heard += 1;
        let snapshot = Snapshot::read(&api.connection(), &env, &kinds, Some("ns"), &mut each).await.unwrap();
        assert_eq!(heard, 2);
        assert_eq!(snapshot.view().view().count(Kind::Pods), (1, 1));
        assert!(snapshot.view().view().fresh(Kind::Budgets, snapshot.at()).is_ok());
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
}
