//! Under which account pod-safety runs, and whether its admission policies let that account write.

use jiff::Timestamp;
use pod_safety_process::account::{Leader, Named};
use pod_safety_shared::authority::Right;
use serde_json::Value;

use super::{Health, Symptom, fine, found, not_checked, shown};

/// Who holds the Lease of the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leads {
    /// The process.
    pub holder: String,
    /// As whom the API server knows it; none: it does not say.
    pub user: Option<String>,
    /// Since when.
    pub since: Option<Timestamp>,
}

impl Leads {
    /// By a Lease that is held.
    pub fn of(lease: &Value) -> Option<Self> {
        let holder = lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty())?;
        let user = Leader::of(lease).map(|leader| leader.user);
        let since = lease["spec"]["acquireTime"].as_str().and_then(|at| at.parse().ok());
        Some(Self { holder: holder.to_owned(), user, since })
    }
}

/// What is known of accounts.
#[derive(Clone, Copy, Debug)]
pub struct Accounts<'a> {
    /// Whom the admission policies name; none: they could not be read.
    pub named: Option<&'a [Named]>,
    /// Who leads; none: nobody, or the Lease could not be read.
    pub leads: Option<&'a Leads>,
    /// The ServiceAccount of the pods of pod-safety; none: there are none.
    pub of_pods: Option<&'a str>,
}

impl Accounts<'_> {
    /// Under which account it runs; none: that is not known.
    pub fn runs_as(&self) -> Option<&str> {
        self.leads.and_then(|leads| leads.user.as_deref()).or(self.of_pods)
    }

    /// The policies that deny what the leader writes, in a sentence.
    pub fn denied(&self) -> Option<String> {
        let leads = self.leads?;
        let denied = Denied::of(self.named?, leads.user.as_deref()?)?;
        let Denied { user, account, policies } = denied;
        Some(format!(
            "the leader {} runs as {user}, and of the admission policies {policies} only {account} may write what fencing writes",
            leads.holder
        ))
    }

    /// Whether the account of the leader is the one that the policies name. Nothing where none names one, or nobody leads.
    pub fn check(&self) -> Option<Symptom> {
        const CHECK: &str = "ServiceAccount";
        let Some(named) = self.named else {
            return Some(not_checked(CHECK, "the admission policies could not be listed"));
        };
        let leads = self.leads?;
        let first = named.first()?;
        let Some(user) = &leads.user else {
            let why = format!("the leader {} does not say under which account it runs", leads.holder);
            return Some(not_checked(CHECK, &why));
        };
        let Some(what) = self.denied() else {
            return Some(fine(
                CHECK,
                format!("the leader runs as {user}, the account of the admission policies"),
            ));
        };
        Some(found(
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
    fn of(named: &'a [Named], user: &'a str) -> Option<Self> {
        let others: Vec<&Named> = named.iter().filter(|one| one.account != user).collect();
        let account = &others.first()?.account;
        let policies: Vec<&str> = others.iter().map(|one| one.policy.as_str()).collect();
        Some(Self { user, account, policies: policies.join(" and ") })
    }
}

/// Which rights the account lacks that pod-safety runs as; `runs`: a process with it was found.
pub fn rights(account: &str, runs: bool, asked: usize, lacking: &[Right]) -> Symptom {
    const CHECK: &str = "RBAC";
    if lacking.is_empty() && !runs {
        let why = format!(
            "no process of pod-safety was found, so its account is not known; {account} would have all {asked} rights that it needs"
        );
        return not_checked(CHECK, &why);
    }
    if lacking.is_empty() {
        return fine(CHECK, format!("{account} has all {asked} rights that it needs"));
    }
    let names: Vec<String> = lacking.iter().map(ToString::to_string).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    found(
        CHECK,
        Health::Problem,
        format!("{account} may not: {}", shown(&names)),
        "it cannot decide about objects that it may not read, and cannot do what it may not write",
        "pod-safety manifests | kubectl apply --server-side -f -, or upgrade the chart with rbac.create=true",
    )
}
