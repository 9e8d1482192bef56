//! Lists and watches.

use proptest::prelude::*;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_watch_older_than_the_window_gets_410_gone() {
    let cluster = Cluster::new();
    let first = rv(&cluster.pod("a"));
    cluster.pod("b");
    cluster.server.compact_watch_cache(cluster.etcd.revision());
    let events = cluster.watch(&format!("{PODS}?watch=true&resourceVersion={first}"));
    let (kind, status) = &events[0];
    assert_eq!((kind.as_str(), &status["code"], &status["reason"]), ("ERROR", &json!(410), &json!("Expired")));
    cluster.etcd.compact(cluster.etcd.revision());
    let exact = format!("{PODS}?resourceVersion={first}&resourceVersionMatch=Exact");
    assert_eq!(reason(&cluster.get(&exact)), (410, "Expired"));
}

#[tokio::test(start_paused = true)]
async fn future_versions_are_refused_in_lists_and_awaited_in_watches() {
    let cluster = Cluster::new();
    let exact = format!("{PODS}?resourceVersion=999&resourceVersionMatch=Exact");
    assert_eq!(reason(&cluster.get(&exact)), (504, "Timeout"));
    assert!(cluster.watch(&format!("{PODS}?watch=true&resourceVersion=999")).is_empty());
    let client = Transport::new(&cluster.server, "t").client();
    let began = tokio::time::Instant::now();
    let asked = http::Request::get(format!("{PODS}?resourceVersion=999")).body(kube::client::Body::empty()).unwrap();
    assert_eq!(client.send(asked).await.unwrap().status(), 504);
    assert_eq!(began.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_lagging_server_serves_old_data_where_allowed() {
    let cluster = Cluster::with_pod();
    cluster.server.follow(Following::Held);
    cluster.delete(&format!("{PODS}/a"), &json!({ "gracePeriodSeconds": 0 }));
    assert_eq!(cluster.get(&format!("{PODS}/a?resourceVersion=0")).0, 200);
    assert_eq!(cluster.get(&format!("{PODS}/a")).0, 404);
    assert_eq!(cluster.get(PODS).1["items"], json!([]));
    assert_eq!(cluster.get(&format!("{PODS}?resourceVersion=0")).1["items"].as_array().unwrap().len(), 1);
    cluster.server.follow(Following::AtOnce);
    assert_eq!(cluster.get(&format!("{PODS}/a?resourceVersion=0")).0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_gets_a_bookmark_each_minute_and_ends_in_time() {
    let cluster = Cluster::new();
    let reply = cluster.server.handle(&ApiRequest::new(
        "t",
        Method::GET,
        &format!(
            "{PODS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=150&resourceVersion={}",
            cluster.etcd.revision()
        ),
    ));
    cluster.send(Method::POST, NODES, &json!({ "metadata": { "name": "n" } }));
    let (_, mut stream) = reply.into_parts();
    let began = tokio::time::Instant::now();
    let mut bookmarks = Vec::new();
    while let Some(part) = stream.next().await {
        let (kind, object) = parse_event(&part.unwrap()).unwrap();
        bookmarks.push((kind, rv(&object), began.elapsed().as_secs()));
    }
    let revision = cluster.etcd.revision();
    let expected = [60, 120, 148].map(|second| ("BOOKMARK".to_owned(), revision, second));
    assert_eq!((bookmarks, began.elapsed().as_secs()), (expected.to_vec(), 150));
}

/// One step of a random history: a change of a pod.
fn step(cluster: &Cluster, what: u8, name: &str) {
    let path = format!("{PODS}/{name}");
    match what {
        0 | 1 => {
            let pod = json!({ "metadata": { "name": name, "labels": { "app": "x" } }, "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "i" }] } });
            cluster.send(Method::POST, PODS, &pod);
        }
        2 => drop(cluster.delete(&path, &json!({ "gracePeriodSeconds": 0 }))),
        3 => drop(cluster.delete(&path, &json!({}))),
        4 => drop(cluster.phase(name, "Running")),
        5 => drop(cluster.patch(&path, MERGE, &json!({ "metadata": { "labels": { "app": null } } }))),
        _ => drop(cluster.patch(&path, MERGE, &json!({ "metadata": { "labels": { "app": "x" } } }))),
    }
}

fn items(cluster: &Cluster, selector: &str) -> std::collections::BTreeMap<String, Value> {
    let (_, list) = cluster.get(&format!("{PODS}?{selector}"));
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    list["items"].as_array().unwrap().iter().map(|item| (name(item), item.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The guarantee that every informer relies on.
    #[test]
    fn a_list_and_its_watch_lead_to_every_later_list(
        steps in prop::collection::vec((0_u8..7, 0_usize..3), 1..40), cut in 0_usize..40, narrow in any::<bool>()
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let _guard = runtime.enter();
        let cluster = Cluster::new();
        let selector = if narrow { "labelSelector=app%3Dx" } else { "" };
        let names = ["a", "b", "c"];
        let (early, late) = steps.split_at(cut.min(steps.len()));
        early.iter().for_each(|(what, name)| step(&cluster, *what, names[*name]));
        let mut state = items(&cluster, selector);
        let from = cluster.etcd.revision();
        late.iter().for_each(|(what, name)| step(&cluster, *what, names[*name]));
        let mut last = from;
        for (kind, mut object) in cluster.watch(&format!("{PODS}?watch=true&resourceVersion={from}&{selector}")) {
            prop_assert!(rv(&object) > last, "versions only grow");
            last = rv(&object);
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let exists = state.contains_key(&name);
            prop_assert_eq!(exists, kind != "ADDED");
            object.as_object_mut().unwrap().retain(|key, _| key != "kind" && key != "apiVersion");
            if kind == "DELETED" { state.remove(&name); } else { state.insert(name, object); }
        }
        prop_assert_eq!(state, items(&cluster, selector));
    }
}
