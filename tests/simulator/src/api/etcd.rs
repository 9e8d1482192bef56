//! The log as the world holds it: one, whatever happens to the servers above it.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::admission::Policies;
use super::kinds::{Kind, Rules};
use super::log::Log;
use super::server::ApiServer;
use super::write::seconds;
use crate::chance::Chance;

/// How many changes are kept for watches and lists of the past.
const HISTORY: usize = 100_000;

/// The namespaces that every API server makes.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// One change, as checkers see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedChange {
    /// Its number.
    pub revision: u64,
    /// The kind, such as `Pod`.
    pub kind: String,
    /// `namespace/name`, or `name`.
    pub name: String,
    /// The object before; `None` if it is new.
    pub before: Option<Arc<Value>>,
    /// The object after; `None` if it is gone.
    pub after: Option<Arc<Value>>,
}

/// The store of all API servers of a cluster.
#[derive(Debug)]
pub struct Etcd {
    pub(crate) log: Mutex<Log>,
    servers: Mutex<Vec<Weak<ApiServer>>>,
    unimplemented: Mutex<Vec<String>>,
}

impl Etcd {
    /// An empty cluster with the built-in kinds and `custom` ones. UIDs and
    /// generated names come from `chance`; `now` is when its namespaces are made.
    #[must_use]
    pub fn new(chance: Chance, custom: &[Kind], now: jiff::Timestamp) -> Arc<Self> {
        let kinds: Vec<Kind> = Kind::built_in().into_iter().chain(custom.iter().cloned()).collect();
        let index = kinds.iter().position(|kind| kind.rules == Rules::Namespace).unwrap_or(0);
        let mut log = Log::new(kinds, HISTORY, chance);
        for name in NAMESPACES {
            let uid = log.uid();
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": { "name": name, "uid": uid, "creationTimestamp": seconds(now),
                    "labels": { "kubernetes.io/metadata.name": name } },
                "spec": { "finalizers": ["kubernetes"] },
                "status": { "phase": "Active" },
            });
            log.put(&(index, name.to_owned()), namespace);
        }
        Arc::new(Self { log: Mutex::new(log), servers: Mutex::default(), unimplemented: Mutex::default() })
    }

    /// From now on these policies are in force.
    pub(crate) fn enforce(&self, policies: Policies) {
        self.log.lock().policies = policies;
    }

    /// The feature gate of the Eviction API is off from now on, or on. API servers must be restarted for it.
    pub(crate) fn switch_evictions(&self, on: bool) {
        self.log.lock().evictions_off = !on;
    }

    /// Whether the Eviction API is served.
    pub(crate) fn serves_evictions(&self) -> bool {
        self.log.lock().serves_evictions()
    }

    /// The number of the last write.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.log.lock().revision
    }

    /// What is so, whatever any server shows. `name` is `namespace/name` for what
    /// lives in namespaces.
    #[must_use]
    pub fn object(&self, kind: &str, name: &str) -> Option<Arc<Value>> {
        let log = self.log.lock();
        let index = log.kinds.iter().position(|known| known.kind == kind)?;
        log.get(&(index, name.to_owned())).map(|object| Arc::clone(&object.value))
    }

    /// All objects of a kind, in the order of their names.
    #[must_use]
    pub fn objects(&self, kind: &str) -> Vec<Arc<Value>> {
        self.objects_that(kind, |_| true)
    }

    /// Those of a kind that are wanted.
    pub(crate) fn objects_that(&self, kind: &str, wanted: impl Fn(&Value) -> bool) -> Vec<Arc<Value>> {
        let log = self.log.lock();
        let Some(index) = log.kinds.iter().position(|known| known.kind == kind) else { return Vec::new() };
        let range = (index, String::new())..(index + 1, String::new());
        let objects = log.objects.range(range).map(|(_, object)| &object.value);
        objects.filter(|object| wanted(object)).cloned().collect()
    }

    /// What changed after `revision`, in order.
    #[must_use]
    pub fn changes_after(&self, revision: u64) -> Vec<ObservedChange> {
        let log = self.log.lock();
        let value = |object: &Option<Arc<super::log::Object>>| object.as_ref().map(|object| Arc::clone(&object.value));
        log.changes(revision, u64::MAX)
            .map(|change| ObservedChange {
                revision: change.revision,
                kind: log.kinds.get(change.key.0).map(|kind| kind.kind.clone()).unwrap_or_default(),
                name: change.key.1.clone(),
                before: value(&change.before),
                after: value(&change.after),
            })
            .collect()
    }

    /// Forgets what happened up to `revision`: lists and watches of older versions
    /// are answered 410 from now on.
    pub fn compact(&self, revision: u64) {
        self.log.lock().compact(revision);
    }

    /// What was asked of any server that the simulator does not know. Not empty
    /// means that the run proves nothing.
    #[must_use]
    pub fn unimplemented(&self) -> Vec<String> {
        self.unimplemented.lock().clone()
    }

    pub(crate) fn count_unimplemented(&self, what: &str) {
        self.unimplemented.lock().push(what.to_owned());
    }

    pub(crate) fn join(&self, server: &Arc<ApiServer>) {
        self.servers.lock().push(Arc::downgrade(server));
    }

    /// Tells all servers that something was written.
    pub(crate) fn announce(&self) {
        let servers: Vec<_> = self.servers.lock().iter().filter_map(Weak::upgrade).collect();
        for server in servers {
            server.written();
        }
    }
}
