//! What the API shows of one pod, one Node and its Lease, as watches receive it, in a form without times and names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ContainerState, Node, Pod};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::NAMESPACE;

pub(super) const POD: &str = "pod";
pub(super) const NODE: &str = "Node";
const LEASE: &str = "Lease";
pub(super) const PROCESS: &str = "process";
const GONE: &str = "gone";
/// In the order in which they are shown.
pub(super) const TRACKS: [&str; 4] = [POD, NODE, LEASE, PROCESS];

type TrackLines = Arc<Mutex<BTreeMap<&'static str, Vec<String>>>>;

/// The events since the last call of `finish`. Dropping it ends the watches.
pub(super) struct Record {
    lines: TrackLines,
    /// The state of each track before these events.
    before: BTreeMap<&'static str, String>,
    watches: tokio::task::JoinSet<()>,
}

impl Drop for Record {
    fn drop(&mut self) {
        self.watches.abort_all();
    }
}

impl Record {
    pub(super) async fn begin(client: &Client, node: &str, pod: &str) -> Result<Self> {
        let mut record =
            Self { lines: TrackLines::default(), before: BTreeMap::new(), watches: tokio::task::JoinSet::new() };
        let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
        record.follow(POD, pods, pod, of_pod).await?;
        let mut seen = Incarnations::default();
        record.follow(NODE, Api::<Node>::all(client.clone()), node, move |node| seen.describe(node)).await?;
        let leases = Api::<Lease>::namespaced(client.clone(), "kube-node-lease");
        record.follow(LEASE, leases, node, |_| "renewed".to_owned()).await?;
        Ok(record)
    }

    async fn follow<K>(
        &mut self,
        track: &'static str,
        api: Api<K>,
        name: &str,
        mut say: impl FnMut(&K) -> String + Send + 'static,
    ) -> Result<()>
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        let name = name.to_owned();
        let listed = api.list(&ListParams::default()).await?;
        if let Some(there) = listed.items.iter().find(|one| has_name(*one, &name)) {
            self.before.insert(track, say(there));
        }
        let version = listed.metadata.resource_version.unwrap_or_default();
        let mut stream = api.watch(&WatchParams::default(), &version).await?.boxed();
        let recorded = Arc::clone(&self.lines);
        self.watches.spawn(async move {
            while let Ok(Some(event)) = stream.try_next().await {
                let line = match &event {
                    WatchEvent::Added(one) | WatchEvent::Modified(one) if has_name(one, &name) => say(one),
                    WatchEvent::Deleted(one) if has_name(one, &name) => GONE.to_owned(),
                    _ => continue,
                };
                recorded.lock().unwrap_or_else(PoisonError::into_inner).entry(track).or_default().push(line);
            }
        });
        Ok(())
    }

    /// The events in the form that is compared.
    pub(super) fn finish(&mut self) -> BTreeMap<&'static str, Vec<String>> {
        let mut recorded = std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner));
        for track in TRACKS {
            let lines = recorded.entry(track).or_default();
            let before = self.before.get(track).cloned();
            *lines = if track == LEASE { renewals(lines) } else { changes(before, lines) };
            self.before.extend(lines.last().map(|last| (track, last.clone())));
        }
        recorded
    }
}

/// How often a Lease is renewed, and whether once more before it is deleted, is random.
fn renewals(lines: &[String]) -> Vec<String> {
    let mut lines = lines.to_vec();
    lines.dedup();
    if lines.last().is_some_and(|last| last == GONE) {
        lines = vec![GONE.to_owned()];
    }
    lines
}

/// Repeated lines are dropped. The end of a container and the end of its pod may be reported in one update or in two.
fn changes(before: Option<String>, lines: &[String]) -> Vec<String> {
    let mut changes: Vec<String> = Vec::new();
    for line in lines {
        let last = changes.last().or(before.as_ref());
        if last == Some(line) {
            continue;
        }
        let pod_ended = ["Succeeded", "Failed"].iter().any(|phase| line.starts_with(phase));
        if pod_ended && changes.last().is_some_and(|last| last.starts_with("Running, ended with")) {
            changes.pop();
        }
        changes.push(line.clone());
    }
    changes
}

fn has_name<K: Resource>(one: &K, name: &str) -> bool {
    one.meta().name.as_deref() == Some(name)
}

fn of_pod(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    let container = containers.and_then(|all| all.first());
    let restarts = container.map_or(0, |container| container.restart_count);
    let mut parts = vec![phase.to_owned(), of_container(container.and_then(|one| one.state.as_ref()))];
    parts.extend((restarts > 0).then(|| format!("restarted {restarts} times")));
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let ready = conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True");
    parts.extend(ready.then(|| "Ready".to_owned()));
    parts.extend(pod.metadata.deletion_timestamp.is_some().then(|| "to end".to_owned()));
    parts.join(", ")
}

/// A waiting container and one without a status count as equal.
fn of_container(state: Option<&ContainerState>) -> String {
    let ended = state.and_then(|state| state.terminated.as_ref());
    match (ended, state.and_then(|state| state.running.as_ref())) {
        (Some(ended), _) => format!("ended with {}", ended.exit_code),
        (None, Some(_)) => "runs".to_owned(),
        (None, None) => "not started".to_owned(),
    }
}

/// UIDs and boot IDs, by the order in which they came.
#[derive(Default)]
struct Incarnations {
    uids: Vec<String>,
    boots: Vec<String>,
}

impl Incarnations {
    fn describe(&mut self, node: &Node) -> String {
        let uid = number(&mut self.uids, node.metadata.uid.clone().unwrap_or_default());
        let status = node.status.as_ref();
        let boot = status.and_then(|status| status.node_info.as_ref()).map(|info| info.boot_id.clone());
        let boot = number(&mut self.boots, boot.unwrap_or_default());
        let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        let ready = conditions.into_iter().find(|one| one.type_ == "Ready").map_or("?", |one| &one.status);
        format!("UID {uid}, boot {boot}, Ready {ready}")
    }
}

fn number(names: &mut Vec<String>, one: String) -> usize {
    if let Some(at) = names.iter().position(|other| *other == one) {
        return at + 1;
    }
    names.push(one);
    names.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split("; ").map(str::to_owned).collect()
    }

    #[test]
    fn heartbeats_are_no_changes_and_a_returning_object_is_one() {
        let before = Some("Ready True".to_owned());
        assert_eq!(changes(before.clone(), &lines("Ready True; Ready True")), Vec::<String>::new());
        assert_eq!(changes(before, &lines("Ready False; Ready False; Ready True")), ["Ready False", "Ready True"]);
    }

    #[test]
    fn an_end_in_one_update_or_in_two_is_equal() {
        let two = lines("Running, ended with 0, to end; Succeeded, ended with 0, to end; gone");
        assert_eq!(changes(None, &two), changes(None, &two[1..]));
        // A container that is restarted does not end its pod.
        let again = lines("Running, ended with 255; Running, runs, restarted 1 times, Ready");
        assert_eq!(changes(None, &again), again);
    }

    #[test]
    fn a_lease_created_again_is_recorded() {
        assert_eq!(renewals(&lines("renewed; renewed; gone")), ["gone"]);
        assert_eq!(renewals(&lines("gone; renewed; renewed")), ["gone", "renewed"]);
    }
}
