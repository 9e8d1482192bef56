//! The answers to commands about the installation of pod-safety: its pods. Its processes run beside the simulated nodes
//! and not as pods on them, so these pods are shown only for requests that select them by their label.

use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Value, json};

use super::CALLER;
use crate::api::ApiRequest;

/// The label by which commands find the pods of pod-safety.
const LABEL: &str = "app.kubernetes.io/name=pod-safety";

/// Whether this request selects them.
pub(super) fn is_for_own_pods(request: &Request<Bytes>) -> bool {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let asked = ApiRequest::new(CALLER, request.method().clone(), target);
    let pods = ["/api/v1/pods", "/api/v1/namespaces/pod-safety/pods"].contains(&request.uri().path());
    pods && request.method() == Method::GET && !asked.watches() && asked.parameter("labelSelector") == LABEL
}

/// The answer.
pub(super) fn list(pods: &[Value]) -> Bytes {
    Bytes::from(
        json!({ "kind": "PodList", "apiVersion": "v1", "metadata": { "resourceVersion": "" }, "items": pods })
            .to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_by_the_label_alone_shows_the_pods_of_pod_safety() {
        for (method, target, wanted) in [
            (Method::GET, "/api/v1/pods?labelSelector=app.kubernetes.io/name=pod-safety", true),
            (Method::GET, "/api/v1/pods?labelSelector=app.kubernetes.io%2Fname%3Dpod-safety&limit=500", true),
            (Method::GET, "/api/v1/pods", false),
            (Method::GET, "/api/v1/pods?labelSelector=app%3Dweb", false),
            (Method::GET, "/api/v1/pods?watch=true&labelSelector=app.kubernetes.io/name=pod-safety", false),
            (Method::DELETE, "/api/v1/pods?labelSelector=app.kubernetes.io/name=pod-safety", false),
        ] {
            let request = Request::builder().method(&method).uri(target).body(Bytes::new()).unwrap();
            assert_eq!(is_for_own_pods(&request), wanted, "{method} {target}");
        }
    }
}
