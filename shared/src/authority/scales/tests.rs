//! What is asked for a command that looks once, and how long.

use serde_json::{Value, json};

use super::*;
use crate::client::scripted::{Answer, Api, Asked, env};
use crate::model::Kind;
use crate::testing::objects;

/// A pod that a workload `NAME` of this kind manages.
fn pod(api_version: &str, kind: &str, name: &str) -> Value {
    objects::pod(&format!("{name}-0")).owned(api_version, kind, name).0
}

/// Two fleets, of which one hangs, and a herd of another group.
fn answers(asked: &Asked) -> Answer {
    let resources = |names: &[(&str, &str)]| {
        let all: Vec<Value> =
            names.iter().map(|(name, kind)| json!({ "name": name, "kind": kind })).collect();
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

/// Asks for all of them; gives back what is then known, by the controllers' names, and the seconds that it took.
async fn asked(within: u64) -> (BTreeMap<String, Result<Scale, Box<str>>>, u64) {
    let (env, _wall) = env();
    let api = Api::new(&env, |asked| async move { answers(&asked) });
    let connection = api.connection();
    let snapshot = Snapshot::read(&connection, &env, &[Kind::Pods], None, &mut |_, _| {}).await.unwrap();
    let controller = |pod: &crate::model::Pod| Some((pod.key.namespace.clone(), pod.controller.clone()?));
    let all: BTreeSet<Scaled> = snapshot.view().view().all_pods().filter_map(controller).collect();
    let began = env.now();
    ask_scales(&connection, &env, &snapshot, &all, Duration::from_secs(within)).await;
    let guard = snapshot.view();
    let said = guard.view().all_pods().map(|pod| {
        let name = pod.controller.as_ref().unwrap().name.to_string();
        (name, guard.view().scale(pod).unwrap().scale.clone())
    });
    (said.collect(), env.now().since(began).as_secs())
}

#[tokio::test(start_paused = true)]
async fn each_is_asked_and_one_that_hangs_delays_its_own_group_alone() {
    let (said, took) = asked(60).await;
    assert_eq!(said["a"], Ok(Scale::Replicas(3)));
    assert_eq!(said["b"], Ok(Scale::None));
    assert_eq!(said["later"], Ok(Scale::Absent));
    let why = said["hangs"].clone().unwrap_err();
    assert_eq!(&*why, "asking for the scale of Fleet hangs: no answer from the API server within 5s");
    assert_eq!(took, 5);
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_answer_in_time_is_known_not_to_have() {
    let (said, took) = asked(2).await;
    assert_eq!(said["a"], Ok(Scale::Replicas(3)));
    assert_eq!(said["b"], Ok(Scale::None));
    for name in ["hangs", "later"] {
        assert_eq!(said[name], Err(format!("Fleet {name} gave no answer within 2s").into()));
    }
    assert_eq!(took, 2);
}
