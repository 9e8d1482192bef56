//! A namespace with pods, requests and Evictions.

use super::*;

/// A separate namespace, and the client that acts in it.
pub(super) struct Tenant {
    pub(super) api: Client,
    pub(super) namespace: &'static str,
}

fn now() -> String {
    format!("{:.0}", Timestamp::now())
}

impl Tenant {
    pub(super) async fn new(plane: &ControlPlane, namespace: &'static str) -> Self {
        plane.namespace(namespace).await.unwrap();
        Self { api: plane.admin(), namespace }
    }

    fn path(&self, plural: &str, name: &str) -> String {
        let base = match plural {
            "pods" => "/api/v1",
            "daemonsets" => "/apis/apps/v1",
            _ => "/apis/lifecycle.k8s.io/v1alpha1",
        };
        format!("{base}/namespaces/{}/{plural}/{name}", self.namespace).trim_end_matches('/').to_owned()
    }

    pub(super) async fn create(&self, plural: &str, object: &Value) -> Value {
        let path = self.path(plural, "");
        send(&self.api, Method::POST, &path, "application/json", object)
            .await
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(super) async fn get(&self, plural: &str, name: &str) -> Option<Value> {
        match send(&self.api, Method::GET, &self.path(plural, name), "application/json", &Value::Null).await {
            Ok(object) => Some(object),
            Err(kube::Error::Api(status)) if status.is_not_found() => None,
            Err(error) => panic!("{plural}/{name}: {error}"),
        }
    }

    pub(super) async fn delete(&self, plural: &str, name: &str) {
        send(&self.api, Method::DELETE, &self.path(plural, name), "application/json", &Value::Null).await.unwrap();
    }

    pub(super) async fn patch(&self, path: &str, patch: &Value) -> kube::Result<Value> {
        send(&self.api, Method::PATCH, path, "application/strategic-merge-patch+json", patch).await
    }

    /// An unscheduled pod with these responders; returns its UID.
    pub(super) async fn pod(&self, name: &str, spec: Value) -> String {
        let mut whole = json!({ "terminationGracePeriodSeconds": 30, "containers": [{ "name": "main", "image": "registry.example/main:1" }] });
        spec.as_object().unwrap().iter().for_each(|(key, value)| whole[key] = value.clone());
        let object = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": name } }, "spec": whole });
        self.create("pods", &object).await["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    pub(super) async fn phase(&self, name: &str, phase: &str) {
        let path = format!("{}/status", self.path("pods", name));
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        self.patch(&path, &json!({ "status": { "phase": phase, "conditions": ready } })).await.unwrap();
    }

    pub(super) async fn request_eviction(&self, name: &str, pod: &str, uid: &str, requester: &str) {
        let target = json!({ "pod": { "name": pod, "uid": uid } });
        let spec = json!({ "target": target, "requester": requester, "intent": "Eviction" });
        let object = json!({ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest", "metadata": { "name": name }, "spec": spec });
        self.create("evictionrequests", &object).await;
    }

    /// Another client creates an Eviction.
    pub(super) async fn create_eviction(&self, name: &str, pod: &str, uid: &str) {
        let target = json!({ "pod": { "name": pod, "uid": uid } });
        let object = json!({ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "Eviction", "metadata": { "name": name }, "spec": { "target": target } });
        self.create("evictions", &object).await;
    }

    pub(super) async fn intent(&self, request: &str, intent: &str) {
        let path = self.path("evictionrequests", request);
        self.patch(&path, &json!({ "spec": { "intent": intent } })).await.unwrap();
    }

    /// The active responder of an Eviction reports.
    pub(super) async fn report(&self, eviction: &str, responder: &str, done: bool) {
        let mut entry = json!({ "name": responder, "heartbeatTime": now() });
        if done {
            entry["completionTime"] = entry["heartbeatTime"].clone();
        }
        let path = format!("{}/status", self.path("evictions", eviction));
        self.patch(&path, &json!({ "status": { "responders": [entry] } })).await.unwrap();
    }

    /// Waits until the object has these conditions, such as `Failed=True/EvictionInvalid`; returns the object.
    pub(super) async fn until_condition(&self, plural: &str, name: &str, expected: &str) -> Value {
        wait_until(&format!("{}/{name} says {expected}", self.namespace), async || {
            let object = self.get(plural, name).await.unwrap_or_default();
            let current = conditions(&object);
            check_that(current.split(' ').any(|one| one == expected), format!("{current} {}", object["status"]))
                .map(|()| object)
        })
        .await
    }

    /// Waits until this responder has that state.
    pub(super) async fn until_state(&self, eviction: &str, responder: &str, expected: &str) -> Value {
        wait_until(&format!("{}/{eviction}: {responder} is {expected}", self.namespace), async || {
            let object = self.get("evictions", eviction).await.unwrap_or_default();
            let is_expected = entry(&object, "targetResponders", responder)["state"] == expected;
            check_that(is_expected, object["status"].to_string()).map(|()| object)
        })
        .await
    }

    /// Waits until this responder's message contains this text.
    pub(super) async fn until_message(&self, eviction: &str, responder: &str, words: &str) -> Value {
        wait_until(&format!("{}/{eviction}: {responder} says {words}", self.namespace), async || {
            let object = self.get("evictions", eviction).await.unwrap_or_default();
            let message = entry(&object, "responders", responder)["message"].as_str().unwrap_or_default().to_owned();
            check_that(message.contains(words), message).map(|()| object)
        })
        .await
    }

    pub(super) async fn until_gone(&self, pod: &str) {
        self.until_deleted("pods", pod).await;
    }

    pub(super) async fn until_deleted(&self, plural: &str, name: &str) {
        wait_until(&format!("{}/{name} is gone", self.namespace), async || {
            let existing = self.get(plural, name).await;
            check_that(existing.is_none(), format!("{existing:?}"))
        })
        .await;
    }
}

/// Both conditions in one line.
pub(super) fn conditions(object: &Value) -> String {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let one = |one: &Value| {
        format!(
            "{}={}/{}",
            one["type"].as_str().unwrap(),
            one["status"].as_str().unwrap(),
            one["reason"].as_str().unwrap()
        )
    };
    all.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// The entry of this name.
pub(crate) fn entry(object: &Value, list: &str, name: &str) -> Value {
    let mut all = object["status"][list].as_array().into_iter().flatten();
    all.find(|one| one["name"] == name).cloned().unwrap_or_default()
}

/// `spec.evictionResponders`.
pub(super) fn responders(all: &[(&str, i32)]) -> Value {
    let all: Value = all.iter().map(|(name, priority)| json!({ "name": name, "priority": priority })).collect();
    json!({ "evictionResponders": all })
}
