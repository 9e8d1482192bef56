//! Under which account pod-safety runs, what that account may, and why nobody answers.

use futures::StreamExt;
use futures::stream;
use pod_safety_doctor::{self as checks, Accounts, Health, Leads, Symptom};
use pod_safety_process::account::{self, Named};
use pod_safety_process::registry::Name;
use pod_safety_shared::authority::{Right, may, people};
use pod_safety_shared::drive::Mode;
use pod_safety_shared::record::error_chain;

use super::rights;
use crate::cluster::Session;
use crate::explain::Look;
use crate::{clean, say};

/// How many questions about rights are under way at a time.
const QUESTIONS: usize = 8;

/// Whether the account of the leader is the one that the policies name, and whether it has the rights that it needs.
pub(super) async fn check(session: &Session, look: &Look, leads: Option<&Leads>) -> Vec<Symptom> {
    let named = account::read(&session.connection).await.ok();
    let accounts = accounts(look, leads, named.as_deref());
    let mut all: Vec<Symptom> = accounts.check().into_iter().collect();
    all.push(rights_of(session, look, accounts.runs_as()).await);
    all
}

fn accounts<'a>(look: &'a Look, leads: Option<&'a Leads>, named: Option<&'a [Named]>) -> Accounts<'a> {
    let of_pods = (!look.pods.is_empty()).then_some(look.account.as_str());
    Accounts { named, leads, of_pods }
}

/// What the account may not do of what it needs.
async fn rights_of(session: &Session, look: &Look, runs_as: Option<&str>) -> Symptom {
    if look.pods_unread().is_some() {
        let why = "it is not known which controllers run, because pods could not be listed";
        return checks::not_checked("RBAC", why);
    }
    let account = runs_as.unwrap_or(&look.account);
    let me = people::whoami(&session.connection).await.unwrap_or_default();
    let user = (me != account).then_some(account);
    if user.is_some_and(|user| !user.starts_with("system:serviceaccount:")) {
        let why = format!("the rights of {account} depend on its groups, which are not known");
        return checks::not_checked("RBAC", &why);
    }
    let wanted = rights::needed(look.settings.mode, &look.controllers);
    let answers = stream::iter(wanted.iter())
        .map(|right| async move { (right, may(&session.connection, user, right).await) });
    let answers: Vec<_> = answers.buffer_unordered(QUESTIONS).collect().await;
    let mut lacking: Vec<Right> = Vec::new();
    for (right, answer) in answers {
        match answer {
            Ok(true) => {}
            Ok(false) => lacking.push(right.clone()),
            Err(error) => {
                let why =
                    format!("the API server did not answer what {account} may do: {}", error_chain(&error));
                return checks::not_checked("RBAC", &why);
            }
        }
    }
    lacking.sort();
    checks::rights(account, runs_as.is_some(), wanted.len(), &lacking)
}

/// Why the controller fencing may not answer a person, as far as it can be seen.
pub(crate) async fn silent_because(session: &Session) -> String {
    const FURTHER: &str = "pod-safety doctor checks the installation";
    let Ok(look) = Look::at(session, None).await else { return FURTHER.to_owned() };
    let leads = look.lease.as_ref().and_then(|lease| super::leads(&look, lease));
    let named = account::read(&session.connection).await.unwrap_or_default();
    let accounts = accounts(&look, leads.as_ref(), Some(&named));
    if let Some(denied) = accounts.denied() {
        let remedy = named.first().map(Named::remedy).unwrap_or_default();
        return format!("{denied}: each of its answers is denied. To mend it, {remedy}");
    }
    let leader = checks::leader(&look.running, look.wall, &super::installation(session).await);
    match look.running.mode {
        _ if leader.health == Health::Problem => format!("{}. {}", leader.what, leader.remedy),
        Some(Mode::Observe) => "pod-safety runs in the mode observe, in which it asks no device".to_owned(),
        Some(_) if !look.controllers.contains(&Name::Fencing) => {
            "the controller fencing is off: --controllers, or controllers.fencing.enabled of the chart"
                .to_owned()
        }
        _ => FURTHER.to_owned(),
    }
}

/// Says it on stderr.
pub(crate) fn say_why(why: &str) {
    say(&clean::line(&format!("pod-safety: {why}")));
}
