//! PodDisruptionBudgets.

use std::sync::Arc;

use super::object::{Identity, Notify, Object, ProjectError, Undecodable, parse_identity, parse_name};
use super::table::{Entry, Table};
use super::{Change, Inner};
use crate::clock::Mono;
use crate::model::{
    Amount, BadSelector, Budget, BudgetKey, BudgetLimit, BudgetStatus, DisruptedPod, DisruptionAllowedCondition,
    Interner, Kind, Requirement, Selector, Uid, UnhealthyPolicy,
};
use crate::wire;

/// Parses the selector, if it is valid.
pub fn parse_selector(wire: Option<wire::LabelSelector>) -> Result<Option<Selector>, BadSelector> {
    let Some(wire::LabelSelector { match_labels, match_expressions }) = wire else { return Ok(None) };
    let pairs = match_labels.iter().map(|(key, value)| Requirement::equals(key, value));
    let expressions = match_expressions.iter().map(|one| {
        let text = |text: &'_ Option<String>| text.clone().unwrap_or_default();
        Requirement::expression(&text(&one.key), &text(&one.operator), &one.values)
    });
    pairs.chain(expressions).collect::<Result<Selector, BadSelector>>().map(Some)
}

fn parse_amount(field: &'static str, wire: &wire::IntOrString, limit: fn(Amount) -> BudgetLimit) -> BudgetLimit {
    match wire.as_text() {
        Err(pods) => limit(Amount::Pods(pods)),
        Ok(text) => Amount::parse(text).map_or_else(|bad| BudgetLimit::Unreadable(field, bad), limit),
    }
}

/// As in KCM, `maxUnavailable` wins if both are set, which the API forbids.
fn budget_limit(spec: &wire::BudgetSpec) -> BudgetLimit {
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(max), _) => parse_amount("maxUnavailable", max, BudgetLimit::MaxUnavailable),
        (None, Some(min)) => parse_amount("minAvailable", min, BudgetLimit::MinAvailable),
        (None, None) => BudgetLimit::Unset,
    }
}

fn project_status(wire: wire::BudgetStatus, now: Mono) -> BudgetStatus {
    let allowed = wire.conditions.into_iter().find(|one| one.r#type.as_deref() == Some("DisruptionAllowed"));
    let text = |text: Option<String>| text.unwrap_or_default().into_boxed_str();
    BudgetStatus {
        observed_generation: wire.observed_generation.unwrap_or(0),
        disruptions_allowed: wire.disruptions_allowed.unwrap_or(0),
        current_healthy: wire.current_healthy.unwrap_or(0),
        desired_healthy: wire.desired_healthy.unwrap_or(0),
        expected_pods: wire.expected_pods.unwrap_or(0),
        disrupted: wire
            .disrupted_pods
            .into_iter()
            .map(|(name, at)| (name.into(), DisruptedPod { at: at.whole_seconds(), first_seen: now, pod: None }))
            .collect(),
        allowed_condition: allowed.map(|one| DisruptionAllowedCondition {
            status: text(one.status),
            reason: text(one.reason),
            message: text(one.message),
            observed_generation: one.observed_generation.unwrap_or(0),
        }),
    }
}

fn project(
    meta: &wire::ObjectMeta,
    spec: wire::BudgetSpec,
    status: wire::BudgetStatus,
    interner: &mut Interner,
    now: Mono,
) -> Result<Budget, ProjectError> {
    let Identity { uid, rv, name } = parse_identity(meta)?;
    let namespace = self::parse_name(meta.namespace.as_deref(), "metadata.namespace")?;
    Ok(Budget {
        key: BudgetKey { namespace: interner.intern(&namespace), name: name.into(), uid },
        rv,
        generation: meta.generation.unwrap_or(0),
        limit: budget_limit(&spec),
        unhealthy_policy: match spec.unhealthy_pod_eviction_policy.as_deref() {
            Some("AlwaysAllow") => UnhealthyPolicy::AlwaysAllow,
            _ => UnhealthyPolicy::IfHealthyBudget,
        },
        selector: parse_selector(spec.selector),
        status: self::project_status(status, now),
    })
}

/// Keeps `first_seen` and the pod of `disruptedPods` entries that were there before. A new entry gets the UID of the
/// pod that has its name, unless the cached pod is already terminating or younger than the entry: the eviction API
/// evicts no such pod, so the cache of pods is behind.
fn carry_over_disrupted(inner: &Inner, before: &Budget, after: &mut Budget) {
    for (name, entry) in &mut after.status.disrupted {
        match before.status.disrupted.get(name) {
            Some(earlier) if earlier.at == entry.at => *entry = earlier.clone(),
            _ => {
                let mut selected = inner.selection.pods_selected_by(&before.key.uid);
                entry.pod = selected
                    .find(|uid| {
                        inner.pods.get_known(uid).is_some_and(|pod| {
                            *pod.key.name == **name && pod.deletion.is_none() && pod.created <= entry.at
                        })
                    })
                    .cloned();
            }
        }
    }
}

impl Object for Budget {
    type Wire = wire::Budget;
    type Stored = Self;
    const KIND: Kind = Kind::Budgets;

    fn project(wire: wire::Budget, interner: &mut Interner, now: Mono) -> Result<Self, Undecodable> {
        let meta = wire.metadata.unwrap_or_default();
        project(&meta, wire.spec.unwrap_or_default(), wire.status.unwrap_or_default(), interner, now)
            .map_err(|error| Undecodable::from_meta(&meta, &error))
    }

    fn table(inner: &mut Inner) -> &mut Table<Self> {
        &mut inner.budgets
    }

    fn put(inner: &mut Inner, mut budget: Self, now: Mono, notify: Notify<'_>) {
        let uid = budget.key.uid.clone();
        let before = match inner.budgets.remove(&uid) {
            Some(Entry::Known(before)) => Some(before),
            Some(Entry::Undecodable(_)) | None => None,
        };
        if let Some(before) = &before {
            carry_over_disrupted(inner, before, &mut budget);
        }
        let same = |before: &Self| before.selector == budget.selector;
        if !before.as_ref().is_some_and(same) {
            match &budget.selector {
                Ok(Some(selector)) => {
                    let namespace = Arc::clone(&budget.key.namespace);
                    inner.selection.set_selector(&namespace, selector.clone(), &uid, now);
                }
                Ok(None) | Err(_) => inner.selection.remove_selector(&uid),
            }
        }
        let (allowed, previous) = (budget.status.disruptions_allowed, before.map(|one| one.status.disruptions_allowed));
        inner.budgets.put(uid.clone(), Entry::Known(budget));
        if allowed > 0 && previous != Some(allowed) {
            inner.notify_budget_evictions(&uid, notify);
        }
        // Also for a change of the version alone: a status write needs the current version.
        notify(Change::Budget { uid: &uid });
    }

    fn remove(inner: &mut Inner, uid: &Uid, _now: Mono, notify: Notify<'_>) {
        inner.selection.remove_selector(uid);
        if inner.budgets.remove(uid).is_some() {
            notify(Change::Budget { uid });
        }
    }
}
