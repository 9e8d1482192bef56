//! The account of pod-safety, its rights, and why no controller answers.

use futures::StreamExt;
use futures::stream;
use pod_safety_doctor::{self as checks, Accounts, Health, Installation, Leader, Symptom};
use pod_safety_process::account::{self, PolicyAccount};
use pod_safety_process::registry::Name;
use pod_safety_shared::authority::{AccessRight, is_allowed, operator_requests};
use pod_safety_shared::controller_loop::Mode;
use pod_safety_shared::record::error_chain;

use super::rights;
use crate::cluster::Session;
use crate::explain::ClusterSnapshot;
use crate::{print_stderr, sanitize};

/// How many access reviews are in flight at a time.
const MAX_CONCURRENT_REVIEWS: usize = 8;

/// Whether the account of the leader is the one that the policies name, and whether it has the rights that it needs.
pub(super) async fn check_account(
    session: &Session,
    snapshot: &ClusterSnapshot,
    leader: Option<&Leader>,
    installation: &Installation,
) -> Vec<Symptom> {
    let named = account::read_policy_accounts(&session.connection).await.ok();
    let accounts = accounts(snapshot, leader, named.as_deref());
    let mut all: Vec<Symptom> = accounts.check().into_iter().collect();
    all.push(check_rights_of(session, snapshot, accounts.runs_as(), installation).await);
    all
}

fn accounts<'a>(
    snapshot: &'a ClusterSnapshot,
    leader: Option<&'a Leader>,
    named: Option<&'a [PolicyAccount]>,
) -> Accounts<'a> {
    let of_pods = (!snapshot.pods.is_empty()).then_some(snapshot.account.as_str());
    Accounts { named, leader, pod_account: of_pods }
}

/// Which of the rights that it needs the account lacks.
async fn check_rights_of(
    session: &Session,
    snapshot: &ClusterSnapshot,
    runs_as: Option<&str>,
    installation: &Installation,
) -> Symptom {
    if snapshot.pods_unread().is_some() {
        let why = "it is not known which controllers run, because pods could not be listed";
        return checks::not_checked("RBAC", why);
    }
    let account = runs_as.unwrap_or(&snapshot.account);
    let me = operator_requests::whoami(&session.connection).await.unwrap_or_default();
    let user = (me != account).then_some(account);
    if user.is_some_and(|user| !user.starts_with("system:serviceaccount:")) {
        let why = format!("the rights of {account} depend on its groups, which are not known");
        return checks::not_checked("RBAC", &why);
    }
    let lease = snapshot.election.as_ref().map(|lease| (&*lease.namespace, &*lease.name));
    let required = rights::required_rights(snapshot.settings.mode, &snapshot.controllers, lease);
    let answers = stream::iter(required.iter())
        .map(|right| async move { (right, is_allowed(&session.connection, user, right).await) });
    let answers: Vec<_> = answers.buffer_unordered(MAX_CONCURRENT_REVIEWS).collect().await;
    let mut lacking: Vec<AccessRight> = Vec::new();
    for (right, answer) in answers {
        match answer {
            Ok(true) => {}
            Ok(false) => lacking.push(right.clone()),
            Err(error) => {
                let why = format!("the API server did not answer what {account} may do: {}", error_chain(&error));
                return checks::not_checked("RBAC", &why);
            }
        }
    }
    lacking.sort();
    checks::check_rights(account, runs_as.is_some(), required.len(), &lacking, installation)
}

/// Why the controller fencing may not answer an operator, as far as it is known.
pub(crate) async fn describe_unresponsive(session: &Session) -> String {
    const FURTHER: &str = "pod-safety doctor checks the installation";
    let Ok(snapshot) = ClusterSnapshot::read(session, None).await else { return FURTHER.to_owned() };
    let lease_holder = snapshot.lease.as_ref().and_then(|lease| super::find_leader(&snapshot, lease));
    let named = account::read_policy_accounts(&session.connection).await.unwrap_or_default();
    let accounts = accounts(&snapshot, lease_holder.as_ref(), Some(&named));
    if let Some(denied) = accounts.describe_denied() {
        let remedy = named.first().map(PolicyAccount::remedy).unwrap_or_default();
        return format!("{denied}: each of its answers is denied. To fix it, {remedy}");
    }
    let leader = checks::check_leader(&snapshot.running, snapshot.wall, &super::installation(session).await);
    match snapshot.running.mode {
        _ if leader.health == Health::Problem => format!("{}. {}", leader.what, leader.remedy),
        Some(Mode::Observe) => "pod-safety runs in the mode observe, in which it asks no device".to_owned(),
        Some(_) if !snapshot.controllers.contains(&Name::Fencing) => {
            "the controller fencing is off: --controllers, or controllers.fencing.enabled of the chart".to_owned()
        }
        _ => FURTHER.to_owned(),
    }
}

/// Prints the reason on stderr.
pub(crate) fn print_reason(why: &str) {
    print_stderr(&sanitize::line(&format!("pod-safety: {why}")));
}
