//! The out-of-service taint: kube-controller-manager removes pods and detaches volumes of a node that has it.

use super::*;

const BOOT: &str = "b0000000-0000-4000-8000-000000000001";
const NEXT_BOOT: &str = "b0000000-0000-4000-8000-000000000002";

const KEY: &str = OUT_OF_SERVICE_TAINT;

fn taint(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": value, "effect": "NoExecute" })
}

/// A cluster in which one thing differs from those in which the taint may be added.
fn provable(change: impl FnOnce(&mut Fixture)) -> Fixture {
    let mut fixture = Fixture { proof: Some(proof(false)), ..Fixture::default() };
    change(&mut fixture);
    fixture
}

fn about(pointer: &str, to: Value) -> Fixture {
    provable(|fixture| {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        fixture.proof.as_mut().unwrap().pointer_mut(parent).unwrap()[key] = to;
    })
}

/// Adds the taint to a node that has not reported for a minute, and whose device reports off.
pub(super) async fn tainted(fixture: Fixture, fence_target: Target) -> (Harness, &'static str) {
    tainted_where(fixture, fence_target, Power::Off).await
}

async fn tainted_where(fixture: Fixture, fence_target: Target, power: Power) -> (Harness, &'static str) {
    let harness = harness(fixture, move |_, _| answer_with(power));
    advance(60.0).await;
    let outcome = harness.run_step(Step::Taint(fence_target)).await.name();
    (harness, outcome)
}

#[tokio::test(start_paused = true)]
async fn the_taint_is_written_at_the_version_that_was_read_with_time_added() {
    let theirs = json!({ "key": "k", "value": "v", "effect": "NoSchedule", "unknownField": 1 });
    let fixture = provable(|fixture| fixture.node["spec"]["taints"] = json!([theirs]));
    let (harness, outcome) = tainted(fixture, target(checked_status("Off"))).await;
    assert_eq!((outcome, harness.requests()), ("written", vec![NODE.to_owned(), STATUS.to_owned()]));
    let body = harness.written("/nodes/");
    assert_eq!(body["metadata"], json!({ "uid": "uid-n", "resourceVersion": "5" }));
    let added = json!({ "key": KEY, "value": "n-1", "effect": "NoExecute", "timeAdded": "2026-11-21T12:00:00Z" });
    assert_eq!(body["spec"], json!({ "taints": [theirs, added] }));
    let sent = harness.api.requests().into_iter().find(|request| request.method == "PATCH").unwrap();
    assert!(sent.permitted, "the guard lets no other such request through");
}

#[tokio::test(start_paused = true)]
async fn evidence_about_another_incarnation_adds_no_taint() {
    for (what, fixture) in [
        ("of storage alone", about("/spec/kind", json!("StorageFenced"))),
        ("of another node", about("/spec/node/name", json!("m"))),
        ("of another Node of that name", about("/spec/node/uid", json!("uid-m"))),
        ("of another boot", about("/spec/node/bootID", json!("b0000000-0000-4000-8000-000000000000"))),
        ("that was invalidated", provable(|fixture| fixture.proof = Some(proof(true)))),
        ("of a Node that was made anew", provable(|fixture| fixture.node["metadata"]["uid"] = json!("uid-m"))),
        (
            "of a node that does not say its boot any more",
            provable(|fixture| fixture.node["status"]["nodeInfo"]["bootID"] = json!("")),
        ),
    ] {
        let (harness, outcome) = tainted(fixture, target(checked_status("Off"))).await;
        assert_eq!((outcome, harness.requests()), ("refused", Vec::new()), "evidence {what}");
    }
    let (harness, outcome) = tainted(provable(|fixture| fixture.proof = None), target(checked_status("Off"))).await;
    assert_eq!((outcome, harness.requests()), ("gone", Vec::new()), "none");
}

#[tokio::test(start_paused = true)]
async fn bug_the_taint_was_added_to_a_node_without_a_boot_id() {
    let mut fixture = about("/spec/node/bootID", json!(""));
    fixture.node["status"]["nodeInfo"]["bootID"] = json!("");
    let mut fence_target = target(checked_status("Off"));
    fence_target.spec.node.boot_id.clear();
    let (harness, outcome) = tainted(fixture, fence_target).await;
    assert_eq!((outcome, harness.requests()), ("refused", Vec::new()));
}

/// The taint was added after the weakest check of all, and kube-controller-manager acts on it.
#[tokio::test(start_paused = true)]
async fn evidence_that_does_not_hold_now_adds_no_taint() {
    let confirmation = |created: &str| {
        let created = json!(created);
        provable(|fixture| {
            let proof = fixture.proof.as_mut().unwrap();
            proof["metadata"]["creationTimestamp"] = created;
            proof["spec"] = json!({
                "node": incarnation(), "kind": "Asserted", "by": "ada", "reason": "I pulled the plug", "validSeconds": 3600,
                "leaseRenewed": "2026-01-01T00:00:07Z",
            });
        })
    };
    let renewed = |fixture: &mut Fixture| fixture.renewed = Arc::new(|_| 9);
    for (what, fixture, power, expected) in [
        ("a word of 59 minutes ago", confirmation("2026-11-21T11:01:00Z"), Power::Unknown, "written"),
        ("a word of 61 minutes ago", confirmation("2026-11-21T10:59:00Z"), Power::Unknown, "refused"),
        ("a device that says off", provable(|_| ()), Power::Off, "written"),
        ("a device that says on", provable(|_| ()), Power::On, "refused"),
        ("a device that does not know", provable(|_| ()), Power::Unknown, "refused"),
        ("a kubelet that was heard since", provable(renewed), Power::Off, "heard"),
    ] {
        let (harness, outcome) = tainted_where(fixture, target(checked_status("Off")), power).await;
        let written = if expected == "written" { vec![NODE.to_owned(), STATUS.to_owned()] } else { Vec::new() };
        assert_eq!((outcome, harness.requests()), (expected, written), "{what}");
    }
}

/// A mutant survived: a node may begin another incarnation after it was verified.
#[tokio::test(start_paused = true)]
async fn a_node_that_changes_after_the_verification_gets_no_taint() {
    type Change = fn(&mut Value);
    let rows: [(&str, Change, &str); 5] = [
        ("stays as it was", |_| {}, "written"),
        ("booted again", |node| node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT), "changed"),
        ("was made anew", |node| node["metadata"]["uid"] = json!("uid-2"), "changed"),
        ("does not say its boot any more", |node| node["status"]["nodeInfo"]["bootID"] = json!(""), "changed"),
        ("is Ready", |node| node["status"]["conditions"][0]["status"] = json!("True"), "heard"),
    ];
    for (what, change, expected) in rows {
        let fixture = provable(|fixture| {
            let (reads, mut later) = (Mutex::new(0), fixture.node.clone());
            change(&mut later);
            fixture.first = Arc::new(move |request| {
                if request.path != "/api/v1/nodes/n" || request.method != "GET" {
                    return None;
                }
                // The status checker reads it, then the verification; the third read is that before the write.
                *reads.lock() += 1;
                (*reads.lock() > 2).then(|| ApiAnswer::json(&later))
            });
        });
        let (harness, outcome) = tainted(fixture, target(checked_status("Off"))).await;
        assert_eq!((outcome, harness.requests().is_empty()), (expected, expected != "written"), "it {what}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_node_with_ready_true_is_refused_the_taint() {
    for (kind, status, expected) in [
        ("Ready", "True", "heard"),
        ("Ready", "False", "written"),
        ("Ready", "Unknown", "written"),
        ("MemoryPressure", "True", "written"),
    ] {
        let fixture =
            provable(|fixture| fixture.node["status"]["conditions"] = json!([{ "type": kind, "status": status }]));
        let (_, outcome) = tainted(fixture, target(checked_status("Off"))).await;
        assert_eq!(outcome, expected, "{kind}={status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_with_an_out_of_service_taint_is_not_tainted_again() {
    for (taints, expected) in [
        (json!([taint(KEY, "ada")]), &[STATUS][..]),
        (json!([taint(KEY, "n-1")]), &[STATUS]),
        (json!([taint("k", "n-1")]), &[NODE, STATUS]),
    ] {
        let fixture = provable(|fixture| fixture.node["spec"]["taints"] = taints.clone());
        let (harness, outcome) = tainted(fixture, target(checked_status("Off"))).await;
        assert_eq!(outcome, "written");
        assert_eq!(harness.requests(), expected, "{taints}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_our_taint_is_removed_from_a_node_that_is_back() {
    type Change = fn(&mut Value);
    let rows: [(&str, &str, &[&str], Change); 6] = [
        ("with another boot", "written", &[NODE, STATUS], |_| {}),
        ("as another Node", "written", &[NODE, STATUS], |node| {
            node["metadata"]["uid"] = json!("uid-2");
            node["status"]["nodeInfo"]["bootID"] = json!(BOOT);
        }),
        ("but not Ready", "changed", &[], |node| node["status"]["conditions"][0]["status"] = json!("Unknown")),
        ("with the same boot", "changed", &[], |node| node["status"]["nodeInfo"]["bootID"] = json!(BOOT)),
        ("without our taint", "written", &[STATUS], |node| {
            node["spec"]["taints"] = json!([taint(KEY, "ada"), taint("k", "n-1")])
        }),
        ("without a taint", "written", &[STATUS], |node| node["spec"]["taints"] = Value::Null),
    ];
    for (what, outcome, log, change) in rows {
        let mut fixture = Fixture::default();
        fixture.node["spec"]["taints"] = json!([taint(KEY, "ada"), taint("k", "n-1"), taint(KEY, "n-1")]);
        fixture.node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT);
        fixture.node["status"]["conditions"][0]["status"] = json!("True");
        change(&mut fixture.node);
        let harness = harness(fixture, |_, _| None);
        assert_eq!(harness.run_step(Step::Untaint(target(checked_status("Off")))).await.name(), outcome, "{what}");
        assert_eq!(harness.log(), log, "{what}");
        if log.contains(&NODE) {
            let kept = harness.written("/nodes/")["spec"]["taints"].clone();
            assert_eq!(kept, json!([taint(KEY, "ada"), taint("k", "n-1")]), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_node_has_no_taint_and_an_unreadable_one_is_an_error() {
    for (answer, expected) in [
        (ApiAnswer::not_found as fn() -> ApiAnswer, "written"),
        (|| ApiAnswer::plain(502, "bad gateway"), "failed"),
        (ApiAnswer::garbage, "failed"),
    ] {
        let first: First = Arc::new(move |request| (request.path == "/api/v1/nodes/n").then(answer));
        for step in [Step::Untaint, Step::Contradict] {
            let harness = harness(Fixture { first: Arc::clone(&first), ..Fixture::default() }, |_, _| None);
            assert_eq!(harness.run_step(step(target(checked_status("Off")))).await.name(), expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_taint_is_removed_only_after_a_read_of_the_evidence() {
    let tainted = |fixture: &mut Fixture| fixture.node["spec"]["taints"] = json!([taint(KEY, "n-1")]);
    let other_boot = |fixture: &mut Fixture| {
        tainted(fixture);
        fixture.proof.as_mut().unwrap()["spec"]["node"]["bootID"] = json!(NEXT_BOOT);
    };
    let unreadable = |fixture: &mut Fixture| {
        tainted(fixture);
        fixture.first =
            Arc::new(|request| request.path.contains("/fenceevidences/").then(|| ApiAnswer::plain(502, "bad gateway")));
    };
    let tainted_but = |change: fn(&mut Fixture)| {
        let mut fixture = provable(tainted);
        change(&mut fixture);
        fixture
    };
    for (what, fixture, outcome, log) in [
        ("it holds", provable(tainted), "changed", &[][..]),
        ("nobody can say", provable(unreadable), "failed", &[]),
        ("it was deleted", tainted_but(|fixture| fixture.proof = None), "written", &[NODE, STATUS]),
        ("it was withdrawn", tainted_but(|fixture| fixture.proof = Some(proof(true))), "written", &[NODE, STATUS]),
        ("it is about another boot", provable(other_boot), "written", &[NODE, STATUS]),
    ] {
        let harness = harness(fixture, |_, _| None);
        assert_eq!(harness.run_step(Step::Withdraw(target(checked_status("Off")))).await.name(), outcome, "{what}");
        assert_eq!(harness.log(), log, "{what}");
    }
}

/// The evidence was compared before the request was sent, which could then wait until the end of the term.
#[tokio::test(start_paused = true)]
async fn bug_the_taint_could_be_written_after_its_evidence_had_expired() {
    for (late, expected) in [(1, "written"), (3, "failed")] {
        let fixture = provable(|fixture| {
            fixture.first = Arc::new(move |request| {
                let taint = request.method == "PATCH" && request.path == "/api/v1/nodes/n";
                taint.then(|| ApiAnswer::json(&json!({})).delayed(Duration::from_secs(late)))
            });
        });
        let harness = harness(fixture, |_, _| answer_with(Power::Off));
        advance(60.0).await;
        let began = harness.env.now();
        let outcome = harness.run_step(Step::Taint(target(checked_status("Off")))).await.name();
        let is_status_written = harness.requests().iter().any(|request| request == STATUS);
        assert_eq!((outcome, is_status_written), (expected, expected == "written"), "after {late} s");
        assert_eq!(harness.env.now().since(began), Duration::from_secs(late.min(2)), "after {late} s");
    }
}

/// Evidence that the policy no longer accepts is no reason for the taint, even if it is true.
#[tokio::test(start_paused = true)]
async fn the_taint_of_a_confirmation_is_removed_while_a_policy_may_require_more() {
    for (readable, outcome, log) in [(true, "changed", &[][..]), (false, "written", &[NODE, STATUS])] {
        let fixture = provable(|fixture| {
            fixture.node["spec"]["taints"] = json!([taint(KEY, "n-1")]);
            fixture.proof.as_mut().unwrap()["spec"] =
                json!({ "node": incarnation(), "kind": "Asserted", "by": "ada", "reason": "I pulled the plug" });
        });
        let harness = harness(fixture, |_, _| None);
        if !readable {
            let policy = json!({ "metadata": { "name": "p", "uid": "uid-p" }, "spec": { "levels": [] } });
            harness.world.apply(Kind::FencePolicies, &policy, harness.env.now());
        }
        assert_eq!(harness.run_step(Step::Withdraw(target(checked_status("Off")))).await.name(), outcome, "{readable}");
        assert_eq!(harness.log(), log, "{readable}");
    }
}
