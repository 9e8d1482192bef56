//! Why a StatefulSet is not complete: identity by identity.

use pod_safety_shared::model::{Kind, Pod};
use serde_json::Value;

use super::answer::{Answer, Item, Judgement, Verdict};
use super::context::{ExplainContext, object_ref, str_at};
use super::history;
use super::pod::explain_pod;

/// Explains a StatefulSet, given as its API object.
#[must_use]
pub fn explain_set(set: &Value, ctx: &ExplainContext<'_>) -> Answer {
    let text = |pointer: &str| str_at(set, pointer);
    let number = |pointer: &str| set.pointer(pointer).and_then(Value::as_i64);
    let (namespace, name, uid) = (text("/metadata/namespace"), text("/metadata/name"), text("/metadata/uid"));
    let replicas = number("/spec/replicas").unwrap_or(1);
    let start = number("/spec/ordinals/start").unwrap_or(0);
    let ordered = text("/spec/podManagementPolicy") != "Parallel";
    let object = object_ref("statefulset", namespace, name);
    let mine = |pod: &&Pod| pod.controller.as_ref().is_some_and(|by| by.uid.to_string() == uid);
    let pods: Vec<&Pod> = ctx.view.all_pods().filter(mine).collect();
    let refused = ctx.events_of(&object).into_iter().rev().find(|event| event.reason == "FailedCreate");
    let mut items = Vec::new();
    let mut before: Option<String> = None;
    for ordinal in start..start.saturating_add(replicas) {
        let identity = format!("{name}-{ordinal}");
        let pod = pods.iter().find(|pod| *pod.key.name == *identity);
        let verdict = match pod {
            Some(pod) => explain_pod(pod, ctx).judgement,
            None if !ctx.has_read(Kind::Pods) => Judgement::new(
                Verdict::Unknown,
                "NotRead",
                "pods could not be listed, so whether it exists is not known.",
            ),
            None => judge_missing(before.as_deref().filter(|_| ordered), refused.map(|event| event.message.as_str())),
        };
        if verdict.verdict != Verdict::Free && before.is_none() {
            before = Some(identity.clone());
        }
        items.push(Item { object: super::context::object_ref("pod", namespace, &identity), judgement: verdict });
    }
    let mut answer = Answer::new(object.clone(), judge(&items, replicas));
    let ready = pods.iter().filter(|pod| pod.ready && pod.deletion.is_none()).count();
    answer.facts = vec![
        format!("{ready} of {replicas} Ready"),
        if ordered { "OrderedReady: one at a time" } else { "Parallel: all at once" }.to_owned(),
    ];
    if number("/spec/template/spec/terminationGracePeriodSeconds") == Some(0) {
        answer.notes.push(
            "terminationGracePeriodSeconds is 0: every deletion of its pods is a force delete. Set it to at least 1."
                .to_owned(),
        );
    }
    answer.history = history::event_moments(&object, ctx);
    answer.history.sort_by_key(|moment| moment.at);
    if let Some(refused) = refused.filter(|_| answer.judgement.reason == "PodsRefused") {
        add_webhook_step(&mut answer, &refused.message);
    }
    if let Some(first) = items.iter().find(|item| item.judgement.verdict != Verdict::Free) {
        let pod = first.object.rsplit('/').next().unwrap_or_default();
        if pods.iter().any(|one| *one.key.name == *pod) {
            answer.add_next_step(
                "Show the first pod with a problem",
                format!("pod-safety explain pod -n {namespace} {pod}"),
            );
        }
    }
    answer.items = items;
    answer
}

fn judge_missing(before: Option<&str>, refused: Option<&str>) -> Judgement {
    match (before, refused) {
        (None, Some(why)) => Judgement::new(Verdict::Blocked, "PodsRefused", format!("it cannot be created: {why}")),
        (Some(before), _) => Judgement::new(Verdict::Waiting, "InOrder", format!("created when {before} is Ready.")),
        (None, None) => {
            Judgement::new(Verdict::Waiting, "Missing", "not created yet: the StatefulSet controller creates it.")
        }
    }
}

/// Adds a step about a webhook. The API server's message has its name in quotes.
fn add_webhook_step(answer: &mut Answer, message: &str) {
    if !message.contains("webhook") {
        return;
    }
    let name = message.split('"').nth(1).unwrap_or_default().to_owned();
    answer.notes.push(format!(
        "The webhook {name} does not answer, or denies the request, so pods that match it cannot be created."
    ));
    answer.add_next_step(
        "Find the service that the webhook calls, and check that it is running",
        "kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations -o wide".to_owned(),
    );
}

fn judge(items: &[Item], replicas: i64) -> Judgement {
    let of = |verdict: Verdict| items.iter().filter(move |item| item.judgement.verdict == verdict);
    let worst =
        items.iter().filter(|item| item.judgement.verdict != Verdict::Free).max_by_key(|item| item.judgement.verdict);
    let Some(worst) = worst else {
        let message = if replicas == 0 { "it has 0 replicas." } else { "every replica has its pod." };
        return Judgement::new(Verdict::Free, "Complete", message);
    };
    let first = of(worst.judgement.verdict).next().unwrap_or(worst);
    let identity = first.object.rsplit('/').next().unwrap_or_default();
    let rest = items.iter().filter(|item| item.judgement.verdict != Verdict::Free).count().saturating_sub(1);
    let more = if rest == 0 { String::new() } else { format!(" {rest} more with problems.") };
    let message = first.judgement.message.trim_end_matches('.');
    Judgement::new(first.judgement.verdict, first.judgement.reason, format!("{identity}: {message}.{more}"))
}
