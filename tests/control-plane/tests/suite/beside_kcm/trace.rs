//! Every version that objects had.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt as _};
use pod_safety_control_plane::{check_that, observe, until};
use tokio::task::JoinSet;

/// What a watch has brought.
struct WatchedVersions<K> {
    versions: Vec<K>,
    /// Of each object, by namespace and name, the last version.
    last: BTreeMap<(String, String), u64>,
}

/// Dropping it ends the watch.
pub(crate) struct Trace<K> {
    api: Api<K>,
    watched: Arc<Mutex<WatchedVersions<K>>>,
    _watch: JoinSet<()>,
}

fn key<K: Resource>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Versions of one API server can be compared.
fn version<K: Resource>(object: &K) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}

impl<K> Trace<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// From now on.
    pub(crate) async fn start(api: Api<K>) -> Self {
        let from = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        let brought = WatchedVersions { versions: Vec::new(), last: BTreeMap::new() };
        let brought = Arc::new(Mutex::new(brought));
        let (hears, mut watch) = (Arc::clone(&brought), JoinSet::new());
        watch.spawn(observe::watch_all_versions(api.clone(), from, move |object: &K, _gone| {
            let mut brought = hears.lock().unwrap();
            brought.last.insert(key(object), version(object));
            brought.versions.push(object.clone());
        }));
        Self { api, watched: brought, _watch: watch }
    }

    /// Every version since the last call, up to those that there are now.
    pub(crate) async fn drain_versions(&self) -> Vec<K> {
        let now = self.api.list(&ListParams::default()).await.unwrap().items;
        until("the watch has brought what is listed", async || {
            let brought = self.watched.lock().unwrap();
            let lacks = now.iter().find(|object| {
                // What was there before the watch has no version yet.
                brought.last.get(&key(*object)).is_some_and(|last| *last < version(*object))
            });
            check_that(lacks.is_none(), format!("not {:?}", lacks.map(key)))
        })
        .await
        .unwrap();
        std::mem::take(&mut self.watched.lock().unwrap().versions)
    }
}
