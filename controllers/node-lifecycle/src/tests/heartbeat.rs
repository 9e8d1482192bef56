//! Nodes that stop reporting, and processes that are cut off.

use super::*;

/// This many Ready nodes `n0`, `n1` … whose kubelets run.
fn cluster(config: Config, number: usize) -> Fixture {
    let names: Vec<String> = (0..number).map(|number| format!("n{number}")).collect();
    Fixture::new(config, &names.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_node_is_lost_exactly_after_the_grace_period_without_a_report() {
    let mut fixture = cluster(config(), 4);
    fixture.advance_to(10);
    fixture.alive.remove("n0");
    assert_eq!(fixture.recheck_at("n0"), 60.0, "a timer, and no tick");
    fixture.assert_lost_from("n0", 60);
    let decision = fixture.decide("n0");
    let silence = update(&decision).unwrap().not_reporting.clone().unwrap();
    assert_eq!(silence.last_report.since_start().as_secs(), 10);
    assert_eq!(silence.renewed.unwrap().to_string(), fixture::timestamp(10));
    assert_eq!(silence.heartbeat.unwrap().to_string(), fixture::timestamp(0));
    assert!(!silence.never_posted);
    fixture.act("n0");
    assert_eq!(fixture.describe("n0"), ["+unreachable:NoExecute"], "its zone knows of it now");
    fixture.act("n0");
    assert!(fixture.describe("n0").is_empty(), "all is written");
}

#[test]
fn a_status_update_of_its_kubelet_counts_as_a_report_like_a_renewal() {
    let mut fixture = cluster(config(), 4);
    fixture.alive.remove("n0");
    fixture.advance_to(40);
    fixture.report("n0", "True");
    fixture.assert_lost_from("n0", 90);
}

#[test]
fn a_not_ready_node_can_stop_reporting_too() {
    let mut fixture = cluster(config(), 4);
    let pressure = |kind: &str| condition(kind, "True", 0);
    let conditions =
        json!([condition("Ready", "False", 0), pressure("MemoryPressure"), pressure("NetworkUnavailable")]);
    fixture.change("n0", |node| with(node, "/status/conditions", conditions));
    fixture.alive.remove("n0");
    fixture.act("n0");
    fixture.advance_to(50);
    let swapped = [
        "not reporting",
        "cut off",
        "-not-ready:NoSchedule",
        "-memory-pressure:NoSchedule",
        "-not-ready:NoExecute",
        "+unreachable:NoSchedule",
        "+unreachable:NoExecute",
    ];
    assert_eq!(fixture.describe("n0"), swapped, "in one turn");
}

#[test]
fn a_node_that_never_reports_conditions_has_the_startup_grace_from_its_creation() {
    let mut fixture = cluster(config(), 3);
    let born = |second| {
        let node = with(Fixture::node("new", "", 0), "/status", json!({ "conditions": [] }));
        with(node, "/metadata/creationTimestamp", json!(fixture::timestamp(second)))
    };
    fixture.advance_to(100);
    fixture.put(born(95));
    fixture.assert_lost_from("new", 155);
    let decision = fixture.decide("new");
    assert!(update(&decision).unwrap().not_reporting.as_ref().unwrap().never_posted);
    fixture.heartbeat("new");
    fixture.advance_to(200);
    assert!(fixture.describe("new").is_empty(), "a node that renews its Lease is left alone");
    fixture.advance_to(215);
    assert_eq!(fixture.describe("new"), LOST);
}

#[test]
fn a_node_without_a_lease_counts_by_its_status_updates_alone() {
    let mut fixture = cluster(config(), 3);
    fixture.put(Fixture::node("bare", "True", 0));
    fixture.assert_lost_from("bare", 50);
    let decision = fixture.decide("bare");
    assert_eq!(update(&decision).unwrap().not_reporting.as_ref().unwrap().renewed, None);
}

#[test]
fn a_renew_time_in_the_future_counts_only_as_a_change() {
    let mut fixture = cluster(config(), 3);
    fixture.alive.remove("n0");
    fixture.renew("n0", "2099-01-01T00:00:00Z");
    fixture.advance_to(50);
    assert_eq!(fixture.describe("n0"), LOST);
    fixture.renew("n0", "1999-01-01T00:00:00Z");
    assert!(fixture.describe("n0").is_empty(), "a clock that is set back counts, too");
    fixture.advance_to(100);
    assert_eq!(fixture.describe("n0"), LOST);
}

#[test]
fn a_standby_gives_no_fresh_grace_and_a_restarted_process_removes_no_taint() {
    let mut fixture = cluster(config(), 4);
    fixture.alive.remove("n0");
    fixture.advance_to(50);
    fixture.act("n0");
    fixture.act("n0");
    assert_eq!(fixture.no_execute_taints("n0"), ["unreachable"]);
    fixture.restart();
    assert!(fixture.describe("n0").is_empty(), "W-NL9: existing taints stay");
    fixture.advance_to(150);
    assert!(fixture.describe("n0").is_empty());
}

#[test]
fn a_restarted_process_gives_a_ready_node_the_whole_grace_period() {
    let mut fixture = cluster(config(), 4);
    fixture.alive.remove("n0");
    fixture.advance_to(40);
    fixture.restart();
    fixture.assert_lost_from("n0", 90);
}

#[test]
fn one_a_minority_and_a_zone_of_three_are_found_lost_in_time() {
    for (lost, of) in [(1, 9), (2, 9), (3, 9), (1, 2)] {
        let mut fixture = cluster(config(), of);
        for number in 0..lost {
            fixture.alive.remove(&format!("n{number}"));
        }
        fixture.advance_to(50);
        for number in 0..lost {
            assert_eq!(fixture.describe(&format!("n{number}")), LOST, "{lost} of {of}");
        }
    }
}

#[test]
fn a_majority_without_reports_is_held_for_two_seconds_only() {
    let mut fixture = cluster(config(), 5);
    for name in ["n0", "n1", "n2"] {
        fixture.alive.remove(name);
    }
    fixture.advance_to(50);
    assert_eq!(fixture.describe("n0"), ["LargeOutage 3/5"]);
    assert_eq!(fixture.recheck_at("n0"), 52.0);
    fixture.advance_to(52);
    for name in ["n0", "n1", "n2"] {
        assert_eq!(fixture.act(name), LOST, "each alone");
    }
    assert!(fixture.describe("n3").is_empty());
}

#[test]
fn after_a_watch_break_kubelets_have_time_to_come_back() {
    for pause in [20, 45, 70, 400] {
        let mut fixture = cluster(config(), 5);
        fixture.advance_to(100);
        fixture.advance_without_events(100 + pause);
        let words = fixture.describe("n0");
        if pause == 70 {
            assert_eq!(words, ["LargeOutage 5/5"]);
            assert_eq!(fixture.recheck_at("n0"), 172.0);
        } else if pause == 400 {
            assert_eq!(words, ["Stale"], "nothing is decided from what is so old");
        } else {
            assert!(words.is_empty());
        }
        // The API server sends events again, but no report of a node yet.
        let begins = 100 + pause;
        fixture.world.confirm_all(fixture.mono());
        assert!(fixture.describe("n0").is_empty(), "{pause}: kubelets have time to come back");
        fixture.alive.remove("n0");
        let lost = 100 + 50_u64.max(pause + 20);
        for second in begins..lost {
            fixture.advance_to(second);
            for name in ["n0", "n1", "n4"] {
                assert!(fixture.describe(name).is_empty(), "{pause}: {name} at {second}");
            }
        }
        fixture.advance_to(lost);
        assert_eq!(fixture.describe("n0"), LOST, "{pause}: a node that does not come back is lost");
        assert!(fixture.describe("n1").is_empty());
    }
}

/// It was never found: 20 s after the only event in a minute the watch had had no event for more than 15 s again.
#[test]
fn bug_a_completely_lost_cluster_was_not_found_with_bookmarks_alone() {
    for (nodes, bookmark, found_at) in [(4, 55, 75), (4, 40, 120), (1, 55, 75)] {
        let mut fixture = cluster(config(), nodes);
        fixture.alive.clear();
        for second in 1..found_at {
            fixture.advance_without_events(second);
            if second >= bookmark && (second - bookmark).is_multiple_of(60) {
                fixture.world.confirm_all(fixture.mono());
            }
            let words = fixture.describe("n0");
            assert!(!words.contains(&"not reporting".to_owned()), "{bookmark}: {words:?} at {second}");
        }
        fixture.advance_without_events(found_at);
        assert_eq!(fixture.describe("n0"), LOST, "{bookmark}");
    }
}

/// An API server sends bookmarks while it reaches no etcd and no Lease can be renewed. No process can lead then
/// either, and a process that leads again has not waited for kubelets yet.
#[test]
fn bug_a_bookmark_during_an_outage_counted_as_a_reachable_api_server() {
    let led_since = |seconds| Some(at(seconds));
    let mut fixture = cluster(Config { led_since: None, ..config() }, 4);
    fixture.alive.clear();
    fixture.advance_without_events(55);
    fixture.world.confirm_all(fixture.mono());
    fixture.advance_without_events(90);
    assert_eq!(fixture.describe("n0"), ["LargeOutage 4/4"], "no process leads: the outage lasts");
    fixture.config.led_since = led_since(88);
    assert_eq!(fixture.recheck_at("n0"), 108.0);
    assert!(fixture.describe("n0").is_empty());
    fixture.advance_without_events(108);
    assert_eq!(fixture.describe("n0"), LOST, "the leader has renewed for two of their renewals");
}

#[test]
fn a_new_leader_whose_watch_had_no_break_does_not_wait() {
    let mut fixture = cluster(config(), 4);
    fixture.alive.remove("n0");
    fixture.advance_to(49);
    fixture.config.led_since = Some(fixture.mono());
    fixture.advance_to(50);
    assert_eq!(fixture.describe("n0"), LOST);
}

#[test]
fn guard_mode_suspects_an_unreachable_node_early_and_removes_the_taint_later() {
    let mut fixture = cluster(guard(), 4);
    fixture.alive.remove("n0");
    fixture.advance_to(24);
    assert!(fixture.describe("n0").is_empty());
    assert_eq!(fixture.recheck_at("n0"), 25.0);
    fixture.advance_to(25);
    assert_eq!(fixture.act("n0"), ["+pod-safety.dev/suspect:NoSchedule"]);
    assert!(fixture.describe("n0").is_empty());
    fixture.advance_to(27);
    fixture.heartbeat("n0");
    assert_eq!(fixture.act("n0"), ["-pod-safety.dev/suspect:NoSchedule"]);
    fixture.advance_to(52);
    assert_eq!(fixture.act("n0"), ["+pod-safety.dev/suspect:NoSchedule"]);
    fixture.report("n0", "Unknown");
    assert_eq!(fixture.act("n0"), ["cut off", "-pod-safety.dev/suspect:NoSchedule"], "KCM's taints take over");
    fixture.advance_to(200);
    assert!(fixture.describe("n0").is_empty(), "and nothing else is guard's");
}

#[test]
fn guard_mode_suspects_a_majority_only_after_two_seconds() {
    let mut fixture = cluster(guard(), 3);
    fixture.alive.clear();
    fixture.advance_to(25);
    assert_eq!(fixture.describe("n0"), ["LargeOutage 3/3"]);
    fixture.advance_to(27);
    assert_eq!(fixture.describe("n0"), ["+pod-safety.dev/suspect:NoSchedule"]);
}

#[test]
fn an_unreadable_node_or_an_unsynced_cache_holds() {
    let mut fixture = cluster(config(), 3);
    fixture.advance_to(10);
    let unreadable = with(Fixture::node("n0", "True", 0), "/metadata/resourceVersion", json!("x"));
    fixture.world.apply(Kind::Nodes, &unreadable, fixture.mono());
    assert_eq!(fixture.describe("n0"), ["NodeUnreadable"]);
    fixture.world.remove(Kind::Nodes, "uid-n1", fixture.mono());
    assert!(fixture.describe("n1").is_empty(), "a deleted node needs nothing");
    fixture.advance_without_events(500);
    assert_eq!(fixture.describe("n2"), ["Stale"]);
    let world = pod_safety_shared::testing::World::default();
    world.mark_listed(Kind::Nodes, pod_safety_shared::testing::at(0));
    let now = pod_safety_shared::testing::at(1);
    let unlisted = decide(&Key::Node("n".into()), &world.read().view(), now, &config());
    assert_eq!(describe(&unlisted), ["NotSynced"]);
}
