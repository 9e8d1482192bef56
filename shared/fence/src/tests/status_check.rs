//! How the results of status checks are recorded, and failed reads.

use super::super::orders::{MAX_OUTCOME_BYTES, OrderError};
use super::*;

/// The status of the device after a check of its node.
async fn run_status_check(fixture: Fixture, answer: fn() -> Option<Result<Answer, DeviceError>>) -> Value {
    let harness = harness(fixture, move |_, _| answer());
    assert_eq!(harness.run_monitor(&monitor_request(&["n"], true)).await.name(), "written");
    harness.written("/fencedevices/bmc/status")["status"].clone()
}

fn requires_identity() -> Fixture {
    let mut device = device();
    device["spec"]["identityCheck"] = json!("Required");
    Fixture { device: Some(device), ..Fixture::default() }
}

#[tokio::test(start_paused = true)]
async fn a_device_that_fails_its_check_is_not_ready_with_the_reason() {
    let nameless = || Some(Ok(Answer::new(Power::On, Identity::Unknown, String::new())));
    let matching = || Some(Ok(Answer::new(Power::On, Identity::Match, String::new())));
    for (what, fixture, answer, problem) in [
        ("names no machine, and need not", Fixture::default(), nameless as fn() -> _, ""),
        ("names no machine, and must", requires_identity(), nameless, "IdentityUnknown"),
        ("names the machine, and must", requires_identity(), matching, ""),
    ] {
        let status = run_status_check(fixture, answer).await;
        let target = &status["targets"][0];
        assert_eq!(target["problem"].as_str().unwrap_or_default(), problem, "one that {what}");
        assert_eq!(status["conditions"][0]["status"], if problem.is_empty() { "True" } else { "False" });
        assert!(target["looked"].as_str().is_some_and(|at| at.ends_with('Z')), "{target}");
    }
}

/// A wrong plug: the device was ready, although it reported the node off at each check.
#[tokio::test(start_paused = true)]
async fn bug_a_device_that_reported_a_running_node_off_was_ready() {
    for (what, ready, renewed, boot, problem) in [
        ("its kubelet renews the Lease afterwards", "True", 17, BOOT, "SaysOff"),
        ("its kubelet renewed the Lease before: it was just powered off", "True", 7, BOOT, ""),
        ("it booted again meanwhile", "True", 17, NEXT_BOOT, ""),
        ("it is not Ready", "Unknown", 17, BOOT, ""),
    ] {
        let reads = Mutex::new(0);
        let mut node = machine();
        node["status"]["conditions"][0]["status"] = json!(ready);
        let mut after = node.clone();
        after["status"]["nodeInfo"]["bootID"] = json!(boot);
        let first = move |request: &Received| {
            // Before the device is asked, after its answer, and after the wait.
            let mut reads = reads.lock();
            *reads += usize::from(request.path == "/api/v1/nodes/n");
            (*reads > 2 && request.path == "/api/v1/nodes/n").then(|| ApiAnswer::json(&after))
        };
        let fixture = Fixture {
            node,
            renewed: Arc::new(move |number| if number == 0 { 7 } else { renewed }),
            first: Arc::new(first),
            ..Fixture::default()
        };
        let status = run_status_check(fixture, || answer_with(Power::Off)).await;
        assert_eq!(status["targets"][0]["problem"].as_str().unwrap_or_default(), problem, "{what}: {status}");
        let reason = if problem.is_empty() { "AllTargetsReachable" } else { problem };
        assert_eq!(status["conditions"][0]["reason"], reason, "{what}");
        assert_eq!(status["targets"][0]["power"], "Off", "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_that_selects_no_node_is_not_ready() {
    let harness = harness(Fixture::default(), |_, _| None);
    assert_eq!(harness.run_monitor(&monitor_request(&[], true)).await.name(), "written");
    let status = harness.written("/fencedevices/bmc/status")["status"].clone();
    assert_eq!(
        (&status["conditions"][0]["status"], &status["conditions"][0]["reason"]),
        (&json!("False"), &json!("NoNodes"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_status_check_records_its_time_and_the_identity() {
    let harness = harness(Fixture::default(), |_, _| answer_with(Power::Off));
    harness.assert_outcome(Step::Look(target(tried("off"))), "written").await;
    for sample in harness.verified()["samples"].as_array().unwrap() {
        assert!(sample["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{sample}");
        assert_eq!(sample["identity"], "Match", "{sample}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_proves_nothing_is_recorded_with_the_reason() {
    let spoke = Fixture { renewed: Arc::new(|_| 9), ..Fixture::default() };
    let renewed = harness(spoke, |_, _| None);
    renewed.run_step(Step::Prove(target(checked_status("Off")))).await;
    let verified = renewed.verified();
    assert_eq!(verified["power"], "Unknown");
    assert!(verified["message"].as_str().unwrap().contains("renewed its Lease"), "{verified}");
}

/// Devices answer with any text, in any language.
#[tokio::test(start_paused = true)]
async fn the_answers_of_devices_are_truncated_at_a_character_boundary() {
    for (length, kept) in
        [(10, 10), (MAX_OUTCOME_BYTES - 13, MAX_OUTCOME_BYTES - 13), (MAX_OUTCOME_BYTES, MAX_OUTCOME_BYTES - 14)]
    {
        let answer = move |_, _| {
            let answer = "\u{e9}".repeat(length / 2);
            Some(Ok(Answer::new(Power::Off, Identity::Match, answer)))
        };
        let harness = harness(Fixture::default(), answer);
        harness.assert_outcome(Step::Attempt(target(tried("off"))), "written").await;
        let outcome = harness.written("nodefences")["status"]["attempts"][0]["outcome"].clone();
        let text = outcome.as_str().unwrap();
        let of_device = text.matches('\u{e9}').count() * 2;
        assert!(text.len() <= MAX_OUTCOME_BYTES && of_device.abs_diff(kept) <= 3, "{length}: {of_device} of {kept}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_of_the_node_is_not_a_missing_node() {
    for (path, code, expected) in [
        ("/fencedevices/bmc", 404, "no device"),
        ("/fencedevices/bmc", 500, "unread device"),
        ("/nodes/n", 404, "gone"),
        ("/nodes/n", 500, "unread node"),
        ("/secrets/", 404, "no secret"),
        ("/secrets/", 403, "unread device"),
    ] {
        let reason = if code == 404 { "NotFound" } else { "No" };
        let first: First =
            Arc::new(move |request| request.path.contains(path).then(|| ApiAnswer::status(code, reason, "no")));
        let harness = harness(Fixture { first, ..Fixture::default() }, |_, _| None);
        let connection = harness.api.connection();
        let step_context = harness.step_context(&connection);
        let reader = &step_context.checker.reader;
        let result = match reader.read_facts(&incarnation()).await {
            Err(_) => "unread node",
            Ok(facts) if facts.labels.is_none() => "gone",
            Ok(facts) => match reader.prepare_order(&bmc(), &facts, Act::Look).await {
                Err(OrderError::NoDevice(_)) => "no device",
                Err(OrderError::Read { .. }) => "unread device",
                Err(OrderError::Secret { .. }) => "no secret",
                Err(error) => panic!("{error}"),
                Ok(_) => "all is there",
            },
        };
        assert_eq!(result, expected, "{path} {code}");
    }
}

/// Its labels are not about the node in question.
#[tokio::test(start_paused = true)]
async fn the_facts_of_another_node_of_the_same_name_are_not_used() {
    let harness = harness(Fixture::default(), |_, _| None);
    let connection = harness.api.connection();
    let step_context = harness.step_context(&connection);
    let of = async |uid: &str| {
        let node = Incarnation { uid: uid.to_owned(), ..incarnation() };
        step_context.checker.reader.read_facts(&node).await.unwrap().labels.is_some()
    };
    assert!(of("uid-n").await && of("").await && !of("uid-earlier").await);
}

/// A kubelet that wrote the systemUUID of another machine had that machine switched off.
#[tokio::test(start_paused = true)]
async fn a_node_with_another_identity_than_at_the_first_check_gets_no_order() {
    let mut by_uuid = device();
    by_uuid["spec"]["parameters"]["plug"] = json!("{{.Node.SystemUUID}}");
    by_uuid["status"] = json!({ "targets": [{ "node": "n", "nodeUID": "uid-n", "systemUUID": "uuid-0" }] });
    let harness = harness(Fixture { device: Some(by_uuid), ..Fixture::default() }, |_, _| answer_with(Power::Off));
    harness.assert_outcome(Step::Attempt(target(tried("off"))), "written").await;
    assert_eq!(harness.log(), [STATUS], "no order is sent");
    assert_eq!(harness.run_monitor(&monitor_request(&["n"], true)).await.name(), "written");
    let recorded = harness.written("/fencedevices/bmc/status")["status"]["targets"][0].clone();
    assert_eq!((&recorded["systemUUID"], &recorded["problem"]), (&json!("uuid-0"), &json!("IdentityChanged")));
}
