//! Outcomes when the node is not as the decision found it.

use super::*;

fn tainting() -> NodeUpdate {
    NodeUpdate { add: vec![(NOT_READY, Effect::NoSchedule)], ..update() }
}

#[test]
fn the_reason_of_node_changes_is_that_of_the_most_important_change() {
    let taint = || vec![(NOT_READY, Effect::NoSchedule)];
    let labelled = || NodeChanges { labels: vec!["a".to_owned()], ..NodeChanges::default() };
    let reachable = || NodeChanges { unreachable: Some(false), ..labelled() };
    for (done, reason) in [
        (NodeChanges { set_unknown: true, added: taint(), ..reachable() }, "KubeletNotReporting"),
        (NodeChanges { added: taint(), ..reachable() }, "Taints"),
        (NodeChanges { removed: taint(), ..reachable() }, "Taints"),
        (reachable(), "NodeUnreachable"),
        (labelled(), "Labels"),
    ] {
        assert_eq!(done.reason(), reason, "{done}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_deleted_or_replaced_is_gone() {
    for update in [unreachable_update(), tainting()] {
        let tried_ = tried(&update, |_| Answer::not_found()).await;
        assert_eq!((tried_.outcome, tried_.writes().len()), ("gone", 0));
        let another = served(&update, &Server::with_node(&well().uid("uid-other"))).await;
        assert_eq!((another.outcome, another.writes().len()), ("gone", 0));
        let proxy = tried(&update, |_| Answer::plain(404, "404 page not found")).await;
        assert_eq!((proxy.outcome, proxy.writes().len()), ("failed", 0), "a proxy does not know");
    }
}

type Script = fn() -> Answer;

#[tokio::test(start_paused = true)]
async fn each_request_can_fail_and_earlier_changes_are_reported() {
    let conflict: Script = || Answer::status(409, "Conflict", "the object has been modified");
    let denied: Script = || Answer::status(403, "Forbidden", "a webhook");
    let cases: [(&str, &str, Script, &str, usize, bool); 12] = [
        ("nobody shows the node", GET, Answer::broken, "failed", 0, false),
        ("the node is unreadable", GET, Answer::garbage, "failed", 0, false),
        ("nobody ever shows the node", GET, Answer::never, "failed", 0, false),
        ("the node changed before its status", STATUS, conflict, "changed", 1, false),
        ("the node went before its status", STATUS, Answer::not_found, "gone", 1, false),
        ("the status is denied", STATUS, denied, "failed", 1, false),
        ("the status is written, and the answer unreadable", STATUS, Answer::garbage, "failed", 1, false),
        ("the node changed before its taints", REST, conflict, "changed", 2, true),
        ("the node went before its taints", REST, Answer::not_found, "gone", 2, true),
        ("the taints are denied", REST, denied, "failed", 2, true),
        ("nobody says whether the taints are written", REST, Answer::never, "failed", 2, true),
        ("the taints are written, and the answer unreadable", REST, Answer::garbage, "written", 2, true),
    ];
    for (sentence, line, answer, outcome, writes, status_done) in cases {
        let server = Server::with_node(&well());
        let tried =
            tried(
                &unreachable_update(),
                move |request| {
                    if request.line() == line { answer() } else { server.answer(request) }
                },
            )
            .await;
        assert_eq!((tried.outcome, tried.writes().len()), (outcome, writes), "{sentence}");
        assert_eq!(tried.done.set_unknown, status_done, "{sentence}");
        assert_eq!(tried.done.turned_not_ready, status_done, "{sentence}");
    }
}

/// The next decision starts from the stored node: the status is written, the taints are not.
#[tokio::test(start_paused = true)]
async fn taints_missing_after_a_timeout_are_added_by_the_next_decision() {
    let server = Server::with_node(&well());
    let slow = server.clone();
    let first = tried_over(&World::listed(), &unreachable_update(), 5.0, move |request| {
        if request.line() == REST { Answer::never() } else { slow.answer(request) }
    })
    .await;
    assert_eq!((first.outcome, first.done.set_unknown), ("failed", true));
    let rv = "6".parse().unwrap();
    let next =
        served(&NodeUpdate { not_reporting: None, unreachable: None, rv, ..unreachable_update() }, &server).await;
    assert_eq!((next.outcome, next.lines()), ("written", [GET, REST].map(str::to_owned).into()));
    assert!(first.done.turned_not_ready && !next.done.turned_not_ready, "the Event is told once");
    let keys: Vec<_> = server.node.lock()["spec"]["taints"].as_array().unwrap().clone();
    assert_eq!(keys.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn every_request_is_sent_within_the_term() {
    let server = Server::with_node(&well());
    let answers = server.clone();
    let none = tried_over(&World::listed(), &unreachable_update(), 0.0, move |request| answers.answer(request)).await;
    assert_eq!((none.outcome, none.requests.len()), ("not_leader", 0));
    for (leads_for, lines, outcome) in [
        (0.5, vec![GET, LEASE], "failed"),
        (1.5, vec![GET, LEASE, STATUS], "failed"),
        (2.5, vec![GET, LEASE, STATUS, REST], "failed"),
        (3.5, vec![GET, LEASE, STATUS, REST], "written"),
    ] {
        let server = Server::with_node(&well());
        let late = move |request: &Received| server.answer(request).delayed(Duration::from_secs(1));
        let tried = tried_over(&World::listed(), &unreachable_update(), leads_for, late).await;
        assert_eq!(
            (tried.outcome, tried.lines()),
            (outcome, lines.iter().map(ToString::to_string).collect()),
            "{leads_for}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_term_that_is_lost_between_the_writes_ends_the_update() {
    let (env, _wall) = env();
    let leadership = Leadership::always();
    let (server, term) = (Server::with_node(&well()), Arc::clone(&leadership));
    let api = Api::new(&env, move |request| {
        if request.line() == STATUS {
            term.end_for_tests();
        }
        let answer = server.answer(&request);
        async move { answer }
    });
    let (connection, world) = (api.connection(), World::listed());
    let means = WriteContext { connection: &connection, cache: world.cache(), env: &env, leadership: &leadership };
    let (outcome, done) = write(&means, &unreachable_update()).await;
    assert_eq!((outcome.name(), done.set_unknown, done.added.len()), ("not_leader", true, 0));
    assert_eq!(api.writes(), [STATUS]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_as_requested_is_not_written() {
    let there = well().set("/spec/taints", json!([{ "key": NOT_READY, "effect": "NoSchedule" }]));
    let tried = served(&tainting(), &Server::with_node(&there)).await;
    assert_eq!((tried.outcome, tried.lines()), ("no_effect", vec![GET.to_owned()]));
    let world = World::listed();
    world.apply(Kind::Nodes, &there.0, Mono::default());
    let server = Server::with_node(&there.clone().rv(6));
    let again = tried_over(&world, &tainting(), 60.0, move |request| server.answer(request)).await;
    assert_eq!((again.outcome, again.lines()), ("changed", vec![GET.to_owned()]), "the watch brings that version");
}

#[tokio::test(start_paused = true)]
async fn taints_are_not_added_if_a_webhook_reverts_the_conditions() {
    let undo: fn(&Received) -> Answer = |_| Answer::json(&well().0);
    let partly: fn(&Received) -> Answer = |_| Answer::json(&well().rv(6).0);
    for (sentence, line, answer, writes) in [
        ("the status stays as it was", STATUS, undo, 1),
        ("the status is written, but Ready stays", STATUS, partly, 1),
        ("the taints stay as they were", REST, |_: &Received| Answer::json(&unknown().rv(6).0), 2),
    ] {
        let server = Server::with_node(&well());
        let tried =
            tried(
                &unreachable_update(),
                move |request| {
                    if request.line() == line { answer(request) } else { server.answer(request) }
                },
            )
            .await;
        assert_eq!((tried.outcome, tried.writes().len()), ("no_effect", writes), "{sentence}");
        assert!(tried.done.added.is_empty(), "{sentence}");
    }
}

/// A decision that rests on conditions rests on the version: a NoExecute taint must not be added for a condition that no
/// longer holds.
#[tokio::test(start_paused = true)]
async fn a_node_of_another_version_is_compared_with_the_cached_one() {
    let not_ready = || well().set("/status/conditions/4/status", json!("False"));
    let beaten = not_ready().set("/status/conditions/0/lastHeartbeatTime", json!("2026-11-21T12:00:00Z"));
    let cordoned = not_ready().set("/spec/unschedulable", json!(true));
    let tainted = not_ready().set("/spec/taints", json!([{ "key": "x", "effect": "NoExecute" }]));
    for (sentence, cached, live, outcome) in [
        ("it is that version", None, not_ready(), "written"),
        ("only a heartbeat came", Some(not_ready()), beaten.rv(6), "written"),
        ("it is ready again", Some(not_ready()), well().rv(6), "changed"),
        ("it was cordoned", Some(not_ready()), cordoned.rv(6), "changed"),
        ("it was tainted", Some(not_ready()), tainted.rv(6), "changed"),
        ("the cache has gone on, and nobody decided anew", Some(not_ready().rv(6)), not_ready().rv(6), "changed"),
        ("the cache has lost it", None, not_ready().rv(6), "changed"),
    ] {
        let world = World::listed();
        if let Some(cached) = cached {
            world.apply(Kind::Nodes, &cached.0, Mono::default());
        }
        let server = Server::with_node(&live);
        let tried = tried_over(&world, &tainting(), 60.0, move |request| server.answer(request)).await;
        assert_eq!(tried.outcome, outcome, "{sentence}");
        assert_eq!(tried.writes().len(), usize::from(outcome == "written"), "{sentence}");
    }
}

/// Attached volumes are written to the status of an unreachable node, too: another version alone does not show that it reports.
#[tokio::test(start_paused = true)]
async fn a_new_version_without_a_report_is_still_not_reporting() {
    let attached = well().rv(9).set("/status/volumesAttached", json!([{ "name": "v" }]));
    let tried = served(&unreachable_update(), &Server::with_node(&attached)).await;
    assert_eq!(tried.outcome, "written");
    let versions: Vec<_> =
        tried.writes().iter().map(|request| request.json()["metadata"]["resourceVersion"].clone()).collect();
    assert_eq!(versions, ["9", "10"]);
}
