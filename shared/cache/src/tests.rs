//! Unit tests of the cache, by subject.

mod absence;
mod busy;
mod evictions;
mod feed;
mod heartbeat;
mod identity;
mod indexes;
mod limits;
mod nodes;
mod own_kinds;
mod relist;
mod renewals;
mod stored_fields;
mod taints;
mod unknown;
mod unreadable_objects;
mod volumes;

use crate::model::{Budget, Holder, Volume, VolumeClaim, VolumeLease};
use crate::testing::objects::{BOOT, START_SECONDS as NEW_YEAR, budget, lease, node, pod, timestamp};
use crate::testing::{World, at, objects};
use crate::{CacheMetrics, Lookup};
use parking_lot::Mutex;
use pod_safety_client::scripted::{Answer, Api, advance, env};
use prometheus::{Registry, TextEncoder};
use serde_json::{Value, json};
use std::time::Duration;

use super::*;
use crate::model::Uid;
use crate::testing::objects::{Obj, uid};
use crate::wire::{Encoding, Raw};

/// Records every change as a line.
#[derive(Default)]
struct ChangeLog(Mutex<Vec<String>>);

impl Subscriber for ChangeLog {
    fn on_change(&self, change: Change<'_>) {
        let pod = |pod: Option<&Pod>| pod.map_or("nothing".to_owned(), |pod| format!("{}@{}", pod.uid(), pod.rv));
        self.0.lock().push(match change {
            Change::Pod { before, after } => format!("pod {} -> {}", pod(before), pod(after)),
            Change::Node { name, .. } => format!("node {name}"),
            Change::Heartbeat { name, relevant: false } => format!("heartbeat {name}"),
            Change::Heartbeat { name, relevant: true } => format!("awaited heartbeat {name}"),
            Change::Budget { uid } => format!("budget {uid}"),
            Change::Volume { name, gated } => format!("volume {name}, awaited by {}", gated.len()),
            Change::Fencing { node } => format!("fencing of {}", node.map_or("all", |node| &**node)),
            Change::Eviction { target } => format!("eviction of {}", target.uid),
            Change::Listed(kind) => format!("listed {}", kind.resource()),
        });
    }
}

impl ChangeLog {
    fn drain(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

fn log_changes(cache: &Cache) -> Arc<ChangeLog> {
    let changes = Arc::new(ChangeLog::default());
    cache.subscribe(Arc::<ChangeLog>::clone(&changes));
    changes
}

fn decode<T: Object>(object: &Obj) -> T::Wire {
    Raw::from_body(Encoding::Json, object.0.to_string().into()).unwrap().decode().unwrap()
}

fn apply<T: Object>(cache: &Cache, object: &Obj, now: Mono) {
    cache.apply::<T>(decode::<T>(object), now);
}

fn unreadable(id: Option<&str>, name: Option<&str>) -> Undecodable {
    Undecodable { uid: id.map(uid), name: name.map(str::to_owned), namespace: None, reason: "it is broken".to_owned() }
}

fn list<T: Object>(cache: &Cache, objects: &[Obj], now: Mono) {
    cache.begin_list::<T>();
    for object in objects {
        apply::<T>(cache, object, now);
    }
    cache.end_list::<T>(now);
}

/// A cache for which every kind was listed, empty, at second 0.
fn listed() -> Cache {
    let cache = Cache::default();
    list::<Pod>(&cache, &[], Mono::default());
    list::<Node>(&cache, &[], Mono::default());
    list::<NodeLease>(&cache, &[], Mono::default());
    cache
}

fn uids<'a>(pods: impl Iterator<Item = &'a Pod>) -> Vec<Uid> {
    pods.map(|pod| pod.uid().clone()).collect()
}
