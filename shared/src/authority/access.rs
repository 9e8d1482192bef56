//! Whether somebody may do something: asked of the API server, which alone knows.

use serde_json::{Value, json};

use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};

/// One thing that somebody may do, or not. Empty fields are not said.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessRight {
    /// The verb.
    pub verb: String,
    /// The group of the kind; empty: the core's.
    pub group: String,
    /// The plural of the kind.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// In which namespace; empty: in all of them, or of a kind without.
    pub namespace: String,
    /// On which object.
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

/// Whether `user` may; without one: whether we may.
///
/// # Errors
/// It was not answered: to ask about others is a right of its own.
pub async fn is_allowed(
    connection: &Connection,
    user: Option<&str>,
    right: &AccessRight,
) -> Result<bool, ApiError> {
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

/// The groups that the API server gives a service account.
fn groups(user: &str) -> Vec<String> {
    let mut all = vec!["system:authenticated".to_owned()];
    if let Some((namespace, _)) =
        user.strip_prefix("system:serviceaccount:").and_then(|name| name.split_once(':'))
    {
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
    async fn who_may_is_the_api_servers_word() {
        let (env, _wall) = env();
        let api = Api::new(&env, |asked| async move {
            let spec = &asked.json()["spec"];
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
