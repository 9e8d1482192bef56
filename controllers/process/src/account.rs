//! The account under which a process runs, and whether the admission policies of pod-safety let that account write.
//!
//! The policies let one account write the objects of fencing. A process under another account would hold the Lease
//! and be denied each write, so it does not start. The leader also records its account in the Lease, for `pod-safety
//! doctor`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pod_safety_shared::authority::operator_requests::{self, OperatorError};
use pod_safety_shared::authority::{AccessRight, is_allowed};
use pod_safety_shared::client::{ApiError, Connection};
use pod_safety_shared::clock::Env;
use pod_safety_shared::controller_loop::Mode;
use pod_safety_shared::lease::LEADER_ANNOTATION;
use pod_safety_shared::record::error_chain;
use serde_json::Value;

use crate::registry::{self, Name};

const GROUP: &str = "admissionregistration.k8s.io";

/// The match condition of this name exempts the account of pod-safety from a policy.
const CONDITION: &str = "not-pod-safety";

/// A process starts without the answer after this time: an API server that is unavailable for a while prevents no
/// start.
const FIRST_CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// The wait before the next check.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// A policy that denies every account but one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyAccount {
    /// The policy.
    pub policy: String,
    /// The user name of the account in the API.
    pub account: String,
}

impl PolicyAccount {
    /// How to run as the account.
    #[must_use]
    pub fn remedy(&self) -> String {
        let account = &self.account;
        let service = account.strip_prefix("system:serviceaccount:").and_then(|name| name.split_once(':'));
        let token = service.map_or_else(String::new, |(namespace, name)| {
            format!(", or with a token of it: kubectl create token {name} --namespace {namespace}")
        });
        format!(
            "run it as that account: in the Deployment of the chart; elsewhere pod-safety run --as {account}{token}"
        )
    }
}

/// The policies deny this process's account.
#[derive(Debug, thiserror::Error)]
#[error(
    "this process runs as {user}. Of the admission policy {} only {} may write what fencing writes, so each write would be denied. To fix it, {}",
    named.policy, named.account, named.remedy()
)]
pub struct Denied {
    user: String,
    named: PolicyAccount,
}

/// Why the account could not be checked.
#[derive(Debug, thiserror::Error)]
enum AccountError {
    #[error(transparent)]
    People(#[from] OperatorError),
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// The accounts that these policies exempt, if their bindings deny others.
#[must_use]
pub fn policy_accounts(policies: &[Value], bindings: &[Value]) -> Vec<PolicyAccount> {
    let denies = |policy: &str| {
        let of_it = bindings.iter().filter(|binding| binding["spec"]["policyName"] == policy);
        let actions = of_it.filter_map(|binding| binding["spec"]["validationActions"].as_array()).flatten();
        actions.into_iter().any(|action| action == "Deny")
    };
    let is_of_fencing = |policy: &Value| {
        let rules = policy["spec"]["matchConstraints"]["resourceRules"].as_array().into_iter().flatten();
        rules.filter_map(|rule| rule["apiGroups"].as_array()).flatten().any(|group| group == "pod-safety.dev")
    };
    let mut all = Vec::new();
    for policy in policies.iter().filter(|policy| is_of_fencing(policy)) {
        let Some(name) = policy["metadata"]["name"].as_str().filter(|name| denies(name)) else { continue };
        let conditions = policy["spec"]["matchConditions"].as_array().into_iter().flatten();
        let condition = conditions
            .filter(|condition| condition["name"] == CONDITION)
            .find_map(|condition| condition["expression"].as_str());
        let quoted = condition.and_then(|text| text.get(text.find('"')?..=text.rfind('"')?));
        if let Some(account) = quoted.and_then(|text| serde_json::from_str(text).ok()) {
            all.push(PolicyAccount { policy: name.to_owned(), account });
        }
    }
    all.sort();
    all
}

/// Reads the accounts that the policies of this cluster exempt.
///
/// # Errors
/// They could not be listed.
pub async fn read_policy_accounts(connection: &Connection) -> Result<Vec<PolicyAccount>, ApiError> {
    let list = async |plural: &str| match connection.list_items(&format!("/apis/{GROUP}/v1/{plural}")).await {
        // An API server without the kind has no policies.
        Err(error) if error.code() == Some(404) => Ok(Vec::new()),
        answer => answer,
    };
    let policies = list("validatingadmissionpolicies").await?;
    Ok(policy_accounts(&policies, &list("validatingadmissionpolicybindings").await?))
}

/// The settings that a leader records in its Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderSettings {
    /// Its mode.
    pub mode: Mode,
    /// Its controllers.
    pub controllers: Vec<Name>,
    /// Its user name in the API.
    pub user: String,
}

impl LeaderSettings {
    /// From the annotation of a Lease, if its present holder wrote it: the annotation of an earlier leader stays
    /// there.
    #[must_use]
    pub fn from_lease(lease: &Value) -> Option<Self> {
        let text = lease["metadata"]["annotations"][LEADER_ANNOTATION].as_str()?;
        let (holder, rest) = text.split_once(" mode=")?;
        let (mode, rest) = rest.split_once(" controllers=")?;
        let (controllers, user) = rest.split_once(" user=")?;
        let mode =
            [Mode::Observe, Mode::Guard, Mode::Replace].into_iter().find(|candidate| candidate.name() == mode)?;
        let controllers: Vec<String> = controllers.split(',').map(str::to_owned).collect();
        let controllers = registry::parse_list(&controllers).ok()?;
        let is_its = lease["spec"]["holderIdentity"] == holder;
        is_its.then(|| Self { mode, controllers, user: user.to_owned() })
    }
}

/// The settings that a leader records in its Lease.
pub(crate) fn describe_settings(mode: Mode, controllers: &[Name]) -> String {
    let names: Vec<&str> = controllers.iter().map(|name| name.as_str()).collect();
    format!("mode={} controllers={}", mode.name(), names.join(","))
}

/// Reads the account of this process, and checks whether the policies let it write the objects of fencing, if it
/// fences.
async fn check_account(connection: &Connection, fences: bool) -> Result<Result<String, Denied>, AccountError> {
    let user = operator_requests::whoami(connection).await?;
    if !fences {
        return Ok(Ok(user));
    }
    for resource in ["validatingadmissionpolicies", "validatingadmissionpolicybindings"] {
        let right = AccessRight {
            verb: "list".to_owned(),
            group: GROUP.to_owned(),
            resource: resource.to_owned(),
            ..AccessRight::default()
        };
        // The account of the shipped manifests has no such right, and needs none: its name is in the policies.
        if !is_allowed(connection, None, &right).await? {
            return Ok(Ok(user));
        }
    }
    let other = read_policy_accounts(connection).await?.into_iter().find(|named| named.account != user);
    Ok(other.map_or_else(|| Ok(user.clone()), |named| Err(Denied { user: user.clone(), named })))
}

/// Finds out the account of the process.
#[derive(Debug)]
pub(crate) struct AccountCheck {
    connection: Connection,
    env: Env,
    user: Arc<OnceLock<String>>,
    fences: bool,
}

impl AccountCheck {
    pub(crate) const fn new(connection: Connection, env: Env, user: Arc<OnceLock<String>>, fences: bool) -> Self {
        Self { connection, env, user, fences }
    }

    /// Checks before the process starts.
    pub(crate) async fn check_first(&self) -> Result<(), Denied> {
        let answer = self
            .env
            .timeout_at(self.env.now() + FIRST_CHECK_TIMEOUT, check_account(&self.connection, self.fences))
            .await;
        self.record_user(answer.transpose().ok().flatten())
    }

    /// Checks while the process runs, until there is an answer. Returns only if the account is denied.
    pub(crate) async fn wait_until_denied(&self) -> Denied {
        while self.user.get().is_none() {
            self.env.sleep(RETRY_AFTER).await;
            let answer = check_account(&self.connection, self.fences).await;
            if let Err(error) = &answer {
                tracing::debug!(error = %error_chain(error), "it is not known under which account this process runs; asking again");
            }
            if let Err(denied) = self.record_user(answer.ok()) {
                return denied;
            }
        }
        std::future::pending().await
    }

    fn record_user(&self, answer: Option<Result<String, Denied>>) -> Result<(), Denied> {
        if let Some(user) = answer.transpose()? {
            tracing::info!(user, "runs under this account");
            drop(self.user.set(user));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ACCOUNT: &str = "system:serviceaccount:pod-safety:pod-safety";

    fn policy(name: &str, group: &str, condition: &str) -> Value {
        let conditions =
            [json!({ "name": condition, "expression": format!("request.userInfo.username != {ACCOUNT:?}") })];
        json!({ "metadata": { "name": name }, "spec": { "matchConditions": conditions,
            "matchConstraints": { "resourceRules": [{ "apiGroups": [group] }] } } })
    }

    fn binding(name: &str, action: &str) -> Value {
        json!({ "spec": { "policyName": name, "validationActions": [action, "Audit"] } })
    }

    #[test]
    fn policies_name_an_account_if_they_deny_all_others() {
        let fence = policy("a-fence", "pod-safety.dev", CONDITION);
        let named_by =
            |policy: &Value, action: &str| policy_accounts(std::slice::from_ref(policy), &[binding("a-fence", action)]);
        assert_eq!(
            named_by(&fence, "Deny"),
            [PolicyAccount { policy: "a-fence".to_owned(), account: ACCOUNT.to_owned() }]
        );
        assert_eq!(named_by(&fence, "Warn"), [], "it only warns");
        assert_eq!(policy_accounts(&[fence], &[binding("other", "Deny")]), [], "it is not bound");
        assert_eq!(named_by(&policy("a-fence", "apps", CONDITION), "Deny"), [], "it is not about fencing");
        assert_eq!(named_by(&policy("a-fence", "pod-safety.dev", "other"), "Deny"), []);
    }

    #[test]
    fn the_settings_of_a_leader_are_read_from_its_lease_and_not_those_of_a_former_one() {
        let lease = |holder: &str| {
            let annotation =
                format!("p_1 {} user=Anna B", describe_settings(Mode::Guard, &[Name::PodGc, Name::Fencing]));
            json!({ "metadata": { "annotations": { LEADER_ANNOTATION: annotation } }, "spec": { "holderIdentity": holder } })
        };
        let read = LeaderSettings::from_lease(&lease("p_1")).unwrap();
        assert_eq!((read.mode, read.user.as_str()), (Mode::Guard, "Anna B"));
        assert_eq!(read.controllers, [Name::PodGc, Name::Fencing]);
        assert_eq!(LeaderSettings::from_lease(&lease("p_2")), None);
    }

    /// The shipped policies, by the bytes that `pod-safety manifests` prints.
    #[test]
    fn the_shipped_policies_name_the_account_of_the_manifests() {
        let text = include_str!("../../../charts/pod-safety/files/policies.yaml");
        let condition = format!("request.userInfo.username != \\\"{ACCOUNT}\\\"");
        assert!(text.contains(&format!("- name: {CONDITION}\n      expression: \"{condition}\"")), "{text}");
    }

    #[test]
    fn the_remedy_names_the_account_and_how_to_get_its_token() {
        let named = PolicyAccount { policy: "p".to_owned(), account: ACCOUNT.to_owned() };
        let message = Denied { user: "anna".to_owned(), named }.to_string();
        for says in [
            "runs as anna",
            "admission policy p only",
            &format!("pod-safety run --as {ACCOUNT}"),
            "kubectl create token pod-safety --namespace pod-safety",
        ] {
            assert!(message.contains(says), "{says}: {message}");
        }
    }
}
