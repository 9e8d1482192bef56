//! What planted bugs make of requests to evict pods: what the controllers of `controllers/eviction` write, what they read
//! before they write it, and how they evict.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tower::BoxError;

use super::evictions::LIFECYCLE;
use super::planted::{edit, request};
use super::seam::{Answer, Parts, Seam, refused, whole};
use super::{number_at, str_at};
use crate::campaign::Plant;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// The entries of a list of a status that is about to be written.
fn entries<'a>(body: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    body.pointer_mut(&format!("/status/{list}")).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Whether a body initializes an Eviction: all its responders are named with their priorities.
fn initializes(body: &Value) -> bool {
    let targets = body.pointer("/status/targetResponders").and_then(Value::as_array);
    targets.is_some_and(|all| all.len() > 1 && all.iter().all(|one| number_at(one, "/priority").is_some()))
}

impl Parts {
    fn evicts(&self) -> bool {
        self.method == Method::POST && self.path().starts_with(PODS) && self.path().ends_with("/eviction")
    }

    fn creates_eviction(&self) -> bool {
        self.method == Method::POST && self.path().strip_prefix(LIFECYCLE) == Some("/evictions")
    }

    /// A write of the status of an Eviction, or of a request.
    fn writes_status_of(&self, plural: &str) -> bool {
        let path = self.path().strip_prefix(LIFECYCLE).and_then(|path| path.strip_prefix(plural));
        self.method == Method::PATCH && path.is_some_and(|path| path.ends_with("/status"))
    }

    fn reads_one_pod(&self) -> Option<&str> {
        let name = self.path().strip_prefix(PODS)?.strip_prefix('/')?;
        (self.method == Method::GET && !name.contains('/')).then_some(name)
    }

    fn lists_requests(&self) -> bool {
        let list = self.path().strip_prefix(LIFECYCLE) == Some("/evictionrequests");
        self.method == Method::GET && list && !self.is_watch()
    }
}

impl Seam {
    /// Changes what is about to be written about an eviction.
    pub(super) fn mistakes_eviction(&self, plant: Plant, parts: &mut Parts) {
        match plant {
            Plant::EvictsByName if parts.evicts() => edit(parts, |body| {
                if let Some(names) = body.pointer_mut("/deleteOptions/preconditions") {
                    *names = json!({ "resourceVersion": names["resourceVersion"] });
                }
            }),
            Plant::EvictsWithoutGrace if parts.evicts() => {
                edit(parts, |body| body["deleteOptions"]["gracePeriodSeconds"] = json!(0));
            }
            Plant::PrefillsReports if parts.writes_status_of("/evictions/") => edit(parts, |body| {
                if !initializes(body) {
                    return;
                }
                let start = entries(body, "responders").find_map(|one| one.get("startTime").cloned());
                for one in entries(body, "responders") {
                    one["startTime"] = start.clone().unwrap_or_default();
                    one["completionTime"] = start.clone().unwrap_or_default();
                }
            }),
            Plant::ForgetsAttempts if parts.writes_status_of("/evictions/") => edit(parts, |body| {
                for one in entries(body, "responders") {
                    let message = str_at(one, "/message").to_owned();
                    if let Some((reason, _)) = message.rsplit_once(" (attempts=") {
                        one["message"] = json!(reason);
                    }
                }
            }),
            Plant::CopiesAhead if parts.writes_status_of("/evictionrequests/") => edit(parts, |body| {
                for one in entries(body, "conditions").filter(|one| one["type"] == "TargetEvicted") {
                    (one["status"], one["reason"]) = (json!("True"), json!("PodDeleted"));
                }
            }),
            _ => {}
        }
    }

    /// What a planted bug answers in the place of the API server.
    pub(super) fn answers_about_evictions(&self, parts: &Parts) -> Option<Result<Answer, BoxError>> {
        match self.plant? {
            Plant::NeverObserves if parts.writes_status_of("/evictionrequests/") => {
                let name = parts.path().trim_end_matches("/status").rsplit('/').next()?;
                let request = self.world.etcd.object("EvictionRequest", &format!("default/{name}"))?;
                Some(whole(200, request.to_string().into()))
            }
            Plant::CancelsUnread if parts.lists_requests() => {
                let version = self.world.etcd.revision().to_string();
                let list = json!({ "kind": "EvictionRequestList", "apiVersion": "lifecycle.k8s.io/v1alpha1",
                    "metadata": { "resourceVersion": version }, "items": [] });
                Some(whole(200, list.to_string().into()))
            }
            Plant::TerminatingIsGone => {
                let name = parts.reads_one_pod()?;
                let pod = self.world.etcd.object("Pod", &format!("default/{name}"))?;
                pod.pointer("/metadata/deletionTimestamp").is_some().then(|| refused(404))
            }
            _ => None,
        }
    }

    /// What a planted bug does after a request was answered.
    pub(super) async fn after_eviction(&self, plant: Plant, parts: &Parts, code: u16) {
        let body: Value = serde_json::from_slice(&parts.body).unwrap_or_default();
        match plant {
            Plant::SecondEviction if parts.creates_eviction() && code == 201 => {
                let mut second = parts.clone();
                edit(&mut second, |body| {
                    let name = str_at(body, "/metadata/name").replacen("pod-", "pod-9", 1);
                    body["metadata"]["name"] = json!(name);
                });
                self.send_as_meant(second).await;
            }
            Plant::EvictsOutOfTurn if parts.creates_eviction() && code == 201 => {
                let name = str_at(&body, "/spec/target/pod/name");
                let Some(options) = self.options(name, str_at(&body, "/spec/target/pod/uid")) else { return };
                let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction",
                    "metadata": { "name": name, "namespace": "default" }, "deleteOptions": options });
                let target = format!("{PODS}/{name}/eviction");
                self.send_as_meant(request(Method::POST, target, &eviction)).await;
            }
            Plant::PassesBudget if parts.evicts() && code == 429 => {
                let name = str_at(&body, "/metadata/name");
                let uid = str_at(&body, "/deleteOptions/preconditions/uid");
                let Some(options) = self.options(name, uid) else { return };
                self.send_as_meant(request(Method::DELETE, format!("{PODS}/{name}"), &options)).await;
            }
            _ => {}
        }
    }

    /// The options by which a pod is deleted by its own grace, if it is there.
    fn options(&self, name: &str, uid: &str) -> Option<Value> {
        let pod = self.world.etcd.object("Pod", &format!("default/{name}"))?;
        let version = str_at(&pod, "/metadata/resourceVersion");
        (str_at(&pod, "/metadata/uid") == uid).then(|| {
            json!({ "apiVersion": "v1", "kind": "DeleteOptions",
                "gracePeriodSeconds": number_at(&pod, "/spec/terminationGracePeriodSeconds").unwrap_or(30).max(1),
                "preconditions": { "uid": uid, "resourceVersion": version } })
        })
    }

    /// What a planted bug makes of an event of a watch.
    pub(super) fn changed_evictions(&self, parts: &Parts, event: Bytes) -> Bytes {
        let change = match self.plant {
            Some(Plant::CancelsUnread) if parts.path().ends_with("/evictionrequests") => "intent",
            Some(Plant::TerminatingIsGone) if parts.path().ends_with("/pods") => "end",
            _ => return event,
        };
        let Ok(mut said) = serde_json::from_slice::<Value>(&event) else { return event };
        let terminates = said.pointer("/object/metadata/deletionTimestamp").is_some();
        if str_at(&said, "/type") != "MODIFIED" {
            return event;
        }
        if change == "intent" {
            said["object"]["spec"]["intent"] = json!("Withdrawn");
        } else if terminates {
            said["type"] = json!("DELETED");
        }
        Bytes::from(format!("{said}\n"))
    }
}
