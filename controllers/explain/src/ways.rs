//! What a person can do about a budget that lets nothing through, and what would
//! come of it. Each effect is calculated, not promised.

use pod_safety_disruption::Reach;
use pod_safety_shared::model::{Amount, UnhealthyPolicy, Wanted};

use super::eviction::{RefusedBy, Would};
use super::explained::{Explained, Promise, Verdict, Way};

/// How many more replicas are tried for "scale it to N".
const TRIED: i32 = 100;

/// The ways out.
pub(super) fn of(explained: &Explained<'_>) -> Vec<Way> {
    let way = |change: &str, effect: &str| Way {
        change: change.to_owned(),
        effect: effect.to_owned(),
        allows: None,
    };
    match &explained.verdict {
        Verdict::Allows(_) => Vec::new(),
        Verdict::Ignored(_) => vec![way("fix spec.selector", "it protects its pods again")],
        Verdict::SelectsNothing => {
            vec![way("fix spec.selector, or delete it", "until then it protects nothing and blocks nothing")]
        }
        Verdict::Processing => vec![way(
            "check that a disruption controller runs (pod-safety or kube-controller-manager)",
            "it writes the numbers within a second",
        )],
        Verdict::SyncFailed(_) => {
            vec![way("fix what the message names", "the numbers are calculated again")]
        }
        Verdict::Overlaps(others) => others
            .iter()
            .map(|other| Way {
                change: format!("narrow or delete {other} or this one"),
                effect: "the API server evicts pods that one PodDisruptionBudget selects".to_owned(),
                allows: None,
            })
            .collect(),
        Verdict::Never => [never(explained), vec![unhealthy(explained)]].concat(),
        Verdict::NoneNow => [wait(explained), vec![unhealthy(explained)]].concat(),
    }
}

/// With every pod healthy nothing goes: the amount, the replicas or the selected pods must change. What is promised is
/// calculated as its status will be.
fn never(explained: &Explained<'_>) -> Vec<Way> {
    let Explained { budget, reach, members, .. } = explained;
    let now = reach.best(&budget.wanted);
    let mut ways = Vec::new();
    if let Some(all) = reach.of_more() {
        ways.push(Way {
            change: format!(
                "have what sets its labels choose a pod of another node, of the {all} there should be"
            ),
            effect: "the pods that it no longer selects can go".to_owned(),
            allows: None,
        });
    }
    let one_less = Wanted::MinAvailable(Amount::Pods(whole(reach).saturating_sub(1).max(0)));
    let amounts = [Wanted::MaxUnavailable(Amount::Pods(1)), one_less];
    ways.extend(amounts.into_iter().find_map(|wanted| amount(explained, wanted)));
    let mut owners: Vec<&str> = members.iter().map(|member| member.owner.as_str()).collect();
    owners.dedup();
    let scaled = scaled_up(&budget.wanted, reach).filter(|_| now.desired > 0);
    if let ([owner], Some((to, allows))) = (owners.as_slice(), scaled) {
        ways.push(Way {
            change: format!("scale {owner} to {to}"),
            effect: format!("{allows} at a time once they are Ready"),
            allows: Some(Promise::Scale(to, allows)),
        });
    }
    ways
}

/// How many of its pods can be healthy, by a whole number.
fn whole(reach: &Reach) -> i32 {
    reach.best(&Wanted::MinAvailable(Amount::Pods(0))).healthy
}

/// Another amount, if it allows something.
fn amount(explained: &Explained<'_>, wanted: Wanted) -> Option<Way> {
    let best = explained.reach.best(&wanted);
    if best.allowed <= 0 {
        return None;
    }
    let alone = if best.allowed >= best.healthy { ", and none runs meanwhile" } else { "" };
    Some(Way {
        change: format!("{} in place of {}", written(&wanted), written(&explained.budget.wanted)),
        effect: format!("{} at a time{alone}", best.allowed),
        allows: Some(Promise::Spec(wanted, best.allowed)),
    })
}

/// As it stands in the spec.
fn written(wanted: &Wanted) -> String {
    match wanted {
        Wanted::MinAvailable(amount) => format!("minAvailable: {amount}"),
        Wanted::MaxUnavailable(amount) => format!("maxUnavailable: {amount}"),
        Wanted::Nothing => "neither minAvailable nor maxUnavailable".to_owned(),
        Wanted::Unreadable(field, _) => format!("this {field}"),
    }
}

/// The smallest number of replicas with which something goes, and how much.
fn scaled_up(wanted: &Wanted, reach: &Reach) -> Option<(i32, i32)> {
    (1..=TRIED).find_map(|more| {
        let to = reach.replicas().saturating_add(more);
        let allows = reach.scaled_to(to)?.best(wanted).allowed;
        (allows > 0).then_some((to, allows))
    })
}

/// Something goes once more pods are healthy.
fn wait(explained: &Explained<'_>) -> Vec<Way> {
    let down: Vec<&str> = explained
        .members
        .iter()
        .filter(|member| !member.counts && !member.pod.phase.is_terminal())
        .map(|member| &*member.pod.key.name)
        .collect();
    let effect = match explained.arithmetic.ceiling {
        Some(ceiling) => format!("{ceiling} at a time with all healthy"),
        None => "more with more healthy".to_owned(),
    };
    let change = match down.as_slice() {
        [] => "wait until the missing pods exist and are Ready".to_owned(),
        [one] => format!("wait until {one} is Ready again"),
        _ => format!("wait until {} are Ready again", shown(&down)),
    };
    vec![Way { change, effect, allows: None }]
}

fn shown(names: &[&str]) -> String {
    match names {
        [first, _, _, _, ..] => format!("{first} and {} more", names.len() - 1),
        _ => names.join(", "),
    }
}

/// Pods that are not Ready may go if the budget says so.
fn unhealthy(explained: &Explained<'_>) -> Way {
    let change = "unhealthyPodEvictionPolicy: AlwaysAllow".to_owned();
    if explained.budget.unhealthy == UnhealthyPolicy::AlwaysAllow {
        return Way { change, effect: "already set".to_owned(), allows: None };
    }
    let freed: Vec<&str> = explained
        .members
        .iter()
        .filter(|member| !member.pod.ready)
        .filter(|member| matches!(member.would, Would::Refuse(_, RefusedBy::Insufficient)))
        .map(|member| &*member.pod.key.name)
        .collect();
    let effect = match freed.len() {
        0 => "nothing now: every pod that it blocks is healthy".to_owned(),
        _ => format!("{} can go: not Ready", shown(&freed)),
    };
    Way { change, effect, allows: None }
}
