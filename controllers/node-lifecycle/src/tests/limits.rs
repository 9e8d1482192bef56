//! The limits that safety depends on, as numbers, each with its reason.

use super::super::heartbeat::two_renewals;

use super::*;

/// A kubelet renews every ten seconds: four renewals may be late or lost before the fifth is missed. Half of that is
/// for a taint that keeps new pods away and evicts none.
#[test]
fn the_grace_period_is_50_seconds_60_for_a_new_node_and_25_for_suspicion() {
    let config = Config::kcm_defaults();
    let seconds = [config.monitor_grace, config.startup_grace, config.suspect_after].map(|span| span.as_secs());
    assert_eq!(seconds, [50, 60, 25]);
    assert_eq!((config.mode, config.led_since), (Mode::Guard, None), "the default replaces no controller");
}

/// As kube-controller-manager: one node in ten seconds, one in a hundred while a zone of more than fifty is
/// disrupted; a zone is disrupted when 55 % of it and at least three nodes are lost.
#[test]
fn nodes_are_tainted_at_the_rates_of_kcm() {
    let rates = Config::kcm_defaults().rates;
    assert_eq!(rates, Rates { normal: 0.1, disrupted: 0.01, large: 50, unhealthy: 0.55 });
    let of = |ready, not_ready| zone_state(ZoneCount { ready, not_ready, excluded: 0 }, &rates);
    assert_eq!((of(1, 2), of(2, 3), of(3, 3)), (ZoneState::Normal, ZoneState::Partial, ZoneState::Normal));
}

/// Two of the five renewals that fit into the grace period: a single one may be late by chance.
#[test]
fn kubelets_have_two_of_their_renewals_to_come_back() {
    assert_eq!(two_renewals(Duration::from_secs(50)), Duration::from_secs(20));
    assert_eq!(two_renewals(Duration::from_secs(25)), Duration::from_secs(10));
}

/// A process that was stopped reads its backlog within two seconds; with fewer than three nodes a majority is
/// meaningless.
#[test]
fn a_majority_of_three_or_more_is_held_for_two_seconds() {
    for (of, lost, is_doubted) in
        [(2, 2, false), (3, 1, false), (3, 2, true), (4, 2, false), (4, 3, true), (5, 2, false)]
    {
        let names: Vec<String> = (0..of).map(|number| format!("n{number}")).collect();
        let mut fixture = Fixture::new(config(), &names.iter().map(String::as_str).collect::<Vec<_>>());
        for name in &names[..lost] {
            fixture.alive.remove(name);
        }
        fixture.advance_to(50);
        let words = fixture.describe("n0");
        assert_eq!(words == [format!("LargeOutage {lost}/{of}")], is_doubted, "{lost} of {of}: {words:?}");
        if is_doubted {
            assert_eq!(fixture.decide("n0").requeue_at, Some(at(52)), "{lost} of {of}");
            fixture.advance_to(52);
            assert_eq!(fixture.describe("n0")[0], "not reporting", "{lost} of {of}");
        }
    }
}
