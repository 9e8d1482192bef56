//! What looks at devices come to in words, and what cannot be read.

use super::super::orders::{MAX_OUTCOME_BYTES, OrderError};
use super::*;

/// The target of the one node as a look through the device writes it.
async fn run_status_check(there: There, answer: fn() -> Option<Result<Answer, DeviceError>>) -> Value {
    let scene = scene(there, move |_, _| answer());
    assert_eq!(scene.run_monitor(&wish(&["n"], true)).await.name(), "written");
    scene.written("/fencedevices/bmc/status")["status"].clone()
}

fn requires_identity() -> There {
    let mut device = device();
    device["spec"]["identityCheck"] = json!("Required");
    There { device: Some(device), ..There::default() }
}

#[tokio::test(start_paused = true)]
async fn a_device_that_cannot_be_used_as_it_must_be_is_not_ready_and_says_why() {
    let nameless = || Some(Ok(Answer::new(Power::On, Identity::Unknown, String::new())));
    let matching = || Some(Ok(Answer::new(Power::On, Identity::Match, String::new())));
    for (what, there, answer, problem) in [
        ("names no machine, and need not", There::default(), nameless as fn() -> _, ""),
        ("names no machine, and must", requires_identity(), nameless, "IdentityUnknown"),
        ("names the machine, and must", requires_identity(), matching, ""),
    ] {
        let status = run_status_check(there, answer).await;
        let target = &status["targets"][0];
        assert_eq!(target["problem"].as_str().unwrap_or_default(), problem, "one that {what}");
        assert_eq!(status["conditions"][0]["status"], if problem.is_empty() { "True" } else { "False" });
        assert!(target["looked"].as_str().is_some_and(|at| at.ends_with('Z')), "{target}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_that_selects_no_node_is_not_ready() {
    let scene = scene(There::default(), |_, _| None);
    assert_eq!(scene.run_monitor(&wish(&[], true)).await.name(), "written");
    let status = scene.written("/fencedevices/bmc/status")["status"].clone();
    assert_eq!(
        (&status["conditions"][0]["status"], &status["conditions"][0]["reason"]),
        (&json!("False"), &json!("NoNodes"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_status_check_says_when_it_was_and_whether_the_machine_is_the_one() {
    let scene = scene(There::default(), |_, _| answer_with(Power::Off));
    scene.ends(Step::Look(target(tried("off"))), "written").await;
    for sample in scene.verified()["samples"].as_array().unwrap() {
        assert!(sample["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{sample}");
        assert_eq!(sample["identity"], "Match", "{sample}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_proves_nothing_says_so_in_its_incident() {
    let spoke = There { renewed: Arc::new(|_| 9), ..There::default() };
    let scene_spoke = scene(spoke, |_, _| None);
    scene_spoke.run_step(Step::Prove(target(checked_status("Off")))).await;
    let verified = scene_spoke.verified();
    assert_eq!(verified["power"], "Unknown");
    assert!(verified["message"].as_str().unwrap().contains("renewed its Lease"), "{verified}");
}

/// Devices say what they like, in any language.
#[tokio::test(start_paused = true)]
async fn what_devices_answered_is_kept_up_to_a_length_and_whole_up_to_there() {
    for (length, kept) in [
        (10, 10),
        (MAX_OUTCOME_BYTES - 13, MAX_OUTCOME_BYTES - 13),
        (MAX_OUTCOME_BYTES, MAX_OUTCOME_BYTES - 14),
    ] {
        let said = move |_, _| {
            let said = "\u{e9}".repeat(length / 2);
            Some(Ok(Answer::new(Power::Off, Identity::Match, said)))
        };
        let scene = scene(There::default(), said);
        scene.ends(Step::Attempt(target(tried("off"))), "written").await;
        let outcome = scene.written("nodefences")["status"]["attempts"][0]["outcome"].clone();
        let text = outcome.as_str().unwrap();
        let of_device = text.matches('\u{e9}').count() * 2;
        assert!(
            text.len() <= MAX_OUTCOME_BYTES && of_device.abs_diff(kept) <= 3,
            "{length}: {of_device} of {kept}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_not_what_is_not_there() {
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
            Arc::new(move |asked| asked.path.contains(path).then(|| Says::status(code, reason, "no")));
        let scene = scene(There { first, ..There::default() }, |_, _| None);
        let connection = scene.api.connection();
        let acting = scene.acting(&connection);
        let reader = &acting.checker.reader;
        let found = match reader.read_facts(&incarnation()).await {
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
        assert_eq!(found, expected, "{path} {code}");
    }
}

/// What its labels say is not about the node that is meant.
#[tokio::test(start_paused = true)]
async fn another_node_of_the_name_is_not_the_node() {
    let scene = scene(There::default(), |_, _| None);
    let connection = scene.api.connection();
    let acting = scene.acting(&connection);
    let of = async |uid: &str| {
        let node = Incarnation { uid: uid.to_owned(), ..incarnation() };
        acting.checker.reader.read_facts(&node).await.unwrap().labels.is_some()
    };
    assert!(of("uid-n").await && of("").await && !of("uid-earlier").await);
}
