//! Rows that mutants of the state machine showed to be missing.

use pod_safety_shared::authority::Hold;

use super::*;

fn pending() -> Stage {
    Stage::at(Phase::Pending, |_| ())
}

/// The gates that are closed, by the holds, without the write that shows them.
fn closed(stage: &Stage, node: &str) -> Vec<String> {
    stage.words(node).into_iter().filter(|word| word.starts_with('?')).collect()
}

const NONE: [&str; 0] = [];

/// Evidence as it lies in the API, about this life of `n`, changed so.
fn evidence(stage: &Stage, change: impl FnOnce(&mut Value)) {
    let node = stage.incarnation("n");
    let mut proof = json!({
        "metadata": { "name": "e", "uid": "uid-e", "resourceVersion": "400" },
        "spec": { "node": node, "kind": "Asserted", "by": "somebody", "reason": "I saw it" },
    });
    change(&mut proof);
    stage.world.apply(Kind::FenceEvidences, &proof, stage.mono());
}

/// Of a node whose Node is gone evidence is measured by what its incident says, and by nothing less.
#[test]
fn evidence_about_a_node_that_is_gone_counts_for_its_life_and_as_its_policy_asks() {
    type Change = fn(&mut Value);
    let rows: [(&str, Change, Grade, bool); 8] = [
        ("a person's word", |_| (), Grade::Asserted, true),
        ("a person's word, where more is asked for", |_| (), Grade::Verified, false),
        ("two looks", |proof| proof["spec"]["kind"] = json!("PowerOff"), Grade::Verified, true),
        ("another boot", |proof| proof["spec"]["node"]["bootID"] = json!("boot-0"), Grade::Asserted, false),
        ("another Node", |proof| proof["spec"]["node"]["uid"] = json!("uid-m"), Grade::Asserted, false),
        ("another name", |proof| proof["spec"]["node"]["name"] = json!("m"), Grade::Asserted, false),
        (
            "invalid",
            |proof| {
                proof["status"] =
                    json!({ "invalidated": { "at": "2026-01-01T00:00:00Z", "reason": "wrong" } });
            },
            Grade::Asserted,
            false,
        ),
        (
            "of storage",
            |proof| {
                proof["spec"]["kind"] = json!("StorageFenced");
                proof["spec"]["storage"] = json!([{ "driver": "d", "className": "c" }]);
            },
            Grade::Asserted,
            false,
        ),
    ];
    for (says, change, wanted, counts) in rows {
        let mut stage = Stage::at(Phase::AwaitingOperator, |_| ());
        stage.policy(|policy| policy.minimum_evidence = wanted);
        evidence(&stage, change);
        stage.gone(Kind::Nodes, "n");
        let word = if counts { "write Fenced" } else { "?AwaitingOperator" };
        assert_eq!(stage.words("n"), [word], "{says}");
    }
}

/// That a sign came after the evidence is told by two stamps of one kubelet, else by when this process saw both.
#[test]
fn a_lease_that_was_renewed_is_a_sign_of_life_only_if_that_came_after_the_evidence() {
    let fenced = |renewed: Option<String>| {
        let mut stage = Stage::at(Phase::Fenced, |status| {
            (status.evidence, status.tainted) = (Some("e".to_owned()), true);
        });
        stage.wait(5);
        evidence(&stage, |proof| proof["spec"]["leaseRenewed"] = json!(renewed));
        stage
    };
    let doubted = |stage: &Stage| stage.words("n").contains(&"?SignOfLife".to_owned());
    let last = Stage::at(Phase::Fenced, |_| ()).renewed("n");
    let mut stage = fenced(Some(last.clone()));
    assert!(!doubted(&stage), "the stamp that was there is no sign");
    stage.wait(1);
    stage.beat("n");
    assert!(doubted(&stage), "a later one is");
    assert!(
        doubted(&fenced(Some("2025-12-31T23:59:59Z".to_owned()))),
        "it was renewed since by its own clock"
    );
    assert!(
        !doubted(&fenced(Some("2026-01-01T01:00:00Z".to_owned()))),
        "the evidence knows of a later stamp"
    );
    let mut stage = fenced(None);
    assert!(!doubted(&stage), "what was heard before is no sign");
    stage.beat("n");
    assert!(!doubted(&stage), "nor is what was heard in the same moment");
    stage.wait(1);
    stage.beat("n");
    assert!(doubted(&stage));
}

/// A report that was there when the evidence was first seen says nothing against it.
#[test]
fn that_a_node_says_ready_is_a_sign_of_life_only_if_it_said_so_after_the_evidence() {
    let mut stage = Stage::at(Phase::Fenced, |status| {
        (status.evidence, status.tainted) = (Some("e".to_owned()), true);
    });
    stage.says("n", "True");
    let renewed = stage.renewed("n");
    evidence(&stage, |proof| proof["spec"]["leaseRenewed"] = json!(renewed));
    let doubted = |stage: &Stage| stage.words("n").contains(&"?SignOfLife".to_owned());
    assert!(!doubted(&stage), "in the same moment");
    stage.wait(1);
    assert!(!doubted(&stage));
    stage.says("n", "False");
    assert!(!doubted(&stage), "who says that it is not well is not well");
    stage.says("n", "True");
    assert!(doubted(&stage));
}

#[test]
fn a_node_that_was_just_heard_is_left_alone_for_the_time_of_its_policy_and_to_the_second() {
    let mut stage = pending();
    stage.comes_back("n", "boot-n");
    stage.alive.remove("n");
    stage.wait(59);
    assert_eq!(stage.words("n"), ["write Cancelled"]);
    stage.wait(1);
    assert_eq!(stage.words("n"), ["off 1 by bmc"], "that it is called Ready is old");
}

#[test]
fn a_pod_that_waits_for_its_finalizers_does_not_keep_a_machine_off() {
    let mut stage = Stage::at(Phase::Fenced, |status| {
        (status.evidence, status.tainted) = (Some("e".to_owned()), true);
    });
    stage.policy(|policy| policy.recovery = Recovery::PowerOn);
    let renewed = stage.renewed("n");
    evidence(&stage, |proof| proof["spec"]["leaseRenewed"] = json!(renewed));
    stage.wait(10);
    stage.pod("db-0", "n", Stage::terminating);
    assert_eq!(stage.words("n"), ["?WaitsForPods"]);
    stage.pod("db-0", "n", |pod| {
        Stage::terminating(pod);
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        pod["metadata"]["finalizers"] = json!(["example.com/a"]);
    });
    assert_eq!(stage.words("n"), ["on 1 by bmc"]);
    stage.pod("db-0", "n", |_| ());
    assert_eq!(stage.words("n"), ["on 1 by bmc"], "nobody asked it to end");
}

/// Two that wait for one place; `m` comes before `n` by its name. What is changed of `m`, and whether `n` may begin then.
#[test]
fn who_cannot_begin_keeps_nobody_waiting_and_who_can_does() {
    type Change = fn(&mut Stage);
    let edit = |stage: &mut Stage, change: fn(&mut Value)| {
        let name = pod_safety_shared::authority::incident_name(&stage.incarnation("m"));
        let (spec, status) = stage.fences[&name].clone();
        let mut object = json!({
            "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "800" },
            "spec": spec, "status": status,
        });
        change(&mut object);
        stage.world.apply(Kind::NodeFences, &object, stage.mono());
    };
    let rows: [(&str, Change, fn(&mut Value), bool); 9] = [
        ("as it is", |_| (), |_| (), false),
        ("it was cancelled", |_| (), |fence| fence["spec"]["cancelled"] = json!(true), true),
        (
            "it is being deleted",
            |_| (),
            |fence| {
                fence["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            },
            true,
        ),
        ("it is a dry run", |_| (), |fence| fence["spec"]["dryRun"] = json!(true), true),
        ("it has no policy", |_| (), |fence| fence["spec"]["policy"] = json!("gone"), true),
        ("it is over", |_| (), |fence| fence["status"]["phase"] = json!("Done"), true),
        ("its node is heard again", |stage| stage.comes_back("m", "boot-m"), |_| (), true),
        ("its node is gone", |stage| stage.gone(Kind::Nodes, "m"), |_| (), false),
        (
            "its node cannot be read",
            |stage| {
                let odd = json!({ "metadata": { "name": "m", "uid": "other", "resourceVersion": "x" } });
                stage.world.apply(Kind::Nodes, &odd, stage.mono());
            },
            |_| (),
            true,
        ),
    ];
    for (says, change, of_fence, may) in rows {
        let mut stage = Stage::new(&["n", "m", "a", "b", "c", "d", "e"]);
        stage.policy(|policy| policy.brakes.max_concurrent = 1);
        ["n", "m"].iter().for_each(|name| stage.loses(name));
        stage.until(70);
        stage.fence("n", Trigger::Detected, NodeFenceStatus::default());
        stage.fence("m", Trigger::Detected, NodeFenceStatus::default());
        edit(&mut stage, of_fence);
        change(&mut stage);
        let wanted: &[&str] = if may { &NONE } else { &["?Concurrency"] };
        assert_eq!(closed(&stage, "n"), wanted, "{says}");
    }
}

#[test]
fn a_higher_priority_goes_first_whatever_its_age() {
    let mut stage = Stage::new(&["n", "m", "a", "b", "c", "d", "e"]);
    stage.policy(|policy| policy.brakes.max_concurrent = 1);
    stage.another_policy("q", |policy| policy.priority = 5);
    ["n", "m"].iter().for_each(|name| stage.loses(name));
    stage.until(70);
    stage.fence("m", Trigger::Detected, NodeFenceStatus::default());
    stage.wait(1);
    stage.fence("n", Trigger::Detected, NodeFenceStatus::default());
    assert_eq!(closed(&stage, "n"), ["?Concurrency"]);
    let name = pod_safety_shared::authority::incident_name(&stage.incarnation("n"));
    let (mut spec, status) = stage.fences[&name].clone();
    spec.policy = "q".to_owned();
    let object = json!({ "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "900" },
        "spec": spec, "status": status });
    stage.world.apply(Kind::NodeFences, &object, stage.mono());
    assert_eq!((closed(&stage, "n"), closed(&stage, "m")), (vec![], vec!["?Concurrency".to_owned()]));
}

/// `fencing` others are being fenced and `waiting` others go before it; so many may be at a time.
#[test]
fn those_that_are_being_fenced_and_those_that_go_before_it_are_counted_together() {
    for (fencing, waiting, most, may) in [
        (0, 0, 1, true),
        (0, 1, 1, false),
        (1, 0, 1, false),
        (0, 1, 2, true),
        (1, 0, 2, true),
        (1, 1, 2, false),
        (1, 1, 3, true),
        (2, 0, 2, false),
        (0, 2, 2, false),
    ] {
        let mut stage = Stage::new(&["n", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
        stage.policy(|policy| policy.brakes.max_concurrent = most);
        let others = ["a", "b", "c", "d"];
        ["n"].iter().chain(&others[..fencing + waiting]).for_each(|name| stage.loses(name));
        stage.until(70);
        for (number, name) in others[..fencing + waiting].iter().enumerate() {
            let phase = if number < fencing { Phase::Fencing } else { Phase::Pending };
            stage.fence(name, Trigger::Detected, NodeFenceStatus { phase, ..NodeFenceStatus::default() });
        }
        stage.fence("n", Trigger::Detected, NodeFenceStatus::default());
        let wanted: &[&str] = if may { &NONE } else { &["?Concurrency"] };
        assert_eq!(closed(&stage, "n"), wanted, "{fencing} and {waiting}, {most} may be");
    }
}

/// What another incident must have done for the next one to wait, and until when.
#[test]
fn a_cooldown_follows_an_attempt_of_another_incident_that_has_left_pending() {
    let shot = || vec![Attempt { id: 1, act: "off".to_owned(), ..Attempt::default() }];
    for (says, phase, attempts, holds) in [
        ("it was shot", Phase::Done, shot(), true),
        ("it is being shot", Phase::Fencing, shot(), true),
        ("nothing was tried", Phase::AwaitingOperator, vec![], false),
        ("it begins anew", Phase::Pending, shot(), false),
        ("it has not begun", Phase::Pending, vec![], false),
    ] {
        let mut stage = pending();
        stage.policy(|policy| policy.brakes.cooldown_seconds = 60);
        stage.fence("m", Trigger::Person, NodeFenceStatus { phase, attempts, ..NodeFenceStatus::default() });
        assert_eq!(closed(&stage, "n").contains(&"?Cooldown".to_owned()), holds, "{says}");
        stage.wait(59);
        assert_eq!(closed(&stage, "n").contains(&"?Cooldown".to_owned()), holds, "{says}");
        stage.wait(1);
        assert!(!closed(&stage, "n").contains(&"?Cooldown".to_owned()), "{says}: a minute later");
    }
}

#[test]
fn who_may_be_a_policy_or_an_incident_holds_every_incident_while_it_cannot_be_read() {
    for kind in [Kind::FencePolicies, Kind::NodeFences] {
        let stage = pending();
        let spec = match kind {
            Kind::NodeFences => json!(stage.only().0),
            _ => json!(stage.policy),
        };
        let odd =
            json!({ "metadata": { "name": "odd", "uid": "uid-odd", "resourceVersion": "x" }, "spec": spec });
        stage.world.apply(kind, &odd, stage.mono());
        assert_eq!(closed(&stage, "n"), ["?FencingUnreadable"], "{kind:?}");
    }
}

/// How many nodes of the control plane, of which so many others are lost, and whether it may be fenced.
#[test]
fn of_the_control_plane_more_than_half_must_be_left_without_it() {
    for (of, others_lost, may) in [
        (1, 0, false),
        (2, 0, false),
        (3, 0, true),
        (3, 1, false),
        (4, 0, true),
        (4, 1, false),
        (5, 0, true),
        (5, 1, true),
        (5, 2, false),
    ] {
        for of_etcd in [false, true] {
            let names = ["n", "m", "k", "l", "o", "w0", "w1", "w2", "w3", "w4"];
            let mut stage = Stage::new(&names);
            stage.policy(|policy| policy.brakes.max_unhealthy_percent = 100);
            for name in &names[..of] {
                if of_etcd {
                    stage.etcd(&[name]);
                } else {
                    stage.change(name, |node| {
                        node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = json!("")
                    });
                }
            }
            names[..=others_lost].iter().for_each(|name| stage.loses(name));
            stage.until(70);
            stage.fence("n", Trigger::Detected, NodeFenceStatus::default());
            let gate = if of_etcd { "?EtcdQuorum" } else { "?ControlPlane" };
            let wanted: &[&str] = if may { &NONE } else { &[gate] };
            assert_eq!(closed(&stage, "n"), wanted, "{others_lost} others of {of} are lost");
            if !may {
                let sentence = stage.decided("n").holds[0].1.to_string();
                assert!(sentence.contains(&format!("only {} of {of} ", of - 1 - others_lost)), "{sentence}");
            }
        }
    }
}

/// What is a member of etcd, and which of them counts.
#[test]
fn a_member_of_etcd_is_in_kube_system_has_both_labels_and_has_not_ended_and_counts_if_it_is_ready() {
    let both = || json!({ "component": "etcd", "tier": "control-plane" });
    for (says, namespace, labels, ended, is_member) in [
        ("one of kubeadm's", "kube-system", both(), false, true),
        ("of another namespace", "default", both(), false, false),
        ("without a tier", "kube-system", json!({ "component": "etcd" }), false, false),
        (
            "of another component",
            "kube-system",
            json!({ "component": "x", "tier": "control-plane" }),
            false,
            false,
        ),
        ("one that has ended", "kube-system", both(), true, false),
    ] {
        let mut stage = pending();
        stage.well(namespace, "etcd-n", "n", &labels);
        if ended {
            stage.pod("etcd-n", "n", |pod| {
                pod["metadata"]["namespace"] = json!(namespace);
                pod["metadata"]["labels"] = labels.clone();
                pod["status"]["phase"] = json!("Failed");
            });
        }
        // Alone it has no quorum without itself.
        let wanted: &[&str] = if is_member { &["?EtcdQuorum"] } else { &NONE };
        assert_eq!(closed(&stage, "n"), wanted, "{says}");
    }
    let mut stage = pending();
    stage.etcd(&["n", "m", "k"]);
    assert_eq!(closed(&stage, "n"), NONE);
    stage.pod("etcd-m", "m", |pod| {
        pod["metadata"]["namespace"] = json!("kube-system");
        pod["metadata"]["labels"] = both();
    });
    assert_eq!(closed(&stage, "n"), ["?EtcdQuorum"], "one on a node that is well is not Ready itself");
}

#[test]
fn a_budget_can_spare_the_pods_of_a_node_to_the_last_one() {
    for (here, healthy, needed, holds) in
        [(1, 3, 2, false), (1, 2, 2, true), (2, 3, 2, true), (2, 4, 2, false), (3, 4, 2, true)]
    {
        let mut stage = pending();
        for number in 0..here {
            stage.well("ns", &format!("db-{number}"), "n", &json!({ "app": "db" }));
        }
        stage.budget(healthy, needed);
        let wanted: &[&str] = if holds { &["?Collateral"] } else { &NONE };
        assert_eq!(closed(&stage, "n"), wanted, "{here} here of {healthy}, {needed} needed");
    }
}

#[test]
fn while_budgets_cannot_be_read_a_node_is_not_fenced_until_their_time_is_over() {
    let mut stage = pending();
    let odd = json!({ "metadata": { "namespace": "ns", "name": "odd", "uid": "uid-odd", "resourceVersion": "x" }, "spec": {} });
    stage.world.apply(Kind::Budgets, &odd, stage.mono());
    assert_eq!(closed(&stage, "n"), ["?Collateral"]);
    let decision = stage.decided("n");
    assert!(matches!(decision.holds[0].1, Hold::BudgetsUnread { .. }), "{decision:?}");
    stage.wait(300);
    assert_eq!(closed(&stage, "n"), NONE);
}

/// The attempts of earlier acts do not count for this one.
#[test]
fn what_was_tried_to_switch_it_on_is_no_attempt_to_switch_it_off() {
    let attempt = |id, act: &str, power: &str| Attempt {
        id,
        act: act.to_owned(),
        devices: level("bmc", 1).devices,
        verified: Some(Verified { power: power.to_owned(), ..Verified::default() }),
        ..Attempt::default()
    };
    let mut stage = Stage::at(Phase::Fencing, |status| {
        status.attempts = vec![attempt(1, "off", "On"), attempt(2, "on", "Off")];
    });
    stage.policy(|policy| policy.rounds = 1);
    assert_eq!(
        stage.words("n"),
        ["off 3 by bmc"],
        "its last act was no shot that failed: no pause, and its level is fresh"
    );
    let mut stage = Stage::at(Phase::Recovering, |status| {
        (status.evidence, status.tainted) = (Some("e".to_owned()), true);
        status.attempts = vec![attempt(1, "on", "On"), attempt(2, "off", "On")];
    });
    stage.policy(|policy| policy.recovery = Recovery::PowerOn);
    let renewed = stage.renewed("n");
    evidence(&stage, |proof| proof["spec"]["leaseRenewed"] = json!(renewed));
    stage.wait(10);
    assert_eq!(stage.words("n"), ["on 3 by bmc"], "a look at a shot says nothing of switching on");
}

/// By which devices a machine is switched on that somebody else switched off.
#[test]
fn a_machine_that_a_person_switched_off_is_switched_on_by_the_first_level_that_can() {
    let driver = |name: &'static str, driver: &'static str| {
        move |stage: &mut Stage| stage.device(name, |device| device["spec"]["driver"] = json!(driver))
    };
    type Change = Box<dyn Fn(&mut Stage)>;
    let rows: [(&str, Vec<Change>, &str); 5] = [
        ("both can", vec![], "on 1 by first"),
        ("the first is a person's", vec![Box::new(driver("first", "Manual"))], "on 1 by second"),
        ("the first is a Machine", vec![Box::new(driver("first", "Machine"))], "on 1 by second"),
        (
            "the first is gone",
            vec![Box::new(|stage: &mut Stage| stage.gone(Kind::FenceDevices, "first"))],
            "on 1 by second",
        ),
        (
            "neither can",
            vec![Box::new(driver("first", "Manual")), Box::new(driver("second", "Manual"))],
            "?NoDevices",
        ),
    ];
    for (says, changes, wanted) in rows {
        let mut stage = Stage::at(Phase::Fenced, |status| {
            (status.evidence, status.tainted) = (Some("e".to_owned()), true);
        });
        ["first", "second"].iter().for_each(|name| stage.device(name, |_| ()));
        stage.policy(|policy| {
            policy.recovery = Recovery::PowerOn;
            policy.levels = vec![level("first", 1), level("second", 1)];
        });
        changes.iter().for_each(|change| change(&mut stage));
        let renewed = stage.renewed("n");
        evidence(&stage, |proof| proof["spec"]["leaseRenewed"] = json!(renewed));
        stage.wait(10);
        assert_eq!(stage.words("n"), [wanted], "{says}");
    }
}

/// What keeps a storage fenced, and what does not: the pods of a node that is heard again.
#[test]
fn storage_is_lifted_when_no_pod_there_uses_a_volume_that_is_anothers() {
    let fenced = || {
        let mut stage = Stage::at(Phase::Fencing, |status| {
            let sample = Sample {
                driver: Some(DeviceDriver::NetworkFence),
                power: "Off".to_owned(),
                ..Sample::default()
            };
            let verified = Verified {
                power: "Off".to_owned(),
                samples: vec![sample.clone(), sample],
                ..Verified::default()
            };
            status.attempts = vec![Attempt {
                id: 1,
                act: "off".to_owned(),
                devices: level("rbd", 1).devices,
                verified: Some(verified),
                evidence: Some("s".to_owned()),
                ..Attempt::default()
            }];
        });
        stage.config.guards_volumes = true;
        stage.comes_back("n", "boot-n");
        stage
    };
    type Change = fn(&mut Stage);
    let rows: [(&str, Change, &str); 6] = [
        ("nothing runs there", |_| (), "write Cancelled"),
        ("its volume is another's", |stage| stage.volume_of_another("db-1"), "?WaitsForPods"),
        (
            "its volume is another's, and it is over",
            |stage| {
                stage.volume_of_another("db-1");
                stage.pod("db-1", "n", |pod| {
                    pod["spec"]["volumes"] =
                        json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "c" } }]);
                    pod["status"] = json!({ "phase": "Succeeded" });
                });
            },
            "write Cancelled",
        ),
        (
            "its volume is its own",
            |stage| {
                stage.volume_of_another("db-1");
                let lease = json!({ "metadata": { "namespace": "pod-safety-volumes", "name": "v", "uid": "uid-v", "resourceVersion": "500" },
                "spec": { "holderIdentity": "n/uid-n/boot-n/-" } });
                stage.world.apply(Kind::VolumeLeases, &lease, stage.mono());
            },
            "write Cancelled",
        ),
        (
            "its claim is gone, and a guard watches claims",
            |stage| {
                stage.volume_of_another("db-1");
                stage.gone(Kind::Claims, "c");
            },
            "write Cancelled",
        ),
        (
            "its claim is gone, and nobody watches claims",
            |stage| {
                stage.volume_of_another("db-1");
                stage.gone(Kind::Claims, "c");
                stage.config.guards_volumes = false;
            },
            "?WaitsForPods",
        ),
    ];
    for (says, change, wanted) in rows {
        let mut stage = fenced();
        change(&mut stage);
        assert_eq!(stage.words("n"), [wanted], "{says}");
    }
}

#[test]
fn of_more_attempts_than_are_kept_the_one_that_fenced_storage_stays() {
    let failed = Verified { power: "On".to_owned(), ..Verified::default() };
    let sample =
        Sample { driver: Some(DeviceDriver::NetworkFence), power: "Off".to_owned(), ..Sample::default() };
    let fenced =
        Verified { power: "Off".to_owned(), samples: vec![sample.clone(), sample], ..Verified::default() };
    let mut stage = Stage::at(Phase::Fencing, |status| {
        let attempt = |id| Attempt {
            id,
            act: "off".to_owned(),
            verified: Some(if id == 11 { fenced.clone() } else { failed.clone() }),
            ..Attempt::default()
        };
        status.attempts = (11..31).map(attempt).collect();
    });
    stage.wait(60);
    assert_eq!(stage.act("n"), ["off 31 by bmc"]);
    let ids: Vec<u32> = stage.only().1.attempts.iter().map(|attempt| attempt.id).collect();
    let wanted: Vec<u32> = [11].into_iter().chain(13..=31).collect();
    assert_eq!(ids, wanted, "what is in force is lifted by what stands there");
}
