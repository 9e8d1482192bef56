//! Volumes, claims, workloads and budgets that cannot be read: unknown is not absent.

use crate::model::WorkloadKind;

use super::*;

fn lookup_name<T>(lookup: Lookup<'_, T>) -> &'static str {
    match lookup {
        Lookup::Known(_) => "known",
        Lookup::Unknown(_) => "unknown",
        Lookup::Absent => "absent",
    }
}

fn guarded() -> Cache {
    let cache = listed();
    cache.enable_volume_guard();
    cache
}

fn lookup_volume(cache: &Cache, name: &str) -> &'static str {
    lookup_name(cache.read().view().volume(name))
}

#[test]
fn an_unreadable_volume_is_unknown_and_not_absent() {
    let cache = guarded();
    assert_eq!(lookup_volume(&cache, "v"), "absent");
    cache.apply_undecodable::<Volume>(unreadable(Some("uid-v"), Some("v")), at(1));
    assert_eq!((lookup_volume(&cache, "v"), lookup_volume(&cache, "w")), ("unknown", "absent"));
    cache.remove::<Volume>(&uid("uid-v"), at(2));
    assert_eq!(lookup_volume(&cache, "v"), "absent");
    cache.apply_undecodable::<Volume>(unreadable(Some("uid-x"), None), at(3));
    assert_eq!(lookup_volume(&cache, "v"), "unknown", "it may be the nameless one");
}

#[test]
fn no_claim_is_absent_while_one_is_unreadable() {
    let cache = guarded();
    let (namespace, name) = ("ns".into(), "c".into());
    let lookup_claim = |cache: &Cache| lookup_name(cache.read().view().claim(&namespace, &name));
    assert_eq!(lookup_claim(&cache), "absent");
    let claim = json!({ "metadata": { "namespace": "ns", "name": "c", "uid": "uid-c", "resourceVersion": "1" }, "spec": { "volumeName": "v" } });
    apply::<VolumeClaim>(&cache, &Obj(claim), at(1));
    assert_eq!(lookup_claim(&cache), "known");
    let user = pod("a")
        .on("n")
        .set("/spec/volumes", json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "c" } }]));
    apply::<Pod>(&cache, &user, at(1));
    assert_eq!(cache.read().view().pods_using("v").count(), 1);
    cache.apply_undecodable::<VolumeClaim>(unreadable(Some("uid-c"), Some("c")), at(2));
    assert_eq!((lookup_claim(&cache), cache.read().view().pods_using("v").count()), ("unknown", 0));
    cache.remove::<VolumeClaim>(&uid("uid-c"), at(3));
    assert_eq!(lookup_claim(&cache), "absent");
}

#[test]
fn the_claim_of_an_ephemeral_volume_is_named_after_pod_and_volume() {
    let cache = guarded();
    let volumes =
        json!([{ "name": "scratch", "ephemeral": { "volumeClaimTemplate": {} } }, { "name": "tmp", "emptyDir": {} }]);
    apply::<Pod>(&cache, &pod("a").set("/spec/volumes", volumes), at(1));
    let guard = cache.read();
    let claims: Vec<_> =
        guard.view().pod(&uid("uid-a")).unwrap().claims.iter().map(|claim| claim.to_string()).collect();
    assert_eq!(claims, ["a-scratch"]);
}

#[test]
fn a_removed_or_unreadable_volume_lease_has_no_holder() {
    let lease = || {
        Obj(
            json!({ "metadata": { "name": "v", "uid": "uid-l", "resourceVersion": "1" }, "spec": { "holderIdentity": "n/uid-n/b/uid-a" } }),
        )
    };
    let cache = guarded();
    apply::<VolumeLease>(&cache, &lease(), at(1));
    assert!(cache.read().view().volume_lease("v").is_some());
    cache.remove::<VolumeLease>(&uid("uid-other"), at(2));
    assert!(cache.read().view().volume_lease("v").is_some(), "another one went");
    cache.remove::<VolumeLease>(&uid("uid-l"), at(3));
    assert!(cache.read().view().volume_lease("v").is_none());
    apply::<VolumeLease>(&cache, &lease(), at(4));
    cache.apply_undecodable::<VolumeLease>(unreadable(Some("uid-l"), Some("v")), at(5));
    assert!(cache.read().view().volume_lease("v").is_none());
    assert_eq!(cache.read().view().count(Kind::VolumeLeases), (1, 1));
}

fn budget(selector: &str, policy: &str) -> Obj {
    Obj(json!({
        "metadata": { "namespace": "ns", "name": "b", "uid": "uid-b", "resourceVersion": "1" },
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": selector } }, "unhealthyPodEvictionPolicy": policy },
        "status": { "conditions": [{ "type": "Other", "status": "False" }, { "type": "DisruptionAllowed", "status": "True" }] },
    }))
}

#[test]
fn a_budget_selects_by_its_current_selector_until_it_is_removed() {
    let cache = Cache::default();
    cache.enable_budgets();
    list::<Pod>(&cache, &[pod("a").set("/metadata/labels", json!({ "app": "db" }))], at(0));
    let chosen = || uids(cache.read().view().pods_of_budget(&uid("uid-b")));
    apply::<Budget>(&cache, &budget("db", "AlwaysAllow"), at(1));
    assert_eq!(chosen(), [uid("uid-a")]);
    {
        let guard = cache.read();
        let seen = guard.view().budget(&uid("uid-b")).unwrap();
        assert_eq!(seen.unhealthy_policy, crate::model::UnhealthyPolicy::AlwaysAllow);
        assert_eq!(seen.status.allowed_condition.as_ref().map(|one| &*one.status), Some("True"));
        assert_eq!(guard.view().budget_changed_at(&uid("uid-b")), Some(at(1)));
    }
    apply::<Budget>(&cache, &budget("web", "IfHealthyBudget").rv(2), at(2));
    assert_eq!(chosen(), []);
    apply::<Budget>(&cache, &budget("db", "IfHealthyBudget").rv(3), at(3));
    assert_eq!(chosen(), [uid("uid-a")]);
    cache.apply_undecodable::<Budget>(unreadable(Some("uid-b"), Some("b")), at(4));
    assert_eq!((chosen(), cache.read().view().count(Kind::Budgets)), (vec![], (1, 1)));
    apply::<Budget>(&cache, &budget("db", "IfHealthyBudget").rv(5), at(5));
    let changes = log_changes(&cache);
    cache.remove::<Budget>(&uid("uid-b"), at(6));
    assert_eq!((chosen(), changes.drain()), (vec![], vec!["budget uid-b".to_owned()]));
}

#[test]
fn a_disrupted_pod_entry_keeps_the_uid_that_had_the_name_when_it_appeared() {
    let cache = Cache::default();
    cache.enable_budgets();
    let labelled = |id: &str| pod("p").uid(id).set("/metadata/labels", json!({ "app": "db" }));
    list::<Pod>(&cache, &[labelled("uid-1")], at(0));
    apply::<Budget>(&cache, &budget("db", "IfHealthyBudget"), at(1));
    let disrupted = |rv: u64, when: &str| {
        budget("db", "IfHealthyBudget").rv(rv).set("/status", json!({ "disruptedPods": { "p": when } }))
    };
    let about = || {
        let guard = cache.read();
        let entry = guard.view().budget(&uid("uid-b")).unwrap().status.disrupted.values().next().cloned().unwrap();
        (entry.pod, entry.first_seen)
    };
    apply::<Budget>(&cache, &disrupted(2, "2026-01-01T00:00:00Z"), at(2));
    assert_eq!(about(), (Some(uid("uid-1")), at(2)));
    cache.remove::<Pod>(&uid("uid-1"), at(3));
    apply::<Pod>(&cache, &labelled("uid-2"), at(3));
    apply::<Budget>(&cache, &disrupted(3, "2026-01-01T00:00:00Z"), at(4));
    assert_eq!(about(), (Some(uid("uid-1")), at(2)), "the same entry, seen before");
    apply::<Budget>(&cache, &disrupted(4, "2026-01-01T00:00:09Z"), at(5));
    assert_eq!(about(), (Some(uid("uid-2")), at(5)), "another entry of that name");
}

/// The eviction API evicts no terminating pod, and a younger pod is not the one that was evicted.
#[test]
fn a_disrupted_pod_entry_matches_no_other_name_and_no_terminating_or_younger_pod() {
    let labelled = |name: &str| pod(name).uid("uid-1").labels(json!({ "app": "db" }));
    let created = |when: &str| labelled("p").set("/metadata/creationTimestamp", json!(when));
    for (object, matches) in [
        (labelled("p"), true),
        (labelled("q"), false),
        (labelled("p").terminating(), false),
        (created("2026-01-01T00:00:09Z"), true),
        (created("2026-01-01T00:00:10Z"), false),
    ] {
        let cache = Cache::default();
        cache.enable_budgets();
        list::<Pod>(&cache, &[object], at(0));
        apply::<Budget>(&cache, &budget("db", "IfHealthyBudget"), at(1));
        let status = json!({ "disruptedPods": { "p": "2026-01-01T00:00:09Z" } });
        apply::<Budget>(&cache, &budget("db", "IfHealthyBudget").rv(2).set("/status", status), at(2));
        let guard = cache.read();
        let entry = &guard.view().budget(&uid("uid-b")).unwrap().status.disrupted["p"];
        assert_eq!(entry.pod, matches.then(|| uid("uid-1")));
    }
}

#[test]
fn no_workload_is_absent_while_one_of_its_kind_is_unidentified() {
    use super::workloads::{ReplicaSets, WorkloadObject};
    let cache = listed();
    cache.enable_budgets();
    let lookup_workload = || lookup_name(cache.read().view().workload(WorkloadKind::ReplicaSet, &uid("uid-r")));
    assert_eq!(lookup_workload(), "absent");
    cache.apply_undecodable::<WorkloadObject<ReplicaSets>>(unreadable(None, None), at(1));
    assert_eq!(lookup_workload(), "unknown");
}
