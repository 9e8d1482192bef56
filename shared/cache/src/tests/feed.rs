//! Feeds against a scripted API server.

use std::collections::VecDeque;

use crate::clock::Env;
use pod_safety_client::scripted::{Events, Received};

use super::*;

/// The next answers to a list and a watch of pods; lists of other kinds are empty, and their watches idle.
#[derive(Clone, Default)]
struct Script {
    lists: Arc<Mutex<VecDeque<Answer>>>,
    watches: Arc<Mutex<VecDeque<Answer>>>,
    open: Arc<Mutex<Vec<Events>>>,
    /// The answer to the request for the server's current version.
    reached: Arc<Mutex<VecDeque<Answer>>>,
}

impl Script {
    fn list(&self, answer: Answer) -> &Self {
        self.lists.lock().push_back(answer);
        self
    }

    fn watch(&self, answer: Answer) -> &Self {
        self.watches.lock().push_back(answer);
        self
    }

    fn stream(&self) -> Events {
        let (events, answer) = Answer::stream();
        self.watch(answer);
        events
    }

    /// The default answer: an empty list, and an idle watch.
    fn quiet(&self, request: &Received) -> Answer {
        if request.is_watch() {
            let (events, answer) = Answer::stream();
            self.open.lock().push(events);
            return answer;
        }
        page(&[], "1", "")
    }

    fn answer(&self, request: &Received) -> Answer {
        if request.parameter("limit") == Some("1") {
            return self.reached.lock().pop_front().unwrap_or_else(|| page(&[], "999", ""));
        }
        let queue = if request.is_watch() { &self.watches } else { &self.lists };
        let next = if request.path == Kind::Pods.path() { queue.lock().pop_front() } else { None };
        next.unwrap_or_else(|| self.quiet(request))
    }
}

fn page(objects: &[Obj], version: &str, token: &str) -> Answer {
    let items: Vec<&Value> = objects.iter().map(|object| &object.0).collect();
    Answer::json(
        &json!({ "kind": "List", "metadata": { "resourceVersion": version, "continue": token }, "items": items }),
    )
}

struct Following {
    api: Api,
    cache: Arc<Cache>,
    env: Env,
    registry: Registry,
    changes: Arc<ChangeLog>,
}

fn start(script: &Script, kinds: &[Kind]) -> Following {
    let script = script.clone();
    start_with(Cache::default(), kinds, move |request| script.answer(request))
}

fn start_with(cache: Cache, kinds: &[Kind], answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Following {
    let (env, _wall) = env();
    let api = Api::answering(&env, answer);
    let (cache, registry) = (Arc::new(cache), Registry::new());
    let metrics = CacheMetrics::register(&registry).unwrap();
    let changes = log_changes(&cache);
    start_feeds(kinds, &api.connection(), &cache, &env, &metrics);
    Following { api, cache, env, registry, changes }
}

/// A watch of pods two seconds after the list of `a` at version 7.
async fn watching(script: &Script) -> (Events, Following) {
    let events = script.list(page(&[pod("a")], "7", "")).stream();
    let following = start(script, &[Kind::Pods]);
    advance(2.0).await;
    (events, following)
}

impl Following {
    /// Every request as `list`, `list CONTINUE`, `version` or `watch VERSION`.
    fn requests(&self) -> Vec<String> {
        let describe = |request: &Received| {
            assert_ne!(request.parameter("resourceVersion"), Some("0"), "{request:?}");
            match (request.is_watch(), request.parameter("continue")) {
                (true, _) => format!("watch {}", request.parameter("resourceVersion").unwrap()),
                (false, Some(token)) => format!("list {token}"),
                (false, None) if request.parameter("limit") == Some("1") => "version".to_owned(),
                (false, None) => {
                    assert_eq!(request.parameter("resourceVersion"), None, "a list is a consistent read");
                    "list".to_owned()
                }
            }
        };
        let requests = self.api.requests();
        requests.iter().filter(|request| request.path == Kind::Pods.path()).map(describe).collect()
    }

    fn names(&self) -> Vec<String> {
        self.cache.read().view().all_pods().map(|pod| pod.key.name.to_string()).collect()
    }

    /// The parameter `limit` of each list.
    fn limits(&self) -> Vec<Option<String>> {
        let requests = self.api.requests().into_iter().filter(|request| !request.is_watch());
        requests.map(|request| request.parameter("limit").map(str::to_owned)).collect()
    }

    fn metrics(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap()
    }

    fn problem(&self, kind: Kind) -> Option<String> {
        self.cache.read().view().state(kind).problem.as_ref().map(|problem| problem.message.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_counts_as_listed_only_after_its_last_page() {
    let script = Script::default();
    script
        .list(page(&[pod("a")], "7", "token-1"))
        .list(page(&[pod("b")], "7", "token-2"))
        .list(page(&[pod("c")], "7", "").delayed(Duration::from_secs(2)));
    let following = start(&script, &[Kind::Pods]);
    advance(1.0).await;
    assert_eq!(following.names(), ["a", "b"]);
    assert!(!following.cache.read().view().state(Kind::Pods).synced);
    advance(2.0).await;
    assert_eq!(following.names(), ["a", "b", "c"]);
    assert!(following.cache.read().view().state(Kind::Pods).synced);
    assert_eq!(following.requests(), ["list", "list token-1", "list token-2", "watch 7"]);
    assert_eq!(following.limits(), [None, Some("5000".to_owned()), Some("5000".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn watch_events_are_applied_to_the_cache_in_order() {
    let (events, following) = watching(&Script::default()).await;
    following.changes.drain();
    events.send("ADDED", &pod("b").rv(11).0);
    events.send("MODIFIED", &pod("a").rv(12).phase("Failed").0);
    events.send("DELETED", &pod("b").rv(13).0);
    advance(0.1).await;
    let expected = ["pod nothing -> uid-b@11", "pod uid-a@10 -> uid-a@12", "pod uid-b@11 -> nothing"];
    assert_eq!(following.changes.drain(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_is_opened_again_from_the_last_version_seen() {
    type Send = fn(&Events);
    let rows: [(&str, &str, Send); 5] = [
        ("nothing came", "watch 7", |_| {}),
        ("an object came", "watch 11", |events| events.send("ADDED", &pod("b").rv(11).0)),
        ("a removal came", "watch 12", |events| events.send("DELETED", &pod("a").rv(12).0)),
        ("a bookmark came", "watch 99", |events| events.bookmark("99")),
        ("an unreadable object came after a bookmark", "watch 99", |events| {
            events.bookmark("99");
            events.send("ADDED", &pod("b").set("/spec", json!(7)).rv(100).0);
        }),
    ];
    for (what, expected, send) in rows {
        for ends_well in [false, true] {
            let (events, following) = watching(&Script::default()).await;
            send(&events);
            let again: &[&str] = if ends_well {
                drop(events);
                &[expected]
            } else {
                events.break_off();
                &["version", expected]
            };
            advance(1.0).await;
            assert_eq!(following.requests(), [&["list", "watch 7"], again].concat(), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_leads_to_a_list_that_removes_missing_objects() {
    let gone = || Answer::status(410, "Expired", "too old resource version");
    let event = json!({ "kind": "Status", "code": 410, "reason": "Expired", "message": "too old" });
    for as_event in [false, true] {
        let script = Script::default();
        script.list(page(&[pod("a"), pod("b")], "7", "")).list(page(&[pod("b")], "20", ""));
        if as_event {
            script.stream().send("ERROR", &event);
        } else {
            script.watch(gone());
        }
        let following = start(&script, &[Kind::Pods]);
        advance(2.0).await;
        assert_eq!(following.requests(), ["list", "watch 7", "list", "watch 20"], "as an event: {as_event}");
        assert_eq!(following.names(), ["b"]);
        assert!(following.changes.drain().contains(&"pod uid-a@10 -> nothing".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_watch_leads_to_a_new_list() {
    for broken in [
        "}\n",
        "{\"type\":\"SURPRISE\",\"object\":{}}\n",
        "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n",
    ] {
        let (events, following) = watching(&Script::default()).await;
        events.send_text(broken);
        advance(1.0).await;
        assert_eq!(following.requests(), ["list", "watch 7", "list", "watch 1"], "{broken}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_opened_again_after_90_seconds_without_an_event_or_bookmark() {
    let script = Script::default();
    let events = script.list(page(&[], "7", "")).stream();
    let following = start(&script, &[Kind::Pods]);
    advance(60.0).await;
    events.bookmark("8");
    advance(89.0).await;
    assert_eq!(following.requests(), ["list", "watch 7"]);
    advance(2.0).await;
    assert_eq!(following.requests(), ["list", "watch 7", "watch 8"]);
    let contact = following.cache.read().view().state(Kind::Pods).last_contact.unwrap();
    assert!(following.env.now().since(contact) < Duration::from_secs(2), "opening it is contact");
}

#[tokio::test(start_paused = true)]
async fn an_error_event_is_recorded_as_a_problem_unless_it_is_410() {
    for (code, problem) in [(410, None), (500, Some("watch pods: the API server answered 500 Broken: etcd"))] {
        let (events, following) = watching(&Script::default()).await;
        let page = following.metrics();
        for metric in ["cache_objects", "cache_lists_total", "cache_synced"] {
            assert!(page.contains(&format!("pod_safety_{metric}{{resource=\"pods\"}} 1")), "{metric}: {page}");
        }
        events.send("ERROR", &json!({ "code": code, "reason": "Broken", "message": "etcd" }));
        advance(0.01).await;
        assert_eq!(following.problem(Kind::Pods).as_deref(), problem);
    }
}

/// The wall clock dates the timestamps of nodes.
#[tokio::test(start_paused = true)]
async fn only_the_feed_of_nodes_reads_the_wall_clock() {
    for (kind, reads) in [(Kind::Nodes, true), (Kind::Pods, false)] {
        let script = Script::default();
        let following = start(&script, &[kind]);
        advance(1.0).await;
        let noon = 1_795_262_400;
        let (wall, now) = (following.cache.inner.read().wall, following.env.now());
        assert_eq!(wall.age(noon - 60, now).as_secs() >= 60, reads, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn bug_missing_crds_were_not_named_in_the_problem() {
    for (kind, answer, missing) in [
        (Kind::FencePolicies, (|| Answer::plain(404, "404 page not found")) as fn() -> Answer, true),
        (Kind::FencePolicies, || Answer::status(403, "Forbidden", "no"), false),
        (Kind::Pods, || Answer::plain(404, "404 page not found"), false),
    ] {
        let following = start_with(Cache::default(), &[kind], move |_| answer());
        advance(0.01).await;
        let message = following.problem(kind).unwrap();
        assert_eq!(message.contains("the CRDs of pod-safety are not installed"), missing, "{message}");
    }
}

/// etcd was restored from an older backup. No event is newer than the version of the watch, so objects that the
/// restore removed stayed in the cache until the process was restarted.
#[tokio::test(start_paused = true)]
async fn bug_a_watch_from_a_version_that_a_restore_removed_received_nothing() {
    let script = Script::default();
    script.list(page(&[pod("ghost")], "70", ""));
    script.list(page(&[], "7", ""));
    let following = start(&script, &[Kind::Pods]);
    advance(100.0).await;
    assert_eq!(following.requests(), ["list", "watch 70", "watch 70"]);
    advance(90.0).await;
    assert_eq!(following.requests(), ["list", "watch 70", "watch 70", "list", "watch 7"]);
    assert_eq!(following.names(), [""; 0]);
}

/// The same restore, where the API server reports that the version is too large.
#[tokio::test(start_paused = true)]
async fn bug_a_watch_was_retried_from_a_version_that_the_server_had_not_reached() {
    let script = Script::default();
    script.list(page(&[], "70", "")).list(page(&[], "7", ""));
    script.watch(Answer::status(504, "Timeout", "Too large resource version: 70, current: 7"));
    let following = start(&script, &[Kind::Pods]);
    advance(1.0).await;
    assert_eq!(following.requests(), ["list", "watch 70", "list", "watch 7"]);
}

/// The API server passed the version of the watch within seconds. The watch continued from there, and objects that
/// the restore removed stayed in the cache: a NodeFence that did not exist any more, so that its node was never
/// fenced.
#[tokio::test(start_paused = true)]
async fn bug_objects_that_a_restore_removed_stayed_after_the_version_was_passed() {
    for (reached, expected) in [
        ("69", &["list", "watch 70", "version", "list", "watch 80"][..]),
        ("70", &["list", "watch 70", "version", "watch 70"]),
        ("opaque", &["list", "watch 70", "version", "watch 70"]),
    ] {
        let script = Script::default();
        script.reached.lock().push_back(page(&[pod("other")], reached, "more"));
        let events = script.list(page(&[pod("ghost")], "70", "")).list(page(&[], "80", "")).stream();
        let following = start(&script, &[Kind::Pods]);
        advance(2.0).await;
        events.break_off();
        advance(2.0).await;
        assert_eq!(following.requests(), expected);
        let names = if reached == "69" { &[][..] } else { &["ghost"] };
        assert_eq!(following.names(), names, "of the answer to that nothing is kept");
    }
}

/// Nothing is watched until the version was read.
#[tokio::test(start_paused = true)]
async fn a_failed_read_of_the_servers_version_is_retried_before_watching() {
    let script = Script::default();
    script.reached.lock().push_back(Answer::status(500, "InternalError", "etcd is down"));
    let events = script.list(page(&[], "7", "")).stream();
    let following = start(&script, &[Kind::Pods]);
    advance(2.0).await;
    events.break_off();
    advance(2.0).await;
    assert_eq!(following.requests(), ["list", "watch 7", "version", "version", "watch 7"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_list_is_retried_with_back_off_and_recorded_as_a_problem() {
    let script = Script::default();
    for _ in 0..7 {
        script.list(Answer::status(500, "InternalError", "etcd is down"));
    }
    let following = start(&script, &[Kind::Pods]);
    advance(0.01).await;
    assert_eq!(
        following.problem(Kind::Pods).unwrap(),
        "list pods: the API server answered 500 InternalError: etcd is down"
    );
    advance(60.0).await;
    let requests = following.api.requests();
    let starts: Vec<_> = requests.iter().filter(|request| !request.is_watch()).map(|request| request.at).collect();
    assert_eq!(starts.len(), 8);
    let pauses = starts.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64());
    for (pause, least) in pauses.zip([0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0]) {
        assert!((least..=least * 1.5 + 0.01).contains(&pause), "{pause} for {least}");
    }
    assert_eq!(following.problem(Kind::Pods), None);
    assert!(following.cache.read().view().state(Kind::Pods).synced);
    let page = following.metrics();
    assert!(page.contains(r#"pod_safety_cache_watch_failures_total{error="server",resource="pods"} 7"#), "{page}");
}

#[tokio::test(start_paused = true)]
async fn a_list_after_one_that_was_too_large_is_paged_and_the_next_is_whole() {
    for (failure, paged) in [
        (Answer::status(504, "Timeout", "too much"), Some("5000")),
        (Answer::status(429, "TooManyRequests", "too many"), Some("5000")),
        (Answer::status(403, "Forbidden", "pods is forbidden"), None),
    ] {
        let script = Script::default();
        script.list(failure).list(page(&[pod("a")], "7", ""));
        let following = start(&script, &[Kind::Pods]);
        advance(1.0).await;
        assert_eq!(following.limits(), [None, paged.map(str::to_owned)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_between_pages_restarts_and_removes_nothing() {
    let script = Script::default();
    script
        .list(page(&[pod("a")], "7", "token"))
        .list(Answer::status(410, "Expired", "the continue token is too old"))
        .list(page(&[pod("b")], "9", ""));
    let following = start(&script, &[Kind::Pods]);
    advance(0.1).await;
    assert_eq!(following.names(), ["a"]);
    advance(1.0).await;
    assert_eq!(following.requests(), ["list", "list token", "list", "watch 9"]);
    assert_eq!(following.names(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn bug_a_response_that_is_no_list_removed_all_objects() {
    for other in [json!({}), json!({ "kind": "Status", "status": "Success" }), json!({ "metadata": {}, "items": [] })] {
        let script = Script::default();
        let (events, following) = watching(&script).await;
        script.list(Answer::json(&other));
        script.watch(Answer::empty_watch());
        events.send("ERROR", &json!({ "code": 410 }));
        advance(0.1).await;
        assert_eq!(following.names(), ["a"], "{other}");
        assert!(following.problem(Kind::Pods).unwrap().starts_with("list pods: "), "{other}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_unreadable_item_does_not_fail_its_list() {
    let script = Script::default();
    script.list(page(&[pod("a"), pod("bad").set("/status", json!({ "phase": 7 })), pod("c")], "7", ""));
    let following = start(&script, &[Kind::Pods]);
    advance(0.1).await;
    assert_eq!(following.names(), ["a", "c"]);
    assert_eq!(following.cache.read().view().count(Kind::Pods), (3, 1));
    assert!(following.cache.read().view().state(Kind::Pods).synced);
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_kind_does_not_stop_the_feeds_of_others() {
    let script = Script::default();
    let following = start_with(Cache::default(), Kind::ALL, move |request| {
        let item = if request.path == Kind::Nodes.path() { node("n") } else { pod("a") };
        match (request.path == Kind::NodeLeases.path(), request.is_watch()) {
            (true, _) => Answer::status(403, "Forbidden", "leases is forbidden"),
            (false, true) => script.quiet(request),
            (false, false) => page(&[item], "7", ""),
        }
    });
    advance(30.0).await;
    let guard = following.cache.read();
    let view = guard.view();
    let kinds = [Kind::Pods, Kind::Nodes, Kind::NodeLeases];
    assert_eq!(kinds.map(|kind| view.state(kind).synced), [true, true, false]);
    assert_eq!(view.state(Kind::NodeLeases).problem.as_ref().unwrap().category, "forbidden");
    assert_eq!((view.count(Kind::Pods).0, view.count(Kind::Nodes).0), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_hangs_while_opening_is_aborted() {
    let script = Script::default();
    script.list(page(&[], "7", "")).watch(Answer::never());
    let following = start(&script, &[Kind::Pods]);
    advance(29.0).await;
    assert_eq!(following.requests(), ["list", "watch 7"]);
    advance(2.0).await;
    assert_eq!(following.requests(), ["list", "watch 7", "version", "watch 7"]);
}

#[tokio::test(start_paused = true)]
async fn bug_a_watch_that_ended_at_once_was_reopened_without_a_pause() {
    for answer in [Answer::empty_watch, || Answer::status(410, "Expired", "too old")] {
        let script = Script::default();
        for _ in 0..2_000 {
            script.watch(answer());
        }
        let following = start(&script, &[Kind::Pods]);
        advance(60.0).await;
        let watches = following.api.requests().iter().filter(|request| request.is_watch()).count();
        assert!((5..20).contains(&watches), "{watches} watches in a minute");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_resets_the_back_off_of_its_feed() {
    let script = Script::default();
    for _ in 0..6 {
        script.list(Answer::broken());
    }
    let events = script.list(page(&[], "7", "")).stream();
    let following = start(&script, &[Kind::Pods]);
    advance(60.0).await;
    assert_eq!(following.problem(Kind::Pods), None);
    events.bookmark("8");
    events.break_off();
    advance(0.5).await;
    assert_eq!(following.requests().last().unwrap(), "watch 8");
}

/// Lists of own kinds were read whole, however many objects a tenant had created.
#[tokio::test(start_paused = true)]
async fn attack_own_kinds_in_a_tenants_namespace_are_not_listed() {
    for (namespaces, listed) in [
        (&["ops"][..], "/apis/pod-safety.dev/v1alpha1/namespaces/ops/fencedevices"),
        (&["ops", "rack"][..], "/apis/pod-safety.dev/v1alpha1/fencedevices"),
    ] {
        let (script, cache) = (Script::default(), Cache::default());
        cache.restrict_fencing_to(namespaces.iter().map(|&name| name.to_owned()).collect());
        let kinds = [Kind::FenceDevices, Kind::NodeFences];
        let following = start_with(cache, &kinds, move |request| script.answer(request));
        advance(1.0).await;
        let paths: BTreeSet<String> = following.api.requests().into_iter().map(|request| request.path).collect();
        assert_eq!(paths, [listed.to_owned(), Kind::NodeFences.path().to_owned()].into());
    }
}

#[tokio::test(start_paused = true)]
async fn own_kinds_are_listed_in_pages_from_the_start() {
    for (kind, limit) in [(Kind::FenceEvidences, Some("5000")), (Kind::Pods, None)] {
        let following = start(&Script::default(), &[kind]);
        advance(1.0).await;
        assert_eq!(following.limits()[0].as_deref(), limit, "{kind:?}");
    }
}

/// A watch that was cut right after it was opened, again and again, counted as one without a gap. A kubelet that
/// reported all the time counted as unreachable when its Node was deleted, and its pods were removed without a
/// shutdown signal.
#[tokio::test(start_paused = true)]
async fn bug_an_opened_watch_counted_as_an_event_of_its_kind() {
    let quiet = Script::default();
    let kinds = [Kind::NodeLeases, Kind::Nodes];
    let following = start_with(Cache::default(), &kinds, move |request| {
        match (request.is_watch(), request.path.contains("leases")) {
            (true, true) => {
                let (events, answer) = Answer::stream();
                events.break_off();
                answer
            }
            (true, false) => quiet.quiet(request),
            (false, true) => page(&[lease("n", 1)], "7", ""),
            (false, false) => page(&[node("n")], "7", ""),
        }
    });
    let (cache, env) = (&following.cache, &following.env);
    advance(1.0).await;
    apply::<Pod>(cache, &pod("a").on("n"), env.now());
    advance(60.0).await;
    cache.remove::<Node>(&crate::testing::objects::uid("uid-n"), env.now());
    let guard = cache.read();
    assert_eq!(guard.view().count(Kind::NodeLeases), (1, 0));
    assert!(guard.view().absence("n").is_some());
    assert!(!guard.view().unreachable_before_node_deleted("n"));
    let state = guard.view().state(Kind::NodeLeases);
    assert!(env.now().since(state.last_contact.unwrap()) < Duration::from_secs(10), "it answers");
    assert!(env.now().since(state.last_event.unwrap()) >= Duration::from_secs(60));
}
