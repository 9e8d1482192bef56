//! What changes of pods, requests and Evictions say.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::super::effects::is_terminal;
use super::{Lifecycle, entries, entry, is_open, is_turn_of_evictor, reason, requests, target_of};
use crate::api::ObservedChange;
use crate::world::str_at;

impl Lifecycle {
    pub(super) fn observe(&mut self, now: Duration, change: &ObservedChange) {
        let object = change.after.as_ref().or(change.before.as_ref());
        let Some(object) = object else { return };
        match change.kind.as_str() {
            "Pod" => self.observe_pod(now, change, object),
            "EvictionRequest" => {
                let part = |object: &Option<Arc<Value>>| {
                    object.as_ref().map(|object| (requests(object), object.pointer("/spec").cloned()))
                };
                if part(&change.before) != part(&change.after) {
                    self.changed.insert(target_of(object).to_owned(), now);
                }
                match &change.after {
                    Some(after) => drop(self.requests.insert(change.name.clone(), Arc::clone(after))),
                    None => drop(self.requests.remove(&change.name)),
                }
            }
            "Eviction" => self.observe_eviction(now, change, object),
            _ => {}
        }
    }

    fn observe_pod(&mut self, now: Duration, change: &ObservedChange, pod: &Value) {
        let uid = str_at(pod, "/metadata/uid").to_owned();
        let target = self.pods.entry(uid.clone()).or_default();
        target.name = change.name.clone();
        target.in_group = pod.pointer("/spec/schedulingGroup").is_some();
        let terminates = |pod: &Option<Arc<Value>>| {
            pod.as_ref().is_some_and(|pod| pod.pointer("/metadata/deletionTimestamp").is_some())
        };
        let mut news = terminates(&change.before) != terminates(&change.after);
        if change.after.is_none() {
            target.gone.get_or_insert(now);
            news = true;
        } else if is_terminal(pod) && target.terminal.is_none() {
            target.terminal = Some(now);
            news = true;
        }
        if news {
            self.changed.insert(uid, now);
        }
    }

    fn observe_eviction(&mut self, now: Duration, change: &ObservedChange, eviction: &Value) {
        let uid = target_of(eviction).to_owned();
        let part = |object: &Option<Arc<Value>>| {
            object.as_ref().map(|object| {
                let part = |path: &str| object.pointer(path).cloned();
                (part("/status/targetResponders"), part("/status/conditions"))
            })
        };
        if part(&change.before) != part(&change.after) {
            self.changed.insert(uid.clone(), now);
        }
        let was = |test: fn(&Value) -> bool| change.before.as_ref().is_some_and(|before| test(before));
        let is = |test: fn(&Value) -> bool| change.after.as_ref().is_some_and(|after| test(after));
        if was(is_open) && !is(is_open) {
            self.closed.insert(uid.clone(), now);
        }
        if was(is_turn_of_evictor) && !is(is_turn_of_evictor) {
            self.turn_ended.insert(uid.clone(), now);
        }
        let Some(after) = &change.after else {
            self.evictions.remove(&change.name);
            return;
        };
        self.failed.extend(reason(after, "Failed").map(|reason| (uid, reason.to_owned())));
        for one in entries(after, "responders") {
            let name = str_at(one, "/name");
            let before = change.before.as_ref().and_then(|before| entry(before, "responders", name));
            let changed = |field: &str| before.and_then(|before| before.get(field)) != one.get(field);
            if changed("startTime") || changed("heartbeatTime") {
                self.reported.insert((change.name.clone(), name.to_owned()), now);
            }
        }
        self.evictions.insert(change.name.clone(), Arc::clone(after));
    }
}
