//! What people may say, and when they are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::*;
use crate::client::scripted::{Answer, Api, env};
use crate::testing::objects::{lease, node};

/// A node whose Lease moves on at each read, or does not.
async fn examined(ready: &str, moves: bool) -> (Result<(), PeopleError>, Api) {
    let (env, _wall) = env();
    let reads = Arc::new(AtomicU8::new(1));
    let ready = ready.to_owned();
    let api = Api::new(&env, move |asked| {
        let answer = if asked.path.contains("/leases/") {
            let second = if moves { reads.fetch_add(1, Ordering::SeqCst) } else { 1 };
            Answer::json(&lease("n", second).0)
        } else {
            let object = node("n").set("/status/nodeInfo", json!({ "bootID": "b" }));
            Answer::json(&object.set("/status/conditions", json!([{ "type": "Ready", "status": ready }])).0)
        };
        async move { answer }
    });
    let connection = api.connection();
    let examined = examine(&connection, &env, "n").await.unwrap();
    (listen(&connection, &env, &examined, Duration::from_secs(12)).await, api)
}

#[tokio::test(start_paused = true)]
async fn nobody_confirms_a_node_whose_kubelet_speaks() {
    assert!(examined("Unknown", false).await.0.is_ok());
    assert!(matches!(examined("True", false).await.0, Err(PeopleError::Ready(_))));
    assert!(matches!(examined("Unknown", true).await.0, Err(PeopleError::Heard(_))));
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_names_the_life_of_the_node_and_who_says_so() {
    let (env, _wall) = env();
    let api = Api::new(&env, |asked| {
        let answer = if asked.body.is_empty() {
            Answer::not_found()
        } else {
            Answer::coded(201, &json!({ "metadata": { "name": "n-1-x" } }))
        };
        async move { answer }
    });
    let node = Incarnation { name: "n".to_owned(), uid: "u".to_owned(), boot_id: "b".to_owned() };
    let renewed = Some("2026-01-01T00:00:07Z".to_owned());
    let examined = Examined { node, labels: Default::default(), ready: false, cordoned: false, renewed };
    let name = confirm(&api.connection(), &examined, "ada", "I pulled the plug", Duration::from_secs(3_600))
        .await
        .unwrap();
    let body = api.heard().pop().unwrap().json();
    assert_eq!((name.as_str(), &body["metadata"]["name"]), ("n-1-x", &serde_json::Value::Null));
    assert_eq!(body["metadata"]["generateName"], format!("{}-", incident_name(&examined.node)));
    assert_eq!(
        body["spec"],
        json!({ "node": { "name": "n", "uid": "u", "bootID": "b" }, "kind": "Asserted", "by": "ada",
            "reason": "I pulled the plug", "validSeconds": 3600, "leaseRenewed": "2026-01-01T00:00:07Z" })
    );
}
