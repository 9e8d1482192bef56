//! What a person can do about a budget that lets nothing through, and what would
//! come of it. Each effect is calculated, not promised.

use pod_safety_shared::model::{UnhealthyPolicy, Wanted};

use super::eviction::{RefusedBy, Would};
use super::explained::{Counted, Explained, Verdict, Way};

/// How many more replicas are tried for "scale it to N".
const TRIED: i32 = 100;

/// The ways out.
pub(super) fn of(explained: &Explained<'_>) -> Vec<Way> {
    let way = |change: &str, effect: &str| Way { change: change.to_owned(), effect: effect.to_owned() };
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
            })
            .collect(),
        Verdict::Never => [never(explained), vec![unhealthy(explained)]].concat(),
        Verdict::NoneNow => [wait(explained), vec![unhealthy(explained)]].concat(),
    }
}

/// With every pod healthy nothing goes: the amount or the replicas must change.
fn never(explained: &Explained<'_>) -> Vec<Way> {
    let wanted = &explained.budget.wanted;
    let Some(replicas) = explained.arithmetic.replicas else { return Vec::new() };
    if replicas <= 0 {
        return vec![count_pods(explained)];
    }
    let mut ways = Vec::new();
    let effect = if replicas == 1 { "1 at a time, and none runs meanwhile" } else { "1 at a time" };
    let change = match wanted {
        Wanted::MinAvailable(_) | Wanted::MaxUnavailable(_) => {
            Some(format!("maxUnavailable: 1 in place of {}", written(wanted)))
        }
        Wanted::Nothing | Wanted::Unreadable(..) => None,
    };
    ways.extend(change.map(|change| Way { change, effect: effect.to_owned() }));
    let mut owners: Vec<&str> = explained.members.iter().map(|member| member.owner.as_str()).collect();
    owners.dedup();
    if let ([owner], Some((to, allows))) = (owners.as_slice(), scaled_up(wanted, replicas)) {
        ways.push(Way {
            change: format!("scale {owner} to {to}"),
            effect: format!("{allows} at a time once they are Ready"),
        });
    }
    ways
}

/// Nobody says how many of its pods there should be; a whole number of
/// `minAvailable` asks nobody.
fn count_pods(explained: &Explained<'_>) -> Way {
    let wanted = &explained.budget.wanted;
    let least = explained.members.len().saturating_sub(1);
    let alone = if least == 0 { ", and none runs meanwhile" } else { "" };
    let effect = format!("1 at a time{alone}: a whole number counts the pods that are there");
    Way { change: format!("minAvailable: {least} in place of {}", written(wanted)), effect }
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
fn scaled_up(wanted: &Wanted, replicas: i32) -> Option<(i32, i32)> {
    (1..=TRIED).find_map(|more| {
        let scaled = replicas.saturating_add(more);
        let allows = Counted { scaled, unmanaged: 0, unscaled: 0 }.ceiling(wanted);
        (allows > 0).then_some((scaled, allows))
    })
}

/// Something goes once more pods are healthy.
fn wait(explained: &Explained<'_>) -> Vec<Way> {
    let down: Vec<&str> = explained
        .members
        .iter()
        .filter(|member| !member.counts)
        .map(|member| &*member.pod.key.name)
        .collect();
    let effect = match explained.arithmetic.ceiling {
        Some(ceiling) => format!("{ceiling} at a time with all healthy"),
        None => "more with more healthy".to_owned(),
    };
    if down.is_empty() {
        return vec![Way { change: "wait until the missing pods exist and are Ready".to_owned(), effect }];
    }
    vec![Way { change: format!("wait until {} is Ready again", shown(&down)), effect }]
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
        return Way { change, effect: "already set".to_owned() };
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
    Way { change, effect }
}
