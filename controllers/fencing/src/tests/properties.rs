//! Properties that hold for every status that can be written, whatever the node does.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
struct Sketch {
    phase: usize,
    /// Act, outcome, and what was verified: nothing, On, Off or Unknown.
    attempts: Vec<(bool, bool, usize)>,
    /// None, valid, invalid, of another node.
    proof: usize,
    named: bool,
    tainted: bool,
    /// Lost, Ready in the same incarnation, Ready in another, lost in another, deleted.
    machine: usize,
    pod: bool,
    paused: bool,
    ours: bool,
    cancelled: bool,
    dry: bool,
    person: bool,
    power_on: bool,
    storm: bool,
    later: u64,
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let attempts = prop::collection::vec((any::<bool>(), any::<bool>(), 0_usize..4), 0..4);
    let flags = prop::array::uniform8(prop::bool::weighted(0.2));
    let rest = (prop::bool::weighted(0.8), any::<bool>(), any::<bool>(), 0_u64..200);
    (0_usize..8, attempts, 0_usize..4, 0_usize..5, flags, rest).prop_map(
        |(phase, attempts, proof, machine, flags, (named, tainted, power_on, later))| {
            let [pod, paused, ours, cancelled, dry, person, storm, _] = flags;
            Sketch {
                phase,
                attempts,
                proof,
                named,
                tainted,
                machine,
                pod,
                paused,
                ours,
                cancelled,
                dry,
                person,
                power_on,
                storm,
                later,
            }
        },
    )
}

impl Sketch {
    fn attempts(&self) -> Vec<Attempt> {
        let attempt = |(id, (off, outcome, verified)): (u32, &(bool, bool, usize))| Attempt {
            id,
            act: if *off { DesiredPower::Off } else { DesiredPower::On },
            within_seconds: 60,
            devices: level("bmc", 1).devices,
            outcome: outcome.then(|| "said".to_owned()),
            verified: [Power::On, Power::Off, Power::Unknown]
                .get(verified.wrapping_sub(1))
                .map(|power| Verified { power: *power, ..Verified::default() }),
            ..Attempt::default()
        };
        (1..).zip(&self.attempts).map(attempt).collect()
    }

    fn fixture(&self) -> Fixture {
        let mut fixture = Fixture::lost();
        fixture.policy(|policy| {
            policy.paused = self.paused.then(|| "x".to_owned());
            policy.recovery = if self.power_on { Recovery::PowerOn } else { Recovery::Hold };
        });
        if self.pod {
            fixture.pod("db-0", "n", Fixture::terminating);
        }
        if self.ours {
            fixture.runs_on("n");
        }
        let status = NodeFenceStatus {
            phase: Phase::ALL[self.phase],
            attempts: self.attempts(),
            evidence: self.named.then(|| "e".to_owned()),
            tainted: self.tainted,
            ..NodeFenceStatus::default()
        };
        fixture.fence("n", if self.person { Trigger::Person } else { Trigger::Detected }, status);
        fixture.edit(|spec, _| (spec.cancelled, spec.dry_run) = (self.cancelled, self.dry));
        match self.proof {
            0 => {}
            3 => fixture.evidence("m", "e", FenceEvidenceKind::PowerOff),
            _ => fixture.evidence("n", "e", FenceEvidenceKind::PowerOff),
        }
        if self.proof == 2 {
            fixture.invalidate("e");
        }
        match self.machine {
            0 => {}
            1 => fixture.reboot("n", "b0000000-0000-4000-8000-00000000000a"),
            2 => fixture.reboot("n", "b0000000-0000-4000-8000-000000000002"),
            3 => fixture.change("n", |node| {
                node["status"]["nodeInfo"]["bootID"] = json!("b0000000-0000-4000-8000-000000000002")
            }),
            _ => fixture.delete(Kind::Nodes, "n"),
        }
        if self.storm {
            fixture.lose(&["m", "k", "l"]);
        }
        fixture.advance(self.later);
        fixture
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_step_without_its_preconditions(sketch in sketch()) {
        let fixture = sketch.fixture();
        let decision = fixture.decide("n");
        prop_assert_eq!(&decision, &fixture.decide("n"), "pure");
        let taken: Vec<&Step> = step(&decision).into_iter().collect();
        let live = !Phase::ALL[sketch.phase].is_over();
        let says = !taken.is_empty() || !decision.holds.is_empty();
        prop_assert!(!live || says, "whatever waits is held by a reason: {:?}", decision);
        let under_way = sketch.attempts.last().is_some_and(|(_, outcome, verified)| !outcome && *verified == 0)
            && fixture.mono() < at(70 + 60 + 2);
        let proved = sketch.proof == 1;
        let same_life = matches!(sketch.machine, 0 | 1);
        for step in taken {
            match step {
                Step::Open(_) => prop_assert!(sketch.machine == 3 && !(live && under_way), "lost in an incarnation without an incident"),
                Step::Attempt(target) if target.status.phase == Phase::Fencing => {
                    prop_assert!(!sketch.ours && !sketch.paused && !sketch.cancelled && !sketch.dry && !sketch.storm);
                    prop_assert!(!under_way, "what was begun may still land");
                    prop_assert!(matches!(sketch.machine, 0 | 1 | 4), "another incarnation");
                    prop_assert!(sketch.machine != 1 || sketch.person, "it is well");
                    prop_assert_eq!(target.status.attempts.last().unwrap().act, DesiredPower::Off);
                }
                Step::Attempt(target) => {
                    prop_assert_eq!(target.status.attempts.last().unwrap().act, DesiredPower::On);
                    prop_assert!(!sketch.pod && proved && sketch.named && !under_way && sketch.power_on);
                    prop_assert!(!sketch.paused && !sketch.cancelled && !sketch.dry && same_life);
                }
                Step::Drain(..) => prop_assert!(false, "no node is unhealthy and reports here"),
                Step::Look(_) => prop_assert!(!under_way),
                Step::Prove(_) => {
                    let last = sketch.attempts.last().unwrap();
                    prop_assert!(last.0 && last.2 == 2, "two checks reported off: {last:?}");
                }
                Step::ProveStorage(_) => prop_assert!(false, "no storage is fenced here"),
                Step::Taint(target) => {
                    prop_assert!(proved && sketch.named && sketch.machine == 0 && target.status.tainted);
                }
                Step::Untaint(target) => {
                    let phase = if sketch.pod { Phase::ALL[sketch.phase] } else { Phase::Done };
                    prop_assert!(sketch.machine == 2 && !target.status.tainted && target.status.phase == phase);
                }
                Step::Withdraw(target) => {
                    prop_assert!(sketch.proof == 2 && sketch.named && sketch.tainted && !target.status.tainted);
                }
                Step::Contradict(_) => prop_assert!(false, "no sign of life has lasted"),
                Step::Write(target) => match target.status.phase {
                    Phase::Fenced => prop_assert!(
                        proved && target.status.evidence.is_some() || Phase::ALL[sketch.phase] == Phase::Fenced
                    ),
                    Phase::Cancelled | Phase::Superseded => prop_assert!(!under_way),
                    Phase::Done => prop_assert!(sketch.machine == 2 && !sketch.pod),
                    Phase::Pending | Phase::Fencing | Phase::Recovering | Phase::AwaitingOperator => {}
                },
            }
        }
    }

    /// Repeated decisions about a status that does not change end in a wait or in an action outside the API: they do
    /// not write endlessly.
    #[test]
    fn writes_come_to_an_end(sketch in sketch()) {
        let mut fixture = sketch.fixture();
        for _write in 0..8 {
            match step(&fixture.decide("n")) {
                Some(Step::Write(_)) => drop(fixture.act("n")),
                _ => return Ok(()),
            }
        }
        prop_assert!(false, "still writing: {:?}", fixture.decide("n"));
    }
}
