//! The one log of all API servers: etcd, as far as Kubernetes can see of it.
//!
//! Every write gets the next number of one global counter; an object's
//! `resourceVersion` is the number of its last write, and a write that changes
//! nothing is none.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::admission::Policies;
use super::fields;
use super::kinds::{Kind, Rules};
use crate::chance::Chance;

/// Where objects are: the kind, and `namespace/name` or `name`, in etcd's order.
pub(crate) type Key = (usize, String);

/// One version of an object. Written out once, however many watch it.
#[derive(Debug, PartialEq)]
pub(crate) struct Object {
    pub(crate) value: Arc<Value>,
    pub(crate) text: Bytes,
    pub(crate) revision: u64,
    /// Stored without a default that every reader sees: the next write stores it,
    /// even one that changes nothing.
    pub(crate) unfinished: bool,
}

impl Object {
    /// The object as it is at `revision`.
    pub(crate) fn at_revision(mut value: Value, revision: u64) -> Arc<Self> {
        fields::set(&mut value, &["metadata"], "resourceVersion", revision.to_string());
        let text = Bytes::from(value.to_string());
        Arc::new(Self { value: Arc::new(value), text, revision, unfinished: false })
    }
}

/// One write.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) key: Key,
    pub(crate) before: Option<Arc<Object>>,
    /// `None`: it was deleted.
    pub(crate) after: Option<Arc<Object>>,
}

/// The log and the state that it leads to.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) kinds: Vec<Arc<Kind>>,
    pub(crate) revision: u64,
    /// Changes up to and with this one are forgotten.
    pub(crate) compacted: u64,
    pub(crate) objects: BTreeMap<Key, Arc<Object>>,
    pub(crate) history: VecDeque<Change>,
    pub(crate) policies: Policies,
    /// The feature gate of the Eviction API is off, whatever there is of it.
    pub(crate) evictions_off: bool,
    history_limit: usize,
    chance: Chance,
    names: u64,
}

impl Log {
    pub(crate) fn new(kinds: Vec<Kind>, history_limit: usize, chance: Chance) -> Self {
        Self {
            kinds: kinds.into_iter().map(Arc::new).collect(),
            revision: 1,
            compacted: 0,
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            policies: Policies::default(),
            evictions_off: false,
            history_limit,
            chance,
            names: 0,
        }
    }

    /// Whether the Eviction API is served.
    pub(crate) fn serves_evictions(&self) -> bool {
        !self.evictions_off && self.kinds.iter().any(|kind| kind.rules == Rules::Eviction)
    }

    /// Whether objects of this kind can be reached.
    pub(crate) fn serves(&self, kind: &Kind) -> bool {
        !self.evictions_off || kind.group != super::kinds::lifecycle::GROUP
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// Stores a new object.
    pub(crate) fn create(&mut self, key: &Key, value: Value) -> Arc<Object> {
        let object = self.put(key, value);
        let claim = self.kinds.get(key.0).is_some_and(|kind| kind.rules == Rules::Claim);
        if !claim {
            return object;
        }
        // A claim's phase is a default of reading: its creation empties the status.
        let Object { value, text, revision, .. } = &*object;
        let (value, text) = (value.clone(), text.clone());
        let object = Arc::new(Object { value, text, revision: *revision, unfinished: true });
        self.objects.insert(key.clone(), Arc::clone(&object));
        object
    }

    /// Stores `value`, unless it is what is stored.
    pub(crate) fn put(&mut self, key: &Key, value: Value) -> Arc<Object> {
        let before = self.objects.get(key).cloned();
        if let Some(before) = before.as_ref().filter(|before| !before.unfinished) {
            let mut same = value.clone();
            fields::copy(&mut same, &before.value, &["metadata"], "resourceVersion");
            if same == *before.value {
                return Arc::clone(before);
            }
        }
        let after = Object::at_revision(value, self.revision + 1);
        self.objects.insert(key.clone(), Arc::clone(&after));
        self.record(key, before, Some(Arc::clone(&after)));
        after
    }

    /// Removes the object; gives back its last state, at the revision of its end.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<Object>> {
        let before = self.objects.remove(key)?;
        let last = Object::at_revision(Value::clone(&before.value), self.revision + 1);
        self.record(key, Some(before), None);
        Some(last)
    }

    fn record(&mut self, key: &Key, before: Option<Arc<Object>>, after: Option<Arc<Object>>) {
        self.revision += 1;
        self.history.push_back(Change { revision: self.revision, key: key.clone(), before, after });
        while self.history.len() > self.history_limit {
            if let Some(first) = self.history.pop_front() {
                self.compacted = first.revision;
            }
        }
    }

    /// Forgets changes up to and with `revision`.
    pub(crate) fn compact(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision.min(self.revision));
        while self.history.front().is_some_and(|change| change.revision <= self.compacted) {
            self.history.pop_front();
        }
    }

    /// The changes after `revision`, up to and with `until`.
    pub(crate) fn changes(&self, after: u64, until: u64) -> impl Iterator<Item = &Change> {
        let start = self.history.partition_point(|change| change.revision <= after);
        self.history.range(start..).take_while(move |change| change.revision <= until)
    }

    /// All objects as they were at `revision`; `None` if that is forgotten.
    pub(crate) fn snapshot(&self, kind: usize, revision: u64) -> Option<BTreeMap<Key, Arc<Object>>> {
        if revision < self.compacted {
            return None;
        }
        let range = (kind, String::new())..(kind + 1, String::new());
        let mut objects: BTreeMap<Key, Arc<Object>> =
            self.objects.range(range).map(|(key, object)| (key.clone(), Arc::clone(object))).collect();
        for change in self.history.iter().rev().take_while(|change| change.revision > revision) {
            if change.key.0 != kind {
                continue;
            }
            match &change.before {
                Some(before) => drop(objects.insert(change.key.clone(), Arc::clone(before))),
                None => drop(objects.remove(&change.key)),
            }
        }
        Some(objects)
    }

    /// A fresh UID.
    pub(crate) fn uid(&mut self) -> String {
        self.names += 1;
        let (high, low) =
            (self.chance.draw("etcd", "uid-high", self.names), self.chance.draw("etcd", "uid-low", self.names));
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xFFFF,
            high & 0xFFF,
            0x8000 | low >> 48 & 0x3FFF,
            low & 0xFFFF_FFFF_FFFF
        )
    }

    /// The five letters behind a `generateName`.
    pub(crate) fn suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        self.names += 1;
        let mut number = self.chance.draw("etcd", "name", self.names);
        let mut suffix = String::new();
        for _ in 0..5 {
            let at = usize::try_from(number % LETTERS.len() as u64).unwrap_or(0);
            suffix.push(char::from(LETTERS.get(at).copied().unwrap_or(b'b')));
            number /= LETTERS.len() as u64;
        }
        suffix
    }
}
