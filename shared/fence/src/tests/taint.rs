//! The out-of-service taint: kube-controller-manager takes pods and volumes from a node that bears it.

use super::*;

const BOOT: &str = "b0000000-0000-4000-8000-000000000001";
const NEXT_BOOT: &str = "b0000000-0000-4000-8000-000000000002";

const KEY: &str = OUT_OF_SERVICE_TAINT;

fn taint(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": value, "effect": "NoExecute" })
}

/// A cluster in which one thing is other than where the taint may be added.
fn provable(change: impl FnOnce(&mut There)) -> There {
    let mut there = There { proof: Some(proof(false)), ..There::default() };
    change(&mut there);
    there
}

fn about(pointer: &str, to: Value) -> There {
    provable(|there| {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        there.proof.as_mut().unwrap().pointer_mut(parent).unwrap()[key] = to;
    })
}

/// The taint is to be put on a node that has been silent for a minute, and whose device says off.
pub(super) async fn tainted(there: There, wanted: Target) -> (Scene, &'static str) {
    tainted_where(there, wanted, Power::Off).await
}

async fn tainted_where(there: There, wanted: Target, power: Power) -> (Scene, &'static str) {
    let scene = scene(there, move |_, _| answer_with(power));
    advance(60.0).await;
    let outcome = scene.run_step(Step::Taint(wanted)).await.name();
    (scene, outcome)
}

#[tokio::test(start_paused = true)]
async fn the_taint_is_written_at_the_version_that_was_read_and_says_since_when() {
    let (scene, outcome) = tainted(provable(|_| ()), target(checked_status("Off"))).await;
    assert_eq!(outcome, "written");
    let body = scene.written("/nodes/");
    assert_eq!(body["metadata"], json!({ "uid": "uid-n", "resourceVersion": "5" }));
    let added =
        json!([{ "key": KEY, "value": "n-1", "effect": "NoExecute", "timeAdded": "2026-11-21T12:00:00Z" }]);
    assert_eq!(body["spec"], json!({ "taints": added }));
    let sent = scene.api.requests().into_iter().find(|asked| asked.method == "PATCH").unwrap();
    assert!(sent.permitted, "the guard lets no other such request through");
}

#[tokio::test(start_paused = true)]
async fn evidence_of_something_else_puts_no_taint_on_a_node() {
    for (what, there) in [
        ("of storage alone", about("/spec/kind", json!("StorageFenced"))),
        ("of another node", about("/spec/node/name", json!("m"))),
        ("of another Node of that name", about("/spec/node/uid", json!("uid-m"))),
        ("of another boot", about("/spec/node/bootID", json!("b0000000-0000-4000-8000-000000000000"))),
        ("that was invalidated", provable(|there| there.proof = Some(proof(true)))),
        ("of a Node that was made anew", provable(|there| there.node["metadata"]["uid"] = json!("uid-m"))),
        (
            "of a node that does not say its boot any more",
            provable(|there| there.node["status"]["nodeInfo"]["bootID"] = json!("")),
        ),
    ] {
        let (scene, outcome) = tainted(there, target(checked_status("Off"))).await;
        assert_eq!((outcome, scene.requests()), ("refused", Vec::new()), "evidence {what}");
    }
}

#[tokio::test(start_paused = true)]
async fn bug_the_taint_was_put_on_a_node_of_which_nobody_knows_the_boot() {
    let mut there = about("/spec/node/bootID", json!(""));
    there.node["status"]["nodeInfo"]["bootID"] = json!("");
    let mut wanted = target(checked_status("Off"));
    wanted.spec.node.boot_id.clear();
    let (scene, outcome) = tainted(there, wanted).await;
    assert_eq!((outcome, scene.requests()), ("refused", Vec::new()));
}

/// A3: the taint asked least of all, and kube-controller-manager acts on it.
#[tokio::test(start_paused = true)]
async fn evidence_that_does_not_hold_now_puts_no_taint_on_a_node() {
    let word = |created: &str| {
        let created = json!(created);
        provable(|there| {
            let proof = there.proof.as_mut().unwrap();
            proof["metadata"]["creationTimestamp"] = created;
            proof["spec"] = json!({
                "node": incarnation(), "kind": "Asserted", "by": "ada", "reason": "I pulled the plug", "validSeconds": 3600,
                "leaseRenewed": "2026-01-01T00:00:07Z",
            });
        })
    };
    let renewed = |there: &mut There| there.renewed = Arc::new(|_| 9);
    for (what, there, power, expected) in [
        ("a word of 59 minutes ago", word("2026-11-21T11:01:00Z"), Power::Unknown, "written"),
        ("a word of 61 minutes ago", word("2026-11-21T10:59:00Z"), Power::Unknown, "refused"),
        ("a device that says off", provable(|_| ()), Power::Off, "written"),
        ("a device that says on", provable(|_| ()), Power::On, "refused"),
        ("a device that does not know", provable(|_| ()), Power::Unknown, "refused"),
        ("a kubelet that was heard since", provable(renewed), Power::Off, "heard"),
    ] {
        let (scene, outcome) = tainted_where(there, target(checked_status("Off")), power).await;
        let written =
            if expected == "written" { vec![NODE.to_owned(), STATUS.to_owned()] } else { Vec::new() };
        assert_eq!((outcome, scene.requests()), (expected, written), "{what}");
    }
}

/// A mutant let it through: a node may begin another life after it was judged.
#[tokio::test(start_paused = true)]
async fn a_node_that_changes_after_it_was_judged_gets_no_taint() {
    type Change = fn(&mut Value);
    let rows: [(&str, Change, &str); 5] = [
        ("stays as it was", |_| {}, "written"),
        ("booted again", |node| node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT), "changed"),
        ("was made anew", |node| node["metadata"]["uid"] = json!("uid-2"), "changed"),
        (
            "does not say its boot any more",
            |node| node["status"]["nodeInfo"]["bootID"] = json!(""),
            "changed",
        ),
        ("is Ready", |node| node["status"]["conditions"][0]["status"] = json!("True"), "heard"),
    ];
    for (what, change, expected) in rows {
        let there = provable(|there| {
            let (reads, mut later) = (Mutex::new(0), there.node.clone());
            change(&mut later);
            there.first = Arc::new(move |asked| {
                if asked.path != "/api/v1/nodes/n" || asked.method != "GET" {
                    return None;
                }
                // The looker reads it, then the judge; the third read is that before the write.
                *reads.lock() += 1;
                (*reads.lock() > 2).then(|| Says::json(&later))
            });
        });
        let (scene, outcome) = tainted(there, target(checked_status("Off"))).await;
        assert_eq!((outcome, scene.requests().is_empty()), (expected, expected != "written"), "it {what}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_node_whose_condition_ready_is_true_is_too_much_alive_for_the_taint() {
    for (kind, status, expected) in [
        ("Ready", "True", "heard"),
        ("Ready", "False", "written"),
        ("Ready", "Unknown", "written"),
        ("MemoryPressure", "True", "written"),
    ] {
        let there = provable(|there| {
            there.node["status"]["conditions"] = json!([{ "type": kind, "status": status }])
        });
        let (_, outcome) = tainted(there, target(checked_status("Off"))).await;
        assert_eq!(outcome, expected, "{kind}={status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_somebody_declared_to_be_off_is_not_declared_so_again() {
    for (taints, wanted) in [
        (json!([taint(KEY, "ada")]), &[STATUS][..]),
        (json!([taint(KEY, "n-1")]), &[STATUS]),
        (json!([taint("k", "n-1")]), &[NODE, STATUS]),
    ] {
        let there = provable(|there| there.node["spec"]["taints"] = taints.clone());
        let (scene, outcome) = tainted(there, target(checked_status("Off"))).await;
        assert_eq!(outcome, "written");
        assert_eq!(scene.requests(), wanted, "{taints}");
    }
}

#[tokio::test(start_paused = true)]
async fn our_taint_is_taken_away_alone_and_from_a_node_that_is_back() {
    type Change = fn(&mut Value);
    let rows: [(&str, Change, &str, &[&str]); 6] = [
        ("with another boot", |_| {}, "written", &[NODE, STATUS]),
        (
            "as another Node",
            |node| {
                node["metadata"]["uid"] = json!("uid-2");
                node["status"]["nodeInfo"]["bootID"] = json!(BOOT);
            },
            "written",
            &[NODE, STATUS],
        ),
        (
            "but not Ready",
            |node| node["status"]["conditions"][0]["status"] = json!("Unknown"),
            "changed",
            &[],
        ),
        ("with the same boot", |node| node["status"]["nodeInfo"]["bootID"] = json!(BOOT), "changed", &[]),
        (
            "without our taint",
            |node| node["spec"]["taints"] = json!([taint(KEY, "ada"), taint("k", "n-1")]),
            "written",
            &[STATUS],
        ),
        ("without a taint", |node| node["spec"]["taints"] = Value::Null, "written", &[STATUS]),
    ];
    for (what, change, outcome, log) in rows {
        let mut there = There::default();
        there.node["spec"]["taints"] = json!([taint(KEY, "ada"), taint("k", "n-1"), taint(KEY, "n-1")]);
        there.node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT);
        there.node["status"]["conditions"][0]["status"] = json!("True");
        change(&mut there.node);
        let scene = scene(there, |_, _| None);
        assert_eq!(
            scene.run_step(Step::Untaint(target(checked_status("Off")))).await.name(),
            outcome,
            "{what}"
        );
        assert_eq!(scene.log(), log, "{what}");
        if log.contains(&NODE) {
            let kept = scene.written("/nodes/")["spec"]["taints"].clone();
            assert_eq!(kept, json!([taint(KEY, "ada"), taint("k", "n-1")]), "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_bears_no_taint_and_one_that_cannot_be_read_may() {
    for (answer, expected) in [
        (Says::not_found as fn() -> Says, "written"),
        (|| Says::plain(502, "bad gateway"), "failed"),
        (Says::garbage, "failed"),
    ] {
        let first: First = Arc::new(move |asked| (asked.path == "/api/v1/nodes/n").then(answer));
        for step in [Step::Untaint, Step::Contradict] {
            let scene = scene(There { first: Arc::clone(&first), ..There::default() }, |_, _| None);
            assert_eq!(scene.run_step(step(target(checked_status("Off")))).await.name(), expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whether_evidence_was_withdrawn_is_read_and_not_guessed() {
    let tainted = |there: &mut There| there.node["spec"]["taints"] = json!([taint(KEY, "n-1")]);
    let unreadable = |there: &mut There| {
        tainted(there);
        there.first = Arc::new(|asked| {
            asked.path.contains("/fenceevidences/").then(|| Says::plain(502, "bad gateway"))
        });
    };
    for (what, there, outcome, log) in [
        ("it holds", provable(tainted), "changed", &[][..]),
        ("nobody can say", provable(unreadable), "failed", &[]),
        (
            "it was deleted",
            provable(|there| {
                tainted(there);
                there.proof = None;
            }),
            "written",
            &[NODE, STATUS],
        ),
        (
            "it is about another boot",
            provable(|there| {
                tainted(there);
                there.proof.as_mut().unwrap()["spec"]["node"]["bootID"] = json!(NEXT_BOOT);
            }),
            "written",
            &[NODE, STATUS],
        ),
    ] {
        let scene = scene(there, |_, _| None);
        assert_eq!(
            scene.run_step(Step::Withdraw(target(checked_status("Off")))).await.name(),
            outcome,
            "{what}"
        );
        assert_eq!(scene.log(), log, "{what}");
    }
}

/// A6: the evidence was compared before the request was sent, and the request might then wait until the end of the term.
#[tokio::test(start_paused = true)]
async fn bug_the_taint_could_be_written_after_its_evidence_had_expired() {
    for (late, expected) in [(1, "written"), (3, "failed")] {
        let there = provable(|there| {
            there.first = Arc::new(move |asked| {
                let taint = asked.method == "PATCH" && asked.path == "/api/v1/nodes/n";
                taint.then(|| Says::json(&json!({})).delayed(Duration::from_secs(late)))
            });
        });
        let scene = scene(there, |_, _| answer_with(Power::Off));
        advance(60.0).await;
        let began = scene.env.now();
        let outcome = scene.run_step(Step::Taint(target(checked_status("Off")))).await.name();
        let told = scene.requests().iter().any(|request| request == STATUS);
        assert_eq!((outcome, told), (expected, expected == "written"), "after {late} s");
        assert_eq!(scene.env.now().since(began), Duration::from_secs(late.min(2)), "after {late} s");
    }
}

/// A3: what the policy does not take any more is no reason for the taint, however true it is.
#[tokio::test(start_paused = true)]
async fn the_taint_of_a_word_goes_while_a_policy_may_ask_for_more() {
    for (readable, outcome, log) in [(true, "changed", &[][..]), (false, "written", &[NODE, STATUS])] {
        let there = provable(|there| {
            there.node["spec"]["taints"] = json!([taint(KEY, "n-1")]);
            there.proof.as_mut().unwrap()["spec"] = json!({ "node": incarnation(), "kind": "Asserted", "by": "ada", "reason": "I pulled the plug" });
        });
        let scene = scene(there, |_, _| None);
        if !readable {
            let policy = json!({ "metadata": { "name": "p", "uid": "uid-p" }, "spec": { "levels": [] } });
            scene.world.apply(Kind::FencePolicies, &policy, scene.env.now());
        }
        assert_eq!(
            scene.run_step(Step::Withdraw(target(checked_status("Off")))).await.name(),
            outcome,
            "{readable}"
        );
        assert_eq!(scene.log(), log, "{readable}");
    }
}
