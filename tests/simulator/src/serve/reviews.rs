//! The answers to commands about the user who types them. A simulated cluster admits every user and refuses nothing.

use bytes::Bytes;
use http::{Method, Request};
use serde_json::json;

use super::CALLER;

/// The answer to a review, if this is one.
pub(super) fn answer(request: &Request<Bytes>) -> Option<Bytes> {
    let (group, plural) = request.uri().path().strip_prefix("/apis/")?.split_once("/v1/")?;
    let (kind, status) = match (group, plural) {
        ("authentication.k8s.io", "selfsubjectreviews") => {
            let groups = ["system:masters", "system:authenticated"];
            ("SelfSubjectReview", json!({ "userInfo": { "username": CALLER, "groups": groups } }))
        }
        ("authorization.k8s.io", "selfsubjectaccessreviews") => ("SelfSubjectAccessReview", json!({ "allowed": true })),
        ("authorization.k8s.io", "subjectaccessreviews") => ("SubjectAccessReview", json!({ "allowed": true })),
        _ => return None,
    };
    let review = json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {}, "status": status });
    (request.method() == Method::POST).then(|| Bytes::from(review.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn answered(method: Method, path: &str) -> Option<Value> {
        let request = Request::builder().method(method).uri(path).body(Bytes::new()).unwrap();
        answer(&request).map(|answer| serde_json::from_slice(&answer).unwrap())
    }

    /// `confirm-down` and `fence` ask for the user's name, `doctor` for the permissions of the controllers: each got
    /// 501 here.
    #[test]
    fn self_reviews_name_the_user_and_allow_everything() {
        let me = answered(Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews").unwrap();
        assert_eq!((&me["kind"], &me["status"]["userInfo"]["username"]), (&json!("SelfSubjectReview"), &json!(CALLER)));
        for (plural, kind) in
            [("selfsubjectaccessreviews", "SelfSubjectAccessReview"), ("subjectaccessreviews", "SubjectAccessReview")]
        {
            let path = format!("/apis/authorization.k8s.io/v1/{plural}");
            let may = answered(Method::POST, &path).unwrap();
            assert_eq!((&may["kind"], &may["status"]["allowed"]), (&json!(kind), &json!(true)));
            assert_eq!(answered(Method::GET, &path), None);
        }
        assert_eq!(answered(Method::POST, "/apis/apps/v1/statefulsets"), None);
    }
}
