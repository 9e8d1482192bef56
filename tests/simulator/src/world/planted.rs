//! What planted bugs make of requests, answers and watches.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::BoxError;

use super::seam::{Answer, Parts, Seam, refused, whole};
use super::str_at;
use crate::campaign::Plant;
use crate::checker::{gives_back, is_guarded};

/// How often a storm says everything.
const STORM: usize = 200;
/// So much later a bug sends what failed once more: another may lead by then.
const LATER: Duration = Duration::from_secs(20);

/// Changes the body of a request, if it has one.
pub(super) fn edit(parts: &mut Parts, change: impl FnOnce(&mut Value)) {
    if let Ok(mut body) = serde_json::from_slice::<Value>(&parts.body) {
        change(&mut body);
        parts.body = body.to_string().into();
    }
}

/// Takes a field out of everything that says which object is meant.
pub(super) fn remove_field(parts: &mut Parts, field: &str) {
    edit(parts, |body| {
        for object in ["metadata", "preconditions"] {
            if let Some(object) = body.get_mut(object).and_then(Value::as_object_mut) {
                object.remove(field);
            }
        }
    });
}

fn look_elsewhere(parts: &mut Parts) {
    parts.target = parts.target.replace("/namespaces/kube-node-lease/", "/namespaces/default/");
}

fn is_list(parts: &Parts) -> bool {
    let collection = parts.path().ends_with("/nodes") || parts.path().ends_with("/pods");
    parts.method == Method::GET && collection && !parts.is_watch()
}

fn failed(answer: &Result<Answer, BoxError>) -> bool {
    answer.as_ref().map_or(true, |answer| !answer.status().is_success() && answer.status() != 404)
}

/// A request of a bug's own.
pub(super) fn request(method: Method, target: String, body: &Value) -> Parts {
    let media = if method == Method::PATCH { "application/strategic-merge-patch+json" } else { "application/json" };
    let mut headers = http::HeaderMap::new();
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(media));
    headers.insert(http::header::ACCEPT, http::HeaderValue::from_static("application/json"));
    Parts { method, target, headers, body: body.to_string().into() }
}

impl Seam {
    /// What a planted bug makes of a request.
    pub(super) fn tampered(&self, mut parts: Parts) -> Parts {
        let Some(plant) = self.plant else { return parts };
        let writes = parts.is_write_to_pod();
        self.mistakes_owner(plant, &mut parts);
        self.mistakes_eviction(plant, &mut parts);
        match plant {
            Plant::NoUid if writes => remove_field(&mut parts, "uid"),
            Plant::NoVersion if writes => remove_field(&mut parts, "resourceVersion"),
            Plant::DefaultGrace if writes && parts.method == Method::DELETE => {
                edit(&mut parts, |body| body["gracePeriodSeconds"] = Value::Null);
            }
            Plant::LongGrace if writes && parts.method == Method::DELETE => {
                edit(&mut parts, |body| body["gracePeriodSeconds"] = json!(600));
            }
            Plant::WrongTarget if writes => {
                parts.target = parts.target.replace("data-0", "data-1");
                self.aim_at_what_is_there(&mut parts);
            }
            Plant::CachedReads if parts.is_evidence() => parts.target.push_str("?resourceVersion=0"),
            Plant::BlindToLeases | Plant::ErrorsMeanAbsent => look_elsewhere(&mut parts),
            plant => self.miscount(plant, &mut parts),
        }
        parts
    }

    /// The UID and version of whatever bears the name now.
    fn aim_at_what_is_there(&self, parts: &mut Parts) {
        let name = parts.path().trim_end_matches("/status").rsplit('/').next().unwrap_or_default();
        let Some(pod) = self.world.etcd.object("Pod", &format!("default/{name}")) else { return };
        let object = if parts.method == Method::DELETE { "preconditions" } else { "metadata" };
        edit(parts, |body| {
            body[object]["uid"] = json!(str_at(&pod, "/metadata/uid"));
            body[object]["resourceVersion"] = json!(str_at(&pod, "/metadata/resourceVersion"));
        });
    }

    /// What a planted bug makes of an answer.
    pub(super) async fn meddled(
        &self,
        parts: Parts,
        first: BoxFuture<'static, Result<Answer, BoxError>>,
    ) -> Result<Answer, BoxError> {
        let Some(plant) = self.plant else { return first.await };
        match plant {
            Plant::DeleteFirst | Plant::SkipPatch if parts.path().ends_with("/status") => {
                self.out_of_order(plant, &parts).await
            }
            Plant::DeafToNodes if parts.is_evidence() => refused(503),
            Plant::RememberedReads if parts.reads_a_node() => self.remembered(parts, first.await?).await,
            Plant::SharesAnyway
            | Plant::DeafToMounts
            | Plant::LooksTooSoon
            | Plant::WordsNeverExpire
            | Plant::ForgetsFormerLives
            | Plant::TrustsTenants
            | Plant::MasksWords => self.in_other_words(&parts, first.await).await,
            Plant::NoGracefulDelete if parts.marks_an_orphan() => {
                let answer = first.await;
                self.force_deletes(&parts).await;
                answer
            }
            Plant::OldStoreKept if is_list(&parts) => self.old_items(parts, first.await?).await,
            Plant::FailsTooEarly if parts.is_evidence() => {
                let answer = first.await;
                self.fail_all_of(&parts).await;
                answer
            }
            Plant::CountsFromFirstSight | Plant::GivesUp => self.after_taints(&parts, first.await).await,
            Plant::SecondEviction | Plant::EvictsOutOfTurn | Plant::PassesBudget => {
                let answer = first.await;
                let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
                self.after_eviction(plant, &parts, code).await;
                answer
            }
            _ => self.after(plant, parts, first.await).await,
        }
    }

    async fn after(
        &self,
        plant: Plant,
        mut parts: Parts,
        answer: Result<Answer, BoxError>,
    ) -> Result<Answer, BoxError> {
        let conflict = answer.as_ref().is_ok_and(|answer| answer.status() == 409);
        let of_node = parts.path().contains("/nodes/");
        match plant {
            Plant::ErrorsMeanAbsent if parts.is_evidence() && !answer.as_ref().is_ok_and(|a| a.status() == 200) => {
                refused(404)
            }
            Plant::TimeoutMeansAbsent if parts.is_evidence() && of_node && failed(&answer) => refused(404),
            Plant::Hammer if of_node => {
                let mut answer = answer;
                while !answer.as_ref().is_ok_and(|answer| answer.status().is_success()) {
                    answer = self.send(parts.clone()).await;
                }
                answer
            }
            Plant::RetryByName if parts.is_write_to_pod() && conflict => {
                let seam = self.clone();
                self.aside(Box::pin(async move {
                    // By the time it looks again, who bears the name may be another.
                    tokio::time::sleep(Duration::from_secs(30)).await;
                    seam.aim_at_what_is_there(&mut parts);
                    drop(seam.send(parts).await);
                }));
                answer
            }
            Plant::WritesAfterRelease if gives_back(&parts.method, parts.path(), &parts.body) => {
                if let Some(node) = self.world.etcd.objects("Node").first() {
                    let meta = |field: &str| str_at(node, &format!("/metadata/{field}")).to_owned();
                    let body =
                        json!({ "metadata": { "uid": meta("uid"), "resourceVersion": meta("resourceVersion") } });
                    self.write_as_meant(format!("/api/v1/nodes/{}", meta("name")), &body).await;
                }
                answer
            }
            Plant::RetriesLate if is_guarded(&parts.method, parts.path()) && failed(&answer) => {
                let seam = self.clone();
                self.aside(Box::pin(async move {
                    tokio::time::sleep(LATER).await;
                    seam.send_with_version(parts).await;
                }));
                answer
            }
            Plant::ForceOnConflict if parts.is_write_to_pod() && conflict => {
                remove_field(&mut parts, "uid");
                remove_field(&mut parts, "resourceVersion");
                self.send(parts).await
            }
            Plant::EventStorm if parts.method == Method::POST && parts.path().ends_with("/events") => {
                for _ in 0..STORM {
                    drop(self.send(parts.clone()).await);
                }
                answer
            }
            _ => answer,
        }
    }

    /// Sends a write to what is there now, whatever it was meant for.
    async fn send_with_version(&self, mut parts: Parts) {
        let target = parts.path().trim_end_matches("/status").to_owned();
        let Ok(answer) = self.send(request(Method::GET, target, &Value::Null)).await else { return };
        let Ok(body) = answer.into_body().collect().await else { return };
        let there: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        edit(&mut parts, |body| {
            for object in ["metadata", "preconditions"] {
                for field in ["uid", "resourceVersion"] {
                    if body.pointer(&format!("/{object}/{field}")).is_some() {
                        body[object][field] = there["metadata"][field].clone();
                    }
                }
            }
        });
        drop(self.send(parts).await);
    }

    /// The deletion comes without its patch, or before it.
    async fn out_of_order(&self, plant: Plant, patch: &Parts) -> Result<Answer, BoxError> {
        let mut pod = patch.clone();
        pod.target = pod.target.replace("/status", "");
        let asked: Value = serde_json::from_slice(&patch.body)?;
        if plant == Plant::SkipPatch {
            (pod.method, pod.body) = (Method::GET, Bytes::new());
            return self.send(pod).await;
        }
        let preconditions = json!({ "uid": str_at(&asked, "/metadata/uid"), "resourceVersion": str_at(&asked, "/metadata/resourceVersion") });
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": preconditions });
        (pod.method, pod.body) = (Method::DELETE, options.to_string().into());
        drop(self.send(pod).await);
        self.send(patch.clone()).await
    }

    async fn remembered(&self, parts: Parts, answer: Answer) -> Result<Answer, BoxError> {
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        self.memory.lock().insert(parts.target, (code, body.clone()));
        whole(code, body)
    }

    /// The new version of a list, and the items of the first.
    async fn old_items(&self, parts: Parts, answer: Answer) -> Result<Answer, BoxError> {
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        if code != 200 {
            return whole(code, body);
        }
        let known = self.memory.lock().entry(parts.path().to_owned()).or_insert((code, body.clone())).clone();
        let (mut new, old): (Value, Value) = (serde_json::from_slice(&body)?, serde_json::from_slice(&known.1)?);
        new["items"] = old["items"].clone();
        whole(code, new.to_string().into())
    }

    /// Every pod of the node that is asked for is called ended.
    async fn fail_all_of(&self, parts: &Parts) {
        let node = parts.path().rsplit('/').next().unwrap_or_default();
        for pod in self.world.etcd.objects("Pod") {
            if str_at(&pod, "/spec/nodeName") != node {
                continue;
            }
            let (uid, version) = (str_at(&pod, "/metadata/uid"), str_at(&pod, "/metadata/resourceVersion"));
            let body =
                json!({ "metadata": { "uid": uid, "resourceVersion": version }, "status": { "phase": "Failed" } });
            self.write_to(&pod, Method::PATCH, "/status", &body).await;
        }
    }

    pub(super) async fn write_to(&self, pod: &Value, method: Method, subresource: &str, body: &Value) {
        let name = str_at(pod, "/metadata/name");
        let target = format!("/api/v1/namespaces/default/pods/{name}{subresource}");
        let parts = request(method, target, body);
        // It means what it does: the bug is in the rule, not in the aim.
        self.world.checker.intends(&self.caller, parts.path(), str_at(pod, "/metadata/uid"));
        drop(self.send(parts).await);
    }

    /// Patches something as the process itself would, seen by the checker.
    pub(super) async fn write_as_meant(&self, target: String, body: &Value) {
        self.send_as_meant(request(Method::PATCH, target, body)).await;
    }

    pub(super) async fn send_as_meant(&self, parts: Parts) {
        let _under_way = self.sent(&parts);
        drop(self.send(parts).await);
    }

    /// Whether the planted bug sits on watches.
    pub(super) fn changes_watches(&self) -> bool {
        matches!(
            self.plant,
            Some(
                Plant::DeafToDeletions
                    | Plant::SkippedEvents
                    | Plant::MuteWatches
                    | Plant::RemovesTerminating
                    | Plant::GoneMeansEnded
                    | Plant::StandbyWrites
                    | Plant::TimersByName
                    | Plant::CountsFromFirstSight
                    | Plant::SeveralTaintsEndAll
                    | Plant::TimersStay
                    | Plant::TrustsNodeClocks
                    | Plant::RetaintsWhenLeading
                    | Plant::NeverMaybeUs
                    | Plant::LiftsUnread
                    | Plant::ActsFirst
                    | Plant::ReleasesByName
                    | Plant::GoneMeansFree
                    | Plant::OpensTheGate
                    | Plant::SharesAnyway
                    | Plant::ForgetsHeld
                    | Plant::DeafToMounts
                    | Plant::WordsNeverExpire
                    | Plant::MasksWords
                    | Plant::ForgetsFormerLives
                    | Plant::TrustsTenants
                    | Plant::CancelsUnread
                    | Plant::TerminatingIsGone
            )
        )
    }

    /// What a planted bug makes of an event of a watch; `None`: it does not arrive.
    pub(super) fn changed(&self, parts: &Parts, event: Bytes) -> Option<Bytes> {
        let (of_nodes, of_pods) = (parts.path().ends_with("/nodes"), parts.path().ends_with("/pods"));
        let count = {
            let mut counted = self.counted.lock();
            *counted += u64::from(of_nodes || of_pods);
            *counted
        };
        let says = |what: &str| event.windows(what.len()).any(|part| part == what.as_bytes());
        let lost = match self.plant {
            Some(Plant::DeafToDeletions) => of_nodes && says("\"type\":\"DELETED\""),
            Some(Plant::SkippedEvents) => (of_nodes || of_pods) && count % 3 == 0,
            Some(Plant::MuteWatches) => count > 40 && !says("\"type\":\"BOOKMARK\""),
            _ => false,
        };
        if lost {
            return None;
        }
        if self.plant == Some(Plant::StandbyWrites) {
            self.writes_aside(parts, &event);
        }
        self.on_node_event(&event);
        self.on_fence_event(&event);
        self.on_volume_event(parts, &event);
        let ends = self.plant == Some(Plant::RemovesTerminating) && of_pods && says("\"deletionTimestamp\"");
        let gone = self.plant == Some(Plant::GoneMeansEnded) && of_nodes && says("\"type\":\"DELETED\"");
        if ends || gone {
            let (seam, event) = (self.clone(), event.clone());
            self.aside(Box::pin(async move { seam.remove_at_once(&event).await }));
        }
        let event = self.changed_evictions(parts, self.other_words(parts, event));
        Some(if of_nodes || of_pods { self.changed_taints(event) } else { event })
    }

    /// Force deletes what the event is about: the pod, or all pods of the node.
    async fn remove_at_once(&self, event: &Bytes) {
        let event: Value = serde_json::from_slice(event).unwrap_or_default();
        let name = str_at(&event, "/object/metadata/name");
        for pod in self.world.etcd.objects("Pod") {
            let meant = match str_at(&event, "/object/kind") {
                "Node" => str_at(&pod, "/spec/nodeName") == name,
                _ => str_at(&pod, "/metadata/name") == name,
            };
            if meant {
                let preconditions = json!({ "uid": str_at(&pod, "/metadata/uid"), "resourceVersion": str_at(&pod, "/metadata/resourceVersion") });
                let body = json!({ "gracePeriodSeconds": 0, "preconditions": preconditions });
                self.write_to(&pod, Method::DELETE, "", &body).await;
            }
        }
    }
}
