//! Holds that count down to a deletion, and the Events if the deletion is cancelled.

use std::time::Duration;

use super::*;
use crate::client::scripted::{Answer, Api, advance, env};
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::model::PodKey;
use crate::testing::example_hold::Hold;

struct Desk {
    env: Env,
    api: Api,
    holds: Arc<Holds>,
    journal: Arc<Journal>,
}

fn desk() -> Desk {
    let (env, _wall) = env();
    let api = Api::new(&env, |_| async { Answer::with_code(201, &serde_json::json!({})) });
    let (metrics, journal) = (Metrics::new().unwrap(), Arc::new(Journal::default()));
    let events = Recorder::new(env.clone(), metrics.authority.clone());
    let holds = Holds::new(Arc::clone(&journal), events.clone(), metrics.registry()).unwrap();
    let write = events.worker_loop(api.connection(), Leadership::always(), "pod-safety", "us".to_owned());
    env.spawner.spawn("events", Box::pin(write));
    Desk { env, api, holds, journal }
}

fn pod() -> PodKey {
    PodKey { namespace: "ns".into(), name: "a".into(), uid: Uid::new("u").unwrap() }
}

fn counts_down(left: u64) -> Vec<(Subject, Hold)> {
    vec![(Subject::Pod(pod()), Hold::Tolerated { left: Duration::from_secs(left) })]
}

impl Desk {
    fn decided(&self, holds: Vec<(Subject, Hold)>, deleted: bool, aloud: bool) {
        let deleted = deleted.then(|| pod().uid).into_iter().collect();
        self.holds.replace("taint-eviction", "n", holds, &deleted, aloud, &self.env);
    }

    async fn event_messages(&self) -> Vec<String> {
        advance(0.1).await;
        self.api.requests().iter().map(|request| request.json()["message"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_countdown_without_a_deletion_emits_the_cancellation_event_of_kcm() {
    let desk = desk();
    desk.decided(counts_down(300), false, true);
    desk.decided(counts_down(290), false, true);
    assert!(desk.event_messages().await.is_empty());
    assert_eq!(desk.holds.current().len(), 1);
    desk.decided(Vec::new(), false, true);
    desk.decided(Vec::new(), false, true);
    assert_eq!(desk.event_messages().await, ["Cancelling deletion of Pod ns/a"]);
    let event = desk.api.requests()[0].json();
    assert_eq!((&event["reason"], &event["type"]), (&"TaintManagerEviction".into(), &"Normal".into()));
    assert_eq!(event["source"]["component"], "taint-eviction-controller");
    assert!(desk.journal.records().is_empty(), "there may be one for each pod of a zone");
}

#[tokio::test(start_paused = true)]
async fn a_countdown_that_ends_in_a_deletion_emits_no_cancellation() {
    let desk = desk();
    desk.decided(counts_down(300), false, true);
    desk.decided(Vec::new(), true, true);
    desk.decided(Vec::new(), false, true);
    assert!(desk.event_messages().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_cancellation_event_is_emitted_beside_kcm() {
    let desk = desk();
    desk.decided(counts_down(300), false, false);
    desk.decided(Vec::new(), false, false);
    assert!(desk.event_messages().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_emits_events_of_its_controllers_present_holds_with_their_reasons() {
    let desk = desk();
    desk.decided(vec![(Subject::Pod(pod()), Hold::PhaseUnreadable)], false, false);
    desk.holds.emit_events_again("pod-gc");
    assert!(desk.event_messages().await.is_empty());
    desk.holds.emit_events_again("taint-eviction");
    let message = "PhaseUnreadable: the pod's phase does not prove that it terminated";
    assert_eq!(desk.event_messages().await, [message]);
}
