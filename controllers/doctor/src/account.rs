//! The account that pod-safety runs as, and whether its admission policies allow that account to write.

use jiff::Timestamp;
use pod_safety_process::account::{LeaderSettings, PolicyAccount};
use pod_safety_shared::authority::AccessRight;
use serde_json::Value;

use super::{Health, Installation, Symptom, healthy, join_first, not_checked, symptom};

/// The holder of the leader Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The identity of the holder.
    pub holder: String,
    /// The user name that the API server knows it by; `None`: the Lease does not have it.
    pub user: Option<String>,
    /// When the Lease was acquired.
    pub since: Option<Timestamp>,
}

impl Leader {
    /// The leader by this Lease, if it is held.
    pub fn from_lease(lease: &Value) -> Option<Self> {
        let holder = lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty())?;
        let user = LeaderSettings::from_lease(lease).map(|leader| leader.user);
        let since = lease["spec"]["acquireTime"].as_str().and_then(|at| at.parse().ok());
        Some(Self { holder: holder.to_owned(), user, since })
    }
}

/// What is known of accounts.
#[derive(Clone, Copy, Debug)]
pub struct Accounts<'a> {
    /// The accounts that the admission policies name; `None`: they could not be read.
    pub named: Option<&'a [PolicyAccount]>,
    /// The leader; `None`: there is none, or the Lease could not be read.
    pub leader: Option<&'a Leader>,
    /// The ServiceAccount of the pods of pod-safety; `None`: there are none.
    pub pod_account: Option<&'a str>,
}

impl Accounts<'_> {
    /// The account that it runs as; `None`: not known.
    pub fn runs_as(&self) -> Option<&str> {
        self.leader.and_then(|leader| leader.user.as_deref()).or(self.pod_account)
    }

    /// The policies that deny the writes of the leader, in a sentence.
    pub fn describe_denied(&self) -> Option<String> {
        let leader = self.leader?;
        let denied = Denied::find(self.named?, leader.user.as_deref()?)?;
        let Denied { user, account, policies } = denied;
        Some(format!(
            "the leader {} runs as {user}, and of the admission policies {policies} only {account} may write what fencing writes",
            leader.holder
        ))
    }

    /// Whether the account of the leader is the one that the policies name. `None` where no policy names one, or there
    /// is no leader.
    pub fn check(&self) -> Option<Symptom> {
        const CHECK: &str = "ServiceAccount";
        let Some(named) = self.named else {
            return Some(not_checked(CHECK, "the admission policies could not be listed"));
        };
        let leader = self.leader?;
        let first = named.first()?;
        let Some(user) = &leader.user else {
            let why = format!("the leader {} does not say under which account it runs", leader.holder);
            return Some(not_checked(CHECK, &why));
        };
        let Some(what) = self.describe_denied() else {
            return Some(healthy(CHECK, format!("the leader runs as {user}, the account of the admission policies")));
        };
        Some(symptom(
            CHECK,
            Health::Problem,
            what,
            "the API server denies each of its writes: no FenceDevice is checked and no node is fenced",
            first.remedy(),
        ))
    }
}

/// An account that policies deny.
struct Denied<'a> {
    user: &'a str,
    account: &'a str,
    policies: String,
}

impl<'a> Denied<'a> {
    fn find(named: &'a [PolicyAccount], user: &'a str) -> Option<Self> {
        let others: Vec<&PolicyAccount> = named.iter().filter(|one| one.account != user).collect();
        let account = &others.first()?.account;
        let policies: Vec<&str> = others.iter().map(|one| one.policy.as_str()).collect();
        Some(Self { user, account, policies: policies.join(" and ") })
    }
}

/// Which rights the account of pod-safety lacks; `runs`: a process with it was found.
pub fn check_rights(
    account: &str,
    runs: bool,
    queried: usize,
    lacking: &[AccessRight],
    installation: &Installation,
) -> Symptom {
    const CHECK: &str = "RBAC";
    if lacking.is_empty() && !runs {
        let why = format!(
            "no process of pod-safety was found, so its account is not known; {account} would have all {queried} rights that it needs"
        );
        return not_checked(CHECK, &why);
    }
    if lacking.is_empty() {
        return healthy(CHECK, format!("{account} has all {queried} rights that it needs"));
    }
    let names: Vec<String> = lacking.iter().map(ToString::to_string).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    symptom(
        CHECK,
        Health::Problem,
        format!("{account} may not: {}", join_first(&names)),
        "it cannot decide about objects that it may not read, and cannot do what it may not write",
        installation.apply_command("rbac.create=true"),
    )
}
