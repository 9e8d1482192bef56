//! Two candidates over a network that loses, delays and duplicates requests.

use super::*;

const UNTIL: f64 = 240.0;
const FAULTS_UNTIL: f64 = 180.0;

/// Delays, losses of requests and losses of answers, at random, until the network is repaired.
fn unlucky(seed: u64, clock: &Env) -> impl Fn(&Received) -> Fate + Send + Sync + 'static {
    let (chance, clock) = (Env::real(seed), clock.clone());
    move |_| {
        let unit = || chance.rng.unit();
        if seconds(&clock) > FAULTS_UNTIL {
            return Fate::default();
        }
        let late = |unit: f64| Duration::from_secs_f64(if unit < 0.5 { 0.0 } else { unit * unit * 20.0 });
        Fate { before: late(unit()), after: late(unit()), lost: unit() < 0.15, unheard: unit() < 0.15 }
    }
}

/// Runs two candidates; returns how often the leader changed.
async fn rivalry(seed: u64) -> usize {
    let (server, (clock, _)) = (Server::default(), env());
    let mut one = Candidate::new(&server, "a", unlucky(seed * 2 + 1, &clock));
    let mut two = Candidate::new(&server, "b", unlucky(seed * 2 + 1_000_003, &clock));
    let _running = (one.start(), two.start());
    let walls = ["2025-11-21T12:00:00Z", "2027-11-21T12:00:00Z", "2026-11-21T12:00:00Z"];
    let (mut last, mut changes) = (None, 0);
    let mut step = 0_usize;
    while seconds(&clock) < UNTIL {
        advance(0.05).await;
        step += 1;
        if step.is_multiple_of(97) {
            one.wall.set(walls[step % 3]);
            two.wall.set(walls[(step + 1) % 3]);
        }
        let leader = match (one.leads(), two.leads()) {
            (true, true) => panic!("two lead at {} with seed {seed}", seconds(&clock)),
            (true, false) => Some("a"),
            (false, true) => Some("b"),
            (false, false) => continue,
        };
        if leader != last {
            (last, changes) = (leader, changes + 1);
        }
    }
    assert!(one.leads() || two.leads(), "nobody leads a minute after the network was repaired, with seed {seed}");
    changes
}

#[test]
fn two_candidates_never_lead_at_once_and_one_leads_after_the_network_recovers() {
    let mut changes = 0;
    for seed in 0..40 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        changes += runtime.block_on(rivalry(seed));
    }
    assert!(changes > 40, "leadership changed hands {changes} times: too few for the test to mean anything");
}
