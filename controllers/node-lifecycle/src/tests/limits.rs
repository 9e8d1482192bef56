//! The limits that safety rests on, as numbers, each with its argument.

use std::time::Duration;

use pod_safety_shared::testing::at;

use super::super::heartbeat::two_renewals;
use super::super::zones::{ZoneState, zone_state};
use super::*;
use pod_safety_shared::cache::ZoneCount;

/// A kubelet renews each ten seconds: four renewals are late or lost before the fifth is missed. The half of that is for
/// a mark that keeps new pods away and ends none.
#[test]
fn a_node_may_be_silent_for_50_seconds_a_new_one_for_60_and_is_suspected_after_25() {
    let config = Config::kcm_defaults();
    let seconds =
        [config.monitor_grace, config.startup_grace, config.suspect_after].map(|span| span.as_secs());
    assert_eq!(seconds, [50, 60, 25]);
    assert_eq!((config.mode, config.led_since), (Mode::Guard, None), "who says nothing takes nothing over");
}

/// As kube-controller-manager gives nodes up: one in ten seconds, one in a hundred while a zone of more than fifty is in
/// trouble, and a zone is when 55 % of it and at least three are lost.
#[test]
fn nodes_are_given_up_as_fast_as_kcm_does() {
    let rates = Config::kcm_defaults().rates;
    assert_eq!(rates, Rates { normal: 0.1, disrupted: 0.01, large: 50, unhealthy: 0.55 });
    let of = |ready, not_ready| zone_state(ZoneCount { ready, not_ready, excluded: 0 }, &rates);
    assert_eq!((of(1, 2), of(2, 3), of(3, 3)), (ZoneState::Normal, ZoneState::Partial, ZoneState::Normal));
}

/// Of the five renewals that fit into the grace two are waited for: one alone may be late by chance.
#[test]
fn kubelets_have_two_of_their_renewals_to_come_back() {
    assert_eq!(two_renewals(Duration::from_secs(50)), Duration::from_secs(20));
    assert_eq!(two_renewals(Duration::from_secs(25)), Duration::from_secs(10));
}

/// What a process that was stopped has not read yet it reads within two seconds; a majority of fewer than three is none.
#[test]
fn a_majority_of_three_or_more_is_doubted_for_two_seconds() {
    for (of, lost, is_doubted) in
        [(2, 2, false), (3, 1, false), (3, 2, true), (4, 2, false), (4, 3, true), (5, 2, false)]
    {
        let names: Vec<String> = (0..of).map(|number| format!("n{number}")).collect();
        let mut stage = Fixture::new(config(), &names.iter().map(String::as_str).collect::<Vec<_>>());
        for name in &names[..lost] {
            stage.alive.remove(name);
        }
        stage.until(50);
        let words = stage.describe("n0");
        assert_eq!(words == [format!("LargeOutage {lost}/{of}")], is_doubted, "{lost} of {of}: {words:?}");
        if is_doubted {
            assert_eq!(stage.decide("n0").requeue_at, Some(at(52)), "{lost} of {of}");
            stage.until(52);
            assert_eq!(stage.describe("n0")[0], "silent", "{lost} of {of}");
        }
    }
}
