//! What an operator can do about a budget that allows no eviction, and the effect. Each effect is calculated.

use pod_safety_disruption::PodTotals;
use pod_safety_shared::model::{Amount, BudgetLimit, Pod, UnhealthyPolicy};

use super::eviction::{EvictionAnswer, RefusalCause};
use super::explanation::{BudgetExplanation, BudgetVerdict, Member, PredictedAllowance, Remediation};

/// How many more replicas are tried for "scale it to N".
const MAX_EXTRA_REPLICAS: i32 = 100;

/// The remediations of a budget.
pub(super) fn list_remediations(explained: &BudgetExplanation<'_>) -> Vec<Remediation> {
    let remediation =
        |change: &str, effect: &str| Remediation { change: change.to_owned(), effect: effect.to_owned(), allows: None };
    match &explained.verdict {
        BudgetVerdict::Allows(_) | BudgetVerdict::AllTerminated => Vec::new(),
        BudgetVerdict::Ignored(_) => vec![remediation("fix spec.selector", "it protects its pods again")],
        BudgetVerdict::SelectsNothing => {
            vec![remediation("fix spec.selector, or delete it", "until then it protects nothing and blocks nothing")]
        }
        BudgetVerdict::Processing => vec![remediation(
            "check that a disruption controller runs (pod-safety or kube-controller-manager)",
            "it writes the numbers within a second",
        )],
        BudgetVerdict::SyncFailed(_) if !explained.unscaled.is_empty() => unscaled_remediations(explained),
        BudgetVerdict::SyncFailed(_) if !explained.ownerless.is_empty() => {
            let pods: Vec<&str> = explained.ownerless.iter().map(String::as_str).collect();
            let verb = if pods.len() == 1 { "is" } else { "are" };
            let change = format!("wait until {} {verb} gone", join_names(&pods));
            vec![remediation(&change, "the numbers are calculated again")]
        }
        BudgetVerdict::SyncFailed(_) => {
            vec![remediation("fix what the message names", "the numbers are calculated again")]
        }
        BudgetVerdict::Overlaps(others) => others
            .iter()
            .map(|other| Remediation {
                change: format!("narrow or delete {other} or this one"),
                effect: "the API server evicts pods that one PodDisruptionBudget selects".to_owned(),
                allows: None,
            })
            .collect(),
        BudgetVerdict::Never => [never_remediations(explained), vec![unhealthy_policy_remediation(explained)]].concat(),
        BudgetVerdict::NoneNow => {
            [wait_remediations(explained), vec![unhealthy_policy_remediation(explained)]].concat()
        }
    }
}

/// No eviction is allowed even with every pod healthy: the amount, the replicas or the selected pods must change. The
/// effect is calculated in the same way as the future status.
fn never_remediations(explained: &BudgetExplanation<'_>) -> Vec<Remediation> {
    let BudgetExplanation { budget, reach, members, .. } = explained;
    let now = reach.best_case(&budget.limit);
    let mut remediations = Vec::new();
    if let Some(all) = reach.total_if_partial() {
        remediations.push(Remediation {
            change: format!("have what sets its labels choose a pod of another node, of the {all} there should be"),
            effect: "the pods that it no longer selects can go".to_owned(),
            allows: None,
        });
    }
    let amounts = [BudgetLimit::MaxUnavailable(Amount::Pods(1)), one_less_than_all(reach)];
    remediations.extend(amounts.into_iter().find_map(|limit| amount_remediation(explained, limit)));
    let mut owners: Vec<&str> = members.iter().map(|member| member.owner.as_str()).collect();
    owners.dedup();
    let scaled = find_scale(&budget.limit, reach).filter(|_| now.desired > 0);
    if let ([owner], Some((to, allows))) = (owners.as_slice(), scaled) {
        remediations.push(Remediation {
            change: format!("scale {owner} to {to}"),
            effect: format!("{allows} at a time once they are Ready"),
            allows: Some(PredictedAllowance::Scale(to, allows)),
        });
    }
    remediations
}

/// kube-controller-manager does not calculate the budget until it selects only pods whose number is known, or needs none.
fn unscaled_remediations(explained: &BudgetExplanation<'_>) -> Vec<Remediation> {
    let owners: Vec<&str> = explained.unscaled.iter().map(String::as_str).collect();
    let narrow = Remediation {
        change: format!("have spec.selector leave out the pods of {}", join_names(&owners)),
        effect: "the numbers are calculated again".to_owned(),
        allows: None,
    };
    std::iter::once(narrow).chain(amount_remediation(explained, one_less_than_all(&explained.reach))).collect()
}

fn one_less_than_all(reach: &PodTotals) -> BudgetLimit {
    BudgetLimit::MinAvailable(Amount::Pods(healthy_count(reach).saturating_sub(1).max(0)))
}

/// How many of its pods can be healthy, as a whole number.
fn healthy_count(reach: &PodTotals) -> i32 {
    reach.best_case(&BudgetLimit::MinAvailable(Amount::Pods(0))).healthy
}

/// Another amount, if it allows an eviction.
fn amount_remediation(explained: &BudgetExplanation<'_>, limit: BudgetLimit) -> Option<Remediation> {
    let best = explained.reach.best_case(&limit);
    if best.allowed <= 0 {
        return None;
    }
    let alone = if best.allowed >= best.healthy { ", and none runs meanwhile" } else { "" };
    Some(Remediation {
        change: format!("{} in place of {}", format_amount(&limit), format_amount(&explained.budget.limit)),
        effect: format!("{} at a time{alone}", best.allowed),
        allows: Some(PredictedAllowance::Spec(limit, best.allowed)),
    })
}

/// The amount as the spec has it.
fn format_amount(limit: &BudgetLimit) -> String {
    match limit {
        BudgetLimit::MinAvailable(amount) => format!("minAvailable: {amount}"),
        BudgetLimit::MaxUnavailable(amount) => format!("maxUnavailable: {amount}"),
        BudgetLimit::Unset => "neither minAvailable nor maxUnavailable".to_owned(),
        BudgetLimit::Unreadable(field, _) => format!("this {field}"),
    }
}

/// The smallest number of replicas with which evictions are allowed, and how many are.
fn find_scale(limit: &BudgetLimit, reach: &PodTotals) -> Option<(i32, i32)> {
    (1..=MAX_EXTRA_REPLICAS).find_map(|more| {
        let to = reach.total_replicas().saturating_add(more);
        let allows = reach.with_replicas(to)?.best_case(limit).allowed;
        (allows > 0).then_some((to, allows))
    })
}

/// Evictions are allowed once more pods are healthy. A pod that terminates has a successor of another name, except of a
/// StatefulSet.
fn wait_remediations(explained: &BudgetExplanation<'_>) -> Vec<Remediation> {
    let names = |of: &dyn Fn(&Member<'_>) -> bool| -> Vec<&str> {
        explained.members.iter().filter(|member| of(member)).map(|member| &*member.pod.key.name).collect()
    };
    let comes_back = |pod: &Pod| !pod.phase.is_terminal() && (pod.deletion.is_none() || pod.keeps_identity());
    let down = names(&|member| !member.counts_as_healthy && !member.eviction_counts() && comes_back(member.pod));
    let evicted = names(&|member| member.eviction_counts());
    let effect = match explained.arithmetic.ceiling {
        Some(ceiling) => format!("{ceiling} at a time with all healthy"),
        None => "more with more healthy".to_owned(),
    };
    let change = match (down.as_slice(), evicted.as_slice()) {
        ([], []) => "wait until the missing pods exist and are Ready".to_owned(),
        ([], _) => format!("wait until the eviction of {} counts no more, two minutes at most", join_names(&evicted)),
        ([one], _) => format!("wait until {one} is Ready again"),
        _ => format!("wait until {} are Ready again", join_names(&down)),
    };
    vec![Remediation { change, effect, allows: None }]
}

fn join_names(names: &[&str]) -> String {
    match names {
        [first, _, _, _, ..] => format!("{first} and {} more", names.len() - 1),
        _ => names.join(", "),
    }
}

/// The remediation that the budget allows the eviction of pods that are not Ready.
fn unhealthy_policy_remediation(explained: &BudgetExplanation<'_>) -> Remediation {
    let change = "unhealthyPodEvictionPolicy: AlwaysAllow".to_owned();
    if explained.budget.unhealthy_policy == UnhealthyPolicy::AlwaysAllow {
        return Remediation { change, effect: "already set".to_owned(), allows: None };
    }
    let freed: Vec<&str> = explained
        .members
        .iter()
        .filter(|member| !member.pod.ready)
        .filter(|member| matches!(member.eviction, EvictionAnswer::Refuse(_, RefusalCause::Insufficient)))
        .map(|member| &*member.pod.key.name)
        .collect();
    let effect = match freed.len() {
        0 => "nothing now: every pod that it blocks is healthy".to_owned(),
        _ => format!("{} can go: not Ready", join_names(&freed)),
    };
    Remediation { change, effect, allows: None }
}
