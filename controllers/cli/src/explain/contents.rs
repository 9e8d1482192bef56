//! What is in a namespace: every kind of the API server is listed.

use anyhow::{Context, bail};
use futures::StreamExt;
use futures::stream;
use pod_safety_explain::{Content, Contents};
use pod_safety_shared::client::ApiError;
use pod_safety_shared::record::error_chain;
use serde_json::Value;

use crate::cluster::Session;
use crate::error_hints::{NotFound, ResourceKind};

/// How many kinds are listed at a time.
const MAX_CONCURRENT_LISTS: usize = 8;

/// How many objects of a kind are read: the one that blocks a namespace is rarely behind a hundred others.
const PAGE: usize = 100;

/// Reads the namespace and what is in it.
pub(super) async fn read(session: &Session, name: &str) -> anyhow::Result<(Value, Contents)> {
    let namespace = match session.get_raw(&format!("/api/v1/namespaces/{name}")).await {
        Ok(namespace) => namespace,
        Err(error) if error.is_not_found() => bail!(NotFound::new(ResourceKind::Namespace, None, name)),
        Err(error) => return Err(error).context("reading the namespace"),
    };
    let mut contents = Contents::default();
    if namespace["metadata"]["deletionTimestamp"].is_null() {
        return Ok((namespace, contents));
    }
    if let Ok(services) = session.items("/apis/apiregistration.k8s.io/v1/apiservices").await {
        contents.services = services.iter().filter_map(unavailable).collect();
    }
    let mut kinds = Vec::new();
    for version in versions(session).await? {
        match session.get_raw(&version).await {
            Ok(list) => kinds.extend(listable_kinds(&version, &list)),
            Err(error) if !is_of_service(&version, &contents) => contents.unlisted.push((version, error_chain(&error))),
            Err(_) => {}
        }
    }
    contents.kinds = kinds.len();
    let lists = stream::iter(kinds).map(|(base, resource, plural)| async move {
        let path = format!("{base}/namespaces/{name}/{plural}?limit={PAGE}");
        (resource, session.items(&path).await)
    });
    let lists: Vec<_> = lists.buffer_unordered(MAX_CONCURRENT_LISTS).collect().await;
    for (resource, items) in lists {
        match items {
            Ok(items) => contents.objects.extend(items.iter().filter_map(|one| Content::from_object(&resource, one))),
            Err(ApiError::Refused { code: 404 | 405, .. }) => {}
            Err(error) => contents.unlisted.push((resource, error_chain(&error))),
        }
    }
    contents.objects.sort_by(|one, other| (&one.resource, &one.name).cmp(&(&other.resource, &other.name)));
    contents.unlisted.sort();
    Ok((namespace, contents))
}

/// The API groups, each in its preferred version: the objects are the same in all versions.
async fn versions(session: &Session) -> anyhow::Result<Vec<String>> {
    let groups = session.get_raw("/apis").await.context("asking which resources the API server has")?;
    let groups = groups["groups"].as_array().cloned().unwrap_or_default();
    let preferred = groups.iter().filter_map(|group| group["preferredVersion"]["groupVersion"].as_str());
    Ok(std::iter::once("/api/v1".to_owned()).chain(preferred.map(|version| format!("/apis/{version}"))).collect())
}

/// The kinds of a group that are namespaced and can be listed: base path, name for `kubectl`, plural.
fn listable_kinds(base: &str, list: &Value) -> Vec<(String, String, String)> {
    let group = base.strip_prefix("/apis/").and_then(|version| version.split('/').next()).unwrap_or_default();
    let can_list = |one: &&Value| one["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|verb| verb == "list"));
    let resources = list["resources"].as_array().into_iter().flatten();
    let mut all = Vec::new();
    for one in resources.filter(|one| one["namespaced"] == true).filter(can_list) {
        let Some(plural) = one["name"].as_str().filter(|name| !name.contains('/')) else { continue };
        // Events are in the API twice, and block nothing.
        if plural == "events" {
            continue;
        }
        let resource = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        all.push((base.to_owned(), resource, plural.to_owned()));
    }
    all
}

/// An APIService that is not available, and why.
fn unavailable(service: &Value) -> Option<(String, String)> {
    let conditions = service["status"]["conditions"].as_array()?;
    let down = conditions.iter().find(|one| one["type"] == "Available" && one["status"] != "True")?;
    let message = down["message"].as_str().unwrap_or("no reason is given");
    Some((service["metadata"]["name"].as_str()?.to_owned(), message.to_owned()))
}

/// Whether one of the unavailable APIServices serves this version: `v1beta1.metrics.example.io`.
fn is_of_service(version: &str, contents: &Contents) -> bool {
    let Some((group, version)) = version.strip_prefix("/apis/").and_then(|version| version.split_once('/')) else {
        return false;
    };
    contents.services.iter().any(|(service, _)| *service == format!("{version}.{group}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn namespaced_kinds_that_can_be_listed_are_listed() {
        let list = json!({ "resources": [
            { "name": "deployments", "namespaced": true, "verbs": ["get", "list"] },
            { "name": "deployments/status", "namespaced": true, "verbs": ["get", "list"] },
            { "name": "tokenreviews", "namespaced": true, "verbs": ["create"] },
            { "name": "priorityclasses", "namespaced": false, "verbs": ["list"] },
        ] });
        let names: Vec<String> = listable_kinds("/apis/apps/v1", &list).into_iter().map(|(_, name, _)| name).collect();
        assert_eq!(names, ["deployments.apps"]);
    }

    #[test]
    fn an_unavailable_api_service_is_reported_once() {
        let service = json!({ "metadata": { "name": "v1beta1.metrics.example.io" }, "status": { "conditions": [
            { "type": "Available", "status": "False", "message": "no endpoints" }] } });
        let service_and_reason = unavailable(&service).unwrap();
        assert_eq!(service_and_reason.1, "no endpoints");
        let contents = Contents { services: vec![service_and_reason], ..Contents::default() };
        assert!(is_of_service("/apis/metrics.example.io/v1beta1", &contents));
        assert!(!is_of_service("/apis/apps/v1", &contents));
    }
}
