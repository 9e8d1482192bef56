//! The taints and labels of pod-safety, and those of others.

use super::*;

fn tainted(taints: &Value) -> Obj {
    well().set("/spec/taints", taints.clone())
}

#[tokio::test(start_paused = true)]
async fn other_taints_are_written_back_unchanged_and_in_order() {
    let before = json!([
        { "key": "z", "value": "1", "effect": "NoSchedule", "fromTheFuture": { "a": [1, 2] } },
        { "key": NOT_READY, "effect": "NoExecute", "timeAdded": "2026-11-21T11:00:00Z" },
        { "key": NOT_READY, "effect": "NoSchedule", "timeAdded": "2026-11-21T11:00:01Z" },
        { "key": "a", "effect": "PreferNoSchedule" },
    ]);
    let update = NodeUpdate {
        add: vec![(UNREACHABLE, Effect::NoExecute)],
        remove: vec![(NOT_READY, Effect::NoExecute), (UNREACHABLE, Effect::NoSchedule)],
        ..update()
    };
    let tried = served(&update, &Server::with_node(&tainted(&before))).await;
    assert_eq!((tried.outcome, tried.lines()), ("written", [GET, REST].map(str::to_owned).into()));
    let added = json!({ "key": UNREACHABLE, "effect": "NoExecute", "timeAdded": "2026-11-21T12:00:00Z" });
    assert_eq!(
        tried.writes()[0].json(),
        json!({
            "metadata": { "uid": "uid-n", "resourceVersion": "5" },
            "spec": { "taints": [before[0], before[2], before[3], added] },
        })
    );
    assert_eq!(
        (tried.done.reason(), tried.done.to_string().as_str()),
        ("Taints", "added node.kubernetes.io/unreachable:NoExecute; removed node.kubernetes.io/not-ready:NoExecute")
    );
}

#[tokio::test(start_paused = true)]
async fn two_taints_of_one_key_are_two_taints() {
    let both = json!([
        { "key": UNREACHABLE, "effect": "NoSchedule" },
        { "key": UNREACHABLE, "effect": "NoExecute" },
    ]);
    for (sentence, before, add, remove, after) in [
        ("one goes", both.clone(), vec![], vec![(UNREACHABLE, Effect::NoExecute)], json!([both[0]])),
        (
            "both go",
            both.clone(),
            vec![],
            vec![(UNREACHABLE, Effect::NoExecute), (UNREACHABLE, Effect::NoSchedule)],
            json!([]),
        ),
        (
            "one comes",
            json!([both[1]]),
            vec![(UNREACHABLE, Effect::NoSchedule), (UNREACHABLE, Effect::NoExecute)],
            vec![],
            json!([both[1], { "key": UNREACHABLE, "effect": "NoSchedule", "timeAdded": "2026-11-21T12:00:00Z" }]),
        ),
    ] {
        let tried = served(&NodeUpdate { add, remove, ..update() }, &Server::with_node(&tainted(&before))).await;
        assert_eq!(tried.outcome, "written", "{sentence}");
        assert_eq!(tried.writes()[0].json()["spec"]["taints"], after, "{sentence}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_labels_that_differ_are_written_with_the_taints() {
    let labels: Vec<(&'static str, Arc<str>)> = vec![("a", "b".into()), ("beta.kubernetes.io/os", "linux".into())];
    let update = NodeUpdate { labels, ..update() };
    let tried = served(&update, &Server::with_node(&well())).await;
    assert_eq!((tried.outcome, tried.done.reason()), ("written", "Labels"));
    assert_eq!(tried.done.to_string(), "labelled with beta.kubernetes.io/os");
    let body = r#"{"metadata":{"labels":{"beta.kubernetes.io/os":"linux"},"resourceVersion":"5","uid":"uid-n"}}"#;
    assert_eq!(tried.writes()[0].body, body);
    let update = NodeUpdate { add: vec![("k", Effect::NoSchedule)], ..update };
    let tried = served(&update, &Server::with_node(&well())).await;
    assert_eq!(tried.lines(), [GET, REST]);
    let patch = tried.writes()[0].json();
    assert_eq!(patch["metadata"]["labels"], json!({ "beta.kubernetes.io/os": "linux" }));
    assert_eq!(patch["spec"]["taints"][0]["key"], "k");
}

/// Danger note: adding this taint is a force delete of every pod of the node.
#[tokio::test(start_paused = true)]
async fn an_existing_out_of_service_taint_is_kept_and_none_is_added() {
    let off = json!([{ "key": OFF, "value": "nodeshutdown", "effect": "NoExecute" }]);
    let server = Server::with_node(&tainted(&off));
    let tried = served(&unreachable_update(), &server).await;
    assert_eq!(tried.outcome, "written");
    let [status, rest] = tried.writes()[..] else { panic!("two writes") };
    assert_eq!((status.permitted, rest.permitted), (false, true), "for the list that keeps it, at that version");
    assert_eq!(server.node.lock()["spec"]["taints"][0], off[0]);
    let add = vec![("a", Effect::NoSchedule), (OFF, Effect::NoSchedule)];
    for before in [json!(null), off] {
        let update = NodeUpdate { add: add.clone(), ..update() };
        let tried = served(&update, &Server::with_node(&tainted(&before))).await;
        assert_eq!((tried.outcome, tried.writes().len()), ("failed", 0), "the guard lets it not pass");
    }
    let update = NodeUpdate { labels: vec![("a", "c".into())], ..update() };
    let tried = served(&update, &Server::with_node(&tainted(&json!([{ "key": OFF }])))).await;
    assert_eq!((tried.outcome, tried.writes()[0].permitted), ("written", false), "a label needs no permit");
}
