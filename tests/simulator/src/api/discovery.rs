//! Which kinds there are: what clients ask before anything else.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use serde_json::{Value, json};

use super::kinds::{Kind, Rules};

/// What can be done with every kind.
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The Kubernetes version whose API is simulated.
const VERSION: (&str, &str) = ("1", "37");

/// The media type of all groups in one answer.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The answer to a question about the API itself; `None` if it is about objects.
pub(crate) fn find(kinds: &[Arc<Kind>], path: &str, accept: &str) -> Option<Response<Bytes>> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let aggregated = accept.split(',').any(is_aggregated);
    let body = match parts.as_slice() {
        ["version"] => version(),
        ["api" | "apis"] if aggregated => {
            let core = parts == ["api"];
            let groups = groups(kinds);
            let chosen = groups.iter().filter(|(group, _)| group.is_empty() == core);
            let items: Vec<Value> = chosen.map(|(group, versions)| whole_group(kinds, group, versions)).collect();
            let list = json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
                "metadata": {}, "items": items });
            return Some(answer(&list, AGGREGATED));
        }
        ["api"] => json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] }),
        ["apis"] => {
            let groups = groups(kinds);
            let named = groups.iter().filter(|(group, _)| !group.is_empty());
            let named: Vec<Value> = named.map(|(group, versions)| short_group(group, versions)).collect();
            json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": named })
        }
        ["apis", group] => {
            let mut body = short_group(group, groups(kinds).get(*group)?);
            body["kind"] = "APIGroup".into();
            body["apiVersion"] = "v1".into();
            body
        }
        ["api", version] => resources(kinds, "", version)?,
        ["apis", group, version] => resources(kinds, group, version)?,
        _ => return None,
    };
    Some(answer(&body, "application/json"))
}

fn is_aggregated(media: &str) -> bool {
    let has = |word: &str| media.split(';').any(|part| part.trim() == word);
    has("as=APIGroupDiscoveryList") && has("v=v2")
}

fn answer(body: &Value, media: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

fn version() -> Value {
    let (major, minor) = VERSION;
    json!({
        "major": major, "minor": minor, "gitVersion": format!("v{major}.{minor}.0-simulated"),
        "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none",
        "compiler": "rustc", "platform": "simulated/simulated",
    })
}

/// The versions of each group, the core's name being empty.
fn groups(kinds: &[Arc<Kind>]) -> BTreeMap<&str, Vec<&str>> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for kind in kinds {
        let versions = groups.entry(&kind.group).or_default();
        if !versions.contains(&kind.version.as_str()) {
            versions.push(&kind.version);
        }
    }
    groups
}

fn short_group(group: &str, versions: &[&str]) -> Value {
    let version = |version: &&str| json!({ "groupVersion": format!("{group}/{version}"), "version": version });
    let all: Vec<Value> = versions.iter().map(version).collect();
    json!({ "name": group, "preferredVersion": all.first(), "versions": all })
}

/// Namespaces are not deleted by the dozen.
fn verbs(kind: &Kind) -> Vec<&'static str> {
    let all = VERBS.into_iter();
    all.filter(|verb| kind.rules != Rules::Namespace || *verb != "deletecollection").collect()
}

/// One thing below a kind, such as `pods/eviction`.
struct Sub {
    name: &'static str,
    /// Group, version and kind of what is sent there, if that is not the kind itself.
    body: Option<[&'static str; 3]>,
    verbs: &'static [&'static str],
}

fn subresources(kind: &Kind) -> Vec<Sub> {
    const UPDATE: &[&str] = &["get", "patch", "update"];
    let mut subs = Vec::new();
    if kind.has_status() {
        subs.push(Sub { name: "status", body: None, verbs: UPDATE });
    }
    match kind.rules {
        Rules::Pod => subs.extend([
            Sub { name: "binding", body: Some(["", "v1", "Binding"]), verbs: &["create"] },
            Sub { name: "eviction", body: Some(["policy", "v1", "Eviction"]), verbs: &["create"] },
        ]),
        Rules::StatefulSet | Rules::ReplicaSet | Rules::Deployment | Rules::Replication => {
            subs.push(Sub { name: "scale", body: Some(["autoscaling", "v1", "Scale"]), verbs: UPDATE });
        }
        Rules::Namespace => subs.push(Sub { name: "finalize", body: None, verbs: &["update"] }),
        Rules::Node
        | Rules::Lease
        | Rules::Event
        | Rules::Budget
        | Rules::Volume
        | Rules::Claim
        | Rules::Attachment
        | Rules::EvictionRequest
        | Rules::Eviction
        | Rules::Custom => {}
    }
    subs
}

/// Short names and categories, as people type them.
fn short(kind: &Kind) -> (Vec<&str>, &'static [&'static str]) {
    let defined = kind.definition.as_ref().and_then(|spec| spec.pointer("/names/shortNames"));
    let defined = defined.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let (names, categories): (&[&str], &[&str]) = match kind.rules {
        Rules::Pod => (&["po"], &["all"]),
        Rules::Node => (&["no"], &[]),
        Rules::Event => (&["ev"], &[]),
        Rules::Namespace => (&["ns"], &[]),
        Rules::Budget => (&["pdb"], &[]),
        Rules::Volume => (&["pv"], &[]),
        Rules::Claim => (&["pvc"], &[]),
        Rules::StatefulSet => (&["sts"], &["all"]),
        Rules::ReplicaSet => (&["rs"], &["all"]),
        Rules::Deployment => (&["deploy"], &["all"]),
        Rules::Replication => (&["rc"], &["all"]),
        Rules::Custom if kind.plural == "customresourcedefinitions" => (&["crd", "crds"], &[]),
        Rules::Lease | Rules::Attachment | Rules::EvictionRequest | Rules::Eviction | Rules::Custom => (&[], &[]),
    };
    (names.iter().copied().chain(defined).collect(), categories)
}

/// `/api/v1` and its like. `None`: there is no such version of such a group.
fn resources(kinds: &[Arc<Kind>], group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    let mut api_version = None;
    for kind in kinds.iter().filter(|kind| kind.group == group && kind.version == version) {
        api_version = Some(kind.api_version());
        let (names, categories) = short(kind);
        let mut resource = json!({ "name": kind.plural, "singularName": kind.kind.to_lowercase(),
            "namespaced": kind.namespaced, "kind": kind.kind, "verbs": verbs(kind) });
        if !names.is_empty() {
            resource["shortNames"] = json!(names);
        }
        if !categories.is_empty() {
            resource["categories"] = json!(categories);
        }
        resources.push(resource);
        for sub in subresources(kind) {
            let mut resource = json!({ "name": format!("{}/{}", kind.plural, sub.name), "singularName": "",
                "namespaced": kind.namespaced, "kind": kind.kind, "verbs": sub.verbs });
            if let Some([group, version, name]) = sub.body {
                resource["kind"] = name.into();
                // The core group has no name, and is left out with its version.
                if !group.is_empty() {
                    resource["version"] = version.into();
                    resource["group"] = group.into();
                }
            }
            resources.push(resource);
        }
    }
    let api_version = api_version?;
    Some(json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources }))
}

/// A group with all that is in it.
fn whole_group(kinds: &[Arc<Kind>], group: &str, versions: &[&str]) -> Value {
    let versions = versions.iter().map(|version| {
        let own = kinds.iter().filter(|kind| kind.group == group && kind.version == *version);
        let resources: Vec<Value> = own.map(|kind| whole_resource(kind)).collect();
        json!({ "version": version, "freshness": "Current", "resources": resources })
    });
    let versions: Vec<Value> = versions.collect();
    json!({ "metadata": { "name": group, "creationTimestamp": null }, "versions": versions })
}

fn whole_resource(kind: &Kind) -> Value {
    let (names, categories) = short(kind);
    let own = [kind.group.as_str(), kind.version.as_str(), kind.kind.as_str()];
    let response = |[group, version, kind]: [&str; 3]| json!({ "group": group, "version": version, "kind": kind });
    let subs = subresources(kind).into_iter().map(
        |sub| json!({ "subresource": sub.name, "responseKind": response(sub.body.unwrap_or(own)), "verbs": sub.verbs }),
    );
    json!({
        "resource": kind.plural, "singularResource": kind.kind.to_lowercase(), "responseKind": response(own),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" }, "verbs": verbs(kind),
        "shortNames": names, "categories": categories, "subresources": subs.collect::<Vec<_>>(),
    })
}
