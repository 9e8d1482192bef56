//! Agents of nodes, whose Leases are scripted.

use pod_safety_watchdog::record::{Boot, Class, Device, Epoch, Record, State};

use super::*;

const BOOT: &str = "b0000000-0000-4000-8000-000000000001";
const NEXT_BOOT: &str = "b0000000-0000-4000-8000-000000000002";

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/fencing/leases/watchdog.n";
const STATE: &str = "watchdog.pod-safety.dev/state";

fn lease(state: State, boot: &str, change: impl FnOnce(&mut Device)) -> Value {
    let mut device = Device {
        class: Class::Hardware,
        identity: "iTCO_wdt".into(),
        firmware: 6,
        kernel: "6.1.0".into(),
        timeout: Duration::from_secs(10),
        nowayout: true,
        pings_on_close: true,
    };
    change(&mut device);
    let record = Record {
        state,
        epoch: Epoch { process: 7, count: 0 },
        round: 3,
        boot: Boot { node: "uid-n".into(), id: boot.into() },
        device: (state != State::Unarmed).then(|| Arc::new(device)),
    };
    json!({ "metadata": { "uid": "uid-l", "resourceVersion": "17", "annotations": record.to_annotations() }, "spec": {} })
}

/// A watchdog that has passed its drill.
fn spec() -> Value {
    let drilled = json!([{ "identity": "iTCO_wdt", "firmware": 6, "kernel": "6.1.0" }]);
    json!({ "spec": { "driver": "WatchdogLease", "identityCheck": "Required", "watchdogLease": { "drilled": drilled } } })
}

fn state(store: &Store) -> Value {
    store.get(LEASE).unwrap()["metadata"]["annotations"][STATE].clone()
}

/// A node that was fenced: 3 × 11 s × 1.01 + 5 s after the grant was observed.
async fn fenced() -> (Store, Harness, crate::api::Attempt) {
    let store = Store::default();
    store.put(LEASE, lease(State::Armed, BOOT, |_| ()));
    let harness = with(&store, spec());
    let begun = harness.env.now();
    harness.run_off_attempt().await;
    let took = harness.env.now().since(begun);
    assert!((Duration::from_millis(38_330)..Duration::from_secs(41)).contains(&took), "{took:?}");
    let attempt = attempted(&harness);
    (store, harness, attempt)
}

#[tokio::test(start_paused = true)]
async fn the_grant_is_revoked_and_the_node_is_off_after_the_wait_time() {
    let (store, harness, attempt) = fenced().await;
    assert_eq!((state(&store), attempt.objects[0].path.as_str()), (json!("Revoked"), LEASE));
    assert!(attempt.outcome.as_deref().unwrap().contains("its grant was revoked"), "{attempt:?}");
    let off = check_power(&harness, attempt).await;
    assert_eq!((off.power, evidence_kind_of(&off.samples)), (Power::Off, FenceEvidenceKind::WatchdogLease));
    let connection = harness.api.connection();
    let looker = StatusChecker::new(&connection, harness.world.cache(), &harness.env, &harness.devices);
    let now = async || looker.confirm_all_off(&incarnation(), &off.samples, &[]).await;
    assert_eq!(now().await.unwrap().0, FenceEvidenceKind::WatchdogLease);
    let other = Incarnation { boot_id: NEXT_BOOT.to_owned(), ..incarnation() };
    assert!(looker.confirm_all_off(&other, &off.samples, &[]).await.is_err(), "of that boot nothing was promised");
    // The machine was reset, and its agent is back.
    store.put(LEASE, lease(State::Unarmed, NEXT_BOOT, |_| ()));
    assert!(now().await.is_err());
    store.put(LEASE, lease(State::Armed, NEXT_BOOT, |_| ()));
    assert!(now().await.unwrap_err().contains("the machine runs"));
}

/// The observation is in memory alone.
#[tokio::test(start_paused = true)]
async fn a_process_that_did_not_observe_the_grant_waits_from_its_first_read() {
    let (store, _, attempt) = fenced().await;
    let later = with(&store, spec());
    let verified = check_power(&later, attempt.clone()).await;
    assert_eq!(verified.power, Power::Unknown, "{verified:?}");
    assert!(verified.message.contains("may run for another"), "{verified:?}");
    later.env.sleep(Duration::from_secs(39)).await;
    assert_eq!(check_power(&later, attempt).await.power, Power::Off);
}

/// Its revocation would reset the machine, and prove nothing.
#[tokio::test(start_paused = true)]
async fn a_promise_that_is_not_accepted_is_not_revoked_and_the_reason_is_recorded() {
    type Change = fn(&mut Device);
    let as_it_is: Change = |_| ();
    let rows: [(State, &str, Change, &str); 7] = [
        (State::Armed, BOOT, |device| device.kernel = "6.2.0".into(), "drill --watchdog"),
        (State::Armed, BOOT, |device| device.class = Class::Cloud, "Cloud is never accepted"),
        (State::Armed, BOOT, |device| device.nowayout = false, "nowayout=1"),
        (State::Armed, BOOT, |device| device.timeout = Duration::from_secs(60), "timeouts.powerOff"),
        (State::Armed, "b0000000-0000-4000-8000-000000000000", as_it_is, "another boot"),
        (State::Unarmed, BOOT, as_it_is, "promises nothing"),
        (State::Disarmed, BOOT, as_it_is, "promises nothing"),
    ];
    for (written_state, boot, change, expected) in rows {
        let store = Store::default();
        store.put(LEASE, lease(written_state, boot, change));
        let harness = with(&store, spec());
        harness.run_off_attempt().await;
        let outcome = attempted(&harness).outcome.unwrap();
        assert!(outcome.contains(expected), "{expected}: {outcome}");
        assert_eq!(state(&store), written_state.to_string(), "{expected}");
    }
    let harness = with(&Store::default(), spec());
    harness.run_off_attempt().await;
    let outcome = attempted(&harness).outcome.unwrap();
    assert!(outcome.contains("does pod-safety-agent run on the node?"), "{outcome}");
}

#[tokio::test(start_paused = true)]
async fn a_grant_after_the_observed_one_means_that_the_machine_runs() {
    let store = Store::default();
    store.put(LEASE, lease(State::Armed, BOOT, |_| ()));
    let answers = store.clone();
    // The agent writes between the read and the revocation.
    let first = move |request: &Received| {
        let revokes = request.method == "PATCH" && request.path == LEASE;
        if revokes {
            Some(ApiAnswer::with_code(409, &json!({ "reason": "Conflict" })))
        } else {
            answers.answer(request)
        }
    };
    let fixture = Fixture { first: Arc::new(first), device: Some(spec()), ..Fixture::default() };
    let harness = harness(fixture, |_, _| panic!("no transport is used"));
    harness.run_off_attempt().await;
    let attempt = attempted(&harness);
    assert!(attempt.outcome.as_deref().unwrap().contains("a new grant: its machine runs"), "{attempt:?}");
    harness.env.sleep(Duration::from_secs(60)).await;
    assert_eq!(check_power(&harness, attempt).await.power, Power::On);
}
