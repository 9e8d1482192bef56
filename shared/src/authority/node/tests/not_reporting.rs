//! Which conditions become Unknown, with which messages; and nodes that reported after all.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_unreachable_node_is_read_then_set_to_unknown_then_tainted_each_at_the_last_version() {
    let tried = served(&unreachable_update(), &Server::with_node(&well())).await;
    assert_eq!((tried.outcome, tried.lines()), ("written", [GET, LEASE, STATUS, REST].map(str::to_owned).into()));
    let [status, rest] = tried.writes()[..] else { panic!("two writes") };
    assert_eq!(status.content_type, "application/strategic-merge-patch+json");
    let stopped = |kind: &str| {
        format!(
            r#"{{"lastTransitionTime":"2026-11-21T12:00:00Z","message":"Kubelet stopped posting node status.","reason":"NodeStatusUnknown","status":"Unknown","type":"{kind}"}},"#
        )
    };
    let kubelets = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"].map(stopped).concat();
    let ours = concat!(
        r#"{"lastHeartbeatTime":"2026-11-21T12:00:00Z","lastTransitionTime":"2026-11-21T12:00:00Z","#,
        r#""message":"its kubelet has not reported since 2026-11-21T11:59:00Z, so it is not known whether its pods still run. "#,
        r#"Terminating pods are removed when it reports again, when the node is fenced with proof, "#,
        r#"or when its Node object is deleted after someone has made sure that the machine is off","#,
        r#""reason":"KubeletNotReporting","status":"True","type":"pod-safety.dev/NodeUnreachable"}"#
    );
    let expected = format!(
        r#"{{"metadata":{{"resourceVersion":"5","uid":"uid-n"}},"status":{{"conditions":[{kubelets}{ours}]}}}}"#
    );
    assert_eq!(status.body, expected);
    assert_eq!(
        rest.body,
        concat!(
            r#"{"metadata":{"resourceVersion":"6","uid":"uid-n"},"spec":{"taints":["#,
            r#"{"effect":"NoSchedule","key":"node.kubernetes.io/unreachable","timeAdded":"2026-11-21T12:00:00Z"},"#,
            r#"{"effect":"NoExecute","key":"node.kubernetes.io/unreachable","timeAdded":"2026-11-21T12:00:00Z"}]}}"#
        )
    );
    assert!(tried.writes().iter().all(|request| !request.permitted), "no permit is needed, and none is carried");
    assert_eq!(
        tried.done.to_string(),
        "Ready and the pressures are Unknown; NodeUnreachable is True; added node.kubernetes.io/unreachable:NoSchedule, node.kubernetes.io/unreachable:NoExecute"
    );
    assert_eq!((tried.done.reason(), tried.done.turned_not_ready), ("KubeletNotReporting", true));
}

/// As in kube-controller-manager: an Event is emitted only for a node that was Ready.
#[tokio::test(start_paused = true)]
async fn an_unreachable_node_has_an_event_only_if_it_was_ready() {
    for (before, has_event) in [("True", true), ("False", false)] {
        let node = well().set("/status/conditions", json!([condition("Ready", before)]));
        let tried = served(&unreachable_update(), &Server::with_node(&node)).await;
        assert_eq!((tried.done.set_unknown, tried.done.turned_not_ready), (true, has_event), "{before}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_heartbeat_and_network_unavailable_are_not_written() {
    let server = Server::with_node(&well());
    served(&unreachable_update(), &server).await;
    let node = server.node.lock().clone();
    for condition in node["status"]["conditions"].as_array().unwrap() {
        let status = match condition["type"].as_str().unwrap() {
            "NetworkUnavailable" => "False",
            "pod-safety.dev/NodeUnreachable" => continue,
            _ => "Unknown",
        };
        assert_eq!(
            (&condition["status"], &condition["lastHeartbeatTime"]),
            (&json!(status), &json!("2026-11-21T11:58:00Z"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn conditions_that_were_never_posted_have_the_creation_time_as_heartbeat() {
    let not_reporting = NotReporting { heartbeat: None, renewed: None, never_posted: true, ..not_reporting() };
    let update = NodeUpdate { not_reporting: Some(not_reporting), ..update() };
    let mut server = Server::with_node(&well().set("/status/conditions", json!([])));
    server.lease = None;
    let tried = served(&update, &server).await;
    assert_eq!((tried.outcome, tried.lines()), ("written", [GET, LEASE, STATUS].map(str::to_owned).into()));
    let conditions = tried.writes()[0].json()["status"]["conditions"].clone();
    for (at, kind) in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"].into_iter().enumerate() {
        assert_eq!(
            conditions[at],
            json!({
                "type": kind, "status": "Unknown", "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
                "lastHeartbeatTime": "2026-11-01T00:00:00Z", "lastTransitionTime": "2026-11-21T12:00:00Z",
            })
        );
    }
    assert_eq!(conditions.as_array().unwrap().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_reported_since_is_not_written() {
    let never = || NotReporting { heartbeat: None, never_posted: true, ..not_reporting() };
    let beat = well().set("/status/conditions/4/lastHeartbeatTime", json!("2026-11-21T11:58:10Z"));
    let unposted = well().set("/status/conditions", json!([]));
    let undated = well().set("/status/conditions", json!([{ "type": "Ready", "status": "True" }]));
    let cases = [
        ("its Lease was renewed", not_reporting(), well(), Some(lease("n", 8))),
        ("its Lease was renewed by a clock that went back", not_reporting(), well(), Some(lease("n", 6))),
        ("its Lease appeared", NotReporting { renewed: None, ..not_reporting() }, well(), Some(renewed())),
        ("its Lease went, perhaps after it was renewed", not_reporting(), well(), None),
        ("its status was posted", not_reporting(), beat, Some(renewed())),
        ("its status was posted for the first time", never(), well(), Some(renewed())),
        ("its status was posted for the first time, without a time", never(), undated, Some(renewed())),
        ("its status was wiped", not_reporting(), unposted, Some(renewed())),
    ];
    for (sentence, not_reporting, node, lease) in cases {
        let mut server = Server::with_node(&node);
        server.lease = lease.map(|lease| lease.0);
        let tried = served(&NodeUpdate { not_reporting: Some(not_reporting), ..unreachable_update() }, &server).await;
        assert_eq!((tried.outcome, tried.lines()), ("heard", [GET, LEASE].map(str::to_owned).into()), "{sentence}");
        assert!(tried.done.is_empty(), "{sentence}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_renew_time_is_like_no_lease() {
    let mut mute = renewed();
    mute.0["spec"].as_object_mut().unwrap().remove("renewTime");
    for lease in [Some(mute.0), None] {
        let not_reporting = NotReporting { renewed: None, ..not_reporting() };
        let mut server = Server::with_node(&well());
        server.lease = lease;
        let tried = served(&NodeUpdate { not_reporting: Some(not_reporting), ..unreachable_update() }, &server).await;
        assert_eq!(tried.outcome, "written");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_or_lease_that_cannot_be_decoded_is_not_set_to_unknown() {
    type Script = fn(&Received) -> Option<Answer>;
    let of_lease = |request: &Received| request.line() == LEASE;
    let cases: [(&str, Script); 5] = [
        ("a Lease of another shape", |request| (request.line() == LEASE).then(Answer::garbage)),
        ("a Lease whose time is none", |request| {
            let lease = renewed().set("/spec/renewTime", json!("yesterday"));
            (request.line() == LEASE).then(|| Answer::json(&lease.0))
        }),
        ("a proxy that knows no Leases", |request| {
            (request.line() == LEASE).then(|| Answer::plain(404, "404 page not found"))
        }),
        ("an API server that may not show Leases", |request| {
            (request.line() == LEASE).then(|| Answer::status(403, "Forbidden", "no"))
        }),
        ("a heartbeat whose time is none", |request| {
            let node = well().set("/status/conditions/4/lastHeartbeatTime", json!("yesterday"));
            (request.line() == GET).then(|| Answer::json(&node.0))
        }),
    ];
    for (sentence, script) in cases {
        let server = Server::with_node(&well());
        let tried =
            tried(&unreachable_update(), move |request| script(request).unwrap_or_else(|| server.answer(request)))
                .await;
        assert_eq!((tried.outcome, tried.writes().len()), ("failed", 0), "{sentence}");
        assert!(tried.requests.iter().any(of_lease), "{sentence}");
    }
}

/// Another controller set the conditions to Unknown: the status needs no write, the taints do.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_unknown_already_keeps_its_transition_time() {
    let tried = served(&NodeUpdate { unreachable: None, ..unreachable_update() }, &Server::with_node(&unknown())).await;
    assert_eq!((tried.outcome, tried.lines()), ("written", [GET, LEASE, REST].map(str::to_owned).into()));
    assert!(!tried.done.set_unknown);
}

#[tokio::test(start_paused = true)]
async fn the_node_unreachable_condition_is_written_only_if_it_changes() {
    let ours = |status: &str| {
        let conditions = json!([condition("Ready", "True"), condition("pod-safety.dev/NodeUnreachable", status)]);
        well().set("/status/conditions", conditions)
    };
    for (sentence, node, unreachable, expected) in [
        ("it is new", unknown(), true, Some(("True", "KubeletNotReporting", "since 2026-11-20T00:00:00Z"))),
        ("it is true already", ours("True"), true, None),
        (
            "it turns",
            ours("True"),
            false,
            Some(("False", "KubeletReporting", "at the latest since 2026-11-21T12:00:00Z")),
        ),
        ("it is false already", ours("False"), false, None),
        ("somebody made it unknown", ours("Unknown"), false, Some(("False", "KubeletReporting", "reports again"))),
    ] {
        let update = NodeUpdate { unreachable: Some(unreachable), ..update() };
        let tried = served(&update, &Server::with_node(&node)).await;
        let Some((status, reason, message)) = expected else {
            assert_eq!((tried.outcome, tried.lines()), ("no_effect", vec![GET.to_owned()]), "{sentence}");
            continue;
        };
        assert_eq!((tried.outcome, tried.done.reason()), ("written", "NodeUnreachable"), "{sentence}");
        let written = tried.writes()[0].json()["status"]["conditions"].clone();
        assert_eq!(written.as_array().unwrap().len(), 1, "{sentence}");
        assert_eq!((&written[0]["status"], &written[0]["reason"]), (&json!(status), &json!(reason)), "{sentence}");
        assert!(written[0]["message"].as_str().unwrap().contains(message), "{sentence}: {}", written[0]["message"]);
    }
}
