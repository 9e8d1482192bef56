//! Records every version of objects.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt as _};
use pod_safety_control_plane::{check_that, observe, wait_until};
use tokio::task::JoinSet;

/// The objects that a watch delivered.
struct WatchedVersions<K> {
    versions: Vec<K>,
    /// The last version of each object, by namespace and name.
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

/// Versions of one API server are ordered.
fn version<K: Resource>(object: &K) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}

impl<K> Trace<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// Starts the watch.
    pub(crate) async fn start(api: Api<K>) -> Self {
        let from = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        let watched = WatchedVersions { versions: Vec::new(), last: BTreeMap::new() };
        let watched = Arc::new(Mutex::new(watched));
        let (watcher, mut watch) = (Arc::clone(&watched), JoinSet::new());
        watch.spawn(observe::watch_all_versions(api.clone(), from, move |object: &K, _gone| {
            let mut watched = watcher.lock().unwrap();
            watched.last.insert(key(object), version(object));
            watched.versions.push(object.clone());
        }));
        Self { api, watched, _watch: watch }
    }

    /// Every version since the last call, up to the current ones.
    pub(crate) async fn drain_versions(&self) -> Vec<K> {
        let now = self.api.list(&ListParams::default()).await.unwrap().items;
        wait_until("the watch has brought what is listed", async || {
            let watched = self.watched.lock().unwrap();
            let lacks = now.iter().find(|object| {
                // Objects from before the watch have no version yet.
                watched.last.get(&key(*object)).is_some_and(|last| *last < version(*object))
            });
            check_that(lacks.is_none(), format!("not {:?}", lacks.map(key)))
        })
        .await;
        std::mem::take(&mut self.watched.lock().unwrap().versions)
    }
}
