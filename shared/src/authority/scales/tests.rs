//! Which scales a command reads, and for how long.

use serde_json::{Value, json};

use super::*;
use crate::client::scripted::{Answer, Api, Received, advance, env};
use crate::model::Kind;
use crate::testing::objects;

/// A pod that a controller `NAME` of this kind manages.
fn pod(api_version: &str, kind: &str, name: &str) -> Value {
    objects::pod(&format!("{name}-0")).owned_by(api_version, kind, name).0
}

/// Two fleets, of which one hangs, and a herd of another group.
fn answers(asked: &Received) -> Answer {
    let resources = |names: &[(&str, &str)]| {
        let all: Vec<Value> = names.iter().map(|(name, kind)| json!({ "name": name, "kind": kind })).collect();
        Answer::json(&json!({ "kind": "APIResourceList", "resources": all }))
    };
    let scale = |name: &str, replicas: i32| {
        Answer::json(
            &json!({ "metadata": { "name": name, "uid": format!("uid-{name}") }, "spec": { "replicas": replicas } }),
        )
    };
    match asked.path.as_str() {
        "/api/v1/pods" => Answer::json(&json!({ "metadata": { "resourceVersion": "9" }, "items": [
            pod("a.example/v1", "Fleet", "a"), pod("a.example/v1", "Fleet", "hangs"), pod("a.example/v1", "Fleet", "later"),
            pod("b.example/v1", "Herd", "b"),
        ] })),
        "/apis/a.example/v1" => resources(&[("fleets", "Fleet"), ("fleets/scale", "Scale")]),
        "/apis/b.example/v1" => resources(&[("herds", "Herd")]),
        "/apis/a.example/v1/namespaces/ns/fleets/a/scale" => scale("a", 3),
        "/apis/a.example/v1/namespaces/ns/fleets/hangs/scale" => Answer::never(),
        _ => Answer::not_found(),
    }
}

/// Reads all of them. Returns the results by the controllers' names, and the seconds that it took.
async fn asked(within: u64) -> (BTreeMap<String, Result<Scale, Box<str>>>, u64) {
    let (env, _wall) = env();
    let api = Api::new(&env, |asked| async move { answers(&asked) });
    let connection = api.connection();
    let snapshot = Snapshot::read(&connection, &env, &[Kind::Pods], None, &mut |_, _| {}).await.unwrap();
    let controller = |pod: &crate::model::Pod| Some((pod.key.namespace.clone(), pod.controller.clone()?));
    let all: BTreeSet<ScaleTarget> = snapshot.view().view().all_pods().filter_map(controller).collect();
    let began = env.now();
    read_scales(&connection, &env, &snapshot, &all, Duration::from_secs(within)).await;
    let guard = snapshot.view();
    let results = guard.view().all_pods().map(|pod| {
        let name = pod.controller.as_ref().unwrap().name.to_string();
        (name, guard.view().scale(pod).unwrap().scale.clone())
    });
    (results.collect(), env.now().since(began).as_secs())
}

#[tokio::test(start_paused = true)]
async fn all_scales_are_read_and_one_that_hangs_delays_only_its_group() {
    let (results, took) = asked(60).await;
    assert_eq!(results["a"], Ok(Scale::Replicas(3)));
    assert_eq!(results["b"], Ok(Scale::None));
    assert_eq!(results["later"], Ok(Scale::Absent));
    let why = results["hangs"].clone().unwrap_err();
    assert_eq!(&*why, "asking for the scale of Fleet hangs: no answer from the API server within 5s");
    assert_eq!(took, 5);
}

#[tokio::test(start_paused = true)]
async fn a_scale_without_an_answer_in_time_is_recorded_as_failed() {
    let (results, took) = asked(2).await;
    assert_eq!(results["a"], Ok(Scale::Replicas(3)));
    assert_eq!(results["b"], Ok(Scale::None));
    for name in ["hangs", "later"] {
        assert_eq!(results[name], Err(format!("Fleet {name} gave no answer within 2s").into()));
    }
    assert_eq!(took, 2);
}

/// The answer of an API server that has fleets in `a.example`, and the paths that were requested.
async fn read_scale(api_version: &str, kind: &str, name: &str, scale: Answer) -> (String, Vec<String>) {
    let (env, _wall) = env();
    let scale = Mutex::new(Some(scale));
    let api = Api::answering(&env, move |asked| match asked.path.as_str() {
        "/apis/a.example/v1" | "/api/v1" => Answer::json(&json!({ "kind": "APIResourceList", "resources": [
            { "name": "fleets/status", "kind": "Fleet" }, { "name": "fleets", "kind": "Fleet" },
            { "name": "fleets/scale", "kind": "Scale" }, { "name": "herds", "kind": "Herd" },
        ] })),
        "/apis/down.example/v1" => Answer::plain(502, "bad gateway"),
        path if path.ends_with("/scale") => scale.lock().take().unwrap(),
        _ => Answer::not_found(),
    });
    let uid = Uid::new("uid-f").unwrap();
    let controller = Controller { api_version: api_version.into(), kind: kind.into(), name: name.into(), uid };
    let answer = ScaleReader::new(api.connection(), env.clone()).read("ns", &controller).await;
    let results = answer.scale.map_or_else(|why| why.to_string(), |scale| format!("{scale:?}"));
    (results, api.requests().into_iter().map(|asked| asked.path).collect())
}

#[tokio::test(start_paused = true)]
async fn invalid_names_and_kinds_without_scale_are_not_read() {
    for (api_version, kind, name, expected, asked) in [
        ("a.example/v1", "Fleet", "a/b", "name \"a/b\" of an ownerReference is not a valid name", 0),
        ("a.example/v1", "Fleet", "..", "name \"..\" of an ownerReference is not a valid name", 0),
        ("a/v1/x", "Fleet", "f", "apiVersion \"a/v1/x\" of an ownerReference is not a valid name", 0),
        ("a/V1", "Fleet", "f", "apiVersion \"a/V1\" of an ownerReference is not a valid name", 0),
        ("none.example/v1", "Fleet", "f", "there is no kind Fleet in none.example/v1", 1),
        ("a.example/v1", "Ship", "f", "there is no kind Ship in a.example/v1", 1),
        ("a.example/v1", "Herd", "f", "None", 1),
        ("a.example/v1", "Fleet", "f", "Replicas(4)", 2),
        ("v1", "Fleet", "f", "Replicas(4)", 2),
    ] {
        let scale = json!({ "metadata": { "name": "f", "uid": "uid-f" }, "spec": { "replicas": 4 } });
        let (scale_read, paths) = read_scale(api_version, kind, name, Answer::json(&scale)).await;
        assert_eq!((scale_read.as_str(), paths.len()), (expected, asked), "{api_version} {kind} {name}: {paths:?}");
    }
    let (why, _) = read_scale("down.example/v1", "Fleet", "f", Answer::not_found()).await;
    assert!(why.starts_with("asking which resources down.example/v1 has: "), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_scale_is_used_only_with_the_owners_uid_and_a_number_of_replicas() {
    let scale =
        |uid: &str, spec: Value| Answer::json(&json!({ "metadata": { "name": "f", "uid": uid }, "spec": spec }));
    for (answer, expected) in [
        (scale("uid-f", json!({ "replicas": 0 })), "Replicas(0)"),
        (scale("uid-f", json!({})), "Replicas(0)"),
        (scale("uid-other", json!({ "replicas": 4 })), "Absent"),
        (Answer::json(&json!({ "spec": { "replicas": 4 } })), "Absent"),
        (Answer::not_found(), "Absent"),
        (scale("uid-f", Value::Null), "the scale of Fleet f has no number of replicas"),
    ] {
        let (scale_read, paths) = read_scale("a.example/v1", "Fleet", "f", answer).await;
        assert_eq!(scale_read, expected);
        assert_eq!(
            paths,
            ["/apis/a.example/v1", "/apis/a.example/v1/namespaces/ns/fleets/f/scale"],
            "of its own resource, not of a subresource"
        );
    }
    let (why, _) = read_scale("a.example/v1", "Fleet", "f", Answer::plain(502, "bad gateway")).await;
    assert!(why.starts_with("asking for the scale of Fleet f: "), "{why}");
}

/// The cache lasts as long as that of kube-controller-manager's mapper: a kind that is installed is found half a minute later.
#[tokio::test(start_paused = true)]
async fn discovered_resources_are_read_again_after_half_a_minute() {
    let (env, _wall) = env();
    let api = Api::answering(&env, |_| Answer::not_found());
    let asker = ScaleReader::new(api.connection(), env.clone());
    asker.discovered.lock().insert("a.example/v1".into(), (env.now(), Arc::default()));
    for (seconds, asked) in [(0.0, 0), (29.0, 0), (1.0, 1)] {
        advance(seconds).await;
        _ = asker.discover("a.example/v1", "/apis/a.example/v1").await;
        assert_eq!(api.requests().len(), asked, "{seconds} s later");
    }
}

/// As the leader reads: one read of a group at a time, each controller once, and a group that hangs delays only itself.
#[tokio::test(start_paused = true)]
async fn a_scale_is_read_once_for_all_its_requests_and_cached() {
    let (env, _wall) = env();
    let api = Api::new(&env, |asked| async move { answers(&asked) });
    let world = crate::testing::World::listed();
    for (api_version, kind, name) in
        [("a.example/v1", "Fleet", "hangs"), ("a.example/v1", "Fleet", "later"), ("b.example/v1", "Herd", "b")]
    {
        world.apply(Kind::Pods, &pod(api_version, kind, name), env.now());
    }
    let scales = Scales::start(api.connection(), Arc::clone(world.cache()), env.clone());
    let known = || {
        let guard = world.read();
        let named = |pod: &crate::model::Pod| {
            Some((pod.controller.clone()?.name.to_string(), guard.view().scale(pod)?.scale.clone().ok()))
        };
        guard.view().all_pods().filter_map(named).collect::<BTreeMap<_, _>>()
    };
    let ask_all = || {
        let guard = world.read();
        guard.view().all_pods().for_each(|pod| scales.request(&pod.key.namespace, pod.controller.as_ref().unwrap()));
    };
    ask_all();
    ask_all();
    advance(1.0).await;
    let asked = |end: &str| api.lines().iter().filter(|line| line.ends_with(end)).count();
    assert_eq!(known(), BTreeMap::from([("b".to_owned(), Some(Scale::None))]), "the other group hangs");
    assert_eq!((asked("/hangs/scale"), asked("/later/scale")), (1, 0));
    advance(SCALE_TIMEOUT.as_secs_f64()).await;
    let answered =
        [("later".to_owned(), Some(Scale::Absent)), ("b".to_owned(), Some(Scale::None)), ("hangs".to_owned(), None)];
    assert_eq!(known(), BTreeMap::from(answered));
    assert_eq!((asked("/hangs/scale"), asked("/later/scale")), (1, 1));
    ask_all();
    advance(1.0).await;
    assert_eq!(asked("/hangs/scale"), 2, "who wants to know again asks again");
}

#[tokio::test(start_paused = true)]
async fn the_scale_queue_is_bounded_and_a_rejected_request_can_be_repeated() {
    let (env, _wall) = env();
    let api = Api::answering(&env, |_| Answer::never());
    let scales = Scales::start(api.connection(), Arc::clone(crate::testing::World::listed().cache()), env);
    let (namespace, uid) = (Arc::from("ns"), objects::uid("uid"));
    for number in 0..=LIMIT {
        let name = number.to_string().into();
        let (api_version, kind, uid) = ("a.example/v1".into(), "Fleet".into(), uid.clone());
        scales.request(&namespace, &Arc::new(Controller { api_version, kind, name, uid }));
    }
    let state = scales.state.lock();
    assert_eq!((state.waiting.len(), state.pending.len()), (LIMIT, LIMIT));
}
