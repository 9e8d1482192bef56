//! Asks the API server whether a user has an access right.

use serde_json::{Value, json};

use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};

/// One access right. Empty fields are omitted from the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessRight {
    /// The verb.
    pub verb: String,
    /// The API group; empty: the core group.
    pub group: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace; empty: all namespaces, or a cluster-scoped resource.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl std::fmt::Display for AccessRight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { verb, group, resource, subresource, namespace, name } = self;
        write!(f, "{verb} {resource}")?;
        for (before, part) in [(".", group), ("/", subresource), (" ", name), (" in ", namespace)] {
            if !part.is_empty() {
                write!(f, "{before}{part}")?;
            }
        }
        Ok(())
    }
}

/// Whether `user` has this right; `None`: whether this process has it.
///
/// # Errors
/// The API server did not answer. To ask about other users needs a right of its own.
pub async fn is_allowed(connection: &Connection, user: Option<&str>, right: &AccessRight) -> Result<bool, ApiError> {
    let AccessRight { verb, group, resource, subresource, namespace, name } = right;
    let mut attributes = json!({ "verb": verb, "group": group, "resource": resource });
    for (field, value) in [("subresource", subresource), ("namespace", namespace), ("name", name)] {
        if !value.is_empty() {
            attributes[field] = json!(value);
        }
    }
    let (kind, plural, mut spec) = match user {
        None => ("SelfSubjectAccessReview", "selfsubjectaccessreviews", json!({})),
        Some(user) => {
            let groups: Vec<String> = groups(user);
            ("SubjectAccessReview", "subjectaccessreviews", json!({ "user": user, "groups": groups }))
        }
    };
    spec["resourceAttributes"] = attributes;
    let body = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec });
    let call = Call::write(Method::Post, format!("/apis/authorization.k8s.io/v1/{plural}"), &body);
    let answer = connection.send(call).await.and_then(|raw| raw.to_json().map_err(ApiError::Undecodable))?;
    Ok(answer.pointer("/status/allowed").and_then(Value::as_bool).unwrap_or_default())
}

/// The groups of a service account.
fn groups(user: &str) -> Vec<String> {
    let mut all = vec!["system:authenticated".to_owned()];
    if let Some((namespace, _)) = user.strip_prefix("system:serviceaccount:").and_then(|name| name.split_once(':')) {
        all.push("system:serviceaccounts".to_owned());
        all.push(format!("system:serviceaccounts:{namespace}"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::scripted::{Answer, Api, env};

    #[tokio::test(start_paused = true)]
    async fn is_allowed_returns_the_answer_of_the_access_review() {
        let (env, _wall) = env();
        let api = Api::new(&env, |request| async move {
            let spec = &request.json()["spec"];
            let allowed = spec["user"] == "system:serviceaccount:ns:sa"
                && spec["groups"][2] == "system:serviceaccounts:ns"
                && spec["resourceAttributes"]["subresource"] == "status";
            Answer::json(&json!({ "status": { "allowed": allowed } }))
        });
        let right = AccessRight {
            verb: "patch".to_owned(),
            resource: "pods".to_owned(),
            subresource: "status".to_owned(),
            ..AccessRight::default()
        };
        assert!(is_allowed(&api.connection(), Some("system:serviceaccount:ns:sa"), &right).await.unwrap());
        assert!(!is_allowed(&api.connection(), None, &right).await.unwrap());
        assert_eq!(right.to_string(), "patch pods/status");
    }
}
